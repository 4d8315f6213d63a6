"""Comparison of two runs: differences between them, and every common figure with its difference."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, FiniteFloat, TypeAdapter, ValidationError

from seepage.assessment.decision import ALPHA, more_units, shown_above, shown_below, upper_bound
from seepage.assessment.intervals import Estimate, difference
from seepage.assessment.row import Record, ResultRow
from seepage.errors import BadInputError
from seepage.results.gate import Decision, Outcome
from seepage.results.rows import RESULTS, read_json, read_results
from seepage.text import clean, flattened, listed, percent

T = TypeVar("T")
PROVENANCE = "provenance.json"
# Metrics that are shares of cells or records, whose differences are percentage points.
_RATES = ("accuracy", "exact_match", "top_quarter", "bottom_quarter", "task_accuracy", "model_accuracy")
_FIELDS = ("dataset", "protocol", "model", "batch_size", "defense", "attack", "metric", "column")
_ALSO = ("labels", "batch_statistics", "profile", "replacement", "seed")
# Fields in which compared figures always agree, however few values each run has.
_ALWAYS = ("batch_size", "defense", "attack", "metric", "column")
_WHEN = "time"
_MOST_POINTS = 8


def _facts(row: ResultRow) -> dict[str, object]:
    """Return the fields that distinguish a figure from others of the same run."""
    also: dict[str, object] = {name: row.knowledge.get(name) for name in ("labels", "batch_statistics")}
    also |= {name: row.settings.get(name) for name in ("profile", "replacement")} | {"seed": row.seed}
    # A file may hold lists and mappings there, which no key of a mapping can be.
    plain: dict[str, object] = {
        name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in also.items()
    }
    return {name: getattr(row, name) for name in _FIELDS} | plain


def _estimate(row: ResultRow) -> Estimate:
    return Estimate(row.mean, row.low, row.high, row.n, row.std)


class JudgedFigure(BaseModel, frozen=True):
    """A figure that is judged in both runs; ``repeated`` numbers those that are otherwise alike."""

    attack: str
    batch_size: int | None
    defense: str
    metric: str
    column: str | None
    sample: int | None
    variant: str | None
    repeated: int = 0

    @property
    def words(self) -> str:
        """The figure in a sentence."""
        what = "whole records" if self.metric == "exact_match" else f"column {clean(self.column)}"
        what = "all cells" if (self.metric, self.column) == ("accuracy", None) else what
        repetition = "" if self.sample is None else f", repetition {self.sample + 1}"
        return f"{label(self.model_dump())} on {what}{repetition}"


class _Lifts(JudgedFigure, frozen=True):
    lifts: list[FiniteFloat]


class _Verdict(BaseModel):
    defense: str
    incomplete: str | None


class _Stored(BaseModel):
    lifts: list[_Lifts] = []
    verdicts: list[_Verdict] = []


class _ComparedAudit(BaseModel):
    dataset: dict[str, object] = {}
    spec: dict[str, object] = {}


class _Origin(BaseModel):
    audits: list[_ComparedAudit] = []


_ORIGINS = TypeAdapter(list[_Origin]).validate_python


@dataclass(frozen=True)
class RunFolder:
    """Figures, provenance, lifts of units, and by defense the reasons why configurations are incomplete."""

    name: str
    figures: list[ResultRow]
    origin: Record
    lifts: dict[JudgedFigure, list[float]] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Comparison of two runs: what differs in spec and provenance, each common figure, and what only one of them has.

    A difference is clear where its interval leaves out zero.
    """

    names: tuple[str, str]
    differing: list[tuple[str, str, str]]
    records: list[Record]
    only: tuple[int, int]
    points_only: tuple[list[str], list[str]]
    same_victims: bool


