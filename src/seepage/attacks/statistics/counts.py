"""Reading of a site's whole table from the sums of Newton steps: whole numbers of records of each pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage import kernel
from seepage.attacks.statistics.blurred import estimate
from seepage.attacks.statistics.outcomes import outcomes_of
from seepage.attacks.statistics.reading import ReadMessage, read_each
from seepage.attacks.statistics.solving import SolvedCounts, solve
from seepage.baselines.statistics import LikeliestTable
from seepage.registry import attacks
from seepage.tabular.schema import Discrete
from seepage.wire.horizontal import NOT_TRIED
from seepage.wire.statistics import NewtonMessage, NewtonView, StatisticsGuess, StatisticsKnowledge, totals_of


@attacks.register("counts", "statistics")
@dataclass(frozen=True)
class Counts:
    """Reads how many records of a site have each pattern of categories, which its sums are linear in.

    Source: our own; in the line of database reconstruction (Dinur and Nissim 2003; Garfinkel, Abowd and Martindale
    2018), here from sums whose weights change with the coefficients of each iteration.

    Patterns that the first message's cross tables exclude are left out. Least squares without negatives, then whole
    numbers by integer programming, give the numbers of the others. Outcomes of the patterns follow from the equations
    that they are in, and from the model where these leave them open. What is proved is for ``seepage.kernel`` to say.
    Through noise of known size, or rounding that whole numbers do not fit, the likeliest are read, see ``blurred``. A
    site's own fit is read alike: the inverse of its covariance is the information, and the score is 0.

    Args:
        seconds: processor time after which numbers, and bounds of single patterns, are no longer sought.
    """

    seconds: float = 20.0

    def __call__(self, view: NewtonView, knowledge: StatisticsKnowledge, seeds: Sequence[int]) -> StatisticsGuess:
        """Return the guess; by a victim's seed, ties between patterns and outcomes are dealt out."""
        return read_each(view.messages, seeds, lambda message, seed: self._read(message, knowledge, seed))

    def _read(self, message: NewtonMessage, knowledge: StatisticsKnowledge, seed: int) -> ReadMessage:
        schema = knowledge.schema
        sent = totals_of(message, schema)
        try:
            if not message.steps:
                raise kernel.RefusedError("the site sends no sums")
            if any(message.noise):
                return _estimated(message, knowledge, "noise")
            solved = solve(sent, self.seconds)
            if message.rounded and not solved.fits:
                return _estimated(message, knowledge, "inversion" if message.alone else "rounding")
            if not solved.tried:
                raise kernel.RefusedError(f"no numbers of {len(solved.counts):,} patterns were reached in time")
        except kernel.RefusedError as error:
            table = LikeliestTable()(NewtonView((message,)), knowledge, [seed])
            assert table.labels is not None
            proof = kernel.nothing(message.records, len(schema.columns), str(error))
            return ReadMessage(table.cells[0].numpy(), table.labels[0].numpy(), proof, f"{NOT_TRIED}{error}", {})
        numbers = solved.counts.astype(int)
        cells = solved.rows(message.levels, message.records)
        labels = np.full(message.records, np.nan)
        if isinstance(schema.target, Discrete):
            labels[: int(numbers.sum())] = outcomes_of(message, schema, solved)[: message.records]
        proof = kernel.nothing(message.records, len(schema.columns), f"{solved.by} does not have the sums")
        if message.alone:
            proof = kernel.nothing(message.records, len(schema.columns), "sums from a covariance matrix are inexact")
        elif solved.fits or len(solved.multipliers):
            proof = kernel.certify_counts(sent, torch.from_numpy(cells), *solved.evidence)
        facts = {
            "patterns": float(len(numbers)),
            "rank": float(solved.rank),
            "occupied": float((numbers > 0).sum()),
            **_proved_alone(sent, solved),
        }
        return ReadMessage(cells, labels, proof, f"{solved.by}, rank {solved.rank} over {len(numbers)} patterns", facts)


def _estimated(message: NewtonMessage, knowledge: StatisticsKnowledge, blur: str) -> ReadMessage:
    """Return what is read through noise or coarse rounding, which leave nothing to prove."""
    records = estimate(message, knowledge)
    proof = kernel.nothing(message.records, len(knowledge.schema.columns), f"no numbers are proved under this {blur}")
    regime = f"estimated under {blur}, {records.patterns} patterns"
    return ReadMessage(records.cells, records.labels, proof, regime, {"patterns": float(records.patterns)})


def _proved_alone(sent: kernel.Totals, solved: SolvedCounts) -> dict[str, float]:
    """Return the share of records whose pattern is proved to be theirs alone."""
    if not len(solved.multipliers) or sent.defense != "none":
        return {"proved_alone": 0.0}
    try:
        _, low, high = kernel.bounds(sent, *solved.evidence)
    except kernel.RefusedError:
        return {"proved_alone": 0.0}
    return {"proved_alone": float(((low == 1) & (high == 1)).sum()) / sent.records}
