"""Facts of an audit that checks read; the registry of the checks by code, and their execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from seepage import registry
from seepage.assessment.intervals import UNITS_FOR_VERDICT
from seepage.assessment.row import ResultRow
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError
from seepage.results.checks.finding import SEVERITIES, Finding, Severity, Where, where_of
from seepage.run.plan import POSITIVE
from seepage.run.runner import Run
from seepage.settings.setting import LEAKED, Audit, Configuration, Probe
from seepage.settings.threat_model import applicability
from seepage.text import listed

if TYPE_CHECKING:
    from seepage.results.checks.descent import Longer

# Facts that a check reads beside the rows of results.
Need = Literal["table", "gradient", "descent", "proofs", "repetitions", "longer"]
# Reason why a default attack lacks evidence where nothing can be planted for it.
NO_CONTROL = "no positive control suits it"
TOO_SMALL = "the table is too small for the positive control"
# Share of sound audits whose negative control raises a false alarm.
_FALSE_ALARMS = 0.001


class Gap(NamedTuple):
    """A default attack whose figures in one configuration cannot show that little leaks, and why, in words."""

    batch_size: int | None
    defense: str
    attack: str
    why: str


def in_words(gaps: Iterable[Gap]) -> str:
    """Return the missing evidence in words; the same attack and reason once."""
    by_reason: dict[str, list[str]] = {}
    for gap in gaps:
        names = by_reason.setdefault(gap.why, [])
        if gap.attack not in names:
            names.append(gap.attack)
    return "; ".join(f"{listed(names)}{' ' if why == 'not run' else ': '}{why}" for why, names in by_reason.items())


def _applicable(audit: Audit) -> list[str]:
    """Return the default attacks that can be run on the deployment of an audit."""
    try:
        deployment = audit.deployment()
    except BadInputError:
        # A setting of another package may declare no threat model.
        return list(dict.fromkeys(audit.usual_attacks))
    registered = registry.attacks.of(audit.setting)
    names = dict.fromkeys(audit.usual_attacks)
    return [name for name in names if applicability(registered[name], deployment).applies]


@dataclass(frozen=True)
class Facts:
    """An audit that has ended, as checks see it; results of the controls are None where they were not run.

    ``contradicted`` are attacks whose certificates the truth contradicts, and the share of certified cells that are
    wrong: a mistake in seepage, after which nothing counts as certified.
    ``longer`` are results of the strongest attacks that take steps, at twice as many.
    """

    audit: Audit
    rows: Sequence[ResultRow]
    runs: Sequence[Run]
    control: Sequence[ResultRow] | None = None
    negative: Sequence[ResultRow] | None = None
    contradicted: Mapping[Where, float] = field(default_factory=dict)
    longer: Sequence[Longer] = ()

    @cached_property
    def _probe(self) -> Probe | None:
        return self.audit.probe()

    @property
    def probe(self) -> Probe:
        """Facts on the model's behaviour on some rows, in settings where a gradient is the message."""
        assert self._probe is not None
        return self._probe

    @property
    def table(self) -> Dataset:
        """The rows, in settings where they are a table."""
        assert self.audit.dataset is not None
        return self.audit.dataset

    def lacks(self, need: Need) -> str | None:
        """Return the reason why a check with a need does not apply; None where it does."""
        if need == "table" and self.audit.dataset is None:
            return "the rows are no table"
        if need == "gradient" and self._probe is None:
            return f"no gradient of a batch is the message in {self.audit.setting} learning"
        if need == "repetitions" and not self.audit.repeatable:
            return "messages were captured, so that neither a positive control nor a further repetition can be run"
        if need == "descent" and not self.courses:
            return "no attack that was run descends a loss of its own"
        if need == "longer" and not self.longer:
            return "no attack takes a number of steps, one reads nearly all already, or no time was left to double them"
        if need == "proofs" and not any(run.evidence is not None and run.evidence.regime for run in self.runs):
            return "no attack that was run proves anything"
        return None

    @property
    def size(self) -> str:
        """Name of the number of records behind a message."""
        return self.audit.about.size

    @cached_property
    def scores(self) -> list[ResultRow]:
        """The accuracies of attacks over all cells that could be scored."""
        return [
            row
            for row in self.rows
            if row.is_attack and (row.metric, row.column) == ("accuracy", None) and row.mean is not None
        ]

    @cached_property
    def courses(self) -> dict[Where, np.ndarray]:
        """Course of the attacks' own loss, for attacks that descend, float64 (victim, 3), see ``RecordsGuess``."""
        return {
            where_of(run): run.evidence.course
            for run in self.runs
            if run.evidence is not None and run.evidence.course is not None
        }

    def works(self, attack: str) -> bool:
        """Return whether the positive control shows that an attack works."""
        row = self.control_row(attack)
        return row is not None and leaks(row)

    @cached_property
    def gaps(self) -> list[Gap]:
        """Missing evidence that little leaks, by configuration and default attack."""
        usual = _applicable(self.audit)
        attacks = [part for part in self.audit.parts if part.kind == "attack"]
        labels = {name: [part.label for part in attacks if part.part.name == name] for name in usual}
        proved = {(run.configuration, run.label) for run in self.runs if run.nothing_to_add}
        return [
            Gap(configuration.batch_size, configuration.defense, name, why)
            for configuration in self.audit.configurations
            for name in usual
            if not any((configuration, label) in proved for label in labels[name])
            and (why := self._lacks_evidence(configuration, labels[name])) is not None
        ]

    def _lacks_evidence(self, configuration: Configuration, labels: Sequence[str]) -> str | None:
        """Return the reason why the figures of a default attack, under any label, show nothing; None where they do."""
        point = ("accuracy", configuration.batch_size, configuration.defense)
        of_attack = [row for row in self.rows if row.is_attack and row.attack in labels]
        measured = max((row.n for row in of_attack if (row.metric, row.batch_size, row.defense) == point), default=0)
        if measured == 0:
            return "not run"
        if measured < UNITS_FOR_VERDICT:
            unit = self.audit.spec.unit
            return f"on {measured} {unit}{'s' if measured != 1 else ''}"
        if POSITIVE in self.audit.not_tried:
            return f"{POSITIVE} not tried"
        # A setting without a positive control cannot pass one.
        if self.control is None and self.audit.spec.control:
            return TOO_SMALL if self.audit.too_small_for_control else None
        if any(self.works(label) for label in labels):
            return None
        rows = [row for label in labels if (row := self.control_row(label)) is not None]
        if not rows and self.control:
            return NO_CONTROL
        return (
            "positive control not passed"
            if any(row.status != "left_out" for row in rows)
            else "positive control not run"
        )

    @cached_property
    def of_nothing(self) -> list[ResultRow]:
        """The accuracies of attacks on messages without information: those of the negative control, and such parts."""
        without_message = [
            row for row in self.rows if row.attack in self.audit.about.of_nothing and row.kind == "about"
        ]
        whole = [
            row
            for row in (*(row for row in self.negative or () if row.is_attack), *without_message)
            if _of_all(row, None)
        ]
        labels = [row for row in self.negative or () if row.is_attack and _of_all(row, self.audit.about.label)]
        # An attack on cells answers labels on the side; one on labels has no other figure.
        return [*whole, *(row for row in labels if row.attack not in {score.attack for score in whole})]

    def control_row(self, attack: str) -> ResultRow | None:
        """Return the accuracy of an attack over all cells of the positive control, or over its labels."""
        for column in (None, self.audit.about.label):
            for row in self.control or ():
                if row.attack == attack and row.is_attack and _of_all(row, column):
                    return row
        return None


