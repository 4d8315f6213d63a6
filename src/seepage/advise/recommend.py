"""The search for the cheapest configuration that is shown to stay below a limit.

A change is searched by halving its range of strengths on a log scale, on the same few repetitions for all strengths and
against attackers that know the defense. What looks safe is confirmed, the cheapest first, on repetitions that the
search never saw, by the gate's own bound. Which strength that is, and which of several that pass is recommended, goes
by how likely a further audit is to pass.

The weakest safe strength lies between a, which is not safe, and b, which is. The next one to try is ``sqrt(a b)``, the
middle of their logarithms, and takes the place of either. So k tries leave a factor of ``(b / a)^(2^-k)`` between them:
three take a thousandfold range to one of 2.4. A strength looks safe where the mean lift of each figure, less its
standard error, is at most half of the limit, or shown to be below the limit already. The confirmations share the level
of the gate, as any of them may pass by chance: at ``alpha / 3`` each, one of three does with probability alpha at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from seepage.advise.margin import chance_of_passing
from seepage.advise.recommendation import LIKELY, Candidate, Outcome, Recommendation, Status, cost_of, loss
from seepage.assessment.decision import WHOLE, least_units
from seepage.assessment.row import ResultRow
from seepage.assessment.task import is_error
from seepage.assessment.utility import Recipe
from seepage.auditing import PARTS, Network, Source, cannot_act, fitting, level, measured, prepare_all, spec_of, without
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError
from seepage.files import check_out, write_whole
from seepage.models.model import Model
from seepage.report.advice import LEAST_TRAININGS
from seepage.report.report import Report
from seepage.results.checks.finding import LOWER_BOUNDS
from seepage.results.gate import check_gate
from seepage.results.verdict import pick
from seepage.run.elsewhere import Machines
from seepage.run.limits import by_units
from seepage.run.plan import Plan
from seepage.run.provenance import check_folder, provenance, write_provenance
from seepage.run.runner import Listener
from seepage.run.store import Store
from seepage.seeds import stream
from seepage.settings.lever import Lever
from seepage.settings.option import fields_of
from seepage.settings.part import NONE, check_storable
from seepage.settings.setting import Audit, TaskTraining
from seepage.settings.spec import Gate, Spec, Wish
from seepage.settings.units import Tables
from seepage.tabular.schema import Schema
from seepage.text import capitalised, clean, how_many, percent, points, to_go

# Configurations that are confirmed at most; they share the level of the gate.
CONFIRMATIONS = 3
# Halvings of a range of strengths.
_HALVINGS = 3
# Repetitions of the search, where repetitions are judged: this many, or this share of the least number that passes.
_FEWEST, _SHARE = 4, 6
# Repetitions beyond which a confirmation is no matter of hours.
_MOST_UNITS = 2_000
# Budget of a confirmation, in the least numbers of repetitions that pass.
_BUDGET = 3
# Strengths of a change at which the search looks longer, before one is confirmed.
_LOOKS = 3
# Records or models that a confirmation attacks in a repetition, in the least numbers that pass: enough to tell a third
# of a limit from the limit.
_MEMBERS = 20
DOCUMENT = "recommend.yaml"


def recommend(
    source: Source = "adult",
    model: Network = None,
    *,
    below: float,
    column: str | None = None,
    whole_records: bool = False,
    max_cost: float | None = None,
    setting: str = "horizontal",
    schema: Schema | None = None,
    out: str | Path | None = None,
    machines: Machines | None = None,
    **options: object,
) -> Recommendation:
    """Search for the cheapest change of a deployment that keeps its leakage below a limit.

    What is given is fixed, such as a batch size; the rest of what the setting can change is searched.

    Args:
        source, model, setting, schema, out, machines: arguments of ``audit``.
        below: lift over the best baseline that the configuration is shown to stay below, in (0, 1).
        column: column whose lift is limited; all cells, whole records, label and sensitive columns if None.
        whole_records: whether the share of whole records alone is limited.
        max_cost: largest loss in the metric of the task, in its own unit; any if None.
        options: fields of the setting's spec, such as batch_sizes, attacks, time_budget and seed.

    Raises:
        BadInputError: something cannot be used as given, or no search could answer.

    Example:
        >>> few = {"attacks": "dlg", "iterations": 2, "control": False, "defenses": "none"}
        >>> found = recommend("german", below=0.6, batch_sizes=2, protocol="fedsgd", victims=8, **few)
        Traceback (most recent call last):
        ...
        seepage.errors.BadInputError: everything that could lower the leakage is given...
    """
    wish = {"below": below, "column": column, "whole_records": whole_records, "max_cost": max_cost}
    spec, dataset, network = spec_of(source, model, setting, schema, {**options, "recommend": wish})
    return recommended(spec, None if out is None else Path(out), dataset, network, machines=machines)


def recommended(
    spec: Spec,
    folder: Path | None = None,
    dataset: Dataset | None = None,
    model: Model | nn.Module | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    document: str | None = None,
    machines: Machines | None = None,
) -> Recommendation:
    """Run the search that the field ``recommend`` of a spec describes; a search in the same folder is continued.

    Table and network in memory take the place of those that the spec names. ``say`` gets a line on what is done next;
    the document that the search was started from is copied into the folder.
    """
    check_out(folder)
    spec = _single_configuration(spec)
    tables = Tables(folder)
    [asking] = fitting([spec], folder, None, dataset, model, tables)
    for line in asking.untried:
        say(line)
    spec = _changed(spec, {name: getattr(asking.spec, name) for name in PARTS})

    def prepare(changed: Spec) -> Audit:
        [audit] = prepare_all([changed], folder, dataset, model, tables)
        # What cannot act is left out of every configuration alike, and ends none.
        audit.not_tried, audit.defaults = asking.not_tried, asking.defaults
        return audit

    if folder is not None:
        check_storable(spec.passed)
    with Store(folder, asking.own) as store:
        if folder is not None:
            check_folder(folder, store, [asking])
        store.add_run(provenance([asking]))
        if folder is not None and document is not None:
            write_whole(folder / DOCUMENT, document, asking.own)
        alpha = level(store) / CONFIRMATIONS
        recommendation = _Advisor(spec, asking, store, prepare, say, alpha, machines).run()
        recommendation = replace(recommendation, origin=store.runs()[-1])
        if folder is not None:
            write_provenance(folder, store, asking.own)
    return recommendation


def _single_configuration(spec: Spec) -> Spec:
    """Return a spec of one configuration: of what is swept by default the first, and no sweep that was given."""
    if spec.recommend is None:
        raise BadInputError("a recommendation needs a limit of the lift; give below: 0.2, for example.")
    if spec.gate is not None:
        raise BadInputError("a search has a limit of its own (below); leave the gate out.")
    changed: dict[str, object] = {}
    for name, field in fields_of(type(spec)).items():
        if field.option.swept or name == "defenses":
            values = getattr(spec, name)
            if len(values) > 1 and name in spec.model_fields_set:
                raise BadInputError(
                    f"a search starts from one configuration, got {len(values)} values of {field.key}; give one, which "
                    "is then fixed, or none, so that it is searched."
                )
            if len(values) > 1:
                changed[name] = values[:1]
    return _changed(spec, changed)


def _changed(spec: Spec, values: Mapping[str, object]) -> Spec:
    """Return a spec with other values; what was not given stays free, so that the copy may not count as given."""
    copy = spec.model_copy(update=values)
    object.__setattr__(copy, "__pydantic_fields_set__", set(spec.model_fields_set))
    return copy


@dataclass
class _Bracket:
    """A change and the strengths between which the weakest safe one lies.

    ``unsafe`` is the strongest that did not look safe, ``strongest`` the strongest that the table admits, as far as it
    was tried; ``safe`` has the weakest first.
    """

    lever: Lever
    unsafe: float | int
    strongest: float | int
    safe: list[float | int]
    ended: bool = False

    @property
    def next(self) -> float | int | None:
        """Strength to try next; None where there is none."""
        if self.ended:
            return None
        if not self.safe:
            return self.lever.rounded(self.strongest)
        return self.lever.between(self.unsafe, self.safe[0]) if self.lever.searched else None


class _BeforeTheFirst(Listener):
    """Calls back with the first plan of a search, before anything of it runs."""

    def __init__(self, callback: Callable[[Plan], None]) -> None:
        self._callback: Callable[[Plan], None] | None = callback

    def planned(self, plan: Plan) -> None:
        if self._callback is not None:
            self._callback(plan)
        self._callback = None


@dataclass
class _Advisor:
    spec: Spec
    asking: Audit
    store: Store
    prepare: Callable[[Spec], Audit]
    say: Callable[[str], None]
    alpha: float
    machines: Machines | None

    def __post_init__(self) -> None:
        spec, asking = self.spec, self.asking
        assert spec.recommend is not None
        self.wish: Wish = spec.recommend
        self.gate = Gate(above=self.wish.below, column=self.wish.column, whole_records=self.wish.whole_records)
        about = asking.about
        for note in about.notes:
            self.say(note)
        check_gate(self.gate, list(dict.fromkeys([*about.columns, *filter(None, [about.target])])), [])
        self.by_units, self.shared = by_units(spec), asking.shared
        self.least = least_units(self.wish.below, alpha=self.alpha)
        self._check_budget()
        self.ends = None if spec.time_budget is None else time.monotonic() + spec.time_budget
        self.levers = [lever for lever in asking.levers() if lever.free(spec)]
        if not self.levers:
            levers = [lever.name for lever in asking.levers()]
            raise BadInputError(
                f"everything that could lower the leakage is given ({', '.join(levers)}); leave one out, so that it is "
                "searched."
                if levers
                else f"the setting {asking.setting!r} names nothing that could lower its leakage, so there is nothing "
                "to search."
            )
        self.looked: dict[tuple[str, float | int], Candidate] = {}
        self.not_tried = asking.not_tried
        self.timed_out = False
        # Seconds of a repetition of the deployment as given, and of the trainings of one change.
        self.given_seconds = self.training_seconds = 0.0

    def _check_budget(self) -> None:
        spec, given = self.spec, self.spec.repeats in self.spec.model_fields_set
        if self.by_units and given and spec.repeated < self.least:
            raise BadInputError(
                f"a limit of {self.wish.below:g} needs at least {self.least:,} {spec.unit}s even where nothing leaks, "
                f"got {spec.repeats}={spec.repeated}; give as many, or a larger limit."
            )
        if self.least > _MOST_UNITS:
            what = spec.unit if self.by_units else spec.member
            raise BadInputError(
                f"a limit of {self.wish.below:g} needs at least {self.least:,} {what}s even where nothing leaks, more "
                f"than the {_MOST_UNITS:,} that a search runs; give a larger limit, such as 0.05."
            )

    def run(self) -> Recommendation:
        """Search, confirm and return what was found."""
        wished = f"a lift below {100 * self.wish.below:g} points"
        self.say(
            f"searching {how_many(len(self.levers), 'change')} for {wished}: "
            f"{', '.join(lever.name for lever in self.levers)}"
        )
        begun = time.monotonic()
        [given] = self._screened([(None, 0.0)])
        # What a search that is continued has stored took no time now.
        each = (given.seconds or 0.0) / (self.spec.workers or 1)
        self.given_seconds = max(each, (time.monotonic() - begun) / self._units_tried)
        if not given.standings and not self.timed_out:
            what = f"column {clean(self.wish.column, 60)}" if self.wish.column else "cells or records"
            what = "whole records" if self.wish.whole_records else what
            raise BadInputError(
                f"no attack of this audit is scored on {what} beside a baseline, so there is nothing to limit; limit "
                "another figure, or name an attack that guesses it."
            )
        # Before its status is overwritten, which says whether an attack was not tried.
        looks_safe = self._safe(given) is True
        given = given if looks_safe else replace(given, status="as given")
        self._check_cost(given := self._with_task(given))
        took = None if given.task is None else given.task.settings.get("seconds")
        self.training_seconds = float(took) if isinstance(took, int | float) else 0.0
        searched = self._search()
        if self.shared and any(bracket.safe for bracket in searched) and not self._late():
            self._check_cost(given := self._with_trainings(given))
        candidates = self._confirmations(given, searched, looks_safe)
        given = next((c for c in candidates if c.lever is None), given)
        rest = [c for c in (*candidates, *self.looked.values()) if c.lever is not None]
        shown = {(c.words): c for c in reversed(rest)}
        ordered = sorted(shown.values(), key=lambda c: (c.status != "recommended", c.lever.name if c.lever else ""))
        outcome = self._outcome(candidates, searched)
        return Recommendation(self.spec, self.wish, outcome, given, ordered, self.alpha, timed_out=self.timed_out)

    def _outcome(self, tried: Sequence[Candidate], brackets: Sequence[_Bracket]) -> Outcome:
        if any(candidate.status == "recommended" for candidate in tried):
            return "found"
        # Of a change that never looks safe its full strength decides.
        strongest = [
            (bracket.lever.name, bracket.lever.rounded(bracket.strongest)) for bracket in brackets if not bracket.safe
        ]
        open_ones = ("unclear", "undecided")
        unclear = any(self.looked[key].status in open_ones for key in strongest if key in self.looked)
        undecided = any(candidate.status == "undecided" for candidate in tried)
        return "undecided" if self.timed_out or unclear or undecided else "none"

    # The search

    def _search(self) -> list[_Bracket]:
        brackets = [_Bracket(lever, lever.weakest, lever.strongest, []) for lever in self.levers]
        for step in range(1 + _HALVINGS):
            trying = [(bracket, strength) for bracket in brackets if (strength := bracket.next) is not None]
            if not trying or self._late():
                break
            begun = time.monotonic()
            listener = _BeforeTheFirst(self._announce) if step == 0 else None
            candidates = self._screened([(bracket.lever, strength) for bracket, strength in trying], listener=listener)
            for (bracket, strength), candidate in zip(trying, candidates, strict=True):
                safe = self._safe(candidate)
                if safe is None:
                    bracket.ended = True
                elif safe:
                    bracket.safe.insert(0, strength)
                elif bracket.safe:
                    bracket.unsafe = strength
                elif (
                    candidate.status == "broken"
                    and (weaker := bracket.lever.between(bracket.unsafe, strength)) is not None
                ):
                    # The table may be too small for so much.
                    bracket.strongest = weaker
                else:
                    bracket.ended = True
            if step == 0:
                self._forecast(time.monotonic() - begun, candidates, [bracket for bracket in brackets if bracket.safe])
        return brackets

    def _announce(self, plan: Plan) -> None:
        """Say before the first change is tried how long the search takes, if one of the changes may do it, or all."""
        tried = len(plan.audits)
        units = sum(audit.units for audit in plan.audits)
        seconds = plan.seconds
        if seconds is None or not plan.jobs:
            # Where only running them tells, all take about as long as the deployment as given.
            seconds = self.given_seconds * units
        each = seconds / max(1, units)
        first = each * self._units_tried * tried
        self.say(to_go(*(first + seconds for seconds in self._remaining_seconds(each, tried))))

    def _forecast(self, seconds: float, candidates: Sequence[Candidate], left: Sequence[_Bracket]) -> None:
        tried = sum(candidate.report is not None for candidate in candidates)
        if not tried:
            self.say("there was no time to try a change")
            return
        # What a search that is continued has stored took no time now.
        looked = [self.looked[bracket.lever.name, bracket.safe[0]].seconds or 0.0 for bracket in left]
        each = max(seconds / (tried * self._units_tried), sum(looked) / max(1, len(left)) / (self.spec.workers or 1))
        about = f"; {to_go(*self._remaining_seconds(each, len(left)))}" if left else ""
        self.say(f"{len(left)} of {how_many(tried, 'change')} tried may do it at full strength{about}")

    def _remaining_seconds(self, each: float, left: int) -> tuple[float, float]:
        """Return the least and the most seconds of what follows the first step, if so many changes are left.

        A repetition takes ``each``. There are the halvings of one change or of all, longer looks and confirmations, and
        trainings. A confirmation adds units until it is decided; one of members has trainings without the change beside
        it.
        """
        longer = self._longer - self._units if self.by_units else 0
        # Where repetitions are fixed, one confirmation in two is not the last.
        least = self.least if self.by_units else 2 * self.spec.repeated
        most = _BUDGET * self.least if self.by_units else least
        halvings, confirmations = _HALVINGS * self._units_tried, min(left, CONFIRMATIONS)
        return (
            each * (halvings + longer + least) + 2 * self.training_seconds,
            each * (left * halvings + confirmations * (longer + most)) + (left + 1) * self.training_seconds,
        )

    @property
    def _units_tried(self) -> int:
        """Repetitions of a strength in the search."""
        return self._units if self.by_units else self._repeats

    @property
    def _longer(self) -> int:
        """Repetitions of the search on which a strength is looked at before it is confirmed.

        Of the least number that passes, a look would end with the first lift above 0.
        """
        return max(self._units, 2 * self.least)

    @property
    def _units(self) -> int:
        return max(_FEWEST, self.least // _SHARE)

    @property
    def _repeats(self) -> int:
        quick = type(self.spec).quick.get(self.spec.repeats, 1)
        return min(self.spec.repeated, int(str(quick)))

    def _late(self) -> bool:
        if self.ends is not None and time.monotonic() >= self.ends:
            self.timed_out = True
        return self.timed_out

    @property
    def _left(self) -> float | None:
        """Seconds that are left; None without a time budget."""
        return None if self.ends is None else max(0.0, self.ends - time.monotonic())

    def _measured(self, *audits: Audit, listener: Listener | None = None) -> list[Report]:
        return measured(audits, self.store, listener, self._left, self.alpha, self.machines)

    def _changed(self, lever: Lever | None, strength: float | int) -> Spec:
        return self.spec if lever is None else lever.applied(self.spec, strength)

    def _screened(
        self,
        points_of: Sequence[tuple[Lever | None, float | int]],
        units: int | None = None,
        listener: Listener | None = None,
    ) -> list[Candidate]:
        """Return candidates, each attacked on the same few repetitions."""
        counts = [(units or self._units) if self.by_units else self._repeats]
        if self.by_units and counts[0] > _FEWEST:
            # Leakage that is plain to see is shown with few.
            counts.insert(0, _FEWEST)
        candidates: dict[int, Candidate] = {}
        waiting = list(range(len(points_of)))
        for count in counts:
            audits: dict[int, Audit] = {}
            for i in waiting:
                audit = self._screening_audit(*points_of[i], count)
                if isinstance(audit, str):
                    candidates[i] = _broken(*points_of[i], audit)
                else:
                    audits[i] = audit
            if not audits or self._late():
                break
            for i, report in self._reports(audits, points_of, listener).items():
                judged = isinstance(report, Report)
                candidates[i] = self._judged(*points_of[i], report) if judged else _broken(*points_of[i], report)
            waiting = [i for i in audits if not self._plainly_above(candidates[i])]
        for i, (lever, strength) in enumerate(points_of):
            candidates.setdefault(
                i, Candidate(lever, strength, "not reached", "The time budget ended before it was tried.")
            )
            if lever is not None:
                self.looked[lever.name, strength] = candidates[i]
        self._late()
        return [candidates[i] for i in range(len(points_of))]

    def _reports(
        self,
        audits: Mapping[int, Audit],
        points_of: Sequence[tuple[Lever | None, float | int]],
        listener: Listener | None = None,
    ) -> dict[int, Report | str]:
        """Return the report of each audit, or the reason why no attack or no baseline can be run in it."""
        try:
            return dict(zip(audits, self._measured(*audits.values(), listener=listener), strict=True))
        except BadInputError:
            reports = dict[int, Report | str]()
            # One configuration that cannot be used ends no search; the others are stored by now.
            for i, audit in audits.items():
                try:
                    [reports[i]] = self._measured(audit)
                except BadInputError as error:
                    if points_of[i][0] is None:
                        raise
                    reports[i] = str(error)
            return reports

    def _leave_out(self, report: Report) -> None:
        """Leave out what could not act on the deployment as given, now that it ran, of all that follows."""
        self.not_tried = report.audit.not_tried
        free = [name for name in PARTS if name in report.audit.defaults]
        left = without(self.spec, free, self.not_tried)
        if left is not None and all(point.defense == NONE for point in report.audit.configurations):
            self.spec = _changed(self.spec, {name: getattr(left, name) for name in free})
            # Every configuration that follows says so.
            self.asking.not_tried = self.not_tried
            for line in self.asking.untried:
                self.say(line)

    def _screening_audit(self, lever: Lever | None, strength: float | int, count: int) -> Audit | str:
        """Return the audit of a configuration on few repetitions; the reason where it cannot be used."""
        try:
            spec = self._changed(lever, strength)
            few: dict[str, object] = {spec.repeats: count, "control": False}
            if spec.member is not None and getattr(spec, spec.members) is None:
                few[spec.members] = type(spec).quick.get(spec.members)
            audit = self.prepare(self._spec_of(spec.reseeded(stream(spec.seed, 0, "search") % 2**31), few))
            if lever is not None and not audit.shared:
                return _unable(cannot_act(audit, audit.defaults | {"defenses"})) or audit
            return audit
        except BadInputError as error:
            if lever is None:
                raise
            return str(error)

    def _spec_of(self, spec: Spec, changed: Mapping[str, object]) -> Spec:
        return spec.model_copy(update={"gate": self.gate, "recommend": None, "time_budget": None, **changed})

    def _judged(self, lever: Lever | None, strength: float | int, report: Report) -> Candidate:
        candidate = Candidate(lever, strength, "not reached", "It was not confirmed.", report)
        if report.failed:
            return replace(candidate, status="broken", reason="Jobs failed; see the audit of this configuration.")
        if lever is None:
            self._leave_out(report)
        elif reason := _unable({n: why for n, why in report.audit.not_tried.items() if n not in self.not_tried}):
            return replace(candidate, status="broken", reason=reason)
        worst = candidate.worst
        below = worst is not None and worst.mean <= self.wish.below
        if below and _proofs_untried(report) and not _certified(report):
            why = "The exact attack cannot be tried on it (SEEP024), so that no audit shows that little is read."
            return replace(candidate, status="undecided", reason=why)
        safe = self._safe(candidate)
        if safe is None or worst is None:
            return replace(candidate, reason="The time budget ended before it was tried.")
        if safe:
            return replace(candidate, reason="It looks safe, but another one is cheaper, or the search ended before.")
        certified = _certified(report)
        leaks = f"{clean(worst.figure.attack, 40)} gains {points(worst.mean)} points"
        if certified:
            leaks = f"{leaks}, and proves records"
        plain = certified or worst.mean > self.wish.below or (worst.closed or 0.0) >= WHOLE
        count = f"on {how_many(worst.n, self._member)}"
        return replace(candidate, status="leaks" if plain else "unclear", reason=f"{leaks} {count}.")

    @property
    def _member(self) -> str:
        return self.spec.unit if self.by_units else str(self.spec.member)

    def _safe(self, candidate: Candidate) -> bool | None:
        """Return whether a candidate looks safe on few repetitions; None where nothing is known."""
        if candidate.status in ("broken", "undecided"):
            return False
        if not candidate.standings or any(standing.n == 0 for standing in candidate.standings):
            return None
        assert candidate.report is not None
        if _certified(candidate.report):
            return False
        half = self.wish.below / 2
        return all(
            (standing.below or standing.mean - standing.error <= half) and (standing.closed or 0.0) < WHOLE
            for standing in candidate.standings
        )

    def _plainly_above(self, candidate: Candidate) -> bool:
        if candidate.status == "broken" or candidate.report is None or _certified(candidate.report):
            return True
        return any(standing.mean - 3 * standing.error > self.wish.below for standing in candidate.standings)

    # What a change costs

    def _with_task(self, candidate: Candidate) -> Candidate:
        """Return a candidate with how well the task is learnt, and the epsilons of its noise."""
        if candidate.task is not None or candidate.report is None or self._late():
            return candidate
        report = candidate.report
        audit = self.prepare(self._spec_of(self._changed(candidate.lever, candidate.strength), {}))
        [configuration] = report.audit.configurations
        rows = list(report.rows)
        if _task(report.audit, rows) is None:
            training = TaskTraining(Recipe(), audit.configurations)
            further = audit.further_rows(self.store.setup, self.say, training)
            rows += [row for row in further if row.defense == configuration.defense]
        privacy = tuple(row for row in rows if row.kind == "about" and row.metric.endswith("epsilon"))
        return replace(candidate, task=_task(report.audit, rows), privacy=privacy)

    def _with_trainings(self, given: Candidate) -> Candidate:
        """Return the deployment as given with the task over as many trainings as a confirmation has."""
        audit = self.prepare(self._spec_of(self.spec, {"control": False, "gate": None}))
        self.say("training without a change, to compare with")
        return replace(given, task=task_alone(audit, self.store, self.say, self._left, self.machines) or given.task)

    def _check_cost(self, given: Candidate) -> None:
        """Refuse a limit of the cost that is too small to be measured with these trainings."""
        task, most = given.task, self.wish.max_cost
        ends = None if task is None else task.mean_ends()
        if most is None or task is None or ends is None:
            return
        half = (ends[1] - ends[0]) / 2
        if task.n >= LEAST_TRAININGS and half > most:
            raise BadInputError(
                f"a cost of {most:g} cannot be told from none: {task.n} trainings without a change differ by "
                f"±{half:.2g} already; give max_cost of at least {half:.2g}, or none."
            )

    # The confirmation

    def _confirmations(self, given: Candidate, brackets: Sequence[_Bracket], given_too: bool) -> list[Candidate]:
        """Return the candidates that were confirmed or refused; ``given_too``: the deployment as given is one."""
        done, queue = list[Candidate](), [given] if given_too else []
        steps = {bracket.lever.name: list(bracket.safe) for bracket in brackets}
        for bracket in brackets:
            if bracket.safe and not self._late():
                queue.append(self._with_task(self.looked[bracket.lever.name, bracket.safe[0]]))
        confirmed, looked_longer = 0, set[str]()
        while queue:
            queue.sort(key=lambda candidate: self._price(given, candidate))
            candidate = queue.pop(0)
            if reason := self._unusable(given, candidate):
                done.append(reason)
                continue
            passing = next((other for other in done if other.status == "passes"), None)
            if passing is not None and not _as_cheap(passing, candidate):
                left = "It looks safe, but costs more than the recommended one."
                done.append(replace(candidate, status="not reached", reason=left))
                continue
            if confirmed == CONFIRMATIONS or self._late():
                ended = "time" if self.timed_out else f"number of {CONFIRMATIONS} confirmations"
                reason = f"It looks safe, but the {ended} ended before it was confirmed."
                done.append(replace(candidate, status="undecided", reason=reason))
                continue
            if candidate.lever is not None and candidate.lever.name not in looked_longer:
                # A longer look takes as long as a confirmation, so that only what comes next gets it.
                looked_longer.add(candidate.lever.name)
                candidate = self._likely_strength(given, candidate.lever, steps[candidate.lever.name])
                # With more repetitions it may no longer look safe.
                unclear = candidate.status == "unclear"
                candidate = replace(candidate, status="undecided") if unclear else candidate
                # It may be another strength, of another price.
                (queue if candidate.status == "not reached" else done).append(candidate)
                continue
            confirmed += 1
            if confirmed == CONFIRMATIONS and candidate.lever is not None and passing is None:
                candidate = self._surest_strength(given, candidate, steps[candidate.lever.name])
            self.say(f"confirming {candidate.words} on fresh {self._member}s")
            tried = self._confirmation(given, candidate)
            done.append(tried)
            if tried.status == "passes" and (tried.chance is None or tried.chance >= LIKELY):
                left = "It looks safe, but costs more than the recommended one, or was not needed."
                done += [replace(other, status="not reached", reason=left) for other in queue]
                break
            if candidate.lever is not None and not self._late():
                stronger = [strength for strength in steps[candidate.lever.name] if strength != candidate.strength]
                steps[candidate.lever.name] = stronger
                if stronger:
                    last = confirmed + 1 >= CONFIRMATIONS
                    following = stronger[0] if last else self._stronger(tried, stronger)
                    queue.append(self._with_task(self.looked[candidate.lever.name, following]))
        return self._with_recommended(done)

    @staticmethod
    def _with_recommended(done: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates, of which the cheapest that a further audit is likely to pass is recommended.

        Where no cost is shown to differ from the least, the weaker strength of the same change is taken.
        """
        passing = [candidate for candidate in done if candidate.status == "passes"]
        if not passing:
            return list(done)
        surest = max(min(candidate.chance or 0.0, LIKELY) for candidate in passing)
        sure = [candidate for candidate in passing if min(candidate.chance or 0.0, LIKELY) == surest]
        costs = [loss(sure[0].task, candidate.task) for candidate in sure]
        # Those of unknown cost come last, in their order.
        cheapest = sure[min(range(len(sure)), key=lambda i: math.inf if costs[i] is None else costs[i] or 0.0)]
        alike = [candidate for candidate in sure if _weaker(candidate, cheapest) and _as_cheap(cheapest, candidate)]
        best = min(alike, key=_size, default=cheapest)
        return [replace(each, status="recommended") if each is best else each for each in done]

    def _unusable(self, given: Candidate, candidate: Candidate) -> Candidate | None:
        """Return a candidate with the reason why it is no recommendation whatever it leaks; None without one."""
        cost = loss(given.task, candidate.task)
        if candidate.lever is None:
            return None
        if cost is not None and self.wish.max_cost is not None and cost > self.wish.max_cost:
            reason = f"It costs {cost:.2g}, more than the {self.wish.max_cost:g} that it may."
            return replace(candidate, status="too costly", reason=reason)
        if given.learns and not candidate.learns:
            task, figures = candidate.task, ""
            if task is not None and task.mean is not None and task.baseline is not None:
                both = (task.mean, task.baseline)
                learnt, constant = (f"{mean:.4g}" if is_error(task.metric) else percent(mean) for mean in both)
                figures = f" ({learnt} beside {constant})"
            reason = f"Under it the model learns nothing that always giving the same answer does not have{figures}."
            return replace(candidate, status="learns nothing", reason=reason)
        return None

    def _likely_strength(self, given: Candidate, lever: Lever, safe: list[float | int]) -> Candidate:
        """Return the weakest strength that a further audit is likely to pass, by a longer look at some.

        Weaker ones are dropped. What cannot be recommended for its cost is not looked at. A candidate that no longer
        looks safe says so by its status.
        """
        looks, fallback = 0, None
        while True:
            looks += 1
            candidate = self._with_task(self.looked[lever.name, safe[0]])
            if not self.by_units or self._late():
                return candidate
            if self._unusable(given, candidate):
                return fallback or candidate
            [longer] = self._screened([(lever, safe[0])], self._longer)
            longer = self._with_chance(replace(longer, task=candidate.task, privacy=candidate.privacy))
            self.looked[lever.name, safe[0]] = longer
            if (longer.chance or 0.0) >= LIKELY:
                return longer
            if longer.status == "not reached" and longer.chance is not None:
                fallback = longer
                reason = f"A further audit passes it with {percent(longer.chance, 0)} only."
                self.looked[lever.name, safe[0]] = replace(longer, status="unclear", reason=reason)
            if looks == _LOOKS or len(safe) == 1:
                return longer
            safe.pop(0)
            self._stronger(longer, safe)

    def _with_chance(self, candidate: Candidate) -> Candidate:
        """Return a candidate with the probability that a further audit passes, of as many units as it would have."""
        units = self._audited
        if not self.by_units:
            units = min((standing.n for standing in candidate.standings), default=0)
        if not units or candidate.report is None:
            return candidate
        seed = stream(self.spec.seed, 0, "chance") % 2**31
        chance = chance_of_passing(candidate.standings, self.wish.below, units, seed=seed)
        return replace(candidate, chance=chance, audited=units)

    @property
    def _audited(self) -> int:
        """Repetitions of an audit with this limit."""
        given = self.spec.repeats in self.spec.model_fields_set
        return self.spec.repeated if given else _BUDGET * least_units(self.wish.below)

    def _surest_strength(self, given: Candidate, candidate: Candidate, safe: Sequence[float | int]) -> Candidate:
        """Return the strongest strength of a change that looks safe and affordable, which is tried last."""
        assert candidate.lever is not None
        for strength in reversed(safe):
            if strength == candidate.strength:
                break
            with_task = self._with_task(self.looked[candidate.lever.name, strength])
            if self._unusable(given, with_task) is None:
                return with_task
        return candidate

    def _stronger(self, candidate: Candidate, safe: list[float | int]) -> float | int:
        """Return the next strength to confirm, after one whose leakage was not shown to be below the limit.

        It lies between that one and the next that looks safe, if it looks safe too; then it is added to those.
        """
        lever, worst = candidate.lever, candidate.worst
        assert lever is not None
        above = worst is not None and worst.upper >= self.wish.below
        middle = lever.between(candidate.strength, safe[0]) if above and lever.searched else None
        if middle is not None and self._safe(self._screened([(lever, middle)])[0]):
            safe.insert(0, middle)
        return safe[0]

    @staticmethod
    def _price(given: Candidate, candidate: Candidate) -> tuple[float, int]:
        cost = 0.0 if candidate.lever is None else loss(given.task, candidate.task)
        return (math.inf if cost is None else cost, 0 if candidate.lever is None else 1)

    def _confirmation(self, given: Candidate, candidate: Candidate) -> Candidate:
        spec = self._changed(candidate.lever, candidate.strength)
        counts: dict[str, object] = {}
        if self.by_units and spec.repeats not in self.spec.model_fields_set:
            counts[spec.repeats] = _BUDGET * self.least
        if not self.by_units and spec.member is not None and getattr(spec, spec.members) is None:
            counts[spec.members] = _MEMBERS * self.least
        audit = self.prepare(self._spec_of(spec, counts))
        [report] = self._measured(audit)
        task = _task(audit, report.rows) or candidate.task
        confirmed = replace(candidate, report=report, confirmed=True, task=task)
        assert report.decision is not None
        reason = report.decision.line.partition(": ")[2]
        statuses: dict[str, Status] = {"passed": "passes", "undecided": "undecided", "refused": "broken"}
        status = statuses.get(report.decision.outcome, "failed")
        if status == "undecided" and report.left_out:
            self.timed_out = True
        if status == "passes" and (unusable := self._unusable(given, confirmed)):
            return unusable
        return self._with_chance(replace(confirmed, status=status, reason=capitalised(reason)))


