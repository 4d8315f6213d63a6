"""A row of results of an audit, from its measurement to the files and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from seepage.assessment.intervals import Range, student
from seepage.errors import FieldError

# Figures of the three questions, and what is appended for their controls and for guesses that are right.
QUESTIONS = (SINGLED_OUT, LINKED, INFERRED) = "singled_out", "linked", "inferred"
CONTROL, POSSIBLE = "_control", "_possible"

RowKind = Literal["attack", "baseline", "about"]
# Figures and texts of a line of a table, by name; readers know which name is what.
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One metric of one attack or baseline, over all columns or a single one, in one setting of an audit.

    Rates are in [0, 1]. A figure that does not apply, or was not measured, is None.

    Attributes:
        dataset, protocol, model: names in results.
        variant: name that distinguishes audits of one document; None where there is one.
        batch_size: number of records behind one message; None where there is no such number.
        attack: name of the attack or baseline; ``none`` where the set-up itself is measured.
        column: name of the column; None for all of them.
        mean: the figure, a mean over victims (or units, or trainings).
        std: unbiased standard deviation over victims.
        n: number of victims behind the figure.
        baseline: the best baseline's mean on the same metric, column and victims.
        lift: paired mean of the gain over that baseline.
        lift_std: unbiased standard deviation of the gain over victims.
        kind: ``attack``, ``baseline``, or ``about`` for a measurement of the set-up itself, such as the accuracy of the
            network or the epsilon of a defense.
        status: ``ok``; ``undefined`` where the figure does not apply; ``failed`` where a job failed, so that the figure
            is of the other victims; ``left_out`` where there was no time; ``diverged`` where training did not end.
        settings: options of the attack, or of the training.
        captured: whether the units are captured messages, which the figure is about, and not a sample of others.
    """

    setting: str = "horizontal"
    dataset: str
    protocol: str
    model: str
    variant: str | None = None
    batch_size: int | None = None
    attack: str
    defense: str = "none"
    metric: str
    column: str | None = None
    mean: FiniteFloat | None = None
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    std: FiniteFloat | None = None
    n: int = 0
    baseline: FiniteFloat | None = None
    baseline_name: str | None = None
    lift: FiniteFloat | None = None
    lift_low: FiniteFloat | None = None
    lift_high: FiniteFloat | None = None
    lift_std: FiniteFloat | None = None
    seconds_per_victim: FiniteFloat | None = None
    kind: RowKind = "attack"
    status: str = "ok"
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    captured: bool = False

    @property
    def is_attack(self) -> bool:
        """Whether this is the figure of an attack."""
        return self.kind == "attack"

    def mean_ends(self, level: float = 0.95) -> Range | None:
        """Return Student's t interval of the figure; None for fewer than two repetitions.

        Repetitions that are averages, such as trainings, vary about as a normal distribution does.
        """
        return student(self.mean, self.std, self.n, level)

    def lift_ends(self, level: float = 0.95) -> Range | None:
        """Return Student's t interval of the gain over the best baseline; None for fewer than two repetitions."""
        return student(self.lift, self.lift_std, self.n, level)

    def as_dict(self) -> Record:
        """Return the fields, and ``is_attack``, by the names and in the order that files have."""
        plain = {name: getattr(self, name) for name in FIELDS}
        return {**plain, "settings": dict(self.settings), "knowledge": dict(self.knowledge)}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> ResultRow:
        """Return the row of ``as_dict``, or of an earlier file: of horizontal learning, its kind that of ``is_attack``.

        Raises a FieldError where a field is missing or has a value of another kind; other names are ignored.
        """
        for name in FIELDS:
            if name not in values and name not in _MAY_LACK:
                raise FieldError((name,), "the field is missing.")
        given = dict(values)
        if "kind" not in given:
            # Earlier rows of the set-up itself carried the name of no attack.
            about = "about" if given.get("attack") == "none" else "baseline"
            given["kind"] = "attack" if given.get("is_attack") else about
        try:
            return _VALIDATED(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise FieldError(first["loc"], f"{first['msg']}, got {first['input']!r}.") from error


_MAY_LACK = ("setting", "variant", "kind", "settings", "knowledge", "captured", "lift_std")
_NAMES = [field.name for field in fields(ResultRow)]
# Derived from the kind, for readers of the files.
FIELDS = (*_NAMES[: _NAMES.index("kind")], "is_attack", *_NAMES[_NAMES.index("kind") :])
_VALIDATED = TypeAdapter(ResultRow).validate_python
