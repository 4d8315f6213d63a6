"""Singling out, linkability and inference: three questions on guessed rows, beside records that were not attacked.

The questions are those of the Article 29 Working Party on anonymisation (Opinion 05/2014, WP216). Each
is answered as Anonymeter answers it of synthetic rows (Giomi et al. 2023, arXiv 2211.10459): the rate at which an
attack succeeds, and the rate at which the same guesses succeed against control records that it did not attack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.assessment.matched import matching, scales
from seepage.assessment.measurement import Measurement
from seepage.assessment.row import CONTROL, INFERRED, LINKED, POSSIBLE, SINGLED_OUT
from seepage.errors import unknown_name
from seepage.tabular.align import tolerances
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table

# Guesses of a unit that are looked at, and predicates that are made of each.
_GUESSES, _PREDICATES = 25, 3
# Rows that a predicate is expected to hold for, by the public marginals as if columns were independent.
_EXPECTED_ROWS = 0.1
# Control records for each victim, where a batch has fewer.
_CONTROLS = 50
# Attacked records among which a record's control is chosen.
_POOL = 1_000
# Distances that differ by less are a tie.
_TIE = 1e-9

Cells = Float[Tensor, "record column"]


@dataclass(frozen=True)
class Population:
    """The rows of the data set, among which guesses single records out, and what is public about them.

    Attributes:
        table: all rows; a guess may be of some of its columns.
        schema: guessed columns, with the distances within which a number counts as right.
        quasi_identifiers: positions of the guessed columns by which rows are linked to a public table.
    """

    table: Table
    schema: Schema
    statistics: Statistics
    quasi_identifiers: tuple[int, ...]

    @classmethod
    def of(cls, table: Table, schema: Schema, statistics: Statistics, named: Sequence[str] = ()) -> Population:
        """Return the population of a table; ``named`` are quasi-identifiers, all columns that are not sensitive if ().

        Named columns that are not guessed are left out, since the attacker holds them already.
        """
        wanted = set(named or (column.name for column in table.schema.columns if not column.sensitive))
        return cls(table, schema, statistics, tuple(i for i, name in enumerate(schema.names) if name in wanted))

    @cached_property
    def places(self) -> list[int]:
        """Positions of the guessed columns in the table."""
        return [self.table.schema.names.index(name) for name in self.schema.names]

    @cached_property
    def near(self) -> list[float]:
        """Distances within which cells count as right; beyond by a rounding is within."""
        return [float(tolerance) * (1 + 8 * torch.finfo(torch.float64).eps) for tolerance in tolerances(self.schema)]

    def take(self, rows: Int[Tensor, "*some"]) -> Float[Tensor, "*some column"]:
        """Return the guessed columns of some rows."""
        return self.table.take(rows)[0][..., self.places]

    def isolated(self, guess: Cells, used: Bool[Tensor, "record predicate column"]) -> Int[Tensor, "record predicate"]:
        """Return the only row for which a predicate is true, -1 where it is true for none or several.

        A predicate says that the ``used`` columns of a row have the guessed values, up to their tolerances.
        """
        isolated = torch.full(used.shape[:2], -1)
        # The rarest value first leaves the fewest rows for the other columns.
        order = self.rarities(guess).argsort(1)
        for g, (columns, values) in enumerate(zip(order.tolist(), guess.tolist(), strict=True)):
            begun: dict[int, Tensor] = {}
            for predicate, uses in enumerate(used[g].tolist()):
                rows: Tensor | None = None
                for i in (i for i in columns if uses[i]):
                    if rows is None:
                        # Predicates of a guess often begin with the same column.
                        if i not in begun:
                            begun[i] = self.table.near(self.places[i], values[i], self.near[i]).nonzero()[:, 0]
                        rows = begun[i]
                    else:
                        rows = rows[self.table.near(self.places[i], values[i], self.near[i], rows)]
                if rows is not None and len(rows) == 1:
                    isolated[g, predicate] = rows[0]
        return isolated

    def nearest(self, guess: Cells) -> Int[Tensor, " record"]:
        """Return the row of the public table that is nearest by Gower's distance, -1 where several are.

        Columns that are not guessed (NaN) count for nothing.
        """
        return torch.tensor([self._nearest(values) for values in guess.tolist()], dtype=torch.long)

    def _nearest(self, values: Sequence[float]) -> int:
        known = [i for i in self.quasi_identifiers if not math.isnan(values[i])]
        discrete = [i for i in known if isinstance(self.schema.columns[i], Discrete)]
        numbers = [i for i in known if i not in discrete]
        different = torch.zeros(len(self.table), dtype=torch.uint8 if len(discrete) < 256 else torch.int32)
        for i in discrete:
            different += ~self.table.near(self.places[i], values[i], 0.0)

        wanted = torch.tensor([values[i] for i in numbers], dtype=torch.float64)
        widths = torch.tensor([_width(self.schema.columns[i]) for i in numbers], dtype=torch.float64)

        def added_by(row: Tensor) -> Tensor:
            """Return what each number from the last one on adds to a row's distance, summed up to all of them."""
            apart = ((self.take(row)[0, numbers] - wanted).abs() / widths).clamp(max=1)
            return torch.cat([apart.flip(0).cumsum(0).flip(0), torch.zeros(1, dtype=torch.float64)])

        # Distances grow with every column, so that what is beyond any row's distance already is not looked at again.
        best = different.argmin()
        rest = added_by(best[None])
        most = float(different[best]) + float(rest[0])
        rows = (different <= most + _TIE).nonzero()[:, 0]
        distance = different[rows].double()
        for place, i in enumerate(numbers):
            if len(rows) == 1:
                break
            apart = self.table.column(self.places[i], rows).sub_(values[i]).abs_().div_(widths[place])
            distance += apart.clamp_(max=1)
            least, first = distance.min(0)
            if rows[first] != best:
                best = rows[first]
                rest = added_by(best[None])
            most = min(most, float(least) + float(rest[place + 1]))
            near = distance <= most + _TIE
            rows, distance = rows[near], distance[near]
        least, row = distance.min(0)
        return -1 if int((distance <= least + _TIE).sum()) > 1 else int(rows[row])

    def predicates(self, guess: Cells, generator: torch.Generator) -> Bool[Tensor, "record predicate column"]:
        """Return which columns each predicate uses: in random order, until a tenth of a row is expected to have them.

        Where all columns together are expected in more rows, all of them are used.
        """
        known = ~guess.isnan()
        information = torch.where(known, -self.rarities(guess).log(), 0.0)[:, None].expand(-1, _PREDICATES, -1)
        order = torch.rand(information.shape, generator=generator, dtype=torch.float64).argsort(2)
        before = information.gather(2, order).cumsum(2) - information.gather(2, order)
        wanted = math.log(len(self.table) / _EXPECTED_ROWS)
        return torch.zeros_like(order, dtype=torch.bool).scatter(2, order, before < wanted) & known[:, None]

    def rarities(self, guess: Cells) -> Cells:
        """Return the chance of each guessed value by the public marginals, up to its tolerance."""
        marginals = (self.statistics.marginals[place] for place in self.places)
        near = [m.near(guess[:, i].nan_to_num(), self.near[i]) for i, m in enumerate(marginals)]
        return torch.stack(near, 1)


