"""The exact attack on networks as their users write them, against batches that are known."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, occurring
from seepage.attacks.horizontal.exact.chains import affine_layers, parts_of
from seepage.attacks.horizontal.exact.harvest import _first_of_alike
from seepage.attacks.horizontal.exact.probes import UnreadableError
from seepage.attacks.horizontal.exact.record_count import count_records
from seepage.attacks.horizontal.exact.traced import TracedGradient, TracedNetwork, traced
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets.german import german
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.learning import LocalTraining, gradient, local_update, mean_loss
from seepage.models.batch_norm import BatchNorm
from seepage.models.embedding import adapted
from seepage.models.mlp import mlp
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.align import match, pairwise_error, reorder, tolerances
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, UpdateView
from tests.roundings import assert_guessed_alike

GERMAN = german()
WIDTH = GERMAN.schema.width
CLIENT = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
CARDINALITIES = [column.width for column in GERMAN.schema.columns if isinstance(column, Discrete)]
NUMBERS = len(GERMAN.schema.continuous)
PLACES = [GERMAN.schema.blocks[i].start for i in GERMAN.schema.continuous]
BATCH = 8


class Layers(nn.Module):
    """Three affine layers; how they are run is what the tests are about."""

    def __init__(self, bias: bool = True, units: int = 60) -> None:
        super().__init__()
        self.first, self.hidden = nn.Linear(WIDTH, units, bias), nn.Linear(units, units, bias)
        self.last, self.relu, self.nothing = nn.Linear(units, 2), nn.ReLU(), nn.Dropout(0.0)


class OwnForward(Layers):
    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.relu(self.hidden(self.relu(self.first(rows.flatten(1)))))
        return self.last(self.nothing(hidden))


class Functional(Layers):
    def forward(self, rows: Tensor) -> Tensor:
        return self.last(functional.relu(self.hidden(torch.clamp(self.first(rows), min=0))))


class Smooth(Layers):
    def forward(self, rows: Tensor) -> Tensor:
        return self.last(functional.silu(self.hidden(torch.tanh(self.first(rows)))))


class Biasless(Layers):
    def __init__(self) -> None:
        super().__init__(bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(functional.leaky_relu(self.hidden(functional.leaky_relu(self.first(rows)))))


class WideAndDeep(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.wide(rows) + self.last(functional.elu(self.hidden(functional.gelu(self.first(rows)))))


class Residual(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(60)
        self.up = nn.Linear(60, 90)
        self.down = nn.Linear(90, 60)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.first(rows)
        hidden = hidden + self.down(functional.relu(self.up(self.norm(hidden))))
        return self.last(functional.relu(self.hidden(hidden)))


class Branches(Layers):
    """Numbers and categories enter through layers of their own, one activation serves both."""

    def __init__(self) -> None:
        super().__init__()
        self.categories, self.numbers = nn.Linear(WIDTH - 4, 40), nn.Linear(4, 20)

    def forward(self, rows: Tensor) -> Tensor:
        parts = [self.categories(rows[:, 4:]), self.numbers(rows[:, :4])]
        return self.last(self.relu(self.hidden(self.relu(torch.cat(parts, 1)))))


class Shallow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 80), nn.Linear(80, 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(rows)))


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(count, (count + 1) // 2) for count in CARDINALITIES])
        width = sum((count + 1) // 2 for count in CARDINALITIES) + NUMBERS
        self.first, self.hidden, self.last = nn.Linear(width, 80), nn.Linear(80, 60), nn.Linear(60, 2)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        rows = torch.cat([*(table(codes[:, i]) for i, table in enumerate(self.tables)), numbers], 1)
        return self.last(functional.relu(self.hidden(functional.relu(self.first(rows)))))


class Transformer(nn.Module):
    """Tokens of cells, one block of attention, whose output is read at the first token alone."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(count, width) for count in CARDINALITIES])
        self.numbers = nn.Parameter(torch.randn(2, NUMBERS, width) / 4)
        self.start = nn.Parameter(torch.randn(1, width))
        self.norm, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mixed, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 48), nn.Linear(48, width)
        self.last = nn.Linear(width, 2)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        cells = torch.stack([table(codes[:, i]) for i, table in enumerate(self.tables)], 1)
        values = numbers[..., None] * self.numbers[0] + self.numbers[1]
        tokens = self.norm(torch.cat([self.start.expand(len(codes), 1, -1), cells, values], 1))
        parts = [layer(tokens).unflatten(2, (4, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        mixed = functional.scaled_dot_product_attention(parts[0][:, :, :1], parts[1], parts[2])
        hidden = tokens[:, 0] + self.mixed(mixed.transpose(1, 2).flatten(1))
        hidden = hidden + self.down(functional.relu(self.up(self.between(hidden))))
        return self.last(functional.relu(hidden))


class Products(nn.Module):
    """Weights that are no layer's, applied in four ways."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [WIDTH, 60, 50, 40]
        self.weights = nn.ParameterList([torch.randn(a, b) / a**0.5 for a, b in itertools.pairwise(sizes)])
        self.biases = nn.ParameterList([torch.zeros(60), torch.zeros(50)])
        self.last = nn.Parameter(torch.randn(2, 40) / 6)
        self.shift = nn.Parameter(torch.zeros(2))

    def forward(self, rows: Tensor) -> Tensor:
        hidden = torch.relu(rows @ self.weights[0] + self.biases[0])
        hidden = torch.relu(torch.addmm(self.biases[1], hidden, self.weights[1]))
        hidden = torch.tanh(torch.einsum("bi,io->bo", hidden, self.weights[2]))
        return functional.linear(hidden, self.last) + self.shift


class Equations(nn.Module):
    """Products written as equations, of which one sums over two axes, with biases that are rows of a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(WIDTH, 12, 5) / WIDTH**0.5)
        self.hidden = nn.Parameter(torch.randn(40, 12, 5) / 8)
        self.shift, self.bias = nn.Parameter(torch.zeros(1, 60)), nn.Parameter(torch.zeros(1, 40))
        self.last = nn.Linear(40, 2)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = torch.einsum("...i,ij->...j", rows / 2 - 1, self.first.flatten(1)) + self.shift
        hidden = functional.gelu(hidden).unflatten(1, (12, 5))
        return self.last(functional.gelu(torch.einsum("okl,bkl->bo", self.hidden, hidden) + self.bias))


class Towers(nn.Module):
    """Numbers and categories each go through layers of their own up to the outputs."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        sizes = {"numbers": NUMBERS, "categories": WIDTH - NUMBERS}
        self.columns = [i for i in range(WIDTH) if i not in PLACES], PLACES
        self.parts = nn.ModuleDict(
            {name: nn.Sequential(nn.Linear(size, 50), nn.ReLU(), nn.Linear(50, 40)) for name, size in sizes.items()}
        )
        self.last = nn.Linear(80, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        parts = [self.parts["categories"](rows[:, self.columns[0]]), self.parts["numbers"](rows[:, self.columns[1]])]
        return self.last(functional.relu(torch.cat(parts, 1)))


class Gated(Layers):
    """A recurrent cell in place of the hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.GRUCell(60, 60)

    def forward(self, rows: Tensor) -> Tensor:
        entering = torch.tanh(self.first(rows))
        return self.last(self.hidden(entering, torch.full_like(entering, 0.1)))


class WeightNorm(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden = weight_norm(self.first), weight_norm(self.hidden)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(functional.mish(self.hidden(functional.mish(self.first(rows)))))


class Convolutions(nn.Module):
    """Features as channels, and a kernel as wide as its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden, self.last = nn.Conv1d(WIDTH, 60, 1), nn.Conv1d(1, 50, 60), nn.Linear(50, 2)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = functional.elu(self.first(rows[..., None])).mT
        return self.last(functional.elu(self.hidden(hidden)).squeeze(-1))


class Experts(nn.Module):
    """Three networks of the row, and a gate that weighs them."""

    def __init__(self) -> None:
        super().__init__()
        parts = [nn.Sequential(nn.Linear(WIDTH, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU()) for _ in range(3)]
        self.gate, self.parts, self.last = nn.Linear(WIDTH, 3), nn.ModuleList(parts), nn.Linear(30, 2)

    def forward(self, rows: Tensor) -> Tensor:
        shares = torch.softmax(self.gate(rows), 1)
        return self.last(sum(shares[:, [i]] * part(rows) for i, part in enumerate(self.parts)))


class Argmax(nn.Module):
    """Tables of its own, from which it picks by the largest of a column's entries."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()

    def forward(self, rows: Tensor) -> Tensor:
        schema = GERMAN.schema
        codes = torch.stack([rows[:, schema.blocks[i]].argmax(1) for i in schema.discrete], 1)
        return self.embeddings(codes, rows[:, [schema.blocks[i].start for i in schema.continuous]])


class FirstState(Layers):
    """Makes a tensor of its own, in the usual precision."""

    def forward(self, rows: Tensor) -> Tensor:
        state = torch.zeros(1, 60)
        return self.last(torch.tanh(self.hidden(torch.tanh(self.first(rows) + state)) @ torch.eye(60)))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "own forward": OwnForward,
    "functional": Functional,
    "smooth": Smooth,
    "biasless": Biasless,
    "wide and deep": WideAndDeep,
    "residual": Residual,
    "branches": Branches,
    "shallow": Shallow,
    "embeddings": Embeddings,
    "products": Products,
    "equations": Equations,
    "towers": Towers,
    "gated": Gated,
    "weight norm": WeightNorm,
    "convolutions": Convolutions,
    "experts": Experts,
    "argmax": Argmax,
    "first state": FirstState,
}


def built(build: Callable[[], nn.Module]) -> Model:
    return Model(adapted(seeded(build, 1), GERMAN.schema, GERMAN.statistics), "softmax", "mine")


def attacked(model: Model, cells: Tensor, labels: Tensor, starts: int = 256) -> RecordsGuess:
    sent = gradient(model, CLIENT.encode(cells)[None], labels[None].float())
    known = Knowledge(GERMAN.schema, GERMAN.statistics, len(cells))
    return unmix(restarts=1, iterations=10, starts=starts)(GradientView(model, sent), known, [0])


def right(guess: RecordsGuess, cells: Tensor) -> tuple[Tensor, Tensor]:
    """Return which cells are right and which are certified, record by record of the truth."""
    order = match(pairwise_error(GERMAN.schema, guess.cells, cells[None]))
    assert guess.certified is not None
    certified = reorder(guess.certified.double(), order)[0] > 0
    return (reorder(guess.cells, order)[0] - cells).abs() <= tolerances(GERMAN.schema), certified


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == "towers" else name for name in NETWORKS]
)
def test_records_are_read_out_of_networks_of_any_form(name: str) -> None:
    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    guess = attacked(built(NETWORKS[name]), cells, labels)
    same, certified = right(guess, cells)
    assert same.all()
    assert not (certified & ~same).any()
    assert guess.proofs is not None
    assert guess.regime is not None
    proved = ("own forward", "smooth", "biasless", "functional", "wide and deep", "branches", "shallow", "first state")
    if name in proved:
        assert certified.all()
        assert guess.regime == (f"all {BATCH} records proved",)
    elif name != "towers":
        # What cannot be followed and bounded is refused.
        assert not certified.any()
        assert guess.proofs[0].doubt is not None
        assert guess.regime[0].endswith(f"(not proved: {guess.proofs[0].doubt})")
    assert sorted(guess.labels[0].tolist() if guess.labels is not None else []) == sorted(labels.tolist())


