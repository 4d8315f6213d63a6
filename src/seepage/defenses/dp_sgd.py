"""DP-SGD (Abadi et al., CCS 2016): each record's gradient is clipped, and noise covers what is left of any one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.defenses.accounting import Guarantee, gaussian_guarantee
from seepage.defenses.defense import check_separate, flat, normal, positive, unflat
from seepage.knowledge import KnownDefense
from seepage.learning import gradient
from seepage.models.model import Model
from seepage.registry import defenses

# Entries of single records' gradients that are held at once; 64 MiB in float32.
_ENTRIES_AT_ONCE = 1 << 24


@defenses.register("dp_sgd")
@dataclass(frozen=True)
class DPSGD:
    """Each record's gradient is clipped, normal noise is added to their sum, and the mean is sent.

    The client adds the noise itself, before the server sees anything, so that the guarantee holds against the
    server. It is one for single records of the client, not for the client as a whole.

    Attributes:
        clip_norm: bound on the Euclidean norm of a record's gradient, all parameters together.
        noise_multiplier: standard deviation of the noise on every entry of the sum, in units of the bound.

    Raises:
        BadInputError: one of them is not a positive number.

    Example:
        >>> from torch import nn
        >>> model = Model(nn.Linear(1, 1, bias=False), head="regression", name="mine")
        >>> _ = nn.init.zeros_(model.module.weight)
        >>> rows, wanted = torch.tensor([[[1.0], [1.0]]]), torch.tensor([[5.0, 0.25]])
        >>> sent = DPSGD(clip_norm=1.0, noise_multiplier=1e-9).gradient(model, rows, wanted, seeds=[0])
        >>> round(sent["weight"].item(), 4)
        -0.75
    """

    clip_norm: float | int
    noise_multiplier: float | int

    def __post_init__(self) -> None:
        for name in ("clip_norm", "noise_multiplier"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))

    def gradient(
        self,
        model: Model,
        encoded: Float[Tensor, "victim record encoded"],
        labels: Float[Tensor, "victim record"],
        seeds: Sequence[int],
        parameters: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return the noisy means of clipped gradients.

        Args:
            model: gives module and head.
            encoded, labels: the batches.
            seeds: one a victim, of the noise.
            parameters: as for ``learning.gradient``.

        Raises:
            BadInputError: not one seed a victim, or the model normalises by the batch, so that no record has a
                gradient of its own.
        """
        check_separate("dp_sgd", model, len(encoded), seeds)
        total = self.clipped_sum(model, encoded, labels, parameters)
        entries = flat(total)
        noisy = torch.add(entries, normal(entries, seeds), alpha=self.clip_norm * self.noise_multiplier)
        return unflat(noisy / encoded.shape[1], total)

    def clipped_sum(
        self,
        model: Model,
        encoded: Float[Tensor, "victim record encoded"],
        labels: Float[Tensor, "victim record"],
        parameters: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return the sum of the records' clipped gradients, shape (victim, *parameter)."""
        entries = sum(parameter.numel() for parameter in model.parameters.values())
        together = max(1, _ENTRIES_AT_ONCE // (entries * len(encoded)))
        total: dict[str, Tensor] = {}
        for rows, targets in zip(encoded.split(together, 1), labels.split(together, 1), strict=True):
            each = gradient(model, rows[:, :, None], targets[:, :, None], parameters)
            squares = torch.stack([g.flatten(2).square().sum(2) for g in each.values()]).sum(0)
            # A gradient of zeros has norm 0 and stays as it is.
            factor = (self.clip_norm / squares.sqrt()).clamp(max=1)
            for name, g in each.items():
                part = torch.einsum("vr...,vr->v...", g, factor)
                total[name] = total[name] + part if name in total else part
        return total

    def noise(self, records: int) -> float:
        """Return the standard deviation of the noise on every entry of the mean over so many records."""
        return self.noise_multiplier * self.clip_norm / records

    def guarantee(self, sample_rate: float, steps: int, delta: float, passes: int = 1) -> Guarantee | None:
        """Return what this guarantees to single records, see ``gaussian_guarantee``."""
        return gaussian_guarantee(self.noise_multiplier, sample_rate, steps, delta, passes)

    def describe(self) -> KnownDefense:
        """Return the mechanism and its arguments."""
        arguments = {"clip_norm": self.clip_norm, "noise_multiplier": self.noise_multiplier}
        return KnownDefense("dp_sgd", arguments)
