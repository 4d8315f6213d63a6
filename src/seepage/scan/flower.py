"""Flower apps: ``pyproject.toml`` and the source of the two apps, read and not run.

Source: the pages *Configure pyproject.toml*, *Use strategies*, *Use differential privacy* and *Secure aggregation
protocols*, and the reference of ``flwr.serverapp.strategy`` and ``flwr.clientapp.mod`` in Flower's documentation,
version 1.29.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from seepage.scan.project import NO_AUDIT, LeavingMessage, ScannedProject, at, in_words, mapping
from seepage.scan.source import ReadSource, arguments_of, read_source
from seepage.text import clean

# Strategies to which clients send weights after local training.
_OF_WEIGHTS = {
    *("FedAvg", "FedAvgM", "FedAdam", "FedAdagrad", "FedYogi", "FedOpt", "FedProx", "FedMedian", "FedTrimmedAvg"),
    *("QFedAvg", "Krum", "MultiKrum", "Bulyan", "FaultTolerantFedAvg", "FedAvgAndroid"),
}
_OF_TREES = {"FedXgbBagging", "FedXgbCyclic", "FedXgbNnAvg"}
_AT_SERVER = "clips and adds noise at the server, after it has the update: no guard against the server"
_NOISE_AT_SERVER = "leaves clipping to a mod of the client, and adds noise at the server: no noise against the server"
_WRAPPERS = {
    "DifferentialPrivacyServerSideFixedClipping": _AT_SERVER,
    "DifferentialPrivacyServerSideAdaptiveClipping": _AT_SERVER,
    "DifferentialPrivacyClientSideFixedClipping": _NOISE_AT_SERVER,
    "DifferentialPrivacyClientSideAdaptiveClipping": _NOISE_AT_SERVER,
    "DPFedAvgFixed": "is older; where it clips and adds noise depends on its arguments",
    "DPFedAvgAdaptive": "is older; where it clips and adds noise depends on its arguments",
}
# What mods of clients do, and the defense of an audit that stands for them.
_MODS = {
    "LocalDpMod": ("clips and adds noise at the client", "gaussian_noise"),
    "fixedclipping_mod": ("clips at the client", "clipping"),
    "adaptiveclipping_mod": ("clips at the client", "clipping"),
    "secaggplus_mod": ("secure aggregation, if the server runs its workflow too", "aggregation"),
    "secagg_mod": ("secure aggregation, if the server runs its workflow too", "aggregation"),
}
_NO_GUARDS = {"message_size_mod", "parameters_size_mod", "arrays_size_mod"}
_WORKFLOWS = {"SecAggPlusWorkflow", "SecAggWorkflow"}
_PAGE = "docs/flower-settings.md says how its settings become a document"


def scan_flower(folder: Path, settings: Mapping[str, object], files: Iterable[Path]) -> ScannedProject:
    """Return what a Flower app says of its messages.

    Args:
        folder: folder of ``pyproject.toml``.
        settings: its content.
        files: files of the folder.
    """
    flower = mapping(mapping(settings.get("tool")).get("flwr"))
    app = mapping(flower.get("app"))
    read = [read_source(path) for path in files if path.suffix == ".py"]
    remarks = [clean(of, 200) for of in read if isinstance(of, str)]
    sources = [of for of in read if isinstance(of, ReadSource)]
    for role, place in mapping(app.get("components")).items():
        module = str(place).partition(":")[0].replace(".", "/")
        if not any(of.path.with_suffix("").as_posix().endswith(module) for of in sources):
            remarks.append(f"{clean(role)} is {clean(place)}, which is not in this folder: what it does is unknown.")
    config = {clean(name): value for name, value in mapping(app.get("config")).items()}
    if config:
        remarks.append(f"Settings, which a run can override: {in_words(config)}.")
    name = clean(mapping(settings.get("project")).get("name", folder.name))
    remarks += _wrappers(folder, sources)
    return ScannedProject("Flower app", name, folder, tuple(_messages(folder, sources)), tuple(remarks))


def _wrappers(folder: Path, sources: list[ReadSource]) -> list[str]:
    """Return a remark for each wrapper of differential privacy: none guards the update against the server."""
    return [
        f"{last}({in_words(arguments_of(call))}) at {at(source.path, folder, call.lineno)} {_WRAPPERS[last]}."
        for source in sources
        for name, call in source.calls()
        if (last := name.rpartition(".")[2]) in _WRAPPERS and name.startswith("flwr.")
    ]


def _messages(folder: Path, sources: list[ReadSource]) -> list[LeavingMessage]:
    strategies, unknown = _strategies(folder, sources)
    guards, open_questions, defenses = _guards(folder, sources)
    trees = any(name in _OF_TREES for name, _ in strategies)
    seen = [f"{name} at {place}" for name, place in strategies]
    unknown += open_questions
    if not strategies:
        unknown.append("no strategy of Flower is seen, so that what the server asks for is not known")
    if trees:
        audit = "seepage trees"
    elif any(name in _OF_WEIGHTS for name, _ in strategies):
        with_defense = "".join(f" --defense {name}" for name in dict.fromkeys(defenses))
        audit = f"seepage audit --protocol fedavg{with_defense}; {_PAGE}"
    else:
        audit = f"unknown: seepage audit if weights or gradients are sent; {_PAGE}"
    what = "trees of each round" if trees else "weights after local training"
    messages = [
        LeavingMessage(
            "client",
            "server",
            f"{what}, every round ({', '.join(seen) if seen else 'strategy unknown'})",
            tuple(guards),
            tuple(unknown),
            audit,
        )
    ]
    handlers = _handlers(folder, sources)
    replies = [place for kind, place in handlers if kind in ("train", "fit", "evaluate")]
    messages.append(
        LeavingMessage(
            "client",
            "server",
            "metrics and number of examples" + (f" ({', '.join(replies)})" if replies else ""),
            (),
            ("which numbers they are, and on how few rows",),
            NO_AUDIT,
        )
    )
    messages += [
        LeavingMessage("client", "server", f"answer to a query ({place})", (), ("what the answer holds",), NO_AUDIT)
        for kind, place in handlers
        if kind in ("query", "get_properties")
    ]
    messages.append(
        LeavingMessage(
            "server",
            "every client",
            "the joint model, every round",
            tuple(f"{name}: noise of the server is in it ({place})" for name, place in strategies if name in _WRAPPERS),
            (),
            "seepage membership, of who was in the training; seepage pooled, of how a sensitive column is distributed",
        )
    )
    return messages


def _strategies(folder: Path, sources: list[ReadSource]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return strategies and wrappers with their places, and what is unknown about them."""
    seen: list[tuple[str, str]] = []
    unknown: list[str] = []
    for source in sources:
        for name, call in source.calls():
            last = name.rpartition(".")[2]
            if last in _OF_WEIGHTS | _OF_TREES | set(_WRAPPERS) and name.startswith("flwr."):
                seen.append((last, at(source.path, folder, call.lineno)))
        for definition in source.classes():
            bases = [source.full_name(base) for base in definition.bases]
            if own := [base for base in bases if base.startswith("flwr.") and ".strategy" in base]:
                base = own[0].rpartition(".")[2]
                place = at(source.path, folder, definition.lineno)
                seen.append((base, place))
                unknown.append(f"what strategy {clean(definition.name)} ({place}) changes of {base}")
    return list(dict.fromkeys(seen)), unknown


