"""The grid of attacks that ``seepage attacks --for DOCUMENT`` prints."""

from __future__ import annotations

from pathlib import Path

from seepage.config.document import read_document
from seepage.report.document import MISSING, Document, Grid, GridCell, Section, heads, rows_of
from seepage.settings.catalogue import deployment_of, view_in_words
from seepage.settings.threat_model import NEEDS, Deployment, grid_of_attacks
from seepage.text import clean


def grid_document(document: Path, allow_code: bool = False) -> Document:
    """Return which registered attacks each deployment of a document admits, and why not the others."""
    # The networks that the document names are not loaded.
    specs = read_document(document, allow_code=allow_code or "networks")
    deployments = dict.fromkeys(map(deployment_of, specs))
    return Document("Attacks that apply", list(map(_deployment_section, deployments)))


def _deployment_section(deployment: Deployment) -> Section:
    revealed = ", ".join(view_in_words(view.__name__) for view in deployment.reveals)
    model = f", model {clean(deployment.model)}" if deployment.model is not None else ""
    rows = []
    for applicability in grid_of_attacks(deployment):
        needs = ", ".join(NEEDS[need] for need in applicability.needs) or MISSING
        applies = GridCell("yes", "yes", "tier little") if applicability.applies else GridCell("no", "no", "tier gain")
        sees = " or ".join(map(view_in_words, applicability.sees))
        rows.append((applicability.attack, applies, sees, needs, clean(applicability.reason or "", 400)))
    title = f"{deployment.setting} learning by {deployment.protocol}{model}: reveals {revealed}"
    grid = Grid(title, heads("attack", "applies", "takes", "needs", "why not"), rows_of(rows), most=None)
    return Section("", "", [*(f"{name} acts on: {part}" for name, part in deployment.defenses), grid])
