from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from seepage.assessment.utility import (
    Recipe,
    SimulatedTraining,
    Utility,
    best_rate,
    held_out,
    measure_utility,
    network_outputs,
    score_trainings,
    utility_row,
)
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import telling
from seepage.defenses import Defense
from seepage.defenses.accounting import gaussian_guarantee
from seepage.defenses.clipping import Clipping
from seepage.defenses.dp_sgd import DPSGD
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.defenses.none import Undefended
from seepage.defenses.sign import Sign
from seepage.defenses.top_k import TopK
from seepage.errors import BadInputError
from seepage.learning import LocalTraining, mean_loss
from seepage.models.mlp import mlp
from seepage.models.model import Model
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from tests.rows import number

QUICK = Recipe(learning_rates=(0.2,), max_steps=100, replicas=3)


def encoder_of(data: Dataset) -> Encoder:
    return Encoder(data.schema, data.statistics, dtype=torch.float32)


def measure(
    data: Dataset, batch_size: int = 8, defense: Defense | None = None, recipe: Recipe = QUICK, seed: int = 0
) -> Utility:
    return measure_utility(data, mlp(data.schema, [], seed=0), encoder_of(data), batch_size, defense, recipe, seed)


def line(rows: int = 400, noise: float = 0.5, test: int | None = None) -> Dataset:
    """A target that is 2 x + 1 and normal noise of a known spread, which no model can foresee."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=rows)
    frame = pd.DataFrame({"x": x, "y": 2 * x + 1 + noise * generator.normal(size=rows)})
    schema = Schema(
        columns=(Continuous(name="x", low=-9, high=9, tolerance=0.1),),
        target=Continuous(name="y", low=-30, high=30, tolerance=0.1),
    )
    table = Table(schema, frame)
    held = None if test is None else table.rows(range(test))
    return Dataset("line", table if test is None else table.rows(range(test, rows)), held, (), "made up", "none")


def noisy(rows: int = 4000, share: float = 0.8) -> Dataset:
    """A class that is the category of one column with a known chance, the best accuracy there is."""
    generator = np.random.default_rng(1)
    cause = generator.integers(0, 2, size=rows)
    label = np.where(generator.random(rows) < share, cause, 1 - cause)
    schema = Schema(
        columns=(Discrete(name="cause", categories=(0, 1)), Discrete(name="other", categories=(0, 1, 2))),
        target=Discrete(name="label", categories=(0, 1)),
    )
    frame = pd.DataFrame({"cause": cause, "other": generator.integers(0, 3, size=rows), "label": label})
    return Dataset("noisy", Table(schema, frame), None, (), "made up", "none")


@pytest.mark.long
def test_the_rate_is_chosen_by_answers_on_rows_held_out_where_the_training_loss_picks_another() -> None:
    # Strong noise makes outputs large: answers are right more often, and the few wrong ones cost a large loss.
    data, rates, steps = noisy(2000), (1e-3, 3.0), 150
    model, encoder = mlp(data.schema, [], seed=0), encoder_of(data)
    recipe = Recipe(learning_rates=rates, max_steps=steps)
    rows, test, places = held_out(data, recipe, 8, 0)
    training = SimulatedTraining(model, encoder, data.train, rows, 8, DPSGD(1.0, 5.0), 0, "sgd", None, True)
    learnt = training.run(rates, [0, 0], steps)
    outputs = network_outputs(model, learnt, encoder.encode(data.train.cells[rows]))
    slow, fast = (float(mean_loss(model.head, output, data.train.labels[rows])) for output in outputs)
    assert slow < fast / 2
    assert best_rate(training, recipe, steps) == 3.0
    scores = score_trainings(
        model,
        training.run([1e-3] * 3 + [3.0] * 3, [0, 1, 2] * 2, steps),
        encoder,
        test.cells[places],
        test.labels[places],
    )
    assert float(scores[3:].mean()) > float(scores[:3].mean()) + 0.2


def test_where_holding_out_leaves_no_batch_the_rate_is_chosen_on_all_rows() -> None:
    found = measure(telling(rows=100), batch_size=72, recipe=Recipe(learning_rates=(1e-6, 1.0), replicas=2))
    assert found.learning_rate == 1.0
    assert found.train_rows == 80


def test_the_known_optimum_is_learnt_without_a_defense() -> None:
    assert measure(telling(rows=200)).estimate().mean == 1.0
    data = noisy()
    found = measure(data)
    # The bound is on the sampling of 800 test rows: left with a chance of 1e-6.
    assert found.test_rows == 800
    assert abs(float(found.values.mean()) - 0.8) < 4.9 * math.sqrt(0.8 * 0.2 / 800)
    assert abs(found.baseline - 0.5) < 4.9 * math.sqrt(0.25 / 800)


def test_a_number_is_predicted_up_to_what_nothing_foresees() -> None:
    found = measure(line(rows=2000), recipe=replace(QUICK, learning_rates=(0.05,), max_steps=200))
    assert found.metric == "task_rmse"
    assert abs(float(found.values.mean()) - 0.5) < 0.08
    assert abs(found.baseline - math.sqrt(4 + 0.25)) < 0.3


@pytest.mark.parametrize("defense", [Clipping(1e-3), Sign(), TopK(0.3), GaussianNoise(0.01)], ids=repr)
def test_a_rate_is_found_at_which_harmless_defenses_cost_nothing(defense: Defense) -> None:
    found = measure(
        telling(rows=200), defense=defense, recipe=Recipe(learning_rates=(0.01, 1.0, 100.0), replicas=2, max_steps=80)
    )
    assert found.estimate().mean == 1.0


def test_noise_costs_accuracy_down_to_chance() -> None:
    data = telling(rows=1000)
    means = [float(measure(data, defense=GaussianNoise(scale)).values.mean()) for scale in (0.01, 1.0)]
    assert means[0] == 1.0
    assert means[0] > means[1]
    # Weights that are noise alone predict either class of each record with the same chance.
    recipe = Recipe(learning_rates=(0.1,), max_steps=20, replicas=60)
    lost = measure(data, defense=GaussianNoise(1e4), recipe=recipe).estimate()
    assert lost.low is not None
    assert lost.high is not None
    assert lost.low < 0.5 < lost.high
    assert lost.high - lost.low < 0.25


class OneStep(nn.Module):
    """A linear model whose parameters are set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, rows: Tensor) -> Tensor:
        return self.linear(rows)


