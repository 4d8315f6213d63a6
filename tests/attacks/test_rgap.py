"""R-GAP reads one planted record off networks without biases, to float precision."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seepage import models
from seepage.attacks.horizontal.exact.rgap import RGap
from seepage.attacks.horizontal.exact.single_activation import SingleActivation
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.mlp import linear, mlp, nn1
from seepage.models.model import Head, Model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics)
FRACTIONS = tuple(Continuous(name=f"x{i}", low=-9, high=9, tolerance=0.1) for i in range(6))
COLOURS = (Discrete(name="colour", categories=("red", "green", "blue")),)
TWO, THREE = (Discrete(name="y", categories=tuple(range(n))) for n in (2, 3))


def rows_of(columns: tuple[Column, ...], target: Column, seed: int) -> Table:
    """Return rows whose numbers are no whole ones, so that decoding mends nothing."""
    generator = torch.Generator().manual_seed(seed)
    cells: dict[str, list[object]] = {}
    for column in (*columns, target):
        if isinstance(column, Discrete):
            codes = torch.randint(column.width, (30,), generator=generator).tolist()
            cells[column.name] = [column.categories[code] for code in codes]
        else:
            cells[column.name] = torch.randn(30, generator=generator, dtype=torch.float64).tolist()
    return Table(Schema(columns=columns, target=target), pd.DataFrame(cells))


def attacked(
    rows: Table, model: Model, labels: bool = False, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Return what R-GAP reads of eight clients with one record each, and what they hold."""
    model.module.to(dtype)
    statistics = Statistics.of(rows)
    ran = FedSGD(1).run(model, rows, Encoder(rows.schema, statistics, dtype=dtype), range(8))
    granted = ran.secret.labels if labels else None
    return RGap()(ran.view, Knowledge(rows.schema, statistics, 1, granted), range(8)).cells, ran.secret.cells


@pytest.mark.parametrize("slope", [0, 0.2])
@pytest.mark.parametrize("widths", [(), (30,), (5, 7), (30, 20, 10)])
@pytest.mark.parametrize(("head", "target"), [("softmax", TWO), ("softmax", THREE), ("sigmoid", TWO)])
def test_one_record_is_read_to_float_precision(head: Head, target: Discrete, widths: tuple[int, ...], slope: float):
    rows = rows_of((*FRACTIONS, *COLOURS), target, seed=3)
    model = mlp(rows.schema, widths, seed=1, head=head, bias=False, slope=slope)
    found, true = attacked(rows, model)
    torch.testing.assert_close(found, true, rtol=0, atol=1e-8)
    found, true = attacked(rows, model, dtype=torch.float32)
    torch.testing.assert_close(found, true, rtol=0, atol=2e-3)


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU(0.5)])
def test_activations_are_undone_where_one_stands_twice(activation: nn.Module) -> None:
    rows = rows_of(FRACTIONS, TWO, seed=3)

    def build() -> nn.Module:
        ends = nn.Linear(6, 12, bias=False), nn.Linear(8, 2, bias=False)
        return nn.Sequential(ends[0], activation, nn.Sequential(nn.Linear(12, 8, bias=False), activation), ends[1])

    # An odd network has the same gradient for a record and, with the other label, for its negative.
    found, true = attacked(rows, Model(seeded(build, 1), "softmax", "mine"), labels=isinstance(activation, nn.Tanh))
    torch.testing.assert_close(found, true, rtol=0, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 3), st.sampled_from([0, 0.01, 0.5]), st.integers(2, 5))