def _width(column: Column) -> float:
    assert isinstance(column, Continuous)
    return max(column.high - column.low, math.ulp(0.0))


@dataclass(frozen=True)
class Questions:
    """What is asked about the guesses of some units, the same for all attacks and baselines.

    Attributes:
        seeds: seeds of the control records and predicates of each unit.
        known: what the attacker knows of each attacked record anyway, as codes and values: columns of its own, or
            granted labels. None where it holds nothing.
        possible: whether the rates of right guesses are wanted, too, which are the same for all attacks.
    """

    population: Population
    seeds: Sequence[int]
    known: Float[Tensor, "unit record held"] | None = None
    possible: bool = True


def check_quasi_identifiers(schema: Schema, named: Sequence[str]) -> None:
    """Refuse the name of a quasi-identifier that a table has no column of."""
    for name in named:
        if name not in schema.names:
            raise unknown_name("quasi-identifier", name, schema.names)


def questions_of_batches(
    questions: Questions,
    true: Float[Tensor, "victim record column"],
    guess: Float[Tensor, "victim record column"],
) -> list[Measurement]:
    """Return the figures of guessed batches, one value a victim; guesses are in the order of the records.

    Control records are other rows of the table, drawn at random, to which the same guesses are matched as to the
    true ones. Where labels are granted, a control record has the nearest label.
    """
    units, population = [], questions.population
    for v, (records, guessed) in enumerate(zip(true, guess, strict=True)):
        generator = torch.Generator().manual_seed(questions.seeds[v])
        others = _others(population, records, None if questions.known is None else questions.known[v, :, 0], generator)
        schema, scale = population.schema, scales(population.schema, population.statistics)
        index = matching(schema, scale, others, guessed.expand(len(others), *guessed.shape))
        controls, standing = others[:, :_GUESSES].flatten(0, 1), index[:, :_GUESSES].flatten()
        units.append(
            _figures(population, guessed, records[:_GUESSES], controls, standing, generator, questions.possible)
        )
    return _joined(units, members=False)


