"""Tables that a site publishes: counts, cross tables, and means, squares and quantiles of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Int

from seepage import kernel

Published = Literal["cross_tables", "histograms", "summaries"]
Codes = Int[np.ndarray, "_record column"]
Tables = dict[tuple[int, ...], np.ndarray]
# Least number of records that projects publish figures of: dsBase's nfilter.tab, and SUMMARY_MINIMUM_ROWS.
LEAST_RECORDS = {"datashield": 3, "vantage6": 5}
# Shares of the quantiles that projects publish.
QUANTILES = {"datashield": (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95), "vantage6": (0.0, 1.0)}


@dataclass(frozen=True)
class Publication:
    """What is published of some records.

    Sources: ``meanDS``, ``varDS`` (sum and sum of squares) and ``quantileMeanDS`` of dsBase 6.3.3; the partial
    functions of v6-summary-py (count, sum, minimum, maximum, and squares about the mean of all sites, which is here
    that of the site). Formulas are the projects', the code is our own.

    Attributes:
        kind: cross tables of every two columns, counts of single columns, or these with figures of numbers.
        widths: number of levels of each column, the outcome last.
        numbers: for each column of numbers, what its levels stand for.
        least: least number of records of a group whose figures are published.
        digits: number of decimals that figures are rounded to; None for double precision.
    """

    kind: Published
    project: Literal["datashield", "vantage6"]
    widths: tuple[int, ...]
    numbers: Mapping[int, tuple[float, ...]]
    least: int = 1
    digits: int | None = None

    def tables(self, codes: Codes) -> Tables:
        """Return counts of records by levels; columns of numbers have none beside their figures."""
        levelled = [i for i in range(len(self.widths)) if i not in self.numbers]
        places: list[tuple[int, ...]] = [(i,) for i in levelled]
        if self.kind == "cross_tables":
            places = [(i, j) for j in levelled for i in levelled if i < j]
        counted = {}
        for place in places:
            counted[place] = np.zeros([self.widths[i] for i in place])
            np.add.at(counted[place], tuple(codes[:, i] for i in place), 1)
        return counted

    def summaries(self, before: Codes, after: Codes) -> Iterator[tuple[kernel.Summary, kernel.Summary | None]]:
        """Yield figures of both runs, of all records and of those with each outcome; None where there is no first.

        A group that one of the runs has too few records of is left out.
        """
        last = len(self.widths) - 1
        groups: list[tuple[tuple[int, int], ...]] = [(), *(((last, k),) for k in range(self.widths[last]))]
        for column in self.numbers:
            for group in groups:
                later = self._summary(after, column, group)
                earlier = self._summary(before, column, group)
                if later is not None and (earlier is not None or not len(before)):
                    yield later, earlier

    def _summary(self, codes: Codes, column: int, group: Sequence[tuple[int, int]]) -> kernel.Summary | None:
        for other, level in group:
            codes = codes[codes[:, other] == level]
        if len(codes) < max(self.least, 1):
            return None
        values = self.numbers[column]
        cells = np.array(values)[codes[:, column]]
        shares = QUANTILES[self.project]
        sent: dict[str, Any] = {"total": self._sent(cells.sum())}
        if self.project == "datashield":
            sent |= {"mean": self._sent(cells.mean()), "squares": self._sent(np.square(cells).sum())}
        else:
            # Squares are about the mean that follows from the sum which was sent.
            centre = sent["total"] / len(cells)
            sent |= {"centre": centre, "squares": self._sent(np.square(cells - centre).sum())}
        cuts = zip(shares, np.quantile(cells, shares), strict=True)
        quantiles = tuple((share, self._sent(cut)) for share, cut in cuts)
        step = 0.0 if self.digits is None else 10.0**-self.digits
        return kernel.Summary(
            column, values, len(cells), quantiles=quantiles, within=tuple(group), rounded=step, **sent
        )

    def _sent(self, figure: float) -> float:
        return float(figure if self.digits is None else np.round(figure, self.digits))
