"""Published attacks on gradients, applied to a bottom model of vertical learning: DLG, CPA, SQR, LOKI.

They need gradients with respect to the parameters of the target's bottom model, which do not cross this wire and have
to be granted. They know the target's bottom model, and the gradients with respect to features, which the attacker
sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.cocktail_party import CocktailParty
from seepage.attacks.horizontal.exact.first_layer import quotients
from seepage.attacks.vertical.white_box import DescentAttack
from seepage.errors import BadInputError, check_count
from seepage.models.inverse import cells_of
from seepage.models.vertical import Stack, encoder_of
from seepage.papers.uifv.attacks.sqr import components
from seepage.registry import Need, attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView

_NEEDS: tuple[Need, ...] = ("bottom", "gradients")


class _Seen(NamedTuple):
    """The granted data, with trainings and batches as one axis of victims."""

    encoder: Encoder
    weights: list[Float[Tensor, "victim _input _unit"]]
    biases: list[Float[Tensor, "victim 1 _unit"]]
    by_weights: list[Float[Tensor, "victim _input _unit"]]
    by_biases: list[Float[Tensor, "victim 1 _unit"]]
    returned: Float[Tensor, "victim record feature"]
    received: Float[Tensor, "victim record feature"]

    def sent(self, rows: Float[Tensor, "victim row encoded"]) -> list[Float[Tensor, "victim row _unit"]]:
        """Return the outputs of each layer of the bottom model for some rows, before any ReLU."""
        messages = []
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            rows = torch.baddbmm(bias, rows.relu() if i else rows, weight)
            messages.append(rows)
        return messages

    def guess(self, outputs: Float[Tensor, "victim record encoded"], trainings: int) -> FeatureGuess:
        """Return the guess that consists of encoded rows, in the records' order."""
        outputs = outputs.unflatten(0, (trainings, -1)).flatten(1, 2)
        failed = ~outputs.flatten(1).isfinite().all(1)
        return FeatureGuess(
            torch.where(failed[:, None, None], torch.nan, cells_of(self.encoder, outputs)), failed=failed
        )

    def placed(self, candidates: Float[Tensor, "victim candidate encoded"]) -> Float[Tensor, "victim record encoded"]:
        """Return for each record the candidate whose valid row would send the nearest features (ours).

        The attacks themselves return records in no order; the bottom model and the features reveal it.
        """
        there = candidates.isfinite().all(-1)
        rows = torch.where(there[..., None], candidates, torch.zeros_like(candidates)).to(self.received)
        valid = self.encoder.encode(cells_of(self.encoder, rows))
        apart = torch.cdist(self.received, self.sent(valid)[-1])
        nearest = torch.where(there[:, None], apart, torch.inf).argmin(-1)
        return rows.gather(1, nearest[..., None].expand(-1, -1, rows.shape[-1]))


def _received(view: FeatureView, knowledge: FeatureKnowledge, what: str) -> _Seen:
    granted = knowledge.granted_gradients(what)
    bottom = knowledge.granted_bottom(what)
    if not isinstance(bottom, Stack):
        raise BadInputError(
            f"{what} reads gradients of fully connected bottom models, but the target's is {type(bottom).__name__}; "
            "leave the attack out."
        )
    if granted.returned.shape[1] != view.records:
        raise BadInputError(
            f"{what} guesses the {granted.returned.shape[1]} records that gradients were granted of, but the view has "
            f"{view.records}; hand in these records' view."
        )
    batches = granted.batches

    def flat(tensor: Tensor) -> Tensor:
        return tensor.detach().unflatten(1, (batches, -1)).flatten(0, 1)

    def of(kind: str) -> list[Tensor]:
        return [g.flatten(0, 1) for name, g in granted.parameters.items() if name.startswith(kind)]

    weights, biases = (
        [p.detach().repeat_interleave(batches, 0) for p in group] for group in (bottom.weights, bottom.biases)
    )
    return _Seen(
        encoder_of(knowledge.schema),
        weights,
        biases,
        of("weights"),
        of("biases"),
        flat(granted.returned),
        flat(view.received),
    )


def _each(seeds: Sequence[int], victims: int) -> list[int]:
    """Return a seed for each victim."""
    batches = victims // len(seeds)
    return [seed + i for seed in seeds for i in range(batches)]


