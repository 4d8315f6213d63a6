"""The spec of an audit of federated trees: plain values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from seepage.settings.option import ATTACK, KNOWLEDGE, PARTIES, Amount, Count, Counts, Fraction, Option, Positive
from seepage.settings.part import Part, named, several
from seepage.settings.spec import Attacks, Baselines, QuasiIdentifiers, Spec

TreesProtocol = Literal["histogram", "bagging", "cyclic", "secureboost"]
# Attacks on tree files, in which nothing links the cells of a record, so that rows come from an optimisation.
_OF_FILES = ("timberstrike", "leaf_counts", "thresholds", "hessians")
_BASELINES = named("stereotypes", "mode", "random", "own_marginals")
# Attacks on columns and on labels where columns are shared out, and what the parties know without any message.
_OF_COLUMNS = named("bin_sums", "node_heads", "node_clusters")
_BASELINES_OF_COLUMNS = named("constant", "median", "own_columns", "label_mode", "label_columns")
# Options that have no meaning under the protocols of the other kind.
_OF_CLIENTS, _BY_COLUMNS = ("clients", "summed"), ("passive", "share", "label_party", "leaked", "known_labels")


class TreesSpec(Spec):
    """A spec of an audit of federated trees."""

    setting: ClassVar[str] = "trees"
    about: ClassVar[str] = "federated trees: what histograms and tree files tell of the records that they were grown on"
    unit: ClassVar[str] = "federation"
    quick: ClassVar[Mapping[str, object]] = {"repetitions": 2, "rows": (50,), "trees": 10}

    guide: ClassVar[str] = """Measure what histograms and tree files of federated boosting tell of a client's records.

Clients grow boosted trees with xgboost: together, by sums of derivatives in every node and bin (histogram), or each on
its own rows, whose tree files they send (bagging, cyclic). Whoever receives them reads the records behind them. Beside
every figure stands the best baseline; own_marginals holds the client's counts of every column, unlinked.

With secureboost two parties hold columns of the same rows: the active party reads the passive one's columns from the
sums that it decrypts, and the passive party reads labels from the rows of the nodes that it is told of.

`Examples`

    seepage trees --data people.csv --target outcome

    seepage trees --dataset german --rows 50 --rows 200 --trees 10 --defense none --defense 'max_bin:{bins: 16}'

    seepage trees --protocol bagging --defense none --defense 'strip_fields:{fields: sum_hessian}'

    seepage trees --protocol secureboost --passive age,education --rows 5000 --defense none --defense first_trees
