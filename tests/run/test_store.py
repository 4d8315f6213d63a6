"""What is written is read back; a cut, foreign, later or locked file is named and left alone."""

from __future__ import annotations

import math
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seepage.assessment import Association, Measured, Measurement
from seepage.assessment.evidence import Evidence
from seepage.errors import BadInputError
from seepage.run import store as store_module
from seepage.run.store import FILE, Failure, Store

SETTING = {"batch_size": 8}


def scores(*accuracies: float) -> list[Measured]:
    values = torch.tensor(accuracies, dtype=torch.float64)
    return [
        Measurement("accuracy", None, values, True, (0.0, 1.0)),
        Measurement("rmse", "[age]", values * 3, False, (0.0, math.inf)),
        Association("kendall_discrete", None, values, values.flip(0)),
    ]


def seen(victims: int, loss: float | None = 0.5, records: bool = True) -> list[Evidence]:
    made = []
    for victim in range(victims):
        shape = (1, 2, 3)
        cells = np.arange(6, dtype=np.float64).reshape(shape) + victim
        made.append(
            Evidence(
                column_names=("a", "<b>", "ü"),
                right=cells % 2 == 0,
                uncertainty=np.where(cells > 3, -np.inf, cells).astype(np.float32),
                rarity=np.full((1, 2), 0.25, np.float32),
                groups={"a": {"x": (3, victim), "y": (3, 1)}},
                loss=None if loss is None else np.array([loss]),
                course=None if loss is None else np.array([[1.0, loss, loss / 2]]),
                true=cells if records else None,
                guess=cells + 1 if records else None,
            )
        )
    return made


def filled(folder: Path | None, private: bool = False) -> Store:
    store = Store(folder, private)
    store.add("k", SETTING, range(2), scores(0.25, math.nan), 0.5, seen(2))
    store.add("k", SETTING, range(2, 3), scores(0.75), 0.25, seen(1, loss=math.inf))
    return store


def assert_same(one: list[Measured], other: list[Measured]) -> None:
    for a, b in zip(one, other, strict=True):
        assert type(a) is type(b)
        for name, value in vars(a).items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(value, getattr(b, name), rtol=0, atol=0, equal_nan=True)
            else:
                assert value == getattr(b, name)


def test_a_second_store_reads_what_the_first_wrote(tmp_path: Path) -> None:
    with filled(tmp_path / "run") as first:
        measured, evidence = first.measured("k", range(3)), first.evidence("k", range(3))
    assert evidence is not None
    with Store(tmp_path / "run") as second:
        assert second.units("k") == {0, 1, 2}
        assert second.seconds("k") == {0: 0.5, 1: 0.5, 2: 0.25}
        assert second.losses("k") == {0: 0.5, 1: 0.5, 2: None}
        assert_same(second.measured("k", range(3)), measured)
        again = second.evidence("k", range(3))
        assert again is not None
        assert again.column_names == ("a", "<b>", "ü")
        assert again.groups == evidence.groups == {"a": {"x": (9, 1), "y": (9, 3)}}
        for name in ("right", "uncertainty", "rarity", "loss", "true", "guess"):
            np.testing.assert_array_equal(getattr(again, name), getattr(evidence, name))
            assert getattr(again, name).dtype == getattr(evidence, name).dtype
        assert second.units("other") == set()
        assert second.evidence("other", range(3)) is None


def test_measurements_come_back_with_their_meaning_in_the_order_asked_for(tmp_path: Path) -> None:
    accuracy, rmse, kendall = filled(tmp_path).measured("k", [2, 0, 1])
    assert isinstance(accuracy, Measurement)
    assert isinstance(rmse, Measurement)
    assert isinstance(kendall, Association)
    assert accuracy.values[:2].tolist() == [0.75, 0.25]
    assert accuracy.values[2].isnan()
    assert (rmse.column, rmse.higher_leaks, rmse.bounds) == ("[age]", False, (0.0, math.inf))
    assert kendall.entropy[2] == 0.25


@given(
    right=arrays.arrays(bool, st.tuples(st.just(1), st.integers(1, 4), st.integers(1, 4))),
    rarity=st.floats(0, 100, width=32),
)
def test_any_evidence_comes_back_bit_for_bit(right: np.ndarray, rarity: float) -> None:
    shape = right.shape
    given_ = Evidence(
        column_names=tuple(map(str, range(shape[2]))),
        right=right,
        uncertainty=None,
        rarity=np.full(shape[:2], rarity, np.float32),
        groups={},
        loss=None,
        course=None,
        true=None,
        guess=None,
    )
    with Store(None) as store:
        store.add("k", SETTING, range(1), scores(0.5), 0.1, [given_])
        found = store.evidence("k", [0])
    assert found is not None
    assert found.right.tobytes() == right.tobytes()
    assert found.rarity.tobytes() == given_.rarity.tobytes()
    assert found.uncertainty is found.true is found.guess is found.loss is None


