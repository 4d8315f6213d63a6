"""Checks of the attacks' progress: by their own loss, and by what the strongest of them reads at twice its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from seepage.assessment import Measurement
from seepage.errors import BadInputError
from seepage.registry import argument
from seepage.results.checks.facts import Facts, Fault, check
from seepage.results.checks.finding import Where, few, place, share, where_of
from seepage.run.runner import Run
from seepage.settings.part import NONE
from seepage.settings.setting import Audit, Cache
from seepage.text import how_many, listed

# On an update that was sent as it is, the true records have a loss of zero, and attacks that work end at less than an
# eighth of the loss they start from. One that is left with half of it did not get anywhere near.
_LEFT = 0.5
# Largest share of the loss's whole decrease in the last tenth of the steps. A descent that has arrived jitters by some
# hundredths either way; one at an even pace would have a tenth.
_LATE = 0.05
# Largest rise of the share of cells at twice the steps; of one training a few points are chance.
_RISE = 0.02
# Number of units on which twice as many steps are tried.
_UNITS = 3
# Options that say how long an attack descends.
_STEPS = ("iterations", "steps", "epochs", "student_epochs")


@check("SEEP002", "error", "An attack did not converge", "descent")
def not_converged(facts: Facts) -> Iterator[Fault]:
    """By its own measure, the attack ends hardly nearer to the update than the random rows it started from.

    Under a defense the true records do not fit the update either, so there only an attack that does not descend at
    all is reported.
    """
    unfit = [(where, left) for where, left in _left(facts).items() if left >= _most(where)]
    if unfit:
        cases = [
            f"{place(where, facts.size)} ends at {share(left)} of the loss it starts from" for where, left in unfit
        ]
        yield Fault(
            f"{few(cases)} (median over victims). It matches the update hardly better than random rows do, so what it "
            "reads is no measure of what the update gives away. Raise --iterations, try another step size, or check "
            "that the attack suits the model.",
            tuple(where for where, _ in unfit),
        )


@check("SEEP003", "warning", "An attack was stopped while it still made progress", "descent")
def stopped_early(facts: Facts) -> Iterator[Fault]:
    """The last tenth of the steps still contributes much of all the progress."""
    left = _left(facts)
    falling: list[tuple[Where, float]] = []
    for where, course in _descents(facts).items():
        fell = course[:, 0] - course[:, 2]
        late = (course[:, 1] - course[:, 2])[fell > 0] / fell[fell > 0]
        if len(late) and left.get(where, 0.0) < _most(where) and float(np.median(late)) > _LATE:
            falling.append((where, float(np.median(late))))
    if falling:
        cases = [f"{place(where, facts.size)}: {share(late)}" for where, late in falling]
        yield Fault(
            f"The last tenth of the steps contributes this share of all that the loss fell: {few(cases)}. A longer "
            "search would read more. Raise --iterations until figures no longer change.",
            tuple(where for where, _ in falling),
        )


@check("SEEP031", "warning", "An attack reads more at twice its steps", "longer")
def not_arrived(facts: Facts) -> Iterator[Fault]:
    """The strongest attack that takes steps reads more than two points more of the same cells with twice as many."""
    rises = [result for result in facts.longer if result.at_twice - result.read > _RISE]
    if rises:
        cases = [
            f"{place(result.where, facts.size)} reads {share(result.at_twice)} instead of {share(result.read)} with "
            f"{listed([f'{name} {number}' for name, number in result.options.items()])} "
            f"({how_many(result.units, facts.audit.spec.unit)})"
            for result in rises
        ]
        yield Fault(
            f"{few(cases)}. Its figures are lower bounds: give it more steps until they no longer change.",
            tuple(result.where for result in rises),
        )


def _left(facts: Facts) -> dict[Where, float]:
    """Return the share of the initial loss that is left, the median over victims."""
    left = {}
    for where, course in _descents(facts).items():
        started = course[:, 0] > 0
        if started.any():
            ratio = course[started, 2] / course[started, 0]
            # A loss that is NaN has not converged.
            left[where] = float(np.median(np.nan_to_num(ratio, nan=np.inf, posinf=np.inf)))
    return left


def _descents(facts: Facts) -> dict[Where, np.ndarray]:
    """Return the courses of victims that needed a descent: proofs need none."""
    descended = {where: course[~np.isnan(course).all(1)] for where, course in facts.courses.items()}
    return {where: course for where, course in descended.items() if len(course)}


def _most(where: Where) -> float:
    return _LEFT if where.defense == "none" else 1.0


class Longer(NamedTuple):
    """Share of cells that an attack reads of some units, at its own steps and at twice as many (``options``)."""

    where: Where
    options: dict[str, int]
    units: int
    read: float
    at_twice: float


def steps_of(attack: object) -> dict[str, int]:
    """Return the options of an attack that say how long it descends, with their values; empty without any."""
    values = {name: argument(attack, name) for name in _STEPS}
    return {name: value for name, value in values.items() if isinstance(value, int)}


def longer(
    audit: Audit, runs: Sequence[Run], cache: Cache, affords: Callable[[float], bool], say: Callable[[str], None]
) -> list[Longer]:
    """Run an attack of each undefended configuration with twice its steps, where it can read more than it does.

    It is the strongest, over all cells, of those that take a number of steps, and the fastest of equally strong ones.
    None is asked where an attack reads so much that no rise could be seen. Audits without controls are left alone, and
    so is an attack for which the time does not suffice (``affords`` gets seconds).
    """
    if not (audit.spec.control and audit.repeatable):
        return []
    results = []
    for configuration in audit.configurations:
        of_configuration = [run for run in runs if run.is_attack and run.configuration == configuration]
        means = {i: mean for i, run in enumerate(of_configuration) if (mean := _mean(run)) is not None}
        descending = [
            i
            for i in means
            if of_configuration[i].part.part.passed is None and steps_of(audit.instance(of_configuration[i].part))
        ]
        if configuration.defense == NONE and descending and max(means.values()) <= 1 - _RISE:
            strongest = min(descending, key=lambda i: (-means[i], of_configuration[i].seconds or 0.0))
            result = _of_run(audit, of_configuration[strongest], cache, affords, say)
            results += [] if result is None else [result]
    return results


def _of_run(
    audit: Audit, run: Run, cache: Cache, affords: Callable[[float], bool], say: Callable[[str], None]
) -> Longer | None:
    part, steps, figure = run.part.part, steps_of(audit.instance(run.part)), _accuracy(run.measured)
    # The first units, as far as they were measured without a gap.
    count = next((i for i, unit in enumerate(run.units[:_UNITS]) if unit != i), min(_UNITS, len(run.units)))
    if not count or figure is None:
        return None
    audit = audit.few()
    count = min(count, audit.group(run.configuration, run.part), audit.units)
    twice = {name: 2 * number for name, number in steps.items()}
    doubled = part.model_copy(update={"options": {**part.options, **twice}, "label": f"{run.label} at twice its steps"})
    planned = replace(run.part, part=doubled)

    def measured() -> list[float]:
        say(planned.label)
        try:
            outcome = audit.expose(run.configuration, range(count)).measure(planned)
        except BadInputError:
            return []
        accuracy = _accuracy(outcome.measured)
        return [] if accuracy is None else accuracy.values.tolist()

    identity = {"longer": audit.identity(run.configuration, planned), "units": count}
    # Messages that are expensive are computed anew, which takes about as long.
    make = measured if affords((4 if audit.shared else 2) * count * (run.seconds or 0.0)) else None
    values = cache(identity, make) or []
    once_values = figure.values[: len(values)].tolist()
    pairs = [(once, more) for once, more in zip(once_values, values, strict=True) if once == once and more == more]
    if not pairs:
        return None
    once, more = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Longer(where_of(run), twice, len(pairs), once, more)


def _mean(run: Run) -> float | None:
    figure = _accuracy(run.measured)
    return None if figure is None else figure.estimate().mean


def _accuracy(measured: Sequence[Measurement]) -> Measurement | None:
    return next((figure for figure in measured if (figure.metric, figure.column) == ("accuracy", None)), None)
