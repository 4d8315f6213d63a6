"""``seepage datasets``, ``attacks``, ``defenses`` and ``models``: what can be named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar, runtime_checkable

import typer
from rich.table import Column, Table
from rich.text import Text

from seepage import datasets, registry
from seepage.cli.app import app
from seepage.errors import unknown_name
from seepage.packages import LazyModule
from seepage.report.terminal import figures, make_console, make_list
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
    for heading, listings in _under_headings(datasets.catalogue(data_folder)):
        rows = []
        for listing in listings:
            size = [f"{n:,}" if n is not None else "–" for n in (listing.rows, listing.columns, listing.width)]
            origin = listing.availability + (f": {listing.where}" if listing.where not in ("", "seepage") else "")
            what = f"{listing.summary} (pooled learning)" if listing.pooled else listing.summary
            rows.append((listing.name, *size, Text(origin), Text(what)))
        sizes = figures("rows", "columns", "encoded", no_wrap=True)
        _show(heading, make_list((Column("name", no_wrap=True), *sizes, "from", "what"), rows))


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
        grids.show_grid(make_console(), document, allow_code)
        return
    for setting in settings_of(registry.attacks):
        command = "audit" if setting == "horizontal" else setting
        make_console().print(Text(f"{setting}: seepage {command}", style="bold"))
        _list([*registry.attacks.of(setting).entries(), *registry.baselines.of(setting).entries()])


@app.command()
def defenses() -> None:
    """List the defenses, setting by setting: what parties can do against leakage.

    Documents name them with options (name: cut_noise, noise_multiplier: 0.1), or several that are combined
    (all: [...], label: both).
    """
    for setting in settings_of(registry.defenses):
        make_console().print(Text(setting, style="bold"))
        _list(registry.defenses.of(setting).entries())


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
    console = make_console()
    if code is None:
        rows = [(of, severity, Text(title)) for of, severity, title in titles()]
        console.print(make_list(("code", "severity", "what"), rows))
        return
    titles_by_code = {of: (severity, title) for of, severity, title in titles()}
    if code.upper() not in titles_by_code:
        raise unknown_name("check", code, titles_by_code)
    severity, title = titles_by_code[code.upper()]
    for words in explanation(code.upper()) or [f"{title} ({severity})."]:
        console.print(Text(words))


@app.command()
def models() -> None:
    """List the networks. Of your own, name a factory: package.module:factory."""
    _list(registry.models.entries())


def _list(entries: Iterable[registry.Entry[object]]) -> None:
    for heading, some in _under_headings(entries):
        rows = []
        for entry in some:
            what = Text(entry.summary)
            if entry.source is not None:
                what.append(f" Source: {entry.source}.", "dim")
            rows.append((entry.name, entry.kind, what))
        _show(heading, make_list((Column("name", no_wrap=True), "kind", "what"), rows))


def _under_headings(listed: Iterable[Listed]) -> list[tuple[str | None, list[Listed]]]:
    """Return what is listed by heading: first what has none."""
    headed: dict[str | None, list[Listed]] = {None: []}
    for entry in listed:
        headed.setdefault(entry.heading, []).append(entry)
    return [(heading, some) for heading, some in headed.items() if some]


def _show(heading: str | None, grid: Table) -> None:
    console = make_console()
    if heading is not None:
        console.print(Text(f"{heading}:", style="italic"))
    console.print(grid)
