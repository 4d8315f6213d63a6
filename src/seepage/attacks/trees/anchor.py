"""Reading of whole records from histograms of derivatives: paths from the finest column, then all other cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage.attacks.trees.cells import Solved, solve
from seepage.attacks.trees.paths import Path, paths_of_bin
from seepage.registry import attacks
from seepage.wire.horizontal import Certificate
from seepage.wire.sums import Sent, values_of, whole_counts
from seepage.wire.trees import HistogramMessage, HistogramsView, TreesGuess, TreesKnowledge

# Splits that share a bin are told apart by their sums; with more records than this in it, by too few digits.
_MOST_IN_A_BIN = 40


@attacks.register("anchor", "trees")
@dataclass(frozen=True)
class Anchor:
    """Reads the records behind histograms of derivatives, through the column whose bins hold the fewest of them.

    A record's derivatives follow from its label and from the leaves that it reached in earlier trees, which all know.
    In a column with many values a bin holds few records, and the sums of that bin tell, split by split, which of them
    went where: only one choice adds up. So the path of each record through all trees is known, and with it its
    derivatives in every node. How many records of each path lie in a bin of another column is then the solution of
    linear equations in whole numbers, one for each node and statistic, bounded by the splits on the path. A record is
    certified where no other table has these sums within the rounding of single precision.

    Where noise was added to the sums no choice can be told apart. The records of a bin of that column are then taken
    together, and the equations are solved by least squares with a penalty of the noise's size.
    """

    def __call__(self, view: HistogramsView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the guess.

        Args:
            view: received sums.
            knowledge: side information; schema, marginals, number of records and noise are read.
            seeds: seed of each victim, by which cells are dealt out that the message leaves open.
        """
        found = [self._read(m, knowledge, s) for m, s in zip(view.messages, seeds, strict=True)]
        cells = torch.from_numpy(np.stack([one.cells for one, _ in found]))
        proved = torch.from_numpy(np.stack([one.proved for one, _ in found]))
        labels = torch.from_numpy(np.stack([labels for _, labels in found]))
        recipe = f"sums of derivatives of {view.clients} client(s), in every node and bin"
        certificates = tuple(
            Certificate(knowledge.batch_size, knowledge.batch_size, "single precision", recipe, 1.0)
            if bool(one.proved.any())
            else None
            for one, _ in found
        )
        regime = tuple(
            f"paths of {int(np.isfinite(labels).sum()):,} of {len(labels):,} records were read" for _, labels in found
        )
        return TreesGuess(cells, labels=labels, certified=proved, certificates=certificates, regime=regime)

    def _read(self, message: HistogramMessage, knowledge: TreesKnowledge, seed: int) -> tuple[Solved, np.ndarray]:
        sent = Sent(message)
        values = values_of(sent, knowledge)
        column = finest(sent)
        here = sent.cuts.of(column)
        counts = whole_counts(sent.counts[here], knowledge.batch_size)
        paths: list[Path] = []
        rest: dict[int, int] = {}
        for number, count in zip(range(here.start, here.stop), counts.tolist(), strict=True):
            if not count:
                continue
            read = None if knowledge.noise or count > _MOST_IN_A_BIN else paths_of_bin(sent, number, count)
            if read is None:
                rest[number] = count
            else:
                paths += read
        solved = solve(sent, paths, rest, values, seed, knowledge.noise)
        labels = np.array([path.label for path in paths] + [np.nan] * (len(solved.cells) - len(paths)))
        return solved, labels


def finest(sent: Sent) -> int:
    """Return the encoded column whose fullest bin holds the fewest records; of several, the one with more bins."""

    def fullness(column: int) -> tuple[int, float]:
        counts = np.rint(sent.counts[sent.cuts.of(column)])
        return int(counts.max()), float(np.square(counts).sum())

    return min(range(sent.cuts.columns), key=fullness)