def _as_cheap(passing: Candidate, candidate: Candidate) -> bool:
    """Return whether a candidate is not shown to cost more than one that passes."""
    cost = cost_of(passing.task, candidate.task)
    return cost is not None and (cost.low is None or cost.low <= 0)


def _weaker(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate is the same change as another one, of less strength."""
    same = candidate.lever is not None and other.lever is not None and candidate.lever.name == other.lever.name
    return same and _size(candidate) < _size(other)


def _size(candidate: Candidate) -> float:
    """Return the distance of a strength from the weakest, on the log scale that is searched."""
    lever = candidate.lever
    return 0.0 if lever is None else abs(math.log(candidate.strength / lever.weakest))


def _broken(lever: Lever | None, strength: float | int, reason: str) -> Candidate:
    return Candidate(lever, strength, "broken", reason)


def _unable(reasons: Mapping[str, str]) -> str | None:
    """Return why a change cannot be judged under which a part cannot act that acts without it; None where all can.

    An attack that is left out reads nothing, which would look safe.
    """
    return next((f"{name} cannot be tried on it: {why}" for name, why in reasons.items()), None)


def _proofs_untried(report: Report) -> bool:
    """Return whether an attack with proofs was not tried, so that the gate passes at no number of units."""
    return any(finding.code in LOWER_BOUNDS for finding in report.findings or ())


def _certified(report: Report) -> bool:
    return any(row.mean for row in pick(report.rows, kind="attack", metric="certified", column=None))


def task_alone(
    audit: Audit,
    store: Store,
    say: Callable[[str], None],
    budget: float | None = None,
    machines: Machines | None = None,
) -> ResultRow | None:
    """Return how well the task is learnt in the configuration of an audit, without an attack; None where it is not.

    Args:
        audit: audit of one configuration; only what it measures of the deployment is kept of its parts.
        store: store that trainings are read from and kept in.
        say: callback that gets the name of the next computation.
        budget: seconds for the trainings; no limit if None.
        machines: other machines that run the trainings; this one if None.
    """
    if not audit.shared:
        return _task(audit, audit.further_rows(store.setup, say, TaskTraining(Recipe(), audit.configurations)))
    audit.parts = tuple(part for part in audit.parts if part.kind == "about")
    [report] = measured([audit], store, budget=budget, machines=machines)
    return _task(audit, report.rows)


def _task(audit: Audit, rows: Sequence[ResultRow]) -> ResultRow | None:
    """Return how well the task is learnt, by the first metric that the setting prefers."""
    for metric in audit.about.utility:
        for row in rows:
            if row.kind == "about" and row.metric == metric and row.column is None:
                return row
    return None
