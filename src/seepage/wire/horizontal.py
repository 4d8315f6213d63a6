"""Horizontal federated learning: what the server sees, what it is granted and what it guesses.

A leading ``victim`` axis holds several attacked units that share one model, so that an attack runs
them as one batched computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jaxtyping import Bool, Float
from torch import Tensor

from seepage.learning import LocalTraining
from seepage.models.batch_norm import Moments
from seepage.models.model import Model
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics


@dataclass(frozen=True)
class GradientView:
    """The gradient that clients send for one FedSGD step, for each of several victims.

    Attributes:
        model: the global model the server sent out (the server made it, so it knows it).
        gradient: by parameter name in module order, mean over the records behind it,
            shape (victim, *parameter).
        parameters: where the gradient was taken, shape (victim, *parameter), where that differs by
            victim; the model's own parameters for all if None.
    """

    model: Model
    gradient: dict[str, Tensor]
    parameters: dict[str, Tensor] | None = None

    @property
    def message(self) -> dict[str, Tensor]:
        """What was received, shape (victim, *parameter)."""
        return self.gradient

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(next(iter(self.gradient.values())))

    def of(self, chosen: slice) -> GradientView:
        """Return the view of some of the victims."""
        where = None if self.parameters is None else {name: p[chosen] for name, p in self.parameters.items()}
        return GradientView(self.model, {name: g[chosen] for name, g in self.gradient.items()}, where)


@dataclass(frozen=True)
class UpdateView:
    """What clients send after several local steps (FedAvg), for each of several victims.

    Attributes:
        model: the global model the server sent out.
        update: by parameter name in module order, the parameters before less those after local training,
            shape (victim, *parameter); the mean over clients where a secure aggregation hides the single ones.
        training: what the server told the clients to do.
        clients: whose updates are behind each one received.
    """

    model: Model
    update: dict[str, Tensor]
    training: LocalTraining
    clients: int = 1

    @property
    def message(self) -> dict[str, Tensor]:
        """What was received, shape (victim, *parameter)."""
        return self.update

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(next(iter(self.update.values())))

    def of(self, chosen: slice) -> UpdateView:
        """Return the view of some of the victims."""
        return UpdateView(self.model, {n: u[chosen] for n, u in self.update.items()}, self.training, self.clients)


View = GradientView | UpdateView


@dataclass(frozen=True)
class RoundsView:
    """What the same clients send in several rounds, for each of several victims.

    Attributes:
        rounds: what was received in each, in order, with the model that the server sent out then.
        batch_size: records behind each round's message; where it is all records of the clients, they are the same in
            every round.
    """

    rounds: tuple[View, ...]
    batch_size: int

    @property
    def victims(self) -> int:
        """Number of victims."""
        return self.rounds[0].victims

    def of(self, chosen: slice) -> RoundsView:
        """Return the view of some of the victims."""
        return RoundsView(tuple(one.of(chosen) for one in self.rounds), self.batch_size)


AnyView = View | RoundsView


@dataclass(frozen=True)
class KnownDefense:
    """What an adaptive attacker knows of the defense in front of it: its mechanism, not its random numbers.

    The last five say what the messages went through, so that an attack need know no defense by name.

    Attributes:
        name: registered name, ``none`` for updates sent as they are.
        arguments: of the defense.
        noise: standard deviation of independent normal noise on every entry.
        norm: bound that longer updates were scaled down to; None without one.
        record_norm: bound that the longer ones of single records' gradients were scaled down to; None without one.
        kept: share of the entries that were sent, the largest ones; the others are zero.
        signs: whether entries lost their magnitude.

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
        schema: columns, categories, bounds.
        statistics: marginals and moments (TabLeak grants those of train and test together).
        batch_size: number of records behind each victim's update, or behind all of several rounds'.
        labels: each victim's labels (victim, record), or None: restore them. Of several rounds with other records
            each, those of the rounds one after the other.
        defense: what the updates went through before they were sent, as far as the attacker knows.
        batch_statistics: moments of what entered each batch normalisation, by its name, shape (victim, channel);
            None where they are not granted. Running statistics that a client sends give them away, see
            ``models.batch_norm.from_running``.
        ordered: whether the labels come in the order in which the client goes through its records, the same in
            every local epoch, so that the attacker knows who is in which local batch; in no particular order else.
    """

    schema: Schema
    statistics: Statistics
    batch_size: int
    labels: Float[Tensor, "victim record"] | None = None
    defense: KnownDefense = field(default_factory=KnownDefense)
    batch_statistics: Mapping[str, Moments] | None = None
    ordered: bool = False

    def of(self, victims: slice) -> Knowledge:
        """Return what is known of some of the victims."""
        statistics = self.batch_statistics
        if statistics is not None:
            statistics = {name: Moments(m.mean[victims], m.variance[victims]) for name, m in statistics.items()}
        labels = None if self.labels is None else self.labels[victims]
        return replace(self, labels=labels, batch_statistics=statistics)

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        told: dict[str, object] = {
            "schema": "columns, categories and bounds",
            "statistics": "marginals, means and standard deviations of every column",
            "batch_size": self.batch_size,
            "labels": "restored" if self.labels is None else "ordered" if self.ordered else "true",
            "defense": self.defense.describe(),
        }
        if self.batch_statistics is not None:
            told["batch_statistics"] = "mean and variance of each batch where it is normalised"
        return told


# How the regime begins of an attack that did not try its own way: the reason follows.
NOT_TRIED = "not tried: "


@dataclass(frozen=True)
class Certificate:
    """What the certified cells of a victim are conditional on.

    Attributes:
        batch_size: number of records that the attacker was told.
        multiple_of: smallest number of records that would leave the same message; all its multiples would.
        precision: name of the numbers in which the message was computed.
        recipe: how the client made the message.
        least: how many times its rounding (or noise) any alternative of a certified cell changes the message.
        unit: what ``least`` counts.
        others_fixed: whether the proof holds only with all other cells as they are guessed.
    """

    batch_size: int
    multiple_of: int
    precision: str
    recipe: str
    least: float
    unit: str = "roundings"
    others_fixed: bool = False

    def __str__(self) -> str:
        """Return the conditions as a sentence."""
        size = f"{self.batch_size} records"
        if self.multiple_of < self.batch_size:
            size += f" (every multiple of {self.multiple_of} leaves the same message)"
        fixed = "with all other cells as guessed, " if self.others_fixed else ""
        return (
            f"certified if the message comes from {size}, computed in {self.precision} as {self.recipe}; {fixed}any "
            f"alternative of a certified cell changes the message by more than {self.least:g} {self.unit}"
        )


@dataclass(frozen=True)
class RecordsGuess:
    """Guessed records of each victim, in no particular order.

    Attributes:
        cells: guessed cells, float64: codes of discrete columns, values of continuous ones.
        uncertainty: for each cell, normalised Shannon entropy in [0, 1] (discrete) or Gaussian
            differential entropy in nats of the standardised value (continuous; -inf where the
            ensemble agrees exactly); None where the attack has no ensemble to tell.
        labels: the labels used, one a guessed record.
        loss: the attack's own loss of the returned guess (lower is better); None for baselines.
        course: the attack's own loss at its start, after nine tenths of its steps and at its end (of several
            restarts, the median), NaN for a victim that needed no descent; None for what does not descend.
        certified: cells that are proved and no estimates; None for what proves nothing.
        regime: in a few words and for each victim, which of its ways an attack with several took, and why; begins
            with ``NOT_TRIED`` where it fell back on another attack without trying its own way.
        certificates: for each victim, what its certified cells are conditional on; None for a victim without any.
    """

    cells: Float[Tensor, "victim record column"]
    uncertainty: Float[Tensor, "victim record column"] | None = None
    labels: Float[Tensor, "victim record"] | None = None
    loss: Float[Tensor, " victim"] | None = None
    course: Float[Tensor, "victim 3"] | None = None
    certified: Bool[Tensor, "victim record column"] | None = None
    regime: tuple[str, ...] | None = None
    certificates: tuple[Certificate | None, ...] | None = None


Guess = RecordsGuess
