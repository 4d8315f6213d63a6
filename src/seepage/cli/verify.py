"""``seepage verify``: a certificate, checked by the module that needs nothing of seepage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seepage import verify as verifier
from seepage.cli.app import app


@app.command()
def verify(
    certificate: Annotated[Path, typer.Argument(help="The certificate (.json).")],
    update: Annotated[Path, typer.Argument(help="The update that it is of (.safetensors).")],
    model: Annotated[Path, typer.Argument(help="The network (.json): its layers, and the file of its weights.")],
    opened: Annotated[
        Path | None, typer.Option(help="The certified cells and their salts (.json), where they may be seen.")
    ] = None,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Run the Python file that the model names, if it names one.")
    ] = False,
) -> None:
    """Check a certificate that [bold]seepage attack --certificate[/bold] wrote.

    With opened cells, the records have to replay the update, and no other value of a certified cell may. Without
    them only digests, conditions and form are checked. The first line says which of the two was done.

    The same check runs without seepage: [bold]python verify.py[/bold], a file that needs PyTorch alone. Exit status: 0
    accepted, 1 refused, 2 wrong use.

    [bold]Example[/bold]

        seepage verify proof.json update.safetensors proof.model.json --opened proof.opened.json
    """
    arguments = [str(certificate), str(update), str(model)]
    arguments += [] if opened is None else ["--opened", str(opened)]
    raise typer.Exit(verifier.main(["--allow-code", *arguments] if allow_code else arguments))
