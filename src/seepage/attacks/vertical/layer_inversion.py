"""Inversion of a known bottom model layer by layer, with descent where a layer loses something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from seepage.attacks.vertical.white_box import DescentAttack, frozen
from seepage.models.inverse import cells_of
from seepage.models.layer_inverse import inverted, layers_of, obstacle
from seepage.models.vertical import encoder_of
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.wire.vertical import ActivationView, FeatureGuess, FeatureKnowledge

# Distance between features up to which they count as the same, relative to their size.
_SAME = 1e-3


@attacks.register("layer_inversion", "split", needs=("bottom",))
@attacks.register("layer_inversion", "vertical", needs=("bottom",))
@dataclass(frozen=True)
class LayerInversion(DescentAttack):
    """Undoes the bottom model layer by layer; where a layer loses something, cells are found by descent.

    Our own. Linear layers are solved, activations that lose nothing are undone, and a ReLU leaves the equations of its
    positive units. Columns of categories add up to 1, which are further equations. Records that do not replay their
    features, and networks with a layer that cannot be undone, go to descent on the features (``gia`` with
    ``match: features`` and ``valid``), the field's general attack on a known network.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> encoder = encoder_of(telling(rows=20).schema)
        >>> from torch import nn
        >>> why_not_exact(nn.Sequential(nn.Linear(11, 20), nn.GELU()), encoder)
        'layer 2 (GELU): two inputs have the same output'
    """

    valid: bool = True
    steps: int = 500
    learning_rate: float | int = 0.02

    def __call__(self, view: ActivationView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess.

        Raises:
            BadInputError: the bottom model was not granted.
        """
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
        starts = [
            0.1 * torch.randn(view.records, encoder.width, generator=torch.Generator().manual_seed(seed))
            for seed in seeds
        ]
        free, sends = torch.stack(starts).requires_grad_(True), frozen(bottom)
        self.descend([free], lambda _: (sends(self.rows(encoder, free)) - view.received).square().mean(-1).sum())
        with torch.no_grad():
            found = self.guess(encoder, self.rows(encoder, free))
        failed = found.failed if found.failed is None else found.failed & ~exact.all(1)
        return FeatureGuess(torch.where(exact[..., None], cells, found.cells), failed=failed, replayed=exact)


def why_not_exact(bottom: nn.Module, encoder: Encoder) -> str | None:
    """Return the layer of a bottom model that cannot be undone, and why; None where all can.

    Args:
        bottom: bottom model.
        encoder: encoder of its inputs.
    """
    return obstacle(layers_of(bottom), encoder)


def inversion_in_words(bottom: nn.Module, schema: Schema, part: str = "attacked party's bottom model") -> str:
    """Return a sentence on whether a bottom model can be undone layer by layer.

    Args:
        bottom: bottom model.
        schema: columns of the party.
        part: words for the bottom model.
    """
    why = why_not_exact(bottom, encoder_of(schema))
    if why is None:
        return f"The {part} can be inverted layer by layer, for each record of which ReLUs leave enough units positive."
    return (
        f"The {part} cannot be inverted exactly, because of {why}; attacks that know the weights fall back to descent."
    )
