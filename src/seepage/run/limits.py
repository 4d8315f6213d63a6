"""Standing of the figures of a gate: which are shown to stay below its limit, and when to stop.

The rule holds at any number of units and however often one looks (``assessment.decision``), so that units are added
until every figure is decided. Limit, figures, budget and the numbers of units at which one looks are fixed before the
first unit. So one worker or two, killed or not, decide alike.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from seepage.assessment import decision
from seepage.assessment.gain import OF_ATTACK, Figure, Reference, References, best_reference
from seepage.assessment.measurement import Measurement
from seepage.settings.part import NONE
from seepage.settings.setting import Audit, Configuration
from seepage.settings.spec import Gate, Spec

# Default budget, as a multiple of the least number of units that pass the limit.
_BUDGET = 3
# Few units show leakage that is plain to see.
_FIRST_LOOK = 5
_GROWTH = 1.5
# Units of a configuration that is only compared with.
_REFERENCE = 10
# Metric and column of the share of records that are certified.
_CERTIFIED = ("certified", None)
S = TypeVar("S", bound=Spec)

Floats = NDArray[np.float64]
# Measurements of an attack on some units, and those of each baseline on the same units, by label.
SideBySide = tuple[Sequence[Measurement], Mapping[str, Sequence[Measurement]]]
MeasuredBy = Callable[[Configuration, str, Collection[Figure]], SideBySide]


@dataclass(frozen=True)
class LimitedFigure:
    """A figure that a gate limits; with ``sample``, that of the members of one training or attack seed."""

    configuration: Configuration
    attack: str
    metric: str = "accuracy"
    column: str | None = None
    sample: int | None = None


@dataclass(frozen=True)
class Standing:
    """Evidence on a figure that a gate limits: whether its mean lift is shown to be below the limit, or above it."""

    figure: LimitedFigure
    n: int
    mean: float
    upper: float
    below: bool
    above: bool
    possible: bool  # whether it can still be shown to be below within the budget
    may_be_above: bool  # whether it can still be shown to be above within the budget
    more: int | None  # estimated number of further units; None where no number of units like these is enough
    error: float = 0.0
    share: float | None = None  # upper bound of the share of units above ``worst``
    least_share: float | None = None  # its lower bound
    # Share of the gap between best baseline and certainty that the mean closes; None for columns other than the label,
    # or where the baseline is always right. A label is below the limit only if it is also shown not to be wholly read:
    # where most labels are alike, no lift is large.
    closed: float | None = None
    # Score of the attack on each unit, and of the baseline that was the best on all units before.
    scores: Floats = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    predicted: Floats = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)

    @property
    def lifts(self) -> Floats:
        """Lift of each unit."""
        return self.scores - self.predicted


def budgeted(spec: S) -> S:
    """Return a spec with the number of units in the budget of its gate; without a gate, the spec itself.

    A number that was given is the budget. Otherwise it is three times the least number that the limit needs. Settings
    whose repetitions hold many attacked members decide by these, on a fixed number of repetitions.
    """
    if spec.gate is None or spec.repeats in spec.model_fields_set or not by_units(spec):
        return spec
    budget = _BUDGET * decision.least_units(spec.gate.above)
    if spec.gate.worst is not None:
        budget = max(budget, least_for_share(spec.gate.worst[0]))
    return spec.model_copy(update={spec.repeats: budget})


def by_units(spec: Spec) -> bool:
    """Return whether a gate judges repetitions, and not the members of each."""
    return spec.member is None or (spec.gate is not None and spec.gate.over_trainings)


def least_for_share(share: float) -> int:
    """Return the least number of units that show that less than a share is above something: 36 for a tenth."""
    n = 1
    while decision.share_bound(0, n) >= share:
        n += 1
    return n


def deployed(audit: Audit, limit: Gate) -> list[Configuration]:
    """Return the configurations that a gate judges: those with a defense, or all where there is none.

    An undefended configuration is recognised by its mechanism, whatever its label: it is the reference of the others.
    """
    labels = set(limit.deployed)
    if not labels:
        undefended = {NONE, *(part.title for part in audit.spec.defenses if part.name == NONE)}
        labels_of_all = {configuration.defense for configuration in audit.configurations}
        labels = labels_of_all - undefended or labels_of_all
    return [configuration for configuration in audit.configurations if configuration.defense in labels]


class StoppingRule(ABC):
    """A rule that says at how many units one looks, and which parts need more."""

    @property
    @abstractmethod
    def looks(self) -> list[int]:
        """Numbers of units at which one looks; the last is the most that are measured."""

    @abstractmethod
    def units(self, configuration: Configuration, attack: str | None, upto: int, before: int) -> int:
        """Return how many units of an attack (None: of a baseline) are measured by a look at ``upto`` units."""

    @abstractmethod
    def look(self, measured_by: MeasuredBy) -> None:
        """Read the figures that were measured so far."""


class Limits(StoppingRule):
    """Figures of one audit beside the limit of its gate."""

    def __init__(
        self,
        audit: Audit,
        alpha: float = decision.ALPHA,
        references: Mapping[int | None, References] | None = None,
    ) -> None:
        """Take the probability of a false pass, and figures of baselines over draws that no attack sees."""
        assert audit.spec.gate is not None
        self.audit, self.limit, self.alpha = audit, audit.spec.gate, alpha
        # Their bounds hold for one limit alone.
        self._references = (references or {}) if alpha == decision.ALPHA else {}
        self.deployed = deployed(audit, self.limit)
        # An attack on one column alone has no figure of another.
        anywhere = not (self.limit.column or self.limit.whole_records)
        attacks = [part for part in audit.parts if part.kind == "attack"]
        attacks = [part for part in attacks if part.column in (None, self.limit.column) or anywhere]
        self.columns = {part.label: part.column for part in attacks}
        self.attacks = list(self.columns)
        self.standings: dict[LimitedFigure, Standing] = {}
        self.certified: dict[tuple[Configuration, str], float] = {}
        self._by_units = by_units(audit.spec)

    @property
    def looks(self) -> list[int]:
        """Numbers of units at which one looks; the last is the budget."""
        budget = self.audit.units
        least = decision.least_units(self.limit.above, alpha=self.alpha)
        lows = [known.low for known in map(self._known_baseline, self.deployed) if known is not None]
        if lows and max(lows) + self.limit.above < 1:
            least = min(least, decision.least_units(self.limit.above, alpha=OF_ATTACK / 2, upper=1 - max(lows)))
        if not self._by_units or self.limit.worst is not None or budget < least:
            # The share of the worst units has no bound that holds however often one looks. Where the budget is too
            # small to pass, its end decides.
            return [budget]
        parts = [part for part in self.audit.parts if part.label in self.columns]
        group = max((self.audit.group(point, part) for point in self.deployed for part in parts), default=1)
        # Before the least number that can pass one looks once, for what leaks plainly.
        return looks_up_to(budget, group, [_FIRST_LOOK, least])

    @property
    def failed(self) -> bool:
        """Whether a figure is shown to be above the limit, or a record is certified."""
        return any(standing.above for standing in self.standings.values()) or any(self.certified.values())

    @property
    def passed(self) -> bool:
        """Whether every figure of every attack in every deployed configuration is shown to be below the limit."""
        pairs = [(point, name) for point in self.deployed for name in self.attacks]
        return bool(self.attacks) and all(self._cleared(point, name) for point, name in pairs)

    @property
    def ended(self) -> bool:
        """Whether more units cannot change the outcome, or only beyond the budget."""
        if self.failed or self.passed:
            return True
        standings = self.standings.values()
        return not all(standing.possible for standing in standings) and not any(
            standing.may_be_above for standing in standings
        )

    def leave_out(self, names: Collection[str]) -> None:
        """Ask nothing of attacks that cannot act on the rows or the network, which results name as not tried."""
        self.attacks = [name for name in self.attacks if name not in names]

    def units(self, configuration: Configuration, attack: str | None, upto: int, before: int) -> int:
        """Return how many units of an attack (None: of a baseline) are measured by a look at ``upto`` units."""
        if configuration not in self.deployed:
            # As a reference; nothing is decided on it.
            return min(self.audit.units, _REFERENCE)
        attacks = self.attacks if attack is None else [attack]
        return upto if any(self._wants(configuration, name) for name in attacks) else before

    def _wants(self, configuration: Configuration, attack: str) -> bool:
        return configuration in self.deployed and not self.ended and not self._cleared(configuration, attack)

    def _cleared(self, configuration: Configuration, attack: str) -> bool:
        standings = [(standing.figure, standing.below) for standing in self.standings.values()]
        bounds = [
            below for figure, below in standings if (figure.configuration, figure.attack) == (configuration, attack)
        ]
        return bool(bounds) and all(bounds)

    def look(self, measured_by: MeasuredBy) -> None:
        """Update the standings from the figures of an attack, and of the baselines, on the same first units."""
        figures = [*self._figures(), _CERTIFIED]
        for configuration in self.deployed:
            for attack in self.attacks:
                if self._cleared(configuration, attack):
                    continue
                measured, baselines = measured_by(configuration, attack, figures)
                for figure in measured:
                    standings = self._standings(configuration, attack, figure, baselines)
                    self.standings.update({standing.figure: standing for standing in standings})
                self.certified[configuration, attack] = _certified(measured)

    def _figures(self) -> list[tuple[str, str | None]]:
        if self.limit.column is not None:
            return [("accuracy", self.limit.column)]
        if self.limit.whole_records:
            return [("exact_match", None)]
        return judged_figures(self.audit)

    def _standings(
        self,
        configuration: Configuration,
        attack: str,
        measured: Measurement,
        baselines: Mapping[str, Sequence[Measurement]],
    ) -> list[Standing]:
        name = (measured.metric, measured.column)
        if name not in self._figures():
            return []
        beside = [
            figure for baseline in baselines.values() for figure in baseline if (figure.metric, figure.column) == name
        ]
        if not beside:
            return []
        samples = samples_of(measured, beside, self._by_units)
        tests = len(self.attacks) * len(self._figures()) * len(self.deployed) * len(samples)
        standings = []
        for sample, (scores, others) in samples.items():
            figure = LimitedFigure(configuration, attack, measured.metric, measured.column, sample)
            known = None if sample is not None else self._known_baseline(configuration, name)
            standings += self._standing(figure, scores, others, tests, known)
        return standings

    def _known_baseline(self, configuration: Configuration, figure: Figure = ("accuracy", None)) -> Reference | None:
        """Return the best baseline's figure; None where it was not measured beforehand."""
        best = best_reference(self._references.get(configuration.batch_size, {}), figure)
        return None if best is None else best[1]

    def _standing(
        self, figure: LimitedFigure, scores: Floats, others: Floats, tests: int, known: Reference | None
    ) -> list[Standing]:
        finite = np.isfinite(scores) & np.isfinite(others).all(0)
        scores, others = scores[finite], others[:, finite]
        if not len(scores):
            # A repetition without any figure was not shown to be safe.
            unknown = Standing(
                figure, 0, 0.0, 1.0, below=False, above=False, possible=False, may_be_above=False, more=None
            )
            return [] if figure.sample is None else [unknown]
        limit, alpha = self.limit.above, self.alpha
        predicted = predicted_best(others)
        lifts = scores - predicted
        budget = self.audit.units if figure.sample is None else len(lifts)
        beside = others[others.mean(1).argmax()]
        best = scores - beside
        label, gap = figure.column is not None and figure.column == self.audit.about.label, 1 - float(beside.mean())
        closed = float(best.mean()) / gap if label and gap > 0 else None
        left = budget - len(lifts)
        if known is None:
            upper = decision.upper_bound(lifts, alpha=alpha)
            below_by = functools.partial(decision.evidence_below, lifts, limit)
            above_by = [functools.partial(decision.evidence_above, scores - other, limit) for other in others]
        else:
            alpha = OF_ATTACK
            upper = decision.upper_bound_beside(lifts, scores, known.low, alpha=alpha)
            below_by = functools.partial(decision.evidence_beside, lifts, scores, known.low, limit)
            above_by = [
                functools.partial(decision.evidence_above_beside, scores - other, scores, known.high, limit)
                for other in others
            ]
        needed = -math.log(alpha)
        below, possible = (below_by(further=n) >= needed for n in (0, left))
        above, may_be_above = (
            all(evidence(further=n) >= needed + math.log(tests) for evidence in above_by) for n in (0, left)
        )
        worst = None if self.limit.worst is None else (int((best > self.limit.worst[1]).sum()), len(best))
        return [
            Standing(
                figure,
                len(lifts),
                float(best.mean()),
                upper,
                below and (not label or decision.shown_unclosed(scores, predicted, decision.WHOLE, alpha=self.alpha)),
                above,
                possible,
                may_be_above,
                _more(lifts, limit, self.alpha) if closed is None or closed < decision.WHOLE else None,
                float(best.std(ddof=1) / np.sqrt(len(best))) if len(best) > 1 else 0.0,
                None if worst is None else decision.share_bound(*worst),
                None if worst is None else decision.least_share(*worst),
                closed,
                scores,
                predicted,
            )
        ]


