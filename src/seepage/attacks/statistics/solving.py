"""Numbers of records of each pattern from a site's sums, which are linear in them.

A pattern is one level of each column. A sum over records of any function f of a record's cells, such as an entry of an
information matrix ``x x^T w(x)`` at known coefficients or a cell of a table, is one over patterns,

    sum_i f(x_i) = sum_p n_p f(p),

with n_p the number of records of pattern p: whole numbers from 0 up to a bound that tables give. Most of them are 0 and
none is negative, so that fewer sums than patterns may determine them. Least squares without negatives in orthogonal
directions of the equations (``solve.directions``) come first, then integer programs. Multipliers of the equations then
say which numbers follow (``solve.multipliers``), for the kernel to prove. Where many numbers have the sums, those
nearest to the table of largest entropy are guessed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from seepage import kernel
from seepage.solve.directions import TOGETHER, OrthogonalEquations, Vector, toward, whole, without_negatives
from seepage.solve.multipliers import branched, multipliers_for
from seepage.solve.proportional import proportional
from seepage.solve.remainders import to_total
from seepage.solve.whole_numbers import WholeNumbers

# Coefficients of all equations beyond which they are not held (1 GB), and a number of patterns that time is told from.
_MOST_COEFFICIENTS, _SAMPLE = 120_000_000, 500
# Time of a solution beside that of the equations of a sample and their products, as measured.
_TIMES = 6.0
# Coefficients of linear programs by which single patterns are proved in branches.
_BRANCHED = 200_000


@dataclass(frozen=True)
class SolvedCounts:
    """Numbers of records of each pattern.

    Attributes:
        patterns: places of the levels among those that were precise, (pattern, column).
        counts: whole numbers, one a pattern.
        fits: whether they have the sums within their roundings.
        multipliers: combinations of the equations that bound the numbers, for the kernel.
        witness: whole numbers that have the sums, for the kernel; empty where none were found.
        splits: branches by which further numbers are bounded, for the kernel.
        rank: number of independent equations over the patterns, as far as roundings let them tell.
        by: method that found the numbers.
    """

    patterns: Int[np.ndarray, "pattern column"]
    counts: Float[np.ndarray, " pattern"]
    fits: bool
    multipliers: Float[np.ndarray, "combination equation"]
    witness: Float[np.ndarray, " _pattern"]
    rank: int
    by: str
    splits: tuple[kernel.Split, ...] = ()

    @property
    def evidence(self) -> tuple[torch.Tensor, torch.Tensor, tuple[kernel.Split, ...]]:
        """Multipliers, witness and splits, as the kernel takes them."""
        return torch.from_numpy(self.multipliers), torch.from_numpy(self.witness), self.splits

    def rows(self, levels: Sequence[Sequence[int]], records: int) -> Float[np.ndarray, "record column"]:
        """Return the codes of each record, NaN where numbers add up to fewer; an outcome is a further column."""
        codes = [np.array(codes_of_column)[self.patterns[:, i]] for i, codes_of_column in enumerate(levels)]
        codes += [self.patterns[:, i] for i in range(len(levels), self.patterns.shape[1])]
        rows = np.repeat(np.stack(codes, axis=1), self.counts.astype(int), axis=0)[:records]
        cells = np.full((records, rows.shape[1]), np.nan)
        cells[: len(rows)] = rows
        return cells

    @property
    def tried(self) -> bool:
        """Whether the numbers are worth more than those of cross tables: they fit, or are few and noisy."""
        return self.fits or len(self.counts) <= TOGETHER


def likeliest(
    sent: kernel.Totals, patterns: Int[np.ndarray, "pattern column"], prior: Sequence[Vector] | None = None
) -> Vector:
    """Return the numbers of largest entropy that have the cross tables, by proportional fitting; alike without any.

    ``prior`` are shares of each column's levels, from which the fitting starts.
    """
    number = np.ones(len(patterns))
    for i, shares in enumerate(prior or ()):
        number = number * np.maximum(shares, 1e-9)[patterns[:, i]]
    number *= sent.records / max(float(number.sum()), 1e-300)
    tables = kernel.cross_tables(sent) or []
    known = [((j, i), tables[j][i].numpy()) for i in range(len(tables)) for j in range(i)]
    if not sent.rounded:
        known += [(t.columns, t.counts.numpy()) for t in sent.tables if not bool(t.counts.isnan().any())]
    return proportional(number, known, patterns)


def solve(sent: kernel.Totals, seconds: float = 20.0, prior: Sequence[Vector] | None = None) -> SolvedCounts:
    """Return the numbers of records of each pattern from a site's sums; ``prior`` is that of ``likeliest``.

    Raises:
        kernel.RefusedError: the sums are no sums of the declared records, or there are too many patterns, or more than
            are solved in the time.
    """
    begun = time.process_time()
    patterns, most = kernel.patterns_of(sent)
    _check_time(sent, patterns, seconds)
    sums = kernel.equations(sent, patterns)
    if not all(bool(part.isfinite().all()) for part in sums):
        raise kernel.RefusedError("at these coefficients a record's part in the sums is beyond double precision")
    upper = most.numpy()
    matrix, values, slack = (part.numpy() for part in sums)
    system = WholeNumbers(matrix, values, slack, np.zeros_like(upper), upper)
    directions = OrthogonalEquations(system, bool(sent.summaries))
    late = lambda: time.process_time() - begun > seconds  # noqa: E731
    expected = likeliest(sent, patterns.numpy(), prior)
    numbers = without_negatives(directions, expected, late)
    counts, by = whole(directions, numbers, sent.records)
    fits = system.fits(counts)
    witness = counts if fits else np.zeros(0)
    provable = sent.defense == "none"
    proofs, settled = np.zeros((0, len(sums.values))), not provable
    if fits and provable:
        proofs, settled = multipliers_for(directions, counts, late)
    splits: tuple[kernel.Split, ...] = ()
    if fits and not settled and provable and directions.rows.size <= _BRANCHED:
        _, low, high = kernel.bounds(sent, torch.from_numpy(proofs), torch.from_numpy(witness))
        splits = branched(directions, witness, low.numpy(), high.numpy(), late)
    if not settled and provable and len(patterns) <= TOGETHER:
        # Many numbers have the sums: those near the likeliest table are the better guess.
        near = toward(directions, expected)
        counts, by = to_total(near, sent.records, upper).astype(float), "near the likeliest table"
        fits = system.fits(counts)
        witness = counts if fits else witness
    return SolvedCounts(patterns.numpy(), counts, fits, proofs, witness, directions.rank, by, splits)


def _check_time(sent: kernel.Totals, patterns: torch.Tensor, seconds: float) -> None:
    """Refuse what needs too much memory, or too long, by the time of the equations of some patterns."""
    count = len(patterns)
    width = 1 + sum(len(levels) - 1 for levels in sent.levels)
    sums = sum(step.information is not None for step in sent.steps) * width * (width + 1) // 2
    sums += sum(table.counts.numel() for table in sent.tables)
    if sums * count > _MOST_COEFFICIENTS:
        raise kernel.RefusedError(
            f"{count:,} patterns in {sums:,} sums do not fit into memory; take fewer columns or levels"
        )
    if count <= TOGETHER:
        return
    begun = time.process_time()
    rows = kernel.equations(sent, patterns[:: max(1, count // _SAMPLE)]).matrix.numpy()
    _ = rows @ rows.T
    forecast = _TIMES * (time.process_time() - begun) * count / rows.shape[1]
    if forecast > seconds:
        raise kernel.RefusedError(
            f"{count:,} patterns in {rows.shape[0]:,} sums need about {forecast:,.0f} s, and {seconds:g} s were given"
        )
