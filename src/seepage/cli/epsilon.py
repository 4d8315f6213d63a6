"""``seepage epsilon``: a lower bound of the epsilon of whole trainings, from one training each."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Annotated

import typer

from seepage.cli.app import app
from seepage.cli.audit import AsJson, Quiet
from seepage.cli.correlate import OF_TABLES
from seepage.cli.exits import Exit, print_message
from seepage.cli.options import fields_in_options
from seepage.config.document import make_specs
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.settings.horizontal.spec import HorizontalSpec

_FIELDS = (
    *OF_TABLES,
    *("model", "model_options", "weights", "head", "model_seed", "protocol", "protocol_options", "batch_sizes"),
    *("defenses", "seed", "device"),
)


@app.command()
@fields_in_options(HorizontalSpec, _FIELDS)
def epsilon(
    *,
    given: dict[str, Json],
    canaries: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS",
            help="Number of rows that are trained on by the toss of a coin each. Default: a third, at most 1,000.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="mislabelled|rows",
            help="Canaries with the label of another row, which networks learn only by heart, or the rows as they are.",
        ),
    ] = "mislabelled",
    epochs: Annotated[int, typer.Option(help="Number of passes over the rows.")] = 10,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Failure probability. Default: 1e-5, or a tenth of one over the number of rows if that is less.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Bound the epsilon of whole trainings from below, with one training each.

    Rows of the table are canaries: a coin decides for each whether the network is trained on it. How well the losses of
    the trained network tell which were bounds epsilon, whatever the defense is (Steinke, Nasr and Jagielski, 2023).
    Beside it stands the epsilon that the defense's accountant gives. Exit status: 1 where the bound is above it.
    Who was in the training is what seepage membership measures.

    [bold]Examples[/bold]

        seepage epsilon --dataset german --batch-size 16 --defense 'dp_sgd:{clip_norm: 1, noise_multiplier: 1}'

        seepage epsilon --data people.csv --target outcome --canaries 500 --json
    """
    # Tables, networks and protocols are swept over elsewhere.
    specs = make_specs({}, given)
    if len(specs) > 1:
        raise BadInputError(f"one table, network and protocol at a time, got {len(specs)} of them; give one of each.")
    [spec] = specs
    # Only what can be trained is worth the time that this takes to load.
    advise, utility = (import_module(f"seepage.{name}") for name in ("advise.epsilon", "assessment.utility"))
    recipe = utility.Recipe(epochs=epochs, delta=delta)
    say = (lambda line: None) if quiet else print_message
    results = advise.epsilon(spec, canaries=canaries, kind=kind, recipe=recipe, say=say)
    if as_json:
        print(json.dumps([each.as_dict() for each in results], indent=1, ensure_ascii=False))
    else:
        import_module("seepage.report.terminal").say(*(each.line for each in results))
    if any(each.training.refuted for each in results):
        raise typer.Exit(Exit.GATE_FAILED)