def looks_up_to(budget: int, group: int, first: Sequence[int]) -> list[int]:
    """Return numbers of units at which one looks: the first ones, then half as many more each time, up to a budget."""
    counts, wanted = [], 0.0
    while not counts or counts[-1] < budget:
        wanted = float(first[len(counts)]) if len(counts) < len(first) else wanted * _GROWTH
        counts.append(min(budget, -(-int(wanted) // group) * group))
    return counts


def judged_figures(audit: Audit) -> list[tuple[str, str | None]]:
    """Return metric and column of all judged figures: all cells, whole records, the label and sensitive columns."""
    columns = dict.fromkeys(name for name in (audit.about.target, *audit.about.sensitive) if name is not None)
    return [("accuracy", None), ("exact_match", None), *(("accuracy", name) for name in columns)]


def samples_of(
    measured: Measurement, beside: Sequence[Measurement], by_units: bool
) -> dict[int | None, tuple[Floats, Floats]]:
    """Return the scores that are judged together and those of each baseline, by repetition where members are judged."""
    if by_units or measured.clusters is None:
        return {None: (_array(measured.values), np.stack([_array(baseline.values) for baseline in beside]))}
    return {i: _members(measured, beside, i) for i in range(len(measured.values))}


def _more(lifts: Floats, limit: float, alpha: float) -> int | None:
    # Where the limit is passed and only the gap to certainty is not shown to stay open: about as many again.
    more = decision.more_units(lifts, limit, alpha=alpha)
    return len(lifts) if more == 0 else more


def predicted_best(baselines: Floats) -> Floats:
    """Return for each unit the score of the baseline (baseline, unit) that was the best on all units before it.

    A baseline that is chosen on the units themselves looks better than it is, which would help an audit to pass. The
    first unit is compared with the worst baseline, which never helps.
    """
    so_far = np.cumsum(baselines, 1)[:, :-1]
    chosen = np.concatenate([baselines[:, :1].argmin(0), so_far.argmax(0)])
    return baselines[chosen, np.arange(baselines.shape[1])]


def _members(measured: Measurement, beside: Sequence[Measurement], sample: int) -> tuple[Floats, Floats]:
    """Return the scores of the members of one repetition, and those of each baseline on the same members."""
    assert measured.clusters is not None
    scores = _array(measured.clusters[sample])
    others = []
    for baseline in beside:
        members = None if baseline.clusters is None else _array(baseline.clusters[sample])
        paired = members is not None and len(members) == len(scores)
        others.append(members if paired else np.full(len(scores), float(baseline.values[sample])))
    return scores, np.stack(others)


def _array(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()


def _certified(measured: Sequence[Measurement]) -> float:
    shares = [float(figure.values.nanmean()) for figure in measured if (figure.metric, figure.column) == _CERTIFIED]
    return max([0.0, *(share for share in shares if share == share)])
