"""Ways from features to cells that an attacker with pairs of both can learn, and the choice between them by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.vertical.parts.choice import mixed, or_constants, right_pairs
from seepage.models.inverse import Calibration, Inverter, cells_of
from seepage.models.kernel_regression import fitted
from seepage.models.predictors import boosted, forest
from seepage.pace import paced
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge

# Most pairs that judge a nearest pair, that a kernel regression learns from (its time grows with their cube), and that
# trees learn from.
_JUDGES, _OF_KERNELS, _OF_TREES = 1_000, 600, 2_000
# Share of left-out pairs right, in each column and training, from which on nothing slower is tried.
_SETTLED = 0.99
# Pairs below which nothing but a regression is tried, and no forest or network of features: of so few, these read less.
_FEWEST, _ENOUGH = 8, 150
_FOREST = "random forest"
# Chances are kept away from 0, so that their logarithms are finite.
_LEAST = 1e-3
# Directions of features with a smaller share of the largest spread are roundings.
_ROUNDING = 1e-5
# Pairs a feature below which forests and networks take features as they are: whitened, all pairs would be as far apart.
_A_FEATURE = 3


@dataclass(frozen=True)
class Pairs:
    """Rows whose cells and features the attacker holds, and the features of the records that it attacks.

    Attributes:
        own: the attacker's own columns as inputs, of the pairs and of the attacked records; None without any.
        held_out: number of the last pairs that networks are not trained on.
        noisy: whether features have noise in all directions, which whitening would make larger.
    """

    encoder: Encoder
    cells: Float[Tensor, "training pair column"]
    features: Float[Tensor, "training pair feature"]
    received: Float[Tensor, "training record feature"]
    own: tuple[Float[Tensor, "training pair own"], Float[Tensor, "training record own"]] | None
    held_out: int
    noisy: bool = False

    @property
    def number(self) -> int:
        """Number of pairs."""
        return self.cells.shape[1]

    @property
    def encoded(self) -> Float[Tensor, "training pair encoded"]:
        """The cells of the pairs, encoded."""
        return self.encoder.encode(self.cells)

    def inputs(self, with_own: bool, whitened: bool | None = None) -> Inputs:
        """Return inputs of the pairs and of the attacked records: features, ``with_own`` the attacker's columns too.

        Features are scaled column by column, or ``whitened``: each of their principal directions has spread 1. A
        defense that makes what tells of cells small beside the rest then hides nothing. If None, they are whitened
        where there are enough pairs and no noise.
        """
        if whitened is None:
            whitened = not self.noisy and self.number >= _A_FEATURE * self.features.shape[-1]
        scaled = (_whitened if whitened else _standardised)(self.features.double(), self.received.double())
        if not with_own or self.own is None:
            return scaled
        return Inputs(*(torch.cat([x, y.double()], -1) for x, y in zip(scaled, self.own, strict=True)))


class Inputs(NamedTuple):
    """Inputs of the pairs, and of the attacked records."""

    pairs: Float[Tensor, "training pair input"]
    received: Float[Tensor, "training record input"]


class JudgedGuess(NamedTuple):
    """A guess, and which cells of the last pairs are right where each was left out."""

    guess: FeatureGuess
    right: Bool[Tensor, "training judge column"]


def _standardised(features: Tensor, received: Tensor) -> Inputs:
    mean, spread = features.mean(1, keepdim=True), features.std(1, keepdim=True, correction=0)
    scale = torch.where(spread > 0, spread, torch.ones_like(spread))
    return Inputs((features - mean) / scale, (received - mean) / scale)


def _whitened(features: Tensor, received: Tensor) -> Inputs:
    mean = features.mean(1, keepdim=True)
    _, sizes, directions = torch.linalg.svd(features - mean, full_matrices=False)
    real = sizes > _ROUNDING * sizes[:, :1]
    scale = torch.where(real, features.shape[1] ** 0.5 / sizes.clamp(min=torch.finfo(sizes.dtype).tiny), 0.0)
    onto = directions.mT * scale[:, None]
    return Inputs((features - mean) @ onto, (received - mean) @ onto)


def answer(
    pairs: Pairs, outputs: Float[Tensor, "training record encoded"], left_out: Float[Tensor, "training judge encoded"]
) -> JudgedGuess:
    """Return what encoded outputs answer, with the confidence that outputs for left-out pairs justify."""
    encoder, cells = pairs.encoder, pairs.cells[:, -left_out.shape[1] :]
    sure = Calibration.of(encoder, left_out, encoder.encode(cells).to(left_out))
    failed = ~outputs.flatten(1).isfinite().all(1)
    guessed = torch.where(failed[:, None, None], torch.nan, cells_of(encoder, outputs))
    guess = FeatureGuess(guessed, sure.chances(encoder, outputs), sure.widths(encoder), failed)
    return JudgedGuess(guess, right_pairs(encoder.schema, cells_of(encoder, left_out), cells))


def nearest(pairs: Pairs, whitened: bool) -> JudgedGuess:
    """Answer with the cells of the pair whose features are nearest."""
    inputs, encoded = pairs.inputs(False, whitened), pairs.encoded
    judges = min(pairs.number, _JUDGES)
    outputs, left_out = [], []
    # One training after the other: distances between all pairs take memory.
    for known, received, rows in zip(*inputs, encoded, strict=True):
        apart = torch.cdist(known[-judges:], known, compute_mode="donot_use_mm_for_euclid_dist")
        itself = torch.arange(judges)
        apart[itself, itself + pairs.number - judges] = torch.inf
        left_out.append(rows[apart.argmin(1)])
        outputs.append(rows[torch.cdist(received, known, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)])
    return answer(pairs, torch.stack(outputs), torch.stack(left_out))


def kernels(pairs: Pairs, whitened: bool) -> JudgedGuess:
    """Answer by kernel ridge regression, whose penalty and kernel leave-one-out errors choose."""
    inputs, newest = pairs.inputs(False, whitened), slice(-_OF_KERNELS, None)
    fit = fitted(inputs.pairs[:, newest], pairs.encoded[:, newest].double(), inputs.received)
    return answer(pairs, fit.values, fit.left_out)


def forests(pairs: Pairs, seeds: Sequence[int]) -> JudgedGuess:
    """Answer by a random forest a column, on features and own columns, judged by out-of-bag predictions."""
    inputs, encoded = pairs.inputs(with_own=True), pairs.encoded
    newest, schema = slice(-_OF_TREES, None), pairs.encoder.schema
    by_training: list[tuple[Tensor, Tensor]] = []
    for k in paced(len(seeds), least=1):
        rows, queries, blocks = inputs.pairs[k, newest].numpy(), inputs.received[k].numpy(), []
        for column, block in zip(schema.columns, schema.blocks, strict=True):
            kind = isinstance(column, Discrete)
            values = encoded[k, newest, block].double().numpy()
            both = forest(rows, values, queries, seeds[k] % 2**32, kind)
            blocks.append([torch.from_numpy(part) for part in both])
            if kind:
                blocks[-1] = [part.clamp(min=_LEAST).log() for part in blocks[-1]]
        left_out, outputs = (torch.cat(parts, dim=-1) for parts in zip(*blocks, strict=True))
        by_training.append((left_out, outputs))
    # A rehearsal ends before the last training.
    by_training += by_training[-1:] * (len(seeds) - len(by_training))
    left_out, outputs = (torch.stack(parts) for parts in zip(*by_training, strict=True))
    return answer(pairs, outputs, left_out)


def boosted_trees(pairs: Pairs, seeds: Sequence[int], answered: Sequence[Sequence[str]]) -> JudgedGuess | None:
    """Answer by boosted trees, on features and own columns, in columns that a forest answers best so far.

    These take several times as long as a forest, and read more where few inputs say all of a column. They are trained
    on all pairs but those held out; None where a forest answers nothing.
    """
    tried = torch.tensor([[name == _FOREST for name in names] for names in answered])
    if not tried.any():
        return None
    inputs, encoded, schema = pairs.inputs(with_own=True), pairs.encoded, pairs.encoder.schema
    trained = pairs.number - pairs.held_out
    newest = slice(max(0, trained - _OF_TREES), trained)
    # Columns that are not tried keep zeros.
    outputs = torch.zeros(*inputs.received.shape[:2], pairs.encoder.width, dtype=torch.float64)
    left_out = torch.zeros(len(seeds), pairs.held_out, pairs.encoder.width, dtype=torch.float64)
    for k in paced(len(seeds), least=1):
        rows, values = inputs.pairs[k, newest].numpy(), encoded[k, newest].double().numpy()
        both = torch.cat([inputs.pairs[k, trained:], inputs.received[k]])
        for column, block, wanted in zip(schema.columns, schema.blocks, tried[k].tolist(), strict=True):
            if wanted:
                kind = isinstance(column, Discrete)
                predicted = torch.from_numpy(boosted(rows, values[:, block], both.numpy(), seeds[k] % 2**32, kind))
                predicted = predicted.clamp(min=_LEAST).log() if kind else predicted
                left_out[k, :, block], outputs[k, :, block] = predicted.tensor_split([pairs.held_out])
    guess, right = answer(pairs, outputs, left_out)
    return JudgedGuess(guess, right & tried[:, None])


def network(
    pairs: Pairs,
    inverter: Inverter,
    seeds: Sequence[int],
    inputs: Inputs,
    further: tuple[Float[Tensor, "training row input"], Float[Tensor, "training row column"]] | None = None,
) -> JudgedGuess:
    """Answer by a network that is trained on all pairs but those held out, and on further rows of inputs and cells."""
    trained, encoded = pairs.number - pairs.held_out, pairs.encoded
    known, received = (part.float() for part in inputs)
    left_out, rows, targets = known[:, trained:], known[:, :trained], encoded[:, :trained]
    if further is not None:
        rows = torch.cat([rows, further[0].float()], dim=1)
        targets = torch.cat([targets, pairs.encoder.encode(further[1])], dim=1)
    inverse = inverter.fit(rows, targets, pairs.encoder, seeds, held_out=(left_out, encoded[:, trained:]))
    failed = inverse.failed[:, None, None]
    outputs, judged = (torch.where(failed, torch.nan, inverse.outputs(rows)) for rows in (received, left_out))
    return answer(pairs, outputs, judged)


# A way with its name. It takes the names of the ways that answer each column so far, and gives None if it has no use.
Entrant = tuple[str, Callable[[Sequence[Sequence[str]]], JudgedGuess | None]]


def quick(pairs: Pairs, seeds: Sequence[int]) -> Iterable[Entrant]:
    """Return the ways that take little time, the quickest first."""
    yield "kernel regression", lambda _: kernels(pairs, whitened=False)
    if pairs.number >= _FEWEST:
        yield "nearest pair", lambda _: nearest(pairs, whitened=True)
        yield "kernel regression on whitened features", lambda _: kernels(pairs, whitened=True)
    if pairs.number >= _ENOUGH:
        yield _FOREST, lambda _: forests(pairs, seeds)
        if pairs.held_out:
            yield "boosted trees", lambda answered: boosted_trees(pairs, seeds, answered)


def networks(pairs: Pairs, seeds: Sequence[int], inverter: Inverter) -> Iterable[Entrant]:
    """Return a network of features alone, and one that takes the attacker's own columns beside them."""
    if pairs.number < _ENOUGH:
        return
    yield "network", lambda _: network(pairs, inverter, seeds, pairs.inputs(with_own=False))
    if pairs.own is not None:
        yield "network with own columns", lambda _: network(pairs, inverter, seeds, pairs.inputs(with_own=True))


