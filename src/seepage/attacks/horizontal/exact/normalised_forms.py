"""Evidence about records behind batch normalisation, in networks of any form."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.gradients import CandidateEvidence
from seepage.attacks.horizontal.exact.normalised import ReplayedBatch, Seen, mean_row, opening, solved, span_of
from seepage.attacks.horizontal.exact.probes import UnreadableError, WatchedLayer
from seepage.attacks.horizontal.exact.spans import Span
from seepage.attacks.horizontal.exact.traced import TracedNetwork, typical_rows
from seepage.models.batch_norm import Moments, inputs_seen
from seepage.models.linear_calls import linear_calls
from seepage.tabular.encoder import Encoder
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import GradientView

_NONE = 1e-12  # share of the largest entry of a diagonal matrix at which an entry counts as zero


def seen_of(
    view: GradientView,
    victim: int,
    records: int,
    moments: Mapping[str, Moments],
    encoder: Encoder,
    statistics: Statistics,
    noise: Mapping[str, float] | None = None,
) -> ReplayedBatch:
    """Return the evidence about records in a victim's gradient and the statistics of its batch.

    ``noise`` is the standard deviation of what rounded parameters add to each entry, by name.
    """
    if opening(view.model.module) is not None:
        return Seen(view, victim, records, moments, encoder, noise)
    return TracedSeen(view, victim, records, moments, encoder, statistics, noise)


class TracedSeen(ReplayedBatch):
    """Evidence about records in the gradient and the statistics (``moments``) of a network of any form.

    Where the errors of a layer add up to zero, its gradient spans differences of its inputs alone; their mean follows
    from the moments of what the layer returns. Unreadable where no layer distinguishes records or has the outputs'
    errors.
    """

    def __init__(
        self,
        view: GradientView,
        victim: int,
        records: int,
        moments: Mapping[str, Moments],
        encoder: Encoder,
        statistics: Statistics,
        noise: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(view, victim, records, moments, encoder, noise)
        rows = typical_rows(encoder, statistics)
        given = normalised_inputs(view.model.module, rows[:2])
        applied = {}
        for name, (mean, variance) in self._moments.items():
            positions = given[name].numel() // (given[name].shape[0] * given[name].shape[1])
            applied[name] = Moments(mean, variance * self._biased(positions))
        self._traced = self.network = TracedNetwork.of(view.model, rows, self._place, applied, encoder)
        if self._traced.last is None:
            raise UnreadableError("batch normalisation, and no affine layer whose errors are those of the outputs")
        for name, entered in given.items():
            if entered.shape == rows[:2].shape and torch.equal(entered.double(), rows[:2].to(entered).double()):
                self._take_mean(self._moments[name].mean * encoder.std + encoder.mean)
        pairs = zip(self._traced.layers, self._traced.gradients(self._received), strict=True)
        self.spans = [self._span(index, layer, sent) for index, (layer, sent) in enumerate(pairs)]

    @property
    def _searched(self) -> list[Span]:
        places = {*range(self._traced.affine), *(tap.layer for tap in self._traced.taps)}
        return [span for index, span in enumerate(self.spans) if index in places]

    def evidence(self, rows: Float[Tensor, "record encoded"]) -> CandidateEvidence:
        """Return the last layer's evidence about copies and labels, if these are all records."""
        module, last = self._traced.module, self._traced.last
        assert last is not None
        run = linear_calls(module, rows, [last.place])
        sent = last.received(module, self._received, self._traced.probes.rows[0])
        return self._at_end(last.entered(run.calls[0]), run.outputs, sent)

    def _span(self, index: int, layer: WatchedLayer, sent: Tensor) -> Span:
        """Return the span of a layer's inputs."""
        # Weights may be computed from several parameters.
        basis = self._basis([sent], layer.centred is not None, max(self._noise.values(), default=0.0))
        if layer.centred is None:
            return span_of(basis)
        network, encoder = self._traced, self._encoder
        row = network.probes.rows[:1]
        call = linear_calls(network.module, row, [layer.place], until=[layer.place]).calls[0]
        weight, outputs = call.weight.detach(), self._moments[layer.centred].mean
        outputs = outputs if call.bias is None else outputs - call.bias.detach()
        if index < network.affine and _is_diagonal(network.maps[index][0]):
            linear, constant = network.maps[index]
            raw, open_ = mean_row(encoder, weight @ linear, outputs - weight @ constant, basis)
            middle = linear @ ((raw - encoder.mean) / encoder.std) + constant
            if not len(open_):
                self._take_mean(raw)
            open_ = open_ @ linear.T
        else:
            middle, open_ = solved(weight, outputs)
        return span_of(torch.cat([basis, open_]), middle)

    def _take_mean(self, raw: Float[Tensor, " encoded"]) -> None:
        """Note the mean of the raw rows."""
        self._counts = raw * self._records
        self.occurring = self._encoder.is_continuous | (self._counts > 0.5)


def normalised_inputs(module: nn.Module, rows: Float[Tensor, "row encoded"]) -> dict[str, Tensor]:
    """Return the inputs of each batch normalisation by the batch that runs, by its name."""
    with torch.no_grad(), inputs_seen(module) as inputs:
        module(rows.to(next(module.parameters())))
    return inputs


def _is_diagonal(linear: Tensor) -> bool:
    if linear.shape[0] != linear.shape[1]:
        return False
    return bool((linear - linear.diagonal().diag()).abs().max() <= _NONE * linear.abs().max())
