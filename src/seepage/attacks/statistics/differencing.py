"""Reading of the records that are in one run of published tables and not in another."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage import kernel
from seepage.attacks.statistics.blurred import estimate_changed
from seepage.attacks.statistics.reading import ReadMessage, read_each
from seepage.attacks.statistics.solving import solve
from seepage.baselines.statistics import LikeliestTable
from seepage.registry import attacks
from seepage.wire.horizontal import NOT_TRIED
from seepage.wire.statistics import StatisticsGuess, StatisticsKnowledge, TablesMessage, TablesView


@attacks.register("differencing", "statistics")
@dataclass(frozen=True)
class Differencing:
    """Reads the records by which two runs of the same tables differ, such as a patient who joined.

    Source: the difference attack of statistical disclosure control (Denning, Denning and Schwartz 1979).

    The difference of two runs is the tables of these records alone, and so it is of sums, sums of squares and numbers
    of records below a quantile. Whole numbers of each pattern follow as in ``counts``. Numbers that one of the runs
    leaves out are open between none and all. Of one run alone all records are read.

    Args:
        seconds: time for one message.
    """

    seconds: float = 5.0

    def __call__(self, view: TablesView, knowledge: StatisticsKnowledge, seeds: Sequence[int]) -> StatisticsGuess:
        """Return the guess; by a victim's seed, records are drawn where nothing follows."""
        return read_each(view.messages, seeds, lambda message, seed: self._read(message, knowledge, seed))

    def _read(self, message: TablesMessage, knowledge: StatisticsKnowledge, seed: int) -> ReadMessage:
        schema, statistics = knowledge.schema, knowledge.statistics
        width = len(schema.columns)
        prior = [np.asarray(marginal.probabilities) for marginal in (*statistics.marginals, statistics.target)]
        wide, narrow = message.totals(schema, labels=True), message.totals(schema)
        try:
            whole = solve(wide, self.seconds, prior)
            alone = solve(narrow, self.seconds, prior[:-1])
        except kernel.RefusedError as error:
            drawn = LikeliestTable()(TablesView((message,)), knowledge, [seed])
            assert drawn.labels is not None
            nothing = kernel.nothing(message.changed, width, str(error))
            return ReadMessage(drawn.cells[0].numpy(), drawn.labels[0].numpy(), nothing, f"{NOT_TRIED}{error}")
        rows = whole.rows(message.levels, message.changed)
        cells, labels = rows[:, :-1].copy(), rows[:, -1].copy()
        proofs = [
            kernel.certify_counts(sent, torch.from_numpy(codes), *solved.evidence)
            for sent, codes, solved in ((narrow, cells, alone), (wide, rows, whole))
        ]
        # A record that is proved with its outcome is proved.
        best = max(proofs, key=lambda proof: int(proof.cells[:, :width].all(1).sum()))
        if message.base and not bool(best.cells.any()):
            # Many numbers have rounded tables: the likeliest are the better guess.
            with contextlib.suppress(kernel.RefusedError):
                records = estimate_changed(message, knowledge)
                return ReadMessage(records.cells, records.labels, best.first(width), "likeliest under rounding")
        return ReadMessage(cells, labels, best.first(width), whole.by)
