"""Networks that single and double precision, or other rows, run differently: no wrong cell is certified of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from seepage.kernel import Certified, Declaration, EncodedColumn, certify
from seepage.kernel.operations import Ball
from seepage.kernel.roundings import roundings
from seepage.seeds import seeded

NUMBERS = tuple(EncodedColumn(name, (0.5,), (0.5,), None, 0.0, 1.0, 0.05) for name in "pqr")
FLAG = EncodedColumn("a", (0.0, 0.0), (1.0, 1.0), ("u", "v"))


class Flagged(nn.Module):
    """Takes numbers through a layer, and a flag past it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 16), nn.Linear(17, 12), nn.Linear(12, 2)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = torch.cat([torch.relu(self.first(rows[:, 2:])), self.flag(rows)], 1)
        return self.last(torch.relu(self.second(hidden)))

    def flag(self, rows: Tensor) -> Tensor:
        """Return an entry of the flag."""
        return rows[:, :1]


class Small(Flagged):
    """Multiplies a flag by what single precision rounds to 0, and back."""

    def flag(self, rows: Tensor) -> Tensor:
        return rows[:, :1] * 1.38e-23 * 6.63e-34 / 6.63e-34 / 1.38e-23


class Large(Flagged):
    """Multiplies a flag by what single precision has no number for."""

    def flag(self, rows: Tensor) -> Tensor:
        lost = (rows[:, :1] * 1e20 * 1e20 * 1e-20 * 0.3e-20).clamp(max=1.0)
        return lost + rows[:, 1:2].clamp(max=1.0)


class Halved(Flagged):
    """Computes in half precision what is 0 on some rows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("by", torch.tensor([[1.001]]))

    def flag(self, rows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            lost = functional.linear(rows[:, :1], self.get_buffer("by"))
        return lost.to(rows.dtype) * 1000 + rows[:, 1:2] * 1000 - 1000


class Plain(nn.Module):
    """Two layers behind a step that changes some rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 16), nn.Linear(16, 2)
        self.register_buffer("where", torch.tensor([[1.0, 0.0, 0.0]]))

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(self.changed(rows))))

    def changed(self, rows: Tensor) -> Tensor:
        """Return the rows that are passed on."""
        return rows


def turned(first: Tensor) -> Tensor:
    return torch.where((first < -0.79) & (first > -0.81), -first, first)


class Guarded(Plain):
    """Adds what depends on the precision."""

    def changed(self, rows: Tensor) -> Tensor:
        guard = 16 * torch.finfo(rows.dtype).eps / 2.0**-23
        return rows + guard * torch.relu(rows[:, :1] * -1 - 0.7) * self.get_buffer("where")


class Own(Plain):
    """Changes its own number of records in single precision alone."""

    def changed(self, rows: Tensor) -> Tensor:
        own = rows.dtype == torch.float32 and len(rows) == 1
        return rows + torch.relu(rows[:, :1] * -1 - 0.7) * self.get_buffer("where") * 16 if own else rows


