"""Records searched one by one behind batch normalisation, where the attacker is granted the batch statistics.

A normalised layer computes ``z = W x + b`` and passes ``g (z - m) / sqrt(v + eps) + h`` on, with the mean m and the
variance v of the batch's z. With m and v granted this is an affine map of each record by itself. (Granted is the
variance over n - 1, a normalisation has that over n: ``_biased`` is their ratio.) Yet it trains as a map of the batch:
adding a constant to all z changes nothing, so that the errors ``d_i`` at z add up to 0. Therefore

    G = sum_i d_i x_i^T = sum_i d_i (x_i - c)^T,   c the mean of the records' inputs,

whatever is taken for c. The rows of G span differences of records, of n - 1 dimensions at most, and the bias's gradient
is 0. A record lies in the span plus the mean: ``(x, 1)`` in the span of the rows ``(G, 0)`` and of ``(c, 1)``.

The mean is known by what the layer makes of it, ``W c + b = m``, and because the entries of a category's block of raw
columns add up to 1 in every row (``mean_row``). A category in no difference is that of no record, unless no category
of its column is in one. What these equations leave open is added to the span, which is then larger and still holds
every record. Where they leave nothing open, n times the mean of the raw rows counts the records of each category.

With the spans of the first two layers single rows are searched as elsewhere. An error depends on the whole batch, so
that no record is proved by itself. A batch is taken when its replay leaves nothing but rounding of the gradient *and*
of the statistics: a shift that all records share does not show in the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call

from seepage.attacks.horizontal.exact.cells_search import CellsSearch
from seepage.attacks.horizontal.exact.chains import branch_of, parts_of
from seepage.attacks.horizontal.exact.form_fit import FittedForm, factors_of, fitted_form
from seepage.attacks.horizontal.exact.gradients import CandidateEvidence, copies_labels
from seepage.attacks.horizontal.exact.harvest import CHANGES, Harvest, RecordHarvester
from seepage.attacks.horizontal.exact.inexact import counted
from seepage.attacks.horizontal.exact.networks import Layered, Network, extended
from seepage.attacks.horizontal.exact.spans import Span, row_scale
from seepage.attacks.horizontal.exact.traced import frozen
from seepage.attacks.horizontal.matching.starts import rounds_within
from seepage.learning import batch_statistics, gradient
from seepage.models.batch_norm import BatchNorm, Moments, normalisations
from seepage.models.resnet import Residual
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView

_ARRIVED = 1e-6  # squared misfit at which a search has arrived; false ends lie at 1e-3 and above
# Dimensions outside the spans, more than a table has columns, without which lying inside says nothing.
_LEAST_OUTSIDE = 2
# Of the largest singular value, in roundings of the received numbers: what is smaller is rounding. Sums over a batch
# that would be zero leave more of it than single products do.
_ROUNDINGS = 100.0
_DETERMINED = 1e-6  # share of the largest singular value that is too small to count in the received precision
_PATIENCE = 4  # rounds without an improvement after which no more is expected
_VARIES = 1e-4  # share of a column in a span of differences that is more than rounding
SAME = 300.0  # largest difference of a replay from what was received that counts as none, in roundings
# Of the noise of rounded parameters: what a whole batch may leave in standard deviations, the length of a unit's
# gradient from which it counts, and singular values above it.
_NOISES, _HEARD, _ABOVE_NOISE = 3.0, 20.0, 1.2
_CLEARLY = 30.0  # times the bound on rounding above which a direction is more than that
# Times that numbers are fitted, and unknown numbers up to which they are.
_FITS, _FITTED_AT_ONCE = 3, 1000
# Step of the difference quotients, standardised, and how many are taken at a time.
_STEP, _AT_ONCE = 1e-6, 64


class Opening(NamedTuple):
    """The first two affine layers of a network, both followed by a ReLU, and their normalisations."""

    first: nn.Linear | nn.Conv1d
    first_norm: BatchNorm | None
    beside: bool  # whether encoded rows enter the second layer, too
    second: nn.Linear
    second_norm: BatchNorm | None


def opening(module: nn.Module) -> Opening | None:
    """Return the first layers of a network with batch normalisation; None where it has none, or begins with others."""
    parts = parts_of(module)
    if parts is None or not normalisations(module):
        return None
    first, beside, rest = _block([part for part in parts if not isinstance(part, nn.Unflatten | nn.Flatten)])
    second, _, _ = _block(rest)
    if first is None or second is None or isinstance(second[0], nn.Conv1d) or (beside and first[1] is None):
        return None
    return Opening(*first, beside, second[0], second[1])


_Block = tuple[nn.Linear | nn.Conv1d, BatchNorm | None]


def _block(parts: list[nn.Module]) -> tuple[_Block | None, bool, list[nn.Module]]:
    """Return an affine layer and its normalisation if a ReLU follows, whether it is residual, and the layers behind."""
    if parts and isinstance(parts[0], Residual):
        inner, _, behind = _block(branch_of(parts[0]))
        return (None if behind else inner), True, parts[1:]
    if not parts or not isinstance(parts[0], nn.Linear | nn.Conv1d):
        return None, False, []
    norm = parts[1] if len(parts) > 1 and isinstance(parts[1], BatchNorm) else None
    behind = parts[1:] if norm is None else parts[2:]
    block = (parts[0], norm) if behind and isinstance(behind[0], nn.ReLU) else None
    return block, False, behind[1:]


class NormalisedHarvester(RecordHarvester):
    """Reads records from gradients of networks with batch normalisation, one victim at a time.

    With a batch's statistics, normalisation is an affine map of each record by itself; but its errors add up to zero,
    so that a gradient spans only differences of the records' inputs. Their mean follows from what the layer makes of
    it, which is granted; that of the encoded rows counts categories. A convolution in front leaves no such span; there
    the second layer's alone is searched. A whole batch is read where its replay leaves no more than rounding of
    gradient and statistics: likely to be right, and no proof. See docs/methods/unmix.md.
    """

    def run(self, batch: ReplayedBatch, records: int, seed: int) -> Harvest:
        """Read the records that can be distinguished from combinations of records."""
        generator = torch.Generator().manual_seed(seed)
        cells = self._encoder.mean.new_empty(0, len(self._encoder.schema.columns))
        barren = 0
        for _ in rounds_within(self._rounds, self._seconds):
            if not batch.tells:
                break
            # Every other round as if nothing were found, in case something that was is wrong.
            allowed = batch.occurring if barren % 2 else batch.missing(self._rows(cells))
            search = CellsSearch(self._encoder, batch.network, batch.spans, allowed)
            arrived = self._starts.ends(
                search.run(*self._starts.draw(allowed, generator), CHANGES, self._starts.report), _ARRIVED
            )
            # Whole numbers next to where a false end lies have arrived nowhere.
            again = search.run(*self._starts.of(arrived), rounds=0)
            arrived = arrived[again.misfit < _ARRIVED]
            before = len(cells)
            cells = self._starts.distinct(torch.cat([cells, arrived]))[:records]
            barren = 0 if len(cells) > before else barren + 1
            if len(cells) == records or barren == _PATIENCE:
                break
        for tried in (cells, torch.cat([cells, batch.rest(self._rows(cells))])):
            counts = self._counts(batch, tried, records - len(tried))
            repeats = counts.sum(1).long()
            if int(repeats.sum()) != records:
                continue
            all_cells, labels = tried.repeat_interleave(repeats, 0), copies_labels(counts)
            fitted, complete, spread = self._replayed(batch, all_cells, labels)
            if complete:
                return self._harvest(batch, fitted, labels, spread)
            if len(tried) == records and (form := batch.refit(self._rows(tried))) is not None:
                fitted, complete, spread = self._replayed(batch, tried, form[1])
                if complete:
                    return replace(self._harvest(batch, fitted, form[1], spread), form=form[0])
                batch.declare()
        return self._harvest(batch, cells, copies_labels(self._counts(batch, cells, 0)), None)

    def _counts(self, batch: ReplayedBatch, cells: Tensor, spare: int) -> Float[Tensor, "record label"]:
        return counted(batch.evidence(self._rows(cells)), max(0, spare))

    def _harvest(self, batch: ReplayedBatch, cells: Tensor, labels: Tensor, spread: Tensor | None) -> Harvest:
        """Return the records, with the standard errors of their numbers where these are known."""
        errors = self._starts.spread(cells, torch.inf if spread is None else spread)
        harvest = Harvest.of_spans(batch.spans, cells, labels, errors, complete=spread is not None)
        return replace(harvest, dimensions=batch.dimensions, unsure=batch.unsure)

    def _replayed(
        self, batch: ReplayedBatch, cells: Float[Tensor, "record column"], labels: Float[Tensor, " record"]
    ) -> tuple[Float[Tensor, "record column"], bool, Float[Tensor, "record continuous"]]:
        """Return the cells with numbers fitted, whether only rounding is left of the gradient, and standard errors."""
        starts, place = self._starts, self._starts.place
        spread = cells.new_full((len(cells), len(starts.continuous)), torch.inf)

        def left(numbers: Tensor) -> Tensor:
            rows = self._rows(cells).repeat(len(numbers), 1, 1)
            rows[..., place] = numbers.view(len(numbers), len(cells), -1)
            return batch.left(rows, labels)

        numbers = self._rows(cells)[:, place].flatten()
        rest = left(numbers[None])[0]
        if not 0 < len(numbers) <= _FITTED_AT_ONCE:
            return cells, batch.is_rounding(rest), spread
        steps = _STEP * torch.eye(len(numbers), dtype=numbers.dtype, device=numbers.device)
        for _ in range(_FITS):
            slope = torch.cat([left(numbers + group) - rest for group in steps.split(_AT_ONCE)]) / _STEP
            inverse = torch.linalg.pinv(slope @ slope.mT, hermitian=True)
            error = inverse.diagonal().clamp_min(0).sqrt() * max(1.0, float(rest.square().mean().sqrt()))
            spread = error.view_as(spread) * self._encoder.std[place]
            moved = (numbers - inverse @ (slope @ rest)).view(len(cells), -1)
            tried = starts.with_numbers(cells, moved)
            numbers = self._rows(tried)[:, place].flatten()
            after = left(numbers[None])[0]
            if not float(after.norm()) < float(rest.norm()):
                break
            cells, rest = tried, after
        return cells, batch.is_rounding(rest), spread


class ReplayedBatch:
    """One victim's gradient and the moments of its batch, against which whole batches are replayed."""

    network: Layered
    spans: list[Span]

    def __init__(
        self,
        view: GradientView,
        victim: int,
        records: int,
        moments: Mapping[str, Moments],
        encoder: Encoder,
        noise: Mapping[str, float] | None = None,
    ) -> None:
        place = {**view.place(victim), **view.model.frozen}
        # Standard deviation of what rounded parameters add to each entry, by name; none in gradients as computed.
        self._noise = dict(noise or {})
        self._place = {name: parameter.detach().double() for name, parameter in place.items()}
        self._received = {name: g[victim].double() for name, g in view.gradient.items()}
        self._rounding = torch.finfo(next(iter(view.gradient.values())).dtype).eps
        self._records, self._declared, self._encoder = records, view.model, encoder
        self._model = view.model
        self._moments = {
            name: Moments(*(t[victim].to(encoder.mean) for t in (m.mean, m.variance))) for name, m in moments.items()
        }
        self.occurring = torch.ones_like(encoder.is_continuous)
        self._counts: Tensor | None = None
        self._excess, self._hidden = 0, False

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Rank of each layer's gradient and the mean; more than there are records where the message has more."""
        return tuple(self._records + self._excess if self._excess > 0 else span.rank for span in self.spans)

    @property
    def unsure(self) -> str | None:
        """Reason why a search that reads nothing is no evidence; None where it is."""
        if self._hidden:
            return "rounding of the parameters hides directions of the gradient, so that no row is sure to lie in it"
        if not self.tells:
            return "every row lies in the gradients of the layers, so that a search says nothing"
        whole = [span.rank == self._records < span.rows.shape[1] - 1 for span in self._searched]
        return (
            "the records lie in the gradients of the layers, and the search did not find them" if any(whole) else None
        )

    @property
    def tells(self) -> bool:
        """Whether so much lies outside the spans that lying inside is evidence."""
        outside = sum(len(span.off_rows) for span in self._searched)
        return outside >= len(self._encoder.schema.columns) + _LEAST_OUTSIDE

    @property
    def _searched(self) -> list[Span]:
        return self.spans

    def evidence(self, rows: Float[Tensor, "record encoded"]) -> CandidateEvidence:
        """Return the last layer's evidence about copies and labels, if these are all records."""
        raise NotImplementedError

    def refit(self, rows: Float[Tensor, "record encoded"]) -> tuple[FittedForm, Float[Tensor, " record"]] | None:
        """Take the form of the message that these rows have, if these are all records; return it and their labels."""
        evidence = self.evidence(rows)
        outputs, errors = evidence.outputs, evidence.errors
        head = self._declared.head
        fitted = fitted_form(head, outputs, errors, self._declared.form, self._records)
        if fitted is None:
            return None
        self._model = replace(self._declared, form=fitted.of_sum(self._records))
        return fitted, factors_of(head, fitted.form, outputs, errors * self._records)[1].double()

    def declare(self) -> None:
        """Take the declared form of the message again."""
        self._model = self._declared

    def missing(self, rows: Float[Tensor, "record encoded"]) -> Bool[Tensor, " encoded"]:
        """Return which encoded columns the records besides these have."""
        if self._counts is None:
            return self.occurring
        rest = self._counts - (rows * self._encoder.std + self._encoder.mean).sum(0)
        return self._encoder.is_continuous | (self.occurring & (rest > 0.5))

    def rest(self, rows: Float[Tensor, "record encoded"]) -> Float[Tensor, "rest column"]:
        """Return the cells of the one record that is missing besides these, which all rows' sum gives; else nothing."""
        if self._counts is None or len(rows) != self._records - 1:
            return rows.new_empty(0, len(self._encoder.schema.columns))
        raw = self._counts - (rows * self._encoder.std + self._encoder.mean).sum(0)
        return self._encoder.decode(((raw - self._encoder.mean) / self._encoder.std)[None])

    def left(
        self, rows: Float[Tensor, "try record encoded"], labels: Float[Tensor, " record"]
    ) -> Float[Tensor, "try entry"]:
        """Return the gradient and the statistics without whole batches, in roundings of their usual entries."""
        # A shift that all records share is normalised away; only the statistics reveal it.
        place = {name: p.expand(len(rows), *p.shape) for name, p in self._place.items()}
        sent = gradient(self._model, rows, labels.expand(len(rows), -1), place)
        rest = [(part - sent[name]) / self._unit(name) for name, part in self._received.items()]
        for name, computed in batch_statistics(self._model, rows, place).items():
            mean, variance = self._moments[name]
            level, spread = ((mean.square() + variance).mean().sqrt(), variance.square().mean().sqrt())
            rest += [(mean - computed.mean) / level, (variance - computed.variance) / spread]
        return torch.cat([part.flatten(1) for part in rest], 1) / self._rounding

    def is_rounding(self, left: Float[Tensor, " entry"]) -> bool:
        """Return whether the rest is rounding in each layer's gradient and each of the statistics."""
        sizes = [g.numel() for g in self._received.values()]
        sizes += [t.numel() for moments in self._moments.values() for t in moments]
        return all(float(part.square().mean().sqrt()) <= SAME for part in left.split(sizes))

    def _unit(self, name: str) -> float:
        """Return what differences of a tensor are measured in, times a rounding.

        That is the root mean square of its layer's gradient, since that of a bias before normalisation is rounding
        alone; or such a share of the noise that ``SAME`` of them are a few standard deviations.
        """
        layer = name.rpartition(".")[0]
        entries = [g.flatten() for other, g in self._received.items() if other.rpartition(".")[0] == layer]
        noise = _NOISES * self._noise.get(name, 0.0) / (SAME * self._rounding)
        return max(float(torch.cat(entries).square().mean().sqrt()), noise, 1e-300)

    def _biased(self, positions: int) -> float:
        return 1 - 1 / (self._records * positions)

    def _basis(self, parts: Sequence[Tensor], centred: bool, noise: float = 0.0) -> Float[Tensor, "rank input"]:
        """Return orthonormal rows that a layer's gradient spans; where errors add up to zero the bias says nothing."""
        sent = torch.cat([parts[0], *(bias[:, None] for bias in parts[1:])], 1) if not centred else parts[0]
        scale = row_scale(sent)
        # Units that noise alone may have moved say nothing; scaled up it would have the others' size.
        scale = torch.where(scale > _HEARD * noise * sent.shape[1] ** 0.5, scale, torch.full_like(scale, torch.inf))
        if not bool(scale.isfinite().any()):
            self._hidden |= bool(sent.any())
            return sent[:0]
        _, values, right = torch.linalg.svd(sent / scale[:, None], full_matrices=False)
        # A matrix of noise alone has a norm next to this (Davidson and Szarek 2001).
        loudest = noise / float(scale.min()) * (sent.shape[0] ** 0.5 + sent.shape[1] ** 0.5)
        most = self._records - centred
        least = max(_ROUNDINGS * self._rounding * float(values[0]), _ABOVE_NOISE * loudest)
        rank = int((values > least).sum())
        self._excess = max(self._excess, int((values > _CLEARLY * least).sum()) - most)
        # Directions beyond the rank are not there, or are too short to be told from noise.
        self._hidden |= bool(noise) and rank < min(most, *sent.shape)
        return right[: min(most, rank)]

    def _at_end(self, inputs: Tensor, outputs: Tensor, sent: Tensor) -> CandidateEvidence:
        """Return a layer's evidence about copies and labels, where its errors are those of the outputs."""
        total = torch.linalg.pinv(inputs.T) @ (self._records * sent.T)
        inside = outputs.new_zeros(len(inputs))
        if self._model.head == "softmax":
            return CandidateEvidence(inside, inside, outputs.softmax(-1), total, outputs, total / self._records)
        chances = torch.cat([1 - outputs.sigmoid(), outputs.sigmoid()], -1)
        both = torch.cat([-total, total], -1)
        return CandidateEvidence(inside, inside, chances, both, outputs, total / self._records)


