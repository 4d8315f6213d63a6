"""The form of a gradient that is not the declared one: factor, class weights and loss, fitted on records that it gives.

Record i adds ``u_i`` times its derivatives of the outputs to the message, and the spans of the layers' gradients tell
``u_i`` whatever the loss is (``Gradient.evidence``). Under a form, ``u_i`` is a factor times the slope of the loss for
the record's label. So each record votes for the factors at which a usual loss gives its ``u_i``. The true form has the
same factor in all records, or in those of a class; a false candidate's factor agrees with none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import least_squares
from torch import Tensor

from seepage.models.head import Head
from seepage.models.message import MessageForm, shapes

AGREES = 1e-3  # relative difference up to which a record has a form
_MOST_OTHERS = 0.4  # share of the records that may have factors of their own
_SAME = 1e-4  # relative difference of factors that count as the same
_ON_GRID = 1e-4  # difference from a usual setting up to which a fitted one is that
_REVERSED = 0.5  # records that have to agree for a message with the reversed sign, beyond those for the usual one
_Errors = Float[Tensor, "record output"]


@dataclass(frozen=True)
class FittedForm:
    """A form, whose ``scale`` is relative to the mean over the records, and the number of records that have it."""

    form: MessageForm
    agreeing: int
    looked_at: int

    def of_sum(self, records: int) -> MessageForm:
        """Return the form of the sum of the records' losses, which needs no weights of a batch to be computed."""
        return replace(self.form, reduction="sum", scale=self.form.scale / records)

    def __str__(self) -> str:
        """Return the form in words, and how many records have it."""
        beside = self.looked_at - self.agreeing
        others = f", {beside} of {self.looked_at} records have another factor each" if beside else ""
        return f"the form of the message was fitted, not declared: {self.form.describe()}{others}"


class _Trial(NamedTuple):
    form: MessageForm
    agreeing: Float[Tensor, " record"]
    score: float


def fitted_form(head: Head, outputs: _Errors, errors: _Errors, usual: MessageForm, records: int) -> FittedForm | None:
    """Return the simplest form on which most of some records agree; None where they agree on none.

    Args:
        outputs: outputs of the network for these records.
        errors: derivative of the message's loss by each record's outputs.
        usual: form from which the message differs; its loss is tried first.
        records: number of records behind the message.

    Every fitted number has to bring another record into agreement, so that a common factor comes before weights of
    classes, and the usual loss before others.
    """
    if head == "regression" or not len(errors):
        return None
    errors = errors * records
    base = replace(usual, weights=(), scale=1.0, reduction="mean", estimated=True)
    tried = [t for shape in (base, *shapes(base)) for t in _voted(head, outputs, errors, shape)]
    best = max(tried, key=lambda trial: trial.score)
    if not bool(best.agreeing.all()):
        # Weights and smoothing together, and settings between the usual ones.
        starts = [max((t for t in tried if _kind(t.form) == kind), key=lambda t: t.score) for kind in _KINDS]
        polished = [_polished(head, outputs, errors, start.form) for start in starts]
        best = max([best, *polished], key=lambda trial: trial.score)
    agreeing = int(best.agreeing.sum())
    if agreeing < (1 - _MOST_OTHERS) * len(errors):
        return None
    return FittedForm(best.form, agreeing, len(errors))


def factors_of(
    head: Head, form: MessageForm, outputs: _Errors, errors: _Errors
) -> tuple[Float[Tensor, " record"], Int[Tensor, " record"], Float[Tensor, " record"]]:
    """Return each record's own factor in units of the form, its label, and how far off the form's direction it is.

    Of several labels with a factor above 0, the one whose direction is nearest, and of these whose factor is nearest
    to 1. Records without any have the factor 0.
    """
    factor, apart = _ratios(form.slopes(head, outputs) * form.scale, errors)
    doubt = apart + _SAME * factor.clamp(min=1e-30).log().abs().clamp(max=1e3)
    doubt = torch.where(factor > 0, doubt, torch.inf)
    least, label = doubt.min(1)
    chosen = factor.gather(1, label[:, None])[:, 0]
    there = least.isfinite()
    return torch.where(there, chosen, 0.0), label, torch.where(there, apart.gather(1, label[:, None])[:, 0], torch.inf)


def _ratios(
    slopes: Float[Tensor, "record label output"], errors: _Errors
) -> tuple[Float[Tensor, "record label"], Float[Tensor, "record label"]]:
    """Return each record's factor of each label's slope, and the relative distance that is left."""
    size = slopes.square().sum(-1).clamp(min=1e-300)
    factor = (slopes * errors[:, None]).sum(-1) / size
    left = (errors[:, None] - factor[..., None] * slopes).norm(dim=-1)
    return factor, left / errors.norm(dim=-1)[:, None].clamp(min=1e-300)


