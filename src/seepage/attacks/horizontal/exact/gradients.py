"""One victim's gradient layer by layer: contributions of single records, and the rest without them.

With ``J_i`` the Jacobian of record i's outputs by those of a layer, ``a_i`` its extended input there, and ``e_i`` the
derivative of the message's loss by its outputs, the layer's gradient is

    G = sum_i u_i a_i^T,   u_i = J_i^T e_i,

since errors go down a network linearly. Loss and labels are in the few numbers ``e_i`` alone. For c copies of a record,
``k_y`` of them with label y, these are ``(c p - k) / n`` under the mean cross-entropy of n records with chances p.

**A candidate** says its a and J; its e is unknown, but a combination ``b w`` of a basis b of the errors at the outputs
(under a softmax they add up to 0). By Wedderburn (1934), a matrix of rank one is a part of G whose removal lowers the
rank,

    rank(G - s u a^T) = rank(G) - 1,   just if   a lies in the span of G's rows, u in that of its columns,
                                                 and s a^T G^+ u = 1.

A record's part is one where the inputs and the errors of all records are independent. So ``a`` is tested first. ``w``
is the combination that leaves least of ``u = J^T b w`` outside of the columns: the last right singular vector of what
the columns of ``J^T b`` have there. s follows, and with it ``e = s b w``. Now ``n e = c p - k`` has to hold for whole
numbers k from 0 up and one c: they say how many copies there are, and of which labels. Rows of G are divided by their
lengths before, which changes no span of rows and lets no unit drown the others.

**Without a form** of the loss, e is kept as it is. All records' e are then those of the least squares over the layers
of ``G - sum_i (J_i^T b w_i) a_i^T``. As ``<u a^T, v c^T> = (u v)(a c)``, the matrix of their normal equations is the
entrywise product of two matrices of products, and never of the size of G times the number of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.form_fit import AGREES, factors_of, pulled
from seepage.attacks.horizontal.exact.networks import Layered, Network
from seepage.attacks.horizontal.exact.spans import ROUNDINGS, Span, row_scale
from seepage.models.message import PLAIN, MessageForm
from seepage.models.model import Head
from seepage.wire.horizontal import GradientView

SAME = 100.0  # largest difference of the replayed gradient from the received one that counts as none, in roundings
_TURNED = 32.0  # roundings by which the direction of a record's error may be off, at an error of 1
_TRACE = 32.0  # roundings of a record's part in a message that count as no trace of it
_Rows = Float[Tensor, "record encoded"]
_Counts = Float[Tensor, "record label"]


class Tolerances(NamedTuple):
    """Distances from the spans within which a record counts."""

    roundings: float  # bound on rounding in singular values, as in ``Span.of``
    misfit: float  # squared, at which a search has arrived; false ends lie at 1e-3 and above
    outside: float  # share of inputs and errors outside their spans
    uncounted: float  # distance of a count of copies from a whole number


# What proves a record, and what is enough to estimate one whose error is hardly above rounding.
STRICT = Tolerances(ROUNDINGS, 1e-6, 1e-4, 3e-4)
LOOSE = Tolerances(1.0, 1e-4, 3e-3, 1e-2)


class Passed(NamedTuple):
    """Which candidates passed, the number of copies of each with each label, and which are in the spans at least."""

    passed: Bool[Tensor, " candidate"]
    counts: Float[Tensor, "candidate label"]
    spanned: Bool[Tensor, " candidate"]

    def joined(self, other: Passed) -> Passed:
        """Return the candidates that pass here, or else there."""
        counts = torch.where(self.passed[:, None], self.counts, other.counts)
        return Passed(self.passed | other.passed, counts, self.spanned | other.spanned)


def copies_labels(counts: _Counts) -> Float[Tensor, " copy"]:
    """Return the label of each copy, record by record."""
    labels = torch.arange(counts.shape[1], device=counts.device).expand(len(counts), -1)
    return labels.flatten().repeat_interleave(counts.flatten().long()).double()


class CandidateEvidence(NamedTuple):
    """Evidence of a layer's gradient about candidates.

    ``outside`` and ``off`` are the shares of input and error outside their spans; ``chances`` of each label are the
    network's (of a number as target, the output); ``total`` is copies times chances, less the number of copies with
    each label, if the candidate is a record (of a number as target, twice the difference of output and target).
    ``outputs`` are the network's, and ``errors`` the derivative of the message's loss by them, whatever the loss is.
    """

    outside: Float[Tensor, " candidate"]
    off: Float[Tensor, " candidate"]
    chances: Float[Tensor, "candidate label"]
    total: Float[Tensor, "candidate label"]
    outputs: Float[Tensor, "candidate output"]
    errors: Float[Tensor, "candidate output"]


class Gradient:
    """One victim's gradient by layer, weights beside bias, and the rest of it without the records read.

    ``form`` is that of the message. As long as it is the declared one, the message tells how many copies of a record
    there are. Of a ``fitted`` one it does not: a record is there once, and ``counts`` have its factor in units of the
    form, which is 1 unless the form is not quite that of this record. Where no form is known either (``formless``),
    ``counts`` have the derivatives of the message's loss by the record's outputs as they are.
    """

    def __init__(
        self,
        network: Layered,
        head: Head,
        layers: Sequence[Tensor],
        records: int,
        rounding: float,
        form: MessageForm = PLAIN,
    ) -> None:
        self.network, self.records, self.rounding = network, records, rounding
        self.head: Head = head
        self.form = self.declared = form
        self.fitted = self.formless = False
        self.received = [layer.double() for layer in layers]
        self.left = list(self.received)
        self._names: Sequence[str] = ()
        self.tolerances = STRICT
        self._scale = [row_scale(layer) for layer in self.left]
        self._largest = [
            float(torch.linalg.matrix_norm(layer / scale[:, None], 2))
            for layer, scale in zip(self.left, self._scale, strict=True)
        ]

    @classmethod
    def of(cls, view: GradientView, victim: int, records: int) -> Gradient:
        """Return a single victim's gradient of a plain network."""
        place = view.place(victim)
        received = [g[victim] for g in view.gradient.values()]
        layers = [torch.cat([w, b[:, None]], 1) for w, b in zip(received[::2], received[1::2], strict=True)]
        rounding = torch.finfo(received[0].dtype).eps
        network, model = Network.of_parameters(list(place.values())), view.model
        gradient = cls(network, model.head, layers, records, rounding, model.form)
        gradient._names = list(view.gradient)
        return gradient

    @property
    def classes(self) -> int:
        """Width of counts: labels, two behind a sigmoid; of a number as target, copies and their sum of targets."""
        return self.network.outputs if self.head == "softmax" else 2

    @property
    def share(self) -> float:
        """Factor of a record's slope in the message, but for the weights of its class."""
        return float(self.form.scale) / (1 if self.form.reduction == "sum" else self.records)

    def refit(self, form: MessageForm | None, formless: bool = False) -> None:
        """Take a fitted form, none at all, or the declared one again, and begin anew with the whole message."""
        self.form, self.formless = form or self.declared, formless
        self.fitted = formless or form is not None
        self.left, self.tolerances = list(self.received), STRICT

    def copies(self, counts: _Counts) -> Float[Tensor, " record"]:
        """Return how often each record is there."""
        if self.fitted:
            return torch.ones_like(counts[:, 0])
        return counts[:, 0] if self.head == "regression" else counts.sum(1)

    def labels(self, counts: _Counts) -> Float[Tensor, " copy"]:
        """Return the label of each copy, record by record."""
        if self.formless:
            # Under most losses.
            return pulled(self.head, counts[:, : self.network.outputs]).double()
        if self.fitted:
            return counts.argmax(1).double()
        if self.head == "regression":
            return (counts[:, 1] / counts[:, 0]).repeat_interleave(counts[:, 0].long())
        return copies_labels(counts)

    def counted(self, labels: Float[Tensor, " copy"]) -> Float[Tensor, "copy label"]:
        """Return the counts of records with these labels, one of each."""
        if self.head == "regression":
            return torch.stack([torch.ones_like(labels), labels], 1).double()
        return torch.nn.functional.one_hot(labels.long(), self.classes).double()

    def explained(self, rows: _Rows, counts: _Counts) -> bool:
        """Return whether these records leave nothing but rounding of the message."""
        return self._explained(rows, counts, self._unsure(rows, counts))

    def _explained(self, rows: Tensor, counts: Tensor, unsure: list[Tensor]) -> bool:
        # Relative to each layer as a whole.
        return all(
            float(left.norm()) <= SAME * self.rounding * float(received.norm() + size)
            for left, received, size in zip(self.left, self.received, unsure, strict=True)
        )

    def _unsure(self, rows: Tensor, counts: Tensor) -> list[Tensor]:
        """Return the size of each layer's gradient where chances are wrong by 1; they are rounded when near it."""
        sizes = [layer.new_zeros(()) for layer in self.left]
        if self.head == "regression" or not len(rows):
            return sizes
        run, copies = self.network.run(rows), self._weights(counts)
        for direction in torch.eye(run.outputs.shape[-1], dtype=rows.dtype, device=rows.device):
            parts = zip(run.errors(direction.expand_as(run.outputs)), run.entering, strict=True)
            sizes = [
                size + (copies * error.norm(dim=1) * entered.norm(dim=1)).sum()
                for size, (error, entered) in zip(sizes, parts, strict=True)
            ]
        return sizes

    def remaining(self, rows: _Rows, counts: _Counts) -> dict[str, Tensor]:
        """Return the message without these records, by parameter."""
        parts = [part for layer in self.left for part in (layer[..., :-1], layer[..., -1])]
        return dict(zip(self._names, parts, strict=bool(self._names)))

    def spans(self) -> list[Span]:
        """Return the span of the remaining gradient in each layer that distinguishes single records."""
        return [self.span(index, layer) for index, layer in enumerate(self.left[: self.network.hidden])]

    def span(self, index: int, layer: Tensor) -> Span:
        """Return the span of a layer's gradient or of a part of it, with the tolerance of the whole."""
        roundings = self.tolerances.roundings
        return Span.of(layer, self._scale[index], self._largest[index], self.rounding, roundings=roundings)

    def contributions(self, rows: Tensor, counts: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return each record's errors and extended inputs, layer by layer; their products add up to the gradient."""
        run = self.network.run(rows)
        return run.errors(self._error(run.outputs, counts)), run.entering

    def traceless(self, rows: _Rows, counts: _Counts) -> Bool[Tensor, " record"]:
        """Return which records leave nothing but rounding in the first two layers."""
        errors, inputs = self.contributions(rows, counts)
        least = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        for error, entered, rounding in zip(errors, inputs, self.roundings(rows, counts), strict=False):
            least = least.maximum((error / rounding).norm(dim=1) * entered[:, :-1].norm(dim=1))
        return least <= _TRACE

    def take(self, rows: Tensor, counts: Tensor) -> None:
        """Set the rest to the received gradient without these records."""
        errors, inputs = self.contributions(rows, counts)
        self.left = [
            layer - error.T @ entered for layer, error, entered in zip(self.received, errors, inputs, strict=True)
        ]

    def roundings(self, rows: _Rows, counts: _Counts) -> list[Float[Tensor, " unit"]]:
        """Return the length of the rounding in each unit's row of the first two layers; infinite without a reaction."""
        # The client adds up numbers that may cancel, in a row as in a unit or in the difference of a chance and 1, and
        # rounds each of them. So a record counts with the sizes of what is added up, an error at the outputs with 1.
        run = self.network.run(rows)
        by_direction = [run.errors(basis.expand_as(run.outputs))[:2] for basis in self._basis(run.outputs)]
        entering = run.reach()
        copies = self._weights(counts)
        # Of one record of the mean's loss: what is added up grows with its square.
        unit = self.records * (float(copies.max()) if self.formless and len(copies) else abs(self.share))
        lengths = []
        for index, size in enumerate(entering):
            reach = torch.stack([errors[index].square() for errors in by_direction]).sum(0)
            added = unit * ((copies * size) @ reach)
            sizes = (added + self.received[index].square().sum(1)).sqrt()
            there = sizes > 0
            lengths.append(torch.where(there, self.rounding * sizes, torch.full_like(sizes, torch.inf)))
        return lengths

    def _weights(self, counts: _Counts) -> Float[Tensor, " record"]:
        """Return the factor of each record's chances in the message."""
        if self.head == "regression":
            return counts[:, 0] * abs(self.share)
        if self.formless:
            # The largest derivative is next to the factor, which no smaller one tells.
            return counts.norm(dim=1).amax().expand(len(counts)) if len(counts) else counts[:, 0]
        weights = counts.new_tensor(self.form.weights or [1.0] * counts.shape[1])
        return (counts @ weights) * abs(self.share)

    def _basis(self, outputs: Tensor) -> Tensor:
        """Return a basis of the errors at the outputs; under a softmax they add up to 0."""
        eye = torch.eye(outputs.shape[-1], dtype=outputs.dtype, device=outputs.device)
        return eye[1:] - eye[:1] if self.head == "softmax" else eye

    def _error(self, outputs: Tensor, counts: Tensor) -> Tensor:
        if self.head == "regression":
            return 2 * (counts[:, :1] * outputs - counts[:, 1:]) * self.share
        if self.formless:
            return counts[:, : outputs.shape[1]]
        if not self.form.plain:
            return torch.einsum("ny,nyo->no", counts, self.form.slopes(self.head, outputs)) * self.share
        copies = counts.sum(-1, keepdim=True)
        if self.head == "softmax":
            return (copies * outputs.softmax(-1) - counts) / self.records
        return (copies * outputs.sigmoid() - counts[:, 1:]) / self.records

    def prove(self, index: int, span: Span, rows: Float[Tensor, "candidate encoded"], most: int) -> Passed:
        """Test candidates against one layer: input and error in its spans, and ``most`` or fewer whole copies."""
        evidence = self.evidence(index, span, rows)
        most_outside = self.tolerances.outside
        inside = evidence.outside < most_outside
        if self.formless:
            return self._as_they_are(evidence, inside)
        if self.fitted:
            return self._factored(evidence, inside)
        if self.head == "regression":
            # The size of the error says the target, whatever it is; that several copies have.
            targets = evidence.chances - evidence.total / (2 * self.share * self.records)
            inside &= evidence.off < most_outside
            passed = inside & targets.isfinite().all(1)
            return Passed(passed, torch.cat([torch.ones_like(targets), targets], 1), passed)
        if not self.form.plain:
            return self._counted(evidence, inside, most)
        counts = torch.zeros_like(evidence.chances)
        open_ = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        for copies in range(1, most + 1):
            # k = c p - n e; its sum is c, since the entries of p add up to 1 and those of e to 0.
            estimates = copies * evidence.chances - evidence.total
            whole = estimates.round()
            fits = open_ & ((estimates - whole).abs().amax(1) < self.tolerances.uncounted) & (whole >= 0).all(1)
            counts[fits] = whole[fits]
            open_ &= ~fits
        # An error that is small beside the chances was rounded when they were, which turns it.
        size = (counts.sum(1)[:, None] * evidence.chances - counts).abs().amax(1)
        spanned = inside & (evidence.off < most_outside + _TURNED * self.rounding / evidence.total.abs().amax(1))
        return Passed(~open_ & inside & (evidence.off < most_outside + _TURNED * self.rounding / size), counts, spanned)

    def _counted(self, evidence: CandidateEvidence, inside: Tensor, most: int) -> Passed:
        """Test candidates as ``prove`` does, under a declared form that is not plain."""
        # Counts times slopes are the error, and add up to the number of copies: one equation more than labels.
        slopes = self.form.slopes(self.head, evidence.outputs)
        matrix = torch.cat([slopes, torch.ones_like(slopes[..., :1])], -1)
        inverse, wanted = torch.linalg.pinv(matrix), evidence.errors / self.share
        counts = torch.zeros_like(evidence.chances)
        spanned = inside & (evidence.off < self.tolerances.outside + self._turned(wanted))
        open_ = spanned.clone()
        for copies in range(1, most + 1):
            right = torch.cat([wanted, torch.full_like(wanted[:, :1], copies)], 1)[:, None]
            whole = (right @ inverse)[:, 0].round()
            left = (right[:, 0] - (whole[:, None] @ matrix)[:, 0]).abs().amax(1)
            fits = open_ & (left < self.tolerances.uncounted) & (whole >= 0).all(1)
            counts[fits] = whole[fits]
            open_ &= ~fits
        return Passed(spanned & ~open_, counts, spanned)

    def _factored(self, evidence: CandidateEvidence, inside: Tensor) -> Passed:
        """Test candidates under a fitted form: input and error in their spans, and a factor above 0."""
        wanted = evidence.errors / self.share
        spanned = inside & (evidence.off < self.tolerances.outside + self._turned(wanted))
        unscaled = replace(self.form, scale=1.0)
        factor, label, _ = factors_of(self.head, unscaled, evidence.outputs, wanted)
        factor = torch.where((factor - 1).abs() < AGREES, torch.ones_like(factor), factor)
        counts = torch.zeros_like(evidence.chances).scatter(1, label[:, None], factor[:, None])
        return Passed(spanned & (factor > 0), counts, spanned)

    def _as_they_are(self, evidence: CandidateEvidence, inside: Tensor) -> Passed:
        """Test candidates of a message of no known form: input and error in their spans."""
        near = inside & (evidence.off < self.tolerances.outside)
        largest = evidence.errors[near].abs().amax() if bool(near.any()) else evidence.errors.new_tensor(torch.inf)
        spanned = inside & (evidence.off < self.tolerances.outside + self._turned(evidence.errors / largest))
        spanned &= near | (evidence.errors.abs().amax(1) <= largest)
        return Passed(spanned, self.padded(evidence.errors), spanned)

    def padded(self, errors: Float[Tensor, "record output"]) -> _Counts:
        """Return derivatives by the outputs as ``counts`` of a message without a form."""
        return torch.nn.functional.pad(errors, (0, self.classes - errors.shape[1]))

    def solved(self, rows: _Rows) -> _Counts:
        """Return the ``counts`` of a message without a form with which these records explain all layers best."""
        run = self.network.run(rows)
        basis = self._basis(run.outputs)
        # Unknowns are the records' weights w of the first element of the basis, then those of the next.
        parts = [run.errors(direction.expand_as(run.outputs)) for direction in basis]
        size = len(rows) * len(basis)
        gram, pull = rows.new_zeros(size, size), rows.new_zeros(size)
        for index, layer in enumerate(self.received):
            scale = row_scale(layer)
            errors = torch.cat([part[index] for part in parts]) / scale
            inputs = run.entering[index].repeat(len(basis), 1)
            gram += (errors @ errors.T) * (inputs @ inputs.T)
            pull += torch.einsum("nu,uv,nv->n", errors, layer / scale[:, None], inputs)
        weights = torch.linalg.pinv(gram, hermitian=True) @ pull
        return self.padded(weights.view(len(basis), len(rows)).T @ basis)

    def _turned(self, errors: Tensor) -> Tensor:
        """Return the share by which rounded chances turn an error, in units of one record's."""
        return _TURNED * self.rounding / errors.abs().amax(1).clamp(min=1e-300)

    def evidence(self, index: int, span: Span, rows: Float[Tensor, "candidate encoded"]) -> CandidateEvidence:
        """Return one layer's evidence about candidates."""
        # With u the error of one copy and v its extended input at the layer, c u v^T is part of the gradient G, and its
        # removal lowers the rank, just if v lies in the span of G's rows, u in that of its columns and c v^T G^+ u = 1
        # (Wedderburn). c says how many copies there are and of which labels.
        run = self.network.run(rows)
        entered = run.entering[index]
        outside = (entered @ span.off_rows.T).norm(dim=1) / entered.norm(dim=1)
        outputs = run.outputs
        basis = self._basis(outputs)
        # J^T b, and what of it lies outside of the columns.
        back = torch.stack([run.errors(direction.expand_as(outputs))[index] for direction in basis], 1) / span.scale
        beyond = back @ span.off_columns.T
        if len(basis) == 1:
            weights = torch.ones_like(back[..., 0])
        else:
            weights = torch.linalg.svd(beyond.mT, full_matrices=True).Vh[:, -1]
        error = torch.einsum("nk,nku->nu", weights, back)
        off = torch.einsum("nk,nkr->nr", weights, beyond).norm(dim=1) / error.norm(dim=1)
        # s = 1 / (a^T G^+ u).
        share = torch.einsum("nu,eu,ne->n", error, span.inverse, entered).reciprocal()
        errors = share[:, None] * (weights @ basis)
        total = self.records * errors
        if self.head == "softmax":
            return CandidateEvidence(outside, off, outputs.softmax(-1), total, outputs, errors)
        if self.head == "regression":
            return CandidateEvidence(outside, off, outputs, total, outputs, errors)
        chances = torch.cat([1 - outputs.sigmoid(), outputs.sigmoid()], -1)
        return CandidateEvidence(outside, off, chances, torch.cat([-total, total], -1), outputs, errors)