class Seen(ReplayedBatch):
    """Evidence about records in the gradient and the statistics of a network that ``opening`` takes."""

    def __init__(
        self,
        view: GradientView,
        victim: int,
        records: int,
        moments: Mapping[str, Moments],
        encoder: Encoder,
        noise: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(view, victim, records, moments, encoder, noise)
        opened = opening(view.model.module)
        assert opened is not None
        self._names = {part: name for name, part in view.model.module.named_modules()}
        mean = encoder.mean
        if isinstance(opened.first, nn.Conv1d):
            weight, positions = self._convolving(opened.first)
            bias = weight.new_zeros(len(weight))
            # The gradient of a convolution is a sum over positions and spans no rows.
            first = span_of(torch.eye(encoder.width + 1, dtype=torch.float64, device=mean.device))
        else:
            (weight, bias), positions = self._affine(opened.first), 1
            quiet = self._noise.get(f"{self._names[opened.first]}.weight", 0.0)
            basis = self._basis(self._gradient_of(opened.first), opened.first_norm is not None, quiet)
            first = span_of(basis)
            if opened.first_norm is not None:
                outputs = self._moments[self._names[opened.first_norm]].mean - bias
                raw, open_ = mean_row(encoder, weight, outputs, basis)
                mean = (raw - encoder.mean) / encoder.std
                if not len(open_):
                    self._counts = raw * records
                    self.occurring = encoder.is_continuous | (self._counts > 0.5)
                first = span_of(torch.cat([basis, open_]), mean)
        inside = len(weight)
        quiet = self._noise.get(f"{self._names[opened.second]}.weight", 0.0)
        basis = self._basis(self._gradient_of(opened.second), opened.second_norm is not None, quiet)
        if opened.second_norm is None:
            second = span_of(torch.cat([basis[:, :inside], basis[:, -1:]], 1))
        else:
            across, shift = self._affine(opened.second)
            outputs = self._moments[self._names[opened.second_norm]].mean - shift
            beside = across[:, inside:] @ mean if opened.beside else 0.0
            middle, open_ = solved(across[:, :inside], outputs - beside)
            second = span_of(torch.cat([basis[:, :inside], open_]), middle)
        self.spans = [first, second]
        if opened.first_norm is not None:
            scale, shift = self._normalising(opened.first_norm, positions)
            weight, bias = scale[:, None] * weight, scale * bias + shift
        self.network = Network((weight,), (bias,))
        self._body, self._last = self._frozen({opened.first_norm: positions})

    def evidence(self, rows: Float[Tensor, "record encoded"]) -> CandidateEvidence:
        """Return the last layer's evidence about copies and labels, if these are all records."""
        weight, bias = self._affine(self._last)
        inputs = extended(functional_call(self._body, self._place, rows))
        outputs = inputs @ torch.cat([weight, bias[:, None]], 1).T
        sent = torch.cat([part.view(len(weight), -1) for part in self._gradient_of(self._last)], 1)
        return self._at_end(inputs, outputs, sent)

    def _affine(self, layer: nn.Module) -> tuple[Tensor, Tensor]:
        return self._place[f"{self._names[layer]}.weight"], self._place[f"{self._names[layer]}.bias"]

    def _gradient_of(self, layer: nn.Module) -> tuple[Tensor, Tensor]:
        return self._received[f"{self._names[layer]}.weight"], self._received[f"{self._names[layer]}.bias"]

    def _convolving(self, layer: nn.Conv1d) -> tuple[Float[Tensor, "unit encoded"], int]:
        """Return a convolution as a matrix, and the number of its positions."""
        kernel = self._place[f"{self._names[layer]}.weight"]
        identity = torch.eye(self._encoder.width, dtype=kernel.dtype, device=kernel.device)
        outputs = nn.functional.conv1d(identity[:, None], kernel)
        return outputs.flatten(1).T, outputs.shape[-1]

    def _normalising(self, norm: BatchNorm, positions: int) -> tuple[Float[Tensor, " unit"], Float[Tensor, " unit"]]:
        """Return scale and shift of each unit by a normalisation of this batch."""
        mean, variance = self._moments[self._names[norm]]
        weight, bias = self._affine(norm)
        scale = weight * (variance * self._biased(positions) + norm.eps).rsqrt()
        return scale.repeat_interleave(positions), (bias - scale * mean).repeat_interleave(positions)

    def _frozen(self, positions: Mapping[BatchNorm | None, int]) -> tuple[nn.Module, nn.Linear]:
        """Return the module without its last layer, which normalises every row as this batch was, and that layer."""
        parts = parts_of(self._model.module)
        assert parts is not None
        last = parts[-1]
        assert isinstance(last, nn.Linear)
        applied = {}
        for norm, name in self._names.items():
            if name in self._moments:
                assert isinstance(norm, BatchNorm)
                mean, variance = self._moments[name]
                applied[name] = Moments(mean, variance * self._biased(positions.get(norm, 1)))
        body = frozen(self._model.module, applied).to(self._encoder.mean)
        body.set_submodule(self._names[last], nn.Identity())
        return body, last


def mean_row(
    encoder: Encoder,
    weight: Float[Tensor, "unit encoded"],
    outputs: Float[Tensor, " unit"],
    basis: Float[Tensor, "rank encoded"],
) -> tuple[Float[Tensor, " encoded"], Float[Tensor, "free encoded"]]:
    """Return the mean of a batch's raw rows, and the directions in which the encoded one may lie anywhere."""
    # From the first layer's output for the encoded mean, less its bias, and a basis of the differences of encoded rows.
    open_ = torch.linalg.vector_norm(basis, dim=0) > _VARIES
    sums = weight.new_zeros(len(encoder.schema.discrete), encoder.width)
    for index, i in enumerate(encoder.schema.discrete):
        block = encoder.schema.blocks[i]
        # One category for all leaves its column as constant as the others.
        if not bool(open_[block].any()):
            open_[block] = True
        sums[index, block] = encoder.std[block]
    open_ |= encoder.is_continuous
    # As long as nothing else is known, a raw column is 0, and the columns of a block add up to 1.
    row = torch.where(open_, torch.zeros_like(encoder.mean), -encoder.mean / encoder.std)
    system = torch.cat([weight, sums])
    wanted = torch.cat([outputs, 1 - sums @ (encoder.mean / encoder.std)]) - system @ row
    row[open_], within = solved(system[:, open_], wanted)
    free = row.new_zeros(len(within), len(row))
    free[:, open_] = within
    return row * encoder.std + encoder.mean, free


def solved(
    system: Float[Tensor, "equation unknown"], wanted: Float[Tensor, " equation"]
) -> tuple[Float[Tensor, " unknown"], Float[Tensor, "free unknown"]]:
    """Return the shortest solution, and the directions that no equation determines."""
    left, values, right = torch.linalg.svd(system)
    rank = int((values > _DETERMINED * values[:1].max()).sum())
    return right[:rank].T @ ((left[:, :rank].T @ wanted) / values[:rank]), right[rank:]


def span_of(rows: Float[Tensor, "row input"], mean: Float[Tensor, " mean"] | None = None) -> Span:
    """Return the span of rows; with a mean, that of rows around it, extended by a 1."""
    if mean is not None:
        row = extended(mean[None])
        rows = torch.cat([torch.cat([rows, rows.new_zeros(len(rows), 1)], 1), row / row.norm()])
    _, values, right = torch.linalg.svd(rows)
    rank = int((values > _DETERMINED * values[:1].max()).sum()) if len(values) else 0
    none = rows.new_zeros(0)
    return Span(none, right[:rank], right[rank:], none.view(0, 0), rows.new_zeros(rows.shape[1], 0))
