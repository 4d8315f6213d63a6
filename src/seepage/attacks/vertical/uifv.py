"""UIFV: a network learns to reconstruct a passive party's cells from its features, under four levels of access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.vertical.parts.generated import generated, plain_uniform
from seepage.attacks.vertical.parts.shadow import shadow
from seepage.baselines.vertical import own_inputs
from seepage.errors import BadInputError, check_count
from seepage.models.inverse import Calibration, Inverse, InverseLoss, Inverter
from seepage.models.vertical import PartLayout, encoder_of
from seepage.registry import Traits, attacks
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
        answered = self.ask(view, knowledge)
        encoder, queries, inputs, received = answered.encoder, answered.queries, answered.features, view.received
        # Networks for rows that are no table take features alone.
        if self.own_columns and knowledge.layout is None:
            mine = knowledge.granted_auxiliary("the query attack").own[:, : queries.shape[1]]
            inputs = torch.cat([inputs, own_inputs(view, mine, None)], dim=-1)
            received = torch.cat([received, own_inputs(view, view.own, None)], dim=-1)
        trained = queries.shape[1] - int(self.held_out * queries.shape[1])
        left_out = (inputs[:, trained:], queries[:, trained:]) if trained < queries.shape[1] else None
        inverse = self.inverter(knowledge.layout).fit(
            inputs[:, :trained], queries[:, :trained], encoder, seeds, held_out=left_out
        )
        guess = guess_of(inverse, received, queries=queries.shape[1])
        if left_out is None:
            return guess
        sure = Calibration.of(encoder, inverse.outputs(left_out[0]), left_out[1])
        chances = sure.chances(encoder, inverse.outputs(received))
        return replace(guess, chances=chances, radii=sure.widths(encoder))

    def ask(self, view: FeatureView, knowledge: FeatureKnowledge) -> Answered:
        """Return the auxiliary rows that are asked, with the target's answers."""
        rows = knowledge.granted_auxiliary("the query attack")
        channel = knowledge.granted_queries("the query attack")
        encoder = encoder_of(knowledge.schema)
        cells = rows.cells[:, : min(self.rows or channel.left, channel.left)]
        queries = encoder.encode(cells)
        return Answered(encoder, cells, queries, channel.ask(queries))


@dataclass(frozen=True)
class Answered:
    """Rows that were asked of the target, and its features of them."""

    encoder: Encoder
    cells: Float[Tensor, "training row column"]
    queries: Float[Tensor, "training row encoded"]
    features: Float[Tensor, "training row feature"]


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


@attacks.register("uifv_dpa", "vertical", traits=Traits(needs=("auxiliary",), shadow=True))
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
