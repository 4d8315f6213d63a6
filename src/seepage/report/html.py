"""One self-contained page: style, script and plotly.js are part of the file, and nothing is fetched.

Everything that comes from a table is escaped by the templates and isolated from its surroundings' writing direction;
a content security policy allows this page's own scripts by their digests and no others.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.report.accumulated import accumulated
from seepage.report.figures import Figure
from seepage.report.frames import worst
from seepage.report.grids import GridCell
from seepage.report.result import AuditResult
from seepage.report.section import Section
from seepage.report.sections import anchored, sections
from seepage.report.summary import headline
from seepage.text import clean, flattened, listed

FILE = "report.html"
_PLAIN = 400
_LONG = 2000


@dataclass(frozen=True)
class AuditPart:
    """All sections of one audit of a page."""

    name: str
    title: str
    sections: Sequence[Section]


def write_html(
    path: Path, reports: Sequence[AuditResult], provenance: Mapping[str, object], private: bool | None = None
) -> None:
    """Write the report of a run as one file.

    Args:
        path: file, usually ``report.html`` in the run folder.
        reports: reports on the run's audits.
        provenance: origin of the figures, see ``seepage.run.provenance``.
        private: whether only the owner may read it; follows from the tables if None.

    Raises:
        BadInputError: the file cannot be written, or plotly is not installed as its package ships it.
    """
    own = any(report.audit.own for report in reports) if private is None else private
    write_whole(path, render(reports, provenance), own)


def render(reports: Sequence[AuditResult], provenance: Mapping[str, object]) -> str:
    """Return the page of a run's audits."""
    several = len(reports) > 1
    names = _names(reports)
    parts = [
        AuditPart(f"audit-{i}", name, [anchored(section, f"a{i}-" if several else "") for section in sections(report)])
        for i, (name, report) in enumerate(zip(names, reports, strict=True), start=1)
    ]
    over_rounds = accumulated(reports)
    every = [*(section for part in parts for section in part.sections), *([over_rounds] if over_rounds else [])]
    heads = [headline(report) for report in reports]
    gravest = worst([head.record for head in heads if head.record is not None])
    overall = next((i for i, head in enumerate(heads) if head.record is gravest and gravest is not None), 0)
    tables = list(dict.fromkeys(clean(report.audit.about.dataset) for report in reports))
    return page(
        "report.html",
        f"Audit of {listed(tables)}" if reports else "Audit",
        [figure for section in every for figure, _ in section.figures],
        lead=" ".join(dict.fromkeys(report.audit.about.lead for report in reports)),
        parts=parts,
        several=several,
        over_rounds=over_rounds,
        overall=(names[overall], heads[overall]) if heads else None,
        heads=list(zip(parts, heads, strict=True)),
        provenance=flattened(provenance),
        own=any(report.audit.own for report in reports),
    )


def page(template: str, title: str, figures: Sequence[Figure], **content: object) -> str:
    """Return a page from a template: its content between the parts that all pages share."""
    templates = environment()
    script, style = (source(name) for name in ("page.js", "style.css"))
    plotly = plotly_script() if figures else ""
    # A browser takes the digest of what stands between the tags, to the letter.
    scripts = [text for text in (plotly, script) if text]
    return templates.get_template(template).render(
        title=title,
        style=style,
        script=script,
        plotly=plotly,
        digests=[_digest(text) for text in scripts],
        drawings=as_json({figure.name: {"data": figure.data, "layout": figure.layout} for figure in figures}),
        **content,
    )


def as_json(value: object) -> str:
    r"""Return JSON that can stand inside a script element: no tag can end it, and numbers that are none are null.

    Example:
        >>> as_json({"name": "</script>", "x": float("nan")})
        '{"name":"\\u003c/script\\u003e","x":null}'
    """
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@cache
def plotly_script() -> str:
    """Return plotly.js as the installed Python package ships it, without importing that package.

    Raises:
        BadInputError: it is not there.
    """
    plotly = importlib.util.find_spec("plotly")
    for folder in (plotly.submodule_search_locations or ()) if plotly else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_text(encoding="utf-8").strip()
    raise BadInputError(
        "the report draws its figures with plotly.js, which the Python package plotly ships, but it was not found; "
        "install plotly again."
    )


@cache
def environment() -> Environment:
    """Return the templates, which escape whatever they are given."""
    templates = Environment(
        loader=PackageLoader("seepage.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["plain"] = lambda value: clean(value, _PLAIN)
    templates.filters["long"] = lambda value: clean(value, _LONG)
    templates.filters["sort_value"] = _sort_value
    return templates


def _sort_value(cell: GridCell) -> str:
    if cell.sort is None:
        return ""
    return cell.sort if isinstance(cell.sort, str) else f"{cell.sort:.12g}"


@cache
def source(name: str) -> str:
    """Return the text of a file beside the templates."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _names(reports: Sequence[AuditResult]) -> list[str]:
    """Return what tells the audits of a run apart: data, protocol, model and variant; a number where those agree."""
    names: list[str] = []
    for report in reports:
        about, variant = report.audit.about, report.audit.spec.variant
        parts = [clean(about.dataset), clean(about.protocol).replace("_", " "), f"model {clean(about.model)}"]
        name = ", ".join([*parts, *([clean(variant, 80)] if variant else [])])
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names
