"""View, knowledge and guess of label inference: a party without labels against the one that has them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Discrete
from seepage.tabular.statistics import Marginal


@dataclass(frozen=True)
class ReturnedView:
    """The data that a party without labels holds of some records, in each of several trainings: what came back too.

    Attributes:
        features: features of a passive party that it sent for them, or activations at the cut.
        gradient: gradient of each record's own loss with respect to these, as received.
        own: its own columns of the records, as inputs of a network.
        earlier: views of the same records in other exchanges, the newest first; empty where each is seen once.
    """

    features: Float[Tensor, "training record feature"]
    gradient: Float[Tensor, "training record feature"]
    own: Float[Tensor, "training record encoded"]
    earlier: tuple[ReturnedView, ...] = ()

    @property
    def exchanges(self) -> tuple[ReturnedView, ...]:
        """All exchanges of the records, the newest first."""
        return (self, *self.earlier)

    @property
    def records(self) -> int:
        """Number of records in each training."""
        return self.own.shape[1]

    def of(self, records: slice) -> ReturnedView:
        """Return the view of some of the records."""
        return replace(
            self,
            features=self.features[:, records],
            gradient=self.gradient[:, records],
            own=self.own[:, records],
            earlier=tuple(view.of(records) for view in self.earlier),
        )


@dataclass(frozen=True)
class LogitsView(ReturnedView):
    """The same where no top model follows: the features of all parties are added up as the logits."""


@dataclass(frozen=True)
class BatchView:
    """The data that a passive party holds where only gradients of whole batches come back to it.

    ``hidden`` enters its last layer; ``weight`` and ``bias`` are the gradients of each batch's mean loss there.
    ``earlier`` are views of the same batches in other exchanges, the newest first.
    """

    hidden: Float[Tensor, "training batch record unit"]
    weight: Float[Tensor, "training batch unit feature"]
    bias: Float[Tensor, "training batch feature"]
    features: Float[Tensor, "training batch record feature"]
    own: Float[Tensor, "training batch record encoded"]
    earlier: tuple[BatchView, ...] = ()

    @property
    def exchanges(self) -> tuple[BatchView, ...]:
        """All exchanges of the batches, the newest first."""
        return (self, *self.earlier)

    @property
    def records(self) -> int:
        """Number of records in each training."""
        return self.own.shape[1] * self.own.shape[2]


@dataclass(frozen=True)
class LabelKnowledge:
    """Side information of a party that guesses labels; records of ``known`` labels are left out of all figures."""

    target: Column
    marginal: Marginal
    known: Int[Tensor, "training known"] | None = None
    labels: Float[Tensor, "training known"] | None = None

    def granted_labels(self, what: str) -> tuple[Int[Tensor, "training known"], Float[Tensor, "training known"]]:
        """Return positions and labels of records whose labels are known; refuse none, and those all alike."""
        if self.known is None or self.labels is None or not self.known.shape[1]:
            raise BadInputError(
                f"{what} needs some known labels, but the attacker knows none; grant some (known_labels)."
            )
        if bool((self.labels == self.labels[:, :1]).all(1).any()):
            raise BadInputError(
                f"all {self.labels.shape[1]} known labels of a training are the same, so that nothing tells others "
                "apart; let the party know records of both kinds (known_labels)."
            )
        return self.known, self.labels


@dataclass(frozen=True)
class LabelGuess:
    """Guessed labels of each record, with the chance of each label; None where there are none, or for numbers."""

    labels: Float[Tensor, "training record"]
    chances: Float[Tensor, "training record label"] | None = None

    @classmethod
    def of(cls, values: Float[Tensor, "training record value"], target: Column) -> LabelGuess:
        """Return the guess of chances of each class, or of one number a record."""
        if isinstance(target, Discrete):
            return cls(values.argmax(-1).double(), values)
        return cls(values[..., 0])
