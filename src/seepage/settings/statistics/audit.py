"""Audits of federated statistics: a recipient of a site's sums reads the records behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from seepage import datasets
from seepage.assessment import auc
from seepage.assessment.measurement import Measurement
from seepage.assessment.statistics import measure_tables
from seepage.assessment.task import of_task
from seepage.datasets import Dataset
from seepage.datasets.coins import with_parity
from seepage.defenses.statistics import (
    CoarserTimes,
    JumpGuard,
    MinimumCount,
    OneShot,
    RoundedCounts,
    RoundedSums,
    SumNoise,
)
from seepage.digests import Json, plain
from seepage.errors import BadInputError, unknown_name
from seepage.protocols import statistics as newton
from seepage.protocols import survival
from seepage.protocols.tables import LEAST_RECORDS, Publication
from seepage.seeds import stream
from seepage.settings.federations import AttackedParty, FederationsExposure
from seepage.settings.lever import Lever
from seepage.settings.part import Part, mechanisms_of, named
from seepage.settings.setting import About, Configuration, PlannedPart, Scale
from seepage.settings.spec import Spec
from seepage.settings.statistics.design import ModelLevels, as_values, chosen_columns, coarse, model_levels
from seepage.settings.statistics.spec import StatisticsSpec
from seepage.settings.threat_model import Deployment, mechanisms, refuse_inapplicable
from seepage.settings.units import (
    UnitsAudit,
    facts_of,
    planned,
    rows_identity,
    with_fields,
)
from seepage.tabular.schema import Continuous, Discrete
from seepage.text import clean, how_many, listed
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret
from seepage.wire.statistics import (
    Family,
    NewtonMessage,
    NewtonStep,
    NewtonView,
    RiskSetMessage,
    RiskSetView,
    RiskStep,
    StatisticsKnowledge,
    StatisticsMessage,
    StatisticsView,
    TablesMessage,
    TablesView,
    outcomes,
    rows_of,
)

DELTA = 1e-5
_TRAINING = Part(name="training")
# Columns of a record that a sentence names.
_NAMED = 6
_SHOWN = ("project", "family", "columns", "bins", "sites", "summed", "iterations")
# Number of rows that test the joint model.
_TESTED = 2_000
# An accuracy over fewer says nothing.
_LEAST_TESTED = 20
METRICS = ("accuracy", "certified", "exact_match")
STATISTICS_SCALES = {
    "epsilon": Scale(None),
    **dict.fromkeys(
        ("patterns", "rank", "occupied", "iterations", "left_alone", "told_apart", "left_out"), Scale(None)
    ),
    **dict.fromkeys(("coefficient_error", "hazard_ratio_error", "standard_error_ratio"), Scale(None)),
}
_CONTROL_ROWS, _CONTROL_SITES = 60, 3
_CONTROL_TABLE = _CONTROL_ROWS * 2 * _CONTROL_SITES
_FROM_TABLES = ("likeliest_table", "cross_tables")


# Protocols that each mechanism of a defense has a place in, and what it does.
_PLACES: dict[str, tuple[tuple[str, ...], str]] = {
    "rounded": (("glm", "cox", "table"), "rounds sums"),
    "apart": (("glm",), "sends coefficients of each site alone"),
    "noise": (("glm",), "bounds what one record can change"),
    "times": (("cox",), "changes times"),
    "jumps": (("cox",), "changes risk sets"),
    "minimum": (("table",), "leaves numbers of tables out"),
    "counts": (("table",), "rounds numbers of tables"),
}


@dataclass(frozen=True)
class StatisticsDefense:
    """Mechanisms of a defense of federated statistics, ready to use; None for those that it has not."""

    rounded: RoundedSums | None = None
    noise: SumNoise | None = None
    times: CoarserTimes | None = None
    jumps: JumpGuard | None = None
    minimum: MinimumCount | None = None
    counts: RoundedCounts | None = None
    apart: OneShot | None = None


def defense_of(part: Part) -> StatisticsDefense:
    """Return a defense ready to use."""
    kinds = (RoundedSums, SumNoise, CoarserTimes, JumpGuard, MinimumCount, RoundedCounts, OneShot)
    return StatisticsDefense(*mechanisms_of("statistics", part, *kinds))


class StatisticsAudit(UnitsAudit[StatisticsSpec, StatisticsDefense]):
    """An audit of federated statistics; a unit is one attacked site, in a federation of its own."""

    setting = "statistics"
    fewest_rows = 50
    ignored = frozenset({*Spec.model_fields, "repetitions", "rows"}) - {"dataset_options", "seed"}
    data: Dataset
    # Values of numbers that are published as they are.
    numbers: Mapping[int, tuple[float, ...]]
    times: np.ndarray | None
    family: Family
    cut: tuple[str, ...]
    secret: str

    def _set_up(self, spec: StatisticsSpec, dataset: Dataset | None) -> None:
        whole = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
        if whole.layout is not None:
            raise BadInputError(f"models are fitted to tables, but the rows of {whole.name!r} are none; name a table.")
        if "rows" not in spec.model_fields_set:
            # A tenth of the rows is of no site, so that the joint model can be tested.
            fitting = min(max(spec.rows), (len(whole.all) - len(whole.all) // 10) // spec.sites)
            self.spec = spec = spec.model_copy(update={"rows": (max(1, fitting),)})
        most = max(spec.rows) * spec.sites
        if spec.protocol == "table":
            # In the negative control other records join, or are the whole table.
            most = max(spec.rows) + 2 * spec.changed if spec.changed else 2 * max(spec.rows)
        if most > len(whole.all):
            raise BadInputError(
                f"{spec.sites} sites with {max(spec.rows):,} rows each hold {most:,} rows, but {whole.name!r} has "
                f"{len(whole.all):,}; give fewer sites or rows."
            )
        self.family = family_of(spec, whole) if spec.protocol == "glm" else "binomial"
        if spec.protocol == "table" and not isinstance(whole.schema.target, Discrete):
            raise BadInputError(
                f"tables have categories, but the outcome {whole.schema.target.name!r} is a number; name another "
                "target."
            )
        self.times = times_of(spec, whole) if spec.protocol == "cox" else None
        values = as_values(whole, spec.columns) if spec.published == "summaries" else None
        # Tables have no coefficients, and a number has many values.
        ratio = spec.guards.ratio if values is None else np.inf
        columns = chosen_columns(whole, spec.columns, spec.bins, min(spec.rows), ratio, spec.time, values)
        self.whole, self.dataset = whole, coarse(whole, columns, spec.bins, values)
        self.data = self.dataset
        self.numbers = {
            columns.index(name): tuple(column_values.tolist())
            for name, column_values in (values or {}).items()
            if name in columns
        }
        of = whole.schema.columns
        self.cut = tuple(
            column.name
            for column in of
            if isinstance(column, Continuous) and column.name in columns and column.name not in (values or {})
        )
        self.secret = "all cells" if len(columns) == len(of) else f"the cells of {len(columns)} of {len(of)} columns"
        refuse_inapplicable(spec.attacks, deployment(spec))
        self.defenses = {part.title: defense_of(part) for part in spec.defenses}
        for label, defense in self.defenses.items():
            _check_protocol(spec, label, defense)
            if defense.noise is not None and self.family != "binomial":
                raise BadInputError(
                    f"the defense {label!r} bounds what one record can change, which has no bound in a "
                    f"{self.family} model; use it with two classes, or another defense."
                )
        self.parts = planned([_TRAINING], self._baselines(), spec.attacks)
        self.configurations = tuple(Configuration(label, rows) for rows in spec.rows for label in self.defenses)
        self.rows = rows_identity(self.data)
        self.about = self._about()

    def _record(self) -> str:
        """Return the columns of a record, each with the resolution at which it is known."""
        columns = self.data.schema.columns
        named = [
            f"{clean(column.name, 32)} in {len(column.categories)} ranges"
            if isinstance(column, Discrete) and column.name in self.cut
            else clean(column.name, 32)
            for column in columns
        ]
        more = len(named) - _NAMED
        return listed([*named[:_NAMED], *([f"{more} more"] if more > 0 else [])])

    def _baselines(self) -> Sequence[Part]:
        """Return the baselines, of a gaussian model those alone that know no cross table.

        All its weights are alike, so that its sums are cross tables: what they tell is what the messages give away.
        """
        spec = self.spec
        if self.family != "gaussian" or "baselines" in spec.model_fields_set:
            return spec.baselines
        return [part for part in spec.baselines if part.name not in _FROM_TABLES]

    def _about(self) -> About:
        spec, data = self.spec, self.data
        shown = {name: getattr(spec, name) for name in _SHOWN}
        linked = "are alike" if self.family == "gaussian" else "tell of each other only together"
        return About(
            **facts_of(data),
            protocol=spec.protocol,
            model="none" if spec.protocol == "table" else f"{self._kind} regression ({spec.project})",
            lead="What a site's sums in federated statistics tell of the records behind them.",
            attacker="The receiver of the sums",
            sender="A site",
            secret=f"{self.secret}{', numbers as ranges' if self.cut else ''}",
            record="" if self.secret == "all cells" and not self.cut else self._record(),
            message="the sums of all iterations",
            size="site size",
            size_option="--rows",
            control=f"Planted columns {linked}, which sums show: a working attack reads all.",
            threat_model=_threat_model(spec, self._kind, data, self.secret, self.cut),
            scales=STATISTICS_SCALES,
            utility=("auc", "task_accuracy", "task_rmse"),
            settings={**shown, "family": self.family, "columns": list(data.schema.names)},
        )

    @property
    def _kind(self) -> str:
        """Kind of the model, in words."""
        return "survival" if self.spec.protocol == "cox" else self.family

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        if part.kind != "attack":
            return {}
        knowledge = knowledge_of(self, configuration)
        return {"sees": "sums of every iteration", **cast("Mapping[str, Json]", plain(knowledge.describe()))}

    def expose(self, configuration: Configuration, units: range) -> StatisticsExposure:
        """Fit the model in some federations, and return the messages of the attacked sites."""
        seeds = [stream(self.spec.seed, unit, "sites") % 2**62 for unit in units]
        federations = {"glm": _federation, "cox": survival_federation, "table": two_runs}
        federation = federations[self.spec.protocol]
        return StatisticsExposure(self, configuration, units, [federation(self, configuration, s) for s in seeds])

    def of_rows(self, rows: int) -> StatisticsAudit:
        """Return the audit of sites with other numbers of rows, without its guards."""
        fields = {"rows": (rows,), "columns": self.data.schema.names, "parameter_ratio": 1.0, "minimum_rows": 1}
        return StatisticsAudit(with_fields(self.spec, fields), self.whole, self.own)

    def levers(self) -> tuple[Lever, ...]:
        """Return fewer iterations, rarer levels taken together, fewer digits, noise, and sums of more sites."""
        spec = self.spec
        noise = Lever("sum_noise", 0.1, 100.0, strengths=(("multiplier",),))
        return (
            *([Lever("rounded_sums", 6, 1, True, strengths=(("digits",),))] if _figures(spec) else []),
            *([Lever("rounded_counts", 2, 20, True, strengths=(("base",),))] if spec.protocol == "table" else []),
            *([noise] if self.family == "binomial" and spec.protocol == "glm" else []),
            *([Lever("coarser_times", 7, 180, strengths=(("width",),))] if spec.protocol == "cox" else []),
            *([Lever("jump_guard", 2, 20, True, strengths=(("records",),))] if spec.protocol == "cox" else []),
            *([Lever("iterations", spec.iterations, 1, True, spec_field="iterations")] if _iterates(spec) else []),
            *([Lever("one_shot", 1, 1)] if spec.protocol == "glm" else []),
            Lever("minimum_level", spec.guards.level + 1, max(spec.rows) // 4, True, spec_field="minimum_level"),
            *([Lever("summed", spec.summed + 1, spec.sites, True, spec_field="summed")] if _more(spec) else []),
        )

    @property
    def too_small_for_control(self) -> bool:
        """Whether the table has too few rows for the control."""
        return len(self.data.all) < _CONTROL_TABLE

    def planted(self, swapped: bool) -> StatisticsAudit | None:
        """Return a control: planted columns of which cross tables tell nothing, while the sums of later iterations do.

        In a gaussian model, whose sums are cross tables, they are alike.
        In the negative one they tell nothing of each other, so that records of other sites fit no better than drawn
        ones. None where the table is too small.
        """
        if self.too_small_for_control:
            return None
        column = min(self.data.schema.columns, key=lambda c: (abs(c.width - 4), c.name))
        tables_alone = self.family == "gaussian"
        data = with_parity(self.data, column.name, _CONTROL_TABLE, self.spec.seed, not swapped, alike=tables_alone)
        changed = {
            **{"rows": (_CONTROL_ROWS,), "sites": 2 * _CONTROL_SITES, "summed": 1, "iterations": 25},
            # From coefficients of zero Newton's method does not come to an end for large counts.
            **{"project": "vantage6" if self.family == "poisson" else "datashield", "start": None, "time": None},
            **{"columns": data.schema.names, "family": self.spec.family},
            **{"parameter_ratio": 1.0, "minimum_level": 1, "minimum_rows": 1, "changed": max(self.spec.changed, 1)},
            "baselines": named(*([] if tables_alone else ["likeliest_table"]), "own_marginals", "random"),
        }
        return self.control_on(data, changed, swapped)


@dataclass
class StatisticsExposure(FederationsExposure["StatisticsAudit", AttackedParty]):
    """Messages of some attacked sites."""

    metrics = METRICS

    def view(self) -> StatisticsView:
        """Return the attacker's view of all messages."""
        return view_of([federation.message for federation in self.federations])

    def knowledge(self) -> StatisticsKnowledge:
        """Return what the attacker knows beside the messages."""
        return knowledge_of(self.audit, self.configuration)

    def further(self, secret: RecordsSecret, guess: RecordsGuess) -> list[Measurement]:
        """Return figures of whole tables."""
        return measure_tables(secret, guess)


