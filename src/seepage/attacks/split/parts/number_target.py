"""The likelihood of messages about a number as target, which follows from the private cells and the message.

A record's gradient is ``g = 2 (f - y) J``, or without the 2 and at most delta for Huber's loss: its direction tells of
the private cells, and its length, given the cells, of the label. With ``s = <J, g> / |J|^2`` the slope and v the
variance of noise and rounding,

    log p(g | x)  =  -|g - s J|^2 / (2 v)  +  log of the integral of p(s | y) p(y) over y,

where s is normal around 2 (f - y) with variance v / |J|^2, and y a priori around f with a spread that is fitted on the
messages. The integral is that of two normal densities; several exchanges have one y, so that precisions add up. A y is
within the target's bounds, and a whole number (or one with as few decimals as all known labels) where the target has
only such values: the integral is a sum over them then. Where gradients are clipped, lengths up to the bound fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.split.parts.messages import FAR, bound_of, rounding
from seepage.attacks.split.parts.messages import spread as rounded
from seepage.attacks.split.parts.prior import CellPrior, decided
from seepage.attacks.split.parts.problem import CutProblem, Likelihood
from seepage.attacks.split.parts.responder import responder, width_of
from seepage.attacks.split.parts.space import Space, check_enumerable
from seepage.errors import BadInputError
from seepage.models.split import half_of, numbers_of
from seepage.tabular.schema import Column, Continuous
from seepage.wire.split import CutGuess, CutKnowledge, CutView, KnownCut

_AT_ONCE = 2**21  # numbers in memory at once
_LEAST = 1e-30
_OUTPUT = 1e-6  # rounding of a prediction, in units of the loss
_KNOWN, _DIGITS = 20, 6  # fewest known labels that tell the target's step, and most digits of it
_CLOSE = 1.5  # step, in standard deviations of what messages tell of the label, below which it changes nothing
_SURELY = 4.0  # deviations of noise by which a slope is below its limit where it is surely no limit
_UNLIKELY = 50.0  # log-likelihood below the best one, from which on messages as they are exclude a combination
_OFF = 8.0  # standard deviations beyond which a label is none of the target's values


@dataclass(frozen=True)
class NumberTarget(Likelihood):
    """Enumeration of private cells, with the label that follows from each.

    Attributes:
        weigh: whether the prior is learned and chances are given; otherwise the nearest possible combination is taken.
        observed: whether gradients are used.
        most: largest number of configurations.
        refused: why a number as target is not attacked, or None.
    """

    weigh: bool
    most: int
    observed: bool = True
    refused: str | None = None

    def applies(self, problem: CutProblem) -> bool:
        """Return whether the target is a number."""
        return problem.numeric

    def guess(self, problem: CutProblem) -> CutGuess:
        """Return the private cells and the numbers, from all exchanges of the records."""
        knowledge, space, first = problem.knowledge, problem.space, problem.first
        target = knowledge.schema.target
        if self.refused is not None:
            raise BadInputError(self.refused)
        check_enumerable(space, self.most)
        if knowledge.defense.shaped is not None:
            raise BadInputError(
                f"gradients are changed by {knowledge.defense.shaped!r}, under which no label of the number "
                f"{target.name!r} follows; leave the attack or the defense out."
            )
        prior = CellPrior.of(first.model, knowledge, space, first.features) if self.weigh else None
        width = width_of(first.model) + first.cut.shape[1]
        chunk = max(1, min(space.size, _AT_ONCE // width))
        together = max(1, min(_AT_ONCE // (width * chunk), _AT_ONCE // space.size))
        # The median of a bin is not the cell itself, so that its label is no value of the target either.
        step = None if space.binned else _target_step(knowledge)
        guesses = []
        for start in range(0, first.records, together):
            block = [view.of(slice(start, start + together)) for view in problem.rounds.views]
            weighed = _weighed(block, knowledge, space, chunk, self.observed, step)
            if float((weighed.off.amin(1) > _OFF).double().mean()) > 0.5:
                # The target has other values than was said.
                weighed = _weighed(block, knowledge, space, chunk, self.observed, None)
            if prior is None:
                guesses.append(_nearest_guess(block[0], knowledge, space, weighed))
                continue
            places = prior.rows(slice(start, start + together)).of_places(space, torch.arange(space.size))
            guesses.append(_likeliest_guess(block[0], knowledge, space, weighed, (weighed.total + places).softmax(1)))
        return CutGuess.joined(guesses)


@dataclass(frozen=True)
class _Weighed:
    """What the messages of some records say of each combination of private cells.

    Attributes:
        total: log-likelihood, up to a constant a record.
        labels: the label that follows, in units of the loss.
        apart: distance of the newest message.
        off: distance of the label from the nearest value that the target can have, in standard deviations.
    """

    total: Float[Tensor, "record place"]
    labels: Float[Tensor, "record place"]
    apart: Float[Tensor, "record place"]
    off: Float[Tensor, "record place"]


def _weighed(
    views: Sequence[CutView], knowledge: CutKnowledge, space: Space, chunk: int, observed: bool, step: float | None
) -> _Weighed:
    parts = []
    spread: list[float] = []
    for places in space.chunks(chunk):
        cells = space.cells(places).to(views[0].cut)
        if observed:
            parts.append(_weighed_by_messages(views, cells, knowledge, spread, step))
            continue
        outputs = responder(views[0].model).grid(views[0].cut, cells)[0][..., 0].cpu().double()
        nothing = torch.zeros_like(outputs)
        parts.append(_Weighed(nothing, outputs, nothing, nothing))
    joined = _Weighed(*(torch.cat([getattr(part, field.name) for part in parts], 1) for field in fields(_Weighed)))
    # Where no combination fits, all are weighed as though labels had no bounds.
    total = joined.total
    lost = total.isinf().all(1)
    total[lost] = -joined.apart[lost]
    return joined


@dataclass(frozen=True)
class _Slope:
    """What one message of some records says of the label under each combination, all in units of the loss.

    Attributes:
        apart: distance from the gradient's direction.
        beside: log-likelihood of what lies beside the direction of the gradient.
        outputs: prediction.
        slope: slope of the loss times ``factor``, by the gradient's length.
        limit: largest slope that is sent as it is.
        precision: inverse variance of the slope.
        free: whether the slope is surely no limit, so that the label follows.
        spread: mean square of slopes.
        factor: labels are ``outputs`` less this share of half the slope.
    """

    apart: Float[Tensor, "record place"]
    beside: Float[Tensor, "record place"]
    outputs: Float[Tensor, "record place"]
    slope: Float[Tensor, "record place"]
    limit: Float[Tensor, "record place"]
    precision: Float[Tensor, "record place"]
    free: Bool[Tensor, "record place"]
    spread: float
    factor: float

    @classmethod
    def of(
        cls, view: CutView, cells: Float[Tensor, "place private"], defense: KnownCut, spread: float | None
    ) -> _Slope:
        """Return what a message says; the spread is fitted where there is none yet."""
        form, (logits, jacobian) = view.model.form, responder(view.model).grid(view.cut, cells)
        outputs, directions = logits[..., 0].cpu().double(), jacobian[..., 0, :].cpu().double()
        received = view.own_gradient.cpu().double()
        squares = directions.square().sum(-1).clamp(min=_LEAST)
        slope = (directions * received[:, None]).sum(-1) / squares
        limit = torch.full_like(slope, form.delta if form.loss == "huber" else torch.inf)
        noise = torch.zeros(view.records, 1, dtype=torch.float64)
        if defense.clips:
            norm = received.norm(dim=1)[:, None]
            bound = norm if defense.own_norm else torch.full_like(norm, bound_of(defense, view.clip))
            noise = defense.noise_multiplier * bound
            slope = slope.clamp(-bound / squares.sqrt(), bound / squares.sqrt())
            limit = limit if defense.own_norm else torch.minimum(limit, bound / squares.sqrt())
        apart = (received[:, None] - slope[..., None] * directions).norm(dim=-1)
        variance = noise.square() + rounded(view).cpu().double()[:, None].square() + _LEAST
        if spread is None:
            # Mean square of the slope, without what noise adds to it.
            spread = max(float((slope.square() - variance / squares).mean()), 1e-4)
        # Half of a record's own norm is clipped off, and Huber's slope has no 2.
        factor = (2.0 if defense.clips and defense.own_norm else 1.0) * (2.0 if form.loss == "huber" else 1.0)
        free = slope.abs() < limit * (1 - 1e-5) - _SURELY * noise / squares.sqrt()
        # Of predictions, too, the last digits are unknown.
        precision = 1 / (variance / squares + (2 * _OUTPUT / factor) ** 2)
        beside = (-apart.square() / variance - variance.log() - squares.log() - precision.log()) / 2
        return cls(apart, beside, outputs, slope, limit, precision, free, spread, factor)

    @property
    def label(self) -> Float[Tensor, "record place"]:
        """The label that follows where the slope is no limit; else one that is too near the prediction."""
        return self.outputs - self.factor * self.slope / 2

    @property
    def of_label(self) -> Float[Tensor, "record place"]:
        """The precision of the label, about zero where it does not follow."""
        return torch.where(self.free, self.precision * 4 / self.factor**2, _LEAST)

    def left(self, label: Float[Tensor, "record place"]) -> Float[Tensor, "record place"]:
        """Return the log-density of the slope, given the label."""
        sent = torch.minimum(torch.maximum(2 / self.factor * (self.outputs - label), -self.limit), self.limit)
        return (self.precision.log() - self.precision * (self.slope - sent).square()) / 2

    @property
    def alone(self) -> Float[Tensor, "record place"]:
        """The log-density of the slope, whatever the label."""
        along = self.spread + 1 / self.precision
        return -(self.slope.square() / along + along.log()) / 2


def _weighed_by_messages(
    views: Sequence[CutView],
    cells: Float[Tensor, "place private"],
    knowledge: CutKnowledge,
    spread: list[float],
    step: float | None,
) -> _Weighed:
    """Weigh some combinations; ``spread`` has the mean square of each message's slope, from the first of them."""
    defense, target = knowledge.defense, knowledge.schema.target
    assert isinstance(target, Continuous)
    fitted: Sequence[float | None] = spread or [None] * len(views)
    messages = [_Slope.of(view, cells, defense, size) for view, size in zip(views, fitted, strict=True)]
    spread[:] = [message.spread for message in messages]
    first = messages[0]
    # The label is the same in all exchanges; before them it is normal around the newest prediction.
    precisions = torch.stack([message.of_label for message in messages])
    believed = 4 / first.factor**2 / first.spread
    precision = precisions.sum(0) + believed
    label = (precisions * torch.stack([message.label for message in messages])).sum(0) + believed * first.outputs
    label = label / precision
    known = torch.stack([message.free for message in messages]).any(0)
    together = -(believed * (first.outputs - label).square() + precision.log()) / 2
    together += sum(message.left(label) for message in messages)
    off = torch.zeros_like(label)
    if step is not None:
        gained, off = _grid_gain(label, precision, step, target)
        together, off = together + gained, off.masked_fill(~known, 0.0)
    total = torch.where(known, together, sum(message.alone for message in messages))
    total += sum(message.beside for message in messages)
    # Where all slopes are limits, labels are at least as far away from predictions.
    weights = torch.stack([message.precision for message in messages])
    shrunk = torch.stack(
        [m.outputs - (m.outputs - m.label) * m.spread / (m.spread + 1 / m.precision) for m in messages]
    )
    limited = (weights * shrunk).sum(0) / weights.sum(0)
    if defense.bare:
        # A label may lie within its tolerance of the bounds, up to rounding.
        most = 1 + target.tolerance / half_of(target) + 1e-3
        total = total.masked_fill((label.abs() > most) & known, -torch.inf)
        limited = limited.clamp(-1, 1)
    return _Weighed(total, torch.where(known, label, limited), first.apart, off)


