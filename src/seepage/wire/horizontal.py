"""View, knowledge and guess of horizontal federated learning.

A leading ``victim`` axis holds several attacked units that share one model, so that an attack runs
them as one batched computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.errors import BadInputError
from seepage.kernel import Certified
from seepage.learning import LocalTraining
from seepage.models.batch_norm import Moments
from seepage.models.model import Model
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.precision import Precision


@dataclass(frozen=True)
class GradientView:
    """The gradient that clients send for one FedSGD step, for each of several victims.

    Attributes:
        model: the global model the server sent out (the server made it, so it knows it).
        gradient: gradient by parameter name in module order, mean over its records, shape (victim, *parameter).
        parameters: parameters at which the gradient was taken, shape (victim, *parameter), where they differ by
            victim; the model's own parameters for all if None.
        precision: number format that clients cast their messages to.
    """

    model: Model
    gradient: dict[str, Tensor]
    parameters: dict[str, Tensor] | None = None
    precision: Precision = "full"

    @property
    def message(self) -> dict[str, Tensor]:
        """Received message, shape (victim, *parameter)."""
        return self.gradient

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(next(iter(self.gradient.values())))

    def place(self, victim: int) -> dict[str, Tensor]:
        """Return the parameters at which a victim's gradient was taken."""
        if self.parameters is None:
            return self.model.parameters
        return {name: parameter[victim] for name, parameter in self.parameters.items()}

    def of(self, chosen: slice) -> GradientView:
        """Return the view of some of the victims."""
        where = None if self.parameters is None else {name: p[chosen] for name, p in self.parameters.items()}
        return replace(self, gradient={name: g[chosen] for name, g in self.gradient.items()}, parameters=where)


@dataclass(frozen=True)
class UpdateView:
    """The message that clients send after several local steps (FedAvg), for each of several victims.

    Attributes:
        update: difference of the parameters before and after local training, by name in module order, shape (victim,
            *parameter); the mean over clients where a secure aggregation hides single updates.
        precision: number format that clients cast their messages to.
    """

    model: Model
    update: dict[str, Tensor]
    training: LocalTraining
    clients: int = 1
    precision: Precision = "full"

    @property
    def message(self) -> dict[str, Tensor]:
        """Received message, shape (victim, *parameter)."""
        return self.update

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(next(iter(self.update.values())))

    def of(self, chosen: slice) -> UpdateView:
        """Return the view of some of the victims."""
        return replace(self, update={name: u[chosen] for name, u in self.update.items()})


View = GradientView | UpdateView


@dataclass(frozen=True)
class RoundsView:
    """Messages of the same clients in several rounds, for each of several victims.

    Each round's view has the model that the server sent out then. ``batch_size`` is the number of records in a round's
    message; where it is all records of the clients, they are the same in every round.
    """

    rounds: tuple[View, ...]
    batch_size: int

    @property
    def victims(self) -> int:
        """Number of victims."""
        return self.rounds[0].victims

    def of(self, chosen: slice) -> RoundsView:
        """Return the view of some of the victims."""
        return RoundsView(tuple(view.of(chosen) for view in self.rounds), self.batch_size)


AnyView = View | RoundsView


@dataclass(frozen=True)
class KnownDefense:
    """The defense as an adaptive attacker knows it: its mechanism, not its random numbers.

    The last five fields describe the mechanism, so that attacks need not know defenses by name.

    Attributes:
        name: registered name, ``none`` for updates sent as they are.
        noise: standard deviation of independent normal noise on every entry.
        norm: bound to which longer updates were scaled down; None without one.
        record_norm: bound to which longer gradients of single records were scaled down; None without one.
        kept: share of the entries that were sent, the largest ones; the others are zero.
        signs: whether only the signs of entries were sent.

    Example:
        >>> KnownDefense("clipping", {"norm": 1.0}, norm=1.0).describe()
        {'name': 'clipping', 'norm': 1.0}
    """

    name: str = "none"
    arguments: Mapping[str, float | bool | str] = field(default_factory=dict)
    noise: float = 0.0
    norm: float | None = None
    record_norm: float | None = None
    kept: float = 1.0
    signs: bool = False

    def describe(self) -> dict[str, object]:
        """Return name and arguments as plain values."""
        return {"name": self.name, **self.arguments}


