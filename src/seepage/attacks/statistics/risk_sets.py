"""Reading of records from the risk-set sums of a survival model: differences of sums at neighbouring event times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage import kernel
from seepage.attacks.statistics.reading import ReadMessage, read_each
from seepage.attacks.statistics.solving import solve
from seepage.baselines.statistics import LikeliestTable
from seepage.registry import attacks
from seepage.wire.statistics import RiskSetMessage, RiskSetView, StatisticsGuess, StatisticsKnowledge, totals_of

# What a site's additions may lose of sums, as the kernel counts it.
_DOUBLE = 2.0**-53


@attacks.register("risk_sets", "statistics")
@dataclass(frozen=True)
class RiskSets:
    """Reads the records that leave a risk set, from the difference of the sums at neighbouring event times.

    Source: our own.

    Where one record leaves, the difference at coefficients of zero is that record: its design row, and its products.
    Where several leave together, their patterns are read from the differences of all iterations as the attack
    ``counts`` reads those of a site. A record whose time is an event time of its site has the event where all that
    leave there have it. Records that leave before the first event are in no risk set, and stay guesses.

    Args:
        most: largest number of records that leave together and are told apart.
        seconds: time for the records of one group.
    """

    most: int = 60
    seconds: float = 2.0

    def __call__(self, view: RiskSetView, knowledge: StatisticsKnowledge, seeds: Sequence[int]) -> StatisticsGuess:
        """Return the guess; by a victim's seed, records are drawn that no difference tells."""
        return read_each(view.messages, seeds, lambda message, seed: self._read(message, knowledge, seed))

    def _read(self, message: RiskSetMessage, knowledge: StatisticsKnowledge, seed: int) -> ReadMessage:
        guess = LikeliestTable()(RiskSetView((message,)), knowledge, [seed])
        assert guess.labels is not None
        drawn, outcomes = guess.cells[0].numpy(), guess.labels[0].numpy()
        cells, labels, groups, others, alone = [], [], [], [], 0
        for sums, number, events, off in leavers(message):
            sent = totals_of(message.group(sums, number), knowledge.schema, off=off)
            others.append(sent)
            if not 0 < number <= self.most:
                continue
            try:
                solved = solve(sent, self.seconds)
            except kernel.RefusedError:
                continue
            if solved.counts.sum() != number:
                continue
            rows = solved.rows(message.levels, number)
            cells.append(rows)
            labels.append(_outcomes(number, events))
            groups.append((others.pop(), torch.from_numpy(rows), *solved.evidence))
            alone += number == 1
        known = sum(map(len, cells))
        proof = kernel.certify_groups(groups, others, message.records)
        if message.at_zero is None:
            why = "no iteration is at coefficients of zero, whose sums tell how many records leave"
            proof = kernel.nothing(message.records, len(knowledge.schema.columns), why)
        rest = max(message.records - known, 0)
        whole = np.concatenate([*cells, drawn[:rest]])[: message.records]
        outcomes = np.concatenate([*labels, outcomes[:rest]])[: message.records]
        facts = {"left_alone": float(alone), "told_apart": float(min(known, message.records))}
        return ReadMessage(whole, outcomes, proof, f"{alone} records leave a risk set alone", facts)


def leavers(message: RiskSetMessage) -> Iterator[tuple[list[np.ndarray], int, int, float]]:
    """Yield what leaves the risk set after each event time: sums of each iteration, records, events, and their error.

    The last risk set leaves as a whole. Sums at coefficients of zero count the records; nothing is yielded without.
    """
    last = len(message.times) - 1
    for k in range(last + 1 if message.at_zero is not None else 0):
        sums = [step.sums[k] - (step.sums[k + 1] if k < last else 0.0) for step in message.steps]
        number = max(round(float(sums[message.at_zero or 0][0, 0])), 0)
        largest = max(float(step.sums[k][0, 0]) for step in message.steps)
        off = 2 * (message.records + 64 + 8 * len(message.levels)) * _DOUBLE * largest
        yield sums, number, round(float(message.events[k])), off + message.rounded


def _outcomes(number: int, events: int) -> np.ndarray:
    """Return outcomes of records that leave together, as many with an event as there were: which is not known."""
    return np.concatenate([np.ones(min(events, number)), np.zeros(number - min(events, number))])
