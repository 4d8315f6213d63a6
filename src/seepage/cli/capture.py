"""``seepage capture``: a real client's update on disk, its form and a check of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import save

from seepage.captures.captured import (
    Description,
    attacker_statistics,
    client_schema,
    encoding_of,
    load_capture,
    read_description,
    save_capture,
    states_encoding,
)
from seepage.cli.app import app
from seepage.cli.exits import shown_path
from seepage.errors import BadInputError
from seepage.files import make_folder, write_whole
from seepage.models.making import make_model
from seepage.models.weights import lacking
from seepage.protocols.fedsgd import FedSGD
from seepage.report.document import Grid, Points, heads, rows_of
from seepage.report.terminal import say
from seepage.seeds import stream
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.schema import Schema
from seepage.text import clean, how_many, percent

captures = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Hold on to a real client's update, in a form that is safe to read.\n\n"
        "A captured update is a [bold]safetensors[/bold] file: for each parameter that is sent, under the name that "
        "model.named_parameters() gives it, the gradient of the batch's mean loss, or the parameters before local "
        "training less those after it, as float32 (float16, bfloat16 and float64 are taken too). What else is known is "
        "JSON, as the entry [bold]seepage[/bold] of the file's metadata or in a file beside it (update.json for "
        "update.safetensors):\n\n"
        "format: 2 · protocol: fedsgd or fedavg · batch_size: number of records · training: optimiser, rate, epochs "
        "and what else a fedavg client was told · clients: number of clients in an average · defense: its name and "
        "options · precision: number format of the client's computation · model: its name · sent: digest of the model "
        "as sent · head: softmax, sigmoid or regression · encoding: mean and std with which rows are standardised, or "
        "encoder: the client's own encoder · client, round: name and number, by which updates of one client are linked "
        "· local: unknown, as_sent or frozen, what the client trained with of parameters that the file lacks "
        "· labels: one a record, only where the attacker is to be granted them. All "
        "of them may be left out.\n\n"
        "A client writes one with a single line of Python after loss.backward():\n\n"
        "    seepage.capture(model.named_parameters(), 'update.safetensors', batch_size=len(rows))\n\n"
        "or after local training, and with Opacus before the optimiser's step:\n\n"
        "    seepage.capture(before, after, 'update.safetensors', training=training)\n\n"
        "    seepage.capture(model.named_parameters(), 'update.safetensors', optimizer=optimizer)\n\n"
        "Files are never unpickled. An update tells of the records behind it: treat it like them."
    ),
)
app.add_typer(captures, name="capture")

MODEL_HELP = "The network: a name of [bold]seepage models[/bold], package.module:factory or path/to/file.py:factory."
SCHEMA_HELP = "YAML schema of the client's table; [bold]seepage schema[/bold] drafts one."
DROPOUT_HELP = (
    "A network that drops values in training: on, or off where the update was computed without dropout, or to attack "
    "it as if."
)
WEIGHTS_HELP = "Its weights when the update was made (.safetensors). Default: those of its initialisation."


@captures.command()
def check(
    update: Annotated[Path, typer.Argument(help="The captured update (.safetensors).")],
    model: Annotated[str, typer.Option(help=MODEL_HELP)],
    schema: Annotated[Path, typer.Option(help=SCHEMA_HELP)],
    weights: Annotated[Path | None, typer.Option(help=WEIGHTS_HELP)] = None,
    head: Annotated[str | None, typer.Option(help="softmax, sigmoid or regression, if not the usual one.")] = None,
    model_seed: Annotated[int, typer.Option(help="Of the network's initialisation.")] = 0,
    dropout: Annotated[str, typer.Option(help=DROPOUT_HELP)] = "on",
) -> None:
    """Check that a captured update is whole and can be one of a model.

    [bold]Example[/bold]

        seepage capture check update.safetensors --model networks:build --schema people.yaml
    """
    about = read_description(update)
    table = client_schema(Schema.load(schema), about)
    statistics, _ = attacker_statistics(table, about)
    spec = make_spec(head=head or about.head, model_seed=model_seed, dropout=dropout)
    network, _ = make_model(
        model, table, statistics, seed=model_seed, head=spec.head, weights=weights, dropout=spec.dropout, partial=True
    )
    unknown = () if weights is None else lacking(network.module, weights)
    capture = load_capture(update, network, table, unknown)
    title = f"{clean(update.name)}: {capture.about.describe()}; model {clean(network.name)}"
    numbers = ("norm", "largest entry", "zeros")
    rows = [
        (
            clean(name),
            " x ".join(map(str, tensor.shape[1:])),
            f"{float(tensor.norm()):.3g}",
            f"{float(tensor.abs().max()) if tensor.numel() else 0:.3g}",
            percent(float((tensor == 0).double().mean()), 0),
        )
        for name, tensor in capture.view.message.items()
    ]
    grid = Grid(title, heads("parameter", "shape", *numbers, numbers=numbers), rows_of(rows), most=None)
    facts = {
        "records": about.batch_size or "not said: give seepage attack --batch-size",
        "labels": "granted" if about.labels is not None else "not granted: the attacker restores them",
        "rows are standardised": "with what the update says" if states_encoding(about) else "not said",
        "running statistics": "those of the batch can be read" if capture.batch_statistics else "none of one batch",
    }
    points = [
        *(f"{name}: {value}" for name, value in facts.items()),
        *(f"note: {clean(n, 400)}" for n in capture.notes),
    ]
    say(grid, Points(points), "The update fits the model.")


@captures.command()
def example(
    out: Annotated[Path, typer.Option(help="Folder that the files are written to.")],
    dataset: Annotated[str | None, typer.Option(help="Dataset by name. Default: adult.")] = None,
    data: Annotated[Path | None, typer.Option(help="A table of your own instead.")] = None,
    target: Annotated[str | None, typer.Option(help="The column of your table that the model learns.")] = None,
    schema: Annotated[Path | None, typer.Option(help="YAML schema of your table. Inferred if left out.")] = None,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "nn3",
    weights: Annotated[Path | None, typer.Option(help=WEIGHTS_HELP)] = None,
    head: Annotated[str | None, typer.Option(help="softmax, sigmoid or regression, if not the usual one.")] = None,
    batch_size: Annotated[int, typer.Option(help="Records behind the update.")] = 1,
    labels: Annotated[bool, typer.Option("--labels", help="Grant the attacker the labels.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="Write all rows as reference.csv, to stand for public ones.")
    ] = False,
    dropout: Annotated[str, typer.Option(help=DROPOUT_HELP)] = "on",
    seed: Annotated[int, typer.Option(help="Of the batch and of the network's initialisation.")] = 0,
) -> None:
    """Make a captured update from a table: that of the first victim of an audit with the same seed.

    The folder gets update.safetensors, model.safetensors (the weights), schema.yaml, encoder.json and truth.csv (the
    records of the batch), for their owner alone.

    [bold]Example[/bold]

        seepage capture example --dataset adult --batch-size 1 --out client

        seepage attack client/update.safetensors --model nn3 --weights client/model.safetensors
        --schema client/schema.yaml --truth client/truth.csv --out read
    """
    given: dict[str, object] = {"dataset": dataset, "data": data, "target": target, "schema_file": schema, "head": head}
    given |= {"weights": weights, "dropout": dropout}
    spec = make_spec(
        model=model,
        batch_sizes=batch_size,
        seed=seed,
        device="cpu",
        **{name: value for name, value in given.items() if value is not None},
    )
    if data is not None and dataset is not None:
        raise BadInputError(
            f"either a dataset or a table of your own: give --dataset {dataset} or --data {data}, not both."
        )
    there = [name for name in ("update.safetensors", "update.json", "truth.csv") if (out / name).exists()]
    if there:
        raise BadInputError(f"{str(out)!r} holds {there[0]} already; choose another --out or move it away.")
    subject = prepare(spec)
    torch.set_num_threads(spec.threads)
    rows = subject.dataset.train
    transcript = FedSGD(batch_size).run(subject.model, rows, subject.encoder, [stream(seed, 0, "batch")])
    encoding = encoding_of(subject.dataset.statistics)
    about = Description(
        batch_size=batch_size,
        model=subject.model.name,
        head=subject.model.head,
        encoding=encoding,
        labels=tuple(transcript.secret.labels[0].tolist()) if labels else None,
    )
    state = {name: tensor.cpu().contiguous().clone() for name, tensor in subject.model.module.state_dict().items()}
    truth = rows.of_cells(transcript.secret.cells[0], transcript.secret.labels[0])
    files: dict[str, str | bytes] = {
        "model.safetensors": save(state),
        "schema.yaml": rows.schema.to_yaml(),
        "encoder.json": ClientEncoder.of_schema(rows.schema, encoding.mean, encoding.std).to_json(),
        "truth.csv": truth.frame.to_csv(index=False),
    }
    if reference:
        files["reference.csv"] = subject.dataset.all.frame.to_csv(index=False)
    make_folder(out, private=True)
    for name, content in files.items():
        write_whole(out / name, content, private=True)
    # Last: where it is, the others are whole.
    save_capture(out / "update.safetensors", {n: g[0] for n, g in transcript.view.message.items()}, about)
    place = shown_path(out / "update.safetensors")
    print(f"An update of {how_many(batch_size, 'record')} of {clean(subject.dataset.name)} is in {place}")
