"""What audits would run, and about how long they would take here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.run.memory import peak_memory
from seepage.run.runner import Audit, make_plan
from seepage.run.store import Store


@dataclass(frozen=True)
class Line:
    """One setting: an attack or a guess at one point of the sweep.

    Attributes:
        about: the table and the model, and what else tells the audit from the others.
        batch_size: records behind one update.
        defense: what clients do to their updates.
        called: the attack or guess.
        is_attack: which of the two.
        victims: that the audit asks for.
        jobs: to run; none where another audit runs the same.
        seconds: of one process that the jobs would take.
    """

    about: str
    batch_size: int
    defense: str
    called: str
    is_attack: bool
    victims: int
    jobs: int
    seconds: float


@dataclass(frozen=True)
class Forecast:
    """What audits would run.

    Attributes:
        lines: one a setting, guesses before attacks at each point.
        workers: jobs that would run side by side.
        memory: bytes that this process has held at most while it tried the settings; None where that is not known.
    """

    lines: list[Line]
    workers: int
    memory: int | None

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return sum(line.jobs for line in self.lines)

    @property
    def seconds(self) -> float:
        """How long all of it would take."""
        return sum(line.seconds for line in self.lines) / self.workers


def forecast(audits: Sequence[Audit]) -> Forecast:
    """Try every setting of audits for a moment, without keeping anything.

    The time is an estimate: the pace of the first steps of each attack, measured while nothing else ran beside it.

    Args:
        audits: specs with what they were prepared to.

    Raises:
        BadInputError: a setting cannot be run.
    """
    with Store(None) as store:
        plan = make_plan(audits, store)
    jobs = [0] * len(plan.settings)
    for place, _ in plan.jobs:
        jobs[place] += 1
    lines = []
    for place, setting in enumerate(plan.settings):
        names = (setting.subject.dataset.name, setting.subject.model.name, setting.spec.variant)
        lines.append(
            Line(
                about=", ".join(name for name in names if name),
                batch_size=setting.batch_size,
                defense=setting.defense.called,
                called=setting.part.called,
                is_attack=setting.is_attack,
                victims=setting.spec.victims,
                jobs=jobs[place],
                seconds=jobs[place] * plan.groups.get(place, 0.0),
            )
        )
    return Forecast(lines, plan.hands, peak_memory())
