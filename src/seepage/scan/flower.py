"""Flower apps: ``pyproject.toml`` and the source of the two apps, read and not run.

Source: the pages *Configure pyproject.toml*, *Use strategies*, *Use differential privacy* and *Secure aggregation
protocols*, and the reference of ``flwr.serverapp.strategy`` and ``flwr.clientapp.mod`` in Flower's documentation,
version 1.29.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seepage.scan.effects import PLACES, clips_nothing, idle_words, number, without_effect
from seepage.scan.names import Element, Sources, Symbol
from seepage.scan.opacus import noise_in_training
from seepage.scan.project import NO_AUDIT, LeavingMessage, ScannedProject, in_words, mapping
from seepage.scan.source import FunctionNode, Reach, ReadSource, unparsed
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
    "fixedclipping_mod": ("clips at the client, without noise", "clipping"),
    "adaptiveclipping_mod": ("clips at the client, without noise", "clipping"),
    "secaggplus_mod": ("secure aggregation, with the workflow of the server", "aggregation"),
    "secagg_mod": ("secure aggregation, with the workflow of the server", "aggregation"),
}
_NO_GUARDS = {"message_size_mod", "parameters_size_mod", "arrays_size_mod"}
_WORKFLOWS = {"SecAggPlusWorkflow", "SecAggWorkflow"}
_OTHER_HALF = {
    "secaggplus_mod": "SecAggPlusWorkflow is not seen to run",
    "secagg_mod": "SecAggWorkflow is not seen to run",
    "fixedclipping_mod": "DifferentialPrivacyClientSideFixedClipping is not seen to run",
    "adaptiveclipping_mod": "DifferentialPrivacyClientSideAdaptiveClipping is not seen to run",
}
_APPS = ("flwr.client.", "flwr.clientapp.")
_STARTS = ("start_client", "start_numpy_client", "start_simulation")
_OF_MODS = ("flwr.client.mod.", "flwr.clientapp.mod.")
_STRATEGIES = ("flwr.server.strategy.", "flwr.serverapp.strategy.")
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
    components = {clean(role): str(place) for role, place in mapping(app.get("components")).items()}
    sources = Sources(folder, files, programs=not components)
    unread = list(sources.unread)
    unread += [
        f"{name} is a name of this folder's own files, so that nothing by it counts" for name in sources.shadowed
    ]
    apps = _client_apps(sources, components.get("clientapp"), unread)
    server = components.get("serverapp")
    if server and _file_of(sources, server) is None:
        unread.append(f"serverapp is {clean(server)}, which is not in this folder: what it does is unknown")
    remarks = []
    if not components:
        remarks.append(
            "No [tool.flwr.app.components] of a pyproject.toml is here: which of the programs run is unknown."
        )
    if config := {clean(name): value for name, value in mapping(app.get("config")).items()}:
        remarks.append(f"Settings, which a run can override: {in_words(config)}.")
    wrappers = _wrappers(sources)
    remarks += [f"{wrapper.words} {_WRAPPERS[wrapper.name]}." for wrapper in wrappers]
    name = clean(mapping(settings.get("project")).get("name", folder.name))
    starts = _starts(sources)
    remarks += [f"Clients start by {start}, which takes no mods." for start in starts]
    if not (apps or starts or components):
        unread.append("no ClientApp and no start of a client is seen")
    messages, known = _messages(sources, apps, wrappers, unread, starts)
    return ScannedProject(
        "Flower app", name, folder, tuple(messages), tuple(remarks), tuple(dict.fromkeys(unread)), known
    )


def _known(name: str, modules: tuple[str, ...]) -> str:
    """Return the last part of a full name, if it stands in a module of Flower."""
    return name.rpartition(".")[2] if name.startswith(modules) else ""


def _file_of(sources: Sources, place: str) -> ReadSource | None:
    module = place.partition(":")[0].replace(".", "/")
    for base in (sources.folder, sources.folder / "src"):
        for source in sources.sources:
            if source.path in (base / f"{module}.py", base / module / "__init__.py"):
                return source
    return None


def _client_apps(sources: Sources, place: str | None, unread: list[str]) -> list[tuple[ReadSource, ast.Call]]:
    """Return the call that makes the app of clients that the settings name; every one where they name none."""
    if place is None:
        return [
            (source, call)
            for source, call, name, reach in sources.calls()
            if _known(name, _APPS) == "ClientApp" and reach is Reach.CERTAIN
        ]
    source = _file_of(sources, place)
    if source is None:
        unread.append(f"clientapp is {clean(place)}, which is not in this folder: what it does is unknown")
        return []
    symbol = sources.symbol_of(source, place.partition(":")[2] or "app")
    is_app = symbol.kind == "call" and _known(sources.outside_name(symbol), _APPS) == "ClientApp"
    if is_app and symbol.source and isinstance(symbol.node, ast.Call) and symbol.reach is Reach.CERTAIN:
        return [(symbol.source, symbol.node)]
    unread.append(f"clientapp {clean(place)} cannot be followed to a ClientApp of Flower: its mods are unknown")
    return []


def _starts(sources: Sources) -> list[str]:
    """Return the calls that start clients without an app."""
    return [
        f"{last} at {sources.place((source, call))}"
        for source, call, name, _ in sources.calls()
        if name.startswith("flwr.") and (last := name.rpartition(".")[2]) in _STARTS
    ]


@dataclass(frozen=True)
class _Wrapper:
    """A wrapper of differential privacy that is used.

    Attributes:
        name: its class.
        words: its name, arguments and place.
        reach: whether it surely runs.
        idle: why it has no effect by its arguments; empty where it may have.
        open_clip: why the clip norm that it gives to clients cuts nothing; empty where it may cut.
    """

    name: str
    words: str
    reach: Reach
    idle: str
    open_clip: str


def _wrappers(sources: Sources) -> list[_Wrapper]:
    """Return the wrappers of differential privacy that are used."""
    listed = []
    for source, call, name, reach in sources.calls():
        last = _known(name, _STRATEGIES)
        if last in _WRAPPERS and sources.uses(source, call) != []:
            given = sources.arguments(source, call, PLACES.get(last, ()))
            words = f"{last}({in_words(given)}) at {sources.place((source, call))}"
            listed.append(_Wrapper(last, words, reach, without_effect(last, given), clips_nothing(given)))
    return listed


@dataclass
class _Guards:
    """Guards of the update, what is unknown, halves without the other half, and the defenses of an audit."""

    listed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    defenses: list[str] = field(default_factory=list)


def _messages(
    sources: Sources,
    apps: list[tuple[ReadSource, ast.Call]],
    wrappers: list[_Wrapper],
    unread: list[str],
    starts: list[str],
) -> tuple[list[LeavingMessage], bool]:
    strategies, unknown = _strategies(sources)
    unread += unknown
    guards = _guards(sources, apps, wrappers, unread, starts)
    trees = any(name in _OF_TREES for name, _ in strategies)
    strategies_in_words = [f"{name} at {place}" for name, place in strategies]
    unknown = [*guards.unknown, *unknown]
    if not strategies:
        unknown.append("no strategy of Flower is seen, so that what the server asks for is not known")
        unread.append("no strategy of Flower is seen")
    if trees:
        audit = "seepage trees"
    elif any(name in _OF_WEIGHTS for name, _ in strategies):
        with_defense = "".join(f" --defense {name}" for name in dict.fromkeys(guards.defenses))
        audit = f"seepage audit --protocol fedavg{with_defense}; {_PAGE}"
    else:
        audit = f"unknown: seepage audit if weights or gradients are sent; {_PAGE}"
    what = "trees of each round" if trees else "weights after local training"
    content = f"{what}, every round ({', '.join(strategies_in_words) if strategies_in_words else 'strategy unknown'})"
    messages = [
        LeavingMessage(
            "client",
            "server",
            content,
            tuple(guards.listed),
            tuple(dict.fromkeys(unknown)),
            audit,
            tuple(guards.missing),
        )
    ]
    handlers = _handlers(sources, apps)
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
    halves = " ".join(guards.missing)
    noisy = [w for w in wrappers if w.reach is Reach.CERTAIN and not w.idle and w.words not in halves]
    messages.append(
        LeavingMessage(
            "server",
            "every client",
            "the joint model, every round",
            tuple(f"{w.name}: noise of the server is in it ({w.words})" for w in noisy),
            (
                *(f"whether the noise of {w.words} is in it" for w in wrappers if w.reach is not Reach.CERTAIN),
                *(f"without effect by its arguments: {w.words} ({w.idle})" for w in wrappers if w.idle),
            ),
            "seepage membership, of who was in the training; seepage pooled, of how a sensitive column is distributed",
        )
    )
    return messages, bool(strategies or handlers or apps or starts)


def _strategies(sources: Sources) -> tuple[list[tuple[str, str]], list[str]]:
    """Return strategies and wrappers with their places, and what is unknown about them."""
    strategies = [
        (last, sources.place((source, call)))
        for source, call, name, _ in sources.calls()
        if (last := _known(name, _STRATEGIES)) in _OF_WEIGHTS | _OF_TREES | set(_WRAPPERS)
    ]
    unknown: list[str] = []
    for source in sources.sources:
        for definition in source.nodes(ast.ClassDef):
            names = [sources.outside_name(sources.symbol(source, base)) for base in definition.bases]
            if bases := [last for name in names if (last := _known(name, _STRATEGIES))]:
                place = sources.place((source, definition))
                strategies.append((bases[0], place))
                unknown.append(f"what strategy {clean(definition.name)} ({place}) changes of {bases[0]}")
    return list(dict.fromkeys(strategies)), unknown


def _guards(
    sources: Sources,
    apps: list[tuple[ReadSource, ast.Call]],
    wrappers: list[_Wrapper],
    unread: list[str],
    starts: list[str],
) -> _Guards:
    """Return the guards of the update: mods of the app of clients, and noise in training."""
    guards = _Guards()
    mods: dict[str, tuple[str, Reach]] = {}
    read_wholly = bool(apps) or bool(starts)
    if not read_wholly:
        guards.unknown.append("which mods the clients have")
    # What starts clients without an app has none of an app's mods.
    several = len(apps) > 1 or bool(apps and starts)
    if apps and starts:
        guards.unknown.append(f"which clients run: those of the ClientApp, or those of {starts[0]}, which have no mods")
    for source, call in apps:
        given = [k.value for k in call.keywords if k.arg == "mods"] + list(call.args[1:2])
        if any(keyword.arg is None for keyword in call.keywords):
            read_wholly = False
            guards.unknown.append(
                f"arguments of the ClientApp at {sources.place((source, call))} are given when it runs"
            )
        trainings = len({decorator for _, decorator in _decorators(sources, call, ("train",))})
        of_training = _mods_of_training(sources, call)
        lists = [(source, value, True) for value in given]
        # A decorator's mods are those of its own function.
        lists += [(of, value, trainings == 1) for of, value in of_training]
        for where, value, for_all in lists:
            elements, reasons = sources.elements(where, value)
            place = sources.place((where, value))
            questions = [f"mods at {place}: {reason}" for reason in reasons]
            read_wholly = read_wholly and not reasons
            for element in elements:
                symbol = sources.symbol(element.source, element.node)
                last = _known(sources.outside_name(symbol), _OF_MODS)
                reach = min(element.reach, symbol.reach, Reach.CERTAIN if for_all else Reach.CONDITIONAL)
                if last == "LocalDpMod" and symbol.kind == "call":
                    given = _given(sources, symbol)
                    if reason := without_effect(last, given):
                        guards.unknown.append(idle_words(last, given, sources.place(element), reason))
                        continue
                    if any(number(given.get(name)) is None for name in PLACES[last][1:]):
                        guards.unknown.append(
                            f"LocalDpMod at {sources.place(element)}: how much noise it adds is set when it runs"
                        )
                if last in _MODS and (symbol.kind == "call") is (last == "LocalDpMod"):
                    words = f"{last}{_arguments(sources, symbol)} at {sources.place(element)}"
                    if several and reach is Reach.CERTAIN:
                        reach = Reach.CONDITIONAL
                    if last not in mods or reach > mods[last][1]:
                        mods[last] = (words, reach)
                elif last not in _NO_GUARDS:
                    questions.append(f"what the mod {_called(symbol, element)} at {sources.place(element)} does")
            guards.unknown += questions
            unread += questions
    _credit(sources, guards, mods, wrappers, read_wholly)
    for words, doubt in noise_in_training(sources, _training(sources, apps)):
        if doubt:
            guards.unknown.append(doubt)
        else:
            guards.listed.append(f"{words}: noise in training")
            guards.defenses.append("dp_sgd")
    return guards


def _called(symbol: Symbol, element: Element) -> str:
    return unparsed(element.node) if symbol.kind == "unknown" else clean(symbol.name.rpartition(".")[2], 60)


def _given(sources: Sources, symbol: Symbol) -> Mapping[str, object]:
    """Return the arguments of the call that gave a guard."""
    if not isinstance(symbol.node, ast.Call) or symbol.source is None or symbol.kind != "call":
        return {}
    return sources.arguments(symbol.source, symbol.node, PLACES.get(symbol.name.rpartition(".")[2], ()))


def _arguments(sources: Sources, symbol: Symbol) -> str:
    if symbol.kind != "call":
        return ""
    given = _given(sources, symbol)
    sensitivity, epsilon, delta = (number(given.get(name)) for name in ("sensitivity", "epsilon", "delta"))
    noise = ""
    if sensitivity and epsilon and delta and 0 < delta < 1:
        noise = f", noise of standard deviation {sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon:.3g}"
    return f"({in_words(given)}){noise}"


def _mods_of_training(sources: Sources, app: ast.Call) -> list[tuple[ReadSource, ast.expr]]:
    """Return the mods that decorators give to the training of an app."""
    return [
        (source, keyword.value)
        for source, decorator in _decorators(sources, app, ("train",))
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
        if keyword.arg == "mods"
    ]


def _decorators(sources: Sources, app: ast.Call, kinds: tuple[str, ...]) -> list[tuple[ReadSource, ast.expr]]:
    listed = []
    for source, function in sources.functions():
        for decorator in function.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not isinstance(target, ast.Attribute) or target.attr not in kinds:
                continue
            if sources.symbol(source, target.value).node is app and source.reach(function) is Reach.CERTAIN:
                listed.append((source, decorator))
    return listed


def _credit(
    sources: Sources,
    guards: _Guards,
    mods: dict[str, tuple[str, Reach]],
    wrappers: list[_Wrapper],
    read_wholly: bool,
) -> None:
    """Sort the mods into guards, halves of set-ups, and what a condition decides."""
    workflows, idle = _workflows(sources)
    guards.unknown += idle
    sure = [wrapper for wrapper in wrappers if wrapper.reach is Reach.CERTAIN]
    halves: dict[str, Sequence[object]] = {
        "secaggplus_mod": workflows,
        "secagg_mod": workflows,
        "fixedclipping_mod": [w for w in sure if w.name.endswith("ClientSideFixedClipping")],
        "adaptiveclipping_mod": [w for w in sure if w.name.endswith("ClientSideAdaptiveClipping")],
    }
    for name, (words, reach) in mods.items():
        effect, defense = _MODS[name]
        if name in halves and not halves[name]:
            guards.missing.append(f"{_OTHER_HALF[name]} at the server, which {words} at clients needs: no guard alone")
            if "secagg" in name:
                guards.unknown.append("no workflow of secure aggregation is seen to run at the server")
        elif reach is not Reach.CERTAIN:
            guards.unknown.append(f"{words} is a mod only under a condition: whether it guards is not known")
        elif name.endswith("clipping_mod") and (open_clips := [w.open_clip for w in sure if w.open_clip]):
            guards.unknown.append(f"without effect by its arguments: {words} ({open_clips[0]} at the server)")
        else:
            guards.listed.append(f"{words}: {effect}")
            guards.defenses.append(defense)
    have = "is not seen" if not read_wholly else "is missing"
    needed = [("fixedclipping_mod", "ClientSideFixedClipping"), ("adaptiveclipping_mod", "ClientSideAdaptiveClipping")]
    for mod, ending in needed:
        for words in [w.words for w in wrappers if w.name.endswith(ending) and mod not in mods]:
            guards.missing.append(f"{mod} {have} at clients, to which {words} leaves clipping: no guard alone")
    if workflows and not {"secaggplus_mod", "secagg_mod"} & set(mods):
        guards.missing.append(f"secaggplus_mod {have} at clients, which {workflows[0]} needs: no guard alone")


def _workflows(sources: Sources) -> tuple[list[str], list[str]]:
    """Return the workflows of secure aggregation that surely run, and what is unknown of others."""
    running, idle = list[str](), list[str]()
    for source, call, name, reach in sources.calls():
        if (last := _known(name, ("flwr.server.workflow.",))) in _WORKFLOWS:
            words = f"{last} at {sources.place((source, call))}"
            if sources.uses(source, call) == []:
                idle.append(f"{words} is created and never used")
            elif reach is not Reach.CERTAIN:
                idle.append(f"{words} runs only under a condition")
            else:
                running.append(words)
    return running, idle


def _training(sources: Sources, apps: list[tuple[ReadSource, ast.Call]]) -> list[tuple[ReadSource, FunctionNode]]:
    """Return the functions by which the server asks clients to train, and those that make a client."""
    functions: list[tuple[ReadSource, FunctionNode]] = []
    for _, app in apps:
        for source, decorator in _decorators(sources, app, ("train",)):
            function = source.parents[decorator]
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((source, function))
    for source, definition in _clients(sources):
        functions += [
            (source, part)
            for part in definition.body
            if isinstance(part, ast.FunctionDef) and part.name in ("__init__", "fit")
        ]
    return functions


def _clients(sources: Sources) -> Iterable[tuple[ReadSource, ast.ClassDef]]:
    """Yield the project's classes of clients."""
    for source in sources.sources:
        for definition in source.nodes(ast.ClassDef):
            bases = [sources.outside_name(sources.symbol(source, base)) for base in definition.bases]
            if any(name.startswith("flwr.") and name.rpartition(".")[2] in ("NumPyClient", "Client") for name in bases):
                yield source, definition


def _handlers(sources: Sources, apps: list[tuple[ReadSource, ast.Call]]) -> list[tuple[str, str]]:
    """Return the functions that answer the server, by kind: those of ClientApp, and methods of client classes."""
    handlers = []
    for _, app in apps:
        for source, decorator in _decorators(sources, app, ("train", "evaluate", "query")):
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(target, ast.Attribute):
                handlers.append((target.attr, sources.place((source, source.parents[decorator]))))
    for source, definition in _clients(sources):
        handlers += [
            (part.name, sources.place((source, part)))
            for part in definition.body
            if isinstance(part, ast.FunctionDef) and part.name in ("fit", "evaluate", "get_properties")
        ]
    return handlers
