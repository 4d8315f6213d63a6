"""Source files that are read and never run: syntax tree, scopes, what binds each name, and which code is reached."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from seepage.errors import BadInputError
from seepage.scan.project import bytes_of
from seepage.text import clean

_Node = TypeVar("_Node", bound=ast.AST)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Module, *_COMPREHENSIONS)
_SHARED = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_TRIES = (ast.Try, ast.TryStar)
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Reach(IntEnum):
    """Whether code runs, by the conditions around it: the lower of two holds for code under both."""

    DEAD = 0
    CONDITIONAL = 1
    CERTAIN = 2


@dataclass(frozen=True)
class Binding:
    """What binds a name in a scope.

    Attributes:
        node: the statement or target.
        value: the assigned expression; ``None`` for imports, definitions, parameters and what has none.
        reach: whether it runs.
    """

    node: ast.AST
    value: ast.expr | None
    reach: Reach

    @property
    def line(self) -> int:
        """Line of the binding."""
        return self.place[0]

    @property
    def place(self) -> tuple[int, int]:
        """Line and column after which the name is bound."""
        node = self.node
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            node = node.target
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            node = node.optional_vars
        elif isinstance(node, ast.ExceptHandler):
            return node.lineno, node.col_offset
        return getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0


@dataclass(eq=False)
class ReadSource:
    """A source file: its syntax tree with the scopes of names.

    Attributes:
        path: path of the file.
        tree: its syntax tree.
        is_program: whether the file is run itself, so that what stands under ``if __name__ == "__main__"`` is reached.
        changed: names of the file to which other files assign, or which are changed by their text; ``*`` for any.
    """

    path: Path
    tree: ast.Module
    is_program: bool = False
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    _reaches: dict[ast.AST, Reach] = field(default_factory=dict)
    # The field of the parent in which a node stands, and statements behind one that leaves their block.
    _fields: dict[ast.AST, str] = field(default_factory=dict)
    _left: set[ast.AST] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node in self._all:
            for name, value in ast.iter_fields(node):
                left = False
                for child in value if isinstance(value, list) else [value]:
                    # Contexts and operators are shared between nodes, and have no place of their own.
                    if not isinstance(child, ast.AST) or isinstance(child, _SHARED):
                        continue
                    self.parents[child], self._fields[child] = node, name
                    if left:
                        self._left.add(child)
                    left = left or (isinstance(child, _LEAVING) and not isinstance(node, ast.Module))

    def nodes(self, *kinds: type[_Node]) -> Iterator[_Node]:
        """Yield the nodes of some kinds."""
        for node in self._all:
            if isinstance(node, kinds):
                yield node

    @cached_property
    def names(self) -> dict[str, list[ast.Name]]:
        """Where each name stands."""
        listed: dict[str, list[ast.Name]] = {}
        for node in self.nodes(ast.Name):
            listed.setdefault(node.id, []).append(node)
        return listed

    @cached_property
    def changing(self) -> list[ast.Call | ast.Subscript]:
        """Calls of methods and stored elements, by which a list may change."""
        calls = [node for node in self.nodes(ast.Call) if isinstance(node.func, ast.Attribute)]
        return [*calls, *(node for node in self.nodes(ast.Subscript) if not isinstance(node.ctx, ast.Load))]

    @cached_property
    def _all(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def scope_of(self, node: ast.AST) -> ast.AST:
        """Return the scope in which a node is evaluated: of a definition, the scope around it."""
        child, parent = node, self.parents.get(node, self.tree)
        while not isinstance(parent, _SCOPES) or not self._within(parent, child):
            child, parent = parent, self.parents.get(parent, self.tree)
            if parent is child:
                break
        return parent

    def scopes_of(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the scopes in which a name is looked up, from the inside: classes around functions have no say."""
        scope = self.scope_of(node)
        yield scope
        while scope is not self.tree:
            scope = self.scope_of(scope)
            if not isinstance(scope, ast.ClassDef):
                yield scope

    def forget(self) -> None:
        """Look anew whether code runs, after ``changed`` has been noted."""
        self._reaches.clear()
        self.__dict__.pop("bindings", None)

    @cached_property
    def bindings(self) -> dict[ast.AST, dict[str, list[Binding]]]:
        """What binds each name, by scope."""
        listed: dict[ast.AST, dict[str, list[Binding]]] = {}
        outer = {(self.scope_of(node), name) for node in self.nodes(ast.Global) for name in node.names}
        enclosing = {(self.scope_of(node), name) for node in self.nodes(ast.Nonlocal) for name in node.names}
        for node in self._all:
            for name, value in _bound_by(node):
                scope = node if isinstance(node, _FUNCTIONS) and value is _PARAMETER else self.scope_of(node)
                while isinstance(scope, _COMPREHENSIONS) and isinstance(node, ast.NamedExpr):
                    scope = self.scope_of(scope)
                reach = Reach.CERTAIN if value is _PARAMETER else self.reach(node)
                if (scope, name) in outer or (scope, name) in enclosing:
                    # Whether and when the function is called is another matter.
                    reach = min(reach, Reach.CONDITIONAL)
                while (scope, name) in enclosing and scope is not self.tree:
                    scope = self.scope_of(scope)
                if (scope, name) in outer:
                    scope = self.tree
                binding = Binding(node, None if value is _PARAMETER else value, reach)
                listed.setdefault(scope, {}).setdefault(name, []).append(binding)
        return listed

    @cached_property
    def stars(self) -> list[ast.ImportFrom]:
        """Imports of all names of a module."""
        return [node for node in self.nodes(ast.ImportFrom) if node.names[0].name == "*"]

    def reach(self, node: ast.AST) -> Reach:
        """Return whether a node runs, as far as conditions around it are plain."""
        if node in self._reaches:
            return self._reaches[node]
        reach = self._reaches[node] = self._reach(node)
        return reach

    def _reach(self, node: ast.AST) -> Reach:
        reach = Reach.CERTAIN
        child = node
        while (parent := self.parents.get(child)) is not None:
            reach = min(reach, self._reach_in(parent, child))
            child = parent
        return reach

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """Return the loops around a node."""
        around = []
        while (parent := self.parents.get(node)) is not None:
            if isinstance(parent, ast.For | ast.AsyncFor | ast.While):
                around.append(parent)
            node = parent
        return around

    def _reach_in(self, parent: ast.AST, child: ast.AST) -> Reach:
        reach = Reach.CERTAIN
        if child in self._left:
            return Reach.DEAD
        if isinstance(parent, ast.If | ast.IfExp | ast.While) and child is not parent.test:
            truth = self.truth(parent.test)
            if truth is None:
                reach = Reach.CONDITIONAL
            elif truth is not (self._fields[child] == "body"):
                reach = Reach.DEAD
        elif (
            (isinstance(parent, ast.BoolOp) and child is not parent.values[0])
            or (isinstance(parent, ast.For | ast.AsyncFor) and child is not parent.iter)
            or isinstance(parent, ast.ExceptHandler | ast.match_case)
            or (isinstance(parent, _COMPREHENSIONS) and self._within(parent, child))
            or (isinstance(parent, _TRIES) and self._fields[child] in ("body", "orelse") and _goes_on(parent))
            or (isinstance(parent, ast.With | ast.AsyncWith) and isinstance(child, ast.stmt) and _suppresses(parent))
        ):
            reach = Reach.CONDITIONAL
        return reach

    def _within(self, scope: ast.AST, child: ast.AST) -> bool:
        """Return whether a child of a scope's node belongs to the scope: defaults, decorators and bases do not."""
        if isinstance(scope, (*_FUNCTIONS, ast.ClassDef)):
            return self._fields.get(child) == "body"
        if isinstance(scope, _COMPREHENSIONS):
            return child is not scope.generators[0] or len(scope.generators) != 1
        return True

    def truth(self, test: ast.expr, depth: int = 0) -> bool | None:
        """Return whether a condition holds; ``None`` where it depends on more than plain values of this file."""
        if depth > 20:
            return None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            truth = self.truth(test.operand, depth + 1)
            return None if truth is None else not truth
        if isinstance(test, ast.BoolOp):
            parts = [self.truth(part, depth + 1) for part in test.values]
            decisive = isinstance(test.op, ast.Or)
            return decisive if decisive in parts else None if None in parts else not decisive
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
            sides = [test.left, test.comparators[0]]
            if any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides):
                other = next((s.value for s in sides if isinstance(s, ast.Constant)), None)
                if other != "__main__":
                    return None
                return self.is_program == isinstance(test.ops[0], ast.Eq) or None
            left, right = (self._constant(side) for side in sides)
            if left is None or right is None:
                return None
            return (left.value == right.value) == isinstance(test.ops[0], ast.Eq)
        if isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING":
            return False
        if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING" and self._plainly_bound.get(test.id) == [None]:
            return False
        if isinstance(test, ast.List | ast.Tuple | ast.Set) and not test.elts:
            return False
        constant = self._constant(test)
        return None if constant is None else bool(constant.value)

    def _constant(self, node: ast.expr) -> ast.Constant | None:
        """Return the constant of an expression: itself, or what its name is bound to a single time in this file."""
        if isinstance(node, ast.Constant):
            return node
        if not isinstance(node, ast.Name) or self.stars or not self.changed.isdisjoint((node.id, "*")):
            return None
        bound = self._plainly_bound.get(node.id, [])
        return bound[0] if len(bound) == 1 else None

    @cached_property
    def _plainly_bound(self) -> dict[str, list[ast.Constant | None]]:
        """All that binds each name in any scope: the constant, or ``None`` for anything else."""
        listed: dict[str, list[ast.Constant | None]] = {}
        for node in self._all:
            for name, value in _bound_by(node):
                assigned = value if isinstance(node, ast.Assign | ast.AnnAssign) else None
                listed.setdefault(name, []).append(assigned if isinstance(assigned, ast.Constant) else None)
        return listed


