"""Bounds of the one table of operations against what a client computes: on odd networks they hold, or are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.kernel import Declaration, EncodedColumn, RefusedError
from seepage.kernel.clients import ClientNetwork, kept_network
from seepage.kernel.cuts import followed
from seepage.kernel.operations import Ball, Evaluator, errors_of_outputs, row_values
from seepage.kernel.roundings import roundings, roundings_of_records
from seepage.kernel.tracing import Place, traced

NUMBERS = tuple(EncodedColumn(name, (0.5,), (0.5,), None, 0.0, 1.0, 0.05) for name in "pqr")
Network = Callable[[Tensor], Tensor]
WIDTH, ROWS = 6, 5
DRAW = torch.Generator().manual_seed(0)
WEIGHT, OTHER = torch.randn(WIDTH, WIDTH, generator=DRAW), torch.randn(WIDTH, generator=DRAW)
EACH = torch.randn(1, WIDTH, 3, generator=DRAW).expand(ROWS, -1, -1).contiguous()


def excess(network: Network, rows: Tensor) -> float:
    """Return the largest error of a client's outputs and derivatives, over its bound."""
    draw = torch.Generator().manual_seed(1)
    inputs = rows.clone().requires_grad_()
    outputs = network(inputs)
    errors = torch.randn(outputs.shape, generator=draw)
    [slopes] = torch.autograd.grad(outputs, inputs, errors)

    def run(errors: Tensor, rows: Tensor) -> list[Tensor]:
        rows = rows.detach().requires_grad_()
        found = network(rows)
        return [found, torch.autograd.grad(found, rows, errors)[0]]

    graph = traced(run, [errors.shape, rows.shape], {})
    none = torch.zeros_like(rows).double()
    known = errors_of_outputs(outputs.shape[1]), row_values(Ball(rows.double(), none), none)
    places = [one for one in graph.results if isinstance(one, Place)]
    values = Evaluator(graph, dict(zip(graph.inputs, known, strict=True))).run(graph.before(*places)).values
    out, back = (values[one] for one in places)
    assert [(one.axis, one.dims, one.fold) for one in (out, back)] == [(0, 1, 0)] * 2
    each = errors.double().T[:, :, None]
    moved, reach = (each * back.mid).sum(0), (each.abs() * back.rad).sum(0)
    ratios = (outputs.detach() - out.mid).abs() / out.rad.clamp(min=1e-300), (slopes - moved).abs() / (reach + 1e-300)
    return max(float(one.nan_to_num(torch.inf).max()) for one in ratios)


class Hooked(nn.Module):
    """Changes derivatives on their way back."""

    def __init__(self, change: Network) -> None:
        super().__init__()
        self.change = change

    def forward(self, rows: Tensor) -> Tensor:
        hidden = torch.tanh(rows @ WEIGHT)
        hidden.register_hook(self.change)
        return hidden @ WEIGHT


def squared(rows: Tensor) -> Tensor:
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, rows: Tensor) -> Tensor:
            return rows * 2

        @staticmethod
        def backward(ctx: object, *grad_outputs: Tensor) -> Tensor:
            return grad_outputs[0] * grad_outputs[0]

    return Squared.apply(rows @ WEIGHT)  # pyright: ignore[reportReturnType]


def by_memory(rows: Tensor) -> Tensor:
    rows = rows * 1.0
    rows.data = rows.data * 0.5
    return rows @ WEIGHT


def by_array(rows: Tensor) -> Tensor:
    factor = torch.ones(WIDTH)
    scaled = rows * factor
    factor.numpy()[:] = 2.0
    return scaled * factor


def changed_constant(rows: Tensor) -> Tensor:
    factor = torch.ones(WIDTH)
    scaled = rows * factor
    factor.tolist()
    factor.data = torch.full((WIDTH,), 2.0)
    return scaled * factor


def normed_mean(rows: Tensor) -> Tensor:
    out, mean, _ = torch.native_layer_norm(rows, [WIDTH], None, None, 1e-5)
    return out + mean


