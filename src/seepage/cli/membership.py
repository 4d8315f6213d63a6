"""``seepage membership``: who was in the training of a model, from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from seepage.assessment import Estimate
from seepage.assessment.intervals import with_student
from seepage.cli.app import app
from seepage.cli.correlate import OF_TABLES, table_given
from seepage.cli.exits import shown_path
from seepage.cli.options import fields_in_options
from seepage.digests import Json
from seepage.errors import BadInputError, check_count
from seepage.files import write_whole
from seepage.protocols.trees import Boosting, objective_of
from seepage.report.document import Grid, heads, rows_of
from seepage.report.terminal import say
from seepage.settings.spec import Spec
from seepage.settings.training_membership import (
    Learner,
    MembershipFigure,
    MembershipTest,
    measure_training_membership,
    member_gap,
)
from seepage.shadow.federated import Federation
from seepage.shadow.stacked import Dense
from seepage.tabular.schema import Discrete
from seepage.text import clean, percent, printable_json, span

_SEES = {
    "final": "the trained model",
    "rounds": "models of all rounds",
    "updates": "a site's updates",
    "nothing": "nothing",
}
# Learning rates of Adam on all rows together, of the sites of a federation, and of boosted trees.
_ALONE, _AT_SITES, _OF_TREES = 0.01, 0.1, 0.3
# Pairs that an attack may order rightly in the control, by chance and by the few repetitions.
_OFF = 0.52
_HEADS = {
    "membership_auc": "AUC",
    "membership_tpr": "TPR at 0.1% FPR",
    "membership_tpr_1": "TPR at 1% FPR",
}


@app.command()
@fields_in_options(Spec, OF_TABLES)
def membership(
    *,
    given: dict[str, Json],
    rows: Annotated[
        int | None, typer.Option(help="Records that a model is trained on. Default: a third, 1,000 at most.")
    ] = None,
    shadows: Annotated[int, typer.Option(help="Models of a repetition, each attacked with the others.")] = 32,
    repetitions: Annotated[int, typer.Option(help="Independent draws of records and models.")] = 5,
    hidden: Annotated[list[int] | None, typer.Option(help="Units of a hidden layer. Repeatable. Default: 100.")] = None,
    sites: Annotated[
        int, typer.Option(help="Sites of the federation; 1 for a training on all records together, by Adam.")
    ] = 5,
    epochs: Annotated[int, typer.Option(help="Passes over the records; a federation has a round after each.")] = 20,
    local_epochs: Annotated[int, typer.Option(help="Passes of a site over its records in a round.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Records of a step.")] = 32,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help=f"Learning rate. Default: {_AT_SITES} at sites, {_ALONE} of Adam, {_OF_TREES} of trees.",
            show_default=False,
        ),
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Bound on the norm of each record's gradient (DP-SGD).")] = None,
    noise: Annotated[float, typer.Option(help="Noise multiplier of DP-SGD, in units of the bound.")] = 0.0,
    trees: Annotated[
        int | None,
        typer.Option(help="Boosting rounds of xgboost, whose trees stand in place of networks.", show_default=False),
    ] = None,
    depth: Annotated[int, typer.Option(help="Largest depth of a tree.")] = 6,
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the figures there as JSON.")] = None,
) -> None:
    """Measure how well whoever holds a model tells which records it was trained on.

    Fully connected networks are trained on random halves of records of the table, by FedAvg over several sites. Each is
    attacked with the others as shadow models, by LiRA and RMIA: from the trained model, from the models of all rounds,
    as a client sees them, and from what a site sends in all rounds, as the server does. With --trees they are boosted
    trees, which clients grow from their sums as one training on the rows of all would. The attacker knows the recipe,
    and has records of the same distribution with their labels. Baselines are the loss alone and chance. The
    control is models that were trained on none of the records, where no attack may find members.

    [bold]Examples[/bold]

        seepage membership --dataset german

        seepage membership --dataset german --trees 50

        seepage membership --data people.csv --target outcome --epochs 5 --clip 1 --noise 1 --out membership.json
    """
    spec, dataset = table_given(given, "adult")
    target = dataset.schema.target
    classes = target.width if isinstance(target, Discrete) else 2
    recipe: Learner
    if trees is not None:
        if hidden or clip is not None or noise:
            raise BadInputError("--hidden, --clip and --noise are those of networks; leave them or --trees out.")
        check_count("trees", trees)
        check_count("depth", depth)
        objective, classes = objective_of(dataset.schema)
        recipe = Boosting(objective, classes, trees, depth, _OF_TREES if learning_rate is None else learning_rate)
    else:
        rate = learning_rate if learning_rate is not None else _ALONE if sites == 1 else _AT_SITES
        recipe = Dense(classes, tuple(hidden or [100]), epochs, batch_size, rate, 0.0, clip, noise)
        if sites > 1:
            check_count("local_epochs", local_epochs)
            recipe = Federation(replace(recipe, epochs=local_epochs), sites, max(1, epochs // local_epochs))
    sizes = MembershipTest(rows, shadows, repetitions)
    measured = measure_training_membership(dataset, recipe, sizes, seed)
    title = (
        f"{clean(dataset.name)}: who was in the training, {repetitions} repetitions of {shadows} models [95% interval]"
    )
    say(_figures_grid(title, measured), _summary(measured))
    if out is not None:
        described = asdict(recipe) if isinstance(recipe, Boosting) else recipe.describe()
        content = {"recipe": described, "test": asdict(sizes), "seed": seed, "dataset": dataset.name}
        text = printable_json({**content, "figures": [asdict(figure) for figure in measured]}, allow_nan=False)
        write_whole(out, text + "\n", private=spec.data is not None)
        print(f"Figures: {shown_path(out)}")


def _figures_grid(title: str, measured: Sequence[MembershipFigure]) -> Grid:
    """Return a line for each attack and baseline: its figures, and its area under the curve on the control."""
    by = {(f.attack, f.sees, f.target, f.metric): f.estimate for f in measured}
    lines = [
        [
            attack,
            _SEES[sees],
            *(_shown(by[attack, sees, "deployed", metric]) for metric in _HEADS),
            _shown(by[attack, sees, "control", "membership_auc"]),
        ]
        for attack, sees in dict.fromkeys((f.attack, f.sees) for f in measured if f.kind != "about")
    ]
    figures = [*_HEADS.values(), f"{_HEADS['membership_auc']} of the control"]
    columns = heads("attack or baseline", "sees", *figures, numbers=figures)
    return Grid(title, columns, rows_of(lines), most=None)


def _shown(estimate: Estimate) -> str:
    mean = percent(estimate.mean)
    return mean if estimate.low is None else f"{mean} {span(estimate.low, estimate.high)}"


def _summary(measured: Sequence[MembershipFigure]) -> str:
    attacks = [f for f in measured if f.kind == "attack" and f.metric == "membership_auc"]
    best = max((f for f in attacks if f.target == "deployed"), key=lambda f: f.estimate.mean or 0.0)
    # A repetition is an average over many models and records, so that Student's t tells an attack from chance.
    lows = [with_student(f.estimate).low for f in attacks if f.target == "control"]
    off = [low for low in lows if low is not None and low > _OFF]
    among = percent(best.estimate.mean)
    text = (
        f"{best.attack}, from {_SEES[best.sees]}, puts a member above another record in {among} of pairs (50%: chance)."
    )
    members, others = member_gap(measured)
    text += f" The models are right on {percent(members)} of their own records and on {percent(others)} of others."
    if off:
        text += " On the control an attack is above chance too, so these figures are in doubt; run more repetitions."
    return f"{text} A low figure is no proof: a better attack may exist."
