"""NVFlare jobs: ``meta.json`` and the configurations of server and clients, read and not run.

Source: the pages *Application*, *Filters* and *Privacy management* in NVFlare's documentation, and the classes of
``nvflare.app_common.filters`` and ``nvflare.app_opt.he``, version 2.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from seepage.scan.project import (
    NO_AUDIT,
    LeavingMessage,
    ScannedProject,
    at,
    in_words,
    mapping,
    parts,
    sequence,
    settings_in,
)
from seepage.text import clean

CLIENT, SERVER = "config_fed_client", "config_fed_server"
# Forms of configurations that are not read.
_OTHER_FORMS = (".conf", ".yml", ".yaml")

# What filters do before a result leaves, and the nearest defense of an audit.
_FILTERS = {
    "SVTPrivacy": (
        "sends a share of the entries, chosen and blurred by the sparse vector technique",
        "no defense is the same; top_k with gaussian_noise is near",
    ),
    "PercentilePrivacy": ("sends only the largest changes, cut off at gamma", "top_k is near; it does not cut off"),
    "ExcludeVars": ("leaves out the named variables; all others are sent as they are", "none: the rest is unguarded"),
    "HEModelEncryptor": (
        "homomorphic encryption: the server gets sums, and whoever holds the key can read them",
        "aggregation with the number of clients",
    ),
    "StatisticsPrivacyFilter": ("cleans statistics by the rules that it names", "none"),
    "DXOBlocker": ("stops results of the named kinds", "none needed for what is stopped"),
}
_NO_GUARDS = {"ConvertWeights", "HEModelDecryptor", "HEModelSerializeFilter"}


def scan_nvflare(folder: Path, files: Iterable[Path]) -> ScannedProject:
    """Return what an NVFlare job says of its messages.

    Args:
        folder: folder of the job.
        files: its files.
    """
    listed = list(files)
    remarks: list[str] = []
    for path in listed:
        if path.stem in (CLIENT, SERVER) and path.suffix in _OTHER_FORMS:
            remarks.append(f"{at(path, folder)} is not JSON and is not read: what it says is unknown.")
    meta = next((settings_in(path) for path in listed if path.name == "meta.json"), {})
    if not meta:
        remarks.append("No meta.json is here: how many clients take part is unknown.")
    servers = [settings_in(path) for path in listed if path.name == f"{SERVER}.json"]
    clients = [path for path in listed if path.name == f"{CLIENT}.json"]
    sites = [path for path in listed if path.name == "privacy.json"]
    paths = [clean(part.get("path", part.get("name", "")), 120) for server in servers for part in _all_parts(server)]
    if paths:
        remarks.append(f"At the server: {', '.join(paths)}.")
    messages = [message for path in clients for message in _of_client(folder, path, sites, paths, meta)]
    if not clients:
        remarks.append(f"No {CLIENT}.json is here: what clients send is unknown.")
    messages += [
        LeavingMessage(
            "server",
            "client",
            f"the task, such as the joint model ({at(path, folder)})",
            tuple(_filters(folder, path, "task_data_filters", None)[0]),
            (),
            "seepage membership, of who was in the training; seepage pooled, of how a sensitive column is distributed",
        )
        for path in listed
        if path.name == f"{SERVER}.json"
    ]
    name = clean(meta.get("name", folder.name))
    return ScannedProject("NVFlare job", name, folder, tuple(messages), tuple(remarks))


def _all_parts(settings: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for key in ("workflows", "components"):
        yield from parts(settings.get(key))


def _of_client(
    folder: Path, path: Path, sites: list[Path], at_server: list[str], meta: Mapping[str, object]
) -> Iterator[LeavingMessage]:
    settings = settings_in(path)
    for executor in parts(settings.get("executors")):
        component = mapping(executor.get("executor"))
        kind = clean(component.get("path", component.get("name", "unknown executor")), 80)
        for task in sequence(executor.get("tasks")):
            guards, unknown = _filters(folder, path, "task_result_filters", str(task))
            for site in sites:
                more, questions = _filters_of_site(folder, site)
                guards, unknown = guards + more, unknown + questions
            if not sites:
                unknown.append("filters of a site's own privacy.json, which is not part of a job")
            components = [clean(part.get("path", ""), 80) for part in parts(settings.get("components"))]
            audit, question = _audit(clean(task), [kind, *components], at_server, guards, meta)
            yield LeavingMessage(
                "client",
                "the next client" if any("cyclic" in of.lower() for of in at_server) else "server",
                f"result of the task {clean(task)} by {kind} ({at(path, folder)})",
                tuple(guards),
                (*unknown, *([question] if question else [])),
                audit,
            )
    if not any(sequence(executor.get("tasks")) for executor in parts(settings.get("executors"))):
        yield LeavingMessage(
            "client",
            "server",
            f"unknown ({at(path, folder)})",
            (),
            ("no executor with a list of tasks is named",),
            NO_AUDIT,
        )


def _audit(
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


def _filters(folder: Path, path: Path, key: str, task: str | None) -> tuple[list[str], list[str]]:
    """Return the guards in a configuration for a task, and what is unknown."""
    guards, unknown = list[str](), list[str]()
    for entry in parts(settings_in(path).get(key)):
        tasks = [str(name) for name in sequence(entry.get("tasks"))]
        if task is None or task in tasks or "*" in tasks:
            _read_filters(entry, at(path, folder), guards, unknown)
    return guards, unknown


def _filters_of_site(folder: Path, path: Path) -> tuple[list[str], list[str]]:
    guards, unknown = list[str](), list[str]()
    for scope in parts(settings_in(path).get("scopes")):
        place = f"{at(path, folder)}, scope {clean(scope.get('name', ''))}"
        _read_filters({"filters": scope.get("task_result_filters")}, place, guards, unknown)
    if guards or unknown:
        unknown.append(f"which scope of {at(path, folder)} a job has")
    return guards, unknown


def _read_filters(entry: Mapping[str, object], place: str, guards: list[str], unknown: list[str]) -> None:
    for part in parts(entry.get("filters")):
        name = str(part.get("path", part.get("name", ""))).rpartition(".")[2]
        arguments = in_words(mapping(part.get("args")))
        if name in _FILTERS:
            effect, near = _FILTERS[name]
            guards.append(f"{name}({arguments}) at {place}: {effect} (in an audit: {near})")
            if name == "HEModelEncryptor" and mapping(part.get("args")).get("encrypt_layers"):
                unknown.append("layers that encrypt_layers leaves out are sent in the clear")
        elif name not in _NO_GUARDS:
            unknown.append(f"what the filter {clean(name or 'without a name')} at {place} does")
