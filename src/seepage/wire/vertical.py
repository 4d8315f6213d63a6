"""View, knowledge and guess of vertical federated learning: the active party against a passive one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.vertical import ActiveModel, PartLayout
from seepage.registry import Need
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Marginal


class ActivationView(ABC):
    """The data of a party that receives what another party's first layers compute of its columns."""

    @property
    @abstractmethod
    def received(self) -> Float[Tensor, "training record feature"]:
        """Activations, or features, as received."""

    @property
    def trainings(self) -> int:
        """Number of trainings."""
        return len(self.received)

    @property
    def records(self) -> int:
        """Number of records in each training."""
        return self.received.shape[1]

    @abstractmethod
    def of(self, records: slice | Tensor) -> ActivationView:
        """Return the view of some of the records."""


@dataclass(frozen=True)
class SmashedView(ActivationView):
    """The data that a server without columns has of a client's records: activations of the client's first layers."""

    activations: Float[Tensor, "training record feature"]

    @property
    def received(self) -> Float[Tensor, "training record feature"]:
        """Activations, as received."""
        return self.activations

    def of(self, records: slice | Tensor) -> SmashedView:
        """Return the view of some of the records."""
        return replace(self, activations=self.activations[:, records])


@dataclass(frozen=True)
class FeatureView(ActivationView):
    """The data that the active party of vertical learning has of some records, in each of several trainings.

    Attributes:
        model: parts of the model that the active party owns.
        features: features of every party, as received, in the parties' order; its own as it computed them. Where
            records are sent several times, the mean of all messages.
        labels: class codes where it knows them: for records of training; None for records that it predicts.
        earlier: view of the same records in training, each as received in the last epoch; None where it kept none.
    """

    model: ActiveModel
    target: int
    own: Float[Tensor, "training record own"]
    features: tuple[Float[Tensor, "training record _feature"], ...]
    labels: Float[Tensor, "training record"] | None = None
    earlier: FeatureView | None = None

    def of(self, records: slice | Tensor) -> FeatureView:
        """Return the view of some of the records."""
        labels = None if self.labels is None else self.labels[:, records]
        return replace(
            self,
            own=self.own[:, records],
            features=tuple(feature[:, records] for feature in self.features),
            labels=labels,
        )

    @property
    def received(self) -> Float[Tensor, "training record feature"]:
        """Features that the target sent."""
        return self.features[self.target]


class Queries:
    """A channel on which a passive party answers with its features of rows that the asker chooses.

    It counts rows, refuses more than its limit in each training and keeps questions and answers. Rows are inputs of the
    party's bottom model.

    Example:
        >>> import torch
        >>> channel = Queries(lambda rows: 2 * rows, limit=3)
        >>> channel.ask(torch.ones(1, 2, 1)).tolist(), channel.left
        ([[[2.0], [2.0]]], 1)
    """

    def __init__(self, answer: Callable[[Tensor], Tensor], limit: int) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise BadInputError(f"the budget of queries is a whole number from 0 up, got queries={limit!r}.")
        self._answer = answer
        self.limit = limit
        self.asked: list[Tensor] = []
        self.answered: list[Tensor] = []

    @property
    def used(self) -> int:
        """Number of rows asked so far, in each training."""
        return sum(rows.shape[1] for rows in self.asked)

    @property
    def left(self) -> int:
        """Number of rows that may still be asked."""
        return self.limit - self.used

    def ask(self, rows: Float[Tensor, "training row encoded"]) -> Float[Tensor, "training row feature"]:
        """Return the party's features of rows; refuse more rows than are left with BadInputError."""
        if rows.shape[1] > self.left:
            raise BadInputError(
                f"an attack asks for the features of {rows.shape[1]:,} rows, but {self.left:,} of its "
                f"{self.limit:,} queries are left; grant it more, or let it ask less."
            )
        answered = self._answer(rows)
        self.asked.append(rows)
        self.answered.append(answered)
        return answered