def _voted(head: Head, outputs: _Errors, errors: _Errors, shape: MessageForm) -> Iterator[_Trial]:
    """Yield a common factor and one for each class on which most records agree, with both signs."""
    factor, apart = _ratios(shape.slopes(head, outputs), errors)
    settings = int(_kind(shape) != _KINDS[0])
    for sign in (1.0, -1.0):
        possible = (sign * factor > 0) & (apart < AGREES)
        logs = torch.where(possible, (sign * factor).clamp(min=1e-300).log(), torch.nan)
        cost = settings + _REVERSED * (sign < 0)
        common, agreeing = _mode(logs)
        if bool(agreeing.any()):
            yield _Trial(replace(shape, scale=sign * math.exp(common)), agreeing, float(agreeing.sum()) - 1 - cost)
        # Under label smoothing the weights of all classes are in every label's slope, see ``_polished``.
        if shape.smoothing:
            continue
        by_class = [_mode(logs[:, label, None]) for label in range(logs.shape[1])]
        there = [float(members.sum()) for _, members in by_class]
        if min(there) == 0:
            continue
        agreeing = torch.stack([members for _, members in by_class]).any(0)
        first = by_class[0][0]
        weights = tuple(math.exp(log - first) for log, _ in by_class)
        form = replace(shape, weights=weights, scale=sign * math.exp(first))
        yield _Trial(form, agreeing, float(agreeing.sum()) - len(weights) - cost)


def _mode(logs: Float[Tensor, "record label"]) -> tuple[float, Tensor]:
    """Return the logarithm of the factor on which most records agree, and which do; NaN is no vote."""
    votes = logs[~logs.isnan()]
    if not len(votes):
        return 0.0, torch.zeros(len(logs), dtype=torch.bool, device=logs.device)
    near = (logs[None] - votes[:, None, None]).abs() < AGREES
    near = near.any(2)
    chosen = near[int(near.sum(1).argmax())]
    close = logs[chosen]
    middle = float(votes[int(near.sum(1).argmax())])
    kept = close[(close - middle).abs() < AGREES]
    return float(kept.median()), chosen


_KINDS = ("usual", "smoothing", "gamma", "loss")


def _kind(form: MessageForm) -> str:
    if form.loss == "focal":
        return "gamma"
    if form.loss != "cross_entropy":
        return "loss"
    return "smoothing" if form.smoothing else "usual"


def _polished(head: Head, outputs: _Errors, errors: _Errors, start: MessageForm) -> _Trial:
    """Return a form whose weights and setting fit best, by robust least squares over the records' likeliest labels."""
    kind, classes = _kind(start), 2 if head == "sigmoid" else outputs.shape[1]
    sign = math.copysign(1.0, start.scale)
    setting = {"smoothing": float(start.smoothing), "gamma": float(start.gamma)}.get(kind)
    label = _pulled(head, errors * sign)
    size = errors.norm(dim=1).clamp(min=1e-300)
    place = torch.arange(len(errors))

    def form_of(values: np.ndarray) -> MessageForm:
        weights = np.exp(np.clip(values[:classes], -60.0, 60.0))
        changed = (
            {} if setting is None else {kind: float(np.clip(values[-1], 0.0, 0.9 if kind == "smoothing" else 20.0))}
        )
        scaled = tuple((weights / weights[0]).tolist())
        return replace(start, weights=scaled, scale=sign * float(weights[0]), **changed)

    def missed(values: np.ndarray) -> np.ndarray:
        form = form_of(values)
        expected = (form.slopes(head, outputs) * form.scale)[place, label]
        return ((expected - errors) / size[:, None]).flatten().cpu().numpy()

    begin = [math.log(abs(start.scale))] * classes
    if start.weights:
        begin = [b + math.log(w) for b, w in zip(begin, start.weights, strict=True)]
    values = np.array(begin if setting is None else [*begin, setting])
    for scale in (1e-1, 1e-2, 1e-3, 1e-4):
        values = least_squares(missed, values, loss="soft_l1", f_scale=scale, x_scale=0.05).x
    form = form_of(values)
    if setting is not None:
        value = float(getattr(form, kind))
        step = 0.01 if kind == "smoothing" else 0.25
        nearest = round(value / step) * step
        form = replace(form, **{kind: round(nearest, 4) if abs(value - nearest) < _ON_GRID else value})
    if all(abs(math.log(weight)) < _SAME for weight in form.weights):
        form = replace(form, weights=())
    factor, _, apart = factors_of(head, form, outputs, errors)
    agreeing = (apart < AGREES) & ((factor - 1).abs() < AGREES)
    numbers = (len(label.unique()) if form.weights else 1) + (setting is not None) + _REVERSED * (sign < 0)
    return _Trial(form, agreeing, float(agreeing.sum()) - numbers)


def _pulled(head: Head, errors: _Errors) -> Int[Tensor, " record"]:
    """Return the class whose output a record's loss pulls up."""
    return (errors[:, 0] < 0).long() if head == "sigmoid" else errors.argmin(1)
