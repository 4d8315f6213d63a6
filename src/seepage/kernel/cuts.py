"""Rule for messages of a cut layer: the gradient that a client returns for the activations that it received.

Theorem. A client's columns take finitely many values, and so does a label of classes. All of these configurations are
put through the client's own computation, with a running bound on its roundings. A cell is certified if every
configuration whose gradient may be the message, element by element, has the same value in it. Of a number as label only
the direction of the gradient is used, which holds for any loss of one output.

The rule has power only where a wrong declaration would be seen. That is tried on placebos: messages times a random
factor, and messages of which one entry is moved by a random share of their length, for shares of many sizes. How often
these would be replayed is known from the bounds themselves. No record is certified whose placebos would often be
replayed, and none at all where as many replays as there are may be those of placebos; where more than 5% of records are
replayed by nothing; or where the largest messages are equally large, as those that are clipped to a bound that one of
them may attain.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seepage.kernel.clients import check_hooks, errors_at, states
from seepage.kernel.doubts import (
    PLACEBOS,
    NumberRange,
    by_chance,
    coarse,
    coarse_rows,
    moved_entries,
    moved_wholes,
)
from seepage.kernel.operations import Ball, Evaluator, errors_of_outputs, row_values
from seepage.kernel.statement import (
    HUGE,
    ROUNDINGS,
    SEED,
    TINY,
    UNIT,
    Certified,
    Declaration,
    EncodedColumn,
    RefusedError,
    as_numbers,
    refused,
)
from seepage.kernel.tracing import OperationGraph, Place, counts_rows, same, traced

# Largest chance that a configuration replays a wrong message, or its direction, and share of records that need no
# replay.
_CHANCE, _CHANCE_OF_DIRECTION, _MISFIT = 1e-2, 0.1, 0.05
_REPLAYED_BY_CHANCE = "wrong messages would be replayed by chance, so that a wrong declaration would not be seen"
# Configurations of all records that are gone through, and numbers of a temporary.
_MOST, _NUMBERS = 2**19, 2**20
# Rows on which a run is looked at; numbers of rows of which graphs are compared where the client's is not known, as of
# sums, and most of those.
_MOST_ROWS = 4096
_USUAL_ROWS, _MOST_SIZES = (1, 2, 3, 8, 10, 16, 32, 50, 64, 100, 128, 256), 32
# The smallest number that is not rounded away, and the client's precision.
_LEAST, _OWN = 1e-37, torch.float32


def certify_cut(
    client: nn.Module, sent: Tensor, returned: Tensor, behind: Tensor, declared: Declaration, cells: Tensor
) -> Certified:
    """Return which cells of records are proved by the gradients that came back for their activations.

    Args:
        client: the client's part in the mode in which it answered, a function of activations and cells (record,
            column), scaled by the declared columns' ``mean`` and ``scale``.
        sent: activations (record, cut).
        returned: gradients by them (record, cut).
        behind: factor that the loss of each record was divided by: the number of records of a mean, 1 of a sum.
        declared: the client's columns, loss, precision and defense.
        cells: witness (record, column): codes, or values of numbers.
    """
    try:
        return _certify(client, sent, returned, behind, declared, cells.double())
    except RefusedError as why:
        return refused(cells, getattr(declared, "columns", ()), str(why))
    except (Exception, SystemExit) as error:  # A user's module may raise anything, which proves nothing.
        why = f"the client part cannot be followed ({type(error).__name__})"
        return refused(cells, getattr(declared, "columns", ()), why)


def joined(proofs: Sequence[Certified]) -> Certified:
    """Return what is proved of all records of a transcript, whose messages came from several states of the client."""
    unknown = [torch.full((len(one.cells),), torch.nan) for one in proofs]
    replayed = [some if one.replayed is None else one.replayed for one, some in zip(proofs, unknown, strict=True)]
    doubts = [one.doubt for one in proofs if one.doubt is not None]
    conditions = next((one.conditions for one in proofs if one.conditions), ())
    return _judged(torch.cat([one.cells for one in proofs]), torch.cat(replayed), conditions, *doubts[:1])


def _judged(cells: Tensor, replayed: Tensor, conditions: tuple[str, ...], doubt: str | None = None) -> Certified:
    informative = ~replayed.isnan()
    lacking = int((replayed == 0).sum())
    if lacking > _MISFIT * int(informative.sum()):
        doubt = (
            f"no combination of private values and label replays the messages of {lacking:,} of "
            f"{int(informative.sum()):,} records within rounding, so that the declared network, weights, loss, number "
            "of records, precision or defense is not what the client used"
        )
        cells = torch.zeros_like(cells)
    elif doubt is None and not bool(informative.any()):
        doubt = _REPLAYED_BY_CHANCE
    return Certified(cells, torch.zeros_like(cells), conditions, doubt=doubt, replayed=replayed)


def _certify(
    client: nn.Module, sent: Tensor, returned: Tensor, behind: Tensor, declared: Declaration, cells: Tensor
) -> Certified:
    if declared.defense != "none" or declared.precision != "float32":
        changed = declared.precision if declared.defense == "none" else declared.defense
        raise RefusedError(f"the messages went through {changed}, for which there is no rule")
    as_numbers(cells, "the witness", (len(sent), len(declared.columns)))
    as_numbers(sent, "the activations", (len(sent), None), HUGE)
    as_numbers(returned, "the messages", tuple(sent.shape), HUGE)
    if not sent.numel() or not bool((as_numbers(behind, "the divisors of the loss", (len(sent),), HUGE) > 0).all()):
        raise RefusedError("there is no activation, or a loss is divided by what is no number of records")
    if coarse({"": returned}):
        raise RefusedError("all numbers of the messages lie on a coarser grid than the declared single precision")
    if declared.head != "regression" and _clipped(sent, returned, behind):
        raise RefusedError("the largest messages of different records are equally large, as clipping leaves them")
    values, own = zip(*(_values(column) for column in declared.columns), strict=True)
    sizes = torch.tensor([len(one) for one in values])
    every = math.prod(sizes.tolist())
    records = min(len(sent), _MOST // every)
    if records < len(sent):
        doubt = f"the {every:,} combinations of values were gone through for {records:,} of {len(sent):,} records"
        if not records:
            raise RefusedError(doubt)
        some = _certify(client, sent[:records], returned[:records], behind[:records], declared, cells[:records])
        some = some.take(torch.cat([torch.arange(records), torch.full((len(sent) - records,), -1)]))
        return some if some.doubt else replace(some, doubt=doubt)
    check_hooks(client)
    if any(bool((part.float() != part).any()) for part in client.state_dict().values() if part.is_floating_point()):
        raise RefusedError("the client part has parameters of more digits than single precision")
    # Where activations have more digits than the client's computation, it may round them and the cells, or nothing.
    digits = 2 * UNIT * (sent.dtype == torch.float64)
    client = copy.deepcopy(client).to("cpu", _OWN).requires_grad_(False)
    sent, returned, behind = (one.detach().double().cpu() for one in (sent, returned, behind))
    width = _outputs_of(client, sent, len(own))
    weights = sum(part.numel() // part.shape[-1] for part in client.parameters() if part.dim())
    at_once = max(64, min(_NUMBERS // (weights + 2 * width * sent.shape[1]), records * every))
    # A mean is divided by the number of rows of its batch; of a sum that number is not known.
    whole = behind.unique().tolist()
    counts = [int(size) for size in whole] if all(size % 1 == 0 for size in whole) and whole != [1.0] else ()
    run = followed(client, (sent.shape[1], len(own), width), counts or ([1] if len(sent) == 1 else ()), digits)
    nearest = [(one[:, None] - cells[:, i]).abs().argmin(0) for i, one in enumerate(values)]
    true = torch.stack([one[at] for one, at in zip(own, nearest, strict=True)], 1)
    _check_single(client, run, at_once, (sent, true), own, int(behind.max()))
    low, high = torch.full((2, *cells.shape), torch.inf).double()
    fitting, chance = torch.zeros(2, records).double()
    placebos = torch.zeros(records, sent.shape[1] + 1, len(PLACEBOS)).double()
    for start in range(0, records * every, at_once):
        at = torch.arange(start, start + at_once).clamp(max=records * every - 1)
        r, rest, codes = at // every, at % every, []
        for size in sizes.flip(0).tolist():
            codes.insert(0, rest % size)
            rest = rest // size
        private = torch.stack([one[code] for one, code in zip(own, codes, strict=True)], 1)
        outputs, slopes = run(sent[r], private)
        least, most, expected = _factors(outputs, slopes, returned[r], behind[r], declared)
        fits = ((least <= 1) & (most >= 1)).any(1)
        new = torch.arange(start, start + at_once) < records * every
        fitting.index_add_(0, r, (fits & new).double())
        often = ((most.clamp(max=2) - least.clamp(min=0.5)).clamp(min=0) / 1.5).sum(1)
        chance.index_add_(0, r, torch.where(fits | ~new, 0.0, often))
        placebos.index_add_(0, r, expected.masked_fill((fits | ~new)[:, None, None], 0.0))
        here = torch.stack([one[code] for one, code in zip(values, codes, strict=True)], 1)[fits]
        low.scatter_reduce_(0, r[fits, None].expand_as(here), here, "amin")
        high.scatter_reduce_(0, r[fits, None].expand_as(here), -here, "amin")
    if declared.head == "regression":
        # Every factor will do, so that messages with an entry moved are the wrong ones.
        chance = placebos[..., 0].amax(1)
    least_power = _CHANCE_OF_DIRECTION if declared.head == "regression" else _CHANCE
    nonzero = (returned.abs() > _LEAST).any(1)
    informative = (chance <= least_power) & nonzero
    tolerance = torch.tensor([0.0 if c.categories is not None else c.tolerance for c in declared.columns]).double()
    high = -high
    off = torch.maximum(high - cells, cells - low)
    proved = (off <= tolerance) & (informative & (fitting > 0))[:, None]
    proved &= ~_held_in_halves(declared, low, high, off, proved)
    # What nothing replays speaks against the declaration, however often a wrong message would be replayed.
    replayed = (fitting > 0).double().masked_fill(~nonzero | (~informative & (fitting > 0)), torch.nan)
    judged = _judged(proved, replayed, _conditions(declared, every))
    if judged.doubt is None and by_chance(placebos[informative], fitting[informative] > 0):
        return replace(judged, cells=torch.zeros_like(proved), doubt=_REPLAYED_BY_CHANCE)
    return judged


def _answers(client: nn.Module, received: Tensor, private: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """Return a client's outputs, and what it returns for its activations where errors at the outputs are these."""
    received = received.detach().requires_grad_()
    outputs = client(received, private)
    return outputs, torch.autograd.grad(outputs, received, errors)[0]


