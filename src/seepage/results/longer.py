"""What the strongest attack reads at twice its steps: whether it had arrived when it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from seepage.assessment import Measurement
from seepage.errors import BadInputError
from seepage.results.checks.finding import Where, where_of
from seepage.run.runner import Run
from seepage.settings.part import NONE
from seepage.settings.setting import Audit, Cache

# Options that say how long an attack descends, and the number of units on which twice as many are tried.
_STEPS = ("iterations", "steps", "epochs", "student_epochs")
_UNITS = 3


class Longer(NamedTuple):
    """Share of cells that an attack reads of some units, at its own steps and at twice as many (``options``)."""

    where: Where
    options: dict[str, int]
    units: int
    read: float
    at_twice: float


def steps_of(attack: object) -> dict[str, int]:
    """Return the options of an attack that say how long it descends, with their values; empty without any."""
    descent = getattr(attack, "descent", None)
    if descent is not None:
        return {"iterations": descent.iterations}
    values = {name: getattr(attack, name, None) for name in _STEPS}
    return {name: value for name, value in values.items() if isinstance(value, int)}


def longer(
    audit: Audit, runs: Sequence[Run], cache: Cache, affords: Callable[[float], bool], say: Callable[[str], None]
) -> list[Longer]:
    """Run the strongest attack of each undefended configuration with twice its steps; none where it has none to double.

    It is the strongest over all cells. Audits without controls are left alone, and so is an attack for which the time
    does not suffice (``affords`` gets seconds).
    """
    if not (audit.spec.control and audit.repeatable):
        return []
    results = []
    for configuration in audit.configurations:
        here = [run for run in runs if run.is_attack and run.configuration == configuration]
        scored = [(mean, i) for i, run in enumerate(here) if (mean := _mean(run)) is not None]
        if configuration.defense == NONE and scored:
            result = _of_run(audit, here[max(scored)[1]], cache, affords, say)
            results += [] if result is None else [result]
    return results


def _of_run(
    audit: Audit, run: Run, cache: Cache, affords: Callable[[float], bool], say: Callable[[str], None]
) -> Longer | None:
    part, steps = run.part.part, steps_of(audit.instance(run.part))
    count = next((i for i, unit in enumerate(run.units[:_UNITS]) if unit != i), min(_UNITS, len(run.units)))
    audit = audit.few()
    count = min(count, audit.group(run.configuration, run.part), audit.units)
    figure = _accuracy(run.measured)
    if part.passed is not None or not steps or not count or figure is None:
        return None
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
    own = figure.values[: len(values)].tolist()
    pairs = [(once, more) for once, more in zip(own, values, strict=True) if once == once and more == more]
    if not pairs:
        return None
    once, more = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Longer(where_of(run), twice, len(pairs), once, more)


def _mean(run: Run) -> float | None:
    figure = _accuracy(run.measured)
    return None if figure is None else figure.estimate().mean


def _accuracy(measured: Sequence[Measurement]) -> Measurement | None:
    return next((figure for figure in measured if (figure.metric, figure.column) == ("accuracy", None)), None)
