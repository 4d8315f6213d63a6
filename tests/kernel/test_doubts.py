"""Messages, rows and witnesses that are not what was declared: few numbers, 16 bits, changes, overflow."""

from __future__ import annotations

import itertools
import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage import kernel
from seepage.kernel import Certified, Declaration, EncodedColumn
from seepage.kernel.cuts import followed
from seepage.kernel.doubts import PLACEBOS, by_chance, coarse, coarse_change, coarse_parts, moved_entries, moved_wholes
from seepage.kernel.operations import Ball, Evaluator, errors_of_outputs, row_values
from seepage.kernel.tracing import traced
from seepage.seeds import seeded

HALVES = (torch.float16, torch.bfloat16)


def drawn(count: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("count", [1, 2, 3, 15, 40])
def test_numbers_of_16_bits_are_seen_however_few(count: int, kind: torch.dtype) -> None:
    for seed in range(40):
        message = {"a": drawn(count, seed), "b": drawn(count, seed + 100)}
        assert not coarse(message)
        assert coarse({"a": message["a"].to(kind).float()})
        # One tensor of the message is enough, but not where its numbers may be short for reasons of their own.
        assert count < 3 or coarse_parts({"a": message["a"].to(kind).float(), "b": message["b"]})
        assert not coarse_parts({"a": torch.tensor([0.5, -0.5, 0.25])[:count], "b": message["b"]})


@pytest.mark.parametrize("rate", [1.0, 1e-2, 1e-3, 1e-5])
def test_changes_of_parameters_are_judged_by_the_grid_of_the_parameters(rate: float) -> None:
    begin, slope = {"w": drawn(400, 0, 0.1), "b": drawn(5, 1, 0.1)}, {"w": drawn(400, 2, 0.1), "b": drawn(5, 3, 0.1)}
    after = {name: begin[name] - rate * slope[name] for name in begin}
    change = {name: begin[name] - after[name] for name in begin}
    assert coarse(change) == (rate <= 1e-5)
    assert not coarse_change(change, begin)
    for kind in HALVES:
        kept = {name: begin[name] - part.to(kind).float() for name, part in after.items()}
        assert coarse_change(kept, begin)
        if rate > 1e-5:
            # Smaller changes have no more digits than 16 bits hold, and lose none.
            assert coarse_change({name: part.to(kind).float() for name, part in change.items()}, begin)


def of_numbers(
    rows_of: Any, tolerance: float = 1e-4, seed: int = 0, low: float = -2.0
) -> tuple[Certified, Tensor, Tensor]:
    """Return what is certified of two records of numbers as a client holds them, these rows, and the true ones."""
    columns = tuple(EncodedColumn(f"x{i}", (0.3,), (0.7,), None, low, 2.0, tolerance) for i in range(3))
    declared, network = Declaration(columns, 2, "softmax"), seeded(lambda: net(3), seed)
    cells = torch.rand(2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3 - 1.5
    witness, rows = rows_of(declared, cells)
    labels = torch.tensor([0, 1])
    at = dict(network.named_parameters())
    message = dict(
        zip(at, torch.autograd.grad(functional.cross_entropy(network(rows), labels), list(at.values())), strict=True)
    )
    return kernel.certify(network, at, message, declared, witness, labels), witness, cells


def net(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, 3))


@pytest.mark.long
@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("held", ["encoded", "as they are"])
def test_rows_that_are_held_in_16_bits_are_doubted(kind: torch.dtype, held: str) -> None:
    def rows_of(declared: Declaration, cells: Tensor) -> tuple[Tensor, Tensor]:
        if held == "encoded":
            rows = declared.rows(cells).to(kind).float()
            return rows.double() * declared.layout.scale + declared.layout.mean, rows
        cells = cells.to(kind).double()
        return cells, declared.rows(cells).float()

    false = 0
    for seed in range(2):
        proof, witness, cells = of_numbers(rows_of, seed=seed)
        false += int((proof.cells & ((witness - cells).abs() > 1e-4)).sum())
    assert not false
    usual, _, _ = of_numbers(lambda declared, cells: (cells, declared.rows(cells).float()))
    assert bool(usual.cells.all())
    # Where the tolerance is wider than the grid, what is proved holds for such rows, too.
    wide, witness, cells = of_numbers(rows_of, tolerance=0.05)
    assert bool(wide.cells.all())
    assert bool(((witness - cells).abs() <= 0.05).all())


@pytest.mark.parametrize("kind", HALVES)
def test_a_number_that_16_bits_moved_out_of_its_range_does_not_show_that_its_column_is_held_in_more(
    kind: torch.dtype,
) -> None:
    # The least number lies a little above one of 16 bits, -2 as the network takes it.
    low = 0.3 - 2 * 0.7 + 1e-6

    def rows_of(declared: Declaration, cells: Tensor) -> tuple[Tensor, Tensor]:
        cells[0], cells[1] = low + 3e-4, low + torch.tensor([0.42, 1.31, 2.03])
        rows = declared.rows(cells).to(kind).float()
        return (rows.double() * declared.layout.scale + declared.layout.mean).clamp(min=low), rows

    proof, witness, cells = of_numbers(rows_of, low=low)
    assert bool(((witness - cells).abs() > 1e-4).any(0).all())
    assert not bool((proof.cells & ((witness - cells).abs() > 1e-4)).any())

    def in_full(declared: Declaration, cells: Tensor) -> tuple[Tensor, Tensor]:
        rows_of(declared, cells)
        return cells, declared.rows(cells).float()

    assert bool(of_numbers(in_full, low=low)[0].cells.all())


def test_placebos_are_replayed_as_often_as_drawn_ones_are() -> None:
    generator = torch.Generator().manual_seed(0)
    message = torch.tensor([[0.7, -0.4]], dtype=torch.float64)
    middle = torch.tensor([[0.9, -0.3]], dtype=torch.float64)
    low, high = middle - 0.02, middle + 0.02
    ends = torch.stack([low / message, high / message])
    for free in (False, True):
        found = moved_entries(low, high, message, (ends.amin(0), ends.amax(0)), free)[0]
        for entry, (k, size) in itertools.product(range(2), enumerate(PLACEBOS[:2])):
            move = size * float(message.norm()) * (2 * torch.rand(200_000, generator=generator).double() - 1)
            placebo = message.expand(len(move), 2).clone()
            placebo[:, entry] += move
            each = torch.stack([low / placebo, high / placebo])
            least, most = each.amin(0).amax(1), each.amax(0).amin(1)
            fits = least <= most if free else (least <= 1) & (most >= 1)
            assert float(fits.double().mean()) == pytest.approx(float(found[entry, k]), abs=4e-3)
    whole = moved_wholes(torch.tensor([0.9]).double(), torch.tensor([1.2]).double())
    assert float(whole[0, 0]) == pytest.approx(0.3)
    assert float(whole[0, -1]) == pytest.approx(1.0)


def test_replays_that_placebos_have_as_often_are_chance() -> None:
    chances = torch.full((8, 3, 2), 0.2, dtype=torch.float64)
    assert not by_chance(chances, torch.ones(8, dtype=torch.bool))
    assert by_chance(chances[:6], torch.ones(6, dtype=torch.bool))
    assert by_chance(chances, torch.arange(8) > 2)
    # The bound is no less than the exact tail of a binomial distribution.
    tail = sum(math.comb(8, k) * 0.2**k * 0.8 ** (8 - k) for k in range(5, 9))
    assert tail <= math.comb(8, 5) * 0.2**5


class Client(nn.Module):
    """A client part that writes its codes as entries of 0 and 1 in one of several ways."""

    def __init__(self, way: str, outputs: int = 3) -> None:
        super().__init__()
        self.way, self.layers = way, nn.Sequential(nn.Linear(4 + 7, 16), nn.ReLU(), nn.Linear(16, outputs))

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        """Return the logits."""
        codes, widths, own = cells.long(), (3, 4), []
        for i, width in enumerate(widths):
            code = codes[:, i]
            if self.way == "one_hot":
                own.append(functional.one_hot(code, width))
            elif self.way == "scatter":
                own.append(torch.zeros(len(cells), width).scatter(1, code[:, None], 1.0))
            elif self.way == "in place":
                own.append(torch.zeros(len(cells), width).scatter_(1, code[:, None], 1.0))
            elif self.way == "equal":
                own.append(code[:, None] == torch.arange(width))
            else:
                own.append(torch.eye(width)[code])
        if self.way.startswith("rows "):
            bound = 0.1 if len(cells) == int(self.way.split()[1]) else 1e6
            cut = cut - functional.relu(cut - bound)
        return self.layers(torch.cat([cut, *(part.to(cut.dtype) for part in own)], 1))


def of_client(client: nn.Module, records: int = 12) -> tuple[Certified, Tensor]:
    columns = tuple(EncodedColumn(f"c{i}", (0.0,), (1.0,), tuple(range(width))) for i, width in enumerate((3, 4)))
    generator = torch.Generator().manual_seed(1)
    cells = torch.stack([torch.randint(width, (records,), generator=generator) for width in (3, 4)], 1)
    sent = torch.randn(records, 4, generator=generator).requires_grad_()
    labels = torch.randint(3, (records,), generator=generator)
    loss = functional.cross_entropy(client(sent, cells.float()), labels)
    returned = torch.autograd.grad(loss, sent)[0]
    behind = torch.full((records,), float(records))
    declared = Declaration(columns, records, "softmax")
    return kernel.certify_cut(client, sent.detach(), returned, behind, declared, cells.double()), cells


@pytest.mark.parametrize("way", ["one_hot", "scatter", "in place", "equal", "eye"])
def test_a_client_may_write_its_codes_in_any_way(way: str) -> None:
    proof, _ = of_client(seeded(lambda: Client(way), 0))
    assert proof.doubt is None
    assert bool(proof.cells.all())


def test_a_client_that_heeds_its_number_of_rows_is_refused() -> None:
    proof, _ = of_client(seeded(lambda: Client("rows 12"), 0))
    assert not bool(proof.cells.any())
    assert "number" in str(proof.doubt)
    # No row shows it that no bound is cut at, but the graph does.
    run = seeded(lambda: Client("rows 12"), 0).requires_grad_(False)
    with pytest.raises(kernel.RefusedError, match="depends on the time or the number of rows"):
        followed(run, (4, 2, 3), [11, 12])
    followed(run, (4, 2, 3), [10, 11])


SMOOTH = (
    functional.mish, functional.selu, functional.celu, functional.hardswish, functional.hardsigmoid,
    functional.softsign, functional.logsigmoid, torch.sigmoid, torch.exp,
    lambda rows: functional.gelu(rows, approximate="tanh"), lambda rows: functional.elu(rows, 0.5),
)  # fmt: skip


@pytest.mark.parametrize(
    "form", [functional.gelu, torch.tanh, functional.silu, functional.softplus, functional.elu, *SMOOTH]
)
def test_single_precision_stays_within_what_operations_may_lose(form: Any) -> None:
    def run(errors: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        rows = rows.detach().requires_grad_()
        out = form(rows)
        return out, torch.autograd.grad(out, rows, errors)[0]

    count = 2**14
    graph = traced(run, [(count, 1), (count, 1)], {})
    for low in range(-12, 12, 4):
        rows = torch.linspace(low, low + 4, count)[:, None]
        none = torch.zeros_like(rows).double()
        known = errors_of_outputs(1), row_values(Ball(rows.double(), none), none)
        found = Evaluator(graph, dict(zip(graph.inputs, known, strict=True))).run(graph.operations)
        for place, own in zip(graph.results, run(torch.ones_like(rows), rows), strict=True):
            value = found.of(place)
            assert bool(((own.double() - value.mid).abs() <= value.rad).all())


def tables() -> tuple[kernel.Totals, Tensor, Tensor]:
    """Return tables of every two of three columns that two sets of four records have, and both sets."""
    columns = tuple(EncodedColumn(f"c{i}", (), (), (0, 1)) for i in range(3))
    odd = torch.tensor([[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]]).double()
    even = torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]).double()
    each = tuple(kernel.CountTable(pair, torch.ones(2, 2).double()) for pair in ((0, 1), (0, 2), (1, 2)))
    return kernel.Totals(columns, ((0, 1),) * 3, "gaussian", 4, tables=each), odd, even


