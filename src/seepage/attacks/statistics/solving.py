"""Numbers of records of each pattern from a site's sums: least squares without negatives, whole numbers, bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.linalg import lstsq
from scipy.optimize import Bounds, LinearConstraint, linprog, milp, nnls

from seepage import kernel
from seepage.baselines.statistics import proportional, to_total

Matrix = Float[np.ndarray, "equation pattern"]
Vector = Float[np.ndarray, " _"]
# Patterns beyond which least squares are solved on some of them, the others priced by reduced costs.
_TOGETHER = 2_500
# Coefficients of all equations beyond which they are not held (1 GB), and a number of patterns that time is told from.
_MOST_COEFFICIENTS, _SAMPLE = 120_000_000, 500
# Time of a solution beside that of the equations of a sample and their products, as measured.
_TIMES = 6.0
# Rounds of pricing, patterns of the first and those that enter in each, and records by which a solution may differ from
# whole numbers.
_PRICED, _FIRST, _ENTER, _WHOLE = 200, 600, 200, 0.2
# Least ratio of a direction's square to the largest, where directions follow from products of the equations.
_SQUARED = 1e-12
# Roundings beyond which a direction of the equations is worth no more, and those that it must have at least.
_MOST, _LEAST = 1e7, 30.0
_SECONDS_OF_WHOLE_NUMBERS = 3.0
_SINGLE_PROGRAMS = 60
# Rounds of moving towards numbers that have the sums.
_ROUNDS = 12
# Directions that a proof uses stand this many roundings above nothing; the fewer do so, the better it bounds.
_LEVELS = (1e5, 1e3)
_PROJECTIONS, _ABOVE, _PRICINGS = 400, 0.3, 8
# Slack beside the largest entry from which an equation is a bound.
_LOOSE = 0.02
# Coefficients of linear programs by which single patterns are proved in branches, and most branches of one.
_BRANCHED, _BRANCHES = 200_000, 40


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
        codes = [np.array(own)[self.patterns[:, i]] for i, own in enumerate(levels)]
        codes += [self.patterns[:, i] for i in range(len(levels), self.patterns.shape[1])]
        rows = np.repeat(np.stack(codes, axis=1), self.counts.astype(int), axis=0)[:records]
        cells = np.full((records, rows.shape[1]), np.nan)
        cells[: len(rows)] = rows
        return cells

    @property
    def tried(self) -> bool:
        """Whether the numbers are worth more than those of cross tables: they fit, or are few and noisy."""
        return self.fits or len(self.counts) <= _TOGETHER


@dataclass
class System:
    """Equations in directions that are orthogonal as far as may be, each in units of what it may be off by."""

    matrix: Matrix
    values: Vector
    slack: Vector
    # Whether wide equations are bounds that nothing is gained from in least squares.
    bounded: bool = False
    rows: Matrix = field(init=False)
    sides: Vector = field(init=False)
    weight: Vector = field(init=False)
    # For each direction, its combination of the equations.
    combined: Float[np.ndarray, "direction equation"] = field(init=False)
    # Equations that are bounds, such as numbers of records below a quantile.
    loose: Int[np.ndarray, " bound"] = field(init=False)

    def __post_init__(self) -> None:
        unit = np.maximum(self.slack, 1e-14 * np.maximum(np.abs(self.values), 1.0))
        largest = np.abs(self.matrix).max(1, initial=0.0)
        self.loose = np.flatnonzero((self.slack > _LOOSE * largest) & (largest > 0) & self.bounded)
        if self.matrix.shape[1] <= _TOGETHER:
            strict = np.setdiff1d(np.arange(len(unit)), self.loose)
            left, sizes, right = np.linalg.svd(self.matrix[strict] / unit[strict, None], full_matrices=False)
            some = sizes > _LEAST
            self.rows, self.weight = right[some], sizes[some]
            self.combined = np.zeros((int(some.sum()), len(unit)))
            self.combined[:, strict] = (left[:, some] / sizes[some]).T / unit[None, strict]
        else:
            # Squares of the directions, which loses small ones, but takes a tenth of the time.
            sizes = np.linalg.norm(self.matrix, axis=1)
            some = sizes > _LEAST * unit
            rows = self.matrix[some] / sizes[some, None]
            squares, vectors = np.linalg.eigh(rows @ rows.T)
            above = squares > _SQUARED * squares[-1]
            turned = (vectors[:, above] / np.sqrt(squares[above])).T
            self.rows = turned @ rows
            self.combined = np.zeros((len(turned), len(unit)))
            self.combined[:, some] = turned / sizes[some]
            self.weight = 1 / (np.abs(self.combined) @ unit)
        self.sides = self.combined @ self.values

    @property
    def rank(self) -> int:
        """Number of directions that stand above roundings."""
        return len(self.rows)

    @property
    def bounds(self) -> tuple[Matrix, Vector]:
        """Rows that are at most some values: both sides of equations that are bounds."""
        rows, values, slack = (part[self.loose] for part in (self.matrix, self.values, self.slack))
        return np.concatenate([rows, -rows]), np.concatenate([values + slack, slack - values])

    def multipliers(self, solved: Any) -> Float[np.ndarray, "1 equation"]:
        """Return the combination of the equations that the duals of a linear program are."""
        both = np.split(solved.ineqlin.marginals, 2)
        combination = solved.eqlin.marginals @ self.combined
        combination[self.loose] += both[0] - both[1]
        return combination[None]

    def fits(self, counts: Vector) -> bool:
        """Return whether whole numbers have the sums within what these may be off by."""
        sums = kernel.Equations(*(torch.from_numpy(part) for part in (self.matrix, self.values, self.slack)))
        return sums.fits(torch.from_numpy(np.rint(counts)))


def without_negatives(system: System, upper: Vector, first: Vector, until: Callable[[], bool]) -> Vector:
    """Return numbers from 0 up with the least weighted squared error.

    Of many patterns, those that ``first`` expects most records of come first. Others are priced: the ones whose reduced
    costs are best enter, and the ones without records leave, until none would lower the error. In orthogonal directions
    few rounds suffice.

    Source: Lawson and Hanson 1974, algorithm 23.10; column generation after Gilmore and Gomory 1961.
    """
    weight = np.minimum(system.weight, _MOST) / _MOST
    matrix, side = system.rows * weight[:, None], system.sides * weight
    number, barred = np.zeros(matrix.shape[1]), upper <= 0
    many = matrix.shape[1] > _TOGETHER
    used = np.argsort(-first)[:_FIRST] if many else np.flatnonzero(~barred)
    for _ in range(_PRICED):
        try:
            number = _spread(nnls(matrix[:, used], side)[0], used, len(number))
        except RuntimeError:
            # It did not converge: on some patterns it may, else the numbers before are as near as it gets.
            if many:
                break
            many, used = True, np.argsort(-first)[:_FIRST]
            continue
        if not many or until() or system.fits(np.rint(number)):
            break
        gain = matrix.T @ (side - matrix @ number)
        gain[barred] = -np.inf
        gain[used] = -np.inf
        entering = np.argsort(-gain)[:_ENTER]
        entering = entering[gain[entering] > 1e-13]
        if not len(entering):
            break
        used = np.concatenate([used[number[used] > 1e-9], entering])
    return number


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


def toward(system: System, expected: Vector, upper: Vector) -> Vector:
    """Return numbers that have the sums and are near expected ones, in units of their own size."""
    number = np.maximum(expected, 1e-6) * (upper > 0)
    blur = np.diag(1 / np.minimum(system.weight, _MOST) ** 2)
    for _ in range(_ROUNDS):
        scaled = system.rows * number[None]
        gap = system.sides - system.rows @ number
        change = scaled.T @ np.linalg.solve(scaled @ system.rows.T + blur, gap)
        number = np.minimum(np.maximum(number + change, 0.1 * number), upper)
    return number


def _least_squares(matrix: Matrix, side: Vector, ratio: float) -> Vector:
    """Return the least squares of smallest norm, directions below a ratio of the largest left out."""
    solved: Any = lstsq(matrix, side, lapack_driver="gelsy", check_finite=False, cond=ratio)
    return np.asarray(solved[0])


def _spread(values: Vector, some: np.ndarray, length: int) -> Vector:
    number = np.zeros(length)
    number[some] = values
    return number


def whole(system: System, near: Vector, upper: Vector, total: int) -> tuple[Vector, str]:
    """Return whole numbers with the sums, near least squares, and the method that gave them."""
    rounded = np.minimum(np.rint(near), upper)
    if system.fits(rounded):
        return rounded, "least squares"
    few = np.abs(near - np.rint(near)) > _WHOLE
    tried = [np.flatnonzero((near > 1e-6) | few)]
    tried += [np.flatnonzero(upper > 0)] if len(system.loose) and len(near) <= _TOGETHER else []
    for candidates in tried:
        repaired = _repaired(system, near, upper, candidates)
        if repaired is not None and system.fits(repaired):
            return repaired, "integer programming"
    return to_total(near, total, upper).astype(float), "least squares, rounded"


def _repaired(system: System, near: Vector, upper: Vector, candidates: np.ndarray) -> Vector | None:
    """Return whole numbers within roundings of the sums, from integer programming over some patterns."""
    if not len(candidates):
        return None
    order = np.argsort(system.weight)[::-1]
    width = 1e-6 + len(system.values) ** 0.5 / system.weight
    rows, sides, width = system.rows[order][:, candidates], system.sides[order], width[order]
    precise = width < 0.05
    within, most = system.bounds
    solved = milp(
        -np.log(np.maximum(near[candidates], 1e-3)),
        constraints=[
            LinearConstraint(rows[precise], sides[precise] - width[precise], sides[precise] + width[precise]),
            LinearConstraint(within[:, candidates], -np.inf, most),  # pyright: ignore[reportArgumentType]
        ],
        integrality=np.ones(len(candidates)),
        bounds=Bounds(np.zeros(len(candidates)), upper[candidates]),  # pyright: ignore[reportArgumentType]
        options={"time_limit": _SECONDS_OF_WHOLE_NUMBERS},
    )
    if solved.x is None:
        return None
    number = np.zeros_like(near)
    number[candidates] = np.rint(solved.x)
    return number


def multipliers_for(
    system: System, counts: Vector, upper: Vector, until: Callable[[], bool]
) -> tuple[np.ndarray, bool]:
    """Return combinations of the equations by which the kernel can prove numbers, and whether these show all of them.

    Where the equations have full rank over the patterns they are solved. Else one combination that is 0 on the patterns
    that occur, and above 0 on all others, shows that the others do not occur, and the equations are solved on those
    that do. Where there is no such combination, linear programs bound single patterns.
    """
    rows, combined, strong = system.rows, system.combined, np.ones(len(system.rows), dtype=bool)
    inverse = np.zeros((0, len(rows)))
    for least in _LEVELS:
        strong = system.weight > least
        rows, combined = system.rows[strong], system.combined[strong]
        inverse, solved_all = _inverse(rows, upper > 0)
        if solved_all:
            return inverse @ combined, True
        excluding = _excludes(rows, counts > 0, upper)
        if excluding is not None:
            inside, _ = _inverse(rows, counts > 0)
            return np.concatenate([excluding[None], inside]) @ combined, True
    return np.concatenate([inverse @ combined, _single_programs(system, strong, counts, upper, until)]), False


def _excludes(rows: Matrix, there: np.ndarray, upper: Vector) -> Vector | None:
    """Return a combination of directions that is 0 where records are and above 0 on all other patterns.

    Of many patterns, those that the last combination excludes least are priced first, and the combination is sought on
    them.
    """
    others = ~there & (upper > 0)
    basis, sizes, _ = np.linalg.svd(rows[:, there], full_matrices=True)
    free = basis[:, int((sizes > 1e-9).sum()) :]
    if not free.shape[1] or not others.any():
        return None
    reached = rows[:, others].T @ free
    hard = np.arange(len(reached))
    if len(reached) > _TOGETHER:
        hard = np.argsort(reached @ reached.mean(0))[:_TOGETHER]
    for _ in range(_PRICINGS):
        y = _positive_combination(reached[hard])
        value = None if y is None else reached @ y
        if y is None or value is None or float(value.min()) > _ABOVE / 2:
            return None if y is None or value is None else free @ y / float(value.min())
        hard = np.union1d(hard, np.argsort(value)[: _TOGETHER // 2])
    return None


def _positive_combination(reached: Float[np.ndarray, "pattern direction"]) -> Vector | None:
    """Return a combination that is about 1 or more on all patterns; None where none is found.

    Found by projections in turn: on what combinations reach, and on what is at least 1.
    """
    space, triangle = np.linalg.qr(reached)
    wanted = np.ones(len(reached))
    for _ in range(_PROJECTIONS):
        value = space @ (space.T @ wanted)
        if float(value.min()) > _ABOVE:
            y = _least_squares(triangle, space.T @ wanted, 1e-9)
            return y if float((reached @ y).min()) > _ABOVE / 2 else None
        # Beyond the nearest point, so that few steps suffice.
        wanted = value + 1.8 * np.maximum(1 - value, 0)
    return None


def _inverse(rows: Matrix, some: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return combinations that give the number of each of some patterns alone, and whether those of all are told."""
    part = rows[:, some]
    if part.shape[1] > _TOGETHER:
        return np.zeros((0, len(rows))), False
    inverse = np.linalg.pinv(part, rcond=1e-9)
    alone = np.abs(inverse @ part - np.eye(part.shape[1])).max(1, initial=0.0) < 1e-6
    return inverse[alone], bool(alone.all())


