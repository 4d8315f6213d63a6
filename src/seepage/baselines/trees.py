"""Baselines of federated trees: a client's own counts without links; passive columns from the attacker's own ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage.baselines.random import Random
from seepage.models.predictors import best_head
from seepage.registry import baselines
from seepage.solve.remainders import to_total
from seepage.tabular.schema import Discrete
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secureboost import ColumnSumsView
from seepage.wire.sums import Sent, values_of
from seepage.wire.trees import HistogramMessage, HistogramsView, TreeFilesView, TreesKnowledge
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge


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
            counts = to_total(sent.counts[values.bins], knowledge.batch_size)
            cells = np.repeat(values.cells, counts)
            missing = np.full(knowledge.batch_size - len(cells), np.nan)
            columns.append(generator.permutation(np.concatenate([cells, missing])))
        return np.stack(columns, axis=1)


@baselines.register("own_columns", "trees", needs=("leaked",))
@dataclass(frozen=True)
class FromOwnColumns:
    """The best of several heads on the active party's own columns and labels, from the records that it knows whole."""

    def __call__(self, view: ColumnSumsView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's heads. The first records are those that leaked."""
        leaked = knowledge.granted_leaked("the guess by the attacker's own columns")
        places = torch.arange(leaked.records).expand(view.trainings, -1)
        columns = []
        for i, column in enumerate(knowledge.schema.columns):
            values = best_head([view.own], places, leaked.cells[..., i], column, seeds)
            columns.append(values.argmax(-1).double() if isinstance(column, Discrete) else values[..., 0])
        return FeatureGuess(torch.stack(columns, dim=-1))
