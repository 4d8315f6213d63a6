"""Source files that are read and never run: names as they are imported, calls with their literals."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from seepage.errors import BadInputError
from seepage.scan.project import text_of

_NOT_LITERAL = "(set when it runs)"


@dataclass
class ReadSource:
    """A source file: its syntax tree, and the full names of what it imports by the names that it uses."""

    path: Path
    tree: ast.Module
    imported: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imported[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"

    def full_name(self, node: ast.expr) -> str:
        """Return the full name of an expression such as ``strategy.FedAvg``; empty for anything else."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.full_name(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if isinstance(node, ast.Call):
            return self.full_name(node.func)
        return ""

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Yield the calls with the full name of what is called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and (name := self.full_name(node.func)):
                yield name, node

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield the functions."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def classes(self) -> Iterator[ast.ClassDef]:
        """Yield the classes."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                yield node

    def texts(self) -> dict[str, str]:
        """Return the texts and numbers that names are assigned to."""
        return {
            target.id: str(node.value.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }


def read_source(path: Path) -> ReadSource | str:
    """Return a source file; the reason where it cannot be read as Python."""
    try:
        return ReadSource(path, ast.parse(text_of(path)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, BadInputError):
            return str(error)
        return f"{path.name} is no Python that can be read ({type(error).__name__})"


def arguments_of(call: ast.Call) -> dict[str, object]:
    """Return the arguments of a call by name, those without one by place; what is no literal is named as such."""
    values: dict[str, object] = {f"argument {i}": _literal(value) for i, value in enumerate(call.args, 1)}
    return values | {keyword.arg: _literal(keyword.value) for keyword in call.keywords if keyword.arg}


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NOT_LITERAL
