"""A network that decodes the gradients of split learning, trained on auxiliary rows (after Pasquini et al., FSHA).

Auxiliary rows (x, y) have messages ``g = clip(s(f(h, x), y) J) + noise``, simulated anew in each epoch. The decoder
minimises the sum of the cross-entropies of its answers for each column x_k and for y, given ``g / |g|``, ``log |g|``
and h: answers are the chances of each value, as far as a network can tell them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from seepage.attacks.split.parts.messages import bound_of, message_of
from seepage.attacks.split.parts.space import Space
from seepage.errors import BadInputError, check_count
from seepage.models.split import record_losses
from seepage.registry import Traits, attacks
from seepage.seeds import seeded
from seepage.wire.split import CutGuess, CutKnowledge, CutView, check_gradient

_RATE, _BATCH = 1e-3, 256


@attacks.register(
    "fsha", "split", traits=Traits(needs=("auxiliary",), classes=True, mark="active in its paper, passive here")
)
@dataclass(frozen=True)
class FSHA:
    """Active in its paper, passive here: decodes gradients by a network that learned from those of auxiliary rows.

    Source: Pasquini et al., Unleashing the Tiger (2021). They invert a client's messages by a decoder trained on public
    data, after a malicious server has steered the client's network into a space of its choice. Deviations: here clients
    compute the last layers, so that they send gradients and the server cannot steer them. The server is honest and
    knows the client's weights, which give it auxiliary rows' gradients, clipped and with noise where it knows of them.
    Inputs are the gradient's direction, the logarithm of its norm and the activations; the answer is the chance of each
    value.

    Attributes:
        hidden: units of the decoder's layers.
        epochs: number of epochs of its training.
        bins: number of bins of a continuous private column.

    Raises:
        BadInputError: an argument is out of range.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.wire.split import Auxiliary
        >>> from seepage.models.deepfm import deepfm
        >>> from seepage.protocols.split import SplitLearning
        >>> data = telling(rows=400)
        >>> protocol = SplitLearning(epochs=2, batch_size=32)
        >>> trained = protocol.train(deepfm(data.schema, ["cause"], seed=0), data.train, seed=0)
        >>> seen = protocol.observe(trained, data.train.rows(range(50)), seed=1)
        >>> others = data.train.rows(range(50, 400))
        >>> knowledge = CutKnowledge(data.schema, data.statistics, auxiliary=Auxiliary(others.cells, others.labels))
        >>> guess = FSHA()(seen.view, knowledge, seeds=[0])
        >>> float((guess.labels == seen.labels).double().mean()) > 0.9
        True
    """

    hidden: tuple[int, ...] = (256, 128)
    epochs: int = 40
    bins: int = 16

    def __post_init__(self) -> None:
        for name in ("epochs", "bins"):
            check_count(name, getattr(self, name))
        for width in self.hidden:
            check_count("a width of the decoder", width)

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess; ``seeds`` are those of the decoder and of the noise it is trained with."""
        check_gradient(view)
        rows = knowledge.auxiliary
        if rows is None or not len(rows):
            raise BadInputError("fsha trains its decoder on auxiliary rows, but the attacker holds none; grant some.")
        model = view.model
        space = Space.of(model, knowledge, self.bins)
        private = model.scaled(rows.cells, model.private)
        wanted = [
            (private[:, i, None] - values.to(private)).abs().argmin(1) for i, values in enumerate(space.values)
        ] + [rows.labels.long()]
        widths = [*space.widths, model.classes]
        generator = torch.Generator().manual_seed(seeds[0])
        cut = model.cut(rows.cells).detach()
        features = message_features(view.own_gradient, view.cut).detach()
        network = seeded(lambda: decoder([features.shape[1], *self.hidden, sum(widths)]), seeds[0])
        center = spread = torch.zeros(())
        optimiser = torch.optim.Adam(network.parameters(), lr=_RATE)
        for epoch in range(self.epochs):
            drawn = _simulated_messages(view, knowledge, cut, private, rows.labels.long(), generator)
            inputs = message_features(drawn, cut).detach()
            if not epoch:
                center, spread = inputs.mean(0), inputs.std(0).clamp(min=1e-6)
            inputs = (inputs - center) / spread
            for batch in torch.randperm(len(rows), generator=generator).split(_BATCH):
                parts = network(inputs[batch]).split(widths, dim=1)
                losses = [functional.cross_entropy(part, code[batch]) for part, code in zip(parts, wanted, strict=True)]
                optimiser.zero_grad()
                torch.stack(losses).sum().backward()
                optimiser.step()
        with torch.no_grad():
            parts = network((features - center) / spread).double().split(widths, dim=1)
        chances = [part.softmax(1) for part in parts]
        codes = torch.stack([chance.argmax(1) for chance in chances[:-1]], dim=1)
        return CutGuess(
            cells=model.unscaled(space.of_codes(codes), model.private),
            labels=chances[-1].argmax(1).double(),
            chances=tuple(chances[:-1]),
            label_chances=chances[-1],
        )


def _simulated_messages(
    view: CutView, knowledge: CutKnowledge, cut: Tensor, private: Tensor, labels: Tensor, generator: torch.Generator
) -> Float[Tensor, "row cut"]:
    """Return simulated messages of auxiliary rows, with new noise and newly flipped labels, by the known defense."""
    model, defense = view.model, knowledge.defense
    if defense.flip:
        flips = torch.rand(len(labels), generator=generator) < defense.flip
        others = torch.randint(1, model.classes, (len(labels),), generator=generator)
        labels = torch.where(flips, (labels + others) % model.classes, labels)
    received = cut.clone().requires_grad_(True)
    losses = record_losses(model.head, model.client(received, private), labels)
    [gradients] = torch.autograd.grad(losses.sum(), received)
    sent = message_of(defense, view.clip)
    if sent is None:
        return gradients
    norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    bound = norms / 2 if defense.own_norm else torch.full_like(norms, bound_of(defense, view.clip))
    noise = torch.randn(gradients.shape, generator=generator, dtype=gradients.dtype)
    return sent(gradients) + defense.noise_multiplier * bound * noise


def message_features(gradient: Float[Tensor, "row cut"], cut: Float[Tensor, "row cut"]) -> Float[Tensor, "row feature"]:
    """Return a decoder's inputs of each message: direction and norm of the gradient, and the activations."""
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
    return torch.cat([gradient / norms, norms.log(), cut], dim=1)


def decoder(sizes: Sequence[int]) -> nn.Sequential:
    """Return a fully connected ReLU network of some widths."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Linear(inputs, outputs)] + ([nn.ReLU()] if i + 2 < len(sizes) else [])
    return nn.Sequential(*layers)
