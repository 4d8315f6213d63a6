"""What is written is read back; a cut, foreign, later or locked file is named and left alone."""

from __future__ import annotations

import errno
import math
import os
import shutil
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seepage.assessment import Measurement
from seepage.assessment.evidence import Evidence
from seepage.errors import BadInputError
from seepage.run import store as store_module
from seepage.run.job_digests import digest, first_damage, stored_job
from seepage.run.store import FILE, Failure, Store

SETTING = {"batch_size": 8}


def scores(*accuracies: float) -> list[Measurement]:
    values = torch.tensor(accuracies, dtype=torch.float64)
    return [
        Measurement("accuracy", None, values, True, (0.0, 1.0)),
        Measurement("rmse", "[age]", values * 3, False, (0.0, math.inf)),
        Measurement("kendall_discrete", None, values, bounds=(-1.0, 1.0), entropy=values.flip(0)),
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


def assert_same(one: list[Measurement], other: list[Measurement]) -> None:
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
    assert kendall.entropy is not None
    assert accuracy.values[:2].tolist() == [0.75, 0.25]
    assert accuracy.values[2].isnan()
    assert (rmse.column, rmse.higher_leaks, rmse.bounds) == ("[age]", False, (0.0, math.inf))
    assert kendall.entropy[2] == 0.25
    # Of many figures those alone are read that are asked for.
    few = filled(tmp_path / "few").measured("k", [2, 0, 1], only=[("accuracy", None), ("rmse", None)])
    assert [(one.metric, one.column) for one in few] == [("accuracy", None)]


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


def test_a_folder_that_may_not_be_written_is_told_in_a_plain_sentence(tmp_path: Path, monkeypatch: Any) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".audit.sqlite.8u0m5n20"))

    monkeypatch.setattr(store_module.tempfile, "mkstemp", refused)
    with Store(tmp_path / "run") as store, pytest.raises(BadInputError) as raised:
        store.add_run({"command": "audit"})
    assert str(raised.value) == (
        f"{str(tmp_path / 'run' / FILE)!r} cannot be written (Permission denied): choose another folder with --out."
    )


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