def view_of(messages: Sequence[StatisticsMessage]) -> StatisticsView:
    """Return the view of some messages of one kind."""
    risk_sets = tuple(message for message in messages if isinstance(message, RiskSetMessage))
    tables = tuple(message for message in messages if isinstance(message, TablesMessage))
    if risk_sets:
        return RiskSetView(risk_sets)
    return TablesView(tables) if tables else NewtonView(tuple(m for m in messages if isinstance(m, NewtonMessage)))


def _check_protocol(spec: StatisticsSpec, label: str, defense: StatisticsDefense) -> None:
    for name, (protocols, does) in _PLACES.items():
        if getattr(defense, name) is not None and spec.protocol not in protocols:
            raise BadInputError(
                f"the defense {label!r} {does}, and has no place in the protocol {spec.protocol!r}; use "
                f"{' or '.join(map(repr, protocols))}, or another defense."
            )


def times_of(spec: StatisticsSpec, data: Dataset) -> np.ndarray:
    """Return the time of each row: a column's, or drawn to the day, exponential with a mean of 1,000 days.

    Raises:
        BadInputError: the target has not two classes, or there is no such column of numbers from 0 up.
    """
    target = data.schema.target
    if not isinstance(target, Discrete) or target.width != 2:
        raise BadInputError(
            f"a survival model needs a target that says whether an event ended the time, of two classes; "
            f"{target.name!r} is none. Name one (target)."
        )
    if spec.time is None:
        return np.ceil(np.random.default_rng([spec.seed, 3]).exponential(1_000, len(data.all)))
    if spec.time not in data.schema.names:
        raise unknown_name("column of times:", spec.time, data.schema.names)
    place = data.schema.names.index(spec.time)
    column, times = data.schema.columns[place], data.all.column(place).numpy()
    if isinstance(column, Discrete) or not times.min() >= 0:
        kind = "a category" if isinstance(column, Discrete) else f"below 0 ({times.min():g})"
        raise BadInputError(f"times are numbers from 0 up, but {spec.time!r} is {kind}; name another column (time).")
    return times


