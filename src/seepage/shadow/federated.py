"""Federations of fully connected networks, many of them trained at once: sites are a second axis of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError, check_count
from seepage.shadow.learner import check_rows
from seepage.shadow.stacked import Dense, Stacked


class Round(NamedTuple):
    """Models after a round: the averaged one of each federation, and those of its sites, which lie side by side."""

    average: Stacked
    sites: Stacked


@dataclass(frozen=True)
class Federation:
    """Recipe of a federation: FedAvg (McMahan et al. 2017) by stochastic gradient descent at sites of equal size.

    In each round all sites start from the averaged model, and take the steps of ``network``: its epochs, batches,
    learning rate, bound and noise are those of a site's round. A batch of all rows of a site is FedSGD.

    Attributes:
        network: networks, and the training of a site in a round; weight decay is not used.
        sites: number of sites, which have equal shares of the rows.
        rounds: number of rounds.

    Raises:
        BadInputError: a count is below 1.

    Example:
        >>> rows, labels = torch.tensor([[0.0], [1.0], [0.0], [1.0]]), torch.tensor([0, 1, 0, 1])
        >>> network = Dense(classes=2, epochs=5, batch_size=None, learning_rate=1.0, weight_decay=0.0)
        >>> rounds = Federation(network, sites=2, rounds=20).train(rows, labels, torch.tensor([[0, 1, 2, 3]]), [0])
        >>> *_, last = rounds
        >>> last.average.answers(rows[:2]).argmax(2).tolist()
        [[0, 1]]
    """

    network: Dense
    sites: int = 5
    rounds: int = 20

    def __post_init__(self) -> None:
        check_count("sites", self.sites)
        check_count("rounds", self.rounds)

    @property
    def classes(self) -> int:
        """Number of classes of a model."""
        return self.network.classes

    def describe(self) -> dict[str, object]:
        """Return the recipe as plain values."""
        return {"model": "federation", **asdict(self), "network": self.network.describe()}

    def train(
        self,
        inputs: Float[Tensor, "row encoded"],
        labels: Int[Tensor, " _row"],
        chosen: Int[Tensor, "federation trained"],
        seeds: Sequence[int],
    ) -> Iterator[Round]:
        """Train one federation on each line of ``chosen`` positions of rows, a site on each share of it in order."""
        check_rows(inputs, labels, chosen, seeds, self.classes)
        if chosen.shape[1] % self.sites:
            raise BadInputError(
                f"{self.sites} sites have equal shares of the rows of a training, got {chosen.shape[1]}; give "
                "a multiple of the number of sites."
            )
        network = replace(self.network, weight_decay=0.0)
        average, _ = network.initial(inputs.shape[1], seeds)
        generators = [
            torch.Generator().manual_seed((seed + 1 + site) % 2**63) for seed in seeds for site in range(self.sites)
        ]
        of_sites = chosen.reshape(len(chosen) * self.sites, -1)
        for _ in range(self.rounds):
            sites = average.holding(part.repeat_interleave(self.sites, 0) for part in average.parameters)
            _local(network, sites, inputs.float(), labels.long(), of_sites, generators)
            average = average.holding(part.unflatten(0, (-1, self.sites)).mean(1) for part in sites.parameters)
            yield Round(average, sites)
        if not bool(average.flat().isfinite().all()):
            raise BadInputError(
                f"training at a learning rate of {network.learning_rate:g} ended in numbers that are not finite; give "
                "a smaller learning_rate."
            )


def _local(
    network: Dense,
    models: Stacked,
    inputs: Float[Tensor, "row encoded"],
    labels: Int[Tensor, " row"],
    chosen: Int[Tensor, "model trained"],
    generators: list[torch.Generator],
) -> None:
    """Train each model on its rows in place."""
    rows = chosen.shape[1]
    size = min(network.batch_size or rows, rows)
    for _ in range(network.epochs):
        order = torch.stack([torch.randperm(rows, generator=generator) for generator in generators])
        shuffled = chosen.gather(1, order)
        for start in range(0, rows, size):
            batch = shuffled[:, start : start + size]
            network.write_gradient(models, inputs[batch], labels[batch], generators)
            with torch.no_grad():
                for parameter in models.parameters:
                    assert parameter.grad is not None
                    parameter -= network.learning_rate * parameter.grad