def test_an_empty_file_is_reported_and_left(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with pytest.raises(BadInputError, match=r"is empty \(0 bytes\).*delete it to measure anew"):
        Store(tmp_path)
    assert (tmp_path / FILE).stat().st_size == 0


def test_a_run_killed_while_it_makes_its_store_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Store, connection: sqlite3.Connection) -> None:
        # What SIGKILL leaves: the file is there, its tables are not, and nothing tidies up.
        assert not (tmp_path / FILE).exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(Store, "_make_tables", killed)
        with pytest.raises(KeyboardInterrupt):
            filled(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with filled(tmp_path) as store:
        assert store.units("k") == {0, 1, 2}


def test_of_two_runs_that_make_a_store_at_once_the_second_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as late:
        filled(tmp_path).close()
        with pytest.raises(BadInputError, match="in use by another seepage"):
            late.add("k", SETTING, range(1), scores(0.5), 0.1)
    with Store(tmp_path) as store:
        assert store.units("k") == {0, 1, 2}


EDITS = {
    "a score": "UPDATE scores SET value = 0.2 WHERE value = 0.25",
    "a score that becomes missing": "UPDATE scores SET value = NULL WHERE unit = 2",
    "members of a score": "UPDATE scores SET members = x'00000000000000f0' WHERE unit = 1",
    "a score less": "DELETE FROM scores WHERE unit = 1",
    "a score of no job": "INSERT INTO scores SELECT figure, 9, value, entropy, members FROM scores WHERE unit = 1",
    "a unit less": "DELETE FROM units WHERE unit = 1",
    "a unit of no job": "INSERT INTO units SELECT series, 9, seconds, loss, picture FROM units WHERE unit = 1",
    "the time": "UPDATE units SET seconds = 0.125 WHERE unit = 0",
    "a loss": "UPDATE units SET loss = 0.25 WHERE unit = 0",
    "the figure's name": "UPDATE figures SET metric = 'accurate' WHERE metric = 'accuracy'",
    "the figure's meaning": "UPDATE figures SET higher_leaks = 0 WHERE metric = 'accuracy'",
    "the figure's bounds": "UPDATE figures SET high = 2 WHERE metric = 'accuracy'",
    "the columns of the evidence": "UPDATE evidence SET about = replace(about, '\"a\"', '\"b\"')",
    "the arrays of the evidence": "UPDATE evidence SET arrays = (SELECT arrays FROM evidence WHERE unit = 1)",
    "the options of a series": "UPDATE series SET identity = '{\"batch_size\": 2}'",
    "the key of a series": "UPDATE series SET key = 'other' WHERE key = 'k'",
    "the units of a job": "UPDATE jobs SET units = 1 WHERE first = 0",
    "a job less": "DELETE FROM jobs WHERE first = 0",
    "the provenance": "UPDATE runs SET entry = replace(entry, 'first', 'other')",
    "what was made once": "UPDATE setups SET content = '2'",
    "a failure": "UPDATE failures SET message = 'all is well'",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_edits_inside_valid_pages_are_refused_and_the_file_is_left_as_it_is(tmp_path: Path, edit: str) -> None:
    with filled(tmp_path) as store:
        members = [Measurement("accuracy", None, torch.tensor([0.5]), True, (0.0, 1.0), (torch.ones(1).double(),))]
        store.add("members", SETTING, range(1, 2), members, 0.5)
        store.add_failure("k", SETTING, Failure(range(8, 16), "ValueError: no", "Traceback ..."))
        store.add_run({"command": "first"})
        store.setup({"made": "from"}, lambda: 1)
    with Store(tmp_path) as store:
        assert store.units("k") == {0, 1, 2}
    path = tmp_path / FILE
    with sqlite3.connect(path) as editor:
        assert editor.execute(edit).rowcount > 0
    editor.close()
    content = path.read_bytes()
    with pytest.raises(BadInputError, match=r"damaged or was edited: .* its digest.*Restore it from a copy"):
        Store(tmp_path)
    assert path.read_bytes() == content


@given(cells=st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=6))
def test_what_is_stored_always_matches_its_digest(cells: list[tuple[float, bool]]) -> None:
    values = torch.tensor([math.nan if missing else value for value, missing in cells], dtype=torch.float64)
    # -0.0, which SQLite keeps as 0.0, among them.
    measured = [Measurement("accuracy", None, -values, True, (-1.0, 0.0))]
    with Store(None) as store:
        store.add("k", SETTING, range(len(cells)), measured, 0.1, seen(len(cells), loss=-0.0))
        assert store._connection is not None
        assert first_damage(store._connection) is None


def test_what_cannot_be_decoded_is_damaged(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.add_run({"command": "first"})
    broken = '{"command": '
    with sqlite3.connect(tmp_path / FILE) as editor:
        editor.execute("UPDATE runs SET entry = ?, digest = ?", (broken, digest(1, broken)))
        editor.execute("UPDATE evidence SET arrays = x'00'")
        for series, first, units in editor.execute("SELECT series, first, units FROM jobs").fetchall():
            fitting = stored_job(editor, series, first, units).digest
            editor.execute("UPDATE jobs SET digest = ? WHERE first = ?", (fitting, first))
    editor.close()
    with Store(tmp_path) as store:
        for read in (store.runs, lambda: store.evidence("k", range(3))):
            with pytest.raises(BadInputError, match=r"is damaged .* choose another --out to measure anew"):
                read()


def test_units_measured_again_replace_whole_jobs(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.add("k", SETTING, range(1, 5), scores(0.1, 0.2, 0.3, 0.4), 0.5, seen(4))
        assert store.units("k") == {1, 2, 3, 4}
    with Store(tmp_path) as store:
        [accuracy, *_] = store.measured("k", range(1, 5))
        assert isinstance(accuracy, Measurement)
        assert accuracy.values.tolist() == [0.1, 0.2, 0.3, 0.4]


def test_a_failure_leaves_what_was_measured_of_its_units(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.add_failure("k", SETTING, Failure(range(8), "ValueError: no", "Traceback ..."))
    with Store(tmp_path) as store:
        assert store.units("k") == {0, 1, 2}
        assert [failure.units for failure in store.failures("k")] == [range(8)]


def test_a_store_of_an_earlier_layout_is_refused(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as earlier:
        earlier.execute("PRAGMA user_version = 2")
    earlier.close()
    with pytest.raises(BadInputError, match=r"earlier seepage \(layout 2, this one writes 3\).*choose another --out"):
        Store(tmp_path)


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


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="a file in use cannot be deleted here")
def test_a_store_that_is_deleted_while_it_is_written_is_written_anew_with_all_that_it_held(tmp_path: Path) -> None:
    with filled(tmp_path / "run", private=True) as store:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(BadInputError, match=r"was deleted or moved.*All that was stored is in a new file"):
            store.add("k", SETTING, range(3, 4), scores(0.5), 0.1, seen(1))
    assert stat.S_IMODE((tmp_path / "run" / FILE).stat().st_mode) == 0o600
    with Store(tmp_path / "run") as again:
        assert again.units("k") == {0, 1, 2}
        assert first_damage(again._connection) is None  # pyright: ignore[reportArgumentType]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="a file in use cannot be replaced here")
def test_a_file_that_takes_the_place_of_the_store_is_left_as_it_is(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        (tmp_path / "other").write_text("mine")
        (tmp_path / "other").replace(tmp_path / FILE)
        with pytest.raises(BadInputError, match=r"was replaced by another file"):
            store.add("k", SETTING, range(3, 4), scores(0.5), 0.1, seen(1))
    assert (tmp_path / FILE).read_text() == "mine"


def test_private_files_are_the_owners_alone(tmp_path: Path) -> None:
    filled(tmp_path / "own", private=True).close()
    assert stat.S_IMODE((tmp_path / "own" / FILE).stat().st_mode) == 0o600
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [FILE]
