"""Opacus in training: whether the private optimiser is the one that trains, in code that clients reach.

Source: ``opacus.PrivacyEngine`` of version 1.6. The optimiser that ``make_private`` returns adds the noise; the given
one, and any other, trains without.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from seepage.scan.effects import idle_words, number, without_effect
from seepage.scan.names import Sources
from seepage.scan.source import FunctionNode, Reach, ReadSource, unparsed

_NOISE = {"make_private": "noise_multiplier", "make_private_with_epsilon": "target_epsilon"}
_DEEPEST = 4
# Engines, trainings and functions with an optimiser that are followed at most.
_MOST = 50
_READS = 300
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class _Private:
    """A call of ``make_private``: its words, why it is not credited, its function, and the steps of its optimiser."""

    words: str
    doubt: str = ""
    function: ast.AST | None = None
    steps: set[ast.AST] = field(default_factory=set)


def noise_in_training(sources: Sources, training: list[tuple[ReadSource, FunctionNode]]) -> list[tuple[str, str]]:
    """Return each use of Opacus in words, and the reason why it is not credited; empty where it surely adds noise.

    Args:
        sources: source of the project.
        training: functions by which the server asks clients to train, and those that make a client.
    """
    engines = [
        (source, call, reach)
        for source, call, name, reach in sources.calls()
        if name.startswith("opacus.") and name.rpartition(".")[2] == "PrivacyEngine"
    ]
    if len(engines) > _MOST:
        words = f"Opacus PrivacyEngine at {len(engines)} places"
        return [(words, _unknown(words, f"more than {_MOST} are not followed"))]
    reached = _reached(sources, training, modules=True) if engines else set()
    uses = [private for source, call, reach in engines for private in _of_engine(sources, source, call, reach, reached)]
    if not uses:
        return []
    accepted = {step for private in uses for step in private.steps if not private.doubt}
    others = [
        f"{unparsed(step)} at {sources.place((source, step))} is not seen to be a step of its optimiser"
        for source, step in _steps(sources)
        if step not in accepted and not _of_schedule(sources, source, step)
    ]
    if why := others[0] if others else _doubt_of_others(sources, training, uses):
        for private in uses:
            private.doubt = private.doubt or _unknown(private.words, why)
    return [(private.words, private.doubt) for private in uses]


def _unknown(words: str, why: str) -> str:
    return f"{words}: {why}, so that whether it guards is not known"


def _of_engine(
    sources: Sources,
    source: ReadSource,
    engine: ast.Call,
    reach: Reach,
    reached: set[ast.AST],
) -> Iterator[_Private]:
    words = f"Opacus PrivacyEngine at {sources.place((source, engine))}"
    reads = sources.uses(source, engine)
    owners: list[ast.expr] = [engine] if reads is None else list(reads)
    calls = 0
    for owner in owners:
        method = source.parents.get(owner)
        call = source.parents.get(method) if method is not None else None
        if not isinstance(method, ast.Attribute) or not method.attr.startswith("make_private"):
            continue
        symbol = sources.symbol(source, owner)
        if symbol.kind == "call" and symbol.node is not engine:
            # The name of another engine elsewhere.
            continue
        calls += 1
        private = _Private(words, function=_function_of(source, owner))
        if not isinstance(call, ast.Call) or call.func is not method:
            why = "make_private is not called in place"
        elif symbol.kind != "call":
            why = f"{unparsed(owner)} may be another object"
        elif min(reach, source.reach(call)) is not Reach.CERTAIN:
            why = "make_private is called under a condition"
        else:
            why = _doubt_of_arguments(sources, source, call, method.attr, private)
            why = why or _doubt_of_reach(source, call, reached)
            why = why or _doubt_of_training(sources, source, call, private)
        if why:
            private.doubt = why if why.startswith("without effect") else _unknown(words, why)
        yield private
    if not calls:
        yield _Private(words, _unknown(words, "no make_private of it is seen"))


def _doubt_of_arguments(sources: Sources, source: ReadSource, call: ast.Call, method: str, private: _Private) -> str:
    """Return why the arguments do not show noise and a clip norm."""
    if method not in _NOISE:
        return f"{method} is not known"
    given = sources.arguments(source, call)
    needed = (_NOISE[method], "max_grad_norm")
    shown = {name: given[name] for name in needed if name in given}
    if reason := without_effect(method, shown):
        return idle_words(f"Opacus {method}", shown, sources.place((source, call)), reason)
    for name in needed:
        if number(given.get(name)) is None:
            return f"{name} is set when it runs"
    private.words += f" with {', '.join(f'{name}={value}' for name, value in shown.items())}"
    return ""


def _doubt_of_reach(source: ReadSource, call: ast.Call, reached: set[ast.AST]) -> str:
    """Return why code of a client may not come to a call."""
    function = _function_of(source, call)
    if function is None or function in reached:
        return ""
    return f"{getattr(function, 'name', 'its function')} is not seen to be called by the training of clients"


def _reached(sources: Sources, training: list[tuple[ReadSource, FunctionNode]], modules: bool) -> set[ast.AST]:
    """Return the functions that the training of clients, or the modules themselves, surely call by their names."""
    calls: dict[ast.AST, list[ast.Call]] = {}
    for source in sources.sources:
        for call in source.nodes(ast.Call):
            if source.reach(call) is Reach.CERTAIN:
                calls.setdefault(_function_of(source, call) or source.tree, []).append(call)
    methods = {(source.parents.get(node), node.name): (source, node) for source, node in sources.functions()}
    reached: set[ast.AST] = {node for _, node in training}
    waiting: list[tuple[ReadSource, ast.AST]] = list(training)
    if modules:
        waiting += [(source, source.tree) for source in sources.sources]
    for source, place in waiting:
        for call in calls.get(place, []):
            symbol = sources.symbol(source, call.func)
            called = (symbol.source, symbol.node) if symbol.kind == "function" else None
            if symbol.kind == "class":
                called = methods.get((symbol.node, "__init__"))
            elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
                owner = source.parents.get(place)
                if call.func.value.id == "self" and isinstance(owner, ast.ClassDef):
                    called = methods.get((owner, call.func.attr), called)
            if called is None or called[0] is None or not isinstance(called[1], _FUNCTIONS) or called[1] in reached:
                continue
            reached.add(called[1])
            waiting.append((called[0], called[1]))
    return reached


def _doubt_of_others(sources: Sources, training: list[tuple[ReadSource, FunctionNode]], private: list[_Private]) -> str:
    """Return which training of clients comes to no private optimiser; empty where all do."""
    groups: dict[ast.AST, list[tuple[ReadSource, FunctionNode]]] = {}
    for source, function in training:
        groups.setdefault(_class_of(source, function) or function, []).append((source, function))
    guarded = [of.function for of in private if not of.doubt]
    if None in guarded or len(groups) < 2:
        return ""
    if len(groups) > _MOST:
        return f"there are more than {_MOST} trainings"
    for group in groups.values():
        if _reached(sources, group, modules=False).isdisjoint(of for of in guarded if of is not None):
            return f"the training at {sources.place(group[0])} is not seen to call make_private"
    return ""


def _function_of(source: ReadSource, node: ast.AST) -> ast.AST | None:
    """Return the function around a node; ``None`` at the level of the module."""
    scope = source.scope_of(node)
    while scope is not source.tree and not isinstance(scope, (*_FUNCTIONS, ast.Lambda)):
        scope = source.scope_of(scope)
    return None if scope is source.tree else scope


def _class_of(source: ReadSource, node: ast.AST) -> ast.ClassDef | None:
    """Return the class of which a function is a method."""
    parent = source.parents.get(node)
    return parent if isinstance(parent, ast.ClassDef) else None


def _doubt_of_training(sources: Sources, source: ReadSource, call: ast.Call, private: _Private) -> str:
    """Return why the optimiser that a call returns is not known to train; its steps are noted."""
    assignment = source.parents.get(call)
    targets = assignment.targets if isinstance(assignment, ast.Assign) else []
    target = targets[0] if len(targets) == 1 else None
    if not isinstance(target, ast.Tuple | ast.List) or not 3 <= len(target.elts) <= 4:
        return "the optimiser that it returns is not bound to a name"
    optimiser = target.elts[1]
    if isinstance(optimiser, ast.Name):
        reads, why = _reads_of_name(sources, source, optimiser, call)
    elif isinstance(optimiser, ast.Attribute):
        reads, why = _reads_of_attribute(sources, source, optimiser, call)
    else:
        reads, why = [], "the optimiser that it returns is not bound to a name"
    if why or len(reads) > _READS:
        return why or f"{unparsed(optimiser)} is read at {len(reads)} places, more than are followed"
    accepted: set[ast.AST] = {node for _, node in reads}
    for where, read in reads:
        private.steps |= _steps_of(sources, where, read, accepted, 0)
    return "" if private.steps else f"{unparsed(optimiser)}, the optimiser that it returns, is not seen to train"


def _reads_of_name(
    sources: Sources, source: ReadSource, name: ast.Name, call: ast.Call
) -> tuple[list[tuple[ReadSource, ast.expr]], str]:
    """Return where the name of the optimiser is read after the call."""
    scope, end = source.scope_of(name), _end(call)
    bound = source.bindings.get(scope, {}).get(name.id, [])
    before = (source.parents.get(call), scope)
    if not bound or any(of.place > end and of.node not in before for of in bound):
        return [], f"{name.id} is bound anew after make_private"
    if any(name.id in node.names for node in source.nodes(ast.Global, ast.Nonlocal)):
        return [], f"{name.id} may be bound anew by other code"
    reads: list[tuple[ReadSource, ast.expr]] = []
    for read in source.names.get(name.id, []):
        if isinstance(read.ctx, ast.Load) and source.reach(read) is not Reach.DEAD:
            inside = next((s for s in source.scopes_of(read) if read.id in source.bindings.get(s, {})), None)
            late = (read.lineno, read.col_offset) > end
            if inside is scope and (late or (scope is source.tree and source.scope_of(read) is not scope)):
                reads.append((source, read))
    return reads, ""


def _reads_of_attribute(
    sources: Sources, source: ReadSource, attribute: ast.Attribute, call: ast.Call
) -> tuple[list[tuple[ReadSource, ast.expr]], str]:
    """Return where the attribute of the optimiser is read: in the methods of its class, after the call in its own."""
    method = _function_of(source, call)
    owner = None if method is None else _class_of(source, method)
    if owner is None or not isinstance(attribute.value, ast.Name) or attribute.value.id != "self":
        return [], f"{unparsed(attribute)} is no attribute of a client"
    end = _end(call)
    reads: list[tuple[ReadSource, ast.expr]] = []
    for where in sources.sources:
        for node in where.nodes(ast.Attribute):
            if node.attr != attribute.attr or node is attribute or where.reach(node) is Reach.DEAD:
                continue
            around = _function_of(where, node)
            inside = around is not None and _class_of(where, around) is owner
            late = around is not method or (node.lineno, node.col_offset) > end
            if not isinstance(node.ctx, ast.Load):
                if not inside or late:
                    return [], f"{unparsed(attribute)} is bound anew at {sources.place((where, node))}"
            elif inside and late and isinstance(node.value, ast.Name) and node.value.id == "self":
                reads.append((where, node))
    return reads, ""


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _steps_of(sources: Sources, source: ReadSource, read: ast.expr, accepted: set[ast.AST], depth: int) -> set[ast.AST]:
    """Return the steps of an optimiser by a name that is read: its own, and those of functions that it is given to."""
    parent = source.parents.get(read)
    if isinstance(parent, ast.Attribute) and parent.attr == "step":
        return {parent}
    if not isinstance(parent, ast.Call | ast.keyword) or depth > _DEEPEST:
        return set()
    call = parent if isinstance(parent, ast.Call) else source.parents.get(parent)
    if not isinstance(call, ast.Call) or call.func is read:
        return set()
    symbol = sources.symbol(source, call.func)
    function, origin = symbol.node, symbol.source
    if symbol.kind != "function" or not isinstance(function, ast.FunctionDef) or origin is None:
        return set()
    name = _parameter(function, call, read)
    followed = sum(isinstance(node, ast.FunctionDef) for node in accepted)
    # The function may be given other optimisers elsewhere.
    if name is None or function in accepted or followed > _MOST or not _always_given(sources, function, name, accepted):
        return set()
    bound = origin.bindings.get(function, {}).get(name, [])
    if len(bound) != 1 or origin.names.get(name) is None:
        return set()
    inner = [
        node
        for node in origin.names[name]
        if isinstance(node.ctx, ast.Load)
        and next((s for s in origin.scopes_of(node) if name in origin.bindings.get(s, {})), None) is function
        and origin.reach(node) is not Reach.DEAD
    ]
    accepted |= {function, *inner}
    steps: set[ast.AST] = set()
    for node in inner:
        steps |= _steps_of(sources, origin, node, accepted, depth + 1)
    return steps


def _parameter(function: ast.FunctionDef, call: ast.Call, given: ast.expr) -> str | None:
    """Return the parameter of a function that a call gives an expression to."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    for i, argument in enumerate(call.args):
        if argument is given:
            return names[i] if i < len(names) else None
    return next((keyword.arg for keyword in call.keywords if keyword.value is given), None)


