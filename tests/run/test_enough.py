"""Units are added until the interval of a lift is narrow, and no further."""

from __future__ import annotations

from typing import Any

import torch

from seepage.assessment.gain import Reference, References
from seepage.assessment.measurement import Measurement
from seepage.auditing import audit, run_all
from seepage.run.enough import NARROW, Enough, until_decided
from seepage.settings.setting import Configuration
from tests.report.parts import PEEK, CoinAudit, CoinSpec
from tests.run.test_limits import SAFE

KNOWN: dict[int | None, References] = {None: {"plain": {("accuracy", None): Reference(0.5, 0.495, 0.505, 1000)}}}
NONE = Configuration("none")


def coins(**fields: Any) -> CoinAudit:
    return CoinAudit(CoinSpec.of(control=False, workers=1, **fields), figures=SAFE)


def rule(flips: int = 40, seconds: float | None = 0.1) -> Enough:
    return Enough(coins(flips=flips), lambda: KNOWN, lambda configuration, attack: seconds)


def seen(scores: list[float], proved: list[float] | None = None) -> Any:
    figures = [Measurement("accuracy", None, torch.tensor(scores, dtype=torch.float64))]
    if proved is not None:
        figures.append(Measurement("certified_cells", None, torch.tensor(proved, dtype=torch.float64)))
    plain = [Measurement("accuracy", None, torch.full((len(scores),), 0.5, dtype=torch.float64))]
    return lambda configuration, attack, wanted: (figures, {"plain": plain})


def test_one_looks_at_few_units_first() -> None:
    assert rule(200).looks == [5, 10, 20, 40, 60, 90, 135, 200]
    assert rule(40).looks == [5, 10, 20, 40]
    assert rule(3).looks == [3]


def test_what_is_proved_needs_fewest_units_and_what_is_read_whole_in_part_most() -> None:
    proved, mixed = rule(), rule()
    for n in (5, 10):
        proved.look(seen([1.0] * n, [1.0] * n))
        mixed.look(seen([1.0, 0.5] * (n // 2), [0.0] * (n // 2 * 2)))
    assert proved.units(NONE, PEEK, 20, 10) == 10
    assert mixed.units(NONE, PEEK, 20, 10) == 20
    # Baselines are measured as long as any attack is.
    assert (proved.units(NONE, None, 20, 10), mixed.units(NONE, None, 20, 10)) == (10, 20)


def test_slow_units_end_at_twenty() -> None:
    slow, fast = rule(seconds=3.0), rule()
    for each in (slow, fast):
        each.look(seen([1.0, 0.5] * 10))
    assert slow.units(NONE, PEEK, 40, 20) == 20
    assert fast.units(NONE, PEEK, 40, 20) == 40


def test_a_number_that_somebody_gave_is_never_changed() -> None:
    assert not until_decided(coins(flips=7))
    assert until_decided(coins())
    assert not until_decided(coins(gate={"above": 0.2}))
    report = audit("german", batch_sizes=2, attacks="dlg", victims=2, iterations=3, control=False)
    assert {row.n for row in report.rows if row.is_attack and row.metric == "accuracy"} == {2}


def test_an_audit_ends_where_its_lift_is_narrow() -> None:
    narrow = CoinAudit(CoinSpec.of(control=False, workers=1), figures=SAFE, spread=0.0005)
    [report] = run_all([narrow])
    scores = [row for row in report.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    for row in scores:
        assert row.lift_low is not None
        assert row.lift_high is not None
        assert row.n == narrow.units or row.lift_high - row.lift_low <= 2 * NARROW
