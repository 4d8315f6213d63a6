"""Records read by spans alone, where errors cannot be told: behind a layer is what stayed with the client, or training.

A record's errors depend on all that is behind a layer, its inputs only on what is before it. So where a personal head
is unknown, the inputs of the layers before it still lie in the spans of their gradients, which need no errors. The same
holds of the layers that take the rows themselves over all steps of a local training, whatever the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, occurring
from seepage.attacks.horizontal.exact.gradients import STRICT, Gradient
from seepage.attacks.horizontal.exact.harvest import CHANGES, Harvest, RecordHarvester, tells
from seepage.attacks.horizontal.exact.probes import UnreadableError, close
from seepage.attacks.horizontal.exact.spans import Span
from seepage.attacks.horizontal.exact.traced import TracedNetwork, typical_rows
from seepage.attacks.horizontal.matching.starts import rounds_within
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics

# Layers in whose spans records were read, and the doubt about rows that were read so.
BEFORE_UNSENT, TAKING_ROWS = "before what stayed with the client", "that take the rows"
NO_REPLAYS: Mapping[str | None, str] = {
    BEFORE_UNSENT: "what stayed with the client is unknown, so that no record can be replayed",
    TAKING_ROWS: "errors of the records are not known, so that rows in the span of a layer are read and not proved",
}

_PATIENCE = 3  # rounds without a new record after which no more is expected
_PROBED = 64  # rows on which inputs are compared
_DEPENDENT = 1e-6  # share of a row that lies outside the span of others, below which it is a combination of them
_ARRIVED = 0.05  # squared misfit at which a search has arrived where gradients are not exact


def before_unknown(network: TracedNetwork, local: Sequence[str]) -> TracedNetwork | None:
    """Return the network with those taps whose inputs do not depend on unknown parameters; None without any layer."""
    same = _unmoved(network, local)
    taps = tuple(tap for tap in network.taps if same[tap.layer])
    # What lies outside the spans of layers that take the row is measured for all of them.
    return replace(network, taps=taps) if network.affine and all(same[: network.affine]) else None


def _unmoved(network: TracedNetwork, names: Sequence[str]) -> list[bool]:
    """Return of each watched layer whether its inputs stay the same where some parameters are others."""
    parameters = dict(network.module.named_parameters())
    rows, moved = network.probes.rows[:_PROBED], {}
    for name in names:
        parameter = parameters[name].detach()
        moved[name] = parameter + torch.linspace(-1, 1, parameter.numel()).to(parameter).view_as(parameter)
    ours, theirs = network.run(rows).entering, network.with_parameters(moved).run(rows).entering
    return [close(mine.detach(), other.detach()) for mine, other in zip(ours, theirs, strict=True)]


def taking_rows(model: Model, schema: Schema, statistics: Statistics) -> TracedNetwork | None:
    """Return the network with the layers whose inputs are the row's, whatever the parameters; None without any."""
    encoder = Encoder(schema, statistics, device=next(model.module.parameters()).device)
    try:
        network = TracedNetwork.of(model, typical_rows(encoder, statistics), model.parameters, encoder=encoder)
    except UnreadableError:
        return None
    # A layer behind an affine one has inputs that change while a client trains.
    unmoved = [k for k, same in enumerate(_unmoved(network, list(model.parameters))[: network.affine]) if same]
    if unmoved[:1] != [0]:
        return None
    layers, maps = (tuple(part[k] for k in unmoved) for part in (network.layers, network.maps))
    return replace(network, layers=layers, maps=maps, taps=())


