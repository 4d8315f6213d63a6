"""Descent on cells and weights that explain the messages, in turn (Erdogan et al. 2022, UnSplit).

With cells x and labels y relaxed to numbers, and w the client's weights, the descent is in turn on (x, y) and on w of
``sum |s(f_w(h, x), y) J_w(h, x) - g|^2 / |g|^2`` over records.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError, check_choice, check_count
from seepage.models.deepfm import DeepFMClient
from seepage.registry import Traits, attacks
from seepage.wire.split import CutGuess, CutKnowledge, CutView, check_gradient

Weights = Literal["cloned", "granted"]
_INPUT_RATE, _WEIGHT_RATE = 0.1, 1e-3
_STD = 0.1


@attacks.register("unsplit", "split", traits=Traits(classes=True))
@dataclass(frozen=True)
class UnSplit:
    """Descends in turn on the private cells and on a copy of the client's weights, until both explain the messages.

    Source: Erdogan et al., UnSplit (2022). The server knows the architecture of the client's part, but none of its
    weights. Deviations: clients compute the last layers here, so that gradients are matched, not activations; cells are
    points of the simplex of each column's values, without a smoothness term; 1,000 rounds of 100 steps of both are cut
    to ``rounds`` of ``steps``, with a larger rate for cells. Labels are relaxed and found with the cells. A table of
    unknown embeddings does not identify the values of its positions, so that cells can hardly be found without the
    weights; with them (``weights: granted``, not in the paper) it is a descent where ``exact`` is exhaustive.

    Attributes:
        weights: ``cloned``: unknown, and found with the cells; ``granted``: known, as to ``exact``.
        rounds, steps: number of rounds and of steps of the descent.

    Raises:
        BadInputError: an argument is out of range.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.models.deepfm import deepfm
        >>> from seepage.protocols.split import SplitLearning
        >>> data = telling(rows=200)
        >>> protocol = SplitLearning(epochs=2, batch_size=32)
        >>> trained = protocol.train(deepfm(data.schema, ["noise_0"], seed=0), data.train, seed=0)
        >>> seen = protocol.observe(trained, data.train.rows(range(20)), seed=1)
        >>> guess = UnSplit(rounds=2, steps=5)(seen.view, CutKnowledge(data.schema, data.statistics), seeds=[0])
        >>> guess.cells.shape
        torch.Size([20, 1])
    """

    weights: Weights = "cloned"
    rounds: int = 20
    steps: int = 20

    def __post_init__(self) -> None:
        check_choice("weights:", self.weights, Weights)
        for name in ("rounds", "steps"):
            check_count(name, getattr(self, name))

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess; ``seeds`` are those of the weights that the descent starts from."""
        check_gradient(view)
        model = view.model
        if not isinstance(model.client, DeepFMClient) or model.head != "sigmoid" or model.client.own.dense:
            raise BadInputError(
                "unsplit descends on mixtures of embeddings, for which the client part must be a DeepFM with one logit "
                f"and private columns of categories, got {type(model.client).__name__} with head {model.head} and "
                f"{', '.join(model.private_names)} private; use exact."
            )
        client = copy.deepcopy(model.client).requires_grad_(True)
        if self.weights == "cloned":
            generator = torch.Generator().manual_seed(seeds[0])
            with torch.no_grad():
                for parameter in client.parameters():
                    parameter.copy_(_STD * torch.randn(parameter.shape, generator=generator))
        columns = [knowledge.schema.columns[i] for i in model.private]
        cells = [torch.zeros(view.records, column.width, dtype=view.cut.dtype) for column in columns]
        cells = [cell.requires_grad_(True) for cell in cells]
        label = torch.zeros(view.records, dtype=view.cut.dtype, requires_grad=True)
        inputs = torch.optim.Adam([*cells, label], lr=_INPUT_RATE, amsgrad=True)
        weights = torch.optim.Adam(client.parameters(), lr=_WEIGHT_RATE, amsgrad=True)
        for _ in range(self.rounds):
            for optimiser in (inputs, weights) if self.weights == "cloned" else (inputs,):
                for _ in range(self.steps):
                    optimiser.zero_grad()
                    _misfit(client, view, cells, label).sum().backward()
                    optimiser.step()
        chances = tuple(cell.detach().double().softmax(1) for cell in cells)
        codes = torch.stack([chance.argmax(1) for chance in chances], dim=1)
        return CutGuess(codes.double(), (label.detach() > 0).double(), chances=chances)


def _misfit(client: DeepFMClient, view: CutView, cells: Sequence[Tensor], label: Tensor) -> Float[Tensor, " record"]:
    """Return the squared distance between the gradients of relaxed cells and the received ones, relative to these."""
    cut = view.cut.clone().requires_grad_(True)
    logits = client.relaxed(cut, [cell.softmax(1) for cell in cells])[:, 0]
    [derivatives] = torch.autograd.grad(logits.sum(), cut, create_graph=True)
    gradients = (logits.sigmoid() - label.sigmoid())[:, None] * derivatives
    size = view.own_gradient.square().sum(1).clamp(min=1e-12)
    return (gradients - view.own_gradient).square().sum(1) / size
