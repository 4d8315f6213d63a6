"""What an update tells of the client's own rows, and not of decoys: other rows of the same kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import hypergeom
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seepage.attacks.horizontal.exact.spans import ROUNDINGS
from seepage.errors import BadInputError
from seepage.guard.normalised_batch import NormalisedBatch
from seepage.learning import mean_loss
from seepage.models.calling import plain_attention
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table

Rows = Table | Tensor | np.ndarray
"""Rows of a table, or rows as the network takes them."""

_DECOYS = 10_000  # largest number of decoys that are compared
_NEAREST = 1e-3  # share of decoys that may be as near to a span as a row that counts as lying in it
_SIGNIFICANT = 2e-3  # probability up to which matches are not chance
_SAME_ROW = 1e-6  # distance up to which encoded rows are copies
_RIGHT_CELL = 0.05  # largest difference of an encoded cell of a record that was read right, in standard deviations
_DECOMPOSED = 10.0  # operations of a singular value decomposition, in products of its three sizes
_EIGENVALUES = 60.0  # those of taking a multiple of the weights off, likewise
_RIDGE = 1e-2  # share of the mean variance that is added to each, where gradients are whitened
_NO_LENGTH = 1e-30  # square length from which a gradient counts as none
_PRODUCTS = ("aten.mm", "aten.addmm", "aten.matmul", "aten.linear", "aten.bmm", "aten.mv")
_ROUNDED = 1e-3  # share of a change beside one direction that is rounding
_OUTSIDE = 1e-2  # share of a row's norm outside a span from which it certainly does not lie in it


@dataclass(frozen=True)
class OwnRows:
    """A client's rows and decoys, as the network takes them."""

    rows: Float[Tensor, "record encoded"]
    decoys: Float[Tensor, "decoy encoded"]

    @classmethod
    def of(cls, rows: Rows, decoys: Rows, encoder: Encoder, schema: Schema, seed: int) -> OwnRows:
        """Return rows, and decoys of which copies of the rows are left out.

        Raises:
            BadInputError: rows have another number of columns than the network takes, none are there, or rows and
                decoys come in different forms, so that they may be scaled differently.
        """
        if isinstance(rows, Table) != isinstance(decoys, Table):
            raise BadInputError(
                "rows and decoys are both tables, or both rows as the network takes them, since other scaling would "
                "tell them apart; give decoys in the form of the rows."
            )
        encoded, others = _encoded(rows, encoder, schema, "rows"), _encoded(decoys, encoder, schema, "decoys")
        drawn = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
        others = others[drawn[: 2 * _DECOYS]]
        copies = torch.cat([(torch.cdist(part, encoded) <= _SAME_ROW).any(1) for part in others.split(1000)])
        return cls(encoded, others[~copies][:_DECOYS])


@dataclass(frozen=True)
class Matches:
    """How many of a client's rows an update gives away, beside how many decoys.

    Attributes:
        rows, decoys: numbers of the client's rows and of decoys that were compared.
        matched_rows, matched_decoys: number of those that the update gives away.
    """

    rows: int
    matched_rows: int
    decoys: int
    matched_decoys: int

    def share(self, records: int) -> float:
        """Return the share of the records behind an update that it gives away, less what it does of decoys."""
        more = self.matched_rows - self.rows * self.matched_decoys / max(1, self.decoys)
        return max(0.0, more / min(self.rows, records))

    @property
    def chance(self) -> float:
        """Probability of so many of the rows or more, if rows were as good as decoys: Fisher's exact test."""
        matched = self.matched_rows + self.matched_decoys
        return float(hypergeom.sf(self.matched_rows - 1, self.rows + self.decoys, matched, self.rows))

    @property
    def significant(self) -> bool:
        """Whether chance alone hardly matches so many of the rows."""
        return self.chance <= _SIGNIFICANT

    @property
    def conclusive(self) -> bool:
        """Whether there are enough decoys for rows that are all matched to be significant."""
        return Matches(self.rows, self.rows, self.decoys, 0).significant

    def __str__(self) -> str:
        """Return the counts in words."""
        return f"{self.matched_rows} of {self.rows} own rows and {self.matched_decoys} of {self.decoys} decoys"


