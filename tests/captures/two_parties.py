"""One party of plain PyTorch split training, in a process of its own: ``python -m tests.captures.two_parties``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from seepage import TranscriptWriter, write_weights
from seepage.datasets.planted import telling
from seepage.models.deepfm import deepfm
from seepage.models.split import SplitModel, record_losses
from seepage.tabular.table import Table

ROWS, BATCH, EPOCHS, RATE, SEED = 96, 32, 2, 0.01, 3
PRIVATE = ("cause", "noise_0")
HIDDEN = (8, 4)


def both() -> tuple[Table, SplitModel]:
    """Return rows and networks; each party uses its own columns and part alone."""
    rows = telling(rows=ROWS).train
    return rows, deepfm(rows.schema, PRIVATE, seed=0, hidden=HIDDEN)


def orders(rows: int) -> list[Tensor]:
    """Return the batches of all epochs, in the order in which the simulation draws them."""
    order = torch.Generator().manual_seed(SEED)
    return [batch for _ in range(EPOCHS) for batch in torch.randperm(rows, generator=order).split(BATCH)]


def serve(folder: Path) -> None:
    """Be the server: send activations, receive gradients, and write both."""
    rows, model = both()
    cells = model.scaled(rows.cells, model.public)
    optimiser = torch.optim.Adagrad([p for p in model.server.parameters() if p.requires_grad], lr=RATE)
    options = {"hidden": HIDDEN}
    transcript = TranscriptWriter(folder / "transcript", rows.schema, PRIVATE, model="deepfm", options=options)
    every = [*orders(len(rows)), torch.arange(len(rows))]
    for batch in every:
        cut = model.server(cells[batch])
        transcript.exchange(batch, cut)
        dist.send(cut.detach(), 1)
        received = torch.empty_like(cut)
        dist.recv(received, 1)
        optimiser.zero_grad()
        cut.backward(received)
        if len(batch) < len(rows):
            optimiser.step()


def answer(folder: Path) -> None:
    """Be the client: receive activations, send gradients, and write the weights that are granted."""
    rows, model = both()
    own, labels = model.scaled(rows.cells, model.private), rows.labels.long()
    optimiser = torch.optim.Adagrad([p for p in model.client.parameters() if p.requires_grad], lr=RATE)
    width = model.cut(rows.cells[:1]).shape[1]
    for number, batch in enumerate([*orders(len(rows)), torch.arange(len(rows))]):
        write_weights(model.client, folder / "transcript", number)
        cut = torch.empty(len(batch), width)
        dist.recv(cut, 0)
        cut.requires_grad_(True)
        losses = record_losses(model.head, model.client(cut, own[batch]), labels[batch])
        optimiser.zero_grad()
        (losses / float(len(batch))).sum().backward()
        assert cut.grad is not None
        dist.send(cut.grad, 0)
        if len(batch) < len(rows):
            optimiser.step()


def main(folder: Path, rank: int) -> None:
    """Train with the other party over the loopback interface."""
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    (serve, answer)[rank](folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
