"""Rule for gradients and updates of plain SGD.

Theorem. The message of a layer z = W v that sees each record once is G = sum_j e_j v_j^T + D, where e_j is the error
of record j, whatever it is, and D is what a sum of n terms rounds, in any order (``roundings_of_records``). Of a
single record, the error of a unit with a bias is the bias's own entry. If G has as many singular values above |D| as
there are records, every v_j lies in the span of their right singular vectors, up to |D| / (s_n - |D|) of its length.
All rows that the declaration allows and that do so are enumerated: categories by a search that cuts off only what no
values of the open columns can bring back, numbers as boxes. Deeper layers exclude boxes in the same way, and what is
left bounds errors and inputs anew. A record is in every batch if a direction that all other boxes are orthogonal to
carries more of G than their rows can.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.kernel.boxes import Boxes, everything, single_rows
from seepage.kernel.clients import Bounds, ClientNetwork, bounded, check_hooks, kept_network, largest_drift, states
from seepage.kernel.doubts import NumberRange, coarse, coarse_change, coarse_parts, coarse_rows
from seepage.kernel.operations import Ball, row_values
from seepage.kernel.roundings import roundings_of_records
from seepage.kernel.rows import boxes_around, boxes_in, choices, chosen, grouped, most_boxes, narrowed
from seepage.kernel.spans import Design, LayerSpan, designed, rounded_steps, spanned
from seepage.kernel.statement import (
    ROUNDINGS,
    SAME,
    SMALLEST,
    UNIT,
    Certified,
    Declaration,
    RefusedError,
    nothing,
    refused,
)

# Longest axes of what numbers may be that are cut into pieces.
_AXES = 2
# Error of replayed parameters that no rule reads, as a share.
_COARSE = 1e-3
# Share of an output's error that roundings may make up for it to be known.
_ROUNDED = 1e-2
# Times that bounds are had anew from what is left, as long as the span becomes that much sharper.
_PASSES, _GAIN = 5, 0.7
# Choices of categories, in records, from which all of them are searched only where a proof is in reach.
_MANY = 4
_OUT_OF_REACH = "rows close to the records, which no search excludes, leave none of them certain"
_NOT_APART = "other rows, which the message leaves open, can stand in for each of the records"
_ROWS_IN_HALVES = "all numbers that are proved lie on a grid of 16 bits, as those of rows that a client holds so"
# What proofs that hold only in part are given.
_GROWN, _ALONE = 2.0, "errors of different records at a layer are linearly independent, or too small to be seen"


def _present(errors: Tensor, span: LayerSpan, design: Design, boxes: Boxes, group: Tensor, off: Tensor) -> list[int]:
    """Return the groups of boxes of which every batch has a row.

    A direction w of the span that is orthogonal to the rows of all other groups sees this group's rows alone. If there
    were none, |G w| at a unit would be at most the largest |v w| of the others' rows times their largest errors. Rows
    are ``off`` by what their encoding and the way to the layer round.
    """
    rows, found = design.rows(boxes), []
    inside = rows @ span.inside
    for i in group[group >= 0].unique().tolist():
        own, others = group == i, inside[group != i]
        square = others.T @ others
        square.diagonal().add_(1e-14 * square.diagonal().sum() + 1e-30)
        w = torch.linalg.solve_ex(square, inside[own].sum(0)).result
        w = span.inside @ (w / w.norm().clamp(min=1e-300))
        most = (rows[~own] @ w).abs() + boxes.reach[~own] @ (design.numbers @ w).abs() + off @ w.abs()
        there = (span.matrix @ w).abs() - span.slack @ w.abs()
        other = (most[:, None] * errors[~own]).amax(0) if len(most) else torch.zeros(()).double()
        found += [i] if bool((there > (1 + SAME) * other).any()) else []
    return found


def _loss(declared: Declaration, outputs: Tensor, labels: Tensor) -> Tensor:
    if declared.head != "regression" and int(labels.max()) >= (2 if declared.head == "sigmoid" else outputs.shape[1]):
        raise RefusedError("a record has a label that the network has no output for")
    if declared.head == "softmax":
        return functional.cross_entropy(outputs, labels.long())
    if declared.head == "sigmoid":
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], labels.to(outputs))
    return functional.mse_loss(outputs[:, 0], labels.to(outputs))


def _summed(
    network: ClientNetwork, at: Mapping[str, Tensor], declared: Declaration, cells: Tensor, labels: Tensor,
    seen: Tensor | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Return the sum of all steps' gradients for parameters of layers; ``seen`` are known errors at the outputs."""
    now, total = dict(at), dict[str, Tensor]()
    rows = declared.rows(cells)
    none = torch.zeros_like(rows)
    for _ in range(declared.steps):
        values = network.evaluated(now, {}, row_values(Ball(rows, none), none), errors=True)
        outputs = values[network.outputs].mid.detach().requires_grad_()
        with torch.enable_grad():
            [errors] = torch.autograd.grad(_loss(declared, outputs, labels), outputs)
        errors = errors if seen is None else seen.expand_as(errors)
        found = dict[str, Tensor]()
        for name, layer in network.layers.items():
            back = (values[layer.error].mid * errors.T[..., None]).sum(0)
            found[name] = back.T @ values[layer.entering].mid
            found |= {} if layer.bias is None else {layer.bias: back.sum(0)}
        total = {name: part + total.get(name, 0.0) for name, part in found.items()}
        now = {name: part - (declared.rate or 0.0) * found.get(name, 0.0) for name, part in now.items()}
    return total