def _of_all(row: ResultRow, column: str | None) -> bool:
    return (row.metric, row.column) == ("accuracy", column)


def control_share(row: ResultRow, end: Literal["mean", "low"] = "mean") -> float | None:
    """Return the share of the gap that an attack closed in a control, or closes at the low end of Student's interval.

    Guessing may be right in every cell of so small a sample; an attack that is too has closed all there was.
    """
    ends = row.mean_ends()
    value = row.mean if end == "mean" else None if ends is None else ends[0]
    if value is None or row.baseline is None:
        return None
    if row.baseline >= 1:
        return 1.0 if value >= 1 else 0.0
    return (value - row.baseline) / (1 - row.baseline)


def leaks(row: ResultRow) -> bool:
    """Return whether an attack works: in the positive control it closes more than ``LEAKED`` of the gap.

    It does so at the lower end of Student's t interval: what is planted is alike in all of so few units.
    """
    closed = control_share(row, "low")
    return closed is not None and closed > LEAKED


def broken(row: ResultRow) -> bool:
    """Return whether a row of the positive control shows its attack not to work; of few units, the mean counts."""
    if row.n >= UNITS_FOR_VERDICT:
        return not leaks(row)
    closed = control_share(row)
    return closed is None or closed <= LEAKED


def exceeds_by_more_than_chance(row: ResultRow, rows: int = 1) -> bool:
    """Return whether an attack on messages that carry nothing exceeds the best baseline beyond chance.

    The lower end is that of a one-sided interval of 99.9%, shared by all attacks that are looked at, by Student's t.
    """
    ends = row.lift_ends(1 - 2 * _FALSE_ALARMS / rows)
    return ends is not None and ends[0] > 0


@dataclass(frozen=True)
class Fault:
    """A problem that a check yields: a finding without code and title; ``severity`` if not the check's usual one."""

    message: str
    where: tuple[Where, ...] = ()
    severity: Severity | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One check; where a fact that it ``needs`` beside the rows is missing, it does not apply."""

    code: str
    severity: Severity
    title: str
    find: Callable[[Facts], Iterable[Fault]]
    needs: tuple[Need, ...] = ()


CHECKS: dict[str, Check] = {}

Find = Callable[[Facts], Iterable[Fault]]


def check(code: str, severity: Severity, title: str, *needs: Need) -> Callable[[Find], Find]:
    """Register the decorated function as a check."""

    def add(find: Find) -> Find:
        assert code not in CHECKS, f"{code} is taken"
        CHECKS[code] = Check(code, severity, title, find, needs)
        return find

    return add


def run_checks(facts: Facts) -> list[Finding]:
    """Return the findings of all checks, errors first, then by code."""
    findings = [
        Finding(
            check.code, finding.severity or check.severity, check.title, finding.message, finding.where, finding.columns
        )
        for check in CHECKS.values()
        if not any(map(facts.lacks, check.needs))
        for finding in check.find(facts)
    ]
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.code))


def not_applicable(facts: Facts) -> dict[str, str]:
    """Return the codes of checks that do not apply to an audit, with the reason."""
    by_code = {}
    for check in CHECKS.values():
        reasons = [reason for need in check.needs if (reason := facts.lacks(need)) is not None]
        if reasons:
            by_code[check.code] = "; ".join(reasons)
    return by_code
