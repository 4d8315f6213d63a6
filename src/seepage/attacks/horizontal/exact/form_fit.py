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
# A record says as much for a form as its error is off by less than the first number, up to the second one, in nats.
# A fitted number costs as much as one record can say, a usual setting and a reversed sign what choosing them takes.
_WIDEST, _FINEST = 1e-2, 1e-6
_NUMBER = math.log(_WIDEST / _FINEST)
_USUAL, _REVERSED = math.log(60.0), math.log(2.0)
_LABELLED = 4  # times that weights are fitted, each with the labels that the former ones say
_Errors = Float[Tensor, "record output"]


@dataclass(frozen=True)
class FittedForm:
    """A form, whose ``scale`` is relative to the mean over the records, and the number of records that have it.

    Without a record that has it, the form is unknown, and is that which was declared. ``numbers`` are those fitted.
    """

    form: MessageForm
    agreeing: int
    looked_at: int
    numbers: int = 1

    @property
    def tells_labels(self) -> bool:
        """Whether all records have the form, and are more than its fitted numbers; else other labels may fit, too."""
        return self.numbers < self.agreeing == self.looked_at

    def of_sum(self, records: int) -> MessageForm:
        """Return the form of the sum of the records' losses, which needs no weights of a batch to be computed."""
        return replace(self.form, reduction="sum", scale=self.form.scale / records)

    def __str__(self) -> str:
        """Return the form in words, and how many records have it."""
        if not self.agreeing:
            return "no usual form of the loss explains the message, each record's derivative of it was taken as it is"
        beside = self.looked_at - self.agreeing
        others = f", {beside} of {self.looked_at} records have another factor each" if beside else ""
        return f"the form of the message was fitted, not declared: {self.form.describe()}{others}"


class _Trial(NamedTuple):
    form: MessageForm
    off: Float[Tensor, " record"]
    cost: float
    numbers: int

    @property
    def score(self) -> float:
        """What the records say for the form, less what its numbers cost."""
        return float(_nats(self.off).sum()) - self.cost


def _nats(off: Tensor) -> Tensor:
    return (_WIDEST / off.clamp(min=_FINEST)).clamp(min=1.0).log()


def fitted_form(head: Head, outputs: _Errors, errors: _Errors, usual: MessageForm, records: int) -> FittedForm | None:
    """Return the simplest form on which most of some records agree; None where they agree on none.

    Args:
        outputs: outputs of the network for these records.
        errors: derivative of the message's loss by each record's outputs.
        usual: form from which the message differs; its loss is tried first.
        records: number of records behind the message.

    A form that explains the errors by fewer numbers, or closer, is the simpler one: a common factor comes before
    weights of classes, and the usual loss before others.
    """
    # Rows that a solver could not tell apart have errors that are no numbers.
    if head == "regression" or not len(errors) or not bool(errors.isfinite().all() & outputs.isfinite().all()):
        return None
    errors = errors * records
    base = replace(usual, weights=(), scale=1.0, reduction="mean", estimated=True)
    tried = [t for shape in (base, *shapes(base)) for t in _voted(head, outputs, errors, shape)]
    best = max(tried, key=lambda trial: trial.score, default=None)
    if best is None or not bool((best.off < _SAME).all()):
        # Weights and smoothing together, and settings between the usual ones.
        kinds = {_kind(trial.form): trial.form for trial in sorted(tried, key=lambda trial: trial.score)}
        polished = [_polished(head, outputs, errors, start, None) for start in kinds.values()]
        polished += [_polished(head, outputs, errors, *start) for start in _smoothed(head, outputs, errors, base)]
        best = max([*tried, *polished], key=lambda trial: trial.score, default=None)
    if best is None:
        return None
    agreeing = int((best.off < AGREES).sum())
    if agreeing < (1 - _MOST_OTHERS) * len(errors):
        return None
    form = best.form if abs(best.form.scale - 1) > _SAME else replace(best.form, scale=1.0)
    return FittedForm(form, agreeing, len(errors), best.numbers)


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
    for sign in (1.0, -1.0):
        possible = (sign * factor > 0) & (apart < AGREES)
        logs = torch.where(possible, (sign * factor).clamp(min=1e-300).log(), torch.nan)
        cost = _USUAL * (_kind(shape) != "usual") + _REVERSED * (sign < 0)
        log, off = _mode(logs)
        if bool((off < AGREES).any()):
            yield _Trial(replace(shape, scale=sign * math.exp(log)), off, _NUMBER + cost, 1)
        # Under label smoothing the weights of all classes are in every label's slope, see ``_polished``.
        if shape.smoothing:
            continue
        modes = [_mode(logs[:, label, None]) for label in range(logs.shape[1])]
        off = torch.stack([apart for _, apart in modes]).amin(0)
        if not bool((off < AGREES).any()):
            continue
        # Classes without a record are taken for the usual ones.
        there = [label for label, (_, apart) in enumerate(modes) if bool((apart < AGREES).any())]
        first = modes[there[0]][0]
        weights = tuple(math.exp(log - first) if label in there else 1.0 for label, (log, _) in enumerate(modes))
        form = replace(shape, weights=weights, scale=sign * math.exp(first))
        yield _Trial(form, off, len(there) * _NUMBER + cost, len(there))


def _mode(logs: Float[Tensor, "record label"]) -> tuple[float, Tensor]:
    """Return the logarithm of the factor for which records say most, and how far off each is; NaN is no vote."""
    votes = logs[~logs.isnan()]
    if not len(votes):
        return 0.0, torch.full_like(logs[:, 0], torch.inf)

    def off(values: Tensor) -> Tensor:
        return (logs[None] - values[:, None, None]).abs().nan_to_num(nan=torch.inf).amin(2)

    middle = votes[_nats(off(votes)).sum(1).argmax()]
    near = votes[(votes - middle).abs() < AGREES]
    both = torch.stack([middle, near.median()])
    apart = off(both)
    best = int(_nats(apart).sum(1).argmax())
    return float(both[best]), apart[best]


