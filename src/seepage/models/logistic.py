"""Multinomial logistic regression that changes prior chances only as far as left-out rows support it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

# Weights of the squared coefficients beside the sum of the rows' losses, from the strongest to the weakest.
_PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 2.0)
_FOLDS = 4
# Rows below which nothing is learned, and steps of a fit.
_FEWEST, _STEPS = 12, 60
# Largest standardised input: beyond what was seen, a straight line is not trusted.
_LARGEST = 5.0
_SMALLEST_SPREAD = 1e-3
# Largest number of coefficients that Newton's method fits; gain of a row, in nats, below which steps end; and least
# share of a step.
_NEWTON, _GAIN, _LEAST_SHARE = 150, 1e-5, 1e-3


@dataclass(frozen=True)
class Logistic:
    """Scores that are linear in the standardised inputs and are added to prior log-chances."""

    center: Float[Tensor, " _input"]
    spread: Float[Tensor, " _input"]
    weight: Float[Tensor, "_input _value"]
    bias: Float[Tensor, " _value"]

    @classmethod
    def none(cls, inputs: int, values: int) -> Logistic:
        """Return scores that are zero."""
        zeros, ones = (make(inputs, dtype=torch.float64) for make in (torch.zeros, torch.ones))
        return cls(zeros, ones, zeros[:, None].expand(-1, values), torch.zeros(values, dtype=torch.float64))

    def scores(self, inputs: Float[Tensor, "*some _input"], first: int = 0) -> Float[Tensor, "*some _value"]:
        """Return the scores without the bias, so that those of several groups of inputs add up."""
        some = slice(first, first + inputs.shape[-1])
        scaled = (inputs.double() - self.center[some]) / self.spread[some]
        return scaled.clamp(-_LARGEST, _LARGEST) @ self.weight[some]

    def log_chances(
        self, inputs: Float[Tensor, "row _input"], before: Float[Tensor, "*row _value"]
    ) -> Float[Tensor, "row _value"]:
        """Return the log-chances of each value, from prior ones of each row or the same for all."""
        return (before + self.scores(inputs) + self.bias).log_softmax(1)


@dataclass(frozen=True)
class Shrunk:
    """Result of a regression: scores to add to the prior log-chances, and log-chances of each row without it."""

    logistic: Logistic
    left_out: Float[Tensor, "row _value"]


def shrunk(
    inputs: Float[Tensor, "row _input"], codes: Int[Tensor, " row"], before: Float[Tensor, "row _value"]
) -> Shrunk:
    """Fit a multinomial logistic regression that starts from prior chances.

    The penalty is that with the largest likelihood of rows that are left out, in four folds. Where none adds to that by
    more than its standard error, the prior chances remain as they are.
    """
    rows, values = before.shape
    nothing = Shrunk(Logistic.none(inputs.shape[1], values), before)
    if rows < _FEWEST or not inputs.shape[1]:
        return nothing
    own = before.gather(1, codes[:, None])[:, 0]
    fold = folds(rows)
    starts: list[Logistic | None] = [None] * _FOLDS
    best, chosen, likelihood = before, math.inf, own
    for penalty in _PENALTIES:
        left_out = torch.empty_like(before)
        for k in range(_FOLDS):
            train, out = fold != k, fold == k
            fit = _fitted(inputs[train], codes[train], before[train], penalty, starts[k])
            starts[k] = fit
            left_out[out] = fit.log_chances(inputs[out], before[out])
        reached = left_out.gather(1, codes[:, None])[:, 0]
        if reached.mean() <= likelihood.mean():
            break
        best, chosen, likelihood = left_out, penalty, reached
    if not gains(likelihood - own):
        return nothing
    return Shrunk(_fitted(inputs, codes, before, chosen, None), best)


def folds(rows: int) -> Int[Tensor, " row"]:
    """Return the fold of each row: rows that follow each other are in different ones."""
    return torch.arange(rows) % _FOLDS


def gains(differences: Float[Tensor, " row"]) -> bool:
    """Return whether the mean of differences is positive by more than its standard error."""
    return bool(differences.mean() > differences.std() / math.sqrt(len(differences)))


def _fitted(inputs: Tensor, codes: Tensor, before: Tensor, penalty: float, start: Logistic | None) -> Logistic:
    inputs = inputs.double()
    center, spread = inputs.mean(0), inputs.std(0).clamp(min=_SMALLEST_SPREAD)
    scaled = ((inputs - center) / spread).clamp(-_LARGEST, _LARGEST)
    initial = start or Logistic.none(inputs.shape[1], before.shape[1])
    design = torch.cat([scaled, torch.ones_like(scaled[:, :1])], dim=1)
    coefficients = torch.cat([initial.weight, initial.bias[None]])
    fit = _by_newton if coefficients.numel() <= _NEWTON else _by_gradients
    coefficients = fit(design, codes, before, penalty, coefficients)
    return Logistic(center, spread, coefficients[:-1], coefficients[-1])


def _by_newton(design: Tensor, codes: Tensor, before: Tensor, penalty: float, coefficients: Tensor) -> Tensor:
    """Return coefficients by Newton's method, for few of them; steps that do not help are halved."""
    wanted, size = functional.one_hot(codes, before.shape[1]).double(), coefficients.numel()
    eye = torch.eye(before.shape[1], dtype=torch.float64)

    def loss(at: Tensor) -> float:
        fit = functional.cross_entropy(before + design @ at, codes, reduction="sum")
        return float(fit + penalty * at.square().sum())

    reached = loss(coefficients)
    for _ in range(_STEPS):
        chances = (before + design @ coefficients).softmax(1)
        slope = design.T @ (chances - wanted) + 2 * penalty * coefficients
        each = (design[:, :, None] * chances[:, None]).flatten(1)
        same = torch.einsum("vab,vw->avbw", design.T @ (design * chances.T[..., None]), eye).reshape(size, size)
        hessian = same - each.T @ each + 2 * penalty * torch.eye(size, dtype=torch.float64)
        step = torch.linalg.solve(hessian, slope.flatten()).view_as(coefficients)
        share, before_step = 1.0, reached
        while (reached := loss(coefficients - share * step)) > before_step and share > _LEAST_SHARE:
            share /= 2
        coefficients = coefficients - share * step
        if before_step - reached < _GAIN * len(codes):
            break
    return coefficients


def _by_gradients(design: Tensor, codes: Tensor, before: Tensor, penalty: float, coefficients: Tensor) -> Tensor:
    coefficients = coefficients.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS(
        [coefficients], max_iter=_STEPS, tolerance_change=_GAIN, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimiser.zero_grad()
        loss = functional.cross_entropy(before + design @ coefficients, codes, reduction="sum")
        loss = (loss + penalty * coefficients.square().sum()) / len(codes)
        loss.backward()
        return float(loss.detach())

    optimiser.step(closure)
    return coefficients.detach()
