"""What a search for a configuration found: candidates with leakage, cost and verdict.

The cost is the loss in the metric of the task: ``t_0 - t`` for a rate and ``t - t_0`` for an error, where t_0 is that
of the deployment as given. Its interval follows from theirs, by adding up squares (Zou and Donner 2008),

    low = cost - sqrt(d_0^2 + d^2),   high = cost + sqrt(D_0^2 + D^2),

with d_0, d the distances to the ends that make the cost smaller, and D_0, D those to the others. A change whose low is
not above 0 is not shown to cost anything.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from seepage.assessment.intervals import Estimate, difference, with_student
from seepage.assessment.row import Record, ResultRow
from seepage.assessment.task import is_error
from seepage.report.advice import LEAST_TRAININGS
from seepage.report.frames import task_name
from seepage.report.report import Report
from seepage.results.verdict import pick
from seepage.run.limits import Standing
from seepage.settings.command import written
from seepage.settings.lever import Lever
from seepage.settings.option import fields_of
from seepage.settings.spec import Spec, Wish
from seepage.text import clean, listed, lowered, percent, points, span

Status = Literal[
    "as given",
    "leaks",
    "unclear",
    "too costly",
    "learns nothing",
    "failed",
    "undecided",
    "not reached",
    "broken",
    "passes",
    "recommended",
]
Outcome = Literal["found", "none", "undecided"]
# What is limited where cells are secret and no column was named.
_CELLS = "all cells"
# Probability from which on a further audit is called likely to pass.
LIKELY = 0.9


@dataclass(frozen=True)
class Candidate:
    """One configuration of the search; without a lever it is the deployment as it was given.

    The report is of the last audit of it, on few repetitions or, if confirmed, on those that the search did not see.
    The task is the row of its metric, and ``privacy`` the epsilons that follow from the noise, as rows of results.
    ``chance`` is the probability that a further audit of ``audited`` units passes the limit, by the units seen.
    """

    lever: Lever | None
    strength: float | int
    status: Status
    reason: str
    report: Report | None = None
    confirmed: bool = False
    task: ResultRow | None = None
    privacy: tuple[ResultRow, ...] = ()
    chance: float | None = None
    audited: int = 0

    @property
    def words(self) -> str:
        """The change as a label."""
        return "no change" if self.lever is None else self.lever.words(self.strength)

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Standing of each limited figure against the limit."""
        decision = None if self.report is None else self.report.decision
        return () if decision is None else decision.figures

    @property
    def worst(self) -> Standing | None:
        """The limited figure with the largest mean lift; None where nothing was measured."""
        return max(self.standings, key=lambda standing: standing.mean, default=None)

    @property
    def strongest(self) -> ResultRow | None:
        """The attack with the largest lift on the figure that is limited, as a row of results."""
        worst = self.worst
        if worst is None or self.report is None:
            return None
        of, configuration = worst.figure, worst.figure.configuration
        rows = pick(
            self.report.rows, attack=of.attack, metric=of.metric, column=of.column, batch_size=configuration.batch_size
        )
        return next((row for row in rows if row.defense == configuration.defense), None)

    @property
    def beside(self) -> ResultRow | None:
        """The largest lift on a column that is not limited, as a row of results; None where there is none above 0."""
        limited = {standing.figure.column for standing in self.standings}
        rows = [] if self.report is None else pick(self.report.rows, kind="attack", metric="accuracy")
        columns = [row for row in rows if row.column is not None and row.column not in limited and row.lift]
        largest = max(columns, key=lambda row: row.lift or 0.0, default=None)
        return largest if largest is not None and (largest.lift or 0.0) > 0 else None

    @property
    def learns(self) -> bool:
        """Whether the task is learnt better than by always giving the same answer, by Student's t over trainings."""
        task = self.task
        if task is None or task.lift is None or task.n < LEAST_TRAININGS:
            return True
        ends = task.lift_ends()
        return (task.lift if ends is None else ends[0]) > 0

    @property
    def seconds(self) -> float | None:
        """Machine time of all attacks for one repetition; None where nothing was measured."""
        if self.report is None:
            return None
        seconds = [run.seconds for run in self.report.runs if run.is_attack and run.seconds is not None]
        return sum(seconds) if seconds else None


