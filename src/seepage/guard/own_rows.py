"""What an update tells of the client's own rows, and not of decoys: other rows of the same kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import hypergeom
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.spans import ROUNDINGS
from seepage.errors import BadInputError
from seepage.models.calling import plain_attention
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
        own, others = _encoded(rows, encoder, schema, "rows"), _encoded(decoys, encoder, schema, "decoys")
        drawn = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
        others = others[drawn[: 2 * _DECOYS]]
        copies = torch.cat([(torch.cdist(part, own) <= _SAME_ROW).any(1) for part in others.split(1000)])
        return cls(own, others[~copies][:_DECOYS])


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
        matches: rows that lie nearer to the span of a layer's change than all but one in a thousand decoys; None where
            every row lies in each layer's span, layers are too wide or decoys too few, so that the test says nothing.
        contradicted: whether the layer that takes the rows changed in as many directions as there are records, and the
            rows do not lie in them: they are not those of the update, or are encoded in another way.
    """

    matches: Matches | None
    contradicted: bool


def compare_with_span(
    module: nn.Module, change: Mapping[str, Tensor], own: OwnRows, records: int, operations: float = math.inf
) -> SpanTest:
    """Compare the client's rows and decoys with the span of each affine layer's change.

    A gradient of an affine layer is a sum over records of an error times the layer's input. Its rows span inputs of
    single records where the layer has more inputs and units than there are records; a factor, another loss, momentum or
    several local steps keep them there, and noise, a lost part of the entries or Adam blur them. So no recipe is
    needed. A row's distance to the first directions of a layer's change, as many as there are records, is compared with
    those of decoys. Half of the decoys say how near is near, over all layers together; the others say how many rows are
    as near by chance. Layers whose change spans all of their inputs are left out: every row lies in them.

    Distances of inner layers are those at the received model, also where a client takes several steps. Layers whose
    decomposition would take more than so many ``operations`` are left out, too.
    """
    half = len(own.decoys) // 2
    sets = (own.decoys[:half], own.decoys[half:], own.rows)
    inputs = [_layer_inputs(module, rows) for rows in sets]
    nearness: list[list[Tensor]] = [[], [], []]
    contradicted = False
    for name, of_rows in inputs[2].items():
        layer = _change(name, change)
        if layer is None or not bool(layer.any()) or _DECOMPOSED * layer.numel() * min(layer.shape) > operations:
            continue
        values, directions = torch.linalg.svd(layer, full_matrices=False)[1:]
        precision = torch.finfo(change[f"{name}.weight"].dtype).eps
        rank = int((values > ROUNDINGS * precision * values[0] * 4).sum())
        dimensions = min(rank, records)
        if dimensions >= layer.shape[1]:
            continue
        distances = [_distance(each[name], directions[:dimensions], layer.shape[1]) for each in inputs]
        calibrating = distances[0].sort().values
        for i, each in enumerate(distances):
            # A decoy does not count among those that are as near as itself.
            itself = int(i == 0)
            nearer = torch.searchsorted(calibrating, each, right=True) - itself
            nearness[i].append(nearer.double() / max(1, half - itself))
        takes_rows = torch.equal(of_rows.flatten(1), own.rows.to(change[f"{name}.weight"].dtype).double())
        if takes_rows and rank == records == len(own.rows) < min(layer.shape):
            contradicted |= bool((distances[2] > _OUTSIDE * of_rows.flatten(1).norm(dim=1)).all())
    if not half or not nearness[0]:
        return SpanTest(None, contradicted)
    calibrating, others, rows = (torch.stack(each).amin(0) for each in nearness)
    near = calibrating.sort().values[int(_NEAREST * half) - 1] if _NEAREST * half >= 1 else torch.zeros(())
    matches = Matches(len(rows), int((rows <= near).sum()), len(others), int((others <= near).sum()))
    return SpanTest(matches if matches.conclusive else None, contradicted)


def compare_with_records(read: Float[Tensor, "record encoded"], own: OwnRows) -> Matches:
    """Return how many rows and decoys are among the records that an attack returned, with every cell right."""

    def among(rows: Tensor) -> int:
        parts = [torch.cdist(part, read.to(part), p=torch.inf).amin(1) for part in rows.split(1000)]
        return int((torch.cat(parts) <= _RIGHT_CELL).sum()) if parts and len(read) else 0

    return Matches(len(own.rows), among(own.rows), len(own.decoys), among(own.decoys))


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


def _change(name: str, change: Mapping[str, Tensor]) -> Float[Tensor, "unit extended"] | None:
    """Return the change of a layer's weights and biases side by side; None where it was not sent."""
    weight, bias = change.get(f"{name}.weight"), change.get(f"{name}.bias")
    if weight is None:
        return None
    parts = [weight.double()] + ([] if bias is None else [bias.double()[:, None]])
    return torch.cat(parts, dim=1)


def _distance(
    inputs: Float[Tensor, "record *part entry"], directions: Float[Tensor, "rank extended"], extended: int
) -> Float[Tensor, " record"]:
    """Return how far each record's inputs of a layer lie from the directions."""
    if extended > inputs.shape[-1]:
        inputs = torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=-1)
    outside = inputs - (inputs @ directions.T) @ directions
    return outside.flatten(1).norm(dim=1)


def _layer_inputs(module: nn.Module, rows: Float[Tensor, "record encoded"]) -> dict[str, Tensor]:
    """Return what each affine layer takes of each row, by the layer's name."""
    taken: dict[str, list[Tensor]] = {}

    def listen(name: str, part: nn.Linear) -> object:
        def note(_: nn.Module, inputs: Sequence[Tensor]) -> None:
            taken.setdefault(name, []).append(inputs[0].detach().double())

        return part.register_forward_pre_hook(note)

    handles = [listen(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    dtype, training = next(module.parameters()).dtype, module.training
    try:
        module.eval()
        with torch.no_grad(), plain_attention():
            for part in rows.to(dtype).split(1000):
                module(part)
    finally:
        module.train(training)
        for handle in handles:
            handle.remove()  # pyright: ignore[reportAttributeAccessIssue]
    joined = {name: torch.cat(parts) for name, parts in taken.items() if all(p.ndim > 1 for p in parts)}
    # A layer that is used twice, or mixes records, has no input of its own for each row.
    return {name: inputs for name, inputs in joined.items() if len(inputs) == len(rows)}
