"""The store of a run folder: one SQLite file, in which each job's victims appear whole or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from seepage.assessment import Measurement
from seepage.assessment.evidence import ARRAYS, Evidence, together
from seepage.digests import Json, digest_of
from seepage.errors import BadInputError
from seepage.files import STORE as FILE
from seepage.files import make_folder, publish, why
from seepage.run.job_digests import digest, first_damage, stored_job

T = TypeVar("T")

# In the file's header: the application, and the version of the tables.
_APPLICATION = 0x5EE9A6E0
_VERSION = 3
_SECONDS_TO_WAIT = 2.0

_TABLES = """
CREATE TABLE setups (key TEXT PRIMARY KEY, content TEXT NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (id INTEGER PRIMARY KEY, entry TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE series (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, identity TEXT NOT NULL);
CREATE TABLE figures (
    id INTEGER PRIMARY KEY, series INTEGER NOT NULL REFERENCES series (id), position INTEGER NOT NULL,
    metric TEXT NOT NULL, "column" TEXT, higher_leaks INTEGER, low REAL, high REAL, UNIQUE (series, position)
);
CREATE TABLE jobs (
    series INTEGER NOT NULL REFERENCES series (id), first INTEGER NOT NULL, units INTEGER NOT NULL,
    digest BLOB NOT NULL, PRIMARY KEY (series, first)
) WITHOUT ROWID;
CREATE TABLE failures (
    series INTEGER NOT NULL REFERENCES series (id), first INTEGER NOT NULL, units INTEGER NOT NULL,
    message TEXT NOT NULL, traceback TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (series, first)
) WITHOUT ROWID;
CREATE TABLE units (
    series INTEGER NOT NULL REFERENCES series (id), unit INTEGER NOT NULL, seconds REAL, loss REAL, picture TEXT,
    PRIMARY KEY (series, unit)
) WITHOUT ROWID;
CREATE TABLE scores (
    figure INTEGER NOT NULL REFERENCES figures (id), unit INTEGER NOT NULL, value REAL, entropy REAL, members BLOB,
    PRIMARY KEY (figure, unit)
) WITHOUT ROWID;
CREATE TABLE evidence (
    series INTEGER NOT NULL REFERENCES series (id), unit INTEGER NOT NULL, about TEXT NOT NULL,
    arrays BLOB NOT NULL, PRIMARY KEY (series, unit)
) WITHOUT ROWID;
"""
# Stored data of a range of units of one series.
_REMOVALS = [
    f"DELETE FROM {table} WHERE series = ? AND {place} >= ? AND {place} < ?"
    for table, place in (("units", "unit"), ("evidence", "unit"), ("jobs", "first"))
] + ["DELETE FROM scores WHERE figure IN (SELECT id FROM figures WHERE series = ?) AND unit >= ? AND unit < ?"]


# Last line of a traceback of a BadInputError, or of what says more of one.
_REFUSED = re.compile(r"seepage\.(errors\.(BadInputError|FieldError)|assessment\.utility\.TooFewRowsError): .*")


@dataclass(frozen=True)
class Failure:
    """A job that failed."""

    units: range
    message: str
    traceback: str

    @property
    def refused(self) -> bool:
        """Whether the part said that it cannot act on these rows or this network (``BadInputError``)."""
        return _REFUSED.fullmatch(self.traceback.rstrip().rpartition("\n")[2]) is not None


class Store:
    """The measured units of a run folder, in ``audit.sqlite``; in memory where there is no folder.

    The results of a job are written in one transaction, so that a killed run loses the jobs in flight and nothing else.
    The file appears with the first of them. While a store is open, no other process can write.

    A series is one attack or baseline in one configuration. The tables: ``setups`` (expensive intermediate results, by
    a digest of what determines them), ``runs`` (the provenance of each command that wrote here, as JSON), ``series``
    (key, and everything that determines its figures, as JSON), ``figures`` (measurements of a series), ``scores`` (one
    a figure and unit; ``value`` is the accuracy where the figure is a correlation with ``entropy``, and the mean of the
    float64 ``members`` where they are stored), ``units``, ``jobs``, ``failures`` and ``evidence``.

    Beside each job stands a SHA-256 digest of all its stored data, beside each other entry one of that entry. All are
    compared when a store is opened, so that damage and edits are noticed, but not an edit of data and digest together.
    """

    def __init__(self, folder: Path | None, private: bool = False) -> None:
        self._path = None if folder is None else folder / FILE
        self._private = private
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        if self._path is None:
            self._connection = sqlite3.connect(":memory:")
            self._make_tables(self._connection)
        elif self._path.exists():
            self._connection = self._open(self._path)

    def close(self) -> None:
        """Close the file, so that others can write."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_empty(self) -> bool:
        """Whether no unit of any series is stored."""
        return not self._rows("SELECT 1 FROM units LIMIT 1")

    def units(self, key: str) -> set[int]:
        """Return the indices of the units measured so far under ``key``."""
        return {unit for (unit,) in self._of(key, "units", "unit")}

    def seconds(self, key: str) -> dict[int, float | None]:
        """Return the machine time of each unit under ``key``, in seconds; None where it has none."""
        return dict(self._of(key, "units", "unit, seconds"))

    def losses(self, key: str) -> dict[int, float | None]:
        """Return the attack's own loss of each unit under ``key``; None where it has none."""
        return dict(self._of(key, "units", "unit, loss"))

    def picture(self, key: str) -> str | None:
        """Return the picture of the first unit under ``key`` that has one, a data URI."""
        pictures = self._of(key, "units", "picture", "AND picture IS NOT NULL ORDER BY unit LIMIT 1")
        return pictures[0][0] if pictures else None

    def measured(
        self, key: str, units: Iterable[int], only: Collection[tuple[str, str | None]] | None = None
    ) -> list[Measurement]:
        """Return the measurements of these units under ``key``, ``only`` some of metric and column, in their order."""
        place = {unit: i for i, unit in enumerate(units)}
        measured: list[Measurement] = []
        figures = self._of(key, "figures", 't.id, metric, "column", higher_leaks, low, high', "ORDER BY position")
        for number, metric, column, higher_leaks, low, high in figures:
            if only is not None and (metric, column) not in only:
                continue
            pairs = torch.full((len(place), 2), torch.nan, dtype=torch.float64)
            members: dict[int, torch.Tensor] = {}
            query = "SELECT unit, value, entropy, members FROM scores WHERE figure = ?"
            for unit, value, entropy, encoded in self._rows(query, number):
                if unit not in place:
                    continue
                pair = [math.nan if number is None else number for number in (value, entropy)]
                pairs[place[unit]] = torch.tensor(pair, dtype=torch.float64)
                if encoded is not None:
                    members[place[unit]] = self._decoded(_members, encoded)
            if higher_leaks is None:
                correlated, entropy = (values.clone() for values in pairs.unbind(1))
                measured.append(Measurement(metric, column, correlated, bounds=(-1.0, 1.0), entropy=entropy))
                continue
            bounds = (-math.inf if low is None else low, math.inf if high is None else high)
            clusters = tuple(members[i] for i in range(len(place))) if len(members) == len(place) > 0 else None
            measured.append(Measurement(metric, column, pairs[:, 0].clone(), bool(higher_leaks), bounds, clusters))
        return measured

    def evidence(self, key: str, units: Iterable[int]) -> Evidence | None:
        """Return the evidence of these units under ``key``, in their order; None where there is none."""
        rows = self._of(key, "evidence", "unit, about, arrays")
        decoded = {unit: self._decoded(_unpacked, about, arrays) for unit, about, arrays in rows}
        parts = [decoded[unit] for unit in units if unit in decoded]
        return together(parts) if parts else None

    def failures(self, key: str) -> list[Failure]:
        """Return the failed jobs under ``key`` that were not repeated since with success."""
        rows = self._of(key, "failures", "first, units, message, traceback", "ORDER BY first")
        return [Failure(range(first, first + count), message, trace) for first, count, message, trace in rows]

    def runs(self) -> list[dict[str, Any]]:
        """Return the provenance of the commands that wrote here, oldest first."""
        return [self._decoded(json.loads, entry) for (entry,) in self._rows("SELECT entry FROM runs ORDER BY id")]

    def add_run(self, entry: Mapping[str, object]) -> None:
        """Store the provenance of a command that is about to write here."""
        number, text = self._next("runs"), json.dumps(entry, ensure_ascii=False)
        self._write([("INSERT INTO runs VALUES (?, ?, ?)", [(number, text, digest(number, text))])])

    def setup(self, identity: Mapping[str, Json], make: Callable[[], object] | None) -> Any:
        """Return JSON values that are computed once and stored; None for those not stored without ``make``."""
        key = digest_of(identity)
        rows = self._rows("SELECT content FROM setups WHERE key = ?", key)
        if rows:
            return self._decoded(json.loads, rows[0][0])
        if make is None:
            return None
        content = json.dumps(make(), ensure_ascii=False)
        self._write([("INSERT INTO setups VALUES (?, ?, ?)", [(key, content, digest(key, content))])])
        return json.loads(content)

    def add(
        self,
        key: str,
        identity: Mapping[str, object],
        units: range,
        measured: Sequence[Measurement],
        seconds: float | None,
        evidence: Sequence[Evidence] = (),
        pictures: Sequence[str | None] = (),
    ) -> None:
        """Store the units of one job, all in one transaction."""
        number, writes = self._series(key, identity)
        span = (number, units.stop, units.start)
        query = "SELECT first, units FROM jobs WHERE series = ? AND first < ? AND first + units > ?"
        for first, count in self._rows(query, *span):
            # Units that are measured again replace whole jobs, so that each unit belongs to one.
            old = (number, first, first + count)
            writes += [(statement, [old]) for statement in _REMOVALS]
        rows = self._rows('SELECT metric, "column", id FROM figures WHERE series = ?', number)
        figure_ids = {(metric, column): figure for metric, column, figure in rows}
        fresh, scores = [], []
        free = self._next("figures")
        for m in measured:
            # Units may differ in the metrics that apply to them, so figures go by name.
            name = (m.metric, m.column)
            if name not in figure_ids:
                fresh.append((free + len(fresh), number, len(figure_ids), *_about(m)))
                figure_ids[name] = fresh[-1][0]
            for i, value in enumerate(m.values.tolist()):
                doubt = None if m.entropy is None else _plain(float(m.entropy[i]))
                members = None if m.clusters is None else _packed_members(m.clusters[i])
                scores.append((figure_ids[name], units.start + i, _plain(value), doubt, members))
        losses = [None if e.loss is None else _plain(float(e.loss[0])) for e in evidence] or [None] * len(units)
        shown = list(pictures) or [None] * len(units)
        writes += [
            ("INSERT INTO figures VALUES (?, ?, ?, ?, ?, ?, ?, ?)", fresh),
            ("INSERT INTO scores VALUES (?, ?, ?, ?, ?)", scores),
            (
                "INSERT INTO units VALUES (?, ?, ?, ?, ?)",
                [(number, unit, seconds, losses[i], shown[i]) for i, unit in enumerate(units)],
            ),
            (
                "INSERT INTO evidence VALUES (?, ?, ?, ?)",
                [(number, unit, *_packed(e)) for unit, e in zip(units, evidence, strict=False)],
            ),
            ("DELETE FROM failures WHERE series = ? AND first < ? AND first + units > ?", [span]),
        ]
        self._write(writes, (number, units))

    def add_failure(self, key: str, identity: Mapping[str, object], failure: Failure) -> None:
        """Store the reason of a job's failure, until another run succeeds."""
        number, writes = self._series(key, identity)
        units = failure.units
        row = (number, units.start, len(units), failure.message, failure.traceback)
        self._write([*writes, ("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?)", [(*row, digest(*row))])])

    def _series(
        self, key: str, identity: Mapping[str, object]
    ) -> tuple[int, list[tuple[str, Sequence[tuple[object, ...]]]]]:
        numbers = self._rows("SELECT id FROM series WHERE key = ?", key)
        if numbers:
            return numbers[0][0], []
        number = self._next("series")
        row = (number, key, json.dumps(identity, sort_keys=True, ensure_ascii=False))
        return number, [("INSERT INTO series VALUES (?, ?, ?)", [row])]

    def _next(self, table: str) -> int:
        rows = self._rows(f"SELECT max(id) FROM {table}")
        return 1 + ((rows[0][0] or 0) if rows else 0)

    def _of(self, key: str, table: str, columns: str, rest: str = "") -> list[tuple[Any, ...]]:
        """Return columns of a table (t in the query) for one series."""
        joined = f"{table} t JOIN series s ON s.id = t.series"
        return self._rows(f"SELECT {columns} FROM {joined} WHERE s.key = ? {rest}", key)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if self._connection is None:
            return []
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _write(
        self, writes: Iterable[tuple[str, Sequence[tuple[object, ...]]]], job: tuple[int, range] | None = None
    ) -> None:
        """Execute statements in one transaction, with the digest of a job (series and units) at its end."""
        if self._connection is None:
            assert self._path is not None
            self._connection = self._create(self._path)
        self._check_there(self._connection)
        try:
            with self._connection:
                for statement, rows in writes:
                    self._connection.executemany(statement, rows)
                if job is not None:
                    # Digest of the stored values, not of the arguments: SQLite stores -0.0 as 0.0.
                    row = (job[0], job[1].start, len(job[1]))
                    stored = stored_job(self._connection, *row)
                    self._connection.execute("INSERT INTO jobs VALUES (?, ?, ?, ?)", (*row, stored.digest))
        except sqlite3.OperationalError as error:
            raise BadInputError(
                f"{str(self._path)!r} cannot be written ({error}); make room or choose another folder with --out. What "
                "was stored before is intact; the same command then goes on from there."
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _check_there(self, connection: sqlite3.Connection) -> None:
        """Refuse to go on once the file is missing: SQLite would write to a file without a name."""
        if self._path is None:
            return
        try:
            there = _identity(self._path.stat())
        except FileNotFoundError as error:
            # A deleted file is readable as long as it is open.
            self._make(self._path, connection.backup)
            raise BadInputError(
                f"{str(self._path)!r} was deleted or moved while this command wrote to it. All that was stored is in "
                "a new file of that name; run the same command again to go on from there."
            ) from error
        if there != self._file:
            raise BadInputError(
                f"{str(self._path)!r} was replaced by another file while this command wrote to it; that file was left "
                "as it is. Choose another --out to measure anew."
            )

    def _create(self, path: Path) -> sqlite3.Connection:
        self._make(path, self._make_tables)
        return self._open(path)

    def _make(self, path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
        """Create a store at a path; an existing one is in use."""
        make_folder(path.parent, self._private)
        try:
            # Under another name until its tables are there: a run that is killed leaves a whole store or none.
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(handle)
            try:
                with contextlib.closing(sqlite3.connect(temporary)) as connection:
                    fill(connection)
                publish(Path(temporary), path, self._private, replace=False)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except FileExistsError as error:
            raise self._in_use() from error
        except OSError as error:
            raise BadInputError(f"{str(path)!r} cannot be written ({why(error)} with --out.") from error
        except sqlite3.Error as error:
            raise BadInputError(f"{str(path)!r} cannot be written ({error}); choose another --out.") from error

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            with path.open("rb+") as file:
                if not file.read(1):
                    raise BadInputError(
                        f"{str(path)!r} is empty (0 bytes): it was cut, by a full disk or while it was copied. Restore "
                        "it from a copy, or delete it to measure anew."
                    )
                self._file = _identity(os.fstat(file.fileno()))
            connection = self._connect(path)
            [application] = connection.execute("PRAGMA application_id").fetchone()
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if application != _APPLICATION:
                raise BadInputError(f"{str(path)!r} was not written by seepage; choose another --out.")
            if 0 < version < _VERSION:
                raise BadInputError(
                    f"{str(path)!r} was written by an earlier seepage (layout {version}, this one writes {_VERSION}) "
                    "and is not read; choose another --out to measure anew, or read its results.json."
                )
            if version > _VERSION:
                raise BadInputError(
                    f"{str(path)!r} was written by a later seepage (layout {version}, this one knows {_VERSION}); "
                    "upgrade seepage or choose another --out."
                )
            [state] = connection.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(state)
            if (damage := first_damage(connection)) is not None:
                raise BadInputError(
                    f"{str(path)!r} is damaged or was edited: {damage} does not match its digest. It was left as it "
                    "is. Restore it from a copy, or choose another --out to measure anew."
                )
        except OSError as error:
            raise BadInputError(f"{str(path)!r} cannot be opened ({error.strerror}); choose another --out.") from error
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise self._in_use() from error
            raise self._damaged(error) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error
        return connection

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=_SECONDS_TO_WAIT)
        # Locked from the first write to the end: two runs into one folder would both measure everything.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        with connection:
            connection.execute("BEGIN")
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _decoded(self, decode: Callable[..., T], *stored: str | bytes) -> T:
        try:
            return decode(*stored)
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, zlib.error) as error:
            raise self._damaged(error) from error

    def _in_use(self) -> BadInputError:
        what = f"{str(self._path)!r} is in use by another seepage"
        return BadInputError(f"{what}; wait until it has ended, or choose another --out.")

    def _damaged(self, error: Exception) -> BadInputError:
        return BadInputError(
            f"{str(self._path)!r} is damaged or no store of seepage ({error}); it was left as it is. Restore it from a "
            "copy, or choose another --out to measure anew."
        )


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def _about(m: Measurement) -> tuple[str, str | None, int | None, float | None, float | None]:
    if m.entropy is not None:
        return m.metric, m.column, None, None, None
    low, high = map(_plain, m.bounds)
    return m.metric, m.column, int(m.higher_leaks), low, high


def _packed(evidence: Evidence) -> tuple[str, bytes]:
    """Return a description as JSON and the arrays' bytes, one after the other, compressed."""
    arrays = {name: getattr(evidence, name) for name in ARRAYS if getattr(evidence, name) is not None}
    layout = {name: [array.dtype.newbyteorder("<").str, list(array.shape)] for name, array in arrays.items()}
    ordered = [np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")) for array in arrays.values()]
    content = b"".join(array.tobytes() for array in ordered)
    about = {"columns": evidence.column_names, "groups": evidence.groups, "layout": layout}
    about |= {} if evidence.regime is None else {"regime": evidence.regime}
    about |= {} if evidence.conditions is None else {"conditions": evidence.conditions}
    about |= {} if evidence.choice is None else {"choice": evidence.choice}
    return json.dumps(about, ensure_ascii=False), zlib.compress(content, 6)


def _packed_members(values: torch.Tensor) -> bytes:
    # Of thousands of records most are right or wrong, so that compression leaves a hundredth of the bytes.
    return zlib.compress(values.double().cpu().contiguous().numpy().astype("<f8").tobytes())


def _members(stored: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(zlib.decompress(stored)), dtype=torch.float64)


def _unpacked(about: str, arrays: bytes) -> Evidence:
    header, content, begin = json.loads(about), zlib.decompress(arrays), 0
    arrays_by_name: dict[str, np.ndarray | None] = dict.fromkeys(ARRAYS)
    for name, (kind, shape) in header["layout"].items():
        dtype = np.dtype(kind)
        count = math.prod(shape)
        arrays_by_name[name] = np.frombuffer(content, dtype, count, begin).reshape(shape)
        begin += count * dtype.itemsize
    groups = {name: {c: (int(n), int(r)) for c, (n, r) in counts.items()} for name, counts in header["groups"].items()}
    texts = {name: tuple(header[name]) for name in ("regime", "conditions", "choice") if name in header}
    arguments: dict[str, Any] = {**texts, **arrays_by_name}
    return Evidence(column_names=tuple(header["columns"]), groups=groups, **arguments)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