def test_multipliers_at_the_edges_of_floating_point_prove_nothing_false() -> None:
    sent, _, even = tables()
    patterns, _ = kernel.patterns_of(sent)
    system = kernel.equations(sent, patterns)
    place = {tuple(code): k for k, code in enumerate(patterns.tolist())}
    witness = torch.zeros(len(patterns)).double()
    for code in even.long().tolist():
        witness[place[tuple(code)]] = 1
    none, width = torch.zeros(0, len(system.values)).double(), len(system.values)
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        power = (1.0, 1e308, 1e-308, 5e-324, 1e154, 1e300)[seed % 6]
        y = torch.randint(-2, 3, (4, width), generator=generator).double() * power
        if seed % 2:
            y = y * (1 + 1e-8 * torch.randn(4, width, generator=generator).double())
        y = y.clamp(-1.7e308, 1.7e308)
        splits = [kernel.Split(place[tuple(code)], 0.0, y, none) for code in even.long().tolist()]
        assert not bool(kernel.certify_counts(sent, even, y, witness, splits).cells.any())


def test_what_has_another_form_is_refused_with_a_reason() -> None:
    sent, _, even = tables()
    patterns, _ = kernel.patterns_of(sent)
    width = len(kernel.equations(sent, patterns).values)
    good: list[Any] = [sent, even, torch.eye(width).double(), torch.ones(len(patterns)).double() / 2, ()]
    table = sent.tables[0]
    bad: dict[int, list[Any]] = {
        0: [
            None, sent._replace(records=0), sent._replace(records=2.5), sent._replace(levels=((0, 1),)),
            sent._replace(family="gamma"), sent._replace(rounded=math.nan), sent._replace(off=-1.0),
            sent._replace(tables=(table._replace(counts=table.counts * math.inf),)),
            sent._replace(tables=(table._replace(counts=-table.counts),)),
            sent._replace(tables=(table._replace(columns=(0, 7)),)), sent._replace(tables=(3,)),
            sent._replace(steps=(kernel.Step((0.0,)),)), sent._replace(steps=(kernel.Step((1e308,) * 4),)),
        ],
        1: [None, even[:0], even[:, :2], even[0], even.tolist(), even * math.nan, even + 0.5, even.long() - 9],
        2: [
            None, torch.eye(width + 1), torch.eye(width) * math.nan, torch.eye(width)[0],
            torch.eye(width).to(torch.complex64),
        ],
        3: [None, torch.ones(2), torch.ones(len(patterns)) * math.inf, torch.ones(len(patterns), 1), "1"],
        4: [3, [None], [kernel.Split(99, 0.0, torch.eye(width), torch.eye(width))],
            [kernel.Split(0, math.nan, torch.eye(width), torch.eye(width))],
            [cast(Any, kernel.Split)(0, 0.0, None, "x")]],
    }  # fmt: skip
    for place, things in bad.items():
        for thing in things:
            proof = cast(Any, kernel.certify_counts)(*good[:place], thing, *good[place + 1 :])
            assert not bool(proof.cells.any())
            assert proof.doubt
    for groups in (None, [], [None], [(sent,)], [good[:4]], [good]):
        proof = kernel.certify_groups(groups, (), 4)  # pyright: ignore[reportArgumentType]
        assert not bool(proof.cells.any())
        assert proof.doubt


