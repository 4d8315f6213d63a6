"""Baseline of federated trees: rows with the client's own counts of every value, linked at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage.baselines.random import Random
from seepage.registry import baselines
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.sums import Sent, values_of, whole_counts
from seepage.wire.trees import HistogramMessage, HistogramsView, TreeFilesView, TreesKnowledge


@baselines.register("own_marginals", "trees")
@dataclass(frozen=True)
class OwnMarginals:
    """Rows whose columns have the client's own counts, which the root of the first tree shows; rows are unlinked.

    It reads that root and nothing else, so that the lift over it is what trees tell beyond counts of single columns.
    Where no sums are sent it draws rows from the public marginals.
    """

    def __call__(
        self, view: HistogramsView | TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]
    ) -> RecordsGuess:
        """Return the guess; each column's values are dealt out at random by the victim's seed."""
        if isinstance(view, TreeFilesView):
            return Random()(view, knowledge, seeds)
        rows = [self._rows(m, knowledge, s) for m, s in zip(view.messages, seeds, strict=True)]
        return RecordsGuess(torch.from_numpy(np.stack(rows)))

    def _rows(self, message: HistogramMessage, knowledge: TreesKnowledge, seed: int) -> np.ndarray:
        generator, sent = np.random.default_rng([seed, 1]), Sent(message)
        columns = []
        for values in values_of(sent, knowledge):
            counts = whole_counts(sent.counts[values.bins], knowledge.batch_size)
            cells = np.repeat(values.cells, counts)
            missing = np.full(knowledge.batch_size - len(cells), np.nan)
            columns.append(generator.permutation(np.concatenate([cells, missing])))
        return np.stack(columns, axis=1)
