"""Findings: reports of the checks of an audit on its own results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
# Findings with which a figure is a lower bound: a stronger attack is known and was not tried.
LOWER_BOUNDS = ("SEEP024",)
# Finding with which little leakage is not shown: a default attack is missing, or nothing shows that it works.
INCOMPLETE = "SEEP030"
# Findings with which figures are of another training than the clients' own, which leaks less.
UPPER_BOUNDS = ("SEEP025",)


class Where(NamedTuple):
    """Results that a finding concerns; None stands for any."""

    batch_size: int | None = None
    defense: str | None = None
    attack: str | None = None


@dataclass(frozen=True)
class Finding:
    """A report of a check: one paragraph, and the settings and attacks that it concerns (all if empty).

    ``error``: what it concerns cannot be relied on; ``warning``: read the figures with it in mind; ``note``: an
    assumption that a reader should know of. The message may hold column names, as they are.
    """

    code: str
    severity: Severity
    title: str
    message: str
    where: tuple[Where, ...] = ()

    def concerns(self, batch_size: int | None, defense: str, attack: str) -> bool:
        """Return whether a finding concerns the figures of an attack in a setting."""
        place = (batch_size, defense, attack)
        return not self.where or any(
            all(wanted in (None, value) for wanted, value in zip(where, place, strict=True)) for where in self.where
        )
