"""Messages of split learning: a record's gradient under any combination, and how near two gradients are.

A client's loss ``L(f, y)`` depends on the activations h that it receives (the cut) through its outputs ``f(h, x)``
alone. So the gradient that it sends for a record is ``g = s(f, y) J`` with the slopes ``s = dL/df`` and the derivatives
``J = df/dh``: one pass of the client's part for private cells x serves all labels y (specification of EXACT).

With one logit, ``g = (sigmoid(f) - y) J``. Where coordinate a of the cut is added to the logit, ``J_a = 1``: ``g_a`` is
negative for label 1, its size gives the logit, and ``g / g_a`` is J. A sum of two computations in another order differs
by roundings; ``ROUNDINGS`` units in the last place of the norm of g are the distance at which two gradients are equal.
Clients that clip send ``g min(1, bound / |g|)``, or half of g where the bound is half of a record's own norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.parts.responder import Responder
from seepage.attacks.split.parts.space import Space
from seepage.defenses.cut_noise import clipped
from seepage.errors import BadInputError
from seepage.models.message import PLAIN, MessageForm, step_of
from seepage.models.split import SplitModel
from seepage.wire.split import CutView, KnownCut

# The deterministic part of the defense, from a record's gradient to its message: (..., cut) to (..., cut).
Sent = Callable[[Tensor], Tensor]

# Roundings of a gradient's norm by which two computations of it usually differ at most; records whose logit is far from
# zero may exceed it, by FAR times. A larger number would take wrong configurations for exact fits: where many millions
# meet a cut of a few numbers, wrong ones come within ten times that.
ROUNDINGS, FAR = 16, 16
_ROUNDING = 1e-5  # rounding of a gradient's entries as a standard deviation, in units of its norm
_LEAST = 1e-6  # slopes nearer than this to 0 or 1 are set to this distance


@dataclass(frozen=True)
class Messages:
    """Messages of records, with what their candidates' gradients are computed by."""

    model: SplitModel
    respond: Responder
    cut: Float[Tensor, "record cut"]
    gradient: Float[Tensor, "record cut"]  # received gradient of each record's own loss
    space: Space
    sent: Sent | None = None  # applied to candidates' gradients before they are compared
    defense: KnownCut = field(default_factory=KnownCut)

    def of(self, records: slice | Tensor) -> Messages:
        """Return the messages of some of the records."""
        return replace(self, cut=self.cut[records], gradient=self.gradient[records])

    @property
    def bare(self) -> bool:
        """Whether gradients are compared as they are, at their own scale."""
        return self.sent is None and self.model.form.scale_of == "known"

    @property
    def rounding(self) -> Float[Tensor, " record"]:
        """The distance below which a configuration's gradient equals the received one, up to rounding."""
        return rounding(self.gradient, self.model.form)

    def pairs(
        self, cells: Float[Tensor, "record *some private"]
    ) -> tuple[Float[Tensor, "pair output"], Float[Tensor, "pair output cut"], Float[Tensor, "pair cut"]]:
        """Return logits and derivatives of each record's own candidates, in a row, and the messages beside them."""
        per_record = cells[0, ..., 0].numel()
        record = torch.arange(len(self.cut), device=self.cut.device).repeat_interleave(per_record)
        candidates = self.respond.of_cells(cells.flatten(0, -2).to(self.cut.device, self.cut.dtype))
        return *self.respond.responses(self.respond.of_cut(self.cut).rows(record), candidates), self.gradient[record]

    def apart(
        self, cells: Float[Tensor, "record point private"], labels: Int[Tensor, " record"]
    ) -> Float[Tensor, "record point"]:
        """Return the distance of the gradients of each record's own candidates with its label."""
        *answer, received = self.pairs(cells)
        chosen = labels.repeat_interleave(cells.shape[1])
        gradients = candidate_gradients(self.model, *answer)[torch.arange(len(chosen)), chosen]
        gradients = gradients if self.sent is None else self.sent(gradients)
        return distance(self.model.form, gradients, received).view(cells.shape[:2])

    def distances(
        self, logits: Float[Tensor, "*some output"], jacobian: Float[Tensor, "*some output cut"], observed: Tensor
    ) -> Float[Tensor, "*some label"]:
        """Return the distance of candidates' gradients, for every label, from observed ones."""
        gradients = candidate_gradients(self.model, logits, jacobian)
        gradients = gradients if self.sent is None else self.sent(gradients)
        return distance(self.model.form, gradients, observed[..., None, :])


