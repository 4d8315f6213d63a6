"""Signs only (signSGD: Bernstein, Wang, Azizzadenesheli and Anandkumar, ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seepage.defenses.defense import Entries, UpdateDefense, check_switch
from seepage.registry import defenses
from seepage.wire.horizontal import KnownDefense


@defenses.register("sign", "horizontal")
@dataclass(frozen=True)
class Sign(UpdateDefense):
    """Each entry of the update is replaced by its sign, times one number a client.

    Source: Bernstein et al., signSGD (ICML 2018).

    The number is the mean magnitude of the update's entries, as in error-feedback signSGD (Karimireddy,
    Rebjock, Stich and Jaggi, ICML 2019) though without its error feedback, so that the server's learning
    rate keeps its meaning; or 1, as in signSGD itself. An entry of zero stays zero.

    Attributes:
        scaled: whether the mean magnitude is sent along.

    Raises:
        BadInputError: ``scaled`` is neither true nor false.

    Example:
        >>> import torch
        >>> Sign()({"bias": torch.tensor([[1.0, -3.0, 0.0, 2.0]])}, seeds=[0])["bias"].tolist()
        [[1.5, -1.5, 0.0, 1.5]]
    """

    words: ClassVar[str] = "signs instead of numbers"

    scaled: bool = True

    def __post_init__(self) -> None:
        check_switch("scaled", self.scaled)

    def sent(self, entries: Entries) -> Entries:
        """Return the updates' signs, scaled."""
        signs = entries.sign()
        return signs * entries.abs().mean(1, keepdim=True) if self.scaled else signs

    def describe(self) -> KnownDefense:
        """Return the mechanism."""
        return KnownDefense("sign", {"scaled": self.scaled}, signs=True)
