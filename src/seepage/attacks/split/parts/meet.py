"""Search of 10^9 configurations and more of a DeepFM client for exact fits, by meeting in the middle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from torch import Tensor

from seepage.attacks.split.parts.messages import logits_and_derivatives
from seepage.attacks.split.parts.nearest import Messages, NearestConfigurations, rounding
from seepage.attacks.split.parts.space import Space
from seepage.errors import BadInputError
from seepage.models.deepfm import DeepFMClient
from seepage.models.split import SplitModel

MOST_HALF = 2**22  # combinations of half of the columns in memory at once
_SAME = 1e-4  # relative distance of derivatives below which two patterns of active units are taken as the same
_ROUNDINGS = 8  # roundings of a derivative where the slope it was divided by is near zero
# Number of configurations that a round tries at random, and of the best so far with some columns changed.
_RANDOM, _CHANGED = 5_000, 3_000
_FIRST = 10_000
_BEST, _CHANGES = 200, 1.5
# Number of patterns that a round examines; number of sums of embeddings that a half is searched for, and matches kept
# of each, where the pattern is a neighbour's and where it is known.
_PATTERNS, _PROBED, _LOOSE, _TIGHT, _EACH = 8, 4_000, 500, 20_000, 4
# Distance of sums of embeddings within which a neighbour's pattern is followed, in their standard deviations.
_REACH = 0.3
_AT_ONCE = 2**13  # responses in memory at once


def meet(messages: Messages, keep: int, generator: torch.Generator, rounds: int = 40) -> NearestConfigurations:
    """Return the best configurations found; one that fits exactly is the nearest of the whole space.

    The gradient gives the logit and its derivatives. Those by an embedding of the server are ``W_j u + S - e_j``: ``u``
    comes back through the hidden layers, the same for all configurations with the same active units, and ``S`` is the
    sum of all embeddings. Differences between two embeddings' derivatives depend on ``u`` alone: by these, samples
    reveal the pattern of active units, hence ``S`` to rounding, and two halves of the columns are combined to that sum.
    Where no sample has the pattern, the nearest indicate the region. Not in the paper, whose search is exhaustive.
    """
    space, gradient = messages.space, messages.gradient
    halves = _Halves.of(messages.model, space)
    exact = rounding(gradient, messages.model.form)
    names, labels, distances = [], [], []
    compared = 0
    logits, derivatives = logits_and_derivatives(gradient, halves.additive, messages.model.form)
    # Records stop at different rounds and search for different sums, so that one axis for all would save nothing.
    for r in range(len(gradient)):
        search = _Search(messages.of(slice(r, r + 1)), halves, generator, logits[r], derivatives[r])
        search.add(space.drawn((_FIRST,), generator))
        best = search.nearest(keep)
        for _ in range(rounds):
            if float(best[1][0]) <= float(exact[r]):
                break
            search.add(search.proposed())
            best = search.nearest(keep)
        names.append(best[0] // space.labels)
        labels.append(best[0] % space.labels)
        distances.append(best[1])
        compared += search.compared
    return NearestConfigurations(torch.stack(names), torch.stack(labels), torch.stack(distances), compared)


@dataclass(frozen=True)
class _Halves:
    """The columns in two groups with about equally many combinations; the cut's layout is that of ``DeepFMClient``."""

    fields: int
    dim: int
    additive: int
    columns: tuple[list[int], list[int]]
    codes: tuple[Int[Tensor, "first _left"], Int[Tensor, "second _right"]]
    # Sums of the embeddings of each half's combinations.
    sums: tuple[Float[np.ndarray, "first dim"], Float[np.ndarray, "second dim"]]
    tree: KDTree
    spread: float  # standard deviation of a sum over all columns, in its widest direction

    @classmethod
    def of(cls, model: SplitModel, space: Space) -> _Halves:
        client = model.client
        additive = client.additive if isinstance(client, DeepFMClient) else None
        if not isinstance(client, DeepFMClient) or additive is None or not client.fields or model.head != "sigmoid":
            raise BadInputError(
                "search='meet' reads the sum of the private embeddings, for which the client part must be a DeepFM "
                "with one logit, and embeddings of the server's columns and its first-order terms must cross the cut; "
                "use search='descent'."
            )
        numbers = [space.names[i] for i in client.own.dense]
        if numbers:
            raise BadInputError(
                f"the values of {', '.join(numbers)} are few enough to be gone through one by one, for which "
                "search='meet' is not made; use search='exhaustive'."
            )
        columns: tuple[list[int], list[int]] = ([], [])
        sizes = [1, 1]
        for i in sorted(range(len(space.widths)), key=lambda i: -space.widths[i]):
            side = int(sizes[1] < sizes[0])
            columns[side].append(i)
            sizes[side] *= space.widths[i]
        if max(sizes) > MOST_HALF:
            raise BadInputError(
                f"half of the private columns {space.sizes} have {max(sizes):,} combinations, more than the "
                f"{MOST_HALF:,} that search='meet' holds; name fewer private columns, or use search='descent'."
            )
        tables = [client.own.embeddings[i].weight for i in range(len(space.widths))]
        tables = [table.detach().double().cpu() for table in tables if isinstance(table, Tensor)]
        codes, sums = [], []
        for half in columns:
            grids = [torch.arange(space.widths[i]) for i in half]
            places = torch.cartesian_prod(*grids).view(-1, len(half)) if half else torch.zeros(1, 0, dtype=torch.long)
            total = torch.zeros(len(places), client.dim, dtype=torch.float64)
            for k, i in enumerate(half):
                total += tables[i][places[:, k]]
            codes.append(places)
            sums.append(total.numpy())
        spread = math.sqrt(sum(float(table.var(0).max()) for table in tables))
        pairs = columns, (codes[0], codes[1]), (sums[0], sums[1])
        return cls(client.fields, client.dim, additive, *pairs, KDTree(sums[0]), spread)

    def making(
        self, wanted: Float[Tensor, " dim"], within: float, probed: Int[Tensor, " place"] | None, most: int
    ) -> Int[Tensor, "match column"]:
        """Return combinations of all columns whose embeddings sum to about the wanted vector, nearest first."""
        # ``probed``: positions in the second half; all of it if None.
        second = np.arange(len(self.sums[1])) if probed is None else probed.numpy()
        rest = wanted.double().numpy() - self.sums[1][second]
        each = min(_EACH, self.tree.n) if probed is None else 1
        distance, at = self.tree.query(rest, k=[*range(1, each + 1)], distance_upper_bound=within)
        row, k = np.nonzero(np.isfinite(distance))
        order = np.argsort(distance[row, k], kind="stable")[:most]
        first, other = at[row[order], k[order]], second[row[order]]
        combinations = torch.empty(len(order), len(self.columns[0]) + len(self.columns[1]), dtype=torch.long)
        combinations[:, self.columns[0]] = self.codes[0][torch.from_numpy(first)]
        combinations[:, self.columns[1]] = self.codes[1][torch.from_numpy(other)]
        return combinations