def family_of(spec: StatisticsSpec, data: Dataset) -> Family:
    """Return the family of the model; refuse one that does not go with the target."""
    target = data.schema.target
    classes = target.width if isinstance(target, Discrete) else None
    family = spec.family or ("binomial" if classes is not None else "gaussian")
    if family == "binomial" and classes != 2:
        has = "is a number" if classes is None else f"has {classes} classes"
        raise BadInputError(
            f"a binomial model needs an outcome of two classes, but {target.name!r} {has}; name another target, for "
            "numbers another family (family), or audit tables, whose outcomes have any classes (protocol table)."
        )
    numeric = classes is None or all(isinstance(c, int | float) for c in cast("Discrete", target).categories)
    if family != "binomial" and not numeric and classes != 2:
        raise BadInputError(
            f"a {family} model needs a number as outcome, but {target.name!r} has texts; name another target."
        )
    low = min(outcomes(target)) if isinstance(target, Discrete) else target.low
    if family == "poisson" and low < 0:
        raise BadInputError(
            f"a poisson model needs counts, but {target.name!r} has values down to {low:g}; use gaussian."
        )
    return family


def knowledge_of(audit: StatisticsAudit, configuration: Configuration) -> StatisticsKnowledge:
    """Return what the attacker knows beside the messages."""
    data = audit.data
    assert configuration.batch_size is not None
    target, shares = data.schema.target, None
    if isinstance(target, Discrete):
        shares = np.bincount(data.all.labels.long().numpy(), minlength=target.width) / len(data.all)
    records = configuration.batch_size * audit.spec.summed
    if audit.spec.protocol == "table" and audit.spec.changed:
        records = audit.spec.changed
    return StatisticsKnowledge(data.schema, data.statistics, records, label_shares=shares)


