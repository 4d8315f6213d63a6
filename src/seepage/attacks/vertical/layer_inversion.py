"""Inversion of a known bottom model layer by layer, with a learnt inverse where a layer loses something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.errors import check_count
from seepage.models.inverse import Inverter, cells_of
from seepage.models.layer_inverse import cut_off, inverted, layers_of, obstacle
from seepage.models.vertical import encoder_of
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Marginal
from seepage.wire.vertical import ActivationView, FeatureGuess, FeatureKnowledge

_SAME = 1e-3  # distance between features up to which they count as the same, relative to their size


@attacks.register("layer_inversion", "split", needs=("bottom",))
@attacks.register("layer_inversion", "vertical", needs=("bottom",))
@dataclass(frozen=True)
class LayerInversion:
    """Undoes the bottom model layer by layer; where a layer loses something, a network learns the way back.

    Source: our own. Linear layers are solved, activations that lose nothing are undone, and a ReLU leaves the equations
    of its positive units. Columns of categories add up to 1, which are further equations. Records that do not replay
    their features, and networks with a layer that cannot be undone, go to the field's general attack: a network that
    maps features back to cells (He et al. 2019; UIFV's InverNet). It learns from rows that follow the columns'
    marginals and from what the known bottom model makes of them, with the noise of a known defense.

    Attributes:
        rows: number of rows that the network learns from.
        epochs: number of passes over them.
        steps: least number of steps.

    Raises:
        BadInputError: a count is below 1.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> encoder = encoder_of(telling(rows=20).schema)
        >>> why_not_exact(nn.Sequential(nn.Linear(11, 20), nn.GELU()), encoder)
        'layer 2 (GELU): two inputs have the same output'
    """

    rows: int = 8_192
    epochs: int = 80
    steps: int = 1_000

    def __post_init__(self) -> None:
        for name in ("rows", "epochs", "steps"):
            check_count(name, getattr(self, name))

    def __call__(self, view: ActivationView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's rows and network."""
        bottom = knowledge.granted_bottom("inversion layer by layer")
        encoder = encoder_of(knowledge.schema)
        cells = torch.full((view.trainings, view.records, len(encoder.schema.columns)), torch.nan).double()
        exact = torch.zeros(view.trainings, view.records, dtype=torch.bool)
        for k, received in enumerate(view.received):
            layers = layers_of(bottom, k)
            if obstacle(layers, encoder) is None:
                values, exact[k] = inverted(layers, received, encoder)
                cells[k] = cells_of(encoder, values.nan_to_num())
        with torch.no_grad():
            apart = (bottom(encoder.encode(cells.nan_to_num())) - view.received).norm(dim=-1)
        exact &= apart <= _SAME * view.received.norm(dim=-1).clamp(min=_SAME)
        if bool(exact.all()):
            return FeatureGuess(cells, replayed=exact)
        learnt = self._learnt(view, knowledge, bottom, encoder, seeds)
        failed = learnt.isnan().flatten(1).any(1) & ~exact.all(1)
        return FeatureGuess(torch.where(exact[..., None], cells, learnt), failed=failed, replayed=exact)

    def _learnt(
        self,
        view: ActivationView,
        knowledge: FeatureKnowledge,
        bottom: nn.Module,
        encoder: Encoder,
        seeds: Sequence[int],
    ) -> Float[Tensor, "training record column"]:
        """Return the cells that a network finds which learnt the way back from rows of the marginals."""
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        rows = torch.stack([_drawn(knowledge.marginals, self.rows, draw) for draw in draws])
        encoded = encoder.encode(rows)
        with torch.no_grad():
            sent = bottom(encoded)
        if knowledge.defense.noise:
            spread = sent.std(1, keepdim=True)
            noise = torch.stack([torch.randn(sent.shape[1:], generator=draw) for draw in draws])
            sent = sent + knowledge.defense.noise * spread * noise
        inverter = Inverter(loss="fields", epochs=self.epochs, steps=self.steps)
        return inverter.fit(sent, encoded, encoder, seeds).cells(view.received)


def _drawn(marginals: Sequence[Marginal], rows: int, generator: torch.Generator) -> Float[Tensor, "row column"]:
    """Return rows whose cells follow the columns' marginals independently."""
    columns = [
        marginal.values[marginal.probabilities.multinomial(rows, replacement=True, generator=generator)]
        for marginal in marginals
    ]
    return torch.stack(columns, dim=1).double()


def why_not_exact(bottom: nn.Module, encoder: Encoder) -> str | None:
    """Return the layer of a bottom model that cannot be undone, and why; None where all can."""
    return obstacle(layers_of(bottom), encoder)


def inversion_in_words(bottom: nn.Module, schema: Schema, part: str = "attacked party's bottom model") -> str:
    """Return a sentence on whether a bottom model can be undone layer by layer."""
    why = why_not_exact(bottom, encoder_of(schema))
    if why is None:
        limit = ", for each record of which ReLUs leave enough units positive" if cut_off(layers_of(bottom)) else ""
        return f"The {part} can be inverted layer by layer{limit}."
    return f"The {part} cannot be inverted exactly, because of {why}; attacks that know the weights learn the way back."
