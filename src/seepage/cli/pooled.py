"""``seepage pooled``: what a joint model tells of a sensitive column's distribution."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from seepage import registry
from seepage.cli.app import app
from seepage.cli.own import DataFolder, DatasetName, DatasetOption, Own, read_dataset_option, with_own_table
from seepage.cli.studies import AsJson, FailAbove, FailColumn, Out, Seed, Swept, Threads, run_study_command, spec_of
from seepage.datasets import Dataset
from seepage.errors import BadInputError
from seepage.settings.pooled import PooledAudit
from seepage.settings.pooled_spec import UPDATES, PooledSpec
from seepage.settings.study import study_of
from seepage.tabular.schema import Category, Discrete

# Shares that a model before and after an update is asked for.
_FINE = (0.1, 0.3, 0.5, 0.7, 0.9)


# Options by the fields of the spec that they give.
_OPTIONS = {
    "units": "--seeds",
    "shares": "--share",
    "keep": "--leave-out",
    "attacks": "--attack",
}


@app.command()
@with_own_table
def pooled(
    dataset: DatasetName = "adult_education",
    dataset_option: DatasetOption = None,
    *,
    own: Own,
    sensitive: Annotated[str, typer.Option(help="Column whose distribution is the secret.")] = "sex",
    value: Annotated[
        str | None,
        typer.Option(help="Its value whose share is asked for. Default: the rarer of two; numbers above the median."),
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Models are not trained on the sensitive column.")
    ] = False,
    protocol: Annotated[str, typer.Option(help="multi_party, single_party or update.")] = "multi_party",
    parties: Annotated[int, typer.Option(help="That pool their rows, the attacker among them.")] = 2,
    rows: Annotated[int, typer.Option(help="That each party holds.")] = 2_000,
    auxiliary: Annotated[int, typer.Option(help="Rows of the attacker's own with the column known.")] = 10_000,
    auxiliary_from: Annotated[
        str, typer.Option(help="rows of the same kind; or made up from marginals, or from a joint model's answers.")
    ] = "rows",
    queries: Annotated[int, typer.Option(help="That the attacker asks.")] = 1_000,
    share: Annotated[list[float] | None, typer.Option(help="A share to be told apart. Repeatable.")] = None,
    hidden: Annotated[
        list[int] | None, typer.Option(help="Units of a hidden layer. Repeatable. Default: logistic regression.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the pooled rows. Default: 20; of texts 10, of graphs 200.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Defense: models are not trained on this column. Repeatable.")
    ] = None,
    digits: Annotated[
        list[int] | None, typer.Option(help="Defense: answers are rounded to so many digits. Repeatable.")
    ] = None,
    label_only: Annotated[
        bool, typer.Option("--label-only", help="Defense: only the likeliest class is told.")
    ] = False,
    limit: Annotated[list[int] | None, typer.Option(help="Defense: so many queries are answered. Repeatable.")] = None,
    noise: Annotated[
        list[float] | None, typer.Option(help="Defense: DP-SGD with clip 1; its noise multiplier. Repeatable.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="meta, kl, ratio, white_box, deep_sets, melis; of updates dominant, joint. Repeatable."),
    ] = None,
    targets: Annotated[int, typer.Option(help="Joint models that are attacked for each seed.")] = 100,
    shadows: Annotated[int, typer.Option(help="Models that the attacker trains for each seed.")] = 100,
    seeds: Annotated[int, typer.Option(help="Attack seeds; intervals are over them.")] = 5,
    out: Out = None,
    data_folder: DataFolder = None,
    seed: Seed = 0,
    threads: Threads = 1,
    fail_above: FailAbove = None,
    fail_column: FailColumn = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a jointly trained model tells of how a sensitive column is distributed in another party's rows.

    Parties train one model on all their rows inside a computation that gives nothing away but the model's answers. The
    attacker trains models like it on rows of its own, with one share of the sensitive value and with another, and
    compares answers. Joint models with known shares say how often that is right, beside guessing.

    [bold]Examples[/bold]

        seepage pooled --sensitive sex --leave-out --without relationship --digits 2 --label-only --out pooled

        seepage pooled --data people.csv --target outcome --sensitive smoker --rows 500 --auxiliary 2000
    """
    # Texts and graphs are no tables; what is said of one of the user's own is about a table.
    is_table = own.data is not None or dataset not in registry.populations.names()
    loaded = own.load(dataset, data_folder, dataset_option) if is_table else None
    swept = Swept()
    if without:
        swept.add("--without", {"name": "without_columns", "columns": without, "label": f"without_{'_'.join(without)}"})
    for number in digits or []:
        swept.add("--digits", {"name": "rounded_answers", "digits": number, "label": f"digits_{number}"})
    if label_only:
        swept.add("--label-only", {"name": "label_only"})
    for number in limit or []:
        swept.add("--limit", {"name": "query_limit", "queries": number, "label": f"queries_{number}"})
    for multiplier in noise or []:
        given = {"name": "dp_training", "clip": 1.0, "noise_multiplier": multiplier, "label": f"dp_sgd_{multiplier:g}"}
        swept.add("--noise", given)
    update = protocol == "update"
    attacks: dict[str, Any] = {"attacks": attack} if attack else {"attacks": UPDATES} if update else {}
    shares: dict[str, Any] = {"shares": share} if share else {"shares": _FINE} if update else {}
    spec = spec_of(
        PooledSpec,
        {**_OPTIONS, **swept.options},
        dataset=dataset if loaded is None else loaded.name,
        dataset_options={} if is_table else dict(map(read_dataset_option, dataset_option or [])),
        data_folder=None if is_table or data_folder is None else str(data_folder),
        sensitive=sensitive,
        value=value if value is None or loaded is None else _value(loaded, sensitive, value),
        keep=not leave_out,
        protocol=protocol,
        parties=parties,
        rows=rows,
        auxiliary=auxiliary,
        auxiliary_from=auxiliary_from,
        queries=queries,
        hidden=hidden or (),
        defenses=swept.defenses,
        targets=targets,
        shadows=shadows,
        units=seeds,
        seed=seed,
        threads=threads,
        **attacks,
        **shares,
        **({} if epochs is None else {"epochs": epochs}),
    )
    study = study_of(PooledAudit(spec, loaded, own=own.data is not None))
    run_study_command([(spec, study)], out, fail_above, fail_column, as_json)


def _value(data: Dataset, sensitive: str, said: str) -> Category:
    """Return what a text stands for in a column: a category, or a number."""
    if isinstance(data.schema.column(sensitive), Discrete):
        return said
    try:
        return float(said)
    except ValueError:
        raise BadInputError(
            f"--value of the column of numbers {sensitive!r} is a number, above which the attribute is carried; got "
            f"{said!r}."
        ) from None
