"""Training of a network before the attack, which is on a later round or on several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seepage.assessment.utility import Recipe, held_out, score_trainings
from seepage.datasets import Dataset
from seepage.errors import BadInputError
from seepage.learning import LocalTraining, batch_statistics, local_update
from seepage.models.batch_norm import Moments, advanced, running_statistics
from seepage.models.copies import copied
from seepage.models.model import Model
from seepage.seeds import stream
from seepage.settings.horizontal.spec import Training
from seepage.tabular.encoder import Encoder


@dataclass(frozen=True)
class Learnt:
    """Quality on rows held out when the network is last attacked; ``guess``: the commonest class, or the rows' mean."""

    metric: str  # ``model_accuracy``, or ``model_rmse`` in units of the target
    value: float
    guess: float
    test_rows: int
    records: int
    training: Training


def train(
    model: Model, dataset: Dataset, encoder: Encoder, training: Training, seed: int
) -> tuple[list[Model], Learnt]:
    """Return a copy of a model for each attacked round, before its update, and the quality of the last.

    TabLeak's code trains so for its experiment on attacks during training: 50 clients with consecutive slices of
    the shuffled rows, one step on all of a client's rows a round, a learning rate of 0.5, and an attack before the
    update of the round (D9). Deviation: the audit's victims are drawn from all training rows, among which the
    clients' are, instead of being these clients. Without test rows, a fifth of the rows is held out.
    """
    if model.each:
        raise BadInputError(
            f"model {model.name!r} comes in another version for every client, so that no training of all of them goes "
            "on from it; leave training out."
        )
    rows, test, test_rows = held_out(dataset, Recipe(), 1, seed)
    client_rows = min(training.records, len(rows) // training.clients)
    if client_rows < 1:
        raise BadInputError(
            f"the network is to be trained by {training.clients} clients, but there are {len(rows)} rows to train on; "
            "give training fewer clients."
        )
    generator = torch.Generator().manual_seed(stream(seed, 0, "training clients"))
    chosen = rows[torch.randperm(len(rows), generator=generator)[: training.clients * client_rows]]
    chosen = chosen.view(training.clients, client_rows)
    device = encoder.mean.device
    encoded, labels = encoder.encode(dataset.train.cells[chosen].to(device)), dataset.train.labels[chosen].to(device)
    repeated = (t[:, None].expand(-1, training.epochs, *t.shape[1:]) for t in (encoded, labels))
    epochs, targets = repeated
    local = LocalTraining(training.epochs, client_rows, training.learning_rate)
    theta = {name: parameter.detach().clone() for name, parameter in model.parameters.items()}
    running = running_statistics(model.module)
    masks = torch.Generator().manual_seed(stream(seed, 0, "dropout masks"))
    last = training.rounds + training.attacked_rounds - 1
    attacked = []
    for done in range(last):
        if done >= training.rounds:
            attacked.append(theta | running)
        places = {name: parameter.expand(training.clients, *parameter.shape) for name, parameter in theta.items()}
        if running:
            statistics = batch_statistics(model, encoded, places)
            moments = {name: Moments(*(t.mean(0) for t in of)) for name, of in statistics.items()}
            running = advanced(model.module, running, moments, done)
        update = local_update(model, model.drawn(epochs, masks), targets, local, parameters=places)
        theta = {name: parameter - update[name].mean(0).detach() for name, parameter in theta.items()}
    if not all(bool(parameter.isfinite().all()) for parameter in theta.values()):
        raise BadInputError(
            f"after {last} rounds of training at a learning rate of {training.learning_rate:g} the "
            "network's parameters are not finite; give a smaller learning_rate."
        )
    attacked.append(theta | running)
    learnt = {name: tensor[None] for name, tensor in attacked[-1].items()}
    truth, labels_before = test.labels[test_rows], dataset.train.labels[rows]
    value = float(score_trainings(model, learnt, encoder, test.cells[test_rows], truth)[0])
    if model.head == "regression":
        metric, guess = "model_rmse", float((truth - labels_before.mean()).square().mean().sqrt())
    else:
        metric, guess = "model_accuracy", float((truth == labels_before.mode().values).double().mean())
    task_figures = Learnt(metric, value, guess, len(test_rows), client_rows, training)
    return [holding(model, state) for state in attacked], task_figures


def holding(model: Model, state: Mapping[str, Tensor]) -> Model:
    """Return a copy of a model with these parameters and buffers."""
    module = copied(model.module)
    places = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.no_grad():
        for name, tensor in state.items():
            places[name].copy_(tensor)
    return replace(model, module=module, crafted="", each={})
