"""Reading of whole records from histograms of derivatives: paths from the finest column, then all other cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seepage.attacks.trees.cells import LEFT, Solved, solve
from seepage.attacks.trees.likely import likely_paths
from seepage.attacks.trees.paths import Path, paths_of_bin
from seepage.attacks.trees.patterns import read_patterns
from seepage.attacks.trees.proving import proof_of
from seepage.registry import attacks
from seepage.solve.remainders import to_total
from seepage.wire.horizontal import NOT_TRIED
from seepage.wire.sums import Sent, values_of
from seepage.wire.trees import HistogramMessage, HistogramsView, TreesGuess, TreesKnowledge

# Splits that share a bin are told apart by their sums; with more records than this in it, by too few digits.
_MOST_IN_A_BIN = 40
_FEW_IN_A_BIN = 12  # records of a bin that are told apart quickly
_FURTHER_COLUMNS = 4  # columns beside the finest one in which missing records are looked for


@attacks.register("anchor", "trees")
@dataclass(frozen=True)
class Anchor:
    """Reads the records behind histograms of derivatives, through the column whose bins hold the fewest of them.

    Source: our own.

    In a column with many values a bin holds few records, and its sums tell, split by split, which of them went where:
    see ``paths``. How many records of each path lie in a bin of another column solves linear equations in whole
    numbers, see ``cells``. Where no bin holds few records, as in tables of categories or with few bins, the numbers of
    records of each pattern of values solve such equations, see ``patterns``. Under noise the likeliest paths are taken,
    see ``likely``, or the records of a bin together where noise hides how many they are, and the equations are solved
    by least squares with a penalty of the noise's size. What is proved is for ``seepage.kernel`` to say.
    """

    def __call__(self, view: HistogramsView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the guess; by a victim's seed, cells are dealt out that the message leaves open."""
        solutions = [self._read(m, knowledge, s) for m, s in zip(view.messages, seeds, strict=True)]
        pairs = list(zip(view.messages, solutions, strict=True))
        labels = torch.from_numpy(np.stack([solution.labels for solution in solutions]))
        return TreesGuess(
            torch.from_numpy(np.stack([solution.cells for solution in solutions])),
            labels=labels,
            proofs=tuple(proof_of(message, knowledge, view.clients, solution) for message, solution in pairs),
            regime=tuple(_regime(message, knowledge, solution) for message, solution in pairs),
        )

    def _read(self, message: HistogramMessage, knowledge: TreesKnowledge, seed: int) -> Solved:
        sent = Sent(message)
        values = values_of(sent, knowledge)
        first, *others = by_fineness(sent)
        likely = likely_paths(sent, first, knowledge.batch_size, knowledge.noise) if knowledge.noise else None
        if likely is not None:
            return solve(sent, *likely, values, seed, knowledge.noise)
        of_first, bins = self._paths(sent, first, knowledge)
        paths, rest = of_first, bins
        wanted = knowledge.batch_size
        for column in others[:_FURTHER_COLUMNS]:
            if len(paths) >= wanted or knowledge.noise:
                break
            further, _ = self._paths(sent, column, knowledge, _FEW_IN_A_BIN)
            paths = merged(paths, further)
        if len(paths) < wanted and not knowledge.noise:
            together = read_patterns(sent, values, knowledge.schema, wanted, seed)
            if together is not None:
                return together
        # Where most are known, with some from other columns, the rest is what these leave of every node; else the
        # records of each bin are alike.
        if len(paths) > wanted:
            paths = sorted(paths, key=lambda path: not path.alone)[:wanted]
        if len(paths) > len(of_first) and 2 * len(paths) > wanted:
            rest = {LEFT: wanted - len(paths)} if len(paths) < wanted else {}
        else:
            paths = of_first
        return solve(sent, paths, rest, values, seed, knowledge.noise)

    def _paths(
        self, sent: Sent, column: int, knowledge: TreesKnowledge, most: int = _MOST_IN_A_BIN
    ) -> tuple[list[Path], dict[int, int]]:
        """Return the paths that are read in the bins of a column, and the number of records in each other bin."""
        bins = sent.cuts.of(column)
        counts = to_total(sent.counts[bins], knowledge.batch_size)
        paths: list[Path] = []
        rest: dict[int, int] = {}
        for number, count in zip(range(bins.start, bins.stop), counts.tolist(), strict=True):
            if not count:
                continue
            read = None if knowledge.noise or count > most else paths_of_bin(sent, number, count)
            if read is None:
                rest[number] = count
            else:
                paths += read
        return paths, rest


def _regime(message: HistogramMessage, knowledge: TreesKnowledge, solution: Solved) -> str:
    """Return how records were read, and whether sums tell more than was solved for."""
    records = len(solution.labels)
    how = f"paths of {solution.read:,} of {records:,} records were {'estimated' if knowledge.noise else 'read'}"
    if 2 * solution.read < records and _distance(message, records) > knowledge.noise:
        why = "sums are noisy" if knowledge.noise else "patterns are too many"
        return f"{NOT_TRIED}{how}; what all sums tell together is not solved for, as {why}"
    return how


def _distance(message: HistogramMessage, records: int) -> float:
    """Return how far all sums move where one record is another, with all other records known.

    Both derivatives of either record are in one bin of every column, in every node on its way, in every tree. Of a
    calibrated model the first derivative's mean square is the mean second derivative, of which the square is a quarter
    at most. Noise as large as this distance leaves nobody more than a guess at a record. Of a regression the first
    derivative has no bound.
    """
    if message.forest.labels is None:
        return float("inf")
    second = sum(float(sums[:, :, 1].sum()) for sums in message.sums) / records
    return float(np.sqrt(2 * 1.25 * max(second, 0.0)))


def by_fineness(sent: Sent) -> list[int]:
    """Return the encoded columns with those first whose bins hold few records, for the most records."""

    def coarseness(column: int) -> tuple[float, float]:
        counts = np.rint(sent.counts[sent.cuts.of(column)])
        # Bins that are beyond being told apart count twice.
        many = sum(float(counts[counts > most].sum()) for most in (_FEW_IN_A_BIN, _MOST_IN_A_BIN))
        return many, float(np.square(counts).sum())

    return sorted(range(sent.cuts.columns), key=coarseness)


def merged(paths: Sequence[Path], further: Sequence[Path]) -> list[Path]:
    """Return paths with those that another column's bins show more often."""
    # A record is in one bin of every column, so that a path is there at least as often as one column shows it.
    counts = Counter(path.key for path in paths)
    reached: Counter[bytes] = Counter()
    added = []
    for path in further:
        if path.alone:
            reached[path.key] += 1
            if reached[path.key] > counts[path.key]:
                added.append(path)
    return [*paths, *added]