def _single_programs(
    system: System, strong: np.ndarray, counts: Vector, upper: Vector, until: Callable[[], bool]
) -> np.ndarray:
    """Return combinations that bound single patterns from below, from the duals of linear programs."""
    bounding = [np.zeros((0, len(system.values)))]
    which = np.flatnonzero(counts > 0)
    which = which[np.argsort(-counts[which])][: _SINGLE_PROGRAMS if len(upper) <= _TOGETHER else 0]
    open_patterns = upper > 0
    within, most = system.bounds
    # Directions that are left out have duals of 0.
    rows, sides = system.rows * strong[:, None], system.sides * strong
    for p in which:
        if until():
            break
        cost = np.zeros(int(open_patterns.sum()))
        cost[int(open_patterns[:p].sum())] = 1.0
        solved = linprog(
            cost, A_ub=within[:, open_patterns], b_ub=most, A_eq=rows[:, open_patterns], b_eq=sides,
            bounds=(0, None), method="highs", options={"time_limit": 1.0},
        )  # fmt: skip
        if solved.status == 0:
            bounding.append(system.multipliers(solved))
    return np.concatenate(bounding)


def branched(
    system: System, counts: Vector, low: Vector, high: Vector, until: Callable[[], bool]
) -> tuple[kernel.Split, ...]:
    """Return splits that prove numbers between their bounds, by integer programming: branches on linear programs.

    That a pattern has more records than it was found to have, or fewer, is refuted in every branch. Where a branch has
    other whole numbers with the sums, these show that the patterns they differ in cannot be proved.
    """
    splits, low, high = [], low.copy(), high.copy()
    others = np.zeros((0, len(counts)))
    nothing = torch.zeros((0, len(system.values)), dtype=torch.float64)
    for p in np.flatnonzero(low < high):
        for more in (True, False):
            least, most = low.copy(), high.copy()
            if more:
                least[p] = counts[p] + 1
            else:
                most[p] = counts[p] - 1
            shown = ((others[:, p] >= least[p]) & (others[:, p] <= most[p])).any()
            if least[p] > most[p] or shown or until():
                continue
            refuted, other = _refuted(system, least, most, [_BRANCHES], until)
            others = others if other is None else np.concatenate([others, other[None]])
            if refuted is None:
                continue
            if more:
                splits.append(kernel.Split(int(p), counts[p], nothing, refuted))
                high[p] = counts[p]
            else:
                splits.append(kernel.Split(int(p), counts[p] - 1, refuted, nothing))
                low[p] = counts[p]
    return tuple(splits)


