"""Enumeration of private cells where the target is a number, which follows from the cells and the message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.messages import bound_of
from seepage.attacks.split.parts.nearest import rounding
from seepage.attacks.split.parts.prior import CellPrior, decided
from seepage.attacks.split.parts.proof import FAR, proof_of
from seepage.attacks.split.parts.space import Space, responder
from seepage.errors import BadInputError
from seepage.models.split import half_of, numbers_of
from seepage.tabular.schema import Continuous
from seepage.wire.split import CutGuess, CutKnowledge, CutView

_ROUNDING = 1e-5  # rounding of a gradient's entries as a standard deviation, in units of its norm
_AT_ONCE = 2**21  # numbers in memory at once
_LEAST = 1e-30


def number_target_guess(
    views: Sequence[CutView], knowledge: CutKnowledge, space: Space, weigh: bool, observed: bool = True
) -> CutGuess:
    """Return the guess of private cells and of a number as target, from gradients of squared errors, the newest first.

    A record's gradient is ``2 (f - y) df/dcut``, or without the 2 and at most ``delta`` for Huber's loss: its direction
    tells of the private cells, and its length, given the cells, of the label, which has to be within the target's
    bounds. With noise, what is left beside the direction is weighed under the noise, and ``f - y`` has a normal prior
    whose spread is fitted on the messages. Where gradients are clipped, lengths up to the bound fit. Exchanges count as
    though errors in them were independent.
    """
    first, defense = views[0], knowledge.defense
    model, target = first.model, knowledge.schema.target
    assert isinstance(target, Continuous)
    if defense.shaped is not None:
        raise BadInputError(
            f"gradients are changed by {defense.shaped!r}, under which no label of the number {target.name!r} follows; "
            "leave the attack or the defense out."
        )
    prior = CellPrior.of(model, knowledge, space, first.features) if weigh else None
    width = max(1, sum(p.shape[0] for p in model.client.parameters() if p.dim() > 1) + first.cut.shape[1])
    chunk = max(1, min(space.size, _AT_ONCE // width))
    together = max(1, min(_AT_ONCE // (width * chunk), _AT_ONCE // space.size))
    guesses = []
    for start in range(0, first.records, together):
        some = [view.of(slice(start, start + together)) for view in views]
        total, labels, apart = _weighed(some, knowledge, space, chunk, observed)
        if prior is not None:
            total = total + prior.rows(slice(start, start + together)).of_places(space, torch.arange(space.size))
        guesses.append(_guess(some[0], knowledge, space, total, labels, apart, weigh))
    guess = CutGuess.joined(guesses)
    return guess if weigh else replace(guess, proof=proof_of(first, knowledge, guess.cells))


def _weighed(
    views: Sequence[CutView], knowledge: CutKnowledge, space: Space, chunk: int, observed: bool
) -> tuple[Float[Tensor, "record place"], Float[Tensor, "record place"], Float[Tensor, "record place"]]:
    """Return log-likelihoods, labels in units of the loss, and distances of the newest message, by combination."""
    totals, labels, aparts = [], [], []
    defense, target = knowledge.defense, knowledge.schema.target
    assert isinstance(target, Continuous)
    # A label may lie within its tolerance of the bounds, up to rounding.
    most = 1 + target.tolerance / half_of(target) + 1e-3
    spread: list[float] = []
    for places in space.chunks(chunk):
        cells = space.cells(places).to(views[0].cut)
        total = torch.zeros(views[0].records, len(places), dtype=torch.float64)
        weighed, sizes = total.clone(), total.clone()
        on_line = torch.zeros_like(total, dtype=torch.bool)
        for number, view in enumerate(views):
            respond = responder(view.model)
            logits, jacobian = respond.responses(respond.of_cut(view.cut).across(), respond.of_cells(cells))
            outputs, directions = logits[..., 0].cpu().double(), jacobian[..., 0, :].cpu().double()
            if not observed:
                labels.append(outputs)
                aparts.append(torch.zeros_like(outputs))
                break
            received = view.own_gradient.cpu().double()
            squares = directions.square().sum(-1).clamp(min=_LEAST)
            slope = (directions * received[:, None]).sum(-1) / squares
            noise = torch.zeros(view.records, 1, dtype=torch.float64)
            if defense.clips:
                norm = received.norm(dim=1)[:, None]
                bound = norm if defense.own_norm else torch.full_like(norm, bound_of(defense, view.clip))
                noise = defense.noise_multiplier * bound
                slope = slope.clamp(-bound / squares.sqrt(), bound / squares.sqrt())
            apart = (received[:, None] - slope[..., None] * directions).norm(dim=-1)
            variance = noise.square() + (_ROUNDING * received.norm(dim=1))[:, None].square() + _LEAST
            if len(spread) <= number:
                # Mean square of the slope, without what noise adds to it.
                spread.append(max(float((slope.square() - variance / squares).mean()), 1e-4))
            along = spread[number] * squares + variance
            total += -apart.square() / (2 * variance) - (slope.square() * squares / along + along.log()) / 2
            shrunk = slope * (spread[number] * squares / along)
            weight = squares / variance
            # Only gradients as they are give the label away whole; half of a record's own norm is clipped off.
            factor = 2.0 if defense.clips and defense.own_norm else 1.0
            form = view.model.form
            if form.loss == "huber":
                factor *= 2.0
                # Of an error on the straight line of the loss only a lower bound is known.
                on_line |= slope.abs() >= form.delta * (1 - 1e-5)
            weighed += weight * (outputs - factor * shrunk / 2)
            sizes += weight
            if number == 0:
                aparts.append(apart)
        if observed:
            label = weighed / sizes
            total = total.masked_fill((label.abs() > most) & ~on_line, -torch.inf) if defense.bare else total
            labels.append(torch.where(on_line, label.clamp(-1, 1), label))
        totals.append(total)
    total = torch.cat(totals, 1)
    # Where no combination fits, all are weighed as though labels had no bounds.
    lost = total.isinf().all(1)
    total[lost] = -torch.cat(aparts, 1)[lost]
    return total, torch.cat(labels, 1), torch.cat(aparts, 1)


def _guess(
    view: CutView,
    knowledge: CutKnowledge,
    space: Space,
    total: Float[Tensor, "record place"],
    labels: Float[Tensor, "record place"],
    apart: Float[Tensor, "record place"],
    weigh: bool,
) -> CutGuess:
    model, target = view.model, knowledge.schema.target
    assert isinstance(target, Continuous)
    codes = space.codes(torch.arange(space.size))
    possible = total.isfinite()
    if weigh:
        share = total.softmax(1)
        chances = tuple(
            torch.zeros(len(share), width, dtype=torch.float64).index_add(1, codes[:, k], share)
            for k, width in enumerate(space.widths)
        )
        cells = decided(model, knowledge, space, chances)
        expected = (share * labels).sum(1)
        return CutGuess(cells, _labels(target, expected), chances)
    nearest = apart.masked_fill(~possible, torch.inf)
    distance, place = nearest.min(1)
    within = rounding(view.own_gradient).cpu().double()
    fits = possible & (apart <= FAR * within[:, None])
    return CutGuess(
        model.unscaled(space.of_codes(codes[place]), model.private),
        _labels(target, labels.gather(1, place[:, None])[:, 0]),
        residual=distance,
        ties=(nearest <= (distance + within)[:, None]).sum(1),
        likely=fits.sum(1) == 1 if not space.binned and knowledge.defense.bare else None,
    )


def _labels(target: Continuous, scaled: Float[Tensor, " record"]) -> Float[Tensor, " record"]:
    values = numbers_of(target, scaled[:, None]).clamp(target.low, target.high)
    return values.round() if target.integer else values
