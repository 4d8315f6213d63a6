"""Certificates are theorems about the message: no other cells than the certified ones leave it as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.proving import proofs_of
from seepage.attacks.horizontal.exact.replay import replayed
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.datasets import Dataset, load
from seepage.datasets.planted import distinct
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.kernel import Certified
from seepage.learning import batch_statistics, gradient
from seepage.models.batch_norm import BatchNorm
from seepage.models.mlp import linear, mlp, nn3
from seepage.models.model import Model
from seepage.tabular.align import right_cells, tolerances
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.horizontal import NOT_TRIED, GradientView, Knowledge, RecordsGuess

GERMAN = load("german")


def skewed(numbers: int, categories: int, spread: float = 1.0, seed: int = 0, near: float = 0.2) -> Dataset:
    """A table of skewed numbers, in whose bounds lies nearly everything, and of three categories a column."""
    generator = np.random.default_rng(seed)
    frame = {f"n{i}": np.round(np.exp(generator.normal(0, spread, 400)), 4) for i in range(numbers)}
    frame |= {f"d{i}": generator.integers(0, 3, 400) for i in range(categories)}
    table = pd.DataFrame(frame | {"label": generator.integers(0, 2, 400)})
    bounds = [(f"n{i}", float(table[f"n{i}"].max()), float(near * table[f"n{i}"].std())) for i in range(numbers)]
    columns = [Continuous(name=name, low=0.0, high=high, tolerance=allowed) for name, high, allowed in bounds]
    columns += [Discrete(name=f"d{i}", categories=(0, 1, 2)) for i in range(categories)]
    schema = Schema(columns=tuple(columns), target=Discrete(name="label", categories=(0, 1)))
    return Dataset("skewed", Table(schema, table), None, (), "generated", "none needed")


def first_layer(model: Model) -> nn.Linear:
    return next(part for part in model.module.modules() if isinstance(part, nn.Linear))


def silenced(model: Model, data: Dataset, cells: Tensor, records: int, by: float = 1e-4) -> None:
    """Lower the first bias until so many records have no active unit."""
    first = first_layer(model)
    rows = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(cells)
    with torch.no_grad():
        first.bias.sub_(first(rows).amax(1).sort().values[records - 1] + by)


def sent(model: Model, data: Dataset, cells: Tensor, labels: Tensor) -> GradientView:
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    return GradientView(model, gradient(model, encoder.encode(cells[None]), labels[None].float()))


def attacked(
    model: Model, data: Dataset, cells: Tensor, labels: Tensor, told: int | None = None, seed: int = 0, starts: int = 32
) -> RecordsGuess:
    known = Knowledge(data.schema, data.statistics, told or len(cells))
    return unmix(starts=starts, restarts=1, iterations=1)(sent(model, data, cells, labels), known, [seed])


def proved(model: Model, data: Dataset, cells: Tensor, labels: Tensor) -> Certified:
    """Return what the kernel says with the records themselves as witness."""
    known = Knowledge(data.schema, data.statistics, len(cells))
    [found] = proofs_of(sent(model, data, cells, labels), known, cells[None], labels[None], [None])
    return found


def assert_true(data: Dataset, guess: RecordsGuess, cells: Tensor, labels: Tensor) -> int:
    """Every record with a cell that is certified, given what it may be, is one of the batch; returns how many are."""
    assert guess.certified is not None
    assert guess.given is not None
    assert guess.labels is not None
    said = (guess.certified | guess.given)[0]
    for i in said.any(-1).nonzero()[:, 0].tolist():
        fits = (right_cells(data.schema, guess.cells[0, i].expand_as(cells), cells) | ~said[i]).all(-1)
        assert bool((fits & (labels == guess.labels[0, i])).any()), f"{guess.cells[0, i].tolist()} is no record"
    return int(said.any(-1).sum())


@pytest.mark.long
@pytest.mark.parametrize(
    ("numbers", "categories", "spread", "table", "widths", "seed"),
    [(6, 2, 1.0, 4, (60, 60), 7), (6, 2, 3.0, 4, (30, 40, 40), 10), (4, 1, 1.0, 3, (60, 60), 11)],
)
def test_records_without_an_active_unit_leave_no_trace_and_are_not_certified(
    numbers: int, categories: int, spread: float, table: int, widths: tuple[int, ...], seed: int
) -> None:
    """Rounding that is left decodes to some row, and any row without an active unit replays the message."""
    data = skewed(numbers, categories, spread, table)
    chosen = torch.randint(len(data.train), (6,), generator=torch.Generator().manual_seed(seed))
    cells, labels = data.train.cells[chosen], data.train.labels[chosen]
    model = mlp(data.schema, widths, seed=seed)
    silenced(model, data, cells, 1)
    guess = attacked(model, data, cells, labels, seed=seed, starts=8)
    read = assert_true(data, guess, cells, labels)
    assert guess.regime is not None
    assert guess.certified is not None
    assert not guess.certified.any()
    assert read < 6
    assert "1 leaves no trace" in guess.regime[0]


def test_what_the_network_is_sure_of_is_not_certified() -> None:
    """The trace of a record shrinks with its error, until rounding hides it."""
    data = distinct(rows=40)
    cells = data.train.cells[:5]
    model = nn3(data.schema, seed=0)
    with torch.no_grad():
        list(model.parameters.values())[-2].mul_(3000)
        outputs = model.module(Encoder(data.schema, data.statistics, dtype=torch.float32).encode(cells))
    labels = outputs.argmin(1).double()
    assert proved(model, data, cells, labels).cells.all()
    surest = int((outputs[:, 0] - outputs[:, 1]).abs().argmax())
    labels[surest] = 1 - labels[surest]
    found = proved(model, data, cells, labels)
    assert not found.cells.any()
    assert not found.given[surest].any()


@pytest.mark.long
def test_numbers_of_copies_may_be_the_mean_of_different_records() -> None:
    """Two records that activate the same units, with one output, leave the message of their mean taken twice."""
    data = skewed(8, 2, spread=0.5, near=0.05)
    model = mlp(data.schema, (12, 12), seed=0)
    model.module.double()
    encoder = Encoder(data.schema, data.statistics)
    place = [data.schema.blocks[i].start for i in data.schema.continuous]
    found = None
    for i in range(len(data.train)):
        row = encoder.encode(data.train.cells[i : i + 1]).requires_grad_()
        outputs = model.module(row)[0]
        slope = torch.autograd.grad(outputs[1] - outputs[0], row)[0][0, place]
        # A move that keeps the output, as far as the units allow.
        for column in range(len(place)):
            move = torch.zeros(len(place), dtype=torch.float64)
            move[column] = 1.0
            move -= slope * (slope @ move) / slope.square().sum()
            size = 1.05 * float(tolerances(data.schema)[data.schema.continuous[column]])
            move *= size / float(encoder.std[place[column]]) / move[column]
            pair = encoder.encode(data.train.cells[i : i + 1]).repeat(3, 1)
            pair[1, place] += move
            pair[2, place] -= move
            cells = encoder.decode(pair)
            inside = torch.allclose(encoder.encode(cells), pair)
            score = model.module(pair).detach().diff(dim=1)
            if inside and float((score - score[0]).abs().max()) < 1e-12:
                found = cells
                break
        if found is not None:
            break
    assert found is not None
    others, label = data.train.cells[30:34], torch.zeros(6, dtype=torch.float64)
    copies, apart = torch.cat([found[:1], found[:1], others]), torch.cat([found[1:], others])
    one, two = (
        torch.cat([p.flatten() for p in gradient(model, encoder.encode(c[None]), label[None]).values()])
        for c in (copies, apart)
    )
    assert float((one - two).norm()) < 1e-12 * float(one.norm())
    beyond = ~right_cells(data.schema, found[:1].expand(2, -1), found[1:]).all(0)
    assert beyond.any()
    known = Knowledge(data.schema, data.statistics, 6)
    view = GradientView(model, gradient(model, encoder.encode(apart[None]), label[None]))
    for witness in (copies, apart):
        assert not proofs_of(view, known, witness[None], label[None], [None])[0].cells.any()


def test_records_that_share_an_error_are_not_told_from_their_mixtures() -> None:
    """With one unit all records' errors are multiples of each other: nothing is certified but what a single one has."""
    data = skewed(3, 2)
    cells, labels = data.train.cells[:4], data.train.labels[:4]
    model = mlp(data.schema, (1, 20), seed=0)
    with torch.no_grad():
        first_layer(model).bias.add_(20)
    assert not proved(model, data, cells, labels).cells.any()
    assert proved(model, data, cells[:1], labels[:1]).cells.any()