@dataclass(frozen=True)
class Knowledge:
    """Side information of the attacker.

    Attributes:
        statistics: marginals and moments (TabLeak grants those of train and test together).
        batch_size: number of records in each victim's update, or in all rounds together.
        labels: each victim's labels (victim, record), or None where they must be restored. For several rounds with
            different records, the labels of the rounds one after the other.
        defense: defense that the updates went through before they were sent, as far as the attacker knows.
        batch_statistics: moments of the inputs of each batch normalisation, by its name, shape (victim, channel); None
            where they are not granted. Running statistics that a client sends reveal them, see
            ``models.batch_norm.from_running``.
        ordered: whether the labels are in the order in which the client uses its records, the same in every local
            epoch, so that the attacker knows the records of each local batch; otherwise their order says nothing.
        auxiliary: public rows, of the same kind as the records but none of them; None where there are none.
    """

    schema: Schema
    statistics: Statistics
    batch_size: int
    labels: Float[Tensor, "victim record"] | None = None
    defense: KnownDefense = field(default_factory=KnownDefense)
    batch_statistics: Mapping[str, Moments] | None = None
    ordered: bool = False
    auxiliary: Float[Tensor, "public column"] | None = None

    def granted_auxiliary(self, what: str) -> Float[Tensor, "public column"]:
        """Return the public rows; where there are none, refuse with BadInputError."""
        if self.auxiliary is None or not len(self.auxiliary):
            raise BadInputError(f"{what} needs auxiliary rows, but the attacker holds none; grant it some (auxiliary).")
        return self.auxiliary

    def of(self, victims: slice) -> Knowledge:
        """Return the knowledge about some of the victims."""
        statistics = self.batch_statistics
        if statistics is not None:
            statistics = {name: Moments(m.mean[victims], m.variance[victims]) for name, m in statistics.items()}
        labels = None if self.labels is None else self.labels[victims]
        return replace(self, labels=labels, batch_statistics=statistics)

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        granted: dict[str, object] = {
            "schema": "columns, categories and bounds",
            "statistics": "marginals, means and standard deviations of every column",
            "batch_size": self.batch_size,
            "labels": "restored" if self.labels is None else "ordered" if self.ordered else "true",
            "defense": self.defense.describe(),
        }
        if self.batch_statistics is not None:
            granted["batch_statistics"] = "mean and variance of each batch where it is normalised"
        if self.auxiliary is not None:
            granted["auxiliary"] = f"{len(self.auxiliary):,} public rows"
        return granted


# Beginning of the regime of an attack that did not try its own method; the reason follows.
NOT_TRIED = "not tried: "


@dataclass(frozen=True)
class ExactSearch:
    """Figures of an exact search on one victim's message.

    Attributes:
        read: number of records that it read.
        ranks: ranks of hidden layers.
        unsure: reason, where there is a special one, why reading nothing is no evidence.
    """

    read: int
    ranks: tuple[int, ...]
    unsure: str | None = None

    def spans_rows(self, records: int, width: int) -> bool:
        """Return whether the layer that takes the rows changed in exactly as many directions as there are records."""
        return bool(self.ranks) and self.ranks[0] == records < width

    def doubt(self, records: int, width: int, units: int | None = None) -> str | None:
        """Return why a search without any proof is no evidence about the message; None where it is evidence.

        The gradient of a layer that takes the rows is a sum over records of an error times a row. So its rank is at
        most their number, and where it is smaller than an encoded row is wide, the rows lie in its span. Messages with
        noise have every rank.

        Example:
            >>> ExactSearch(read=0, ranks=(58, 64)).doubt(records=128, width=105) is None
            True
        """
        if self.read:
            return "no proof is possible, or encoder, statistics or recipe are not quite right"
        if not self.ranks:
            return None
        first = self.ranks[0]
        if first > records:
            more = f"gradients of rank {first} are more than {records} records leave"
            return f"{more}: their number or the recipe is not right, or rounding hides them"
        if self.unsure is not None:
            return self.unsure
        if not first:
            return "the layer that takes the rows sends nothing, and no search reads the others without it"
        mixed = units == first < records
        if self.spans_rows(records, width) or (first < width and set(self.ranks) == {first} and not mixed):
            return "no row is in the span of the gradient: the encoder is not the client's, or a layer is not sent"
        return None


@dataclass(frozen=True)
class RecordsGuess:
    """Guessed records of each victim, in no particular order.

    Attributes:
        cells: guessed cells, float64: codes of discrete columns, values of continuous ones.
        uncertainty: for each cell, normalised Shannon entropy in [0, 1] (discrete) or Gaussian differential entropy in
            nats of the standardised value (continuous; -inf where the ensemble agrees exactly); None where the attack
            has no ensemble.
        loss: the attack's own loss of the returned guess (lower is better); None for baselines.
        course: the attack's own loss at its start, after nine tenths of its steps and at its end (the median over
            restarts), NaN for a victim that needed no descent; None for attacks without a descent.
        proofs: what the kernel proves of each victim's records; None for attacks that are no provers.
        regime: method that an attack with several methods chose for each victim, and the reason, in a few words; begins
            with ``NOT_TRIED`` where it fell back on another attack without trying its own method.
        searches: what the exact search of each victim saw; None where there was none.
    """

    cells: Float[Tensor, "victim record column"]
    uncertainty: Float[Tensor, "victim record column"] | None = None
    labels: Float[Tensor, "victim record"] | None = None
    loss: Float[Tensor, " victim"] | None = None
    course: Float[Tensor, "victim 3"] | None = None
    proofs: tuple[Certified, ...] | None = None
    regime: tuple[str, ...] | None = None
    searches: tuple[ExactSearch, ...] | None = None

    @property
    def certified(self) -> Bool[Tensor, "victim record column"] | None:
        """Whether each cell is certified; None for attacks that are no provers."""
        return None if self.proofs is None else torch.stack([proof.cells for proof in self.proofs])

    @property
    def given(self) -> Bool[Tensor, "victim record column"] | None:
        """Whether each cell is certified only given what its proof names; None for attacks that are no provers."""
        return None if self.proofs is None else torch.stack([proof.given for proof in self.proofs])


Guess = RecordsGuess
