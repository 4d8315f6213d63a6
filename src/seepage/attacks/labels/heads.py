"""Label inference by the best of several heads on a few known labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.models.predictors import best_head
from seepage.registry import attacks
from seepage.wire.labels import LabelGuess, LabelKnowledge, ReturnedView


@attacks.register("label_heads", "split", needs=("labels",))
@attacks.register("label_heads", "vertical", needs=("labels",))
@dataclass(frozen=True)
class LabelHeads:
    """Fits several heads to a few known labels, on what came back and on what it sent, and takes the best of them.

    Source: our own. A party that knows some labels need not settle for one score. Heads are a logistic regression, a
    random forest and a kernel regression; inputs are the gradients, their direction and norm, the features, the own
    columns and all of them. Where records were sent several times, the same of all exchanges, averaged and one after
    the other, are inputs too. The pair with the least cross-validated loss on the known labels answers. Numbers as
    labels are regressed by the same kinds of heads.

    Example:
        >>> from seepage.tabular.schema import Discrete
        >>> from seepage.tabular.statistics import Marginal
        >>> draw = torch.Generator().manual_seed(0)
        >>> true = torch.arange(60.0)[None] % 2
        >>> came = torch.randn(1, 60, 3, generator=draw).abs() * (1 - 2 * true[..., None])
        >>> view = ReturnedView(torch.zeros(1, 60, 3), came, torch.zeros(1, 60, 2))
        >>> target = Discrete(name="ill", categories=(0, 1))
        >>> even = Marginal(torch.arange(2).double(), torch.full((2,), 0.5).double(), 0.5, 0.5, 0.0)
        >>> guess = LabelHeads()(view, LabelKnowledge(target, even, torch.arange(20)[None], true[:, :20]), [0])
        >>> float((guess.labels == true).double().mean())
        1.0
    """

    def __call__(self, view: ReturnedView, knowledge: LabelKnowledge, seeds: Sequence[int]) -> LabelGuess:
        """Return the guess; ``seeds`` are those of each training's forests and folds."""
        return by_heads(inputs_of(view), knowledge, seeds, "label inference by heads")


def inputs_of(view: ReturnedView) -> dict[str, Float[Tensor, "training record _input"]]:
    """Return the inputs of the heads for each record, by name."""
    sized = [_sized(exchange) for exchange in view.exchanges]
    gradients, directions = sized[0]
    inputs = {
        "gradients": gradients,
        "directions": directions,
        "features": view.features,
        "columns": view.own,
        "all": torch.cat([directions, view.features, view.own], dim=-1),
    }
    if view.earlier:
        inputs["mean gradients"] = torch.stack([gradient for gradient, _ in sized]).mean(0)
        inputs["mean directions"] = torch.stack([direction for _, direction in sized]).mean(0)
        inputs["directions of all exchanges"] = torch.cat([direction for _, direction in sized], dim=-1)
        means = [inputs["mean gradients"], inputs["mean directions"], view.features, view.own]
        inputs["all of all exchanges"] = torch.cat(means, dim=-1)
    return inputs


def _sized(view: ReturnedView) -> tuple[Float[Tensor, "training record _input"], Float[Tensor, "training record _in"]]:
    """Return the gradients in units of their mean norm, and their directions with the logarithms of their norms."""
    size = torch.linalg.vector_norm(view.gradient.double(), dim=-1, keepdim=True)
    directions = torch.cat([view.gradient / size.clamp(min=1e-30), size.clamp(min=1e-30).log()], dim=-1)
    return view.gradient / size.mean(1, keepdim=True).clamp(min=1e-30), directions


def by_heads(
    inputs: Mapping[str, Float[Tensor, "training record _input"]],
    knowledge: LabelKnowledge,
    seeds: Sequence[int],
    what: str,
) -> LabelGuess:
    """Return the guess of the best head on the best inputs in each training."""
    positions, labels = knowledge.granted_labels(what)
    return LabelGuess.of(best_head([*inputs.values()], positions, labels, knowledge.target, seeds), knowledge.target)