def load_run(folder: Path) -> RunFolder:
    """Read a run folder, from ``results.json`` and ``provenance.json`` alone."""
    if not folder.is_dir():
        raise BadInputError(
            f"{str(folder)!r} is no run folder; give the folder that an audit got with --out, or that it named."
        )
    rows = read_results(folder / RESULTS)
    origins = read_json(folder / PROVENANCE)
    _checked(folder / PROVENANCE, _ORIGINS, origins)
    if not rows or not origins:
        empty = RESULTS if not rows else PROVENANCE
        raise BadInputError(f"{str(folder / empty)!r} holds no entries; finish the audit, then compare it.")
    document = read_json(folder / RESULTS)
    stored = _checked(folder / RESULTS, _Stored.model_validate, document if isinstance(document, dict) else {})
    repeats: Counter[JudgedFigure] = Counter()
    lifts: dict[JudgedFigure, list[float]] = {}
    for entry in stored.lifts:
        figure = JudgedFigure(**entry.model_dump(exclude={"lifts", "repeated"}))
        lifts[figure.model_copy(update={"repeated": repeats[figure]})] = entry.lifts
        repeats[figure] += 1
    incomplete = {verdict.defense: verdict.incomplete for verdict in stored.verdicts if verdict.incomplete is not None}
    return RunFolder(clean(folder.resolve().name or str(folder)), rows, origins[-1], lifts, incomplete)