@dataclass(frozen=True)
class Recommendation:
    """The cheapest configuration that is shown to stay below a limit, and what was rejected on the way.

    Outcomes are ``found``; ``none``: nothing that can be changed meets it; ``undecided``: time or budget ended first.
    The recommended candidate comes first; ``alpha`` is the probability of a false pass of each confirmation.
    """

    spec: Spec
    wish: Wish
    outcome: Outcome
    given: Candidate
    candidates: Sequence[Candidate]
    alpha: float
    origin: Mapping[str, object] = field(default_factory=dict)
    timed_out: bool = False

    @property
    def chosen(self) -> Candidate | None:
        """The recommended configuration; None where there is none."""
        candidates = (self.given, *self.candidates)
        return next((candidate for candidate in candidates if candidate.status == "recommended"), None)

    @property
    def options(self) -> str:
        """Options of the command line that make the recommended change; empty without one."""
        chosen = self.chosen
        return "" if chosen is None or chosen.lever is None else options_of(self.spec, chosen.lever, chosen.strength)

    @property
    def line(self) -> str:
        """The recommendation in a sentence or two."""
        what = self.figure
        limit = f"{100 * self.wish.below:g} points"
        chosen = self.chosen
        if chosen is not None:
            change = "no change is needed" if chosen.lever is None else clean(self.options, 300)
            left = "" if chosen.worst is None else f", at most {points(max(s.upper for s in chosen.standings))}"
            return (
                f"recommended: {change}. The lift on {what} is shown to stay below {limit}{left}. "
                f"{self.margin_words(chosen)}{self.beside_words(chosen)}{self.cost_words(chosen)}"
            )
        if self.outcome == "none":
            within = "" if self.wish.max_cost is None else f" at a cost of at most {self.wish.max_cost:g}"
            useless = [clean(case.words, 60) for case in self.candidates if case.status == "learns nothing"]
            yet = f" with a model that learns; under {listed(useless)} it learns nothing" if useless else ""
            return f"no configuration that was searched keeps the lift on {what} below {limit}{within}{yet}."
        undecided = f"undecided: nothing was shown yet about a lift on {what} below {limit}"
        if self.timed_out:
            return f"{undecided}; run the same command again."
        for case in self.candidates:
            below = case.standings and all(standing.below for standing in case.standings)
            if case.confirmed and case.status == "undecided" and below:
                return f"{undecided}: all figures of {clean(case.words, 60)} stay below it, but {lowered(case.reason)}"
        tried = max(
            (case.worst.n for case in (self.given, *self.candidates) if case.confirmed and case.worst), default=0
        )
        if not tried and (open_ones := [c for c in self.candidates if c.status in ("undecided", "unclear")]):
            reasons = [f"{clean(case.words, 60)}: {lowered(case.reason)}" for case in open_ones[:2]]
            return f"{undecided}, and nothing was confirmed. {' '.join(reasons)}"
        member, field_name = self.spec.unit, self.spec.repeats
        if self.spec.member is not None:
            member, field_name = self.spec.member, self.spec.members
        more = f"more ({fields_of(type(self.spec))[field_name].flag})"
        if getattr(self.spec, field_name) is None:
            more = "a larger table, or hold more of its rows out"
        return f"{undecided}: {tried:,} {member}s do not decide it. Give {more}, or a larger limit."

    @property
    def figure(self) -> str:
        """Name of the limited figures."""
        if self.wish.column is not None:
            return f"column {clean(self.wish.column, 60)}"
        if self.wish.whole_records:
            return "whole records"
        cells = _cells_name(self.given.report)
        return f"{cells}, whole records, label and sensitive columns" if cells == _CELLS else cells

    def cost(self, candidate: Candidate) -> float | None:
        """Return the loss in the task's metric; None where it was not measured on both sides."""
        return loss(self.given.task, candidate.task)

    def margin_words(self, candidate: Candidate) -> str:
        """Return how likely a further audit passes, in a sentence."""
        if candidate.chance is None:
            return ""
        member = self.spec.unit if self.spec.member is None else self.spec.member
        sample_size = max((standing.n for standing in candidate.standings), default=0)
        likely = "" if candidate.chance >= LIKELY else " That is no safe margin: a larger limit or more of it has one."
        return (
            f"By the {sample_size} {member}s seen, a further audit of {candidate.audited} {member}s passes with "
            f"{percent(candidate.chance, 0)}.{likely} "
        )

    def beside_words(self, candidate: Candidate) -> str:
        """Return the largest lift that is not limited, in a sentence; empty where there is none."""
        row = candidate.beside
        if row is None:
            return ""
        ends = "" if row.lift_low is None else f" [{points(row.lift_low)}, {points(row.lift_high)}]"
        gain = f"{clean(row.attack, 24)} gains {points(row.lift)}{ends}"
        return f"Not limited: column {clean(row.column)}, of which {gain}. "

    def cost_interval(self, candidate: Candidate) -> Estimate | None:
        """Return the loss in the task's metric with the interval of the difference; None where it was not measured."""
        before, task = self.given.task, candidate.task
        return cost_of(before, task)

    def cost_words(self, candidate: Candidate) -> str:
        """Return what a candidate costs the task, in a sentence."""
        if candidate.lever is None:
            return "It costs nothing."
        task, before = candidate.task, self.given.task
        if task is None or before is None or task.mean is None or before.mean is None:
            return "What it costs the task was not measured."
        error = is_error(task.metric)

        def shown(row: ResultRow) -> str:
            learnt = learnt_of(row)
            if learnt.mean is None:
                return ""
            if error:
                between = "" if learnt.low is None else f" [{learnt.low:.4g}, {learnt.high:.4g}]"
                return f"{learnt.mean:.4g}{between}"
            return f"{percent(learnt.mean)} {span(learnt.low, learnt.high)}".strip()

        few = min(task.n, before.n) < LEAST_TRAININGS
        judged = f" The difference of {task.n} is not judged." if few else f" {self._difference(candidate, error)}"
        constant = ""
        if task.baseline is not None:
            same = f"{task.baseline:.4g}" if error else percent(task.baseline)
            constant = f" Always giving the same answer has {same}."
        return (
            f"{task_name(task.metric)}: {shown(task)} beside {shown(before)} without it, over {task.n} "
            f"training{'s' if task.n != 1 else ''}.{judged}{constant}"
        )

    def _difference(self, candidate: Candidate, error: bool) -> str:
        """Return the cost as a difference with its interval, in a sentence."""
        cost = self.cost_interval(candidate)
        if cost is None or cost.mean is None or cost.low is None or cost.high is None:
            return ""
        numbers = [f"{value:.3g}" if error else points(value) for value in (cost.mean, cost.low, cost.high)]
        ends = f"[{numbers[1]}, {numbers[2]}]"
        if cost.low <= 0:
            return f"No difference is shown: the cost lies in {ends}{'' if error else ' points'}."
        return f"It costs {numbers[0]} {ends}{'' if error else ' points'}."

    def records(self) -> list[Record]:
        """Return a record for each configuration: leakage, task, epsilons, seconds and verdict."""
        return [self._record(candidate) for candidate in (self.given, *self.candidates)]

    def _record(self, candidate: Candidate) -> Record:
        row, worst, task = candidate.strongest, candidate.worst, candidate.task
        cost = self.cost_interval(candidate)
        epsilons = {epsilon.metric: epsilon for epsilon in candidate.privacy}
        accounted = epsilons.get("epsilon")
        measured = epsilons.get("empirical_epsilon")
        settings = {} if accounted is None else accounted.settings
        return {
            "change": candidate.words,
            "status": candidate.status,
            "reason": candidate.reason,
            "attack": None if worst is None else worst.figure.attack,
            "figure": None if worst is None else _figure_name(worst, candidate.report),
            "lift": row.lift if row is not None and row.lift is not None else None if worst is None else worst.mean,
            "lift_low": None if row is None else row.lift_low,
            "lift_high": None if row is None else row.lift_high,
            "upper": None if worst is None else worst.upper,
            "n": None if worst is None else worst.n,
            "confirmed": "yes" if candidate.confirmed else "no",
            "task_metric": None if task is None else task.metric,
            "task": None if task is None else task.mean,
            "task_low": None if task is None else learnt_of(task).low,
            "task_high": None if task is None else learnt_of(task).high,
            "task_n": None if task is None else task.n,
            "cost": self.cost(candidate),
            "cost_low": None if cost is None else cost.low,
            "cost_high": None if cost is None else cost.high,
            "task_baseline": None if task is None else task.baseline,
            "chance": candidate.chance,
            "audited": candidate.audited if candidate.chance is not None else None,
            "beside": None if candidate.beside is None else candidate.beside.column,
            "beside_lift": None if candidate.beside is None else candidate.beside.lift,
            "epsilon": None if accounted is None else accounted.mean,
            "delta": settings.get("delta"),
            "rounds": settings.get("steps"),
            "message_epsilon": None if measured is None else measured.settings.get("accounted"),
            "measured_low": None if measured is None else measured.low,
            "measured_high": None if measured is None else measured.high,
            "seconds": candidate.seconds,
        }


