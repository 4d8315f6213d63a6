from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap

import pytest
import torch
from scipy.stats import fisher_exact
from torch import Tensor, nn

from seepage.attacks.horizontal.matching.labels import Method, restore_labels
from seepage.datasets import load
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.mlp import mlp, nn3
from seepage.models.model import Head, Model
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.horizontal import GradientView, Knowledge, KnownDefense
from tests.oracles.gradients import Widths


@pytest.fixture(scope="module")
def adult() -> Dataset:
    return load("adult")


def table(classes: int, rows: int = 400, continuous_target: bool = False) -> Table:
    generator = torch.Generator().manual_seed(classes)
    target = Continuous(name="y", low=0, high=9, tolerance=1)
    schema = Schema(
        columns=(
            Discrete(name="a", categories=tuple(range(5))),
            Continuous(name="b", low=0, high=1, tolerance=0.1),
            Discrete(name="c", categories=tuple(range(3))),
        ),
        target=target if continuous_target else Discrete(name="y", categories=tuple(range(classes))),
    )
    uniform = torch.rand(rows, 4, generator=generator, dtype=torch.float64)
    cells = torch.stack([(uniform[:, 0] * 5).floor(), uniform[:, 1], (uniform[:, 2] * 3).floor()], dim=-1)
    frame = frame_of(schema, cells)
    return Table(schema, frame.assign(y=(uniform[:, 3] * classes).floor().long().numpy()))


def exact(model: Model, rows: Table, records: int, seeds: range, method: Method = "bias") -> Tensor:
    """Return for which victims the class counts are restored exactly."""
    encoder = Encoder(rows.schema, Statistics.of(rows), dtype=next(iter(model.parameters.values())).dtype)
    transcript = FedSGD(records).run(model, rows, encoder, seeds=seeds)
    labels = restore_labels(transcript.view, Knowledge(rows.schema, Statistics.of(rows), records), encoder, method)
    assert labels.shape == transcript.secret.labels.shape
    assert torch.equal(labels, labels.sort(dim=1).values)
    return (labels == transcript.secret.labels.sort(dim=1).values).all(1)


# Exact counts in 100 trials of an independent implementation, on TabLeak's network as initialised.
REFERENCE: list[tuple[int, dict[Method, int]]] = [
    (8, {"bias": 100, "bias_gaussian": 100, "geng": 45}),
    (32, {"bias": 99, "bias_gaussian": 97, "geng": 15}),
    (128, {"bias": 87, "bias_gaussian": 57, "geng": 6}),
]


@pytest.mark.parametrize(("records", "reference"), REFERENCE)
def test_exactness_on_adult_is_that_of_an_independent_implementation(
    adult: Dataset, records: int, reference: dict[Method, int]
) -> None:
    encoder = Encoder(adult.schema, adult.statistics, dtype=torch.float32)
    knowledge = Knowledge(adult.schema, adult.statistics, records)
    right = dict.fromkeys(reference, 0)
    for network in range(10):
        seeds = range(10 * network, 10 * network + 10)
        transcript = FedSGD(records).run(nn3(adult.schema, seed=network), adult.train, encoder, seeds)
        for method in reference:
            restored = restore_labels(transcript.view, knowledge, encoder, method)
            right[method] += int((restored.sum(1) == transcript.secret.labels.sum(1)).sum())
    for method, expected in reference.items():
        counts = [[right[method], 100 - right[method]], [expected, 100 - expected]]
        chance = fisher_exact(counts).pvalue  # pyright: ignore[reportAttributeAccessIssue]
        assert chance > 0.01, (method, right[method], expected)
    assert right["geng"] < right["bias"]


