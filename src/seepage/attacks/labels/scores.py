"""Label inference by the norm and the direction of what comes back (Li et al., ICLR 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.registry import Traits, attacks
from seepage.tabular.schema import Discrete
from seepage.wire.labels import LabelGuess, LabelKnowledge, ReturnedView
from seepage.wire.split import CutView


@attacks.register("label_norm", "split", traits=Traits(classes=True, bare_labels=False))
@attacks.register("label_norm", "vertical", traits=Traits(classes=True, bare_labels=False))
@dataclass(frozen=True)
class LabelNorm:
    """Takes the records of the largest gradients for the rarest label, as many as its share says.

    Source: Li et al., Label Leakage and Protection in Two-Party Split Learning (ICLR 2022), section 3.1, the norm
    attack. Deviations: the paper scores records for two labels and reports an AUC; here the marginal of the labels
    cuts the scores, and with more labels than two the next rarest follows. Of several exchanges the score is the mean
    of the norms, each in units of its exchange's mean.

    Example:
        >>> from seepage.tabular.statistics import Marginal
        >>> target = Discrete(name="ill", categories=(0, 1))
        >>> rare = Marginal(torch.arange(2).double(), torch.tensor([0.75, 0.25]).double(), 0.25, 0.4, 0.0)
        >>> came = torch.tensor([[[0.1], [0.9], [0.2], [-0.1]]])
        >>> LabelNorm()(ReturnedView(came, came, came), LabelKnowledge(target, rare)).labels.tolist()
        [[0.0, 1.0, 0.0, 0.0]]
    """

    def __call__(self, view: ReturnedView, knowledge: LabelKnowledge, seeds: Sequence[int] = (0,)) -> LabelGuess:
        """Return the guess; ``seeds`` are not used. Labels that are no classes are refused."""
        width = classes_of(knowledge, "the norm attack")
        shares = torch.zeros(width, dtype=torch.float64)
        shares[knowledge.marginal.values.long()] = knowledge.marginal.probabilities
        sizes = [torch.linalg.vector_norm(exchange.gradient.double(), dim=-1) for exchange in view.exchanges]
        norms = torch.stack([size / size.mean(1, keepdim=True).clamp(min=1e-300) for size in sizes]).mean(0)
        rarest = shares.argsort()
        ends = (shares[rarest].cumsum(0) * norms.shape[1]).round().long()
        place = norms.argsort(1, descending=True).argsort(1)
        labels = rarest[torch.bucketize(place, ends[:-1], right=True)]
        if width > 2:
            return LabelGuess(labels.double())
        # Only the order of these chances means anything.
        chance = 1 - (place.double() + 0.5) / norms.shape[1]
        chances = torch.stack([chance, 1 - chance], dim=-1)[..., rarest.argsort()]
        return LabelGuess(labels.double(), chances)


@attacks.register("label_direction", "split", traits=Traits(needs=("labels",), classes=True))
@attacks.register("label_direction", "vertical", traits=Traits(needs=("labels",), classes=True))
@dataclass(frozen=True)
class LabelDirection:
    """Takes the label of the known records whose gradients point to the same side.

    Source: Li et al., Label Leakage and Protection in Two-Party Split Learning (ICLR 2022), section 3.2, the cosine
    attack. Deviation: several known records of each label give its mean direction, instead of one record of the sought
    label. Labels that no known record has are never guessed. Of several exchanges the mean of the cosines counts.
    """

    def __call__(self, view: ReturnedView, knowledge: LabelKnowledge, seeds: Sequence[int] = (0,)) -> LabelGuess:
        """Return the guess; ``seeds`` are not used. Labels that are no classes are refused."""
        width = classes_of(knowledge, "the direction attack")
        positions, labels = knowledge.granted_labels("the direction attack")
        of_label = functional.one_hot(labels.long(), width).double().mT
        counts = of_label.sum(-1, keepdim=True)
        by_exchange = []
        for exchange in view.exchanges:
            directions = functional.normalize(exchange.gradient.double(), dim=-1)
            labelled = directions[torch.arange(len(positions))[:, None], positions]
            means: Float[Tensor, "training label feature"] = (of_label @ labelled) / counts.clamp(min=1)
            by_exchange.append(directions @ means.mT)
        cosines = torch.stack(by_exchange).mean(0)
        cosines = cosines.masked_fill((counts == 0).mT, -torch.inf)
        chances = cosines.softmax(-1)
        return LabelGuess(chances.argmax(-1).double(), chances)


def classes_of(knowledge: LabelKnowledge, what: str) -> int:
    """Return the number of labels."""
    if not isinstance(knowledge.target, Discrete):
        raise BadInputError(
            f"{what} tells classes apart, but the target {knowledge.target.name!r} is a number; use label_heads."
        )
    return knowledge.target.width


def norm_scores(view: CutView) -> Float[Tensor, " record"]:
    """Score records by the norm of their gradient, which is larger for a rare label (Li et al., section 3.1)."""
    return torch.linalg.vector_norm(view.own_gradient, dim=1).double().cpu()


def direction_scores(view: CutView, record: int) -> Float[Tensor, " record"]:
    """Score records by the cosine between their gradient and that of a record with the sought label (section 3.2)."""
    # For two classes the gradients of records with the same label point to the same side just below the logit, so that
    # the sign separates the labels. The known record should be left out of any figure.
    if not 0 <= record < view.records:
        raise BadInputError(
            f"record {record} was asked for of a view of {view.records} records, 0 to {view.records - 1}."
        )
    if not bool(view.gradient[record].any()):
        raise BadInputError(
            f"the gradient of record {record} is zero, so that it has no direction; take another record."
        )
    return functional.cosine_similarity(view.gradient, view.gradient[record][None], dim=1).double().cpu()
