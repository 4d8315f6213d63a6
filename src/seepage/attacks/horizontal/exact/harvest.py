"""Records read from a gradient one by one, each proved to be there by itself.

A round searches candidates in the spans of what is left of the gradient (``CellsSearch``), proves them
(``Gradient.prove``), and takes them away. What is left then has fewer dimensions, so that more lies outside of it and
combinations of records pass less often. The strict tolerances come first; with the loose ones the rest is estimated.

**Numbers.** A search ends near a record's numbers, and what they are off by stays in the rest. Let ``m_i`` be the move
that corrects those of record i, ``u_i`` its error at a layer, ``D_i`` the derivative of its input by its numbers, and
j the records that were not found yet. With the errors as they are, the rest of the layer's gradient is

    R = sum_j u_j a_j^T + sum_i u_i (D_i m_i)^T.

P and Q, which keep what lies outside of the spans of R's columns and rows, remove the unknown first sum:

    P R Q^T = sum_i (P u_i) (Q D_i m_i)^T,

which is linear in the moves (``_Term``). Two unknowns, number c of record i and d of j, have the product
``(P u_i . P u_j) (Q D_ic . Q D_jd)`` in the normal equations: the Kronecker product of two small matrices where the
layer's input is affine in the row, so that D is the same for all. With noise of deviation s in R and moves of deviation
m before, the likeliest moves solve ``(A^T A + (s / m)^2) moves = A^T R``, by conjugate gradients where A^T A would be
too large. The diagonal of ``s^2 (A^T A + s^2)^-1`` has the squared standard errors of standardised numbers.

**A whole batch** has no unknown records, so that the message itself is fitted (``_fitted``): Gauss-Newton steps on
numbers and targets, now with the change of the errors, by central differences ``(u+ a+^T - u- a-^T) / (2 h)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, occurring
from seepage.attacks.horizontal.exact.first_layer import quotients
from seepage.attacks.horizontal.exact.form_fit import AGREES, FittedForm, factors_of, fitted_form
from seepage.attacks.horizontal.exact.gradients import LOOSE, STRICT, CandidateEvidence, Gradient, Passed
from seepage.attacks.horizontal.exact.networks import Network, Tower
from seepage.attacks.horizontal.exact.one_layer import search_one_layer
from seepage.attacks.horizontal.exact.spans import Span, row_scale
from seepage.attacks.horizontal.matching.starts import Starts, rounds_within
from seepage.models.message import MessageForm
from seepage.tabular.encoder import Encoder

_LEAST_OUTSIDE = 2  # fewer dimensions outside a span prove nothing
CHANGES = 40  # changes of one start; half a dozen are usual
_PATIENCE = 3  # rounds without a find after which nothing more is expected
# Unknown numbers up to which those of all records are found by elimination, and their standard errors by an inverse.
_SOLVED_AT_ONCE, _INVERTED_AT_ONCE = 4000, 6000
# Most steps of conjugate gradients for more of them, and the share of the squared length at which they end.
_CONJUGATE, _CONJUGATE_END = 200, 1e-7
_RECOMBINED = 4096  # largest number of combinations of the parts from a network's towers that are tried
_AGREED = 1e-3  # relative difference up to which two towers say the same of a record's copies and its target
_MOVE = 1e-3  # usual error of numbers before they are refined, standardised
_DECODED = 32.0  # least remainder of a unit's received row, in roundings, at which it is decoded
_TYPICAL = 256  # rows among which one that activates no unit is searched
_ALIKE = 1e-8  # relative distance of inputs that count as the same: less than a rounding of what the client sends
# Times that all numbers of a whole batch are fitted, of which each has to bring them nearer by this factor.
_FITS, _NEARER = 8, 0.9
# Candidates in the spans that the declared form does not explain, from which on it is given up.
_STRANGERS = 3
_SOLVED = 3  # times that records and the derivatives by their outputs are fitted in turn, where no form is known
_MOVED = 1e-5  # step of their central differences, standardised


_LEAST_COPIES = 3  # most copies that each record of a message under an unknown factor is taken to have
# Fields of a harvest with a row for each record.
_BY_RECORD = ("cells", "labels", "spread", "traceless")


@dataclass(frozen=True)
class Harvest:
    """Records read from one victim's gradient, copies in rows of their own."""

    cells: Float[Tensor, "record column"]
    labels: Float[Tensor, " record"]
    spread: Float[Tensor, "record column"]  # standard error in a column's unit, NaN for discrete columns
    left: Mapping[str, Tensor]  # remaining gradient by parameter; empty where it was not taken apart
    complete: bool  # whether the records replay the message up to rounding
    traceless: Bool[Tensor, " record"]  # records whose cells leave no trace in the message
    dimensions: tuple[int, ...]  # rank of each hidden layer's gradient
    ceiling: int | None = None  # most records that the layers behind the first distinguish; None if not known
    unsure: str | None = None  # reason why reading nothing is no evidence; None where it is
    form: FittedForm | None = None  # form of the message, where it was fitted

    @classmethod
    def of_spans(
        cls, spans: Sequence[Span], cells: Tensor, labels: Tensor, spread: Tensor, complete: bool = False
    ) -> Harvest:
        """Return records that were searched in the spans of layers, all with a trace, of which nothing was removed."""
        traceless = torch.zeros(len(cells), dtype=torch.bool, device=cells.device)
        return cls(cells, labels, spread, {}, complete, traceless, tuple(span.rank for span in spans))

    def once(self) -> Harvest:
        """Return each record once: where records do not replay the message, nothing says how often they are there."""
        if not len(self.cells):
            return self
        kind = self.cells.unique(dim=0, return_inverse=True)[1]
        first = (kind[:, None] == kind).long().argmax(1) == torch.arange(len(kind), device=kind.device)
        return replace(self, **{name: getattr(self, name)[first] for name in _BY_RECORD})

    def repeated(self, copies: Int[Tensor, " record"]) -> Harvest:
        """Return each record as often as is said."""
        return replace(self, **{name: getattr(self, name).repeat_interleave(copies, 0) for name in _BY_RECORD})

    def filling(self, classes: int | None) -> Bool[Tensor, " record"]:
        """Return which records are copies that only fill up the batch: others without a trace may be there instead.

        A message of every record twice is that of half the batch whose other half has no trace, as under a class weight
        of 0. So the common divisor of the counts says nothing, and under a fitted form no count does.

        Args:
            classes: number of classes; None for numbers as targets.
        """
        kind = torch.cat([self.cells, self.labels[:, None]], 1).unique(dim=0, return_inverse=True)[1]
        same = kind[:, None] == kind
        before, copies = same.tril(-1).sum(1), same.sum(1)
        if self.form is not None:
            return before > 0
        # Each class may have a weight of its own, if one that is not seen may have none.
        present = self.labels.unique()
        groups = self.labels if classes is not None and len(present) < classes else torch.zeros_like(self.labels)
        divisor = torch.ones_like(copies)
        for group in groups.unique():
            counted = (groups == group) & ~self.traceless
            divisor[counted] = math.gcd(*copies[counted].tolist())
        return before >= copies // divisor


