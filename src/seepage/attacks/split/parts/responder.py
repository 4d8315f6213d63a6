"""Responses of a client part to candidates: its logits, and their derivatives by the cut.

What a record's cut, or a candidate's cells, contributes alone is computed once and combined for each pair. Of a DeepFM
client both add up to the first layer's units, and derivatives follow in closed form (``DeepFMClient.responses_of``). A
user's module is a black box: one backward pass a logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.models.deepfm import DeepFMClient, Shared
from seepage.models.split import SplitModel


class _RawRows(NamedTuple):
    """Cuts or cells as they are."""

    rows: Tensor


@dataclass(frozen=True)
class Side:
    """Records, or candidates, in the form that a responder prepared."""

    parts: Shared | _RawRows

    def rows(self, index: Tensor) -> Side:
        """Return some of the records or candidates, by position."""
        return Side(self.parts._make(part[index] for part in self.parts))

    def across(self) -> Side:
        """Return records as rows of a grid with the candidates as columns."""
        return Side(self.parts._make(part[:, None] for part in self.parts))


@dataclass(frozen=True)
class Responder:
    """Responses for records and candidates; their leading axes broadcast, so that pairs and grids use the same call.

    Attributes:
        additive: position in the cut of the first coordinate that is added to a logit, one each; None where there are
            none.
    """

    client: DeepFMClient | _BlackBox
    additive: int | None

    def of_cut(self, cut: Float[Tensor, "record cut"]) -> Side:
        """Return prepared records."""
        with torch.no_grad():
            return Side(self.client.of_cut(cut))

    def of_cells(self, cells: Float[Tensor, "candidate private"]) -> Side:
        """Return prepared candidates."""
        with torch.no_grad():
            return Side(self.client.of_cells(cells))

    def outputs(self, records: Side, candidates: Side) -> Float[Tensor, "*some output"]:
        """Return logits."""
        with torch.no_grad():
            return self.client.outputs_of(records.parts, candidates.parts)  # type: ignore[arg-type]

    def responses(
        self, records: Side, candidates: Side
    ) -> tuple[Float[Tensor, "*some output"], Float[Tensor, "*some output cut"]]:
        """Return logits and their derivatives with respect to the cut."""
        with torch.no_grad():
            return self.client.responses_of(records.parts, candidates.parts)  # type: ignore[arg-type]

    def grid(
        self, cut: Float[Tensor, "record cut"], cells: Float[Tensor, "candidate private"]
    ) -> tuple[Float[Tensor, "record candidate output"], Float[Tensor, "record candidate output cut"]]:
        """Return logits and derivatives of all records under all candidates."""
        return self.responses(self.of_cut(cut).across(), self.of_cells(cells.to(cut)))


def responder(model: SplitModel, closed_form: bool = True) -> Responder:
    """Return the responder of a network's client part: in closed form where one is known, otherwise by autograd."""
    if closed_form and isinstance(model.client, DeepFMClient):
        return Responder(model.client, model.client.additive)
    return Responder(_BlackBox(model.client), None)


@dataclass(frozen=True)
class _BlackBox:
    """Any module, by one backward pass a logit."""

    module: nn.Module

    def of_cut(self, cut: Tensor) -> _RawRows:
        return _RawRows(cut)

    def of_cells(self, cells: Tensor) -> _RawRows:
        return _RawRows(cells)

    def outputs_of(self, record: _RawRows, candidate: _RawRows) -> Tensor:
        cut, cells, shape = _paired(record, candidate)
        return self.module(cut, cells).unflatten(0, shape)

    @torch.enable_grad()
    def responses_of(self, record: _RawRows, candidate: _RawRows) -> tuple[Tensor, Tensor]:
        cut, cells, shape = _paired(record, candidate)
        cut = cut.detach().clone().requires_grad_(True)
        logits = self.module(cut, cells)
        slopes = [torch.autograd.grad(logit.sum(), cut, retain_graph=True)[0] for logit in logits.unbind(1)]
        return logits.detach().unflatten(0, shape), torch.stack(slopes, dim=1).unflatten(0, shape)


def _paired(record: _RawRows, candidate: _RawRows) -> tuple[Tensor, Tensor, Sequence[int]]:
    shape = torch.broadcast_shapes(record.rows.shape[:-1], candidate.rows.shape[:-1])
    return record.rows.expand(*shape, -1).flatten(0, -2), candidate.rows.expand(*shape, -1).flatten(0, -2), shape


def width_of(model: SplitModel) -> int:
    """Return the approximate number of values of the client part's forward pass for a record."""
    return max(1, sum(p.shape[0] for p in model.client.parameters() if p.dim() > 1))
