"""Federations of networks: against FedAvg by automatic differentiation, one site at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seepage.errors import BadInputError
from seepage.shadow.federated import Federation
from seepage.shadow.stacked import Dense

ROWS = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
CHOSEN = torch.stack([torch.arange(12), torch.arange(12, 24)])


def slow(recipe: Federation, chosen: torch.Tensor, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the averaged weights of the last round, and those of its first site, with full batches."""
    first, _ = recipe.network.initial(3, [seed])
    average = [part[0] for part in first.parameters]
    own: list[torch.Tensor] = []
    for _ in range(recipe.rounds):
        sites = []
        for rows in chosen.chunk(recipe.sites):
            weights = [part.clone().requires_grad_() for part in average]
            for _ in range(recipe.network.epochs):
                hidden = torch.relu(ROWS[rows] @ weights[0].T + weights[1])
                loss = nn.functional.cross_entropy(hidden @ weights[2].T + weights[3], LABELS[rows])
                gradients = torch.autograd.grad(loss, weights)
                moved = zip(weights, gradients, strict=True)
                weights = [(w - recipe.network.learning_rate * g).detach().requires_grad_() for w, g in moved]
            sites.append(weights)
        average = [torch.stack(list(parts)).mean(0).detach() for parts in zip(*sites, strict=True)]
        own = sites[0]
    return average, own


@pytest.mark.parametrize(("sites", "epochs"), [(1, 1), (3, 1), (4, 3)])
def test_a_federation_is_fedavg_computed_site_by_site(sites: int, epochs: int) -> None:
    recipe = Federation(Dense(2, (5,), epochs, None, 0.5), sites, rounds=4)
    *_, last = recipe.train(ROWS, LABELS, CHOSEN, [1, 2])
    for model, seed in enumerate((1, 2)):
        average, first_site = slow(recipe, CHOSEN[model], seed)
        for part, expected in zip(last.average.parameters, average, strict=True):
            assert torch.allclose(part[model], expected, atol=1e-5)
        for part, expected in zip(last.sites.parameters, first_site, strict=True):
            assert torch.allclose(part[model * sites], expected, atol=1e-5)


def test_batches_of_a_site_are_its_own_rows_and_models_are_the_same_beside_others() -> None:
    recipe = Federation(Dense(2, (5,), 2, 2, 0.5), sites=3, rounds=3)
    together, alone = ([*recipe.train(ROWS, LABELS, CHOSEN[:k], [1, 2][:k])] for k in (2, 1))
    assert len(together) == 3
    assert torch.allclose(together[-1].average.flat()[:1], alone[-1].average.flat(), atol=1e-6)
    others = ROWS.clone()
    others[4:] += 1
    changed = [*recipe.train(others, LABELS, CHOSEN, [1, 2])]
    # In the first round the first site knows rows 0 to 3 alone.
    assert torch.equal(changed[0].sites.flat()[0], together[0].sites.flat()[0])
    assert not torch.equal(changed[0].sites.flat()[1], together[0].sites.flat()[1])


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(BadInputError, match="5 sites have equal shares of the rows of a training, got 12"):
        list(Federation(Dense(2), sites=5).train(ROWS, LABELS, CHOSEN, [1, 2]))
    with pytest.raises(BadInputError, match="sites"):
        Federation(Dense(2), sites=0)
    with pytest.raises(BadInputError, match="numbers that are not finite"):
        list(Federation(Dense(2, learning_rate=1e38), rounds=3).train(1e30 * ROWS, LABELS, CHOSEN[:, :10], [1, 2]))
