"""Numbers of records of each pattern from sums that noise or rounding blurs: the likeliest ones.

Numbers x of patterns are independent and of Poisson distributions around the expected e. The sums v that were sent are
normal around ``M x``, each in units of its own standard deviation. But for Stirling's formula for x!, the likeliest
numbers are those with the

    least  sum x log(x / e) - x  +  |M x - v|^2 / 2.

Where its derivative is 0, ``log(x / e) = -M^T (M x - v)``. With ``y = M x - v``, one number for each sum,

    x = e exp(-M^T y)   and   y = M x(y) - v.

The right equation is the zero of the gradient ``v - M x(y) + y`` of ``sum x(y) + y v + |y|^2 / 2``. That is convex, as
its second derivative ``M diag(x) M^T + 1`` has no eigenvalue below 1, and has as many unknowns as there are sums, where
there may be thousands of patterns. Newton's method, with steps that are halved until they go down enough, finds its
only minimum.

A sum that was rounded to steps of r is evenly spread over r, whose deviation is ``r / sqrt(12)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

from seepage import kernel
from seepage.baselines.statistics import fitted, independent, published
from seepage.solve.directions import Matrix, Vector
from seepage.solve.remainders import to_total
from seepage.tabular.schema import Discrete
from seepage.wire.statistics import NewtonMessage, NewtonStep, StatisticsKnowledge, TablesMessage, totals_of

# Patterns, beyond which nothing is estimated; outcomes are left out where patterns with them are more.
_MOST = 2_500
# Tables are a few hundred equations.
_MOST_IN_TABLES = 20_000
# Noise beyond which sums are told from roundings, in standard deviations.
_OFF = 6.0
_STEPS, _HALVINGS = 60, 30
# Deviation of sums that have no noise, so that equations have units.
_EXACT = 1e-5
# Records that each pattern is expected to have at least.
_FEWEST = 1e-6


@dataclass(frozen=True)
class BlurredRecords:
    """Records as they are likeliest: codes (record, column), and outcomes (record), NaN where they were left out."""

    cells: Float[np.ndarray, "record column"]
    labels: Float[np.ndarray, " record"]
    patterns: int


def estimate(message: NewtonMessage, knowledge: StatisticsKnowledge) -> BlurredRecords:
    """Return records that have the blurred sums as nearly as noise and rounding suggest, and are else likeliest.

    Source: our own. Numbers of patterns have independent Poisson distributions around what the published cross tables
    expect, or the public marginals where noise leaves none; sums have normal ones around what the numbers add up to.
    The mode is found by Newton's method on the dual, then made whole.

    Raises:
        kernel.RefusedError: there are too many patterns, or no sums.
    """
    schema, target = knowledge.schema, knowledge.schema.target
    off = _OFF * max(message.noise)
    bare = replace(message, noise=(0.0, 0.0))
    patterns, _ = kernel.patterns_of(totals_of(bare, schema, off=off))
    if len(patterns) > _MOST:
        raise kernel.RefusedError(f"{len(patterns):,} patterns are too many for blurred sums")
    several = target.width if isinstance(target, Discrete) and target.width * len(patterns) <= _MOST else 1
    if several > 1:
        patterns, _ = kernel.patterns_of(totals_of(bare, schema, labels=True, off=off))
    matrix, values = _in_deviations(message, knowledge, patterns, several > 1, off)
    numbers = poisson_mode(matrix, values, _expected(message, knowledge, patterns.numpy(), several))
    return _records(numbers, patterns.numpy(), message.levels, message.records)


def estimate_changed(message: TablesMessage, knowledge: StatisticsKnowledge) -> BlurredRecords:
    """Return the records that rounded tables of two runs most likely differ by, as ``estimate`` does.

    Raises:
        kernel.RefusedError: there are too many patterns.
    """
    sent = message.totals(knowledge.schema, labels=True)
    patterns, _ = kernel.patterns_of(sent)
    if len(patterns) > _MOST_IN_TABLES:
        raise kernel.RefusedError(f"{len(patterns):,} patterns are too many for rounded tables")
    sums = kernel.equations(sent, patterns)
    # Whatever a number was before it was rounded is as likely.
    deviation = np.maximum(sums.slack.numpy() / 3**0.5, _EXACT)
    shares = np.maximum(knowledge.statistics.target.probabilities.numpy(), _FEWEST)
    expected = _expected(message, knowledge, patterns.numpy(), len(shares), shares)
    numbers = poisson_mode(sums.matrix.numpy() / deviation[:, None], sums.values.numpy() / deviation, expected)
    return _records(numbers, patterns.numpy(), message.levels, message.changed)


def _records(
    numbers: Vector, patterns: Int[np.ndarray, "pattern _column"], levels: Sequence[Sequence[int]], total: int
) -> BlurredRecords:
    """Return whole records of patterns in ascending order, which have an outcome as a further column or none."""
    places, repeats = np.unique(patterns[:, : len(levels)], axis=0, return_counts=True)
    ends = np.cumsum(repeats)[:-1]
    by_pattern = np.split(numbers, ends)
    whole = to_total(np.array([part.sum() for part in by_pattern]), total)
    rows = np.repeat(places, whole, axis=0)
    codes = [np.array(own_levels)[rows[:, i]] for i, own_levels in enumerate(levels)]
    outcomes = np.full(len(rows), np.nan)
    if patterns.shape[1] > len(levels):
        shared = np.concatenate([to_total(part, int(count)) for part, count in zip(by_pattern, whole, strict=True)])
        outcomes = np.repeat(patterns[:, -1], shared).astype(float)
    return BlurredRecords(np.stack(codes, axis=1).astype(float), outcomes, len(places))


def _in_deviations(
    message: NewtonMessage,
    knowledge: StatisticsKnowledge,
    patterns: Int[torch.Tensor, "pattern column"],
    labels: bool,
    off: float,
) -> tuple[Matrix, Vector]:
    """Return the equations of all sums, each in standard deviations of its noise and rounding.

    The score tells of outcomes, and is left out where patterns have none.
    """
    scale = message.records if message.means else 1
    rounding = message.rounded * scale / 12**0.5
    # The number of records is known exactly.
    matrices, values = [np.ones((1, len(patterns))) / _EXACT], [np.array([message.records / _EXACT])]
    for step in message.steps:
        if step.coefficients is None:
            continue
        bare = totals_of(
            replace(message, steps=(_with_score(step),), noise=(0.0, 0.0)), knowledge.schema, labels=labels, off=off
        )
        size = float(np.linalg.norm(step.coefficients))
        for name, noise, spread in (
            ("information", message.noise[0], 1.0),
            ("score", message.noise[1], 1.0 if step.score is not None else np.hypot(1.0, size)),
        ):
            [sent] = bare.steps
            part = kernel.Step(sent.coefficients)._replace(**{name: getattr(sent, name)})
            if getattr(part, name) is None or (name == "score" and not labels):
                continue
            sums = kernel.equations(bare._replace(steps=(part,)), patterns)
            deviation = max(float(np.hypot(noise, rounding * spread)), _EXACT)
            matrices.append(sums.matrix.numpy()[1:] / deviation)
            values.append(sums.values.numpy()[1:] / deviation)
    if len(matrices) == 1:
        raise kernel.RefusedError("the site sends no sums at known coefficients")
    return np.concatenate(matrices), np.concatenate(values)


def _with_score(step: NewtonStep) -> NewtonStep:
    """Return a step with its score, which follows from the right side of the normal equations."""
    if step.score is not None or step.right is None or step.coefficients is None:
        return step
    return replace(step, score=step.right - step.information @ step.coefficients)


def _expected(
    message: NewtonMessage | TablesMessage,
    knowledge: StatisticsKnowledge,
    patterns: Int[np.ndarray, "pattern column"],
    several: int,
    of_outcomes: Vector | None = None,
) -> Vector:
    """Return the numbers of records of each pattern by the published cross tables, or else the public marginals."""
    places, which = np.unique(patterns[:, : len(message.levels)], axis=0, return_inverse=True)
    tables = published(message, knowledge) or independent(message, knowledge)
    total = message.changed if isinstance(message, TablesMessage) else message.records
    numbers = np.maximum(fitted(tables, places, total), _FEWEST)[which]
    if several == 1:
        return numbers
    known = knowledge.label_shares if of_outcomes is None else of_outcomes
    shares = np.full(several, 1 / several) if known is None else np.maximum(known, 1e-6)
    return numbers * (shares / shares.sum())[patterns[:, -1]]


def poisson_mode(matrix: Matrix, values: Vector, expected: Vector) -> Vector:
    """Return the numbers x with the least sum of x log(x / expected) - x and half of |matrix x - values|^2.

    They are expected * exp(-matrix^T y), where y is what the equations are missed by: its own equation, which Newton's
    method solves as the minimum of a convex function.

    Example:
        >>> found = poisson_mode(np.diag([1e3, 0.0]), np.array([7e3, 0.0]), np.array([2.0, 3.0]))
        >>> found.round(2).tolist()
        [7.0, 3.0]
    """
    if len(matrix) > matrix.shape[1]:
        # What lies outside of the patterns' space changes nothing.
        rotation, matrix = np.linalg.qr(matrix)
        values = rotation.T @ values
    missed = np.zeros(len(values))

    def numbers(multipliers: Vector) -> Vector:
        return expected * np.exp(np.clip(-(multipliers @ matrix), -50.0, 50.0))

    def height(multipliers: Vector) -> float:
        return float(numbers(multipliers).sum() + multipliers @ values + multipliers @ multipliers / 2)

    for _ in range(_STEPS):
        now = numbers(missed)
        slope = values - matrix @ now + missed
        curve = (matrix * now[None]) @ matrix.T
        curve[np.diag_indices_from(curve)] += 1.0
        try:
            step = cho_solve(cho_factor(curve), -slope)
        except (np.linalg.LinAlgError, ValueError):
            # Sums that no numbers have even nearly lead beyond what double precision solves.
            break
        gain, size, start = float(slope @ step), 1.0, height(missed)
        if -gain < 1e-9 * max(1.0, abs(start)):
            break
        for _ in range(_HALVINGS):
            if height(missed + size * step) <= start + 0.1 * size * gain:
                break
            size /= 2
        else:
            break
        missed = missed + size * step
    return numbers(missed)
