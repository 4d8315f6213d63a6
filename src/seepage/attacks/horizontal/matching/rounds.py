"""Pooling of several rounds' guesses: linkage of equal records, and choice among their readings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.kernel import Certified, nothing
from seepage.tabular.align import match, tolerances
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.horizontal import Knowledge, RecordsGuess

# Assumed share of differences between two readings of one cell, and the number of cells that this assumption counts as.
_DIFFERING, _CELLS = 0.1, 20
_ESTIMATES = 3  # number of re-estimates of it, after which the links no longer change


def pooled(guesses: Sequence[RecordsGuess], knowledge: Knowledge) -> RecordsGuess:
    """Return one guess of all records that a client holds from a guess of each round's batch; losses are means.

    Records are linked round by round as Fellegi and Sunter (1969) link files. For a guess and a record seen earlier

        log odds that they are the same = sum over columns of log(e + (1 - e) a / p) - log(N - S),

    with a = 1 where their cells agree within tolerance and 0 elsewhere, p the probability that the guessed value agrees
    with another record's by the public marginals, e the share of differences between two readings of one cell
    (estimated from the links), N the number of records that the client holds and S those seen so far: the prior of
    batches drawn at random. A round's links are the one-to-one links of the largest sum; unlinked guesses are new
    records.

    Among several readings of a cell, a certified one is chosen, otherwise the one that most agree with; among equals,
    the most certain, otherwise the earliest. That two rounds' readings are of one record is not proved: the certified
    cells are those of the one round that proves most of them. See docs/methods/rounds.md.
    """
    schema, total = knowledge.schema, knowledge.batch_size
    victims, _, columns = guesses[0].cells.shape
    cells = torch.full((victims, total, len(guesses), columns + 1), torch.nan, dtype=torch.float64)
    doubt, proved = cells.clone(), torch.zeros_like(cells, dtype=torch.bool)
    filled = torch.zeros(victims, total, dtype=torch.bool)
    victim = torch.arange(victims)[:, None]
    links, places = _Links(knowledge), []
    for i, guess in enumerate(guesses):
        nothing = torch.full_like(guess.cells[..., :1], torch.nan)
        guessed = torch.cat([guess.cells, nothing if guess.labels is None else guess.labels[..., None]], dim=-1)
        place = links.find(_pick(cells, _best(schema, cells, doubt, proved)), filled, guessed)
        cells[victim, place, i] = guessed
        if guess.uncertainty is not None:
            doubt[victim, place, i, :-1] = guess.uncertainty
        if guess.certified is not None:
            assert guess.given is not None
            proved[victim, place, i, :-1] = guess.certified | guess.given
        filled[victim, place] = True
        places.append(place)
    chosen = proved.flatten(3).sum((1, 3)).argmax(1)
    sure = proved & (torch.arange(len(guesses)) == chosen[:, None])[:, None, :, None]
    best = _best(schema, cells, doubt, proved, sure)
    unseen, entropy = _by_marginals(knowledge)
    readings = torch.where(filled[..., None], _pick(cells, best), unseen)
    surest = torch.where(filled[..., None], _pick(doubt, best), entropy)
    losses = [guess.loss for guess in guesses if guess.loss is not None]
    courses = [guess.course for guess in guesses if guess.course is not None]
    return RecordsGuess(
        cells=readings[..., :-1],
        uncertainty=None if any(guess.uncertainty is None for guess in guesses) else surest[..., :-1],
        labels=None if any(guess.labels is None for guess in guesses) else readings[..., -1],
        loss=torch.stack(losses).mean(0) if losses else None,
        course=torch.stack(courses).nanmean(0) if courses else None,
        proofs=_proofs(guesses, chosen.tolist(), places, total),
        regime=_regimes([guess.regime for guess in guesses]),
    )


def _regimes(regimes: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the method of each victim in all rounds."""
    stated = [regime for regime in regimes if regime is not None]
    if len(stated) < len(regimes):
        return None
    return tuple(
        statements[0]
        if len(set(statements)) == 1
        else "; ".join(f"round {i + 1}: {text}" for i, text in enumerate(statements))
        for statements in zip(*stated, strict=True)
    )