@dataclass(frozen=True)
class SpanTest:
    """Which rows lie in what an update spans.

    Attributes:
        matches: rows that lie nearer to the span of a layer's change, or more along it, than all but one in a thousand
            decoys; None where every row lies in each layer's span, layers are too wide or decoys too few, so that the
            test says nothing.
        contradicted: whether the layer that takes the rows changed in as many directions as there are records, and the
            rows do not lie in them: they are not those of the update, or are encoded in another way.
        looked: whether any changed layer could be looked at that takes the rows, or has as many units as records.
    """

    matches: Matches | None
    contradicted: bool
    looked: bool = True


def compare_with_span(
    model: Model,
    change: Mapping[str, Tensor],
    batch_rows: OwnRows,
    records: int,
    operations: float = math.inf,
    running: Mapping[str, Tensor] | None = None,
) -> SpanTest:
    """Compare how near the client's rows and decoys are to what each affine layer's change spans and points along.

    A gradient of an affine layer is a sum over records of an error times the layer's input. Its rows span inputs of
    single records where the layer has more inputs and units than there are records; a factor, another loss, momentum or
    several local steps keep them there. Weight decay adds a multiple of the weights, which is taken off. So no recipe
    is needed. A row's distance to the first directions of a layer's change, as many as there are records, is compared
    with those of decoys.

    Where a normalisation by the batch follows, the errors of a layer add up to zero: its rows span inputs less their
    mean over the batch, and its bias says nothing. The mean is what ``running`` statistics after training give away,
    and that of the rows where they are as many as the records. Deeper inputs are those that this batch's normalisation
    gives.

    Signs of entries, as in a first step of Adam, and lost entries blur the span. The change still points along the
    records' own gradients, more than along those of decoys, see ``_along``.

    Half of the decoys say how near is near, over all layers and tests together; the others say how many rows are as
    near by chance. Layers whose change spans all of their inputs are left out of the first test, since every row lies
    in them, and layers too wide for so many ``operations``. Inputs of inner layers are those at the received model,
    also where a client takes several steps.
    """
    half = len(batch_rows.decoys) // 2
    sets = (batch_rows.decoys[:half], batch_rows.decoys[half:], batch_rows.rows)
    batch = NormalisedBatch.of(model, batch_rows.rows, batch_rows.decoys, records, running or {})
    losses = _losses(model, batch.module, batch_rows.rows)
    if not _errors_fit(model, batch_rows, len(losses), operations):
        losses = []
    sides = [_layer_sides(rows, batch.module, losses) for rows in sets]
    multiplied = parameters_of_rows(batch.module, batch_rows.rows)
    change, parameters = _oriented(change, multiplied), _oriented(model.parameters, multiplied)
    for name in sorted(multiplied.keys() - {f"{layer}.weight" for layer in sides[2]}):
        kind = model.parameters[name].dtype if name in model.parameters else torch.float32
        for side, rows in zip(sides, sets, strict=True):
            side[name] = _Sides(rows.to(kind).double(), ())
    looked = False
    nearness: list[list[Tensor]] = [[], [], []]
    contradicted = False

    def compare(distances: Sequence[Float[Tensor, " _record"]]) -> None:
        calibrating = distances[0].sort().values
        for i, of_row in enumerate(distances):
            # A decoy does not count among those that are as near as itself.
            itself = int(i == 0)
            nearer = torch.searchsorted(calibrating, of_row, right=True) - itself
            nearness[i].append(nearer.double() / max(1, half - itself))

    for name in sides[2]:
        centred = name in batch.centred
        layer = _change(name, change, bias=not centred)
        if layer is None or not bool(layer.any()) or _DECOMPOSED * layer.numel() * min(layer.shape) > operations:
            continue
        kind = change[name if name in change else f"{name}.weight"].dtype
        precision = torch.finfo(kind).eps
        span, weights = _LayerSpan.of(layer, precision), _change(name, parameters, bias=not centred)
        most = records - centred
        if span.rank > most and _EIGENVALUES * layer.numel() * min(layer.shape) <= operations:
            span = _without_decay(span, weights, most, precision, biased=not centred)
        layer_sides = [side[name] for side in sides]
        middles = batch.means(name, weights, [side.inputs for side in layer_sides]) if centred else []
        forms = [layer_sides, *(_less(layer_sides, middle, records) for middle in middles)]
        outside = []
        for form in forms:
            # Where the client normalised by other statistics than its batch's, the rows themselves are spanned.
            dimensions = min(span.rank, records if form is layer_sides and batch.unmoved else most)
            if dimensions < layer.shape[1]:
                outside.append([_distance(side.inputs, span.directions[:dimensions], layer.shape[1]) for side in form])
                compare(outside[-1])
        for form in forms[1:] or forms:
            if half and layer_sides[2].errors and records < len(layer):
                compare(_along(span.layer, form))
        inputs = layer_sides[2].inputs.flatten(1)
        takes_rows = torch.equal(inputs, batch_rows.rows.to(kind).double())
        looked |= takes_rows or len(layer) >= records
        known = not centred or len(batch_rows.rows) == records
        if takes_rows and known and outside and span.rank == most == len(batch_rows.rows) - centred < min(layer.shape):
            away = [bool((form[2] > _OUTSIDE * inputs.norm(dim=1)).all()) for form in outside]
            contradicted |= all(away)
    if not half or not nearness[0] or not looked:
        return SpanTest(None, contradicted, looked)
    calibrating, others, rows = (torch.stack(distances_of_layers).amin(0) for distances_of_layers in nearness)
    near = calibrating.sort().values[int(_NEAREST * half) - 1] if _NEAREST * half >= 1 else torch.zeros(())
    matches = Matches(len(rows), int((rows <= near).sum()), len(others), int((others <= near).sum()))
    return SpanTest(matches if matches.conclusive else None, contradicted)