def best_of(pairs: Pairs, entrants: Iterable[Entrant], knowledge: FeatureKnowledge) -> FeatureGuess:
    """Return the guess that answers each column by the way with most left-out pairs right, or by a constant.

    A later way answers where it has more right than the best one so far on the pairs that neither learned from, by more
    than the standard error of this difference. None is tried once nearly all of these are right in each column of each
    training.
    """
    columns = pairs.encoder.schema.names
    best: JudgedGuess | None = None
    names: list[list[str]] = [[] for _ in pairs.cells]
    for name, learner in entrants:
        tried = learner(names)
        if tried is None:
            continue
        if best is None:
            best, names = tried, [[name] * len(columns) for _ in pairs.cells]
        else:
            judges = min(best.right.shape[1], tried.right.shape[1])
            first, second = (each.right[:, -judges:] for each in (best, tried))
            gained = second.double() - first.double()
            take = gained.sum(1) > gained.square().sum(1).sqrt()
            names = [[name if t else n for n, t in zip(*row, strict=True)] for row in zip(names, take, strict=True)]
            best = JudgedGuess(mixed(best.guess, tried.guess, take), torch.where(take[:, None], second, first))
        if bool((best.right.double().mean(1) >= _SETTLED).all()):
            break
    assert best is not None
    judged = pairs.cells[:, -best.right.shape[1] :]
    guess, constant = or_constants(best.guess, best.right, judged, pairs.encoder, knowledge)
    names = [["constant" if c else n for n, c in zip(*row, strict=True)] for row in zip(names, constant, strict=True)]
    return replace(guess, choice=tuple(_in_words(columns, row) for row in names))


def _in_words(columns: Sequence[str], names: Sequence[str]) -> str:
    """Return which columns each way answers."""
    by_name: dict[str, list[str]] = {}
    for column, name in zip(columns, names, strict=True):
        by_name.setdefault(name, []).append(column)
    return "; ".join(f"{name}: {', '.join(answered)}" for name, answered in by_name.items())
