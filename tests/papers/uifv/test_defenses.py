from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from seepage import registry
from seepage.errors import BadInputError
from seepage.papers.uifv.defenses import PaImfl, VflDefender

GRADIENTS = torch.randn(2, 5, 40, generator=torch.Generator().manual_seed(0))


def many(defense: PaImfl | VflDefender, gradients: torch.Tensor, draws: int = 2000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.stack([defense(gradients, generator) for _ in range(draws)])


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


def test_what_is_added_is_at_right_angles_and_vanishes_on_average() -> None:
    sent = many(VflDefender(0.7), GRADIENTS)
    added = sent - GRADIENTS
    norms = torch.linalg.vector_norm(GRADIENTS, dim=-1)
    torch.testing.assert_close((added * GRADIENTS).sum(-1), torch.zeros_like(added[..., 0]), atol=2e-3, rtol=0)
    torch.testing.assert_close(torch.linalg.vector_norm(added, dim=-1), (0.7 * norms).expand(len(added), -1, -1))
    torch.testing.assert_close(sent.mean(0), GRADIENTS, atol=0.08, rtol=0)


@pytest.mark.parametrize("defense", [PaImfl(), VflDefender()])
def test_a_gradient_of_zeros_stays_finite(defense: PaImfl | VflDefender) -> None:
    assert bool(defense(torch.zeros(1, 2, 3), torch.Generator().manual_seed(0)).isfinite().all())


@pytest.mark.parametrize("made", [lambda: PaImfl(epsilon=0), lambda: PaImfl(kept=1.5), lambda: VflDefender(-1)])
def test_arguments_out_of_range_are_refused(made: Callable[[], object]) -> None:
    with pytest.raises(BadInputError):
        made()


def test_interpretations_say_so() -> None:
    known = registry.defenses.of("vertical")
    assert {known[name].traits.mark for name in ("pa_imfl", "vfldefender")} == {"our reading of its abstract"}