@pytest.mark.long
def test_another_number_of_records_certifies_nothing() -> None:
    """Each record twice leaves the same mean; nothing tells which number it is but the declaration."""
    cells, labels = GERMAN.train.cells[:5], GERMAN.train.labels[:5]
    model = nn3(GERMAN.schema, seed=0)
    for told in (5, 10, 4, 6):
        guess = attacked(model, GERMAN, cells, labels, told)
        assert guess.certified is not None
        assert bool(guess.certified.all()) == (told == 5)
        assert bool(guess.certified.any()) == (told == 5)


def test_certificates_name_their_conditions() -> None:
    cells, labels = GERMAN.train.cells[:6], GERMAN.train.labels[:6]
    exact = attacked(nn3(GERMAN.schema, seed=0), GERMAN, cells, labels)
    assert exact.proofs is not None
    assert exact.regime is not None
    assert exact.regime[0].startswith("all 6 records proved")
    said = " ".join(exact.proofs[0].conditions)
    for part in ("exactly 6 records", "the mean gradient", "4 roundings", "softmax", "no defense"):
        assert part in said
    model = mlp(GERMAN.schema, (60, 50), seed=0)
    *layers, last = model.module.children()
    normal = Model(
        nn.Sequential(layers[0], BatchNorm(60), layers[1], layers[2], BatchNorm(50), layers[3], last), "softmax", "n"
    )
    view = sent(normal, GERMAN, cells, labels)
    rows = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32).encode(cells[None])
    known = Knowledge(GERMAN.schema, GERMAN.statistics, 6, batch_statistics=batch_statistics(normal, rows))
    guess = unmix(starts=48, restarts=1, iterations=1)(view, known, [0])
    assert guess.proofs is not None
    assert not guess.proofs[0].cells.any()
    assert guess.proofs[0].doubt is not None


