"""vantage6 algorithms and nodes: ``algorithm_store.json``, source and node configuration, read and not run.

Source: the developer guide and the guide for node administrators in vantage6's documentation (4.x), and the privacy
pages of the community's algorithms for summaries and contingency tables, which name their guards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from seepage.errors import BadInputError
from seepage.scan.project import LeavingMessage, ScannedProject, at, mapping, parts, sequence, settings_in
from seepage.scan.source import ReadSource, read_source
from seepage.text import clean

STORE = "algorithm_store.json"
_READERS = {"get_env_var", "getenv", "get", "_convert_envvar_to_int", "_convert_envvar_to_bool"}
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
    read = [read_source(path) for path in listed if path.suffix == ".py"]
    remarks = [clean(of, 200) for of in read if isinstance(of, str)]
    sources = [of for of in read if isinstance(of, ReadSource)]
    guards = _guards(folder, sources, given)
    stores = [path for path in listed if path.name == STORE]
    remarks += [
        f"{at(path, folder)} lists no functions: what leaves the node is unknown."
        for path in stores
        if not any(parts(settings_in(path).get("functions")))
    ]
    messages = [message for path in stores for message in _of_algorithm(folder, path, guards, bool(sources))]
    if not stores:
        messages.append(
            LeavingMessage(
                "node",
                "server",
                "results of whatever algorithm is allowed",
                tuple(f"{name}={clean(value, 60)}, for an algorithm that reads it" for name, value in given.items()),
                ("which algorithms run, and what they return",),
                _AUDIT,
            )
        )
    for path in nodes:
        remarks += _policies(folder, path)
    if not nodes:
        remarks.append("No configuration of a node is here: which algorithms and users it allows is unknown.")
    name = clean(settings_in(stores[0]).get("name", folder.name)) if stores else folder.name
    return ScannedProject("vantage6", name, folder, tuple(messages), tuple(remarks))


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
    return [f"Node of {at(path, folder)}: {'; '.join(lines)}; {state}.{warning}"]


def _of_algorithm(folder: Path, path: Path, guards: list[str], has_source: bool) -> list[LeavingMessage]:
    messages = []
    for function in parts(settings_in(path).get("functions")):
        central = str(function.get("type", "")).startswith("central")
        name = clean(function.get("name", "without a name"), 60)
        arguments = [clean(part.get("name", ""), 40) for part in parts(function.get("arguments"))]
        unknown = ["what it returns"]
        if central:
            unknown.append("guards of its own, beside those of the results that it combines")
        elif guards:
            unknown.append("whether every result passes these guards")
        elif has_source:
            unknown.append("no guard that reads a setting is seen in the source")
        else:
            unknown.append("guards, since the source is not here")
        if columns := [argument for argument in arguments if "col" in argument]:
            unknown.append(f"which columns a user asks for ({', '.join(columns)})")
        messages.append(
            LeavingMessage(
                "central part" if central else "node",
                "user" if central else "server, and the central part at some node",
                f"result of {name}({', '.join(arguments)}) ({at(path, folder)})",
                () if central else tuple(guards),
                tuple(unknown),
                _AUDIT,
            )
        )
    return messages


def _guards(folder: Path, sources: list[ReadSource], given: Mapping[str, object]) -> list[str]:
    """Return the settings of a node that the source reads, as far as their names speak of a guard."""
    texts = {name: value for source in sources for name, value in source.texts().items()}
    seen: dict[str, str] = {}
    for source in sources:
        for name, call in source.calls():
            if name.rpartition(".")[2] not in _READERS or not call.args:
                continue
            variable = _text(call.args[0], texts)
            if variable is None or not _speaks(variable):
                continue
            named = [word.value for word in call.keywords if word.arg == "default"]
            default = _text([*call.args[1:], *named][0], texts) if call.args[1:] or named else None
            value = (
                f"set to {clean(given[variable], 60)} at the node"
                if variable in given
                else f"default {clean(default, 60)}"
                if default is not None
                else "no default is seen, and no value at a node"
            )
            seen.setdefault(variable, f"{clean(variable, 60)} ({value}) read at {at(source.path, folder, call.lineno)}")
    unread = [name for name in given if name not in seen]
    # Values of others may be passwords.
    return [*seen.values(), *(f"{name}, set at the node and not seen in the source" for name in unread)]


def _speaks(name: str) -> bool:
    return any(word in name.upper() for word in _SPEAKING)


def _text(node: ast.expr, texts: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return texts.get(node.id)
    return texts.get(node.attr) if isinstance(node, ast.Attribute) else None