def cost_of(before: ResultRow | None, task: ResultRow | None) -> Estimate | None:
    """Return the loss of task quality with the interval of the difference, from theirs; None where one side is unknown.

    Trainings of both share rows and seeds, so that the interval is rather too wide.
    """
    if loss(before, task) is None or before is None or task is None:
        return None
    first, second = of_trainings(task), of_trainings(before)
    return difference(second, first) if is_error(task.metric) else difference(first, second)


def of_trainings(row: ResultRow) -> Estimate:
    """Return how well the task is learnt, with its interval over trainings and test rows where these are counted.

    Elsewhere it is Student's t interval over trainings, as each is an average over many rows.
    """
    if "test_rows" in row.settings and row.low is not None and row.high is not None:
        return Estimate(row.mean, row.low, row.high, row.n, row.std)
    return with_student(Estimate(row.mean, None, None, row.n, row.std))


def learnt_of(row: ResultRow) -> Estimate:
    """Return the same with an interval that ends where a rate does: no accuracy is below 0 or above 1."""
    learnt, most = of_trainings(row), math.inf if is_error(row.metric) else 1.0
    if learnt.low is None or learnt.high is None:
        return learnt
    return replace(learnt, low=max(0.0, learnt.low), high=min(most, learnt.high))


def options_of(spec: Spec, lever: Lever, strength: float | int) -> str:
    """Return the options of the command line that make a change."""
    fields = fields_of(type(spec))
    texts = []
    for name, value in {**lever.beside, **lever.fields(spec, strength)}.items():
        flag = fields[name].flag
        if name == "defenses":
            [part] = value
            texts.append(f"{flag} {shlex.quote(written(part))}")
        elif name == lever.spec_field and lever.key is not None:
            texts.append(f"{flag} {shlex.quote(f'{lever.key}={strength:g}')}")
        else:
            texts.append(f"{flag} {shlex.quote(f'{value:g}' if isinstance(value, float) else str(value))}")
    return " ".join(texts)


def loss(before: ResultRow | None, task: ResultRow | None) -> float | None:
    """Return the loss of task quality in the task's metric; None where one side is unknown."""
    if before is None or task is None or before.mean is None or task.mean is None or before.metric != task.metric:
        return None
    return (before.mean - task.mean) * (-1 if is_error(task.metric) else 1)


def in_words(recommendation: Recommendation, status: Status | None = None) -> list[str]:
    """Return a sentence for each rejected candidate, or for those of a status."""
    rejected = [
        candidate
        for candidate in recommendation.candidates
        if candidate.status != "recommended" and status in (None, candidate.status)
    ]
    return [f"{clean(candidate.words, 80)}: {lowered(candidate.reason)}" for candidate in rejected]


def _figure_name(standing: Standing, report: Report | None) -> str:
    of = standing.figure
    if of.metric == "exact_match":
        return "whole records"
    return _cells_name(report) if of.column is None else clean(of.column, 60)


def _cells_name(report: Report | None) -> str:
    """Return the name of a figure that is of no single column, such as the shares of pooled learning."""
    secret = _CELLS if report is None else report.audit.about.secret
    return _CELLS if secret.startswith("all ") else secret