def _guards(folder: Path, sources: list[ReadSource]) -> tuple[list[str], list[str], list[str]]:
    """Return guards of the update with their places, what is unknown, and the defenses of an audit for them."""
    guards, unknown, defenses = list[str](), list[str](), list[str]()
    workflow = any(name.rpartition(".")[2] in _WORKFLOWS for of in sources for name, _ in of.calls())
    for source in sources:
        for name, call in source.calls():
            place = at(source.path, folder, call.lineno)
            last = name.rpartition(".")[2]
            if name.startswith("opacus.") and last == "PrivacyEngine":
                guards.append(f"Opacus PrivacyEngine at {place}: noise in training, if make_private is reached")
                defenses.append("dp_sgd")
            for keyword in call.keywords:
                if keyword.arg == "mods":
                    _read_mods(source, keyword.value, place, workflow, (guards, unknown, defenses))
    if workflow and "aggregation" not in defenses:
        unknown.append("the server has a workflow of secure aggregation, and no mod of it is seen at clients")
    return guards, unknown, defenses


def _read_mods(
    source: ReadSource, value: ast.expr, place: str, workflow: bool, lists: tuple[list[str], list[str], list[str]]
) -> None:
    guards, unknown, defenses = lists
    if not isinstance(value, ast.List | ast.Tuple):
        unknown.append(f"the mods at {place} are put together when it runs")
        return
    for mod in value.elts:
        definition = _assigned(source, mod)
        last = source.full_name(definition).rpartition(".")[2]
        if last in _MODS:
            effect, defense = _MODS[last]
            arguments = f"({in_words(arguments_of(definition))})" if isinstance(definition, ast.Call) else ""
            guards.append(f"{last}{arguments} at {place}: {effect}")
            if defense == "aggregation" and not workflow:
                unknown.append(f"no workflow of secure aggregation is seen at the server, which {last} needs")
            defenses.append(defense)
        elif last not in _NO_GUARDS:
            unknown.append(f"what the mod {clean(last or ast.unparse(mod))} at {place} does")


def _assigned(source: ReadSource, node: ast.expr) -> ast.expr:
    """Return what a name was assigned to, if that is seen; the expression itself otherwise."""
    if isinstance(node, ast.Name) and node.id not in source.imported:
        for other in ast.walk(source.tree):
            if isinstance(other, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == node.id for t in other.targets
            ):
                return other.value
    return node


def _handlers(folder: Path, sources: list[ReadSource]) -> list[tuple[str, str]]:
    """Return the functions that answer the server, by kind: those of ClientApp, and methods of client classes."""
    seen = []
    for source in sources:
        for function in source.functions():
            for decorator in function.decorator_list:
                last = source.full_name(decorator).rpartition(".")[2]
                if last in ("train", "evaluate", "query"):
                    seen.append((last, at(source.path, folder, function.lineno)))
        for definition in source.classes():
            if any(source.full_name(base).rpartition(".")[2] in ("NumPyClient", "Client") for base in definition.bases):
                seen += [
                    (part.name, at(source.path, folder, part.lineno))
                    for part in definition.body
                    if isinstance(part, ast.FunctionDef) and part.name in ("fit", "evaluate", "get_properties")
                ]
    return seen