def test_numbers_alone_are_told_by_the_gradient(seed: int, size: float, slope: float, classes: int) -> None:
    """Where every row is valid, what reproduces the gradient is the record, or its equal."""
    rows = rows_of(FRACTIONS, Discrete(name="y", categories=tuple(range(classes))), seed)
    model = mlp(rows.schema, (10, 9), seed=seed, bias=False, slope=slope)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(size)
    model.module.double()
    statistics = Statistics.of(rows)
    encoder = Encoder(rows.schema, statistics)
    ran = FedSGD(1).run(model, rows, encoder, range(4))
    knowledge = Knowledge(rows.schema, statistics, 1, ran.secret.labels)
    dead = torch.stack([g.flatten(1).abs().amax(1) for g in ran.view.gradient.values()]).amin(0) < 1e-9
    if dead.any():
        return
    guess = RGap()(ran.view, knowledge, range(4))
    own = gradient(model, encoder.encode(guess.cells), ran.secret.labels)
    for name, received in ran.view.gradient.items():
        torch.testing.assert_close(own[name], received, rtol=1e-5, atol=1e-6 * float(received.abs().max()))


def test_labels_settle_which_of_the_twins_it_is() -> None:
    """The gradient of a linear model is the same for a record and, with the other label, for its negative."""
    rows = rows_of(FRACTIONS, TWO, seed=5)
    model = linear(rows.schema, seed=2, bias=False)
    found, true = attacked(rows, model, labels=True)
    torch.testing.assert_close(found, true, rtol=0, atol=1e-8)
    encoder = Encoder(rows.schema, Statistics.of(rows))
    found, true = (encoder.encode(cells) for cells in attacked(rows, model))
    signs = (found * true).sum((1, 2), keepdim=True).sign()
    torch.testing.assert_close(found * signs, true, rtol=0, atol=1e-6)
    assert (signs < 0).any()


@pytest.mark.parametrize("widths", [(), (12, 8)])
def test_regressions_are_read_with_their_labels(widths: tuple[int, ...]) -> None:
    rows = rows_of((*FRACTIONS, *COLOURS), Continuous(name="y", low=-9, high=9, tolerance=0.1), seed=4)
    model = mlp(rows.schema, widths, seed=0, bias=False, slope=0.1)
    found, true = attacked(rows, model, labels=True)
    torch.testing.assert_close(found, true, rtol=0, atol=1e-8)
    with pytest.raises(BadInputError, match="labels='true'"):
        attacked(rows, model)


def test_the_recursion_starts_at_the_lowest_bias() -> None:
    """What stands above a layer with a bias does not matter, not even what cannot be undone."""
    rows = rows_of((*FRACTIONS, *COLOURS), TWO, seed=4)

    def build() -> nn.Module:
        below = (nn.Linear(9, 12, bias=False), nn.LeakyReLU(0.2), nn.Linear(12, 7))
        return nn.Sequential(*below, nn.GELU(), nn.Linear(7, 2, bias=False))

    found, true = attacked(rows, Model(seeded(build, 1), "softmax", "mine"))
    torch.testing.assert_close(found, true, rtol=0, atol=1e-8)


def test_with_a_bias_in_front_it_is_the_quotient() -> None:
    model = nn1(DATA.schema)
    model.module.double()
    ran = FedSGD(1).run(model, DATA.train, ENCODER, range(8))
    knowledge = Knowledge(DATA.schema, DATA.statistics, 1)
    found = RGap()(ran.view, knowledge, range(8)).cells
    torch.testing.assert_close(found, SingleActivation()(ran.view, knowledge, range(8)).cells)
    torch.testing.assert_close(found, ran.secret.cells)


def test_updates_of_local_steps_are_read_from_the_middle_of_the_way() -> None:
    model = nn1(DATA.schema, bias=False, slope=0.1)
    model.module.double()
    ran = FedAvg(1, epochs=3, learning_rate=1e-4).run(model, DATA.train, ENCODER, range(4))
    guess = RGap()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), range(4))
    torch.testing.assert_close(guess.cells, ran.secret.cells, rtol=1e-3, atol=1e-3)


def test_of_several_records_it_makes_one_row() -> None:
    model = nn1(DATA.schema, bias=False)
    model.module.double()
    ran = FedSGD(5).run(model, DATA.train, ENCODER, range(3))
    guess = RGap()(ran.view, Knowledge(DATA.schema, DATA.statistics, 5), range(3))
    mode = torch.tensor([m.median for m in DATA.statistics.marginals], dtype=torch.float64)
    assert guess.cells.shape == ran.secret.cells.shape
    assert int((guess.cells == mode).all(-1).sum(1).min()) >= 4


