"""A report in a notebook: a compact view, and figures of the Python package plotly."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from seepage.report.figures import Figure, label
from seepage.report.html import environment, source
from seepage.report.result import AuditResult
from seepage.report.sections import verdict_section
from seepage.text import clean

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Drawn

# Keys whose values are colours, as in the page's script.
_COLOURS = ("color", "gridcolor", "linecolor", "zerolinecolor", "tickcolor", "bgcolor", "bordercolor")


def compact(result: AuditResult) -> str:
    """Return verdict, main table and findings as a piece of HTML with a style of its own."""
    section = verdict_section(result)
    about = result.audit.about
    return (
        environment()
        .get_template("notebook.html")
        .render(
            title=f"{clean(about.dataset)}, {clean(about.protocol)}, model {clean(about.model)}",
            headline=section.extra["headline"],
            grid=section.grids[0],
            alarms=result.alarms,
        )
    )


def drawn(figure: Figure) -> Drawn:
    """Return a figure of the page as a figure of the Python package plotly, in the page's light colours."""
    # The package is slow to import, so that only who draws does.
    plotly = import_module("plotly.graph_objects")
    layout = {**figure.layout, "title": {"text": label(figure.title, 200)}, "height": figure.height}
    return plotly.Figure(data=_coloured(figure.data), layout=_coloured(layout))


@cache
def _palette() -> dict[str, str]:
    """Return the colours of the page's style by the names of their variables."""
    root = source("style.css").partition("}")[0]
    return dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]+);", root))


def _coloured(value: object) -> object:
    if isinstance(value, list):
        return [_coloured(item) for item in value]
    if not isinstance(value, dict):
        return value
    styles = {}
    for name, item in value.items():
        if name in _COLOURS:
            styles[name] = _palette().get(item, item) if isinstance(item, str) else item
        elif name == "colorscale":
            styles[name] = [[at, _palette().get(colour, colour)] for at, colour in item]
        else:
            styles[name] = _coloured(item)
    return styles
