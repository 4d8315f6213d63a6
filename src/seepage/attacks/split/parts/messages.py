"""The client's defense as the attacker simulates it, and what a message that is a gradient as it is tells at once."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.nearest import Sent
from seepage.defenses.cut_noise import clipped
from seepage.errors import BadInputError
from seepage.models.message import PLAIN, MessageForm
from seepage.wire.split import KnownCut

_LEAST = 1e-6  # slopes nearer than this to 0 or 1 are set to this distance


def message_of(defense: KnownCut, clip: float | None) -> Sent | None:
    """Return the deterministic part of the defense of a record's gradient; None where there is none."""
    # A record's bound is half of its own norm where ``defense`` says so, else ``clip``.
    if not defense.clips:
        return None
    if defense.own_norm:
        return lambda gradients: gradients / 2
    return partial(clipped, bounds=bound_of(defense, clip))


def bound_of(defense: KnownCut, clip: float | None) -> float:
    """Return the bound that all records' gradients are clipped to."""
    if clip is None:
        raise BadInputError(
            f"gradients are clipped ({defense.describe()}), but the view does not say to what bound; give clip."
        )
    return clip


def check_bare(defense: KnownCut, what: str, instead: str, aware: bool = False) -> None:
    """Refuse to read gradients as they are where clients change them, or where they are compared as though changed."""
    if aware or not defense.bare:
        changed = f"add the noise of {defense.shaped}" if defense.shaped else "clip theirs"
        raise BadInputError(
            f"{what}, but clients {changed} (noise multiplier {defense.noise_multiplier:g}); use {instead}."
        )


def logits_and_derivatives(
    gradient: Float[Tensor, "record cut"], additive: int, form: MessageForm = PLAIN
) -> tuple[Float[Tensor, " record"], Float[Tensor, "record cut"]]:
    """Return the single logit of a sigmoid and its derivatives, computed from the gradient of each record."""
    # The gradient at the coordinate that is added to the logit is ``sigmoid(logit) - label``: negative for label 1. All
    # others are that times the logit's derivatives.
    if not form.plain:
        slope = gradient[:, additive]
        slope = torch.where(slope.abs() < _LEAST, torch.full_like(slope, _LEAST), slope)
        return form.logits_of(slope), gradient / slope[:, None]
    slope = gradient[:, additive].clamp(-1 + _LEAST, 1 - _LEAST)
    slope = torch.where(slope.abs() < _LEAST, torch.full_like(slope, _LEAST), slope)
    return torch.logit(torch.where(slope < 0, 1 + slope, slope)), gradient / slope[:, None]
