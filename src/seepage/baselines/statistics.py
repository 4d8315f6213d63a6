"""Baselines of federated statistics: what single columns, cross tables and the likeliest table tell of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from seepage import kernel
from seepage.registry import baselines
from seepage.solve.proportional import proportional
from seepage.solve.remainders import to_total
from seepage.tabular.schema import Discrete
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.statistics import (
    NewtonMessage,
    RiskSetMessage,
    StatisticsKnowledge,
    StatisticsMessage,
    StatisticsView,
    TablesMessage,
    totals_of,
)

Tables = list[list[np.ndarray]]
# Most patterns that proportional fitting is carried out on.
_MOST = 20_000


def published(message: StatisticsMessage, knowledge: StatisticsKnowledge) -> Tables | None:
    """Return the cross tables of every two columns that the first message publishes, None where it publishes none.

    At coefficients of zero all weights are alike, so that its information is these tables, as in a start from outcomes
    of two classes. Other starts weight each record by its outcome; these tables are then taken for those of all. Of a
    survival model they are those of the records at risk at first, and of tables those of the first run. A site that
    sends its own fit publishes none.
    """
    if isinstance(message, TablesMessage):
        return _of_run(message)
    if isinstance(message, NewtonMessage) and message.alone:
        return None
    if any(message.noise) or not message.steps:
        return None
    if isinstance(message, RiskSetMessage):
        tables = published(message.first, knowledge)
        scale = message.records / max(message.first.records, 1)
        return None if tables is None else [[table * scale for table in row] for row in tables]
    sent = totals_of(message, knowledge.schema)
    try:
        whole = kernel.cross_tables(sent)
    except kernel.RefusedError:
        return None
    if whole is not None:
        return [[table.numpy() for table in row] for row in whole]
    return _of_first(message)


def _size(message: StatisticsMessage) -> int:
    """Return the number of attacked records."""
    return message.changed if isinstance(message, TablesMessage) else message.records


def _of_run(message: TablesMessage) -> Tables:
    """Return the tables of the first run, for as many records as were added; none for numbers that were left out.

    Columns that no table has together are taken for unlinked, and a number for spread out between its quantiles.
    """
    number = len(message.levels)
    run = message.before if message.records else message.after
    counts = {place: np.nan_to_num(np.maximum(table, 0)) for place, table in run.items()}
    figures = [later if earlier is None else earlier for later, earlier in message.summaries]
    single = {summary.column: _spread(summary) for summary in figures if not summary.within}
    for place, counted in counts.items():
        for axis, column in enumerate(place):
            single.setdefault(column, counted.sum(tuple(other for other in range(len(place)) if other != axis)))
    # A number without figures may be any.
    shares_of = [single.get(i, np.ones(len(levels))) for i, levels in enumerate(message.levels)]
    shares_of = [message.changed * shares / max(float(shares.sum()), 1e-300) for shares in shares_of]
    scale = message.changed / (message.records or message.changed)

    def table(i: int, j: int) -> np.ndarray:
        if i == j:
            return np.diag(shares_of[i])
        if i > j:
            return table(j, i).T
        return counts[i, j] * scale if (i, j) in counts else np.outer(shares_of[i], shares_of[j]) / message.changed

    return [[table(i, j) for j in range(number)] for i in range(number)]


def _spread(summary: kernel.Summary) -> np.ndarray:
    """Return shares of a number's values: even between its quantiles, or a normal distribution where they are few."""
    values = np.array(summary.values)
    shares, cuts = (np.array(part) for part in zip(*summary.quantiles, strict=True)) if summary.quantiles else ([], [])
    if len(shares) > 2:
        ends = np.concatenate([[values[0] - 1e-9], cuts, [values[-1]]])
        below = np.interp(values, np.maximum.accumulate(ends), np.concatenate([[0.0], shares, [1.0]]))
        return np.diff(below, prepend=0.0)
    try:
        totals, squares = summary.totals, summary.squares_about(summary.centre)
    except kernel.RefusedError:
        # Figures that contradict each other tell nothing.
        return np.ones(len(values))
    if totals is None or squares is None:
        return np.ones(len(values))
    mean = sum(totals) / 2 / summary.records
    variance = max(sum(squares) / 2 / summary.records - (mean - summary.centre) ** 2, 1e-9)
    inside = (values >= min(cuts, default=-np.inf)) & (values <= max(cuts, default=np.inf))
    return np.exp(-np.square(values - mean) / 2 / variance) * inside + 1e-12


def _of_first(message: NewtonMessage) -> Tables:
    """Return the tables of the first information, whatever its weights, for as many records as there are."""
    information = message.steps[0].information
    begin, shown = 1, []
    for levels in message.levels:
        rows = np.zeros((len(levels), len(information)))
        rows[0, 0] = 1
        rows[0, begin : begin + len(levels) - 1] = -1
        rows[np.arange(1, len(levels)), begin + np.arange(len(levels) - 1)] = 1
        shown.append(rows)
        begin += len(levels) - 1
    scale = message.records / max(float(information[0, 0]), 1e-300)
    return [[np.maximum(left @ information @ right.T * scale, 0) for right in shown] for left in shown]


def independent(message: StatisticsMessage, knowledge: StatisticsKnowledge) -> Tables:
    """Return the cross tables that the public marginals expect of independent columns."""
    size = _size(message)
    shares = []
    for marginal, levels in zip(knowledge.statistics.marginals, message.levels, strict=True):
        chances = np.maximum(marginal.probabilities.numpy()[list(levels)], 1e-6)
        shares.append(chances / chances.sum())
    return [
        [size * (np.diag(share) if i == j else np.outer(share, other)) for j, other in enumerate(shares)]
        for i, share in enumerate(shares)
    ]