@pytest.mark.slow
def test_towers_of_several_records_are_told_apart_by_their_targets() -> None:
    cells = GERMAN.train.cells[:6]
    targets = torch.linspace(-1, 1, 6, dtype=torch.float64)
    model = Model(seeded(lambda: Towers(1), 1), "regression", "mine")
    sent = gradient(model, CLIENT.encode(cells)[None], targets[None].float())
    network = traced(model, GERMAN.schema, GERMAN.statistics)
    assert network is not None
    assert [tower.layers for tower in network.towers] == [(0, 2), (1, 3)]
    assert [tap.layer for tap in network.taps] == [2, 3]
    target = Continuous(name="loss", low=-2, high=2, tolerance=0.1)
    known = Knowledge(Schema(columns=GERMAN.schema.columns, target=target), GERMAN.statistics, len(cells))
    same, certified = right(unmix(restarts=1, iterations=10)(GradientView(model, sent), known, [0]), cells)
    assert same.all()
    assert not (certified & ~same).any()


# Errors that are the same have sure records, too.
@pytest.mark.slow
@pytest.mark.parametrize("apart", [pytest.param(0.0, marks=pytest.mark.slow), 1e-6])
def test_towers_of_records_with_one_error_are_not_proved_to_belong_together(apart: float) -> None:
    # Two records with the same error may have changed what one tower takes: the message is the same.
    cells = GERMAN.train.cells[56:58]
    rows = CLIENT.encode(cells)
    model = Model(seeded(lambda: Towers(1), 1), "regression", "mine")
    errors = 0.5 + apart * torch.arange(2, dtype=torch.float64)
    sent = gradient(model, rows[None], (model.outputs(rows)[:, 0].double() - errors).float()[None])
    target = Continuous(name="loss", low=-2, high=2, tolerance=0.1)
    known = Knowledge(Schema(columns=GERMAN.schema.columns, target=target), GERMAN.statistics, 2)
    guess = unmix(restarts=1, iterations=10, starts=4)(GradientView(model, sent), known, [0])
    assert_of_one_tower(guess, cells)


