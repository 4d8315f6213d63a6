"""Provenance of results: versions, commit, device, spec."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.packages import installed
from seepage.run.store import Store
from seepage.settings.setting import Audit
from seepage.sources import own_code

FILE = "provenance.json"
_PACKAGES = ("seepage", "torch", "numpy", "scipy", "pandas", "pydantic")
# Fields with numbers of units.
_UNITS = ("victims", "repetitions", "units")
# Another path to the same rows is the same audit: their digest decides.
_OF_THE_TABLE = {
    *("data", "data_folder", "schema_file", "target", "sensitive", "drop", "separator", "encoding", "day_first"),
    *("overrides", "missing", "most_categories", "most_encoded", "keep_dummies"),
}
_FREE = {
    *("workers", "threads", "device", "keep_records", "control", "gate", "recommend", "variant"),
    *("time_budget", "allow_large", *_UNITS, *_OF_THE_TABLE),
}
_SWEPT = {"batch_sizes", "attacks", "baselines", "defenses", "metrics"}


def provenance(audits: Sequence[Audit]) -> dict[str, object]:
    """Return the provenance of figures; nothing of the rows but digests."""
    on_cuda = any(audit.where != "cpu" for audit in audits)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "audits": [_identity(audit) for audit in audits],
        "commit": commit(),
        "code": own_code()["digest"],
        "packages": {name: installed(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": torch.cuda.get_device_name() if on_cuda else platform.machine(),
    }


def _identity(audit: Audit) -> dict[str, object]:
    spec = audit.spec.model_dump(mode="json")
    # The name of a known table is void where a file is given.
    named = {} if spec.get("data") is None else {"dataset": None}
    return {"setting": audit.setting, "spec": {**spec, **named}, **audit.origin}


def commit() -> dict[str, object] | None:
    """Return the commit of seepage's own source and whether it was changed; None outside a git checkout."""
    module = Path(__file__)
    # An environment may lie inside a checkout of something else, which does not track this file.
    if _git(module.parent, "ls-files", "--error-unmatch", module.name) is None:
        return None
    changed = _git(module.parent, "status", "--porcelain", "--untracked-files=no")
    return {"hash": _git(module.parent, "rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def _git(folder: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def write_provenance(folder: Path, store: Store, private: bool = False) -> None:
    """Write the store's provenance of the commands that wrote into it to the folder's ``provenance.json``."""
    write_whole(folder / FILE, json.dumps(store.runs(), indent=1, ensure_ascii=False) + "\n", private)


def check_folder(folder: Path, store: Store, audits: Sequence[Audit]) -> None:
    """Refuse a folder whose results these audits would replace by fewer or other ones.

    Same rows, networks and options continue what is there: with more or fewer units, another number of workers,
    further batch sizes, attacks, defenses or baselines, or further audits.
    """
    earlier = store.runs()
    if not earlier:
        if (folder / "results.json").exists():
            raise BadInputError(
                f"{str(folder)!r} holds a results.json of something else; choose another --out or move it away."
            )
        return
    now = [_identity(audit) for audit in audits]
    for then in earlier[-1]["audits"]:
        differences = [_differences(then, today) for today in now]
        if not all(differences):
            continue
        differs = min(differences, key=len)
        raise BadInputError(
            f"{str(folder)!r} holds an audit with {'; '.join(differs[:4])}{'; ...' if len(differs) > 4 else ''}. "
            "Choose another --out for this one, or give the same options to continue that one "
            "(more repetitions, batch sizes or attacks may be added)."
        )


def earlier_units(store: Store, audits: Sequence[Audit]) -> list[int]:
    """Return for each audit the number of units of earlier commands; 0 without any."""
    earlier = [then for run in store.runs() for then in run["audits"]]
    alike = [[then for then in earlier if not _differences(then, today)] for today in map(_identity, audits)]
    return [max((_units(then["spec"]) for then in same), default=0) for same in alike]


def _units(spec: Mapping[str, Any]) -> int:
    return max(int(spec.get(name) or 0) for name in _UNITS)


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    if then["setting"] != now["setting"]:
        return [f"the setting {then['setting']!r} (now {now['setting']!r})"]
    both = [part for part in ("dataset", "model") if part in then and part in now]
    pairs = [(f"{part} digest", then[part]["digest"], now[part]["digest"]) for part in both]
    pairs += [(name, value, now["spec"].get(name)) for name, value in then["spec"].items() if name not in _FREE]
    return [
        f"{name} {_short(old)} (now {_short(new)})"
        for name, old, new in pairs
        if old != new and not (name in _SWEPT and all(item in new for item in old))
    ]


def _short(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_short(item) for item in value)
    return str(value["label"] or value["name"]) if isinstance(value, dict) and "label" in value else repr(value)
