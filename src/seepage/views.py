"""What crosses the wire, as the curious party receives it: a small closed set of frozen types.

A leading ``victim`` axis holds several attacked units that share one model, so that an attack runs
them as one batched computation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError
from seepage.learning import LocalTraining
from seepage.models.learner import Trained
from seepage.models.model import Model
from seepage.models.split import SplitModel
from seepage.models.stacked import Stacked
from seepage.models.vertical import ActiveModel


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
class CutView:
    """What the server of split learning sees of one exchange: what it sent for each record, and what came back.

    Attributes:
        model: the server's own part, and the client's as far as it is granted: as it was in this exchange, or an
            older one.
        features: the server's own columns of the records, unscaled.
        cut: activations that it sent.
        gradient: by them, as received.
        behind: number of records whose mean loss each record's gradient is of.
        clip: bound on the norm of a record's own gradient in this exchange, where clients clip to one that adapts
            and tell it; None where there is none.
    """

    model: SplitModel
    features: Float[Tensor, "record public"]
    cut: Float[Tensor, "record cut"]
    gradient: Float[Tensor, "record cut"]
    behind: Float[Tensor, " record"]
    clip: float | None = None

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.cut)

    @property
    def own_gradient(self) -> Float[Tensor, "record cut"]:
        """Each record's gradient of its own loss: the mean over others is undone."""
        return self.gradient * self.behind[:, None].to(self.gradient)

    def of(self, chosen: slice) -> CutView:
        """Return the view of some of the records."""
        return replace(
            self,
            features=self.features[chosen],
            cut=self.cut[chosen],
            gradient=self.gradient[chosen],
            behind=self.behind[chosen],
        )


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


@dataclass(frozen=True)
class FeatureView:
    """What the active party of vertical learning holds and receives of some records, in each of several trainings.

    Attributes:
        model: its own parts.
        target: the passive party that it is after.
        own: its own cells.
        features: of every party, as received, in the parties' order; its own are what it computed itself.
        labels: class codes, where it knows them: of records that were trained on; None of those it predicts for.
        earlier: the same of the records of training, each as received in the last epoch; None where it kept none.
    """

    model: ActiveModel
    target: int
    own: Float[Tensor, "training record own"]
    features: tuple[Float[Tensor, "training record _feature"], ...]
    labels: Float[Tensor, "training record"] | None = None
    earlier: FeatureView | None = None

    def of(self, some: slice) -> FeatureView:
        """Return the view of some of the records."""
        labels = None if self.labels is None else self.labels[:, some]
        return replace(
            self, own=self.own[:, some], features=tuple(one[:, some] for one in self.features), labels=labels
        )

    @property
    def received(self) -> Float[Tensor, "training record feature"]:
        """What the target sent."""
        return self.features[self.target]

    @property
    def trainings(self) -> int:
        """Number of trainings."""
        return len(self.own)

    @property
    def records(self) -> int:
        """Number of records in each training."""
        return self.own.shape[1]


@dataclass(frozen=True)
class ReturnedView:
    """What a passive party of vertical learning holds and receives of the records of training, in the last epoch.

    Attributes:
        party: which it is.
        features: that it sent.
        gradient: by them, of each record's own loss, as received.
        own: inputs of its bottom model.
    """

    party: int
    features: Float[Tensor, "training record feature"]
    gradient: Float[Tensor, "training record feature"]
    own: Float[Tensor, "training record encoded"]


AnyView = View | RoundsView


@dataclass
class PredictionView:
    """Black-box answers of joint models, for each of several targets: a channel that counts, limits and records.

    Attributes:
        channel: returns every target's chances of each class for some queries.
        targets: number of joint models.
        classes: that an answer tells apart.
        limit: queries that may be asked in all; None for no limit.
        recorded: queries and answers, in order.
    """

    channel: Callable[[Tensor], Tensor] = field(repr=False)
    targets: int
    classes: int
    limit: int | None = None
    recorded: list[tuple[Tensor, Tensor]] = field(default_factory=list, repr=False)

    @property
    def asked(self) -> int:
        """Number of queries so far."""
        return sum(len(queries) for queries, _ in self.recorded)

    def ask(self, queries: Tensor) -> Float[Tensor, "target query label"]:
        """Return every target's answers to queries (on the first axis), and count them.

        Raises:
            BadInputError: more is asked than is allowed, or the answers are not one chance a target, query and class.
        """
        left = None if self.limit is None else self.limit - self.asked
        if left is not None and len(queries) > left:
            raise BadInputError(
                f"{len(queries)} queries were to be asked, but {left} of {self.limit} are left; ask fewer, or allow "
                "more queries."
            )
        answers = self.channel(queries)
        expected = (self.targets, len(queries), self.classes)
        if tuple(answers.shape) != expected:
            raise BadInputError(
                f"the query interface answered with numbers of shape {tuple(answers.shape)} where {expected} were "
                "expected (targets, queries, classes); the joint models' classes are not those that the attacker was "
                "told."
            )
        if not bool((answers.isfinite() & (answers >= 0)).all()):
            raise BadInputError(
                "the query interface answered with numbers that are no chances (negative or not finite); answers are "
                "each class's chance."
            )
        self.recorded.append((queries, answers))
        return answers

    def again(self, limit: int | None = None) -> PredictionView:
        """Return the same channel with nothing asked yet, with another limit if one is given."""
        return PredictionView(self.channel, self.targets, self.classes, self.limit if limit is None else limit)


@dataclass(frozen=True)
class ModelView:
    """The joint models themselves, where they are handed out: white-box access.

    Attributes:
        models: the targets, on a leading axis.
    """

    models: Trained

    @property
    def targets(self) -> int:
        """Number of joint models."""
        return len(self.models)


@dataclass(frozen=True)
class UpdatedView:
    """Black-box answers before and after a party's new data came in.

    Attributes:
        before, after: of the same targets in the same order.
    """

    before: PredictionView
    after: PredictionView


@dataclass(frozen=True)
class GradientsView:
    """What a party of federated training sees of another's rows: its gradient in each round, and where it was taken.

    Attributes:
        snapshots: joint models before each round, one for each target.
        gradients: of the other party, in the order of ``Stacked.flat``.
    """

    snapshots: tuple[Stacked, ...]
    gradients: Float[Tensor, "round target parameter"]
