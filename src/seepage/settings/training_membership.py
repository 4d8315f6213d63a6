"""Membership in a whole training: how well an attacker that holds the model tells who was trained on.

In each repetition records are drawn from the table, and models are trained on random halves of them. Each model is
attacked, with the others as shadow models. Models that were trained on other rows are attacked alike as a control.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.assessment.intervals import Estimate
from seepage.assessment.measurement import Measurement, joined_figures
from seepage.assessment.membership import membership_figures
from seepage.attacks.membership import lira_scores, loss_scores, own_class_logits, rmia_scores
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError, check_count
from seepage.protocols.trees import Boosting, encoded, margins_by_round
from seepage.seeds import stream
from seepage.settings.guessing import AttackedSecret, measure
from seepage.settings.part import Part
from seepage.settings.setting import Outcome, PlannedPart
from seepage.shadow.federated import Federation
from seepage.shadow.stacked import Dense, Stacked
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete
from seepage.wire.membership import MembershipGuess

# Largest shares of non-members that are taken for members, by the name of the figure.
RATES = {"membership_tpr": 0.001, "membership_tpr_1": 0.01}
# Population records of RMIA, at most, and their share of the table.
_POPULATION, _POPULATION_SHARE = 1_000, 0.1
_MOST_ROWS, _FEWEST_ROWS = 1_000, 20
_BASELINES = ("loss", "random")
# Shares of a model's own records and of others whose class has a chance above one half.
RIGHT = ("member_accuracy", "other_accuracy")


# A training of networks on all rows together, a federation of them, or boosted trees that grow on the rows of all.
Learner = Dense | Federation | Boosting


@dataclass(frozen=True)
class MembershipFigure:
    """One figure of an attack, or a baseline, on membership.

    Attributes:
        kind: ``attack``, ``baseline``, or ``about`` for the share of records on which models are right.
        sees: ``final`` for the trained model alone, ``rounds`` for the models after all rounds of a federation, or some
            epochs or trees of another training, ``updates`` for what a site sends in all rounds, ``nothing``.
        target: ``deployed`` for models trained on half of the records, ``control`` for models trained on none.
        estimate: mean over repetitions with its interval.
    """

    attack: str
    kind: str
    sees: str
    target: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True)
class MembershipTest:
    """Sizes of a test of membership.

    Attributes:
        rows: records that a model is trained on; a third of the table, 1,000 at most, if None.
        shadows: models of a repetition, an even number: each is attacked with all others but its complement.
        repetitions: independent draws of records and models; intervals are over them.
        rounds: number of epochs after which an attacker that sees rounds gets the model of a training that is no
            federation, evenly spaced.

    Raises:
        BadInputError: a number is below its least value.
    """

    rows: int | None = None
    shadows: int = 32
    repetitions: int = 5
    rounds: int = 5

    def __post_init__(self) -> None:
        for name in ("repetitions", "rounds"):
            check_count(name, getattr(self, name))
        if self.shadows < 6 or self.shadows % 2:
            raise BadInputError(
                f"shadow models come in pairs that are trained on the two halves of the records, three pairs at least; "
                f"got shadows={self.shadows}, give an even number from 6 up."
            )
        if self.rows is not None and self.rows < _FEWEST_ROWS:
            raise BadInputError(f"a model is trained on {_FEWEST_ROWS} records at least, got rows={self.rows}.")


def measure_training_membership(
    dataset: Dataset, learner: Learner, test: MembershipTest | None = None, seed: int = 0
) -> list[MembershipFigure]:
    """Return the figures of all attacks and baselines on trainings by a recipe, and on the control.

    Scores of all models of a repetition are put together, so that one threshold serves all of them; a repetition has
    one value of each figure. Who reads a site's updates asks whether a record is one of that site: a member is asked of
    its own site, and a record that took no part of one at random.

    Raises:
        BadInputError: the target is a number, or the table has too few rows.

    Example:
        >>> from seepage.datasets import load
        >>> test = MembershipTest(rows=60, shadows=6, repetitions=2, rounds=1)
        >>> figures = measure_training_membership(load("german"), Dense(2, hidden=(64,), epochs=60), test)
        >>> lira = next(f for f in figures if (f.attack, f.target, f.metric) == ("lira", "deployed", "membership_auc"))
        >>> (lira.estimate.mean or 0) > 0.6
        True
    """
    test = test or MembershipTest()
    sizes = _sizes(dataset, test, learner.sites if isinstance(learner, Federation) else 1)
    repetitions = [
        _repetition(dataset, learner, test, sizes, stream(seed, r, "membership")) for r in range(test.repetitions)
    ]
    figures, about = list[MembershipFigure](), list[MembershipFigure]()
    for attack, sees, target in repetitions[0]:
        kind = "baseline" if attack in _BASELINES else "attack"
        for measured in joined_figures([repetition[attack, sees, target].measured for repetition in repetitions]):
            if measured.metric in RIGHT:
                right = MembershipFigure("none", "about", sees, target, measured.metric, measured.estimate())
                about += [right] if target == "deployed" else []
            else:
                figures.append(MembershipFigure(attack, kind, sees, target, measured.metric, measured.estimate()))
    return [*figures, *about]


def member_gap(figures: Sequence[MembershipFigure]) -> tuple[float | None, float | None]:
    """Return the shares of their own records and of others on which models are right."""
    shares = {figure.metric: figure.estimate.mean for figure in figures}
    return shares[RIGHT[0]], shares[RIGHT[1]]


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows by their use: trained on by one model, and of RMIA's population."""

    trained: int
    population: int


