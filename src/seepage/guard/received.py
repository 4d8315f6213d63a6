"""Signs that a server crafted the model that it sent, so that updates of it give more away."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seepage.models.calling import plain_attention
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.statistics import Statistics

_ROWS = 512
# Cosine from which two units' weights are multiples of each other.
_SAME = 0.9999
# Share of a layer's units from which a sign is reported.
_MOST = 0.5
# Fewer units say nothing.
_FEW = 8
# Share of the rows that a unit reacts to at most to count as dead or as a trap for single records.
_RARELY = 0.01


def signs_of_crafting(model: Model, encoder: Encoder, statistics: Statistics, seed: int = 0) -> tuple[str, ...]:
    """Return what in a received model looks crafted, one sentence each; nothing where all looks usual.

    Looked for are layers most of whose units are multiples of one another, which sort records into bins (Fowl et al.,
    ICLR 2022; Zhao et al., S&P 2024); layers most of whose inputs no unit takes; and layers most of whose units react
    to at most one in a hundred rows of the public marginals, which single records then activate alone. A server that
    knows these rules can craft a model that none of them finds.
    """
    signs = []
    reacting = _reacting(model, encoder, statistics, seed)
    layers = [(name, part) for name, part in model.module.named_modules() if isinstance(part, nn.Linear)]
    for name, layer in layers:
        weight, inner = layer.weight.detach(), layer is not layers[-1][1]
        alike = _alike(weight)
        rare = reacting.get(name, torch.ones(0)) <= _RARELY
        looked_for = (
            (inner, alike, "units", "are multiples of one another, as in a layer that sorts records into bins"),
            (True, ~weight.bool().any(0), "inputs", "reach no unit, as where clients are kept apart"),
            (True, ~weight.bool().any(1), "units", "take no input, as where clients are kept apart"),
            (inner, rare, "units", "react to hardly any record, as traps for single ones do"),
        )
        for applies, odd, kind, words in looked_for:
            if applies and len(odd) >= _FEW and int(odd.sum()) > _MOST * len(odd):
                signs.append(f"{int(odd.sum())} of {len(odd)} {kind} of layer {name!r} {words}")
    return tuple(signs)


def _alike(weight: Float[Tensor, "unit input"]) -> Bool[Tensor, " unit"]:
    """Return which units have weights that are a multiple of another unit's; of one input all would have."""
    if weight.shape[1] < 2:
        return torch.zeros(len(weight), dtype=torch.bool)
    directions = torch.nn.functional.normalize(weight.double(), dim=1)
    cosines = (directions @ directions.T).abs().fill_diagonal_(0)
    return (cosines > _SAME).any(1)


def _reacting(model: Model, encoder: Encoder, statistics: Statistics, seed: int) -> dict[str, Tensor]:
    """Return the share of public rows for which each unit of an affine layer is above zero, by the layer's name."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(_ROWS, len(statistics.marginals), generator=generator, dtype=torch.float64)
    rows = encoder.encode(statistics.rows(uniform))
    shares: dict[str, Tensor] = {}

    def listen(name: str) -> object:
        def note(_: nn.Module, __: object, outputs: Tensor) -> None:
            shares[name] = (outputs.detach().flatten(0, -2) > 0).double().mean(0)

        return note

    linear = [(name, part) for name, part in model.module.named_modules() if isinstance(part, nn.Linear)]
    handles = [part.register_forward_hook(listen(name)) for name, part in linear]  # pyright: ignore[reportArgumentType]
    try:
        with torch.no_grad(), plain_attention():
            model.module(rows)
    finally:
        for handle in handles:
            handle.remove()
    return shares
