"""vantage6 algorithms and nodes: ``algorithm_store.json``, source and node configuration, read and not run.

Source: the developer guide and the guide for node administrators in vantage6's documentation (4.x), and the privacy
pages of the community's algorithms for summaries and contingency tables, which name their guards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from seepage.errors import BadInputError
from seepage.scan.effects import setting_without_effect
from seepage.scan.names import NOT_LITERAL, Sources, Symbol
from seepage.scan.project import (
    NO_AUDIT,
    LeavingMessage,
    ScannedProject,
    mapping,
    parts,
    place_of,
    sequence,
    settings_in,
    settings_or_note,
)
from seepage.scan.source import FunctionNode, Reach, ReadSource
from seepage.text import clean

STORE = "algorithm_store.json"
# Decorators of functions, and the steps that they stand for, of versions 4 and 5.
_DECORATORS = {
    **dict.fromkeys(("data", "dataframe", "dataframes", "database_connection", "metadata"), "federated"),
    "algorithm_client": "central",
    **{step: step for step in ("federated", "central", "data_extraction", "preprocessing")},
}
_OF_DECORATORS = ("vantage6.algorithm.tools.decorators.", "vantage6.algorithm.decorator.")
_READERS = {"vantage6.algorithm.tools.util.get_env_var", "os.environ.get", "os.getenv"}
_CONVERTING = ("builtins.int", "builtins.float", "builtins.str", "builtins.bool")
_LOGGING = ("debug", "info", "warn", "warning", "error", "critical", "exception", "log")
_STAYING = ("data_extraction", "preprocessing")
_AT_NODE, _CENTRAL = ("node", "server, and the central part at some node"), ("central part", "user")
_PARTIES = {
    **dict.fromkeys(("federated", "federated_compute"), _AT_NODE),
    **dict.fromkeys(("central", "central_compute", "postprocessing"), _CENTRAL),
}
# Words in names of environment variables that speak of a guard.
_SPEAKING = ("MINIMUM", "MIN_", "THRESHOLD", "ALLOW", "PRIVACY", "NOISE", "MAX", "LIMIT", "BIN_WIDTH")
_POLICIES = ("allowed_algorithms", "allowed_algorithm_stores", "allowed_users", "allowed_organizations")
_AUDIT = (
    "seepage statistics, of regressions, survival models and tables; seepage rounds, of statistics that are run again; "
    "seepage audit if it returns gradients or weights"
)


def is_node(settings: Mapping[str, object]) -> bool:
    """Return whether settings are those of a node."""
    node = _node(settings)
    return "policies" in node or "algorithm_env" in node or {"api_key", "databases"} <= set(node)


def _node(settings: Mapping[str, object]) -> Mapping[str, object]:
    """Return the settings of a node, which stand under ``application`` or ``node`` in some versions."""
    for key in ("application", "node"):
        if isinstance(settings.get(key), dict):
            return mapping(settings[key])
    return settings


def node_files(files: Iterable[Path]) -> list[Path]:
    """Return the files that are configurations of a node."""
    listed = []
    for path in files:
        if path.suffix in (".yaml", ".yml"):
            try:
                if is_node(settings_in(path)):
                    listed.append(path)
            except BadInputError:
                # Templates and files of other programs.
                continue
    return listed


def scan_vantage6(folder: Path, files: Iterable[Path]) -> ScannedProject:
    """Return what an algorithm of vantage6, or the configuration of a node, says of its messages.

    Args:
        folder: folder of the algorithm or configuration.
        files: its files.
    """
    listed = list(files)
    nodes = node_files(listed)
    given = {
        clean(name, 60): value for path in nodes for name, value in _environment(path).items() if _speaks(str(name))
    }
    sources = Sources(folder, [path for path in listed if not _is_test(path, folder)])
    unread = [*sources.unread, *(f"{name} is a name of this folder's own files" for name in sources.shadowed)]
    remarks: list[str] = []
    stores = [path for path in listed if path.name == STORE]
    messages: list[LeavingMessage] = []
    name = ""
    for path in stores:
        store = settings_or_note(path, folder, unread)
        name = name or clean(store.get("name", ""))
        listed_functions = list(parts(store.get("functions")))
        if not listed_functions:
            remarks.append(f"{place_of(path, folder)} lists no functions: what leaves the node is unknown.")
        messages += _of_algorithm(sources, listed_functions, place_of(path, folder), given, remarks, unread)
    decorated = [] if messages or (remarks and stores) else list(decorated_functions(sources))
    if decorated:
        unread.append(f"no {STORE} that lists its functions is here, which are known by their decorators alone")
        messages += _of_algorithm(sources, decorated, "by its decorators", given, remarks, unread)
    if not stores and not decorated:
        idle = {of: reason for of, value in given.items() if (reason := setting_without_effect(of, value))}
        settings = {of: clean(value, 60) for of, value in given.items()}
        messages.append(
            LeavingMessage(
                "node",
                "server",
                "results of whatever algorithm is allowed",
                tuple(f"{of}={v}, for an algorithm that reads it" for of, v in settings.items() if of not in idle),
                (
                    "which algorithms run, and what they return",
                    *(f"without effect by its arguments: {of}={settings[of]} ({why})" for of, why in idle.items()),
                ),
                _AUDIT,
            )
        )
    for path in nodes:
        remarks += _policies(folder, path)
    if not nodes:
        remarks.append("No configuration of a node is here: which algorithms and users it allows is unknown.")
    name = name or clean(folder.name)
    known = bool(nodes or messages or (remarks and any("stays at the node" in of for of in remarks)))
    return ScannedProject(
        "vantage6", name, folder, tuple(messages), tuple(remarks), tuple(dict.fromkeys(unread)), known
    )


def _is_test(path: Path, folder: Path) -> bool:
    inside = path.relative_to(folder)
    return inside.name.startswith("test_") or any(part in ("test", "tests") for part in inside.parts[:-1])


def _environment(path: Path) -> Mapping[str, object]:
    return mapping(_node(settings_in(path)).get("algorithm_env"))


def _policies(folder: Path, path: Path) -> list[str]:
    node = _node(settings_in(path))
    policies = mapping(node.get("policies"))
    lines = []
    for name in _POLICIES:
        allowed = sequence(policies.get(name))
        lines.append(f"{name}: {', '.join(clean(of, 80) for of in allowed) if allowed else 'not limited'}")
    open_to_all = not any(sequence(policies.get(name)) for name in _POLICIES[:2])
    if policies.get("allow_either_whitelist_or_store"):
        lines.append("one of the two lists of algorithms is enough")
    warning = " Every algorithm may run on this node." if open_to_all else ""
    encrypted = mapping(node.get("encryption")).get("enabled")
    state = "whether results are encrypted is unknown"
    if isinstance(encrypted, bool):
        state = f"results are {'' if encrypted else 'not '}encrypted on their way through the server"
    return [f"Node of {place_of(path, folder)}: {'; '.join(lines)}; {state}.{warning}"]


def decorated_functions(sources: Sources) -> Iterable[Mapping[str, object]]:
    """Yield the functions that decorators of vantage6 mark, in the form of the list of an algorithm store.

    A function with local data counts as one that runs at a node, whatever else it is given. Of version 5, the decorator
    of the step decides.
    """
    for source, function in sources.functions():
        steps = []
        for decorator in function.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            full = sources.outside_name(sources.symbol(source, target))
            if full.startswith(_OF_DECORATORS) and (last := full.rpartition(".")[2]) in _DECORATORS:
                steps.append((last != _DECORATORS[last], _DECORATORS[last]))
        if steps:
            # The step's own decorator comes first, then data, then a client.
            step = min(steps, key=lambda of: (of[0], of[1] != "federated"))[1]
            names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
            yield {"name": function.name, "type": step, "arguments": [{"name": name} for name in names]}


def _of_algorithm(
    sources: Sources,
    listed: Iterable[Mapping[str, object]],
    place: str,
    given: Mapping[str, object],
    remarks: list[str],
    unread: list[str],
) -> list[LeavingMessage]:
    """Return the messages of an algorithm's functions, by their ``step_type`` (version 5) or ``type`` (version 4)."""
    messages, staying = list[LeavingMessage](), list[str]()
    functions = {clean(node.name, 60): (source, node) for source, node in sources.functions()}
    for function in listed:
        step = clean(function.get("step_type", function.get("type", "")), 40)
        name = clean(function.get("name", "without a name"), 60)
        arguments = [clean(part.get("name", ""), 40) for part in parts(function.get("arguments"))]
        call = f"{name}({', '.join(arguments)})"
        if step in _STAYING:
            staying.append(name)
            remarks.append(f"{call} is {step}: its data frame stays at the node ({place}).")
            continue
        sender, receiver = _PARTIES.get(step, ("node or central part", "unknown"))
        unknown = ["what it returns"]
        guards: list[str] = []
        if step not in _PARTIES:
            unknown.append(f"whether it runs at a node, since its step is {step or 'not given'}")
            unread.append(f"the step of {name} is {step or 'not given'}")
        if sender == "central part":
            unknown.append("guards of its own, beside those of the results that it combines")
        elif name in functions:
            guards, idle = _guards(sources, functions[name], given)
            unknown += idle
            unknown.append(
                "whether every result passes these guards" if guards else "no guard that reads a setting is seen in it"
            )
        elif sources.sources:
            unknown.append("guards: the function is not seen in the source")
            unread.append(f"{name} is not seen in the source")
        else:
            unknown.append("guards, since the source is not here")
            unread.append(f"the source of {name} is not here")
        if columns := [argument for argument in arguments if "col" in argument]:
            unknown.append(f"which columns a user asks for ({', '.join(columns)})")
        content = f"result of {call} ({place})"
        messages.append(LeavingMessage(sender, receiver, content, tuple(guards), tuple(unknown), _AUDIT))
    if staying:
        messages.append(
            LeavingMessage(
                "node",
                "server",
                f"names and types of the columns of data frames whose rows stay at the node ({', '.join(staying)})",
                (),
                ("whether names of columns hold values, as after one-hot encoding",),
                NO_AUDIT,
            )
        )
    return messages


