"""The options of all settings as a page, from the fields of their specs."""

from __future__ import annotations

from seepage.settings.catalogue import settings
from seepage.settings.option import PANELS, SpecField, fields_of
from seepage.settings.spec import Spec

_HEAD = """# Options of audits

Each setting has one spec. Its fields are the options of the command line, the keys of [documents](../specs.md) and the
arguments of `seepage.audit`. A list for a key of one value sweeps over its items.
"""


def options() -> str:
    """Return the fields of every setting's spec as Markdown."""
    parts = [_HEAD]
    for name, setting in settings().items():
        parts.append(
            f"\n## {name.capitalize()} learning\n\n`seepage {setting.command or name}`: {setting.spec.about}.\n"
        )
        parts += [_panel(setting.spec, panel) for panel in PANELS]
    return "".join(parts)


def _panel(spec: type[Spec], panel: str) -> str:
    rows = [_row(one, key) for one, key in _shown(spec) if one.option.panel == panel]
    if not rows:
        return ""
    head = "| key and argument | option | values | default | what it is |\n|---|---|---|---|---|\n"
    return f"\n### {panel} {{: #{spec.setting}-{panel.split()[-1].lower()} }}\n\n{head}{''.join(rows)}"


def _shown(spec: type[Spec]) -> list[tuple[SpecField, str]]:
    shown = []
    for one in fields_of(spec).values():
        shown.append((one, one.key))
        shown += [(inner, f"{one.key}.{name}") for name, inner in one.fields.items()]
    return shown


def _row(one: SpecField, key: str) -> str:
    nested = "." in key
    flag = "" if nested and one.option.name is None else f"`{one.flag}`"
    name = f"`{key}`" if nested or key == one.name else f"`{key}`, in Python `{one.name}`"
    if one.option.consent:
        name = f"`{key}`, in no document"
    cells = (name, flag, _values(one), _default(one), one.option.help)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _values(one: SpecField) -> str:
    if one.choices:
        return ", ".join(f"`{choice}`" for choice in one.choices)
    bounds = [
        f"{sign} {getattr(bound, name):g}"
        for bound in one.info.metadata
        for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
        if getattr(bound, name, None) not in (None, float("inf"))
    ]
    kinds = {
        "switch": "true or false",
        "whole": "whole number",
        "path": "file",
        "mapping": "mapping",
        "model": "mapping",
    }
    kind = "list of names with options" if one.parts else kinds.get(one.kind, one.kind)
    return ", ".join([kind, *bounds])


def _default(one: SpecField) -> str:
    if one.option.default is not None:
        return one.option.default
    if one.info.is_required() or one.default is None:
        return ""
    value = one.default
    if one.parts:
        return ", ".join(f"`{part.title}`" for part in value)
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "" if value == {} else f"`{value}`"
