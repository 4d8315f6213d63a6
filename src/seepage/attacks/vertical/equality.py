"""Equality solving (Luo et al., ICDE 2021): linear equations of a passive party's columns from a linear network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.vertical.white_box import Match, predicted
from seepage.errors import BadInputError, check_choice
from seepage.models.inverse import cells_of
from seepage.models.layer_inverse import sums_of_categories
from seepage.models.vertical import Stack, encoder_of
from seepage.registry import Traits, attacks
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView


def _linear(attack: EqualitySolving) -> tuple[str, ...]:
    """Return the networks that have no hidden layer: where predictions are matched, the top model too."""
    return ("bottom", "top") if attack.match == "prediction" else ("bottom",)


@attacks.register("esa", "vertical", traits=Traits(needs=("bottom",), linear=_linear))
@dataclass(frozen=True)
class EqualitySolving:
    """Linear equations of each record's columns from a known linear network, solved with the least norm.

    A prediction of c classes gives c - 1 differences of logits, or one logit where there are two classes; the
    contribution of the other parties' features is known. That number of encoded columns is found exactly. Source: Luo
    et al., Feature Inference Attack on Model Predictions in Vertical Federated Learning (ICDE 2021), equality solving
    attack.

    Attributes:
        match: values to match: ``prediction``, as published, or ``features``, which give one equation each (ours).
        valid: whether the categories of a column must add up to 1 (ours).

    Raises:
        BadInputError: ``match`` is neither.
    """

    match: Match = "prediction"
    valid: bool = False

    def __post_init__(self) -> None:
        check_choice("what equality solving matches:", self.match, Match)

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int] = (0,)) -> FeatureGuess:
        """Return the guess; ``seeds`` are not used. Networks with hidden layers are refused."""
        bottom = knowledge.granted_bottom("equality solving")
        encoder = encoder_of(knowledge.schema)
        slope, shift = _affine(bottom, "the target's bottom model")
        with torch.no_grad():
            if self.match == "features":
                values = view.received.double() - shift
            else:
                outputs = view.model.top(torch.cat(list(view.features), dim=-1))
                weight = _affine(view.model.top, "the top model")[0]
                rest = predicted(view, view.features, shift.expand(-1, view.records, -1).to(outputs))
                begin = sum(feature.shape[-1] for feature in view.features[: view.target])
                slope = slope @ weight[:, begin : begin + view.received.shape[-1]]
                values = (outputs - rest).double()
                if view.model.head == "softmax":
                    slope, values = slope.diff(dim=-1), values.diff(dim=-1)
            if self.valid:
                more, sums = sums_of_categories(encoder)
                slope = torch.cat([slope, more.expand(len(slope), -1, -1)], dim=-1)
                values = torch.cat([values, sums.expand(*values.shape[:2], -1)], dim=-1)
            solution = values @ torch.linalg.pinv(slope)
        return FeatureGuess(cells_of(encoder, solution), failed=~solution.flatten(1).isfinite().all(1))


def _affine(module: nn.Module, what: str) -> tuple[Float[Tensor, "training i o"], Float[Tensor, "training 1 o"]]:
    """Return the only layer of a network."""
    if not isinstance(module, Stack) or len(module.weights) != 1:
        raise BadInputError(
            f"equality solving takes networks without hidden layers, but {what} has some; audit a linear one (bottom: "
            "[], top: []), or leave the attack out."
        )
    return module.weights[0].detach().double(), module.biases[0].detach().double()
