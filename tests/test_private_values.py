"""A value that one person has is in no file and no line of an audit of a table of one's own, see docs/privacy.md."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from seepage.run.store import FILE
from tests.commands import Run, commands

NUMBER, CATEGORY, IDENTIFIER, MEASURE = 987654.321, "astronaut-at-large", 4111222233334444, 5309.8675
# As text, and as the numbers of four and eight bytes that arrays hold.
TRACES = [
    *(text.encode() for text in ("987654", "astronaut", "4111222233334444", "5309.86")),
    *(struct.pack(kind, value) for kind in ("<d", "<f") for value in (NUMBER, MEASURE)),
    struct.pack("<d", IDENTIFIER),
    struct.pack("<q", IDENTIFIER),
]
ROWS = 200
TRAINED = ["--epochs", 1, "--baseline", "marginals"]
SMALL = {
    "audit": ["--attack", "dlg:{iterations: 2}", "--batch-size", 2, "--victims", 3],
    "split": ["--private-column", "job", "--repetitions", 1, "--attacked-records", 10, "--attack", "exact", *TRAINED],
    "vertical": ["--passive", "income", "--passive", "job", "--attack", "ridge_sa", "--repetitions", 1, "--epochs", 1],
    "pooled": ["--sensitive", "town", "--value", "east", "--attack", "meta", "--shadows", 4, "--targets", 4],
    "trees": ["--rows", 40, "--trees", 2, "--repetitions", 1, "--attack", "anchor"],
    "statistics": ["--rows", 40, "--repetitions", 1],
}


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    frame = pd.DataFrame(
        {
            "income": [20_000.5 + 13.25 * i for i in range(ROWS)],
            "size": [40 + (i * 7 % 61) / 8 for i in range(ROWS)],
            "job": ["cook", "nurse", "smith", "clerk"] * (ROWS // 4),
            "town": ["east", "west"] * (ROWS // 2),
            "card": [4_000_000_000_000_000 + 7_919_000_003 * i for i in range(ROWS)],
            "ill": ["yes" if i % 3 else "no" for i in range(ROWS)],
        }
    )
    # Rows of the first client, or of whoever is attacked, among others.
    for row in (0, 57, 133):
        frame.loc[row, ["income", "job", "card", "size"]] = [NUMBER, CATEGORY, IDENTIFIER, MEASURE]
    frame.to_csv(tmp_path / "people.csv", index=False)
    return commands(capfd, monkeypatch, tmp_path)


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Return the files of a run folder, and what is compressed in its store, with their names."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.name, path.read_bytes()
    connection = sqlite3.connect(folder / FILE)
    try:
        for table, column in (("evidence", "arrays"), ("scores", "members")):
            for (stored,) in connection.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
                yield f"{table}.{column}", zlib.decompress(stored)
    finally:
        connection.close()


def found(content: bytes) -> list[bytes]:
    return [trace for trace in TRACES if trace in content]


@pytest.mark.parametrize("command", SMALL)
def test_a_value_of_one_person_is_in_no_file_and_no_line(seepage: Run, tmp_path: Path, command: str) -> None:
    common = ["--data", "people.csv", "--target", "ill", "--defense", "none", "--no-control", "--workers", 1]
    status, printed, errors = seepage(command, *common, *SMALL[command], "--out", "run")
    assert status == 0, errors
    assert {name: found(content) for name, content in contents(tmp_path / "run") if found(content)} == {}
    assert found((printed + errors).encode()) == []


def test_the_search_finds_what_is_kept_on_request(seepage: Run, tmp_path: Path) -> None:
    common = ["--data", "people.csv", "--target", "ill", "--defense", "none", "--no-control", "--workers", 1]
    every = ["--attack", "dlg:{iterations: 2}", "--batch-size", 100, "--victims", 2, "--keep-records", "--quiet"]
    assert seepage("audit", *common, *every, "--out", "run")[0] == 0
    assert {name for name, content in contents(tmp_path / "run") if found(content)} == {"evidence.arrays"}