def _sizes(dataset: Dataset, test: MembershipTest, sites: int) -> RowCounts:
    target, rows = dataset.schema.target, len(dataset.all)
    if not isinstance(target, Discrete):
        raise BadInputError(
            f"membership is tested by the chance of a record's class, but the target {target.name!r} is a number; "
            "choose a target with classes."
        )
    population = min(_POPULATION, int(_POPULATION_SHARE * rows))
    most = (rows - population) // 3
    trained = sites * (min(most, _MOST_ROWS) // sites) if test.rows is None else test.rows
    if trained > most or trained < _FEWEST_ROWS:
        raise BadInputError(
            f"a test of membership takes three times the {trained:,} records of a training, and {population:,} others, "
            f"but the table has {rows:,}; give at most {most:,} rows, at least {_FEWEST_ROWS}, or a larger table."
        )
    return RowCounts(trained, population)


# Attack or baseline, what it sees, and whether it is run on deployed models or on those of the control.
_Name = tuple[str, str, str]


@dataclass(frozen=True)
class TrainedModels:
    """What the models of a repetition say of records: logits of their own classes, by what the attacker sees.

    Attributes:
        candidates: records that deployed models may have been trained on; control models are the last ones.
        population: records that no model was trained on.
        members: which candidates each deployed model was trained on, in pairs of complements.
        coins: which candidates count as members of each control model, which was trained on none.
    """

    candidates: dict[str, Float[Tensor, "model record round"]]
    population: dict[str, Float[Tensor, "model other round"]]
    members: Bool[Tensor, "deployed record"]
    coins: Bool[Tensor, "control record"]


def train_models(
    dataset: Dataset, learner: Learner, test: MembershipTest, sizes: RowCounts, generator: torch.Generator
) -> TrainedModels:
    """Train the models of one repetition, deployed ones in pairs on the two halves of the candidates."""
    n, count = sizes.trained, 3 * sizes.trained + sizes.population
    cells, labels = dataset.all.take(torch.randperm(len(dataset.all), generator=generator)[:count])
    # The first 2n rows are the candidates, the next n are what control models are trained on.
    halves = torch.stack([torch.randperm(2 * n, generator=generator) for _ in range(test.shadows // 2)])
    chosen = halves.unflatten(1, (2, n)).flatten(0, 1)
    fresh = torch.arange(2 * n, 3 * n).expand(max(2, test.shadows // 4), n)
    models = torch.cat([chosen, fresh])
    seeds = torch.randint(2**62, (len(models),), generator=generator).tolist()
    members = torch.zeros(test.shadows, 2 * n, dtype=torch.bool).scatter(1, chosen, True)
    coins = torch.stack([torch.randperm(2 * n, generator=generator) < n for _ in fresh])
    if isinstance(learner, Boosting):
        marks = min(test.rounds, learner.rounds)
        ends = [round(learner.rounds * (k + 1) / marks) for k in range(marks)]
        rows = encoded(dataset.schema, dataset.statistics, cells)
        stages = margins_by_round(rows, labels.numpy(), models.numpy(), learner, ends)
        by_kind = {"rounds": [own_class_logits(stage, labels) for stage in stages]}
    else:
        inputs = Encoder(dataset.schema, dataset.statistics, dtype=torch.float32).encode(cells)
        if isinstance(learner, Dense):
            trained = learner.rounds(inputs, labels.long(), models, seeds, test.rounds)
            by_kind = {"rounds": [own_class_logits(_logits(stage, inputs), labels) for stage in trained]}
        else:
            by_kind = _federated(learner, inputs, labels, models, seeds, generator)
    logits = {name: torch.stack(stages, 2) for name, stages in by_kind.items()}
    logits["final"] = logits["rounds"][..., -1:]
    candidates = {name: values[:, : 2 * n] for name, values in logits.items()}
    return TrainedModels(candidates, {name: values[:, 3 * n :] for name, values in logits.items()}, members, coins)


def _federated(
    learner: Federation,
    inputs: Float[Tensor, "row encoded"],
    labels: Float[Tensor, " row"],
    models: Int[Tensor, "model trained"],
    seeds: Sequence[int],
    generator: torch.Generator,
) -> dict[str, list[Float[Tensor, "model row"]]]:
    """Return logits after each round, of averaged models and of the sites of which rows are asked."""
    shape, share = (len(models), len(inputs)), models.shape[1] // learner.sites
    site = torch.randint(learner.sites, shape, generator=generator)
    site.scatter_(1, models, (torch.arange(models.shape[1]) // share).expand_as(models))
    by_kind: dict[str, list[Float[Tensor, "model row"]]] = {"rounds": [], "updates": []}
    for average, sites in learner.train(inputs, labels.long(), models, seeds):
        by_kind["rounds"].append(own_class_logits(_logits(average, inputs), labels))
        by_site = own_class_logits(_logits(sites, inputs), labels).unflatten(0, (-1, learner.sites))
        by_kind["updates"].append(by_site.gather(1, site[:, None])[:, 0])
    return by_kind


@dataclass(frozen=True)
class LogitsOfRecords:
    """What attacked models say of the records that are asked about, and of others that no model was trained on."""

    records: Float[Tensor, "target record round"]
    population: Float[Tensor, "target other round"]


@dataclass(frozen=True)
class ShadowLogits:
    """What the attacker's shadow models say of the same records, and which records each was trained on.

    ``left_out`` are the shadow models that a target is not compared with; None for none.
    """

    records: Float[Tensor, "model record round"]
    population: Float[Tensor, "model other round"]
    members: Bool[Tensor, "model record"]
    left_out: Bool[Tensor, "target model"] | None


def _lira(view: LogitsOfRecords, known: ShadowLogits, seeds: Sequence[int]) -> MembershipGuess:
    return MembershipGuess(lira_scores(view.records, known.records, known.members, known.left_out).unbind(0))


def _rmia(view: LogitsOfRecords, known: ShadowLogits, seeds: Sequence[int]) -> MembershipGuess:
    population = view.population, known.population
    return MembershipGuess(
        rmia_scores(view.records, known.records, known.members, population, known.left_out).unbind(0)
    )


def _loss(view: LogitsOfRecords, known: ShadowLogits, seeds: Sequence[int]) -> MembershipGuess:
    return MembershipGuess(loss_scores(view.records).unbind(0))


def _measured(
    name: str,
    guess_scores: Callable[..., MembershipGuess],
    inputs: tuple[LogitsOfRecords, ShadowLogits],
    truth: Bool[Tensor, "target record"],
) -> Outcome:
    """Return the figures of an attack, or a baseline, on one repetition."""

    def score(guess: MembershipGuess) -> Outcome:
        values = torch.stack([*guess.scores])
        figures = membership_figures(values[truth][None], values[~truth][None], RATES)
        if name == "loss":
            # A loss below log 2 is a chance above one half.
            right = [(values[side] > -math.log(2)).double().mean() for side in (truth, ~truth)]
            figures += [Measurement.of_unit(metric, None, share) for metric, share in zip(RIGHT, right, strict=True)]
        return Outcome(figures)

    part = PlannedPart(Part(name=name), "baseline" if name in _BASELINES else "attack")
    secret = AttackedSecret("membership", MembershipGuess, lambda: inputs, [], score, len(truth), attack=guess_scores)
    return measure(part, secret)


def _repetition(
    dataset: Dataset, learner: Learner, test: MembershipTest, sizes: RowCounts, seed: int
) -> dict[_Name, Outcome]:
    """Return the figures of all models of one repetition, by attack, view and target."""
    generator = torch.Generator().manual_seed(seed % 2**62)
    trained = train_models(dataset, learner, test, sizes, generator)
    # A model and its complement are left out together, so that as many shadow models hold a record as do not.
    pairs = torch.arange(test.shadows) // 2
    both = {"deployed": trained.members, "control": trained.coins}
    left_out = {"deployed": pairs[:, None] == pairs, "control": None}
    places = {"deployed": slice(0, test.shadows), "control": slice(test.shadows, None)}
    outcomes = {}
    for target, truth in both.items():
        for sees, logits in trained.candidates.items():
            population = trained.population[sees]
            view = LogitsOfRecords(logits[places[target]], population[places[target]])
            shadows = slice(0, test.shadows)
            known = ShadowLogits(logits[shadows], population[shadows], trained.members, left_out[target])
            attacks = {"lira": _lira, "rmia": _rmia}
            if sees == "final":
                chance = MembershipGuess(torch.rand(truth.shape, generator=generator, dtype=torch.float64).unbind(0))
                guessed = _measured("random", lambda *_, chance=chance: chance, (view, known), truth)
                outcomes["random", "nothing", target] = guessed
                attacks["loss"] = _loss
            for name, attack in attacks.items():
                outcomes[name, sees, target] = _measured(name, attack, (view, known), truth)
    return outcomes


def _logits(models: Stacked, inputs: Float[Tensor, "record encoded"]) -> Float[Tensor, "model record label"]:
    with torch.no_grad():
        return models.logits(inputs)
