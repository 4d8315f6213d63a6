"""Records taken out of a gradient one by one, each proved by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, SearchEnds, occurring
from seepage.attacks.horizontal.exact.certificates import prove_cells
from seepage.attacks.horizontal.exact.first_layer import quotients
from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.one_layer import search_one_layer
from seepage.attacks.horizontal.exact.spans import Span, row_scale
from seepage.attacks.horizontal.matching.starts import Starts, rounds_within
from seepage.tabular.align import tolerances
from seepage.tabular.encoder import Encoder

# Squared misfit at which a search has arrived. False ends lie at 1e-3 and above.
ARRIVED = 1e-6
# Fewer dimensions outside a span prove nothing.
_LEAST_OUTSIDE = 2
# Dimensions outside the spans without which a record is not certified while others are missing.
_SURPLUS = 8
# Changes of one start; half a dozen are usual.
CHANGES = 40
# Rounds without a find after which nothing more is expected.
_PATIENCE = 3
# Unknown numbers up to which those of all records are refined at once.
_REFINED_AT_ONCE = 2000
# How far numbers are usually off before they are refined, standardised.
_MOVE = 1e-3
# Of a unit's received row, in roundings, what has to be left so that it is decoded.
_DECODED = 32.0
# Rows among which one that activates no unit is sought.
_TYPICAL = 256
# Of the received gradient, what the replayed one may differ by to count as the same, in roundings.
_SAME = 100.0


@dataclass(frozen=True)
class Harvest:
    """What was taken out of one victim's gradient.

    Attributes:
        cells: cells of the records taken out; each copy of a record has its own row.
        labels: labels of these records.
        spread: standard error of each number in its column's unit, NaN for discrete columns.
        left: remaining gradient of each layer (weights and bias side by side).
        complete: whether the records replay the message, so that nothing but rounding is left.
        proved: cells that the message proves, see ``Harvester``.
        traceless: records whose cells leave no trace in the message.
        divisor: greatest common divisor of the numbers of copies with each label.
        dimensions: rank of each hidden layer's gradient, in the order of the layers.
    """

    cells: Float[Tensor, "record column"]
    labels: Float[Tensor, " record"]
    spread: Float[Tensor, "record column"]
    left: list[Tensor]
    complete: bool
    proved: Bool[Tensor, "record column"]
    traceless: Bool[Tensor, " record"]
    divisor: int
    dimensions: tuple[int, ...]


class Harvester:
    """Takes records out of gradients, one victim at a time.

    Where nothing but rounding is left in the end, the records replay the gradient. While some are missing, the gradient
    needs those that came once, have nothing like them among the others, and pass the proof again with all others
    taken away, against at least eight dimensions outside each span. Of these records those cells are proved that no
    others could replace, see ``prove_cells``.

    Records of no active unit add the same to the gradient, whatever their cells are. A typical one of them stands for
    each.

    Args:
        client: its encoder, in its precision.
        starts: where searches begin.
        rounds: most rounds.
        seconds: after which no round begins; None for no limit.
    """

    def __init__(self, client: Encoder, starts: Starts, rounds: int, seconds: float | None = None) -> None:
        self._client, self._starts, self._rounds, self._seconds = client, starts, rounds, seconds
        self._encoder = starts.encoder
        self._continuous, self._place = starts.continuous, starts.place

    def run(self, gradient: Gradient, seed: int) -> Harvest:
        """Take out what can be proved.

        Args:
            gradient: gradient of the victim; holds what is left afterwards.
            seed: seed of the starts.
        """
        generator = torch.Generator().manual_seed(seed)
        device = self._encoder.mean.device
        cells = torch.empty(0, len(self._encoder.schema.columns), dtype=torch.float64, device=device)
        counts = torch.empty(0, gradient.classes, dtype=torch.float64, device=device)
        spans = gradient.spans()
        dimensions = tuple(span.rank for span in spans)
        silent = self._silent(gradient)
        barren = 0
        for _ in rounds_within(self._rounds, self._seconds):
            left = gradient.records - int(counts.sum())
            if left == 0 or barren == _PATIENCE or not any(tells(span) for span in spans):
                break
            candidates = torch.cat([silent, self._candidates(gradient, spans, generator)])
            new, held = self._proved(gradient, spans, candidates, left)
            if len(new):
                cells, counts = torch.cat([cells, new]), torch.cat([counts, held])
                cells = self._refine(gradient, cells, counts)
            barren = 0 if len(new) else barren + 1
            spans = gradient.spans()
        repeats = counts.sum(1).long()
        complete = int(repeats.sum()) == gradient.records and _rounding_left(gradient)
        proofs = prove_cells(gradient, self._client, cells, counts, complete)
        needed = torch.ones_like(proofs.traceless) if complete else self._needed(gradient, cells, counts)
        proved = proofs.cells & needed[:, None]
        return Harvest(
            cells=cells.repeat_interleave(repeats, 0),
            labels=spell_out(counts),
            spread=self._spread(gradient, cells, counts).repeat_interleave(repeats, 0),
            left=gradient.left,
            complete=complete,
            proved=proved.repeat_interleave(repeats, 0),
            traceless=proofs.traceless.repeat_interleave(repeats),
            divisor=math.gcd(*counts.flatten().long().tolist()),
            dimensions=dimensions,
        )

    def _candidates(self, gradient: Gradient, spans: Sequence[Span], generator: torch.Generator) -> Tensor:
        """Return cells of rows that may be records."""
        single = self._alone(gradient)
        allowed = occurring(self._encoder, spans[0], gradient.rounding)
        if len(spans) > 1:
            search = CellsSearch(self._encoder, gradient.network, spans[:2], allowed)
            return self._starts.distinct(
                torch.cat([single, self._arrived(search.run(*self._starts.draw(allowed, generator), CHANGES))])
            )
        found, rows = search_one_layer(
            *(self._encoder, gradient.network, gradient.left[0], spans[0], allowed),
            lambda: self._starts.draw(allowed, generator),
            CHANGES,
        )
        return self._starts.distinct(torch.cat([single, self._encoder.decode(rows), *map(self._arrived, found)]))

    def _arrived(self, found: SearchEnds) -> Tensor:
        return self._starts.ends(found, ARRIVED)

    def _silent(self, gradient: Gradient) -> Float[Tensor, "one column"]:
        """Return the most typical of some rows that activate no unit of the first layer; none where all do."""
        cells = self._starts.typical(_TYPICAL)
        rows = self._client.encode(cells).double()
        return cells[~(gradient.network.inputs(rows)[1] > 0).any(1)][:1]

    def _alone(self, gradient: Gradient) -> Tensor:
        """Return what the rows of single units decode to, where that is nearly what they say."""
        layer = gradient.left[0]
        # Where a unit's records have been taken, rounding is left, which decodes to anything.
        sizes = [torch.linalg.vector_norm(part, dim=1) for part in (layer, gradient.received[0])]
        layer = layer[sizes[0] > _DECODED * gradient.rounding * sizes[1]]
        rows = quotients(layer[None, :, :-1], layer[None, :, -1])[0] if len(layer) else layer[:, :-1]
        rows = rows[rows.isfinite().all(-1)]
        valid = self._encoder.project(rows)
        near = (rows - valid).norm(dim=1) < 1e-3 * valid.norm(dim=1)
        return self._encoder.decode(rows[near])

    def _proved(self, gradient: Gradient, spans: Sequence[Span], cells: Tensor, left: int) -> tuple[Tensor, Tensor]:
        passed = torch.zeros(len(cells), dtype=torch.bool, device=cells.device)
        counts: Tensor | None = None
        rows = self._client.encode(cells).double()
        for at, span in enumerate(spans):
            if not tells(span) or not len(cells):
                continue
            proof = gradient.prove(at, span, rows, left)
            counts = proof.counts if counts is None else torch.where(passed[:, None], counts, proof.counts)
            passed |= proof.passed
        if counts is None:
            return cells[:0], cells.new_empty(0, gradient.classes)
        # Rows that activate no unit pass as one: they stand for the same records.
        silent = passed & ~(gradient.network.inputs(rows)[1] > 0).any(1)
        passed &= ~silent | (silent.cumsum(0) == 1)
        # Several copies may be the mean of records that no layer tells apart; what comes alone goes first.
        alone = passed & (counts.sum(1) == 1)
        passed = alone if alone.any() else passed
        # More than there are cannot all be there.
        fits = counts[passed].sum(1).cumsum(0) <= left
        return cells[passed][fits], counts[passed][fits]

    def _needed(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> Tensor:
        """Return which records are needed though some are missing: single ones that pass again beside the rest."""
        sure = torch.zeros(len(cells), dtype=torch.bool, device=cells.device)
        at = len(gradient.received) - 2
        # All taken and yet not the gradient: something among them is wrong. One hidden layer does not tell which
        # records are mixtures of others that activate the same units.
        if not len(cells) or at < 1 or int(counts.sum()) >= gradient.records:
            return sure
        at = min(at, 1)
        rows = self._client.encode(cells).double()
        errors, inputs = gradient.contributions(rows, counts)
        unlike = (cells[:, None] - cells[None]).abs() > tolerances(self._encoder.schema).to(cells)
        single = (counts.sum(1) == 1) & (
            unlike.any(-1) | torch.eye(len(cells), dtype=torch.bool, device=cells.device)
        ).all(1)
        for i in single.nonzero()[:, 0].tolist():
            span = gradient.span(at, gradient.left[at] + errors[at][i, :, None] * inputs[at][i])
            proof = gradient.prove(at, span, rows[i : i + 1], 1)
            sure[i] = min(len(span.off_rows), len(span.off_columns)) >= _SURPLUS and bool(
                proof.passed & (proof.counts == counts[i]).all()
            )
        return sure

    def _refine(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> Tensor:
        """Return the cells with numbers that explain the gradient best, and take the records away."""
        for _ in range(2):
            gradient.take(self._client.encode(cells).double(), counts)
            system = self._normal(gradient, cells, counts)
            if system is None:
                return cells
            gram, pull = system
            gram.diagonal().add_((self._noise(gradient) / _MOVE) ** 2)
            moved = torch.linalg.solve(gram, pull).view(len(cells), -1)
            numbers = self._starts.numbers(cells) + moved
            cells = cells.clone()
            low, high = self._encoder.low[self._place], self._encoder.high[self._place]
            cells[:, self._continuous] = self._starts.values(numbers.clamp(low, high))
        gradient.take(self._client.encode(cells).double(), counts)
        return cells

    def _normal(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the normal equations of the numbers, outside of what the records not yet found can span."""
        columns = len(self._continuous)
        if not columns or not len(cells) or len(cells) * columns > _REFINED_AT_ONCE:
            return None
        errors, inputs = gradient.contributions(self._client.encode(cells).double(), counts)
        size = len(cells) * columns
        gram, pull = cells.new_zeros(size, size), cells.new_zeros(size)
        slope = gradient.network.weights[0][:, self._place]
        for at, span in enumerate(gradient.spans()[:2]):
            error = (errors[at] / span.scale) @ span.off_columns.T
            if at == 0:
                change = torch.eye(len(gradient.left[0][0]), dtype=cells.dtype, device=cells.device)[self._place]
                change = change.expand(len(cells), -1, -1)
            else:
                change = (inputs[1][:, None, :-1] > 0) * slope.T
                change = torch.cat([change, change.new_zeros(*change.shape[:2], 1)], -1)
            change = change @ span.off_rows.T
            flat = change.reshape(size, -1)
            gram += (error @ error.T).repeat_interleave(columns, 0).repeat_interleave(columns, 1) * (flat @ flat.T)
            rest = span.off_columns @ (gradient.left[at] / span.scale[:, None]) @ span.off_rows.T
            pull += torch.einsum("nu,uv,ncv->nc", error, rest, change).reshape(size)
        return gram, pull

    def _spread(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> Tensor:
        spread = torch.full_like(cells, torch.nan)
        if self._continuous:
            spread[:, self._continuous] = torch.inf
        system = self._normal(gradient, cells, counts)
        if system is not None:
            noise = self._noise(gradient)
            system[0].diagonal().add_(noise**2)
            variance = torch.linalg.inv(system[0]).diagonal().view(len(cells), -1)
            spread[:, self._continuous] = variance.sqrt() * noise * self._encoder.std[self._place]
        return spread

    def _noise(self, gradient: Gradient) -> float:
        """Return the standard deviation of rounding errors in scaled gradients."""
        sizes = [(layer / row_scale(layer)[:, None]).square().mean() for layer in gradient.received[:2]]
        return gradient.rounding * float(torch.stack(sizes).max().sqrt())


def tells(span: Span) -> bool:
    """Whether anything lies outside the spans, so that lying inside says something."""
    reacting = int(span.scale.isfinite().sum())
    return 0 < span.rank <= min(reacting - _LEAST_OUTSIDE, span.rows.shape[1] - _LEAST_OUTSIDE)


def _rounding_left(gradient: Gradient) -> bool:
    # Relative to each layer as a whole.
    return all(
        float(left.norm()) <= _SAME * gradient.rounding * float(received.norm())
        for left, received in zip(gradient.left, gradient.received, strict=True)
    )


def spell_out(counts: Float[Tensor, "record label"]) -> Float[Tensor, " copy"]:
    """Return the label of each copy, record by record."""
    labels = torch.arange(counts.shape[1], device=counts.device).expand(len(counts), -1)
    return labels.flatten().repeat_interleave(counts.flatten().long()).double()
