"""SPEAR (Dimitrov et al., NeurIPS 2024): exact reconstruction of batches by the sparse errors of a first ReLU layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from scipy.stats import binom
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.duals import Directions, merged, refined, sampled
from seepage.attacks.horizontal.exact.first_layer import FirstLayer, choose_records, first_layer, quotients
from seepage.attacks.horizontal.exact.proving import NO_WITNESS, proof_of
from seepage.attacks.horizontal.exact.spans import Span, row_scale
from seepage.attacks.horizontal.matching.reconstruct import as_gradient, check
from seepage.errors import BadInputError, check_count
from seepage.pace import Progress
from seepage.registry import Traits, attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge, RecordsGuess, View

_AT_ONCE = {"cpu": 4096, "cuda": 65536}  # number of submatrices processed together
# Probability that a record's direction is rejected for its sparsity, if units are active with probability one half.
_TURNED_DOWN = 1e-5
_POOL = 512  # number of sparsest directions to choose from
_INDEPENDENT = 1e-4  # share of a unit vector that has to lie outside the span of others for it to count as independent
_NUMBERS_AT_ONCE = 2**19  # exchanges evaluated together, in numbers


@attacks.register("spear", "horizontal", traits=Traits(exact=True))
@dataclass(frozen=True)
class Spear:
    """Finds the errors of single records in the first layer's gradient by their zeros, and by these the records.

    Source: Dimitrov et al., SPEAR (NeurIPS 2024). In full: Dimitrov, Baader, Müller and Vechev, *SPEAR: Exact Gradient
    Inversion of Batches in Federated Learning*, arXiv:2403.03945.

    The gradient of the first layer, weights and bias side by side, is a product of the records' errors and their rows
    extended by a 1. The null vector of r - 1 rows of its left factor, r its rank, unmixes a record if all those units
    are inactive on it. Submatrices are sampled, and of directions that vanish on more units than chance allows, r
    independent ones are chosen greedily so that the zeros match the units that the rows leave inactive.

    It needs about 2^(B-1) times the harmonic number of B submatrices for B records, a first affine layer followed by a
    ReLU, and no more records than that layer has units and the batch's rows rank. Labels are not needed.

    Deviations: the bias joins the weights' gradient before it is decomposed, so that the records' rows may be linearly
    dependent as long as they are affinely independent, and scales need no system of their own; rows are divided by
    their norms; a direction is refined on all units it vanishes on and kept only if these determine it; the filter
    asks for at least rank + 1 zeros besides the binomial quantile of the source; only the 512 sparsest directions
    are considered; the search stops at a complete match, which is tested whenever the number of submatrices has
    doubled; there is no special treatment of noisy gradients.

    Attributes:
        submatrices: largest number of submatrices for a victim.

    Raises:
        BadInputError: the count is below 1.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn3
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> data = distinct(rows=20)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> ran = FedSGD(4).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1])
        >>> guess = Spear()(ran.view, Knowledge(data.schema, data.statistics, 4), [0])
        >>> guess.regime
        ('all 4 records found',)
    """

    submatrices: int = 2**18

    def __post_init__(self) -> None:
        check_count("submatrices", self.submatrices)

    def __call__(
        self, view: View, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        """Return the records of every victim."""
        check(view, knowledge, seeds)
        read, facts = as_gradient(view, knowledge)
        layer = first_layer(read)
        _check_rectified(read.model.module, read.model.name)
        encoder = Encoder(facts.schema, facts.statistics, device=layer.weight.device)
        name = next(iter(read.gradient))
        parameters = read.model.parameters if read.parameters is None else read.parameters
        first_affine = [(parameters[key].detach().double()) for key in (name, name.removesuffix("weight") + "bias")]
        cells, proofs, regime = [], [], []
        for victim, seed in enumerate(seeds):
            weight, bias = first_affine if read.parameters is None else (part[victim] for part in first_affine)
            search = self._solve(layer, victim, torch.cat([weight, bias[:, None]], 1), facts.batch_size, seed)
            records, whole = _cells(encoder, facts, search)
            cells.append(records.cpu())
            proofs.append(proof_of(view, knowledge, victim, cells[-1], None, None if whole else NO_WITNESS))
            regime.append(_regime(search, facts.batch_size))
            if progress is not None:
                progress(1 / len(seeds))
        return RecordsGuess(torch.stack(cells), proofs=tuple(proofs), regime=tuple(regime))

    def _solve(
        self, layer: FirstLayer, victim: int, network: Float[Tensor, "unit extended"], records: int, seed: int
    ) -> _SpearSearch:
        received = torch.cat([layer.weight[victim], layer.bias[victim, :, None]], 1).double()
        scale = row_scale(received)
        scaled = received / scale[:, None]
        rounding = torch.finfo(layer.weight.dtype).eps
        span = Span.of(received, scale, float(torch.linalg.matrix_norm(scaled, 2)), rounding)
        # The remaining singular values are noise alone.
        rows = span.rows[:records]
        rank, units = len(rows), len(scaled)
        empty = _SpearSearch(rank, 0, 0.0, rows[:0])
        reacting = scale.isfinite()
        if not 0 < rank <= int(reacting.sum()):
            return empty
        shares = scaled @ rows.T
        least = max(int(binom.ppf(_TURNED_DOWN, units, 0.5)), rank + 1)
        generator = torch.Generator().manual_seed(seed)
        pool = Directions.none(shares)
        best, taken, tried_at = empty, 0, 1
        while taken < self.submatrices:
            count = min(_AT_ONCE["cuda" if shares.is_cuda else "cpu"], self.submatrices - taken)
            new = refined(shares, sampled(shares[reacting], count, generator), least)
            pool = merged(pool.joined(new), _POOL)
            taken += count
            if taken < tried_at and taken < self.submatrices:
                continue
            tried_at = 2 * taken
            start = independent(pool.vectors)
            if len(start) < rank:
                best = best._replace(directions=len(start))
                continue
            candidate = chosen_greedily(pool, start, rows, network)
            if candidate.match > best.match:
                best = candidate
            if best.match == 1:
                break
        return best._replace(submatrices=taken)


class _SpearSearch(NamedTuple):
    """Result of a search: rank, independent directions, match, rows (standardised, extended by 1), submatrices."""

    rank: int
    directions: int
    match: float
    rows: Float[Tensor, "record extended"]
    submatrices: int = 0


def independent(vectors: Float[Tensor, "direction rank"]) -> list[int]:
    """Return the positions of directions that are independent of all before them."""
    chosen: list[int] = []
    left = vectors.clone()
    for place in range(len(vectors)):
        size = left[place].norm()
        if size > _INDEPENDENT:
            chosen.append(place)
            axis = left[place] / size
            left = left - (left @ axis)[:, None] * axis
        if len(chosen) == vectors.shape[1]:
            break
    return chosen


def chosen_greedily(
    pool: Directions,
    start: Sequence[int],
    rows: Float[Tensor, "rank extended"],
    network: Float[Tensor, "unit extended"],
) -> _SpearSearch:
    """Exchange one direction after another for the one that improves the sparsity match most, until none does."""
    chosen = torch.tensor(start, device=rows.device)
    rank, units = len(rows), len(network)
    # Outputs of each unit for a direction's row, and the row's last coordinate, which is to be 1.
    outputs = torch.cat([rows @ network.T, rows[:, -1:]], 1)
    at_once = max(1, _NUMBERS_AT_ONCE // (rank * units))
    inverse = torch.linalg.inv(pool.vectors[chosen].T)
    match = float(_match(inverse @ outputs, pool.silent[chosen]))
    place = unchanged = 0
    while match < 1 and unchanged < rank:
        basis, silent = inverse @ outputs, pool.silent[chosen]
        weights = pool.vectors @ inverse.T
        values = torch.cat(
            [
                _exchanged(basis, silent, weight, quiet, place)
                for weight, quiet in zip(weights.split(at_once), pool.silent.split(at_once), strict=True)
            ]
        )
        value, best = values.max(0)
        unchanged += 1
        if float(value) > match:
            chosen[place], unchanged = best, 0
            inverse = torch.linalg.inv(pool.vectors[chosen].T)
            match = float(_match(inverse @ outputs, pool.silent[chosen]))
        place = (place + 1) % rank
    unmixed = inverse @ rows
    return _SpearSearch(rank, rank, match, unmixed / unmixed[:, -1:])


def _exchanged(
    basis: Float[Tensor, "record basis"],
    silent: Bool[Tensor, "record unit"],
    weight: Float[Tensor, "direction record"],
    quiet: Bool[Tensor, "direction unit"],
    place: int,
) -> Float[Tensor, " direction"]:
    """Return the match with each direction in one position; 0 where it depends on the others."""
    # With direction c in place of j, row j of the inverse is divided by w_j, the j-th of c's weights in the chosen
    # ones, and w_i times that leaves row i.
    row = basis[place] / weight[:, place, None]
    moved = basis - weight[..., None] * row[:, None]
    moved[:, place] = row
    zero = silent.repeat(len(weight), 1, 1)
    zero[:, place] = quiet
    match = _match(moved, zero)
    return match.where(weight[:, place].abs() > _INDEPENDENT, torch.zeros_like(match))


def _match(
    basis: Float[Tensor, "*batch record basis"], silent: Bool[Tensor, "*batch record unit"]
) -> Float[Tensor, "*batch"]:
    """Return the share of units and records whose error is 0 exactly where the record leaves the unit inactive."""
    inactive = basis[..., :-1] * basis[..., -1:] <= 0
    return (inactive == silent).sum((-2, -1)) / inactive.shape[-1] / inactive.shape[-2]


def _cells(encoder: Encoder, knowledge: Knowledge, best: _SpearSearch) -> tuple[Float[Tensor, "record column"], bool]:
    """Return a victim's cells, and whether all records were read."""
    rows = quotients(best.rows[None, :, :-1], best.rows[None, :, -1]) if len(best.rows) else best.rows[None, :, :-1]
    if best.match < 1 or best.rank < knowledge.batch_size:
        return choose_records(encoder, knowledge, rows)[0], False
    return encoder.decode(rows[0]), True


def _regime(search: _SpearSearch, records: int) -> str:
    rank = f"; the gradient has rank {search.rank}" if search.rank < records else ""
    after = f"after {search.submatrices} submatrices"
    if search.directions < search.rank or not search.rank:
        return f"not finished {after}: {search.directions} of {search.rank} directions found{rank}"
    if search.match < 1:
        return f"not certain {after}: {100 * search.match:.1f}% of the errors are zero where they should be{rank}"
    return f"{search.rank} of {records} rows found{rank}" if rank else f"all {records} records found"


def _check_rectified(module: nn.Module, name: str) -> None:
    leaves = [part for part in module.modules() if next(part.children(), None) is None]
    if len(leaves) < 3 or type(leaves[1]) is not nn.ReLU:
        raise BadInputError(
            f"spear reads errors by the zeros that an nn.ReLU behind the first affine layer leaves in them, but model "
            f"{name!r} has none there; audit such a model, or leave the attack out."
        )