class UnsentHarvester(RecordHarvester):
    """Reads rows that lie in the spans of all layers before what is unknown; nothing is proved, and no label is read.

    Where more such rows are found than there are records, or some are combinations of others, only those are kept that
    no others can stand for: each set of rows that spans the layer's gradient has them.
    """

    def run(self, gradient: Gradient, noise: Sequence[float] | None, seed: int) -> Harvest:
        """Read the records, with the noise of each layer as a standard deviation where gradients are not exact."""
        generator = torch.Generator().manual_seed(seed)
        network, records = gradient.network, gradient.records
        spans = _spans(gradient, noise)
        none = self._encoder.mean.new_empty(0, len(self._encoder.schema.columns))
        cells, barren = none, 0
        entered = len(network.entries())
        judging = [k for k in (*range(entered), *(tap.layer for tap in network.taps)) if tells(spans[k])]
        allowed = torch.ones_like(self._encoder.is_continuous)
        if network.takes_rows and noise is None:
            allowed = occurring(self._encoder, spans[0], gradient.rounding)
        search = CellsSearch(self._encoder, network, spans, allowed)
        for _ in rounds_within(self._rounds, self._seconds) if judging else ():
            ends = search.run(*self._starts.draw(allowed, generator), CHANGES, self._starts.report)
            new = self._starts.ends(ends, STRICT.misfit if noise is None else _ARRIVED)
            if noise is None:
                new = new[self._inside(gradient, spans, judging, new)]
            before = len(cells)
            cells = self._starts.distinct(torch.cat([cells, new]))
            barren = 0 if len(cells) > before else barren + 1
            if barren == _PATIENCE:
                break
        rows = self._rows(cells)
        alone = _alone(torch.cat([rows, torch.ones_like(rows[:, :1])], 1))
        cells = cells[alone]
        cells = cells if len(cells) <= records else none
        errors = self._starts.numbers(cells)
        if len(cells):
            errors = search.spread(search.run(*self._starts.of(cells), 0)) * self._encoder.std[self._starts.place]
        labels = torch.zeros(len(cells), dtype=torch.float64, device=cells.device)
        harvest = Harvest.of_spans(spans, cells, labels, self._starts.spread(cells, errors))
        if any(k >= entered for k in judging) or len(cells) == min(spans[0].rank, records):
            return harvest
        # Where maps of the row alone judge, a combination of records may be a row of the table, too. It shows as one
        # beside all records, but some are missing: nothing is sure.
        unsure = torch.full_like(harvest.spread[:, self._starts.continuous], torch.inf)
        return replace(harvest, spread=self._starts.spread(cells, unsure), traceless=torch.ones_like(harvest.traceless))

    def _inside(
        self, gradient: Gradient, spans: Sequence[Span], judging: Sequence[int], cells: Tensor
    ) -> Bool[Tensor, " candidate"]:
        """Return which candidates lie in the spans of all judging layers."""
        inside = torch.ones(len(cells), dtype=torch.bool, device=cells.device)
        entering = gradient.network.run(self._rows(cells)).entering if len(cells) else []
        for index in judging if len(cells) else ():
            inputs = entering[index].detach()
            inside &= (inputs @ spans[index].off_rows.T).norm(dim=1) / inputs.norm(dim=1) < STRICT.outside
        return inside


def in_words(harvest: Harvest, records: int, layers: str) -> str:
    """Return what was read as a clause."""
    others = "" if len(harvest.cells) == records else ", the others estimated"
    read = f"{len(harvest.cells)} of {records} records read in the spans of the layers {layers}"
    return f"{read}, none proved, labels estimated{others}"


def _spans(gradient: Gradient, noise: Sequence[float] | None) -> list[Span]:
    """Return the spans of the layers; with noise those above it, and of at most as many dimensions as records."""
    if noise is None:
        return gradient.spans()
    spans = []
    for index, layer in enumerate(gradient.received[: gradient.network.hidden]):
        largest, ones = float(torch.linalg.matrix_norm(layer, 2)), torch.ones_like(layer[:, 0])
        spans.append(Span.of(layer, ones, largest, gradient.rounding, noise[index], gradient.records))
    return spans


def _alone(rows: Float[Tensor, "row extended"]) -> Bool[Tensor, " row"]:
    """Return which rows are in no linear dependence of all rows."""
    if not len(rows):
        return torch.zeros(0, dtype=torch.bool, device=rows.device)
    left, values, _ = torch.linalg.svd(rows, full_matrices=True)
    rank = int((values > _DEPENDENT * values[0]).sum())
    # A dependence is a vector of the left null space; a row has no part in any where its entries there are 0.
    return left[:, rank:].norm(dim=1) < _DEPENDENT**0.5
