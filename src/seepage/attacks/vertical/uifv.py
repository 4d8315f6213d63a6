"""UIFV: a network learns to reconstruct a passive party's cells from its features, under four levels of access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seepage.attacks.vertical.parts.choice import mixed, or_constants, right_pairs
from seepage.attacks.vertical.parts.generated import generated, plain_uniform
from seepage.attacks.vertical.parts.shadow import shadow
from seepage.baselines.vertical import own_inputs
from seepage.errors import BadInputError, check_count
from seepage.models.inverse import Calibration, Inverse, InverseLoss, Inverter
from seepage.models.vertical import PartLayout, encoder_of
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView

# Units of InverNet's hidden layers, by its number of layers (UIFV, table 14).
DEPTHS: dict[int, tuple[int, ...]] = {1: (), 2: (300,), 3: (100, 300)}


@dataclass(frozen=True)
class _InverNet:
    """InverNet's settings, common to all four attacks.

    Attributes:
        loss: loss of the network, see ``Inverter``.
        layers: number of InverNet's layers, 1 to 3; if None, 3 on tables, and on other rows as many as their layout
            says.
        standardise, epochs, steps, batch_size, learning_rate, converge: settings of ``Inverter``.

    Raises:
        BadInputError: an argument is out of range.
    """

    loss: InverseLoss = "mse"
    layers: int | None = None
    standardise: bool = True
    epochs: int = 60
    steps: int = 1000
    batch_size: int = 64
    learning_rate: float | int = 2e-3
    converge: bool = False

    def __post_init__(self) -> None:
        if self.layers not in (None, *DEPTHS):
            raise BadInputError(f"InverNet has 1, 2 or 3 layers, got layers={self.layers!r}.")
        # Refuses settings that the inverter refuses.
        self.inverter(None)

    def inverter(self, layout: PartLayout | None) -> Inverter:
        """Return the recipe of InverNet, for tables or for other rows."""
        usual = 3 if layout is None else layout.layers
        return Inverter(
            DEPTHS[usual if self.layers is None else self.layers],
            *(self.loss, self.standardise, self.epochs, self.steps, self.batch_size, self.learning_rate),
            layout,
            self.converge,
        )


@attacks.register("uifv_qa", "vertical", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class QueryAttack(_InverNet):
    """UIFV with auxiliary rows and queries: the target's answers for rows with known cells train InverNet.

    Source: Yang et al., UIFV (arXiv 2406.12588), section 4. Deviations: see ``Inverter``; and some pairs are held out,
    which calibrate the confidence of the answers (ours).

    Attributes:
        rows: number of rows that are asked, at most the budget and the number of auxiliary rows; this maximum if None.
        held_out: share of them on which chances and radii are measured.
        own_columns: whether InverNet takes the attacker's own columns besides the features (ours), which matters where
            the features reveal little.

    Raises:
        BadInputError: an argument is out of range.
    """

    rows: int | None = None
    held_out: float | int = 0.1
    own_columns: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None:
            check_count("rows", self.rows)
        if isinstance(self.held_out, bool) or not 0 <= self.held_out < 1:
            raise BadInputError(f"a share held out is from 0 to below 1, got held_out={self.held_out!r}.")

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; rows beyond the budget are not asked. ``seeds`` are those of each InverNet."""
        pairs = self._pairs(view, knowledge)
        return self._answer(pairs, knowledge, seeds, self.own_columns).guess

    def _pairs(self, view: FeatureView, knowledge: FeatureKnowledge) -> _Pairs:
        """Return the rows of the queries, the target's answers, and the attacker's own columns of the rows."""
        rows = knowledge.granted_auxiliary("the query attack")
        channel = knowledge.granted_queries("the query attack")
        encoder = encoder_of(knowledge.schema)
        queries = encoder.encode(rows.cells[:, : min(self.rows or channel.left, channel.left)])
        number = queries.shape[1]
        # Networks for rows that are no table take features alone.
        beside = (
            None
            if knowledge.layout is not None
            else (own_inputs(view, rows.own[:, :number], None), own_inputs(view, view.own, None))
        )
        trained = number - int(self.held_out * number)
        return _Pairs(encoder, rows.cells[:, :number], queries, channel.ask(queries), view.received, beside, trained)

    def _answer(self, pairs: _Pairs, knowledge: FeatureKnowledge, seeds: Sequence[int], own: bool) -> _Answer:
        """Train InverNet on pairs, and return its guess and how well it does on those that are held out."""
        answered, received, trained, encoder = pairs.answered, pairs.received, pairs.trained, pairs.encoder
        if own and pairs.beside is not None:
            answered, received = (
                torch.cat([features, mine], dim=-1)
                for features, mine in zip((answered, received), pairs.beside, strict=True)
            )
        validation = (answered[:, trained:], pairs.queries[:, trained:]) if pairs.left_out else None
        inverse = self.inverter(knowledge.layout).fit(
            answered[:, :trained], pairs.queries[:, :trained], encoder, seeds, held_out=validation
        )
        guess = guess_of(inverse, received, queries=pairs.queries.shape[1])
        if not pairs.left_out:
            return _Answer(guess)
        outputs = inverse.outputs(answered[:, trained:])
        sure = Calibration.of(encoder, outputs, pairs.queries[:, trained:])
        chances = sure.chances(encoder, inverse.outputs(received))
        right = right_pairs(encoder.schema, inverse.cells(answered[:, trained:]), pairs.cells[:, trained:])
        return _Answer(replace(guess, chances=chances, radii=sure.widths(encoder)), right)


