from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seepage.errors import BadInputError
from seepage.shadow.pooling import MarkedRows, joint_models
from seepage.shadow.stacked import Dense


def held(carrying: int, others: int) -> MarkedRows:
    count = carrying + others
    carries = torch.arange(count) < carrying
    return MarkedRows(torch.arange(count)[:, None].float(), torch.arange(count) % 2, carries)


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=2), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_every_part_has_its_share_and_no_row_comes_twice(counts: list[list[int]], seed: int) -> None:
    rows = held(15, 13)
    shares = torch.tensor(counts).double() / 6
    chosen = rows.drawn(shares, 6, torch.Generator().manual_seed(seed))
    assert torch.equal(rows.carries[chosen].sum(2), torch.tensor(counts))
    for model in chosen:
        assert len(model.flatten().unique()) == 12


def test_all_rows_are_drawn_equally_often() -> None:
    rows = held(4, 8)
    chosen = rows.drawn(torch.full((4000, 1), 0.5, dtype=torch.float64), 4, torch.Generator().manual_seed(0))
    counts = torch.bincount(chosen.flatten(), minlength=12).double() / 4000
    torch.testing.assert_close(counts, torch.tensor([0.5] * 4 + [0.25] * 8).double(), atol=0.03, rtol=0)


@pytest.mark.parametrize(("shares", "said"), [([[0.9]], "need 9 rows that carry"), ([[1.5]], r"\[0, 1\], got 1.5")])
def test_shares_that_the_rows_cannot_supply_are_refused(shares: list[list[float]], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        held(5, 20).drawn(torch.tensor(shares).double(), 10, torch.Generator())


def test_own_rows_are_in_every_model_and_have_the_same_columns() -> None:
    seen: list[torch.Tensor] = []

    class Learner(Dense):
        def train(self, inputs, labels, chosen, seeds):
            seen.append(inputs[chosen][..., 0])
            return super().train(inputs, labels, chosen, seeds)

    own = MarkedRows(torch.tensor([[100.0], [101.0]]), torch.tensor([0, 1]), torch.tensor([True, False]))
    chosen = torch.tensor([[[0, 1]], [[2, 3]]])
    joint_models(Learner(2, epochs=1), held(3, 3), own, chosen, torch.Generator().manual_seed(0))
    assert seen[0].tolist() == [[0, 1, 100, 101], [2, 3, 100, 101]]
    wide = MarkedRows(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([True, False]))
    with pytest.raises(BadInputError, match="same columns"):
        joint_models(Learner(2, epochs=1), held(3, 3), wide, chosen, torch.Generator())


def test_marks_and_labels_come_one_a_row() -> None:
    with pytest.raises(BadInputError, match="2 rows came with 2 labels and 3 marks"):
        MarkedRows(torch.zeros(2, 1), torch.zeros(2).long(), torch.zeros(3).bool())
