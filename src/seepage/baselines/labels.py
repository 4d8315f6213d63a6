"""Baselines of label inference: guesses of a party without what it sent, what came back, and what it was told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seepage.models.predictors import best_head
from seepage.registry import baselines
from seepage.wire.labels import LabelGuess, LabelKnowledge, ReturnedView
from seepage.wire.secureboost import NodesView


@baselines.register("label_mode", "split")
@baselines.register("label_mode", "vertical")
@baselines.register("label_mode", "trees")
@dataclass(frozen=True)
class LabelMode:
    """The most frequent label, or the median of numbers, for every record."""

    def __call__(
        self, view: ReturnedView | NodesView, knowledge: LabelKnowledge, seeds: Sequence[int] = (0,)
    ) -> LabelGuess:
        """Return the guess; ``seeds`` are not used."""
        return LabelGuess(torch.full(view.own.shape[:2], knowledge.marginal.median, dtype=torch.float64))


@baselines.register("label_columns", "vertical", needs=("labels",))
@baselines.register("label_columns", "trees", needs=("labels",))
@dataclass(frozen=True)
class LabelColumns:
    """The best of several heads on the party's own columns and the same known labels, without joint learning."""

    def __call__(self, view: ReturnedView | NodesView, knowledge: LabelKnowledge, seeds: Sequence[int]) -> LabelGuess:
        """Return the guess; ``seeds`` are those of each training's heads."""
        positions, labels = knowledge.granted_labels("the baseline on own columns")
        return LabelGuess.of(best_head([view.own], positions, labels, knowledge.target, seeds), knowledge.target)
