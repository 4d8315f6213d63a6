from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.chains import parts_of
from seepage.attacks.horizontal.matching.engine import AutogradEngine, ClosedFormEngine, match
from seepage.attacks.horizontal.matching.matching import Cosine, MeanSquared
from seepage.learning import gradient
from seepage.models.model import Head, Model
from seepage.wire.horizontal import GradientView
from tests.oracles.gradients import Widths, matching

DISTANCES = {"cosine": Cosine(), "mean_squared": MeanSquared()}


def network(inputs: int, widths: tuple[int, ...], outputs: int, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    sizes = (inputs, *widths, outputs)
    for wide, narrow in pairwise(sizes):
        layers += [nn.utils.skip_init(nn.Linear, wide, narrow, dtype=torch.float64), nn.ReLU()]
    module = nn.Sequential(*layers[:-1])
    fill(module, generator)
    return module


def fill(module: nn.Module, generator: torch.Generator) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2)


def labels_for(head: Head, outputs: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if head == "regression":
        return torch.randn(shape, generator=generator, dtype=torch.float64)
    classes = outputs if head == "softmax" else 2
    return torch.randint(classes, shape, generator=generator).double()


def scene(
    head: Head, outputs: int, widths: tuple[int, ...], records: int, victims: int = 2, restarts: int = 3, seed: int = 0
) -> tuple[GradientView, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    model = Model(network(5, widths, outputs, generator), head, "random")
    true = torch.randn(victims, records, 5, generator=generator, dtype=torch.float64)
    labels = labels_for(head, outputs, (victims, records), generator)
    rows = torch.randn(victims, restarts, records, 5, generator=generator, dtype=torch.float64)
    return GradientView(model, gradient(model, true, labels)), rows, labels


HEADS: list[tuple[Head, int]] = [("softmax", 2), ("softmax", 3), ("softmax", 5), ("sigmoid", 1), ("regression", 1)]


# One, three and forty records: a layer of width 12 takes the Gram route below five, the direct one above.
@pytest.mark.parametrize("records", [1, 3, 40])
@pytest.mark.parametrize("widths", [(), (12,), (12, 4), (6, 12, 9)])
@pytest.mark.parametrize(("head", "outputs"), HEADS)
@pytest.mark.parametrize("kind", DISTANCES)
def test_closed_form_is_double_backpropagation(
    kind: str, head: Head, outputs: int, widths: tuple[int, ...], records: int
) -> None:
    view, rows, labels = scene(head, outputs, widths, records)
    engine = match(view, DISTANCES[kind])
    assert isinstance(engine, ClosedFormEngine)
    before = rows.clone()
    loss, derivative = engine(rows, labels)
    assert torch.equal(rows, before)
    expected_loss, expected_derivative = matching(kind, view.model, view.gradient, rows, labels)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-11, atol=1e-13)
    scale = expected_derivative.abs().max()
    torch.testing.assert_close(derivative, expected_derivative, rtol=1e-9, atol=float(1e-11 * scale))
    assert torch.equal(engine.loss(rows, labels), loss)


@pytest.mark.parametrize("records", [3, 40])
@pytest.mark.parametrize("kind", DISTANCES)
def test_single_precision_differs_by_roundings(kind: str, records: int) -> None:
    view, rows, labels = scene("softmax", 3, (24, 20), records)
    expected_loss, expected = match(view, DISTANCES[kind])(rows, labels)
    model = replace(view.model, module=deepcopy(view.model.module).float())
    single = GradientView(model, {name: part.float() for name, part in view.gradient.items()})
    loss, derivative = match(single, DISTANCES[kind])(rows.float(), labels)
    torch.testing.assert_close(loss.double(), expected_loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(derivative.double(), expected, rtol=1e-3, atol=float(1e-4 * expected.abs().max()))


@pytest.mark.parametrize(("victims", "restarts"), [(1, 1), (1, 4), (4, 1), (3, 2)])
def test_leading_axes_of_any_size(victims: int, restarts: int) -> None:
    view, rows, labels = scene("softmax", 2, (20, 8), 4, victims, restarts)
    for kind, distance in DISTANCES.items():
        expected = matching(kind, view.model, view.gradient, rows, labels)
        for engine in (match(view, distance), AutogradEngine(view, distance)):
            torch.testing.assert_close(engine(rows, labels), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", DISTANCES)
def test_any_other_module_goes_through_autograd(kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    tanh = nn.Sequential(nn.Linear(5, 4, dtype=torch.float64), nn.Tanh(), nn.Linear(4, 3, dtype=torch.float64))
    for module in (tanh, Widths(5, 3).double()):
        fill(module, generator)
        model = Model(module, "softmax", "mine")
        labels = labels_for("softmax", 3, (2, 6), generator)
        true = torch.randn(2, 6, 5, generator=generator, dtype=torch.float64)
        view = GradientView(model, gradient(model, true, labels))
        engine = match(view, DISTANCES[kind])
        assert isinstance(engine, AutogradEngine)
        rows = torch.randn(2, 3, 6, 5, generator=generator, dtype=torch.float64)
        expected = matching(kind, model, view.gradient, rows, labels)
        torch.testing.assert_close(engine(rows, labels), expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(engine.loss(rows, labels), expected[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize(("head", "outputs"), HEADS)
def test_the_derivative_is_that_of_finite_differences(kind: str, head: Head, outputs: int) -> None:
    view, rows, labels = scene(head, outputs, (12, 4), 3, victims=1, restarts=2)
    engine = match(view, DISTANCES[kind])
    _, derivative = engine(rows, labels)
    step = 1e-6
    # Masks of ReLUs are constant this close to a random point.
    units = step * torch.eye(rows[0, 0].numel(), dtype=torch.float64).view(1, -1, *rows.shape[2:])
    for restart in range(rows.shape[1]):
        around = rows[:, restart : restart + 1]
        difference = (engine.loss(around + units, labels) - engine.loss(around - units, labels)) / (2 * step)
        torch.testing.assert_close(difference, derivative[:, restart].flatten(1), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("head", "outputs"), HEADS)
@pytest.mark.parametrize("records", [2, 40])
def test_the_truth_has_no_distance_in_any_order_of_its_records(head: Head, outputs: int, records: int) -> None:
    generator = torch.Generator().manual_seed(11)
    model = Model(network(5, (12, 6), outputs, generator), head, "random")
    true = torch.randn(2, records, 5, generator=generator, dtype=torch.float64)
    labels = labels_for(head, outputs, (2, records), generator)
    view = GradientView(model, gradient(model, true, labels))
    order = torch.randperm(records, generator=generator)
    for distance in DISTANCES.values():
        for engine in (match(view, distance), AutogradEngine(view, distance)):
            loss, derivative = engine(true[:, order][:, None], labels[:, order])
            torch.testing.assert_close(loss, torch.zeros(2, 1, dtype=torch.float64), rtol=0, atol=1e-13)
            assert float(derivative.abs().max()) < 1e-6


def test_victims_do_not_mix() -> None:
    view, rows, labels = scene("softmax", 2, (12, 4), 6, victims=3)
    for distance in DISTANCES.values():
        whole = match(view, distance)(rows, labels)
        for v in range(3):
            own = GradientView(view.model, {n: g[v : v + 1] for n, g in view.gradient.items()})
            alone = match(own, distance)(rows[v : v + 1], labels[v : v + 1])
            torch.testing.assert_close([t[v : v + 1] for t in whole], list(alone), rtol=1e-10, atol=1e-13)


def test_single_precision_agrees_with_double() -> None:
    view, rows, labels = scene("softmax", 2, (12, 4), 6)
    single_model = Model(network(5, (12, 4), 2, torch.Generator().manual_seed(0)).float(), "softmax", "single")
    single = GradientView(single_model, {n: g.float() for n, g in view.gradient.items()})
    for kind in DISTANCES:
        loss, derivative = match(single, DISTANCES[kind])(rows.float(), labels.float())
        expected_loss, expected = match(view, DISTANCES[kind])(rows, labels)
        torch.testing.assert_close(loss.double(), expected_loss, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(derivative.double(), expected, rtol=1e-3, atol=float(1e-4 * expected.abs().max()))


# Trained networks send gradients this small; nothing may underflow on the way.
@pytest.mark.parametrize("factor", [1e-18, 1e-12, 1e-6, 1e6, 1e12])
def test_the_cosine_does_not_depend_on_the_scale_of_the_received_gradient(factor: float) -> None:
    view, rows, labels = scene("softmax", 2, (12, 4), 6)
    scaled = GradientView(view.model, {n: g * factor for n, g in view.gradient.items()})
    loss, derivative = match(view, Cosine())(rows, labels)
    torch.testing.assert_close(match(scaled, Cosine())(rows, labels), (loss, derivative), rtol=1e-9, atol=1e-12)


def test_a_vanished_dummy_gradient_stays_finite() -> None:
    # Logits this large leave no error in the last bit of a softmax.
    model = Model(nn.Linear(2, 2), "softmax", "sure")
    with torch.no_grad():
        model.module.get_parameter("weight").copy_(torch.tensor([[0.0, 0.0], [1000.0, 0.0]]))
        model.module.get_parameter("bias").zero_()
    view = GradientView(model, {"weight": torch.full((1, 2, 2), 1e-6), "bias": torch.full((1, 2), 1e-6)})
    rows, labels = torch.tensor([[[[1.0, 0.5]]]]), torch.ones(1, 1)
    for distance in DISTANCES.values():
        for engine in (match(view, distance), AutogradEngine(view, distance)):
            loss, derivative = engine(rows, labels)
            assert loss.isfinite().all()
            assert derivative.isfinite().all()
    assert float(match(view, Cosine()).loss(rows, labels)) == 1


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)),
        nn.Sequential(nn.Linear(2, 3), nn.ReLU()),
        nn.Sequential(nn.ReLU(), nn.Linear(2, 3)),
        nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1)),
        Widths(2, 2),
    ],
)
def test_only_known_layers_have_a_closed_form(module: nn.Module) -> None:
    assert parts_of(module) is None


def test_a_layer_used_twice_has_no_closed_form() -> None:
    layer = nn.Linear(3, 3)
    assert parts_of(nn.Sequential(layer, nn.ReLU(), layer)) is None
    plain = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    assert parts_of(plain) == [*plain]
    single = nn.Linear(3, 2)
    assert parts_of(single) == [single]


class Doubled(nn.Linear):
    """A linear layer by name only."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def test_a_subclass_of_a_known_layer_is_not_taken_for_it() -> None:
    assert parts_of(nn.Sequential(Doubled(3, 3), nn.ReLU(), nn.Linear(3, 2))) is None
    generator = torch.Generator().manual_seed(5)
    for module in (Doubled(5, 2).double(), cast(nn.Module, nn.Sequential(Doubled(5, 2).double()))):
        fill(module, generator)
        model = Model(module, "softmax", "doubled")
        true = torch.randn(1, 4, 5, generator=generator, dtype=torch.float64)
        labels = torch.tensor([[0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
        view = GradientView(model, gradient(model, true, labels))
        loss = match(view, Cosine()).loss(true[:, None], labels)
        torch.testing.assert_close(loss, torch.zeros(1, 1, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_accelerator_gives_the_same_numbers() -> None:
    view, rows, labels = scene("softmax", 2, (12, 4), 6)
    model = Model(network(5, (12, 4), 2, torch.Generator().manual_seed(0)).cuda(), "softmax", "random")
    there = GradientView(model, {n: g.cuda() for n, g in view.gradient.items()})
    for distance in DISTANCES.values():
        loss, derivative = match(there, distance)(rows.cuda(), labels.cuda())
        expected = match(view, distance)(rows, labels)
        torch.testing.assert_close((loss.cpu(), derivative.cpu()), expected, rtol=1e-9, atol=1e-12)


def test_linear_layers_that_do_more_than_their_type_says_take_the_general_engine() -> None:
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert parts_of(plain) is not None
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2))
    assert parts_of(normed) is None
    plain[0].register_forward_hook(lambda module, inputs, outputs: outputs.mul(2))
    assert parts_of(plain) is None
