"""The spec of an audit of federated statistics: plain values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from seepage.protocols.tables import Published
from seepage.settings.option import ATTACK, PARTIES, Count, Counts, Option
from seepage.settings.part import named, several
from seepage.settings.spec import Attacks, Baselines, Names, QuasiIdentifiers, Spec

StatisticsProtocol = Literal["glm", "cox", "table"]
Project = Literal["datashield", "vantage6"]
Regression = Literal["binomial", "gaussian", "poisson"]


class Guards(NamedTuple):
    """Refusals of a project before it sends sums, and what it sends."""

    ratio: float
    level: int
    least_rows: int
    start: Literal["zero", "outcome"]
    sends: Literal["score", "right"]


# Defaults of the projects' own settings: nfilter.glm and nfilter.tab of dsBase 6.3.3; GLM_MAX_PCT_VARS_VS_OBS,
# GLM_MIN_ROWS_PER_CATEGORY_LEVEL and GLM_MINIMUM_ROWS of v6-glm-py 1.2.1.
GUARDS: dict[Project, Guards] = {
    "datashield": Guards(0.33, 3, 3, "zero", "score"),
    "vantage6": Guards(0.10, 3, 10, "outcome", "right"),
}
_USUAL = "the project's"


class StatisticsSpec(Spec):
    """A spec of an audit of federated statistics."""

    setting: ClassVar[str] = "statistics"
    about: ClassVar[str] = "federated statistics: what sums of regressions, survival models and tables tell of records"
    unit: ClassVar[str] = "site"
    quick: ClassVar[Mapping[str, object]] = {"repetitions": 2, "rows": (100,)}
    first: ClassVar[tuple[str, ...]] = ("protocol", "project", "time", "columns", "rows", "sites", "iterations")
    guide: ClassVar[str] = """Measure what a site's sums in a federated regression tell of its records.

Sites fit a model together: in every iteration each sends sums over its own rows at coefficients that all know, as in
DataSHIELD and vantage6. Whoever receives them reads how many records of the site have each pattern of categories.
Beside every figure stands the best baseline, such as the likeliest table that has the cross tables which the first
message publishes by design. Survival models (cox) and tables that are published again (table) are audited alike.

`Examples`

    seepage statistics --data people.csv --target outcome --protocol glm

    seepage statistics --dataset german --column housing --column job --column savings --rows 100 --rows 300

    seepage statistics --data people.csv --target died --time days --defense none --defense coarser_times

    seepage statistics --project vantage6 --defense none --defense 'rounded_sums:{digits: 2}'