@dataclass(frozen=True)
class _Pairs:
    """Rows of queries and the target's answers."""

    encoder: Encoder
    cells: Float[Tensor, "training row column"]
    queries: Float[Tensor, "training row encoded"]
    answered: Float[Tensor, "training row feature"]
    received: Float[Tensor, "training record feature"]
    beside: tuple[Tensor, Tensor] | None  # the attacker's own columns, as inputs; None without a table
    trained: int  # number of pairs to train on; the rest is held out

    @property
    def left_out(self) -> int:
        """Number of pairs that are held out."""
        return self.queries.shape[1] - self.trained


@dataclass(frozen=True)
class _Answer:
    """A guess, and the cells of left-out pairs that it has right; None where no pairs are left out."""

    guess: FeatureGuess
    right: Bool[Tensor, "training pair column"] | None = None


@attacks.register("informed_qa", "vertical", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class InformedQueryAttack(QueryAttack):
    """The query attack by an active party that uses what it holds.

    Source: our own form of ``uifv_qa`` (Yang et al., UIFV, 2024).

    Two networks are trained: the published one, on features alone, and one that takes the attacker's own columns
    beside them and has a loss for each kind of column. Each column is answered by the network that has more of the
    held-out pairs right, or by a constant where neither reads more than one: see ``parts.choice``. Where a defense
    leaves little in the features, own columns still tell something. Without held-out pairs the second network answers
    alone. Networks for rows that are no table take features alone, so that there is one.
    """

    loss: InverseLoss = "fields"
    own_columns: bool = True
    steps: int = 2000
    converge: bool = True

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; the arguments are those of ``QueryAttack``."""
        pairs = self._pairs(view, knowledge)
        own = self._answer(pairs, knowledge, seeds, self.own_columns)
        if own.right is None or pairs.beside is None or not self.own_columns:
            return own.guess
        alone = replace(self, loss="mse")._answer(pairs, knowledge, seeds, own=False)
        assert alone.right is not None
        take = alone.right.double().mean(1) > own.right.double().mean(1)
        right = torch.where(take[:, None], alone.right, own.right)
        better = mixed(own.guess, alone.guess, take)
        return or_constants(better, right, pairs.cells[:, pairs.trained :], pairs.encoder, knowledge)


@dataclass(frozen=True)
class ShadowInversion:
    """InverNet of the data-passive attack, with the shadow that it was trained on."""

    inverse: Inverse
    shadow: nn.Module

    def guess(self, view: FeatureView) -> FeatureGuess:
        """Return InverNet's guess from the features that the target sent."""
        return guess_of(self.inverse, view.received)

    def self_inversion(self, cells: Float[Tensor, "training record column"]) -> FeatureGuess:
        """Return InverNet's guess from the shadow's own features of true cells: a diagnostic, not an attack."""
        # No attacker can compute it, as it needs the secret cells. It shows InverNet's accuracy on the network that it
        # was trained on, which the published figures of this attack are close to.
        with torch.no_grad():
            features = self.shadow(self.inverse.encoder.encode(cells))
        return guess_of(self.inverse, features)


@runtime_checkable
class ShadowAttack(Protocol):
    """An attack that trains a shadow of the target's bottom model, on which its quality can be measured."""

    def fit_shadow(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> ShadowInversion:
        """Return shadow and InverNet; the arguments are those of a call."""
        ...


@attacks.register("uifv_dpa", "vertical", needs=("auxiliary",))
@dataclass(frozen=True)
class DataPassiveAttack(_InverNet):
    """UIFV with auxiliary rows alone: a shadow bottom model, trained through the top model, replaces the target's.

    The shadow is trained by the task's loss through the frozen top model, with the other parties' features of the
    auxiliary rows; InverNet is trained on the shadow's features and applied to the features that the target sent.

    Source: Yang et al., UIFV (arXiv 2406.12588), section 4. The printed loss lacks logarithms and a sign;
    cross-entropy here. The shadow's features cannot be expected to equal the target's: nothing ties the axes of
    one to the other's.

    Attributes:
        hidden: units of the shadow's hidden layers.
        shadow_epochs: number of passes of the shadow's training over the auxiliary rows.
    """

    hidden: tuple[int, ...] = (300, 100)
    shadow_epochs: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("shadow_epochs", self.shadow_epochs)

    def fit_shadow(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> ShadowInversion:
        """Return shadow and InverNet; the arguments are those of a call."""
        rows = knowledge.granted_auxiliary("the data-passive attack")
        encoder = encoder_of(knowledge.schema)
        encoded = encoder.encode(rows.cells)
        shadows = shadow(view, rows, encoded, self.hidden, self.shadow_epochs, self.batch_size, seeds, knowledge.layout)
        with torch.no_grad():
            features = shadows(encoded)
        return ShadowInversion(self.inverter(knowledge.layout).fit(features, encoded, encoder, seeds), shadows)

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's shadow and InverNet."""
        return self.fit_shadow(view, knowledge, seeds).guess(view)


@attacks.register("uifv_iqa", "vertical", needs=("queries",))
@dataclass(frozen=True)
class IsolatedQueryAttack(_InverNet):
    """UIFV with queries alone: generated rows and the target's answers train InverNet.

    Source: Yang et al., UIFV (arXiv 2406.12588), section 4. The generator draws categories evenly and numbers evenly
    from an estimated range; the estimate is not stated, here the true bounds, or ``stretch`` times as wide.
    Rows that are no table are made up by their layout.

    Attributes:
        generator: whether rows are valid; otherwise all encoded columns are numbers drawn evenly from 0 to 1, the
            paper's comparison without data generation.
        stretch: width of the range that numbers are drawn from, in units of the true one.
        rows: number of generated rows, at most the budget; the budget if None.
    """

    generator: bool = True
    stretch: float | int = 1.0
    rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.stretch, bool) or not self.stretch > 0:
            raise BadInputError(f"stretch is a positive number, got stretch={self.stretch!r}.")
        if self.rows is not None:
            check_count("rows", self.rows)

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's generated rows and InverNet."""
        channel = knowledge.granted_queries("the isolated query attack")
        rows = channel.left if self.rows is None else min(self.rows, channel.left)
        encoder = encoder_of(knowledge.schema)
        if not self.generator:
            queries = plain_uniform(encoder, rows, seeds)
        elif knowledge.layout is None:
            queries = generated(encoder, rows, seeds, self.stretch)
        else:
            queries = knowledge.layout.queries(rows, seeds)
        inverse = self.inverter(knowledge.layout).fit(channel.ask(queries), queries, encoder, seeds)
        return guess_of(inverse, view.received, queries=rows)


@attacks.register("uifv_sa", "vertical", needs=("leaked",))
@dataclass(frozen=True)
class StealthAttack(_InverNet):
    """UIFV with a few leaked records: these and the features that the target sent for them train InverNet.

    Source: Yang et al., UIFV (arXiv 2406.12588), section 4 and table 13.
    """

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's InverNet."""
        leaked = knowledge.granted_leaked("the stealth attack")
        encoder = encoder_of(knowledge.schema)
        inverse = self.inverter(knowledge.layout).fit(leaked.features, encoder.encode(leaked.cells), encoder, seeds)
        return guess_of(inverse, view.received)


def guess_of(inverse: Inverse, inputs: Float[Tensor, "training record feature"], queries: int = 0) -> FeatureGuess:
    """Return the guess of a trained network."""
    return FeatureGuess(inverse.cells(inputs), inverse.chances(inputs), failed=inverse.failed, queries=queries)
