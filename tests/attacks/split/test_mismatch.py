from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.attacks.split import Exact, Posterior
from seepage.attacks.split.parts.mismatch import Mismatch, observed
from seepage.attacks.split.parts.noise import RoundWithPriors
from seepage.attacks.split.parts.prior import CellPrior, LabelPrior
from seepage.attacks.split.parts.responder import responder
from seepage.attacks.split.parts.space import Space
from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.weight_noise import WeightNoise
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.wire.split import CutKnowledge, CutView
from tests.attacks.split.test_exact import PLAIN, exchange, table

DATA = table(2, rows=900)
KNOWN = CutKnowledge(DATA.schema, DATA.statistics)


@pytest.mark.long
def test_what_weights_are_off_by_is_fitted_on_what_came_back() -> None:
    """Logits and derivatives with planted differences: a shift and noise that two coordinates share."""
    _, seen = exchange(DATA, PLAIN, records=400)
    view = seen.view
    respond = responder(view.model)
    additive = respond.additive
    assert additive is not None
    true = observed(view, additive).double()
    generator = torch.Generator().manual_seed(3)
    size = true.shape[1]
    mean = 0.3 * torch.randn(size, generator=generator, dtype=torch.float64)
    factor = 0.002 * torch.eye(size, dtype=torch.float64)
    factor[1, 0] = 0.01
    moved = true + mean + torch.randn(len(true), size, generator=generator, dtype=torch.float64) @ factor.T
    slope = torch.sigmoid(moved[:, 0]) - (view.own_gradient[:, additive] < 0).double()
    gradient = slope[:, None] * torch.cat([moved[:, 1:], torch.ones(len(true), 1, dtype=torch.float64)], dim=1)
    planted = replace(view, gradient=(gradient / view.behind[:, None]).float())
    space = Space.of(view.model, KNOWN)
    prior = CellPrior.of(view.model, KNOWN, space, view.features)
    found = Mismatch.fit(RoundWithPriors(planted, respond, space, KNOWN, prior, LabelPrior(view.model, 0.0), seed=0))
    assert torch.allclose(found.mean, mean, atol=0.005)
    covariance = torch.linalg.inv(found.inverse.T @ found.inverse)
    assert float((covariance - factor @ factor.T).abs().max()) < 0.25 * 0.01**2
    normal = torch.distributions.MultivariateNormal(found.mean, covariance)
    points = torch.randn(5, size, generator=generator, dtype=torch.float64)
    density = found.density(points)
    expected = normal.log_prob(points)
    assert torch.allclose(density - density[0], expected - expected[0], rtol=1e-4)
    guess = Posterior(weights="about")(planted, KNOWN)
    assert float((guess.cells == seen.cells).double().mean()) > 0.95
    assert float((Exact()(planted, KNOWN).cells == seen.cells).double().mean()) < 0.7
    assert torch.equal(guess.labels, seen.labels)


def aged(epochs: int) -> tuple[CutView, torch.Tensor, torch.Tensor]:
    model = deepfm(DATA.schema, ("a", "b", "c"), seed=0, hidden=(16, 8))
    trained = PLAIN.train(model, DATA.train, seed=0)
    seen = PLAIN.observe(trained, DATA.train.rows(range(300)), 1, trained.earlier[-epochs] if epochs else None)
    return seen.view, seen.cells, seen.labels


@pytest.mark.long
def test_older_weights_are_allowed_for() -> None:
    view, cells, labels = aged(1)
    plain, about = Exact()(view, KNOWN), Posterior(weights="about")(view, KNOWN)
    prior = Posterior(observed=False)(view, KNOWN)
    right = [float((guess.cells == cells).double().mean()) for guess in (plain, about, prior)]
    assert right[1] > right[0] + 0.1
    assert right[1] > right[2] + 0.1
    assert torch.equal(about.labels, labels)


def test_current_weights_are_allowed_for_too() -> None:
    view, cells, _ = aged(0)
    assert torch.equal(Posterior(weights="about")(view, KNOWN).cells, cells)


def test_what_it_cannot_read_is_refused() -> None:
    noisy = replace(PLAIN, noise=CutNoise(0.1))
    _, seen = exchange(DATA, noisy)
    with pytest.raises(BadInputError, match="clients clip theirs"):
        Posterior(weights="about")(seen.view, CutKnowledge(DATA.schema, DATA.statistics, noisy.known()))
    _, seen = exchange(DATA, PLAIN, logit=False)
    with pytest.raises(BadInputError, match="first-order terms cross the cut"):
        Posterior(weights="about")(seen.view, KNOWN)


def test_noise_on_weights_is_in_units_of_their_change() -> None:
    now, before = torch.nn.Linear(300, 100), torch.nn.Linear(300, 100)

    def apart(one: torch.nn.Module, other: torch.nn.Module) -> torch.Tensor:
        both = zip(one.parameters(), other.parameters(), strict=True)
        return torch.cat([(a - b).detach().flatten() for a, b in both])

    published = WeightNoise(0.5)(now, before, torch.Generator().manual_seed(0))
    noise, change = apart(published, now), float(apart(now, before).norm())
    assert float(noise.std()) == pytest.approx(0.5 * change, rel=0.02)
    few, many = (WeightNoise(1.0).epsilon(publications, 1e-5) for publications in (1, 9))
    assert few is not None
    assert many is not None
    assert few < many
    with pytest.raises(BadInputError, match="positive number"):
        WeightNoise(0.0)