def _grid_gain(
    label: Float[Tensor, "record place"], precision: Float[Tensor, "record place"], step: float, target: Continuous
) -> tuple[Float[Tensor, "record place"], Float[Tensor, "record place"]]:
    """Return what is gained in log-likelihood where labels are multiples of a step, and how far off the nearest is."""
    size = step / half_of(target)
    # Zero in the target's unit, in units of the loss.
    away = (label + (target.high + target.low) / 2 / half_of(target)) / size
    distance = (away - away.round()) * size
    near = (distance[..., None] + size * torch.arange(-3, 4, dtype=torch.float64)).square() * precision[..., None] / 2
    gained = (size * (precision / (2 * torch.pi)).sqrt()).log() + torch.logsumexp(-near, -1)
    # Values far closer than the messages tell weigh as though there were no grid.
    return torch.where(size * precision.sqrt() > _CLOSE, gained, 0.0), distance.abs() * precision.sqrt()


def _target_step(knowledge: CutKnowledge) -> float | None:
    """Return a step of which the target's values are multiples, by the schema or known labels; None without one."""
    target, known = knowledge.schema.target, knowledge.auxiliary
    assert isinstance(target, Continuous)
    if target.integer:
        return 1.0
    if known is None or len(known) < _KNOWN:
        return None
    for digits in range(_DIGITS + 1):
        scaled = known.labels.double() * 10**digits
        if bool(((scaled - scaled.round()).abs() <= 1e-9 * scaled.abs().clamp(min=1)).all()):
            return 10.0**-digits
    return None


