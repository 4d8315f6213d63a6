from __future__ import annotations

import pandas as pd
import pytest
import torch

from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table


def measured(values: list[float], integer: bool = False, bins: int = 100) -> Statistics:
    column = Continuous(name="x", low=-1e300, high=1e300, tolerance=0)
    if integer:
        column = Continuous(name="x", low=-1000, high=1000, tolerance=0, integer=True)
    schema = Schema(columns=(column,), target=Discrete(name="y", categories=(0, 1)))
    return Statistics.of(Table(schema, pd.DataFrame({"x": values, "y": 0})), bins)


def test_one_hot_columns_have_unbiased_moments() -> None:
    schema = Schema(
        columns=(Discrete(name="x", categories=("a", "b", "never")), Discrete(name="z", categories=("one",))),
        target=Discrete(name="y", categories=(0, 1)),
    )
    table = Table(schema, pd.DataFrame({"x": ["a", "b", "b", "b"], "z": "one", "y": [0, 0, 0, 1]}))
    statistics = Statistics.of(table)
    hot = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(statistics.mean, hot.mean(0))
    # What never varies, a category that never or always occurs, keeps its unit.
    torch.testing.assert_close(statistics.std, torch.tensor([0.5, 0.5, 1, 1], dtype=torch.float64))
    assert statistics.marginals[0].probabilities.tolist() == [0.25, 0.75, 0]
    assert statistics.marginals[0].median == 1
    assert statistics.target.probabilities.tolist() == [0.75, 0.25]


@pytest.mark.parametrize("value", [0.1, 1e300, -7.3, 5e-324])
def test_a_constant_column_has_no_spread(value: float) -> None:
    statistics = measured([value] * 3)
    assert (statistics.mean.tolist(), statistics.std.tolist()) == ([value], [1])
    assert statistics.marginals[0].std == 0
    assert statistics.marginals[0].values.tolist() == [value]


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1, 1e160, 1e299])
def test_moments_survive_any_unit(unit: float) -> None:
    statistics = measured([1 * unit, 2 * unit, 4 * unit, 5 * unit])
    assert statistics.mean.tolist() == pytest.approx([3 * unit], rel=1e-12, abs=0)
    assert statistics.std.tolist() == pytest.approx([(10 / 3) ** 0.5 * unit], rel=1e-12, abs=0)


def test_a_spread_far_below_the_size_is_measured() -> None:
    statistics = measured([1e15, 1e15 + 0.125, 1e15 + 0.25])
    assert statistics.std.tolist() == [0.125]


def test_whole_numbers_are_their_own_bins_while_they_fit() -> None:
    marginal = measured([3, 3, 7, 9], integer=True).marginals[0]
    assert (marginal.values.tolist(), marginal.probabilities.tolist()) == ([3, 7, 9], [0.5, 0.25, 0.25])
    coarse = measured([0, 3, 4, 9, 10], integer=True, bins=3).marginals[0]
    # Edges 0, 3.33 and 6.67; the smallest whole numbers above them stand for their bins.
    assert (coarse.values.tolist(), coarse.probabilities.tolist()) == ([0, 4, 7], [0.4, 0.2, 0.4])


def test_no_spread_is_measured_on_one_row() -> None:
    with pytest.raises(BadInputError, match=r"at least two rows with at least one bin, got 1 row and 100 bin"):
        measured([1])
    with pytest.raises(BadInputError, match=r"got 2 rows and 0 bin"):
        measured([1, 2], bins=0)
