from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.errors import BadInputError
from seepage.protocols.pooled import PooledLearning, alternating, parted
from seepage.shadow.pooling import MarkedRows
from seepage.shadow.stacked import Dense
from tests.attacks.pooled.parts import population

LEARNER = Dense(2, epochs=2)
ROWS = population(0.4, rows=1000)


def test_rows_are_dealt_out_once_and_with_their_shares() -> None:
    numbered = MarkedRows(torch.arange(1000.0)[:, None], ROWS.labels, ROWS.carries)
    for apart in (False, True):
        sets = parted(numbered, 300, 100, 50, seed=0, apart=apart)
        dealt = [sets.auxiliary, sets.adversary, sets.held, *([sets.queries] if apart else [])]
        assert torch.equal(torch.cat([part.inputs[:, 0] for part in dealt]).sort().values, torch.arange(1000.0))
        carriers = int(sets.auxiliary.carries.sum()), int(sets.adversary.carries.sum())
        assert (*carriers, len(sets.queries)) == (150, 33, 50)
        if not apart:
            assert set(sets.queries.inputs[:, 0].tolist()) <= set(sets.auxiliary.inputs[:, 0].tolist())
    other = parted(numbered, 300, 100, 50, seed=1)
    assert not torch.equal(other.auxiliary.inputs, parted(numbered, 300, 100, 50, seed=0).auxiliary.inputs)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("share", [0.5, None])
def test_rows_of_one_group_go_to_one_party(apart: bool, share: float | None) -> None:
    """As of patients with one to seven rows each."""
    generator = torch.Generator().manual_seed(3)
    groups = torch.randint(250, (1000,), generator=generator)
    numbered = MarkedRows(torch.arange(1000.0)[:, None], ROWS.labels, ROWS.carries, groups=groups)
    sets = parted(numbered, 300, 100, 50, seed=0, auxiliary_share=share, own_share=0.33, apart=apart)
    dealt = [sets.auxiliary, sets.adversary, sets.held, *([sets.queries] if apart else [])]
    assert [len(part) for part in dealt[:2]] == [300, 100]
    assert share is None or int(sets.auxiliary.carries.sum()) == 150
    assert len(sets.held) > 200
    held = [set(groups[part.inputs[:, 0].long()].tolist()) for part in dealt]
    assert all(torch.equal(part.groups, groups[part.inputs[:, 0].long()]) for part in dealt if part.groups is not None)
    assert sum(map(len, held)) == len(set.union(*held))
    # Rows on their own would be of the same groups in most cases.
    alone = parted(replace(numbered, groups=None), 300, 100, 50, seed=0, auxiliary_share=share, apart=apart)
    mixed = [set(groups[part.inputs[:, 0].long()].tolist()) for part in (alone.auxiliary, alone.held)]
    assert len(mixed[0] & mixed[1]) > 50


def test_groups_that_each_have_one_row_are_as_rows_on_their_own() -> None:
    alone = MarkedRows(torch.arange(1000.0)[:, None], ROWS.labels, ROWS.carries, groups=torch.arange(1000))
    sets = parted(alone, 300, 100, 50, seed=0)
    dealt = torch.cat([part.inputs[:, 0] for part in (sets.auxiliary, sets.adversary, sets.held)])
    assert torch.equal(dealt.sort().values, torch.arange(1000.0))


def test_groups_that_are_too_large_are_refused() -> None:
    two = MarkedRows(torch.arange(1000.0)[:, None], ROWS.labels, ROWS.carries, groups=torch.arange(1000) % 2)
    with pytest.raises(BadInputError, match=r"2 whole groups have too few rows for 600 .* smaller groups"):
        parted(two, 600, 100, 50, seed=0, auxiliary_share=0.9)
    with pytest.raises(BadInputError, match="rows came with groups of 3"):
        replace(two, groups=torch.arange(3))


def test_every_joint_model_is_trained_on_the_victims_the_adversarys_and_further_rows() -> None:
    seen: list[torch.Tensor] = []

    class Learner(Dense):
        def train(self, inputs, labels, chosen, seeds):
            seen.append(inputs[chosen][..., 0])
            return super().train(inputs, labels, chosen, seeds)

    own = MarkedRows(torch.full((5, 1), -1.0), torch.arange(5) % 2, torch.arange(5) < 2)
    held = MarkedRows(torch.arange(1000.0)[:, None], ROWS.labels, ROWS.carries)
    learning = PooledLearning(Learner(2, epochs=1), 20, others=(0.5, 1.0))
    learning.train(held, own, alternating((0.25, 0.75), 4), seed=0)
    (lines,) = seen
    assert lines.shape == (4, 65)
    assert int((lines == -1).sum()) == 20
    marks = ROWS.carries[lines[:, :60].long()].unflatten(1, (3, 20)).sum(2)
    assert marks.tolist() == [[5, 10, 20], [15, 10, 20], [5, 10, 20], [15, 10, 20]]
    seen.clear()
    learning.update(held, None, torch.tensor([[0.25, 0.75]]).double(), seed=0)
    before, after = seen
    assert (before.shape, after.shape) == ((1, 60), (1, 80))
    assert torch.equal(before[:, :20], after[:, :20])
    assert torch.equal(before[:, 20:], after[:, 40:])


def test_the_same_seed_gives_the_same_models_and_white_box_is_what_answers() -> None:
    shares = alternating((0.3, 0.7), 4)
    first, again, other = (PooledLearning(LEARNER, 50).train(ROWS, None, shares, seed) for seed in (0, 0, 1))
    queries = ROWS.inputs[:7]
    assert torch.equal(first.answers.ask(queries), again.answers.ask(queries))
    assert not torch.equal(first.answers.ask(queries), other.answers.ask(queries))
    assert torch.equal(first.answers.ask(queries), first.models.models.answers(queries))
    assert (first.answers.asked, first.models.targets) == (21, 4)


def test_a_limit_ends_the_answers() -> None:
    seen = PooledLearning(LEARNER, 50, limit=10).train(ROWS, None, alternating((0.3, 0.7), 2), 0)
    seen.answers.ask(ROWS.inputs[:8])
    with pytest.raises(BadInputError, match="3 queries were to be asked, but 2 of 10 are left"):
        seen.answers.ask(ROWS.inputs[:3])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: PooledLearning(LEARNER, 0), "rows=0"),
        (lambda: PooledLearning(LEARNER, 5, limit=0), "limit=0"),
        (lambda: alternating((0.3, 0.7), 3), "multiple of 2; got 3"),
        (lambda: parted(ROWS, 900, 100, 50, seed=0), "do not fit into 1000 rows"),
        (lambda: parted(ROWS, 100, 100, 200, seed=0), "200 queries among the auxiliary rows"),
        (lambda: parted(ROWS, 500, 400, 50, 0, auxiliary_share=0.99), "need 495 rows that carry"),
        (
            lambda: PooledLearning(LEARNER, 600).train(ROWS, None, alternating((0.1, 0.9), 2), 0),
            "need 540 rows that carry",
        ),
    ],
)
def test_what_cannot_be_pooled_is_refused(made, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        made()
