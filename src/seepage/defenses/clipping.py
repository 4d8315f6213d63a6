"""A bound on the norm of the whole update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from seepage.defenses.defense import check_seeds, norms
from seepage.errors import positive
from seepage.needs import ActsOn
from seepage.registry import defenses
from seepage.wire.horizontal import KnownDefense


@defenses.register("clipping", "horizontal")
@dataclass(frozen=True)
class Clipping:
    """Updates whose Euclidean norm exceeds a bound are scaled down to it.

    The norm is that of all parameters together, of the client's update (not of single records'
    gradients, as DP-SGD bounds them). The direction, from which most attacks read, stays.

    Attributes:
        norm: bound on the norm, in units of the update.

    Raises:
        BadInputError: the bound is not a positive number.

    Example:
        >>> import torch
        >>> update = {"weight": torch.tensor([[3.0], [0.3]]), "bias": torch.tensor([[4.0], [0.4]])}
        >>> Clipping(norm=1)(update, seeds=[0, 1])["weight"].tolist()
        [[0.6000000238418579], [0.30000001192092896]]
    """

    words: ClassVar[str] = "messages scaled down, to a length of {norm}"
    acts_on: ClassVar[ActsOn] = "update"

    norm: float | int

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", positive("norm", self.norm))

    def __call__(self, update: dict[str, Tensor], seeds: Sequence[int]) -> dict[str, Tensor]:
        """Return the updates, none longer than the bound."""
        check_seeds(update, seeds)
        # An update of zeros has norm 0 and stays as it is.
        factor = (self.norm / norms(update)).clamp(max=1)
        return {name: tensor * factor.view(-1, *[1] * (tensor.dim() - 1)) for name, tensor in update.items()}

    def describe(self) -> KnownDefense:
        """Return the mechanism and its bound."""
        return KnownDefense("clipping", {"norm": self.norm}, norm=self.norm)