def rounding(gradient: Float[Tensor, "record cut"], form: MessageForm | None = None) -> Float[Tensor, " record"]:
    """Return the distance below which a configuration's gradient equals the received one, up to rounding."""
    unit = torch.finfo(gradient.dtype).eps
    if form is not None and form.format in ("float16", "bfloat16"):
        unit = form.unit
    return ROUNDINGS * unit * torch.linalg.vector_norm(gradient, dim=1)


def spread(view: CutView, least: float = _ROUNDING) -> Float[Tensor, " record"]:
    """Return the standard deviation of each number of a record's own gradient that its form leaves unexplained.

    ``least`` is the smallest one, in units of the gradient's norm.
    """
    form, gradient = view.model.form, view.own_gradient
    relative = max(least, form.unit / 2 if form.format in ("float16", "bfloat16") else 0.0, float(form.noise))
    size = relative * torch.linalg.vector_norm(gradient, dim=1)
    if form.format == "int8":
        size = torch.hypot(size, step_of(view.gradient) / math.sqrt(12) * view.behind.to(size))
    # A gradient of 0, as of a class weight of 0, is as precise as the smallest other one.
    return torch.where(size > 0, size, size[size > 0].amin()) if bool((size > 0).any()) else size


def distance(
    form: MessageForm, gradients: Float[Tensor, "*some cut"], observed: Float[Tensor, "*other cut"]
) -> Float[Tensor, "*some"]:
    """Return how far gradients are from observed ones, at any positive factor where each record has one of its own."""
    if form.scale_of == "record":
        gradients = gradients * factors(gradients, observed)[..., None]
    return torch.linalg.vector_norm(gradients - observed, dim=-1)


def factors(gradients: Float[Tensor, "*some cut"], observed: Float[Tensor, "*other cut"]) -> Float[Tensor, "*some"]:
    """Return the factor from 0 up that brings gradients nearest to observed ones."""
    along = (gradients * observed).sum(-1)
    return along.clamp(min=0) / gradients.square().sum(-1).clamp(min=1e-30)


def candidate_gradients(
    model: SplitModel, logits: Float[Tensor, "*some output"], jacobian: Float[Tensor, "*some output cut"]
) -> Float[Tensor, "*some label cut"]:
    """Return the gradient of a record's loss with respect to the cut, for every label."""
    return model.slopes(logits) @ jacobian


def message_of(defense: KnownCut, clip: float | None) -> Sent | None:
    """Return the deterministic part of the defense of a record's gradient; None where there is none."""
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


def check_bare(defense: KnownCut, what: str, instead: str) -> None:
    """Refuse to read gradients as they are where clients change them."""
    if not defense.bare:
        changed = f"add the noise of {defense.shaped}" if defense.shaped else "clip theirs"
        raise BadInputError(
            f"{what}, but clients {changed} (noise multiplier {defense.noise_multiplier:g}); use {instead}."
        )


def logits_and_derivatives(
    gradient: Float[Tensor, "record cut"], additive: int, form: MessageForm = PLAIN
) -> tuple[Float[Tensor, " record"], Float[Tensor, "record cut"]]:
    """Return the single logit of a sigmoid and its derivatives, computed from the gradient of each record."""
    slope = gradient[:, additive].clamp(-1 + _LEAST, 1 - _LEAST) if form.plain else gradient[:, additive]
    slope = torch.where(slope.abs() < _LEAST, torch.full_like(slope, _LEAST), slope)
    logits = torch.logit(torch.where(slope < 0, 1 + slope, slope)) if form.plain else form.logits_of(slope)
    return logits, gradient / slope[:, None]