def _proofs(
    guesses: Sequence[RecordsGuess], chosen: Sequence[int], places: Sequence[Tensor], total: int
) -> tuple[Certified, ...] | None:
    """Return the proof of each victim's records by the round that proves most: all its records are different."""
    if all(guess.proofs is None for guess in guesses):
        return None
    chosen_proofs = []
    for victim, i in enumerate(chosen):
        proofs = guesses[i].proofs
        if proofs is None:
            chosen_proofs.append(nothing(total, guesses[i].cells.shape[2]))
            continue
        order = torch.full((total,), -1)
        order[places[i][victim]] = torch.arange(len(places[i][victim]))
        chosen_proofs.append(proofs[victim].take(order))
    return tuple(chosen_proofs)


class _Links:
    """Finds the guesses of a round among the records seen before; the last column is the label."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._marginals = (*knowledge.statistics.marginals, knowledge.statistics.target)
        self._tolerances = _tolerances(knowledge.schema)
        self._differing, self._compared = _DIFFERING * _CELLS, _CELLS

    def find(
        self,
        earlier: Float[Tensor, "victim record column"],
        filled: Bool[Tensor, "victim record"],
        guess: Float[Tensor, "victim guess column"],
    ) -> Tensor:
        """Return the position of each guess: that of a record seen before, or an empty one."""
        agree, chance, comparable = self._compare(earlier, guess)
        prior = (~filled).sum(1).clamp(min=1).log()[:, None, None]
        place = torch.empty(0)
        differing, compared = self._differing, self._compared
        for _ in range(_ESTIMATES):
            error = differing / compared
            odds = ((error + (1 - error) * agree / chance).log() * comparable).sum(-1) - prior
            place = match(torch.where(filled[..., None], -odds, torch.zeros_like(odds)))
            # Linked guesses give the share of differences between two readings.
            index = place[:, None, :, None].expand(-1, 1, -1, agree.shape[-1])
            linked = filled.gather(1, place)[..., None] & comparable.gather(1, index)[:, 0]
            differing = self._differing + int((linked & ~agree.gather(1, index)[:, 0]).sum())
            compared = self._compared + int(linked.sum())
        self._differing, self._compared = differing, compared
        return place

    def _compare(self, earlier: Tensor, guess: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return which cells agree, the probability that another record's would, and which can be compared."""
        comparable = ~(earlier[:, :, None].isnan() | guess[:, None].isnan())
        agree = (earlier[:, :, None] - guess[:, None]).abs() <= torch.tensor(self._tolerances, dtype=torch.float64)
        pairs = zip(self._marginals, self._tolerances, strict=True)
        chance = torch.stack([m.near(guess[..., i].nan_to_num(), t) for i, (m, t) in enumerate(pairs)], dim=-1)
        return agree, chance[:, None], comparable


def _best(
    schema: Schema,
    cells: Float[Tensor, "victim record round column"],
    doubt: Float[Tensor, "victim record round column"],
    proved: Bool[Tensor, "victim record round column"],
    sure: Bool[Tensor, "victim record round column"] | None = None,
) -> Int[Tensor, "victim record column"]:
    """Return the round whose reading of each cell is chosen; a sure one first."""
    rounds = cells.shape[2]
    chosen = []
    for i, tolerance in enumerate(_tolerances(schema)):
        readings = cells[..., i]
        votes = ((readings[..., None] - readings[..., None, :]).abs() <= tolerance).sum(-1)
        unsure = doubt[..., i].nan_to_num(torch.inf, posinf=torch.inf, neginf=-torch.inf)
        rank = torch.argsort(unsure, dim=-1, stable=True).argsort(-1)
        first = proved[..., i] * rounds if sure is None else (proved[..., i] + 1.0 * sure[..., i]) * rounds
        chosen.append((first + votes - rank / (rounds + 1)).argmax(-1))
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
