from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from seepage.datasets.planted import distinct, telling
from seepage.errors import BadInputError
from seepage.models.vertical import Stack, encoder_of, vertical_mlp
from seepage.seeds import seeded
from seepage.tabular.partition import by_shares
from seepage.tabular.schema import Continuous, Schema


def test_a_stack_is_networks_of_linear_layers_side_by_side() -> None:
    stack, rows = Stack((4, 7, 3), seeds=(5, 6)), torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0))
    for i, seed in enumerate((5, 6)):
        first, second = seeded(lambda: [nn.Linear(4, 7), nn.Linear(7, 3)], seed)
        torch.testing.assert_close(stack(rows)[i], second(first(rows[i]).relu()))


def test_numbers_are_scaled_to_their_bounds_and_categories_stay_zero_and_one() -> None:
    rows = distinct(rows=9).train
    encoded = encoder_of(rows.schema).encode(rows.cells)
    numbers = encoded[:, :3]
    assert numbers.min() == -1
    assert numbers.max() == 1
    assert set(encoded[:, 3:].unique().tolist()) == {0.0, 1.0}


def test_chances_are_those_of_all_parties_columns() -> None:
    rows = telling(rows=20).train
    model = vertical_mlp(by_shares(rows.schema, [0.25, 0.25, 0.5]), seeds=[0], bottom=(6,), features=4, top=(5,))
    chances = model.probabilities(rows.cells[None])
    assert torch.allclose(chances.sum(-1), torch.ones(1, 20))
    for i, column in enumerate(rows.schema.columns):
        other = rows.cells.clone()
        other[:, i] = (other[:, i] + 1) % column.width
        assert not torch.allclose(model.probabilities(other[None]), chances)


def test_a_model_that_fits_no_target_is_refused() -> None:
    rows = telling(rows=20).train
    split = by_shares(rows.schema, [0.5, 0.5])
    with pytest.raises(BadInputError, match="give each party one"):
        replace(vertical_mlp(split, [0]), bottoms=())
    number = Schema(columns=rows.schema.columns, target=Continuous(name="pay", low=0, high=9, tolerance=1))
    assert vertical_mlp(by_shares(number, [0.5, 0.5]), [0]).head == "regression"
    with pytest.raises(BadInputError, match="is a number, which the head 'softmax' is not for"):
        vertical_mlp(by_shares(number, [0.5, 0.5]), [0], head="softmax")
    three = Schema(columns=rows.schema.columns[:3], target=rows.schema.columns[3])
    assert vertical_mlp(by_shares(three, [0.5, 0.5]), [0]).head == "softmax"
    with pytest.raises(BadInputError, match="two classes"):
        vertical_mlp(by_shares(three, [0.5, 0.5]), [0], head="sigmoid")
