"""The layer that all studies share, on units whose figures are planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from seepage.settings.study import Answer, Scale, Study, StudyPart, run_study, study_rows

from seepage.assessment import clustered
from seepage.run.runner import Listener
from seepage.run.store import Store
from seepage.settings.spec import Part
from tests.rows import number

GUESS, PEEK, ABOUT = (
    StudyPart(Part(name="coin"), "guess"),
    StudyPart(Part(name="peek", options={"hard": True}), "attack"),
    StudyPart(Part(name="set-up"), "about"),
)
PLANTED = {("none", "coin"): 0.5, ("none", "peek"): 0.9, ("gloves", "coin"): 0.5, ("gloves", "peek"): 0.55}


def planted(made: list[tuple[int, str]], units: int = 3, fails: bool = False) -> Study:
    """Return a study whose figures are known; ``made`` gets what is set up."""

    def make(unit: int, defense: str) -> Callable[[StudyPart], Answer]:
        made.append((unit, defense))

        def measure(part: StudyPart) -> Answer:
            if fails and part.kind == "attack":
                raise KeyboardInterrupt
            if part.kind == "about":
                return Answer({("auc", None): 0.8, ("epsilon", None): None})
            score = PLANTED[defense, part.called] + unit / 100
            figures = {("accuracy", None): score, ("accuracy", "a"): score, ("calibration", None): 0.1}
            return Answer(figures, seconds=0.25)

        return measure

    return Study(
        kind="coins",
        dataset="coins",
        protocol="toss",
        model="none",
        units=units,
        unit="toss",
        make=make,
        defenses={"none": {}, "gloves": {"thick": True}},
        parts=(ABOUT, GUESS, PEEK),
        identity={"coins": 1},
        scales={"calibration": Scale(None, 0.0, 1.0), "epsilon": Scale(None)},
    )


def test_every_unit_is_set_up_once_and_figures_are_the_planted_ones() -> None:
    made: list[tuple[int, str]] = []
    rows = study_rows(run_study(planted(made), Store(None)))
    assert made == [(unit, defense) for defense in ("none", "gloves") for unit in range(3)]
    by = {(r.defense, r.attack, r.metric, r.column): r for r in rows}
    read = by["gloves", "peek", "accuracy", "a"]
    assert (read.mean, read.baseline, read.baseline_name) == (pytest.approx(0.56), pytest.approx(0.51), "coin")
    # The unit's own luck is in both, so that the paired gain has no spread.
    assert (read.lift_low, read.lift_high) == (pytest.approx(0.05), pytest.approx(0.05))
    assert number(read.low) < 0.56 < number(read.high)
    assert (read.n, read.seconds_per_victim, read.status) == (3, 0.25, "ok")
    assert by["none", "peek", "calibration", None].lift is None
    assert by["none", "coin", "accuracy", None].lift is None
    assert by["none", "set-up", "epsilon", None].mean is None
    assert by["none", "set-up", "epsilon", None].status == "undefined"


def test_what_was_measured_is_not_made_again(tmp_path: Path) -> None:
    made: list[tuple[int, str]] = []
    with Store(tmp_path) as store, pytest.raises(KeyboardInterrupt):
        run_study(planted(made, fails=True), store)
    assert made == [(0, "none")]
    told: list[str] = []

    class Told(Listener):
        def begin(self, work: float, jobs: int) -> None:
            told.append(f"{jobs} jobs")

        def started(self, what: str) -> None:
            told.append(what)

    with Store(tmp_path) as store:
        first = study_rows(run_study(planted(made, units=2), store, Told()))
        # What the guess and the set-up gave was kept; only the attack is measured again.
        assert told[:3] == ["10 jobs", "toss 1 of 2 under none: set-up", "toss 2 of 2 under none: set-up"]
        held = study_rows(run_study(planted(made, units=2), store, run_missing=False))
    assert held == first == study_rows(run_study(planted([], units=2), Store(None)))
    with Store(tmp_path) as store:
        made.clear()
        more = study_rows(run_study(planted(made, units=3), store))
    assert made == [(2, "none"), (2, "gloves")]
    assert {row.n for row in more if row.mean is not None} == {3}
    assert study_rows(run_study(planted([]), Store(None), run_missing=False)) == []


def test_intervals_resample_units_and_the_targets_within_them() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = {unit: torch.rand(50, generator=generator).lt(0.8).double() for unit in range(4)}

    def make(unit: int, _: str) -> Callable[[StudyPart], Answer]:
        def measure(part: StudyPart) -> Answer:
            if part.kind == "guess":
                return Answer({("accuracy", None): 0.5})
            return Answer(
                {("accuracy", None): float(drawn[unit].mean())}, 0.1, each={("accuracy", None): drawn[unit].tolist()}
            )

        return measure

    study = replace(planted([], units=4), make=make, defenses={"none": {}}, parts=(GUESS, PEEK))
    row = next(row for row in study_rows(run_study(study, Store(None))) if row.is_attack)
    found = clustered(tuple(drawn.values()))
    assert (row.mean, row.low, row.high, row.std) == (found.mean, found.low, found.high, found.std)
    assert row.n == 4
    assert row.lift == pytest.approx(number(row.mean) - 0.5)
    assert (row.lift_low, row.lift_high) == pytest.approx((number(row.low) - 0.5, number(row.high) - 0.5))
