"""Search of 10^9 configurations and more of a DeepFM client for exact fits, by meeting in the middle.

The message gives the logit and its derivatives J by the cut (see ``messages``). With v_j the embeddings of the server's
columns, e_i those of the private ones and h the first layer's weights, DeepFM's logit has
``J_j = W_j u + S - v_j`` with ``S = sum_j v_j + sum_i e_i``: u comes back through the hidden layers and is the same for
all configurations with the same active units. So differences ``J_j + v_j - (J_1 + v_1)`` depend on u alone. By these,
some thousand samples reveal the pattern of active units, hence S to rounding, and two halves of the columns are
combined to that sum: N configurations take about ``sqrt(N)`` steps. Where no sample has the pattern, the nearest
indicate the region. A configuration that fits exactly is the nearest of the whole space, so that its search ends.

Source: our own; the paper's search is exhaustive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.attacks.split.parts.messages import Messages, check_bare, logits_and_derivatives
from seepage.attacks.split.parts.nearest import NearestConfigurations, Search
from seepage.attacks.split.parts.proof import likely_fit
from seepage.attacks.split.parts.space import Space, check_countable
from seepage.attacks.split.parts.sums import EmbeddingSums
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


@dataclass(frozen=True)
class Meet(Search):
    """Meets in the middle.

    Attributes:
        rounds: largest number of rounds; a record that fits exactly needs no further one.
        seed: seed of the samples.
    """

    rounds: int
    seed: int

    def nearest(self, messages: Messages, keep: int) -> NearestConfigurations:
        """Return the best configurations of those that were tried."""
        space, generator = messages.space, torch.Generator().manual_seed(self.seed)
        check_countable(space)
        what = "search='meet' reads sums of embeddings from gradients as they are"
        check_bare(messages.defense, what, "search='descent'")
        halves, exact, best_of_all = _Halves.of(messages.model, space), messages.rounding, []
        logits, derivatives = logits_and_derivatives(messages.gradient, halves.additive, messages.model.form)
        # Records stop at different rounds and search for different sums, so that one axis for all would save nothing.
        for r in range(len(messages.gradient)):
            search = _Search(messages.of(slice(r, r + 1)), halves, generator, logits[r], derivatives[r])
            best = search.nearest(keep)
            for _ in range(self.rounds):
                if float(best[1][0]) <= float(exact[r]):
                    break
                search.go_on()
                best = search.nearest(keep)
            best_of_all.append(best)
        names, distances = (torch.stack(parts) for parts in zip(*best_of_all, strict=True))
        return NearestConfigurations(names // space.labels, names % space.labels, distances)

    def likely(self, messages: Messages, best: NearestConfigurations) -> Bool[Tensor, " record"]:
        """Return where the best one fits exactly and hardly any other is expected to."""
        return likely_fit(messages, best.distances, best.places, self.seed)


@dataclass(frozen=True)
class _Halves:
    """The columns in two groups with about equally many combinations; the cut's layout is that of ``DeepFMClient``."""

    client: DeepFMClient
    additive: int
    first: EmbeddingSums
    second: EmbeddingSums
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
        tables = [table.weight for table in client.own.embeddings]
        variances = [float(table.detach().double().var(0).max()) for table in tables if isinstance(table, Tensor)]
        first, second = (EmbeddingSums.of(client, space, half) for half in columns)
        return cls(client, additive, first, second, math.sqrt(sum(variances)))

    def making(
        self, wanted: Float[Tensor, " dim"], within: float, probed: Int[Tensor, " place"] | None, most: int
    ) -> Int[Tensor, "match column"]:
        """Return combinations of all columns whose embeddings sum to about the wanted vector, nearest first.

        ``probed`` are positions in the second half; None: all of it, with several matches of each.
        """
        places = torch.arange(len(self.second.codes)) if probed is None else probed
        rest = wanted.double().cpu() - torch.from_numpy(self.second.sums)[places]
        distance, first = self.first.near(rest, _EACH if probed is None else 1, within)
        row, k = np.nonzero(np.isfinite(distance))
        order = np.argsort(distance[row, k], kind="stable")[:most]
        combinations = torch.empty(len(order), len(self.first.columns) + len(self.second.columns), dtype=torch.long)
        combinations[:, self.first.columns] = self.first.codes[torch.from_numpy(first[row[order], k[order]])]
        combinations[:, self.second.columns] = self.second.codes[places[torch.from_numpy(row[order])]]
        return combinations


class _Tried(NamedTuple):
    """Configurations of one record that were tried, and what their derivatives tell."""

    codes: Int[Tensor, "sample column"]
    pattern: Float[Tensor, "sample pattern"]  # differences of derivatives, which depend on u alone
    back: Float[Tensor, "sample dim"]  # W_1 u
    misfit: Float[Tensor, " sample"]