def _outputs_of(client: nn.Module, sent: Tensor, columns: int) -> int:
    with torch.no_grad():
        outputs = client(sent[:1].to(_OWN), torch.zeros(1, columns, dtype=_OWN))
    if outputs.dim() != 2:
        raise RefusedError("the outputs of the client part are not a row for each record")
    return outputs.shape[1]


def followed(
    client: nn.Module, widths: tuple[int, int, int], counts: Sequence[int] = (), digits: float = 0.0
) -> Callable[[Tensor, Tensor], tuple[Ball, Ball]]:
    """Return a function of activations and scaled cells: bounds of outputs (row, output) and slopes (row, output, cut).

    The client's graph is the same on all numbers of rows that it had, ``counts``, or on usual ones if none is known;
    ``widths`` are those of activations, cells and outputs; ``digits`` is the share of inputs that may be rounded away.
    """
    sizes = sorted({2, 3, *(counts or _USUAL_ROWS)})
    if len(sizes) > _MOST_SIZES:
        raise RefusedError("the batches of the client have too many different numbers of records")
    before, graphs = states(client), list[OperationGraph]()
    for size in sizes:
        graphs.append(traced(functools.partial(_answers, client), [(size, width) for width in widths], {}))
    if states(client) != before:
        raise RefusedError("the client part draws random numbers, or remembers its runs")
    graph = graphs[-1]
    for other in graphs[:-1]:
        if len(other.operations) != len(graph.operations) or not all(
            same(*both, (graph.rows, other.rows)) for both in zip(graph.operations, other.operations, strict=True)
        ):
            raise RefusedError("the client part computes something that depends on the time or the number of rows")
        if counts_rows(graph, other):
            raise RefusedError("the client part computes something that depends on the time or the number of rows")
    outputs, slopes = graph.results
    if not isinstance(outputs, Place) or not isinstance(slopes, Place):
        raise RefusedError("the outputs of the client part are not followed from its inputs")
    operations = graph.before(outputs, slopes)

    def run(received: Tensor, private: Tensor) -> tuple[Ball, Ball]:
        known = [row_values(Ball(one, off := digits * one.abs()), off) for one in (received, private)]
        inputs = dict(zip(graph.inputs, [*known, errors_of_outputs(widths[2])], strict=True))
        values = Evaluator(graph, inputs).run(operations).values
        out, back = values[outputs], values[slopes]
        if any((one.axis, one.dims, one.fold) != (0, 1, 0) for one in (out, back)):
            raise RefusedError("the outputs of the client part are not a row for each record")
        wide = [one.expand(-1, len(received), -1).transpose(0, 1) for one in back.ball]
        return out.ball, Ball(*wide)

    return run


