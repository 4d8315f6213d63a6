"""A first try on odd tables: nothing is named but the table, the target and the sensitive column."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

# Benchmarks share a module, which none of another name hides.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
_BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "first_try.py"))
Shape, drawn, tried = (_BENCHMARK[name] for name in ("Shape", "drawn", "tried"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "shape", "status", "said"),
    [
        pytest.param("pooled", Shape(1_000, 1, 2), "0", "trials|INCOMPLETE: Nothing", marks=pytest.mark.slow),
        ("split", Shape(300, 1, 0), "2", "0 have categories"),
        pytest.param("vertical", Shape(60, 2, 2), "0", "active party|INCOMPLETE: Nothing", marks=pytest.mark.slow),
    ],
)
def test_first_tries_end_with_a_verdict_or_say_what_the_table_lacks(
    command: str, shape: object, status: str, said: str, tmp_path: Path
) -> None:
    table = tmp_path / "own.csv"
    frame = drawn(shape)
    frame.to_csv(table, index=False)
    found = tried(command, table, str(frame.columns[-2]), tmp_path / "out", budget="10s")
    # On a busy machine the time may end before any attack, which is then what is said.
    assert found["exit"] == status, found
    assert re.search(said, str(found["said"])), found
