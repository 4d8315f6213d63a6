"""The spec of an audit of pooled learning: plain values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from seepage import registry
from seepage.errors import BadInputError, Remedy
from seepage.registry import Registry
from seepage.settings.option import ATTACK, KNOWLEDGE, PARTIES, TABLE, Count, Counts, Option, Positive, SpecField
from seepage.settings.part import Part
from seepage.settings.spec import (
    OF_INFERENCE,
    Attacks,
    Baselines,
    ContradictionError,
    DatasetName,
    File,
    Names,
    Plain,
    Spec,
)
from seepage.tabular.policy import Policy
from seepage.tabular.schema import Category

PooledProtocol = Literal["multi_party", "single_party", "update"]
# Attacks of the protocol ``update``, and shares to be distinguished.
_OF_UPDATES = ("dominant", "joint")
_FINE = (0.1, 0.3, 0.5, 0.7, 0.9)


class Synthetic(Plain):
    """A synthetic sensitive column, see ``datasets.marked.with_synthetic``."""

    columns: Annotated[Names, Option("Column that goes with it.", TABLE, "COLUMN")] = ()
    target: Annotated[bool, Option("Whether the target goes with it.", TABLE)] = True
    strength: Annotated[float, Field(ge=0, le=1), Option("Strength of the dependence.", TABLE)] = 0.8


class PooledSpec(Spec):
    """A spec of an audit of pooled learning."""

    setting: ClassVar[str] = "pooled"
    about: ClassVar[str] = "pooled learning: what a joint model's answers tell of a sensitive column's distribution"
    unit: ClassVar[str] = "attack seed"
    member: ClassVar[str | None] = "target model"
    members: ClassVar[str] = "targets"
    quick: ClassVar[Mapping[str, object]] = {"repetitions": 2, "targets": 20, "shadows": 40}
    guide: ClassVar[str] = """Measure what a jointly trained model tells of a sensitive column's distribution elsewhere.

Parties train one model on all their rows inside a computation that gives nothing away but the model's answers. The
attacker trains models like it on rows of its own, with one share of the sensitive value and with another, and compares
answers. Joint models with known shares say how often that is right, beside a baseline that guesses.

`Examples`

    seepage pooled --sensitive sex --no-keep --defense none --defense 'rounded_answers:{digits: 2}' --out pooled

    seepage pooled --data people.csv --target outcome --sensitive smoker --rows 500 --auxiliary 2000

    seepage pooled --data reviews.csv --text-column review --target stars --sensitive department --value shoes

    seepage pooled --nodes papers.csv --edges cited.csv --target field --sensitive country --value FR
