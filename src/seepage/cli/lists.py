"""``seepage datasets``, ``attacks``, ``defenses`` and ``models``: what can be named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar, runtime_checkable

import typer

from seepage import datasets, registry
from seepage.cli.app import app
from seepage.errors import unknown_name
from seepage.packages import LazyModule
from seepage.report.document import MISSING, Document, Grid, GridCell, Section, heads, rows_of
from seepage.report.terminal import make_console, say, show
from seepage.results.checks.finding import explanation, titles
from seepage.settings.catalogue import settings_of

if TYPE_CHECKING:
    from seepage.cli import grid as grids
else:
    # Imports PyTorch, which the lists do without.
    grids = LazyModule("seepage.cli.grid")


@runtime_checkable
class _Headed(Protocol):
    """A part that has a line in a list."""

    @property
    def heading(self) -> str | None:
        """Line under which the part is listed."""
        ...


Listed = TypeVar("Listed", bound=_Headed)


@app.command("datasets")
def datasets_(
    data_folder: Annotated[
        Path | None, typer.Option(help="Where files of datasets are looked for; else the SEEPAGE_DATA folder.")
    ] = None,
) -> None:
    """List the datasets, then texts and graphs for pooled learning, and where each would come from.

    Nothing is loaded. What is [bold]bundled[/bold] needs no network; of the rest, put the files into one folder and
    name it with SEEPAGE_DATA or --data-folder, or have them downloaded where that is possible.
    """
    sizes, sections = ("rows", "columns", "encoded"), []
    for heading, listings in _under_headings(datasets.catalogue(data_folder)):
        rows = []
        for listing in listings:
            size = [f"{n:,}" if n is not None else MISSING for n in (listing.rows, listing.columns, listing.width)]
            origin = listing.availability + (f": {listing.where}" if listing.where not in ("", "seepage") else "")
            what = f"{listing.summary} (pooled learning)" if listing.pooled else listing.summary
            rows.append((listing.name, *size, origin, what))
        columns = heads("name", *sizes, "from", "what", numbers=sizes)
        sections.append(_section(heading, Grid("", columns, rows_of(rows), most=None)))
    show(make_console(), Document("Datasets", sections))


@app.command()
def attacks(
    document: Annotated[
        Path | None,
        typer.Option(
            "--for",
            metavar="DOCUMENT",
            help="Audit document: says which attacks its deployments admit, and why not the others.",
            show_default=False,
        ),
    ] = None,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", metavar="", help="Let the document name attacks and defenses of your own.")
    ] = False,
) -> None:
    """List the attacks and baselines by setting.

    Those of horizontal learning are named to [bold]seepage audit[/bold], the others to [bold]seepage split[/bold],
    [bold]vertical[/bold] and [bold]pooled[/bold], which run the ones that they say by default. What only repeats the
    tables of a paper stands under the paper.
    """
    if document is not None:
        show(make_console(), grids.grid_document(document, allow_code))
        return
    listed = [
        (
            f"{setting}: seepage {'audit' if setting == 'horizontal' else setting}",
            [*registry.attacks.of(setting).entries(), *registry.baselines.of(setting).entries()],
        )
        for setting in settings_of(registry.attacks)
    ]
    show(make_console(), _document(listed))


@app.command()
def defenses() -> None:
    """List the defenses, setting by setting: what parties can do against leakage.

    Documents name them with options (name: cut_noise, noise_multiplier: 0.1), or several that are combined
    (all: [...], label: both).
    """
    listed = [(setting, registry.defenses.of(setting).entries()) for setting in settings_of(registry.defenses)]
    show(make_console(), _document(listed))


@app.command()
def checks(
    code: Annotated[
        str | None, typer.Argument(help="A code such as SEEP006; all if left out.", show_default=False)
    ] = None,
) -> None:
    """Say what the checks of an audit mean, why they matter and what to do.

    [bold]Example[/bold]

        seepage checks SEEP006
    """
    if code is None:
        say(Grid("", heads("code", "severity", "what"), rows_of(titles()), most=None))
        return
    titles_by_code = {of: (severity, title) for of, severity, title in titles()}
    if code.upper() not in titles_by_code:
        raise unknown_name("check", code, titles_by_code)
    severity, title = titles_by_code[code.upper()]
    say(*(explanation(code.upper()) or [f"{title} ({severity})."]))


@app.command()
def models() -> None:
    """List the networks. Of your own, name a factory: package.module:factory."""
    show(make_console(), _document([("", registry.models.entries())]))


def _document(listed: Iterable[tuple[str, Iterable[registry.Entry[object]]]]) -> Document:
    """Return entries as lists under their headings, and these under titles."""
    sections = []
    for title, entries in listed:
        lists = []
        for heading, group in _under_headings(entries):
            sources = ["" if entry.source is None else f"Source: {entry.source}." for entry in group]
            what = [GridCell(entry.summary, entry.summary, behind=of) for entry, of in zip(group, sources, strict=True)]
            rows = [(entry.name, entry.kind, cell) for entry, cell in zip(group, what, strict=True)]
            lists.append(_section(heading, Grid("", heads("name", "kind", "what"), rows_of(rows), most=None)))
        sections.append(Section(title, title, sections=lists))
    return Document("What can be named", sections)


def _section(heading: str | None, grid: Grid) -> Section:
    return Section(heading or "", "" if heading is None else f"{heading}:", [grid])


def _under_headings(listed: Iterable[Listed]) -> list[tuple[str | None, list[Listed]]]:
    """Return what is listed by heading: first what has none."""
    headed: dict[str | None, list[Listed]] = {None: []}
    for entry in listed:
        headed.setdefault(entry.heading, []).append(entry)
    return [(heading, group) for heading, group in headed.items() if group]
