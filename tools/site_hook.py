"""What MkDocs does beyond its settings: pages that are made from other files of the repository, and a check.

- The changelog, the contributor's guide, the results and the reference are made here, so that nothing is copied.
- Comments that ask for figures become tables, see ``site_figures`` and ``site_tables``.
- Each file of measured figures has a page of its own.
- A built page that would fetch anything from another host stops a strict build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import site_commands
import site_figures
import site_links
import site_options
import site_tables

ROOT = Path(__file__).resolve().parent.parent
log = logging.getLogger("mkdocs.hooks.seepage")

# Files elsewhere in the repository that become a page as they are.
WHOLE = {"CHANGELOG.md": "changelog.md", "benchmarks/RESULTS.md": "results.md"}
# The contributor's guide is two pages: how to add something, and the rest.
GUIDE, EXTENDING, CONTRIBUTING = "CONTRIBUTING.md", "writing-an-attack.md", "contributing.md"
# Files that pages link to and that travel along.
ALONG = ["LICENSE", "NOTICE", "CITATION.cff", "benchmarks/results/*.csv", "examples/notebooks/*.ipynb"]
REFERENCE = "reference"
COMMANDS = f"{REFERENCE}/command-line.md"
OPTIONS = f"{REFERENCE}/options.md"

# What a reader's machine fetches by itself on opening a page or a style sheet; links to follow are no such thing.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data)\s*=\s*[\"']?(?P<a>(?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*\brel=[\"']?(?:canonical|prev|next))[^>]*?\bhref\s*=\s*[\"']?(?P<b>(?:https?:)?//[^\"'\s>]+)"
    r"|(?:url\(|@import)\s*[\"']?(?P<c>(?:https?:)?//[^\"')\s]+)",
    re.IGNORECASE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the commands and the reference of every package in the navigation."""
    modules = [{name: f"{REFERENCE}/{name}.md"} for name in packages()]
    listed = [{"Command line": COMMANDS}, {"Options of audits": OPTIONS}, *modules]
    config.nav = [
        {title: listed if inner == REFERENCE else inner for title, inner in item.items()} for item in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from elsewhere."""
    pages = _pages(config)
    for source, place in WHOLE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(_made(config, place, site_links.rewrite(text, source, place, pages)))
    extending, rest = guide((ROOT / GUIDE).read_text(encoding="utf-8"))
    files.append(_made(config, EXTENDING, site_links.rewrite(extending, GUIDE, EXTENDING, pages)))
    files.append(_made(config, CONTRIBUTING, site_links.rewrite(rest, GUIDE, CONTRIBUTING, pages)))
    for pattern in ALONG:
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, _along(place), abs_src_path=str(path)))
    for place, text in results().items():
        files.append(_made(config, place, text))
    files.append(_made(config, COMMANDS, site_commands.commands()))
    files.append(_made(config, OPTIONS, site_options.options()))
    for name in packages():
        files.append(_made(config, f"{REFERENCE}/{name}.md", f"::: seepage.{name}\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in figures and lead links to files outside the documentation to their pages."""
    place = page.file.src_uri
    try:
        markdown = site_tables.fill(site_figures.fill(markdown, ROOT), ROOT, lambda name: _near(place, name))
    except site_figures.FigureError as error:
        raise PluginError(f"{place}: {error}") from None
    if not place.startswith(f"{REFERENCE}/"):
        markdown = site_links.to_reference(
            markdown, lambda name: log.warning("%s speaks of %s, which does not exist.", place, name)
        )
    if page.file.generated_by is None:
        markdown = site_links.rewrite(markdown, f"docs/{place}", place, _pages(config))
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Warn, which stops a strict build, of pages that fetch something from another host."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in (".html", ".css"):
            for address in fetched(path.read_text(encoding="utf-8")):
                log.warning("%s fetches %s from elsewhere.", path.relative_to(config.site_dir), address)


def fetched(text: str) -> list[str]:
    """Return the addresses on other hosts that opening a page or style sheet fetches.

    Example:
        >>> fetched('<script src="https://cdn.example/x.js"></script> <a href="https://example.org">')
        ['https://cdn.example/x.js']
    """
    return [found["a"] or found["b"] or found["c"] for found in _FETCHED.finditer(text)]


def guide(text: str) -> tuple[str, str]:
    """Return the sections of the contributor's guide on adding something, and the rest, as two pages."""
    head, parts = site_links.sections(text)
    adding = [body for title, body in parts if title.startswith("Add ")]
    others = [body for title, body in parts if not title.startswith("Add ")]
    return "# Writing an attack, a dataset or a metric\n\n" + "".join(adding), head + "".join(others)


def results() -> dict[str, str]:
    """Return the page of every file of measured figures, by its place in the site."""
    measured = site_tables.measured(ROOT)
    pages = {}
    for path in sorted((ROOT / site_tables.FOLDER).glob("*.csv")):
        if path.stem in measured:
            text = site_tables.page(path.stem, *measured[path.stem], "../../files")
        else:
            text = site_tables.data_page(path.stem, site_figures.read(path), "../../files")
        pages[f"{site_tables.PAGES}/{path.stem}.md"] = text
    return pages


def packages() -> list[str]:
    """Return the public packages and modules right below seepage."""
    below = (ROOT / "src" / "seepage").iterdir()
    found = [p.stem for p in below if p.suffix == ".py" or (p / "__init__.py").is_file()]
    return sorted(name for name in found if not name.startswith("_"))


def _pages(config: MkDocsConfig) -> dict[str, str]:
    """Return where each file of the repository is in the site."""
    pages = dict(WHOLE)
    pages[GUIDE] = CONTRIBUTING
    pages["README.md"] = "index.md"
    _, parts = site_links.sections((ROOT / GUIDE).read_text(encoding="utf-8"))
    for title, _ in parts:
        if title.startswith("Add "):
            pages[f"{GUIDE}#{title.lower().replace(' ', '-')}"] = EXTENDING
    docs = Path(config.docs_dir)
    for path in docs.rglob("*"):
        if path.is_file():
            place = path.relative_to(docs).as_posix()
            pages[f"docs/{place}"] = place
    for pattern in ALONG:
        for path in ROOT.glob(pattern):
            place = path.relative_to(ROOT).as_posix()
            # A file of figures is read on its page, which leads to the file.
            figures = path.parent == ROOT / site_tables.FOLDER
            pages[place] = f"{site_tables.PAGES}/{path.stem}.md" if figures else _along(place)
    return pages


def _near(place: str, name: str) -> str:
    """Return the way from a page to that of a file of figures."""
    return posixpath.relpath(f"{site_tables.PAGES}/{name}.md", posixpath.dirname(place) or ".")


def _along(place: str) -> str:
    path = PurePosixPath(place)
    # A browser shows text; a file without an ending it would store.
    return f"files/{path.name if path.suffix else path.name + '.txt'}"


def _made(config: MkDocsConfig, place: str, text: str) -> File:
    return File.generated(config, place, content=text)