def assert_of_one_tower(guess: RecordsGuess, cells: Tensor) -> None:
    """What one tower takes is proved at most, not which of what the other takes belongs to it."""
    same, certified = right(guess, cells)
    assert not (certified & ~same).any()
    assert not certified[:, list(GERMAN.schema.continuous)].any()


@pytest.mark.long
@pytest.mark.parametrize("shared", [False, True])
def test_nor_are_those_of_sure_records(shared: bool) -> None:
    # Chances that round to 1 leave the same error of both; with a column that both towers take, records agree in it.
    network = seeded(lambda: Towers(1), 1)
    cells, first = GERMAN.train.cells, GERMAN.schema.discrete[0]
    if shared:
        block = GERMAN.schema.blocks[first]
        network.columns = network.columns[0], [*PLACES, *range(block.start, block.stop)]
        numbers = network.parts["numbers"]
        assert isinstance(numbers, nn.Sequential)
        numbers[0] = seeded(lambda: nn.Linear(len(network.columns[1]), 50), 1)
        cells = cells[cells[:, first] == cells[0, first]]
    with torch.no_grad():
        network.last.bias.fill_(20.0)
    for batch in cells[:4].split(2):
        guess = attacked(Model(network, "sigmoid", "mine"), batch, torch.zeros(2), starts=4)
        assert_of_one_tower(guess, batch)


