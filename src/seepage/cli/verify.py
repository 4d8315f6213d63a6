"""``seepage verify``: a certificate, checked by the kernel on what the verifier brings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from seepage.attacks.horizontal.exact.proving import declaration
from seepage.captures.captured import (
    Description,
    as_description,
    attacker_statistics,
    client_schema,
    json_object,
    load_capture,
    states_encoding,
)
from seepage.cli.app import app
from seepage.cli.capture import MODEL_HELP, SCHEMA_HELP, WEIGHTS_HELP
from seepage.cli.exits import Exit
from seepage.errors import BadInputError
from seepage.files import read_text
from seepage.kernel import RefusedError
from seepage.models.making import make_model
from seepage.report.document import Block, Points
from seepage.report.terminal import say
from seepage.settings.horizontal.spec import make_spec
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.schema import Discrete, Schema
from seepage.text import clean
from seepage.verify import CheckedCertificate, check
from seepage.wire.horizontal import Knowledge

_LONGEST = 600
_UNDECLARED = "{}: a proof needs a declaration (--declaration FILE) that they are as_sent or frozen (local)"


@app.command()
def verify(
    certificate: Annotated[Path, typer.Argument(help="The certificate (.json).")],
    update: Annotated[Path, typer.Option(help="The update, as you received it (.safetensors).")],
    model: Annotated[str, typer.Option(help=MODEL_HELP)],
    schema: Annotated[Path, typer.Option(help=SCHEMA_HELP)],
    weights: Annotated[Path | None, typer.Option(help=WEIGHTS_HELP)] = None,
    encoder: Annotated[Path | None, typer.Option(help="Declaration of the client's encoder (.json).")] = None,
    records: Annotated[int | None, typer.Option(help="Number of records behind the update.")] = None,
    declared: Annotated[
        Path | None,
        typer.Option(
            "--declaration",
            help="Description of the update (.json), see seepage capture --help: local training, defense, precision, "
            "and the encoder, where --encoder is left out. Default: the mean gradient of one batch.",
        ),
    ] = None,
    head: Annotated[str | None, typer.Option(help="softmax, sigmoid or regression, if not the usual one.")] = None,
    opened: Annotated[
        Path | None, typer.Option(help="The certified cells and their salts (.json), where they may be seen.")
    ] = None,
) -> None:
    """Check a certificate that [bold]seepage attack --certificate[/bold] wrote.

    Update, model, schema, encoder and declaration are your own: what the certificate says of them is compared, and what
    the update's file says of itself is not read, but for the type of its numbers. The kernel then proves the cells anew
    from the opened records.

    Exit status: 0 all claimed cells are verified, 1 refused, 2 wrong use, 4 no cell is opened, or some are proved only
    given what the output names.

    [bold]Example[/bold]

        seepage verify proof.json --opened proof.opened.json --update update.safetensors --model nn3
        --weights model.safetensors --schema schema.yaml --encoder encoder.json --records 4
    """
    about = _verifier_declaration(declared, encoder, records, make_spec(head=head).head)
    assert about.batch_size is not None
    table = client_schema(Schema.load(schema), about)
    statistics, _ = attacker_statistics(table, about)
    network, _ = make_model(model, table, statistics, head=about.head, weights=weights)
    received = load_capture(update, network)
    view = received.view
    network, message = view.model, {name: part[0] for name, part in view.message.items()}
    if network.local is not None:
        # What stayed with the client is the verifier's to declare, not the update's.
        if about.local not in ("as_sent", "frozen"):
            say(_refused(_UNDECLARED.format(network.local.in_words())))
            raise typer.Exit(Exit.GATE_FAILED)
        network = replace(network, local=network.local._replace(trained=about.local == "as_sent", known=True))
    knowledge = Knowledge(table, statistics, about.batch_size, defense=about.known(about.batch_size))
    classes = table.target.width if isinstance(table.target, Discrete) else 0
    try:
        kernel_declaration = declaration(about.view(network, message), knowledge)
        if about.precision not in (None, "float32"):
            kernel_declaration = kernel_declaration._replace(precision=about.precision)
        elif received.coarsest is not None and kernel_declaration.precision == "float32":
            # The file's own type says so, however few numbers it holds.
            kernel_declaration = kernel_declaration._replace(precision=received.coarsest)
        verdict = check(certificate, opened, network.module, network.parameters, message, kernel_declaration, classes)
    except OSError as error:
        raise BadInputError(f"the certificate cannot be read: {error}.") from error
    except RefusedError as why:
        say(_refused(str(why)))
        raise typer.Exit(Exit.GATE_FAILED) from why
    say(*_outcome_blocks(verdict, kernel_declaration.describe()))
    raise typer.Exit(Exit.DONE if verdict.verified and not verdict.given else Exit.UNDECIDED)


def _verifier_declaration(
    declared: Path | None, encoder: Path | None, records: int | None, head: str | None
) -> Description:
    """Return the verifier's declaration, from the options and a file."""
    about = Description()
    if declared is not None:
        what, advice = f"the declaration {str(declared)!r}", "write it as a description of captured updates"
        try:
            about = as_description(json_object(read_text(declared, what), what, advice), what)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{what} cannot be read: {error}.") from error
    given = {"encoder": None if encoder is None else ClientEncoder.load(encoder), "batch_size": records, "head": head}
    for name, value in given.items():
        if value is not None and getattr(about, name) not in (None, value):
            raise BadInputError(f"the declaration has another {name} than the option; give it once.")
    about = as_description(about.model_dump() | {k: v for k, v in given.items() if v is not None}, "the declaration")
    if not states_encoding(about) or about.batch_size is None:
        lacking = "--encoder FILE" if about.batch_size else "--records N"
        raise BadInputError(f"a proof depends on how rows are encoded and on how many there are; give {lacking}.")
    return about


def _refused(why: str) -> str:
    return f"REFUSED: {clean(why, _LONGEST)}."


def _outcome_blocks(verdict: CheckedCertificate, conditions: tuple[str, ...]) -> list[Block]:
    """Return the outcome, and everything that it is conditional on."""
    if verdict.proof is None:
        lines = [
            "NOT VERIFIED, FORM ONLY: digests, declaration and form agree; no cell was opened, and none is proved."
        ]
    else:
        lines = [f"{'VERIFIED' if verdict.verified else 'NOT VERIFIED'}: {verdict.verified} of {verdict.cells} cells."]
        if verdict.given:
            fixed = " and ".join(verdict.proof.fixed)
            lines.append(
                f"GIVEN, not verified: {verdict.given} of {verdict.cells} cells, proved only given that {fixed}."
            )
    texts = [clean(line, len(line)) for line in (*lines, "Conditions, which are your own:")]
    return [*texts, Points([clean(condition, len(condition)) for condition in conditions])]
