"""Explanations of the checks from ``docs/checks.md``: meaning, importance and remedy; not all checks have one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

# An installed package holds a copy beside this file; a source tree has the document itself.
_HERE = Path(__file__).parent
_PLACES = (_HERE / "checks.md", _HERE.parents[3] / "docs" / "checks.md")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def explanation(code: str) -> list[str]:
    """Return meaning, importance and remedy of a check, a plain paragraph each; empty where there is no text."""
    return list(_sections().get(code, ()))


def titles() -> list[tuple[str, str, str]]:
    """Return code, usual severity and title of each check, read from the modules of checks, which stay unimported."""
    checks = []
    for path in _HERE.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "check":
                    code, severity, title = (str(ast.literal_eval(argument)) for argument in decorator.args[:3])
                    checks.append((code, severity, title))
    return sorted(checks)


@cache
def _sections() -> dict[str, tuple[str, ...]]:
    text = next((place.read_text(encoding="utf-8") for place in _PLACES if place.is_file()), "")
    sections = (section.partition("\n") for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:])
    return {head.strip(): tuple(map(_plain, body.strip().split("\n\n"))) for head, _, body in sections}


def _plain(words: str) -> str:
    return " ".join(_LINK.sub(r"\1", words).replace("**", "").replace("*", "").replace("`", "").split())
