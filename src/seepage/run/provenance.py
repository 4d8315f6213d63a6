"""Where a result comes from: versions, commit, device, spec."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.run.store import Store, digest_of
from seepage.settings.code import own_code
from seepage.settings.device import find_device
from seepage.settings.grid import plain
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.spec import Spec
from seepage.settings.study import Study
from seepage.settings.subject import Subject
from seepage.versions import installed

FILE = "provenance.json"
_PACKAGES = ("seepage", "torch", "numpy", "scipy", "pandas", "pydantic")


def provenance(audits: Sequence[tuple[HorizontalSpec, Subject]]) -> dict[str, Any]:
    """Return what is needed to tell where figures come from; nothing of the rows but a digest."""
    return _provenance([_identity(spec, subject) for spec, subject in audits], find_device(audits[0][0].device))


def study_provenance(studies: Sequence[tuple[Spec, Study]]) -> dict[str, Any]:
    """Return what is needed to tell where figures of studies come from, see ``provenance``."""
    told = [
        {
            "study": study.kind,
            "spec": spec.model_dump(mode="json"),
            "dataset": {"name": study.dataset, "rows": study.rows, "notes": list(study.notes)},
            "made_from": digest_of(plain(dict(study.identity))),
        }
        for spec, study in studies
    ]
    return _provenance(told, torch.device("cpu"))


def _provenance(audits: list[dict[str, Any]], device: torch.device) -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "audits": audits,
        "commit": commit(),
        "code": own_code()["digest"],
        "packages": {name: installed(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
    }


def _identity(spec: HorizontalSpec, subject: Subject) -> dict[str, Any]:
    dataset, model = subject.dataset, subject.model
    return {
        "spec": spec.plain(),
        "dataset": {
            "name": dataset.name,
            "rows": len(dataset.train),
            "digest": subject.rows_digest,
            "source": dataset.source,
            "licence": dataset.licence,
            "notes": list(dataset.notes),
        },
        "model": {"name": model.name, "head": model.head, "digest": subject.model_digest},
    }


def commit() -> dict[str, Any] | None:
    """Return the commit of seepage's own source and whether it was changed; None outside a git checkout."""
    here = Path(__file__)
    # An environment may lie inside a checkout of something else, which does not track this file.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return {"hash": _git(here.parent, "rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def _git(folder: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def write_provenance(folder: Path, store: Store, private: bool = False) -> None:
    """Write what the store says of the commands that wrote into it to the folder's ``provenance.json``."""
    write_whole(folder / FILE, json.dumps(store.runs(), indent=1, ensure_ascii=False) + "\n", private)


def check_folder(folder: Path, store: Store, audits: Sequence[tuple[HorizontalSpec, Subject]]) -> None:
    """Refuse a folder whose results these audits would replace by fewer or by other ones.

    Same data, model and settings continue what is there: with more or fewer victims, another number
    of workers, further batch sizes, attacks, defenses or baselines, or further audits.

    Raises:
        BadInputError: the folder holds another audit, or files of something else.
    """
    earlier = store.runs()
    if not earlier:
        if (folder / "results.json").exists():
            raise BadInputError(
                f"{str(folder)!r} holds a results.json of something else; choose another --out or move it away."
            )
        return
    now = [_identity(spec, subject) for spec, subject in audits]
    for then in earlier[-1]["audits"]:
        differences = [_differences(then, today) for today in now]
        if not all(differences):
            continue
        differs = min(differences, key=len)
        raise BadInputError(
            f"{str(folder)!r} holds an audit with {'; '.join(differs[:4])}{'; ...' if len(differs) > 4 else ''}. "
            "Choose another --out for this one, or give the same options to continue that one "
            "(more victims, batch sizes or attacks may be added)."
        )


def check_study_folder(folder: Path, store: Store, studies: Sequence[tuple[Spec, Study]]) -> None:
    """Refuse a folder whose results these studies would replace by other ones.

    The same rows and settings continue what is there, with more or fewer units, defenses, attacks or guesses.

    Raises:
        BadInputError: the folder holds something else.
    """
    earlier = store.runs()
    if not earlier and (folder / "results.json").exists():
        raise BadInputError(
            f"{str(folder)!r} holds a results.json of something else; choose another --out or move it away."
        )
    now = {one["made_from"] for one in study_provenance(studies)["audits"]}
    if earlier and not {one.get("made_from") for one in earlier[-1]["audits"]} <= now:
        raise BadInputError(
            f"{str(folder)!r} holds an audit of other rows or with other settings. Choose another --out for this one, "
            "or give the same options to continue that one (defenses, attacks and repetitions may be added)."
        )


def asked_before(store: Store, audits: Sequence[tuple[HorizontalSpec, Subject]]) -> list[int]:
    """Return of each audit how many victims earlier commands that a store knows asked for; 0 if none did."""
    earlier = [then for run in store.runs() for then in run["audits"]]
    now = [_identity(spec, subject) for spec, subject in audits]
    return [
        max((then["spec"]["victims"] for then in earlier if not _differences(then, today)), default=0) for today in now
    ]


def _differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what makes two audits different ones."""
    if "study" in then:
        return [f"the setting {then['study']!r}"]
    pairs = [(f"{part} digest", then[part]["digest"], now[part]["digest"]) for part in ("dataset", "model")]
    pairs += [(name, value, now["spec"].get(name)) for name, value in then["spec"].items() if name not in _FREE]
    return [
        f"{name} {_short(old)} (now {_short(new)})"
        for name, old, new in pairs
        if old != new and not (name in _SWEPT and all(item in new for item in old))
    ]


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_short(item) for item in value)
    return str(value["label"] or value["name"]) if isinstance(value, dict) and "label" in value else repr(value)


# Another path to the same rows is no other audit: their digest tells.
_OF_THE_TABLE = {
    *("data", "data_folder", "schema_file", "target", "sensitive", "drop", "separator"),
    *("overrides", "missing", "most_categories", "most_encoded"),
}
_FREE = {
    "victims",
    "workers",
    "time_budget",
    "threads",
    "device",
    "keep_records",
    "control",
    "gate",
    "variant",
    *_OF_THE_TABLE,
}
_SWEPT = {"batch_sizes", "attacks", "baselines", "defenses", "metrics"}