def _figures(spec: StatisticsSpec) -> bool:
    return spec.protocol != "table" or spec.published == "summaries"


def _more(spec: StatisticsSpec) -> bool:
    return spec.protocol != "table" and spec.summed < spec.sites


def _iterates(spec: StatisticsSpec) -> bool:
    return spec.protocol != "table" and spec.iterations > 1


def _federation(audit: StatisticsAudit, configuration: Configuration, seed: int) -> AttackedParty:
    spec, data, guards = audit.spec, audit.data, audit.spec.guards
    count = configuration.batch_size
    assert count is not None
    order = np.random.default_rng(seed).permutation(len(data.all))
    used = order[: spec.sites * count]
    cells, labels = data.all.take(torch.from_numpy(used))
    site = np.repeat(np.arange(spec.sites), count)
    design = model_levels(data.schema, cells.long().numpy(), site, guards.level)
    rows = rows_of(design.codes, design.levels)
    check_ratio(design, count, guards.ratio, spec.project)
    y = numbers_of(data, labels)
    recipe = newton.Newton(audit.family, guards.start, guards.sends, spec.iterations)
    sites = [(rows[site == k], y[site == k]) for k in range(spec.sites)]
    defense = audit.defenses[configuration.defense]
    deviations = (0.0, 0.0) if defense.noise is None else defense.noise.deviations(len(data.schema.columns))
    change = _Change(defense, deviations, np.random.default_rng([seed, 1]))
    if defense.apart is not None:
        fitted = newton.averaged(recipe, sites)
        if spec.summed > 1:
            # Sums of several sites' weighted coefficients are no sums over records.
            fitted = replace(fitted, steps=((),) * spec.sites)
    else:
        fitted = newton.fit(recipe, sites, change, floor=deviations[0])
    # In the negative control the message is that of sites whose records are not scored.
    senders = range(spec.summed, 2 * spec.summed) if audit.swapped else range(spec.summed)
    steps = tuple(_summed([fitted.steps[k][t] for k in senders]) for t in range(len(fitted.steps[0])))
    step = 0.0 if defense.rounded is None else defense.rounded.step * spec.summed
    alone = defense.apart is not None
    if alone and steps:
        step = newton.inversion(steps[0].information)
    noise = tuple(d * spec.summed**0.5 for d in deviations)
    message = NewtonMessage(
        audit.family,
        design.levels,
        count * spec.summed,
        steps,
        step,
        cast("tuple[float, float]", noise),
        alone=alone,
    )
    attacked = site < spec.summed
    figures = _utility(audit, fitted, design, (recipe, sites), order[spec.sites * count :][:_TESTED])
    if defense.noise is not None:
        guarantee = defense.noise.guarantee(len(steps), DELTA)
        if guarantee is not None:
            figures.append(Measurement.of_unit("epsilon", None, guarantee.epsilon))
    true = torch.from_numpy(design.codes[attacked]).double()
    return AttackedParty(message, true, labels[torch.from_numpy(attacked)], figures)


