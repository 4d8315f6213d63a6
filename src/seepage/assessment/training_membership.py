"""Membership in a whole training: how well an attacker that holds the model tells who was trained on.

In each repetition records are drawn from the table, and models are trained on random halves of them. Each model is
attacked, with the others as shadow models. Models that were trained on other rows are attacked alike as a control.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.assessment.intervals import Estimate, interval
from seepage.assessment.membership import membership_figures
from seepage.attacks.membership import lira_scores, loss_scores, own_class_logits, rmia_scores
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError, check_count
from seepage.protocols.trees import Boosting, encoded, margins_by_round
from seepage.seeds import stream
from seepage.shadow.federated import Federation
from seepage.shadow.stacked import Dense, Stacked
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete

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
    figures = []
    for name in repetitions[0]:
        members, others = (torch.stack([repetition[name][side] for repetition in repetitions]) for side in (0, 1))
        kind = "baseline" if name[0] in _BASELINES else "attack"
        for measured in membership_figures(members, others, RATES):
            attack, sees, target = name
            figures.append(MembershipFigure(attack, kind, sees, target, measured.metric, measured.estimate()))
    for metric, side in zip(RIGHT, (0, 1), strict=True):
        losses = [repetition["loss", "final", "deployed"][side] for repetition in repetitions]
        # A loss below log 2 is a chance above one half.
        right = torch.stack([(chances > -math.log(2)).double().mean() for chances in losses])
        share = interval(right, bounds=(0.0, 1.0))
        figures.append(MembershipFigure("none", "about", "final", "deployed", metric, share))
    return figures


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


_Name = tuple[str, str, str]
_Both = tuple[Float[Tensor, " member"], Float[Tensor, " other"]]


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


def _repetition(
    dataset: Dataset, learner: Learner, test: MembershipTest, sizes: RowCounts, seed: int
) -> dict[_Name, _Both]:
    """Return the scores of members and non-members of all models of one repetition, by attack, view and target."""
    generator = torch.Generator().manual_seed(seed % 2**62)
    trained = train_models(dataset, learner, test, sizes, generator)
    # A model and its complement are left out together, so that as many shadow models hold a record as do not.
    pairs = torch.arange(test.shadows) // 2
    both = {"deployed": trained.members, "control": trained.coins}
    left_out = {"deployed": pairs[:, None] == pairs, "control": None}
    places = {"deployed": slice(0, test.shadows), "control": slice(test.shadows, None)}
    scores = {}
    for target, truth in both.items():
        for sees, logits in trained.candidates.items():
            attacked, shadows = logits[places[target]], logits[: test.shadows]
            population = trained.population[sees]
            others = population[places[target]], population[: test.shadows]
            answers = {
                "lira": lira_scores(attacked, shadows, trained.members, left_out[target]),
                "rmia": rmia_scores(attacked, shadows, trained.members, others, left_out[target]),
            }
            if sees == "final":
                answers["loss"] = loss_scores(attacked)
                chance = torch.rand(truth.shape, generator=generator, dtype=torch.float64)
                scores["random", "nothing", target] = (chance[truth], chance[~truth])
            for attack, values in answers.items():
                scores[attack, sees, target] = (values[truth], values[~truth])
    return scores


def _logits(models: Stacked, inputs: Float[Tensor, "record encoded"]) -> Float[Tensor, "model record label"]:
    with torch.no_grad():
        return models.logits(inputs)