class Backwards(nn.Module):
    """Declares its last layer first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.last = nn.Linear(outputs, outputs)
        self.first = nn.Linear(inputs, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(rows)))


class Ensemble(nn.Module):
    """Several affine members that share a layer; their mean is the output, and no nn.Linear is at its end."""

    def __init__(self, width: int, outputs: int, members: int = 3) -> None:
        super().__init__()
        self.shared = nn.Linear(width, 16)
        self.weight = nn.Parameter(torch.randn(members, 16, outputs) / 4)
        self.bias = nn.Parameter(torch.randn(members, outputs))

    def forward(self, rows: Tensor) -> Tensor:
        return (torch.einsum("ri,kio->rko", torch.relu(self.shared(rows)), self.weight) + self.bias).mean(1)


def network(kind: str, rows: Table, head: Head) -> Model:
    if kind == "mlp":
        return mlp(rows.schema, [30], seed=1, head=head)
    make = {"backwards": Backwards, "skip": Widths, "ensemble": Ensemble}[kind]
    outputs = 1 if head == "sigmoid" else rows.schema.target.width
    return Model(seeded(lambda: make(rows.schema.width, outputs), seed=1), head, kind)


@pytest.mark.parametrize("kind", ["mlp", "backwards", "skip", "ensemble"])
@pytest.mark.parametrize("records", [1, 4, 16])
@pytest.mark.parametrize(("classes", "head"), [(2, "softmax"), (2, "sigmoid"), (3, "softmax"), (7, "softmax")])
def test_counts_are_exact_wherever_the_mean_prediction_is_known_to_half_a_record(
    classes: int, head: Head, records: int, kind: str
) -> None:
    rows = table(classes)
    model = network(kind, rows, head)
    encoder = Encoder(rows.schema, Statistics.of(rows), dtype=torch.float32)
    batches = FedSGD(records).run(model, rows, encoder, seeds=range(40)).secret.cells

    def prediction(cells: Tensor) -> Tensor:
        outputs = model.outputs(encoder.encode(cells))
        return (outputs.softmax(-1) if head == "softmax" else outputs.sigmoid()).mean(-2)

    # Columns of this table are independent, so that all of it stands for its marginals up to sampling.
    uniform = torch.rand(20000, 3, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    off = records * (prediction(batches) - prediction(Statistics.of(rows).rows(uniform))).abs().amax(-1)
    known = off < 0.45
    assert int(known.sum()) >= 3
    assert exact(model, rows, records, range(40))[known].all()


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_with_constant_predictions_every_count_is_exact(head: Head) -> None:
    rows = table(2)
    model = mlp(rows.schema, [], seed=0, head=head)
    with torch.no_grad():
        model.module.get_parameter("0.weight").zero_()
        model.module.get_parameter("0.bias").copy_(torch.tensor([0.4, -1.0])[: 2 if head == "softmax" else 1])
    assert exact(model, rows, 128, range(20)).all()


def test_restoring_depends_on_the_seed_of_the_dummies_alone(adult: Dataset) -> None:
    encoder = Encoder(adult.schema, adult.statistics, dtype=torch.float32)
    transcript = FedSGD(128).run(nn3(adult.schema), adult.train, encoder, range(5))
    knowledge = Knowledge(adult.schema, adult.statistics, 128)
    state = torch.random.get_rng_state()
    first, again, *others = (
        restore_labels(transcript.view, knowledge, encoder, "geng", seed) for seed in (0, 0, 1, 2, 3, 4, 5, 6)
    )
    assert torch.equal(first, again)
    assert any(not torch.equal(first, other) for other in others)
    assert torch.equal(torch.random.get_rng_state(), state)


class Twice(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.layer = nn.Linear(width, 2), nn.Linear(2, 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(torch.relu(self.layer(self.into(rows))))


class Rescaled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 3 * super().forward(input)


@pytest.mark.parametrize(
    ("make", "method", "message"),
    [
        (lambda d: Rescaled(d, 2), "geng", "does not end in an nn.Linear layer of its own"),
        (Twice, "geng", "does not end in an nn.Linear layer of its own"),
        (lambda d: nn.Linear(d, 2), "geng", "'geng' divides by the mean input .* needs a hidden ReLU layer"),
        (lambda d: nn.Sequential(nn.Linear(d, 9), nn.Tanh(), nn.Linear(9, 2)), "geng", "needs a hidden ReLU layer"),
    ],
)
def test_what_a_method_cannot_read_is_refused(make: Callable[[int], nn.Module], method: Method, message: str) -> None:
    rows = table(2)
    width = rows.schema.width
    model = Model(seeded(lambda: make(width), seed=0), "softmax", "mine")
    encoder = Encoder(rows.schema, Statistics.of(rows), dtype=torch.float32)
    knowledge = Knowledge(rows.schema, Statistics.of(rows), 4)
    encoded = encoder.encode(rows.cells[None, :4])
    view = GradientView(model, gradient(model, encoded, rows.labels[None, :4]))
    with pytest.raises(BadInputError, match=message):
        restore_labels(view, knowledge, encoder, method)


class Gated(nn.Module):
    """Two networks, weighed by a gate: no parameter shifts the outputs of all records alike."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.gate, self.first, self.second = nn.Linear(width, 1), nn.Linear(width, outputs), nn.Linear(width, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        share = torch.sigmoid(self.gate(rows))
        return share * self.first(rows) + (1 - share) * self.second(rows)