def _guards(
    sources: Sources, function: tuple[ReadSource, FunctionNode], given: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """Return the settings of a node that a function reads, itself or through others, and those without effect."""
    variables: dict[str, str] = {}
    idle: dict[str, str] = {}
    for source, node in _reached(sources, function):
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
            if not call.args or source.reach(call) is Reach.DEAD or sources.uses(source, call) == []:
                continue
            symbol = sources.symbol(source, call.func)
            if sources.outside_name(symbol) not in _READERS and not _reads(sources, symbol):
                continue
            variable = sources.value(source, call.args[0])
            if not isinstance(variable, str) or variable == NOT_LITERAL or not _speaks(variable):
                continue
            named = [word.value for word in call.keywords if word.arg == "default"]
            defaults = [*call.args[1:], *named]
            default = sources.value(source, defaults[0]) if defaults else NOT_LITERAL
            value = (
                f"set to {clean(given[variable], 60)} at the node"
                if variable in given
                else f"default {clean(default, 60)}"
                if default != NOT_LITERAL
                else "no default is seen, and no value at a node"
            )
            words = f"{clean(variable, 60)} ({value}) read at {sources.place((source, call))}"
            if reason := setting_without_effect(variable, given.get(variable, default)):
                idle.setdefault(variable, f"without effect by its arguments: {words}: {reason}")
            elif _only_printed(sources, source, call):
                idle.setdefault(variable, f"without effect: {words}: what falls short of it is only printed")
            else:
                variables.setdefault(variable, words)
    # A setting that stops nothing at any place is no guard by another place.
    return [words for variable, words in variables.items() if variable not in idle], list(idle.values())


def _only_printed(sources: Sources, source: ReadSource, call: ast.Call) -> bool:
    """Return whether all that reads a setting leads to nothing but printed or logged words."""
    outer: ast.Call = call
    while isinstance(parent := source.parents.get(outer), ast.Call) and outer in parent.args:
        if sources.symbol(source, parent.func).name not in _CONVERTING:
            return False
        outer = parent
    reads = sources.uses(source, outer)
    if reads is None:
        return False
    scope = source.scope_of(outer)
    near = [
        n for n in reads if next((s for s in source.scopes_of(n) if n.id in source.bindings.get(s, {})), None) is scope
    ]
    return all(_prints(sources, source, read) for read in near)


def _prints(sources: Sources, source: ReadSource, read: ast.expr) -> bool:
    """Return whether what is read is printed, or decides on what is printed alone."""
    node: ast.AST = read
    while (parent := source.parents.get(node)) is not None and not isinstance(node, ast.stmt):
        if isinstance(parent, ast.If) and node is parent.test:
            return all(_is_print(sources, source, part) for part in (*parent.body, *parent.orelse))
        if isinstance(parent, ast.Call) and not _is_print(sources, source, parent):
            return False
        node = parent
    return _is_print(sources, source, node)


def _is_print(sources: Sources, source: ReadSource, node: ast.AST) -> bool:
    """Return whether a statement or call prints, logs or does nothing."""
    node = node.value if isinstance(node, ast.Expr) else node
    if isinstance(node, ast.Pass | ast.Constant):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = sources.symbol(source, node.func).name
    logs = name.startswith(("logging.", "vantage6.")) and name.rpartition(".")[2] in _LOGGING
    return name == "builtins.print" or logs


def _reached(sources: Sources, function: tuple[ReadSource, FunctionNode]) -> list[tuple[ReadSource, ast.AST]]:
    """Return a function and the project's functions and classes that it names, and those that they name."""
    listed: list[tuple[ReadSource, ast.AST]] = [function]
    for source, node in listed:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Load):
                symbol = sources.symbol(source, inner)
                target, known = symbol.node, any(symbol.node is other for _, other in listed)
                if symbol.source and isinstance(target, ast.FunctionDef | ast.ClassDef) and not known:
                    listed.append((symbol.source, target))
    return listed


def _reads(sources: Sources, symbol: Symbol) -> bool:
    """Return whether a function of the project passes its first parameter on to a reader of settings."""
    if symbol.source is None or not isinstance(symbol.node, ast.FunctionDef) or not symbol.node.args.args:
        return False
    source, first = symbol.source, symbol.node.args.args[0].arg
    return any(
        isinstance(call, ast.Call)
        and call.args
        and isinstance(call.args[0], ast.Name)
        and call.args[0].id == first
        and sources.outside_name(sources.symbol(source, call.func)) in _READERS
        for call in ast.walk(symbol.node)
    )


def _speaks(name: str) -> bool:
    return any(word in name.upper() for word in _SPEAKING)