@attacks.register("bottom_dlg", "vertical", needs=_NEEDS)
@dataclass(frozen=True)
class GradientMatching(DescentAttack):
    """Rows are optimised until their gradients of the bottom model match the granted ones.

    Source: Zhu et al., Deep Leakage from Gradients (NeurIPS 2019). Deviations: Adam instead of L-BFGS; the gradients
    with respect to features, which the attacker sent, are used unchanged, so that labels and the other parties'
    part need not be guessed and each record has its position; squared distances are in units of the gradient's own
    square.
    """

    steps: int = 500
    learning_rate: float | int = 0.05

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; each training's start has its seed."""
        received = _received(view, knowledge, "gradient matching")
        shape = (received.returned.shape[1], received.encoder.width)
        starts = [
            0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
            for seed in _each(seeds, len(received.returned))
        ]
        free = torch.stack(starts).requires_grad_(True)
        wanted = [*received.by_weights, *received.by_biases]
        size = torch.stack([gradient.square().sum((1, 2)) for gradient in wanted]).sum(0)
        # Where the received gradient is zero, there is nothing to match.
        size = torch.where(size > 0, size, torch.ones_like(size))

        def loss(step: int) -> Tensor:
            dummy = _gradients(received, self.rows(received.encoder, free))
            apart = [(gradient - other).square().sum((1, 2)) for gradient, other in zip(dummy, wanted, strict=True)]
            return (torch.stack(apart).sum(0) / size).sum()

        self.descend([free], loss)
        with torch.no_grad():
            return received.guess(self.rows(received.encoder, free), view.trainings)


def _gradients(received: _Seen, rows: Float[Tensor, "victim record encoded"]) -> list[Tensor]:
    """Return the gradients of weights, then of biases, for some rows; differentiable in the rows."""
    outputs = received.sent(rows)
    inputs = [rows, *(activations.relu() for activations in outputs[:-1])]
    error, weights, biases = received.returned, list[Tensor](), list[Tensor]()
    for i in reversed(range(len(outputs))):
        weights.insert(0, inputs[i].mT @ error)
        biases.insert(0, error.sum(1, keepdim=True))
        if i:
            error = (error @ received.weights[i].mT) * (outputs[i - 1] > 0)
    return [*weights, *biases]


@dataclass(frozen=True)
class _Unmixed:
    """An attack on the first layer's gradient, which returns candidates in no order."""

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; each candidate takes the position of the records whose features it would send."""
        received = _received(view, knowledge, f"the attack {type(self).__name__}")
        return received.guess(
            received.placed(self.candidates(received, _each(seeds, len(received.returned)))), view.trainings
        )

    def candidates(self, received: _Seen, seeds: Sequence[int]) -> Float[Tensor, "victim candidate encoded"]:
        """Return encoded rows; those that do not exist are not finite."""
        raise NotImplementedError


@attacks.register("bottom_loki", "vertical", needs=_NEEDS)
@dataclass(frozen=True)
class NeuronQuotients(_Unmixed):
    """Each unit of the first layer is a candidate: its weights' gradient over its bias's.

    Source: the last step of Zhao et al., LOKI (IEEE S&P 2024). Its server sends crafted networks so that only one
    record activates a unit; here the network is not crafted, as in the comparison of vertical attacks.
    """

    def candidates(self, received: _Seen, seeds: Sequence[int]) -> Float[Tensor, "victim candidate encoded"]:
        """Return one candidate a unit."""
        return quotients(received.by_weights[0].mT, received.by_biases[0][:, 0])


@attacks.register("bottom_cpa", "vertical", needs=_NEEDS)
@dataclass(frozen=True)
class IndependentComponents(_Unmixed):
    """Independent components of the first layer's gradient, see ``CocktailParty``.

    Source: Kariyappa et al., Cocktail Party Attack (ICML 2023).

    Attributes:
        iterations: number of iterations of the search.
    """

    iterations: int = 3000

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)

    def candidates(self, received: _Seen, seeds: Sequence[int]) -> Float[Tensor, "victim candidate encoded"]:
        """Return one candidate a component."""
        mixed = torch.cat([received.by_weights[0].mT, received.by_biases[0].mT], dim=2).double()
        unmixed = CocktailParty(iterations=self.iterations).unmix(mixed, received.returned.shape[1], None)
        return quotients(unmixed[..., :-1], unmixed[..., -1])


@attacks.register("bottom_sqr", "vertical", needs=_NEEDS)
@dataclass(frozen=True)
class TensorComponents(_Unmixed):
    """Components of the tensor that the second layer's gradient averages to, see ``Sqr``.

    Source: Wang, Lee and Lei, Reconstructing Training Data from Model Gradient, Provably (AISTATS 2023).

    Its theory is about one wide layer of normal weights without biases whose activation has a third order. None of
    that holds for a trained bottom model with ReLUs: this is a comparison that is expected to fail.

    Attributes:
        components: largest number of components.
    """

    components: int = 12

    def __post_init__(self) -> None:
        check_count("components", self.components)

    def candidates(self, received: _Seen, seeds: Sequence[int]) -> Float[Tensor, "victim candidate encoded"]:
        """Return one candidate a component."""
        if len(received.weights) < 2:
            raise BadInputError("bottom_sqr reads a hidden layer, but the target's bottom model has none; drop it.")
        weight = received.weights[0].mT.double()
        count = min(self.components, received.returned.shape[1], weight.shape[2])
        # The third order of this many components takes this many equations.
        while count > 1 and (count + 1) * (count + 2) * (count + 3) > 3 * weight.shape[1]:
            count -= 1
        return components(weight, received.by_weights[1].mT.double(), nn.ReLU(), count, seeds)