@pytest.mark.parametrize(
    ("make", "head"),
    [
        (Twice, "softmax"),
        (lambda d: Gated(d, 2), "softmax"),
        (lambda d: Gated(d, 1), "sigmoid"),
        (lambda d: nn.Sequential(nn.Linear(d, 30), nn.Tanh(), nn.Linear(30, 2, bias=False)), "softmax"),
    ],
)
def test_labels_are_restored_without_an_output_bias(make: Callable[[int], nn.Module], head: Head) -> None:
    rows = table(2)
    model = Model(seeded(lambda: make(rows.schema.width), seed=0), head, "mine")
    # The same count every time would be right in about five.
    assert int(exact(model, rows, 8, range(20)).sum()) >= 10


def test_a_network_without_biases_is_restored_from_its_weights() -> None:
    rows = table(2)

    def build() -> nn.Module:
        width = rows.schema.width
        return nn.Sequential(nn.Linear(width, 50), nn.ReLU(), nn.Linear(50, 2, bias=False))

    assert int(exact(Model(seeded(build, seed=0), "softmax", "mine"), rows, 1, range(40), "geng").sum()) >= 36


def test_numbers_are_not_restored() -> None:
    rows = table(2, continuous_target=True)
    with pytest.raises(BadInputError, match=r"labels of model 'mlp' are numbers .* cannot be restored .* Grant them"):
        exact(mlp(rows.schema, [5], seed=0), rows, 4, range(2))


def test_unknown_methods_get_the_known_ones() -> None:
    data = distinct(rows=8)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    view = FedSGD(2).run(mlp(data.schema, [4], seed=0), data.train, encoder, [0]).view
    knowledge = Knowledge(data.schema, data.statistics, 2)
    method: Method = "biass"  # pyright: ignore[reportAssignmentType]
    with pytest.raises(BadInputError, match="unknown label restoration 'biass'; did you mean 'bias'"):
        unwrap(restore_labels)(view, knowledge, encoder, method)


