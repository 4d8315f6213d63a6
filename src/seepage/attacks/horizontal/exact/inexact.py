"""Records searched one by one in gradients that are not exact: noisy ones, and updates of several local steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, SearchEnds
from seepage.attacks.horizontal.exact.first_layer import quotients
from seepage.attacks.horizontal.exact.gradients import CandidateEvidence, Gradient, copies_labels
from seepage.attacks.horizontal.exact.harvest import CHANGES, Harvest, RecordHarvester, tells
from seepage.attacks.horizontal.exact.spans import Span
from seepage.attacks.horizontal.matching.starts import rounds_within

# Squared misfit at which a search has arrived; false ends lie at 0.1 and above as long as spans are good for anything.
_ARRIVED = 0.05
# Ends nearer to each other than so many standard deviations are one record's; up to the second number they are if one
# is so many times farther from the spans.
_SAME_RECORD, _NEAR, _WORSE = 0.1, 0.5, 10.0
_PATIENCE = 2  # rounds without an improvement after which no more is expected
# How many times what single records are usually off several copies have to explain better, and the least that counts.
_SEVERAL, _COUNTED = 5.0, 1e-3
_OCCURS = 4.0  # standard deviations above what chance makes of a category that no record has
_ROUNDINGS = 1e3  # roundings of a sum's terms that may be left of a sum that is zero


class InexactHarvester(RecordHarvester):
    """Reads records from gradients blurred by noise or by several local steps, one victim at a time; nothing is proved.

    The size of the blur is known: directions below it are left out. The first layer's inputs do not change while a
    client trains; the outputs of the first hidden layer are taken in the middle of the way, and their span is cut off
    at as many dimensions as there are records. Nothing has to be taken away: searches from other starts end at other
    records, and missing ones are also sought near what the others leave. Labels, and at last copies, come nearest to
    the second layer's gradient, see ``Gradient.evidence``. See docs/methods/unmix.md.
    """

    def run(self, gradient: Gradient, noise: Sequence[float], seed: int) -> Harvest:
        """Read the records that can be distinguished, with each layer's noise as a standard deviation."""
        generator = torch.Generator().manual_seed(seed)
        network = gradient.network
        deeper = network.taps[0].layer
        spans = self._spans(gradient, gradient.received, noise, gradient.records, None)
        none = self._encoder.mean.new_empty(0, len(self._encoder.schema.columns))
        ends, counts = SearchEnds(*self._starts.of(none), none.sum(1)), none.new_empty(0, gradient.classes)
        spread = ends.numbers
        if tells(spans[0]) and tells(spans[deeper]):
            allowed = self._occurring(gradient, noise[0])
            search = CellsSearch(self._encoder, network, spans, allowed)
            barren, before = 0, 0
            for _ in rounds_within(self._rounds, self._seconds):
                starts = self._starts.draw(allowed, generator)
                if barren and len(ends.misfit) < gradient.records:
                    starts = self._towards(gradient, noise, allowed, starts, gradient.records - len(ends.misfit))
                ends = self._distinct(ends, search.run(*starts, CHANGES, self._starts.report), gradient.records)
                cells = self._starts.cells(ends)
                rows = self._rows(cells)
                gradient.take(rows, counted(gradient.evidence(deeper, spans[deeper], rows), 0))
                barren = 0 if len(ends.misfit) > before else barren + 1
                before = max(before, len(ends.misfit))
                if barren == _PATIENCE or before == gradient.records:
                    break
            if len(ends.misfit) > spans[0].rank:
                # More rows than directions are mixtures of one another: none of them is told to be a record.
                ends = ends.of(torch.zeros(0, dtype=torch.long, device=none.device))
            # Only now: what looks like a copy may have been a record that was not found yet.
            rows = self._rows(self._starts.cells(ends))
            counts = counted(gradient.evidence(deeper, spans[deeper], rows), gradient.records - len(ends.misfit))
            spread = search.spread(ends) * self._encoder.std[self._starts.place]
        cells = self._starts.cells(ends)
        repeats = counts.sum(1).long()
        spreads = self._starts.spread(cells, spread).repeat_interleave(repeats, 0)
        cells = cells.repeat_interleave(repeats, 0)
        return Harvest.of_spans(spans, cells, copies_labels(counts), spreads)

    def _occurring(self, gradient: Gradient, noise: float) -> Bool[Tensor, " encoded"]:
        """Return which raw columns some record has: errors times raw cells add up to zero for the others."""
        if not gradient.network.takes_rows:
            return torch.ones_like(self._encoder.is_continuous)
        layer, mean, std = gradient.received[0], self._encoder.mean, self._encoder.std
        raw = (layer[:, :-1] * std + layer[:, -1:] * mean).square().sum(0)
        terms = (layer[:, :-1] * std).square().sum(0) + (layer[:, -1:] * mean).square().sum(0)
        units = len(layer)
        chance = noise**2 * (std.square() + mean.square()) * (units + _OCCURS * (2 * units) ** 0.5)
        return self._encoder.is_continuous | (raw > chance + (_ROUNDINGS * gradient.rounding) ** 2 * terms)

    def _distinct(self, ends: SearchEnds, new: SearchEnds, most: int) -> SearchEnds:
        """Return the ends nearest to the spans that are no two ends of one record's searches."""
        all_ends = SearchEnds.joined([ends, new.of(new.misfit < _ARRIVED)])
        sorted_ends = all_ends.of(all_ends.misfit.argsort(stable=True))
        cells = self._starts.cells(sorted_ends)
        # Near a record's end there may be another one of its own searches, clearly worse, or another record's.
        worse = sorted_ends.misfit[:, None] > _WORSE * sorted_ends.misfit
        apart = self._starts.apart(cells, cells, _NEAR) | (self._starts.apart(cells, cells, _SAME_RECORD) & ~worse)
        chosen: list[int] = []
        for i in range(len(cells)):
            if len(chosen) == most:
                break
            if bool(apart[i, chosen].all()):
                chosen.append(i)
        return sorted_ends.of(torch.tensor(chosen, dtype=torch.long, device=cells.device))

    def _towards(
        self,
        gradient: Gradient,
        noise: Sequence[float],
        allowed: Bool[Tensor, " encoded"],
        starts: tuple[Tensor, Tensor],
        missing: int,
    ) -> tuple[Tensor, Tensor]:
        """Return starts near the rest of the gradient without the records read."""
        most = max(1, missing)
        spans = self._spans(gradient, gradient.left, noise, most, most)
        if not tells(spans[0]) or not tells(spans[gradient.network.taps[0].layer]):
            return starts
        ends = CellsSearch(self._encoder, gradient.network, spans, allowed).run(*starts, CHANGES)
        if not gradient.network.takes_rows:
            return ends.codes, ends.numbers
        # Units that only one of the missing records activates hold it alone.
        layer = gradient.left[0]
        rows = quotients(layer[None, :, :-1], layer[None, :, -1])[0]
        alone = self._encoder.decode(rows[rows.isfinite().all(-1)])
        return (
            torch.cat([ends.codes, alone[:, self._starts.discrete].long()]),
            torch.cat([ends.numbers, self._starts.numbers(alone)]),
        )

    def _spans(
        self, gradient: Gradient, layers: Sequence[Tensor], noise: Sequence[float], most: int, first: int | None
    ) -> list[Span]:
        """Return the spans of the layers up to the one behind the first that a search compares."""
        # ``first``: largest number of dimensions for layers that take the row; None for any.
        affine, spans = len(gradient.network.entries()), []
        for index, layer in enumerate(layers[: gradient.network.taps[0].layer + 1]):
            largest, dimensions = float(torch.linalg.matrix_norm(layer, 2)), most if index >= affine else first
            ones = torch.ones_like(layer[:, 0])
            spans.append(Span.of(layer, ones, largest, gradient.rounding, noise[index], dimensions))
        return spans


