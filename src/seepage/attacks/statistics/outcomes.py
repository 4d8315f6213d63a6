"""Outcomes of patterns whose numbers of records are known, from the equations in which outcomes are."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import lsq_linear

from seepage import kernel
from seepage.attacks.statistics.solving import SolvedCounts
from seepage.solve.directions import OrthogonalEquations
from seepage.solve.programs import cheapest
from seepage.solve.remainders import to_total
from seepage.solve.whole_numbers import WholeNumbers
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.statistics import NewtonMessage, totals_of

# Time of integer programming, weight of the model beside the equations, and the most unknown numbers.
_SECONDS, _PRIOR, _MOST = 3.0, 1e-4, 3_000


def outcomes_of(message: NewtonMessage, schema: Schema, solved: SolvedCounts) -> np.ndarray:
    """Return a code of the outcome for each record, in the order of the patterns.

    Numbers of each pattern with each outcome solve the equations of the scores, deviances and dispersions, and of a
    first step from the outcomes. What these leave open is taken from the fitted model: nearest whole numbers to its
    chances. With a canonical link, and coefficients of zero at first, these are as many equations as coefficients,
    whatever the number of iterations.
    """
    target = schema.target
    assert isinstance(target, Discrete)
    there = np.flatnonzero(solved.counts > 0)
    counts, width = solved.counts[there], target.width
    sent = totals_of(message, schema, labels=True)
    patterns = np.repeat(solved.patterns[there], width, axis=0)
    outcome = np.tile(np.arange(width), len(there))
    whole = torch.from_numpy(np.concatenate([patterns, outcome[:, None]], axis=1))
    chances = _chances(sent, whole).reshape(-1, width)
    expected = (chances * counts[:, None]).ravel()
    if not solved.fits or len(expected) > _MOST:
        return _dealt(expected.reshape(-1, width), counts)
    system_of_sums = kernel.equations(sent, whole)
    of_patterns = np.kron(np.eye(len(there)), np.ones(width))
    exact = np.full(len(there), 1e-9)
    system = WholeNumbers(
        np.concatenate([system_of_sums.matrix.numpy(), of_patterns]),
        np.concatenate([system_of_sums.values.numpy(), counts]),
        np.concatenate([np.maximum(system_of_sums.slack.numpy(), 1e-9), exact]),
        np.zeros(len(expected)),
        np.repeat(counts, width),
    )
    return _dealt(_whole(OrthogonalEquations(system), expected).reshape(-1, width), counts)


def _chances(sent: kernel.Totals, patterns: torch.Tensor) -> np.ndarray:
    """Return the chance of each outcome given the columns, by the coefficients of the last step."""
    assert sent.labels is not None
    labels = torch.tensor(sent.labels, dtype=torch.float64)
    last = next((s.coefficients for s in reversed(sent.steps) if s.coefficients is not None), None)
    if last is None:
        return np.full(len(patterns), 1 / len(labels))
    rows = kernel.design(sent, patterns)
    eta = rows @ torch.tensor(last, dtype=torch.float64)
    value = labels[patterns[:, -1]]
    if sent.family == "binomial":
        log = value * torch.nn.functional.logsigmoid(eta) + (1 - value) * torch.nn.functional.logsigmoid(-eta)
    elif sent.family == "poisson":
        log = value * eta - eta.exp() - torch.lgamma(value + 1)
    else:
        log = -(value - eta).square() / 2
    chance = log.reshape(-1, len(labels)).softmax(1)
    return chance.flatten().numpy()


def _whole(directions: OrthogonalEquations, expected: np.ndarray) -> np.ndarray:
    """Return whole numbers that have the sums, near those that are expected and have them."""
    system, weight = directions.system, np.minimum(directions.weight, 1e4) / 1e4
    matrix = np.concatenate([directions.rows * weight[:, None], _PRIOR * np.eye(len(expected))])
    side = np.concatenate([directions.sides * weight, _PRIOR * expected])
    near = lsq_linear(matrix, side, bounds=(0, np.maximum(system.high, 1e-9)), method="bvls", max_iter=200).x
    if system.fits(np.rint(near)):
        return np.rint(near)
    width = 1e-5 + len(system.values) ** 0.5 / directions.weight
    precise = width < 0.05
    rows, sides, width = directions.rows[precise], directions.sides[precise], width[precise]
    options = {"time_limit": _SECONDS, "mip_rel_gap": 0.05}
    limits = [(rows, sides - width, sides + width)]
    solved = cheapest(np.zeros(len(near)), system.high, limits, [(np.eye(len(near)), near)], options)
    return near if solved is None else solved


def _dealt(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return outcomes of the records of each pattern, whole numbers of each by largest remainders."""
    dealt = [to_total(shares, int(count)) for shares, count in zip(numbers, counts, strict=True)]
    codes = [np.repeat(np.arange(len(repeats)), repeats) for repeats in dealt]
    return np.concatenate(codes) if codes else np.zeros(0, dtype=int)
