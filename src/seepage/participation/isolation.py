"""Clients, and small groups of them, whose values follow from the sums of several rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, islice

import numpy as np

from seepage.errors import BadInputError
from seepage.participation.reading import Participation
from seepage.participation.row_space import Integers, RowSpace, reduced
from seepage.text import how_many

BELOW = 5
"""Number of clients below which a group counts as small where nothing else is said."""

MOST_COMPARED = 40_000_000
"""Number of vectors that a search compares at most where nothing else is said: some seconds."""
# Groups of a size after which a search ends.
_MOST_GROUPS = 1_000
# Digits, of 31 bits each, of the fractions that are computed for all groups; longer ones for so many clients alone.
_SHORT, _LONG_ONES = 8, 10
# Numbers of a block of vectors that are compared at a time.
_BLOCK = 4_000_000


@dataclass(frozen=True)
class IsolatedGroup:
    """Clients of which a combination of the rounds' sums shows a weighted sum, and nothing of any other client.

    Attributes:
        clients: the clients, in the order of the table.
        weights: the weight of each client in what is learnt, integers without a common divisor. All 1: the plain sum.
        combination: rounds with their coefficients; no other rounds are needed.
    """

    clients: tuple[str, ...]
    weights: tuple[int, ...]
    combination: tuple[tuple[str, Fraction], ...]

    @property
    def since(self) -> str:
        """The round that completes the combination; none with earlier rounds alone exists."""
        return self.combination[-1][0]

    @property
    def noise(self) -> float:
        """Standard deviation of the result where the sum of each round has independent noise of deviation 1."""
        return math.sqrt(sum(float(coefficient) ** 2 for _, coefficient in self.combination))


@dataclass(frozen=True)
class Isolation:
    """What the sums of rounds isolate.

    Attributes:
        rounds, clients: their numbers; clients whose values are known are not among them.
        rank: number of rounds that no combination of earlier ones repeats.
        below: number of clients below which a group counts as small.
        groups: the smallest groups that are isolated, each without a smaller one inside it; the smallest first.
        further: number of groups that were found modulo a prime, and whose coefficients are too long to be written.
        searched: number of clients up to which every group was searched.
        inseparable: groups of clients that were in the same rounds, so that no sums tell them apart.
    """

    rounds: int
    clients: int
    rank: int
    below: int
    groups: tuple[IsolatedGroup, ...]
    further: int
    searched: int
    inseparable: tuple[tuple[str, ...], ...]

    @property
    def complete(self) -> bool:
        """Whether all groups of fewer than ``below`` clients were searched."""
        return self.searched == self.below - 1

    def sentences(self, listed: int | None = None) -> list[str]:
        """Return what follows, what was searched and how far it holds, where the first groups are listed."""
        return [*self._what_follows(listed), *self._how_far()]

    def _what_follows(self, shown: int | None) -> list[str]:
        alone = sum(len(group.clients) == 1 for group in self.groups)
        few = f"fewer than {how_many(self.below, 'client')}"
        words = []
        if self.groups or self.further:
            groups = len(self.groups) - alone
            words.append(
                f"Isolated: {how_many(alone, 'client')} and {how_many(groups, 'further group')} of {few}. Whoever has "
                "the rounds' sums computes their values."
            )
        elif self.complete:
            words.append(
                f"No client and no group of {few} is isolated: every weighted sum that the rounds give has "
                f"{self.below} or more clients in it, or none."
            )
        else:
            words.append(f"No client is isolated, and no group of up to {self.searched}.")
        if shown is not None and len(self.groups) > shown:
            words.append(f"{len(self.groups) - shown} more are not listed here; --json has all.")
        if self.further:
            words.append(
                f"{self.further} more were found modulo a prime, and their coefficients, of hundreds of digits, were "
                "not multiplied out."
            )
        if not self.complete:
            words.append(
                f"Groups of more than {how_many(self.searched, 'client')} were not all searched (--most-compared); of "
                "the others nothing is known."
            )
        if self.inseparable:
            largest = max(self.inseparable, key=len)
            words.append(
                f"{how_many(len(self.inseparable), 'group')} of clients were always in the same rounds, the largest "
                f"of {len(largest)}; no sums tell them apart."
            )
        return words

    def _how_far(self) -> list[str]:
        return [
            "Exact where each round sums the same quantity of each client, such as a statistic that is run again: "
            "coefficients are multiplied out in integers. Noise on the sums grows by the factor in the last column.",
            "Updates at different models change from round to round; a combination of them is the client's update up "
            "to how much the updates of all its rounds differ between those models. There, nothing isolated shows "
            "nothing.",
        ]


def isolated(
    participation: Participation, below: int = BELOW, known: Sequence[str] = (), most_compared: int = MOST_COMPARED
) -> Isolation:
    """Return the clients and small groups that the sums of rounds isolate.

    A combination of rounds' sums is free of all clients outside a group exactly where a vector of the row space of the
    participation matrix is 0 outside of it. This is exact for sums of the same quantity, such as a statistic that is
    run again. Updates at different models change from round to round, so that there a combination is an approximation.

    Args:
        participation: who took part in which round.
        below: number of clients below which a group counts as small.
        known: clients whose values the curious party knows anyway, such as those that collude.
        most_compared: number of vectors that the search compares at most; larger groups are left out beyond it.

    Raises:
        BadInputError: ``below`` is not positive, or a known client took part in nothing.

    Example:
        >>> table = Participation(("monday", "friday"), ("a", "b", "c"), [[1, 1, 0], [1, 1, 1]])
        >>> [group] = isolated(table, below=2).groups
        >>> group.clients, [(of, str(share)) for of, share in group.combination]
        (('c',), [('monday', '-1'), ('friday', '1')])
    """
    if below < 2:
        raise BadInputError(f"below is the number of clients of a group that is large enough, at least 2, got {below}.")
    participation = participation.without(known)
    together = _together(participation)
    matrix = participation.matrix[:, [members[0] for members in together]]
    space = RowSpace(matrix)
    sizes = np.array([len(members) for members in together])
    candidates: list[tuple[int, ...]] = []
    searched, compared = 0, 0
    small = np.flatnonzero(sizes < below)
    for size in range(1, below):
        compared += _cost(len(small), size)
        if compared > most_compared:
            break
        of_size = list(islice(_dependent(space, small, size), _MOST_GROUPS + 1))
        candidates += [group for group in of_size[:_MOST_GROUPS] if sizes[list(group)].sum() < below]
        if len(of_size) > _MOST_GROUPS:
            break
        searched = size
    candidates.sort(key=lambda members: (int(sizes[list(members)].sum()), members))
    groups = tuple(_isolated_groups(participation, space, together, candidates))
    return Isolation(
        len(participation.rounds),
        len(participation.clients),
        space.rank,
        below,
        groups,
        len(candidates) - len(groups),
        searched,
        tuple(tuple(participation.clients[i] for i in members) for members in together if len(members) > 1),
    )


def _together(participation: Participation) -> list[list[int]]:
    """Return the clients by the rounds that they took part in; those of no round are left out."""
    classes: dict[bytes, list[int]] = {}
    for i, column in enumerate(participation.matrix.T):
        if column.any():
            classes.setdefault(column.tobytes(), []).append(i)
    return list(classes.values())


def _cost(clients: int, size: int) -> int:
    """Return the number of vectors that are compared in a search for groups of a size."""
    return clients if size == 1 else clients * math.comb(clients, size - 2)


def _dependent(space: RowSpace, columns: Integers, size: int) -> Iterator[tuple[int, ...]]:
    """Yield the groups of columns on which alone a vector of the row space is not 0, none with a smaller one inside.

    These are the smallest dependent sets of rows of the kernel. A random projection to as many dimensions as the size
    keeps every dependence; what it adds is dropped by the check in all dimensions.
    """
    kernel, prime = space.kernel[columns], space.prime
    if size == 1:
        yield from ((int(column),) for column, row in zip(columns, kernel, strict=True) if not row.any())
        return
    other = np.flatnonzero(kernel.any(axis=1))
    kernel, columns = kernel[other], columns[other]
    projection = np.random.default_rng(size).integers(1, prime, size=(kernel.shape[1], size))
    projected = np.stack([(kernel * column % prime).sum(1) % prime for column in projection.T], axis=1)
    for members in _parallel(projected, size, prime):
        if _smallest(kernel[list(members)], prime):
            yield tuple(int(columns[i]) for i in members)


def _parallel(rows: Integers, size: int, prime: int, first: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield sets of rows that are dependent: a few, and two that are parallel once those are divided out."""
    if size == 2:
        yield from ((int(a), int(b)) for a, b in _same(_ratios(rows[None, first:], prime)[0], first))
        return
    if size > 3:
        for i in range(first, len(rows) - size + 1):
            if rows[i].any():
                divided = _divided(rows, rows[i : i + 1], prime)[0]
                yield from ((i, *others) for others in _parallel(divided, size - 1, prime, i + 1))
        return
    step = max(1, _BLOCK // (3 * len(rows) + 1))
    for start in range(first, len(rows), step):
        block = rows[start : start + step]
        ratios = _ratios(_divided(rows, block, prime), prime)
        for place, values in enumerate(ratios):
            i = start + place
            if block[place].any():
                yield from ((i, int(a), int(b)) for a, b in _same(values[i + 1 :], i + 1))


def _divided(rows: Integers, divisors: Integers, prime: int) -> Integers:
    """Return rows (divisor, row, dimension - 1) modulo each divisor; multiples of it are 0."""
    others = rows[None, :, 1:] * divisors[:, None, :1] % prime
    return (others - rows[None, :, :1] * divisors[:, None, 1:] % prime) % prime


def _ratios(rows: Integers, prime: int) -> Integers:
    """Return the ratio of both numbers of rows (block, row, 2); -1 where both are 0, the prime where the first is."""
    ratios = rows[..., 1] * _inverses(rows[..., 0].ravel(), prime).reshape(rows.shape[:-1]) % prime
    ratios[rows[..., 0] == 0] = prime
    ratios[~rows.any(axis=-1)] = -1
    return ratios


def _inverses(values: Integers, prime: int) -> Integers:
    """Return the inverses modulo a prime, 1 for 0: of products of pairs first, so that one is computed."""
    values = np.where(values == 0, 1, values)
    if len(values) < 2:
        return np.array([pow(int(value), -1, prime) for value in values], dtype=np.int64)
    even = np.append(values, 1) if len(values) % 2 else values
    of_pairs = _inverses(even[::2] * even[1::2] % prime, prime)
    result = np.empty_like(even)
    result[::2], result[1::2] = of_pairs * even[1::2] % prime, of_pairs * even[::2] % prime
    return result[: len(values)]


def _same(values: Integers, offset: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of places with the same value; those of -1 are left out."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    if not (ordered[1:] == ordered[:-1]).any():
        return
    for value in np.unique(ordered[1:][ordered[1:] == ordered[:-1]]):
        if value >= 0:
            yield from combinations(offset + np.sort(order[ordered == value]), 2)


def _smallest(rows: Integers, prime: int) -> bool:
    """Return whether rows are dependent modulo a prime, and no subset of them is."""
    form, pivots = reduced(rows.T, prime)
    return len(pivots) == len(rows) - 1 and bool(form[:, len(rows) - 1].all()) and pivots == [*range(len(rows) - 1)]


def _isolated_groups(
    participation: Participation,
    space: RowSpace,
    together: Sequence[Sequence[int]],
    candidates: Sequence[tuple[int, ...]],
) -> Iterator[IsolatedGroup]:
    """Yield groups of classes of clients with their weights and coefficients as fractions, where they are exact."""
    places = {column: place for place, column in enumerate(space.pivots)}
    pivots = sorted({i for members in candidates for i in members if i in places})
    by_place = space.pivot_combinations([places[i] for i in pivots], _SHORT)
    long_ones = [places[i] for i in pivots if places[i] not in by_place][:_LONG_ONES]
    by_place |= space.pivot_combinations(long_ones)
    rounds_of = {i: by_place[places[i]] for i in pivots if places[i] in by_place}
    rows = space.matrix[space.basis]
    vectors = {i: _combined(of, rows) for i, of in rounds_of.items()}
    for members in candidates:
        inside = [i for i in members if i in places]
        if not all(i in rounds_of for i in inside):
            continue
        outside = np.setdiff1d(np.arange(rows.shape[1]), members)
        shares = _vanishing([[vectors[i][j] for j in outside] for i in inside])
        if shares is None:
            continue
        vector = _combined(shares, [[vectors[i][j] for j in members] for i in inside])
        scale = Fraction(math.lcm(*(x.denominator for x in vector)))
        scale /= math.gcd(*(int(x * scale) for x in vector)) * (1 if vector[0] > 0 else -1)
        weights = {i: int(x * scale) for x, of in zip(vector, members, strict=True) for i in together[of]}
        combination = _combined(shares, [rounds_of[i] for i in inside])
        yield IsolatedGroup(
            tuple(participation.clients[i] for i in sorted(weights)),
            tuple(weights[i] for i in sorted(weights)),
            tuple((participation.rounds[of], x * scale) for of, x in zip(space.basis, combination, strict=True) if x),
        )


def _combined(shares: Sequence[Fraction], rows: Sequence[Sequence[Fraction]] | Integers) -> list[Fraction]:
    """Return a combination of rows in fractions."""
    common = math.lcm(*(share.denominator for share in shares))
    used = [i for i, share in enumerate(shares) if share]
    whole = np.array([shares[i].numerator * (common // shares[i].denominator) for i in used], dtype=object)
    return [Fraction(total) / common for total in whole @ np.asarray(rows).astype(object)[used]]


def _vanishing(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """Return the shares of a combination of rows that is 0; None where there is none, or more than one."""
    beside = [[*row, *(Fraction(int(i == j)) for j in range(len(rows)))] for i, row in enumerate(rows)]
    rank, columns = 0, len(rows[0])
    for column in range(columns):
        lead = next((i for i in range(rank, len(beside)) if beside[i][column]), None)
        if lead is None:
            continue
        beside[rank], beside[lead] = beside[lead], beside[rank]
        for i in range(rank + 1, len(beside)):
            if beside[i][column]:
                share = beside[i][column] / beside[rank][column]
                beside[i] = [x - share * y for x, y in zip(beside[i], beside[rank], strict=True)]
        rank += 1
    return beside[-1][columns:] if rank == len(beside) - 1 else None
