"""``seepage attack``: what captured updates give away."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table as Grid
from rich.text import Text

from seepage import registry
from seepage.captures.captured import load_capture, read_description
from seepage.captures.certifying import check_new_certificate, write_certificate
from seepage.captures.federation import PROOFS_ONLY, FederationAttack, find_captures
from seepage.captures.recovery import (
    FILES,
    Recovered,
    check_new,
    client_schema,
    known_statistics,
    recover,
    write_recovered,
)
from seepage.captures.transcript_attacks import TranscriptAttack
from seepage.captures.transcript_runs import RECONSTRUCTION, RESULTS
from seepage.captures.transcripts import is_transcript, read_transcript
from seepage.captures.trees import is_tree_file, load_tree_files, read_trees
from seepage.cli.app import app
from seepage.cli.capture import DROPOUT_HELP, MODEL_HELP, SCHEMA_HELP, WEIGHTS_HELP
from seepage.cli.exits import Exit
from seepage.cli.text import shown_path
from seepage.devices import find_device
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.models.making import make_model
from seepage.report.federation import PAGE, render_federation, show_federation
from seepage.report.progress import Bar
from seepage.report.terminal import make_console, make_table
from seepage.report.transcript import show_transcript
from seepage.settings.horizontal.spec import make_spec
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from seepage.text import clean, percent, points, printable_json

_SHOWN = 4


@app.command()
def attack(
    update: Annotated[
        Path,
        typer.Argument(
            help="The captured update (.safetensors), see seepage capture --help; a folder of those of many clients "
            "and rounds; the folder of a transcript of split or vertical training; or a client's trees as xgboost's "
            "JSON, or a folder with those of its rounds."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results, made if need be.")],
    model: Annotated[
        str | None,
        typer.Option(help=MODEL_HELP + " Of a transcript: the network that it names, if left out. Of tree files none."),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help=SCHEMA_HELP + " Of a transcript: the one in its folder, if left out.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help=WEIGHTS_HELP)] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Public rows of the same kind (.csv, .parquet): what the attacker knows of the columns."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Records behind the update, where it does not say it. Default: counted.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="Attack; [bold]seepage attacks[/bold] lists them. Default: unmix, of a transcript all that can be "
            "tried. Repeatable for a transcript."
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            help="For a transcript: records that the attacker knows, with ids and the label, private columns or both."
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="The true rows of the batch, in any order: scores what was read. For a folder the client's own rows, "
            "or a folder with ID.csv for each client. For a transcript rows with ids."
        ),
    ] = None,
    holds: Annotated[
        int | None, typer.Option(help="For a folder: records that each client holds, from which it draws its batches.")
    ] = None,
    proofs_only: Annotated[
        bool, typer.Option("--proofs-only", help="Spend next to no time on estimates of what is not proved.")
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(help="File (.json) for a certificate of what was proved; [bold]seepage verify[/bold] checks it."),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Write cells and salts into the certificate, not into a file beside it.")
    ] = False,
    restore_labels: Annotated[
        bool, typer.Option("--restore-labels", help="Do not use the labels that the update may hold.")
    ] = False,
    head: Annotated[str | None, typer.Option(help="softmax, sigmoid or regression, if not the usual one.")] = None,
    model_seed: Annotated[int, typer.Option(help="Of the network's initialisation, without --weights.")] = 0,
    dropout: Annotated[str, typer.Option(help=DROPOUT_HELP)] = "on",
    profile: Annotated[str, typer.Option(help="default: the strongest attacks we know; faithful: as published.")] = (
        "default"
    ),
    restarts: Annotated[int | None, typer.Option(help="Random starts of an attack that uses several.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Descent steps.")] = None,
    regularisation: Annotated[float, typer.Option(help="Of tree files: lambda of the client's trees.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(help="Of tree files: eta of the client's trees.")] = 0.3,
    separator: Annotated[str, typer.Option(help="Between the cells of CSV files.")] = ",",
    seed: Annotated[int, typer.Option(help="Of the attack's random starts.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    allow_large: Annotated[
        bool, typer.Option("--allow-large", help="Attack batches that may take more memory than there is.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")] = False,
) -> None:
    """Reconstruct the records behind captured updates, without knowing them.

    The folder gets reconstruction.csv (the records that were read), confidence.csv (how sure the attacker is of
    each cell: certainty from 0 to 1, and for numbers the spread of its attempts) and results.json, for their
    owner alone. Certainty is the attacker's own: attempts can agree and be wrong.

    Of a folder every update is attacked, and the rounds of one client are linked. Each update gets a folder in --out,
    all of them report.html and results.json. An update that cannot be attacked, or fails, is reported, and the others
    go on; the status is then 3.

    [bold]Examples[/bold]

        seepage attack update.safetensors --model nn3 --weights model.safetensors --schema people.yaml --out read

        seepage attack update.safetensors --model networks:build --schema people.yaml --truth batch.csv --out read

        seepage attack captured --model nn3 --schema people.yaml --proofs-only --out read

        seepage attack transcript --truth people.csv --out read

        seepage attack client.json --schema people.yaml --data public.csv --out read
    """
    if is_transcript(update):
        others = {
            "--weights": weights,
            "--batch-size": batch_size,
            "--holds": holds,
            "--proofs-only": proofs_only,
            "--certificate": certificate,
            "--restore-labels": restore_labels,
            "--head": head,
            "--restarts": restarts,
            "--iterations": iterations,
        }
        refused = [name for name, value in others.items() if value]
        if refused:
            raise BadInputError(f"{refused[0]} is of captured updates; leave it out for a transcript.")
        torch.set_num_threads(make_spec(threads=threads).threads)
        training = read_transcript(update, None if schema is None else Schema.load(schema))
        made = TranscriptAttack(training, model, attack or [], data, known, truth, separator, seed)
        _attack_transcript(out, made, as_json)
        return
    if known is not None:
        raise BadInputError("--known is of the records of a transcript; leave it out for captured updates.")
    if is_tree_file(update):
        if model is not None or weights is not None or certificate is not None or holds is not None:
            raise BadInputError(
                "tree files have no network, weights, certificate or batches; leave out --model, --weights, "
                "--certificate and --holds."
            )
        if not learning_rate > 0 or not regularisation >= 0 or (batch_size is not None and batch_size < 1):
            raise BadInputError(
                "eta is above 0, lambda at least 0 and a number of rows at least 1, got --learning-rate "
                f"{learning_rate}, --regularisation {regularisation}, --batch-size {batch_size}."
            )
        if schema is None:
            raise BadInputError("tree files are read with the schema of the client's table; give it with --schema.")
        table = Schema.load(schema)
        _attack_trees(
            update, table, data, truth, out, separator, batch_size, regularisation, learning_rate, seed, as_json
        )
        return
    if model is None or schema is None:
        lacking = "--model" if model is None else "--schema"
        raise BadInputError(f"Missing option '{lacking}': captured updates are attacked with their model and schema.")
    if attack is not None and len(attack) > 1:
        raise BadInputError(
            f"captured updates are read by one attack, got {' and '.join(attack)}; name one, and the others in further "
            "commands with an --out of their own."
        )
    chosen = attack[0] if attack else "unmix"
    spec = make_spec(
        head=head, device=device, threads=threads, seed=seed, profile=profile, model_seed=model_seed, dropout=dropout
    )
    if (restarts is not None and restarts < 1) or (iterations is not None and iterations < 1):
        raise BadInputError(
            f"restarts and iterations are at least 1, got --restarts {restarts} and --iterations {iterations}."
        )
    if proofs_only and (restarts is not None or iterations is not None):
        raise BadInputError("--proofs-only estimates nothing; leave out --restarts and --iterations.")
    if proofs_only:
        restarts, iterations = PROOFS_ONLY["restarts"], PROOFS_ONLY["iterations"]
    if certificate is None and open_:
        raise BadInputError("--open says what a certificate holds; give its file with --certificate FILE.")
    options = _options(chosen, profile, restarts, iterations)
    torch.set_num_threads(spec.threads)
    if update.is_dir():
        if certificate is not None:
            raise BadInputError("--certificate is of one update; give its file in place of the folder.")
        federation = FederationAttack(
            model,
            Schema.load(schema),
            chosen,
            options,
            reference=data,
            truth=truth,
            weights=weights,
            batch_size=batch_size,
            holds=holds,
            head=spec.head,
            separator=separator,
            device=find_device(spec.device),
            seed=seed,
            restore_labels=restore_labels,
            allow_large=allow_large,
        )
        _attack_folder(update, out, federation, as_json)
        return
    if holds is not None:
        raise BadInputError("--holds is for a folder of updates of several rounds; leave it out for one update.")
    check_new(out)
    if certificate is not None:
        check_new_certificate(certificate)
    about = read_description(update)
    table = client_schema(Schema.load(schema), about)
    reference = None if data is None else Table.read(data, table, separator, missing=None)
    rows = None if truth is None else Table.read(truth, table, separator, missing=None)
    statistics, origin = known_statistics(table, about, reference)
    network, _ = make_model(
        model,
        table,
        statistics,
        seed=model_seed,
        head=spec.head or about.head,
        weights=weights,
        dropout=spec.dropout,
        device=find_device(spec.device),
    )
    capture = load_capture(update, network, table)
    if restore_labels:
        capture = capture.without_labels()
    with Bar(make_console(stderr=True)) as bar:
        bar.begin(1.0, jobs=1)
        recovered = recover(
            capture,
            table,
            statistics,
            origin,
            chosen,
            batch_size=batch_size,
            options=options,
            seed=seed,
            truth=rows,
            progress=bar.advance,
            allow_large=allow_large,
        )
    write_recovered(out, recovered)
    written = None
    if certificate is not None:
        written = write_certificate(certificate, recovered.guess, capture.view, table, statistics, opened=open_)
    if as_json:
        print((out / FILES[2]).read_text(encoding="utf-8"), end="")
        return
    _show(recovered, initial=weights is None, model_seed=model_seed)
    make_console().print(Text(f"Read records: {shown_path(out / FILES[0])}; certainties: {shown_path(out / FILES[1])}"))
    if written is not None:
        make_console().print(Text(f"Certificate: {written}. File: {shown_path(written.certificate)}"))
        if written.opened is not None:
            opened = shown_path(written.opened)
            make_console().print(Text(f"Cells and salts, which are personal data, stay with you: {opened}"))


def _attack_trees(
    files: Path,
    schema: Schema,
    data: Path | None,
    truth: Path | None,
    out: Path,
    separator: str,
    records: int | None,
    regularisation: float,
    learning_rate: float,
    seed: int,
    as_json: bool,
) -> None:
    """Read a client's tree files, write what they give away and show it."""
    check_new(out, (FILES[0], FILES[2]))
    if data is None:
        raise BadInputError(
            "cells that trees do not tell are drawn from public rows of the same kind; give some with --data FILE."
        )
    public = Table.read(data, schema, separator, missing=None)
    rows = None if truth is None else Table.read(truth, schema, separator, missing=None)
    message = load_tree_files(files, schema.width)
    found = read_trees(message, schema, Statistics.of(public), records, regularisation, learning_rate, seed, rows)
    plain = printable_json(found.to_plain())
    write_whole(out / FILES[0], frame_of(schema, found.guess.cells[0]).to_csv(index=False), private=True)
    write_whole(out / FILES[2], plain + "\n", private=True)
    if as_json:
        print(plain)
        return
    console = make_console()
    console.print(Text(f"{len(message.own)} trees of a client with {found.records} rows", style="bold"))
    if found.leaves:
        console.print(Text(f"  · rows of each class in the first tree's {len(found.leaves)} leaves are known exactly"))
    for name, values in found.values.items():
        some = ", ".join(f"{value:g}" for value in values[:_SHOWN]) + ", ..." * (len(values) > _SHOWN)
        console.print(Text(f"  · {clean(name, 32)}: {len(values)} values of its rows: {some}"))
    for name, score in found.scores.items():
        console.print(Text(f"  · cells right by {name}: {percent(score)}"))
    guessed, counts = shown_path(out / FILES[0]), shown_path(out / FILES[2])
    console.print(Text(f"Guessed records: {guessed}; counts, values and sums: {counts}"))