def normed_scale(rows: Tensor) -> Tensor:
    out, _, scale = torch.native_layer_norm(rows, [WIDTH], None, None, 1e-5)
    return out * scale


def derivative_inside(rows: Tensor) -> Tensor:
    rows = rows * 1.0
    [slope] = torch.autograd.grad(torch.tanh(rows).sum(), rows, create_graph=True)
    return rows + slope


def kept_otherwise(rows: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda kept: kept * 0.5):
        return functional.layer_norm(rows, [WIDTH], torch.ones(WIDTH), torch.zeros(WIDTH))


# What the rules of an earlier form took for something else, each of which is refused by name or bounded.
ODD: dict[str, Network] = {
    "a matrix for each row": lambda rows: torch.bmm(EACH.transpose(1, 2), rows[:, :, None])[:, :, 0],
    "rows as matrices": lambda rows: torch.bmm(rows.view(ROWS, 2, 3), EACH[:, :3]).flatten(1),
    "rows behind an axis": lambda rows: torch.bmm(
        rows.view(ROWS, 2, 3).transpose(0, 1), EACH[:2, :3]
    ).transpose(0, 1).flatten(1),
    "sets and rows": lambda rows: torch.bmm(
        rows.view(ROWS, 2, 3).transpose(0, 1), WEIGHT[None, :3].expand(2, -1, -1)
    ).transpose(0, 1).flatten(1),
    "a product with its rows turned": lambda rows: (WEIGHT @ rows.t()).t(),
    "a bias by column": lambda rows: torch.addmm(OTHER[:ROWS], WEIGHT, rows.t()).t(),
    "a bias by output": lambda rows: torch.addmm(OTHER[:, None], WEIGHT, rows.t()).t(),
    "a bias that is one number": lambda rows: torch.addmm(OTHER[:1], WEIGHT, rows.t()).t(),
    "a scaled product": lambda rows: torch.addmm(OTHER, rows, WEIGHT, beta=2, alpha=0.5),
    "a doubled error": Hooked(lambda error: error * 2),
    "a sum of errors": lambda rows: rows + torch.tanh(rows @ WEIGHT) * rows,
    "a moved error": Hooked(lambda error: error + 0.5),
    "a squared error": Hooked(lambda error: error * error),
    "a cut error": Hooked(lambda error: error.clamp(-0.1, 0.1)),
    "a signed error": Hooked(torch.sign),
    "a larger error": Hooked(lambda error: torch.maximum(error, torch.zeros_like(error))),
    "an error where it is positive": Hooked(lambda error: torch.where(error > 0, error, 0.0)),
    "an error or a number": Hooked(lambda error: torch.where(torch.arange(WIDTH) > 2, error, 1.0)),
    "an error of unit length": Hooked(lambda error: error / error.abs().sum(1, keepdim=True)),
    "an inverse error": Hooked(torch.reciprocal),
    "a power of an error": Hooked(lambda error: error**3),
    "products of errors": Hooked(lambda error: torch.bmm(error[:, :, None], error[:, None]).sum(2)),
    "an error beside a number": Hooked(lambda error: torch.cat([error[:, :3], torch.ones(ROWS, 3)], 1)),
    "an error on a grid": Hooked(lambda error: (error * 4).to(torch.long).float()),
    "a tanh of an error": Hooked(torch.tanh),
    "an error less a bias": Hooked(lambda error: torch.addmm(OTHER, error, WEIGHT)),
    "a derivative that is squared": squared,
    "other memory": by_memory,
    "an array": by_array,
    "other memory of a constant": changed_constant,
    "values of bytes": lambda rows: rows * (torch.full((ROWS, 1), 200, dtype=torch.uint8) + (rows[:, :1] > 9)),
    "sums of small whole numbers": lambda rows: rows * ((rows > -9).to(torch.int8) * 100 + 100),
    "sums of yes and no": lambda rows: rows * ((rows > -9) + (rows > -8)).float(),
    "large whole numbers": lambda rows: rows * (((rows[:, :1] > -9).long() + 16777216).float() - 16777216),
    "filled with a large whole number": lambda rows: rows
    * (torch.full((ROWS, 1), 16777217, dtype=torch.long) - 16777216 + (rows[:, :1] > 9).long()).float(),
    "the mean of a norm": normed_mean,
    "the scale of a norm": normed_scale,
    "a cut at 0.1": lambda rows: functional.hardtanh(rows, -0.1, 0.1),
    "a cut at a tensor": lambda rows: rows.clamp(max=torch.tensor(0.1, dtype=torch.float64)),
    "an inverse": torch.reciprocal,
    "in double precision": lambda rows: (rows.double() * 0.1).float(),
    "digits as whole numbers": lambda rows: rows * rows.view(torch.int32).float(),
    "a derivative inside": derivative_inside,
    "other numbers than were kept": kept_otherwise,
    "a product in fewer digits": lambda rows: (torch.set_float32_matmul_precision("high"), rows @ WEIGHT)[1],
    "a remainder": lambda rows: rows + torch.remainder(rows @ WEIGHT, 1.0),
    "a remainder by a fraction": lambda rows: rows * torch.remainder((rows * 8).round(), 0.3),
    "a remainder of whole numbers": lambda rows: rows * torch.remainder((rows * 8).long(), 3).float(),
    "a remainder of signs": lambda rows: rows * torch.remainder(torch.sign(rows), 2.0),
    "a remainder of yes and no": lambda rows: rows * torch.remainder(rows > 0, 2).float(),
    "a remainder by a row": lambda rows: rows * torch.remainder(torch.sign(rows), rows.abs() + 1),
    "a remainder of an error": Hooked(lambda error: torch.remainder(error, 2.0)),
    "equal answers": lambda rows: rows * ((rows > 0) == (rows > 1)).float(),
    "numbers in the same place": lambda rows: torch.zeros(ROWS, WIDTH).scatter(
        1, torch.zeros(ROWS, WIDTH, dtype=torch.long), rows
    ) + rows,
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_odd_networks_are_bounded_or_refused(name: str, scale: float) -> None:
    before = torch.get_float32_matmul_precision()
    with suppress(RefusedError):
        assert excess(ODD[name], scale * torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))) <= 1
    torch.set_float32_matmul_precision(before)


