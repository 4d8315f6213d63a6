"""Many recurrent networks on texts, trained at once: models are a leading axis of every tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.shadow.learner import Trained, check_recipe, check_rows, in_parts

# Largest size of one chunk's gates, over all words of a batch, in bytes.
_BYTES = 2**26
_DIRECTIONS = 2


@dataclass(frozen=True)
class StackedRecurrent(Trained):
    """Networks that read a text in both directions; the word vectors are shared by all.

    A text is a row of word numbers, padded with 0, whose vector is never read. Gates are in the order input, forget,
    cell, output.
    """

    vectors: Float[Tensor, "word embedding"]
    inward: Float[Tensor, "model 2 embedding gate"]
    inward_bias: Float[Tensor, "model 2 gate"]
    onward: Float[Tensor, "model 2 unit gate"]
    dense: Float[Tensor, "model states dense"]
    dense_bias: Float[Tensor, "model dense"]
    out: Float[Tensor, "model dense label"]
    out_bias: Float[Tensor, "model label"]

    names: ClassVar[tuple[str, ...]] = ("inward", "inward_bias", "onward", "dense", "dense_bias", "out", "out_bias")

    def logits(
        self, words: Int[Tensor, "model text position"], mask: Float[Tensor, "model text dense"] | None = None
    ) -> Float[Tensor, "model text label"]:
        """Return each model's logits for its own texts; ``mask``: factors on the dense layer's outputs (dropout)."""
        models, texts, positions = words.shape
        embedded = self.vectors[words.flatten()].view(models, 1, texts * positions, -1)
        gates = embedded @ self.inward + self.inward_bias[:, :, None]
        gates = gates.view(models, _DIRECTIONS, texts, positions, -1)
        # Both directions step forwards, the second over the reversed text, in which the padding comes first.
        turned = torch.stack([gates[:, 0], gates[:, 1].flip(2)], dim=1).permute(3, 0, 1, 2, 4)
        is_word = words > 0
        read = torch.stack([is_word, is_word.flip(2)], dim=1).permute(3, 0, 1, 2)[..., None]
        onward = self.onward.flatten(0, 1)
        state = gates.new_zeros(models * _DIRECTIONS, texts, self.onward.shape[2])
        cell = state
        for step, there in zip(turned.flatten(1, 2), read.flatten(1, 2), strict=True):
            taken, forgotten, new, shown = torch.baddbmm(step, state, onward).chunk(4, dim=2)
            changed = torch.sigmoid(forgotten) * cell + torch.sigmoid(taken) * torch.tanh(new)
            cell = torch.where(there, changed, cell)
            state = torch.where(there, torch.sigmoid(shown) * torch.tanh(changed), state)
        last = state.view(models, _DIRECTIONS, texts, -1).transpose(1, 2).flatten(2)
        dense = torch.baddbmm(self.dense_bias[:, None], last, self.dense).relu()
        return torch.baddbmm(self.out_bias[:, None], dense if mask is None else dense * mask, self.out)

    def answers(self, inputs: Int[Tensor, "query position"]) -> Float[Tensor, "model query label"]:
        """Return every model's chances of each class for the same texts."""
        at_once = max(1, _BYTES // (4 * _DIRECTIONS * inputs.shape[1] * max(1, len(inputs)) * self.onward.shape[3]))
        chances = []
        with torch.no_grad():
            for start in range(0, len(self), at_once):
                part = self.of(slice(start, start + at_once))
                chances.append(torch.softmax(part.logits(inputs.expand(len(part), *inputs.shape)), dim=2))
        return torch.cat(chances)


@dataclass(frozen=True, eq=False)
class Recurrent:
    """Recipe of networks on texts: Adam on the mean cross-entropy of shuffled batches; word vectors stay fixed.

    A layer of long short-term memory reads the text in both directions; a dense layer takes both last states. Every
    model draws first weights, batches and dropout from a generator of its own.

    Source: Zhang, Tople and Ohrimenko (2021), appendix: word vectors of 50 numbers, 50 units in each direction, a
    dense layer of 50, dropout of 0.1. Learning rate, epochs and batches are not stated there. Biases of forget
    gates start at 1, as is usual.
    """

    classes: int
    vectors: Float[Tensor, "word embedding"]
    units: int = 50
    dense: int = 50
    dropout: float | int = 0.1
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float | int = 0.003
    weight_decay: float | int = 0.0

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("units", "dense", "epochs", "batch_size")}
        check_recipe(self.classes, counts, {"learning_rate": self.learning_rate}, {"weight_decay": self.weight_decay})
        if not 0 <= self.dropout < 1:
            raise BadInputError(f"dropout is a chance in [0, 1), got dropout={self.dropout!r}.")

    def describe(self) -> dict[str, object]:
        """Return the recipe as plain values."""
        fields = ("classes", "units", "dense", "dropout", "epochs", "batch_size", "learning_rate", "weight_decay")
        return {"model": "lstm", "vectors": list(self.vectors.shape), **{name: getattr(self, name) for name in fields}}

    def initial(self, seeds: Sequence[int]) -> tuple[StackedRecurrent, list[torch.Generator]]:
        """Return untrained models and the generators that draw their batches afterwards."""
        generators = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]
        gates, width, states = 4 * self.units, self.vectors.shape[1], _DIRECTIONS * self.units
        shapes = {
            "inward": ((_DIRECTIONS, width, gates), self.units),
            "inward_bias": ((_DIRECTIONS, gates), self.units),
            "onward": ((_DIRECTIONS, self.units, gates), self.units),
            "dense": ((states, self.dense), states),
            "dense_bias": ((self.dense,), states),
            "out": ((self.dense, self.classes), self.dense),
            "out_bias": ((self.classes,), self.dense),
        }
        drawn = {}
        for name, (shape, inner) in shapes.items():
            uniform = torch.stack([torch.rand(shape, generator=generator) for generator in generators])
            drawn[name] = (2 * uniform - 1) * inner**-0.5
        drawn["inward_bias"][..., self.units : 2 * self.units] += 1
        return StackedRecurrent(self.vectors, **drawn), generators

    def train(
        self,
        inputs: Int[Tensor, "row position"],
        labels: Int[Tensor, " _row"],
        chosen: Int[Tensor, "model trained"],
        seeds: Sequence[int],
    ) -> StackedRecurrent:
        """Train one model on each line of ``chosen`` positions of texts, see ``Learner``; each word has a vector."""
        check_rows(inputs, labels, chosen, seeds, self.classes)
        if int(inputs.min()) < 0 or int(inputs.max()) >= len(self.vectors):
            raise BadInputError(
                f"words are numbers from 0 to {len(self.vectors) - 1}, as many as there are vectors; got "
                f"{int(inputs.min())} to {int(inputs.max())}."
            )
        size = min(self.batch_size, chosen.shape[1])
        at_once = max(1, _BYTES // (4 * _DIRECTIONS * inputs.shape[1] * size * 4 * self.units))
        return in_parts(
            lambda part: self._train(inputs, labels.long(), chosen[part], seeds[part], size),
            *(len(seeds), at_once, self.learning_rate),
        )

    def _train(
        self, inputs: Tensor, labels: Tensor, chosen: Tensor, seeds: Sequence[int], size: int
    ) -> StackedRecurrent:
        models, generators = self.initial(seeds)
        parameters = [part.requires_grad_() for part in models.parameters]
        optimiser = torch.optim.Adam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)
        for _ in range(self.epochs):
            order = torch.stack([torch.randperm(chosen.shape[1], generator=generator) for generator in generators])
            shuffled = chosen.gather(1, order)
            for start in range(0, chosen.shape[1], size):
                batch = shuffled[:, start : start + size]
                mask = None
                if self.dropout:
                    shape = (batch.shape[1], self.dense)
                    drawn = torch.stack([torch.rand(shape, generator=generator) for generator in generators])
                    mask = (drawn >= self.dropout).float() / (1 - self.dropout)
                logits = models.logits(inputs[batch], mask)
                # A sum over models gives each the gradient of its own mean.
                loss = functional.cross_entropy(logits.flatten(0, 1), labels[batch].flatten(), reduction="sum")
                optimiser.zero_grad()
                (loss / batch.shape[1]).backward()
                optimiser.step()
        return models.holding(part.detach() for part in parameters)
