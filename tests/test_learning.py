from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seepage.datasets.planted import distinct
from seepage.learning import gradient, mean_loss
from seepage.models.mlp import nn1, nn3
from seepage.models.model import Head, Model
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from tests.oracles.gradients import Widths, gradient_of, loss_of

HEADS: list[tuple[Head, int]] = [("softmax", 2), ("softmax", 4), ("sigmoid", 1), ("regression", 1)]


def batch(head: Head, outputs: int, *shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(*shape, 6, generator=generator, dtype=torch.float64)
    if head == "regression":
        return rows, torch.randn(shape, generator=generator, dtype=torch.float64)
    return rows, torch.randint(max(2, outputs), shape, generator=generator).double()


def models(head: Head, outputs: int) -> list[Model]:
    def plain() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))

    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, outputs))

    makers = (plain, normed, lambda: Widths(6, outputs))
    return [Model(seeded(make, seed=4).double(), head, "mine") for make in makers]


@pytest.mark.parametrize(("head", "outputs"), HEADS)
def test_the_mean_loss_is_that_of_the_formulas(head: Head, outputs: int) -> None:
    _, labels = batch(head, outputs, 9)
    logits = torch.randn(9, outputs, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(mean_loss(head, logits, labels), loss_of(head, logits, labels), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("head", "outputs"), HEADS)
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_gradients_are_those_of_plain_backpropagation(head: Head, outputs: int, leading: tuple[int, ...]) -> None:
    for model in models(head, outputs):
        rows, labels = batch(head, outputs, *leading, 5)
        own = gradient(model, rows, labels)
        assert list(own) == list(model.parameters)
        flat = zip(rows.reshape(-1, 5, 6), labels.reshape(-1, 5), strict=True)
        batches = [gradient_of(model, one, y) for one, y in flat]
        for i, (name, tensor) in enumerate(own.items()):
            expected = torch.stack([each[i] for each in batches]).reshape(*leading, *model.parameters[name].shape)
            torch.testing.assert_close(tensor, expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("head", "outputs"), HEADS)
def test_the_order_of_records_does_not_matter(head: Head, outputs: int) -> None:
    for model in models(head, outputs):
        rows, labels = batch(head, outputs, 16)
        order = torch.randperm(16, generator=torch.Generator().manual_seed(9))
        torch.testing.assert_close(
            gradient(model, rows[order], labels[order]), gradient(model, rows, labels), rtol=1e-11, atol=1e-15
        )


def test_the_gradient_of_a_batch_is_the_mean_over_its_records() -> None:
    for model in models("softmax", 4):
        rows, labels = batch("softmax", 4, 7)
        alone = gradient(model, rows[:, None], labels[:, None])
        mean = {name: tensor.mean(0) for name, tensor in alone.items()}
        torch.testing.assert_close(gradient(model, rows, labels), mean, rtol=1e-11, atol=1e-15)


def test_gradients_leave_no_trace_on_the_model() -> None:
    model = models("softmax", 2)[0]
    before = {name: tensor.clone() for name, tensor in model.parameters.items()}
    rows, labels = batch("softmax", 2, 5)
    kept = rows.clone()
    gradient(model, rows, labels)
    assert all(parameter.grad is None for parameter in model.module.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.parameters.items())
    assert torch.equal(rows, kept)


def test_layers_and_weights_that_stand_in_several_places_are_trained_as_one() -> None:
    class Tied(nn.Module):
        """One layer in two places, and two layers of one weight."""

        def __init__(self) -> None:
            super().__init__()
            layer, self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.other.weight = self.one.weight
            self.first, self.last, self.out = nn.Sequential(layer), nn.Sequential(layer), nn.Linear(6, 2)

        def forward(self, rows: Tensor) -> Tensor:
            return self.out(self.last(torch.tanh(self.other(torch.tanh(self.one(self.first(rows)))))))

    model = Model(seeded(Tied, seed=4).double(), "softmax", "tied")
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    rows, labels = batch("softmax", 2, 5)
    for _ in range(2):
        own = gradient(model, rows, labels)
        for tensor, expected in zip(own.values(), gradient_of(model, rows, labels), strict=True):
            torch.testing.assert_close(tensor, expected, rtol=1e-11, atol=1e-14)
    assert all(type(p) is nn.Parameter for p in model.module.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.module.state_dict().items())


def test_gradients_are_differentiable_in_the_rows() -> None:
    model = models("softmax", 2)[2]
    rows, labels = batch("softmax", 2, 3)
    rows.requires_grad_()
    results = []
    for tensors in (gradient(model, rows, labels).values(), gradient_of(model, rows, labels)):
        size = torch.stack([g.square().sum() for g in tensors]).sum()
        results.append(torch.autograd.grad(size, rows)[0])
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("records", [1, 5, 32])
def test_replaying_the_client_on_the_true_records_gives_the_view(dtype: torch.dtype, records: int) -> None:
    data = distinct(rows=40)
    encoder = Encoder(data.schema, data.statistics, dtype=dtype)
    for make in (nn1, nn3):
        made = make(data.schema, seed=2)
        model = Model(made.module.to(dtype), made.head, made.name)
        transcript = FedSGD(records).run(model, data.train, encoder, seeds=[3, 4, 5])
        encoded = encoder.encode(transcript.secret.cells)
        labels = transcript.secret.labels
        together = gradient(model, encoded, labels)
        # Those of single records, whose sum cancels: the size of the terms is that of the error.
        terms = gradient(model, encoded[:, :, None], labels[:, :, None])
        for name, received in transcript.view.gradient.items():
            for v in range(3):
                assert torch.equal(gradient(model, encoded[v], labels[v])[name], received[v])
                distance = (together[name][v] - received[v]).norm() / terms[name][v].flatten(1).norm(dim=1).mean()
                # A few roundings in each of up to four layers.
                assert float(distance) <= 16 * torch.finfo(dtype).eps