def _kind(form: MessageForm) -> str:
    if form.loss == "focal":
        return "gamma"
    if form.loss != "cross_entropy":
        return "loss"
    return "smoothing" if form.smoothing else "usual"


def _smoothed(
    head: Head, outputs: _Errors, errors: _Errors, base: MessageForm
) -> Iterator[tuple[MessageForm, Int[Tensor, " record"]]]:
    """Yield forms with class weights and label smoothing, each with the labels that it follows from."""
    # With t the soft label, p the chances and w the weights, an error is sum(t w) p - t w: linear in what a class pulls
    # all records, and in what it pulls more those with its label.
    chances = torch.cat([1 - outputs.sigmoid(), outputs.sigmoid()], 1) if head == "sigmoid" else outputs.softmax(1)
    wanted = torch.cat([-errors, errors], 1) if head == "sigmoid" else errors
    classes = chances.shape[1]
    eye = torch.eye(classes, dtype=chances.dtype, device=chances.device)
    pull = chances[:, :, None] - eye
    size = wanted.norm(dim=1).clamp(min=1e-300)
    for sign in (1.0, -1.0):
        for first in (pulled(head, sign * errors), chances.argmax(1), _standing_out(chances, sign * wanted)):
            label, heed = first, 1 / size
            common = more = chances.new_zeros(classes)
            for _ in range(_LABELLED * _LABELLED):
                # Least distances, not least squares: a record with the wrong label must not count for much.
                system = heed[:, None, None] * torch.cat([pull, pull * eye[label][:, None]], 2)
                right = heed[:, None] * sign * wanted
                both = torch.linalg.lstsq(system.flatten(0, 1).cpu(), right.flatten()[:, None].cpu(), driver="gelsd")
                common, more = both.solution[:, 0].to(chances).split(classes)
                explained = (pull @ common)[:, None] + pull.mT * more[:, None]
                left = (explained - sign * wanted[:, None]).norm(dim=2)
                label = left.argmin(1)
                heed = ((left.amin(1) / size).clamp(min=_FINEST) * size * size).rsqrt()
            there = eye[label].any(0) & (common + more > 0)
            if not bool(there.any()):
                continue
            share = float((classes * common / (classes * common + more).clamp(min=1e-300))[there].median())
            smoothing = min(max(share, 0.01), 0.8)
            weights = torch.where(
                there, (common + more) / (1 - smoothing * (1 - 1 / classes)), common * classes / smoothing
            )
            weights = weights.clamp(min=float(weights.max()) * 1e-6)
            scale = float(weights[0])
            scaled = tuple((weights / weights[0]).tolist())
            yield replace(base, smoothing=smoothing, weights=scaled, scale=sign * scale), label


def _standing_out(chances: _Errors, errors: _Errors) -> Int[Tensor, " record"]:
    """Return the class that an error pulls most, of what is usual for its chance over all records."""
    level = (errors / chances.clamp(min=1e-12)).median(1, keepdim=True).values
    return (errors - level * chances).argmin(1)


def _polished(
    head: Head, outputs: _Errors, errors: _Errors, start: MessageForm, label: Int[Tensor, " record"] | None
) -> _Trial:
    """Return a form whose weights and setting fit best, by robust least squares over the records' likeliest labels."""
    kind, classes = _kind(start), 2 if head == "sigmoid" else outputs.shape[1]
    sign = math.copysign(1.0, start.scale)
    setting = {"smoothing": float(start.smoothing), "gamma": float(start.gamma)}.get(kind)
    label = pulled(head, errors * sign) if label is None else label
    size = errors.norm(dim=1).clamp(min=1e-300)
    place = torch.arange(len(errors), device=errors.device)

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
        begin = [b + math.log(max(w, 1e-12)) for b, w in zip(begin, start.weights, strict=True)]
    values = np.array(begin if setting is None else [*begin, setting])
    for _ in range(_LABELLED):
        for scale in (1e-1, 1e-2, 1e-3, 1e-4):
            values = least_squares(missed, values, loss="soft_l1", f_scale=scale, x_scale=0.05).x
        form = form_of(values)
        # A record that its label does not explain may have another one.
        nearest = (form.slopes(head, outputs) * form.scale - errors[:, None]).norm(dim=2).argmin(1)
        if torch.equal(nearest, label):
            break
        label = nearest
    form, value = form_of(values), 0.0
    if setting is not None:
        step = 0.01 if kind == "smoothing" else 0.25
        value = float(getattr(form, kind))
        rounded = round(round(value / step) * step, 2)
        value = rounded if abs(value - rounded) < _ON_GRID else value
        form = replace(form, **{kind: value})
    if all(abs(math.log(weight)) < _SAME for weight in form.weights):
        form = replace(form, weights=())
    factor, _, apart = factors_of(head, form, outputs, errors)
    off = torch.maximum(apart, (factor - 1).abs())
    usual = setting is None or value == round(value, 2)
    # Under label smoothing the weights of all classes are in every record's error.
    free = 1 if not form.weights else classes if form.smoothing else len(label.unique())
    cost = free * _NUMBER + _REVERSED * (sign < 0)
    cost += 0.0 if setting is None else _USUAL if usual else _NUMBER
    return _Trial(form, off, cost, free + (setting is not None))


def pulled(head: Head, errors: _Errors) -> Int[Tensor, " record"]:
    """Return the class whose output a record's loss pulls up."""
    return (errors[:, 0] < 0).long() if head == "sigmoid" else errors.argmin(1)
