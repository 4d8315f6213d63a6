"""Pooling of several rounds' guesses: linkage of equal records, and choice among their readings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.tabular.align import match, tolerances
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.horizontal import Knowledge, RecordsGuess

# Assumed share of differences between two readings of one cell, and the number of cells that this assumption counts as.
_DIFFERING, _CELLS = 0.1, 20
# Number of re-estimates of it, after which the links no longer change.
_ESTIMATES = 3


def pooled(guesses: Sequence[RecordsGuess], knowledge: Knowledge) -> RecordsGuess:
    """Return one guess of all records that a client holds from a guess of each round's batch.

    Records are linked round by round as Fellegi and Sunter (1969) link files. For a guess and a record seen earlier

        log odds that they are the same = sum over columns of log(e + (1 - e) a / p) - log(N - S),

    with a = 1 where their cells agree within tolerance and 0 elsewhere, p the probability that the guessed value
    agrees with another record's by the public marginals, e the share of differences between two readings of one cell
    (estimated from the links themselves, starting at a tenth), N the number of records that the client holds and S
    those seen so far; the last term is the prior of batches drawn at random. Labels count as a column. The links of a
    round are the one-to-one links of the largest sum; unlinked guesses are new records, as long as there is room.

    Among several readings of a cell, a certified one is chosen, otherwise the one that most agree with; among equals,
    the one that the attack is most certain of, otherwise the earliest. Records not seen yet are guessed from the
    public marginals. The secret is not used.

    Args:
        guesses: guess of each round, in order.
        knowledge: side information about all rounds.

    Returns:
        Guesses of all records that the client holds; losses are means over rounds.
    """
    schema, total = knowledge.schema, knowledge.batch_size
    victims, _, columns = guesses[0].cells.shape
    cells = torch.full((victims, total, len(guesses), columns + 1), torch.nan, dtype=torch.float64)
    doubt, proved = cells.clone(), torch.zeros_like(cells, dtype=torch.bool)
    seen = torch.zeros(victims, total, dtype=torch.bool)
    each = torch.arange(victims)[:, None]
    links = _Links(knowledge)
    for i, guess in enumerate(guesses):
        nothing = torch.full_like(guess.cells[..., :1], torch.nan)
        guessed = torch.cat([guess.cells, nothing if guess.labels is None else guess.labels[..., None]], dim=-1)
        place = links.find(_pick(cells, _best(schema, cells, doubt, proved)), seen, guessed)
        cells[each, place, i] = guessed
        if guess.uncertainty is not None:
            doubt[each, place, i, :-1] = guess.uncertainty
        if guess.certified is not None:
            proved[each, place, i, :-1] = guess.certified
        seen[each, place] = True
    best = _best(schema, cells, doubt, proved)
    unseen, entropy = _by_marginals(knowledge)
    found = torch.where(seen[..., None], _pick(cells, best), unseen)
    surest = torch.where(seen[..., None], _pick(doubt, best), entropy)
    losses = [guess.loss for guess in guesses if guess.loss is not None]
    courses = [guess.course for guess in guesses if guess.course is not None]
    return RecordsGuess(
        cells=found[..., :-1],
        uncertainty=None if any(guess.uncertainty is None for guess in guesses) else surest[..., :-1],
        labels=None if any(guess.labels is None for guess in guesses) else found[..., -1],
        loss=torch.stack(losses).mean(0) if losses else None,
        course=torch.stack(courses).nanmean(0) if courses else None,
        certified=None if any(guess.certified is None for guess in guesses) else _pick(proved, best)[..., :-1],
    )


class _Links:
    """Finds the guesses of a round among the records seen before; the last column is the label."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._marginals = (*knowledge.statistics.marginals, knowledge.statistics.target)
        self._tolerances = _tolerances(knowledge.schema)
        self._differing, self._compared = _DIFFERING * _CELLS, _CELLS

    def find(
        self,
        known: Float[Tensor, "victim record column"],
        seen: Bool[Tensor, "victim record"],
        guess: Float[Tensor, "victim guess column"],
    ) -> Tensor:
        """Return the position of each guess: that of a record seen before, or an empty one."""
        agree, chance, comparable = self._compare(known, guess)
        prior = (~seen).sum(1).clamp(min=1).log()[:, None, None]
        place = torch.empty(0)
        differing, compared = self._differing, self._compared
        for _ in range(_ESTIMATES):
            error = differing / compared
            odds = ((error + (1 - error) * agree / chance).log() * comparable).sum(-1) - prior
            place = match(torch.where(seen[..., None], -odds, torch.zeros_like(odds)))
            # Linked guesses give the share of differences between two readings.
            index = place[:, None, :, None].expand(-1, 1, -1, agree.shape[-1])
            linked = seen.gather(1, place)[..., None] & comparable.gather(1, index)[:, 0]
            differing = self._differing + int((linked & ~agree.gather(1, index)[:, 0]).sum())
            compared = self._compared + int(linked.sum())
        self._differing, self._compared = differing, compared
        return place

    def _compare(self, known: Tensor, guess: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return which cells agree, the probability that another record's would, and which can be compared."""
        comparable = ~(known[:, :, None].isnan() | guess[:, None].isnan())
        agree = (known[:, :, None] - guess[:, None]).abs() <= torch.tensor(self._tolerances, dtype=torch.float64)
        pairs = zip(self._marginals, self._tolerances, strict=True)
        chance = torch.stack([m.near(guess[..., i].nan_to_num(), t) for i, (m, t) in enumerate(pairs)], dim=-1)
        return agree, chance[:, None], comparable


def _best(
    schema: Schema,
    cells: Float[Tensor, "victim record round column"],
    doubt: Float[Tensor, "victim record round column"],
    proved: Bool[Tensor, "victim record round column"],
) -> Int[Tensor, "victim record column"]:
    """Return the round whose reading of each cell is chosen."""
    rounds = cells.shape[2]
    chosen = []
    for i, tolerance in enumerate(_tolerances(schema)):
        readings = cells[..., i]
        votes = ((readings[..., None] - readings[..., None, :]).abs() <= tolerance).sum(-1)
        unsure = doubt[..., i].nan_to_num(torch.inf, posinf=torch.inf, neginf=-torch.inf)
        rank = torch.argsort(unsure, dim=-1, stable=True).argsort(-1)
        chosen.append((proved[..., i] * rounds + votes - rank / (rounds + 1)).argmax(-1))
    return torch.stack(chosen, dim=-1)


def _pick(readings: Tensor, chosen: Int[Tensor, "victim record column"]) -> Tensor:
    """Return the readings of the chosen rounds (victim, record, column)."""
    return readings.take_along_dim(chosen[:, :, None], 2)[:, :, 0]


def _by_marginals(knowledge: Knowledge) -> tuple[Float[Tensor, " column"], Float[Tensor, " column"]]:
    """Return the cells most likely to be right for an unknown record, and their entropies."""
    columns = (*knowledge.schema.columns, knowledge.schema.target)
    marginals = (*knowledge.statistics.marginals, knowledge.statistics.target)
    cells, entropies = [], []
    for column, marginal, tolerance in zip(columns, marginals, _tolerances(knowledge.schema), strict=True):
        cells.append(float(marginal.likeliest(tolerance)))
        if isinstance(column, Discrete):
            nats = float(-torch.special.xlogy(marginal.probabilities, marginal.probabilities).sum())
            entropies.append(nats / math.log(column.width) if column.width > 1 else 0.0)
        else:
            entropies.append(0.5 + 0.5 * math.log(2 * math.pi))
    return torch.tensor(cells, dtype=torch.float64), torch.tensor(entropies, dtype=torch.float64)


def _tolerances(schema: Schema) -> list[float]:
    """Return the tolerances of all columns and of the target."""
    target = schema.target
    return [*tolerances(schema).tolist(), 0.0 if isinstance(target, Discrete) else target.tolerance]