def _attack_folder(folder: Path, out: Path, federation: FederationAttack, as_json: bool) -> None:
    """Attack all updates of a folder, write the results and show them."""
    check_new(out, (FILES[2], PAGE))
    for file in find_captures(folder, federation.weights):
        check_new(out / file.name)

    def keep(name: str, recovered: Recovered) -> None:
        write_recovered(out / name, recovered)

    with Bar(make_console(stderr=True)) as bar:
        findings = federation.run(folder, bar, keep)
    plain = printable_json(findings.to_plain())
    write_whole(out / PAGE, render_federation(findings), private=True)
    write_whole(out / FILES[2], plain + "\n", private=True)
    if as_json:
        print(plain)
    else:
        console = make_console()
        show_federation(console, findings)
        console.print(Text(f"Report: {shown_path(out / PAGE)}; records that were read: a folder an update beside it"))
    if findings.incomplete:
        raise typer.Exit(Exit.JOBS_FAILED)


def _attack_transcript(out: Path, made: TranscriptAttack, as_json: bool) -> None:
    """Attack a transcript, write the results and show them."""
    check_new(out, (RESULTS, RECONSTRUCTION))
    errors = make_console(stderr=True)
    findings = made.run(lambda label: errors.print(Text(f"{label} ...", "dim")))
    findings.write(out)
    if as_json:
        print((out / RESULTS).read_text(encoding="utf-8"), end="")
        return
    console = make_console()
    show_transcript(console, findings)
    console.print(Text(f"Read cells: {shown_path(out / RECONSTRUCTION)}; results: {shown_path(out / RESULTS)}"))