def _likeliest_guess(
    view: CutView, knowledge: CutKnowledge, space: Space, weighed: _Weighed, share: Float[Tensor, "record place"]
) -> CutGuess:
    """Return the likeliest values, and the mean of the label over all combinations."""
    codes = space.codes(torch.arange(space.size))
    chances = tuple(
        torch.zeros(len(share), width, dtype=torch.float64).index_add(1, codes[:, k], share)
        for k, width in enumerate(space.widths)
    )
    labels = _labels(knowledge.schema.target, (share * weighed.labels).sum(1))
    return CutGuess(decided(view.model, knowledge, space, chances), labels, chances)


def _nearest_guess(view: CutView, knowledge: CutKnowledge, space: Space, weighed: _Weighed) -> CutGuess:
    """Return the possible combination whose direction is nearest, with the label that follows."""
    total, labels, apart, model = weighed.total, weighed.labels, weighed.apart, view.model
    possible = total.isfinite() & (weighed.off <= _OFF)
    if knowledge.defense.bare:
        possible &= total >= total.amax(1, keepdim=True) - _UNLIKELY
    possible[~possible.any(1)] = True
    nearest = apart.masked_fill(~possible, torch.inf)
    distance, place = nearest.min(1)
    within = rounding(view.own_gradient, model.form).cpu().double()
    fits = possible & (apart <= FAR * within[:, None])
    return CutGuess(
        model.unscaled(space.cells(place), model.private),
        _labels(knowledge.schema.target, labels.gather(1, place[:, None])[:, 0]),
        residual=distance,
        ties=(nearest <= (distance + within)[:, None]).sum(1),
        likely=fits.sum(1) == 1 if not space.binned and knowledge.defense.bare else None,
    )


def _labels(target: Column, scaled: Float[Tensor, " record"]) -> Float[Tensor, " record"]:
    assert isinstance(target, Continuous)
    values = numbers_of(target, scaled[:, None]).clamp(target.low, target.high)
    return values.round() if target.integer else values
