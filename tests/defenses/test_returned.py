from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from seepage.defenses.returned import MaxNorm, PaImfl, ReturnedNoise, VflDefender
from seepage.errors import BadInputError

# Those that do not look at labels.
Blind = ReturnedNoise | MaxNorm | PaImfl | VflDefender
GRADIENTS = torch.randn(2, 5, 40, generator=torch.Generator().manual_seed(0))


def many(defense: Blind, gradients: torch.Tensor, draws: int = 2000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.stack([defense(gradients, generator) for _ in range(draws)])


def test_noise_is_added_to_gradients_of_bounded_norm() -> None:
    sent = many(ReturnedNoise(0.5, clip=2.0), GRADIENTS)
    norms = torch.linalg.vector_norm(GRADIENTS, dim=-1, keepdim=True)
    torch.testing.assert_close(sent.mean(0), GRADIENTS * (2 / norms).clamp(max=1), atol=0.08, rtol=0)
    torch.testing.assert_close(sent.std(0), torch.ones_like(GRADIENTS), atol=0.08, rtol=0)


def test_signs_of_laplace_noise_on_some_coordinates_are_sent() -> None:
    defense = PaImfl(epsilon=4.0, kept=0.25, clip=1.0)
    sent = many(defense, GRADIENTS[:1, :1])[:, 0, 0]
    largest = sent.abs().amax(1, keepdim=True)
    assert bool(((sent == 0) | (sent.abs() == largest)).all())
    assert float((sent != 0).double().mean()) == pytest.approx(0.25, abs=0.01)
    # The chance that Laplace noise of scale b turns the sign of x is exp(-|x| / b) / 2.
    bounded = GRADIENTS[0, 0] / GRADIENTS[0, 0].abs().sum()
    kept = (sent != 0).sum(0)
    turned = ((sent * bounded) < 0).sum(0) / kept
    torch.testing.assert_close(turned, torch.exp(-bounded.abs() * 4) / 2, atol=0.06, rtol=0)
    assert defense.amplified == pytest.approx(math.log(1 + 0.25 * (math.exp(4) - 1)))


def test_what_is_added_is_at_right_angles_and_vanishes_on_average() -> None:
    sent = many(VflDefender(0.7), GRADIENTS)
    added = sent - GRADIENTS
    norms = torch.linalg.vector_norm(GRADIENTS, dim=-1)
    torch.testing.assert_close((added * GRADIENTS).sum(-1), torch.zeros_like(added[..., 0]), atol=2e-3, rtol=0)
    torch.testing.assert_close(torch.linalg.vector_norm(added, dim=-1), (0.7 * norms).expand(len(added), -1, -1))
    torch.testing.assert_close(sent.mean(0), GRADIENTS, atol=0.08, rtol=0)


@pytest.mark.parametrize("defense", [ReturnedNoise(0.1), PaImfl(), VflDefender()])
def test_a_gradient_of_zeros_stays_finite(defense: Blind) -> None:
    assert bool(defense(torch.zeros(1, 2, 3), torch.Generator().manual_seed(0)).isfinite().all())


@pytest.mark.parametrize(
    "made",
    [
        lambda: PaImfl(epsilon=0),
        lambda: PaImfl(kept=1.5),
        lambda: VflDefender(-1),
        lambda: ReturnedNoise(1.0, clip=0.0),
    ],
)
def test_arguments_out_of_range_are_refused(made: Callable[[], object]) -> None:
    with pytest.raises(BadInputError):
        made()


def test_max_norm_makes_mean_squared_norms_alike_and_keeps_means() -> None:
    # The last record of each batch is a tenth as long as the others.
    gradients = GRADIENTS * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.1]).view(1, 5, 1)
    largest = gradients.square().sum(-1).amax(1, keepdim=True)
    sent = many(MaxNorm(), gradients, draws=20_000)
    torch.testing.assert_close(sent.square().sum(-1).mean(0), largest.expand(2, 5), rtol=0.05, atol=0)
    error = (sent.mean(0) - gradients).abs().amax() / largest.sqrt().max()
    assert float(error) < 0.02
    # Noise lies along each gradient: what is sent is a multiple of it.
    along = torch.nn.functional.cosine_similarity(sent[0], gradients, dim=-1).abs()
    torch.testing.assert_close(along, torch.ones_like(along))
    first = gradients.square().sum(-1).argmax(1)
    torch.testing.assert_close(sent[0][[0, 1], first], gradients[[0, 1], first])


def test_max_norm_keeps_records_without_a_gradient_finite() -> None:
    zero = torch.zeros(1, 3, 4)
    assert torch.equal(MaxNorm()(zero, torch.Generator().manual_seed(0)), zero)
    some = torch.cat([zero, torch.ones(1, 1, 4)], dim=1)
    assert bool(MaxNorm()(some, torch.Generator().manual_seed(0)).isfinite().all())


def test_interpretations_say_so() -> None:
    assert PaImfl.mark == VflDefender.mark == "our reading of its abstract"