_PARAMETER = ast.Constant("parameter")


def _goes_on(tried: ast.Try | ast.TryStar) -> bool:
    """Return whether what follows may run though the body of a ``try`` was left early."""
    return any(not isinstance(handler.body[-1], ast.Raise) for handler in tried.handlers)


def _suppresses(block: ast.With | ast.AsyncWith) -> bool:
    """Return whether a ``with`` goes on after an error in it, as ``contextlib.suppress`` does."""
    called = [item.context_expr.func for item in block.items if isinstance(item.context_expr, ast.Call)]
    names = [
        of.attr if isinstance(of, ast.Attribute) else of.id for of in called if isinstance(of, ast.Attribute | ast.Name)
    ]
    return any(name == "suppress" or name.endswith("raises") for name in names)


def _bound_by(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a node binds, with the assigned expression where there is a plain one."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], None
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name, None
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, None
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _targets(node.target, node.value)
    elif isinstance(node, ast.AugAssign):
        yield from _targets(node.target, None)
    elif isinstance(node, ast.NamedExpr):
        yield from _targets(node.target, node.value)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from _targets(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _targets(node.optional_vars, None)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, None
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest, None
    elif isinstance(node, ast.Delete):
        for target in node.targets:
            yield from _targets(target, None)
    if isinstance(node, _FUNCTIONS):
        given = node.args
        for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if argument is not None:
                yield argument.arg, _PARAMETER


def _targets(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    waiting = [(target, value)]
    while waiting:
        target, value = waiting.pop()
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Starred):
            waiting.append((target.value, None))
        elif isinstance(target, ast.Tuple | ast.List):
            given = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *given))
            alike = len(given) == len(target.elts) and not starred
            waiting += [(part, given[i] if alike else None) for i, part in enumerate(target.elts)]


def read_source(path: Path, is_program: bool = False) -> ReadSource | str:
    """Return a source file; the reason where it cannot be read as Python."""
    try:
        content = bytes_of(path)
        with warnings.catch_warnings():
            # What the parser thinks of a project's escapes is no matter of this program.
            warnings.simplefilter("ignore")
            return ReadSource(path, ast.parse(content), is_program)
    except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError) as error:
        if isinstance(error, BadInputError):
            return str(error)
        if isinstance(error, RecursionError | MemoryError):
            return f"{clean(path.name, 80)} is nested too deeply to be read"
        return f"{clean(path.name, 80)} is no Python that can be read ({type(error).__name__})"


def unparsed(node: ast.AST, longest: int = 60) -> str:
    """Return an expression as a short printable text."""
    try:
        return clean(ast.unparse(node), longest)
    except (RecursionError, ValueError, MemoryError):
        return "an expression"
