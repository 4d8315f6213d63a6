"""Pruned representations (Soteria: Sun, Li, Wang, Yang, Li and Chen, CVPR 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from seepage.defenses.defense import Batches, Labels, Update, check_separate
from seepage.errors import BadInputError, positive
from seepage.learning import gradient
from seepage.models.model import Model
from seepage.registry import ActsOn, defenses
from seepage.wire.horizontal import KnownDefense

# Entries of single records' gradients in memory at once; 64 MiB in float32.
_ENTRIES_AT_ONCE = 1 << 24


@defenses.register("soteria", "horizontal")
@dataclass(frozen=True)
class Soteria:
    """The last layer's gradient is pruned in the entries that depend most on the record itself.

    Source: Sun et al., Soteria (CVPR 2021).

    The weights' gradient of the last linear layer is the mean over records of the error times the layer's input, the
    record's representation r. Of each record's r the entries with the largest |r_i| / |dr_i / dx| are taken as 0
    there; all other gradients are sent as they are. An entry that is 0 already is pruned last.

    The criterion is the paper's for the fewest pruned entries. Deviations: it is applied to the last linear layer of
    any model, and to each record of a batch by itself. The gradients of the layers before are not changed, as in the
    paper, though the first layer's reveals the records of a table most directly: this is a defense to measure, not one
    to trust.

    Attributes:
        share: share of the representation's entries that is pruned, above 0 and at most 1; at least one is pruned.

    Raises:
        BadInputError: the share is out of range.

    Example:
        >>> model = Model(nn.Linear(2, 1, bias=False), head="regression", name="mine")
        >>> _ = nn.init.zeros_(model.module.weight)
        >>> rows, wanted = torch.tensor([[[1.0, 3.0], [2.0, 1.0]]]), torch.tensor([[-1.0, -1.0]])
        >>> Soteria(share=0.5).gradient(model, rows, wanted, seeds=[0])["weight"].tolist()
        [[[1.0, 1.0]]]
    """

    words: ClassVar[str] = "the most telling numbers left out"
    acts_on: ClassVar[ActsOn] = "gradients of single records"

    share: float | int

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", positive("share", self.share, most=1.0))

    def gradient(
        self, model: Model, encoded: Batches, labels: Labels, seeds: Sequence[int], parameters: Update | None = None
    ) -> Update:
        """Return the gradients, that of the last linear layer's weights pruned. A model without one is refused."""
        check_separate("soteria", model, len(encoded), seeds)
        name, layer = _last_layer(model, encoded[0, :1])
        entries = sum(p.numel() for p in model.parameters.values()) + layer.in_features * encoded.shape[-1]
        together = max(1, _ENTRIES_AT_ONCE // (entries * len(encoded)))
        weight = f"{name}.weight" if name else "weight"
        total: Update = {}
        for rows, targets in zip(encoded.split(together, 1), labels.split(together, 1), strict=True):
            gradients = gradient(model, rows[:, :, None], targets[:, :, None], parameters)
            if weight in gradients:
                unpruned = ~self._pruned(model, layer, rows, parameters)
                gradients[weight] = gradients[weight] * unpruned[:, :, None]
            for key, g in gradients.items():
                total[key] = total.get(key, torch.zeros_like(g[:, 0])) + g.sum(1)
        return {key: g / encoded.shape[1] for key, g in total.items()}

    def _pruned(
        self, model: Model, layer: nn.Linear, rows: Batches, parameters: Update | None
    ) -> Bool[Tensor, "victim record input"]:
        """Return which entries of each record's representation are pruned."""

        def representation(place: Update, row: Tensor) -> tuple[Tensor, Tensor]:
            inputs: list[Tensor] = []
            handle = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0]))
            try:
                functional_call(model.module, place, (row[None],))
            finally:
                handle.remove()
            return inputs[-1], inputs[-1]

        of_record = vmap(jacrev(representation, argnums=1, has_aux=True), in_dims=(None, 0))
        of_victim = vmap(of_record, in_dims=(None if parameters is None else 0, 0))
        jacobian, hidden = of_victim(model.parameters if parameters is None else parameters, rows)
        size = hidden.abs()
        score = torch.where(size > 0, size / jacobian.norm(dim=-1), 0.0)
        chosen = score.topk(max(1, round(self.share * score.shape[-1])), dim=-1).indices
        return torch.zeros_like(score, dtype=torch.bool).scatter(-1, chosen, True)

    def noise(self, records: int) -> float:
        """Return 0: nothing is random."""
        return 0.0

    def describe(self) -> KnownDefense:
        """Return the mechanism and its share."""
        return KnownDefense("soteria", {"share": self.share})


def _last_layer(model: Model, rows: Tensor) -> tuple[str, nn.Linear]:
    """Return the linear layer that runs last, with its name."""
    ran: list[tuple[str, nn.Linear]] = []
    layers = [(name, part) for name, part in model.module.named_modules() if isinstance(part, nn.Linear)]
    handles = [
        layer.register_forward_pre_hook(lambda *_, place=(name, layer): ran.append(place)) for name, layer in layers
    ]
    try:
        with torch.no_grad():
            model.module(rows)
    finally:
        for handle in handles:
            handle.remove()
    if not ran:
        raise BadInputError(
            f"'soteria' prunes the inputs of the last nn.Linear layer, and model {model.name!r} has none; choose "
            "another defense."
        )
    return ran[-1]