"""

    protocol: Annotated[
        StatisticsProtocol,
        Option(
            "Statistics that sites compute together: a generalised linear model by Newton steps (glm), or a survival "
            "model from risk-set sums at each event time (cox), or cross tables of every two columns, published again "
            "after some records joined (table).",
            PARTIES,
        ),
    ] = "glm"
    project: Annotated[
        Project,
        Option(
            "Project whose messages and guards are audited: datashield (information, score and deviance, from "
            "coefficients of zero) or vantage6 (X^T W X, X^T W z and deviance, from the outcomes).",
            PARTIES,
        ),
    ] = "datashield"
    family: Annotated[
        Regression | None,
        Option("Family of the model, with its canonical link.", PARTIES, default="binomial, or gaussian for a number"),
    ] = None
    time: Annotated[
        str | None,
        Option(
            "Column of times, which makes it a survival model; the target says whether an event ended them.",
            PARTIES,
            "COLUMN",
            default="drawn, to the day",
        ),
    ] = None
    changed: Annotated[
        int,
        Field(ge=0),
        Option(
            "Number of records that the second run of tables has beside the first; these are attacked. With 0 there is "
            "one run, all of whose records are attacked.",
            PARTIES,
        ),
    ] = 1
    published: Annotated[
        Published,
        Option(
            "Tables that are published: cross tables of every two columns, counts of single columns, or these with "
            "sums, squares and quantiles of numbers, of all records and by outcome (summaries).",
            PARTIES,
        ),
    ] = "cross_tables"
    columns: Annotated[
        Names,
        Option(
            "Column of the model's design.",
            PARTIES,
            "COLUMN",
            default="as many, in their order, as the guard on parameters and 2,000 patterns leave",
        ),
    ] = ()
    bins: Annotated[
        int, Field(ge=2, le=50), Option("Number of levels that a number is cut into, by public quantiles.", PARTIES)
    ] = 4
    rows: Annotated[
        Counts,
        BeforeValidator(several),
        Field(min_length=1),
        Option(
            "Number of records of a site; each number is audited.",
            PARTIES,
            "ROWS",
            default="200, or as many as leave a tenth of the table to test on",
            name="rows",
            swept=True,
        ),
    ] = (200,)
    sites: Annotated[Count, Option("Number of sites, the attacked one included.", PARTIES)] = 3
    summed: Annotated[
        Count,
        Option(
            "Number of sites whose sums are added up before anyone sees them, as secure aggregation does; the records "
            "of all of them are then attacked.",
            PARTIES,
            "SITES",
        ),
    ] = 1
    iterations: Annotated[Count, Option("Largest number of iterations; fewer where the deviance settles.", PARTIES)] = (
        25
    )
    start: Annotated[
        Literal["zero", "outcome"] | None,
        Option("First step: coefficients of zero, or halfway from each outcome to a mean.", PARTIES, default=_USUAL),
    ] = None
    parameter_ratio: Annotated[
        float | None,
        Field(gt=0, le=1),
        Option("Guard: largest number of coefficients for each record of a site.", PARTIES, default=_USUAL),
    ] = None
    minimum_level: Annotated[
        int | None,
        Field(ge=1),
        Option(
            "Guard: least number of records of a level at every site; rarer ones are taken together with the most "
            "frequent level.",
            PARTIES,
            default=_USUAL,
        ),
    ] = None
    minimum_rows: Annotated[
        int | None, Field(ge=1), Option("Guard: least number of records of a site.", PARTIES, default=_USUAL)
    ] = None
    attacks: Attacks = named("counts")
    baselines: Baselines = named("likeliest_table", "cross_tables", "own_marginals", "stereotypes", "random")
    quasi_identifiers: QuasiIdentifiers = ()
    repetitions: Annotated[
        Count,
        Option(
            "Number of attacked sites, each in a federation of its own; intervals are over them.",
            ATTACK,
            default="as many as show a lift within 10 points, from 5 to 20",
        ),
    ] = 20

    @model_validator(mode="before")
    @classmethod
    def _of_protocol(cls, values: object) -> object:
        """Fill in a survival model where times are given, and the attack of one or of tables."""
        usual = {"cox": "risk_sets", "table": "differencing"}
        if isinstance(values, Mapping) and values.get("time") is not None and "protocol" not in values:
            values = {**values, "protocol": "cox"}
        if isinstance(values, Mapping) and values.get("protocol") in usual and "attacks" not in values:
            return {**values, "attacks": named(usual[values["protocol"]])}
        return values

    @property
    def guards(self) -> Guards:
        """Guards of the project, with those that were given."""
        usual = GUARDS[self.project]
        given: dict[str, Any] = {
            "ratio": self.parameter_ratio,
            "level": self.minimum_level,
            "least_rows": self.minimum_rows,
            "start": self.start,
        }
        return usual._replace(**{name: value for name, value in given.items() if value is not None})

    @model_validator(mode="after")
    def _check(self) -> StatisticsSpec:
        if self.summed > self.sites:
            raise ValueError(
                f"sums of {self.summed} sites are to be added up, but there are {self.sites}; give more sites"
            )
        least = self.guards.least_rows
        if min(self.rows) < least:
            raise ValueError(
                f"a site of {self.project} refuses with fewer than {least} rows, got rows={min(self.rows)}; give more "
                f"rows, or set the guard anew (minimum_rows)"
            )
        if self.protocol == "table" and (self.family is not None or self.summed > 1):
            raise ValueError("tables have no family and are not added up; leave family and summed out, or use glm")
        if self.protocol != "table" and self.published != "cross_tables":
            raise ValueError(f"published says which tables there are, got {self.published}; use protocol table")
        if self.protocol == "cox" and self.family is not None:
            raise ValueError(f"a survival model has no family, got family={self.family}; leave it out, or use glm")
        if self.protocol != "cox" and self.time is not None:
            raise ValueError(f"times are those of a survival model, got time={self.time!r}; use protocol cox")
        if self.start == "outcome" and self.project == "datashield":
            raise ValueError("sites of datashield start from coefficients of zero; leave start out, or use vantage6")
        return self
