"""Paired differences of two attacks of one audit: on the same units, behind the same messages."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from seepage.errors import BadInputError, unknown_name
from seepage.results.rows import on_the_same
from seepage.run.runner import Run

COLUMNS = ["batch_size", "defense", "metric", "column", "first", "second", "difference", "low", "high", "n"]


def attack_differences(
    runs: Sequence[Run], first: str, second: str, metric: str = "accuracy", column: str | None = None
) -> pd.DataFrame:
    """Return how much more one attack reads than another, one row for each configuration in which both ran.

    ``first`` and ``second`` hold the means on the units that both attacked, ``difference`` is the mean of their paired
    difference, and ``low`` to ``high`` its 95% interval, which holds for any distribution of the units.

    Args:
        runs: figures of the parts of an audit.
        first, second: labels of the attacks, as in results.
        metric: name of a figure.
        column: name of a column; None for all cells together.

    Raises:
        BadInputError: an attack or a figure is unknown, or no configuration has both attacks on the same units.
    """
    attacks = dict[str, list[Run]]()
    for run in runs:
        if run.is_attack:
            attacks.setdefault(run.label, []).append(run)
    for name in (first, second):
        if name not in attacks:
            raise unknown_name("attack of this report", name, attacks)
    rows, figures = [], set[str]()
    for run in attacks[first]:
        for other in (another for another in attacks[second] if another.configuration == run.configuration):
            units = [unit for unit in run.units if unit in other.units]
            both = [on_the_same(units, [part])[part.label] for part in (run, other)] if units else [[], []]
            figures |= {figure.metric for measured in both for figure in measured}
            mine, others = (
                next((figure for figure in measured if (figure.metric, figure.column) == (metric, column)), None)
                for measured in both
            )
            if mine is None or others is None:
                continue
            gain = mine.less(others).estimate()
            configuration = (run.configuration.batch_size, run.configuration.defense, metric, column)
            rows.append((*configuration, mine.mean, others.mean, gain.mean, gain.low, gain.high, gain.n))
    if not rows and figures and metric not in figures:
        raise unknown_name("figure of these attacks", metric, figures)
    if not rows:
        where = "" if column is None else f" for the column {column!r}"
        raise BadInputError(
            f"{first!r} and {second!r} have no figure {metric!r}{where} on the same units of any configuration; run "
            "both in one audit, by attacks=[...] or --attack."
        )
    return pd.DataFrame(rows, columns=COLUMNS)
