"""Responses of a client part for every record and candidate: logits and their derivatives with respect to the cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.models.deepfm import DeepFMClient, Shared
from seepage.models.split import SplitModel


@dataclass(frozen=True)
class Side:
    """Records, or candidates, in the form that a responder prepared."""

    tensors: tuple[Tensor, ...]

    def at(self, index: Tensor) -> Side:
        """Return some of the records or candidates, by position."""
        return Side(tuple(tensor[index] for tensor in self.tensors))

    def across(self) -> Side:
        """Return records as rows of a grid with the candidates as columns."""
        return Side(tuple(tensor[:, None] for tensor in self.tensors))


class Responder(ABC):
    """Responses for records and candidates; their leading axes broadcast, so that pairs and grids use the same call."""

    @property
    @abstractmethod
    def additive(self) -> int | None:
        """Position in the cut of the first coordinate that is added to a logit, one each; None where there are none."""

    @abstractmethod
    def of_cut(self, cut: Float[Tensor, "record cut"]) -> Side:
        """Return prepared records."""

    @abstractmethod
    def of_cells(self, cells: Float[Tensor, "candidate private"]) -> Side:
        """Return prepared candidates."""

    @abstractmethod
    def outputs(self, records: Side, candidates: Side) -> Float[Tensor, "*some output"]:
        """Return logits."""

    @abstractmethod
    def responses(
        self, records: Side, candidates: Side
    ) -> tuple[Float[Tensor, "*some output"], Float[Tensor, "*some output cut"]]:
        """Return logits and their derivatives with respect to the cut."""


def responder(model: SplitModel, closed_form: bool = True) -> Responder:
    """Return the responder of a network's client part: in closed form where one is known, otherwise by autograd."""
    if closed_form and isinstance(model.client, DeepFMClient):
        return _ClosedForm(model.client)
    return _Autograd(model.client)


class _ClosedForm(Responder):
    """Responses of a DeepFM client part, without a graph.

    A record's and a candidate's contributions add up to the first layer's units: each is computed only once.
    """

    def __init__(self, client: DeepFMClient) -> None:
        self._client = client

    @property
    def additive(self) -> int | None:
        return self._client.additive

    @torch.no_grad()
    def of_cut(self, cut: Tensor) -> Side:
        return Side(tuple(self._client.of_cut(cut)))

    @torch.no_grad()
    def of_cells(self, cells: Tensor) -> Side:
        return Side(tuple(self._client.of_cells(cells)))

    @torch.no_grad()
    def outputs(self, records: Side, candidates: Side) -> Tensor:
        return self._client.outputs_of(Shared(*records.tensors), Shared(*candidates.tensors))

    @torch.no_grad()
    def responses(self, records: Side, candidates: Side) -> tuple[Tensor, Tensor]:
        return self._client.responses_of(Shared(*records.tensors), Shared(*candidates.tensors))


class _Autograd(Responder):
    """Responses of any client part, by one backward pass a logit; a user's module is a black box."""

    def __init__(self, client: nn.Module) -> None:
        self._client = client

    @property
    def additive(self) -> int | None:
        return None

    def of_cut(self, cut: Tensor) -> Side:
        return Side((cut,))

    def of_cells(self, cells: Tensor) -> Side:
        return Side((cells,))

    @torch.no_grad()
    def outputs(self, records: Side, candidates: Side) -> Tensor:
        cut, cells, shape = _paired(records, candidates)
        return self._client(cut, cells).unflatten(0, shape)

    def responses(self, records: Side, candidates: Side) -> tuple[Tensor, Tensor]:
        cut, cells, shape = _paired(records, candidates)
        cut = cut.detach().clone().requires_grad_(True)
        logits = self._client(cut, cells)
        outputs = logits.shape[1]
        gradients = [
            torch.autograd.grad(logits[:, k].sum(), cut, retain_graph=k + 1 < outputs)[0] for k in range(outputs)
        ]
        return logits.detach().unflatten(0, shape), torch.stack(gradients, dim=1).unflatten(0, shape)


def _paired(records: Side, candidates: Side) -> tuple[Tensor, Tensor, Sequence[int]]:
    (cut,), (cells,) = records.tensors, candidates.tensors
    shape = torch.broadcast_shapes(cut.shape[:-1], cells.shape[:-1])
    return cut.expand(*shape, -1).flatten(0, -2), cells.expand(*shape, -1).flatten(0, -2), shape


def width_of(model: SplitModel) -> int:
    """Return the approximate number of values of the client part's forward pass for a record."""
    return max(1, sum(p.shape[0] for p in model.client.parameters() if p.dim() > 1))
