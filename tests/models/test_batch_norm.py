from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seepage import models
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import batch_statistics, gradient
from seepage.models.batch_norm import BatchNorm, Moments, advanced, from_running, running_statistics
from seepage.models.model import Head, Model
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from tests.oracles.gradients import loss_of
from tests.roundings import assert_rounded_alike


def ordinary(kind: str) -> nn.Sequential:
    """A network made of PyTorch's own layers, in float64, its scales and shifts drawn at random."""

    def flat() -> nn.Sequential:
        inner = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, eps=1e-3, momentum=0.3), nn.Tanh())
        return nn.Sequential(inner, nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 2))

    def convolved() -> nn.Sequential:
        return nn.Sequential(
            nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
        )

    def image() -> nn.Sequential:
        return nn.Sequential(
            nn.Unflatten(1, (1, 2, 3)),
            nn.Conv2d(1, 3, 2),
            nn.BatchNorm2d(3, momentum=None),
            nn.Flatten(),
            nn.Linear(6, 2),
        )

    def untracked() -> nn.Sequential:
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU(), nn.Linear(5, 2))

    module = seeded({"flat": flat, "convolved": convolved, "image": image, "untracked": untracked}[kind], seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 3)
    return module.double()


KINDS = ["flat", "convolved", "image", "untracked"]


