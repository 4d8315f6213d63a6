"""Any attack on the messages of several rounds of the same clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seepage.attacks.horizontal.matching.rounds import pooled
from seepage.pace import Progress
from seepage.registry import reporting, views_taken
from seepage.wire.horizontal import Knowledge, RecordsGuess, RoundsView


@dataclass(frozen=True)
class OverRounds:
    """An attack on the messages of several rounds of the same clients, which guesses all of their records.

    Rounds of the same records are matched at once by an attack that takes several (``RoundsView``), where its method
    ``joins`` says so. Other rounds are attacked one by one, and the guesses are pooled, see ``rounds.pooled``.
    """

    attack: Callable[..., RecordsGuess]

    def together(self, view: RoundsView, knowledge: Knowledge) -> bool:
        """Return whether the attack matches these rounds at once."""
        attack: Any = self.attack
        return RoundsView in views_taken(attack) and attack.joins(view, knowledge)

    def __call__(
        self, view: RoundsView, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        """Return the guess of all records; batch size and labels are those of all, or of all rounds' batches."""
        if self.together(view, knowledge):
            return self.attack(view, knowledge, seeds, progress)
        guesses = []
        for i, part in enumerate(view.rounds):
            reports = reporting(self.attack, progress, 1 / len(view.rounds))
            # Each round has starts of its own; the first round's do not depend on the number of rounds.
            round_seeds = [(seed + i) % 2**63 for seed in seeds]
            labels, size = knowledge.labels, view.batch_size
            if labels is not None and size < knowledge.batch_size:
                labels = labels[:, i * size : (i + 1) * size]
            granted = replace(knowledge, batch_size=size, labels=labels)
            guesses.append(self.attack(part, granted, round_seeds, **reports))
        return pooled(guesses, knowledge)