def _options(attack: str, profile: str, restarts: int | None, iterations: int | None) -> dict[str, Any]:
    """Return what was asked for; each attack says itself what it does not take."""
    parameters = inspect.signature(registry.attacks.of("horizontal")[attack].factory).parameters
    options: dict[str, Any] = {}
    if profile != "default" or "profile" in parameters:
        options["profile"] = profile
    return options | {
        name: value for name, value in (("restarts", restarts), ("iterations", iterations)) if value is not None
    }


def _show(recovered: Recovered, initial: bool, model_seed: int) -> None:
    console = make_console()
    settings = recovered.settings
    console.print()
    console.print(
        Text(f"{settings['attack']} on an update of {settings['batch_size']} record(s)", style="bold")
        + Text(f" · {settings['protocol']}, model {clean(settings['model'])}", style="not bold")
    )
    counted = recovered.knowledge["records"]
    facts = [
        f"number of records: {counted}",
        f"columns: {recovered.knowledge['statistics']}",
        f"labels: {recovered.knowledge['labels']}",
    ]
    if initial:
        facts.append(f"weights: those of the model's initialisation with seed {model_seed}; give --weights if it moved")
    for fact in (*facts, *recovered.notes):
        console.print(Text(f"  · {clean(fact, 300)}"))
    records = recovered.records
    shown = min(_SHOWN, len(records))
    grid = make_table(
        f"What was read{'' if shown == len(records) else f', first {shown} of {len(records)} records'} (certainty)"
    )
    grid.add_column("column", no_wrap=True)
    for i in range(shown):
        grid.add_column(f"record {i + 1}")
    for i, name in enumerate(recovered.schema.names):
        cells = [_cell(records.iat[r, i], recovered.certainty[r, i], recovered.spread[r, i]) for r in range(shown)]
        grid.add_row(Text(clean(name, 32)), *cells)
    if recovered.guess.labels is not None:
        target = recovered.schema.target.name
        grid.add_row(
            Text(f"{clean(target, 32)} (label)"), *(Text(clean(records[target].iat[r], 24)) for r in range(shown))
        )
    console.print(grid)
    if recovered.scores is not None:
        console.print(_scores(recovered))


