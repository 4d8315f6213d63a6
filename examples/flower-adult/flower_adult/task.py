"""The network, the clients' tables and their local training; after Flower's own example for tables."""

from __future__ import annotations

import torch
from flwr.app import UserConfig
from torch import Tensor, nn

from seepage.datasets import load
from seepage.guard import ClientEncoder, GuardPolicy
from seepage.learning import LocalTraining
from seepage.protocols.recipe import MessageRecipe
from seepage.tabular.encoder import Encoder

DATA = load("adult")
# What all clients encode their rows with, agreed upon before training; the guard has to be told the very same.
ENCODER = ClientEncoder.of_schema(DATA.schema, DATA.statistics.mean.tolist(), DATA.statistics.std.tolist())


class Net(nn.Module):
    """Three affine layers with one ReLU between them, which they share."""

    def __init__(self, inputs: int = DATA.schema.width, outputs: int = 2) -> None:
        super().__init__()
        self.layer1 = nn.Linear(inputs, 128)
        self.layer2 = nn.Linear(128, 64)
        self.layer3 = nn.Linear(64, outputs)
        self.relu = nn.ReLU()

    def forward(self, rows: Tensor) -> Tensor:
        """Return a logit a class."""
        return self.layer3(self.relu(self.layer2(self.relu(self.layer1(rows)))))


def initial() -> Net:
    """Return the network of the first round, the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # noqa: TID251  initialisers of torch.nn take no generator
        return Net()


def recipe(config: UserConfig) -> MessageRecipe:
    """Return how each client trains: its records are one local batch, of which it makes one pass."""
    records = int(config["records"])
    training = LocalTraining(
        epochs=1,
        batch_size=records,
        learning_rate=float(config["learning-rate"]),
        optimizer="adam" if config["optimizer"] == "adam" else "sgd",
    )
    return MessageRecipe(protocol="fedavg", training=training, batch_size=records)


def policy(name: str) -> GuardPolicy:
    """Return the policy of a client's guard."""
    if name == "noise":
        return GuardPolicy("noise", clip_norm=1.0, noise_multiplier=1.0)
    if name == "clip":
        return GuardPolicy("clip", clip_norm=1.0)
    return GuardPolicy("block", "strict") if name == "block" else GuardPolicy("report")


def own_records(client: int, records: int) -> tuple[Tensor, Tensor]:
    """Return the encoded rows and the labels of a client, which no other client has."""
    chosen = slice(client * records, (client + 1) * records)
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    return encoder.encode(DATA.train.cells[chosen]), DATA.train.labels[chosen].long()


def decoys() -> Tensor:
    """Return encoded rows on which no client trains, which the guard compares the client's own with."""
    return Encoder(DATA.schema, DATA.statistics, dtype=torch.float32).encode(DATA.train.cells[-5000:])


def train(net: Net, rows: Tensor, labels: Tensor, config: UserConfig) -> float:
    """Make one step over all rows, and return the loss before it."""
    kind = torch.optim.Adam if config["optimizer"] == "adam" else torch.optim.SGD
    optimizer = kind(net.parameters(), lr=float(config["learning-rate"]))
    loss = nn.functional.cross_entropy(net(rows), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())