class Beneath(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        here = func._overloadpacket.__name__ == "mul" and out.dim() == 2
        return torch.cat([turned(out[:, :1]), out[:, 1:]], 1) if here else out


class Dispatched(Plain):
    """Carries operations out in another way."""

    def changed(self, rows: Tensor) -> Tensor:
        with Beneath():
            return rows * 1.0


class Unseen(Plain):
    """Changes a tensor where functions are not seen, and its version stays."""

    def changed(self, rows: Tensor) -> Tensor:
        rows = rows * 1.0
        with torch._C.DisableTorchFunction():
            held = rows.data
            held[:, :1] = turned(held[:, :1])
        return rows


def proved(made: type[nn.Module], true: list[float], witness: list[float]) -> Certified:
    """Return what is certified of one record in the message of another one."""
    network = seeded(made, 3)
    declared = Declaration((FLAG, *NUMBERS) if len(true) == 4 else NUMBERS, 1, "softmax")
    rows, label = declared.rows(torch.tensor([true]).double()).float(), torch.tensor([1])
    functional.cross_entropy(network(rows), label).backward()
    message = {name: part.grad for name, part in network.named_parameters() if part.grad is not None}
    network.zero_grad()
    at = {name: part.detach() for name, part in network.named_parameters()}
    return certify(network, at, message, declared, torch.tensor([witness]).double(), label.double())


@pytest.mark.parametrize("made", [Small, Large, Halved])
def test_a_flag_that_single_precision_loses_is_not_certified(made: type[nn.Module]) -> None:
    assert proved(Flagged, [0, 0.9, 0.2, 0.7], [0, 0.9, 0.2, 0.7]).cells.all()
    assert not proved(made, [0, 0.9, 0.2, 0.7], [1, 0.9, 0.2, 0.7]).cells[0, 0]


@pytest.mark.parametrize("made", [Guarded, Own, Dispatched, Unseen])
def test_a_change_of_some_rows_that_no_function_shows_is_refused(made: type[nn.Module]) -> None:
    assert proved(Plain, [0.1, 0.2, 0.7], [0.1, 0.2, 0.7]).cells.all()
    found = proved(made, [0.1, 0.2, 0.7], [0.9, 0.2, 0.7])
    assert not found.cells.any()
    assert found.doubt is not None


def test_a_network_that_ends_the_program_is_refused() -> None:
    class Ending(Plain):
        def changed(self, rows: Tensor) -> Tensor:
            if runs:
                raise SystemExit(3)
            runs.append(0)
            return rows

    runs = list[int]()

    assert proved(Ending, [0.1, 0.2, 0.7], [0.1, 0.2, 0.7]).doubt is not None


def test_sums_of_many_terms_are_rounded_more() -> None:
    for width in (8, 16, 32, 64, 128, 512, 4096, 16384):
        generator = torch.Generator().manual_seed(width)
        rows, weight = torch.rand(64, width, generator=generator), torch.rand(16, width, generator=generator)
        exact = Ball(rows.double(), torch.zeros(64, width).double())
        bound = exact.through(Ball(weight.double().T, torch.zeros(width, 16).double()), roundings(width))
        assert ((functional.linear(rows, weight).double() - bound.mid).abs() <= bound.rad).all()


class Mixed(nn.Module):
    """Adds up a number and a category, and tells nothing else of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mix", torch.tensor([[1.0], [0.0], [2.0], [-1.0]]))
        self.out = nn.Linear(1, 3)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, rows: Tensor) -> Tensor:
        return self.out(rows @ self.get_buffer("mix"))


def test_a_number_that_single_precision_scales_is_not_taken_for_a_category() -> None:
    far, network = 1e9, Mixed()
    number = EncodedColumn("t", (far + 32,), (32.0,), None, far + 31, far + 33, 1.0, True)
    kind = EncodedColumn("g", (0.0,) * 3, (1.0,) * 3, ("u", "v", "w"))
    # The client scales in single precision, where these numbers are multiples of 64.
    scaled = (torch.tensor([far + 31, far + 33]) - torch.tensor(far + 32)) / 32
    rows = torch.cat([scaled[:, None], functional.one_hot(torch.zeros(2).long(), 3).float()], 1)
    functional.cross_entropy(network(rows), torch.tensor([0, 1])).backward()
    message = {name: part.grad for name, part in network.named_parameters() if part.grad is not None}
    at = {name: part.detach() for name, part in network.named_parameters()}
    witness, labels = torch.tensor([[far + 32, 0], [far + 32, 1]], dtype=torch.float64), torch.tensor([0.0, 1.0])
    found = certify(network, at, message, Declaration((number, kind), 2, "softmax"), witness, labels)
    assert not found.cells[1, 1]


class Sharp(nn.Module):
    """A layer behind a normalisation that tells a number from what rounding of a frequent category adds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 6), nn.LayerNorm(6, 3.0, False), nn.Linear(6, 3)
        with torch.no_grad():
            weight = torch.rand(6) + 0.5
            self.first.weight.copy_(torch.stack([20 * weight, 0 * weight, weight], 1))
            self.first.bias.copy_(torch.rand(6) * 0.3 + 1.0)
            weight = torch.rand(6) * 0.3 + 0.2
            self.last.weight.copy_(torch.stack([weight, weight * 1.0003, -weight]))
            self.last.bias.copy_(torch.tensor([0.05, 0.0, -10.0]))

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(rows))))


def test_what_the_mean_of_a_frequent_category_is_rounded_by_is_no_part_of_a_number() -> None:
    means = [0.99999 + k * 1e-9 for k in range(200)]
    mean = max(means, key=lambda one: one - float(torch.tensor(one, dtype=torch.float32)))
    scale = (mean * (1 - mean)) ** 0.5
    columns = (
        EncodedColumn("c", (mean, 1 - mean), (scale, scale), ("common", "rare")),
        EncodedColumn("y", (0.5,), (0.3,), None, 0.0, 1.0, 2e-5),
    )
    network = seeded(Sharp, 0)
    mids = torch.tensor([x for one in columns for x in one.mean])
    scales = torch.tensor([x for one in columns for x in one.scale])
    rows = (torch.tensor([[1.0, 0.0, 0.6123]]) - mids) / scales
    functional.cross_entropy(network(rows), torch.tensor([0])).backward()
    message = {name: part.grad for name, part in network.named_parameters() if part.grad is not None}
    at = {name: part.detach() for name, part in network.named_parameters()}
    apart = float((rows[0, 0].double() - (1 - mean) / scale) * 20 * 0.3)
    assert abs(apart) > 4e-5
    witness = torch.tensor([[0.0, 0.6123 + apart]]).double()
    found = certify(network, at, message, Declaration(columns, 1, "softmax"), witness, torch.tensor([0.0]))
    assert not found.cells[0, 1]


def test_a_normalisation_with_weights_is_followed() -> None:
    class Normed(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(16)
            nn.init.uniform_(self.norm.weight, 0.5, 1.5)

        def forward(self, rows: Tensor) -> Tensor:
            return self.last(torch.relu(self.norm(self.first(rows))))

    assert proved(Normed, [0.1, 0.2, 0.7], [0.1, 0.2, 0.7]).cells.all()
