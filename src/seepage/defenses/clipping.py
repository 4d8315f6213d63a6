"""A bound on the norm of the whole update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from seepage.defenses.defense import Entries, UpdateDefense
from seepage.errors import positive
from seepage.registry import defenses
from seepage.wire.horizontal import KnownDefense


@defenses.register("clipping", "horizontal")
@dataclass(frozen=True)
class Clipping(UpdateDefense):
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

    norm: float | int

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", positive("norm", self.norm))

    def sent(self, entries: Entries) -> Entries:
        """Return the updates, none longer than the bound."""
        # An update of zeros has norm 0 and stays as it is.
        return entries * (self.norm / torch.linalg.vector_norm(entries, dim=1, keepdim=True)).clamp(max=1)

    def describe(self) -> KnownDefense:
        """Return the mechanism and its bound."""
        return KnownDefense("clipping", {"norm": self.norm}, norm=self.norm)
