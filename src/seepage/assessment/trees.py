"""Scores of guesses on trees without records: counts of leaves, hidden sums, values without rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped

from seepage.assessment.measurement import Measurement
from seepage.wire.trees import TreesGuess

# Hidden sums count as right within this share of their node's parent, as it separates the sums of children.
HESSIAN_TOLERANCE = 0.01


@dataclass(frozen=True)
class TreesSecret:
    """Secret of a client's trees: rows of each class in every leaf, and numbers of each numeric column.

    ``hessians`` are the sums of second derivatives of every node, ``parents`` those of its parent, a root's own.
    """

    leaves: tuple[Float[np.ndarray, "_leaf _class"], ...]
    hessians: tuple[Float[np.ndarray, " _node"], ...]
    parents: tuple[Float[np.ndarray, " _node"], ...]
    values: Mapping[str, Float[np.ndarray, " _record"]]


def measure_trees(secrets: Sequence[TreesSecret], guess: TreesGuess) -> list[Measurement]:
    """Return the figures of a guess on trees without records; those that the guess does not have are left out.

    ``leaf_counts`` is the share of leaves whose numbers of rows are exact for every class, in the client's first round;
    ``hidden_sums`` the share of nodes below roots whose sum is right within a hundredth of the parent's; ``values`` the
    share of the client's numbers whose value is among those that the attack lists; ``values_right`` the share of listed
    values that the client holds. Values come without rows.
    """
    rates = []
    if guess.leaves is not None:
        pairs = list(zip(secrets, guess.leaves, strict=True))
        rates.append(_rate("leaf_counts", None, [_leaves(secret, leaves) for secret, leaves in pairs]))
    if guess.hessians is not None:
        pairs = list(zip(secrets, guess.hessians, strict=True))
        rates.append(_rate("hidden_sums", None, [_sums(secret, sums) for secret, sums in pairs]))
    if guess.values is not None:
        names = [name for name in secrets[0].values if all(name in values for values in guess.values)]
        for name in names:
            both = [(s.values[name], v[name]) for s, v in zip(secrets, guess.values, strict=True)]
            rates.append(_rate("values", name, [_share(true, listed) for true, listed in both]))
            rates.append(_rate("values_right", name, [_share(listed, true) for true, listed in both]))
        for metric in ("values", "values_right"):
            columns = [m.values for m in rates if m.metric == metric]
            if columns:
                rates.append(_rate(metric, None, torch.stack(columns).nanmean(0).tolist()))
    return rates


def _rate(metric: str, column: str | None, values: Sequence[float]) -> Measurement:
    return Measurement(metric, column, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0))


def _leaves(secret: TreesSecret, guessed: Sequence[np.ndarray]) -> float:
    # An attack may have no guess of later trees.
    pairs = list(zip(secret.leaves, guessed, strict=False))
    right = [(np.rint(g) == t).all(axis=1) for t, g in pairs if g.shape == t.shape]
    return float(np.concatenate(right).mean()) if right else float("nan")


def _sums(secret: TreesSecret, guessed: Sequence[np.ndarray]) -> float:
    right = []
    for true, parent, sums in zip(secret.hessians, secret.parents, guessed, strict=True):
        below = np.arange(len(true)) > 0
        right.append((np.abs(sums - true) <= HESSIAN_TOLERANCE * parent)[below])
    together = np.concatenate(right) if right else np.zeros(0)
    return float(together.mean()) if len(together) else float("nan")


def _share(cells: Shaped[np.ndarray, " cell"], among: Shaped[np.ndarray, " value"]) -> float:
    if not len(cells):
        return float("nan")
    return float(np.isin(cells.astype(np.float32), among.astype(np.float32)).mean())