def test_gradients_cuts_and_sums_of_another_form_are_refused_with_a_reason() -> None:
    columns = (EncodedColumn("x", (0.0,), (1.0,), None, -2.0, 2.0, 0.1),)
    declared, network = Declaration(columns, 1, "softmax"), seeded(lambda: net(1), 0)
    at = dict(network.named_parameters())
    for cells in (None, torch.zeros(0, 1), torch.zeros(1, 2), torch.full((1, 1), math.nan), "x"):
        for proof in (
            kernel.certify(network, at, at, declared, cells, torch.zeros(1)),  # pyright: ignore[reportArgumentType]
            kernel.certify_cut(network, cells, cells, cells, declared, cells),  # pyright: ignore[reportArgumentType]
            kernel.certify_sums(None, cells, cells, cells),  # pyright: ignore[reportArgumentType]
        ):
            assert not bool(proof.cells.any())
            assert proof.doubt
    halves = {name: part.half() for name, part in at.items()}
    proof = kernel.certify(network, at, halves, declared, torch.zeros(1, 1), torch.zeros(1))
    assert "float16" in str(proof.doubt)


ACTIVATIONS = {
    "relu6": functional.relu6,
    "hardtanh": lambda rows: functional.hardtanh(rows, -0.5, 0.5),
    "gelu by tanh": lambda rows: functional.gelu(rows, approximate="tanh"),
    "softsign": functional.softsign,
    "logsigmoid": functional.logsigmoid,
    "neg": lambda rows: -functional.relu(-rows),
    "rsub": lambda rows: 1 - functional.relu(1 - rows),
}


