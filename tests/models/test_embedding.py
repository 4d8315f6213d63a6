"""The adapter computes what the real network of codes does, gradients of its tables included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loky import get_reusable_executor
from torch import Tensor, nn
from torch.nn import functional

from seepage import baselines
from seepage.assessment import measure
from seepage.datasets import load
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import gradient, mean_loss
from seepage.models.embedding import Embedded, _roles, adapted
from seepage.models.model import Model, usual_head
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import Knowledge, RecordsGuess
from seepage.wire.secret import RecordsSecret
from tests.laws.strategies import schemas, tables
from tests.roundings import assert_rounded_alike


class Separate(nn.Module):
    """One table a column, as most code has it."""

    def __init__(self, schema: Schema, outputs: int, padding: bool = False) -> None:
        super().__init__()
        widths = [schema.columns[i].width for i in schema.discrete]
        sizes = [1 + width % 4 for width in widths]
        self.tables = nn.ModuleList(
            nn.Embedding(width, size, padding_idx=width - 1 if padding else None)
            for width, size in zip(widths, sizes, strict=True)
        )
        self.hidden = nn.Linear(sum(sizes) + len(schema.continuous), 7)
        self.out = nn.Linear(7, outputs)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        found = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.out(torch.tanh(self.hidden(torch.cat([*found, numbers], dim=-1))))


class Stacked(nn.Module):
    """One table for all columns, told apart by an offset; positions are added; arguments the other way round."""

    offsets: Tensor
    positions: Tensor

    def __init__(self, schema: Schema, outputs: int) -> None:
        super().__init__()
        widths = [schema.columns[i].width for i in schema.discrete]
        self.register_buffer("offsets", torch.tensor([sum(widths[:i]) for i in range(len(widths))], dtype=torch.int64))
        self.register_buffer("positions", torch.arange(len(widths)))
        self.shared = nn.Embedding(max(1, sum(widths)), 3)
        self.place = nn.Embedding(max(1, len(widths)), 3)
        self.root = nn.Parameter(torch.ones(3))
        self.out = nn.Linear(3 * len(widths) + len(schema.continuous), outputs)

    def forward(self, x_num: Tensor, x_cat: Tensor) -> Tensor:
        found = self.shared(x_cat + self.offsets) * self.root + self.place(self.positions)
        return self.out(torch.cat([found.flatten(1), x_num], dim=-1))


class OneHot(nn.Module):
    """A table is a matrix: the look-up by hand, the records on the last axis of the index."""

    def __init__(self, schema: Schema, outputs: int) -> None:
        super().__init__()
        self.widths = [schema.columns[i].width for i in schema.discrete]
        self.out = nn.Linear(sum(self.widths) + len(schema.continuous), outputs)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        columns = codes.T.contiguous().unbind(0)
        found = [functional.one_hot(c, w).to(numbers) for c, w in zip(columns, self.widths, strict=True)]
        return self.out(torch.cat([*found, numbers], dim=-1))


class ColumnsFirst(nn.Module):
    """The records lie along the second axis of the index."""

    def __init__(self, schema: Schema, outputs: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(max((schema.columns[i].width for i in schema.discrete), default=1), 2)
        self.out = nn.Linear(2 * len(schema.discrete) + len(schema.continuous), outputs)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        found = self.shared(codes.T).movedim(1, 0).flatten(1)
        return self.out(torch.cat([found, numbers], dim=-1))


def padded(schema: Schema, outputs: int) -> nn.Module:
    return Separate(schema, outputs, padding=True)


NETWORKS: list[Callable[[Schema, int], nn.Module]] = [Separate, padded, Stacked, OneHot, ColumnsFirst]


def real_gradient(
    network: nn.Module, table: Table, encoded: Tensor, head: str, reversed_arguments: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """What a client computes who knows nothing of seepage: codes in, autograd."""
    schema = table.schema
    codes = table.cells[:, list(schema.discrete)].long()
    numbers = encoded[:, [schema.blocks[i].start for i in schema.continuous]]
    outputs = network(*((numbers, codes) if reversed_arguments else (codes, numbers)))
    network.zero_grad()
    mean_loss(head, outputs, table.labels).backward()  # pyright: ignore[reportArgumentType]
    return outputs.detach(), {
        name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in network.named_parameters()
    }


@pytest.mark.long
@pytest.mark.parametrize("make", NETWORKS)
@settings(max_examples=8)
@given(data=st.data())
def test_outputs_and_gradients_are_those_of_the_real_network(
    make: Callable[[Schema, int], nn.Module], data: st.DataObject
) -> None:
    table = data.draw(tables(schemas(largest=1e3), most_rows=5))
    head = usual_head(table.schema)
    network = make(table.schema, table.schema.target.width if head == "softmax" else 1).double()
    statistics = Statistics.of(table)
    encoded = Encoder(table.schema, statistics).encode(table.cells)
    model = Model(Embedded(network, table.schema, statistics), head, "own")
    model.check(table.schema)
    outputs, expected = real_gradient(network, table, encoded, head, isinstance(network, Stacked))
    torch.testing.assert_close(model.outputs(encoded), outputs, rtol=1e-9, atol=1e-9)
    assert list(model.parameters) == list(expected)
    found = gradient(model, encoded, table.labels)
    both = gradient(model, encoded.expand(2, 1, -1, -1), table.labels.expand(2, 1, -1))
    for name, g in expected.items():
        size = g.abs().max().clamp_min(1).item()
        torch.testing.assert_close(found[name], g, rtol=1e-6, atol=1e-9 * size)
        torch.testing.assert_close(both[name][1, 0], g, rtol=1e-6, atol=1e-9 * size)


def test_the_adapter_is_differentiable_in_the_rows_twice() -> None:
    data = distinct(rows=4, continuous=1, discrete=2)
    encoder = Encoder(data.schema, data.statistics)
    adapter = Embedded(Separate(data.schema, 2).double(), data.schema, data.statistics)
    model = Model(adapter, "softmax", "own")
    rows = encoder.encode(data.train.cells[:2]) + 0.1
    target = gradient(model, rows.roll(1, 0) * 0.9, data.train.labels[:2])

    def distance(x: Tensor) -> Tensor:
        found = gradient(model, x, data.train.labels[:2])
        return torch.stack([(g - target[name]).square().sum() for name, g in found.items()]).sum()

    assert torch.autograd.gradcheck(distance, rows.clone().requires_grad_())


@pytest.mark.slow
def test_an_adapter_reaches_another_process_whole() -> None:
    data = distinct(rows=4, continuous=1, discrete=2)
    adapter = Embedded(Separate(data.schema, 2), data.schema, data.statistics)
    encoded = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(data.train.cells)
    with get_reusable_executor(max_workers=1) as executor:
        sent = executor.submit(lambda module, rows: (module, module(rows).detach()), adapter, encoded).result()
    # Another process may have another number of threads.
    assert_rounded_alike(sent[1], adapter(encoded).detach(), roundings=16)
    back: Embedded = sent[0]
    with torch.no_grad():
        for parameter in back.parameters():
            parameter.zero_()
    assert not back(encoded).any()


def test_moving_copying_and_saving_keep_the_networks_own_names() -> None:
    data = distinct(rows=4, continuous=1, discrete=2)
    network = Separate(data.schema, 2)
    adapter = Embedded(network, data.schema, data.statistics)
    assert adapter.state_dict().keys() == network.state_dict().keys()
    encoded = Encoder(data.schema, data.statistics).encode(data.train.cells)
    wide = Embedded(network, data.schema, data.statistics).double()
    assert {p.dtype for p in wide.parameters()} == {torch.float64}
    torch.testing.assert_close(wide(encoded).float(), adapter(encoded.float()), rtol=1e-5, atol=1e-5)
    before = network.tables[0].weight.clone()  # pyright: ignore[reportCallIssue]
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.zero_()
    assert not adapter(encoded.float()).any()
    assert torch.equal(network.tables[0].weight, before)  # pyright: ignore[reportArgumentType]
    assert adapter.eval().training is False
    assert adapted(adapter, data.schema, data.statistics) is adapter


class Forward(nn.Module):
    def __init__(self, forward: Callable[..., Tensor], rows: int = 4) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(rows, 2), nn.Linear(2, 2)
        self.step = 0
        self._forward = forward

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        self.step += 1
        return self.out(self._forward(self, codes))


def normed(self: Forward, codes: Tensor) -> Tensor:
    return functional.embedding(codes[:, 0], self.table.weight, max_norm=1.0)


@pytest.mark.parametrize(
    ("forward", "rows", "message"),
    [
        (lambda self, codes: self.table((codes[:, 0] + codes[:, 1]).clamp_max(3)), 4, "depends on several columns"),
        (lambda self, codes: self.table(codes[:, 0]) * codes[:, 1:2], 4, "does more with its codes"),
        (lambda self, codes: self.table(codes[:, 0]), 3, "row 3 in a table of 3 rows for column 'discrete_0'"),
        (lambda self, codes: self.table(codes.flatten()).view(-1, 4)[:, :2], 4, "mixes records and columns"),
        (lambda self, codes: functional.one_hot(codes[:, 0]).float()[:, :2], 4, "without a number of classes"),
        (normed, 4, "max_norm=1.0"),
        (lambda self, codes: codes[:, 7:8].float().expand(-1, 3), 4, "does not take 2 codes and 1 numbers"),
        (
            lambda self, codes: sum(self.table(codes[:, 0]) for _ in range(self.step)),
            4,
            "other tables from one call to the next",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(forward: Callable[..., Tensor], rows: int, message: str) -> None:
    data = distinct(rows=4, continuous=1, discrete=2)
    with pytest.raises(BadInputError, match=message) as raised:
        Embedded(Forward(forward, rows), data.schema, data.statistics)
    assert "\n" not in str(raised.value)


def test_arguments_are_told_apart_by_their_names() -> None:
    class Unclear(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a + b

    class OnlyCodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 2)

        def forward(self, x_cat: Tensor) -> Tensor:
            return self.table(x_cat[:, 0])

    with pytest.raises(BadInputError, match="takes 'a', 'b'"):
        _roles(Unclear())
    assert _roles(nn.Linear(2, 2)) is None
    assert _roles(OnlyCodes()) is not None
    data = distinct(rows=4, continuous=1, discrete=2)
    with pytest.raises(BadInputError, match="1 continuous column"):
        Embedded(OnlyCodes(), data.schema, data.statistics)
    with pytest.raises(BadInputError, match="only a network that takes codes"):
        Embedded(nn.Linear(2, 2), data.schema, data.statistics)


@pytest.mark.long
def test_tableak_reads_records_through_embedding_tables() -> None:
    """Four categorical columns out of five leave only through the tables."""
    data = load("german")
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    network = seeded(lambda: Separate(data.schema, 2), 0)
    model = Model(Embedded(network, data.schema, data.statistics), "softmax", "own")
    attack = attacks.create("tableak", restarts=2, iterations=120)
    for records, gain in ((1, 0.3), (4, 0.1)):
        ran = FedSGD(records).run(model, data.train, encoder, seeds=range(2))
        known = Knowledge(data.schema, data.statistics, records)
        guesses = (attack(ran.view, known, [0, 1]), baselines.create("mode", "horizontal")(ran.view, known, [0, 1]))
        read, guessed = (categories_read(data, ran.secret, guess) for guess in guesses)
        assert read > guessed + gain


def categories_read(data: Dataset, secret: RecordsSecret, guess: RecordsGuess) -> float:
    found = measure(data.schema, data.statistics, secret, guess)
    [values] = [figure.values for figure in found if (figure.metric, figure.column) == ("accuracy_discrete", None)]
    return float(values.mean())