def divides_out(
    model: Model, change: Mapping[str, Tensor], rows: Float[Tensor, "record encoded"], *, several: bool = False
) -> str | None:
    """Return the layer whose weights' change over that of its bias is the row of a message of one record; None if none.

    A record's error is a factor of both, so that the quotient is the row under any loss, factor and number of steps.
    Then all units give the same row, up to rounding; a multiple of the weights is taken off. Changes of other ranks, as
    of Adam or of noise, have no such layer.

    Args:
        rows: any rows that the network takes.
        several: whether layers of a single unit are left out, of which noise has the same rank.
    """
    multiplied = parameters_of_rows(model.module, rows)
    change, parameters = _oriented(change, multiplied), _oriented(model.parameters, multiplied)
    for weight in sorted(multiplied):
        name = weight.removesuffix(".weight")
        if weight == name or f"{name}.bias" not in change:
            continue
        layer, weights = _change(name, change, bias=True), _change(name, parameters, bias=True)
        if layer is None or not bool(layer[:, -1].any()) or len(layer) <= several:
            continue
        precision = torch.finfo(change[weight].dtype).eps
        spans = [_LayerSpan.of(layer, precision), *_without_sum(layer, weights, precision)]
        spans.append(_without_decay(spans[0], weights, 1, precision, biased=True))
        if any(_has_single_row(span) for span in spans):
            return name
    return None


def _has_single_row(span: _LayerSpan) -> bool:
    """Return whether a change is a multiple of a single row, and its bias tells which."""
    return float(span.values[1:].norm()) <= _ROUNDED * float(span.values[0]) and bool(span.directions[0, -1] != 0)


def _without_sum(
    layer: Float[Tensor, "unit extended"], weights: Float[Tensor, "unit extended"] | None, precision: float
) -> list[_LayerSpan]:
    """Return spans without a multiple of the weights, where errors of the units add up to zero, as those of classes."""
    if weights is None or len(layer) < 2:
        return []
    unbiased = torch.cat([weights[:, :-1], torch.zeros_like(weights[:, -1:])], dim=1)
    spans = []
    for decayed in (weights, unbiased):
        total = decayed.sum(0)
        multiple = (layer.sum(0) @ total) / (total @ total).clamp_min(_NO_LENGTH)
        spans.append(_LayerSpan.of(layer - multiple * decayed, precision))
    return spans