def survival_federation(audit: StatisticsAudit, configuration: Configuration, seed: int) -> AttackedParty:
    """Return one federation that fits a survival model, and the records of the attacked sites."""
    spec, data, guards = audit.spec, audit.data, audit.spec.guards
    count = configuration.batch_size
    assert count is not None
    assert audit.times is not None
    used = np.random.default_rng(seed).permutation(len(data.all))[: spec.sites * count]
    cells, labels = data.all.take(torch.from_numpy(used))
    site = np.repeat(np.arange(spec.sites), count)
    design = model_levels(data.schema, cells.long().numpy(), site, guards.level)
    check_ratio(design, count, guards.ratio, spec.project)
    rows, defense = rows_of(design.codes, design.levels), audit.defenses[configuration.defense]
    times, events = audit.times[used], numbers_of(data, labels).astype(int)
    sites = [survival.SurvivalRows(rows[site == k], times[site == k], events[site == k]) for k in range(spec.sites)]

    def guard(rows_of_site: survival.SurvivalRows, grid: np.ndarray) -> survival.SurvivalRows:
        coarser = rows_of_site
        if defense.times is not None:
            coarser = replace(coarser, times=defense.times(coarser.times))
        return coarser if defense.jumps is None else survival.with_jumps(coarser, defense.jumps.records)

    def rounded(step: RiskStep) -> RiskStep:
        return step if defense.rounded is None else RiskStep(step.coefficients, defense.rounded(step.sums))

    fitted = survival.fit(sites, spec.iterations, guard, rounded)
    senders = range(spec.summed, 2 * spec.summed) if audit.swapped else range(spec.summed)
    guarded = [guard(sites[k], fitted.times) for k in senders]
    number = survival.events_at(guarded, fitted.times)
    steps = tuple(
        RiskStep(parts[0].coefficients, np.sum([part.sums for part in parts], axis=0))
        for parts in zip(*(fitted.steps[k] for k in senders), strict=True)
    )
    step = 0.0 if defense.rounded is None else defense.rounded.step * spec.summed
    message = RiskSetMessage(design.levels, count * spec.summed, fitted.times, number, steps, step)
    attacked = site < spec.summed
    figures = _hazard_figures(fitted, survival.fit(sites, 25))
    true = torch.from_numpy(design.codes[attacked]).double()
    return AttackedParty(message, true, labels[torch.from_numpy(attacked)], figures)


