"""The row space of a matrix of 0 and 1 over the rational numbers, exactly.

Elimination is modulo a prime, which is fast. What it finds is then computed as fractions by lifting (Dixon, "Exact
solution of linear equations using p-adic expansions", 1982) and multiplied out in integers, so that no answer rests on
the prime: a prime that divides a minor of the matrix lowers its rank, which the check of the dependent rows shows, and
the next one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# The largest primes below 2 ** 31: a product of two residues fits into 63 bits.
_PRIMES = (2147483647, 2147483629, 2147483587, 2147483579, 2147483563, 2147483549)

Integers = NDArray[np.int64]


class RowSpace:
    """Row space of a matrix of 0 and 1.

    Attributes:
        matrix: the matrix (rows, columns).
        prime: prime modulo which the rank is that over the rationals.
        basis: indices of rows that span all rows; each is the first one that the rows before do not span.
        pivots: columns on which the rows of the basis are invertible.
        kernel: basis of the vectors that all rows are orthogonal to, modulo the prime (columns, dimensions). A vector
            is in the row space exactly where it is orthogonal to these.
    """

    def __init__(self, matrix: NDArray[np.bool_]) -> None:
        self.matrix = matrix.astype(np.int64)
        for prime in _PRIMES:
            self.prime = prime
            self._reduce()
            if self._spans_all():
                return
        raise ArithmeticError("every prime divides a minor of the matrix.")

    @property
    def rank(self) -> int:
        """The rank over the rational numbers."""
        return len(self.basis)

    def _reduce(self) -> None:
        columns = self.matrix.shape[1]
        _, self.basis = reduced(self.matrix.T, self.prime)
        chosen = self.matrix[self.basis]
        beside = np.concatenate([chosen, np.eye(self.rank, dtype=np.int64)], axis=1)
        form, self.pivots = reduced(beside, self.prime)
        free = np.setdiff1d(np.arange(columns), self.pivots)
        self.kernel = np.zeros((columns, len(free)), dtype=np.int64)
        self.kernel[free, np.arange(len(free))] = 1
        self.kernel[self.pivots] = -form[:, free] % self.prime
        self._inverse = form[:, columns:]

    def _spans_all(self) -> bool:
        """Return whether the basis spans all rows over the rationals too."""
        if self.rank == min(self.matrix.shape):
            return True
        left = np.setdiff1d(np.arange(len(self.matrix)), self.basis)
        return all(solutions is not None for solutions in self.combinations(np.unique(self.matrix[left], axis=0)))

    def combinations(self, vectors: Integers) -> list[list[Fraction] | None]:
        """Return how each of some vectors (vector, column) of integers combines the rows of the basis.

        The coefficients are the only ones; None for a vector that is not in the row space.
        """
        chosen = self.matrix[self.basis]
        solutions = self._solutions(vectors[:, self.pivots])
        return [
            of if of is not None and _makes(of, chosen, vector) else None
            for of, vector in zip(solutions, vectors, strict=True)
        ]

    def pivot_combinations(self, places: Sequence[int], longest: int | None = None) -> dict[int, list[Fraction]]:
        """Return how the vector that is 1 on one pivot and 0 on the others combines the rows, for some pivots.

        Those whose fractions need more than ``longest`` digits to the base of the prime are left out.
        """
        solutions = self._solutions(np.eye(self.rank, dtype=np.int64)[list(places)], longest)
        return {place: of for place, of in zip(places, solutions, strict=True) if of is not None}

    def _solutions(self, vectors: Integers, longest: int | None = None) -> list[list[Fraction] | None]:
        """Return the coefficients that make vectors on the pivots (vector, pivot) of the rows of the basis."""
        square = self.matrix[np.ix_(self.basis, self.pivots)]
        solutions: dict[int, list[Fraction]] = {}
        left, residual = np.arange(len(vectors)), vectors
        so_far, modulus, digits = np.zeros(residual.shape, dtype=object), 1, 0
        # It ends, since numerators and denominators are bounded: they are minors of the matrix.
        while len(left) and (longest is None or digits < longest):
            digit = self._times_inverse(residual % self.prime)
            so_far = so_far + digit.astype(object) * modulus
            residual = (residual - digit @ square) // self.prime
            modulus, digits = modulus * self.prime, digits + 1
            if digits & (digits - 1) == 0:
                candidates = {int(i): _fractions(so_far[place], modulus) for place, i in enumerate(left)}
                right = {i: of for i, of in candidates.items() if of is not None and _makes(of, square, vectors[i])}
                solutions |= right
                keep = [place for place, i in enumerate(left) if int(i) not in right]
                left, residual, so_far = left[keep], residual[keep], so_far[keep]
        return [solutions.get(i) for i in range(len(vectors))]

    def _times_inverse(self, residues: Integers) -> Integers:
        # In two halves, so that no sum overflows.
        high, low = self._inverse >> 16, self._inverse & 0xFFFF
        return ((((residues @ high) % self.prime) << 16) + residues @ low) % self.prime


def reduced(matrix: Integers, prime: int) -> tuple[Integers, list[int]]:
    """Return the rows of the reduced echelon form modulo a prime, and the columns of its leading ones."""
    form, pivots = matrix % prime, list[int]()
    for column in range(form.shape[1]):
        rank = len(pivots)
        if rank == len(form):
            break
        below = np.flatnonzero(form[rank:, column])
        if not len(below):
            continue
        row = rank + below[0]
        form[[rank, row]] = form[[row, rank]]
        # Columns before are settled.
        lead = form[rank, column:] * pow(int(form[rank, column]), -1, prime) % prime
        form[rank, column:] = lead
        others = np.flatnonzero(form[:, column])
        others = others[others != rank]
        ends = np.flatnonzero(lead)
        place = np.ix_(others, column + ends)
        form[place] = (form[place] - form[others, column, None] * lead[ends]) % prime
        pivots.append(column)
    return form[: len(pivots)], pivots


def _fractions(residues: Sequence[int], modulus: int) -> list[Fraction] | None:
    """Return the fractions of small numerator and denominator with these residues; None where there are none."""
    bound = math.isqrt(modulus // 2)
    solutions, common = list[Fraction](), 1
    for residue in residues:
        # Denominators mostly divide the one found before.
        value = residue * common % modulus
        value = value - modulus if value > modulus - bound else value
        if abs(value) <= bound:
            solutions.append(Fraction(value, common))
            continue
        numerator, denominator = _small_ratio(value % modulus, modulus, bound)
        if denominator == 0 or abs(denominator) * common > bound:
            return None
        common *= abs(denominator)
        solutions.append(Fraction(numerator, denominator) / (common // abs(denominator)))
    return solutions


def _small_ratio(residue: int, modulus: int, bound: int) -> tuple[int, int]:
    """Return numerator and denominator, the numerator at most the bound (Wang, 1981)."""
    older, newer = (modulus, 0), (residue, 1)
    while abs(newer[0]) > bound:
        share = older[0] // newer[0]
        older, newer = newer, (older[0] - share * newer[0], older[1] - share * newer[1])
    return newer


def _makes(coefficients: Sequence[Fraction], rows: Integers, vector: Integers) -> bool:
    """Return whether coefficients make a vector of the rows, multiplied out in integers."""
    common = math.lcm(*(value.denominator for value in coefficients))
    whole = [value.numerator * (common // value.denominator) for value in coefficients]
    used = [i for i, value in enumerate(whole) if value]
    small = sum(map(abs, whole)) < 2**62 and common * max(1, int(abs(vector).max(initial=0))) < 2**62
    kind = np.int64 if small else object
    product = np.array([whole[i] for i in used], dtype=kind) @ rows[used].astype(kind)
    return bool((product == vector.astype(kind) * common).all())
