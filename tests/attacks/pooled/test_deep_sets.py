from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.attacks.pooled import DeepSets
from seepage.errors import BadInputError
from seepage.shadow.learner import Trained
from seepage.shadow.stacked import Stacked
from seepage.wire.pooled import ModelView, Shadows
from tests.attacks.pooled.parts import case

BASE = case(hidden=(6,), targets=4)


def planted(count: int, seed: int, shuffle: bool = True) -> tuple[Stacked, torch.Tensor]:
    """Networks of which one hidden unit, anywhere, has a large weight in one of two worlds."""
    generator = torch.Generator().manual_seed(seed)
    world = torch.arange(count) % 2
    first = torch.randn(count, 6, 3, generator=generator)
    first[:, 0, 1] += 4 * world
    biases = (torch.randn(count, 6, generator=generator), torch.randn(count, 2, generator=generator))
    last = torch.randn(count, 2, 6, generator=generator)
    if shuffle:
        order = torch.rand(count, 6, generator=generator).argsort(1)
        first = first.gather(1, order[..., None].expand(-1, -1, 3))
        last = last.gather(2, order[:, None].expand(-1, 2, -1))
        biases = (biases[0].gather(1, order), biases[1])
    return Stacked((first, last), biases), world


@pytest.mark.long
def test_a_property_of_some_unit_is_found_wherever_it_stands_and_order_changes_nothing() -> None:
    models, world = planted(120, 0)
    targets, truth = planted(60, 1)
    shares = torch.tensor(BASE.known.shares)[world].double()[:, None]
    shadows = Shadows(models, shares, torch.zeros(120, 1, 2))
    guess = DeepSets()(ModelView(targets), replace(BASE.known, shadows={"even": shadows}), [0])
    assert float((guess.chosen == truth).double().mean()) > 0.8
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    turned = Stacked(
        (targets.weights[0][:, order], targets.weights[1][:, :, order]),
        (targets.biases[0][:, order], targets.biases[1]),
    )
    again = DeepSets()(ModelView(turned), replace(BASE.known, shadows={"even": shadows}), [0])
    torch.testing.assert_close(guess.chances, again.chances, rtol=1e-4, atol=1e-5)


def test_other_models_are_refused() -> None:
    class Other(Trained):
        def __len__(self) -> int:
            return 4

        def answers(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.zeros(4, len(inputs), 2)

        def flat(self) -> torch.Tensor:
            return torch.zeros(4, 2)

        def of(self, chosen: slice) -> Other:
            return self

    shadows = Shadows(Other(), torch.tensor([[0.3], [0.7], [0.3], [0.7]]).double(), torch.zeros(4, 1, 2))
    with pytest.raises(BadInputError, match="fully connected"):
        DeepSets()(ModelView(Other()), replace(BASE.known, shadows={"even": shadows}), [0])
