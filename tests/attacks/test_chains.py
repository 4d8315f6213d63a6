from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seepage import models
from seepage.attacks.horizontal.exact.chains import parts_of
from seepage.attacks.horizontal.matching.engine import AutogradEngine, ClosedFormEngine, match
from seepage.attacks.horizontal.matching.matching import Cosine, MeanSquared
from seepage.learning import gradient
from seepage.models.batch_norm import BatchNorm
from seepage.models.model import Head, Model
from seepage.models.resnet import Residual
from seepage.seeds import seeded
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.wire.horizontal import GradientView
from tests.oracles.gradients import matching

WIDTH = 9
DISTANCES = {"cosine": Cosine(), "mean_squared": MeanSquared()}


def block(inputs: int, units: int) -> Residual:
    return Residual(nn.Sequential(nn.Linear(inputs, units), BatchNorm(units), nn.ReLU()))


def convolved(*between: nn.Module, width: int = WIDTH, kernel: int = 3) -> list[nn.Module]:
    return [nn.Unflatten(1, (1, width)), nn.Conv1d(1, 4, kernel, bias=False), *between, nn.Flatten()]


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "normalised": lambda out: nn.Sequential(
        nn.Linear(WIDTH, 12), BatchNorm(12), nn.ReLU(), nn.Linear(12, 5), BatchNorm(5, eps=0.1), nn.ReLU(),
        nn.Linear(5, out),
    ),
    "normalised before": lambda out: nn.Sequential(
        BatchNorm(WIDTH), nn.Linear(WIDTH, 6), nn.ReLU(), BatchNorm(6), nn.Linear(6, out)
    ),
    "residual": lambda out: nn.Sequential(block(WIDTH, 6), block(WIDTH + 6, 12), nn.Linear(WIDTH + 18, out)),
    "residual in the middle": lambda out: nn.Sequential(
        nn.Linear(WIDTH, 7), nn.ReLU(), Residual(nn.Sequential(nn.Linear(7, 5), nn.Sequential(block(5, 4)))),
        BatchNorm(16), nn.Linear(16, out),
    ),
    "convolved": lambda out: nn.Sequential(
        *convolved(BatchNorm(4), nn.ReLU()), nn.Linear(28, 6), nn.ReLU(), nn.Linear(6, out)
    ),
    "convolved twice normalised": lambda out: nn.Sequential(
        nn.Sequential(*convolved(nn.ReLU(), BatchNorm(4), BatchNorm(4), kernel=2)), nn.Linear(32, out)
    ),
    "deep": lambda out: nn.Sequential(
        nn.Sequential(nn.Linear(WIDTH, 5), nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, out)
    ),
}  # fmt: skip


def drawn(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    module = seeded(make, seed=0).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2)
    return module


def scene(
    make: Callable[[int], nn.Module], head: Head, outputs: int, records: int, seed: int = 0
) -> tuple[GradientView, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    model = Model(drawn(lambda: make(outputs), generator), head, "random")
    true, rows = (
        torch.randn(2, *size, records, WIDTH, generator=generator, dtype=torch.float64) for size in ((), (3,))
    )
    labels = torch.randint(max(2, outputs), (2, records), generator=generator).double()
    return GradientView(model, gradient(model, true, labels)), rows, labels


# Two, three and forty records: a layer of width 12 takes the Gram route below five, the direct one above.
@pytest.mark.parametrize("records", [2, 3, 40])
@pytest.mark.parametrize(("head", "outputs"), [("softmax", 3), ("sigmoid", 1), ("regression", 1)])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_run_by_hand_are_double_backpropagated(name: str, head: Head, outputs: int, records: int) -> None:
    view, rows, labels = scene(NETWORKS[name], head, outputs, records)
    for kind, distance in DISTANCES.items():
        engine = match(view, distance)
        assert isinstance(engine, ClosedFormEngine)
        before = rows.clone()
        loss, derivative = engine(rows, labels)
        assert torch.equal(rows, before)
        expected_loss, expected = matching(kind, view.model, view.gradient, rows, labels)
        scale = expected.abs().max()
        # Two records normalise to +1 and -1, up to eps: what is left are differences of nearly equal numbers.
        torch.testing.assert_close(loss, expected_loss, rtol=1e-8, atol=1e-8 if records == 2 else 1e-11)
        torch.testing.assert_close(derivative, expected, rtol=1e-7, atol=float(1e-8 * scale))
        assert torch.equal(engine.loss(rows, labels), loss)


SCHEMA = Schema(
    columns=(
        Discrete(name="job", categories=("cook", "nurse", "never")),
        *(Continuous(name=f"c{i}", low=0, high=9, tolerance=1) for i in range(6)),
    ),
    target=Discrete(name="ill", categories=("no", "yes")),
)


@pytest.mark.parametrize("name", ["cnn_bn", "resnet_bn"])
def test_published_networks_with_batch_normalisation_run_by_hand(name: str) -> None:
    made = models.create(name, schema=SCHEMA, seed=1)
    model = Model(made.module.double(), "softmax", name)
    generator = torch.Generator().manual_seed(2)
    true, rows = (torch.randn(2, *size, 7, WIDTH, generator=generator, dtype=torch.float64) for size in ((), (2,)))
    labels = torch.randint(2, (2, 7), generator=generator).double()
    view = GradientView(model, gradient(model, true, labels))
    engine = match(view, Cosine())
    assert isinstance(engine, ClosedFormEngine)
    expected = matching("cosine", model, view.gradient, rows, labels)
    torch.testing.assert_close(engine(rows, labels), expected, rtol=1e-8, atol=1e-11)
    at_truth, derivative = engine(true[:, None], labels)
    assert float(at_truth.abs().max()) < 1e-12
    assert float(derivative.abs().max()) < 1e-6


def shared() -> nn.Module:
    layer = BatchNorm(WIDTH)
    return nn.Sequential(layer, nn.Linear(WIDTH, WIDTH), layer, nn.Linear(WIDTH, 2))


def hooked() -> nn.Module:
    layer = block(WIDTH, 4)
    layer.register_forward_hook(lambda module, inputs, outputs: outputs.mul(2))
    return nn.Sequential(layer, nn.Linear(WIDTH + 4, 2))


def frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 4), BatchNorm(4).eval(), nn.Linear(4, 2))