class _FromTables:
    """A baseline that draws records from the published cross tables; without any, from what marginals expect."""

    def __call__(self, view: StatisticsView, knowledge: StatisticsKnowledge, seeds: Sequence[int]) -> RecordsGuess:
        """Return the guess; records are drawn by the victim's seed."""
        cells, labels = [], []
        for message, seed in zip(view.messages, seeds, strict=True):
            generator = np.random.default_rng([seed, 2])
            tables = published(message, knowledge)
            places = self._places(tables or independent(message, knowledge), message, generator)
            codes = [np.array(levels)[places[:, i]] for i, levels in enumerate(message.levels)]
            cells.append(np.stack(codes, axis=1).astype(float))
            labels.append(_outcomes(message, knowledge, generator))
        return RecordsGuess(torch.from_numpy(np.stack(cells)), labels=torch.from_numpy(np.stack(labels)))

    def _places(self, tables: Tables, message: StatisticsMessage, generator: np.random.Generator) -> np.ndarray:
        raise NotImplementedError


def _outcomes(message: StatisticsMessage, knowledge: StatisticsKnowledge, generator: np.random.Generator) -> np.ndarray:
    """Return outcomes that are dealt out with the share of each in the public rows."""
    target = knowledge.schema.target
    if not isinstance(target, Discrete):
        return np.full(_size(message), np.nan)
    shares = knowledge.label_shares if knowledge.label_shares is not None else np.full(target.width, 1 / target.width)
    codes = np.repeat(np.arange(target.width), to_total(shares * _size(message), _size(message)))
    return generator.permutation(codes).astype(float)


@baselines.register("own_marginals", "statistics")
@dataclass(frozen=True)
class OwnTotals(_FromTables):
    """Records whose columns have the site's own counts of every level; columns are unlinked."""

    def _places(self, tables: Tables, message: StatisticsMessage, generator: np.random.Generator) -> np.ndarray:
        columns = []
        for i, levels in enumerate(message.levels):
            counts = to_total(tables[i][i].diagonal(), _size(message))
            columns.append(generator.permutation(np.repeat(np.arange(len(levels)), counts)[: _size(message)]))
        return np.stack(columns, axis=1)


@baselines.register("cross_tables", "statistics")
@dataclass(frozen=True)
class CrossTables(_FromTables):
    """Records that follow a tree of the published cross tables of two columns, those that tell most of each other.

    Source: Chow and Liu 1968.
    """

    def _places(self, tables: Tables, message: StatisticsMessage, generator: np.random.Generator) -> np.ndarray:
        number = len(tables)
        shared = np.array([[_information(tables[i][j]) for j in range(number)] for i in range(number)])
        places = np.zeros((_size(message), number), dtype=int)
        counts = to_total(tables[0][0].diagonal(), _size(message))
        places[:, 0] = np.repeat(np.arange(len(counts)), counts)[: _size(message)]
        known = [0]
        while len(known) < number:
            rest = [j for j in range(number) if j not in known]
            parent, child = max(((i, j) for i in known for j in rest), key=lambda pair: shared[pair])
            for level in range(tables[parent][child].shape[0]):
                members = np.flatnonzero(places[:, parent] == level)
                row = tables[parent][child][level]
                if len(members):
                    shares = to_total(row / max(float(row.sum()), 1e-300) * len(members), len(members))
                    places[members, child] = generator.permutation(
                        np.repeat(np.arange(len(row)), shares)[: len(members)]
                    )
            known.append(child)
        return places


def _information(table: Float[np.ndarray, "row column"]) -> float:
    """Return the mutual information of two columns, in nats."""
    joint = table / max(float(table.sum()), 1e-300)
    apart = joint.sum(1)[:, None] * joint.sum(0)[None]
    positive = joint > 0
    return float((joint[positive] * np.log(joint[positive] / apart[positive])).sum())


@baselines.register("likeliest_table", "statistics")
@dataclass(frozen=True)
class LikeliestTable(_FromTables):
    """Records of the likeliest table that has the published cross tables of every two columns.

    The table of largest entropy, by proportional fitting (Deming and Stephan 1940), in whole numbers. With more than
    20,000 patterns a tree of cross tables stands for it.
    """

    def _places(self, tables: Tables, message: StatisticsMessage, generator: np.random.Generator) -> np.ndarray:
        patterns = _possible(tables)
        if patterns is None:
            return CrossTables()._places(tables, message, generator)
        counts = to_total(fitted(tables, patterns, _size(message)), _size(message))
        return np.repeat(patterns, counts, axis=0)[: _size(message)]


def fitted(tables: Tables, patterns: Int[np.ndarray, "pattern column"], total: int) -> Float[np.ndarray, " pattern"]:
    """Return the numbers of largest entropy of some patterns that have cross tables, for a total."""
    pairs = [((i, j), tables[i][j]) for i in range(len(tables)) for j in range(i)]
    number = proportional(np.ones(len(patterns)), pairs, patterns)
    scaled: Float[np.ndarray, " pattern"] = number * (total / max(float(number.sum()), 1e-300))
    return scaled


def _possible(tables: Tables) -> np.ndarray | None:
    """Return the patterns without two levels that never meet; None where there are too many."""
    patterns = np.zeros((1, 0), dtype=int)
    for i in range(len(tables)):
        width = tables[i][i].shape[0]
        if len(patterns) * width > 4 * _MOST:
            return None
        level = np.tile(np.arange(width), len(patterns))
        patterns = np.concatenate([np.repeat(patterns, width, axis=0), level[:, None]], axis=1)
        possible = np.ones(len(patterns), dtype=bool)
        for j in range(i + 1):
            possible &= tables[j][i][patterns[:, j], level] > 1e-9
        patterns = patterns[possible]
    return patterns if 0 < len(patterns) <= _MOST else None
