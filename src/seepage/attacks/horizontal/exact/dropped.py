"""Records of clients that drop values behind the first layer: that layer's gradient still spans their rows.

A client's masks of dropout are sent to nobody, so that what a record adds to the layers behind the first one cannot be
computed. The first layer's gradient is the sum over records of error times encoded row all the same. So the rows lie in
the span of its rows, whatever the masks are, and each error in the span of its columns, with zeros at the units that
the record does not activate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, occurring
from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.harvest import CHANGES, Harvest, RecordHarvester
from seepage.attacks.horizontal.exact.spans import Span
from seepage.attacks.horizontal.exact.traced import TracedGradient, TracedNetwork
from seepage.attacks.horizontal.matching.starts import rounds_within
from seepage.models.copies import copied
from seepage.models.linear_calls import linear_calls
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, RecordsGuess

# Least number of dimensions outside the rows' span: fewer seldom distinguish records from their combinations.
_LEAST_OUTSIDE = 8
_LEAST_SILENT = 4  # number of a record's units without an error, above the rank, that distinguish it from others
_NO_ERROR = 1e-2  # share of an error's length at units that should have none
_OFF = 1e-4  # share of a row that may lie outside the span
_PATIENCE = 3  # rounds without a find after which nothing more is expected
_REDRAWN = 0.2  # chance of a guessed cell to be drawn again where a search begins near it
_FEW_ROWS = 8  # rows with which it is seen whether anything is dropped before the first layer


def obstacle(network: TracedNetwork, model: Model) -> str | None:
    """Return why no record can be read off the first layer of a network that drops values; None where they can be."""
    drops = model.drops
    if not network.takes_rows:
        return "the network drops values at random, and its first layer does not take the encoded row with a bias"
    assert drops is not None
    rows = network.probes.rows[:_FEW_ROWS]
    masks = drops.draw([len(rows)], torch.Generator().manual_seed(0)).to(rows)
    place = network.layers[0].place
    # In evaluation nothing is dropped.
    module = copied(network.module).train()
    [call] = linear_calls(module, torch.cat([rows, masks], 1), [place], until=[place]).calls
    if call.entering.shape != rows.shape or not torch.equal(call.entering, rows):
        return "the network drops values at random before its first layer"
    return None


_Estimate = Callable[[], RecordsGuess]


class DroppedHarvester(RecordHarvester):
    """Reads records that lie in the span of the first layer's gradient; none of them is proved.

    Source: own, after SPEAR (Dimitrov et al., NeurIPS 2024), which distinguishes records by the zeros of their errors
    as well.
    """

    def run(
        self, network: TracedNetwork, view: GradientView, victim: int, records: int, seed: int, guess: _Estimate
    ) -> Harvest:
        """Read the records that can be distinguished from combinations of records."""
        # Many combinations of records lie in the span, too: where searches from public marginals find nothing more,
        # further ones begin near ``guess``, an estimate of the batch.
        generator = torch.Generator().manual_seed(seed)
        network = replace(network, layers=network.layers[:1], maps=network.maps[:1], taps=())
        gradient, starts = TracedGradient(network, view, victim, records), self._starts
        taken = _Taken(gradient, self._client, self._encoder)
        spans, barren = [taken.span()], 0
        near: Tensor | None = None
        for _ in rounds_within(self._rounds, self._seconds):
            span = taken.span()
            if not span.rank or len(span.off_rows) < _LEAST_OUTSIDE or len(taken.cells) >= records:
                break
            if barren == _PATIENCE:
                if near is not None:
                    break
                near, barren = guess().cells[0], 0
            allowed = occurring(self._encoder, span, gradient.rounding)
            begun = starts.draw(allowed, generator) if near is None else starts.near(near, _REDRAWN, generator)
            ends = CellsSearch(self._encoder, network, [span], allowed).run(*begun, CHANGES)
            candidates = starts.distinct(starts.ends(ends, gradient.tolerances.misfit))
            barren = 0 if taken.take(network, span, candidates, records) else barren + 1
        labels = _labels(network, gradient, self._client, taken.cells, taken.errors)
        return Harvest.of_spans(spans, taken.cells, labels, starts.spread(taken.cells, 0.0))


class _Taken:
    """Records that were removed from the first layer's gradient, and the rest of it."""

    def __init__(self, gradient: TracedGradient, client: Encoder, encoder: Encoder) -> None:
        self._gradient, self._client = gradient, client
        self._left = gradient.received[0].clone()
        self.cells = self._left.new_empty(0, len(encoder.schema.columns))
        self.errors = self._left.new_empty(0, len(self._left))

    def span(self) -> Span:
        """Return the span of the remaining gradient."""
        return self._gradient.span(0, self._left)

    def take(self, network: TracedNetwork, span: Span, cells: Float[Tensor, "row column"], most: int) -> bool:
        """Remove the rows that are records, and return whether there were any."""
        rows = self._client.encode(cells).double()
        extended = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
        inside = (extended @ span.off_rows.T).norm(dim=1) < _OFF * extended.norm(dim=1)
        cells, rows, extended = cells[inside], rows[inside], extended[inside]
        errors, sure, testable = _own_errors(network, span, rows)
        if not bool(testable.any()) and len(cells) <= span.rank:
            # Where no unit tells records apart, all that fit are taken if they fit together.
            errors, sure = (self._left @ torch.linalg.pinv(extended)).T, torch.ones_like(sure)
        before = len(self.cells)
        for row, error, cell in zip(extended[sure], errors[sure], cells[sure], strict=True):
            now = self.span()
            if len(self.cells) >= most or float((now.off_rows @ row).norm()) > _OFF * float(row.norm()):
                continue
            # What a record adds is what leaves one dimension less (Wedderburn's rank reduction).
            share = float(row @ now.inverse @ (error / now.scale))
            if share:
                self._left = self._left - error[:, None] / share * row
                self.cells = torch.cat([self.cells, cell[None]])
                self.errors = torch.cat([self.errors, error[None] / share])
        return len(self.cells) > before


