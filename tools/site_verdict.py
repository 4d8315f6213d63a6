"""Whether a line of a result file agrees with the print, calculated from the line's own columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seepage.assessment import Estimate
from seepage.reproduce.table import PublishedTable
from seepage.results.agreement import Agreement, Difference, PublishedFigure, agreement_of, margin_of, welch


@dataclass(frozen=True)
class Verdict:
    """What one cell says of the print.

    Attributes:
        agreement: outcome; None for figures that are no rates, which have no margin in points.
        margin: margin of the outcome, None without deviations.
        difference: our mean less the printed one.
    """

    agreement: Agreement | None
    margin: float | None
    difference: Difference


def verdict(table: PublishedTable, line: Mapping[str, str]) -> Verdict | None:
    """Return what a line says of the print; None where the print has no figure of the same thing.

    Args:
        table: the table that the line belongs to.
        line: one line of its file.
    """
    place = {axis: line[axis] for axis in table.axes}
    if line["run"] != table.first or not line["published"] or not line["ours"] or not table.judges({**place}):
        return None
    number = int(line.get("published_n") or table.published_victims)
    std = _value(line["published_std"]) if table.spread_stated else None
    ours = Estimate(
        float(line["ours"]),
        _value(line.get("ours_low", "")),
        _value(line.get("ours_high", "")),
        int(line["n"]),
        _value(line["ours_std"]),
    )
    published = PublishedFigure(mean=float(line["published"]), std=std)
    difference = welch(ours, published, number)
    assert difference is not None
    if line.get("unit") == "plain":
        return Verdict(None, None, difference)
    return Verdict(agreement_of(ours, published, number), margin_of(ours, published, number), difference)


def _value(text: str) -> float | None:
    return float(text) if text else None
