"""The form of messages where it is not declared: loss, scale, number format, fitted on what came back.

A message is ``m = c s(f(x), y) J(x)`` with the slopes s of an unknown loss and an unknown factor c. Most combinations
(x, y) cannot be the record's whatever s is: with one output ``m - (<J, m> / |J|^2) J`` has to be rounding; with
several, m has to be in the span of J's rows, centred, as slopes add up to zero. Those that are left, the points, vote.
Of a candidate loss each point gives a factor ``c = <s J, m> / |s J|^2``, label by label, since class weights are
factors of labels. The points of the true combinations agree to rounding, those of wrong ones do not: a factor is
taken where enough records agree on it, and half as many again as on any other. Cross-entropy as it is comes first, then
usual losses, the lines of weights and smoothing together (``_form_by_lines``), a grid of all settings that is polished
by least squares, and a factor of its own for each record. The first form that replays 95% of the messages is taken,
beyond those replayed by chance, which is measured by messages at wrong factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import least_squares
from torch import Tensor

from seepage.attacks.split.parts.batch_statistics import batches_of, why_not_followed
from seepage.attacks.split.parts.masked import MOST, masked_log_likelihood
from seepage.attacks.split.parts.messages import FAR, ROUNDINGS, candidate_gradients, factors
from seepage.attacks.split.parts.responder import responder
from seepage.attacks.split.parts.space import Space
from seepage.models.dropout import dropping
from seepage.models.head import Head
from seepage.models.message import PLAIN, Format, MessageForm, format_of, shapes, step_of
from seepage.wire.split import CutKnowledge, CutView

# Records and pairs of a record and a combination that a fit looks at, and numbers in memory at once.
_RECORDS, _PAIRS, _NUMBERS = 128, 2**17, 2**24
_FEWEST = 24  # records of a fit at least
_MOST, _MOST_UNDIRECTED = 2**17, 2**13  # combinations
# Share of records that are replayed, beyond those that would be by chance, from which a form is right, and from which
# it is taken in place of the usual one.
RIGHT, _USABLE = 0.95, 0.6
# Factors by which messages are wrong, to see how many are replayed by chance.
_WRONG = (0.61803, 1.39131)
# Number of records that have to agree on a factor, and how many times those that agree on any other.
_AGREE, _BEYOND = 5, 1.5
# Pairs of records that lines are drawn through, relative width of a cell of lines, and lines that are tried.
_LINES, _LINE_WIDTH, _TRIED_LINES, _STRIDE = 40, 1e-4, 20, 2**22
# Relative differences within which factors agree: that of rounding, and those of a coarse search.
_FINE, _COARSE = 2 * ROUNDINGS * 2.0**-23, 2e-3
_USUAL_FACTORS = {2.0**k for k in range(-10, 21)}
_BOUND = 0.05  # part of half a target's range by which numbers may leave it
_USUAL = 1e-5  # standard deviation of rounding
_LOST = 2.0**-21  # rounding of a slope, in units of a label's weight
_SAME = 1e-4  # logarithm of a factor that is taken for 1
_NARROWING = (1e-2, 1e-3, 1e-4, 1e-5)


@dataclass(frozen=True)
class FittedMessages:
    """The form of messages, declared or fitted.

    Attributes:
        form: form of the messages, with what was estimated.
        factors: factor of each record's own gradient that is to be undone, with that of the form.
        replayed: share of the records looked at that some combination replays, less those replayed by chance; NaN where
            chance would replay nearly all.
    """

    form: MessageForm
    factors: Float[Tensor, " record"]
    replayed: float

    def undone(self, view: CutView) -> CutView:
        """Return a view whose own gradients are those of the form's loss."""
        behind = view.behind / self.factors.to(view.behind)
        return replace(view, model=replace(view.model, form=self.form), behind=behind)


# Fields of points that have a value for each of them.
_POINT = ("record", "group", "logits", "jacobian", "message", "off")