def test_a_gradient_that_no_record_makes_leaves_a_guess() -> None:
    model = nn1(DATA.schema, bias=False)
    shapes = {name: p.shape for name, p in model.parameters.items()}
    generator = torch.Generator().manual_seed(0)
    view = GradientView(model, {name: torch.randn(2, *shape, generator=generator) for name, shape in shapes.items()})
    guess = RGap()(view, Knowledge(DATA.schema, DATA.statistics, 1), range(2))
    assert guess.cells.isfinite().all()


@pytest.mark.parametrize(
    "middle",
    [
        [nn.Linear(5, 5, bias=False), nn.GELU()],
        [nn.ReLU(), nn.ReLU()],
        [nn.LayerNorm(5)],
    ],
)
def test_other_networks_are_refused(middle: list[nn.Module]) -> None:
    width = DATA.schema.width
    module = nn.Sequential(nn.Linear(width, 5, bias=False), *middle, nn.Linear(5, 2, bias=False))
    for i, parameter in enumerate(module.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(i))
    model = Model(module, "softmax", "mine")
    ran = FedSGD(1).run(model, DATA.train, Encoder(DATA.schema, DATA.statistics, dtype=torch.float32), [0])
    with pytest.raises(BadInputError, match=r"rgap goes down a chain of nn.Linear"):
        RGap()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), [0])


@pytest.mark.parametrize(
    ("frozen", "bias"), [(["0.weight"], False), (["2.weight"], False), (["0.bias", "2.bias"], True)]
)
def test_a_frozen_layer_is_refused_by_name(frozen: list[str], bias: bool) -> None:
    width = DATA.schema.width
    module = nn.Sequential(nn.Linear(width, 9, bias=bias), nn.LeakyReLU(), nn.Linear(9, 2, bias=bias))
    for name in frozen:
        module.get_parameter(name).requires_grad_(False)
    ran = FedSGD(1).run(Model(module.double(), "softmax", "mine"), DATA.train, ENCODER, [0])
    with pytest.raises(BadInputError, match=f"rgap needs the gradient of .* send none of {frozen[0]}, .*frozen"):
        RGap()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), [0])


def test_frozen_layers_above_a_bias_are_not_read() -> None:
    module = nn.Sequential(nn.Linear(DATA.schema.width, 9), nn.LeakyReLU(), nn.Linear(9, 2)).double()
    module[2].requires_grad_(False)
    ran = FedSGD(1).run(Model(module, "softmax", "mine"), DATA.train, ENCODER, [0])
    found = RGap()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), [0])
    torch.testing.assert_close(found.cells, ran.secret.cells)


def test_a_layer_that_runs_twice_is_refused() -> None:
    again = nn.Linear(DATA.schema.width, DATA.schema.width, bias=False)
    module = nn.Sequential(again, nn.ReLU(), again, nn.ReLU(), nn.Linear(DATA.schema.width, 2, bias=False))
    ran = FedSGD(1).run(
        Model(module.double(), "softmax", "mine"), DATA.train, Encoder(DATA.schema, DATA.statistics), [0]
    )
    with pytest.raises(BadInputError, match=r"rgap goes down a chain of nn.Linear"):
        RGap()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), [0])


def test_biases_and_slopes_are_options_of_networks_by_name() -> None:
    assert "rgap" in attacks.names()
    for name in ("linear", "nn1", "nn2", "nn3", "nn4", "nn5", "wide"):
        assert not any("bias" in one for one in models.create(name, schema=DATA.schema, bias=False).parameters)
    made = models.create("nn3", schema=DATA.schema, slope=0.1)
    assert [part.negative_slope for part in made.module.modules() if isinstance(part, nn.LeakyReLU)] == [0.1, 0.1]
    for slope in (1, -0.1, float("nan")):
        with pytest.raises(BadInputError, match=f"got slope={slope}"):
            models.create("nn1", schema=DATA.schema, slope=slope)