def _cell(value: object, certainty: torch.Tensor, spread: torch.Tensor) -> Text:
    text = Text(f"{value:.6g}" if isinstance(value, float) else clean(value, 24))
    if bool(certainty.isfinite()):
        around = f", ±{float(spread):.3g}" if bool(spread.isfinite()) else ""
        text.append(f" ({percent(float(certainty), 0)}{around})", "dim")
    return text


def _scores(recovered: Recovered) -> Grid:
    grid = make_table("Beside the truth: share of cells read, and the best baseline, which has no update")
    grid.add_column("cells", no_wrap=True)
    for name in ("read", "best baseline", "lift in points"):
        grid.add_column(name, justify="right")
    for row in recovered.scores or []:
        if row["metric"] == "accuracy":
            name = "all" if row["column"] is None else clean(row["column"], 32)
        elif row["metric"] in ("accuracy_discrete", "accuracy_continuous", "exact_match") and row["column"] is None:
            name = {"accuracy_discrete": "all categories", "accuracy_continuous": "all numbers"}.get(
                row["metric"], "whole records"
            )
        else:
            continue
        guess = "–" if row["baseline"] is None else f"{percent(row['baseline'])} {row['baseline_name']}"
        grid.add_row(Text(name), percent(row["value"]), Text(guess), points(row["lift"]))
    return grid
