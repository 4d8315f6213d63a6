"""Any attack on the messages of several rounds of the same clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from seepage.attacks.horizontal.matching.optimise import Progress, scaled
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.attacks.horizontal.matching.rounds import pooled
from seepage.registry import takes
from seepage.wire.horizontal import Knowledge, RecordsGuess, RoundsView


@dataclass(frozen=True)
class OverRounds:
    """An attack on the messages of several rounds of the same clients, which guesses all of their records.

    Rounds of the same records are matched at once by an attack that matches gradients (``Reconstruction``). Other
    rounds are attacked one by one, and the guesses are pooled, see ``rounds.pooled``.
    """

    attack: Callable[..., RecordsGuess]

    def __call__(
        self, view: RoundsView, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        """Return the guess of all records; batch size and labels are those of all, or of all rounds' batches."""
        reports = takes(self.attack, "progress")
        if isinstance(self.attack, Reconstruction) and self.attack.joins(view, knowledge):
            return self.attack(view, knowledge, seeds, progress)
        guesses = []
        for i, part in enumerate(view.rounds):
            options = {"progress": scaled(progress, 1 / len(view.rounds))} if reports else {}
            # Each round has starts of its own; the first round's do not depend on the number of rounds.
            own = [(seed + i) % 2**63 for seed in seeds]
            labels, size = knowledge.labels, view.batch_size
            if labels is not None and size < knowledge.batch_size:
                labels = labels[:, i * size : (i + 1) * size]
            guesses.append(self.attack(part, replace(knowledge, batch_size=size, labels=labels), own, **options))
        return pooled(guesses, knowledge)
