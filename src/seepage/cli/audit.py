"""``seepage audit``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from seepage.cli.app import app, interruptible
from seepage.cli.duration import seconds
from seepage.cli.exits import Exit
from seepage.cli.own import MISSING, MOST_CATEGORIES, OVERRIDE, of_document, read_dataset_option, read_override
from seepage.cli.studies import run_study_command
from seepage.config.document import read_text_document
from seepage.config.mistakes import DocumentError
from seepage.config.preset import presets, read_preset
from seepage.config.study_document import is_study, read_study
from seepage.config.tree import parse, read_text
from seepage.errors import BadInputError
from seepage.report import Bar, Report, audit_all, check_gate, combined, gate, make_console
from seepage.report.inferred import show_inferred
from seepage.results.rows import as_json as results_json
from seepage.settings.spec import AuditSpec, Gate
from seepage.settings.subject import Subject, Subjects

# The panels that options are shown in.
_TABLE, _ATTACK, _KNOWLEDGE = "The table", "What is attacked, and how", "What the attacker knows"
_OUTPUT, _GATE, _RUNNING = "Output", "Gate", "Running"
_TABLES = (".csv", ".csv.gz", ".parquet")


@app.command()
def audit(
    document: Annotated[
        Path | None,
        typer.Argument(
            help="Audit document in YAML; [bold]seepage spec new[/bold] drafts one. Options take precedence over it "
            "(documents of a study take few).",
            show_default=False,
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_TABLE,
            help="Dataset by name; [bold]seepage datasets[/bold] lists them. Repeatable. Default: adult.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_TABLE,
            help="A table of your own (.csv, .csv.gz, .parquet) instead of a dataset.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", rich_help_panel=_TABLE, help="The column of your table that the model learns."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_TABLE,
            help="YAML schema of your table; [bold]seepage schema[/bold] drafts one. Inferred if left out.",
        ),
    ] = None,
    sensitive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=_TABLE,
            help="Column of your table that the report singles out. Repeatable.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", rich_help_panel=_TABLE, help="Column of your table to leave out. Repeatable."),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_TABLE, metavar="COLUMN=KIND", help=f"What a column of your table is: {OVERRIDE}"),
    ] = None,
    missing: Annotated[
        str | None, typer.Option(rich_help_panel=_TABLE, metavar="refuse|drop|category", help=MISSING)
    ] = None,
    most_categories: Annotated[int | None, typer.Option(rich_help_panel=_TABLE, help=MOST_CATEGORIES)] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHARACTER",
            rich_help_panel=_TABLE,
            help="Between the cells of your CSV file. Default: a comma.",
            show_default=False,
        ),
    ] = None,
    dataset_option: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_TABLE,
            metavar="NAME=VALUE",
            help="Argument of the dataset's loader, such as missing=category of adult. Repeatable.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ATTACK,
            help="How the parties train: fedsgd, or fedavg with options such as "
            "'fedavg:{epochs: 5, local_batch_size: 8, learning_rate: 0.01}'. Repeatable. Default: fedsgd.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ATTACK,
            help="Network; [bold]seepage models[/bold] lists them. Of your own: package.module:factory or "
            "path/to/file.py:factory. Repeatable. Default: nn3.",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_ATTACK,
            help="Weights of the network (.safetensors). Default: those of its initialisation.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ATTACK,
            help="softmax, sigmoid or regression. Default: what the target asks for.",
            show_default=False,
        ),
    ] = None,
    model_seed: Annotated[
        int | None, typer.Option(rich_help_panel=_ATTACK, help="Seed of the network's initialisation. Default: --seed.")
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            metavar="RECORDS",
            rich_help_panel=_ATTACK,
            help="Records behind one gradient. Repeatable. Default: 8 and 32.",
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ATTACK,
            help="Attack; [bold]seepage attacks[/bold] lists them. Repeatable. Default: unmix, inverting_gradients.",
        ),
    ] = None,
    defense: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_ATTACK,
            metavar="NAME[:OPTIONS]",
            help="What clients do to their updates before they send them; [bold]seepage defenses[/bold] lists them. "
            "Options in YAML, such as gaussian_noise:{scale: 0.01}. Repeatable. Default: none.",
        ),
    ] = None,
    victims: Annotated[
        int | None, typer.Option(rich_help_panel=_ATTACK, help="Batches attacked in each setting. Default: 10.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(rich_help_panel=_RUNNING, help="Everything random follows from it. Default: 0.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=_RUNNING, help="auto, cpu, cuda, cuda:1, ... Default: auto."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=_OUTPUT,
            help="Run folder. One that holds the same audit is continued: what was measured is kept and shown. "
            "Default: a new one in runs/.",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ATTACK,
            help="A ready document: which models, batch sizes and attacks are run. "
            + " ".join(f"[bold]{name}[/bold]: {what}" for name, what in presets().items())
            + " Default: default.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="restored|true",
            rich_help_panel=_KNOWLEDGE,
            help="restored: the attacker works the labels out; true: it is told. Default: restored.",
        ),
    ] = None,
    batch_statistics: Annotated[
        str | None,
        typer.Option(
            help="hidden, or granted: the attacker is told mean and variance of each batch where the model normalises "
            "it. Default: hidden."
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="default|faithful",
            rich_help_panel=_ATTACK,
            help="How attacks are configured, whatever the preset. default: the strongest settings we know; faithful: "
            "the official implementations' details. Default: default.",
        ),
    ] = None,
    replacement: Annotated[
        bool | None,
        typer.Option(
            "--replacement/--no-replacement",
            metavar="",
            rich_help_panel=_ATTACK,
            help="Whether a batch may hold a row twice. Default: no.",
            show_default=False,
        ),
    ] = None,
    restarts: Annotated[
        int | None,
        typer.Option(rich_help_panel=_ATTACK, help="Random starts of attacks that use several. Default: 30."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(rich_help_panel=_ATTACK, help="Descent steps of an attack. Default: 1500.")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", rich_help_panel=_ATTACK, help="Guess to compare with. Repeatable. Default: all."),
    ] = None,
    data_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=_TABLE,
            help="Where files of datasets are looked for; else the SEEPAGE_DATA folder.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(rich_help_panel=_RUNNING, help="Processes that compute at the same time. Default: one a core."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(rich_help_panel=_RUNNING, help="CPU threads of each worker. Default: 1.")
    ] = None,
    keep_records: Annotated[
        bool | None,
        typer.Option(
            "--keep-records",
            metavar="",
            rich_help_panel=_OUTPUT,
            help="Store true and reconstructed records of your own table. Default: no.",
            show_default=False,
        ),
    ] = None,
    control: Annotated[
        bool | None,
        typer.Option(
            "--control/--no-control",
            metavar="",
            rich_help_panel=_ATTACK,
            help="Whether a positive control shows that the attack works here. Default: yes.",
            show_default=False,
        ),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_RUNNING,
            metavar="TIME",
            help="Such as 30m or 2h: attack the first victims of every setting, then as many more as fit.",
            show_default=False,
        ),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_GATE,
            metavar="LIFT",
            help="Exit with status 1 where the lift over guessing may exceed this (0.2: 20 points), by the upper end "
            "of its interval, in any setting, or where the audit shows nothing.",
            show_default=False,
        ),
    ] = None,
    fail_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=_GATE,
            help="Column that --fail-above looks at. Default: all cells.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", metavar="", rich_help_panel=_OUTPUT, help="Print the results as JSON instead of tables."
        ),
    ] = False,
) -> None:
    """Attack gradients and report what was read out of them, beside what guessing would have got.

    Each victim is one batch of a client's records. Attacks see its gradient as the server does; their
    guesses are then matched to the true records. The run folder gets report.html to read in a browser, results.json
    and results.csv (one row a figure, with interval, baseline and lift), audit.sqlite (all that
    was measured, from which a run that was stopped continues) and provenance.json.

    [bold]Examples[/bold]

    The default audit of census records, under two minutes:

        seepage audit

    One setting, into a folder of your choice:

        seepage audit --dataset german --batch-size 8 --attack tableak --victims 4 --out german-8

    Your own table, with a look at the columns that matter:

        seepage audit --data patients.csv --target readmitted --sensitive hiv --sensitive age

    What a document says ([bold]seepage spec new[/bold] drafts one, of any of the four settings), with more victims:

        seepage audit audit.yaml --victims 40 --out mine

    A gate for a deployment pipeline: exit status 0 if it passes, 1 if it fails:

        seepage audit --data patients.csv --target readmitted --fail-above 0.2
    """
    if data is not None and dataset:
        raise BadInputError(
            f"either a dataset or a table of your own: give --dataset {dataset[0]} or --data {data}, not both."
        )
    if document is not None and preset is not None:
        raise BadInputError(f"either a document or a preset: give {str(document)!r} or --preset {preset}, not both.")
    if document is not None and document.name.endswith(_TABLES):
        raise BadInputError(
            f"{str(document)!r} is a table and no audit document; give it with --data {document} --target COLUMN."
        )
    given = {
        "dataset": dataset,
        "data": data,
        "target": target,
        "schema": schema,
        "sensitive": sensitive,
        "drop": drop,
        "overrides": dict(map(read_override, override)) if override else None,
        "missing": missing,
        "most_categories": most_categories,
        "separator": separator,
        "dataset_option": dict(map(read_dataset_option, dataset_option)) if dataset_option else None,
        "protocol": _with_options("--protocol", "fedavg:{epochs: 5}", protocol),
        "model": model,
        "weights": weights,
        "head": head,
        "model_seed": model_seed,
        "batch_size": batch_size,
        "attack": attack,
        "defense": _with_options("--defense", "gaussian_noise:{scale: 0.01}", defense),
        "baseline": baseline,
        "victims": victims,
        "seed": seed,
        "device": device,
        "labels": labels,
        "batch_statistics": batch_statistics,
        "profile": profile,
        "replacement": replacement,
        "restarts": restarts,
        "iterations": iterations,
        "data_folder": data_folder,
        "workers": workers,
        "threads": threads,
        "keep_records": keep_records,
        "control": control,
    }
    if document is None:
        text, name = read_preset(preset or "default"), f"preset {preset or 'default'}"
    else:
        text, name = read_text(document), str(document)
        if is_study(text, name):
            options = {**given, "time_budget": time_budget}
            _study(text, document, options, out, fail_above, fail_column, as_json)
            return
    specs = read_text_document(text, name, Path() if document is None else document.parent, given)
    subjects = Subjects(out)
    with of_document(document is not None and data is None):
        audits = [(spec, subjects.of(spec)) for spec in specs]
    pass_on = _gate(_limit(fail_above, fail_column, specs[0].gate), audits)
    budget = None if time_budget is None else seconds(time_budget)
    folder = _folder(out, audits[0][1].dataset.name)
    messages = make_console(stderr=True)
    for _, subject in audits[:1]:
        if subject.inferred is not None:
            show_inferred(messages, subject.inferred)
    with Bar(messages) as bar:
        kept = None if document is None else text
        reports = interruptible(lambda: audit_all(audits, folder, bar, budget, kept), folder)
    if as_json:
        print(results_json([row for report in reports for row in report.rows]))
    else:
        console = make_console()
        for report in reports:
            report.show(console)
        console.print(Text(f"Report: {folder / 'report.html'} (figures: results.json, results.csv)"))
    pass_on(reports)
    if any(report.failed for report in reports):
        raise typer.Exit(Exit.JOBS_FAILED)


# Options that are called otherwise than what they give.
_OPTIONS = {"overrides": "override", "control": "no-control"}


def _study(
    text: str,
    document: Path,
    options: Mapping[str, object],
    out: Path | None,
    fail_above: float | None,
    fail_column: str | None,
    as_json: bool,
) -> None:
    """Run a document of split, vertical or pooled learning."""
    unused = next((name for name, value in options.items() if value is not None), None)
    if unused is not None:
        raise BadInputError(
            f"{str(document)!r} is a study, beside which only --out, --fail-above, --fail-column and --json can be "
            f"given; say in the document what --{_OPTIONS.get(unused, unused).replace('_', '-')} says."
        )
    with of_document():
        made = read_study(text, str(document), document.parent)
    limit = _limit(fail_above, fail_column, made.gate)
    above, column = (None, None) if limit is None else (limit.above, limit.column)
    folder = _folder(out, made.study.dataset)
    run_study_command([(made.spec, made.study)], folder, above, column, as_json, text)


def _folder(out: Path | None, dataset: str) -> Path:
    return out or Path("runs") / f"{dataset}-{datetime.now():%Y%m%d-%H%M%S}"


def _limit(above: float | None, column: str | None, of_document: Gate | None) -> Gate | None:
    """Return the gate, whose parts on the command line take precedence."""
    limit = above if above is not None or of_document is None else of_document.above
    chosen = column if column is not None or of_document is None else of_document.column
    if limit is None:
        if chosen is not None:
            raise BadInputError(f"--fail-column {chosen} names what a gate looks at; add --fail-above LIFT.")
        return None
    check_gate(limit, None, ())
    return Gate(above=limit, column=chosen)


def _gate(limit: Gate | None, audits: Sequence[tuple[AuditSpec, Subject]]) -> Callable[[Sequence[Report]], None]:
    """Check a gate before anything runs, and return what decides and exits once there are reports."""
    if limit is None:
        return lambda _: None
    above, column = limit.above, limit.column
    for _, subject in audits:
        check_gate(above, column, subject.dataset.schema.names)

    def decide(reports: Sequence[Report]) -> None:
        decision = combined([gate(report.rows, above, column, report.alarms or ()) for report in reports])
        print(f"seepage: {decision.line}", file=sys.stderr)
        if decision.failed:
            raise typer.Exit(Exit.GATE_FAILED)

    return decide


def _with_options(option: str, example: str, texts: list[str] | None) -> list[Any] | None:
    """Return parts by name, or as name:{option: value}."""
    return [_part(option, example, text) for text in texts] if texts else None


def _part(option: str, example: str, text: str) -> Any:
    name, colon, said = text.partition(":")
    if not colon:
        return text
    try:
        return {"name": name, **parse(said, option).plain()}
    except (DocumentError, TypeError):
        raise BadInputError(f"{option} takes a name, or a name with options such as {example}, got {text!r}.") from None