def _checked(path: Path, check: Callable[[object], T], content: object) -> T:
    try:
        return check(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInputError(
            f"{str(path)!r} was not written by this version of an audit: {clean(where, 80)}: {first['msg']}; run the "
            "audit again."
        ) from error


def judge(first: RunFolder, second: RunFolder, margin: float, alpha: float = ALPHA) -> Decision:
    """Decide whether leakage has risen from one run to the next, by the rule of the gate.

    A unit of the second run is paired with the unit of the first that has its number. The difference of their lifts,
    halved, lies in [-1, 1], as lifts do. So the bounds of ``assessment.decision`` hold for its mean without an
    assumption, whether both runs attacked the same victims or not.

    ``passed``: every figure is shown to have risen by less than the margin. ``failed``: a figure is shown to have risen
    and not shown to have risen by less than the margin, or records are certified that were not before. ``undecided``:
    neither, or a figure of the first run is missing. ``refused``: jobs failed.
    """
    if not 0 < margin < 1:
        raise BadInputError(f"the margin is a rise of the lift between 0 and 1, got {margin!r}; use 0.1 for 10 points.")
    for run in (first, second):
        if not run.lifts:
            raise BadInputError(
                f"the run {run.name!r} holds no lifts of single units: it has no attack beside a baseline, or an "
                "earlier version of seepage wrote it; run the audit again."
            )
    defended = {figure.defense for figure in first.lifts} - {"none"}
    judged = [figure for figure in first.lifts if not defended or figure.defense in defended]
    both = [figure for figure in judged if figure in second.lifts]
    outcome, line = _judged(first, second, both, margin, alpha)
    if outcome == "passed" and len(both) < len(judged):
        missing = next(figure for figure in judged if figure not in second.lifts)
        outcome, line = "undecided", f"{second.name} has no figure of {missing.words}."
    unknown = [why for defense, why in second.incomplete.items() if not defended or defense in defended]
    if outcome == "passed" and unknown:
        outcome, line = "undecided", f"{second.name} is incomplete: {clean(unknown[0], 300)}."
    return Decision(outcome, f"comparison {outcome}: {line}")


def _judged(
    first: RunFolder, second: RunFolder, both: Sequence[JudgedFigure], margin: float, alpha: float
) -> tuple[Outcome, str]:
    defenses = {figure.defense for figure in both}
    proved = [
        [row for row in run.figures if row.metric == "certified" and row.column is None and row.mean]
        for run in (first, second)
    ]
    certified_before = {_point(row) for row in proved[0]}
    if new := [row for row in proved[1] if row.defense in defenses and _point(row) not in certified_before]:
        return "failed", f"{_point(new[0])}: {percent(new[0].mean)} of the records are certified now."
    halves = {}
    for figure in both:
        pairs = zip(first.lifts[figure], second.lifts[figure], strict=False)
        halves[figure] = [(after - before) / 2 for before, after in pairs]
    rise = {figure: 2 * float(np.mean(half)) for figure, half in halves.items()}

    def risen(figure: JudgedFigure) -> str:
        by = round(100 * rise[figure], 1)
        change = f"rose by {by:.1f} points" if by > 0 else f"fell by {-by:.1f} points" if by < 0 else "did not change"
        return f"{figure.words} {change} (n={len(halves[figure])})"

    open_ = [figure for figure in both if not shown_below(halves[figure], margin / 2, alpha=alpha)]
    if worse := [figure for figure in open_ if shown_above(halves[figure], 0.0, alpha=alpha, attacks=len(both))]:
        return "failed", f"{risen(max(worse, key=lambda figure: rise[figure]))}, shown to be more than before."
    failed = [row for run in (first, second) for row in run.figures if row.is_attack and row.status == "failed"]
    if failed := [row for row in failed if row.defense in defenses]:
        return "refused", f"jobs of {_point(failed[0])} failed; run the same audit again."
    if not both:
        return "undecided", f"{second.name} has none of the figures of {first.name}."
    if not open_:
        upper = {figure: upper_bound(halves[figure], alpha=alpha) for figure in both}
        most = max(both, key=lambda figure: upper[figure])
        last = f"{risen(most)}, at most {200 * upper[most]:+.1f}"
        return (
            "passed",
            f"all {len(both)} figures are shown to rise by less than {100 * margin:.1f} points; {last}.",
        )
    worst = max(open_, key=lambda figure: rise[figure])
    more = more_units(halves[worst], margin / 2, alpha=alpha)
    advice = "no number of units like these would show it" if more is None else f"about {more} more units would show it"
    return "undecided", f"{risen(worst)}, not shown to be below {100 * margin:.1f}; {advice}."


def compare_runs(first: RunFolder, second: RunFolder) -> Comparison:
    """Compare the figures of two runs, matched by all fields that take more than one value within a run.

    Differences are second less first, with an interval from those of both, since results hold no single victims; on the
    same victims it is usually too wide.
    """
    facts = [[_facts(figure) for figure in run.figures] for run in (first, second)]
    varying = [
        name for name in (*_FIELDS, *_ALSO) if any(len({str(fact[name]) for fact in values}) > 1 for values in facts)
    ]
    fields = list(dict.fromkeys([*varying, *_ALWAYS]))
    by_key = [_keyed(run, fields) for run in (first, second)]
    common = [key for key in by_key[0] if key in by_key[1]]
    points = [list(dict.fromkeys(map(_point, run.figures))) for run in (first, second)]
    if not common:
        swept = [_by_batch(run.figures) for run in (first, second)]
        raise BadInputError(
            f"the runs {first.name!r} and {second.name!r} have no figure in common: the first has {swept[0]}; the "
            f"second has {swept[1]}. Compare runs that share attacks or baselines, batch sizes and defenses."
        )
    paired = {_point(by_key[0][key]) for key in common}
    alone = [[point for point in of_run if point not in paired] for of_run in points]
    records = [record for key in common if (record := _record(by_key[0][key], by_key[1][key])) is not None]
    return Comparison(
        names=_distinct(first.name, second.name),
        differing=_differing(first, second),
        records=records,
        only=(len(by_key[0]) - len(common), len(by_key[1]) - len(common)),
        points_only=(alone[0], alone[1]),
        same_victims=_same_victims(first, second),
    )


def _by_batch(rows: Sequence[ResultRow]) -> str:
    """Return the points of a run in words: at each batch size the attacks and baselines, with their defenses."""
    by_size: dict[int | None, list[str]] = {}
    for row in rows:
        name = label({"attack": row.attack, "batch_size": None, "defense": row.defense})
        if name not in by_size.setdefault(row.batch_size, []):
            by_size[row.batch_size].append(name)
    return "; ".join(
        ("" if size is None else f"at batch size {size} ") + _joined(names) for size, names in by_size.items()
    )


def _joined(names: Sequence[str]) -> str:
    more = len(names) - _MOST_POINTS
    return ", ".join(names[:_MOST_POINTS]) + (f" and {more} more" if more > 0 else "")


def _point(figure: ResultRow) -> str:
    return label({"attack": figure.attack, "batch_size": figure.batch_size, "defense": figure.defense}) or "the task"


def _distinct(first: str, second: str) -> tuple[str, str]:
    return (f"{first} (1)", f"{second} (2)") if first == second else (first, second)


def _keyed(run: RunFolder, fields: Sequence[str]) -> dict[tuple[object, ...], ResultRow]:
    repeats: Counter[tuple[object, ...]] = Counter()
    by_key = {}
    for figure in run.figures:
        facts = _facts(figure)
        key = tuple(facts[name] for name in fields)
        # Figures that differ in other fields come in the same order in both runs.
        by_key[*key, repeats[key]] = figure
        repeats[key] += 1
    return by_key


def _record(first: ResultRow, second: ResultRow) -> Record | None:
    if first.mean is None and second.mean is None:
        return None
    gained = difference(_estimate(first), _estimate(second))
    clear = gained.low is not None and gained.high is not None and not gained.low <= 0 <= gained.high
    return {
        **{name: getattr(first, name) for name in ("batch_size", "defense", "attack", "metric", "column")},
        "a": _side(first),
        "b": _side(second),
        "difference": gained.mean,
        "difference_low": gained.low,
        "difference_high": gained.high,
        "clear": clear,
    }


def _side(figure: ResultRow) -> Record:
    return {name: getattr(figure, name) for name in ("mean", "low", "high", "n")}


def _differing(first: RunFolder, second: RunFolder) -> list[tuple[str, str, str]]:
    sides = [dict(flattened({k: v for k, v in run.origin.items() if k != _WHEN})) for run in (first, second)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    pairs = [(name, sides[0].get(name, "–"), sides[1].get(name, "–")) for name in names]
    return [(name, value, other) for name, value, other in pairs if value != other]


def _same_victims(first: RunFolder, second: RunFolder) -> bool:
    def drawn(run: RunFolder) -> list[str]:
        return sorted(
            json.dumps(
                [
                    audit.get("dataset", {}).get("digest"),
                    [audit.get("spec", {}).get(name) for name in ("seed", "replacement", "batch_sizes")],
                ]
            )
            for audit in run.origin.get("audits", [])
        )

    counts = [{figure.n for figure in run.figures if figure.metric == "accuracy"} for run in (first, second)]
    return bool(drawn(first)) and drawn(first) == drawn(second) and counts[0] == counts[1]


def is_rate(record: Record) -> bool:
    """Return whether a figure is a share, so that it reads in percent."""
    return record["metric"].startswith(_RATES)


def overall(comparison: Comparison) -> list[Record]:
    """Return the accuracies over all cells."""
    return [record for record in comparison.records if record["metric"] == "accuracy" and record["column"] is None]


def by_column(comparison: Comparison) -> list[Record]:
    """Return the accuracies of single columns, the largest differences first."""
    chosen = [
        record for record in comparison.records if record["metric"] == "accuracy" and record["column"] is not None
    ]
    return sorted(chosen, key=lambda record: (not record["clear"], -abs(record["difference"] or 0.0)))


def in_words(comparison: Comparison) -> list[str]:
    """Return the result of the comparison in sentences."""
    clear = [record for record in overall(comparison) if record["clear"]]
    first, second = comparison.names
    words = [
        f"{len(comparison.records):,} figures in common; {comparison.only[0]:,} only in {first}, "
        f"{comparison.only[1]:,} in {second}."
    ]
    for name, points in zip(comparison.names, comparison.points_only, strict=True):
        if points:
            more = f"; and {len(points) - _MOST_POINTS} more" if len(points) > _MOST_POINTS else ""
            words.append(f"Only in {name}: {'; '.join(points[:_MOST_POINTS])}{more}.")
    if clear:
        parts = [f"{label(record)} {100 * record['difference']:+.1f} points" for record in clear[:6]]
        words.append(f"Cells read, {second} less {first}, clearly different from zero: {listed(parts)}.")
    else:
        words.append("No accuracy over all cells differs clearly: every interval of a difference includes zero.")
    words.append(
        "Both runs attacked the same victims; the intervals of differences take them as different ones and are usually "
        "too wide."
        if comparison.same_victims
        else "The runs attacked different victims or numbers of them; intervals of differences join those of both."
    )
    return words


def label(record: Record) -> str:
    """Return attack, batch size and defense of a figure in words."""
    parts = [
        clean(record["attack"]) if record["attack"] else "",
        "" if record["batch_size"] is None else f"batch {record['batch_size']}",
    ]
    defended = record["defense"] not in (None, "none")
    return ", ".join(part for part in [*parts, clean(record["defense"], 40) if defended else ""] if part)
