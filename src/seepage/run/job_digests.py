"""Digests of the stored data of each job, by which a store notices damage and edits inside valid pages."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from dataclasses import dataclass

Value = None | int | float | str | bytes

# All stored data of a job, in a fixed order. Each query takes the series, the first unit and the one after the last.
_PAYLOAD = {
    "units": """SELECT unit, seconds, loss, picture FROM units
        WHERE series = ? AND unit >= ? AND unit < ? ORDER BY unit""",
    "scores": """SELECT f.position, f.metric, f."column", f.higher_leaks, f.low, f.high,
            c.unit, c.value, c.entropy, c.members
        FROM figures f JOIN scores c ON c.figure = f.id
        WHERE f.series = ? AND c.unit >= ? AND c.unit < ? ORDER BY f.position, c.unit""",
    "evidence": """SELECT unit, about, arrays FROM evidence
        WHERE series = ? AND unit >= ? AND unit < ? ORDER BY unit""",
}


def canonical(values: tuple[Value, ...]) -> bytes:
    """Return values as bytes, different for different values: kind and length come before each.

    Example:
        >>> canonical((1, 2)) != canonical((12,)), canonical((1,)) != canonical((1.0,))
        (True, True)
    """
    parts = [struct.pack(">q", len(values))]
    for value in values:
        match value:
            case None:
                kind, content = b"n", b""
            case int():
                kind, content = b"i", str(value).encode()
            case float():
                kind, content = b"f", struct.pack(">d", value)
            case str():
                kind, content = b"s", value.encode()
            case bytes():
                kind, content = b"b", value
        parts += [kind, struct.pack(">q", len(content)), content]
    return b"".join(parts)


def digest(*values: Value) -> bytes:
    """Return the SHA-256 digest of some values, 32 bytes."""
    return hashlib.sha256(canonical(values)).digest()


@dataclass(frozen=True)
class StoredJob:
    """Digest of the series, a job's units and the rows of its units, and the number of these rows in each table."""

    digest: bytes
    rows: dict[str, int]


def stored_job(connection: sqlite3.Connection, series: int, first: int, units: int) -> StoredJob:
    """Return the digest of the stored data of a job, read from the tables."""
    about = connection.execute("SELECT key, identity FROM series WHERE id = ?", (series,)).fetchone() or ()
    digest, rows = hashlib.sha256(canonical((*about, first, units))), {}
    for table, query in _PAYLOAD.items():
        rows[table] = 0
        for row in connection.execute(query, (series, first, first + units)):
            digest.update(canonical((table, *row)))
            rows[table] += 1
    return StoredJob(digest.digest(), rows)


def first_damage(connection: sqlite3.Connection) -> str | None:
    """Return the first damaged data of a store, as the beginning of a sentence; None without damage."""
    stored = dict.fromkeys(_PAYLOAD, 0)
    for series, first, units, wanted in connection.execute("SELECT series, first, units, digest FROM jobs"):
        job = stored_job(connection, series, first, units)
        if job.digest != wanted:
            return f"what is stored of units {first} to {first + units - 1} of series {series}"
        for table, count in job.rows.items():
            stored[table] += count
    for table, count in stored.items():
        if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] != count:
            return f"the table {table}, which has rows of no job"
    for table, key, content in (("setups", "key", "content"), ("runs", "id", "entry")):
        for name, text, wanted in connection.execute(f"SELECT {key}, {content}, digest FROM {table}"):
            if digest(name, text) != wanted:
                return f"an entry of the table {table}"
    query = "SELECT series, first, units, message, traceback, digest FROM failures"
    for series, first, units, *reason, wanted in connection.execute(query):
        if digest(series, first, units, *reason) != wanted:
            return f"the failure of units {first} to {first + units - 1} of series {series}"
    return None