"""
    # The choice of the secret column changes nothing of the table.
    steering: ClassVar[tuple[str, ...]] = OF_INFERENCE
    of_own: ClassVar[tuple[str, ...]] = ("text_column", "nodes", "edges", "node_column")

    dataset: DatasetName = "adult_education"
    sensitive: Annotated[
        Names,
        Field(min_length=1, max_length=1),
        Option("Column whose distribution is the secret, exactly one.", TABLE, "COLUMN"),
    ] = ("sex",)
    text_column: Annotated[
        str | None,
        Option(
            "Column of your table with texts: models learn the target from them, and read no other column.",
            TABLE,
            "COLUMN",
            default="none, models learn from the columns",
        ),
    ] = None
    nodes: Annotated[
        File | None,
        Option(
            "Table of your own with the nodes of a graph, a row each: their identifier, features, the target and the "
            "sensitive column. It stands in the place of --data, beside --edges.",
            TABLE,
            "FILE",
            default="none",
        ),
    ] = None
    edges: Annotated[
        File | None,
        Option(
            "Table with the edges of the graph, a row each: the identifiers of two nodes in its first two columns.",
            TABLE,
            "FILE",
            default="none",
        ),
    ] = None
    node_column: Annotated[str, Option("Column with the identifiers of the nodes.", TABLE, "COLUMN")] = "id"
    value: Annotated[
        Category | None,
        Option(
            "Value of the sensitive column whose share is asked for; of numbers, those above it.",
            ATTACK,
            "VALUE",
            default="the rarest that a tenth of the rows have, numbers above the median",
        ),
    ] = None
    keep: Annotated[bool, Option("Whether models are trained on the sensitive column, too.", PARTIES)] = True
    inputs: Annotated[
        Names, Option("Column that models are trained on besides.", PARTIES, "COLUMN", default="all")
    ] = ()
    group: Annotated[
        str | None,
        Option(
            "Column whose equal values mark rows that belong together, such as those of a patient. All of them go to "
            "one party, and models are not trained on the column.",
            PARTIES,
            "COLUMN",
            default="each row on its own",
        ),
    ] = None
    synthetic: Annotated[
        Synthetic | None,
        Option("Sensitive column A to be made up, such as '{strength: 0.8}'.", TABLE, "OPTIONS", default="none"),
    ] = None
    protocol: Annotated[
        PooledProtocol,
        Option(
            "Part of the attacker: it puts rows of its own into the pool (multi_party), only asks (single_party), or "
            "compares answers before and after the victim brings in new rows, whose share is asked for (update).",
            PARTIES,
        ),
    ] = "multi_party"
    hidden: Annotated[
        Counts, Option("Number of units of a hidden layer of models.", PARTIES, "UNITS", default="logistic regression")
    ] = ()
    epochs: Annotated[
        Count, Option("Number of passes over the pooled rows.", PARTIES, default="20; of texts 10, of graphs 200")
    ] = 20
    batch_size: Annotated[
        int | None, Field(ge=1), Option("Number of records of a step of training.", PARTIES, "RECORDS")
    ] = 128
    learning_rate: Annotated[Positive, Option("Learning rate of training.", PARTIES)] = 0.01
    weight_decay: Annotated[float, Field(ge=0), Option("Weight decay of training.", PARTIES)] = 1e-4
    rows: Annotated[
        Count,
        Option(
            "Number of rows of the victim, the attacker and each further party.",
            PARTIES,
            "ROWS",
            default="2000, or as many as fit",
        ),
    ] = 2_000
    auxiliary: Annotated[
        int,
        Field(ge=4),
        Option(
            "Number of rows of the attacker's own in which the attribute is known.",
            KNOWLEDGE,
            "ROWS",
            default="10000, or as many as fit",
        ),
    ] = 10_000
    auxiliary_share: Annotated[
        float | None, Field(gt=0, lt=1), Option("Share of the attribute in the auxiliary rows.", KNOWLEDGE)
    ] = 0.5
    auxiliary_from: Annotated[
        Literal["rows", "marginals", "answers"],
        Option(
            "Origin of the auxiliary rows: rows of the same kind, or made up from columns' marginals, or from a joint "
            "model's answers.",
            KNOWLEDGE,
        ),
    ] = "rows"
    own_share: Annotated[
        float, Field(ge=0, le=1), Option("Share of the attribute in the rows that the attacker puts in.", PARTIES)
    ] = 0.33
    queries: Annotated[
        Count, Option("Number of queries that the attacker asks.", KNOWLEDGE, default="1000, or as many as fit")
    ] = 1_000
    apart: Annotated[
        bool, Option("Whether queries are rows of their own, and not among the auxiliary ones.", KNOWLEDGE)
    ] = False
    shares: Annotated[
        tuple[float, ...],
        Option("Share of the attribute in the victim's rows to distinguish, as many targets of each.", ATTACK, "SHARE"),
    ] = (0.33, 0.67)
    parties: Annotated[
        int, Field(ge=2, le=10), Option("Number of parties that pool their rows, the attacker among them.", PARTIES)
    ] = 2
    targets: Annotated[int, Field(ge=2), Option("Number of joint models attacked for each attack seed.", ATTACK)] = 100
    shadows: Annotated[
        int, Field(ge=4), Option("Number of models that the attacker trains for each attack seed.", ATTACK)
    ] = 300
    attacks: Attacks = (
        Part(name="meta", options={"features": "raw", "classifier": "lr"}, label="meta_raw"),
        Part(name="meta"),
        Part(name="kl"),
    )
    baselines: Baselines = (Part(name="chance"), Part(name="constant_share"))
    repetitions: Annotated[
        Count,
        Option(
            "Number of attack seeds: another auxiliary sample, attacker, shadow models and targets each; intervals are "
            "over them.",
            ATTACK,
        ),
    ] = 5

    @model_validator(mode="before")
    @classmethod
    def _nodes_are_the_table(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("nodes") is not None and values.get("data") is None:
            return {**values, "data": values["nodes"]}
        return values

    @model_validator(mode="before")
    @classmethod
    def _of_updates(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("protocol") == "update":
            return {"attacks": _OF_UPDATES, "shares": _FINE, **values}
        return values

    @classmethod
    def registered(cls, field: SpecField) -> Registry[object]:
        """Return the registry that the names of a field are looked up in; texts and graphs are datasets, too."""
        registered = super().registered(field)
        return registered.joined(registry.populations) if field.option.parts == "datasets" else registered

    @classmethod
    def read_beside(cls, values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Return the columns of texts or of identifiers; beside texts, models read no other column."""
        texts, edges = values.get("text_column"), values.get("edges")
        if texts is not None:
            sensitive = values.get("sensitive", ())
            return {"beside": (str(texts),), "only": (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)}
        return {} if edges is None else {"beside": (str(values.get("node_column", "id")),)}

    @property
    def policy(self) -> Policy:
        """The policy by which the schema of a user's table is inferred; the secret is always a column."""
        return replace(super().policy, sensitive=frozenset({self.secret}))

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns of texts, or of identifiers of nodes."""
        return self.read_beside(self.__dict__).get("beside", ())

    @property
    def secret(self) -> str:
        """Column whose distribution is the secret."""
        return self.sensitive[0]

    @property
    def new_shares(self) -> tuple[float, float]:
        """Shares of rows that an update may bring in: next to the ends of ``shares``, as both kinds are mixed."""
        skipped = 1 if len(self.shares) >= 4 else 0
        return self.shares[skipped], self.shares[-1 - skipped]

    @property
    def scored_columns(self) -> tuple[str, ...]:
        """Columns of results that have an accuracy of their own: each of several shares, or pairs of them."""
        if self.protocol == "update":
            return tuple(pair(a, b) for a in self.new_shares for b in self.new_shares)
        return tuple(f"{share:.0%}" for share in self.shares) if len(self.shares) > 2 else ()

    @model_validator(mode="after")
    def _fits(self) -> PooledSpec:
        table = self.data or self.nodes
        if table is not None and "sensitive" not in self.model_fields_set:
            raise ContradictionError(
                "nodes" if self.data is None else "data",
                f"the table {str(table)!r} needs a sensitive column, whose distribution is the secret; name it (",
                Remedy("sensitive", placeholder="COLUMN"),
                ").",
            )
        shares = self.shares
        if len(shares) < 2 or any(not 0 <= share <= 1 for share in shares) or list(shares) != sorted(set(shares)):
            raise BadInputError(f"shares are at least two numbers in [0, 1], in increasing order; got {list(shares)}.")
        if self.text_column is not None and self.edges is not None:
            raise BadInputError(
                f"models learn from texts ({self.text_column}) or from a graph ({self.edges}); leave out one."
            )
        update = self.protocol == "update"
        worlds = 4 if update else len(shares)
        if self.targets % worlds:
            raise BadInputError(
                f"targets are as many of each of {worlds} {'pairs of shares' if update else 'shares'}; got "
                f"{self.targets}, give a multiple of {worlds}."
            )
        if self.shadows % len(shares) or self.shadows < 2 * len(shares):
            raise BadInputError(
                f"shadow models are as many of each of {len(shares)} shares, two at least; got {self.shadows}."
            )
        if self.group is not None and self.parties > 2:
            raise BadInputError(
                f"rows of one group ({self.group}) go to one of two parties, got parties={self.parties}; leave out "
                "further parties, or the groups."
            )
        if self.secret in self.beside:
            raise BadInputError(
                f"{self.secret!r} is the sensitive column, and cannot be read as texts or identifiers at once; name "
                "another."
            )
        if self.group == self.secret:
            raise BadInputError(f"{self.group!r} is the sensitive column; group rows by another one.")
        if update and (self.parties > 2 or len(shares) < 3):
            raise BadInputError(
                "an update is audited with two parties and at least three shares, such as 0.1, 0.3, 0.5, 0.7 and 0.9; "
                f"got {self.parties} parties and {list(shares)}."
            )
        return self


def pair(first: float, second: float) -> str:
    """Return the name in results of the shares of a victim's first and new rows, such as ``30% then 70%``."""
    return f"{first:.0%} then {second:.0%}"
