"""Pseudo-clients: a server without the client's weights trains a client of its own and decodes as it answers.

The pseudo-client c minimises ``mean L(c(h, x), y)`` over auxiliary rows, with h from the server's own part. With weight
w an adversary A is trained in turn to tell its messages m(c) from those that came back, and c minimises
``mean L + w mean -log A(m(c))``. The decoder of ``fsha`` then learns from the messages of c.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from seepage.attacks.split.fsha import FSHA, decoder, message_features
from seepage.errors import BadInputError, check_count
from seepage.models.split import record_losses
from seepage.registry import Traits, attacks
from seepage.seeds import seeded
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge, CutView, check_gradient

_RATE, _ADVERSARY_RATE = 1e-3, 1e-4
_BATCH = 256
_STD = 0.01  # standard deviation of the weights that pseudo-clients start from


@attacks.register("pcat", "split", traits=Traits(needs=("auxiliary",), classes=True))
@dataclass(frozen=True)
class PseudoClientAttack:
    """Trains a client of its own on auxiliary rows, and on that client's gradients a network that decodes gradients.

    Source: Gao and Zhang, PCAT: Functionality and Data Stealing from Split Learning by Pseudo-Client Attack (USENIX
    Security 2023). The server is passive: it knows the architecture of the client's part and auxiliary rows with
    labels, but no weights. Deviations: there the client computes the first layers, so that a pseudo-client is trained
    through the server's part, at every step of the training. Here clients compute the last ones: the pseudo-client
    learns the labels behind the server's part as it is in the attacked exchange, and answers with gradients. The
    decoder is that of ``fsha``.

    Attributes:
        client_epochs: number of epochs of the pseudo-client's training.
        hidden, epochs, bins: settings of the decoder, see ``FSHA``.

    Raises:
        BadInputError: an argument is out of range.
    """

    client_epochs: int = 30
    hidden: tuple[int, ...] = (256, 128)
    epochs: int = 40
    bins: int = 16

    def __post_init__(self) -> None:
        check_count("client_epochs", self.client_epochs)
        # Refuses what the decoder refuses.
        self._decoder()

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess; ``seeds`` are those of the pseudo-client, the decoder and the noise it is trained with."""
        check_gradient(view)
        if knowledge.auxiliary is None or not len(knowledge.auxiliary):
            raise BadInputError(
                "a pseudo-client is trained on auxiliary rows, but the attacker holds none; grant some (auxiliary)."
            )
        client = _trained_client(view, knowledge.auxiliary, seeds[0], self.client_epochs, self._adversary_weight)
        return self._decoder()(replace(view, model=view.model.with_client(client)), knowledge, seeds)

    def _decoder(self) -> FSHA:
        return FSHA(self.hidden, self.epochs, self.bins)

    @property
    def _adversary_weight(self) -> float:
        return 0.0


@attacks.register("sdar", "split", traits=Traits(needs=("auxiliary",), classes=True))
@dataclass(frozen=True)
class AdversarialClientAttack(PseudoClientAttack):
    """As ``pcat``, with a pseudo-client whose gradients an adversary cannot tell from those that came back.

    Source: Zhu et al., Passive Inference Attacks on Split Learning via Adversarial Regularization (NDSS 2025), SDAR.
    The loss of the pseudo-client has a term by which a discriminator shall take its messages for the client's.
    Deviations: those of ``pcat``; messages are gradients with the activations that they answer, and the decoder has no
    discriminator of its own.

    Attributes:
        weight: weight of the term.

    Raises:
        BadInputError: an argument is out of range.
    """

    weight: float | int = 0.04

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.weight, bool) or not 0 <= self.weight < math.inf:
            raise BadInputError(f"the weight of the adversary is a number from 0 up, got weight={self.weight!r}.")

    @property
    def _adversary_weight(self) -> float:
        return float(self.weight)


def _trained_client(view: CutView, rows: Auxiliary, seed: int, epochs: int, weight: float) -> nn.Module:
    """Return a pseudo-client that was trained on auxiliary rows, from weights that have nothing of the client's."""
    model, generator = view.model, torch.Generator().manual_seed(seed)
    cut, private, labels = model.cut(rows.cells).detach(), model.scaled(rows.cells, model.private), rows.labels.long()
    features = message_features(view.own_gradient, view.cut).detach()
    client = copy.deepcopy(model.client).requires_grad_(True)
    with torch.no_grad():
        for parameter in client.parameters():
            parameter.copy_(_STD * torch.randn(parameter.shape, generator=generator))
    optimiser = torch.optim.Adam(client.parameters(), lr=_RATE)
    center, spread = features.mean(0), features.std(0, correction=0).clamp(min=1e-6)
    adversary = seeded(lambda: decoder([features.shape[1], 128, 128, 1]), seed)
    against = torch.optim.Adam(adversary.parameters(), lr=_ADVERSARY_RATE)
    judged = functional.binary_cross_entropy_with_logits
    for _ in range(epochs):
        for batch in torch.randperm(len(labels), generator=generator).split(_BATCH):
            received = cut[batch].clone().requires_grad_(weight > 0)
            losses = record_losses(model.head, client(received, private[batch]), labels[batch])
            optimiser.zero_grad()
            if not weight:
                losses.mean().backward()
                optimiser.step()
                continue
            [gradient] = torch.autograd.grad(losses.sum(), received, create_graph=True)
            simulated = (message_features(gradient, received.detach()) - center) / spread
            real = (features[torch.randint(len(features), (len(batch),), generator=generator)] - center) / spread
            verdict = adversary(simulated)
            (losses.mean() + weight * judged(verdict, torch.ones_like(verdict))).backward()
            optimiser.step()
            verdicts = torch.cat([adversary(real), adversary(simulated.detach())])
            truth = torch.cat([torch.ones(len(batch), 1), torch.zeros(len(batch), 1)]).to(verdicts)
            against.zero_grad()
            judged(verdicts, truth).backward()
            against.step()
    return client.requires_grad_(False)