def compare_with_records(read: Float[Tensor, "record encoded"], known: OwnRows) -> Matches:
    """Return how many rows and decoys are among the records that an attack returned, with every cell right."""

    def among(rows: Tensor) -> int:
        parts = [torch.cdist(part, read.to(part), p=torch.inf).amin(1) for part in rows.split(1000)]
        return int((torch.cat(parts) <= _RIGHT_CELL).sum()) if parts and len(read) else 0

    return Matches(len(known.rows), among(known.rows), len(known.decoys), among(known.decoys))


def _encoded(rows: Rows, encoder: Encoder, schema: Schema, what: str) -> Float[Tensor, "record encoded"]:
    if isinstance(rows, Table):
        if rows.schema != schema:
            rows = Table(schema, rows.frame)
        return encoder.encode(rows.cells).double()
    numbers = torch.as_tensor(rows)
    if numbers.ndim != 2 or numbers.shape[1] != schema.width or not len(numbers):
        raise BadInputError(
            f"{what} are a table, or rows of {schema.width} numbers as the network takes them; got "
            f"{tuple(numbers.shape)}."
        )
    return numbers.detach().double().cpu()


def _change(name: str, change: Mapping[str, Tensor], *, bias: bool) -> Float[Tensor, "unit extended"] | None:
    """Return the change of a layer's weights, and of its biases beside it if asked for; None where none was sent.

    ``name`` is that of a layer, or of a parameter that is multiplied with rows.
    """
    if name in change:
        return change[name].double()
    weight, shift = change.get(f"{name}.weight"), change.get(f"{name}.bias") if bias else None
    if weight is None:
        return None
    parts = [weight.double()] + ([] if shift is None else [shift.double()[:, None]])
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class _LayerSpan:
    """Singular values of a layer's change and its directions among inputs; ``rank`` of them are above rounding."""

    layer: Float[Tensor, "unit extended"]
    values: Float[Tensor, " small"]
    directions: Float[Tensor, "small extended"]
    rank: int

    @classmethod
    def of(cls, layer: Float[Tensor, "unit extended"], precision: float) -> _LayerSpan:
        values, directions = torch.linalg.svd(layer, full_matrices=False)[1:]
        return cls(layer, values, directions, int((values > ROUNDINGS * precision * values[0] * 4).sum()))


def _without_decay(
    span: _LayerSpan,
    weights: Float[Tensor, "unit extended"] | None,
    records: int,
    precision: float,
    *,
    biased: bool,
) -> _LayerSpan:
    """Return the span of a change without the multiple of the weights in it, where that leaves far less beside it.

    With W the weights, and a change c W + D of which D has the rank of the records, c is an eigenvalue of the change
    times the pseudo-inverse of W, as often as the smaller side of W exceeds the records.
    """
    least = min(span.layer.shape)
    if weights is None or least - records < 2:
        return span
    weight = weights[:, : span.layer.shape[1]]
    candidates = [span]
    # Biases may be left out of the decay.
    without = [torch.cat([weight[:, :-1], torch.zeros_like(weight[:, -1:])], dim=1)] if biased else []
    for decayed in (weight, *without):
        inverse = torch.linalg.pinv(decayed)
        tall = decayed.shape[0] >= decayed.shape[1]
        values = torch.linalg.eigvals(inverse @ span.layer if tall else span.layer @ inverse).real.sort().values
        alike = least - records
        begin = int((values[alike - 1 :] - values[: len(values) - alike + 1]).argmin())
        multiple = values[begin : begin + alike].median()
        candidates.append(_LayerSpan.of(span.layer - multiple * decayed, precision))
    best = min(candidates, key=lambda candidate: float(candidate.values[records:].norm()))
    return best if 2 * best.values[records:].norm() < span.values[records:].norm() else span


