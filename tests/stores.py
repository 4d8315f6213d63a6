"""What tests compare stores by."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from seepage.run.store import FILE


def measurements(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all that was measured and kept, whatever the order it came in; not when, nor how long it took."""
    queries = {
        "series": "SELECT key, identity FROM series ORDER BY key",
        "scores": """SELECT s.key, f.position, f.metric, f."column", c.unit, c.value, c.entropy FROM scores c
            JOIN figures f ON f.id = c.figure JOIN series s ON s.id = f.series ORDER BY 1, 2, 5""",
        "losses": "SELECT s.key, unit, loss FROM units u JOIN series s ON s.id = u.series ORDER BY 1, 2",
        "evidence": """SELECT s.key, unit, about, arrays FROM evidence e
            JOIN series s ON s.id = e.series ORDER BY 1, 2""",
        "jobs": "SELECT s.key, first, units FROM jobs j JOIN series s ON s.id = j.series ORDER BY 1, 2",
        "failures": "SELECT s.key, first, units FROM failures j JOIN series s ON s.id = j.series ORDER BY 1, 2",
    }
    connection = sqlite3.connect(folder / FILE)
    try:
        return {name: connection.execute(query).fetchall() for name, query in queries.items()}
    finally:
        connection.close()


def jobs_done(folder: Path, in_use: bool = False) -> int:
    """Return how many jobs are stored, 0 while there is no store; of one in use, about how many."""
    if not (folder / FILE).exists():
        return 0
    how = "?mode=ro&immutable=1" if in_use else ""
    connection = sqlite3.connect(f"file:{folder / FILE}{how}", uri=True)
    try:
        return connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
    except sqlite3.DatabaseError:
        return 0
    finally:
        connection.close()
