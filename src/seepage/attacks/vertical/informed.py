"""Attacks that learn from pairs of features and cells in several ways, and answer each column by the best of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from seepage.attacks.vertical.parts.pairs import Entrant, Inputs, Pairs, best_of, network, networks, quick
from seepage.attacks.vertical.uifv import QueryAttack
from seepage.baselines.vertical import OwnColumns, own_inputs
from seepage.models.inverse import InverseLoss, Inverter
from seepage.models.vertical import encoder_of
from seepage.registry import attacks
from seepage.wire.vertical import ActivationView, FeatureAuxiliary, FeatureGuess, FeatureKnowledge, FeatureView

# Of few pairs a third is held out from networks, up to so many.
_HELD_OUT = 30


@attacks.register("informed_qa", "vertical", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class InformedQueryAttack(QueryAttack):
    """The query attack by an active party that uses what it holds, and tries what is quick first.

    Source: our own form of ``uifv_qa`` (Yang et al., UIFV, 2024).

    In this order: kernel ridge regression on features as they are, the pair with the nearest whitened features,
    kernel ridge regression on these, a random forest that also takes the attacker's own columns, boosted trees in
    columns that the forest answers best, a network of own columns alone, one of features alone, and one of both.
    Each column is answered by the way that has most of the left-out pairs right, or by a constant where none reads
    more than one: see ``parts.pairs``. Slower ways are not tried once nearly all of these are right, and forest and
    networks of features not with fewer than 150 pairs. Labels that the attacker knows are own columns. Without
    held-out pairs the last network answers alone, and so it does for rows that are no table, without own columns.
    """

    loss: InverseLoss = "fields"
    own_columns: bool = True
    steps: int = 2000
    converge: bool = True

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; the arguments are those of ``QueryAttack``."""
        if knowledge.layout is not None or not self.held_out:
            return super().__call__(view, knowledge, seeds)
        rows = knowledge.granted_auxiliary("the query attack")
        answered = self.ask(view, knowledge)
        number = answered.cells.shape[1]
        labels = None if view.labels is None else rows.labels
        known = own_inputs(view, rows.own, labels), own_inputs(view, view.own, view.labels)
        side = (known[0][:, :number], known[1]) if self.own_columns else None
        held_out = _held_out(number, self.held_out)
        noisy = knowledge.defense.noise > 0
        pairs = Pairs(answered.encoder, answered.cells, answered.features, view.received, side, held_out, noisy)
        guess = best_of(pairs, self._ways(pairs, rows, known, seeds), knowledge)
        return replace(guess, queries=number)

    def _ways(
        self, pairs: Pairs, rows: FeatureAuxiliary, known: tuple[torch.Tensor, torch.Tensor], seeds: Sequence[int]
    ) -> Iterable[Entrant]:
        """Return the ways in the order in which they are tried; ``known`` are own columns of all auxiliary rows."""
        yield from quick(pairs, seeds)
        if not pairs.held_out:
            return
        if self.own_columns:
            mine, rest = Inputs(known[0][:, : pairs.number], known[1]), slice(pairs.number, None)
            further, plain = (known[0][:, rest], rows.cells[:, rest]), OwnColumns().inverter
            yield "network of own columns", lambda _: network(pairs, plain, seeds, mine, further)
        yield from networks(pairs, seeds, self.inverter(None))


@attacks.register("informed_sa", "split", needs=("leaked",))
@attacks.register("informed_sa", "vertical", needs=("leaked",))
@dataclass(frozen=True)
class InformedStealth:
    """The stealth attack from leaked records, by the best of several ways for each column.

    Source: our own form of ``uifv_sa`` (Yang et al., UIFV, 2024). The ways are those of ``informed_qa``, without a
    network of own columns alone: leaked records and what the target sent for them are its pairs.

    Attributes:
        epochs, steps: settings of the networks.
    """

    epochs: int = 60
    steps: int = 2000

    def __post_init__(self) -> None:
        # Refuses settings that the inverter refuses.
        _ = self.inverter

    @property
    def inverter(self) -> Inverter:
        """Recipe of its networks."""
        return Inverter(loss="fields", epochs=self.epochs, steps=self.steps, converge=True)

    def __call__(self, view: ActivationView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's forests and networks."""
        leaked = knowledge.granted_leaked("the informed stealth attack")
        side = None
        if isinstance(view, FeatureView) and knowledge.layout is None:
            side = own_inputs(view, leaked.own, None), own_inputs(view, view.own, None)
        held_out = _held_out(leaked.records, 0.1)
        encoder, noisy = encoder_of(knowledge.schema), knowledge.defense.noise > 0
        pairs = Pairs(encoder, leaked.cells, leaked.features, view.received, side, held_out, noisy)
        return best_of(pairs, self._ways(pairs, seeds), knowledge)

    def _ways(self, pairs: Pairs, seeds: Sequence[int]) -> Iterable[Entrant]:
        yield from quick(pairs, seeds)
        if pairs.held_out:
            yield from networks(pairs, seeds, self.inverter)


def _held_out(number: int, share: float) -> int:
    """Return the number of pairs that networks are not trained on."""
    return max(int(share * number), min(number // 3, _HELD_OUT))
