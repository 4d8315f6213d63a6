"""NVFlare jobs: ``meta.json`` and the configurations of server and clients, read and not run.

Source: the pages *Application*, *Filters* and *Privacy management* in NVFlare's documentation, and the classes of
``nvflare.app_common.filters`` and ``nvflare.app_opt.he``, version 2.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from seepage.scan.effects import idle_words, number, without_effect
from seepage.scan.project import (
    NO_AUDIT,
    LeavingMessage,
    ScannedProject,
    in_words,
    mapping,
    parts,
    place_of,
    sequence,
    settings_or_note,
)
from seepage.text import clean

CLIENT, SERVER = "config_fed_client", "config_fed_server"
FORMS = (".json", ".conf", ".yml", ".yaml")
_FILTER_MODULES = ("nvflare.app_common.filters.", "nvflare.app_opt.he.", "nvflare.app_opt.pt.quantization.")

# What filters do before a result leaves, and the nearest defense of an audit.
_FILTERS = {
    "SVTPrivacy": (
        "sends a share of the entries, chosen by the sparse vector technique and with Laplace noise; epsilon is of "
        "choosing the entries of one message, and messages add up",
        "no defense is the same; top_k with gaussian_noise is near",
    ),
    "PercentilePrivacy": ("", "top_k is near; it does not cut off"),
    "ExcludeVars": ("leaves out the named variables; all others are sent as they are", "none: the rest is unguarded"),
    "HEModelEncryptor": (
        "homomorphic encryption: the server gets sums, and whoever holds the key can read them",
        "aggregation with the number of clients",
    ),
    "StatisticsPrivacyFilter": ("cleans statistics by the rules that it names", "none"),
    "DXOBlocker": ("stops results of the named kinds", "none needed for what is stopped"),
}
_NO_GUARDS = {"ConvertWeights", "HEModelDecryptor", "HEModelSerializeFilter", "ModelDequantizer"}


def filter_words(name: str, arguments: Mapping[str, object], place: str) -> str:
    """Return what a filter of NVFlare really does, with its arguments, place and the near defense of an audit."""
    effect, near = _FILTERS[name]
    if name == "PercentilePrivacy":
        percentile, gamma = arguments.get("percentile", 10), arguments.get("gamma", 0.01)
        cut = number(percentile)
        share = "the largest entries" if cut is None else f"the largest {100 - cut:g}% of entries"
        effect = f"sends {share}, cut at gamma {clean(gamma, 20)}; no noise, no differential privacy"
    return f"{name}({in_words(arguments)}) at {place}: {effect} (in an audit: {near})"


def filter_name(path: str) -> str:
    """Return the name of a filter that is known, if its full name is NVFlare's; empty otherwise."""
    name = path.rpartition(".")[2]
    return name if path.startswith(_FILTER_MODULES) and (name in _FILTERS or name in _NO_GUARDS) else ""


def is_guard(name: str) -> bool:
    """Return whether a filter that is known changes what is sent."""
    return name in _FILTERS


def scan_nvflare(folder: Path, files: Iterable[Path]) -> ScannedProject:
    """Return what an NVFlare job says of its messages.

    Args:
        folder: folder of the job.
        files: its files.
    """
    listed = list(files)
    remarks: list[str] = []
    unread: list[str] = []
    names = {part for path in listed if path.suffix == ".py" for part in path.relative_to(folder).with_suffix("").parts}
    shadowed = "nvflare" in names
    if shadowed:
        unread.append("nvflare is a name of this folder's own files, so that nothing by it counts")
    metas = [path for path in listed if path.stem == "meta" and path.suffix in FORMS]
    meta = settings_or_note(metas[0], folder, unread) if metas else {}
    if not meta:
        remarks.append("No meta.json is here: how many clients take part is unknown.")
    servers = [
        s for p in listed if p.stem == SERVER and p.suffix in FORMS and (s := settings_or_note(p, folder, unread))
    ]
    clients = [path for path in listed if path.stem == CLIENT and path.suffix in FORMS]
    sites = [path for path in listed if path.name == "privacy.json"]
    paths = [clean(part.get("path", part.get("name", "")), 120) for server in servers for part in _all_parts(server)]
    if paths:
        remarks.append(f"At the server: {', '.join(paths)}.")
    messages: list[LeavingMessage] = []
    for path in clients:
        if settings := settings_or_note(path, folder, unread):
            messages += _of_client(folder, path, settings, sites, paths, meta, shadowed)
    known = any("result of the task" in message.content for message in messages)
    unread += [question for m in messages for question in m.unknown if question.startswith("what the filter")]
    if not clients:
        remarks.append(f"No {CLIENT} file is here: what clients send is unknown.")
        unread.append(f"no {CLIENT} file is here")
    messages += [
        joint_model(
            place_of(path, folder),
            tuple(_filters(folder, path, settings_or_note(path, folder, []), "task_data_filters", None, shadowed)[0]),
        )
        for path in listed
        if path.stem == SERVER and path.suffix in FORMS
    ]
    name = clean(meta.get("name", folder.name))
    unread = list(dict.fromkeys(unread))
    return ScannedProject("NVFlare job", name, folder, tuple(messages), tuple(remarks), tuple(unread), known)