def _along(layer: Float[Tensor, "unit extended"], sides: Sequence[_Sides]) -> list[Float[Tensor, " _record"]]:
    """Return how little a layer's change points along each record's own gradient, for its likeliest label.

    The measure is the inner product of the two over the length of the record's, both whitened: under a normal
    distribution of the other records' gradients no linear one tells more of whether a record is among them. The
    covariance is that of inputs times that of errors, as in K-FAC (Martens and Grosse, ICML 2015), of the first set.
    """
    extended = layer.shape[1]
    entries = sides[0].errors[0].shape[-1]
    inputs = _inverse_covariance(_extended(sides[0].inputs, extended).reshape(-1, extended))
    errors = _inverse_covariance(torch.cat([received.reshape(-1, entries) for received in sides[0].errors]))
    whitened = errors @ layer @ inputs
    distances = []
    for side in sides:
        taken = _extended(side.inputs, extended)
        lengths = (taken @ inputs * taken).sum(-1)
        along = []
        for error in side.errors:
            # One entry a record, or one a record and part.
            size = (lengths * (error @ errors * error).sum(-1)).reshape(len(taken), -1).sum(1)
            product = (error @ whitened * taken).flatten(1).sum(1)
            along.append(product / size.clamp_min(_NO_LENGTH).sqrt())
        distances.append(-torch.stack(along).amax(0))
    return distances


def _inverse_covariance(sample: Float[Tensor, "row entry"]) -> Float[Tensor, "entry entry"]:
    products = sample.T @ sample / len(sample)
    ridge = _RIDGE * products.diagonal().mean().clamp_min(_NO_LENGTH)
    return torch.linalg.inv(products + ridge * torch.eye(len(products), dtype=products.dtype))


def _extended(inputs: Float[Tensor, "record *part entry"], extended: int) -> Float[Tensor, "record *part extended"]:
    """Return inputs with a 1 for the bias, where the change has one."""
    if extended > inputs.shape[-1]:
        return torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=-1)
    return inputs


def _distance(
    inputs: Float[Tensor, "record *part entry"], directions: Float[Tensor, "rank extended"], extended: int
) -> Float[Tensor, " record"]:
    """Return how far each record's inputs of a layer lie from the directions."""
    inputs = _extended(inputs, extended)
    outside = inputs - (inputs @ directions.T) @ directions
    return outside.flatten(1).norm(dim=1)


def _errors_fit(model: Model, known: OwnRows, labels: int, operations: float) -> bool:
    """Return whether errors of all rows for each label can be computed by so many operations."""
    size = sum(parameter.numel() for parameter in model.parameters.values())
    return 6.0 * size * (len(known.rows) + len(known.decoys)) * labels <= operations


def _losses(model: Model, module: nn.Module, rows: Float[Tensor, "record encoded"]) -> list[Callable[[Tensor], Tensor]]:
    """Return the loss for each label that a row may have; for numbers, one on either side of the prediction."""
    if model.head == "regression":
        return [lambda outputs: outputs.sum(), lambda outputs: -outputs.sum()]

    def of(label: int) -> Callable[[Tensor], Tensor]:
        return lambda outputs: len(outputs) * mean_loss(model.head, outputs, outputs.new_full((len(outputs),), label))

    if model.head == "sigmoid":
        return [of(label) for label in range(2)]
    with torch.no_grad(), plain_attention(), _evaluating(module):
        classes = module(rows[:2].to(next(module.parameters()).dtype)).shape[1]
    return [of(label) for label in range(classes)]


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for a while."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


@dataclass(frozen=True)
class _Sides:
    """What an affine layer takes of each row, and the error at its outputs for each label; none if not computed."""

    inputs: Float[Tensor, "record *part input"]
    errors: tuple[Float[Tensor, "record *part unit"], ...]