def questions_of_records(
    questions: Questions,
    true: Float[Tensor, "training record column"],
    guess: Float[Tensor, "training record column"],
) -> list[Measurement]:
    """Return the figures of guesses whose records are known, one value a training.

    The control of a record is another attacked record, of whose message its guess is not made: the one that is nearest
    in what the attacker holds, of those that are equally near one at random.
    """
    units, known = [], questions.known
    for t, seed in enumerate(questions.seeds):
        generator = torch.Generator().manual_seed(seed)
        count = min(len(true[t]), _GUESSES)
        controls, standing = true[t, :0], torch.arange(0)
        if len(true[t]) > 1:
            pool = torch.randperm(len(true[t]), generator=generator)[:_POOL]
            apart = torch.zeros(count, len(pool), dtype=torch.float64)
            if known is not None and known.shape[2]:
                spread = (known[t].amax(0) - known[t].amin(0)).clamp(min=math.ulp(0.0))
                apart = ((known[t, :count, None] - known[t, None, pool]) / spread).abs().sum(2)
            apart[torch.arange(count)[:, None] == pool] = torch.inf
            tied = apart <= apart.amin(1, keepdim=True) + _TIE
            drawn = torch.where(tied, torch.rand(apart.shape, generator=generator, dtype=torch.float64), -1.0).argmax(1)
            controls, standing = true[t, pool[drawn]], torch.arange(count)
        whose = true[t, :count]
        units.append(_figures(questions.population, guess[t], whose, controls, standing, generator, questions.possible))
    return _joined(units, members=True)


_Unit = dict[tuple[str, str | None], Float[Tensor, " record"]]


def _figures(
    population: Population,
    guess: Float[Tensor, "guess column"],
    true: Cells,
    controls: Float[Tensor, "control column"],
    standing: Int[Tensor, " control"],
    generator: torch.Generator,
    possible: bool,
) -> _Unit:
    """Return the figures of one unit, one value a record, and those of guesses that are right.

    Guesses come in the order of the true records; ``standing`` are positions of the guesses that stand for controls.
    """
    needed = torch.zeros(len(guess), dtype=torch.bool)
    needed[: len(true)] = needed[standing] = True
    singled, linked = torch.full((len(guess), _PREDICATES), -1), torch.full((len(guess),), -1)
    singled[needed] = population.isolated(guess[needed], population.predicates(guess, generator)[needed])
    if population.quasi_identifiers:
        linked[needed] = population.nearest(guess[needed])
    figures = _of(population, guess[: len(true)], true, singled[: len(true)], linked[: len(true)], "")
    if len(controls):
        figures |= _of(population, guess[standing], controls, singled[standing], linked[standing], CONTROL)
    if not possible:
        return figures
    best = population.isolated(true, population.predicates(true, generator)), population.nearest(true)
    of_truth = _of(population, true, true, *best, POSSIBLE)
    return figures | {name: values for name, values in of_truth.items() if name[1] is None}