def two_runs(audit: StatisticsAudit, configuration: Configuration, seed: int) -> AttackedParty:
    """Return tables of a site's records, and of the same records with some more; these are attacked.

    Of one run alone all records are attacked, as if there had been none before.
    """
    spec, data = audit.spec, audit.data
    count = configuration.batch_size
    assert count is not None
    count, changed = (count, spec.changed) if spec.changed else (0, count)
    used = np.random.default_rng(seed).permutation(len(data.all))[: count + 2 * changed]
    cells, labels = data.all.take(torch.from_numpy(used))
    codes = np.concatenate([cells.long().numpy(), labels.long().numpy()[:, None]], axis=1)
    defense = audit.defenses[configuration.defense]
    # In the negative control other records join than those that are scored.
    joins = slice(count + changed, None) if audit.swapped else slice(count, count + changed)
    earlier, later = codes[:count], np.concatenate([codes[:count], codes[joins]])
    published = Publication(
        spec.published,
        spec.project,
        tuple(column.width for column in (*data.schema.columns, data.schema.target)),
        audit.numbers,
        max(spec.minimum_rows or LEAST_RECORDS[spec.project], 0 if defense.minimum is None else defense.minimum.count),
        None if defense.rounded is None else defense.rounded.digits,
    )

    def shown(site_rows: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
        changes = [change for change in (defense.minimum, defense.counts) if change is not None]
        counted = published.tables(site_rows)
        for change in changes:
            counted = {place: change(table) for place, table in counted.items()}
        return counted

    before, after = shown(earlier), shown(later)
    message = TablesMessage(
        tuple(tuple(range(width)) for width in published.widths[:-1]),
        count,
        changed,
        before,
        after,
        0 if defense.counts is None else defense.counts.base,
        None if defense.minimum is None else defense.minimum.count,
        tuple(published.summaries(earlier, later)),
    )
    left_out = float(np.mean(np.concatenate([np.isnan(table).ravel() for table in after.values()])))
    attacked = slice(count, count + changed)
    return AttackedParty(message, cells[attacked], labels[attacked], [Measurement.of_unit("left_out", None, left_out)])


def _hazard_figures(fitted: survival.FederatedCox, plain_fit: survival.FederatedCox) -> list[Measurement]:
    """Return the cost of a defense in log hazard ratios, in units of their standard errors, and in hazard ratios."""
    errors = np.sqrt(np.maximum(np.diag(plain_fit.covariance), 1e-300))
    apart = np.abs(fitted.coefficients - plain_fit.coefficients)
    ratio = np.sqrt(np.maximum(np.diag(fitted.covariance), 0)) / errors
    figures = {
        "coefficient_error": float((apart / errors).max()),
        "hazard_ratio_error": float(np.expm1(apart).max()),
        "standard_error_ratio": float(np.median(ratio)),
        "iterations": float(len(fitted.steps[0])),
    }
    return [Measurement.of_unit(name, None, value) for name, value in figures.items()]


@dataclass(frozen=True)
class _Change:
    """What a site does to its sums before it sends them."""

    defense: StatisticsDefense
    deviations: tuple[float, float]
    generator: np.random.Generator

    def __call__(self, step: NewtonStep, site: int) -> NewtonStep:
        if self.defense.noise is not None:
            step = self._noisy(step)
        rounded = self.defense.rounded
        if rounded is None:
            return step
        parts = {
            name: None if (sums := getattr(step, name)) is None else rounded(np.asarray(sums))
            for name in ("information", "score", "right", "deviance", "dispersion")
        }
        numbers = {name: None if (x := parts[name]) is None else float(x) for name in ("deviance", "dispersion")}
        return replace(step, **{**parts, **numbers})

    def _noisy(self, step: NewtonStep) -> NewtonStep:
        width = len(step.information)
        noise = np.triu(self.generator.normal(0, self.deviations[0], (width, width)))
        information = step.information + noise + np.triu(noise, 1).T
        coefficients = np.zeros(width) if step.coefficients is None else step.coefficients
        score = step.score
        if score is None:
            assert step.right is not None
            score = step.right - step.information @ coefficients
        score = score + self.generator.normal(0, self.deviations[1], width)
        # The right side follows from what is noisy already.
        right = None if step.right is None else score + information @ coefficients
        return NewtonStep(step.coefficients, information, score if right is None else None, right)


def _summed(steps: Sequence[NewtonStep]) -> NewtonStep:
    def total(name: str) -> object:
        parts = [getattr(step, name) for step in steps]
        return None if any(part is None for part in parts) else sum(parts[1:], parts[0])

    names = ("information", "score", "right", "deviance", "dispersion")
    mean = steps[0].mean if len(steps) == 1 else None
    return replace(steps[0], mean=mean, **{name: total(name) for name in names})


def numbers_of(data: Dataset, labels: Tensor) -> np.ndarray:
    """Return outcomes as the model takes them: 0 and 1 for two classes, else values."""
    target = data.schema.target
    if not isinstance(target, Discrete):
        return labels.numpy()
    return np.array(outcomes(target))[labels.long().numpy()]


def check_ratio(design: ModelLevels, rows: int, ratio: float, project: str) -> None:
    """Refuse a model with more coefficients than the guard lets pass."""
    width = 1 + sum(len(levels) - 1 for levels in design.levels)
    if width > ratio * rows:
        raise BadInputError(
            f"a site of {project} with {rows:,} rows refuses a model with more than {ratio:.0%} as many coefficients, "
            f"and this one has {width}; name fewer columns (columns), take fewer bins, or set the guard "
            "(parameter_ratio)."
        )


def _utility(
    audit: StatisticsAudit,
    fitted: newton.FederatedFit,
    design: ModelLevels,
    undefended: tuple[newton.Newton, Sequence[tuple[np.ndarray, np.ndarray]]],
    tested: np.ndarray,
) -> list[Measurement]:
    """Return figures of the joint model: its coefficients beside those without a defense, and on rows of no site.

    ``coefficient_error`` is the largest difference of a coefficient in units of its standard error, and
    ``standard_error_ratio`` the mean ratio of the errors that the sums tell. Both are of all iterations without
    defense.
    """
    recipe, sites = undefended
    plain_fit = newton.fit(replace(recipe, iterations=25), sites)
    errors = np.sqrt(np.maximum(np.diag(plain_fit.covariance), 1e-300))
    apart = np.abs(fitted.coefficients - plain_fit.coefficients) / errors
    ratio = np.sqrt(np.maximum(np.diag(fitted.covariance), 0)) / errors
    figures = [
        Measurement.of_unit("coefficient_error", None, float(apart.max())),
        Measurement.of_unit("standard_error_ratio", None, float(np.median(ratio))),
        Measurement.of_unit("iterations", None, float(len(fitted.steps[0]))),
    ]
    if len(tested) < _LEAST_TESTED:
        return figures
    cells, labels = audit.data.all.take(torch.from_numpy(tested))
    rows = rows_of(design.recoded(cells.long().numpy()), design.levels)
    y = numbers_of(audit.data, labels)
    mu, _ = newton.mean_and_weight(audit.family, rows @ fitted.coefficients)
    if audit.family != "binomial":
        return [*figures, *of_task("task_rmse", float(np.sqrt(np.square(mu - y).mean())), y)]
    figures += of_task("task_accuracy", float(((mu > 0.5) == y).mean()), y)
    area = auc(torch.from_numpy(mu), torch.from_numpy(y) == 1)
    return figures if area is None else [*figures, *of_task("auc", area, y)]


def _threat_model(spec: StatisticsSpec, family: str, data: Dataset, secret: str, cut: Sequence[str]) -> tuple[str, ...]:
    guards = spec.guards
    ranges = (
        f" Numbers are public ranges there, at most {spec.bins} each, and so are cells: {', '.join(cut)}."
        if cut
        else ""
    )
    together = "" if spec.summed == 1 else f" Sums of {spec.summed} sites are added up before it sees them."
    return (
        "The attacker sees the sums that a site sends in every iteration, and the coefficients that they are taken at: "
        f"the analyst, the server, or whoever reads them on the way.{together}",
        "It follows the protocol, and knows the schema, the public marginals, the levels in the model and the number "
        "of rows.",
        f"It is after {secret} of {max(spec.rows) * spec.summed:,} records at most.",
        f"{spec.sites} sites with {', '.join(f'{rows:,}' for rows in spec.rows)} rows each of {data.name}, "
        f"{len(data.all):,} rows: a {family} model of {data.schema.target.name} on {', '.join(data.schema.names)}, at "
        f"most {spec.iterations} iterations.{ranges}",
        f"Guards of {spec.project}: at most {guards.ratio:.0%} as many coefficients as rows, levels with fewer than "
        f"{guards.level} rows at a site taken together, at least {guards.least_rows} rows of a site.",
        f"{how_many(spec.repetitions, 'federation')} from seed {spec.seed}, one attacked site in each; "
        "intervals are over them.",
        "Messages follow the formulas of the projects' sources (dsBase glmDS2, v6-glm-py).",
    )


def deployment(spec: StatisticsSpec) -> Deployment:
    """Return the threat model of a spec: views and side information of a recipient of messages."""
    view = {"glm": NewtonView, "cox": RiskSetView, "table": TablesView}[spec.protocol]
    return Deployment("statistics", spec.protocol, (view,), frozenset(), None, mechanisms("statistics", spec.defenses))