def _refuted(
    system: System, low: Vector, high: Vector, left: list[int], until: Callable[[], bool]
) -> tuple[kernel.Split | torch.Tensor | None, Vector | None]:
    """Return what proves that no whole numbers between bounds have the sums, or such numbers; None for neither.

    A linear program finds the least total error; its dual is the proof where that is above 0.
    """
    left[0] -= 1
    if left[0] < 0 or until():
        return None, None
    count, width = len(low), len(system.values) ** 0.5 / system.weight
    eye = np.eye(len(system.rows))
    off = np.stack([-width, width], axis=1)
    within, most = system.bounds
    zero = np.zeros((len(within), len(eye)))
    over = -np.ones((len(within), 1))
    free = np.tile([0.0, np.inf], (2 * len(eye) + 1, 1))
    column = np.zeros((len(eye), 1))
    solved = linprog(
        np.concatenate([np.zeros(count + len(eye)), np.ones(2 * len(eye) + 1)]),
        A_ub=np.concatenate([within, zero, zero, zero, over], axis=1), b_ub=most,
        A_eq=np.concatenate([system.rows, eye, eye, -eye, column], axis=1), b_eq=system.sides,
        bounds=np.concatenate([np.stack([low, high], axis=1), off, free]), method="highs",
    )  # fmt: skip
    if solved.status != 0:
        return None, None
    if solved.fun > 1e-6:
        return torch.from_numpy(system.multipliers(solved)), None
    number = solved.x[:count]
    apart = np.abs(number - np.rint(number))
    if apart.max() < 1e-6:
        whole_numbers = np.rint(number)
        return None, whole_numbers if system.fits(whole_numbers) else None
    at = int(apart.argmax())
    below, above = high.copy(), low.copy()
    below[at], above[at] = np.floor(number[at]), np.ceil(number[at])
    first, other = _refuted(system, low, below, left, until)
    if first is None:
        return None, other
    second, other = _refuted(system, above, high, left, until)
    return (None if second is None else kernel.Split(at, float(below[at]), first, second)), other


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
    system = System(sums.matrix.numpy(), sums.values.numpy(), sums.slack.numpy(), bool(sent.summaries))
    late = lambda: time.process_time() - begun > seconds  # noqa: E731
    expected = likeliest(sent, patterns.numpy(), prior)
    numbers = without_negatives(system, upper, expected, late)
    counts, by = whole(system, numbers, upper, sent.records)
    fits = system.fits(counts)
    witness = counts if fits else np.zeros(0)
    provable = sent.defense == "none"
    proofs, settled = np.zeros((0, len(sums.values))), not provable
    if fits and provable:
        proofs, settled = multipliers_for(system, counts, upper, late)
    splits: tuple[kernel.Split, ...] = ()
    if fits and not settled and provable and system.rows.size <= _BRANCHED:
        _, low, high = kernel.bounds(sent, torch.from_numpy(proofs), torch.from_numpy(witness))
        splits = branched(system, witness, low.numpy(), high.numpy(), late)
    if not settled and provable and len(patterns) <= _TOGETHER:
        # Many numbers have the sums: those near the likeliest table are the better guess.
        near = toward(system, expected, upper)
        counts, by = to_total(near, sent.records, upper).astype(float), "near the likeliest table"
        fits = system.fits(counts)
        witness = counts if fits else witness
    return SolvedCounts(patterns.numpy(), counts, fits, proofs, witness, system.rank, by, splits)


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
    if count <= _TOGETHER:
        return
    begun = time.process_time()
    rows = kernel.equations(sent, patterns[:: max(1, count // _SAMPLE)]).matrix.numpy()
    _ = rows @ rows.T
    forecast = _TIMES * (time.process_time() - begun) * count / rows.shape[1]
    if forecast > seconds:
        raise kernel.RefusedError(
            f"{count:,} patterns in {rows.shape[0]:,} sums need about {forecast:,.0f} s, and {seconds:g} s were given"
        )
