"""Writes what editors complete of ``seepage.audit`` from the specs: types of options, and a function for each setting.

Run as ``python tools/typed_options.py`` after a field has changed; with ``--check`` nothing is written and the exit
status is 1 where a file is not what the fields say.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from seepage.settings.catalogue import settings
from seepage.settings.option import SpecField, fields_of

_SOURCE = Path(__file__).resolve().parent.parent / "src" / "seepage"
PLACE, FUNCTIONS = _SOURCE / "settings" / "typed.py", _SOURCE / "auditing.py"
_HEAD = '''"""Types of the options of ``seepage.audit``, written by ``tools/typed_options.py`` from the specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

# An attack, a defense, a baseline or a metric: a text such as ``name:{option: value}``, a mapping, or an object.
PartLike = str | Mapping[str, object] | object
'''
# Fields that are arguments of ``seepage.audit`` themselves, one by the name of source.
ARGUMENTS = ("dataset", "model")
_SIMPLE = {"switch": "bool", "whole": "int", "number": "float", "path": "str | Path", "text": "str"}
_WIDTH = 120


def own_settings() -> list[str]:
    """Return the names of the settings that belong to this package."""
    return [name for name, setting in settings().items() if str(setting.prepare_at).startswith("seepage.")]


def render() -> str:
    """Return the text of the module."""
    names = own_settings()
    lines = {name: _fields(name) for name in names}
    shared = set.intersection(*map(set, lines.values()))
    first = [field for field in lines[names[0]] if field in shared]
    text = _HEAD + _class("SharedOptions", "TypedDict", "Options of all settings", first)
    for name in names:
        own = [field for field in lines[name] if field not in shared]
        about = f"Options of {settings()[name].spec.about}"
        text += _class(f"{name.capitalize()}Options", "SharedOptions", about, own)
    return text


def render_functions(text: str) -> str:
    """Return the text of ``auditing`` with the overloads and functions of each setting."""
    names = own_settings()
    overloads = [
        f"class _{name.capitalize()}Audit(typed.{name.capitalize()}Options, _Beside): ...\n\n\n" for name in names
    ]
    for name in names:
        default = " = ..." if name == names[0] else ""
        lines = ("source: Source = ...", "model: Network = ...", "*", f'setting: Literal["{name}"]{default}')
        arguments = "".join(f"    {line},\n" for line in (*lines, f"**options: Unpack[_{name.capitalize()}Audit]"))
        overloads.append(f"@overload\ndef audit(\n{arguments}) -> Report: ...\n")
    functions = ""
    for name in names[1:]:
        words = settings()[name].summary.split(":")[0]
        functions += (
            f'def audit_{name}(source: Source = "adult", model: Network = None, **options: '
            f"Unpack[_{name.capitalize()}Audit]) -> Report:\n"
            f'    """Measure what one deployment of {words} gives away; arguments are those of ``audit``."""\n'
            f'    return audit(source, model, setting="{name}", **options)\n\n\n'
        )
    quoted = ", ".join(f'"audit_{name}"' for name in names[1:])
    functions += f"_NAMED = ({quoted})\n"
    return _between(_between(text, "overloads", "".join(overloads)), "functions", functions)


def _between(text: str, mark: str, inner: str) -> str:
    """Return a text with what stands between two marks replaced."""
    begin, end = f"# <{mark} by tools/typed_options.py>\n", f"# </{mark}>\n"
    head, rest = text.split(begin)
    return f"{head}{begin}{inner}{end}{rest.split(end)[1]}"


def _class(name: str, base: str, about: str, fields: list[str]) -> str:
    return "\n".join([f"\n\nclass {name}({base}, total=False):", f'    """{about}."""', "", *fields]) + "\n"


def _fields(setting: str) -> list[str]:
    """Return each option of a setting with its type and help, as it stands in a class."""
    fields = fields_of(settings()[setting].spec).values()
    return [
        f'    {field.name}: {_type(field)}\n    """{_help(field)}"""' for field in fields if field.name not in ARGUMENTS
    ]


def _type(one: SpecField) -> str:
    found = _without_none(one)
    # None stands for the default that the help describes.
    return f"{found} | None" if not one.info.is_required() and one.default is None else found


def _without_none(one: SpecField) -> str:
    if one.parts:
        return "PartLike | Sequence[PartLike]"
    if one.several:
        item = {int: "int", float: "float", str: "str"}.get(one.item, "str | Sequence[str]")
        return f"{item} | Sequence[{item}]"
    if one.kind == "choice":
        return f"Literal[{', '.join(repr(choice).replace(chr(39), chr(34)) for choice in one.choices)}]"
    if one.kind in ("mapping", "model"):
        return "Mapping[str, object]"
    if one.option.as_text:
        return "str | float"
    # A category is a text, a number or a truth value.
    return "str | float | bool" if one.kind == "text" and one.annotation is not str else _SIMPLE[one.kind]


def _help(one: SpecField) -> str:
    text = " ".join(one.option.help.split())
    if len(text) > _WIDTH - 12:
        words, lines = text.split(), [""]
        for word in words:
            if len(lines[-1]) + len(word) + 1 > _WIDTH - 8:
                lines.append("")
            lines[-1] = f"{lines[-1]} {word}".strip()
        text = "\n    ".join(lines)
        return f"{text}\n    "
    return text


def main() -> int:
    """Write the module, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where the file is outdated")
    written = {PLACE: render(), FUNCTIONS: render_functions(FUNCTIONS.read_text(encoding="utf-8"))}
    outdated = [at for at, text in written.items() if not at.exists() or at.read_text(encoding="utf-8") != text]
    if parser.parse_args().check:
        for at in outdated:
            print(f"{at} is not what the fields say; run python tools/typed_options.py.", file=sys.stderr)
        return int(bool(outdated))
    for at in outdated:
        at.write_text(written[at], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
