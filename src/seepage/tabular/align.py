"""Optimal one-to-one matching of guessed records to true ones: aggregated gradients carry no order of records.

Costs are the cell error of TabLeak (Vero et al., 2023, Eq. 6); the assignment has the least total cost.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema

# Pairs of records compared at once: the few temporaries of this size stay in the processor's cache.
_PAIRS_AT_ONCE = 2**17


def tolerances(schema: Schema) -> Float[Tensor, " column"]:
    """Return how far a guessed cell may lie from the truth and still be right: 0 for discrete columns."""
    return torch.tensor(
        [0.0 if isinstance(column, Discrete) else column.tolerance for column in schema.columns], dtype=torch.float64
    )


def right_cells(
    schema: Schema, guess: Float[Tensor, "... record column"], true: Float[Tensor, "... record column"]
) -> Bool[Tensor, "... record column"]:
    """Return which guessed cells are right, row against row: the same code, or within the tolerance; a NaN never is."""
    _check(schema, guess, true)
    # NaN compares false, so asking for "within" (not for "beyond") counts it as wrong.
    return (guess - true).abs() <= tolerances(schema).to(true.device)


def pairwise_error(
    schema: Schema, guess: Float[Tensor, "... guess column"], true: Float[Tensor, "... true column"]
) -> Float[Tensor, "... guess true"]:
    """Return the share of wrong cells between each guessed and each true record (TabLeak Eq. 6); axes broadcast."""
    _check(schema, guess, true)
    leading = torch.broadcast_shapes(guess.shape[:-2], true.shape[:-2])
    pairs = (guess.shape[-2], true.shape[-2])
    # Columns first: each is then one contiguous outer comparison.
    guess = guess.expand(*leading, *guess.shape[-2:]).flatten(0, -3) if leading else guess[None]
    true = true.expand(*leading, *true.shape[-2:]).flatten(0, -3) if leading else true[None]
    by_column_guess = guess.permute(2, 0, 1).contiguous()
    by_column_true = true.permute(2, 0, 1).contiguous()
    allowed = tolerances(schema).tolist()
    right = torch.zeros(len(guess), *pairs, dtype=torch.float64, device=true.device)
    step = max(1, _PAIRS_AT_ONCE // max(1, pairs[0] * pairs[1]))
    for start in range(0, len(guess), step):
        chunk = slice(start, start + step)
        for column, tolerance in enumerate(allowed):
            distance = by_column_guess[column, chunk, :, None] - by_column_true[column, chunk, None, :]
            right[chunk] += distance.abs_() <= tolerance
    return right.neg_().add_(len(allowed)).div_(len(allowed)).reshape(*leading, *pairs)


def match(cost: Float[Tensor, "... guess true"]) -> Int[Tensor, "... true"]:
    """Return for each true record the guessed record that stands for it, at the least total cost.

    There may be more guessed records than true ones. Ties are broken the same way every time.
    """
    guesses, truths = cost.shape[-2:]
    if guesses < truths:
        raise BadInputError(
            f"matching needs at least as many guessed records as true ones, got {guesses} for {truths}; "
            "let the attack guess one record for each record of the batch."
        )
    if not torch.isfinite(cost).all():
        raise BadInputError(
            f"matching needs finite costs, got {float(cost[~torch.isfinite(cost)][0])}; "
            "look for NaN or infinite cells in what was compared."
        )
    # Records of the truth as rows: SciPy then lists the assigned columns in their order.
    costs = cost.detach().cpu().numpy().swapaxes(-1, -2).reshape(-1, truths, guesses)
    index = np.empty((len(costs), truths), dtype=np.int64)
    for i, pair_costs in enumerate(costs):
        index[i] = linear_sum_assignment(pair_costs)[1]
    return torch.from_numpy(index).reshape(*cost.shape[:-2], truths).to(cost.device)


def reorder(rows: Float[Tensor, "... guess value"], index: Int[Tensor, "... true"]) -> Float[Tensor, "... true value"]:
    """Return the rows that ``match`` chose, in the order of the true records."""
    return torch.take_along_dim(rows, index[..., None], dim=-2)


def _check(schema: Schema, *cells: Tensor) -> None:
    for cell in cells:
        if cell.shape[-1] != len(schema.columns):
            raise BadInputError(
                f"cells to compare must have {len(schema.columns)} columns, one for each of the schema's "
                f"({', '.join(schema.names[:8])}{', ...' if len(schema.names) > 8 else ''}), got {cell.shape[-1]}; "
                "decode encoded rows first."
            )
