"""Marvell: the least noise on returned gradients that keeps two labels apart by no more than a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from scipy.optimize import root_scalar
from torch import Tensor

from seepage.defenses.returned import BatchDefense, Returned, Targets
from seepage.errors import BadInputError, positive
from seepage.registry import defenses

# Largest number of rounds of the two variances for each price of noise, and the relative change at which they end.
_ROUNDS, _SAME = 1_000, 1e-9
# Logarithms of the ends of that interval, in units of one over the power of the signal.
_CHEAP, _DEAR = -30.0, 30.0
# Variance below which gradients of a label count as alike, in units of the mean squared norm.
_LEAST = 1e-9


@dataclass(frozen=True)
class Variances:
    """Variances of messages of labels 0 and 1 under the optimal noise, along the difference of means and across it."""

    along: tuple[float, float]
    across: tuple[float, float]


@defenses.register("marvell", "split")
@defenses.register("marvell", "vertical")
@dataclass(frozen=True)
class Marvell(BatchDefense):
    """Noise of the least power with which gradients of two labels differ by no more than a bound.

    Source: Li et al., Label Leakage and Protection in Two-Party Split Learning (ICLR 2022), section 4.2 and theorem 2.
    The gradients of either label are taken for normal, with means of their own and a variance that is the same in all
    directions. The optimal noise is normal. Its covariance is one variance along the difference of the means and
    another, lower one across it, for each label. Both together minimise the sum of the two Kullback-Leibler divergences
    between the labels' messages. By theorem 1 a sum below 4 bounds the AUC of any score, see ``worst_auc``.

    Deviations: the paper fixes the noise's power, and its code raises that until the sum is small enough. Here the
    least power for the sum is found by one search, over the price of noise. For each price both variances follow in
    closed form, in turn, which ends in the optimum, since the objective is convex in their logarithms. A batch of a
    single label has no difference to hide; the paper's code sends it as it is. Here zeros go back, since its gradients
    would give all its labels away. The bound holds for normal gradients, for one message of each record.

    Attributes:
        kl: largest sum of both divergences between the labels' messages, in nats.

    Raises:
        BadInputError: the bound is not a positive number.

    Example:
        >>> labels = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        >>> came = torch.tensor([[[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]]])
        >>> sent = Marvell(0.5)(came, torch.Generator().manual_seed(0), labels)
        >>> sent.shape, round(Marvell(0.5).worst_auc, 2)
        (torch.Size([1, 4, 2]), 0.79)
    """

    words: ClassVar[str] = "noise that hides labels"
    two_labels: ClassVar[bool] = True

    kl: float | int = 0.5

    def __post_init__(self) -> None:
        positive("kl", self.kl)

    @property
    def worst_auc(self) -> float:
        """Largest AUC of any score of labels from one message (theorem 1); 1 where the bound says nothing."""
        return 1.0 if self.kl >= 4 else 0.5 + math.sqrt(self.kl) / 2 - float(self.kl) / 8

    def __call__(self, gradients: Returned, generator: torch.Generator, labels: Targets) -> Returned:
        """Return the gradients to send back. Labels other than 0 and 1 are refused."""
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise BadInputError(
                f"marvell hides which of two labels a record has, but there are labels up to {int(labels.max())}; use "
                "label_flip, or a target of two classes."
            )
        values = gradients.double()
        shares, means, variances = moments(values, labels)
        apart = means[:, 1] - means[:, 0]
        power = apart.square().sum(-1)
        optima = [
            optimal((float(var[0]), float(var[1])), float(signal), float(share), gradients.shape[-1], float(self.kl))
            for var, signal, share in zip(variances, power, shares, strict=True)
        ]
        along, across = (
            values.new_tensor([getattr(optimum, kind) for optimum in optima]) for kind in ("along", "across")
        )
        direction = apart / power.sqrt().clamp(min=torch.finfo(values.dtype).tiny)[:, None]
        codes = labels.long().to(gradients.device)
        added_along, added_across = (
            (variance - variances).clamp(min=0).sqrt().gather(1, codes)[..., None] for variance in (along, across)
        )
        drawn = torch.randn(gradients.shape, generator=generator, dtype=torch.float32).to(values)
        on = (drawn * direction[:, None]).sum(-1, keepdim=True) * direction[:, None]
        sent = values + added_along * on + added_across * (drawn - on)
        mixed = ((shares > 0) & (shares < 1))[:, None, None]
        return torch.where(mixed, sent, 0.0).to(gradients)


def moments(
    gradients: Returned, labels: Targets
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch 2 feature"], Float[Tensor, "batch 2"]]:
    """Return the share of label 1, each label's mean gradient and its variance, the same in all directions."""
    positive = (labels == 1).to(gradients)
    weights = torch.stack([1 - positive, positive], dim=1)
    counts = weights.sum(-1, keepdim=True)
    means = weights @ gradients / counts.clamp(min=1)
    squares = (weights @ gradients.square().sum(-1, keepdim=True) / counts.clamp(min=1))[..., 0]
    least = _LEAST * squares.amax(1, keepdim=True)
    variances = ((squares - means.square().sum(-1)) / gradients.shape[-1]).clamp(min=0)
    return positive.mean(1), means, torch.maximum(variances, least.clamp(min=torch.finfo(gradients.dtype).tiny))


def optimal(bare_pair: tuple[float, float], power: float, share: float, features: int, kl: float) -> Variances:
    """Return the variances of the messages of least noise whose labels are at most so far apart, from bare ones."""
    bare = Variances(bare_pair, bare_pair)
    if power <= 0 or not 0 < share < 1 or divergence(bare, power, features) <= kl:
        return bare

    def excess(price: float) -> float:
        return divergence(_at_price(bare_pair, power, share, math.exp(price) / power), power, features) - kl

    low = root_scalar(excess, bracket=(_CHEAP, _DEAR), method="brentq", xtol=1e-7).root
    return _at_price(bare_pair, power, share, math.exp(low) / power)


def divergence(variances: Variances, power: float, features: int) -> float:
    """Return the sum of both Kullback-Leibler divergences between normal messages of the two labels."""
    (first, second), (across_0, across_1) = variances.along, variances.across
    along = (first + power) / second + (second + power) / first
    return (along + (features - 1) * (across_0 / across_1 + across_1 / across_0)) / 2 - features


def _at_price(bare_pair: tuple[float, float], power: float, share: float, price: float) -> Variances:
    """Return the variances that minimise twice the divergence plus the price of the noise."""
    prices, largest = ((1 - share) * price, share * price), max(bare_pair)
    # Across, the label of the lower variance is brought nearer to the other one.
    across = tuple(max(bare_pair[k], largest / math.sqrt(1 + prices[k] * largest)) for k in (0, 1))
    # For much noise this is where the rounds end.
    along_0, along_1 = (math.sqrt(power / prices[k]) + across[k] for k in (0, 1))
    for _ in range(_ROUNDS):
        before = along_0, along_1
        along_0 = max(bare_pair[0], math.sqrt(along_1 * (along_1 + power) / (1 + prices[0] * along_1)))
        along_1 = max(bare_pair[1], math.sqrt(along_0 * (along_0 + power) / (1 + prices[1] * along_0)))
        if abs(along_0 - before[0]) <= _SAME * along_0 and abs(along_1 - before[1]) <= _SAME * along_1:
            break
    return Variances((along_0, along_1), (across[0], across[1]))
