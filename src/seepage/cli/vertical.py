"""``seepage vertical``: what the active party of vertical learning reads."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from seepage.cli.app import app
from seepage.cli.own import DataFolder, DatasetName, Own, with_own_table
from seepage.cli.studies import AsJson, FailAbove, FailColumn, Out, Seed, Swept, Threads, run_study_command, spec_of
from seepage.errors import check_choice
from seepage.settings.study import study_of
from seepage.settings.vertical import VerticalAudit
from seepage.settings.vertical_spec import VerticalSpec

Returned = Literal["pa_imfl", "vfldefender"]
# Options by the fields of the spec that they give.
_OPTIONS = {
    "units": "--trainings",
    "attacks": "--attack",
}


@app.command()
@with_own_table
def vertical(
    dataset: DatasetName = "adult",
    *,
    own: Own,
    passive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of a passive party, with commas between them. Repeatable, a party each; the active party has "
            "the rest. Default: equal shares of each kind of column.",
        ),
    ] = None,
    parties: Annotated[int, typer.Option(help="Parties with equal shares, where no columns are named.")] = 2,
    share: Annotated[float | None, typer.Option(help="Share of the columns that the attacked party holds.")] = None,
    victim: Annotated[int, typer.Option(help="Number of the passive party that is attacked, from 1.")] = 1,
    trained: Annotated[bool, typer.Option("--trained", help="Attack records of training, not held-out ones.")] = False,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="Attack by name; seepage attacks lists them. Repeatable. Default: UIFV's four."),
    ] = None,
    feature_noise: Annotated[
        list[float] | None,
        typer.Option(help="Defense: noise on features, in units of their standard deviation. Repeatable."),
    ] = None,
    gradient_noise: Annotated[
        list[float] | None,
        typer.Option(help="Defense: gradients are clipped to 1 and get noise of this deviation. Repeatable."),
    ] = None,
    bottleneck: Annotated[
        list[int] | None,
        typer.Option(
            help="Defense: passive parties send so many features, with noise of a tenth of their standard deviation. "
            "Repeatable."
        ),
    ] = None,
    returned: Annotated[
        list[str] | None,
        typer.Option(help="Defense: what is done to gradients, pa_imfl or vfldefender. Repeatable."),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the rows before the attack.")] = 20,
    trainings: Annotated[int, typer.Option(help="Independent trainings; intervals are over them.")] = 3,
    records: Annotated[int | None, typer.Option(help="Records attacked. Default: all, a fifth.")] = None,
    auxiliary: Annotated[float, typer.Option(help="Share of training rows that the attacker holds whole.")] = 0.125,
    queries: Annotated[
        int | None, typer.Option(help="Queries that the party answers. Default: as many as auxiliary rows.")
    ] = None,
    leaked: Annotated[int, typer.Option(help="Records of the party that the attacker knows.")] = 64,
    out: Out = None,
    data_folder: DataFolder = None,
    seed: Seed = 0,
    threads: Threads = 1,
    fail_above: FailAbove = None,
    fail_column: FailColumn = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the active party of vertical learning reads of a passive party's columns.

    The parties train bottom models and a top model with each defense and with none; then the active party trains
    networks that give the passive party's cells back from its features, under four levels of access: with auxiliary
    rows and queries, with auxiliary rows alone, with queries alone, with some leaked records alone. Beside every figure
    stands the best guess without the features.

    [bold]Examples[/bold]

        seepage vertical --passive age,education,occupation --feature-noise 0.1 --feature-noise 1 --out vertical

        seepage vertical --data people.csv --target outcome --parties 4 --fail-above 0.2 --out vertical
    """
    loaded = own.load(dataset, data_folder)
    swept = Swept()
    for scale in feature_noise or []:
        swept.add("--feature-noise", {"name": "feature_noise", "scale": scale, "label": f"feature_noise_{scale:g}"})
    for scale in gradient_noise or []:
        swept.add("--gradient-noise", {"name": "returned_noise", "scale": scale, "label": f"gradient_noise_{scale:g}"})
    for width in bottleneck or []:
        both = [{"name": "bottleneck", "width": width}, {"name": "feature_noise", "scale": 0.1}]
        swept.add("--bottleneck", {"all": both, "label": f"bottleneck_{width}"})
    for name in returned or []:
        check_choice("--returned", name, Returned)
        swept.add("--returned", {"name": name})
    chosen = {} if not attack else {"attacks": attack}
    spec = spec_of(
        VerticalSpec,
        {**_OPTIONS, **swept.options},
        dataset=loaded.name,
        passive=tuple(tuple(name.strip() for name in held.split(",")) for held in passive or ()),
        parties=parties,
        share=share,
        victim=victim,
        attacked="trained" if trained else "held_out",
        defenses=swept.defenses,
        epochs=epochs,
        units=trainings,
        records=records,
        auxiliary=auxiliary,
        queries=queries,
        leaked=leaked,
        seed=seed,
        threads=threads,
        **chosen,
    )
    run_study_command(
        [(spec, study_of(VerticalAudit(spec, loaded, own=own.data is not None)))], out, fail_above, fail_column, as_json
    )
