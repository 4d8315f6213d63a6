"""Membership in a whole training: how well an attacker that holds the model tells who was trained on.

In each repetition records are drawn from the table, and models are trained on random halves of them. Each model is
attacked, with the others as shadow models. Models that were trained on other rows are attacked alike as a control.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.intervals import Estimate, interval
from seepage.assessment.membership import membership_figures
from seepage.attacks.membership import lira_scores, loss_scores, own_class_logits, rmia_scores
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError, check_count
from seepage.seeds import stream
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


@dataclass(frozen=True)
class MembershipFigure:
    """One figure of an attack, or a baseline, on membership.

    Attributes:
        kind: ``attack``, ``baseline``, or ``about`` for the share of records on which models are right.
        sees: ``final`` for the trained model alone, ``rounds`` for those after some of its epochs, ``nothing``.
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
        rounds: number of epochs after which an attacker that sees all rounds gets the model, evenly spaced.

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
    dataset: Dataset, learner: Dense, test: MembershipTest | None = None, seed: int = 0
) -> list[MembershipFigure]:
    """Return the figures of all attacks and baselines on trainings by a recipe, and on the control.

    Scores of all models of a repetition are put together, so that one threshold serves all of them; a repetition has
    one value of each figure.

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
    sizes = _sizes(dataset, test)
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
        right = torch.stack([(own > -math.log(2)).double().mean() for own in losses])
        share = interval(right, bounds=(0.0, 1.0))
        figures.append(MembershipFigure("none", "about", "final", "deployed", metric, share))
    return figures


def member_gap(figures: Sequence[MembershipFigure]) -> tuple[float | None, float | None]:
    """Return the shares of their own records and of others on which models are right."""
    shares = {figure.metric: figure.estimate.mean for figure in figures}
    return shares[RIGHT[0]], shares[RIGHT[1]]


@dataclass(frozen=True)
class _RowCounts:
    """Numbers of rows by their use: trained on by one model, and of RMIA's population."""

    trained: int
    population: int


def _sizes(dataset: Dataset, test: MembershipTest) -> _RowCounts:
    target, rows = dataset.schema.target, len(dataset.all)
    if not isinstance(target, Discrete):
        raise BadInputError(
            f"membership is tested by the chance of a record's class, but the target {target.name!r} is a number; "
            "choose a target with classes."
        )
    population = min(_POPULATION, int(_POPULATION_SHARE * rows))
    most = (rows - population) // 3
    trained = min(most, _MOST_ROWS) if test.rows is None else test.rows
    if trained > most or trained < _FEWEST_ROWS:
        raise BadInputError(
            f"a test of membership takes three times the {trained:,} records of a training, and {population:,} others, "
            f"but the table has {rows:,}; give at most {most:,} rows, at least {_FEWEST_ROWS}, or a larger table."
        )
    return _RowCounts(trained, population)


_Name = tuple[str, str, str]
_Both = tuple[Float[Tensor, " member"], Float[Tensor, " other"]]


def _repetition(
    dataset: Dataset, learner: Dense, test: MembershipTest, sizes: _RowCounts, seed: int
) -> dict[_Name, _Both]:
    """Return the scores of members and non-members of all models of one repetition, by attack, view and target."""
    generator = torch.Generator().manual_seed(seed % 2**62)
    n, count = sizes.trained, 3 * sizes.trained + sizes.population
    cells, labels = dataset.all.at(torch.randperm(len(dataset.all), generator=generator)[:count])
    inputs = Encoder(dataset.schema, dataset.statistics, dtype=torch.float32).encode(cells)
    # The first 2n rows are the candidates, the next n are what control models are trained on.
    halves = torch.stack([torch.randperm(2 * n, generator=generator) for _ in range(test.shadows // 2)])
    chosen = halves.unflatten(1, (2, n)).flatten(0, 1)
    fresh = torch.arange(2 * n, 3 * n).expand(max(2, test.shadows // 4), n)
    models = torch.cat([chosen, fresh])
    seeds = torch.randint(2**62, (len(models),), generator=generator).tolist()
    rounds = learner.rounds(inputs, labels.long(), models, seeds, test.rounds)
    logits = torch.stack([own_class_logits(_logits(stage, inputs), labels) for stage in rounds], 2)
    candidates, population = logits[:, : 2 * n], logits[:, 3 * n :]
    members = torch.zeros(test.shadows, 2 * n, dtype=torch.bool).scatter(1, chosen, True)
    coins = torch.stack([torch.randperm(2 * n, generator=generator) < n for _ in fresh])
    # A model and its complement are left out together, so that as many shadow models hold a record as do not.
    pairs = torch.arange(test.shadows) // 2
    both = {"deployed": members, "control": coins}
    left_out = {"deployed": pairs[:, None] == pairs, "control": None}
    places = {"deployed": slice(0, test.shadows), "control": slice(test.shadows, None)}
    scores = {}
    for target, truth in both.items():
        for sees, some in (("final", slice(-1, None)), ("rounds", slice(None))):
            attacked, shadows = candidates[places[target]][..., some], candidates[: test.shadows, :, some]
            others = population[places[target]][..., some], population[: test.shadows, :, some]
            answers = {
                "lira": lira_scores(attacked, shadows, members, left_out[target]),
                "rmia": rmia_scores(attacked, shadows, members, others, left_out[target]),
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
