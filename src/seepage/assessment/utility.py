"""Utility under a defense: the quality of the model that is learnt from defended updates.

A federation is simulated: the server steps along the messages that a client sends, or along the mean of those of
several clients where they are aggregated. Each message is computed from one batch of rows and defended as in the
setting: a gradient, or the change by local training. The learnt model is tested on rows held out.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import vmap

from seepage.assessment.intervals import Estimate, interval, over_trainings
from seepage.assessment.plain_gradient import training_gradient
from seepage.assessment.row import ResultRow
from seepage.datasets import Dataset
from seepage.defenses import AnyDefense, Defense, defended, guarded
from seepage.defenses.accounting import Guarantee, Private
from seepage.defenses.defense import Batches, Labels, Update
from seepage.errors import BadInputError, check_choice, check_count
from seepage.learning import LocalTraining, batch_statistics, local_update, mean_loss
from seepage.models.batch_norm import advanced, running_statistics
from seepage.models.calling import call
from seepage.models.model import Model
from seepage.seeds import stream
from seepage.tabular.encoder import Encoder
from seepage.tabular.table import Table

# Number of rows encoded together, for all trainings.
_ROWS_AT_ONCE = 8192
# Share of the training rows on which learning rates are compared, their largest number, and trainings at each rate.
_SHARE_TO_CHOOSE, _ROWS_TO_CHOOSE, _TRAININGS_TO_CHOOSE = 0.2, 2000, 2
# Largest number of multiplications of one measurement, some seconds of one core.
_WORK = 2.5e11
_LEAST_STEPS = 200

Optimiser = Literal["sgd", "adam"]


class TooFewRowsError(BadInputError):
    """There are too few rows to train on a batch and to hold some out."""


@dataclass(frozen=True)
class Recipe:
    """Recipe of the training: one step a message, plain gradient descent by default.

    TabLeak (section 5.4) trains under noise at a rate of 0.01, 10 epochs, batch size 32, 10 seeds, with batches that
    its released code makes too large. Deviations: the rate is chosen for each defense, since one that suits plain
    gradients suits neither clipped nor sign-only ones; batches are those of the setting; replicas differ in the order
    of batches and in the defense's random numbers, but all start from the audited model; training stops after
    ``max_steps``, so that a point of a sweep takes seconds.

    Attributes:
        learning_rates: rates tried in two trainings each; the one with the best mean score on a part of the training
            rows that is held out is used, see ``best_rate``. A single rate is used untried.
        server_rates: rates tried in their place where clients train locally at the protocol's rate: the factor by
            which the server multiplies their updates. 1 is FedAvg as published.
        epochs: number of passes over the training rows, each in an order of its own; the rows after an epoch's last
            whole batch are not used.
        max_steps: largest number of steps; large models get fewer still, down to 200. All of every epoch if None.
        replicas: number of trainings at the chosen rate, the units of the interval.
        optimiser: the server's optimiser: ``sgd``, or ``adam`` with its usual momenta.
        fresh: whether each replica starts from an initialisation of its own instead of the audited model.
        peak: whether the figure is that after the epoch with the best mean over the replicas, as in TabLeak's table 9
            (chosen on the test rows), instead of that after the last one.
        test_share: share of the client's rows held out where the dataset has no test rows.
        test_rows: largest number of test rows, drawn at random.
        delta: failure probability of the guarantee that is reported where the defense gives one; a tenth of one over
            the number of training rows if None.

    Raises:
        BadInputError: a count is below 1, there is no rate, one is not positive, or the share or delta is not
            in (0, 1).
    """

    learning_rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    server_rates: tuple[float, ...] = (1e-2, 1e-1, 1.0, 10.0)
    epochs: int = 10
    max_steps: int | None = 1500
    replicas: int = 5
    test_share: float = 0.2
    test_rows: int = 20_000
    optimiser: Optimiser = "sgd"
    fresh: bool = False
    peak: bool = False
    delta: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "replicas", "test_rows"):
            check_count(name, getattr(self, name))
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)
        check_choice("optimiser", self.optimiser, Optimiser)
        for name in ("learning_rates", "server_rates"):
            rates = getattr(self, name)
            if not rates or not all(0 < rate < float("inf") for rate in rates):
                raise BadInputError(f"learning rates are positive numbers, got {name}={rates}.")
        if not 0 < self.test_share < 1:
            raise BadInputError(f"the share to test on lies between 0 and 1, got test_share={self.test_share}.")
        if self.delta is not None and not 0 < self.delta < 1:
            raise BadInputError(f"delta lies between 0 and 1, got delta={self.delta}.")

    def rates(self, local: LocalTraining | None) -> tuple[float, ...]:
        """Return the rates to try."""
        return self.learning_rates if local is None else self.server_rates

    def delta_of(self, rows: int) -> float:
        """Return the failure probability for a number of training rows."""
        return self.delta or 0.1 / rows

    def steps(self, model: Model, rows: int, batch_size: int, local: LocalTraining | None = None) -> int:
        """Return the number of steps for a number of training rows, one message each."""
        whole = self.epochs * (rows // batch_size)
        if self.max_steps is None:
            return whole
        entries = sum(parameter.numel() for parameter in model.parameters.values())
        tried = len(self.rates(local))
        trainings = self.replicas + (_TRAININGS_TO_CHOOSE * tried if tried > 1 else 0)
        # One multiplication a weight and record in the forward pass, two in the backward pass.
        passes = 1 if local is None else local.epochs
        affordable = int(_WORK / (3 * trainings * batch_size * entries * passes))
        return min(whole, self.max_steps, max(_LEAST_STEPS, affordable))


@dataclass(frozen=True)
class Utility:
    """Result of training under a defense: each replica's share of right test rows, or error in the target's unit.

    ``values`` are NaN where training diverged, ``baseline`` is that of a prediction without any record. The rate is the
    server's where clients train locally. Trainings that compared learning rates are not part of ``guarantee``.
    """

    metric: str
    values: Float[Tensor, " replica"]
    baseline: float
    learning_rate: float
    steps: int
    train_rows: int
    test_rows: int
    recipe: Recipe
    seconds: float
    guarantee: Guarantee | None = None
    local: LocalTraining | None = None
    clients: int = 1

    @property
    def diverged(self) -> bool:
        """Whether a training ended in numbers that are not finite."""
        return bool(self.values.isnan().any())

    def estimate(self) -> Estimate:
        """Return the mean over replicas, with an interval over trainings and test rows; None where one diverged."""
        if self.diverged:
            # The mean over the others would ignore the failures.
            return Estimate(None, None, None, int((~self.values.isnan()).sum()))
        if self.metric == "task_accuracy":
            return over_trainings(self.values, self.test_rows)
        return interval(self.values, bounds=(0.0, float("inf")))


def measure_utility(
    dataset: Dataset,
    model: Model,
    encoder: Encoder,
    batch_size: int,
    defense: AnyDefense | None = None,
    recipe: Recipe | None = None,
    seed: int = 0,
    fresh: Callable[[int], Model] | None = None,
    local: LocalTraining | None = None,
    shuffle: bool = True,
    clients: int = 1,
) -> Utility:
    """Train on defended updates and test on rows held out.

    Batch normalisation trains on each batch's statistics and is tested with running ones, which change with every
    batch; the defense acts on messages and does not affect them. Under local training they are those of each batch
    before it.

    Args:
        dataset: dataset whose training rows are the client's; a share of them is held out where it has no test rows.
        model: model that training starts from, on the device that computes; left unchanged.
        defense: defense of the client's updates; none if None.
        recipe: recipe of the training, ``Recipe()`` if None.
        seed: seed of every random number; the same for all defenses, so that only the defense differs.
        fresh: function that returns a model like ``model`` with the replica's own initialisation, where the recipe
            asks for one.
        local: local training of the client on each batch before it sends the change; it sends the gradient if None.
        shuffle: whether each local epoch has an order of its own.
        clients: number of clients whose messages are averaged into one step, each about a batch of its own.

    Raises:
        BadInputError: too few rows to train a batch on and hold some out, or the model does not fit them.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.models.mlp import mlp
        >>> data = telling(rows=80)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> utility = measure_utility(data, mlp(data.schema, [], seed=0), encoder, batch_size=4)
        >>> utility.metric, utility.estimate().mean, utility.test_rows
        ('task_accuracy', 1.0, 16)
    """
    begun = time.perf_counter()
    recipe = recipe or Recipe()
    model.check(dataset.schema)
    records = batch_size * clients
    rows, test, test_rows = held_out(dataset, recipe, records, seed)
    how = (defense, seed, recipe.optimiser, local, shuffle, clients)
    training = SimulatedTraining(model, encoder, dataset.train, rows, batch_size, *how)
    steps = recipe.steps(model, len(rows), records, local)
    rate = best_rate(training, recipe, steps)
    starts = [fresh(replica) for replica in range(recipe.replicas)] if recipe.fresh and fresh is not None else None
    training_labels, labels = dataset.train.labels[rows], test.labels[test_rows]
    courses: list[Float[Tensor, " training"]] = []

    def score(learnt: dict[str, Tensor]) -> None:
        courses.append(score_trainings(model, learnt, encoder, test.cells[test_rows], labels))

    learnt = training.run(
        [rate] * recipe.replicas, range(recipe.replicas), steps, starts, score if recipe.peak else None
    )
    if not courses:
        score(learnt)
    if model.head == "regression":
        metric, baseline = "task_rmse", float((labels - training_labels.mean()).square().mean().sqrt())
    else:
        metric, baseline = "task_accuracy", float((labels == training_labels.mode().values).double().mean())
    values = _best(courses, metric)
    seconds = time.perf_counter() - begun
    guarantee = None
    if isinstance(defense, Private):
        delta = recipe.delta_of(len(rows))
        guarantee = defense.guarantee(records / len(rows), steps, delta, 1 if local is None else local.epochs)
    counts = (steps, len(rows), len(test_rows))
    return Utility(metric, values, baseline, rate, *counts, recipe, seconds, guarantee, local, clients)


def utility_row(
    utility: Utility, *, dataset: str, protocol: str, model: str, batch_size: int, defense: str, seed: int
) -> ResultRow:
    """Return the quality of the task as a row; ``lift`` is positive where training is better, for an error too."""
    estimate = utility.estimate()
    is_rate = utility.metric == "task_accuracy"
    numbers = ("clients", "learning_rate", "steps", "train_rows", "test_rows", "seconds")
    gained: list[float | None] = [None, None, None]
    if estimate.mean is not None:
        ends = (estimate.mean, estimate.low, estimate.high) if is_rate else (estimate.mean, estimate.high, estimate.low)
        gained = [None if end is None else (end - utility.baseline) * (1 if is_rate else -1) for end in ends]
    return ResultRow(
        dataset=dataset,
        protocol=protocol,
        model=model,
        batch_size=batch_size,
        attack="none",
        defense=defense,
        metric=utility.metric,
        **vars(estimate),
        baseline=utility.baseline,
        baseline_name="majority_class" if is_rate else "mean",
        lift=gained[0],
        lift_low=gained[1],
        lift_high=gained[2],
        lift_std=estimate.std,
        kind="about",
        status="diverged" if utility.diverged else "ok",
        seed=seed,
        settings={
            **dataclasses.asdict(utility.recipe),
            **{name: getattr(utility, name) for name in numbers},
            "local": None if utility.local is None else dataclasses.asdict(utility.local),
            "privacy": None if utility.guarantee is None else dataclasses.asdict(utility.guarantee),
        },
    )


def privacy_row(task: ResultRow) -> ResultRow | None:
    """Return the row of the guarantee for single records by the trainings of a ``utility_row``, None without one."""
    privacy = task.settings["privacy"]
    if privacy is None:
        return None
    none = dict.fromkeys(
        ("low", "high", "std", "baseline", "baseline_name", "lift", "lift_low", "lift_high", "lift_std")
    )
    mean = privacy["epsilon"]
    return dataclasses.replace(task, metric="epsilon", mean=mean, status="ok", settings=privacy, **none)


def held_out(
    dataset: Dataset, recipe: Recipe, batch_size: int, seed: int
) -> tuple[Int[Tensor, " trained_on"], Table, Int[Tensor, " tested_on"]]:
    """Return the positions of training rows, a table with the test rows, and the positions of test rows in it."""
    generator = torch.Generator().manual_seed(stream(seed, 0, "held out"))
    count = len(dataset.train)
    if dataset.test is not None:
        rows, test = torch.arange(count), dataset.test
        test_rows = torch.randperm(len(test), generator=generator)
    else:
        order, test = torch.randperm(count, generator=generator), dataset.train
        n_test = max(1, round(recipe.test_share * count))
        rows, test_rows = order[n_test:], order[:n_test]
    if len(rows) < batch_size:
        raise TooFewRowsError(
            f"task accuracy is measured by training on batches of {batch_size} records, but only {len(rows)} of "
            f"{count} rows are left to train on when some are held out to test; give more rows or a smaller batch."
        )
    return rows, test, test_rows[: recipe.test_rows]


@dataclass(frozen=True)
class SimulatedTraining:
    """Training of a network on defended messages: what all trainings of a measurement have in common."""

    model: Model
    encoder: Encoder
    table: Table
    rows: Int[Tensor, " row"]
    batch_size: int
    defense: AnyDefense | None
    seed: int
    optimiser: Optimiser
    local: LocalTraining | None
    shuffle: bool
    clients: int = 1

    @property
    def records(self) -> int:
        """Number of records of a step."""
        return self.batch_size * self.clients

    def run(
        self,
        rates: Sequence[float],
        streams: Sequence[int],
        steps: int,
        starts: Sequence[Model] | None = None,
        watch: Callable[[dict[str, Tensor]], None] | None = None,
    ) -> dict[str, Tensor]:
        """Return parameters and running statistics by name, each (training, ...), learnt at a rate from a stream.

        ``watch`` is called with them after every epoch.
        """
        device = self.encoder.mean.device
        module = self.model.module
        begun = starts or [self.model] * len(rates)
        running = _stacked([running_statistics(start.module) for start in begun])
        theta = _stacked([start.parameters for start in begun])
        direction = _Adam() if self.optimiser == "adam" else None
        epoch = len(self.rows) // self.records
        rate = {n: t.new_tensor(rates).view(-1, *[1] * (t.dim() - 1)) for n, t in theta.items()}
        draws = [torch.Generator().manual_seed(stream(self.seed, i, "training defense")) for i in streams]
        done = 0
        for batches in self._batches(streams):
            chosen = self.rows[batches[:, : steps - done]]
            encoded = self.encoder.encode(self.table.cells[chosen].to(device)).unbind(1)
            labels = self.table.labels[chosen].to(device).unbind(1)
            seeds = [torch.randint(2**63 - 1, (chosen.shape[1],), generator=draw).tolist() for draw in draws]
            for step, (x, y, *drawn) in enumerate(zip(encoded, labels, *seeds, strict=True), done):
                if running:
                    running = advanced(module, running, batch_statistics(self.model, x, theta), step)
                sent = self._message(x, y, drawn, theta)
                if direction is not None:
                    sent = direction(sent)
                for name, parameter in theta.items():
                    parameter.addcmul_(sent[name], rate[name], value=-1)
                done += 1
                if watch is not None and done % epoch == 0:
                    watch(theta | running)
            if done == steps:
                break
        return theta | running

    def _message(self, encoded: Batches, labels: Labels, seeds: Sequence[int], theta: Update) -> Update:
        """Return the mean of the clients' defended messages about their batches in each training."""
        if self.clients == 1:
            return self._sent(encoded, labels, seeds, theta)
        rows, targets = (t.unflatten(1, (self.clients, self.batch_size)).flatten(0, 1) for t in (encoded, labels))
        by_client = {name: parameter.repeat_interleave(self.clients, 0) for name, parameter in theta.items()}
        client_seeds = [stream(seed, client, "client") for seed in seeds for client in range(self.clients)]
        sent = self._sent(rows, targets, client_seeds, by_client)
        return {name: message.unflatten(0, (-1, self.clients)).mean(1) for name, message in sent.items()}

    def _sent(self, encoded: Batches, labels: Labels, seeds: Sequence[int], theta: Update) -> Update:
        """Return each client's defended message about its batch."""
        if self.local is None:
            encoded = self._dropped(encoded, seeds)
            return defended(self.defense, self.model, encoded, labels, seeds, theta, training_gradient)
        order = torch.arange(encoded.shape[1]).expand(len(seeds), self.local.epochs, -1)
        if self.shuffle:
            generators = [torch.Generator().manual_seed(stream(seed, 0, "local order")) for seed in seeds]
            order = torch.stack([torch.rand(order.shape[1:], generator=g).argsort(-1) for g in generators])
        order = order.to(encoded.device)
        training = torch.arange(len(seeds), device=encoded.device)[:, None, None]
        rows, targets = self._dropped(encoded[training, order], seeds), labels[training, order]
        sent = local_update(self.model, rows, targets, self.local, guarded(self.defense, seeds), theta)
        return self.defense(sent, seeds) if isinstance(self.defense, Defense) else sent

    def _dropped(
        self, encoded: Float[Tensor, "training *batch encoded"], seeds: Sequence[int]
    ) -> Float[Tensor, "training *batch entering"]:
        """Return rows with each training's masks of dropout behind them, where the network drops values."""
        if self.model.drops is None:
            return encoded
        generators = [torch.Generator().manual_seed(stream(seed, 0, "dropout masks")) for seed in seeds]
        return torch.stack([self.model.drawn(x, generator) for x, generator in zip(encoded, generators, strict=True)])

    def _batches(self, streams: Sequence[int]) -> Iterator[Int[Tensor, "training step record"]]:
        """Yield positions of batches, some steps at a time: every row once an epoch, in each stream's own order."""
        generators = [torch.Generator().manual_seed(stream(self.seed, i, "training order")) for i in streams]
        whole = len(self.rows) // self.records * self.records
        together = max(1, _ROWS_AT_ONCE // (len(streams) * self.records))
        while True:
            order = torch.stack([torch.randperm(len(self.rows), generator=g)[:whole] for g in generators])
            yield from order.view(len(streams), -1, self.records).split(together, dim=1)


def _stacked(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


class _Adam:
    """Turns gradients into Adam's steps of rate one (Kingma and Ba, 2015, algorithm 1, with its constants)."""

    def __init__(self) -> None:
        self._steps = 0
        self._first: dict[str, Tensor] = {}
        self._second: dict[str, Tensor] = {}

    def __call__(self, sent: dict[str, Tensor]) -> dict[str, Tensor]:
        self._steps += 1
        steps = {}
        for name, entries in sent.items():
            first = self._first.setdefault(name, torch.zeros_like(entries))
            second = self._second.setdefault(name, torch.zeros_like(entries))
            first.lerp_(entries, 0.1)
            second.lerp_(entries.square(), 0.001)
            scale = (second / (1 - 0.999**self._steps)).sqrt_().add_(1e-8)
            steps[name] = (first / (1 - 0.9**self._steps)).div_(scale)
        return steps


def _best(courses: Sequence[Float[Tensor, " training"]], metric: str) -> Float[Tensor, " training"]:
    """Return the scores after the epoch with the best mean; where a training diverged, those after the last."""
    means = torch.stack(list(courses)).mean(dim=1)
    if bool(means.isnan().any()):
        return courses[-1]
    return courses[int(means.argmax() if metric == "task_accuracy" else means.argmin())]


def best_rate(training: SimulatedTraining, recipe: Recipe, steps: int) -> float:
    """Return the rate with the best mean accuracy, or least error, on rows that its trainings do not see.

    A fifth of the training rows, at most 2,000, is held out, and each rate is tried in two trainings on the others. Of
    rates with equal scores, the one with the least loss is taken, then the smaller one. The loss alone misleads under
    noise: it grows with outputs that are far from the boundary, while the answers stay right. Where what is left would
    not make a batch, all rows serve for both.
    """
    rates = sorted(recipe.rates(training.local))
    if len(rates) == 1:
        return rates[0]
    generator = torch.Generator().manual_seed(stream(training.seed, 0, "learning rate"))
    order = training.rows[torch.randperm(len(training.rows), generator=generator)]
    count = min(_ROWS_TO_CHOOSE, round(_SHARE_TO_CHOOSE * len(order)))
    enough = 0 < count <= len(order) - training.records
    chosen, left = (order[:count], order[count:]) if enough else (order[:_ROWS_TO_CHOOSE], order)
    tried_rates = [rate for rate in rates for _ in range(_TRAININGS_TO_CHOOSE)]
    streams = list(range(_TRAININGS_TO_CHOOSE)) * len(rates)
    learnt = dataclasses.replace(training, rows=left).run(tried_rates, streams, steps)
    cells, labels = training.table.cells[chosen], training.table.labels[chosen]
    scores = score_trainings(training.model, learnt, training.encoder, cells, labels)
    encoded = training.encoder.encode(cells.to(training.encoder.mean.device))
    outputs = network_outputs(training.model, learnt, encoded)
    losses = [mean_loss(training.model.head, output, labels.to(encoded.device)) for output in outputs]
    wrong = scores if training.model.head == "regression" else 1 - scores
    # A rate at which one training diverges is the worst.
    by_rate = torch.stack([wrong.double(), torch.stack(losses).double().cpu()]).nan_to_num(nan=torch.inf)
    worst = by_rate.unflatten(1, (len(rates), _TRAININGS_TO_CHOOSE)).mean(2)
    return min(zip(*worst.tolist(), rates, strict=True))[2]


def network_outputs(
    model: Model, learnt: dict[str, Tensor], encoded: Float[Tensor, "record encoded"]
) -> Float[Tensor, "training record output"]:
    """Return the outputs of each trained network, by parameters and running statistics as ``run`` returns them."""
    module = copy.deepcopy(model.module).eval()
    with torch.no_grad():
        return vmap(lambda tensors: call(module, tensors, encoded))(learnt)


def score_trainings(
    model: Model,
    learnt: dict[str, Tensor],
    encoder: Encoder,
    cells: Float[Tensor, "record column"],
    labels: Float[Tensor, " record"],
) -> Float[Tensor, " training"]:
    """Return each training's accuracy or root mean squared error, NaN where outputs are not finite."""
    scored, finite = [], []
    for part, true in zip(cells.split(_ROWS_AT_ONCE), labels.split(_ROWS_AT_ONCE), strict=True):
        outputs = network_outputs(model, learnt, encoder.encode(part.to(encoder.mean.device)))
        truth = true.to(outputs.device)
        finite.append(outputs.isfinite().flatten(1).all(1))
        if model.head == "softmax":
            score = outputs.argmax(-1) == truth
        elif model.head == "sigmoid":
            score = (outputs[..., 0] > 0) == (truth == 1)
        else:
            score = (outputs[..., 0].double() - truth).square()
        scored.append(score.double())
    mean = torch.cat(scored, dim=1).mean(1)
    values = mean.sqrt() if model.head == "regression" else mean
    return values.where(torch.stack(finite).all(0), torch.nan).cpu()
