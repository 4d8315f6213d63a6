"""What is written is read back, a cut line costs its victims only, other damage is named."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path

import pytest
import torch

from seepage.assessment import Association, Measured, Measurement
from seepage.audit.store import FILE, Store
from seepage.errors import BadInputError

SETTING = {"batch_size": 8}


def scores(*accuracies: float) -> list[Measured]:
    values = torch.tensor(accuracies, dtype=torch.float64)
    return [
        Measurement("accuracy", None, values, True, (0.0, 1.0)),
        Measurement("rmse", "[age]", values * 3, False, (0.0, math.inf)),
        Association("kendall_discrete", None, values, values.flip(0)),
    ]


def filled(folder: Path) -> Store:
    store = Store(folder)
    store.add("k", SETTING, 0, scores(0.25, math.nan), 0.5, [1.5, math.inf])
    store.add("k", SETTING, 2, scores(0.75), 0.25, None)
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
    first, second = filled(tmp_path / "run"), Store(tmp_path / "run")
    assert second.victims("k") == first.victims("k")
    assert second.victims("k")[1].values[0] is None
    assert second.victims("k")[0].loss == 1.5
    assert second.victims("k")[1].loss is None
    assert_same(second.measured("k", 3), first.measured("k", 3))
    assert second.victims("other") == {}


def test_measurements_come_back_with_their_meaning(tmp_path: Path) -> None:
    accuracy, rmse, kendall = filled(tmp_path).measured("k", 3)
    assert isinstance(accuracy, Measurement)
    assert isinstance(rmse, Measurement)
    assert isinstance(kendall, Association)
    assert accuracy.values[[0, 2]].tolist() == [0.25, 0.75]
    assert accuracy.values[1].isnan()
    assert (rmse.column, rmse.higher_leaks, rmse.bounds) == ("[age]", False, (0.0, math.inf))
    assert kendall.entropy[1] == 0.25


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(None)
    store.add("k", SETTING, 0, scores(0.5), 0.1, None)
    assert list(store.victims("k")) == [0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_that_a_crash_cut_short_is_dropped_and_written_anew(tmp_path: Path, cut: int) -> None:
    filled(tmp_path)
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    again = Store(tmp_path)
    assert sorted(again.victims("k")) == [0, 1]
    # Reading alone changes nothing: the line may still be in the making.
    assert path.read_bytes() == whole[:-cut]
    again.add("k", SETTING, 2, scores(0.75), 0.25, None)
    assert path.read_bytes() == whole


def test_a_cut_setting_line_is_written_anew(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:20])
    again = Store(tmp_path)
    again.add("k", SETTING, 0, scores(0.5), 0.25, None)
    assert Store(tmp_path).measured("k", 1)[0].estimate().mean == 0.5


@pytest.mark.parametrize(
    "line",
    ["", "nonsense", "[]", '{"key": "k"}', '{"key": "k", "victim": 0, "values": [1], "seconds": 1, "loss": null}'],
)
def test_other_damage_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    filled(tmp_path)
    path = tmp_path / FILE
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(BadInputError, match=r"line 5 of .*victims\.jsonl"):
        Store(tmp_path)


def test_private_files_are_the_owners_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, private=True)
    store.add("k", SETTING, 0, scores(0.5), 0.25, None)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_lines_say_what_they_belong_to(tmp_path: Path) -> None:
    filled(tmp_path)
    first, *victims = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert first["setting"] == SETTING
    assert [v["victim"] for v in victims] == [0, 1, 2]
    assert all(len(v["values"]) == len(first["figures"]) for v in victims)
