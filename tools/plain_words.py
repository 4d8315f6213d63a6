"""Lint of the words in docstrings and of names, by the rules of CONTRIBUTING.md; run by ``make lint``.

An entry of ``Args:`` or ``Attributes:``, and the text of ``Returns:`` or ``Yields:``, is a noun phrase that stands on
its own; a class name occurs once in the package; no name has a word that does not say what the thing is.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_OPENINGS = ("of", "that", "whose", "as", "how", "what it")
_OPENING = re.compile(rf"({'|'.join(_OPENINGS)})\b", re.IGNORECASE)
# Words of names that say how a thing came to be there, and not what it is; and names in which they do say it.
_RIDDLES = frozenset({"asked", "every", "found", "held", "kept", "made", "one", "said", "told"})
_TERMS = re.compile(
    r"held_out|one_hot|rate_every|one_run|one_draw_per_column|one_layer|one_line|one_figure|one_mechanism|one_topology"
)
# Words that say nothing as a whole name. Attributes stand beside their owner (``view.own``), and users pass ``own``.
_EMPTY = frozenset({"at", "here", "one", "own", "seen", "some", "way"})
_PASSED = frozenset({"own"})
# Packages whose names are still to be changed.
_STILL_EMPTY = (Path("src", "seepage", "kernel"),)
_LISTS = ("Args", "Attributes")
_RESULTS = ("Returns", "Yields")
_SECTION = re.compile(r"([A-Z][a-z]+):$")
_ENTRY = re.compile(r"(?P<name>\*{0,2}\w+(?:, *\*{0,2}\w+)*)(?: \([^)]*\))?:(?P<text>.*)$")


@dataclass(frozen=True)
class Refusal:
    """A line that breaks a rule.

    Attributes:
        path: path of the file, relative to the root of the repository.
        line: number of the line, from 1.
        message: the broken rule and what to write instead.
    """

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path.as_posix()}:{self.line}: {self.message}"


def refused_descriptions(source: str, path: Path) -> Iterator[Refusal]:
    r"""Yield the descriptions of one module that do not stand on their own.

    Args:
        source: text of the module.
        path: path of the module, for the messages.

    Example:
        >>> source = 'def fit(steps):\n    "Fit it.\\n\\nArgs:\\n    steps: of Adam."\n'
        >>> [refusal.message[:42] for refusal in refused_descriptions(source, Path("fit.py"))]
        ["description of 'steps' begins with 'of': w"]
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node, clean=True)
        if not text:
            continue
        first = node.body[0]
        for offset, name, description in _descriptions(text):
            if opening := _OPENING.match(description):
                yield Refusal(
                    path,
                    first.lineno + offset,
                    f"description of {name} begins with {opening[0]!r}: write a noun phrase that stands on its own,"
                    " such as 'number of Adam steps'",
                )


def _descriptions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line offset, name and text of each described argument, attribute and result of a docstring."""
    section, awaited = None, False
    lines = text.splitlines()
    for offset, line in enumerate(lines):
        if line and not line.startswith(" "):
            heading = _SECTION.match(line)
            section, awaited = heading[1] if heading else None, True
        elif section in _RESULTS and awaited and line.strip():
            awaited = False
            yield offset, f"{section!r}", line.strip()
        elif section in _LISTS and re.match(r" {4}\S", line) and (entry := _ENTRY.match(line.strip())):
            # A description that starts on the next line is held to the same rule.
            following = lines[offset + 1].strip() if offset + 1 < len(lines) else ""
            yield offset, f"{entry['name']!r}", entry["text"].strip() or following


def refused_names(source: str, path: Path) -> Iterator[Refusal]:
    """Yield the names of one module that do not say what the thing is: functions, arguments, attributes, variables.

    Args:
        source: text of the module.
        path: path of the module, for the messages.

    Example:
        >>> [str(refusal)[:42] for refusal in refused_names("told_labels = restored", Path("fit.py"))]
        ["fit.py:1: name 'told_labels' does not say "]
    """
    module = ast.parse(source)
    spoken = _spoken(module)
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        empty = name.strip("_") in _EMPTY and not isinstance(node, ast.Attribute) and id(node) not in spoken
        if _RIDDLES & set(_TERMS.sub("", name.lower()).split("_")) or (empty and not _within(path, _STILL_EMPTY)):
            yield Refusal(path, node.lineno, f"name {name!r} does not say what the thing is: name it, such as 'labels'")


def _spoken(module: ast.Module) -> set[int]:
    """Return the identities of names that stand beside an owner: fields of classes, and arguments that users pass."""
    spoken: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            assigned = [part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)]
            spoken |= {id(name) for part in assigned for name in ast.walk(part) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            spoken |= {id(argument) for argument in arguments if argument.arg in _PASSED}
    return spoken


def repeated_classes(sources: Iterable[tuple[Path, str]]) -> Iterator[Refusal]:
    """Yield every class whose name another class of the package has too.

    Args:
        sources: path and text of each module.

    Example:
        >>> sources = [(Path("a.py"), "class Prior: ..."), (Path("b.py"), "class Prior: ...")]
        >>> [str(refusal)[:44] for refusal in repeated_classes(sources)]
        ["a.py:1: class 'Prior' is also at b.py:1: giv", "b.py:1: class 'Prior' is also at a.py:1: giv"]
    """
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path, source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((path, node.lineno))
    for name, found in places.items():
        for path, line in found:
            others = ", ".join(f"{p.as_posix()}:{n}" for p, n in found if (p, n) != (path, line))
            if others:
                yield Refusal(path, line, f"class {name!r} is also at {others}: give each class a name of its own")


def check(root: Path) -> list[Refusal]:
    """Return every refused line under ``src`` of a repository, by file and line.

    Args:
        root: folder that holds ``src`` and ``pyproject.toml``. Its lists in ``[tool.plain-words]`` name packages and
            modules, with dots: what is ``exempt`` is not read, and of what is in ``exempt-names`` names are not.

    Raises:
        ValueError: an exempt name leads to no package or module.
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {})
    exempt, unnamed = (
        [Path("src", *name.split(".")) for name in settings.get("plain-words", {}).get(key, [])]
        for key in ("exempt", "exempt-names")
    )
    for place in (*exempt, *unnamed):
        if not (root / place).is_dir() and not (root / place).with_suffix(".py").is_file():
            raise ValueError(
                f"[tool.plain-words] of pyproject.toml exempts {'.'.join(place.parts[1:])!r}, which is neither a"
                " package nor a module under src/: remove it from the list or correct its name"
            )
    sources = []
    for path in sorted((root / "src").rglob("*.py")):
        short = path.relative_to(root)
        if not _within(short, exempt):
            sources.append((short, path.read_text(encoding="utf-8")))
    refusals = [refusal for path, source in sources for refusal in refused_descriptions(source, path)]
    named = [(path, source) for path, source in sources if not _within(path, unnamed)]
    refusals += [refusal for path, source in named for refusal in refused_names(source, path)]
    refusals += repeated_classes(sources)
    return sorted(refusals, key=lambda refusal: (refusal.path, refusal.line))


def _within(path: Path, places: Iterable[Path]) -> bool:
    """Return whether a module is one of some modules, or in one of some packages."""
    return any(path.with_suffix("") == place or place in path.parents for place in places)


def main(root: Path) -> int:
    """Print what is refused and return the exit status: 1 where there is anything."""
    refusals = check(root)
    for refusal in refusals:
        print(refusal)
    if refusals:
        print(f"{len(refusals)} refused.", file=sys.stderr)
    return 1 if refusals else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
