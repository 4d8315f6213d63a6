"""Baseline: rows drawn from the public marginals."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage.errors import BadInputError
from seepage.registry import baselines
from seepage.text import how_many
from seepage.wire.horizontal import AnyView, Knowledge, RecordsGuess
from seepage.wire.statistics import StatisticsView
from seepage.wire.trees import HistogramsView, TreeFilesView

# A protocol may draw a victim's records from the same seed; its stream must not be this one.
_STREAM = zlib.crc32(b"seepage.baselines.random")


@baselines.register("random", "horizontal")
@baselines.register("random", "trees")
@baselines.register("random", "statistics")
@dataclass(frozen=True)
class Random:
    """Rows whose cells are drawn independently from each column's marginal.

    TabLeak (Vero et al., 2023) calls it the random baseline. Discrete columns are drawn from their
    exact frequencies, continuous ones from the histogram of the statistics (the bin's lower edge,
    whole where the column is).

    Args:
        one_draw_per_column: whether each continuous column is drawn once and that value given to all records of a
            victim, as the official code does. This understates the baseline (by up to five points of accuracy on
            Adult), so it only serves comparisons with the paper.
    """

    one_draw_per_column: bool = False

    def __call__(
        self,
        view: AnyView | HistogramsView | TreeFilesView | StatisticsView,
        knowledge: Knowledge,
        seeds: Sequence[int],
    ) -> RecordsGuess:
        """Return the guess; a victim's guess depends on its own seed alone."""
        if len(seeds) != view.victims:
            raise BadInputError(
                f"the random baseline needs one seed for each victim, got {len(seeds)} for "
                f"{how_many(view.victims, 'victim')}."
            )
        if min(seeds, default=0) < 0:
            raise BadInputError(f"a seed is a whole number from 0 up, got {min(seeds)}; choose another.")
        shape = (knowledge.batch_size, len(knowledge.schema.columns))
        uniform = torch.stack([torch.rand(shape, generator=_generator(s), dtype=torch.float64) for s in seeds])
        if self.one_draw_per_column:
            repeated = list(knowledge.schema.continuous)
            uniform[..., repeated] = uniform[:, :1, repeated]
        return RecordsGuess(knowledge.statistics.rows(uniform))


def _generator(seed: int) -> torch.Generator:
    state = np.random.SeedSequence(seed, spawn_key=(_STREAM,)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