def _own_errors(
    network: TracedNetwork, span: Span, rows: Float[Tensor, "row encoded"]
) -> tuple[Float[Tensor, "row unit"], Bool[Tensor, " row"], Bool[Tensor, " row"]]:
    """Return the direction of each row's error, where its zeros determine it, and where they could."""
    # An error lies in the span of the columns and is zero at the units that the row does not activate.
    units = len(span.scale)
    errors = rows.new_zeros(len(rows), units)
    sure = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    if not len(rows):
        return errors, sure, sure
    # The span's columns, in units of the gradient's own rows.
    columns = torch.linalg.svd(span.inverse.T @ span.rows.T, full_matrices=False).U
    reacted = span.scale.isfinite()
    silent = network.run(rows).quiet() & reacted
    testable = silent.sum(1) >= span.rank + _LEAST_SILENT
    for row in testable.nonzero()[:, 0].tolist():
        _, values, right = torch.linalg.svd(columns[silent[row]])
        if float(values[-1]) < _NO_ERROR and (span.rank < 2 or float(values[-2]) > _NO_ERROR):
            errors[row] = torch.where(reacted, (columns @ right[-1]) * span.scale.nan_to_num(posinf=0.0), 0.0)
            sure[row] = True
    return errors, sure, testable


def _labels(
    network: TracedNetwork,
    gradient: Gradient,
    client: Encoder,
    cells: Float[Tensor, "record column"],
    errors: Float[Tensor, "record unit"],
) -> Float[Tensor, " record"]:
    """Return the label with which each record's error without dropout is most alike to its own."""
    if not len(cells):
        return cells.new_zeros(0)
    rows = client.encode(cells).double()
    classes = torch.arange(gradient.classes, device=cells.device).double()
    if gradient.head == "regression":
        return network.run(rows).outputs[:, 0]
    alike = []
    for label in classes:
        counts = gradient.counted(label.expand(len(rows)))
        expected = gradient.contributions(rows, counts)[0][0]
        alike.append(torch.nn.functional.cosine_similarity(expected, errors, dim=1))
    return classes[torch.stack(alike, 1).argmax(1)]