def joint_model(place: str, guards: tuple[str, ...], unknown: tuple[str, ...] = ()) -> LeavingMessage:
    """Return the message by which clients have the joint model."""
    return LeavingMessage(
        "server",
        "client",
        f"the task, such as the joint model ({place})",
        guards,
        unknown,
        "seepage membership, of who was in the training; seepage pooled, of how a sensitive column is distributed",
    )


def _all_parts(settings: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for key in ("workflows", "components"):
        yield from parts(settings.get(key))


def _of_client(
    folder: Path,
    path: Path,
    settings: Mapping[str, object],
    sites: list[Path],
    at_server: list[str],
    meta: Mapping[str, object],
    shadowed: bool,
) -> Iterator[LeavingMessage]:
    for executor in parts(settings.get("executors")):
        component = mapping(executor.get("executor"))
        kind = clean(component.get("path", component.get("name", "unknown executor")), 80)
        for task in sequence(executor.get("tasks")):
            guards, unknown = _filters(folder, path, settings, "task_result_filters", str(task), shadowed)
            more, questions = _filters_of_sites(folder, sites, meta, shadowed)
            guards, unknown = guards + more, unknown + questions
            if not sites:
                unknown.append("filters of a site's own privacy.json, which is not part of a job")
            guards, missing = with_other_half(guards, at_server)
            components = [clean(part.get("path", ""), 80) for part in parts(settings.get("components"))]
            audit, question = audit_of(clean(task), [kind, *components], at_server, guards, meta)
            yield LeavingMessage(
                "client",
                "the next client" if any("cyclic" in of.lower() for of in at_server) else "server",
                f"result of the task {clean(task)} by {kind} ({place_of(path, folder)})",
                tuple(guards),
                (*unknown, *([question] if question else [])),
                audit,
                tuple(missing),
            )
    if not any(sequence(executor.get("tasks")) for executor in parts(settings.get("executors"))):
        yield LeavingMessage(
            "client",
            "server",
            f"unknown ({place_of(path, folder)})",
            (),
            ("no executor with a list of tasks is named",),
            NO_AUDIT,
        )


def audit_of(
    task: str, parts_of_client: list[str], at_server: list[str], guards: list[str], meta: Mapping[str, object]
) -> tuple[str, str]:
    """Return the audit that answers for a task's result, and what it takes for granted."""
    words = " ".join([*parts_of_client, *at_server]).lower()
    if "xgb" in words:
        return "seepage trees", "whether rows or columns are divided between clients; seepage trees is about rows"
    if "statistics" in words:
        return "seepage statistics --protocol table, of tables; seepage rounds, of statistics that are run again", ""
    if "newton" in words or "logistic" in words:
        return "seepage statistics, of a regression by Newton steps", "that the result is gradient and Hessian"
    if "psi" in words.split("."):
        return NO_AUDIT, "what an intersection shows"
    if task.startswith(("train", "fit")):
        clients = meta.get("min_clients")
        many = f":{{clients: {clean(clients)}}}" if isinstance(clients, int) else ""
        hidden = f" --defense 'aggregation{many}'" if any("HEModelEncryptor" in guard for guard in guards) else ""
        return f"seepage audit --protocol fedavg{hidden}", "that the result is weights or their change"
    if "valid" in task or "eval" in task:
        return NO_AUDIT, "which metrics are sent, and on how few rows"
    return f"unknown: {NO_AUDIT} unless it is an update", "what the result is"


def _filters(
    folder: Path, path: Path, settings: Mapping[str, object], key: str, task: str | None, shadowed: bool
) -> tuple[list[str], list[str]]:
    """Return the guards in a configuration for a task, and what is unknown."""
    guards, unknown = list[str](), list[str]()
    for entry in parts(settings.get(key)):
        tasks = [str(name) for name in sequence(entry.get("tasks"))]
        if task is None or task in tasks or "*" in tasks:
            _read_filters(entry, place_of(path, folder), guards, unknown, shadowed)
    return guards, unknown


def _filters_of_sites(
    folder: Path, paths: list[Path], meta: Mapping[str, object], shadowed: bool
) -> tuple[list[str], list[str]]:
    """Return the guards of the sites' own settings: those of the scope of the job, if every site has them."""
    by_site: list[dict[str, str]] = []
    unknown: list[str] = []
    for path in paths:
        settings = settings_or_note(path, folder, unknown)
        scopes = list(parts(settings.get("scopes")))
        wanted = meta.get("scope", settings.get("default_scope"))
        chosen = [scope for scope in scopes if scope.get("name") == wanted] or scopes
        by_scope: list[dict[str, str]] = []
        for scope in chosen:
            guards = list[str]()
            place = f"{place_of(path, folder)}, scope {clean(scope.get('name', ''))}"
            _read_filters({"filters": scope.get("task_result_filters")}, place, guards, unknown, shadowed)
            by_scope.append({guard.partition("(")[0]: guard for guard in guards})
        if any(by_scope) or len(scopes) > 1:
            unknown.append(f"which scope of {place_of(path, folder)} a job has")
        by_site.append(_in_all(by_scope, f"scopes of {place_of(path, folder)}", unknown))
    return list(_in_all(by_site, "sites", unknown).values()), unknown


def _in_all(groups: list[dict[str, str]], what: str, unknown: list[str]) -> dict[str, str]:
    """Return the guards that all groups have, and note those that only some have."""
    names = {name: guard for group in groups for name, guard in group.items()}
    everywhere = {name: guard for name, guard in names.items() if all(name in group for group in groups)}
    unknown += [f"{guard.partition(': ')[0]} is not in all {what}" for n, guard in names.items() if n not in everywhere]
    return everywhere


def with_other_half(guards: list[str], at_server: list[str]) -> tuple[list[str], list[str]]:
    """Return guards that work, and those that need a half of the server that is not seen."""
    encryption = ("nvflare.app_opt.he.", "HE")
    if any(part.startswith(encryption) and part.endswith("Aggregator") for part in at_server):
        return guards, []
    halves = [guard for guard in guards if guard.startswith("HEModelEncryptor(")]
    missing = [
        f"no aggregator of nvflare.app_opt.he is seen at the server, which adds up what is encrypted by "
        f"{half.partition(': ')[0]}: no guard alone"
        for half in halves
    ]
    return [guard for guard in guards if guard not in halves], missing


def _read_filters(
    entry: Mapping[str, object], place: str, guards: list[str], unknown: list[str], shadowed: bool = False
) -> None:
    for part in parts(entry.get("filters")):
        full = str(part.get("path", part.get("class_path", "")))
        # A name alone is looked up among NVFlare's own classes.
        short = str(part.get("name", ""))
        names = [full] if full else [f"{module}{short}" for module in _FILTER_MODULES]
        name = next((of for path in names if (of := filter_name(path))), "") if not shadowed else ""
        shown = clean(full.rpartition(".")[2] or short or "without a name")
        if part.get("disabled") is True:
            unknown.append(f"the filter {shown} at {place} is disabled")
        elif is_guard(name) and (reason := without_effect(name, mapping(part.get("args")))):
            unknown.append(idle_words(name, mapping(part.get("args")), place, reason))
        elif is_guard(name):
            guards.append(filter_words(name, mapping(part.get("args")), place))
            if name == "HEModelEncryptor" and mapping(part.get("args")).get("encrypt_layers"):
                unknown.append("layers that encrypt_layers leaves out are sent in the clear")
        elif not name:
            known = filter_words(shown, mapping(part.get("args")), place) if is_guard(shown) else ""
            alike = (
                f" (NVFlare's class of this name {known.partition(': ')[2].partition(' (in an')[0]})" if known else ""
            )
            unknown.append(f"what the filter {shown} ({clean(full or shown, 100)}) at {place} does{alike}")