def _held_in_halves(declared: Declaration, low: Tensor, high: Tensor, off: Tensor, proved: Tensor) -> Tensor:
    """Return which proved numbers may be those of rows that the client held in 16 bits (record, column).

    Args:
        declared: the client's columns.
        low, high: least and largest value that is left of each cell (record, column).
        off: largest distance from the witness (record, column).
        proved: which cells are proved otherwise (record, column).
    """
    doubted = torch.zeros_like(proved)
    for i, column in enumerate(declared.columns):
        at = proved[:, i]
        if column.categories is None and bool(at.any()):
            mean, scale, least, most, tolerance, unit = (
                torch.tensor([value], dtype=torch.float64)
                for value in (column.mean[0], column.scale[0], column.low, column.high, column.tolerance, 1.0)
            )
            table = NumberRange(low[at, i : i + 1], high[at, i : i + 1], unit, least, most)
            ranges, whole = (table, table.scaled(mean, scale)), torch.tensor([column.integer])
            doubted[at, i : i + 1], _ = coarse_rows(ranges, off[at, i : i + 1], tolerance, whole, True)
    return doubted


def _run(client: nn.Module, received: Tensor, private: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and slopes (row, output, cut), as a client computes them."""
    received = received.detach().requires_grad_()
    outputs = client(received, private)
    each = [torch.autograd.grad(one.sum(), received, retain_graph=True)[0] for one in outputs.unbind(1)]
    return outputs.detach(), torch.stack(each, 1)


def _check_single(
    client: nn.Module, run: Callable[..., tuple[Ball, Ball]], at_once: int,
    witness: tuple[Tensor, Tensor], own: Sequence[Tensor], count: int,
) -> None:  # fmt: skip
    """Refuse a client part whose own run, on as many records as it had, leaves its bounds."""
    draw, (sent, true) = torch.Generator().manual_seed(1), witness
    private = torch.stack([one[torch.randint(len(one), (_MOST_ROWS,), generator=draw)] for one in own], 1)
    received = sent[torch.randint(len(sent), (_MOST_ROWS,), generator=draw)]
    number = min(max(count, at_once), _MOST_ROWS)
    # Rows of a table beside those of the witness, so that its own number is always there.
    received = torch.cat([sent[:number], received[:number]])
    private = torch.cat([true[:number], private[:number]])
    size = min(max(count, 2), number)
    parts = [
        _run(client, a.to(_OWN), p.to(_OWN)) for a, p in zip(received.split(size), private.split(size), strict=True)
    ]
    for start in range(0, len(received), at_once):
        at = torch.arange(start, start + at_once).clamp(max=len(received) - 1)
        for bound, one in zip(run(received[at], private[at]), map(torch.cat, zip(*parts, strict=True)), strict=True):
            if not bool(((one[at].double() - bound.mid).abs() <= bound.rad).all()):
                raise RefusedError("the client part computes something else as a client runs it")


def _clipped(sent: Tensor, returned: Tensor, behind: Tensor) -> bool:
    """Return whether the largest norms, or entries, are the same for records with different activations."""
    for messages in (returned, returned * behind[:, None].to(returned)):
        for size in (messages.norm(dim=1), messages.abs().amax(1)):
            top = sent[size >= size.max() * (1 - 2 * ROUNDINGS * UNIT)]
            if bool((top != top[:1]).any()):
                return True
    return False


def _values(column: EncodedColumn) -> tuple[Tensor, Tensor]:
    """Return all values of a column, as a table holds them and as the client takes them."""
    if column.categories is None and not column.integer:
        raise RefusedError(f"the values of the number {column.name} cannot be listed")
    if column.categories is None and (
        max(map(abs, (column.low, column.high, *column.mean))) >= 2**24 or any(mean % 1 for mean in column.mean)
    ):
        raise RefusedError(f"the number {column.name} may lose digits where it is scaled in single precision")
    low, width = int(column.low), int(column.high) - int(column.low) + 1
    values = torch.arange(width) + low if column.categories is None else torch.arange(len(column.categories))
    return values.double(), ((values.double() - column.mean[0]) / column.scale[0]).to(_OWN).double()


def _factors(
    outputs: Ball, slopes: Ball, returned: Tensor, behind: Tensor, declared: Declaration
) -> tuple[Tensor, Tensor, Tensor]:
    """Return between which factors of the received message a configuration's gradient lies, for each label.

    With it, how often placebos of the message would be replayed by any label (row, kind, size of the move).
    """
    ends, expected = [], torch.zeros(len(returned), returned.shape[1] + 1, len(PLACEBOS)).double()
    number = declared.head == "regression"
    one = Ball(torch.ones_like(outputs.mid), outputs.rad * 0), outputs.rad * 0
    for error, _ in [one] if number else errors_at(declared, outputs):
        # What a chance and the label are rounded to: the label's entry is the one below zero.
        chance = error.most * (1 + 2 * outputs.most.amax(1, keepdim=True))
        rounded = torch.where(error.mid < 0, 1 + chance, chance) * (ROUNDINGS * UNIT)
        slope = Ball(error.mid, error.rad + rounded * (not number))
        # Slopes lose what is small on the way back from a 1; from smaller errors, more of it.
        most = torch.maximum(slope.most, SEED * behind[:, None])[..., None]
        moved = most * slopes.rad + slope.rad[..., None] * slopes.mid.abs()
        size = slope.most[..., None] * slopes.most
        middle = (slope.mid[..., None] * slopes.mid).sum(1) / behind[:, None]
        reach = (moved + 2 * ROUNDINGS * UNIT * size + TINY).nan_to_num(torch.inf).sum(1) / behind[:, None] + _LEAST
        both = torch.stack([(middle - reach) / returned, (middle + reach) / returned])
        small = returned.abs() <= _LEAST
        both = torch.where(small, torch.tensor([-math.inf, math.inf]).double()[:, None, None], both)
        between = both.amin(0), both.amax(0)
        least, most = between[0].amax(1), between[1].amin(1)
        off = least > most
        expected[:, 1:] += moved_entries(middle - reach, middle + reach, returned, between, number)
        if number:
            # Behind a small error, more is lost than behind the 1 that was taken here.
            off &= returned.abs().amax(1) >= SEED * middle.abs().amax(1)
            # Any factor will do, a small one, too, which rounds entries away.
            least, most = torch.ones_like(least), torch.ones_like(most)
        else:
            off |= (small & (middle.abs() > reach + _LEAST)).any(1)
        else_none = least.masked_fill(off, math.inf), most.masked_fill(off, -math.inf)
        expected[:, 0] += 0.0 if number else moved_wholes(*else_none)
        ends.append(else_none)
    return torch.stack([one for one, _ in ends], 1), torch.stack([one for _, one in ends], 1), expected


def _conditions(declared: Declaration, every: int) -> tuple[str, ...]:
    loss = {"softmax": "cross-entropy", "sigmoid": "binary cross-entropy", "regression": "a function of one output"}
    return (
        "The attacker knows the client's part and its weights at each message.",
        f"The loss is {loss[declared.head]}, divided by the stated number of records, in float32, and no defense "
        f"changed the messages; each operation is off by at most {ROUNDINGS:g} roundings.",
        f"The client's columns hold one of {every:,} combinations of values: "
        f"{', '.join(column.name for column in declared.columns)}. They are scaled first, and then rounded.",
    )
