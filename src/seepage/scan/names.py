"""What names of a project stand for: followed through imports, assignments, functions that return and other files.

A name counts as a framework's where its imports lead to a module of that framework, and to no file of the project.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from seepage.scan.project import place_of
from seepage.scan.source import Binding, FunctionNode, Reach, ReadSource, read_source, unparsed
from seepage.text import clean

FRAMEWORKS = ("flwr", "nvflare", "vantage6", "opacus")
NOT_LITERAL = "(set when it runs)"
_DEEPEST = 24
# Bindings and changes of a name that are followed at most.
_MOST = 300
_ADDING = {"append": 0, "extend": 0, "insert": 1}
_CHANGING = {"remove", "pop", "clear", "sort", "reverse", "__setitem__", "__delitem__"}
_FILLING = {"update", "setdefault", "popitem"}


@dataclass(frozen=True)
class Symbol:
    """What an expression stands for.

    Attributes:
        kind: a name of another package, the result of calling one, something of the project itself, or unknown.
        name: full name of another package's; else the name in the project, or the reason why it is unknown.
        source, node: where it is defined or called.
        reach: whether it is bound to this whatever the conditions are.
    """

    kind: Literal["outside", "call", "class", "function", "module", "unknown"]
    name: str
    source: ReadSource | None = None
    node: ast.AST | None = None
    reach: Reach = Reach.CERTAIN


@dataclass(frozen=True)
class Element:
    """An element of a list, and whether it is in the list whatever the conditions are."""

    source: ReadSource
    node: ast.expr
    reach: Reach


class Sources:
    """The source files of a project, and what their names stand for.

    Attributes:
        folder: folder of the project.
        sources: files that were read.
        unread: reasons for those that were not.
        shadowed: names of frameworks that files of the project have.
        changed: full names of other packages to which the project assigns.
    """

    def __init__(self, folder: Path, files: Iterable[Path], programs: bool = False) -> None:
        self.folder = folder
        listed = [path for path in files if path.suffix == ".py"]
        read = [read_source(path, programs) for path in listed]
        self.sources = [of for of in read if isinstance(of, ReadSource)]
        self.unread = [clean(of, 200).rstrip(".") for of in read if isinstance(of, str)]
        self._modules = {of.path: of for of in self.sources}
        self._paths = set(listed)
        self._folders = {above for path in listed for above in path.parents if above.is_relative_to(folder)}
        names = {part for path in listed for part in path.relative_to(folder).with_suffix("").parts}
        self.shadowed = {name for name in FRAMEWORKS if name in names or _has(folder, name)}
        self._symbols: dict[ast.AST, Symbol] = {}
        self._places: dict[tuple[Path, str], Symbol] = {}
        self.changed: set[str] = set()
        self.changed_calls: set[ast.AST] = set()
        for source in self.sources:
            self._note_changes(source)
        if any(source.changed for source in self.sources):
            self._symbols.clear()
            for source in self.sources:
                source.forget()

    def place(self, symbol: Symbol | Element | tuple[ReadSource, ast.AST]) -> str:
        """Return the file and line of a node."""
        source, node = symbol if isinstance(symbol, tuple) else (symbol.source, symbol.node)
        return (
            place_of(source.path, self.folder, getattr(node, "lineno", None))
            if source is not None
            else "an unknown place"
        )

    def outside_name(self, symbol: Symbol) -> str:
        """Return the full name of another package's object; empty for the project's own, changed and unknown ones."""
        if symbol.kind not in ("outside", "call") or symbol.name.partition(".")[0] in self.shadowed:
            return ""
        if symbol.node in self.changed_calls:
            return ""
        parts = symbol.name.split(".")
        # A module can be reached by several names, its last part under each.
        touched = any(
            other == parts[0]
            or (other.partition(".")[0] == parts[0] and not {parts[-1], "*"}.isdisjoint(other.split(".")))
            for other in self.changed
        )
        return "" if touched else symbol.name

    def symbol(self, source: ReadSource, node: ast.expr, depth: int = 0) -> Symbol:
        """Return what an expression stands for."""
        if depth > _DEEPEST:
            return Symbol("unknown", "names that lead on too far")
        if node not in self._symbols:
            self._symbols[node] = self._symbol(source, node, depth)
        return self._symbols[node]

    def _symbol(self, source: ReadSource, node: ast.expr, depth: int) -> Symbol:
        if isinstance(node, ast.Name):
            return self._looked_up(source, node.id, node, depth)
        if isinstance(node, ast.Attribute):
            return self._member_of(self.symbol(source, node.value, depth + 1), node.attr, depth)
        if isinstance(node, ast.NamedExpr):
            return self.symbol(source, node.value, depth + 1)
        if isinstance(node, ast.Call):
            called = self.symbol(source, node.func, depth + 1)
            if called.kind == "outside":
                return Symbol("call", called.name, source, node, called.reach)
            if called.kind == "function" and called.source is not None and isinstance(called.node, ast.FunctionDef):
                returned = self._returned(called.source, called.node)
                if len(returned) == 1 and returned[0].reach is Reach.CERTAIN:
                    return self.symbol(called.source, returned[0].node, depth + 1)
            return Symbol("unknown", f"what {unparsed(node.func)} gives", source, node)
        return Symbol("unknown", unparsed(node), source, node)

    def symbol_of(self, source: ReadSource, name: str) -> Symbol:
        """Return what a name of a file stands for once the file is loaded; dots lead to its parts."""
        first, *more = name.split(".")
        symbol = self._looked_up(source, first, None, 0)
        for part in more:
            symbol = self._member_of(symbol, part, 0)
        return symbol

    def value(self, source: ReadSource, node: ast.expr, depth: int = 0) -> object:
        """Return the plain value of an expression: a literal, or a name that is bound a single time to one."""
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            pass
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and (infinite := self._infinite(source, node)):
            return infinite
        if depth < _DEEPEST and isinstance(node, ast.Name | ast.Attribute):
            bound = self._plain_binding(source, node, depth)
            if bound is not None:
                return self.value(bound[0], bound[1], depth + 1)
        return NOT_LITERAL

    def _infinite(self, source: ReadSource, node: ast.expr) -> float | None:
        """Return infinity or no number, as ``float("inf")`` and ``math.inf`` name them; ``None`` for all else."""
        if isinstance(node, ast.Call):
            name = "of a text" if len(node.args) == 1 and not node.keywords else ""
            if name and self.symbol(source, node.func).name == "builtins.float":
                text = self.value(source, node.args[0])
                name = f"math.{text.strip().lower().removeprefix('+')}" if isinstance(text, str) else ""
        else:
            name = self.symbol(source, node).name
        number = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}.get(name.rpartition(".")[2].lower())
        return number if name.partition(".")[0] in ("math", "numpy", "torch") else None

    def arguments(self, source: ReadSource, call: ast.Call, names: tuple[str, ...] = ()) -> dict[str, object]:
        """Return the arguments of a call by name, as far as the names of those by place are known."""
        values: dict[str, object] = {}
        for i, node in enumerate(call.args):
            name = names[i] if i < len(names) else f"argument {i + 1}"
            values[name] = self.value(source, node)
        for keyword in call.keywords:
            values[keyword.arg or "**"] = self.value(source, keyword.value)
        return values

    def elements(
        self,
        source: ReadSource,
        node: ast.expr,
        reach: Reach = Reach.CERTAIN,
        depth: int = 0,
        earlier: dict[str, list[Element]] | None = None,
    ) -> tuple[list[Element], list[str]]:
        """Return the elements of a list, and the reasons why some of it cannot be read."""
        if depth > _DEEPEST:
            return [], ["names that lead on too far"]
        further = (depth + 1, earlier)
        if isinstance(node, ast.List | ast.Tuple):
            listed, reasons = list[Element](), list[str]()
            for part in node.elts:
                if isinstance(part, ast.Starred):
                    more, unread = self.elements(source, part.value, reach, *further)
                    listed, reasons = listed + more, reasons + unread
                elif isinstance(part, ast.IfExp):
                    for branch, runs in ((part.body, True), (part.orelse, False)):
                        truth = source.truth(part.test)
                        if truth is None or truth is runs:
                            listed.append(Element(source, branch, reach if truth is runs else Reach.CONDITIONAL))
                else:
                    listed.append(Element(source, part, reach))
            return listed, reasons
        if isinstance(node, ast.Constant) and node.value is None:
            return [], []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _joined([self.elements(source, side, reach, *further) for side in (node.left, node.right)])
        if isinstance(node, ast.IfExp):
            truth = source.truth(node.test)
            if truth is not None:
                return self.elements(source, node.body if truth else node.orelse, reach, *further)
            sides = [self.elements(source, side, Reach.CONDITIONAL, *further) for side in (node.body, node.orelse)]
            return _joined(sides)
        if isinstance(node, ast.BoolOp):
            return _joined([self.elements(source, part, Reach.CONDITIONAL, *further) for part in node.values])
        if isinstance(node, ast.Call):
            return self._elements_of_call(source, node, reach, depth)
        if isinstance(node, ast.Name):
            if earlier is not None and node.id in earlier:
                return [replace(of, reach=min(of.reach, reach)) for of in earlier[node.id]], []
            return self._elements_of_name(source, node.id, node, reach, depth)
        if isinstance(node, ast.Attribute):
            owner = self.symbol(source, node.value, depth + 1)
            if owner.kind == "module" and owner.source is not None:
                return self._elements_of_name(owner.source, node.attr, None, reach, depth)
        return [], [f"{unparsed(node)} is put together when it runs"]

    def functions(self) -> Iterable[tuple[ReadSource, FunctionNode]]:
        """Yield the functions of all files."""
        for source in self.sources:
            for node in source.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
                yield source, node

    def calls(self) -> Iterable[tuple[ReadSource, ast.Call, str, Reach]]:
        """Yield the calls of other packages' names that may run, with the full name and whether they surely run."""
        for source in self.sources:
            for node in source.nodes(ast.Call):
                if name := self.outside_name(self.symbol(source, node.func)):
                    reach = source.reach(node)
                    if reach is not Reach.DEAD and name.partition(".")[0] in FRAMEWORKS:
                        yield source, node, name, reach

    def uses(self, source: ReadSource, call: ast.Call) -> list[ast.Name] | None:
        """Return where the name that a call's result is assigned to is read; ``None`` if it is used in place."""
        parent = source.parents.get(call)
        if isinstance(parent, ast.Expr):
            return []
        if not isinstance(parent, ast.Assign | ast.AnnAssign):
            return None
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if len(names) != len(targets):
            return None
        reads = [n for n in source.nodes(ast.Name) if n.id in names and isinstance(n.ctx, ast.Load)]
        return [n for n in reads if source.reach(n) is not Reach.DEAD]

    def may_be(self, source: ReadSource, name: ast.Name, value: ast.expr) -> bool:
        """Return whether a value is one of those that a name is bound to in its scope."""
        scope = self._scope_of_name(source, name)
        return scope is not None and any(b.value is value for b in source.bindings[scope][name.id])

    def _looked_up(self, source: ReadSource, name: str, node: ast.AST | None, depth: int) -> Symbol:
        """Return what a name stands for where a node reads it; at the end of the file without a node."""
        scopes = [source.tree] if node is None else list(source.scopes_of(node))
        for scope in scopes:
            bound = [b for b in source.bindings.get(scope, {}).get(name, []) if b.reach is not Reach.DEAD]
            if not bound:
                continue
            if len(bound) > _MOST:
                return Symbol("unknown", f"{clean(name)}, which is bound {len(bound)} times", source, node)
            if scope is source.tree and not source.changed.isdisjoint((name, "*")):
                return Symbol("unknown", f"{clean(name)}, which other code may bind anew", source, node)
            if (node is None or scope is scopes[0]) and all(b.reach is Reach.CERTAIN for b in bound):
                # In code that runs from above to below, the last one before counts; at the end the last of all.
                before = [b for b in bound if node is None or b.place <= _start(node) or b.node is scope]
                bound = sorted(before, key=lambda b: (0, 0) if b.node is scope else b.place)[-1:] or bound
            if scope is source.tree and any(star.lineno > min(b.line for b in bound) for star in source.stars):
                return Symbol("unknown", f"{clean(name)}, which an import of all names may bind anew", source, node)
            symbols = [self._bound(source, b, name, depth + 1) for b in bound]
            first = symbols[0]
            if all((s.kind, s.name.rpartition(".")[2]) == (first.kind, first.name.rpartition(".")[2]) for s in symbols):
                # What two calls give differs by their arguments.
                alike = first.kind == "outside" or len(symbols) == 1
                certain = len(symbols) > 1 or bound[0].reach is Reach.CERTAIN
                if alike and all(s.name.partition(".")[0] == first.name.partition(".")[0] for s in symbols):
                    return first if certain else replace(first, reach=Reach.CONDITIONAL)
            return Symbol("unknown", f"{clean(name)}, which is bound {len(symbols)} times", source, node)
        if source.stars:
            return Symbol("unknown", f"{clean(name)}, by an import of all names", source, node)
        return Symbol("outside", f"builtins.{name}", source, node)

    def _bound(self, source: ReadSource, binding: Binding, name: str, depth: int) -> Symbol:
        node = binding.node
        if isinstance(node, ast.Import):
            alias = next(a for a in node.names if (a.asname or a.name.partition(".")[0]) == name)
            return self._module(source, alias.name if alias.asname else alias.name.partition(".")[0], 0)
        if isinstance(node, ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            return self._member_of(self._module(source, node.module or "", node.level), alias.name, depth)
        if isinstance(node, ast.ClassDef):
            return self._of_class(source, node, depth)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return Symbol("function" if not node.decorator_list else "unknown", clean(name), source, node)
        if binding.value is not None:
            return self.symbol(source, binding.value, depth + 1)
        return Symbol("unknown", f"{clean(name)}, which is given when it runs", source, node)

    def _of_class(self, source: ReadSource, node: ast.ClassDef, depth: int) -> Symbol:
        """Return a class: that which it inherits from, if it changes nothing of it."""
        plain = all(
            isinstance(part, ast.Pass) or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            for part in node.body
        )
        if plain and len(node.bases) == 1 and not node.keywords and not node.decorator_list:
            base = self.symbol(source, node.bases[0], depth + 1)
            if base.kind == "outside":
                return base
        return Symbol("class", clean(node.name), source, node)

    def _member_of(self, owner: Symbol, name: str, depth: int) -> Symbol:
        if depth > _DEEPEST:
            return Symbol("unknown", "names that lead on too far")
        if owner.kind == "outside":
            return replace(owner, name=f"{owner.name}.{name}")
        if owner.kind == "module" and owner.source is not None:
            if name in owner.source.bindings.get(owner.source.tree, {}) or owner.source.path.stem != "__init__":
                return self._looked_up(owner.source, name, None, depth + 1)
            return self._module(owner.source, name, 1)
        if owner.kind == "module":
            return self._module_in(Path(owner.name), name) or Symbol("unknown", clean(name))
        return Symbol("unknown", clean(f"{owner.name}.{name}", 80), owner.source, owner.node)

    def _module(self, source: ReadSource, name: str, level: int) -> Symbol:
        """Return the module of a full name: a file of the project wherever one has that name."""
        if level:
            base = source.path.parent
            for _ in range(level - 1):
                base = base.parent
            return (self._module_in(base, name) if name else self._package(base)) or Symbol("unknown", clean(name))
        if (place := (source.path.parent, name)) in self._places:
            return self._places[place]
        above = [base for base in source.path.parents if base.is_relative_to(self.folder)]
        bases = dict.fromkeys(base / more for base in above for more in ("", "src", "custom"))
        modules = [of for base in bases if (of := self._module_in(base, name)) is not None]
        inside = {of.name if of.source is None else str(of.source.path): of for of in modules}
        self._places[place] = self._chosen(source, name, list(inside.values()))
        return self._places[place]

    def _chosen(self, source: ReadSource, name: str, inside: list[Symbol]) -> Symbol:
        if len(inside) > 1:
            return Symbol("unknown", f"{clean(name)}, which several files are named")
        return inside[0] if inside else Symbol("outside", name, source)

    def _module_in(self, base: Path, name: str) -> Symbol | None:
        path = base.joinpath(*name.split("."))
        if (file := path.parent / f"{path.name}.py") in self._paths:
            return self._file(file)
        return self._package(path)

    def _package(self, path: Path) -> Symbol | None:
        if (file := path / "__init__.py") in self._paths:
            return self._file(file)
        return Symbol("module", str(path)) if path in self._folders else None

    def _file(self, path: Path) -> Symbol:
        if path in self._modules:
            return Symbol("module", clean(path.stem), self._modules[path])
        return Symbol("unknown", f"{clean(path.name)}, which cannot be read")

    def _plain_binding(self, source: ReadSource, node: ast.expr, depth: int) -> tuple[ReadSource, ast.expr] | None:
        if isinstance(node, ast.Attribute):
            owner = self.symbol(source, node.value, depth + 1)
            if owner.kind != "module" or owner.source is None:
                return None
            source, name, scopes = owner.source, node.attr, [owner.source.tree]
        elif isinstance(node, ast.Name):
            name, scopes = node.id, list(source.scopes_of(node))
        else:
            return None
        for scope in scopes:
            bound = [b for b in source.bindings.get(scope, {}).get(name, []) if b.reach is not Reach.DEAD]
            if len(bound) == 1 and bound[0].reach is Reach.CERTAIN:
                if isinstance(bound[0].node, ast.ImportFrom):
                    origin = bound[0].node
                    alias = next(a for a in origin.names if (a.asname or a.name) == name)
                    module = self._module(source, origin.module or "", origin.level)
                    if module.kind != "module" or module.source is None:
                        return None
                    original = ast.Name(alias.name, ast.Load())
                    return module.source, original
                return None if bound[0].value is None else (source, bound[0].value)
            if bound:
                return None
        return None

    def _returned(self, source: ReadSource, function: FunctionNode) -> list[Element]:
        """Return what a function returns; nothing of one that is a generator."""
        exits = [n for n in ast.walk(function) if isinstance(n, ast.Return | ast.Yield | ast.YieldFrom)]
        exits = [node for node in exits if source.scope_of(node) is function]
        if any(not isinstance(node, ast.Return) for node in exits):
            return []
        reaches = [(node, _inside(source, node, function)) for node in exits if isinstance(node, ast.Return)]
        return [Element(source, n.value or ast.Constant(None), r) for n, r in reaches if r is not Reach.DEAD]

    def _elements_of_call(
        self, source: ReadSource, node: ast.Call, reach: Reach, depth: int
    ) -> tuple[list[Element], list[str]]:
        called = self.symbol(source, node.func, depth + 1)
        if called.name in ("builtins.list", "builtins.tuple") and len(node.args) <= 1 and not node.keywords:
            return self.elements(source, node.args[0], reach, depth + 1) if node.args else ([], [])
        if called.kind == "function" and called.source is not None and isinstance(called.node, ast.FunctionDef):
            returned = self._returned(called.source, called.node)
            if returned:
                parts = [
                    self.elements(
                        of.source,
                        of.node,
                        min(reach, of.reach if len(returned) == 1 else Reach.CONDITIONAL),
                        depth + 1,
                    )
                    for of in returned
                ]
                return _joined(parts)
        return [], [f"{unparsed(node)} is put together when it runs"]

    def _elements_of_name(
        self, source: ReadSource, name: str, node: ast.AST | None, reach: Reach, depth: int
    ) -> tuple[list[Element], list[str]]:
        """Return the elements of the list of a name, by its assignments and additions in the order of lines."""
        scopes = [source.tree] if node is None else list(source.scopes_of(node))
        scope = next((s for s in scopes if source.bindings.get(s, {}).get(name)), None)
        if scope is None:
            return [], [f"{clean(name)} is not bound in this file"]
        events: list[tuple[int, ast.AST, Reach]] = [
            (b.line, b.node, b.reach) for b in source.bindings[scope][name] if b.reach is not Reach.DEAD
        ]
        changes = [n for n in source.changing if _changes(n, name) and scope in source.scopes_of(n)]
        for change in changes:
            if (runs := source.reach(change)) is not Reach.DEAD:
                events.append((change.lineno, change, runs if source.scope_of(change) is scope else Reach.CONDITIONAL))
        if len(events) > _MOST:
            return [], [f"{clean(name)} is changed {len(events)} times"]
        line = getattr(node, "lineno", None) if node is not None and scope is scopes[0] else None
        late = [e for e in events if line is not None and e[0] > line]
        listed, reasons = list[Element](), list[str]()
        for when, event, runs in sorted((e for e in events if e not in late), key=lambda e: e[0]):
            if event is node or (line is not None and when == line and isinstance(event, ast.Assign)):
                continue
            more, unread, adds = self._event(source, scope, event, name, min(runs, reach), depth, listed)
            if not adds:
                weaker = [replace(of, reach=Reach.CONDITIONAL) for of in listed]
                listed = [] if runs is Reach.CERTAIN and more is not None else weaker
            listed, reasons = listed + (more or []), reasons + unread
        if late:
            reasons.append(f"{clean(name)} is changed again after it is given")
        if escape := self._escapes(source, scope, name):
            reasons.append(escape)
        if late or escape:
            listed = [replace(of, reach=Reach.CONDITIONAL) for of in listed]
        return listed, reasons

    def _event(
        self,
        source: ReadSource,
        scope: ast.AST,
        event: ast.AST,
        name: str,
        reach: Reach,
        depth: int,
        before: list[Element],
    ) -> tuple[list[Element] | None, list[str], bool]:
        """Return what an event adds to a list, what of it cannot be read, and whether the list stays."""
        earlier = {name: before}
        if isinstance(event, ast.Call) and isinstance(event.func, ast.Attribute) and event.func.attr in _ADDING:
            position = _ADDING[event.func.attr]
            if len(event.args) > position:
                given = event.args[position]
                if event.func.attr != "extend":
                    return [Element(source, given, reach)], [], True
                return *self.elements(source, given, reach, depth + 1, earlier), True
        if isinstance(event, ast.AugAssign) and isinstance(event.op, ast.Add):
            return *self.elements(source, event.value, reach, depth + 1, earlier), True
        if isinstance(event, ast.ImportFrom):
            symbol_name = next(a.name for a in event.names if (a.asname or a.name) == name)
            module = self._module(source, event.module or "", event.level)
            if module.kind == "module" and module.source is not None:
                return *self._elements_of_name(module.source, symbol_name, None, reach, depth + 1), False
        binding = next((b for b in source.bindings[scope][name] if b.node is event), None)
        if binding is not None and binding.value is not None and isinstance(event, ast.Assign | ast.AnnAssign):
            return *self.elements(source, binding.value, reach, depth + 1, earlier), False
        return None, [f"{clean(name)} is changed in a manner that is not followed"], False

    def _note_changes(self, source: ReadSource) -> None:
        """Note the names of other packages and files, and the objects, that a file changes."""
        for node in source.nodes(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete):
            waiting: list[ast.expr] = list(node.targets) if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            while waiting:
                target = waiting.pop()
                if isinstance(target, ast.Tuple | ast.List):
                    waiting += target.elts
                elif isinstance(target, ast.Starred):
                    waiting.append(target.value)
                elif isinstance(target, ast.Subscript):
                    self._note_content(source, target.value, target.slice)
                elif isinstance(target, ast.Attribute):
                    self._note(self.symbol(source, target.value), target.attr)
        for call in source.nodes(ast.Call):
            self._note_call(source, call)

    def _note_call(self, source: ReadSource, call: ast.Call) -> None:
        called = self.symbol(source, call.func)
        first = str(self.value(source, call.args[0])) if call.args else "*"
        if called.name == "builtins.exec":
            # Text that is run can bind any name anew.
            source.changed.add("*")
        elif called.name in ("builtins.setattr", "builtins.delattr", "unittest.mock.patch.object") and call.args:
            attribute = str(self.value(source, call.args[1])) if call.args[1:] else "*"
            self._note(self.symbol(source, call.args[0]), attribute)
        elif called.name == "unittest.mock.patch" and call.args:
            self.changed.add(first)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("__setattr__", "__delattr__"):
            owner = self.symbol(source, call.func.value)
            if owner.name.startswith("builtins.") and call.args:
                owner, first = self.symbol(source, call.args[0]), "*"
            self._note(owner, first)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in {*_ADDING, *_CHANGING, *_FILLING}:
            self._note_content(source, call.func.value, None)

    def _note_content(self, source: ReadSource, container: ast.expr, key: ast.expr | None) -> None:
        """Note that the content of an object is changed: of a list, of a module's or object's own names."""
        literal = NOT_LITERAL if key is None else str(self.value(source, key))
        name = "*" if literal == NOT_LITERAL else literal
        if isinstance(container, ast.Call) and len(container.args) <= 1:
            called = self.symbol(source, container.func).name
            if called in ("builtins.globals", "builtins.locals"):
                source.changed.add(name)
            elif called == "builtins.vars" and container.args:
                self._note(self.symbol(source, container.args[0]), name)
        elif isinstance(container, ast.Attribute):
            owner = self.symbol(source, container.value)
            if f"{owner.name}.{container.attr}" == "sys.modules":
                self.changed |= set(FRAMEWORKS) if name == "*" else {name.partition(".")[0]}
            self._note(owner, name if container.attr == "__dict__" else container.attr)
        elif isinstance(container, ast.Name):
            if self.symbol(source, container).name == "sys.modules":
                self.changed |= set(FRAMEWORKS) if name == "*" else {name.partition(".")[0]}
            for origin, original in self._imported(source, container):
                if origin is not source:
                    origin.changed.add(original)

    def _imported(self, source: ReadSource, name: ast.Name) -> Iterable[tuple[ReadSource, str]]:
        """Yield the files of the project, and the names there, from which a name is imported."""
        for scope in source.scopes_of(name):
            for bound in source.bindings.get(scope, {}).get(name.id, []):
                if isinstance(bound.node, ast.ImportFrom):
                    alias = next(a for a in bound.node.names if (a.asname or a.name) == name.id)
                    module = self._module(source, bound.node.module or "", bound.node.level)
                    if module.source is not None:
                        yield module.source, alias.name

    def _note(self, owner: Symbol, attribute: str) -> None:
        if owner.kind == "call" and owner.node is not None:
            self.changed_calls.add(owner.node)
        elif owner.kind == "module" and owner.source is not None:
            owner.source.changed.add(attribute)
        elif owner.kind == "outside":
            self.changed.add(f"{owner.name}.{attribute}")

    def _escapes(self, source: ReadSource, scope: ast.AST, name: str) -> str:
        """Return how the list of a name may be changed otherwise than by this name; empty where it cannot."""
        if scope is source.tree and not source.changed.isdisjoint((name, "*")):
            return f"{clean(name)} may be changed by other code"
        bound = source.bindings[scope][name]
        others = {other for b in bound for other in _targets_of(b.node)} - {name}
        for read in source.names.get(name, []):
            parent = source.parents.get(read)
            if not isinstance(read.ctx, ast.Load) or scope is not self._scope_of_name(source, read):
                continue
            if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                others |= set(_targets_of(parent)) - {name}
            elif isinstance(parent, ast.Call | ast.keyword):
                call = parent if isinstance(parent, ast.Call) else source.parents.get(parent)
                if not isinstance(call, ast.Call) or call.func is read or source.reach(call) is Reach.DEAD:
                    continue
                called = self.symbol(source, call.func)
                method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                if called.name.partition(".")[0] not in ("builtins", *FRAMEWORKS) and method not in _ADDING:
                    return f"{clean(name)} is given to {unparsed(call.func)}, which may change it"
        for other in sorted(others):
            if any(_changes(node, other) for node in source.changing):
                return f"{clean(name)} has the other name {clean(other)}, by which it is changed"
        return ""

    def _scope_of_name(self, source: ReadSource, node: ast.Name) -> ast.AST | None:
        return next((s for s in source.scopes_of(node) if node.id in source.bindings.get(s, {})), None)


def _has(folder: Path, name: str) -> bool:
    """Return whether a framework's name stands in a folder itself, be it as a link or as a compiled module."""
    try:
        return any(
            entry.name == name or (entry.name.startswith(f"{name}.") and entry.suffix in (".so", ".pyd", ".pyc"))
            for entry in folder.iterdir()
            if entry.is_symlink() or entry.is_file()
        )
    except OSError:
        return False


def _inside(source: ReadSource, node: ast.AST, function: ast.AST) -> Reach:
    """Return whether a node runs where its function does."""
    around, within = source.reach(function), source.reach(node)
    return Reach.CERTAIN if within is around and not _conditions_between(source, node, function) else within


def _conditions_between(source: ReadSource, node: ast.AST, function: ast.AST) -> bool:
    while (parent := source.parents.get(node)) is not None and parent is not function:
        if isinstance(parent, ast.If | ast.For | ast.While | ast.Try | ast.With | ast.ExceptHandler | ast.match_case):
            return True
        node = parent
    return False


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _targets_of(node: ast.AST) -> Iterable[str]:
    """Yield the plain names that an assignment gives to what stands on its right."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id


def _changes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id == name and not isinstance(node.ctx, ast.Load)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    of_name = isinstance(node.func.value, ast.Name) and node.func.value.id == name
    return of_name and node.func.attr in {*_ADDING, *_CHANGING}


def _joined(parts: list[tuple[list[Element], list[str]]]) -> tuple[list[Element], list[str]]:
    return [of for part in parts for of in part[0]], [reason for part in parts for reason in part[1]]