class _Passing(NamedTuple):
    """Candidates in the spans of a gradient, how many of these the declared form explains, and with how many copies."""

    spanned: Float[Tensor, "candidate column"]
    explained: int
    copies: float


class _Contradiction:
    """The evidence of candidates against the declared form of a message.

    A record is in the spans whatever the loss is. That its error is a whole number of copies holds under the true form
    only, and that there are no more copies than records: under ``reduction="sum"`` each record of n looks like n.
    """

    def __init__(self) -> None:
        self.contradicted = self.ended = False
        self._cells: list[Tensor] = []

    def shown(self, passing: _Passing, left: int) -> bool:
        """Take the candidates of a round; return whether to end the search under the declared form."""
        self._cells.append(passing.spanned)
        strangers = len(passing.spanned) - passing.explained
        self.contradicted |= strangers > passing.explained or passing.copies > left
        self.ended = strangers >= max(_STRANGERS, 2 * passing.explained) or (
            passing.copies > left and passing.explained > 1
        )
        return self.ended

    def cells(self, starts: Starts) -> Float[Tensor, "candidate column"]:
        """Return the distinct candidates of all rounds."""
        return starts.distinct(torch.cat(self._cells))


# Cells and counts of records that were taken from a gradient.
_Records = tuple[Tensor, Tensor]


