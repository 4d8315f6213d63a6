"""Baselines: the row of most frequent values, and the row that is most likely to be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seepage.registry import baselines
from seepage.tabular.align import tolerances
from seepage.wire.horizontal import AnyView, Knowledge, RecordsGuess
from seepage.wire.statistics import StatisticsView
from seepage.wire.trees import HistogramsView, TreeFilesView


@baselines.register("mode", "horizontal")
@baselines.register("mode", "trees")
@dataclass(frozen=True)
class Mode:
    """The most frequent category of each discrete column and the median of each continuous one.

    Every record of every victim gets the same row. Neither labels nor anything of the view beyond
    the number of victims is used.
    """

    def __call__(
        self,
        view: AnyView | HistogramsView | TreeFilesView | StatisticsView,
        knowledge: Knowledge,
        seeds: Sequence[int],
    ) -> RecordsGuess:
        """Return the guess; nothing is random, so ``seeds`` are not used."""
        row = torch.tensor([marginal.median for marginal in knowledge.statistics.marginals], dtype=torch.float64)
        return RecordsGuess(row.repeat(view.victims, knowledge.batch_size, 1))


@baselines.register("likeliest", "horizontal")
@baselines.register("likeliest", "trees")
@baselines.register("likeliest", "statistics")
@dataclass(frozen=True)
class Likeliest:
    """The most frequent category, or the number within whose tolerance most values lie, in each column.

    It is the constant row that scores highest in expectation on a single record: a number's median
    may lie where few values are, between two frequent ones.
    """

    def __call__(
        self,
        view: AnyView | HistogramsView | TreeFilesView | StatisticsView,
        knowledge: Knowledge,
        seeds: Sequence[int],
    ) -> RecordsGuess:
        """Return the guess; nothing is random, so ``seeds`` are not used."""
        pairs = zip(tolerances(knowledge.schema).tolist(), knowledge.statistics.marginals, strict=True)
        row = torch.stack([marginal.likeliest(tolerance) for tolerance, marginal in pairs])
        return RecordsGuess(row.repeat(view.victims, knowledge.batch_size, 1))
