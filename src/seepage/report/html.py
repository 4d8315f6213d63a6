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
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.report.accumulated import accumulated
from seepage.report.figures import Figure
from seepage.report.frames import worst
from seepage.report.grids import GridCell
from seepage.report.sections import Audited, Section, headline, sections
from seepage.text import clean, flattened

FILE = "report.html"
_PLAIN = 400
_LONG = 2000


@dataclass(frozen=True)
class Part:
    """All sections of one audit of a page."""

    name: str
    title: str
    sections: Sequence[Section]


def write_html(
    path: Path, reports: Sequence[Audited], provenance: Mapping[str, Any], private: bool | None = None
) -> None:
    """Write the report of a run as one file.

    Args:
        path: the file, usually ``report.html`` in the run folder.
        reports: of the run's audits.
        provenance: where the figures come from, see ``seepage.run.provenance``.
        private: whether only the owner may read it; follows from the tables if None.

    Raises:
        BadInputError: the file cannot be written, or plotly is not installed as its package ships it.
    """
    own = any(report.audit.own for report in reports) if private is None else private
    write_whole(path, render(reports, provenance), own)


def render(reports: Sequence[Audited], provenance: Mapping[str, Any]) -> str:
    """Return the page of a run's audits."""
    several = len(reports) > 1
    names = _names(reports)
    parts = [
        Part(f"audit-{i}", name, sections(report, f"a{i}-" if several else ""))
        for i, (name, report) in enumerate(zip(names, reports, strict=True), start=1)
    ]
    over_rounds = accumulated(reports)
    every = [*(section for part in parts for section in part.sections), *([over_rounds] if over_rounds else [])]
    heads = [headline(report) for report in reports]
    known = [head["record"] for head in heads if head["record"] is not None]
    gravest = worst(known)
    overall = next((i for i, head in enumerate(heads) if head["record"] is gravest and gravest is not None), 0)
    title = f"Audit of {clean(reports[0].audit.about.dataset)}" if reports else "Audit"
    return page(
        "report.html",
        title,
        [figure for section in every for figure, _ in section.figures],
        lead=reports[0].audit.about.lead if reports else "",
        unit=reports[0].audit.spec.unit if reports else "unit",
        parts=parts,
        several=several,
        over_rounds=over_rounds,
        overall={"name": names[overall], **heads[overall]} if heads else None,
        heads=list(zip(parts, heads, strict=True)),
        provenance=flattened(provenance),
        own=any(report.audit.own for report in reports),
    )


def page(template: str, title: str, figures: Sequence[Figure], **content: Any) -> str:
    """Return a page from a template: its content between the parts that all pages share."""
    environment = _environment()
    script, style = (_source(name) for name in ("page.js", "style.css"))
    plotly = plotly_script() if figures else ""
    # A browser takes the digest of what stands between the tags, to the letter.
    scripts = [text for text in (plotly, script) if text]
    return environment.get_template(template).render(
        title=title,
        style=style,
        script=script,
        plotly=plotly,
        digests=[_digest(text) for text in scripts],
        drawings=as_json({figure.name: {"data": figure.data, "layout": figure.layout} for figure in figures}),
        **content,
    )


def as_json(value: Any) -> str:
    r"""Return JSON that can stand inside a script element: no tag can end it, and numbers that are none are null.

    Example:
        >>> as_json({"name": "</script>", "x": float("nan")})
        '{"name":"\\u003c/script\\u003e","x":null}'
    """
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
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
    found = importlib.util.find_spec("plotly")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_text(encoding="utf-8").strip()
    raise BadInputError(
        "the report draws its figures with plotly.js, which the Python package plotly ships, but it was not found; "
        "install plotly again."
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("seepage.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["plain"] = lambda value: clean(value, _PLAIN)
    made.filters["long"] = lambda value: clean(value, _LONG)
    made.filters["sort_value"] = _sort_value
    return made


def _sort_value(cell: GridCell) -> str:
    if cell.sort is None:
        return ""
    return cell.sort if isinstance(cell.sort, str) else f"{cell.sort:.12g}"


@cache
def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _names(reports: Sequence[Audited]) -> list[str]:
    """Return what tells the audits of a run apart: data set and model, and what else differs in their specs."""
    specs = [report.audit.spec.model_dump(mode="json") for report in reports]
    hidden = {"dataset", "data", "model"}
    differing = [
        name
        for name in (specs[0] if specs else {})
        if name not in hidden and any(spec.get(name) != specs[0][name] for spec in specs)
    ]
    names = []
    for report, spec in zip(reports, specs, strict=True):
        also = [f"{name.replace('_', ' ')} {_short(spec[name])}" for name in differing]
        told = [clean(report.audit.about.dataset), f"model {clean(report.audit.about.model)}", *also]
        names.append(", ".join(told))
    return names


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_short(item) for item in value)
    if isinstance(value, dict):
        return clean(value.get("label") or value.get("name") or json.dumps(value, ensure_ascii=False))
    return clean(value)