def test_behind_a_frozen_first_layer_rows_are_read_without_a_proof() -> None:
    network = seeded(lambda: Functional(), 1)
    network.first.requires_grad_(False)
    cells, labels = GERMAN.train.cells[:4], GERMAN.train.labels[:4]
    same, certified = right(attacked(Model(network, "softmax", "mine"), cells, labels), cells)
    assert same.all()
    assert not certified.any()


@pytest.mark.long
def test_the_last_block_of_a_transformer_gives_its_records_away() -> None:
    cells, labels = GERMAN.train.cells[:3], GERMAN.train.labels[:3]
    same, certified = right(attacked(built(Transformer), cells, labels, starts=24), cells)
    assert same.all()
    # No layer takes the row, so that nothing bounds what other rows could have done.
    assert not certified.any()


def test_a_network_of_one_layer_that_takes_no_row_is_searched() -> None:
    class Squashed(Shallow):
        def forward(self, rows: Tensor) -> Tensor:
            return self.last(functional.relu(self.first(torch.sigmoid(rows))))

    cells, labels = GERMAN.train.cells[:4], GERMAN.train.labels[:4]
    same, certified = right(attacked(built(Squashed), cells, labels), cells)
    assert same.all()
    assert not certified.any()


@pytest.mark.parametrize("name", ["smooth", "residual", "embeddings"])
@pytest.mark.parametrize("batches", [1, 2])
def test_updates_of_local_steps_are_read_in_any_form(name: str, batches: int) -> None:
    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH].float()
    model, training = built(NETWORKS[name]), LocalTraining(2, BATCH // batches, 0.01)
    epochs = CLIENT.encode(cells).expand(1, 2, -1, -1), labels.expand(1, 2, -1)
    view = UpdateView(model, local_update(model, *epochs, training), training)
    known = Knowledge(GERMAN.schema, GERMAN.statistics, BATCH)
    guess = unmix(restarts=1, iterations=10)(view, known, [0])
    same, certified = right(guess, cells)
    assert same.all()
    # Several steps may move the network further than bounds reach.
    assert not certified.any()


@pytest.mark.parametrize("name", ["smooth", "embeddings"])
def test_records_are_counted_in_any_form(name: str) -> None:
    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    model = built(NETWORKS[name])
    view = GradientView(model, gradient(model, CLIENT.encode(cells)[None], labels[None].float()))
    assert count_records(view, GERMAN.schema, GERMAN.statistics) == BATCH


def test_noise_of_a_known_size_is_read_through_in_any_form() -> None:
    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    model, defense = built(NETWORKS["smooth"]), GaussianNoise(1e-7)
    view = GradientView(model, defense(gradient(model, CLIENT.encode(cells)[None], labels[None].float()), [0]))
    known = Knowledge(GERMAN.schema, GERMAN.statistics, BATCH, defense=defense.describe())
    same, certified = right(unmix(restarts=1, iterations=10)(view, known, [0]), cells)
    assert same.all()
    assert not certified.any()


def test_a_message_that_no_record_explains_is_not_proved_and_ends_no_attack() -> None:
    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    model = built(NETWORKS["smooth"])
    # Noise that the attacker does not know of.
    sent = GaussianNoise(1e-4)(gradient(model, CLIENT.encode(cells)[None], labels[None].float()), [0])
    known = Knowledge(GERMAN.schema, GERMAN.statistics, BATCH)
    guess = unmix(restarts=1, iterations=10)(GradientView(model, sent), known, [0])
    _, certified = right(guess, cells)
    assert not certified.any()


@pytest.mark.parametrize("name", ["own forward", "functional"])
def test_a_plain_network_is_recognised_in_any_form(name: str) -> None:
    model = built(NETWORKS[name])
    layers = affine_layers(model.module)
    assert layers is not None
    assert [type(part) for part in parts_of(model.module) or []] == [nn.Linear, nn.ReLU] * 2 + [nn.Linear]
    chain = mlp(GERMAN.schema, (60, 60), seed=1)
    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    chain.module.load_state_dict(
        dict(
            zip(
                chain.module.state_dict(),
                [part for layer in layers for part in (layer.weight, layer.bias)],
                strict=True,
            )
        )
    )
    ours, theirs = attacked(model, cells, labels), attacked(chain, cells, labels)
    assert_guessed_alike(ours.cells, theirs.cells)
    assert ours.regime == theirs.regime


def test_normalisation_in_an_own_forward_is_recognised() -> None:
    class Normalised(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Linear(WIDTH, 60), nn.BatchNorm1d(60)
            self.hidden, self.last = nn.Linear(60, 60), nn.Linear(60, 2)

        def forward(self, rows: Tensor) -> Tensor:
            return self.last(functional.relu(self.hidden(functional.relu(self.norm(self.first(rows))))))

    parts = parts_of(Model(Normalised(), "softmax", "mine").module)
    # In the order in which they run, which has to be that of their parameters.
    assert parts is None
    module = nn.Sequential(nn.Linear(WIDTH, 60), nn.BatchNorm1d(60), nn.Linear(60, 2))

    class InOrder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = module

        def forward(self, rows: Tensor) -> Tensor:
            return self.last(functional.relu(self.norm(self.first(rows))))

    parts = parts_of(Model(InOrder(), "softmax", "mine").module)
    assert [type(part) for part in parts or []] == [nn.Linear, BatchNorm, nn.ReLU, nn.Linear]


@pytest.mark.parametrize("form", [functional.relu6, functional.gelu, functional.hardtanh, torch.tanh])
def test_what_only_resembles_a_plain_network_is_none(form: Callable[[Tensor], Tensor]) -> None:
    class Almost(Layers):
        def forward(self, rows: Tensor) -> Tensor:
            return self.last(form(self.hidden(torch.relu(self.first(rows)))))

    assert affine_layers(Almost()) is None


@pytest.mark.parametrize("name", [*NETWORKS, "transformer"])
def test_errors_times_inputs_are_the_gradient(name: str) -> None:
    model = built({**NETWORKS, "transformer": Transformer}[name])
    rows, labels = Encoder(GERMAN.schema, GERMAN.statistics).encode(GERMAN.train.cells[:70]), GERMAN.train.labels[:70]
    network = TracedNetwork.of(model, rows, model.parameters)
    run = network.run(rows)
    outputs = run.outputs.clone().requires_grad_()
    (error,) = torch.autograd.grad(mean_loss(model.head, outputs, labels), outputs)
    sent = gradient(Model(network.module, model.head, "double"), rows, labels)
    for own, entering, received in zip(run.errors(error), run.entering, network.gradients(sent), strict=True):
        assert torch.allclose(own.T @ entering, received, atol=1e-12)


@pytest.mark.parametrize("name", [*NETWORKS, "transformer"])
def test_a_search_sees_the_inputs_that_the_network_computes(name: str) -> None:
    model = built({**NETWORKS, "transformer": Transformer}[name])
    rows = Encoder(GERMAN.schema, GERMAN.statistics).encode(GERMAN.train.cells[:70])
    network = TracedNetwork.of(model, rows, model.parameters)
    state = functional.linear(rows, network.state_weight, network.state_bias)
    real = network.run(rows).entering
    for tap, entering in zip(network.taps, network.deep(state), strict=True):
        assert torch.allclose(entering, real[tap.layer][:, : tap.inputs], atol=1e-10)
    along = network.state_weight[:, :2]
    slopes = network.slopes(state, along)
    for tap, slope in zip(network.taps, slopes, strict=True):
        moved = network.deep(state + 1e-5 * along[:, 1])[network.taps.index(tap)]
        assert torch.allclose(slope[..., 1], (moved - real[tap.layer][:, : tap.inputs]) / 1e-5, atol=1e-3)


def test_a_search_without_starts_ends_nowhere() -> None:
    model, encoder = built(NETWORKS["smooth"]), Encoder(GERMAN.schema, GERMAN.statistics)
    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    sent = gradient(model, CLIENT.encode(cells)[None], labels[None].float())
    network = TracedNetwork.of(model, encoder.encode(GERMAN.train.cells[:70]), model.parameters)
    spans = TracedGradient(network, GradientView(model, sent), 0, BATCH).spans()
    allowed = torch.ones_like(occurring(encoder, spans[0], 1e-6))
    search = CellsSearch(encoder, network, spans, allowed)
    codes = cells[:0, list(GERMAN.schema.discrete)].long()
    ends = search.run(codes, torch.zeros(0, len(GERMAN.schema.continuous)).double(), 3)
    assert ends.codes.shape == codes.shape
    assert ends.misfit.shape == (0,)
    assert _first_of_alike([torch.zeros(0, 3)]).shape == (0,)


def test_a_weight_that_is_kept_from_the_last_run_is_read() -> None:
    class Kept(Layers):
        def __init__(self) -> None:
            super().__init__()
            with warnings.catch_warnings(action="ignore"):
                self.first = nn.utils.weight_norm(self.first)

        def forward(self, rows: Tensor) -> Tensor:
            return self.last(torch.tanh(self.hidden(torch.tanh(self.first(rows)))))

    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    guess = attacked(built(Kept), cells, labels)
    assert right(guess, cells)[0].all()
    assert guess.proofs is not None
    assert guess.proofs[0].doubt == "the network keeps tensors of an earlier run, and cannot be copied"


def test_columns_that_a_network_ignores_hide_no_record() -> None:
    number, discrete = GERMAN.schema.continuous[0], GERMAN.schema.discrete[0]
    hidden = torch.ones(WIDTH)
    for column in (number, discrete):
        hidden[GERMAN.schema.blocks[column]] = 0

    class Blind(Layers):
        def forward(self, rows: Tensor) -> Tensor:
            return self.last(torch.tanh(self.hidden(torch.tanh(self.first(rows * hidden)))))

    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    same, certified = right(attacked(built(Blind), cells, labels), cells)
    seen = [i for i in range(cells.shape[1]) if i not in (number, discrete)]
    assert same[:, seen].all()
    # Nothing of these cells arrives.
    assert not certified[:, [number, discrete]].any()


def test_a_network_is_traced_once_until_its_parameters_change() -> None:
    model = built(Smooth)
    first = traced(model, GERMAN.schema, GERMAN.statistics)
    assert traced(model, GERMAN.schema, GERMAN.statistics) is first
    with torch.no_grad():
        next(model.module.parameters()).mul_(2)
    assert traced(model, GERMAN.schema, GERMAN.statistics) is not first


@pytest.mark.parametrize("form", [Smooth, WideAndDeep])
def test_deeper_inputs_of_no_rows_are_none(form: Callable[[], nn.Module]) -> None:
    network = traced(built(form), GERMAN.schema, GERMAN.statistics)
    assert network is not None
    state, direction = torch.zeros(0, len(network.state_weight)).double(), network.state_weight[:, PLACES[:2]]
    some = network.slopes(state.new_zeros(3, state.shape[1]), direction)
    assert [one.shape for one in network.slopes(state, direction)] == [(0, *one.shape[1:]) for one in some]
    assert some


def test_maps_follow_the_parameters() -> None:
    model, other = built(Embeddings), built(Embeddings)
    with torch.no_grad():
        for parameter in other.module.parameters():
            parameter.mul_(1.5)
    rows = Encoder(GERMAN.schema, GERMAN.statistics).encode(GERMAN.train.cells[:70])
    moved = TracedNetwork.of(model, rows, model.parameters).with_parameters(other.parameters)
    fresh = TracedNetwork.of(other, rows, other.parameters)
    assert torch.equal(moved.maps[0][0], fresh.maps[0][0])
    assert torch.equal(moved.state_weight, fresh.state_weight)


def test_what_cannot_be_read_says_why() -> None:
    rows = torch.randn(64, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    class Mixing(Layers):
        def forward(self, rows: Tensor) -> Tensor:
            return self.last(torch.tanh(self.first(rows - rows.mean(0))))

    class Twice(Layers):
        def forward(self, rows: Tensor) -> Tensor:
            hidden = rows[:, :60]
            return self.hidden(torch.tanh(self.hidden(hidden)))[:, :2]

    class Product(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.hidden = self.last = nn.Identity()
            self.weight = nn.Parameter(torch.ones(WIDTH, 2))

        def forward(self, rows: Tensor) -> Tensor:
            return torch.tanh((rows[..., None] * self.weight).sum(1))

    class Masked(Layers):
        def forward(self, rows: Tensor) -> Tensor:
            weight = self.first.weight * (torch.arange(60)[:, None] % 2)
            return self.last(torch.tanh(functional.linear(rows, weight))[:, :60])

    class Narrow(Layers):
        def forward(self, rows: Tensor) -> Tensor:
            return self.last(functional.pad(self.hidden(self.first(rows))[:, :1], (0, 59)))

    for build, reason in (
        (Product, "no affine layer with one input a record"),
        (Mixing, "depend on the others"),
        (Twice, "the weight of 'hidden' is used more than once"),
        (Masked, "the weight of 'first' is computed from parameters whose gradient does not tell its own"),
        (Narrow, "the gradient of 'first' has 1 dimensions"),
    ):
        model = Model(cast(nn.Module, build()), "softmax", "mine")
        with pytest.raises(UnreadableError, match=reason):
            TracedNetwork.of(model, rows, model.parameters)


def test_numbers_that_are_normalised_together_are_named() -> None:
    class Together(Embeddings):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(NUMBERS)

        def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
            return super().forward(codes, self.norm(numbers))

    cells, labels = GERMAN.train.cells[:BATCH], GERMAN.train.labels[:BATCH]
    guess = attacked(built(Together), cells, labels)
    assert guess.regime is not None
    assert guess.regime[0].startswith("not tried: numbers that reach the layers only together")


def test_the_gradients_of_several_clients_together_are_one_batch() -> None:
    model = built(Smooth)
    ran = FedSGD(2, clients=4).run(model, GERMAN.train, CLIENT, seeds=[3])
    known = Knowledge(GERMAN.schema, GERMAN.statistics, 8)
    guess = unmix(restarts=1, iterations=10)(ran.view, known, [0])
    assert guess.regime == ("all 8 records proved",)
    _, certified = right(guess, ran.secret.cells[0])
    assert certified.all()


def test_above_the_ranks_the_ceiling_is_said() -> None:
    class Few(Layers):
        def __init__(self) -> None:
            super().__init__(units=12)

        def forward(self, rows: Tensor) -> Tensor:
            return self.last(torch.tanh(self.hidden(torch.tanh(self.first(rows)))))

    cells, labels = GERMAN.train.cells[:30], GERMAN.train.labels[:30]
    guess = attacked(built(Few), cells, labels)
    assert guess.regime is not None
    assert "the layers' gradients tell at most 10 records apart" in guess.regime[0]