def _of(
    population: Population,
    guess: Cells,
    record: Cells,
    singled: Int[Tensor, "record predicate"],
    linked: Int[Tensor, " record"],
    ending: str,
) -> _Unit:
    """Return whether guesses succeed against the records that they stand for, by question."""

    def is_it(rows: Tensor, of: Tensor) -> Tensor:
        return (rows >= 0) & (population.take(rows.clamp(min=0)) == of).all(-1)

    figures: _Unit = {(SINGLED_OUT + ending, None): is_it(singled, record[:, None]).double().mean(1)}
    if population.quasi_identifiers:
        figures[LINKED + ending, None] = is_it(linked, record).double()
    for i, column in enumerate(population.schema.columns):
        if column.sensitive:
            right = (guess[:, i] - record[:, i]).abs() <= population.near[i]
            figures[INFERRED + ending, column.name] = right.double()
    return figures


def _others(
    population: Population, true: Cells, labels: Float[Tensor, " record"] | None, generator: torch.Generator
) -> Float[Tensor, "draw record column"]:
    """Return control records for a batch, as many as it has and several times where those are few."""
    table = population.table
    other = torch.ones(len(table), dtype=torch.bool)
    for record, rarest in zip(true, population.rarities(true).argmin(1).tolist(), strict=True):
        rows = table.near(population.places[rarest], float(record[rarest]), 0.0).nonzero()[:, 0]
        rows = rows[(population.take(rows) == record).all(1)]
        # Of rows that are alike, one is the record itself.
        other[rows[other[rows]][:1]] = False
    rows = torch.randperm(len(table), generator=generator)
    rows = rows[other[rows]]
    draws = min(-(-_CONTROLS // len(true)), len(rows) // len(true))
    if labels is None:
        return population.take(rows[: draws * len(true)].reshape(draws, len(true)))
    count, taken = draws * len(true), set[int]()
    row_labels, wanted = table.labels[rows], labels.tolist()
    nearest = {label: iter(nearest_first(row_labels, label, count)) for label in set(wanted)}
    chosen = []
    for label in wanted * draws:
        # What another record has taken, as may be where labels are numbers, is passed over.
        place = next(place for place in nearest[label] if place not in taken)
        taken.add(place)
        chosen.append(place)
    return population.take(rows[chosen].reshape(draws, len(true)))


def nearest_first(values: Float[Tensor, " some"], value: float, count: int) -> list[int]:
    """Return the positions of the nearest values, those of equal ones in their order."""
    away = (values - value).abs()
    near = (away == away.min()).nonzero()[:, 0]
    if len(near) < count:
        near = (away <= away.kthvalue(count).values).nonzero()[:, 0]
        near = near[away[near].argsort(stable=True)]
    return near[:count].tolist()


def _joined(units: Sequence[_Unit], members: bool) -> list[Measurement]:
    """Return the figures of all units, NaN where a unit has none, with those of single records if ``members``."""
    measurements = []
    for metric, column in dict.fromkeys(name for unit in units for name in unit):
        by_unit = tuple(unit.get((metric, column), torch.tensor([math.nan], dtype=torch.float64)) for unit in units)
        means = torch.stack([values.mean() for values in by_unit])
        measurements.append(Measurement(metric, column, means, clusters=by_unit if members else None))
    return measurements
