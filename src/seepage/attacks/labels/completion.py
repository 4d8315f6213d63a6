"""Label inference by model completion and from unsplit gradients (Fu et al., USENIX Security 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seepage.attacks.labels.heads import by_heads
from seepage.attacks.labels.scores import classes_of
from seepage.registry import Traits, attacks
from seepage.wire.labels import LabelGuess, LabelKnowledge, LogitsView, ReturnedView


@attacks.register("label_completion", "split", traits=Traits(needs=("labels",), bare_labels=False))
@attacks.register("label_completion", "vertical", traits=Traits(needs=("labels",), bare_labels=False))
@dataclass(frozen=True)
class LabelCompletion:
    """Completes the own part of the network by a head that is fitted to a few known labels.

    Source: Fu et al., Label Inference Attacks Against Vertical Federated Learning (USENIX Security 2022), section 4.1,
    passive model completion. Deviation: the head is the best of several on the features, by their loss on known labels
    that were left out, instead of one layer that is trained with MixMatch. It never looks at what came back. Where
    records were sent several times, heads may read the features of all exchanges together.
    """

    def __call__(self, view: ReturnedView, knowledge: LabelKnowledge, seeds: Sequence[int]) -> LabelGuess:
        """Return the guess; ``seeds`` are those of each training's heads."""
        inputs = {"features": view.features}
        if view.earlier:
            inputs["features of all exchanges"] = torch.cat([exchange.features for exchange in view.exchanges], dim=-1)
        return by_heads(inputs, knowledge, seeds, "model completion")


@attacks.register(
    "label_completion_active", "vertical", traits=Traits(needs=("labels", "steering"), bare_labels=False, active=True)
)
@dataclass(frozen=True)
class ActiveLabelCompletion(LabelCompletion):
    """Active: model completion by a party that scales its own steps up, so that the top model relies on its features.

    Source: Fu et al. (USENIX Security 2022), section 4.2, active model completion with the malicious local optimiser.
    Each entry of its step is multiplied by 1 + gamma times the ratio of its gradient to the one before, at least 1 and
    at most ``most`` (``protocols.vertical.Steering``). The party breaks the protocol, in its own part alone. The head
    is that of ``label_completion``.

    Attributes:
        gamma: factor of the ratio.
        most: largest factor of a step.
    """

    gamma: float | int = 1.0
    most: float | int = 5.0


@attacks.register("label_direct", "vertical", traits=Traits(classes=True))
@dataclass(frozen=True)
class LabelDirect:
    """Reads the label off the sign of what comes back, where features are the logits themselves.

    Source: Fu et al. (USENIX Security 2022), section 4.3, direct label inference. The derivative of the loss by
    the logits is the predicted chance less 1 at the label, and the chance elsewhere, so that the negative entry is the
    label. With one logit for two classes, its sign is. The gradients of several exchanges are added up.
    """

    def __call__(self, view: LogitsView, knowledge: LabelKnowledge, seeds: Sequence[int] = (0,)) -> LabelGuess:
        """Return the guess; ``seeds`` are not used. Labels that are no classes are refused."""
        classes_of(knowledge, "direct label inference")
        came = torch.stack([exchange.gradient.double() for exchange in view.exchanges]).sum(0)
        labels = (came[..., 0] < 0).double() if came.shape[-1] == 1 else came.argmin(-1).double()
        return LabelGuess(labels)
