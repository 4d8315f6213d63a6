"""The grid of attacks that ``seepage attacks --for DOCUMENT`` prints."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Column
from rich.text import Text

from seepage.config.document import read_document
from seepage.report.terminal import make_table
from seepage.settings.catalogue import deployment_of, view_in_words
from seepage.settings.threat_model import NEEDS, Deployment, grid_of_attacks
from seepage.text import clean


def show_grid(console: Console, document: Path, allow_code: bool = False) -> None:
    """Print which registered attacks each deployment of a document admits, and why not the others."""
    # The networks that the document names are not loaded.
    specs = read_document(document, allow_code=allow_code or "networks")
    deployments = dict.fromkeys(deployment_of(spec) for spec in specs)
    for deployment in deployments:
        _show(console, deployment)


def _show(console: Console, deployment: Deployment) -> None:
    revealed = ", ".join(view_in_words(view.__name__) for view in deployment.reveals)
    model = f", model {clean(deployment.model)}" if deployment.model is not None else ""
    for name, part in deployment.defenses:
        console.print(Text(f"{name} acts on: {part}"))
    rows = []
    for applicability in grid_of_attacks(deployment):
        needs = ", ".join(NEEDS[need] for need in applicability.needs) or "–"
        applies = Text("yes", "green") if applicability.applies else Text("no", "yellow")
        why_not = Text(clean(applicability.reason or "", 400))
        rows.append(
            (applicability.attack, applies, " or ".join(map(view_in_words, applicability.sees)), needs, why_not)
        )
    title = f"{deployment.setting} learning by {deployment.protocol}{model}: reveals {revealed}"
    heads = (Column("attack", no_wrap=True), "applies", "takes", "needs", "why not")
    console.print(make_table(title, heads, rows))
