"""What a guard does with an update, and the differential privacy that noise of every round gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from seepage.defenses.accounting import Guarantee, gaussian_guarantee
from seepage.defenses.clipping import Clipping
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.errors import BadInputError, check_choice, positive
from seepage.wire.horizontal import KnownDefense

Action = Literal["report", "block", "noise", "clip"]
Mode = Literal["strict", "advise"]


@dataclass(frozen=True)
class GuardPolicy:
    """What happens with an update, whatever is found in it or because of that.

    Attributes:
        action: ``block`` sends no update that gives records away, ``report`` every update as it is. ``noise`` and
            ``clip`` act in every round, whatever was found, and block nothing.
        mode: what happens where the check could not be tried, or the received model looks crafted: ``strict`` blocks
            the update, ``advise`` sends it.
        clip_norm: bound on the Euclidean norm of an update, for ``noise`` and ``clip``.
        noise_multiplier: standard deviation of the noise on every entry over ``clip_norm``, for ``noise``.
        delta: probability with which epsilon may be exceeded.
        share: largest share of the records that may lie in the span of an update, where the client's rows are given.
        metrics: names of numbers that a reply may carry beside the model, besides usual ones such as ``train_loss``.

    Raises:
        BadInputError: a name is unknown, or a number is missing, out of range or without use.

    Example:
        >>> GuardPolicy("noise", clip_norm=1.0, noise_multiplier=8.0).guarantee(rounds=1).epsilon < 2
        True
    """

    action: Action = "block"
    mode: Mode = "advise"
    clip_norm: float | int | None = None
    noise_multiplier: float | int | None = None
    delta: float = 1e-5
    share: float = 0.05
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("policy", self.action, Action)
        check_choice("mode", self.mode, Mode)
        for name, users in {"clip_norm": ("noise", "clip"), "noise_multiplier": ("noise",)}.items():
            value = getattr(self, name)
            if (value is None) == (self.action in users):
                advice = "give it" if value is None else "leave it out"
                raise BadInputError(
                    f"{name} is a setting of policy {' and '.join(users)}, got {name}={value!r} with policy "
                    f"{self.action}; {advice}."
                )
            if value is not None:
                positive(name, value)
        if not isinstance(self.delta, float) or not 0 < self.delta < 1:
            raise BadInputError(f"delta lies between 0 and 1, got delta={self.delta!r}.")
        if not 0 <= self.share < 1:
            raise BadInputError(f"share is 0 or more and below 1, got share={self.share!r}.")
        if isinstance(self.metrics, str) or not all(isinstance(name, str) for name in self.metrics):
            raise BadInputError(f"metrics is a list of names, got metrics={self.metrics!r}.")

    @property
    def sends_unread(self) -> bool:
        """Whether replies are sent with parts that the guard does not read: only where it reports and advises."""
        return self.action == "report" and self.mode == "advise"

    @property
    def changes(self) -> bool:
        """Whether updates are changed, every round."""
        return self.clip_norm is not None

    def apply(self, update: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
        """Return the update as the policy changes it; nobody else may know the seed of the noise."""
        if self.clip_norm is None:
            return dict(update)
        batch = Clipping(self.clip_norm)({name: tensor[None] for name, tensor in update.items()}, [seed])
        if self.noise_multiplier is not None:
            batch = GaussianNoise(self.clip_norm * self.noise_multiplier)(batch, [seed])
        return {name: tensor[0] for name, tensor in batch.items()}

    def known(self, before: KnownDefense, update: Mapping[str, Tensor]) -> KnownDefense:
        """Return what an attacker knows of the client's own defense and this policy together."""
        if self.clip_norm is None:
            return before
        norm = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in update.values()))
        noise = self.clip_norm * (self.noise_multiplier or 0.0)
        if not noise and norm <= self.clip_norm:
            # Shorter than the bound, as everyone sees: nothing was changed.
            return before
        name = self.action if before.name == "none" else f"{before.name}+{self.action}"
        bound = self.clip_norm if before.norm is None else min(self.clip_norm, before.norm)
        arguments = {"clip_norm": self.clip_norm, **({} if not noise else {"scale": noise})}
        return replace(before, name=name, arguments=arguments, noise=math.hypot(before.noise, noise), norm=bound)

    def guarantee(self, rounds: int) -> Guarantee | None:
        """Return what the noise of all rounds together guarantees for all of the client's records; None without noise.

        Any two data sets of the client make neighbours: clipped updates differ by at most twice the bound, whatever
        records they are of. Only a policy that acts in every round, whatever was found, has a guarantee.
        """
        if self.noise_multiplier is None or rounds < 1:
            return None
        return gaussian_guarantee(self.noise_multiplier / 2, sample_rate=1.0, steps=rounds, delta=self.delta)