"""

    protocol: Annotated[
        TreesProtocol,
        Option(
            "Message of a client: sums of derivatives while all grow trees together (histogram), trees that are added "
            "to the global model in every round (bagging), or the whole model, which one client after another extends "
            "(cyclic). With secureboost two parties hold columns of the same rows: sums over a passive party's bins, "
            "and the rows of every node.",
            PARTIES,
        ),
    ] = "histogram"
    rows: Annotated[
        Counts,
        BeforeValidator(several),
        Field(min_length=1),
        Option(
            "Number of records of a client, or of the parties that share out columns; each number is audited.",
            PARTIES,
            "ROWS",
            default="200, or as many as there are; 2000 with secureboost",
            name="rows",
            swept=True,
        ),
    ] = (200,)
    clients: Annotated[Count, Option("Number of clients, the attacked one included.", PARTIES)] = 5
    summed: Annotated[
        Count,
        Option(
            "Number of clients whose sums are added up before anyone sees them, as secure aggregation does; the "
            "records of all of them are then attacked.",
            PARTIES,
            "CLIENTS",
        ),
    ] = 1
    trees: Annotated[Count, Option("Number of boosting rounds.", PARTIES, "ROUNDS")] = 50
    depth: Annotated[Count, Field(le=12), Option("Largest depth of a tree.", PARTIES)] = 6
    learning_rate: Annotated[Positive, Option("Factor of each tree's weights (eta).", PARTIES)] = 0.3
    regularisation: Annotated[float, Field(ge=0), Option("L2 penalty on weights (lambda).", PARTIES)] = 1.0
    min_child_weight: Annotated[
        float, Field(ge=0), Option("Least sum of second derivatives in a child of a split.", PARTIES)
    ] = 1.0
    max_bin: Annotated[int, Field(ge=2), Option("Largest number of bins of a column.", PARTIES, "BINS")] = 256
    base_score: Annotated[
        float | None,
        Option("Prediction before the first tree.", PARTIES, default="xgboost's estimate from the labels of all"),
    ] = None
    passive: Annotated[
        tuple[str, ...],
        BeforeValidator(several),
        Option(
            "Column of the passive party with secureboost; the active party has the others.",
            PARTIES,
            "COLUMN",
            default="a share of each kind of column, sensitive ones of your table first",
        ),
    ] = ()
    share: Annotated[
        Fraction,
        Option("Share of the columns that the passive party holds with secureboost, if none is named.", PARTIES),
    ] = 0.5
    label_party: Annotated[
        tuple[str, ...],
        BeforeValidator(several),
        Option(
            "Column of the passive party that is after the labels with secureboost, where several parties share the "
            "passive columns; the active party is after those of all.",
            PARTIES,
            "COLUMN",
            default="all passive columns, of one party",
        ),
    ] = ()
    leaked: Annotated[
        Amount,
        Option(
            "Number of records that the active party of secureboost knows whole; baselines learn from them, and they "
            "do not count.",
            KNOWLEDGE,
            "RECORDS",
        ),
    ] = 100
    known_labels: Annotated[
        Amount,
        Option(
            "Number of records whose labels the passive party of secureboost knows; they do not count.",
            KNOWLEDGE,
            "RECORDS",
        ),
    ] = 100
    attacks: Attacks = (Part(name="anchor"),)
    baselines: Baselines = _BASELINES
    quasi_identifiers: QuasiIdentifiers = ()
    repetitions: Annotated[
        Count,
        Option(
            "Number of attacked clients, each in a federation of its own; intervals are over them.",
            ATTACK,
            default="as many as show a lift within 10 points, from 5 to 20",
        ),
    ] = 20

    @model_validator(mode="before")
    @classmethod
    def _of_protocol(cls, values: object) -> object:
        """Fill in the attacks and baselines of a protocol whose messages are no clients' sums."""
        if not isinstance(values, Mapping):
            return values
        if values.get("protocol") in ("bagging", "cyclic"):
            return {"attacks": named(*_OF_FILES), **values}
        if values.get("protocol") == "secureboost":
            known = {"leaked": values.get("leaked"), "labels": values.get("known_labels")}
            without = {"leaked": ("own_columns",), "labels": ("node_heads", "label_columns")}
            left_out = [name for need, names in without.items() if known[need] == 0 for name in names]

            def applying(parts: tuple[Part, ...]) -> tuple[Part, ...]:
                return tuple(part for part in parts if part.name not in left_out)

            return {"attacks": applying(_OF_COLUMNS), "baselines": applying(_BASELINES_OF_COLUMNS), **values}
        return values

    @model_validator(mode="after")
    def _check(self) -> TreesSpec:
        foreign = _OF_CLIENTS if self.protocol == "secureboost" else _BY_COLUMNS
        for name in foreign:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                shares = "columns" if self.protocol == "secureboost" else "rows"
                raise ValueError(
                    f"{name} has no meaning where {shares} are shared out ({self.protocol}), got {name}={value!r}; "
                    "leave it out, or choose another protocol"
                )
        if self.summed > self.clients:
            raise ValueError(
                f"sums of {self.summed} clients are to be added up, but there are {self.clients}; give more clients"
            )
        if self.protocol != "histogram" and self.summed > 1:
            raise ValueError(
                f"tree files are not added up, got summed={self.summed} with the protocol {self.protocol!r}; use "
                "histogram, or leave summed at 1"
            )
        if self.base_score is not None and not abs(self.base_score) < float("inf"):
            raise ValueError(f"base_score is a finite number, got {self.base_score}")
        return self