class _Search:
    """Search of one record."""

    def __init__(
        self,
        messages: Messages,
        halves: _Halves,
        generator: torch.Generator,
        logit: Float[Tensor, ""],
        derivatives: Float[Tensor, " cut"],
    ) -> None:
        fields, dim = halves.client.fields, halves.client.dim
        self._messages, self._halves, self._generator, self._logit = messages, halves, generator, logit
        self._record = messages.respond.of_cut(messages.cut)
        self._own = messages.cut[0, : fields * dim].view(fields, dim)
        self._derivatives = derivatives[: halves.additive]
        self._size = float(torch.linalg.vector_norm(self._derivatives))
        slope = float(messages.gradient[0, halves.additive].abs())
        rounded = _ROUNDINGS * torch.finfo(derivatives.dtype).eps / max(slope, 1e-12)
        self._same = max(_SAME, rounded) * self._size
        self._pattern, self._first = self._split(self._derivatives[None])
        self._searched: list[Tensor] = []
        self._tried: _Tried = self._try(messages.space.drawn((_FIRST,), generator))

    def _split(self, derivatives: Tensor) -> tuple[Float[Tensor, "sample pattern"], Float[Tensor, "sample dim"]]:
        """Return the part of the hidden layers alone, and the derivatives of the first embedding plus itself."""
        fields, dim = self._own.shape
        by_field = derivatives[:, : fields * dim].unflatten(1, (fields, dim)) + self._own
        pattern = torch.cat([derivatives[:, fields * dim :], (by_field[:, 1:] - by_field[:, :1]).flatten(1)], 1)
        return pattern, by_field[:, 0]

    def _responses(self, cells: Float[Tensor, "sample column"]) -> tuple[Tensor, Tensor]:
        respond = self._messages.respond
        record = torch.zeros(len(cells), dtype=torch.long)
        return respond.responses(self._record.rows(record), respond.of_cells(cells))

    def _try(self, codes: Int[Tensor, "sample column"]) -> _Tried:
        parts = []
        for chunk in codes.split(_AT_ONCE):
            cells = self._messages.space.of_codes(chunk).to(self._messages.gradient)
            logits, jacobian = self._responses(cells)
            derivatives = jacobian[:, 0, : self._halves.additive]
            apart = torch.linalg.vector_norm(derivatives - self._derivatives, dim=1) / self._size
            pattern, first = self._split(derivatives)
            with torch.no_grad():
                sums = self._own.sum(0) + self._halves.client.own.embedded(cells).sum(1)
            parts.append((chunk, pattern, first - sums, torch.hypot(apart, logits[:, 0] - self._logit)))
        return _Tried(*map(torch.cat, zip(*parts, strict=True)))

    def go_on(self) -> None:
        """Try what is proposed."""
        parts = zip(self._tried, self._try(self._proposals()), strict=True)
        self._tried = _Tried(*map(torch.cat, parts))

    def nearest(self, keep: int) -> tuple[Int[Tensor, " best"], Float[Tensor, " best"]]:
        """Return the best configurations with their labels, as one number each, and their gradients' distances."""
        space, gradient = self._messages.space, self._messages.gradient
        best = self._tried.misfit.topk(min(4 * keep, len(self._tried.misfit)), largest=False).indices
        # The same configuration may have been tried twice.
        places = space.places(self._tried.codes[best]).unique()
        cells = space.cells(places).to(gradient)
        distances = self._messages.distances(*self._responses(cells), gradient)
        named = places[:, None] * space.labels + torch.arange(space.labels)
        least, order = distances.flatten().topk(keep, largest=False)
        return named.flatten()[order], least

    def _proposals(self) -> Int[Tensor, "sample column"]:
        """Return configurations to try next."""
        codes, pattern, back, misfit = self._tried
        apart = torch.linalg.vector_norm(pattern - self._pattern, dim=1)
        exact_matches = int((apart <= self._same).sum())
        proposals: list[Tensor] = []
        looked: list[Tensor] = []
        for k in apart.argsort()[: max(2 * _RANDOM // 25, exact_matches)].tolist():
            exact = float(apart[k]) <= self._same
            # A pattern that was searched completely needs no second search; others have one, with other probes.
            before = looked + (self._searched if exact else [])
            if any(float(torch.linalg.vector_norm(back[k] - earlier)) <= self._same for earlier in before):
                continue
            looked.append(back[k])
            wanted = self._first[0] - back[k] - self._own.sum(0)
            if exact:
                self._searched.append(back[k])
                proposals.append(self._halves.making(wanted, self._same, None, _TIGHT))
            else:
                second = len(self._halves.second.codes)
                probed = torch.randperm(second, generator=self._generator)[:_PROBED]
                proposals.append(self._halves.making(wanted, _REACH * self._halves.spread, probed, _LOOSE))
            if len(looked) == _PATTERNS:
                break
        space, generator = self._messages.space, self._generator
        best = codes[misfit.topk(min(_BEST, len(misfit)), largest=False).indices]
        changed = best.repeat(-(-_CHANGED // len(best)), 1)
        change = torch.rand(changed.shape, generator=generator) < min(1.0, _CHANGES / changed.shape[1])
        changed = torch.where(change, space.drawn((len(changed),), generator), changed)
        return torch.cat([*proposals, changed, space.drawn((_RANDOM,), generator)])
