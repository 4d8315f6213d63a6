from __future__ import annotations

import math
import warnings

import pytest
import torch
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from seepage.assessment.row import ResultRow
from seepage.assessment.utility import Recipe, measure_utility, privacy_row, utility_row
from seepage.auditing import fitting
from seepage.datasets.planted import distinct, telling
from seepage.defenses import Defense, RecordDefense, defended
from seepage.defenses.accounting import Planned, Private, gaussian_guarantee, gaussian_noise
from seepage.defenses.defense import flat
from seepage.defenses.dp_sgd import DPSGD
from seepage.errors import BadInputError
from seepage.learning import gradient, mean_loss
from seepage.models.mlp import mlp, nn1
from seepage.models.model import Head, Model
from seepage.protocols.clients import Clients
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import defenses
from seepage.seeds import seeded
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.part import Part, in_words
from seepage.tabular.encoder import Encoder
from tests.rows import number

WIDTH = 7


def network(outputs: int = 2) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 5), nn.ReLU(), nn.Linear(5, outputs)), seed=3)


def batches(victims: int, records: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(victims, records, WIDTH, generator=generator)
    return rows, torch.randint(2, (victims, records), generator=generator).float()


def opacus_sum(head: Head, module: nn.Module, rows: torch.Tensor, labels: torch.Tensor, bound: float) -> torch.Tensor:
    """The sum of clipped gradients as Opacus computes it."""
    wrapped = GradSampleModule(module)
    optimiser = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=bound,
        expected_batch_size=len(rows),
    )
    with warnings.catch_warnings():
        # On hooks of a module whose inputs need no gradient.
        warnings.simplefilter("ignore")
        mean_loss(head, wrapped(rows), labels).backward()
    optimiser.clip_and_accumulate()
    return torch.cat(
        [
            p.summed_grad.flatten()  # pyright: ignore[reportAttributeAccessIssue]
            for p in wrapped.parameters()
        ]
    )


@pytest.mark.parametrize(("head", "outputs"), [("softmax", 2), ("sigmoid", 1), ("regression", 1)])
@pytest.mark.parametrize("bound", [0.05, 0.7, 1e4])
def test_the_clipped_sum_is_that_of_opacus(head: Head, outputs: int, bound: float) -> None:
    rows, labels = batches(victims=3, records=6)
    found = flat(DPSGD(bound, 1.0).clipped_sum(Model(network(outputs), head, "mine"), rows, labels))
    for v in range(3):
        expected = opacus_sum(head, network(outputs), rows[v], labels[v], bound)
        torch.testing.assert_close(found[v], expected, rtol=1e-4, atol=1e-6)


def test_records_are_clipped_one_by_one_at_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = batches(victims=2, records=5)
    model = Model(network(), "softmax", "mine")
    places = {n: torch.stack([p, 2 * p]).detach() for n, p in model.parameters.items()}
    whole = flat(DPSGD(0.2, 1.0).clipped_sum(model, rows, labels, places))
    for v in range(2):
        total = torch.zeros(whole.shape[1])
        for r in range(5):
            own = {n: p[v : v + 1] for n, p in places.items()}
            one = flat(gradient(model, rows[v : v + 1, r : r + 1], labels[v : v + 1, r : r + 1], own))[0]
            total += one * min(1.0, 0.2 / float(one.norm()))
        torch.testing.assert_close(whole[v], total, rtol=1e-4, atol=1e-6)
    # In parts that fit the memory it is the same sum.
    monkeypatch.setattr("seepage.defenses.dp_sgd._chain", lambda _: None)
    monkeypatch.setattr("seepage.defenses.dp_sgd._ENTRIES_AT_ONCE", 1)
    torch.testing.assert_close(flat(DPSGD(0.2, 1.0).clipped_sum(model, rows, labels, places)), whole)


def test_one_record_moves_the_sum_by_no_more_than_the_bound() -> None:
    rows, _ = batches(victims=1, records=6)
    model = Model(network(), "softmax", "mine")
    guard = DPSGD(0.3, 1.0)
    wrong = 1 - model.module(rows).argmax(-1).float()
    more, less = (flat(guard.clipped_sum(model, rows[:, :n], wrong[:, :n])) for n in (6, 5))
    assert 0.29 < float((more - less).norm()) <= 0.3 * (1 + 1e-5)


