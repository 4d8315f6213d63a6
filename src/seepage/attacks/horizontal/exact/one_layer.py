"""Search of networks with a single hidden layer: errors by their zeros, and records by the errors of the others.

Here no second layer tells a record from a combination of records. What does is that a unit's error is 0 for every
record that leaves the unit inactive. With R the r rows of the span's basis, each record's extended input is
``a_i = R^T c_i``, and the scaled gradient is ``G = S R`` with ``S = sum_i d_i c_i^T`` (``shares``, a row a unit). Let
``n_i``, the dual vector of record i, be orthogonal to the c of all others. Then

    S n_i = d_i (c_i . n_i),

so that n_i vanishes on each row of S whose unit record i leaves inactive, and ``S n_i`` is the record's error but for a
factor. Conversely, the units that some row of the table activates least suggest a direction: the one that vanishes on
their rows of S (``guided``). Where it vanishes on more units than the r - 1 that determine a direction, it does not do
so by chance, and ``_possible`` tests in addition that S times it is an error that the other units can have.

A search ends mostly in combinations, but even these share inactive units with records, and so give directions. The next
search is made among the rows that are orthogonal to those known, where their records no longer are. With r independent
ones all records follow at once: ``c_j . n_i`` is 0 but for i = j, so that the rows of the transposed inverse of the
matrix of the n are the c, up to their lengths; and the last entry of an extended input is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, SearchEnds
from seepage.attacks.horizontal.exact.duals import Directions, guided, merged
from seepage.attacks.horizontal.exact.networks import Network, errors_back
from seepage.attacks.horizontal.exact.spans import Span
from seepage.tabular.encoder import Encoder

# Weights of the errors in the searches' misfit, in turn: searches with and without find different records.
_WEIGHTS = (10.0, 0.0)
# Largest number of searches, and number of searches without a new direction after which no other is expected.
_SEARCHES, _PATIENCE = 12, 3
_NEAREST = 8  # number of ends of searches from which each known record is searched again
_BEYOND_CHANCE = 6  # number of units, beyond those that determine a direction, that it has to vanish on
_OFF = 1e-3  # share of an error's norm that may lie outside the errors that its active units allow
_INDEPENDENT = 1e-4  # share of a unit vector that has to lie outside the span of others


def search_one_layer(
    encoder: Encoder,
    network: Network,
    left: Float[Tensor, "unit extended"],
    span: Span,
    allowed: Bool[Tensor, " encoded"],
    draw: Callable[[], tuple[Tensor, Tensor]],
    rounds: int,
) -> tuple[list[SearchEnds], Float[Tensor, "record encoded"]]:
    """Return the ends of searches for single records, and rows computed from the errors of all records."""
    # Searches find mostly combinations from about twenty records on.
    shares = (left / span.scale[:, None]) @ span.rows.T
    norms = torch.linalg.vector_norm(network.weights[0], dim=1)
    duals = Directions.none(shares)
    # Ends of searches that do not determine their numbers fit all spans, and prove nothing.
    searches: list[SearchEnds] = []
    determined: list[SearchEnds] = []
    activity: list[Tensor] = []
    barren = 0
    for i in range(_SEARCHES):
        search = CellsSearch(encoder, network, [_without(span, duals.vectors)], allowed, _WEIGHTS[i % len(_WEIGHTS)])
        ends = search.run(*draw(), rounds)
        searches.append(ends)
        determined += [ends] if search.determined else []
        activity.append(search.hidden_outputs(ends) / norms)
        new = _possible(guided(shares, activity[-1], span.rank + _BEYOND_CHANCE), shares, span, network)
        together = duals.joined(new)
        before, duals = len(duals.vectors), _independent(merged(together, len(together.vectors)))
        if len(duals.vectors) == span.rank:
            rows = torch.linalg.inv(duals.vectors.T) @ span.rows
            return determined, rows[:, :-1] / rows[:, -1:]
        barren = 0 if len(duals.vectors) > before else barren + 1
        if barren == _PATIENCE:
            break
    active, ends = torch.cat(activity) > 0, SearchEnds.joined(searches)
    for i in range(len(duals.vectors)):
        # A known record is orthogonal to all other known directions.
        others = torch.cat([duals.vectors[:i], duals.vectors[i + 1 :]])
        near = (active == duals.silent[i]).sum(1).argsort(stable=True)[:_NEAREST]
        search = CellsSearch(encoder, network, [_without(span, others)], allowed, _WEIGHTS[0])
        more = search.run(ends.codes[near], ends.numbers[near], rounds)
        determined += [more] if search.determined else []
    return determined, span.rows[:0, :-1]


def _without(span: Span, vectors: Float[Tensor, "direction rank"]) -> Span:
    """Return the span of rows that are orthogonal to directions."""
    basis = torch.linalg.qr(vectors.T).Q.T
    return replace(span, off_rows=torch.cat([span.off_rows, basis @ span.rows]))


def _possible(directions: Directions, shares: Tensor, span: Span, network: Network) -> Directions:
    """Return the directions whose products with the units can be the error of a record that activates the others."""
    back = (errors_back(network) / span.scale) * ~directions.silent[:, None]
    error = torch.nn.functional.normalize(directions.vectors @ shares.T, dim=1)
    basis = torch.linalg.qr(back.mT).Q
    off = error - (basis @ (basis.mT @ error[..., None]))[..., 0]
    fits = torch.linalg.vector_norm(off, dim=1) < _OFF
    return directions.of(fits)


def _independent(directions: Directions) -> Directions:
    """Return the sparsest directions that are independent of each other."""
    chosen: list[int] = []
    basis = directions.vectors[:0]
    for i, vector in enumerate(directions.vectors):
        rest = vector - basis.T @ (basis @ vector)
        if rest.norm() > _INDEPENDENT:
            chosen.append(i)
            basis = torch.cat([basis, (rest / rest.norm())[None]])
    return directions.of(torch.tensor(chosen, dtype=torch.long, device=basis.device))
