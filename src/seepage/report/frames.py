"""An audit's figures as records of plain numbers and texts, of which figures and tables are made; missing is None.

The certainty of a guessed category is 1 less the attacker's uncertainty u of the cell. That of a number has no scale,
so that it is a rank: the share of the numbers with a larger u, and half of those with the same. There u is the
differential entropy, of a normal distribution ``u = 1/2 + log(sd sqrt(2 pi))``, so that the spread that is shown is
``sd = exp(u - 1/2) / sqrt(2 pi)``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float

from seepage.assessment.evidence import Evidence
from seepage.assessment.intervals import ratio
from seepage.assessment.row import Record, ResultRow
from seepage.assessment.task import is_error
from seepage.results.checks.finding import Finding
from seepage.results.verdict import (
    GRAVITY,
    NOT_REACHED,
    UNDEFENDED,
    graver,
    pick,
    settings,
    strongest,
    strongest_row,
    verdict,
)
from seepage.run.runner import Run
from seepage.settings.setting import Audit
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.table import frame_of
from seepage.tabular.texts import DAYS
from seepage.text import as_sentence, clean, days_in_words, how_many, plain_number

Setting = tuple[int | None, str]
BINS = 10
SURE = 0.95


def setting_of(record: Record) -> Setting:
    """Return the setting that a record is of."""
    return record["batch_size"], record["defense"]


def rows_of_setting(rows: Sequence[ResultRow], setting: Setting) -> list[ResultRow]:
    """Return the rows of one setting."""
    return pick(rows, batch_size=setting[0], defense=setting[1])


def overview(rows: Sequence[ResultRow], findings: Sequence[Finding] = (), label: str | None = None) -> list[Record]:
    """Return for each setting what its strongest attack reads and the verdict on it; attack is None where none ran.

    ``of`` is None where figures are of all cells, else the column that alone was attacked. ``label`` holds the same of
    the label's strongest attack. Tier and closed gap are those of the graver of both verdicts, and ``by_label`` is
    whether that is the label's.
    """
    records = []
    for setting in settings(rows):
        setting_rows = rows_of_setting(rows, setting)
        cells = strongest_row(setting_rows, *setting)
        labels = strongest_row(setting_rows, *setting, label) if label else None
        attack_rows = [] if cells is None else pick(setting_rows, attack=cells.attack, column=None)
        of_label = None if labels is None else {"attack": labels.attack, **_scored(labels, [], findings)}
        attack = None if cells is None else cells.attack
        record = {"attack": attack, **_scored(cells, attack_rows, findings), "of": None}
        record["by_label"] = False
        if labels is not None and cells is None:
            record = {"attack": labels.attack, **_scored(labels, [], findings), "of": label, "by_label": True}
        elif labels is not None and cells is not None:
            rated = verdict(cells, row_of(attack_rows, "exact_match"), findings, row_of(attack_rows, "certified"))
            of_labels = verdict(labels, findings=findings)
            both = graver(rated, of_labels)
            record |= {"closed": both.closed, "closed_low": both.low, "upper": both.high, "tier": both.tier}
            record["by_label"] = both is of_labels
        beside = {f"label_{name}": None if of_label is None else of_label[name] for name in ("mean", "tier")}
        where = {"batch_size": setting[0], "defense": setting[1]}
        records.append({**where, **record, "label": of_label, **beside})
    return records


_OF_A_ROW = ("mean", "low", "high", "n", "baseline", "baseline_name", "lift", "lift_low", "lift_high")


def _scored(score: ResultRow | None, attack_rows: Sequence[ResultRow], findings: Sequence[Finding]) -> Record:
    if score is None:
        empty = (*_OF_A_ROW, "closed", "closed_low", "upper", "exact", "discrete", "continuous", "seconds")
        return {**dict.fromkeys(empty), "tier": NOT_REACHED}
    exact = row_of(attack_rows, "exact_match")
    rated = verdict(score, exact, findings, row_of(attack_rows, "certified"))
    parts = {name: row_of(attack_rows, f"accuracy_{name}") for name in ("discrete", "continuous")}
    return {
        **{name: getattr(score, name) for name in _OF_A_ROW},
        "closed": rated.closed,
        "closed_low": rated.low,
        "upper": rated.high,
        "tier": rated.tier,
        "exact": None if exact is None else exact.mean,
        **{name: None if part is None else part.mean for name, part in parts.items()},
        "seconds": score.seconds_per_victim,
    }


def row_of(rows: Sequence[ResultRow], metric: str) -> ResultRow | None:
    """Return the row of a metric over all cells, None without one."""
    return next(iter(pick(rows, metric=metric, column=None)), None)


def worst(overviews: Sequence[Record]) -> Record | None:
    """Return the setting in which most is shown to leak.

    The gravest verdict comes first; among equals the lower end of the closed gap decides, not the noisiest
    configuration, then the share of the gap that is closed, and the accuracy.
    """

    def shown(record: Record) -> tuple[int, float, float, float]:
        low = -math.inf if record["closed_low"] is None else record["closed_low"]
        return GRAVITY.index(record["tier"]), low, record["closed"] or -math.inf, record["mean"] or 0

    return max((record for record in overviews if record["attack"] is not None), key=shown, default=None)


def scores(rows: Sequence[ResultRow], findings: Sequence[Finding] = (), column: str | None = None) -> list[Record]:
    """Return the accuracy over all cells, or of a column, of every attack and baseline in every setting."""
    return [
        {
            **{name: getattr(row, name) for name in ("batch_size", "defense", "attack", "kind", *_OF_A_ROW)},
            "is_attack": row.is_attack,
            "tier": verdict(row, findings=findings).tier if row.is_attack else None,
        }
        for row in pick(rows, metric="accuracy", column=column)
        if row.mean is not None
    ]


def columns(
    rows: Sequence[ResultRow],
    setting: Setting,
    findings: Sequence[Finding] = (),
    sensitive: Sequence[str] = (),
    schema: Schema | None = None,
) -> list[Record]:
    """Return what the strongest attack of a setting reads of each column: sensitive ones first, then by lift."""
    setting_rows = rows_of_setting(rows, setting)
    attack = strongest(setting_rows, *setting)
    schema_columns = {} if schema is None else {column.name: column for column in (*schema.columns, schema.target)}
    places = list(schema_columns)
    scored = {row.column: row for row in pick(setting_rows, metric="accuracy", attack=attack) if row.mean is not None}
    where = {"batch_size": setting[0], "defense": setting[1], "attack": attack}
    records = []
    for name, row in scored.items():
        if name is None:
            continue
        about: Record = {"position": None, "kind": None, "tolerance": None}
        if (column := schema_columns.get(name)) is not None:
            about = {"position": places.index(name) + 1, "kind": column.kind, "tolerance": tolerance(column)}
        marked = {"column": name, "sensitive": name in sensitive}
        records.append({**where, **about, **marked, **_scored(row, [], findings)})

    def place(record: Record) -> tuple[bool, float]:
        return not record["sensitive"], -(-math.inf if record["lift"] is None else record["lift"])

    return sorted(records, key=place)


def calibration(evidence: Evidence, schema: Schema) -> list[Record]:
    """Return the accuracy of cells binned by the attacker's own certainty, by kind of column.

    Discrete cells are binned by certainty, 1 less the normalised entropy, in tenths; continuous ones, whose entropy has
    no scale, by tenths of their rank (1 the most certain).
    """
    records = []
    for kind, certainty, right in _by_kind(evidence, schema):
        edges = np.clip(np.floor(certainty * BINS), 0, BINS - 1)
        for position in range(BINS):
            within = edges == position
            cells = within.sum(axis=1)
            if cells.any():
                ends = {"from": position / BINS, "to": (position + 1) / BINS}
                rate = _share((right & within).sum(axis=1), cells, within.shape[1])
                figures = {"certainty": float(certainty[within].mean()), **rate}
                records.append({"kind": kind, "bin": position, **ends, **figures, "cells": int(cells.sum())})
    return records


def coverage(evidence: Evidence, schema: Schema, points: int = 40) -> list[Record]:
    """Return how accurate the most certain share of the cells is; equally certain ones count with their mean."""
    records = []
    for kind, running in _running(evidence, schema):
        for count in np.unique(np.ceil(np.linspace(0, 1, points + 1)[1:] * len(running)).astype(int)):
            share, mean = float(count / len(running)), float(running[count - 1] / count)
            records.append({"kind": kind, "share": share, "mean": mean, "cells": int(count)})
    return records


def sure(evidence: Evidence, schema: Schema, level: float = SURE) -> dict[str, float]:
    """Return by kind the largest share of cells, from the most certain down, of which ``level`` are right."""
    cells = {}
    for kind, running in _running(evidence, schema):
        good = np.flatnonzero(running / np.arange(1, len(running) + 1) >= level)
        cells[kind] = float((good[-1] + 1) / len(running)) if len(good) else 0.0
    return cells


def _running(evidence: Evidence, schema: Schema) -> Iterator[tuple[str, Float[np.ndarray, " cell"]]]:
    """Yield by kind the number of right cells among the most certain ones, ties at their mean."""
    for kind, certainty, right in _by_kind(evidence, schema):
        ranked = ~np.isnan(certainty)
        _, inverse, counts = np.unique(-certainty[ranked], return_inverse=True, return_counts=True)
        means = np.bincount(inverse, weights=right[ranked]) / counts
        yield kind, np.repeat(means, counts).cumsum()


def _by_kind(
    evidence: Evidence, schema: Schema
) -> list[tuple[str, Float[np.ndarray, "victim cell"], Bool[np.ndarray, "victim cell"]]]:
    """Return certainty in [0, 1] (NaN: unknown) and rightness of the cells of each kind that has any certainty."""
    if evidence.uncertainty is None:
        return []
    records = []
    for kind, positions in (("discrete", schema.discrete), ("continuous", schema.continuous)):
        if not positions:
            continue
        entropy = evidence.uncertainty[..., list(positions)].reshape(len(evidence.uncertainty), -1).astype(float)
        right = evidence.right[..., list(positions)].reshape(entropy.shape)
        present = ~np.isnan(entropy)
        if not present.any():
            continue
        certainty = np.clip(1 - entropy, 0, 1) if kind == "discrete" else np.full(entropy.shape, np.nan)
        if kind == "continuous":
            # Half of the ties count as less certain, so that a constant entropy is certain by a half.
            values = np.sort(entropy[present])
            above = len(values) - np.searchsorted(values, entropy[present], side="right")
            ties = np.searchsorted(values, entropy[present], side="right") - np.searchsorted(values, entropy[present])
            certainty[present] = (above + ties / 2) / len(values)
        records.append((kind, certainty, right))
    return records


def exposed(evidence: Evidence, schema: Schema, baselines: Mapping[str, float | None], most: int = 20) -> list[Record]:
    """Return the right cells that reveal most, at most one for each record and column.

    Sensitive columns come first, then those that the best baseline gets least often; within a column the cells of which
    the attacker is most certain, by their uncertainty to two decimals. Cells of columns that a baseline always gets are
    nothing that leaked.
    """
    if evidence.uncertainty is None:
        return []
    # What is shown as equal is equal.
    entropy = np.round(evidence.uncertainty.astype(float), 2)
    rank = np.full(entropy.shape, np.nan)
    for positions in (schema.discrete, schema.continuous):
        part = entropy[..., list(positions)]
        values = np.sort(part[~np.isnan(part)])
        if len(values):
            ranks = np.searchsorted(values, part) / len(values)
            rank[..., list(positions)] = np.where(np.isnan(part), np.nan, ranks)
    rates = [baselines.get(name) for name in schema.names]
    plain_rates = np.array([0.0 if rate is None else rate for rate in rates])
    cells = np.argwhere(evidence.right & ~np.isnan(rank) & (plain_rates < 1))
    plain = np.array([not column.sensitive for column in schema.columns])
    order = np.lexsort((cells[:, 0], rank[tuple(cells.T)], plain_rates[cells[:, 2]], plain[cells[:, 2]]))
    records, shown = [], set[tuple[str, int] | tuple[str, int, int]]()
    for victim, record, position in cells[order].tolist():
        once = {("column", position), ("record", victim, record)}
        if len(records) == most or once & shown:
            continue
        shown |= once
        column = schema.columns[position]
        value = float(entropy[victim, record, position])
        discrete = isinstance(column, Discrete)
        records.append(
            {
                "victim": victim + 1,
                "record": record + 1,
                "position": position + 1,
                "column": column.name,
                "kind": column.kind,
                "sensitive": column.sensitive,
                "certainty": 1 - value if discrete else None,
                # The entropy of a normal distribution, solved for its standard deviation.
                "spread": None if discrete else math.exp(value - 0.5) / math.sqrt(2 * math.pi),
                "baseline": baselines.get(column.name),
                "truth": _value(schema, evidence.true, victim, record, position),
                "guess": _value(schema, evidence.guess, victim, record, position),
            }
        )
    return records


def _value(
    schema: Schema, cells: Float[np.ndarray, "victim record column"] | None, victim: int, record: int, position: int
) -> object:
    if cells is None or not np.isfinite(cells[victim, record]).all():
        return None
    row = torch.from_numpy(np.array(cells[victim, record : record + 1], dtype=np.float64))
    return frame_of(schema, row).iloc[:, position].tolist()[0]


def subgroups(evidence: Evidence, least: int, width: int) -> list[Record]:
    """Return the accuracy by category; those of fewer than ``least`` records are pooled, for privacy."""
    records = []
    for column, categories in evidence.groups.items():
        small = [counts for counts in categories.values() if 0 < counts[0] < least * width]
        large = {name: counts for name, counts in categories.items() if counts[0] >= least * width}
        records += [_group(column, name, *counts, width) for name, counts in large.items()]
        if small:
            cells, right = (sum(counts[i] for counts in small) for i in (0, 1))
            records.append(_group(column, None, cells, right, width, pooled=len(small)))
    return records


def _group(column: str, category: object, cells: int, right: int, width: int, pooled: int = 0) -> Record:
    return {
        "column": column,
        "category": category,
        "pooled": pooled,
        "records": int(cells) // width,
        "cells": int(cells),
        "mean": float(right / cells),
    }


def rarity(evidence: Evidence) -> list[Record]:
    """Return the accuracy by quarter of the records' rarity, the most common records first.

    Rarity is the mean self-information of a record's cells (nats). Nothing below eight records or where all are equal.
    """
    rare = evidence.rarity.astype(float)
    if rare.size < 8 or np.ptp(rare) == 0:
        return []
    edges = np.quantile(rare, [0.25, 0.5, 0.75])
    quarter = np.searchsorted(edges, rare, side="left")
    width = evidence.right.shape[-1]
    records = []
    for position in range(4):
        within = quarter == position
        if within.any():
            right = (evidence.right & within[..., None]).sum(axis=(1, 2))
            ends = {"from": float(rare[within].min()), "to": float(rare[within].max())}
            figures = _share(right, within.sum(axis=1) * width, within.shape[1] * width)
            records.append({"quarter": position + 1, **ends, **figures, "records": int(within.sum())})
    return records


def _share(right: np.ndarray, cells: np.ndarray, most: int) -> Record:
    """Return the share of right cells; a unit has at most so many."""
    estimate = ratio(torch.from_numpy(right.astype(np.float64)), torch.from_numpy(cells.astype(np.float64)), most)
    return {name: getattr(estimate, name) for name in ("mean", "low", "high", "n")}


def frontier(rows: Sequence[ResultRow], overviews: Sequence[Record], utility: Sequence[str]) -> list[Record]:
    """Return leakage beside how well the task is learnt (by the first metric measured), one a setting.

    epsilon and label_epsilon are what a defense guarantees to records and labels over that training. message_epsilon is
    that of one message in closed form; measured_low and measured_high are the interval of what canaries show of it.
    """
    records = []
    for record in overviews:
        about = [
            row
            for row in pick(rows, defense=record["defense"], column=None, kind="about")
            if row.batch_size in (None, record["batch_size"])
        ]
        learnt = [row for name in utility for row in pick(about, metric=name) if row.mean is not None]
        if learnt:
            row = learnt[0]
            task = {f"task_{name}": getattr(row, name) for name in ("metric", "low", "high", "std", "n", "baseline")}
            records.append({**record, "task": row.mean, **task, **_guarantee(row, about)})
    return records


def assumptions(audit: Audit) -> list[str]:
    """Return what figures hold under and what was done to the table, in sentences."""
    return [clean(fact, 600) for fact in (*audit.threat_model(), *map(as_sentence, audit.about.notes))]


def task_name(metric: str) -> str:
    """Return a metric of the task in words."""
    if is_error(metric):
        return "Task error (RMSE)"
    return "Task AUC" if metric == "auc" else metric.replace("_", " ").capitalize()


def _guarantee(task: ResultRow, about: Sequence[ResultRow]) -> Record:
    """Return what a defense guarantees, from the row of the task or from rows of their own."""
    privacy = task.settings.get("privacy") or {}
    measured = {row.metric: row.mean for row in about if row.metric in ("epsilon", "label_epsilon")}
    shown = {name: privacy.get(name) for name in ("epsilon", "delta", "steps", "accountant")}
    canaries = row_of(about, "empirical_epsilon")
    of_message = (None, None, None)
    if canaries is not None:
        of_message = (canaries.settings["accounted"], canaries.low, canaries.high)
    return {
        "label_epsilon": None,
        **dict(zip(("message_epsilon", "measured_low", "measured_high"), of_message, strict=True)),
        **shown,
        **{name: value for name, value in measured.items() if value is not None},
    }


def choices(runs: Sequence[Run]) -> list[str]:
    """Return for each attack with several ways which of them answers which columns, in most of its units."""
    lines = []
    for run in runs:
        if run.evidence is not None and run.evidence.choice:
            [(choice, count)] = Counter(run.evidence.choice).most_common(1)
            of = f" (so in {count} of {len(run.units)})" if count < len(run.units) else ""
            under = "" if run.configuration.defense == UNDEFENDED else f" under {clean(run.configuration.defense, 60)}"
            lines.append(f"{clean(run.label, 60)}{under} answers by {clean(choice, 400)}{of}")
    return lines


def tolerances(schema: Schema, most: int = 12, attacked: Sequence[str] = ()) -> str:
    """Return a sentence with the distance within which a number counts as read, by column; empty without numbers.

    ``attacked`` names the columns that are attacked; all if empty.
    """
    numbers = [
        f"{clean(column.name, 32)} within {tolerance(column)}"
        for column in schema.columns
        if isinstance(column, Continuous) and (not attacked or column.name in attacked)
    ]
    if not numbers:
        return ""
    rest = len(numbers) - most
    more = f" and {how_many(rest, 'more column')}, see the report" if rest > 0 else ""
    return f"A number counts as read by its tolerance: {', '.join(numbers[:most])}{more}."


def tolerance(column: Column) -> str:
    """Return the distance within which a cell counts as read; a category has to be the very one."""
    if not isinstance(column, Continuous):
        return "exact"
    # The distance between two dates is one of days.
    if column.unit == DAYS:
        return days_in_words(column.tolerance)
    return f"{plain_number(column.tolerance)} {clean((column.unit or '').partition(',')[0], 24)}".strip()