def test_the_noise_is_normal_of_the_scale_told_and_the_seed_s() -> None:
    rows, labels = batches(victims=2, records=4)
    model = Model(seeded(lambda: nn.Linear(WIDTH, 20_000), seed=0), "softmax", "wide")
    guard = DPSGD(clip_norm=0.5, noise_multiplier=3.0)
    sent = flat(guard.gradient(model, rows, labels, seeds=[1, 2]))
    noise = (sent - flat(guard.clipped_sum(model, rows, labels)) / 4).double()
    assert guard.noise(4) == pytest.approx(3.0 * 0.5 / 4)
    assert noise.std(1).tolist() == pytest.approx([guard.noise(4)] * 2, rel=0.02)
    assert abs(float(torch.corrcoef(noise)[0, 1])) < 4.9 / math.sqrt(noise.shape[1])
    again = flat(guard.gradient(model, rows[1:], labels[1:], seeds=[2]))
    torch.testing.assert_close(again[0], sent[1])


def test_it_is_a_defense_of_records_made_by_name() -> None:
    guard = DPSGD(1.0, 1.1)
    assert isinstance(guard, RecordDefense)
    assert isinstance(guard, Private)
    assert not isinstance(guard, Defense)
    known = guard.describe()
    assert defenses.create(known.name, **known.arguments) == guard
    for bad in (0, -1.0, math.inf):
        with pytest.raises(BadInputError, match="noise_multiplier is a number above 0"):
            DPSGD(1.0, bad)
        with pytest.raises(BadInputError, match="clip_norm is a number above 0"):
            DPSGD(bad, 1.0)


def test_batches_that_are_normalised_have_no_records_gradients() -> None:
    module = seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), seed=0)
    rows, labels = batches(1, 4)
    with pytest.raises(BadInputError, match="a record's depends on the others of its batch, by which layer '1'"):
        DPSGD(1.0, 1.0).gradient(Model(module, "softmax", "mine"), rows, labels, [0])
    with pytest.raises(BadInputError, match="one seed for each of 1 victims, got 2"):
        DPSGD(1.0, 1.0).gradient(Model(network(), "softmax", "mine"), rows, labels, [0, 1])


@pytest.mark.parametrize("clients", [1, 3])
def test_a_client_sends_the_noisy_mean_and_the_attacker_knows_how_noisy(clients: int) -> None:
    data = distinct(rows=20)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model, guard = nn1(data.schema, seed=1), DPSGD(0.1, 0.5)
    protocol = FedSGD(4, defense=guard, clients=clients)
    bare = FedSGD(4, clients=clients).run(model, data.train, encoder, [3, 4])
    sent = protocol.run(model, data.train, encoder, [3, 4], [7, 8])
    assert torch.equal(sent.secret.cells, bare.secret.cells)
    rows = encoder.encode(sent.secret.cells).unflatten(1, (clients, 4))
    labels = sent.secret.labels.unflatten(1, (clients, 4))
    means = [flat(guard.clipped_sum(model, x, y)).mean(0) / 4 for x, y in zip(rows, labels, strict=True)]
    noise = (flat(sent.view.gradient) - torch.stack(means)).double()
    assert noise.std(1).tolist() == pytest.approx([protocol.known().noise] * 2, rel=0.05)
    assert protocol.known().noise == pytest.approx(0.5 * 0.1 / 4 / math.sqrt(clients))
    alone = protocol.run(model, data.train, encoder, [4], [8])
    torch.testing.assert_close(flat(alone.view.gradient)[0], flat(sent.view.gradient)[1])
    with pytest.raises(BadInputError, match="one seed for each of 2 victims, got 0"):
        protocol.run(model, data.train, encoder, [3, 4])


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"accumulation": 2},
        {"schedule": "cosine", "momentum": 0.5},
    ],
)
def test_noise_of_steps_is_known_through_the_optimiser(options: dict[str, object]) -> None:
    data = distinct(rows=20)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    guard = DPSGD(1e-6, 1e6)
    protocol = FedAvg(5, defense=guard, epochs=3, local_batch_size=3, learning_rate=0.1, **options)  # pyright: ignore[reportArgumentType]
    message = flat(protocol.run(nn1(data.schema, seed=1), data.train, encoder, [3], [7]).view.message).double()
    assert float(message.std()) == pytest.approx(protocol.known().noise, rel=0.05)