class Halved(Residual):
    """A residual block by name only."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows) / 2


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a ReLU of what a block returns": lambda: nn.Sequential(block(WIDTH, 4), nn.ReLU(), nn.Linear(WIDTH + 4, 2)),
    "a ReLU in front of a branch": lambda: nn.Sequential(
        Residual(nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, 4))), nn.Linear(WIDTH + 4, 2)
    ),
    "a normalisation without scale": lambda: nn.Sequential(BatchNorm(WIDTH, affine=False), nn.Linear(WIDTH, 2)),
    "a frozen normalisation": frozen,
    "a layer in two places": shared,
    "a hook": hooked,
    "a subclass": lambda: nn.Sequential(Halved(nn.Linear(WIDTH, 4)), nn.Linear(WIDTH + 4, 2)),
    "a branch that is no sequence": lambda: nn.Sequential(
        Residual(nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh())), nn.Linear(WIDTH + 4, 2)
    ),
    "a convolution with a bias": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(28, 2)
    ),
    "a convolution with padding": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 4, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(36, 2)
    ),
    "a circular convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 4, 3, padding=2, padding_mode="circular", bias=False),
        nn.Flatten(), nn.Linear(44, 2),
    ),
    "a convolution with strides": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 4, 3, stride=2, bias=False), nn.Flatten(), nn.Linear(16, 2)
    ),
    "two convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 4, 3, bias=False), nn.Conv1d(4, 1, 3, bias=False), nn.Flatten(),
        nn.Linear(5, 2),
    ),
    "channels of columns": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 3)), nn.Conv1d(3, 4, 3, bias=False), nn.Flatten(), nn.Linear(4, 2)
    ),
    "layers along positions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 2, 3, bias=False), nn.Linear(7, 3), nn.Flatten(), nn.Linear(6, 2)
    ),
    "weights without a bias": lambda: nn.Sequential(nn.Linear(WIDTH, 4, bias=False), nn.ReLU(), nn.Linear(4, 2)),
    "a rectified output": lambda: nn.Sequential(nn.Linear(WIDTH, 2), nn.ReLU()),
    "nothing but a normalisation": lambda: nn.Sequential(nn.Linear(WIDTH, 2), BatchNorm(2)),
    "an unused layer": lambda: nn.ModuleDict({"a": nn.Linear(WIDTH, 2)}),
    "no layer": lambda: nn.Sequential(),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_networks_that_a_pass_would_get_wrong_are_left_to_autograd(name: str) -> None:
    module = OTHERS[name]()
    assert parts_of(module) is None
    if name in ("no layer", "an unused layer"):
        return  # These do not run at all.
    generator = torch.Generator().manual_seed(1)
    model = Model(drawn(lambda: module, generator), "softmax", "other")
    true, rows = (torch.randn(1, *size, 4, WIDTH, generator=generator, dtype=torch.float64) for size in ((), (2,)))
    labels = torch.tensor([[0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    view = GradientView(model, gradient(model, true, labels))
    engine = match(view, Cosine())
    assert isinstance(engine, AutogradEngine)
    expected = matching("cosine", model, view.gradient, rows, labels)
    torch.testing.assert_close(engine(rows, labels), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_victims_may_have_parameters_of_their_own(name: str) -> None:
    view, rows, labels = scene(NETWORKS[name], "softmax", 3, 4)
    generator = torch.Generator().manual_seed(8)
    own = {
        parameter: p + torch.randn(2, *p.shape, generator=generator, dtype=p.dtype) / 5
        for parameter, p in view.model.parameters.items()
    }
    moved = GradientView(view.model, gradient(view.model, rows[:, 0], labels, own), own)
    for distance in DISTANCES.values():
        engine, general = match(moved, distance), AutogradEngine(moved, distance)
        assert isinstance(engine, ClosedFormEngine)
        torch.testing.assert_close(engine(rows, labels), general(rows, labels), rtol=1e-8, atol=1e-9)
