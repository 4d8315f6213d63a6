from __future__ import annotations

import pytest
import torch

from seepage.assessment import Measurement
from seepage.errors import BadInputError
from seepage.results.tuning import swept, tuned
from seepage.run.runner import Run
from seepage.settings.setting import Configuration, PlannedPart
from seepage.settings.spec import Part


def run(called: str, *values: float, batch_size: int = 8, victims: tuple[int, ...] | None = None) -> Run:
    measured = Measurement("accuracy", None, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0))
    other = Measurement("accuracy", "age", 1 - measured.values, True, (0.0, 1.0))
    held = tuple(range(len(values))) if victims is None else victims
    part = PlannedPart(Part(name="x", label=called), "attack")
    return Run(Configuration("none", batch_size), part, [other, measured], held, 1.0, {}, {})


POINTS = [run("a", 0.9, 0.1, 0.2, 0.3), run("b", 0.2, 0.8, 0.6, 0.7), run("c", 0.9, 0.5, 0.5, 0.8)]


def test_the_pilot_chooses_without_the_victims_that_count() -> None:
    honest, oracle = tuned(POINTS)
    # "a" and "c" tie on the pilot: the first counts, however badly it does on the others.
    assert (honest.by, honest.called, honest.points, honest.estimate.n) == ("pilot", "a", 3, 3)
    assert honest.estimate.mean == pytest.approx(0.2)
    assert (oracle.by, oracle.called, oracle.estimate.n) == ("oracle", "b", 3)
    assert oracle.estimate.mean == pytest.approx(0.7)
    honest, oracle = tuned(POINTS, pilots=(0, 3))
    assert (honest.called, oracle.called) == ("c", "b")
    assert honest.estimate.mean == pytest.approx(0.5)
    honest, oracle = tuned([run("a", 0.1, 0.9, victims=(3, 5)), run("b", 0.2, 0.3, victims=(3, 5))], pilots=(3,))
    assert (honest.called, oracle.called) == ("b", "a")


def test_only_the_swept_points_of_an_attack_are_taken() -> None:
    runs = [run(called, 0.5) for called in ("dlg", "x(l1=0)", "x(l1=1)", "x_other(l1=1)", "xx")]
    assert [r.label for r in swept(runs, "x")] == ["x(l1=0)", "x(l1=1)"]
    assert [r.label for r in swept(runs, "dlg")] == ["dlg"]


@pytest.mark.parametrize(
    ("runs", "pilots", "message"),
    [
        ([], (0,), "got 0 points"),
        ([run("a", 0.1, 0.2), run("b", 0.1, 0.2, batch_size=16)], (0,), "2 batch sizes"),
        ([run("a", 0.1, 0.2), run("b", 0.1)], (0,), "2 sets of victims"),
        ([run("a", 0.1, 0.2)], (2,), r"got pilots \(2,\) of 2 victims"),
        ([run("a", 0.1)], (0,), "measure more victims"),
        ([run("a", 0.1, 0.2)], (), "name fewer pilots"),
        ([run("a", 0.1, float("nan"))], (0,), "a has no accuracy of every victim"),
    ],
)
def test_what_cannot_be_tuned_is_refused(runs: list[Run], pilots: tuple[int, ...], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        tuned(runs, pilots)