def test_each_local_step_is_defended() -> None:
    data = distinct(rows=20)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model = nn1(data.schema, seed=1)

    def protocol(guard: DPSGD | None) -> Clients:
        return FedAvg(5, defense=guard, epochs=2, local_batch_size=3, learning_rate=0.1, shuffle=False)

    # Noise of next to nothing and a bound that no record reaches change nothing.
    bare = protocol(None).run(model, data.train, encoder, [3]).view.message
    loose = protocol(DPSGD(1e4, 1e-12)).run(model, data.train, encoder, [3], [7]).view.message
    torch.testing.assert_close(flat(loose), flat(bare), rtol=1e-4, atol=1e-6)
    # Where the bound leaves next to nothing, the message is the sum of the steps' noise: of 3 and 2 records, twice.
    noisy = protocol(DPSGD(1e-6, 1e6))
    message = flat(noisy.run(model, data.train, encoder, [3], [7]).view.message).double()
    expected = 0.1 * math.sqrt(2 * (1 / 3**2 + 1 / 2**2))
    assert noisy.known().noise == pytest.approx(expected)
    assert float(message.std()) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.1, 0.01, 500), (0.7, 0.05, 100), (4.0, 0.9, 10)])
def test_epsilon_is_that_of_opacus_and_no_less_than_its_tight_one(noise: float, rate: float, steps: int) -> None:
    found = gaussian_guarantee(noise, rate, steps, delta=1e-5)
    assert found is not None
    theirs, tight = RDPAccountant(), PRVAccountant()
    for accountant in (theirs, tight):
        accountant.history = [(noise, rate, steps)]
    # More orders than by default, so as good or better.
    assert theirs.get_epsilon(1e-5) * 0.99 < found.epsilon <= theirs.get_epsilon(1e-5) * (1 + 1e-9)
    assert tight.get_epsilon(1e-5) * 0.98 < found.epsilon < tight.get_epsilon(1e-5) * 1.35
    assert (found.steps, found.sample_rate, found.delta) == (steps, rate, 1e-5)


def test_passes_over_one_batch_are_one_message_with_less_noise() -> None:
    found, other = gaussian_guarantee(2.0, 0.1, 50, 1e-5, passes=4), gaussian_guarantee(1.0, 0.1, 50, 1e-5)
    assert found == other
    # Four passes over everything are four releases.
    every, four = gaussian_guarantee(2.0, 1.0, 1, 1e-5, passes=4), gaussian_guarantee(2.0, 1.0, 4, 1e-5)
    assert every is not None
    assert four is not None
    assert every.epsilon == pytest.approx(four.epsilon)
    assert gaussian_guarantee(1e-200, 0.5, 1, 1e-5) is None
    for bad in ({"sample_rate": 0.0}, {"delta": 1.0}, {"steps": 0}):
        with pytest.raises(BadInputError):
            gaussian_guarantee(**{"noise_multiplier": 1.0, "sample_rate": 0.5, "steps": 1, "delta": 0.1} | bad)


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "passes"), [(8.0, 1), (3.0, 1), (1.0, 4)])
def test_the_noise_of_an_epsilon_is_the_least_that_the_accountant_of_opacus_accepts(
    epsilon: float, passes: int
) -> None:
    rate, steps, delta = 0.01, 500, 1e-4
    noise = gaussian_noise(epsilon, rate, steps, delta, passes)
    spent = []
    for multiplier in (noise, noise - 0.001):
        theirs = RDPAccountant()
        theirs.history = [(multiplier / math.sqrt(passes), rate, steps)]
        spent.append(theirs.get_epsilon(delta))
    assert spent[0] <= epsilon * 1.01
    assert spent[1] > epsilon * 0.99
    guard = DPSGD(epsilon=epsilon)
    assert isinstance(guard, Planned)
    assert guard.for_training(rate, steps, delta, passes) == DPSGD(1.0, noise)
    assert DPSGD(0.5, 2.0).for_training(rate, steps, delta) == DPSGD(0.5, 2.0)


