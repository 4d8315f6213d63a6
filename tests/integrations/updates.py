"""A client's step on known records, for the tests of integrations."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from seepage.datasets.planted import distinct
from seepage.guard import MessageRecipe, UpdateGuard
from seepage.guard.policy import GuardPolicy
from seepage.learning import LocalTraining
from seepage.models.mlp import nn3
from seepage.tabular.encoder import Encoder

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
RATE = 0.1
TRAINING = LocalTraining(epochs=1, batch_size=8, learning_rate=RATE)
RECIPE = MessageRecipe(protocol="fedavg", training=TRAINING)
NOISE = GuardPolicy("noise", clip_norm=1.0, noise_multiplier=2.0)


def network() -> nn.Module:
    return nn3(DATA.schema, seed=0).module


def after_one_step(before: dict[str, Tensor], records: int = 8) -> dict[str, Tensor]:
    """Return the state after one plain step of a network on the first records."""
    module = network()
    module.load_state_dict(before)
    rows, labels = ENCODER.encode(DATA.train.cells[:records]), DATA.train.labels[:records].long()
    nn.functional.cross_entropy(module(rows), labels).backward()
    torch.optim.SGD(module.parameters(), lr=RATE).step()
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def guarded(policy: GuardPolicy, recipe: MessageRecipe = RECIPE, log: Path | None = None) -> UpdateGuard:
    return UpdateGuard(network(), DATA.schema, recipe, reference=DATA.train, policy=policy, log=log)


def guard_file(folder: Path, policy: str) -> Path:
    """Write the guard of a site: its table's schema, public rows and settings."""
    (folder / "schema.yaml").write_text(DATA.schema.to_yaml())
    DATA.train.frame.to_csv(folder / "public.csv", index=False)
    (folder / "guard.yaml").write_text(
        "model: nn3\nschema: schema.yaml\nreference: public.csv\nlog: guard.jsonl\n"
        "recipe: {protocol: fedavg, batch_size: 8, training: {epochs: 1, batch_size: 8, learning_rate: 0.1}}\n" + policy
    )
    return folder / "guard.yaml"
