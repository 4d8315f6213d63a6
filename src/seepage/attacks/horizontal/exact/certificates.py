"""Which cells of records that were taken out of a gradient no other cells could replace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linprog
from torch import Tensor

from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.networks import Network, extended
from seepage.attacks.horizontal.exact.spans import Span
from seepage.models.head import Head
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous

# Roundings by which every alternative of a cell has to change the message.
ROUNDINGS = 32.0
# Roundings that count as none, so that dependent errors have no inverse of any size.
_NONE = 1e-3
# Squared roundings that one standard deviation of another cell costs: keeps the systems solvable.
_RIDGE = 0.1
# Records of several copies whose numbers are looked at.
_COPIED = 16
# Share of the largest singular value below which directions count as dependent.
_DEPENDENT = 1e-12
# Numbers of the largest temporary.
_NUMBERS_AT_ONCE = 2**23


class CellProofs(NamedTuple):
    """What the message proves of each record.

    Attributes:
        least: least change of the message, in roundings, among the alternatives of each cell.
        traceless: records whose cells leave nothing but rounding in the message.
    """

    least: Float[Tensor, "record column"]
    traceless: Bool[Tensor, " record"]

    @property
    def cells(self) -> Bool[Tensor, "record column"]:
        """Cells whose alternatives all change the message by more than ``ROUNDINGS``."""
        return (self.least > ROUNDINGS) & ~self.traceless[:, None]


def prove_cells(
    gradient: Gradient,
    client: Encoder,
    cells: Float[Tensor, "record column"],
    counts: Float[Tensor, "record label"],
    complete: bool,
) -> CellProofs:
    """Bound from below how much the message changes when a cell of a record becomes any other one.

    With d_j the error of record j at the first layer and x_j its row extended by a 1, the message holds sum_j d_j
    x_j^T. A direction n with n d_i = 1 that is orthogonal to the errors of all other records, and to what is left for
    records that were not found, sees x_i alone: whatever the other records' cells are, and whatever the error of the
    new record i is, the message changes by at least min_s |s x_i' - x_i| / |n|. Missing records may also add any
    combination of their own inputs, which is projected out; there the second layer's inputs, linear in the row as long
    as the same units are active, say what the first one leaves open. All other cells of the record are free numbers
    in this bound, so that it is a bound for every combination of alternatives. Each unit's row is measured in the
    rounding of that row.

    A record of no active unit has no error at the first layer and enters the second one as zeros: all its alternatives
    without an active unit leave the same message, the bound is zero, and the record is traceless.

    Args:
        gradient: what was received and what is left of it; these records have been taken away.
        client: its encoder, in its precision.
        cells: distinct records.
        counts: number of copies of each record with each label.
        complete: whether these are all records, so that what is left is rounding however large it is.
    """
    schema = client.schema
    if not len(cells):
        return CellProofs(torch.zeros_like(cells), torch.zeros(0, dtype=torch.bool, device=cells.device))
    rows = client.encode(cells).double()
    errors, inputs = gradient.contributions(rows, counts)
    roundings = gradient.roundings(rows, counts)
    if complete:
        pairs = zip(roundings, gradient.left, strict=False)
        roundings = [size.maximum(torch.linalg.vector_norm(left, dim=1)) for size, left in pairs]
    network = gradient.network
    layers = [
        _LayerInRoundings.of(left, error, rounding)
        for left, error, rounding in zip(gradient.left, errors, roundings, strict=False)
    ]
    trace = [layer.sizes * entered[:, :-1].norm(dim=1) for layer, entered in zip(layers, inputs, strict=False)]
    least = _shown_by(gradient, client, cells, rows, counts, layers)
    if not isinstance(network, Network):
        return CellProofs(least, torch.stack(trace).amax(0) <= ROUNDINGS)
    open_ = (least <= ROUNDINGS).any(1).nonzero()[:, 0]
    entries = client.width * (2 * client.width + sum(len(layer.off_rows) for layer in layers))
    for some in open_.split(max(1, _NUMBERS_AT_ONCE // entries)):
        least[some] = least[some].maximum(_both_layers(network, client, cells, inputs, layers, some))
    several = (gradient.copies(counts) > 1).nonzero()[:, 0].tolist()
    for done, i in enumerate(several):
        unsure = (
            _mean_of_others(network, gradient.head, client, rows[i], counts[i])
            if done < _COPIED
            else list(schema.continuous)
        )
        least[i, unsure] = 0
    return CellProofs(least, torch.stack(trace).amax(0) <= ROUNDINGS)


class _LayerInRoundings(NamedTuple):
    """A layer's gradient with each unit's row in roundings.

    Attributes:
        alone: distance of each record's error from what the other errors and the missing records span.
        sizes: length of each record's error.
        off_rows: orthonormal complement of what the missing records' inputs span.
    """

    alone: Float[Tensor, " record"]
    sizes: Float[Tensor, " record"]
    off_rows: Float[Tensor, "rest extended"]

    @classmethod
    def of(
        cls, left: Tensor, errors: Float[Tensor, "record unit"], rounding: Float[Tensor, " unit"]
    ) -> _LayerInRoundings:
        span = Span.of(left, rounding, 1.0, 1.0)
        scaled = errors / rounding
        return cls(apart(scaled @ span.off_columns.T, _NONE), scaled.norm(dim=1), span.off_rows)


def apart(vectors: Float[Tensor, "vector entry"], none: float) -> Float[Tensor, " vector"]:
    """Return how far each vector is from what the others span.

    Args:
        vectors: any.
        none: singular values below this count as 0.

    Example:
        >>> vectors = torch.tensor([[3.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
        >>> [round(x, 3) for x in apart(vectors, 1e-6).tolist()]
        [2.683, 2.0]
        >>> [round(x, 3) for x in apart(torch.cat([vectors, vectors[:1]]), 1e-6).tolist()]
        [0.0, 2.0, 0.0]
    """
    if not vectors.numel():
        return vectors.new_zeros(len(vectors))
    left, values, _ = torch.linalg.svd(vectors, full_matrices=len(vectors) > vectors.shape[1])
    values = torch.cat([values, values.new_zeros(left.shape[1] - len(values))])
    return (left.square() / (values.square() + none**2)).sum(1).rsqrt()


def _shown_by(
    gradient: Gradient,
    client: Encoder,
    cells: Tensor,
    rows: Tensor,
    counts: Tensor,
    layers: Sequence[_LayerInRoundings],
) -> Float[Tensor, "record column"]:
    """Return the least changes that layers show which take the row, where no record is missing; 0 where some are.

    Layers that take some of the columns show which cells there are together in them. That cells of several such layers
    are of one record follows from its error at the outputs, if no other record has the same: otherwise both records
    could have changed these cells with each other, and the change is 0.
    """
    network = gradient.network
    shown = [torch.zeros_like(cells)]
    whole = [
        len(layer.off_rows) == received.shape[1] for layer, received in zip(layers, gradient.received, strict=False)
    ]
    if network.takes_rows and whole[0]:
        shown.append(layers[0].alone[:, None] * distances(client, cells, rows))
    if isinstance(network, Network):
        return shown[-1]
    entering = network.run(rows).entering
    for at, (entry, _) in enumerate(zip(network.entries(), whole, strict=False)):
        if whole[at] and (at or not network.takes_rows):
            shown.append(layers[at].alone[:, None] * _distances_behind(client, cells, entering[at], entry))
    every = torch.stack(shown)
    least = every.amax(0)
    together = ((every > ROUNDINGS) | (least <= ROUNDINGS)).all(2).any(0)
    return torch.where((together | gradient.with_own_error(rows, counts))[:, None], least, torch.zeros_like(least))


def _distances_behind(
    client: Encoder,
    cells: Float[Tensor, "record column"],
    entering: Float[Tensor, "record extended"],
    entry: Float[Tensor, "input encoded"],
) -> Float[Tensor, "record column"]:
    """Return the least distances min_s |s v' - v| from a layer's inputs v to those v' with another cell.

    As ``distances``, where the layer takes an affine function of the encoded row: embeddings in place of categories, or
    no constant 1. What the row's other cells can change is left out of v and v', so that they may be any.

    Args:
        client: encoder of the rows.
        cells: records.
        entering: their inputs of the layer, with an appended 1 where it has a bias.
        entry: map from the encoded row to the input, less its constant.
    """
    schema, least = client.schema, torch.zeros_like(cells)
    entry = torch.nn.functional.pad(entry.T, (0, entering.shape[1] - len(entry)))
    ways = entry / client.std.double()[:, None]
    # Of a discrete column, what tells two categories apart.
    free = [ways[block] - ways[block][:1] for block in schema.blocks]
    for i, column in enumerate(schema.columns):
        numeric = isinstance(column, Continuous)
        others = torch.cat([free[j] if j != i else free[j][:0] for j in range(len(free))])
        for j in schema.continuous:
            if j != i:
                others = torch.cat([others, ways[schema.blocks[j]]])
        outside = _complement(others)
        own = entering @ outside.T
        if numeric:
            step = (ways[schema.blocks[i]][0] * move(column)) @ outside.T
            changed = torch.stack([own + step, own - step], 1)
            same = None
        else:
            block = ways[schema.blocks[i]] @ outside.T
            changed = own[:, None] + block[None] - block[cells[:, i].long()][:, None]
            same = torch.arange(column.width, device=cells.device) == cells[:, i, None]
        sizes = changed.square().sum(-1)
        along = torch.einsum("ne,nae->na", own, changed).square() / sizes.clamp_min(1e-300)
        square = (own.square().sum(-1, keepdim=True) - along).clamp_min(0)
        if same is not None:
            square = square.masked_fill(same, torch.inf)
        least[:, i] = square.amin(1).sqrt()
    return least


def _complement(vectors: Float[Tensor, "vector entry"]) -> Float[Tensor, "rest entry"]:
    """Return an orthonormal basis of what is orthogonal to vectors."""
    if not len(vectors):
        return torch.eye(vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    _, values, right = torch.linalg.svd(vectors)
    return right[int((values > _DEPENDENT * values[:1].clamp_min(1e-300)).sum()) :]


def distances(client: Encoder, cells: Tensor, rows: Tensor) -> Float[Tensor, "record column"]:
    """Return the least distance min_s |s x' - x| from rows x, extended by a 1, to rows x' with another cell.

    Args:
        client: encoder of the rows.
        cells: records.
        rows: the same, encoded.
    """
    least = torch.zeros_like(cells)
    for i, column in enumerate(client.schema.columns):
        own = extended(rows[:, client.schema.blocks[i]])
        same = None
        if isinstance(column, Continuous):
            step = own.new_tensor([move(column) / float(client.std[client.schema.blocks[i]]), 0.0])
            others = torch.stack([own + step, own - step], 1)
        else:
            every = torch.arange(column.width, device=cells.device)
            block = client.schema.blocks[i]
            raw = torch.eye(column.width, dtype=own.dtype, device=own.device)
            others = extended((raw - client.mean[block].double()) / client.std[block].double())[None]
            others = others.expand(len(cells), -1, -1)
            same = every == cells[:, i, None]
        # The distance from the line through another record: its error may have any size.
        along = torch.einsum("ne,nae->na", own, others).square() / others.square().sum(-1)
        square = (own.square().sum(-1, keepdim=True) - along).clamp_min(0)
        if same is not None:
            square = square.masked_fill(same, torch.inf)
        least[:, i] = square.amin(1).sqrt()
    return least


def _both_layers(
    network: Network,
    client: Encoder,
    cells: Tensor,
    inputs: Sequence[Tensor],
    layers: Sequence[_LayerInRoundings],
    some: Tensor,
) -> Float[Tensor, "some column"]:
    """Return the least changes that the first two layers show together."""
    schema, std = client.schema, client.std.double()
    first, second = layers
    active = (inputs[1][some, :-1] > 0).double()
    # How the message changes with a raw entry of a row, in each layer: a unit that is not active does not react.
    weight = torch.diag(std.reciprocal())
    at_first = first.alone[some, None, None] * (first.off_rows[:, :-1] @ weight)
    made = active[..., None] * (network.weights[0] @ weight)
    at_second = second.alone[some, None, None] * (second.off_rows[:, :-1] @ made)
    change = torch.cat([at_first, at_second], 1)
    # A category is left for another one; numbers move by standard deviations.
    current = torch.arange(client.width, device=std.device).repeat(len(some), 1)
    for i in schema.discrete:
        current[:, schema.blocks[i]] = schema.blocks[i].start + cells[some, i, None].long()
    left = change.gather(2, current[:, None].expand_as(change))
    change = torch.where(client.is_continuous, change * std, change - left)
    # The error of another record may be any multiple of this one's, in each layer.
    entering = [
        layer.alone[some, None] * (entered[some] @ layer.off_rows.T)
        for layer, entered in zip(layers, inputs, strict=False)
    ]
    none = [torch.zeros_like(part) for part in entering]
    scales = torch.stack([torch.cat([entering[0], none[1]], 1), torch.cat([none[0], entering[1]], 1)], 2)
    change = torch.cat([change, scales], 2)
    ridge = math.sqrt(_RIDGE) * torch.eye(change.shape[2], dtype=std.dtype, device=std.device)
    upper = torch.linalg.qr(torch.cat([change, ridge.expand(len(some), -1, -1)], 1), mode="r").R
    inverse = torch.linalg.solve_triangular(
        upper, torch.eye(upper.shape[2], dtype=std.dtype, device=std.device), upper=True
    )
    least = cells.new_zeros(len(some), len(schema.columns))
    for i, column in enumerate(schema.columns):
        block = schema.blocks[i]
        # What is left of a change of this column alone, when all others may be anything.
        rest = torch.linalg.inv(inverse[:, block] @ inverse[:, block].mT).diagonal(dim1=1, dim2=2).clamp_min(0)
        if isinstance(column, Continuous):
            least[:, i] = rest[:, 0].sqrt() * (move(column) / float(std[block]))
        else:
            place = torch.arange(block.start, block.stop, device=std.device)
            least[:, i] = rest.masked_fill(place == current[:, block], torch.inf).amin(1).sqrt()
    return least


def _mean_of_others(
    network: Network, head: Head, client: Encoder, row: Float[Tensor, " encoded"], counts: Float[Tensor, " label"]
) -> list[int]:
    """Return the columns in which copies of a record may be different records that have it as their mean.

    Records that activate the same units add to the message only the sum of their errors and of errors times rows. With
    one label that leaves moves that keep the outputs; under several labels, whose errors differ in sign, any. The
    units bound how far a record can move from the others.
    """
    schema = client.schema
    place = [schema.blocks[i].start for i in schema.continuous]
    if not place:
        return []
    entered = network.inputs(row[None])
    slope, slopes, made = torch.eye(len(row), dtype=row.dtype, device=row.device)[:, place], [], []
    for weight, bias, inside in zip(network.weights, network.biases, entered, strict=False):
        slope = weight @ slope
        before = (inside @ weight.T + bias)[0]
        slopes.append(slope)
        made.append(before)
        slope = slope * (before > 0)[:, None]
    outputs = slopes.pop()
    signs = torch.cat(made[:-1]).sign()
    sides, room = -signs[:, None] * torch.cat(slopes), signs * torch.cat(made[:-1])
    low, high = client.low[place].double() - row[place], client.high[place].double() - row[place]
    sides = torch.cat([sides, torch.eye(len(place), dtype=row.dtype, device=row.device)])
    sides, room = torch.cat([sides, -sides[-len(place) :]]), torch.cat([room, high, -low])
    same = None
    if int((counts > 0).sum()) == 1:
        # What one record is off in one direction, the others together are in the other.
        others = float(counts.sum()) - 1
        sides, room = torch.cat([sides, -sides / others]), torch.cat([room, room])
        same = (outputs[1:] - outputs[:1] if head == "softmax" else outputs).cpu().numpy()
    found = []
    for at, i in enumerate(schema.continuous):
        column = schema.columns[i]
        assert isinstance(column, Continuous)
        if _reach(sides, room, same, at) * float(client.std[place[at]]) >= move(column):
            found.append(i)
    return found


def _reach(
    sides: Float[Tensor, "side number"], room: Float[Tensor, " side"], same: np.ndarray | None, at: int
) -> float:
    """Return how far a number can go either way within linear bounds, where some sums stay the same."""
    furthest = 0.0
    for way in (-1.0, 1.0):
        target = np.zeros(sides.shape[1])
        target[at] = way
        bounds = {} if same is None else {"A_eq": same, "b_eq": np.zeros(len(same))}
        solved = linprog(target, sides.cpu().numpy(), room.clamp_min(0).cpu().numpy(), bounds=(None, None), **bounds)
        furthest = max(furthest, abs(solved.fun) if solved.success else math.inf)
    return furthest


def move(column: Continuous) -> float:
    """Return the least move of a number that counts as another one.

    Example:
        >>> move(Continuous(name="age", low=0, high=99, tolerance=4.5, integer=True))
        5.0
    """
    return math.floor(column.tolerance) + 1.0 if column.integer else column.tolerance
