"""FedSGD: a client sends the gradient of one batch of its records."""

from __future__ import annotations

from typing import ClassVar

from torch import Generator

from seepage.defenses.defense import Update
from seepage.learning import GradientOf, gradient
from seepage.models.model import Model
from seepage.protocols.clients import Clients, Encoded, Targets
from seepage.registry import protocols
from seepage.wire.horizontal import GradientView


@protocols.register("fedsgd", "horizontal")
class FedSGD(Clients[GradientView]):
    """One round of FedSGD: the server sends a model, a client returns its batch's mean gradient, defended.

    Several clients' gradients, aggregated, are the gradient of one batch with all their records.
    """

    reveals: ClassVar[tuple[type, ...]] = (GradientView,)

    def answer(
        self, model: Model, encoded: Encoded, labels: Targets, generator: Generator, gradient_of: GradientOf = gradient
    ) -> Update:
        """Return the gradient of the mean loss."""
        return gradient_of(model, model.drawn(encoded, generator), labels, None)

    def view(self, model: Model, message: Update) -> GradientView:
        """Return the gradients."""
        return GradientView(model, message, precision=self.precision)

    @property
    def gradients(self) -> list[int]:
        """Number of records of the whole batch, of which there is one gradient."""
        return [self.batch_size]

    @property
    def sees(self) -> str:
        """Text that says what the server sees of a victim."""
        return self._of_clients(f"gradient of one batch{self._cast}")
