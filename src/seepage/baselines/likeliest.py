"""Baseline: the constant row that is most likely to be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seepage.registry import baselines
from seepage.tabular.align import tolerances
from seepage.wire.horizontal import AnyView, Knowledge, RecordsGuess
from seepage.wire.trees import HistogramsView, TreeFilesView


@baselines.register("likeliest", "horizontal")
@baselines.register("likeliest", "trees")
@dataclass(frozen=True)
class Likeliest:
    """The most frequent category, or the number within whose tolerance most values lie, in each column.

    It is the constant row that scores highest in expectation on a single record: a number's median
    may lie where few values are, between two frequent ones.
    """

    def __call__(
        self, view: AnyView | HistogramsView | TreeFilesView, knowledge: Knowledge, seeds: Sequence[int]
    ) -> RecordsGuess:
        """Return the guess; nothing is random, so ``seeds`` are not used."""
        pairs = zip(tolerances(knowledge.schema).tolist(), knowledge.statistics.marginals, strict=True)
        row = torch.stack([marginal.likeliest(tolerance) for tolerance, marginal in pairs])
        return RecordsGuess(row.repeat(view.victims, knowledge.batch_size, 1))
