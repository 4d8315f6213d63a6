"""The command line."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.table import Table as Grid
from rich.text import Text

from seepage import __version__, datasets, registry
from seepage import reproduce as published
from seepage.audit import make_spec, prepare, write_whole
from seepage.audit.memory import keep_freed_memory
from seepage.audit.store import FILE as VICTIMS
from seepage.errors import BadInputError, unknown_name
from seepage.report import Bar, audit_all, make_console
from seepage.report.text import clean
from seepage.tabular.infer import infer_schema

app = typer.Typer(
    name="seepage",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Measures what collaborative learning on tables gives away.\n\n"
        "Start with [bold]seepage audit[/bold]: it attacks gradients of real census records and says how much of them "
        "can be read. Then audit a table of your own: [bold]seepage audit --data FILE --target COLUMN[/bold]."
    ),
)

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "quick": {"batch_sizes": (8,), "victims": 4, "restarts": 5, "iterations": 500},
    # The published random baseline repeats one draw of each continuous column: shown beside those that guess well.
    "faithful": {
        "profile": "faithful",
        "labels": "true",
        "replacement": True,
        "baselines": (
            *("likeliest", "mode", "random"),
            {"name": "random", "options": {"one_draw_per_column": True}, "label": "random_one_draw"},
        ),
    },
}

# Repeatable options that make an audit of their own each.
_SWEPT = ("dataset", "model", "protocol")


class Preset(StrEnum):
    """Names of ``PRESETS``, for the help text."""

    default = "default"
    quick = "quick"
    faithful = "faithful"


def main() -> None:
    """Run the program; a mistake in the input is one paragraph on stderr and exit status 2."""
    keep_freed_memory()
    try:
        app(prog_name="seepage")
    except BadInputError as error:
        print(f"seepage: {clean(error, 4000)}", file=sys.stderr)
        sys.exit(2)


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"seepage {__version__ or '(not installed)'}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def audit(
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Dataset by name; [bold]seepage datasets[/bold] lists them. Repeatable. Default: adult."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A table of your own (.csv, .csv.gz, .parquet) instead of a dataset.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column of your table that the model learns.")] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="YAML schema of your table; [bold]seepage schema[/bold] drafts one. Inferred if left out."),
    ] = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="Column of your table that the report singles out. Repeatable.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column of your table to leave out. Repeatable.")] = None,
    separator: Annotated[
        str | None, typer.Option(help="Between the cells of your CSV file. Default: a comma.", show_default=False)
    ] = None,
    dataset_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Argument of the dataset's loader, such as missing=category of adult. Repeatable.",
        ),
    ] = None,
    protocol: Annotated[list[str] | None, typer.Option(help="How the parties train. Default: fedsgd.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Network; [bold]seepage models[/bold] lists them. Repeatable. Default: nn3."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help="softmax, sigmoid or regression. Default: what the target asks for.", show_default=False),
    ] = None,
    model_seed: Annotated[int | None, typer.Option(help="Of the network's initialisation. Default: --seed.")] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(help="Records behind one gradient. Repeatable. Default: 8 and 32.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="Attack; [bold]seepage attacks[/bold] lists them. Repeatable. Default: tableak, inverting_gradients."
        ),
    ] = None,
    victims: Annotated[int | None, typer.Option(help="Batches attacked in each setting. Default: 10.")] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder. One that holds the same audit is continued. Default: a new one in runs/."),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option(
            help="quick: a glimpse in seconds; default: the strongest attacks; faithful: as the papers ran them. "
            "Options override it."
        ),
    ] = Preset.default,
    labels: Annotated[
        str | None,
        typer.Option(help="restored: the attacker works the labels out; true: it is told. Default: restored."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="default: the strongest attacks we know; faithful: the official implementations' details."),
    ] = None,
    replacement: Annotated[
        bool | None,
        typer.Option(
            "--replacement/--no-replacement",
            help="Whether a batch may hold a row twice. Default: no.",
            show_default=False,
        ),
    ] = None,
    restarts: Annotated[int | None, typer.Option(help="Random starts of attacks that use several (30).")] = None,
    iterations: Annotated[int | None, typer.Option(help="Descent steps of an attack (1500).")] = None,
    baseline: Annotated[list[str] | None, typer.Option(help="Guess to compare with. Repeatable. Default: all.")] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Where files of datasets are looked for; else the SEEPAGE_DATA folder.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads. Default: PyTorch's choice.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")] = False,
) -> None:
    """Attack gradients and report what was read out of them, beside what guessing would have got.

    Each victim is one batch of a client's records. Attacks see its gradient as the server does; their
    guesses are then matched to the true records. The run folder gets results.json and results.csv (one row
    a figure, with interval, baseline and lift), victims.jsonl (one line a victim, from which a run that was
    stopped continues) and provenance.json.

    [bold]Examples[/bold]

    The default audit of census records, under two minutes:

        seepage audit

    One setting, into a folder of your choice:

        seepage audit --dataset german --batch-size 8 --attack tableak --victims 4 --out german-8

    Your own table, with a look at the columns that matter:

        seepage audit --data patients.csv --target readmitted --sensitive hiv --sensitive age
    """
    given = {
        "data": data,
        "target": target,
        "schema_file": schema,
        "sensitive": sensitive,
        "drop": drop,
        "separator": separator,
        "dataset_options": dict(map(_dataset_option, dataset_option)) if dataset_option else None,
        "head": head,
        "model_seed": model_seed,
        "batch_sizes": batch_size,
        "attacks": attack,
        "victims": victims,
        "labels": labels,
        "profile": profile,
        "replacement": replacement,
        "restarts": restarts,
        "iterations": iterations,
        "baselines": baseline,
        "data_folder": data_folder,
        "threads": threads,
    }
    common = {**PRESETS[preset.value], "seed": seed, "device": device}
    common |= {name: value for name, value in given.items() if value is not None}
    if data is not None and dataset:
        raise BadInputError(
            f"either a dataset or a table of your own: give --dataset {dataset[0]} or --data {data}, not both."
        )
    swept = itertools.product(_once(dataset), _once(model), _once(protocol))
    specs = [
        make_spec(**common, **{name: value for name, value in zip(_SWEPT, chosen, strict=True) if value})
        for chosen in swept
    ]
    audits = [(spec, prepare(spec)) for spec in specs]
    folder = out or Path("runs") / f"{audits[0][1].dataset.name}-{datetime.now():%Y%m%d-%H%M%S}"
    messages = make_console(stderr=True)
    with Bar(messages) as bar:
        reports = _interruptible(lambda: audit_all(audits, folder, bar), folder)
    if as_json:
        print(json.dumps([row for report in reports for row in report.rows], indent=1, ensure_ascii=False))
        return
    console = make_console()
    for report in reports:
        report.show(console)
    console.print(Text(f"Results: {folder / 'results.json'} and results.csv"))


def _dataset_option(text: str) -> tuple[str, Any]:
    name, equals, said = text.partition("=")
    if not name or not equals:
        raise BadInputError(f"--dataset-option takes NAME=VALUE, such as missing=category, got {text!r}.")
    try:
        value = yaml.safe_load(said)
    except yaml.YAMLError:
        value = said
    # Bare words and numbers are what YAML makes of them; anything richer is taken as it is written.
    return name, value if isinstance(value, bool | int | float | str) else said


def _once(values: list[str] | None) -> list[str | None]:
    return list(dict.fromkeys(values)) if values else [None]


def _interruptible(work: Callable[[], Any], folder: Path) -> Any:
    try:
        return work()
    except KeyboardInterrupt:
        if (folder / VICTIMS).exists():
            kept = f"The victims measured so far are kept; run the same command with --out {str(folder)!r} to go on."
        else:
            kept = "Nothing was measured yet."
        print(f"seepage: interrupted. {kept}", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command("datasets")
def datasets_(
    data_folder: Annotated[
        Path | None, typer.Option(help="Where files of datasets are looked for; else the SEEPAGE_DATA folder.")
    ] = None,
) -> None:
    """List the datasets, and where each would come from.

    Nothing is loaded. What is [bold]bundled[/bold] needs no network; of the rest, put the files into one folder and
    name it with SEEPAGE_DATA or --data-folder, or have them downloaded where that is possible.
    """
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in ("name", "rows", "columns", "encoded"):
        grid.add_column(name, justify="left" if name == "name" else "right", no_wrap=True)
    for name in ("from", "what"):
        grid.add_column(name)
    for listing in datasets.catalogue(data_folder):
        size = [f"{n:,}" if n is not None else "–" for n in (listing.rows, listing.columns, listing.width)]
        origin = listing.availability + (f": {listing.where}" if listing.where not in ("", "seepage") else "")
        grid.add_row(listing.name, *size, Text(origin), Text(listing.summary))
    make_console().print(grid)


@app.command()
def attacks() -> None:
    """List the attacks and the guesses that they are compared with."""
    _list([("attack", registry.attacks), ("baseline", registry.baselines)])


@app.command()
def models() -> None:
    """List the networks. Any torch.nn.Module can be audited from Python."""
    _list([("model", registry.models)])


def _list(kinds: list[tuple[str, registry.Registry[Any]]]) -> None:
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    grid.add_column("name", no_wrap=True)
    grid.add_column("kind")
    grid.add_column("what")
    for kind, entries in kinds:
        for entry in entries.entries():
            grid.add_row(entry.name, kind, Text(entry.summary))
    make_console().print(grid)


@app.command()
def schema(
    file: Annotated[Path, typer.Argument(help="The table: .csv, .csv.gz or .parquet.")],
    target: Annotated[str, typer.Option(help="The column that the model learns.")],
    out: Annotated[Path | None, typer.Option(help="Write the YAML there instead of printing it.")] = None,
    sensitive: Annotated[list[str] | None, typer.Option(help="Column that reports single out. Repeatable.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out. Repeatable.")] = None,
    separator: Annotated[str, typer.Option(help="Between the cells of a CSV file.")] = ",",
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=KIND",
            help="discrete or continuous, or fields in YAML: 'age={low: 0, high: 110}'. Repeatable.",
        ),
    ] = None,
) -> None:
    """Draft the schema of a table: which columns are discrete, their categories, bounds and tolerances.

    Read it before you audit: bounds are those of the rows at hand, and a number with few values is taken for
    categories.

    [bold]Example[/bold]

        seepage schema patients.csv --target readmitted --override zip=discrete --out patients.yaml

        seepage audit --data patients.csv --schema patients.yaml
    """
    found = infer_schema(
        file,
        target,
        sensitive=sensitive or (),
        drop=drop or (),
        overrides=dict(map(_override, override or [])),
        separator=separator,
    )
    if out is None:
        print(found.to_yaml(), end="")
    else:
        # A schema holds cells of the table: every category, and the extremes of every number.
        write_whole(out, found.to_yaml(), private=True)
        print(f"{len(found.columns)} columns and the target {target!r} written to {out}")


def _override(text: str) -> tuple[str, dict[str, Any]]:
    column, equals, said = text.partition("=")
    try:
        fields = yaml.safe_load(said)
    except yaml.YAMLError:
        fields = None
    if isinstance(fields, str):
        if fields not in ("discrete", "continuous"):
            raise unknown_name(f"kind of column {column!r}:", fields, ("discrete", "continuous"))
        fields = {"kind": fields}
    if not equals or not isinstance(fields, dict):
        raise BadInputError(
            f"--override takes COLUMN=discrete, COLUMN=continuous or COLUMN={{field: value, ...}}, got {text!r}."
        )
    return column, fields


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="Name of the table; --list lists them.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    victims: Annotated[int, typer.Option(help="Batches attacked in each cell.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; what is there is not run again. Default: runs/TABLE.")
    ] = None,
    batch_size: Annotated[list[int] | None, typer.Option(help="Only these batch sizes. Repeatable.")] = None,
    attack: Annotated[list[str] | None, typer.Option(help="Only these attacks. Repeatable.")] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="Only these runs of the table: faithful, default. Repeatable.")
    ] = None,
    labels: Annotated[list[str] | None, typer.Option(help="Only these labels: true, restored. Repeatable.")] = None,
    compare_only: Annotated[bool, typer.Option("--compare-only", help="Run nothing; compare what is there.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads. Default: PyTorch's choice.")] = None,
) -> None:
    """Run a published table and lay our figures beside the printed ones.

    A table is run as the paper ran it (part faithful) and with the strongest settings (part default), on the same
    victims. What has been measured is kept in the run folder; a stopped run continues, and parts can be run one after
    the other.

    [bold]Examples[/bold]

        seepage reproduce --list

        seepage reproduce tableak/table17 --victims 20 --out table17

        seepage reproduce tableak/table18 --batch-size 32 --attack tableak --victims 4
    """
    if list_ or table is None:
        grid = Grid(box=None, pad_edge=False, header_style="bold")
        grid.add_column("name", no_wrap=True)
        grid.add_column("what")
        grid.add_column("printed in")
        for known in published.tables().values():
            grid.add_row(known.name, Text(known.title), Text(known.source))
        make_console().print(grid)
        return
    chosen = published.load_table(table)
    folder = out or Path("runs") / table.replace("/", "-")
    selection = published.Selection(batch_size or (), attack or (), part or (), labels or ())
    with Bar(make_console(stderr=True)) as bar:
        comparison = _interruptible(
            lambda: published.reproduce(
                chosen,
                folder,
                victims,
                selection,
                bar,
                run_missing=not compare_only,
                device=device,
                threads=threads,
            ),
            folder,
        )
    console = make_console()
    published.show_comparison(console, comparison)
    console.print(Text(f"Comparison: {folder / 'comparison.csv'}"))
