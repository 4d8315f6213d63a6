"""Gradients against autograd, and what they give away of planted shares."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.errors import BadInputError
from seepage.papers.property.attacks.melis import Melis
from seepage.protocols.pooled import federated
from seepage.shadow.pooling import MarkedRows
from seepage.shadow.recurrent import Recurrent
from seepage.shadow.stacked import Dense
from seepage.wire.pooled import PooledKnowledge


def rows(telling: bool, count: int = 3000) -> MarkedRows:
    """Rows of which only those that carry the attribute have the first label, or labels have nothing to do with it."""
    generator = torch.Generator().manual_seed(0)
    carries = torch.rand(count, generator=generator) < 0.5
    inputs = torch.randn(count, 4, generator=generator)
    labels = carries & (torch.rand(count, generator=generator) < 0.8) if telling else inputs[:, 1] > 0
    return MarkedRows(inputs, labels.long(), carries)


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_gradients_are_autograds_and_rounds_are_gradient_descent(hidden: tuple[int, ...]) -> None:
    data, learner = rows(True, 60), Dense(2, hidden)
    shares = torch.tensor([0.2, 0.8], dtype=torch.float64)
    view = federated(learner, data, data.rows(torch.arange(10)), shares, 20, 2, 0.3, seed=1)
    models = view.snapshots[0]
    chosen = torch.arange(40).view(2, 20)
    found = learner.gradients(models, data.inputs, data.labels, chosen)
    for k in range(2):
        parts = [p for pair in zip(models.weights, models.biases, strict=True) for p in pair]
        single = [part[k].clone().requires_grad_() for part in parts]
        out = data.inputs[chosen[k]]
        for i in range(0, len(single), 2):
            out = out @ single[i].T + single[i + 1]
            out = out.relu() if i + 2 < len(single) else out
        expected = torch.autograd.grad(torch.nn.functional.cross_entropy(out, data.labels[chosen[k]]), single)
        torch.testing.assert_close(found[k], torch.cat([g.flatten() for g in expected]), rtol=1e-4, atol=1e-6)
    own = learner.gradients(models, data.inputs, data.labels, torch.arange(10).expand(2, 10))
    moved = models.flat() - 0.3 * (view.gradients[0] + own) / 2
    torch.testing.assert_close(view.snapshots[1].flat(), moved)


@pytest.mark.slow
@pytest.mark.parametrize("classifier", ["forest", "ridge"])
def test_gradients_give_a_share_away_where_rows_differ_by_it(classifier) -> None:
    learner = Dense(2)
    for telling, low, high in ((True, 0.9, 1.0), (False, 0.2, 0.8)):
        data = rows(telling)
        held, auxiliary = data.rows(torch.arange(1500)), data.rows(torch.arange(1500, 3000))
        shares = torch.tensor([0.33, 0.67], dtype=torch.float64).repeat(10)
        view = federated(learner, held, auxiliary.rows(torch.arange(100)), shares, 200, 2, 0.5, seed=1)
        known = PooledKnowledge(learner, auxiliary, auxiliary.inputs[:5], None, 200)
        guess = Melis(classifier, references=15, rounds=2)(view, known, [0])
        right = float(((guess.chosen == 1) == (shares > 0.5)).double().mean())
        assert low <= right <= high


def test_what_has_no_such_gradients_is_refused() -> None:
    data = rows(True, 60)
    known = PooledKnowledge(Dense(2), data, data.inputs[:5], None, 20)
    view = federated(Dense(2), data, data, torch.tensor([0.5], dtype=torch.float64), 20, 1, 0.3, seed=1)
    with pytest.raises(BadInputError, match="fully connected"):
        Melis()(view, replace(known, learner=Recurrent(2, torch.zeros(3, 2))), [0])
    with pytest.raises(BadInputError, match="five batches"):
        Melis(references=1)
