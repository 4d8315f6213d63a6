"""When an audit has enough units: what its figures are to show decides, and not a number fixed before.

The interval of a lift holds at any number of units and however often one looks (``assessment.decision``), so that units
are added until it is narrow enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from seepage.assessment.gain import References
from seepage.assessment.lifts import PROVED_CELLS, lifts
from seepage.run.limits import MeasuredBy, StoppingRule, by_units, looks_up_to
from seepage.settings.part import NONE
from seepage.settings.setting import Audit, Configuration

# Half of the width of a lift's interval at which it is narrow enough: ten points.
NARROW = 0.1
_SCORE = ("accuracy", None)
# Numbers of units at which one looks first.
_FIRST_LOOKS = (5, 10, 20, 40)
# Where a unit takes longer than a second, one stops at so many.
_SLOW_SECONDS, SLOW_UNITS = 1.0, 20


def until_decided(audit: Audit) -> bool:
    """Return whether the figures of an audit decide on its number of units: where nobody gave one."""
    spec = audit.spec
    return audit.repeatable and spec.gate is None and by_units(spec) and spec.repeats not in spec.model_fields_set


class Enough(StoppingRule):
    """Units of each attack in each configuration until the interval of its lift is narrow, see ``NARROW``.

    Args:
        audit: an audit whose units are independent; its ``units`` are the most that are measured.
        references: function that returns figures of its baselines over draws that no attack sees, by batch size. It is
            called when one looks first, so that attacks come before it where time is limited.
        seconds: function that returns the mean seconds of a unit of an attack in a configuration; None where unknown.
    """

    def __init__(
        self,
        audit: Audit,
        references: Callable[[], Mapping[int | None, References]],
        seconds: Callable[[Configuration, str], float | None],
    ) -> None:
        self._audit, self._references, self._seconds = audit, references, seconds
        self._columns = {part.label: part.column for part in audit.parts if part.kind == "attack"}
        self._ended = set[tuple[Configuration, str]]()

    @property
    def looks(self) -> list[int]:
        """Numbers of units at which one looks; the last is the most that are measured."""
        audit = self._audit
        groups = [audit.group(point, part) for point in audit.configurations for part in audit.parts]
        return looks_up_to(audit.units, max(groups, default=1), _FIRST_LOOKS)

    def units(self, configuration: Configuration, attack: str | None, upto: int, before: int) -> int:
        """Return how many units of an attack (None: of a baseline) are measured by a look at ``upto`` units."""
        attacks = self._columns if attack is None else [attack]
        return upto if any((configuration, name) not in self._ended for name in attacks) else before

    def look(self, measured_by: MeasuredBy) -> None:
        """Read the figures that were measured so far."""
        for configuration in self._audit.configurations:
            for attack, column in self._columns.items():
                if (configuration, attack) not in self._ended and self._enough(
                    measured_by, configuration, attack, column
                ):
                    self._ended.add((configuration, attack))
            for attack, prover in self._audit.yields.items():
                # Where enough units were proved before it had to be measured, it never is.
                if (configuration, prover) in self._ended and not measured_by(configuration, attack, [_SCORE])[0]:
                    self._ended.add((configuration, attack))

    def _enough(self, measured_by: MeasuredBy, configuration: Configuration, attack: str, column: str | None) -> bool:
        figures = [("accuracy", column), (PROVED_CELLS, None)]
        measured, beside = measured_by(configuration, attack, figures)
        references = self._references().get(configuration.batch_size, {})
        telling = [(figure.metric, figure.column) == figures[0] for figure in measured]
        gains = lifts(
            measured, telling, beside, (), references, by_members=False, proving=configuration.defense == NONE
        )
        gain = next((lift.gain for lift, tells in zip(gains, telling, strict=True) if tells and lift is not None), None)
        if gain is None or gain.low is None or gain.high is None:
            # Nothing to be bounded, or too few units for it.
            return False
        slow = (self._seconds(configuration, attack) or 0.0) > _SLOW_SECONDS
        return gain.high - gain.low <= 2 * NARROW or (slow and gain.n >= SLOW_UNITS)