def _as_client(
    module: nn.Module, at: Mapping[str, Tensor], declared: Declaration, cells: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Return the same of all parameters, as a client computes it: in single precision, by ``backward``."""
    client, rows = copy.deepcopy(module), declared.rows(cells)
    own = {name: client.get_parameter(name) for name in at}
    total = {name: torch.zeros_like(part) for name, part in at.items()}
    for _ in range(declared.steps):
        client.zero_grad()
        _loss(declared, client(rows.float()), labels).backward()
        with torch.no_grad():
            for name, part in own.items():
                if part.grad is not None:
                    total[name] += part.grad
                    part -= (declared.rate or 0.0) * part.grad
    return total


def _read_off(bounds: Bounds, message: Mapping[str, Tensor], seen: Tensor | None) -> Bounds:
    """Return bounds with the errors that the gradient of a single record holds as those of biases, if it does."""
    errors = dict(bounds.errors)
    for name, bias in bounds.bias.items() if seen is not None else ():
        if bias is not None:
            own = (1 + ROUNDINGS * UNIT) * message[bias].double().abs() + SMALLEST
            errors[name] = torch.minimum(errors[name], own)
    return bounds._replace(errors=errors)


def _replay(
    module: nn.Module, network: ClientNetwork, at: Mapping[str, Tensor], message: Mapping[str, Tensor],
    declared: Declaration, cells: Tensor, labels: Tensor, bounds: Bounds, bounds_of: Callable[..., Bounds],
) -> Tensor | None:  # fmt: skip
    """Refuse records that do not replay a message, or a network that computes something else for a client.

    Errors at the outputs (output), as the gradient of a single record holds them, are returned; None where it does
    not, or where they are made of the roundings of chances.
    """
    before, single = states(module), declared.records == 1 and declared.rate is None
    last = next((layer.bias for layer in network.layers.values() if layer.last), None) if single else None
    seen = None if last is None else message[last].double()
    near = bounds_of({}, single_rows(declared, cells)) if declared.steps == 1 else None
    client = _as_client(module, at, declared, cells, labels)
    summed = {**client, **_summed(network, at, declared, cells, labels)}
    read = _read_off(bounds, message, seen)
    blurs = _blurs(at, declared, read, summed, near)
    _compare(message, summed, blurs, declared)
    for name, blur in blurs.items():
        if not bool(((client[name] - summed[name]).abs() <= blur).all()):
            raise RefusedError(f"the network computes another gradient of {name} as a client runs it")
    if states(module) != before:
        raise RefusedError("the network remembers its runs")
    if seen is None or last is None:
        return None
    near = bounds_of({}, single_rows(declared, cells), seen=seen)
    summed = {**client, **_summed(network, at, declared, cells, labels, seen)}
    _compare(message, summed, _blurs(at, declared, read, summed, near), declared)
    return seen if bool((blurs[last] <= _ROUNDED * seen.abs()).any()) else None


def _compare(
    message: Mapping[str, Tensor], total: Mapping[str, Tensor], blurs: Mapping[str, Tensor], declared: Declaration
) -> None:
    """Refuse a message that is not the gradients of records."""
    for name, blur in blurs.items():
        missed = (message[name].double() / (declared.rate or 1.0) - total[name]).abs()
        if not bool((missed <= blur).all()):
            worst = float((missed / blur).nan_to_num(math.inf).max())
            raise RefusedError(
                f"the records do not replay {name}: {worst:.3g} times the rounding of its message is left"
            )


def _blurs(
    at: Mapping[str, Tensor], declared: Declaration, bounds: Bounds, total: Mapping[str, Tensor], near: Bounds | None
) -> dict[str, Tensor]:
    """Return how far single precision may take a gradient from its value, by parameter, from bounds over all rows.

    Those ``near``, over its own rows, say what roundings on the way do to inputs and errors.
    """
    allowed, (summed, _) = {}, roundings_of_records(declared.records)
    for name, bias in bounds.bias.items():
        most = bounds.most(name) * declared.steps
        if near is not None:
            inputs, count = near.inputs[name], len(near.inputs[name].mid)
            moved = near.apart[name].T @ inputs.most + near.errors[name].T @ inputs.rad
            most = most + moved / (count * summed)
        allowed |= {name: most} if bias is None else {name: most[:, :-1], bias: most[:, -1]}
    blurs = {}
    for name, part in total.items():
        blurs[name] = _COARSE * part.abs().max() + UNIT
        if name in allowed:
            blur = summed * allowed[name] + ROUNDINGS * UNIT * rounded_steps(declared, at[name], part)
            blurs[name] = blur + SMALLEST * (declared.records + 1) / abs(declared.rate or 1.0)
    return blurs


def certify(
    module: nn.Module, parameters: Mapping[str, Tensor], message: Mapping[str, Tensor], declared: Declaration,
    cells: Tensor, labels: Tensor,
) -> Certified:  # fmt: skip
    """Return which cells of records are proved by a gradient or update.

    Args:
        module: network of the client, a function of encoded rows.
        parameters: parameters that the client began with, by name.
        message: received tensors by name: a mean gradient, or parameters before less those after local steps.
        declared: computation, encoding and size that the message is of.
        cells: witness, the records (record, column): codes, or values of numbers.
        labels: their labels.
    """
    try:
        return _certify(module, parameters, message, declared, cells.double(), labels.double())
    except RefusedError as why:
        return refused(cells, getattr(declared, "columns", ()), str(why))
    except (Exception, SystemExit) as error:  # A user's module may raise anything, which proves nothing.
        why = f"the network cannot be followed ({type(error).__name__})"
        return refused(cells, getattr(declared, "columns", ()), why)


def _check(
    parameters: Mapping[str, Tensor], message: Mapping[str, Tensor], declared: Declaration, cells: Tensor,
    labels: Tensor,
) -> None:  # fmt: skip
    """Refuse tensors and records of another form than that of the declaration."""
    shapes = [{name: part.shape for name, part in held.items()} for held in (message, parameters)]
    if not message or shapes[0] != shapes[1]:
        raise RefusedError("the message has not one tensor for each parameter")
    if not all(bool(part.isfinite().all()) for held in (message, parameters) for part in held.values()):
        raise RefusedError("the records do not replay numbers that are not finite")
    kinds = {part.dtype for held in (message, parameters) for part in held.values()} - {torch.float32, torch.float64}
    if kinds:
        raise RefusedError(f"the message or the parameters are in {kinds.pop()}, for which there is no rule")
    numbers = (declared.records, declared.steps, declared.rate or 1.0, *declared.target)
    if declared.records < 1 or declared.steps < 1 or not all(map(math.isfinite, numbers)) or declared.rate == 0:
        raise RefusedError("the declared number of records or steps, rate or target is none")
    for column in declared.columns:
        sizes = (*column.mean, *column.scale, column.low, column.high, column.tolerance)
        if not all(map(math.isfinite, sizes)) or not all(column.scale) or not column.low <= column.high:
            raise RefusedError(f"the encoding or bounds of the column {column.name} are no numbers, or in no order")
    if cells.shape != (declared.records, len(declared.columns)) or labels.shape != cells.shape[:1]:
        raise RefusedError("the records have not one cell for each declared column, and a label")
    for column, values in zip(declared.columns, cells.unbind(1), strict=True):
        codes = range(len(column.categories or ()))
        if not bool(values.isfinite().all()) or (codes and any(value not in codes for value in values.tolist())):
            raise RefusedError(f"a record has no value of the column {column.name}")
    classes = declared.head != "regression"
    low, high = (0.0, math.inf) if classes else declared.target
    if not bool(((low <= labels) & (labels <= high) & (labels < math.inf)).all()) or (
        classes and bool((labels % 1).any())
    ):
        raise RefusedError("a record has no label")


def _certify(
    module: nn.Module, parameters: Mapping[str, Tensor], message: Mapping[str, Tensor], declared: Declaration,
    cells: Tensor, labels: Tensor,
) -> Certified:  # fmt: skip
    if declared.defense != "none" or declared.precision != "float32":
        changed = declared.precision if declared.defense == "none" else declared.defense
        raise RefusedError(f"the message went through {changed}, for which there is no rule")
    if len(cells) != declared.records:
        raise RefusedError(f"{len(cells)} of {declared.records} records were read, so that none can be replayed")
    _check(parameters, message, declared, cells, labels)
    if coarse(message) or coarse_parts(message) if declared.rate is None else coarse_change(message, parameters):
        raise RefusedError(
            "all numbers of the message, or of a part of it, lie on a coarser grid than the declared single precision"
        )
    check_hooks(module)
    try:
        given, module, whole = module, copy.deepcopy(module).float(), everything(declared)
    except RuntimeError as error:
        raise RefusedError("the network keeps tensors of an earlier run, and cannot be copied") from error
    at = {name: part.detach().double() for name, part in parameters.items()}
    with torch.no_grad():
        for name, part in at.items():
            module.get_parameter(name).copy_(part)
    fixed, grown, drift = [], 1.0, dict[str, Tensor]()
    network = kept_network(given, module, at, declared)
    bounds_of = functools.partial(bounded, network, at, declared)
    try:
        drift = largest_drift(lambda moved: bounds_of(moved, whole), at, declared)
    except RefusedError:
        fixed.append(f"no record's error grows to more than {_GROWN:g} times its largest size within the local steps")
        grown = _GROWN
    row, identity, layout = whole.encoded(declared), torch.eye(len(declared.layout.mean)).double(), declared.layout
    # By how much each number's range moves its entry.
    moves = identity[layout.number] * layout.span[:, None] / layout.scale
    bounds = bounds_of(drift, whole, moves=identity)
    seen = _replay(module, network, at, message, declared, cells, labels, bounds, bounds_of)
    bounds = _read_off(bounds, message, seen)
    if not bounds.affine:
        raise RefusedError("no layer takes every row once, as an affine function of its entries")
    size = {name: (bounds.inputs[name].mid.shape[1], len(at[name]), name) for name in bounds.affine}
    first, deeper = max(bounds.affine, key=size.__getitem__), sorted(bounds.inputs.keys() - bounds.affine)
    units = {name: bounds.entering(name) for name in bounds.inputs}
    factor = bounds.slopes[first].mid[:, 0]
    design = designed(declared, torch.cat([bounds.inputs[first].mid - row.mid @ factor, factor]), units[first])
    # Inputs that are affine but for roundings.
    off = (bounds.slopes[first].rad[:, 0] * row.most.T).sum(0) + bounds.blurs[first][0]
    off = off / units[first]
    search = _RowSearch(
        declared, at, message, cells, seen, drift, bounds_of, moves, bounds, first, deeper, units, design, off,
        grown * declared.steps,
    )  # fmt: skip
    found = _narrow(search, fixed) or nothing(len(cells), len(declared.columns))
    if not bool(found.cells.any()) and found.doubt is None:
        found = replace(found, doubt=_NOT_APART)
    if not fixed:
        return found
    return Certified(torch.zeros_like(found.cells), found.cells, declared.describe(), tuple(fixed), found.doubt)


class _RowSearch(NamedTuple):
    """What a search for all rows that a message may be of starts from, see ``_certify``."""

    declared: Declaration
    at: Mapping[str, Tensor]
    message: Mapping[str, Tensor]
    cells: Tensor
    seen: Tensor | None
    drift: Mapping[str, Tensor]
    bounds_of: Callable[..., Bounds]
    moves: Tensor
    bounds: Bounds
    first: str
    deeper: list[str]
    units: Mapping[str, Tensor]
    design: Design
    off: Tensor
    times: float

    def bounded(self, boxes: Boxes) -> Bounds:
        """Return bounds over boxes, with errors as the gradient of a single record holds them."""
        return _read_off(self.bounds_of(self.drift, boxes), self.message, self.seen)


def _narrow(search: _RowSearch, fixed: list[str], certain: bool = False) -> Certified | None:
    """Return what is proved by the rows that may be there, in passes that use the bounds over what the last one left.

    Assumptions that turn out to be needed are added to ``fixed``. With ``certain``, only some rows close to the witness
    are looked at, which no search excludes, and as few as can be. Bounds over them are within those over all rows that
    are left in the end, but take a fraction of the time: where they prove nothing, all rows are not searched. As
    ``_present`` fits its directions to the boxes, this is a rule that was measured, not a theorem. It can only refuse.
    """
    declared, design, times = search.declared, search.design, search.times
    cut, share, found, boxes, tried = _AXES if certain else 0, math.inf, None, None, certain
    bounds, rounded, own = search.bounds, float(search.off.norm()), single_rows(declared, search.cells)

    for _ in range(_PASSES):
        span = spanned(
            search.first, bounds, search.at, search.message, declared, search.units[search.first], times, design.length
        )
        if span.rank < declared.records and _ALONE not in fixed:
            fixed.append(_ALONE)
        taps = dict[str, LayerSpan]()
        for name in search.deeper if declared.steps == 1 else ():
            try:
                tap = spanned(name, bounds, search.at, search.message, declared, search.units[name], times)
            except RefusedError:
                continue
            taps |= {name: tap} if tap.rank == declared.records or (_ALONE in fixed and tap.rank >= span.rank) else {}
        sharp = math.prod(tap.share * tap.length for tap in (span, *taps.values()))
        if sharp > _GAIN * share and not certain:
            if cut:
                break
            cut = _AXES
        share = sharp

        def excluded(boxes: Boxes, taps: Mapping[str, LayerSpan] = taps) -> Tensor:
            out = torch.zeros(len(boxes.codes), dtype=torch.bool)
            if taps and len(out):
                inputs = search.bounds_of(search.drift, boxes, errors=False).inputs
                for name, tap in taps.items():
                    outside, within = tap.off(inputs[name])
                    out |= outside.norm(dim=1) > within
            return out

        span = span._replace(share=span.share + rounded / span.length)
        if certain:
            boxes = boxes_around(declared, design, span, own, excluded, cut)
        else:
            codes = choices(design, span.outside, span.share * span.length) if boxes is None else chosen(boxes)[0]
            if not tried and (cut or len(codes) > _MANY * declared.records):
                if not _in_reach(search, fixed):
                    raise RefusedError(_OUT_OF_REACH)
                tried = True
            boxes = boxes_in(declared, design, span, codes, excluded, cut)
        if len(boxes.codes) > most_boxes(declared) / 6:
            raise RefusedError("too many rows of the declared columns lie in what the message spans")
        for _ in range(_PASSES if taps and len(declared.numbers) else 0):
            if len(boxes.codes):
                near = search.bounds_of(search.drift, boxes, errors=False, moves=search.moves)
                before, boxes = boxes, narrowed(declared, boxes, near, taps)
                if len(before.codes) == len(boxes.codes) and torch.equal(before.reach, boxes.reach):
                    break
        if not len(boxes.codes):
            raise RefusedError("no row of the declared columns lies in what the message spans")
        some, of = grouped(boxes)
        bounds = search.bounded(some)
        errors = bounds.errors[search.first][of] * times
        found = _named(declared, errors, span, design, boxes, search.cells, search.off)
        if bool(found.cells.all()) or (certain and bool(found.cells.any())):
            break
    return found


def _in_reach(search: _RowSearch, fixed: list[str]) -> bool:
    """Return whether rows close to the witness leave any of its cells certain, or cannot say."""
    try:
        least = _narrow(search, list(fixed), certain=True)
    except RefusedError:
        return True
    return least is None or bool(least.cells.any())


def _named(
    declared: Declaration, errors: Tensor, span: LayerSpan, design: Design, boxes: Boxes, cells: Tensor, off: Tensor
) -> Certified:
    """Return which cells of a witness are proved by the rows that may be there."""
    place = torch.tensor([column.categories is None for column in declared.columns])
    low, size = declared.of("low"), declared.of("high") - declared.of("low")
    codes, own, _ = single_rows(declared, cells)
    far = (boxes.center[:, None] - own[None]).abs().sum(2)
    far = far.masked_fill((boxes.codes[:, None] != codes[None]).any(2), torch.inf)
    group = torch.where(far.amin(1) < torch.inf, far.argmin(1), -1)
    proved = torch.zeros(cells.shape, dtype=torch.bool)
    present = _present(errors[:, span.alive], span, design, boxes, group, off)
    tolerance, layout = declared.of("tolerance") * (1 + SAME), declared.layout
    low_ends, high_ends, far = [], [], []
    for i in present:
        here = boxes.some(group == i)
        away = ((here.center - own[i]).abs() + here.reach).amax(0) * size
        far.append(torch.where(size > 0, away, (cells[i, place] - low).abs()))
        proved[i, ~place], proved[i, place] = True, far[-1] <= tolerance
        rows, values = here.encoded(declared), low + here.center * layout.span
        blur = here.reach * layout.span + ROUNDINGS * UNIT * (values.abs() + here.reach * layout.span)
        for ends, side in ((low_ends, -1), (high_ends, 1)):
            ends.append([values + side * blur, (rows.mid + side * rows.rad)[:, layout.number]])
    if not present or not bool(place.any()):
        return Certified(proved, torch.zeros_like(proved), declared.describe())
    lows, highs = ([torch.stack([pick(one[k], 0) for one in ends]) for k in range(2)] for ends, pick in
                   ((low_ends, torch.amin), (high_ends, torch.amax)))  # fmt: skip
    mean, scale = layout.mean[layout.number], layout.scale[layout.number]
    table = NumberRange(lows[0], highs[0], torch.ones_like(size), low, low + size)
    # Rows as the network takes them have roundings of their own.
    ranges = table, table.scaled(mean, scale)._replace(low=lows[1], high=highs[1])
    at = torch.tensor(present)
    whole = (declared.of("integer") > 0) & (cells[at][:, place] % 1 == 0)
    doubted, silent = coarse_rows(ranges, torch.stack(far), tolerance.masked_fill(size == 0, math.inf), whole)
    if silent:
        return nothing(len(cells), cells.shape[1], _ROWS_IN_HALVES)
    proved[at[:, None], place.nonzero()[:, 0]] &= ~doubted
    return Certified(proved, torch.zeros_like(proved), declared.describe())
