"""NVFlare jobs in Python: recipes and ``FedJob``, by the syntax of the source and never run.

Source: the pages *Job Recipe API* and *FedJob API* in NVFlare's documentation, and ``nvflare.recipe.spec`` and
``nvflare.job_config.api``, version 2.9.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from seepage.scan.effects import PLACES, idle_words, without_effect
from seepage.scan.names import NOT_LITERAL, Sources
from seepage.scan.nvflare import audit_of, filter_name, filter_words, is_guard, joint_model, with_other_half
from seepage.scan.project import NO_AUDIT, LeavingMessage, ScannedProject, in_words
from seepage.scan.source import Reach, ReadSource, unparsed
from seepage.text import clean

_JOBS = ("FedJob", "BaseFedJob", "FedAvgJob", "SAGMLFlowJob", "CCWFJob", "StatsJob", "FlowerJob", "XGBFedJob")
_UPDATE = "weights after local training, or their change"
# What a recipe's clients send: the content, and words by which the audit is chosen.
_RECIPES = {
    **dict.fromkeys(
        ("FedAvgRecipe", "FedOptRecipe", "FedProxRecipe", "FedCERecipe", "NumpyFedAvgRecipe", "FedAvgRecipeWithHE"),
        _UPDATE,
    ),
    "SklearnFedAvgRecipe": "parameters of a model of scikit-learn",
    "ScaffoldRecipe": f"{_UPDATE}, and the change of control variates",
    "CyclicRecipe": _UPDATE,
    "SwarmLearningRecipe": _UPDATE,
    "FedAvgLrRecipe": "gradient and Hessian of a logistic regression (newton)",
    "FedStatsRecipe": "statistics of columns",
    "KMeansFedAvgRecipe": "centres of clusters and their counts",
    "SVMFedAvgRecipe": "support vectors, which are rows of the client's table",
    "FedEvalRecipe": "metrics of a given model",
    "NumpyCrossSiteEvalRecipe": "models and metrics for evaluation at other sites",
    "DhPSIRecipe": "blinded identifiers for an intersection",
    "XGBBaggingRecipe": "trees of each round (xgb)",
    "XGBHorizontalRecipe": "histograms of gradients (xgb)",
    "XGBVerticalRecipe": "histograms of gradients, of columns (xgb)",
}
_TO_OTHERS = {"CyclicRecipe": "the next client", "SwarmLearningRecipe": "the client that aggregates"}
# Recipes whose server sends each client no model, or whose clients send it to each other.
_NO_MODEL = ("FedStatsRecipe", "DhPSIRecipe", "SwarmLearningRecipe", "XGBHorizontalRecipe", "XGBVerticalRecipe")
_OF_MODELS = ("FedAvgJob", "SAGMLFlowJob")
_CONTROLS = ("Controller", "ScatterAndGather", "FedAvg", "FedOpt", "FedProx", "Scaffold", "Cyclic", "Workflow", "SAG")
_NOT_UPDATES = ("KMeansFedAvgRecipe", "SVMFedAvgRecipe", "FedEvalRecipe", "NumpyCrossSiteEvalRecipe", "DhPSIRecipe")
_QUIET = {"execute", "export", "export_job", "simulator_run", "add_server_config", "add_client_config", "as_id"}


@dataclass
class _Job:
    """What is added to a job: filters of results with their tasks, executors, parts and filters of the server."""

    filters: list[tuple[str, object, bool]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    executors: list[tuple[str, object]] = field(default_factory=list)
    server: list[str] = field(default_factory=list)
    controls: bool = False
    outgoing: list[str] = field(default_factory=list)
    further: list[str] = field(default_factory=list)
    loops: list[ast.AST] = field(default_factory=list)


def scan_nvflare_source(folder: Path, files: Iterable[Path]) -> list[ScannedProject]:
    """Return the jobs that the source below a folder makes.

    Args:
        folder: folder of the project.
        files: files of source.
    """
    sources = Sources(folder, files, programs=True)
    projects = []
    for source in sources.sources:
        for call in source.nodes(ast.Call):
            symbol = sources.symbol(source, call.func)
            last = symbol.name.rpartition(".")[2]
            if not symbol.name.startswith("nvflare.") or source.reach(call) is Reach.DEAD:
                continue
            if last.endswith("Recipe") or last in _JOBS:
                projects.append(_project(sources, source, call, last, bool(sources.outside_name(symbol))))
    return projects


def _project(sources: Sources, source: ReadSource, call: ast.Call, kind: str, genuine: bool) -> ScannedProject:
    arguments = sources.arguments(source, call)
    place = sources.place((source, call))
    unread: list[str] = []
    if not genuine:
        unread.append("nvflare is a name of this folder's own files, or changed by them, so that nothing by it counts")
    if source.reach(call) is not Reach.CERTAIN:
        unread.append(f"{kind} at {place} is made only under a condition")
    job = _Job()
    _follow(sources, source, call, job)
    unread += job.unknown
    clients = next((arguments[n] for n in ("min_clients", "n_clients", "num_clients") if n in arguments), None)
    name = arguments.get("name", NOT_LITERAL)
    name = source.path.stem if name == NOT_LITERAL else clean(name)
    is_recipe = kind.endswith("Recipe")
    content = _RECIPES.get(kind, "") if genuine else ""
    known = bool(content)
    if is_recipe and not content:
        unread.append(f"what {clean(kind)} at {place} sends is unknown")
        content = "unknown"
    executors: list[tuple[str, object]] = [(f"{clean(kind)} at {place}", None)] if is_recipe else job.executors
    if not executors and kind != "FedJob" and kind in _JOBS:
        executors = [(f"{kind} at {place}", None)]
    messages = []
    for executor, tasks in executors:
        for task in _tasks(tasks, job, training=content.startswith("weights") or not is_recipe):
            guards = [w for w, of, certain in job.filters if certain and genuine and _covers(of, task)]
            questions = [
                f"{w.partition(': ')[0]} only for some sites or under a condition"
                for w, of, certain in job.filters
                if not certain and _covers(of, task)
            ]
            guards, missing = with_other_half(guards, job.server)
            if kind == "FedAvgRecipeWithHE" and genuine:
                guards.insert(0, filter_words("HEModelEncryptor", {}, place))
            meta = {"min_clients": clients}
            audit, question = audit_of(task, [executor, content], job.server, guards, meta)
            if kind in _NOT_UPDATES or (is_recipe and not known):
                audit, question = NO_AUDIT, "what the result says of single rows"
            known = known or not is_recipe
            what = f"{content}, " if content else ""
            messages.append(
                LeavingMessage(
                    "client",
                    _TO_OTHERS.get(kind, "server"),
                    f"{what}result of the task {clean(task)} by {executor}",
                    tuple(guards),
                    (
                        *job.unknown,
                        *questions,
                        "filters of a site's own privacy.json",
                        *([question] if question else []),
                    ),
                    audit,
                    tuple(missing),
                )
            )
    if not messages:
        unread.append(f"no executor of {kind} at {place} is seen, so that what clients send is unknown")
    messages += [
        LeavingMessage("client", "server", words, (), ("which numbers they are",), NO_AUDIT) for words in job.further
    ]
    if _sends_model(kind, job, known):
        messages.append(joint_model(f"{clean(kind)} at {place}", (), (*job.unknown, *job.outgoing)))
    remarks = [f"At the server: {', '.join(job.server)}."] if job.server else []
    remarks.append(f"{clean(kind)}({in_words({k: v for k, v in arguments.items() if k != 'name'})}) at {place}.")
    unread += [reason for reason in sources.unread if source.path.name in reason]
    return ScannedProject(
        "NVFlare job", name, source.path.parent, tuple(messages), tuple(remarks), tuple(dict.fromkeys(unread)), known
    )


def _sends_model(kind: str, job: _Job, known: bool) -> bool:
    """Return whether the server of a job gives clients tasks with a model: by its recipe, or by a workflow."""
    if kind.endswith("Recipe"):
        return known and kind not in _NO_MODEL
    return kind in _OF_MODELS or job.controls


def _part_of_server(sources: Sources, source: ReadSource, part: ast.expr) -> tuple[str, bool]:
    """Return the name of a part of the server, and whether it, or what its class inherits from, is a workflow."""
    symbol = sources.symbol(source, part)
    names = [symbol.name]
    if isinstance(symbol.node, ast.Call) and symbol.source and symbol.kind == "unknown":
        definition = sources.symbol(symbol.source, symbol.node.func)
        if isinstance(definition.node, ast.ClassDef) and definition.source and definition.kind == "class":
            bases = definition.node.bases
            names = [definition.name, *(sources.symbol(definition.source, base).name for base in bases)]
    is_control = any(".workflows." in name or name.rpartition(".")[2].endswith(_CONTROLS) for name in names)
    return clean(names[0], 80), is_control


def _tasks(tasks: object, job: _Job, training: bool) -> list[str]:
    """Return the tasks of an executor; of one for all tasks those that filters name, training and all others."""
    if isinstance(tasks, list) and tasks and all(isinstance(task, str) for task in tasks) and "*" not in tasks:
        return [str(task) for task in tasks]
    named = [str(t) for _, of, _ in job.filters if isinstance(of, list) for t in of if t != "*"]
    return list(dict.fromkeys([*(["train"] if training else []), *named])) or ["*"]


def _covers(tasks: object, task: str) -> bool:
    return tasks is None or (isinstance(tasks, list) and (task in tasks or "*" in tasks))


def _follow(sources: Sources, source: ReadSource, call: ast.Call, job: _Job, depth: int = 0) -> None:
    """Read what is done with a job, by the name that it is assigned to."""
    for use in sources.uses(source, call) or []:
        symbol = sources.symbol(source, use)
        # Of jobs that a condition chooses from, each has what is added to the chosen.
        if symbol.node is not call and not (symbol.kind == "unknown" and sources.may_be(source, use, call)):
            job.unknown.append(f"{clean(use.id)} at {sources.place((source, use))} may be another job")
            continue
        _read_use(sources, source, use, job, depth)


def _read_use(sources: Sources, source: ReadSource, use: ast.Name, job: _Job, depth: int) -> None:
    parent = source.parents.get(use)
    if isinstance(parent, ast.Attribute):
        method = source.parents.get(parent)
        if isinstance(method, ast.Call) and method.func is parent:
            _read_method(sources, source, method, parent.attr, job)
    elif isinstance(parent, ast.Call | ast.keyword):
        called = parent if isinstance(parent, ast.Call) else source.parents.get(parent)
        if not isinstance(called, ast.Call):
            return
        symbol = sources.symbol(source, called.func)
        last = symbol.name.rpartition(".")[2]
        if symbol.kind == "function" and isinstance(symbol.node, ast.FunctionDef) and symbol.source and depth < 4:
            names = [argument.arg for argument in symbol.node.args.args]
            name = parent.arg if isinstance(parent, ast.keyword) else None
            if name is None and use in called.args and called.args.index(use) < len(names):
                name = names[called.args.index(use)]
            certain = source.reach(called) is Reach.CERTAIN
            before = len(job.filters)
            for inner in ast.walk(symbol.node):
                read = isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Load)
                if read and isinstance(inner, ast.Name) and symbol.source.reach(inner) is not Reach.DEAD:
                    _read_use(sources, symbol.source, inner, job, depth + 1)
            job.filters[before:] = [(w, of, c and certain) for w, of, c in job.filters[before:]]
        elif sources.outside_name(symbol).startswith("nvflare."):
            if last == "add_experiment_tracking":
                job.further.append(f"metrics of training, as they are logged ({sources.place((source, called))})")
            elif last.startswith("add_cross_site"):
                job.further.append(
                    f"models and metrics for evaluation at other sites ({sources.place((source, called))})"
                )
        elif symbol.kind not in ("outside", "call") or not symbol.name.startswith("builtins."):
            job.unknown.append(f"what {unparsed(called.func)} at {sources.place((source, called))} adds to the job")


def _read_method(sources: Sources, source: ReadSource, call: ast.Call, method: str, job: _Job) -> None:
    place = sources.place((source, call))
    reach = source.reach(call)
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if reach is Reach.DEAD or method in _QUIET:
        return
    part = call.args[0] if call.args else given.get("filter", given.get("obj"))
    if part is None:
        return
    tasks = sources.value(source, given["tasks"]) if "tasks" in given else None
    at_server = method == "to_server"
    if method == "to":
        target = call.args[1] if len(call.args) > 1 else given.get("target")
        at_server = target is not None and sources.value(source, target) == "server"
    if method == "add_server_output_filter" or (at_server and "filter_type" in given):
        shown = clean(sources.symbol(source, part).name.rpartition(".")[2], 80)
        job.outgoing.append(f"what the server's filter {shown} at {place} does")
    elif method == "add_client_output_filter":
        positional = call.args[1:2]
        tasks = sources.value(source, positional[0]) if positional else tasks
        certain = reach is Reach.CERTAIN and "clients" not in given and len(call.args) < 3
        _add_filter(sources, source, part, tasks, certain, place, job)
    elif method in ("to", "to_clients", "to_server"):
        if at_server:
            name, is_control = _part_of_server(sources, source, part)
            job.server.append(name)
            job.controls = job.controls or is_control
            return
        kind = given.get("filter_type")
        if kind is None:
            name = sources.symbol(source, part).name
            if name.rpartition(".")[2].endswith(("Runner", "Executor", "Learner")) or "tasks" in given:
                job.executors.append((f"{clean(name, 80)} at {place}", tasks))
                job.loops += source.loops(call)
            return
        if sources.symbol(source, kind).name.rpartition(".")[2] == "TASK_RESULT" or "task_result" in str(
            sources.value(source, kind)
        ):
            loops = source.loops(call)
            # Added beside the executor, in the same loop over sites.
            same = bool(loops) and all(loop in job.loops for loop in loops) and _bare_in(source, call, loops[-1])
            certain = (reach is Reach.CERTAIN and method == "to_clients") or same
            _add_filter(sources, source, part, tasks, certain, place, job)


def _bare_in(source: ReadSource, node: ast.AST, loop: ast.AST) -> bool:
    """Return whether nothing but a loop decides on a node."""
    while (parent := source.parents.get(node)) is not None and parent is not loop:
        if isinstance(parent, ast.If | ast.IfExp | ast.BoolOp | ast.ExceptHandler | ast.match_case):
            return False
        node = parent
    return source.reach(loop) is Reach.CERTAIN


def _add_filter(
    sources: Sources, source: ReadSource, part: ast.expr, tasks: object, certain: bool, place: str, job: _Job
) -> None:
    symbol = sources.symbol(source, part)
    name = filter_name(sources.outside_name(symbol)) if symbol.kind == "call" else ""
    if not name or not isinstance(symbol.node, ast.Call) or symbol.source is None:
        shown = unparsed(part) if symbol.kind == "unknown" else clean(symbol.name.rpartition(".")[2])
        job.unknown.append(f"what the filter {shown} at {place} does")
    elif tasks == NOT_LITERAL:
        job.unknown.append(f"for which tasks the filter {name} at {place} is")
    else:
        arguments = sources.arguments(symbol.source, symbol.node, PLACES.get(name, ()))
        if is_guard(name) and (reason := without_effect(name, arguments)):
            job.unknown.append(idle_words(name, arguments, place, reason))
        elif is_guard(name):
            job.filters.append((filter_words(name, arguments, place), tasks, certain and symbol.reach is Reach.CERTAIN))