# What is usual is bounded, and not refused.
USUAL = (
    "a matrix for each row", "rows as matrices", "a product with its rows turned", "a bias by output",
    "a bias that is one number", "a doubled error",
    "a sum of errors", "the mean of a norm", "a cut at 0.1", "an inverse",
)  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_what_the_table_has_is_not_refused(name: str) -> None:
    assert excess(ODD[name], torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(4))) <= 1


@pytest.mark.parametrize("width", [8, 64, 300])
@pytest.mark.parametrize("far", [0.0, 1.0, 30.0, 300.0, 3e3, 3e4])
def test_a_layer_norm_of_numbers_far_from_zero_is_bounded(width: int, far: float) -> None:
    weight, bias = torch.linspace(-2, 2, width), torch.linspace(0, 1, width)
    rows = far + torch.randn(16, width, generator=torch.Generator().manual_seed(width))
    for parts in ((weight, bias), (None, None)):
        assert excess(lambda rows, parts=parts: functional.layer_norm(rows, [width], *parts), rows) <= 1


@pytest.mark.parametrize("terms", [2, 8, 16, 32, 64, 256, 1024, 4096])
def test_sums_in_any_order_stay_within_their_bound(terms: int) -> None:
    # Equal terms round the same way in each step.
    draw = torch.Generator().manual_seed(terms)
    for rows in (torch.rand(1, 16, generator=draw).expand(terms, -1), torch.rand(terms, 16, generator=draw)):
        exact = rows.double().T @ rows.double()
        forward = torch.zeros(16, 16)
        for row in rows:
            forward += torch.outer(row, row)
        for found in (rows.T @ rows, functional.linear(rows.T.contiguous(), rows.T.contiguous()), forward):
            assert bool(((found.double() - exact).abs() <= roundings(terms) * exact).all())


