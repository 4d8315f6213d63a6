"""One self-contained page: style, script and figures (SVG) are part of the file, and nothing is fetched.

Whatever comes from a table is escaped and isolated from its surroundings' writing direction; a content security policy
allows this page's own scripts alone, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seepage.files import write_whole
from seepage.report.accumulated import accumulated
from seepage.report.figures import Figure
from seepage.report.frames import worst
from seepage.report.grids import GridCell, Section
from seepage.report.result import AuditResult
from seepage.report.sections import anchored, sections
from seepage.report.summary import headline
from seepage.report.svg import NARROW, WIDE, draw
from seepage.results.verdict import style_of
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
    """Write the report of a run as one file, for its owner alone where a table is one's own or ``private`` says so."""
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
    over_rounds = accumulated(reports) if several else None
    heads = [headline(report) for report in reports]
    gravest = worst([head.record for head in heads if head.record is not None])
    overall = next((i for i, head in enumerate(heads) if head.record is gravest and gravest is not None), 0)
    tables = list(dict.fromkeys(clean(report.audit.about.dataset) for report in reports))
    return page(
        "report.html",
        f"Audit of {listed(tables)}" if reports else "Audit",
        lead=" ".join(dict.fromkeys(report.audit.about.lead for report in reports)),
        parts=parts,
        several=several,
        over_rounds=over_rounds,
        overall=(names[overall], heads[overall]) if heads else None,
        heads=list(zip(parts, heads, strict=True)),
        provenance=flattened(provenance),
        own=any(report.audit.own for report in reports),
        records=any(report.audit.spec.keep_records for report in reports),
    )


def page(template: str, title: str, **content: object) -> str:
    """Return a page from a template: its content between the parts that all pages share."""
    templates = environment()
    script, style = (source(name) for name in ("page.js", "style.css"))
    return templates.get_template(template).render(
        title=title,
        style=style,
        script=script,
        # A browser takes the digest of what stands between the tags, to the letter.
        digests=[_digest(script)],
        **content,
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
    templates.filters["drawing"] = _drawing
    templates.filters["style_of"] = style_of
    return templates


def _drawing(figure: Figure) -> Markup:
    """Return a figure for a column of text and for a phone; the page's style shows the one that fits."""
    return draw(figure, WIDE) + draw(figure, NARROW)


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
    """Return distinct names for the audits of a run: data, protocol, model and variant, or a number."""
    names: list[str] = []
    for report in reports:
        about, variant = report.audit.about, report.audit.spec.variant
        parts = [clean(about.dataset), clean(about.protocol).replace("_", " "), f"model {clean(about.model)}"]
        name = ", ".join([*parts, *([clean(variant, 80)] if variant else [])])
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names