@pytest.mark.parametrize("dead", [1, 3])
def test_a_replay_under_noise_certifies_no_record_without_a_trace(dead: int) -> None:
    """Its error has no length, so that noise hides everything of it."""
    data = skewed(5, 3)
    cells, labels = data.train.cells[:6], data.train.labels[:6]
    model = mlp(data.schema, (40, 40), seed=2)
    silenced(model, data, cells, dead)
    defense = GaussianNoise(1e-8)
    view = GradientView(model, defense(sent(model, data, cells, labels).gradient, [0]))
    client = Encoder(data.schema, data.statistics, dtype=torch.float32)
    starts = Starts(Encoder(data.schema, data.statistics), data.statistics, 1)
    silent = Gradient.of(view, 0, 6).network.run(client.encode(cells).double()).silent()
    assert int(silent.sum()) == dead
    found = replayed(view, 0, Gradient.of(view, 0, 6), client, starts, cells, labels, [1e-7] * 3)
    assert found.traceless.tolist() == silent.tolist()


def test_what_was_not_tried_is_said_with_the_reason() -> None:
    cells, labels = GERMAN.train.cells[:4], GERMAN.train.labels[:4]
    width = GERMAN.schema.width
    narrow = Model(nn.Sequential(nn.Linear(width, 2), nn.GELU(), nn.Linear(2, 2)), "softmax", "narrow")
    for model, reason in (
        (narrow, "no layer behind which single records could be told apart (the gradient of '0' has 2 dimensions)"),
        (linear(GERMAN.schema, seed=0), "no hidden layer"),
    ):
        guess = attacked(model, GERMAN, cells, labels)
        assert guess.regime == (NOT_TRIED + reason,)
        assert guess.proofs is not None
        assert guess.proofs[0].doubt == reason
        assert guess.certified is not None
        assert not guess.certified.any()
    tried = attacked(nn3(GERMAN.schema, seed=0), GERMAN, cells, labels)
    assert tried.regime is not None
    assert not tried.regime[0].startswith(NOT_TRIED)


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_messages_of_sixteen_bits_certify_nothing_that_is_false(narrow: torch.dtype) -> None:
    data = distinct(rows=40)
    cells, labels = data.train.cells[:8], data.train.labels[:8]
    model = nn3(data.schema, seed=0)
    view = sent(model, data, cells, labels)
    view = replace(view, gradient={name: g.to(narrow).float() for name, g in view.gradient.items()})
    guess = unmix(starts=32, restarts=1, iterations=1)(view, Knowledge(data.schema, data.statistics, 8), [0])
    assert assert_true(data, guess, cells, labels) == 0
