"""What the attacker is granted beyond what crosses the wire; printed with every result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.batch_norm import Moments
from seepage.models.learner import Learner
from seepage.models.pooling import MarkedRows
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Marginal, Statistics


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


@dataclass(frozen=True)
class KnownCut:
    """What an adaptive attacker knows of what clients of split learning do to gradients and labels.

    Attributes:
        noise_multiplier: standard deviation of the noise on every entry of a record's gradient, in units of the
            bound on its norm.
        clips: whether records' gradients are clipped; the bound is in the view.
        own_norm: whether each record's bound is half of its own gradient's norm.
        flip: chance of a label to be exchanged for another one, drawn once a record.
    """

    noise_multiplier: float = 0.0
    clips: bool = False
    own_norm: bool = False
    flip: float = 0.0

    def describe(self) -> dict[str, object]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Auxiliary:
    """Rows of the same kind that the attacker holds whole, such as from an earlier leak or a public survey.

    Attributes:
        cells: all columns of the schema, as a table holds them.
        labels: class codes.
    """

    cells: Float[Tensor, "row column"]
    labels: Float[Tensor, " row"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class CutKnowledge:
    """Side information of the server in split learning.

    Attributes:
        schema: columns, categories, bounds.
        statistics: marginals of columns and labels.
        defense: what clients do to gradients and labels.
        auxiliary: rows that it holds whole; None where it has none.
    """

    schema: Schema
    statistics: Statistics
    defense: KnownCut = field(default_factory=KnownCut)
    auxiliary: Auxiliary | None = None

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        return {
            "schema": "columns, categories and bounds",
            "statistics": "marginals of every column and of the label",
            "defense": self.defense.describe(),
            "auxiliary": 0 if self.auxiliary is None else len(self.auxiliary),
        }


class Queries:
    """A channel on which a passive party answers with its features of rows of the asker's making.

    It counts rows, refuses more than its limit and keeps what was asked and answered.

    Args:
        answer: from inputs of the party's bottom model (training, row, encoded) to features (training, row, feature).
        limit: rows that may be asked of each training.

    Attributes:
        asked, answered: of each call, in order.

    Raises:
        BadInputError: the limit is negative.

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
        """Rows asked so far, of each training."""
        return sum(rows.shape[1] for rows in self.asked)

    @property
    def left(self) -> int:
        """Rows that may still be asked."""
        return self.limit - self.used

    def ask(self, rows: Float[Tensor, "training row encoded"]) -> Float[Tensor, "training row feature"]:
        """Return the party's features of rows.

        Raises:
            BadInputError: that are more than are left.
        """
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
    """Rows of the same kind that the attacker of vertical learning holds whole, for each training.

    Attributes:
        cells: of the target's columns.
        own: of the attacker's own columns.
        labels: class codes.
        features: what every party but the target sends for them, in the parties' order; the target's place is empty.
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
    """Records of the target that the attacker holds, with the features that the target sent for them.

    Attributes:
        cells: of the target's columns.
        features: as received.
        own: of the attacker's own columns.
    """

    cells: Float[Tensor, "training leaked column"]
    features: Float[Tensor, "training leaked feature"]
    own: Float[Tensor, "training leaked own"]

    @property
    def records(self) -> int:
        """Number of records."""
        return self.cells.shape[1]


@dataclass(frozen=True)
class KnownFeatures:
    """What an adaptive attacker of vertical learning knows of the defenses.

    Attributes:
        names: of the defenses in force, with their arguments.
        noise: standard deviation of the normal noise on features, in units of their own.
    """

    names: Mapping[str, Mapping[str, float | int | str | bool]] = field(default_factory=dict)
    noise: float = 0.0

    def describe(self) -> dict[str, object]:
        """Return it as plain values."""
        return {name: dict(arguments) for name, arguments in self.names.items()}


@dataclass(frozen=True)
class WeightGradients:
    """Gradients by the parameters of the target's bottom model, which do not cross the wire of vertical learning.

    Published attacks on gradients start from them. They are of batches of the attacked records, one after the other, as
    though the trained network took one more step on each.

    Attributes:
        parameters: of each batch's mean loss, by name, shape (training, batch, *parameter).
        returned: of the same loss by each record's features, as the attacker itself sent it to the target.
    """

    parameters: Mapping[str, Tensor]
    returned: Float[Tensor, "training record feature"]

    @property
    def batches(self) -> int:
        """Number of batches."""
        return next(iter(self.parameters.values())).shape[1]

    @property
    def batch_size(self) -> int:
        """Records of a batch."""
        return self.returned.shape[1] // self.batches


Grant = Literal["auxiliary", "queries", "leaked", "bottom", "gradients"]


@dataclass(frozen=True)
class FeatureKnowledge:
    """Side information of the active party in vertical learning.

    Attributes:
        schema: the target's columns, categories, bounds.
        marginals: of each of them.
        defense: what the target does to features, and what is done to gradients.
        auxiliary: rows that it holds whole; None where it has none.
        queries: on which the target answers; None where it does not.
        leaked: records of the target; None where there are none.
        bottom: the target's bottom model; None where it is unknown.
        gradients: by that model's parameters; None where they stay with the target.
        image: channels, height and width of the target's part of an image, where its columns are pixels.
    """

    schema: Schema
    marginals: tuple[Marginal, ...]
    defense: KnownFeatures = field(default_factory=KnownFeatures)
    auxiliary: FeatureAuxiliary | None = None
    queries: Queries | None = None
    leaked: Leaked | None = None
    bottom: nn.Module | None = None
    gradients: WeightGradients | None = None
    image: tuple[int, int, int] | None = None

    def only(self, grants: Collection[Grant]) -> FeatureKnowledge:
        """Return it with these grants alone: schema, marginals and defense are always known."""
        return replace(self, **{name: None for name in get_args(Grant) if name not in grants})

    def granted_auxiliary(self, what: str) -> FeatureAuxiliary:
        """Return the auxiliary rows.

        Raises:
            BadInputError: there are none.
        """
        if self.auxiliary is None or not self.auxiliary.rows:
            raise BadInputError(f"{what} needs auxiliary rows, but the attacker holds none; grant it some (auxiliary).")
        return self.auxiliary

    def granted_queries(self, what: str) -> Queries:
        """Return the channel.

        Raises:
            BadInputError: there is none, or it allows nothing more.
        """
        if self.queries is None or self.queries.left < 1:
            raise BadInputError(
                f"{what} needs answers of the target, but the attacker has a budget of 0 queries; grant it some "
                "(queries), or choose an attack that asks nothing."
            )
        return self.queries

    def granted_leaked(self, what: str) -> Leaked:
        """Return the leaked records.

        Raises:
            BadInputError: there are none.
        """
        if self.leaked is None or not self.leaked.records:
            raise BadInputError(f"{what} needs leaked records, but the attacker holds none; grant it some (leaked).")
        return self.leaked

    def granted_bottom(self, what: str) -> nn.Module:
        """Return the target's bottom model.

        Raises:
            BadInputError: it is unknown.
        """
        if self.bottom is None:
            raise BadInputError(f"{what} needs the target's bottom model, which the attacker does not know; grant it.")
        return self.bottom

    def granted_gradients(self, what: str) -> WeightGradients:
        """Return the gradients by the bottom model's parameters.

        Raises:
            BadInputError: there are none.
        """
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
class PooledKnowledge:
    """Side information of a party of pooled learning, or of a client of its model.

    Attributes:
        learner: how the joint model was trained.
        auxiliary: rows of the same kind, with the attribute known.
        queries: what the joint model is asked.
        own: rows that the attacker itself put into the pool; None where it is no party.
        rows: that the victim put into it.
        shares: of the attribute that the victim's rows may have, in increasing order.
        others: shares of further parties of as many rows each.
        answers: what the model's answers go through, as far as the attacker knows; None for nothing.

    Raises:
        BadInputError: there are fewer than two shares, shares are not in increasing order, auxiliary rows all carry the
            attribute or none does, or own rows or queries have other columns than auxiliary rows.
    """

    learner: Learner
    auxiliary: MarkedRows
    queries: Tensor
    own: MarkedRows | None
    rows: int
    shares: tuple[float, ...] = (0.33, 0.67)
    others: tuple[float, ...] = ()
    answers: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if len(self.shares) < 2 or any(a >= b for a, b in zip(self.shares, self.shares[1:], strict=False)):
            raise BadInputError(
                f"an attack tells at least two shares apart, in increasing order; got {list(self.shares)}."
            )
        carrying = int(self.auxiliary.carries.sum())
        if carrying in (0, len(self.auxiliary)):
            raise BadInputError(
                f"{carrying} of {len(self.auxiliary)} auxiliary rows carry the sensitive attribute, so that it has one "
                "value and no share to learn; choose another attribute, or rows where it differs."
            )
        held = {"queries": self.queries, **({} if self.own is None else {"the adversary's rows": self.own.inputs})}
        for name, rows in held.items():
            if rows.shape[1:] != self.auxiliary.inputs.shape[1:]:
                raise BadInputError(
                    f"{name} have {tuple(rows.shape[1:])} numbers each, auxiliary rows "
                    f"{tuple(self.auxiliary.inputs.shape[1:])}; they are rows of the same columns."
                )

    def answered(self, answers: Tensor) -> Tensor:
        """Return what the attacker would see of a model's answers."""
        return answers if self.answers is None else self.answers(answers)

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        return {
            "training": self.learner.describe(),
            "auxiliary": len(self.auxiliary),
            "own rows": 0 if self.own is None else len(self.own),
            "the victim's rows": self.rows,
            "shares": list(self.shares),
            "other parties": len(self.others),
            "queries": len(self.queries),
        }