@dataclass(frozen=True)
class FeatureAuxiliary:
    """Complete rows of the same kind that the attacker holds: cells of the target's columns and of its own.

    ``features`` are those that every party but the target sends for them, in order; the target's place is empty.
    """

    cells: Float[Tensor, "training row column"]
    own: Float[Tensor, "training row own"]
    labels: Float[Tensor, "training row"]
    features: tuple[Float[Tensor, "training row _feature"] | None, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.cells.shape[1]


@dataclass(frozen=True)
class Leaked:
    """Records of the target that the attacker holds: the target's cells, its own, and the features that were sent."""

    cells: Float[Tensor, "training leaked column"]
    features: Float[Tensor, "training leaked feature"]
    own: Float[Tensor, "training leaked own"]

    @property
    def records(self) -> int:
        """Number of records."""
        return self.cells.shape[1]


@dataclass(frozen=True)
class KnownFeatures:
    """The defenses as an adaptive attacker knows them; ``noise`` is in units of a feature's standard deviation."""

    names: Mapping[str, Mapping[str, float | int | str | bool]] = field(default_factory=dict)
    noise: float = 0.0

    def describe(self) -> dict[str, object]:
        """Return the fields as plain values."""
        return {name: dict(arguments) for name, arguments in self.names.items()}


@dataclass(frozen=True)
class WeightGradients:
    """Gradients with respect to the parameters of the target's bottom model, which do not cross the wire.

    Published attacks on gradients start from them. They are of batches of the attacked records, one after the other, as
    though the trained network took one more step on each: of each batch's mean loss by parameter name, shape (training,
    batch, *parameter), and of the same by each record's features, as the attacker sent it.
    """

    parameters: Mapping[str, Tensor]
    returned: Float[Tensor, "training record feature"]

    @property
    def batches(self) -> int:
        """Number of batches."""
        return next(iter(self.parameters.values())).shape[1]

    @property
    def batch_size(self) -> int:
        """Number of records of a batch."""
        return self.returned.shape[1] // self.batches


Grant = Literal["auxiliary", "queries", "leaked", "bottom", "gradients"]


@dataclass(frozen=True)
class FeatureKnowledge:
    """Side information of the active party in vertical learning; None is what is not granted.

    ``schema`` has the target's columns, ``defense`` what it does to features and gradients. ``gradients`` are by the
    parameters of its bottom model. ``layout`` says what its columns are together; None for tables.
    """

    schema: Schema
    marginals: tuple[Marginal, ...]
    defense: KnownFeatures = field(default_factory=KnownFeatures)
    auxiliary: FeatureAuxiliary | None = None
    queries: Queries | None = None
    leaked: Leaked | None = None
    bottom: nn.Module | None = None
    gradients: WeightGradients | None = None
    layout: PartLayout | None = None

    def only(self, grants: Collection[Need]) -> FeatureKnowledge:
        """Return the knowledge with these grants alone; schema, marginals and defense are always known."""
        return replace(self, **{name: None for name in get_args(Grant) if name not in grants})

    def granted_auxiliary(self, what: str) -> FeatureAuxiliary:
        """Return the auxiliary rows; where there are none, refuse with BadInputError."""
        if self.auxiliary is None or not self.auxiliary.rows:
            raise BadInputError(f"{what} needs auxiliary rows, but the attacker holds none; grant it some (auxiliary).")
        return self.auxiliary

    def granted_queries(self, what: str) -> Queries:
        """Return the query channel; where there is none, or nothing is left, refuse with BadInputError."""
        if self.queries is None or self.queries.left < 1:
            raise BadInputError(
                f"{what} needs answers of the target, but the attacker has a budget of 0 queries; grant it some "
                "(queries), or choose an attack that asks nothing."
            )
        return self.queries

    def granted_leaked(self, what: str) -> Leaked:
        """Return the leaked records; where there are none, refuse with BadInputError."""
        if self.leaked is None or not self.leaked.records:
            raise BadInputError(f"{what} needs leaked records, but the attacker holds none; grant it some (leaked).")
        return self.leaked

    def granted_bottom(self, what: str) -> nn.Module:
        """Return the target's bottom model; where it is unknown, refuse with BadInputError."""
        if self.bottom is None:
            raise BadInputError(f"{what} needs the target's bottom model, which the attacker does not know; grant it.")
        return self.bottom

    def granted_gradients(self, what: str) -> WeightGradients:
        """Return gradients of the bottom model's parameters; where there are none, refuse with BadInputError."""
        if self.gradients is None:
            raise BadInputError(
                f"{what} needs gradients of the target's bottom model, which do not cross the wire of vertical "
                "learning; grant them (gradients)."
            )
        return self.gradients

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        return {
            "schema": "columns, categories and bounds",
            "marginals": "of every column",
            "defense": self.defense.describe(),
            "auxiliary": 0 if self.auxiliary is None else self.auxiliary.rows,
            "queries": 0 if self.queries is None else self.queries.limit,
            "leaked": 0 if self.leaked is None else self.leaked.records,
            "bottom": "known" if self.bottom is not None else "unknown",
            "gradients": 0 if self.gradients is None else self.gradients.returned.shape[1],
        }


@dataclass(frozen=True)
class FeatureGuess:
    """Guessed cells of a passive party's records, in each training; None is what the attack does not give.

    Attributes:
        cells: float64, codes of discrete columns, values of continuous ones; NaN of a training that diverged.
        chances: chance of each category of each column (training, record, value), None for a continuous column.
        radii: error that nine in ten of a column's cells stay below, as the attack expects; NaN for discrete columns.
        failed: trainings in which the attack itself failed, for example by numbers that are not finite.
        queries: number of rows that were asked of the target, in each training.
        replayed: records whose cells follow from their features by exact inversion, so that they replay them.
        choice: columns that each way of an attack with several ways answers, in words, for each training.
    """

    cells: Float[Tensor, "training record column"]
    chances: tuple[Float[Tensor, "training record _value"] | None, ...] | None = None
    radii: Float[Tensor, "training column"] | None = None
    failed: Bool[Tensor, " training"] | None = None
    queries: int = 0
    replayed: Bool[Tensor, "training record"] | None = None
    choice: tuple[str, ...] | None = None
