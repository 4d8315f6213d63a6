"""The largest entries only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seepage.defenses.defense import Entries, UpdateDefense
from seepage.errors import positive
from seepage.registry import defenses
from seepage.wire.horizontal import KnownDefense


@defenses.register("top_k", "horizontal")
@dataclass(frozen=True)
class TopK(UpdateDefense):
    """A share of the update's entries, the largest in magnitude, is sent; the others are zero.

    The entries of all parameters compete. Of n entries, ``max(1, round(share * n))`` are sent; among entries of the
    same magnitude, the first ones. Entries that are left out are not added to a later update (no error feedback),
    which costs more accuracy than a system with error feedback.

    Attributes:
        share: share of the entries that are sent, above 0 and at most 1.

    Raises:
        BadInputError: the share is out of range.

    Example:
        >>> import torch
        >>> TopK(share=0.5)({"bias": torch.tensor([[1.0, -3.0, 0.0, 2.0]])}, seeds=[0])["bias"].tolist()
        [[0.0, -3.0, 0.0, 2.0]]
    """

    words: ClassVar[str] = "only the largest numbers sent, a share of {share}"

    share: float | int

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", positive("share", self.share, most=1.0))

    def sent(self, entries: Entries) -> Entries:
        """Return the updates, all but the largest entries zero."""
        size = entries.abs()
        sent = max(1, round(self.share * entries.shape[1]))
        least = size.topk(sent, dim=1, sorted=False).values.amin(1, keepdim=True)
        # Ties are broken by position: the choice of topk among them is undefined and may depend on the device.
        above, level = size > least, size == least
        room = sent - above.sum(1, keepdim=True)
        selected = above | (level & (level.cumsum(1) <= room))
        return entries.where(selected, 0)

    def describe(self) -> KnownDefense:
        """Return the mechanism and its share."""
        return KnownDefense("top_k", {"share": self.share}, kept=self.share)
