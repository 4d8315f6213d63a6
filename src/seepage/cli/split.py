"""``seepage split``: what the server of split learning reads."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from seepage.attacks.split.exact import Search
from seepage.cli.app import app
from seepage.cli.own import DataFolder, DatasetName, Own, with_own_table
from seepage.cli.studies import AsJson, FailAbove, FailColumn, Out, Seed, Swept, Threads, run_study_command, spec_of
from seepage.errors import check_choice
from seepage.settings.split import SplitAudit
from seepage.settings.split_spec import SplitSpec
from seepage.settings.study import study_of

# Options by the fields of the spec that they give.
_OPTIONS = {
    "units": "--trainings",
}


@app.command()
@with_own_table
def split(
    dataset: DatasetName = "adult",
    *,
    own: Own,
    private: Annotated[
        list[str] | None,
        typer.Option(help="A column that the client holds. Repeatable. Default: sensitive ones with categories."),
    ] = None,
    federated: Annotated[bool, typer.Option("--federated", help="Many clients of 16 rows each.")] = False,
    flip: Annotated[
        list[float] | None, typer.Option(help="Defense: labels are flipped with this probability. Repeatable.")
    ] = None,
    noise: Annotated[
        list[float] | None,
        typer.Option(
            help="Defense: gradients are clipped and get noise; its multiplier (noise standard deviation / clipping "
            "bound). Repeatable."
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the rows before the attack.")] = 5,
    trainings: Annotated[int, typer.Option(help="Independent trainings; intervals are over them.")] = 3,
    records: Annotated[int | None, typer.Option(help="Held-out records attacked. Default: all, a tenth.")] = None,
    auxiliary: Annotated[int, typer.Option(help="Rows that the attacker holds whole.")] = 2_000,
    search: Annotated[
        str,
        typer.Option(
            help="How a record's configurations are searched. exhaustive: all of them; for more than can be gone "
            "through meet (columns of categories, no noise) or descent, without the posterior."
        ),
    ] = "exhaustive",
    stale: Annotated[int, typer.Option(help="Epochs by which the server's copy of the client's part is old.")] = 0,
    final: Annotated[
        int,
        typer.Option(help="Epochs before the end at which the attacked exchange is, where the server knows the end's."),
    ] = 0,
    weights_noise: Annotated[
        list[float] | None,
        typer.Option(help="Defense: the client weights that the server gets have noise; its multiplier. Repeatable."),
    ] = None,
    out: Out = None,
    data_folder: DataFolder = None,
    seed: Seed = 0,
    threads: Threads = 1,
    fail_above: FailAbove = None,
    fail_column: FailColumn = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the server of split learning reads of the client's columns and labels.

    The network (DeepFM) is trained with each defense and with none; then the server compares the gradients of held-out
    records with those of all combinations of private cells and label (exact), and weighs them by what it knows of the
    defense and of people (posterior). Where its copy of the client's part is older, newer or blurred, it also fits by
    how much (posterior_about). Beside every figure stands the best guess without what came back.

    [bold]Examples[/bold]

        seepage split --private sex --private race --flip 0.1 --noise 0.01 --noise 1 --out split

        seepage split --data people.csv --target outcome --private smoker --trainings 3 --fail-above 0.2 --out split
    """
    loaded = own.load(dataset, data_folder)
    swept = Swept()
    for chance in flip or []:
        swept.add("--flip", {"name": "label_flip", "probability": chance, "label": f"label_dp_{chance:g}"})
    for multiplier in noise or []:
        swept.add("--noise", {"name": "cut_noise", "noise_multiplier": multiplier, "label": f"noise_{multiplier:g}"})
    for multiplier in weights_noise or []:
        given = {"name": "weight_noise", "noise_multiplier": multiplier, "label": f"weights_{multiplier:g}"}
        swept.add("--weights-noise", given)
    check_choice("--search", search, Search)
    whole = search == "exhaustive"
    attacks: list[str | dict[str, Any]] = (
        ["exact", "posterior"] if whole else [{"name": "exact", "options": {"search": search}}]
    )
    # What it reads of gradients as they are says nothing where they are clipped.
    if (stale or final or weights_noise) and not noise and whole:
        attacks.append({"name": "posterior", "options": {"weights": "about"}, "label": "posterior_about"})
    spec = spec_of(
        SplitSpec,
        {**_OPTIONS, **swept.options},
        dataset=loaded.name,
        private=tuple(private or ()),
        protocol="federated_split" if federated else "split",
        defenses=swept.defenses,
        epochs=epochs,
        units=trainings,
        records=records,
        auxiliary=auxiliary,
        stale=stale,
        final=final,
        attacks=attacks,
        seed=seed,
        threads=threads,
    )
    run_study_command(
        [(spec, study_of(SplitAudit(spec, loaded, own=own.data is not None)))], out, fail_above, fail_column, as_json
    )
