"""Figures and texts in readable form."""

from __future__ import annotations

import pytest

from seepage.text import (
    clean,
    flattened,
    lasting,
    listed,
    lowered,
    percent,
    points,
    printable_json,
    shown_value,
    span,
    steers,
)


def test_texts_of_tables_are_short_and_steer_no_terminal() -> None:
    assert [clean("a\x1b[31mb"), clean("x" * 60, longest=5)] == ["a\\x1b[31mb", "xxxx…"]
    assert [shown_value(1 / 3, 24), shown_value("a long name", 6)] == ["0.333333", "a lon…"]
    assert [steers("größe 大"), steers("a\u202eb"), steers("a\x9b31m")] == [False, True, True]
    assert printable_json({"größe": "a\u202eb\x9b"}) == '{\n "größe": "a\\u202eb\\u009b"\n}'


def test_rates_have_intervals_and_missing_ones_a_dash() -> None:
    assert [percent(0.9517), percent(None), points(0.414), points(-0.02)] == ["95.2%", "–", "+41.4", "-2.0"]
    assert [span(0.921, 0.98), span(0.6454, 1.0), span(None, 1.0)] == ["[92.1, 98.0]", "[64.5, 100.0]", ""]


def test_values_are_written_as_in_running_text() -> None:
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert [lowered("The server"), lowered("A party"), lowered("AUC")] == ["the server", "a party", "AUC"]
    nested = {"commit": {"hash": "ab", "dirty": None}, "sizes": [1, 4], "audits": [{"seed": 0}]}
    assert dict(flattened(nested)) == {"commit.hash": "ab", "commit.dirty": "–", "sizes": "1, 4", "audits 1.seed": "0"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.2, "1 s"), (48.0, "48 s"), (130.0, "2 min"), (7e3, "1 h 57 min"), (2e5, "55 h")),
        *((5e6, "57 days"), (1e12, "31,688 years")),
    ],
)
def test_times_are_in_words(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