def test_what_cells_are_certified_under_comes_back_for_each_victim() -> None:
    one, two = (
        replace(part, regime=("all",), conditions=(text,)) for part, text in zip(seen(2), ("if", ""), strict=True)
    )
    with Store(None) as store:
        store.add("k", SETTING, range(2), scores(0.5, 0.5), 0.1, [one, two])
        found = store.evidence("k", range(2))
    assert found is not None
    assert (found.regime, found.conditions) == (("all", "all"), ("if", ""))


def test_a_failure_is_kept_until_the_job_is_done(tmp_path: Path) -> None:
    failure = Failure(range(8, 16), "ValueError: no", "Traceback ...")
    with filled(tmp_path) as store:
        store.add_failure("k", SETTING, failure)
        store.add_failure("new", SETTING, failure)
    with Store(tmp_path) as store:
        assert store.failures("k") == store.failures("new") == [failure]
        assert store.units("k") == {0, 1, 2}
        store.add("k", SETTING, range(8, 9), scores(0.5), 0.1)
        assert store.failures("k") == []
        assert store.failures("new") == [failure]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with filled(None) as store:
        assert store.units("k") == {0, 1, 2}
    assert list(tmp_path.iterdir()) == []


def test_a_folder_stays_untouched_until_something_is_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "run") as store:
        assert store.is_empty
        assert store.runs() == []
    assert list(tmp_path.iterdir()) == []


def test_commands_are_kept_in_order(tmp_path: Path) -> None:
    for name in ("first", "<second>"):
        with Store(tmp_path) as store:
            store.add_run({"command": name})
    with Store(tmp_path) as store:
        assert [run["command"] for run in store.runs()] == ["first", "<second>"]


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused_and_left_as_it_is(tmp_path: Path, share: float) -> None:
    filled(tmp_path).close()
    path = tmp_path / FILE
    cut = path.read_bytes()[: int(share * path.stat().st_size)]
    path.write_bytes(cut)
    with pytest.raises(BadInputError, match="damaged or no store"):
        Store(tmp_path)
    assert path.read_bytes() == cut


def test_overwritten_pages_are_refused(tmp_path: Path) -> None:
    filled(tmp_path).close()
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="damaged or no store"):
        Store(tmp_path)


def test_text_is_no_store(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("not a database, but longer than the header of one would be\n" * 20)
    with pytest.raises(BadInputError, match="damaged or no store"):
        Store(tmp_path)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("CREATE TABLE mine (id INTEGER)")
    other.close()
    with pytest.raises(BadInputError, match="was not written by seepage"):
        Store(tmp_path)


def test_a_store_from_the_future_is_refused(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(BadInputError, match=r"later seepage \(layout 99"):
        Store(tmp_path)


def test_a_store_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_SECONDS_TO_WAIT", 0.05)
    with filled(tmp_path), pytest.raises(BadInputError, match="in use by another seepage"):
        Store(tmp_path)
    with Store(tmp_path) as store:
        assert store.units("k") == {0, 1, 2}


def test_an_empty_file_of_a_run_killed_at_its_start_is_filled(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with filled(tmp_path) as store:
        assert store.units("k") == {0, 1, 2}


def test_no_space_left_is_said_and_what_was_stored_stays(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        pages = store._rows("PRAGMA page_count")[0][0]
        store._rows(f"PRAGMA max_page_count = {pages}")

        def fill() -> None:
            for first in range(8, 4000, 8):
                store.add("k", SETTING, range(first, first + 8), scores(*[0.5] * 8), 0.1, seen(8))

        with pytest.raises(BadInputError, match="full"):
            fill()
        stored = store.units("k")
    with Store(tmp_path) as again:
        assert again.units("k") == stored >= {0, 1, 2}


def test_private_files_are_the_owners_alone(tmp_path: Path) -> None:
    filled(tmp_path / "own", private=True).close()
    assert stat.S_IMODE((tmp_path / "own" / FILE).stat().st_mode) == 0o600
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [FILE]
