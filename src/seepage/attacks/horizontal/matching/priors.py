"""Priors on rows: terms that are added to the loss of a descent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from seepage.attacks.horizontal.matching.engine import Engine
from seepage.attacks.horizontal.matching.matching import Labels, Losses, Rows
from seepage.wire.horizontal import Knowledge, View

# Function from dummy rows (victim, restart, record, encoded) to each restart's penalty and its derivative.
Term = Callable[[Tensor], tuple[Tensor, Tensor]]


@runtime_checkable
class Prior(Protocol):
    """A prior on rows, independent of the gradient."""

    def on(self, view: View, knowledge: Knowledge) -> Term:
        """Return the penalty of rows of these victims; refused where the prior needs what is not granted."""
        ...


class Guided:
    """An engine whose descent includes priors; the losses that it returns on their own are those of the gradient."""

    def __init__(self, engine: Engine, terms: Sequence[Term]) -> None:
        self._engine, self._terms = engine, terms

    def __call__(self, rows: Rows, labels: Labels) -> tuple[Losses, Rows]:
        """Return the loss of each restart with its penalties, and its derivative with respect to the rows."""
        loss, derivative = self._engine(rows, labels)
        for term in self._terms:
            penalty, by_rows = term(rows)
            loss, derivative = loss + penalty, derivative + by_rows
        return loss, derivative

    def loss(self, rows: Rows, labels: Labels) -> Losses:
        """Return the loss of each restart without penalties."""
        return self._engine.loss(rows, labels)