class Even(nn.Module):
    """Predicts all classes alike, from inputs of its output layer that are positive and the same for all records."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 6), nn.Linear(6, outputs, bias=bias)
        with torch.no_grad():
            self.first.weight.zero_()
            self.first.bias.copy_(torch.arange(1.0, 7.0))
            self.last.weight.zero_()

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(rows)))


def planted(model: Model, rows: Table, labels: Tensor, method: Method, seed: int = 0) -> Tensor:
    """Return what is restored of batches with these labels and random cells, beside the labels in order."""
    encoder = Encoder(rows.schema, Statistics.of(rows), dtype=torch.float32)
    encoded = torch.rand(*labels.shape, encoder.width, generator=torch.Generator().manual_seed(seed))
    view = GradientView(model, gradient(model, encoded, labels))
    return restore_labels(view, Knowledge(rows.schema, Statistics.of(rows), labels.shape[1]), encoder, method)


@pytest.mark.parametrize(
    ("classes", "head", "bias"), [(2, "softmax", True), (2, "sigmoid", True), (7, "softmax", False)]
)
def test_idlg_reads_the_label_of_one_record_whatever_the_network(classes: int, head: Head, bias: bool) -> None:
    rows = table(classes)
    outputs = 1 if head == "sigmoid" else classes
    labels = torch.randint(classes, (60, 1), generator=torch.Generator().manual_seed(1)).double()

    def make() -> nn.Module:
        hidden, last = nn.Linear(rows.schema.width, 9), nn.Linear(9, outputs, bias=bias)
        return nn.Sequential(hidden, nn.ReLU(), last)

    model = Model(seeded(make, seed=4), head, "mine")
    assert torch.equal(planted(model, rows, labels, "idlg"), labels)
    with pytest.raises(BadInputError, match="'idlg' reads the label of one record, but each gradient is of 3 records"):
        planted(model, rows, torch.zeros(2, 3, dtype=torch.float64), "idlg")


def test_yin_reads_labels_of_which_none_stands_twice() -> None:
    rows = table(9)
    generator = torch.Generator().manual_seed(2)
    labels = torch.stack([torch.randperm(9, generator=generator)[:4] for _ in range(40)]).double().sort(1).values
    model = Model(Even(rows.schema.width, 9), "softmax", "even")
    assert torch.equal(planted(model, rows, labels, "yin"), labels)
    with pytest.raises(BadInputError, match="one record at most, but each gradient is of 10 records and there are 9"):
        planted(model, rows, torch.zeros(1, 10, dtype=torch.float64), "yin")


def test_llg_reads_any_labels_of_many_classes_predicted_alike() -> None:
    rows = table(60)
    generator = torch.Generator().manual_seed(3)
    # Few classes in each batch, so that they stand several times.
    labels = torch.randint(4, (50, 8), generator=generator).mul(14).double().sort(1).values
    model = Model(Even(rows.schema.width, 60), "softmax", "even")
    assert torch.equal(planted(model, rows, labels, "llg"), labels)


@pytest.mark.parametrize(("classes", "head"), [(2, "softmax"), (2, "sigmoid"), (5, "softmax")])
def test_ilrg_reads_any_labels_of_records_that_look_alike_to_the_output_layer(classes: int, head: Head) -> None:
    rows = table(classes)
    labels = torch.randint(classes, (50, 16), generator=torch.Generator().manual_seed(4)).double().sort(1).values
    module = Even(rows.schema.width, 1 if head == "sigmoid" else classes)
    with torch.no_grad():
        # Uneven predictions, the same for all.
        module.last.weight.copy_(
            0.1 * torch.randn(module.last.weight.shape, generator=torch.Generator().manual_seed(5))
        )
    assert torch.equal(planted(Model(module, head, "alike"), rows, labels, "ilrg"), labels)


def test_published_ways_refuse_what_they_cannot_read() -> None:
    rows = table(3)
    labels = torch.zeros(2, 2, dtype=torch.float64)
    tanh = Model(
        seeded(lambda: nn.Sequential(nn.Linear(rows.schema.width, 4), nn.Tanh(), nn.Linear(4, 3)), 0), "softmax", "t"
    )
    for method in ("yin", "llg"):
        with pytest.raises(BadInputError, match=r"not negative .a hidden ReLU layer.; for model 't' they go down to"):
            planted(tanh, rows, labels, method)
    two = table(2)
    with pytest.raises(BadInputError, match=r"has one for both .sigmoid head."):
        planted(Model(Even(two.schema.width, 1), "sigmoid", "mine"), two, labels, "llg")
    with pytest.raises(BadInputError, match="reads the output layer's bias, and 'last' of 'mine' has none"):
        planted(Model(Even(rows.schema.width, 3, bias=False), "softmax", "mine"), rows, labels, "ilrg")
    encoder = Encoder(rows.schema, Statistics.of(rows), dtype=torch.float32)
    model = Model(Even(rows.schema.width, 3), "softmax", "mine")
    known = Knowledge(rows.schema, Statistics.of(rows), 2, defense=KnownDefense("sign", {"scaled": True}, signs=True))
    view = GradientView(model, gradient(model, torch.ones(2, 2, encoder.width), labels))
    with pytest.raises(BadInputError, match="of which the defense 'sign' keeps only the signs"):
        restore_labels(view, known, encoder, "ilrg")