class Own(nn.Module):
    """A layer behind an activation, which may cut a number at a bound where something of its run is as it says."""

    def __init__(self, bend: Any = functional.relu, when: Any = None) -> None:
        super().__init__()
        self.first, self.last, self.bend, self.when = nn.Linear(6, 24), nn.Linear(24, 3), bend, when

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits."""
        if self.when is not None:
            over = functional.relu(rows[:, :1] - (1.5 if self.when(self, rows) else 1e6))
            rows = torch.cat([rows[:, :1] - over, rows[:, 1:]], 1)
        return self.last(self.bend(self.first(rows)))


def of_network(network: nn.Module, moved: float = 0.0) -> Certified:
    """Return what is certified of two records, of which one number is another one in the witness."""
    numbers = [EncodedColumn(name, (0.0,), (1.0,), None, -2.0, 2.0, 0.02) for name in "ab"]
    declared = Declaration((*numbers, EncodedColumn("c", (0.0,) * 4, (1.0,) * 4, tuple(range(4)))), 2, "softmax")
    cells, labels = torch.tensor([[1.9, -0.3, 2.0], [0.4, 1.1, 1.0]]).double(), torch.tensor([0, 2])
    at = dict(network.named_parameters())
    outputs = network(declared.rows(cells).float())
    message = dict(zip(at, torch.autograd.grad(functional.cross_entropy(outputs, labels), [*at.values()]), strict=True))
    witness = cells.clone()
    witness[0, 0] -= moved
    return kernel.certify(network, at, message, declared, witness, labels)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_followed(name: str) -> None:
    network = seeded(lambda: Own(ACTIVATIONS[name]), 0)
    assert bool(of_network(network).cells.all())
    assert not bool(of_network(network, moved=0.05).cells.any())


CHANGES = {
    "own number": lambda module, rows: len(rows) == 2,
    "two numbers": lambda module, rows: rows.shape[0] in (2, 7),
    "entries": lambda module, rows: rows.numel() == 12,
    "precision": lambda module, rows: rows.dtype == torch.float32,
    "training": lambda module, rows: module.training,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_network_that_cuts_numbers_in_its_own_run_alone_is_refused(name: str) -> None:
    # Cut at 1.5, the number 1.9 leaves the message of 1.5; elsewhere nothing is cut.
    network = seeded(lambda: Own(when=CHANGES[name]), 0)
    proof = of_network(network, moved=0.4)
    assert not bool(proof.cells.any())
    assert proof.doubt is not None