def test_an_epsilon_has_no_noise_before_the_training_is_known_or_where_rows_are_too_few() -> None:
    rows, labels = batches(1, 3)
    with pytest.raises(BadInputError, match="no noise until the training is known"):
        DPSGD(epsilon=3).gradient(Model(network(), "softmax", "mine"), rows, labels, [0])
    with pytest.raises(BadInputError, match="no noise until the training is known"):
        DPSGD(epsilon=3).describe()
    for both in ({}, {"noise_multiplier": 1.0, "epsilon": 3.0}):
        with pytest.raises(BadInputError, match="either a noise_multiplier or the epsilon"):
            DPSGD(**both)
    with pytest.raises(BadInputError, match="there are too few rows for it"):
        DPSGD(epsilon=0.1).for_training(1.0, 1000, 0.01)


@pytest.mark.long
def test_an_audit_takes_the_noise_of_an_epsilon_from_its_table_and_batch_size() -> None:
    spec = make_spec(dataset="german", batch_sizes=(4, 16), defenses=[{"name": "dp_sgd", "epsilon": 3}], victims=1)
    [audit] = fitting([spec])
    assert isinstance(audit, HorizontalAudit)
    for configuration in audit.configurations:
        guard = audit.protocol(configuration).defense
        assert isinstance(guard, DPSGD)
        size = number(configuration.batch_size)
        # All of ten epochs over the 800 rows that are left of 1,000.
        steps = min(1500, 10 * int(800 / size))
        found = guard.guarantee(size / 800, steps, 0.1 / 800)
        assert found is not None
        assert 2.9 < found.epsilon <= 3
    assert in_words("horizontal", spec.defenses[0]) == "clipped gradients with noise for epsilon 3 of the training"
    noise = Part(name="dp_sgd", options={"noise_multiplier": 0.5})
    assert in_words("horizontal", noise) == "clipped gradients with noise of 0.5 clipping bounds"


def test_training_under_it_says_what_is_learnt_and_guaranteed() -> None:
    data = telling(rows=200)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    recipe = Recipe(learning_rates=(0.5,), max_steps=60, replicas=2)
    names = {"dataset": "d", "protocol": "fedsgd", "model": "linear", "batch_size": 8, "defense": "dp", "seed": 3}

    def learnt(noise: float) -> ResultRow:
        return utility_row(
            measure_utility(data, mlp(data.schema, [], seed=0), encoder, 8, DPSGD(1.0, noise), recipe), **names
        )

    mild, strong = learnt(0.5), learnt(1e3)
    assert number(mild.mean) > 0.95 > number(strong.mean)
    row = privacy_row(mild)
    assert row is not None
    theirs = RDPAccountant()
    theirs.history = [(0.5, 8 / 160, 60)]
    assert (row.metric, row.low, row.baseline, row.defense) == ("epsilon", None, None, "dp")
    assert row.mean == pytest.approx(theirs.get_epsilon(0.1 / 160), rel=0.01)
    assert (row.settings["steps"], row.settings["delta"]) == (60, 0.1 / 160)
    plain = utility_row(measure_utility(data, mlp(data.schema, [], seed=0), encoder, 8, None, recipe), **names)
    assert plain.settings["privacy"] is None
    assert privacy_row(plain) is None


def test_without_a_defense_the_gradient_is_sent() -> None:
    rows, labels = batches(2, 3)
    model = Model(network(), "softmax", "mine")
    assert torch.equal(flat(defended(None, model, rows, labels, [0, 1])), flat(gradient(model, rows, labels)))


@pytest.mark.parametrize(("head", "outputs"), [("softmax", 3), ("sigmoid", 1), ("regression", 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_chain_of_layers_needs_no_record_s_gradient(
    head: Head, outputs: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> nn.Module:
        hidden = nn.Sequential(nn.Linear(WIDTH, 6, bias=bias), nn.ReLU(), nn.Linear(6, 5), nn.Tanh())
        return nn.Sequential(hidden, nn.Linear(5, outputs, bias=bias))

    rows, labels = batches(3, 6)
    model = Model(seeded(make, seed=1), head, "chain")
    places = {n: torch.stack([p, 2 * p, -p]).detach() for n, p in model.parameters.items()}
    for at in (None, places):
        fast = DPSGD(0.3, 1.0).clipped_sum(model, rows, labels, at)
        with monkeypatch.context() as patch:
            patch.setattr("seepage.defenses.dp_sgd._chain", lambda _: None)
            slow = DPSGD(0.3, 1.0).clipped_sum(model, rows, labels, at)
        assert list(fast) == list(slow)
        torch.testing.assert_close(flat(fast), flat(slow), rtol=1e-4, atol=1e-6)
