from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seepage.defenses.returned import MaxNorm, ReturnedNoise
from seepage.errors import BadInputError
from seepage.protocols.vertical import VerticalLearning
from seepage.settings.part import Part
from seepage.settings.split.audit import defense_of as split_defense_of
from seepage.settings.vertical.audit import defense_of
from seepage.settings.vertical.spec import VerticalSpec

# Those that do not look at labels.
Blind = ReturnedNoise | MaxNorm
GRADIENTS = torch.randn(2, 5, 40, generator=torch.Generator().manual_seed(0))


def many(defense: Blind, gradients: torch.Tensor, draws: int = 2000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.stack([defense(gradients, generator) for _ in range(draws)])


def test_noise_is_added_to_gradients_of_bounded_norm() -> None:
    sent = many(ReturnedNoise(0.5, clip=2.0), GRADIENTS)
    norms = torch.linalg.vector_norm(GRADIENTS, dim=-1, keepdim=True)
    torch.testing.assert_close(sent.mean(0), GRADIENTS * (2 / norms).clamp(max=1), atol=0.08, rtol=0)
    torch.testing.assert_close(sent.std(0), torch.ones_like(GRADIENTS), atol=0.08, rtol=0)


def test_a_gradient_of_zeros_stays_finite() -> None:
    assert bool(ReturnedNoise(0.1)(torch.zeros(1, 2, 3), torch.Generator().manual_seed(0)).isfinite().all())


@pytest.mark.parametrize("arguments", [{"scale": 1.0, "clip": 0.0}, {"scale": -1.0}])
def test_arguments_out_of_range_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(BadInputError):
        ReturnedNoise(**arguments)


@pytest.mark.long
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


OWN = """
from dataclasses import dataclass
from seepage.defenses.returned import ReturnedDefense

@dataclass(frozen=True)
class Halved(ReturnedDefense):
    share: float = 0.5

    def __call__(self, gradients, generator, labels=None):
        return self.share * gradients
"""


def test_one_of_the_user_s_own_is_taken_by_vertical_learning_and_named_to_the_attacker(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    spec = VerticalSpec.of(defenses=[{"name": f"{tmp_path / 'own.py'}:Halved", "share": 0.25}])
    returned = defense_of(spec.defenses[0]).returned
    assert returned is not None
    assert torch.equal(returned(GRADIENTS, torch.Generator(), GRADIENTS[..., 0]), GRADIENTS / 4)
    assert VerticalLearning(returned=returned).known().describe() == {"Halved": {"share": 0.25}}


def test_split_learning_takes_those_of_a_batch_alone(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(BadInputError, match="classes that extend LabelFlip, CutNoise, WeightNoise, BatchDefense"):
        split_defense_of(Part(name=f"{tmp_path / 'own.py'}:Halved"))