class RecordHarvester:
    """Encoders, starts and limits of the searches for single records, see ``Unmix``."""

    def __init__(self, client: Encoder, starts: Starts, rounds: int, seconds: float | None = None) -> None:
        self._client, self._starts, self._rounds, self._seconds = client, starts, rounds, seconds
        self._encoder, self._continuous, self._place = starts.encoder, starts.continuous, starts.place

    def _rows(self, cells: Tensor) -> Float[Tensor, "record encoded"]:
        """Return encoded rows as the client computes them, in float64."""
        return self._client.encode(cells).double()


class Harvester(RecordHarvester):
    """Reads records from gradients, one victim at a time; the kernel decides what is proved, see ``seepage.kernel``.

    Records of no active unit add the same to the gradient, whatever their cells are: a typical one stands for each.
    """

    def run(self, gradient: Gradient, seed: int) -> Harvest:
        """Read the records that can be proved, and remove them from the gradient.

        Where the message contradicts the declared form, the form is fitted on candidates that are in the spans of the
        layers' gradients, and the records are read anew. Nothing is proved then.
        """
        # Parts of records that towers give are recombined, so that many more pass than there are records. The size of
        # an error says no count of a number as target.
        if gradient.head == "regression" or len(gradient.network.towers) > 1:
            return self._read(gradient, seed, None)
        contradiction = _Contradiction()
        harvest = self._read(gradient, seed, contradiction)
        if harvest.complete or not contradiction.contradicted:
            return harvest
        if any(rank > gradient.records for rank in harvest.dimensions):
            # No loss gives so many dimensions: the number of records is wrong.
            gradient.refit(None)
            return self._read(gradient, seed, None) if contradiction.ended else harvest
        gradient.refit(None)
        best, most = None, len(harvest.once().cells)
        fitted = self._form(gradient, contradiction.cells(self._starts))
        if fitted is not None:
            gradient.refit(fitted.form)
            refitted = self._read(gradient, seed, None)
            if refitted.complete or len(refitted.cells) > most:
                best, most = self._settled(gradient, refitted, fitted), len(refitted.cells)
        # With one hidden layer, combinations of records lie in the spans as well, and only a form tells them apart.
        if gradient.network.hidden > 1 and most < gradient.records:
            gradient.refit(None, formless=True)
            formless = self._read(gradient, seed, None)
            if len(formless.cells) > most:
                if (copied := self._copied(gradient, formless, gradient.declared)) is not None:
                    return copied
                return replace(formless, form=self._unknown(gradient))
        if best is not None:
            return best
        gradient.refit(None)
        return self._read(gradient, seed, None) if contradiction.ended else harvest

    def _unknown(self, gradient: Gradient) -> FittedForm:
        return FittedForm(replace(gradient.declared, estimated=True), 0, gradient.records)

    def _settled(self, gradient: Gradient, harvest: Harvest, fitted: FittedForm) -> Harvest:
        """Return a harvest with the form that all of its records have, and whether they replay the message then."""
        again = self._form(gradient, harvest.cells) or fitted
        if len(harvest.cells) < gradient.records:
            return self._copied(gradient, harvest, again.form) or replace(harvest, form=again)
        rows, classes = self._rows(harvest.cells), torch.arange(gradient.classes, device=harvest.cells.device)
        counts = (harvest.labels[:, None] == classes).double()
        # The weights of a declared form may have hidden its factor, which depends on the labels of the batch.
        share = float(gradient.declared.share(gradient.head, harvest.labels))
        declared = replace(gradient.declared, reduction="sum", scale=share)
        for form in (declared, again.form):
            gradient.refit(form)
            gradient.take(rows, counts)
            if gradient.explained(rows, counts):
                return replace(harvest, form=None if form is declared else again, complete=True)
        return replace(harvest, form=again)

    def _copied(self, gradient: Gradient, harvest: Harvest, form: MessageForm) -> Harvest | None:
        """Return a harvest with the copies that one factor of all says; None where these are not the whole batch."""
        evidence = self._evidence(gradient, harvest.cells)
        if evidence is None or gradient.head == "regression":
            return None
        plain = replace(form, weights=(), scale=math.copysign(1.0, form.scale))
        factor, label, apart = factors_of(gradient.head, plain, evidence.outputs, evidence.errors * gradient.records)
        if not bool(((factor > 0) & (apart < AGREES)).all()):
            return None
        for least in range(1, _LEAST_COPIES + 1):
            share = float(factor.min()) / least
            whole = (factor / share).round()
            if int(whole.sum()) != gradient.records or bool(((factor / share - whole).abs() > AGREES * whole).any()):
                continue
            # Where each is there equally often, the factor may be larger instead, and others leave no trace.
            if math.gcd(*whole.long().tolist()) > 1:
                continue
            once = replace(plain, scale=share * plain.scale)
            counts = torch.zeros_like(evidence.chances).scatter(1, label[:, None], whole[:, None])
            gradient.refit(once)
            rows = self._rows(harvest.cells)
            gradient.take(rows, counts)
            if gradient.explained(rows, counts):
                harvest = replace(harvest, labels=label.double(), left=gradient.remaining(rows, counts), complete=True)
                fitted = FittedForm(once, len(rows), len(rows))
                return replace(harvest.repeated(whole.long()), form=fitted)
        return None

    def _evidence(self, gradient: Gradient, cells: Float[Tensor, "candidate column"]) -> CandidateEvidence | None:
        """Return the evidence about candidates of the layer that tells most of them; None where no layer tells any."""
        rows = self._rows(cells)
        left, gradient.left = gradient.left, list(gradient.received)
        spans = gradient.spans()
        usable = [index for index, span in enumerate(spans) if tells(span)]
        gradient.left = left
        if not usable or not len(rows):
            return None
        by_layer = [gradient.evidence(index, spans[index], rows) for index in usable]
        return min(by_layer, key=lambda item: float((item.outside + item.off).nan_to_num(1.0).median()))

    def _form(self, gradient: Gradient, cells: Float[Tensor, "candidate column"]) -> FittedForm | None:
        """Return the form that candidates have."""
        evidence = self._evidence(gradient, cells)
        if evidence is None:
            return None
        return fitted_form(gradient.head, evidence.outputs, evidence.errors, gradient.declared, gradient.records)

    def _read(self, gradient: Gradient, seed: int, contradiction: _Contradiction | None) -> Harvest:
        """Read the records under the gradient's form, until a contradiction is plain."""
        generator = torch.Generator().manual_seed(seed)
        cells = self._encoder.mean.new_empty(0, len(self._encoder.schema.columns))
        counts = cells.new_empty(0, gradient.classes)
        spans = gradient.spans()
        dimensions = tuple(span.rank for span in spans)
        taps = [spans[tap.layer] for tap in gradient.network.taps if tap.layer < len(spans)]
        ceiling = max((min(len(span.scale), span.rows.shape[1]) - _LEAST_OUTSIDE for span in taps), default=None)
        silent = self._silent(gradient)
        barren, surely = 0, None
        for _ in rounds_within(self._rounds, self._seconds):
            left = gradient.records - int(gradient.copies(counts).sum())
            if left and surely is None and (barren == _PATIENCE or not any(map(tells, spans))):
                # With one hidden layer combinations of records pass as well.
                if len(spans) < 2:
                    break
                surely, barren, gradient.tolerances = (cells, counts), 0, LOOSE
                spans = gradient.spans()
            if left == 0 or barren == _PATIENCE or not any(map(tells, spans)):
                break
            candidates = torch.cat([silent, self._candidates(gradient, spans, generator)])
            new, new_counts, passing = self._proved(gradient, spans, candidates, left)
            if contradiction is not None and contradiction.shown(passing, left):
                break
            if len(new):
                cells, counts = torch.cat([cells, new]), torch.cat([counts, new_counts])
                cells = self._refine(gradient, cells, counts)
            barren = 0 if len(new) else barren + 1
            spans = gradient.spans()
        complete = int(gradient.copies(counts).sum()) == gradient.records
        for _ in range(_SOLVED if gradient.formless and len(cells) else 0):
            counts = gradient.solved(self._rows(cells))
            cells, counts = self._fitted(gradient, cells, counts)
        # Of many numbers beside few categories, the spans leave some less precise than the whole message has them.
        if complete and (
            surely is not None
            or not isinstance(gradient.network, Network)
            or not gradient.explained(self._rows(cells), counts)
        ):
            cells, counts = self._fitted(gradient, cells, counts)
        rows = self._rows(cells)
        filled, complete = complete, complete and gradient.explained(rows, counts)
        if contradiction is not None and filled and not complete:
            # So many copies of some records leave no place for the others.
            contradiction.contradicted = True
        if not complete and surely is not None:
            harvest = self._joined(gradient, surely, (cells, counts), dimensions)
        else:
            harvest = self._harvest(gradient, cells, counts, complete, dimensions)
        return replace(harvest, ceiling=ceiling)

    def _joined(
        self, gradient: Gradient, surely: _Records, all_taken: _Records, dimensions: tuple[int, ...]
    ) -> Harvest:
        """Return the records read with strict tolerances, their numbers fitted without the rest, then the rest."""
        gradient.tolerances = STRICT
        gradient.take(self._rows(surely[0]), surely[1])
        strict = self._harvest(gradient, *surely, False, dimensions)
        gradient.take(self._rows(all_taken[0]), all_taken[1])
        harvest = self._harvest(gradient, *all_taken, False, dimensions)
        cells = torch.cat([strict.cells, harvest.cells[len(strict.cells) :]])
        spread = torch.cat([strict.spread, harvest.spread[len(strict.cells) :]])
        return replace(harvest, cells=cells, spread=spread)

    def _harvest(
        self, gradient: Gradient, cells: Tensor, counts: Tensor, complete: bool, dimensions: tuple[int, ...]
    ) -> Harvest:
        """Return the records that were read."""
        rows, repeats = self._rows(cells), gradient.copies(counts).long()
        return Harvest(
            cells=cells.repeat_interleave(repeats, 0),
            labels=gradient.labels(counts),
            spread=self._spread(gradient, cells, counts).repeat_interleave(repeats, 0),
            left=gradient.remaining(rows, counts),
            complete=complete,
            traceless=gradient.traceless(rows, counts).repeat_interleave(repeats),
            dimensions=dimensions,
        )

    def _candidates(self, gradient: Gradient, spans: Sequence[Span], generator: torch.Generator) -> Tensor:
        """Return cells of rows that may be records."""
        single = self._alone(gradient)
        network = gradient.network
        if network.takes_rows:
            allowed = occurring(self._encoder, spans[0], gradient.rounding)
        else:
            allowed = torch.ones_like(self._encoder.is_continuous)
        if len(spans) > 1 or not isinstance(network, Network):
            search = CellsSearch(self._encoder, network, spans, allowed)
            ends = [search.run(*self._starts.draw(allowed, generator), CHANGES, self._starts.report)]
        else:
            draw = partial(self._starts.draw, allowed, generator)
            ends, rows = search_one_layer(self._encoder, network, gradient.left[0], spans[0], allowed, draw, CHANGES)
            single = torch.cat([single, self._encoder.decode(rows)])
        for part in ends:
            arrived = self._starts.ends(part, gradient.tolerances.misfit)
            single = torch.cat([single, arrived, self._recombined(arrived, network.towers)])
        return self._starts.distinct(single)

    def _recombined(self, cells: Tensor, towers: Sequence[Tower]) -> Tensor:
        """Return all combinations of the parts that towers gave: of one record, and of different ones."""
        if len(towers) < 2 or not len(cells):
            return cells[:0]
        blocks = [list(range(block.start, block.stop)) for block in self._encoder.schema.blocks]
        rows = cells[:1]
        for tower in towers:
            taken = torch.stack([tower.columns[block].any() for block in blocks])
            pieces = self._starts.distinct(torch.where(taken, cells, cells[:1]))
            if len(rows) * len(pieces) > _RECOMBINED:
                return cells[:0]
            rows = torch.where(taken, pieces[:, None], rows[None]).flatten(0, 1)
        return rows

    def _silent(self, gradient: Gradient) -> Float[Tensor, "one column"]:
        """Return the most typical of some rows that activate no unit of the first layer; none where all do."""
        cells = self._starts.typical(_TYPICAL)
        rows = self._rows(cells)
        return cells[gradient.network.run(rows).silent()][:1]

    def _alone(self, gradient: Gradient) -> Tensor:
        """Return the cells that rows of single units decode to, where they nearly agree with the rows."""
        if not gradient.network.takes_rows:
            return self._encoder.mean.new_empty(0, len(self._encoder.schema.columns))
        layer = gradient.left[0]
        # Where a unit's records have been taken, rounding is left, which decodes to anything.
        sizes = [torch.linalg.vector_norm(part, dim=1) for part in (layer, gradient.received[0])]
        layer = layer[sizes[0] > _DECODED * gradient.rounding * sizes[1]]
        rows = quotients(layer[None, :, :-1], layer[None, :, -1])[0] if len(layer) else layer[:, :-1]
        rows = rows[rows.isfinite().all(-1)]
        valid = self._encoder.project(rows)
        near = (rows - valid).norm(dim=1) < 1e-3 * valid.norm(dim=1)
        return self._encoder.decode(rows[near])

    def _proved(
        self, gradient: Gradient, spans: Sequence[Span], cells: Tensor, left: int
    ) -> tuple[Tensor, Tensor, _Passing]:
        """Return candidates that passed and fit together, with their counts, and all that passed or nearly did."""
        rows = self._rows(cells)
        proofs: list[Passed] = []
        for tower in gradient.network.towers:
            proof = self._of_layers(gradient, [(k, spans[k]) for k in tower.layers if k < len(spans)], rows, left)
            proofs += [] if proof is None else [proof]
        if not proofs:
            return cells[:0], cells.new_empty(0, gradient.classes), _Passing(cells[:0], 0, 0.0)
        passed, counts, spanned = proofs[0]
        for other in proofs[1:]:
            # Parts of different records are recognised by each tower's evidence about copies and labels.
            alike = (counts - other.counts).abs() <= _AGREED * counts.abs().clamp_min(1.0)
            passed, spanned = passed & other.passed & alike.all(1), spanned & other.spanned
        # Rows that activate no unit pass as one: they stand for the same records.
        silent = passed & gradient.network.run(rows).silent()
        passed &= ~silent | (silent.cumsum(0) == 1)
        if not isinstance(gradient.network, Network):
            passed[passed.clone()] = _first_of_alike(gradient.network.run(rows[passed]).entering)
        passing = _Passing(cells[spanned | passed], int(passed.sum()), float(gradient.copies(counts[passed]).sum()))
        # Several copies may be the mean of records that no layer distinguishes; what comes alone goes first.
        alone = passed & (gradient.copies(counts) == 1)
        passed = alone if alone.any() else passed
        # More records than the batch has cannot all be there.
        fits = gradient.copies(counts[passed]).cumsum(0) <= left
        return cells[passed][fits], counts[passed][fits], passing

    def _of_layers(
        self, gradient: Gradient, spans: Sequence[tuple[int, Span]], rows: Tensor, left: int
    ) -> Passed | None:
        """Return which candidates pass in one of these layers; None where no layer can decide."""
        proofs = [gradient.prove(index, span, rows, left) for index, span in spans if tells(span) and len(rows)]
        return reduce(Passed.joined, proofs) if proofs else None

    def _refine(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> Tensor:
        """Return the cells with the numbers that explain the gradient best, and remove the records."""
        for _ in range(2):
            gradient.take(self._rows(cells), counts)
            equations = self._equations(gradient, cells, counts)
            if equations is None:
                return cells
            moved = equations.solved((self._noise(gradient) / _MOVE) ** 2)
            cells = self._starts.with_numbers(cells, self._starts.numbers(cells) + moved)
        gradient.take(self._rows(cells), counts)
        return cells

    def _equations(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> _NumberEquations | None:
        """Return the equations of the numbers, outside of what the records not yet found can span; None without any."""
        if not self._continuous or not len(cells):
            return None
        rows = self._rows(cells)
        errors, _ = gradient.contributions(rows, counts)
        network, spans = gradient.network, gradient.spans()
        # How the layers' inputs move with each number: of those that take the row, and the taps'.
        changes = list(enumerate(entry[:, self._place].T[None] for entry in network.entries()))
        state = torch.nn.functional.linear(rows, network.state_weight, network.state_bias)
        taps = [tap.layer for tap in network.taps if tap.layer < len(spans)]
        slopes = network.slopes(state, network.state_weight[:, self._place]) if taps else []
        changes += [(index, slope.mT) for index, slope in zip(taps, slopes, strict=True)]
        terms: list[_Term] = []
        for index, change in changes:
            span = spans[index]
            error = (errors[index] / span.scale) @ span.off_columns.T
            padded = torch.nn.functional.pad(change, (0, span.off_rows.shape[1] - change.shape[2]))
            rest = span.off_columns @ (gradient.left[index] / span.scale[:, None]) @ span.off_rows.T
            terms.append(_Term(error, padded @ span.off_rows.T, rest))
        return _NumberEquations(terms)

    def _fitted(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return all records with the numbers and targets that explain all layers best, and remove them."""
        # Gauss-Newton steps from central differences of what each record adds, in roundings of the layers' rows.
        columns = len(self._continuous)
        targets = int(gradient.head == "regression")
        free = columns + targets
        if not free or len(cells) * free > _INVERTED_AT_ONCE:
            return cells, counts
        before = torch.inf
        best = cells, counts
        scales = [gradient.rounding * row_scale(layer) for layer in gradient.received]
        for _ in range(_FITS):
            gradient.take(self._rows(cells), counts)
            length = sum(float((w / s[:, None]).square().sum()) for w, s in zip(gradient.left, scales, strict=True))
            if length >= before:
                break
            worse, before, best = length > _NEARER * before, length, (cells, counts)
            if worse:
                break
            rows = self._encoder.encode(cells)
            size = len(cells) * free
            gram, pull = cells.new_zeros(size, size), cells.new_zeros(size)
            # A derivative is a sum of two matrices of rank one: so are their products sums of four.
            ahead, behind = (self._added(gradient, rows, counts, sign * _MOVED) for sign in (1.0, -1.0))
            for index, (layer, scale) in enumerate(zip(gradient.left, scales, strict=True)):
                errors = torch.cat([ahead[0][index], behind[0][index]]) / scale
                inputs = torch.cat([ahead[1][index], -behind[1][index]]) / (2 * _MOVED)
                both = (errors @ errors.T) * (inputs @ inputs.T)
                gram += both.view(2, size, 2, size).sum((0, 2))
                pull += torch.einsum("nu,uv,nv->n", errors, layer / scale[:, None], inputs).view(2, size).sum(0)
            gram.diagonal().add_(1e-12 * gram.diagonal().mean() + 1e-300)
            moved, singular = torch.linalg.solve_ex(gram, pull)
            if bool(singular) or not bool(moved.isfinite().all()):
                # Dead units leave numbers that nothing depends on.
                break
            moved = moved.view(free, len(cells)).T
            cells = self._starts.with_numbers(cells, self._starts.numbers(cells) + moved[:, :columns])
            if targets:
                counts = torch.cat([counts[:, :1], counts[:, 1:] + moved[:, columns:]], 1)
        gradient.take(self._rows(best[0]), best[1])
        return best

    def _added(
        self, gradient: Gradient, rows: Tensor, counts: Tensor, move: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the contribution of each record with one of its numbers, then its target, moved: column by column."""
        all_rows, all_counts = [], []
        for place in self._place.tolist():
            other = rows.clone()
            other[:, place] += move
            all_rows.append(other)
            all_counts.append(counts)
        if gradient.head == "regression":
            all_rows.append(rows)
            all_counts.append(torch.stack([counts[:, 0], counts[:, 1] + move], 1))
        return gradient.contributions(torch.cat(all_rows), torch.cat(all_counts))

    def _spread(self, gradient: Gradient, cells: Tensor, counts: Tensor) -> Tensor:
        equations = self._equations(gradient, cells, counts)
        if equations is None or equations.size > _INVERTED_AT_ONCE:
            return self._starts.spread(cells, torch.inf)
        noise = self._noise(gradient)
        gram = equations.gram()
        gram.diagonal().add_(noise**2)
        variance = torch.linalg.inv(gram).diagonal().view(len(cells), -1)
        return self._starts.spread(cells, variance.sqrt() * noise * self._encoder.std[self._place])

    def _noise(self, gradient: Gradient) -> float:
        """Return the standard deviation of rounding errors in scaled gradients."""
        sizes = [(layer / row_scale(layer)[:, None]).square().mean() for layer in gradient.received[:2]]
        return gradient.rounding * float(torch.stack(sizes).max().sqrt())


def _first_of_alike(entering: Sequence[Float[Tensor, "record _"]]) -> Bool[Tensor, " record"]:
    """Return which records are the first of those that enter every layer alike: a network may ignore a column."""
    if not len(entering[0]):
        return torch.zeros(0, dtype=torch.bool, device=entering[0].device)
    inputs = torch.cat([layer / layer.norm(dim=1).amax().clamp_min(1e-300) for layer in entering], 1)
    alike = torch.cdist(inputs, inputs, compute_mode="donot_use_mm_for_euclid_dist") < _ALIKE
    return alike.long().argmax(1) == torch.arange(len(inputs), device=inputs.device)


class _Term(NamedTuple):
    """Equations of one layer for the numbers of the records, outside of what other records' errors and inputs span."""

    errors: Float[Tensor, "record other"]
    # Derivatives of the records' inputs by each number; once for all in a first layer.
    changes: Float[Tensor, "record number rest"] | Float[Tensor, "1 number rest"]
    rest: Float[Tensor, "other rest"]  # remaining gradient

    @property
    def together(self) -> Float[Tensor, "record record"]:
        return self.errors @ self.errors.T

    def pulled(self, left: Float[Tensor, "record rest"]) -> Float[Tensor, "record number"]:
        """Return the product of what each record has left and how its numbers change it."""
        return left @ self.changes[0].T if len(self.changes) == 1 else torch.einsum("nv,ncv->nc", left, self.changes)

    def applied(self, together: Tensor, moved: Float[Tensor, "record number"]) -> Float[Tensor, "record number"]:
        """Return the product of the normal equations' matrix and moves of the numbers."""
        if len(self.changes) == 1:
            return (together @ moved) @ (self.changes[0] @ self.changes[0].T)
        return self.pulled(together @ torch.einsum("nc,ncv->nv", moved, self.changes))

    def gram(self) -> Float[Tensor, "unknown unknown"]:
        """Return the normal equations' matrix, record by record."""
        if len(self.changes) == 1:
            return torch.kron(self.together, self.changes[0] @ self.changes[0].T)
        columns = self.changes.shape[1]
        flat = self.changes.reshape(len(self.changes) * columns, -1)
        return self.together.repeat_interleave(columns, 0).repeat_interleave(columns, 1) * (flat @ flat.T)


class _NumberEquations:
    """Normal equations of all records' numbers: each number moves its record's part of the layers' gradients."""

    def __init__(self, terms: Sequence[_Term]) -> None:
        self._terms = terms
        self.size = len(terms[0].errors) * terms[0].changes.shape[1]

    def gram(self) -> Float[Tensor, "unknown unknown"]:
        """Return the matrix of the equations."""
        gram = self._terms[0].gram()
        for term in self._terms[1:]:
            gram += term.gram()
        return gram

    def solved(self, ridge: float) -> Float[Tensor, "record number"]:
        """Return the moves that explain most of the rest; by conjugate gradients where the matrix is large."""
        pull = sum(term.pulled(term.errors @ term.rest) for term in self._terms)
        assert isinstance(pull, Tensor)
        if self.size <= _SOLVED_AT_ONCE:
            gram = self.gram()
            gram.diagonal().add_(ridge)
            moved, singular = torch.linalg.solve_ex(gram, pull.flatten())
            # Dead units leave numbers that nothing depends on: none is moved.
            return torch.zeros_like(pull) if bool(singular) else moved.nan_to_num(0.0, 0.0, 0.0).view_as(pull)
        together = [term.together for term in self._terms]
        diagonal = ridge + sum(
            part.diagonal()[:, None] * term.changes.square().sum(2)
            for part, term in zip(together, self._terms, strict=True)
        )
        moved, rest = torch.zeros_like(pull), pull
        direction = ready = rest / diagonal
        size = (rest * ready).sum()
        first = size
        for _ in range(_CONJUGATE):
            if not size > _CONJUGATE_END * first:
                break
            pushed = ridge * direction
            for part, term in zip(together, self._terms, strict=True):
                pushed = pushed + term.applied(part, direction)
            step = size / (direction * pushed).sum()
            moved, rest = moved + step * direction, rest - step * pushed
            ready = rest / diagonal
            after = (rest * ready).sum()
            direction, size = ready + after / size * direction, after
        return moved


def tells(span: Span) -> bool:
    """Whether anything lies outside the spans, so that lying inside is evidence."""
    reacting = int(span.scale.isfinite().sum())
    return 0 < span.rank <= min(reacting - _LEAST_OUTSIDE, span.rows.shape[1] - _LEAST_OUTSIDE)