@pytest.mark.parametrize("records", [2, 5, 16, 32, 100])
def test_what_a_sum_over_records_loses_stays_within_its_bounds(records: int) -> None:
    by_entry, as_matrix = roundings_of_records(records)
    draw = torch.Generator().manual_seed(records)
    for spread in (0.0, 1e-3, 1.0):
        errors, inputs = (
            torch.rand(1, width, generator=draw) * (1 + spread * torch.rand(records, width, generator=draw))
            for width in (24, 40)
        )
        lost = (errors.T @ inputs).double() - errors.double().T @ inputs.double()
        largest, longest = records * errors.double().amax(0), records * errors.double().norm(dim=1).max()
        assert bool((lost.abs() <= by_entry * torch.outer(largest, inputs.double().amax(0))).all())
        assert float(lost.norm()) <= as_matrix * float(longest * inputs.double().norm(dim=1).max())


def counting(rows: Tensor, how: str) -> Tensor:
    count = len(rows)
    if how == "filled":
        return rows * rows.new_full((1, 1), count)
    if how == "full":
        return rows * torch.full((1, 1), float(count))
    if how == "added up":
        return rows * torch.ones(count).sum()
    if how == "a product":
        return rows * (rows.new_ones(1, count) @ rows.new_ones(count, 1))
    if how == "a mean":
        return rows * (rows.new_ones(count, 2).cumsum(0)).mean()
    return rows * (torch.ones(count, count) @ torch.ones(count, 1))


@pytest.mark.parametrize("how", ["filled", "full", "added up", "a product", "a mean", "of each row"])
def test_a_client_part_that_counts_its_rows_is_refused(how: str) -> None:
    class Part(nn.Module):
        def forward(self, received: Tensor, cells: Tensor) -> Tensor:
            return counting(received, how) @ WEIGHT[:, :2] + cells

    with pytest.raises(RefusedError):
        followed(Part(), (WIDTH, 2, 2), (7, 16))


def test_derivatives_by_the_row_are_unknown_behind_a_jump() -> None:
    def run(rows: Tensor) -> list[Tensor]:
        return [rows * (rows > 0.1).float()]

    graph = traced(run, [(ROWS, WIDTH)], {})
    row = Ball(torch.zeros(1, WIDTH).double(), torch.full((1, WIDTH), 0.5).double())
    value = row_values(row, torch.zeros(1, WIDTH).double(), torch.eye(WIDTH).double())
    [place] = (one for one in graph.results if isinstance(one, Place))
    found = Evaluator(graph, {graph.inputs[0]: value}).run(graph.operations).values[place]
    assert found.slope is not None
    assert bool((found.slope.rad.diagonal(dim1=0, dim2=2) == torch.inf).all())


class Scaled(nn.Module):
    """Layers behind a number that is an attribute, or a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.by = 1.0
        self.register_buffer("factor", torch.ones(3))

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(rows * self.by * self.get_buffer("factor"))))


def change_a_number(network: Scaled) -> None:
    network.by = 0.5


def change_a_buffer(network: Scaled) -> None:
    network.get_buffer("factor")[0] = 0.5


def add_a_hook(network: Scaled) -> None:
    network.first.register_forward_hook(lambda module, entered, left: 0.5 * left[..., :])


def replace_a_layer(network: Scaled) -> None:
    network.last = nn.Linear(8, 3)


@pytest.mark.parametrize("change", [change_a_number, change_a_buffer, add_a_hook, replace_a_layer])
def test_a_graph_is_kept_until_its_network_changes(change: Callable[[Scaled], None]) -> None:
    network, declared = Scaled(), Declaration(NUMBERS, 4, "softmax")
    names = [name for name, _ in network.named_parameters()]

    def graph() -> ClientNetwork:
        return kept_network(network, copy.deepcopy(network), names, declared)

    first = graph()
    with torch.no_grad():
        network.first.weight.mul_(2)
    assert graph() is first
    change(network)
    again = graph()
    assert again is not first
    assert graph() is again
    assert kept_network(network, copy.deepcopy(network), names, declared._replace(records=5)) is not again