def batch(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(*shape, 6, generator=generator, dtype=torch.float64) * 2 + 1
    return rows, torch.randint(2, shape, generator=generator).double()


def plain_gradient(module: nn.Module, rows: Tensor, labels: Tensor, head: Head = "softmax") -> list[Tensor]:
    """Backpropagate one batch through PyTorch's own layers, in training mode."""
    module = copy.deepcopy(module).train()
    loss = loss_of(head, module(rows), labels)
    return list(torch.autograd.grad(loss, list(module.parameters()), create_graph=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_gradients_are_those_of_pytorchs_layers_in_training(kind: str, leading: tuple[int, ...]) -> None:
    module = ordinary(kind)
    model = Model(module, "softmax", "mine")
    rows, labels = batch(*leading, 5)
    own = gradient(model, rows, labels)
    assert list(own) == [name for name, _ in module.named_parameters()]
    each = [plain_gradient(module, x, y) for x, y in zip(rows.view(-1, 5, 6), labels.view(-1, 5), strict=True)]
    for i, tensor in enumerate(own.values()):
        expected = torch.stack([tensors[i] for tensors in each]).reshape(tensor.shape)
        torch.testing.assert_close(tensor, expected, rtol=1e-9, atol=1e-12)
    # A replay leaves no trace, on the module that was handed in neither.
    assert all(torch.equal(t, ordinary(kind).state_dict()[n]) for n, t in module.state_dict().items())
    assert all(torch.equal(t, ordinary(kind).state_dict()[n]) for n, t in model.module.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_can_be_differentiated_in_the_rows(kind: str) -> None:
    module = ordinary(kind)
    rows, labels = batch(4)
    rows.requires_grad_()
    results = []
    for tensors in (
        gradient(Model(module, "softmax", "mine"), rows, labels).values(),
        plain_gradient(module, rows, labels),
    ):
        size = torch.stack([g.pow(3).sum() for g in tensors]).sum()
        results.append(torch.autograd.grad(size, rows)[0])
    torch.testing.assert_close(results[0], results[1], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_running_statistics_move_as_pytorchs_do_and_give_the_batch_away(kind: str) -> None:
    module = ordinary(kind)
    model = Model(module, "softmax", "mine")
    running = running_statistics(model.module)
    assert set(running) == {n for n, _ in module.named_buffers() if not n.endswith("num_batches_tracked")}
    moving = copy.deepcopy(module).train()
    for step in range(3):
        rows, _ = batch(7, seed=step)
        moving(rows)
        before, found = running, batch_statistics(model, rows)
        running = advanced(model.module, running, found, step)
        for name, value in running.items():
            torch.testing.assert_close(value, moving.get_buffer(name), rtol=1e-12, atol=1e-14)
        if running:
            for name, moments in from_running(model.module, before, running, step).items():
                torch.testing.assert_close(moments.mean, found[name].mean, rtol=1e-10, atol=1e-12)
                torch.testing.assert_close(moments.variance, found[name].variance, rtol=1e-10, atol=1e-12)
    evaluated = copy.deepcopy(model.module).eval()
    evaluated.load_state_dict({**evaluated.state_dict(), **running})
    rows, _ = batch(2)
    torch.testing.assert_close(evaluated(rows), moving.eval()(rows), rtol=1e-10, atol=1e-12)


def test_each_batch_has_its_own_statistics() -> None:
    model = Model(ordinary("convolved"), "softmax", "mine")
    rows, _ = batch(3, 5)
    found = batch_statistics(model, rows)["2"]
    kernel, bias = model.parameters["1.weight"][:, 0], model.parameters["1.bias"]
    for b in range(3):
        windows = rows[b].unfold(1, 3, 1)
        entering = torch.einsum("npk,ck->cnp", windows, kernel) + bias[:, None, None]
        torch.testing.assert_close(found.mean[b], entering.flatten(1).mean(1))
        torch.testing.assert_close(found.variance[b], entering.flatten(1).var(1, correction=1))
    # A few roundings in each of two layers and their means and variances.
    assert_rounded_alike(model.outputs(rows), torch.stack([model.outputs(one) for one in rows]), roundings=64)
    assert batch_statistics(Model(nn.Linear(6, 2), "softmax", "plain"), rows) == {}


def test_a_layer_that_alone_is_in_evaluation_mode_stays_frozen() -> None:
    module = ordinary("flat")
    inner = module.get_submodule("0.1").eval()
    inner.load_state_dict({**inner.state_dict(), "running_mean": torch.ones(8), "running_var": 4 * torch.ones(8)})
    model = Model(module, "softmax", "mine")
    rows, labels = batch(5)
    frozen = copy.deepcopy(module)
    expected = torch.autograd.grad(loss_of("softmax", frozen(rows), labels), list(frozen.parameters()))
    for own, plain in zip(gradient(model, rows, labels).values(), expected, strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10, atol=1e-13)
    assert list(batch_statistics(model, rows)) == ["1"]
    assert list(running_statistics(model.module)) == ["1.running_mean", "1.running_var"]


def test_a_layer_in_two_places_stays_one() -> None:
    shared = nn.BatchNorm1d(6)
    model = Model(nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(6, 2)), "softmax", "mine")
    assert model.module.get_submodule("0") is model.module.get_submodule("2")
    with pytest.raises(BadInputError, match="'0' runs more than once"):
        batch_statistics(model, torch.randn(4, 6, generator=torch.Generator().manual_seed(0)))


class Subclass(nn.BatchNorm1d):
    """Might do anything."""


def hooked() -> nn.Module:
    layer = nn.BatchNorm1d(4)
    layer.register_forward_hook(lambda module, inputs, outputs: outputs.mul(2))
    return layer


@pytest.mark.parametrize("layer", [nn.SyncBatchNorm(4), Subclass(4), hooked()])
def test_layers_that_do_more_are_refused_by_name(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), layer), nn.Linear(4, 2))
    with pytest.raises(BadInputError, match=rf"model 'mine' holds {type(layer).__name__} at '1.1'.*use one of these"):
        Model(module, "softmax", "mine")


def test_evaluation_mode_and_batches_of_one_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"'mine' holds batch normalisation and is in evaluation mode.*\.train\(\)"):
        Model(ordinary("flat").eval(), "softmax", "mine")
    data = distinct(rows=9)
    model = models.create("resnet_bn", schema=data.schema)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    with pytest.raises(BadInputError, match="needs at least two values a channel, but a batch of one record gives it"):
        FedSGD(1).run(model, data.train, encoder, seeds=[0])
    # A convolution gives it one a position.
    FedSGD(1).run(models.create("cnn_bn", schema=data.schema), data.train, encoder, seeds=[0])


def test_statistics_that_tell_nothing_are_refused() -> None:
    still = nn.Sequential(BatchNorm(1, momentum=0.0))
    held = running_statistics(still)
    with pytest.raises(BadInputError, match="'0' has momentum 0"):
        from_running(still, held, held, batches=0)
    with pytest.raises(BadInputError, match=re.escape("lack '0.running_mean' and '0.running_var'")):
        from_running(nn.Sequential(BatchNorm(1)), {}, held, batches=0)


def test_published_networks_have_their_published_shapes() -> None:
    schema = load("adult").schema
    cnn, resnet = (models.create(name, schema=schema, seed=1) for name in ("cnn_bn", "resnet_bn"))
    assert [tuple(p.shape) for p in cnn.parameters.values()] == [
        (16, 1, 3), (16,), (16,), (100, 1648), (100,), (100, 100), (100,), (2, 100), (2,),
    ]  # fmt: skip
    assert [tuple(p.shape) for p in resnet.parameters.values()] == [
        (100, 105), (100,), (100,), (100,), (100, 205), (100,), (100,), (100,), (2, 305), (2,),
    ]  # fmt: skip
    assert (cnn.name, resnet.name, cnn.head) == ("cnn_bn", "resnet_bn", "softmax")


def normed(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return nn.functional.batch_norm(values, None, None, weight, bias, training=True)


@pytest.mark.parametrize("name", ["cnn_bn", "resnet_bn"])
def test_published_networks_compute_what_the_paper_says(name: str) -> None:
    data = distinct(rows=12)
    model = models.create(name, schema=data.schema, seed=2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 5)
    x = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(data.train.cells)
    p: list[Any] = list(model.parameters.values())
    linear = nn.functional.linear
    if name == "cnn_bn":
        h = normed(nn.functional.conv1d(x[:, None], p[0]), p[1], p[2]).relu().flatten(1)
        expected = linear(linear(linear(h, p[3], p[4]).relu(), p[5], p[6]).relu(), p[7], p[8])
    else:
        h = torch.cat([normed(linear(x, p[0], p[1]), p[2], p[3]).relu(), x], dim=1)
        h = torch.cat([normed(linear(h, p[4], p[5]), p[6], p[7]).relu(), h], dim=1)
        expected = linear(h, p[8], p[9])
    torch.testing.assert_close(model.outputs(x), expected, rtol=1e-4, atol=1e-5)


def test_moments_are_pytorchs() -> None:
    values = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer = nn.BatchNorm1d(3, momentum=1.0).double()
    layer(values)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    found = advanced(
        nn.Sequential(BatchNorm(3, momentum=1.0)),
        {"0.running_mean": torch.zeros(3).double(), "0.running_var": torch.ones(3).double()},
        {"0": Moments(values.transpose(0, 1).flatten(1).mean(1), values.transpose(0, 1).flatten(1).var(1))},
        batches=0,
    )
    torch.testing.assert_close(found["0.running_mean"], layer.running_mean)
    torch.testing.assert_close(found["0.running_var"], layer.running_var)