def counted(evidence: CandidateEvidence, spare: int) -> Float[Tensor, "record label"]:
    """Return the copies of each label nearest to the evidence: at most ``spare`` in all beyond one of each record."""
    counts, off = _whole(evidence, 1)
    if not len(counts):
        return counts
    more, gained = counts.clone(), torch.zeros_like(off)
    least = max(_SEVERAL * float(off.median()), _COUNTED)
    for copies in range(2, spare + 2):
        whole, left = _whole(evidence, copies)
        better = off - left > gained.clamp_min(least)
        more[better], gained = whole[better], torch.where(better, off - left, gained)
    for i in gained.argsort(descending=True, stable=True)[: int((gained > 0).sum())].tolist():
        extra = int(more[i].sum()) - 1
        if extra <= spare:
            counts[i], spare = more[i], spare - extra
    return counts


def _whole(evidence: CandidateEvidence, copies: int) -> tuple[Float[Tensor, "record label"], Float[Tensor, " record"]]:
    """Return the whole numbers of labels of so many copies that come nearest, and by how much a copy they are off."""
    estimates = copies * evidence.chances - evidence.total
    counts = estimates.floor().clamp(0, copies)
    for _ in range(copies):
        open_ = counts.sum(1) < copies
        counts[open_, (estimates - counts)[open_].argmax(1)] += 1
    for _ in range(copies * estimates.shape[1]):
        over = counts.sum(1) > copies
        counts[over, torch.where(counts > 0, estimates - counts, torch.inf)[over].argmin(1)] -= 1
    return counts, (estimates - counts).abs().amax(1) / copies