@dataclass(frozen=True)
class _Points:
    """Combinations of some records that may give their messages at some factor: responses, and the messages beside."""

    record: Int[Tensor, " point"]
    group: Int[Tensor, " point"]
    logits: Float[Tensor, "point output"]
    jacobian: Float[Tensor, "point output cut"]
    message: Float[Tensor, "point cut"]
    off: Float[Tensor, " point"]  # error of a quantised message, in units of its size
    records: int
    head: Head
    cut: int  # entries of a message, of which one coordinate is left where there is one logit

    @classmethod
    def of(cls, views: Sequence[CutView], space: Space, groups: Sequence[Tensor]) -> _Points | None:
        """Return points of records that are spread over all views; None where no message says anything."""
        model, cut = views[0].model, views[0].cut.shape[1]
        # Directions exclude most combinations where a message has more entries than its slopes can reach.
        most = _MOST if cut >= max(2, model.outputs) else _MOST_UNDIRECTED
        if space.binned or space.size > most:
            # The true numbers are not among the combinations, or these are too many.
            return None
        rows, places = list[tuple[Tensor, ...]](), torch.arange(space.size)
        for view, group in zip(views[:_RECORDS], groups, strict=False):
            # Neighbours, so that batches are whole.
            sample = view.gradient.any(1).nonzero()[: max(1, -(-_RECORDS // len(views))), 0]
            part, respond, form = view.of(sample), responder(view.model), format_of(view.gradient[sample])
            cells = space.cells(places)
            half = 0.55 * step_of(part.gradient) * math.sqrt(cut) if form == "int8" else 0.0
            unit = max(view.model.form.unit, MessageForm(format=form).unit)
            # This view's part of all pairs, but enough records for a vote.
            enough = max(_FEWEST, _PAIRS * len(sample) // (_RECORDS * space.size))
            for row in range(min(len(sample), enough)):
                logits, jacobian = (answer[0].double().cpu() for answer in respond.grid(part.cut[row : row + 1], cells))
                message = part.own_gradient[row].double().cpu()
                # A quantised number is off by half a step, however large its message is.
                off = half * float(part.behind[row]) / max(float(message.norm()), 1e-30)
                fits, message, jacobian = _in_direction(message, jacobian, FAR * ROUNDINGS * unit + off)
                possible = fits.nonzero()[:, 0]
                number, among = (torch.full_like(possible, value) for value in (len(rows), int(group[sample[row]])))
                error = torch.full((len(possible),), off, dtype=torch.float64)
                rows.append((number, among, logits[possible], jacobian[possible], message[possible], error))
        if not rows:
            return None
        columns = dict(zip(_POINT, map(torch.cat, zip(*rows, strict=True)), strict=True))
        return cls(**columns, records=len(rows), head=model.head, cut=cut)

    @property
    def size(self) -> Float[Tensor, " point"]:
        """Norm of each message."""
        return self.message.norm(dim=-1)

    def gradients(self, form: MessageForm) -> Float[Tensor, "point label cut"]:
        return form.slopes(self.head, self.logits) @ self.jacobian

    def chosen(self, selection: Tensor) -> _Points:
        return replace(self, **{name: getattr(self, name)[selection] for name in _POINT})

    def nearest(self, apart: Float[Tensor, " point"]) -> Float[Tensor, " point"]:
        """Return the least of the distances of all points of the same record."""
        least = torch.full((self.records,), torch.inf).double()
        return least.scatter_reduce(0, self.record, apart, "amin")[self.record]

    def share(self, near: Bool[Tensor, " point"]) -> float:
        """Return the share of records that have a point among some."""
        return self.count(near) / self.records

    def count(self, near: Bool[Tensor, " point"]) -> int:
        return len(self.record[near].unique())


def fitted_messages(
    views: Sequence[CutView], space: Space, declared: MessageForm | None, rounds: Sequence[Tensor] | None = None
) -> list[FittedMessages]:
    """Return the form of the messages of each view, fitted where none is declared.

    ``rounds`` number the round of each record of each view; None: clients' batches by the number of records in their
    loss. A declared form is taken as it is; factors of its rounds are fitted where it says so.
    """
    groups = [_batch_numbers(view) for view in views] if rounds is None else list(rounds)
    if declared is not None and declared.reduction == "sum":
        # Each record counts as it is, whatever the number of records is.
        alone = [replace(view, behind=torch.ones_like(view.behind)) for view in views]
        fitted = fitted_messages(alone, space, replace(declared, reduction="mean"), groups)
        return [
            replace(messages, form=declared, factors=messages.factors * view.behind.to(messages.factors))
            for messages, view in zip(fitted, views, strict=True)
        ]
    if views[0].model.head == "regression":
        if declared is None:
            return [_form_of_number(view, space, group) for view, group in zip(views, groups, strict=True)]
        return [_scaled(view, declared, math.nan) for view in views]
    points = _Points.of(views, space, groups)
    formats: set[Format] = {format_of(view.gradient) for view in views if bool(view.gradient.any())}
    form = declared or MessageForm(format=formats.pop() if len(formats) == 1 else "float32")
    if points is None or form.training:
        return [_scaled(view, form, math.nan) for view in views]
    if declared is None:
        form, by_group, replayed = _best_form(points, views, space, form)
    else:
        by_group = _voted(points, [form], True)[1] if form.scale_of == "round" else {}
        replayed = _replayed(points, form, by_group)
    if form.scale_of != "round":
        return [_scaled(view, form, replayed) for view in views]
    # Factors of rounds that are not known yet, from their own records.
    for view, group in zip(views, groups, strict=True):
        for number in {*group.tolist()} - by_group.keys():
            members = (group == number).nonzero()[:, 0]
            points = _Points.of([view.of(members)], space, [group[members]])
            if points is not None:
                by_group |= _voted(points, [replace(form, scale=1.0)], True)[1]
    usual = float(np.median(list(by_group.values()))) if by_group else 1.0
    rows = [torch.tensor([by_group.get(int(g), usual) for g in group], dtype=torch.float64) for group in groups]
    return [FittedMessages(form, row * form.scale, replayed) for row in rows]


def _scaled(view: CutView, form: MessageForm, replayed: float) -> FittedMessages:
    factor = 1.0 if form.scale_of == "record" else float(form.scale)
    return FittedMessages(form, torch.full((view.records,), factor, dtype=torch.float64), replayed)


def _best_form(
    points: _Points, views: Sequence[CutView], space: Space, first: MessageForm
) -> tuple[MessageForm, dict[int, float], float]:
    """Return the form that explains most messages, the factors of rounds, and the share of records it replays."""
    form, by_group, replayed = first, dict[int, float](), _replayed(points, first, {})
    # Where chance replays everything, nothing can be told.
    if math.isnan(replayed) or replayed >= RIGHT:
        return form, by_group, replayed
    quantised = first.format == "int8"
    # No loss brings back what is not in the direction of any combination.
    reached = points.share(torch.ones_like(points.record, dtype=torch.bool)) >= _USABLE
    for candidate, factors_of_rounds in _candidate_forms(points, first) if reached and not quantised else ():
        share = _replayed(points, candidate, factors_of_rounds)
        if share > max(replayed + 0.02, _USABLE):
            form, by_group, replayed = candidate, factors_of_rounds, share
        if replayed >= RIGHT:
            return form, by_group, replayed
    if dropping(views[0].model.client):
        share = _share_replayed_by_masks(views[0], space, form)
        # Some masks are not among those that are tried.
        if share > max(replayed, _USABLE / 2):
            form, by_group, replayed = replace(first, training=True, estimated=True), {}, share
    elif any(view.moments is not None for view in views) and why_not_followed(views[0], space) is None:
        # Running statistics moved, as they do in training mode; attacks say how much they replay.
        return replace(first, training=True, estimated=True), {}, math.nan
    if replayed < _USABLE and not quantised and not form.training:
        noise = _unexplained_noise(views[0], space, first)
        form = replace(first, noise=noise, estimated=noise > _USUAL)
    return form, by_group, replayed


def _batch_numbers(view: CutView) -> Int[Tensor, " record"]:
    """Return the number of each record's batch, one for all where no mean says it."""
    sizes = [batch.stop - batch.start for batch in batches_of(view)]
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def _in_direction(message: Tensor, jacobian: Tensor, within: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return which combinations reach a message's direction, and messages and derivatives in coordinates of logits.

    The slope of any loss with one output is a number, and of several outputs slopes that add up to zero.
    """
    places, outputs, cut = jacobian.shape
    if outputs == 1:
        square = jacobian[:, 0].square().sum(-1).clamp(min=1e-300)
        slope = (jacobian[:, 0] @ message) / square
        apart = (message - slope[:, None] * jacobian[:, 0]).norm(dim=-1)
        # In the one coordinate that is left, what remains is the slope.
        return apart <= within * message.norm(), slope[:, None], torch.ones(places, 1, 1, dtype=torch.float64)
    fits = torch.ones(places, dtype=torch.bool)
    if cut >= outputs:
        centred = jacobian - jacobian.mean(1, keepdim=True)
        gram = centred @ centred.mT
        size = gram.diagonal(dim1=1, dim2=2).sum(1)[:, None, None].clamp(min=1e-30)
        gram = gram + 1e-12 * torch.eye(outputs).double() * size
        slope = torch.linalg.solve(gram, centred @ message)
        fits = (message - (slope[:, None] @ centred)[:, 0]).norm(dim=-1) <= 4 * within * message.norm()
    return fits, message.expand(places, -1), jacobian


def _candidate_forms(points: _Points, form: MessageForm) -> Iterator[tuple[MessageForm, dict[int, float]]]:
    """Return forms that many records agree on, the simplest first."""
    several = len(points.group.unique()) > 1
    width = max(_FINE, 4 * form.unit)
    for fine, within in ((False, width), (True, max(width, _COARSE))):
        tried = [form, *shapes(form, fine)]
        for by_round in (False, True) if several else (False,):
            voted, factors_of_rounds = _voted(points, tried, by_round, within)
            if fine and not by_round:
                voted = _polished_form(points, voted)
            yield voted, factors_of_rounds
        lines = None if fine or points.head != "sigmoid" else _form_by_lines(points, form)
        if lines is not None:
            yield lines, {}
    # Any factor is right where there is nothing but a factor.
    if points.cut == 1:
        return
    yield replace(form, scale_of="record", estimated=True), {}


class _Agreement(NamedTuple):
    """The logarithm of a factor that records agree on, and their number."""

    records: int
    log: float


_NOBODY = _Agreement(0, 0.0)


def _voted(
    points: _Points, shapes: Sequence[MessageForm], by_round: bool, within: float = _FINE
) -> tuple[MessageForm, dict[int, float]]:
    """Return the form whose factors most records agree on, and the factors of rounds."""
    group = points.group if by_round else torch.zeros_like(points.group)
    most, best, best_labels = -1.0, shapes[0], list[dict[int, _Agreement]]()
    for number, shape in enumerate(shapes):
        labels = []
        for gradient in points.gradients(shape).unbind(1):
            factor = factors(gradient, points.message)
            apart = (factor[:, None] * gradient - points.message).norm(dim=-1)
            valid = (factor > 0) & (apart <= 4 * FAR * within * points.size)
            agreed = _agreed_factors(factor[valid].log(), points.record[valid], group[valid], within)
            labels.append(agreed)
        votes = sum(agreement.records for agreed in labels for agreement in agreed.values())
        # Of equal ones, the simplest, which come first.
        score = votes - 0.01 * number / len(shapes)
        if score > most:
            most, best, best_labels = score, shape, labels
    return _form_of_agreements(best, best_labels, by_round)


def _form_by_lines(points: _Points, form: MessageForm) -> MessageForm | None:
    """Return a form with weights and smoothing both, by the line that each label's slopes lie on.

    With weights w, v of the classes and a label's soft share t of the second one, the slope of a chance p of it is
    ``w (1 - t) p - v t (1 - p)``: a line over p, for each label. Every record has a point on one of two lines among
    those of its combinations. Two records give a line for each pair of their combinations, and the true one comes back
    with other records, where false ones do not.
    """
    chance, slope = points.logits[:, 0].sigmoid(), points.message[:, 0]
    left, ends = torch.ones(points.records, dtype=torch.bool), list[tuple[float, float]]()
    for _ in range(2):
        line = _most_voted_line(points, chance, slope, left)
        if line is None:
            return None
        (high, low), on = line
        # Slopes at chances of 1 and 0.
        ends.append((high, -low))
        left[on] = False
    # The first label is the one whose slopes are rather positive.
    (yes, no), (other_yes, other_no) = sorted(ends, key=lambda end: end[1] / max(end[0], 1e-30))
    if min(yes, no, other_yes, other_no) < 0 or yes * other_no <= 0:
        return None
    odds = math.sqrt(no * other_yes / (yes * other_no))
    smoothing = 2 * odds / (1 + odds)
    scale, second = yes / (1 - smoothing / 2), other_no / (1 - smoothing / 2)
    if smoothing >= 1:
        return None
    weighted = replace(form, weights=(1.0, second / scale), smoothing=smoothing, estimated=True)
    return replace(weighted, scale=scale if abs(math.log(scale)) > _SAME else 1.0)


def _most_voted_line(
    points: _Points, chance: Tensor, slope: Tensor, left: Tensor
) -> tuple[tuple[float, float], Tensor] | None:
    """Return the line that most records have a point on, as its values at 1 and 0, and these records."""
    counts = points.record.bincount(minlength=points.records) * left
    several = (counts > 0).nonzero()[:, 0]
    if len(several) < _AGREE:
        return None
    draw = torch.Generator().manual_seed(0)
    cells, budget, pairs = [], _NUMBERS, 0
    while budget > 0 and pairs < _LINES:
        first, second = several[torch.randperm(len(several), generator=draw)[:2]].tolist()
        (a, b), pairs = ((points.record == r).nonzero()[:, 0] for r in (first, second)), pairs + 1
        budget -= len(a) * len(b)
        rise = (slope[b] - slope[a, None]) / (chance[b] - chance[a, None])
        low = slope[a, None] - rise * chance[a, None]
        high = low + rise
        # Slopes rise with the chance, from none or less to none or more.
        rising = (low <= 0) & (high >= 0) & (rise > 0) & rise.isfinite()
        ends = torch.stack([high[rising], -low[rising]]).clamp(min=1e-9).log()
        # As one number, which sorts faster than two.
        cells.append((ends / _LINE_WIDTH).round().long().mul(torch.tensor([[_STRIDE], [1]])).sum(0))
    cell, votes = torch.cat(cells).unique(return_counts=True)
    best, most = None, _AGREE - 1
    for top in votes.topk(min(_TRIED_LINES, len(votes))).indices.tolist():
        number = int(cell[top])
        second = (number + _STRIDE // 2) % _STRIDE - _STRIDE // 2
        logs = torch.tensor([(number - second) // _STRIDE, second], dtype=torch.float64) * _LINE_WIDTH
        ends = logs.exp() * torch.tensor([1.0, -1.0])
        for within in (_LINE_WIDTH * 2, _FINE * FAR, _FINE * FAR):
            off = (ends[0] * chance + ends[1] * (1 - chance) - slope).abs() / slope.abs()
            on = (off <= within) & left[points.record]
            on &= off <= points.nearest(off)
            if int(on.sum()) < _AGREE:
                break
            design = torch.stack([chance[on], 1 - chance[on]], 1) / slope[on, None].abs()
            ends = torch.linalg.lstsq(design, slope[on].sign()[:, None]).solution[:, 0]
        records = points.record[on].unique()
        if len(records) > most:
            best, most = ((float(ends[0]), float(ends[1])), records), len(records)
    return best


def _agreed_factors(logs: Tensor, record: Tensor, group: Tensor, within: float) -> dict[int, _Agreement]:
    """Return, for each round, the logarithm of a factor that most records agree on; those that stand out."""
    agreed: dict[int, _Agreement] = {}
    width = int(record.max()) + 1 if len(record) else 1
    for number in group.unique().tolist():
        members = group == number
        best, tops = _NOBODY, []
        # Twice, so that no edge of a cell parts those that agree.
        for shift in (0.0, 0.5):
            cell = (logs[members] / within + shift).floor().long()
            # Each record has one vote in a cell.
            pairs = (cell * width + record[members]).unique()
            cells, counts = pairs.div(width, rounding_mode="floor").unique(return_counts=True)
            top = int(counts.argmax())
            if int(counts[top]) > best.records:
                best = _Agreement(int(counts[top]), float(logs[members][cell == cells[top]].median()))
            tops.append(((cells - shift + 0.5) * within, counts))
        others = [counts[(middle - best.log).abs() > 4 * within] for middle, counts in tops]
        beside = max(int(counts.max()) if len(counts) else 0 for counts in others)
        if best.records >= max(_AGREE, _BEYOND * beside):
            agreed[number] = best
    return agreed


def _form_of_agreements(
    shape: MessageForm, labels: Sequence[dict[int, _Agreement]], by_round: bool
) -> tuple[MessageForm, dict[int, float]]:
    """Return a form with the weights of labels, and the factors of rounds in units of it."""
    rounds = sorted({number for agreed in labels for number in agreed})
    if not rounds:
        return replace(shape, estimated=True), {}
    base = max(labels, key=len)
    ratios = []
    for agreed in labels:
        both = [agreed[number].log - base[number].log for number in agreed if number in base]
        ratios.append(float(np.exp(np.median(both))) if both else 1.0)
    by_group = {}
    for number in rounds:
        logs = [a[number].log - math.log(r) for a, r in zip(labels, ratios, strict=True) if number in a]
        by_group[number] = float(np.exp(np.median(logs)))
    weights = shape.weights
    if any(abs(math.log(ratio)) >= _SAME for ratio in ratios):
        declared = shape.weights or (1.0,) * len(labels)
        weights = tuple(ratio * weight for ratio, weight in zip(ratios, declared, strict=True))
        # In units of the first class.
        by_group = {number: factor * weights[0] for number, factor in by_group.items()}
        weights = tuple(weight / weights[0] for weight in weights)
    form = replace(shape, weights=weights, estimated=True)
    if by_round:
        return replace(form, scale_of="round"), by_group
    scale = by_group[rounds[0]]
    return replace(form, scale=scale if abs(scale - 1) > _SAME else 1.0), {}


def _polished_form(points: _Points, form: MessageForm) -> MessageForm:
    """Return a form whose settings fit best, by least squares on each record's nearest combination."""
    classes = points.gradients(form).shape[1]
    weights = form.weights or (1.0,) * classes
    shaped = "gamma" if form.loss == "focal" else "smoothing"

    def of(values: np.ndarray) -> MessageForm:
        changed = {shaped: float(np.clip(values[-1], 0.0, 0.95 if shaped == "smoothing" else 20.0))}
        return replace(form, weights=tuple(np.exp(values[:-1]).tolist()), scale=1.0, **changed)

    values = np.array([*(math.log(w * form.scale) for w in weights), getattr(form, shaped)])
    for within in _NARROWING:
        gradients = points.gradients(of(values))
        apart = (gradients - points.message[:, None]).norm(dim=-1) / points.size[:, None]
        nearest, label = apart.min(1)
        fitting = ((nearest <= points.nearest(nearest)) & (nearest <= 3 * within)).nonzero()[:, 0]
        if len(fitting) < 2 * len(values):
            break
        chosen, labels = points.chosen(fitting), label[fitting]

        def missed(trial: np.ndarray, chosen: _Points = chosen, labels: Tensor = labels) -> np.ndarray:
            gradients = chosen.gradients(of(trial))[torch.arange(len(labels)), labels]
            return ((gradients - chosen.message) / chosen.size[:, None]).flatten().numpy()

        values = least_squares(missed, values, loss="soft_l1", f_scale=within, x_scale=0.01).x
    weights = np.exp(values[:-1])
    even = bool((np.abs(np.log(weights / weights[0])) < _SAME).all())
    unit = float(weights[0])
    polished = replace(of(values), weights=() if even else tuple((weights / unit).tolist()), estimated=True)
    return replace(polished, scale=unit if abs(unit - 1) > _SAME else 1.0)


def _replayed(points: _Points, form: MessageForm, by_group: dict[int, float]) -> float:
    """Return the share of records that some combination replays, less those replayed at wrong factors."""
    usual = float(np.median(list(by_group.values()))) if by_group else 1.0
    factor = torch.tensor([by_group.get(n, usual) for n in points.group.tolist()]).double() * form.scale
    gradients = points.gradients(form)
    message = points.message / factor[:, None]
    if form.scale_of == "record":
        fitted = factors(gradients, message[:, None])
        apart = (gradients * fitted[..., None] - message[:, None]).norm(dim=-1)
        return points.share((apart <= FAR * ROUNDINGS * form.unit * message.norm(dim=-1)[:, None]).any(1))
    within = FAR * ROUNDINGS * form.unit / (1 if form.format == "float32" else FAR)
    # A slope may be the difference of numbers as large as a label's weight, which are rounded themselves.
    off = _LOST * max(form.weights or (1.0,)) * points.jacobian.flatten(1).norm(dim=-1)
    off = (off + (within + points.off) * message.norm(dim=-1))[:, None]

    def share(moved: float) -> float:
        apart = (gradients - moved * message[:, None]).norm(dim=-1)
        return points.share((apart <= moved * off).any(1))

    chance = max(share(moved) for moved in _WRONG)
    return math.nan if chance > RIGHT else (share(1.0) - chance) / (1 - chance)


def _form_of_number(view: CutView, space: Space, group: Tensor) -> FittedMessages:
    """Return the form of messages about a number as target: the factor under which numbers are within its bounds.

    The direction of a message tells the cells whatever the loss. Where many messages are the longest that their
    direction allows, to rounding, the loss is Huber's. Of usual factors, that counts under which most of the numbers
    are possible, and which is nearest to 1 among these.
    """
    points = _Points.of([view], space, [group])
    if points is None:
        return _scaled(view, PLAIN, math.nan)
    outputs, slope = points.logits[:, 0], points.message[:, 0]
    most = float(slope.abs().max()) if len(slope) else 0.0
    longest = (slope.abs() >= most * (1 - 1e-4)) & (slope != 0)
    replayed = points.share(torch.ones_like(longest))
    huber = points.count(longest) >= max(_AGREE, (1 - RIGHT) * points.records)
    ratios = sorted(
        _USUAL_FACTORS | {float(view.behind.max()), 1 / float(view.behind.max())}, key=lambda f: abs(math.log(f))
    )

    def possible(factor: float) -> float:
        number = outputs - slope / (factor if huber else 2 * factor)
        return points.share((number.abs() <= 1 + _BOUND) | (longest & huber))

    # A factor that is too large moves no number out of the bounds, so that larger ones need a reason.
    usual = possible(1.0)
    factor = 1.0 if usual >= RIGHT else next((f for f in ratios if possible(f) >= RIGHT), 1.0)
    if possible(factor) < RIGHT:
        replayed = min(replayed, usual)
    plain = factor == 1 and not huber
    form = (
        PLAIN if plain else MessageForm("huber" if huber else "squared", delta=max(most, 1e-9) / factor, scale=factor)
    )
    form = form if plain else replace(form, estimated=True)
    return FittedMessages(form, torch.full((view.records,), factor, dtype=torch.float64), replayed)


def _share_replayed_by_masks(view: CutView, space: Space, form: MessageForm) -> float:
    """Return the share of some records that a combination replays under one of the masks that are tried."""
    sample = view.of(view.gradient.any(1).nonzero()[: _FEWEST // 2, 0])
    sample = replace(sample, model=replace(sample.model, form=replace(form, training=True)))
    if space.size > MOST:
        return 0.0
    shares = []
    for factor in (1.0, _WRONG[1]):
        moved = replace(sample, gradient=sample.gradient * factor)
        replayed = masked_log_likelihood(moved, space, torch.Generator().manual_seed(0), trial=True)[2]
        shares.append(float(replayed.double().mean()))
    return (shares[0] - shares[1]) / max(1 - shares[1], 1e-9)


def _unexplained_noise(view: CutView, space: Space, form: MessageForm) -> float:
    """Return the noise, in units of a message's norm, at which messages that nothing replays are likeliest."""
    sample = view.of(view.gradient.any(1).nonzero()[: 2 * _FEWEST, 0])
    places = torch.arange(min(space.size, max(1, _NUMBERS // (sample.model.outputs * (sample.cut.shape[1] + 1)))))
    respond, cells, squares = responder(sample.model), space.cells(places), []
    for row, message in enumerate(sample.own_gradient):
        answer = candidate_gradients(sample.model, *respond.grid(sample.cut[row : row + 1], cells))
        squares.append(((answer - message).square().sum(-1) / message.square().sum()).flatten().double().cpu())
    apart, cut = torch.stack(squares), sample.cut.shape[1]

    def likelihood(noise: float) -> float:
        return float((-apart / (2 * noise**2)).logsumexp(1).mean()) - cut * math.log(noise)

    return max((_USUAL * 10 ** (k / 4) for k in range(21)), key=likelihood)


def in_form(views: Sequence[CutView], knowledge: CutKnowledge, space: Space) -> list[CutView]:
    """Return views whose model has the form of the messages, and whose own gradients are those of its loss."""
    if knowledge.form is not None and knowledge.form in (PLAIN, views[0].model.form):
        # Plain, or undone already.
        return list(views)
    declared = knowledge.form
    if declared is None and not knowledge.defense.bare:
        # What a defense leaves of a message tells nothing of its form.
        declared = PLAIN
    fitted = fitted_messages(views, space, declared)
    return [messages.undone(view) for messages, view in zip(fitted, views, strict=True)]