def test_two_steps_by_hand() -> None:
    data = line(rows=60, test=10)
    encoder = encoder_of(data)
    recipe = Recipe(learning_rates=(0.1,), epochs=2, replicas=1)
    # One batch an epoch that holds every row, so that its order makes no difference.
    found = measure_utility(data, Model(OneStep(), "regression", "mine"), encoder, 50, Clipping(1.0), recipe)
    assert found.steps == 2
    x, y = encoder.encode(data.train.cells)[:, 0].double(), data.train.labels
    w = b = 0.0
    for _ in range(2):
        error = w * x + b - y
        step = torch.stack([(2 * error * x).mean(), (2 * error).mean()])
        step *= min(1.0, 1.0 / float(step.norm()))
        w, b = w - 0.1 * float(step[0]), b - 0.1 * float(step[1])
    assert data.test is not None
    error = w * encoder.encode(data.test.cells)[:, 0].double() + b - data.test.labels
    assert float(found.values[0]) == pytest.approx(float(error.square().mean().sqrt()), rel=1e-5)


class Normed(nn.Module):
    """A linear model of what PyTorch's own layer normalises."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(1, momentum=0.5), seeded(lambda: nn.Linear(1, 1), seed=0)

    def forward(self, rows: Tensor) -> Tensor:
        return self.linear(self.norm(rows))


def test_batch_normalisation_trains_on_batches_and_is_tested_with_running_statistics() -> None:
    data = line(rows=60, test=10)
    encoder = encoder_of(data)
    recipe = Recipe(learning_rates=(0.1,), epochs=3, replicas=1)
    # One batch an epoch that holds every row, so that its order makes no difference.
    found = measure_utility(data, Model(Normed(), "regression", "mine"), encoder, 50, None, recipe)
    module, x = Normed(), encoder.encode(data.train.cells)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        sgd.zero_grad()
        nn.functional.mse_loss(module(x)[:, 0], data.train.labels.float()).backward()
        sgd.step()
    assert data.test is not None
    error = module.eval()(encoder.encode(data.test.cells))[:, 0].detach().double() - data.test.labels
    assert float(found.values[0]) == pytest.approx(float(error.square().mean().sqrt()), rel=1e-5)


class Counting:
    """Sends updates as they are and remembers with which seeds."""

    def __init__(self) -> None:
        self.seeds: list[tuple[int, ...]] = []

    def __call__(self, update: dict[str, Tensor], seeds: Sequence[int]) -> dict[str, Tensor]:
        self.seeds.append(tuple(seeds))
        return update

    def describe(self) -> None: ...


def test_every_message_is_defended_with_a_seed_of_its_own() -> None:
    counting = Counting()
    data = telling(rows=100)
    found = measure(data, defense=counting)  # pyright: ignore[reportArgumentType]
    assert found.steps == 100
    assert len(counting.seeds) == found.steps
    assert len({seed for drawn in counting.seeds for seed in drawn}) == 3 * found.steps
    assert torch.equal(found.values, measure(data).values)


@pytest.mark.long
def test_figures_follow_from_the_seed_and_leave_the_model_alone() -> None:
    data = noisy(rows=300)
    model = mlp(data.schema, [4], seed=0)
    before = {name: tensor.clone() for name, tensor in model.parameters.items()}
    state = torch.random.get_rng_state()
    first, again, other = (
        measure_utility(data, model, encoder_of(data), 4, GaussianNoise(0.3), QUICK, seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first.values, again.values)
    assert not torch.equal(first.values, other.values)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.parameters.items())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(
        measure(data, defense=Undefended()).values,
        measure(data).values,
    )


def test_replicas_do_not_depend_on_how_many_there_are() -> None:
    data = noisy(rows=300)
    few, many = (measure(data, defense=GaussianNoise(0.3), recipe=replace(QUICK, replicas=n)).values for n in (2, 5))
    torch.testing.assert_close(many[:2], few, atol=0.02, rtol=0)


def test_rows_to_test_on_are_held_out() -> None:
    data = telling(rows=100)
    found = measure(data)
    assert (found.train_rows, found.test_rows) == (80, 20)
    with_test = Dataset("own", data.train.rows(range(60)), data.train.rows(range(60, 100)), (), "made up", "none")
    found = measure(with_test)
    assert (found.train_rows, found.test_rows) == (60, 40)
    assert measure(with_test, recipe=replace(QUICK, test_rows=7)).test_rows == 7
    # Labels that are noise can be learnt by heart, but not foreseen: rows both trained and tested on would show.
    generator = torch.Generator().manual_seed(0)
    frame = pd.DataFrame({"x": np.arange(60), "y": torch.randint(2, (60,), generator=generator).numpy()})
    schema = Schema(
        columns=(Discrete(name="x", categories=tuple(range(60))),), target=Discrete(name="y", categories=(0, 1))
    )
    own = Dataset("own", Table(schema, frame), None, (), "made up", "none")
    recipe = Recipe(learning_rates=(0.5,), epochs=40, replicas=10, test_share=0.5)
    learnt = measure(own, batch_size=10, recipe=recipe)
    assert learnt.test_rows == 30
    assert float(learnt.values.mean()) < 0.8


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(BadInputError, match="batches of 9 records, but only 8 of 10 rows are left to train on"):
        measure(telling(rows=10), batch_size=9)


def test_recipes_out_of_range_are_refused() -> None:
    with pytest.raises(BadInputError, match="replicas is a whole number from 1 up"):
        Recipe(replicas=0)
    for rates in ((), (0.1, -1.0), (math.nan,), (math.inf,)):
        with pytest.raises(BadInputError, match="learning rates are positive numbers"):
            Recipe(learning_rates=rates)
    with pytest.raises(BadInputError, match=r"between 0 and 1, got test_share=1\.0"):
        Recipe(test_share=1.0)


def test_large_models_get_fewer_steps() -> None:
    small, large = (
        Model(seeded(lambda units=units: nn.Linear(10, units), seed=0), "softmax", "mine") for units in (10, 1_000_000)
    )
    assert Recipe().steps(small, rows=10**6, batch_size=1) == 1500
    assert Recipe().steps(large, rows=10**6, batch_size=128) == 200
    assert Recipe().steps(large, rows=256, batch_size=128) == 20


def test_training_that_diverges_gives_no_figure() -> None:
    found = measure(line(), recipe=replace(QUICK, learning_rates=(1e6,)))
    row = utility_row(found, dataset="line", protocol="fedsgd", model="linear", batch_size=8, defense="none", seed=0)
    assert found.diverged
    assert (row.status, row.mean, row.low, row.lift, row.n) == ("diverged", None, None, None, 0)
    # Where another rate converges, it is taken.
    assert not measure(line(), recipe=replace(QUICK, learning_rates=(0.01, 1e6))).diverged


def test_a_row_states_figure_interval_guess_and_gain() -> None:
    names = {"dataset": "d", "protocol": "fedsgd", "model": "linear", "batch_size": 8, "defense": "sign", "seed": 3}
    rate = Utility("task_accuracy", torch.tensor([0.7, 0.8, 0.9], dtype=torch.float64), 0.6, 0.1, 9, 80, 20, QUICK, 1.5)
    row = utility_row(rate, **names)
    assert {name: getattr(row, name) for name in names} == names
    assert (row.attack, row.metric, row.column, row.n, row.status) == (*("none", "task_accuracy", None, 3, "ok"),)
    assert (row.mean, row.baseline, row.baseline_name) == (pytest.approx(0.8), 0.6, "majority_class")
    assert row.lift == pytest.approx(0.2)
    assert row.lift_low == pytest.approx(number(row.low) - 0.6)
    assert row.lift_high == pytest.approx(number(row.high) - 0.6)
    assert (row.settings["steps"], row.settings["learning_rate"], row.settings["test_rows"]) == (9, 0.1, 20)
    error = Utility("task_rmse", torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), 5.0, 0.1, 9, 80, 20, QUICK, 1.5)
    row = utility_row(error, **names)
    # Better than a guess is above 0, for an error too.
    assert (row.lift, row.baseline_name) == (3.0, "mean")
    assert row.lift_low == pytest.approx(5.0 - number(row.high))
    assert number(row.lift_low) < 3.0 < number(row.lift_high)


def test_adam_is_pytorch_s() -> None:
    data = line(rows=60, test=10)
    encoder = encoder_of(data)
    recipe = Recipe(learning_rates=(0.1,), epochs=4, replicas=1, max_steps=None, optimiser="adam")
    found = measure_utility(data, Model(OneStep(), "regression", "mine"), encoder, 50, None, recipe)
    assert found.steps == 4
    theirs = OneStep()
    optimiser = torch.optim.Adam(theirs.parameters(), lr=0.1)
    rows, truth = encoder.encode(data.train.cells), data.train.labels.float()
    for _ in range(4):
        optimiser.zero_grad()
        nn.functional.mse_loss(theirs(rows)[:, 0], truth).backward()
        optimiser.step()
    assert data.test is not None
    error = theirs(encoder.encode(data.test.cells))[:, 0].detach() - data.test.labels
    assert float(found.values[0]) == pytest.approx(float(error.square().mean().sqrt()), rel=1e-5)


def test_replicas_start_from_initialisations_of_their_own_where_asked() -> None:
    data = telling(rows=200)
    # Steps so small that the figure is that of the initialisation.
    still = Recipe(learning_rates=(1e-12,), epochs=1, replicas=3, fresh=True)

    def fresh(replica: int) -> Model:
        return mlp(data.schema, [5], seed=replica)

    encoder = encoder_of(data)
    found = measure_utility(data, fresh(9), encoder, 8, None, still, fresh=fresh)
    alone = [
        measure_utility(data, fresh(i), encoder, 8, None, replace(still, fresh=False, replicas=1)).values
        for i in range(3)
    ]
    assert found.values.tolist() == torch.cat(alone).tolist()
    assert len(set(found.values.tolist())) > 1


@pytest.mark.long
def test_the_peak_is_that_of_the_best_epoch_on_average() -> None:
    data = noisy(rows=400)
    # A rate so large that the figure jumps from epoch to epoch.
    wild = Recipe(learning_rates=(30.0,), epochs=6, replicas=4, max_steps=None)
    after = [measure(data, recipe=replace(wild, epochs=n)).values for n in range(1, 7)]
    best = max(after, key=lambda values: float(values.mean()))
    assert len({float(values.mean()) for values in after}) > 1
    assert measure(data, recipe=replace(wild, peak=True)).values.tolist() == best.tolist()


def test_every_step_of_every_epoch_is_made_where_no_number_is_given() -> None:
    model = mlp(telling(rows=20).schema, [4000, 4000], seed=0)
    recipe = Recipe(epochs=10, max_steps=None)
    assert recipe.steps(model, 30_000, 32) == 9370
    assert replace(recipe, max_steps=9000).steps(model, 30_000, 32) == 200


def test_two_rounds_of_local_training_by_hand() -> None:
    data = line(rows=60, test=10)
    encoder = encoder_of(data)
    recipe = Recipe(server_rates=(0.5,), epochs=2, replicas=1)
    local = LocalTraining(epochs=3, batch_size=50, learning_rate=0.1)
    # One batch an epoch, and one local step an epoch, that hold every row, so that orders make no difference.
    found = measure_utility(
        data, Model(OneStep(), "regression", "mine"), encoder, 50, Clipping(0.3), recipe, local=local
    )
    assert (found.steps, found.learning_rate) == (2, 0.5)
    x, y = encoder.encode(data.train.cells)[:, 0].double(), data.train.labels
    theta = torch.zeros(2, dtype=torch.float64)
    for _ in range(2):
        own = theta.clone()
        for _ in range(3):
            error = own[0] * x + own[1] - y
            own -= 0.1 * torch.stack([(2 * error * x).mean(), (2 * error).mean()])
        update = theta - own
        # The defense acts on the update, the server steps by it.
        theta -= 0.5 * update * min(1.0, 0.3 / float(update.norm()))
    assert data.test is not None
    error = theta[0] * encoder.encode(data.test.cells)[:, 0].double() + theta[1] - data.test.labels
    assert float(found.values[0]) == pytest.approx(float(error.square().mean().sqrt()), rel=1e-5)


@pytest.mark.long
def test_one_local_step_is_a_gradient_step() -> None:
    data = noisy(rows=150)
    gradients = measure(data, defense=GaussianNoise(0.3))
    local = LocalTraining(epochs=1, batch_size=8, learning_rate=1.0)
    recipe = replace(QUICK, server_rates=(0.2,))
    model, encoder = mlp(data.schema, [], seed=0), encoder_of(data)
    updates = measure_utility(data, model, encoder, 8, GaussianNoise(0.3), recipe, local=local, shuffle=False)
    torch.testing.assert_close(updates.values, gradients.values, atol=0.02, rtol=0)
    # Whatever the order, an epoch of steps of one record each is learnt from.
    steps = replace(local, epochs=2, batch_size=1, learning_rate=0.05)
    learnt = measure_utility(
        telling(rows=100),
        model_of(telling(rows=100)),
        encoder_of(telling(rows=100)),
        8,
        None,
        replace(QUICK, server_rates=(1.0,)),
        local=steps,
    )
    assert learnt.estimate().mean == 1.0


@pytest.mark.long
def test_noise_in_each_local_step_is_accounted_for_by_epochs() -> None:
    data = telling(rows=200)
    local = LocalTraining(epochs=4, batch_size=2, learning_rate=0.1)
    recipe = replace(QUICK, server_rates=(1.0,), max_steps=20)
    found = measure_utility(data, model_of(data), encoder_of(data), 8, DPSGD(1.0, 1.0), recipe, local=local)
    assert found.guarantee == gaussian_guarantee(0.5, 8 / 160, 20, 0.1 / 160)
    assert not found.diverged


def model_of(data: Dataset) -> Model:
    return mlp(data.schema, [], seed=0)