class _Search:
    """Search of one record: configurations that were tried, their responses and their fit."""

    def __init__(
        self,
        message: Messages,
        halves: _Halves,
        generator: torch.Generator,
        logit: Float[Tensor, ""],
        derivatives: Float[Tensor, " cut"],
    ) -> None:
        self._message, self._respond, self._space, self._halves = message, message.respond, message.space, halves
        self._record, self._gradient = message.respond.of_cut(message.cut), message.gradient
        self._own = message.cut[0, : halves.fields * halves.dim].view(halves.fields, halves.dim)
        self._tried: list[Tensor] = []
        self._pool: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self.compared = 0
        self._generator, self._logit = generator, logit
        self._derivatives = derivatives[: self._halves.additive]
        self._size = float(torch.linalg.vector_norm(self._derivatives))
        slope = float(self._gradient[0, self._halves.additive].abs())
        rounded = _ROUNDINGS * torch.finfo(derivatives.dtype).eps / max(slope, 1e-12)
        self._same = max(_SAME, rounded) * self._size
        self._pattern, self._first = self._split(self._derivatives[None])

    def _split(self, derivatives: Tensor) -> tuple[Float[Tensor, "sample pattern"], Float[Tensor, "sample dim"]]:
        """Return the part of the hidden layers alone, and the derivatives of the first embedding plus itself."""
        fields, dim = self._halves.fields, self._halves.dim
        by_field = derivatives[:, : fields * dim].unflatten(1, (fields, dim)) + self._own
        pattern = torch.cat([derivatives[:, fields * dim :], (by_field[:, 1:] - by_field[:, :1]).flatten(1)], 1)
        return pattern, by_field[:, 0]

    def _responses(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of configurations and their derivatives."""
        cells = self._respond.of_cells(self._space.of_codes(codes).to(self._gradient))
        return self._respond.responses(self._record.at(torch.zeros(len(codes), dtype=torch.long)), cells)

    def add(self, codes: Int[Tensor, "sample column"]) -> None:
        """Try configurations."""
        of_pool = []
        for some in codes.split(_AT_ONCE):
            logits, jacobian = self._responses(some)
            derivatives = jacobian[:, 0, : self._halves.additive]
            apart = torch.linalg.vector_norm(derivatives - self._derivatives, dim=1) / self._size
            misfit = torch.hypot(apart, logits[:, 0] - self._logit)
            pattern, first = self._split(derivatives)
            sums = self._own.sum(0) + self._sums(some)
            of_pool.append((pattern, first - sums, some, misfit))
        parts = of_pool if self._pool is None else [self._pool, *of_pool]
        pattern, back, tried, misfit = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        self._pool = (pattern, back, tried, misfit)
        self.compared += len(codes)

    def _sums(self, codes: Tensor) -> Float[Tensor, "sample dim"]:
        client = self._message.model.client
        assert isinstance(client, DeepFMClient)
        with torch.no_grad():
            return client.own.embedded(self._space.of_codes(codes).to(self._gradient)).sum(1)

    def nearest(self, keep: int) -> tuple[Int[Tensor, " best"], Float[Tensor, " best"]]:
        """Return the best configurations with their labels, as one number each, and their gradients' distances."""
        assert self._pool is not None
        best = self._pool[3].topk(min(4 * keep, len(self._pool[3])), largest=False).indices
        places = self._space.places(self._pool[2][best])
        # The same configuration may have been tried twice.
        places, where = np.unique(places.numpy(), return_index=True)
        codes = self._pool[2][best[torch.from_numpy(where)]]
        distances = self._message.distances(*self._responses(codes), self._gradient)
        labels = self._space.labels
        named = torch.from_numpy(places)[:, None] * labels + torch.arange(labels)
        least, order = distances.flatten().topk(keep, largest=False)
        return named.flatten()[order], least

    def proposed(self) -> Int[Tensor, "sample column"]:
        """Return configurations to try next."""
        assert self._pool is not None
        pattern, back, tried, misfit = self._pool
        apart = torch.linalg.vector_norm(pattern - self._pattern, dim=1)
        exact_matches = int((apart <= self._same).sum())
        proposals: list[Tensor] = []
        looked: list[Tensor] = []
        for k in apart.argsort()[: max(2 * _RANDOM // 25, exact_matches)].tolist():
            exact = float(apart[k]) <= self._same
            # A pattern that was searched completely needs no second search; others have one, with other probes.
            before = looked + (self._tried if exact else [])
            if any(float(torch.linalg.vector_norm(back[k] - earlier)) <= self._same for earlier in before):
                continue
            looked.append(back[k])
            wanted = self._first[0] - back[k] - self._own.sum(0)
            if exact:
                self._tried.append(back[k])
                proposals.append(self._halves.making(wanted, self._same, None, _TIGHT))
            else:
                second = len(self._halves.sums[1])
                probed = torch.randperm(second, generator=self._generator)[:_PROBED]
                proposals.append(self._halves.making(wanted, _REACH * self._halves.spread, probed, _LOOSE))
            if len(looked) == _PATTERNS:
                break
        best = tried[misfit.topk(min(_BEST, len(misfit)), largest=False).indices]
        changed = best.repeat(-(-_CHANGED // len(best)), 1)
        chance = min(1.0, _CHANGES / changed.shape[1])
        change = torch.rand(changed.shape, generator=self._generator) < chance
        changed = torch.where(change, self._space.drawn((len(changed),), self._generator), changed)
        return torch.cat([*proposals, changed, self._space.drawn((_RANDOM,), self._generator)])