class _Products(TorchDispatchMode):
    """Notes which parameters are multiplied with rows, both as they are."""

    def __init__(self, rows: Tensor, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._rows = rows
        self._parameters = {tensor.untyped_storage().data_ptr(): name for name, tensor in parameters.items()}
        self._heights = {name: len(tensor) for name, tensor in parameters.items()}
        self.names: dict[str, bool] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        if any(product in str(func) for product in _PRODUCTS):
            placed = {part.untyped_storage().data_ptr(): part for part in args if isinstance(part, Tensor)}
            if self._rows.untyped_storage().data_ptr() in placed:
                for place, part in placed.items():
                    if place in self._parameters:
                        height, width = part.shape[-2:]
                        # Of a square matrix, a transposed view has its numbers in another order.
                        before = "linear" not in str(func) and part.is_contiguous()
                        name = self._parameters[place]
                        self.names[name] = before if height == width else self._heights[name] == self._rows.shape[1]
        return func(*args, **(kwargs or {}))


def parameters_of_rows(module: nn.Module, rows: Float[Tensor, "record encoded"]) -> dict[str, bool]:
    """Return the matrices that a module multiplies with rows as they are, and whether rows are on their left side.

    Affine layers hold a row of weights for each unit, and rows on the left take a column for each.
    """
    parameters = dict(module.named_parameters())
    given = rows[:2].to(next(iter(parameters.values())).dtype, copy=True)
    wide = {name: part for name, part in parameters.items() if part.dim() == 2 and rows.shape[1] in part.shape}
    with torch.no_grad(), plain_attention(), _evaluating(module), _Products(given, wide) as products:
        module(given)
    return products.names


def _oriented(tensors: Mapping[str, Tensor], multiplied: Mapping[str, bool]) -> dict[str, Tensor]:
    """Return tensors, those that rows stand on the left of transposed: a row for each unit."""
    return {name: part.T if multiplied.get(name) else part for name, part in tensors.items()}


def _less(sides: Sequence[_Sides], mean: Float[Tensor, "*part input"], records: int) -> list[_Sides]:
    """Return decoys' and rows' inputs of a layer less their mean over the batch.

    A mean that is of a record too is nearer to it than to any decoy, whatever the update spans. Less the mean of the
    others it is a row like any other: that is n / (n - 1) times the distance.
    """
    factors = (1.0, 1.0, records / max(1, records - 1))
    return [_Sides(factor * (side.inputs - mean), side.errors) for factor, side in zip(factors, sides, strict=True)]


def _layer_sides(
    rows: Float[Tensor, "record encoded"], module: nn.Module, losses: Sequence[Callable[[Tensor], Tensor]]
) -> dict[str, _Sides]:
    """Return the two sides of each affine layer's gradient for each row alone, by the layer's name.

    Errors are those of each of the losses.
    """
    inputs: dict[str, list[Tensor]] = {}
    outputs: dict[str, Tensor] = {}
    backward: dict[str, list[list[Tensor]]] = {}

    def listen(name: str, part: nn.Linear) -> object:
        def note(_: nn.Module, taken: Sequence[Tensor], given: Tensor) -> None:
            inputs.setdefault(name, []).append(taken[0].detach().double())
            outputs[name] = given

        return part.register_forward_hook(note)

    handles = [listen(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    dtype, errors = next(module.parameters()).dtype, bool(losses)
    try:
        with torch.set_grad_enabled(errors), plain_attention(), _evaluating(module):
            for part in rows.to(dtype).split(1000):
                predicted = module(part.requires_grad_(errors))
                # Layers that take nothing of a row, and no trained parameter, have no error.
                moved = {name: output for name, output in outputs.items() if output.requires_grad}
                for i, loss in enumerate(losses if moved else ()):
                    given = torch.autograd.grad(
                        loss(predicted), list(moved.values()), retain_graph=i + 1 < len(losses), allow_unused=True
                    )
                    for name, error in zip(moved, given, strict=True):
                        if error is not None:
                            backward.setdefault(name, [[] for _ in losses])[i].append(error.double())
    finally:
        for handle in handles:
            handle.remove()  # pyright: ignore[reportAttributeAccessIssue]
    # A layer that is used twice, or mixes records, has no input of its own for each row.
    joined = {name: torch.cat(parts) for name, parts in inputs.items() if all(part.ndim > 1 for part in parts)}
    return {
        name: _Sides(whole, tuple(torch.cat(parts) for parts in backward.get(name, [])))
        for name, whole in joined.items()
        if len(whole) == len(rows)
    }