def _always_given(sources: Sources, function: ast.FunctionDef, name: str, accepted: set[ast.AST]) -> bool:
    """Return whether all that reads the name of a function calls it with an accepted optimiser."""
    for source in sources.sources:
        for node in source.nodes(ast.Name, ast.Attribute):
            if not isinstance(node.ctx, ast.Load) or source.reach(node) is Reach.DEAD:
                continue
            symbol = sources.symbol(source, node)
            if symbol.kind != "function" or symbol.node is not function:
                if isinstance(node, ast.Name) and node.id == function.name and symbol.kind == "unknown":
                    return False
                continue
            call = source.parents.get(node)
            if not isinstance(call, ast.Call) or call.func is not node:
                return False
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if not any(of in accepted and _parameter(function, call, of) == name for of in given):
                return False
    return True


def _steps(sources: Sources) -> Iterator[tuple[ReadSource, ast.Attribute]]:
    """Yield where a method ``step`` is read by code that may run."""
    for source in sources.sources:
        for node in source.nodes(ast.Attribute):
            if node.attr == "step" and isinstance(node.ctx, ast.Load) and source.reach(node) is not Reach.DEAD:
                yield source, node


def _of_schedule(sources: Sources, source: ReadSource, step: ast.Attribute) -> bool:
    """Return whether a step is that of a schedule of learning rates."""
    return sources.symbol(source, step.value).name.startswith("torch.optim.lr_scheduler.")
