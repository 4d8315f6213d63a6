"""Whether two source trees measure the same figures: one small audit of each setting, every row bit for bit.

    python benchmarks/same_figures.py --before OLD/src --after NEW/src
    python benchmarks/same_figures.py --before OLD/src --after NEW/src --kill --setting split

Each tree runs in a process of its own. A tree may also be one in which settings other than horizontal were studies
(``make_study``); fields then have the names of that time. With ``--kill`` the process after kills itself once it
has kept some series, and another one goes on in the same run folder. Exit status 1 where figures differ.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HIDDEN = {"private_columns": ["housing", "foreign_worker"], "hidden": [8], "attacked_records": 60}
FIELDS: dict[str, dict[str, Any]] = {
    "horizontal": {
        "dataset": "german",
        "batch_sizes": [2, 4],
        "attacks": ["tableak", "inverting_gradients"],
        "defenses": ["none", {"name": "gaussian_noise", "options": {"scale": 0.01}}],
        "iterations": 15,
        "restarts": 2,
        "victims": 2,
    },
    "split": {
        **HIDDEN,
        "dataset": "german",
        "attacks": ["exact", "posterior"],
        "defenses": ["none", {"name": "label_flip", "probability": 0.2}],
        "epochs": 2,
        "repetitions": 2,
    },
    "vertical": {
        "dataset": "german",
        "attacks": ["uifv_qa", "ridge_sa"],
        "defenses": ["none", {"name": "feature_noise", "scale": 1.0}],
        "epochs": 2,
        "attacked_records": 100,
        "repetitions": 2,
    },
    "pooled": {
        "dataset": "german",
        "sensitive": "telephone",
        "value": "yes",
        "rows": 60,
        "auxiliary": 120,
        "queries": 60,
        "attacks": ["meta", "kl"],
        "defenses": ["none", "label_only"],
        "targets": 10,
        "shadows": 20,
        "epochs": 2,
        "repetitions": 2,
    },
}
# Names of fields and defenses in trees with studies.
EARLIER = {"repetitions": "units", "private_columns": "private", "attacked_records": "records"}
EARLIER_DEFENSES: dict[str, list[dict[str, Any]]] = {
    "split": [{"label": "none"}, {"label": "label_flip", "flip": 0.2}],
    "vertical": [{"label": "none"}, {"label": "feature_noise", "feature_noise": 1.0}],
    "pooled": [{"label": "none"}, {"label": "label_only", "label_only": True}],
}
AT = ("attack", "defense", "batch_size", "metric", "column")
FIGURES = ("mean", "low", "high", "std", "n", "baseline", "lift")
# Series that are kept before the process is killed.
KEPT = 5

EARLIER_CODE = """
import json, sys
setting, fields, *_ = json.load(sys.stdin)
if setting == "horizontal":
    import seepage
    rows = seepage.audit(fields.pop("dataset"), control=False, workers=1, **fields).rows
else:
    from seepage.audit.store import Store
    from seepage.audit.studies import make_study
    from seepage.audit.study import run_study, study_rows
    rows = study_rows(run_study(make_study(setting, **fields), Store(None)))
print(json.dumps(rows))
"""
CODE = """
import json, os, signal, sys
from pathlib import Path
from seepage.results.rows import rows_of
from seepage.run.runner import Listener, run_audits
from seepage.run.store import Store
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.setting import Given
from seepage.settings.units import Tables

class Killer(Listener):
    kept = 0
    def finished(self, what, figure, units):
        self.kept += 1
        if self.kept == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

name, fields, folder, die_after = json.load(sys.stdin)
setting = find_setting(name)
spec = setting.spec.of(**fields, control=False, workers=1)
audit = setting.prepare(spec, Given(), Tables())
with Store(None if folder is None else Path(folder)) as store:
    [runs] = run_audits([audit], store, Killer())
    rows = [*rows_of(audit, runs), *audit.further_rows(store.setup, lambda what: None)]
print(json.dumps([row.as_dict() for row in rows]))
"""

Rows = dict[tuple[Any, ...], dict[str, Any]]


def main() -> int:
    """Compare and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="folder that holds the package seepage")
    parser.add_argument("--after", type=Path, required=True, help="folder that holds the package seepage")
    parser.add_argument("--kill", action="store_true", help="kill the run after once and continue it")
    parser.add_argument("--setting", choices=FIELDS, action="append", help="only this one; repeatable")
    arguments = parser.parse_args()
    differ = False
    for setting in arguments.setting or FIELDS:
        before = rows(arguments.before, setting)
        after = killed(arguments.after, setting) if arguments.kill else rows(arguments.after, setting)
        found = differences(before, after)
        print(f"{setting}: {len(before)} rows before, {len(after)} after, {len(found)} differ", flush=True)
        print("".join(f"  {line}\n" for line in found), end="", flush=True)
        differ = differ or bool(found)
    return int(differ)


def killed(source: Path, setting: str) -> Rows:
    """Return the rows of a run that was killed once and continued."""
    with tempfile.TemporaryDirectory() as folder:
        status = run(source, setting, folder, KEPT).returncode
        if status != -signal.SIGKILL:
            raise SystemExit(f"{setting}: the run was to be killed after {KEPT} series, but ended with status {status}")
        return rows(source, setting, folder)


def rows(source: Path, setting: str, folder: str | None = None) -> Rows:
    """Return the rows of a tree by their place; floats come back from JSON with all their bits."""
    done = run(source, setting, folder)
    if done.returncode:
        raise SystemExit(f"{source} with {setting}: {done.stderr.strip()}")
    found: Rows = {}
    for row in json.loads(done.stdout.splitlines()[-1]):
        place = tuple(row[name] for name in AT)
        if place in found:
            raise SystemExit(f"{source} with {setting}: two rows at {place}")
        found[place] = {name: row[name] for name in FIGURES}
    return found


def run(source: Path, setting: str, folder: str | None, die_after: int = 0) -> subprocess.CompletedProcess[str]:
    """Run an audit in a process that imports seepage from a source tree."""
    code, fields = CODE, FIELDS[setting]
    if not (source / "seepage" / "settings" / "catalogue.py").exists():
        code, fields = EARLIER_CODE, {EARLIER.get(name, name): value for name, value in fields.items()}
        fields |= {"defenses": EARLIER_DEFENSES[setting]} if setting in EARLIER_DEFENSES else {}
    told = json.dumps([setting, fields, folder, die_after])
    variables = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, input=told, env=variables, capture_output=True, text=True, check=False)


def differences(before: Rows, after: Rows) -> list[str]:
    """Return a line for each place whose figures differ, or that one of both lacks."""
    found = []
    for place in sorted({*before, *after}, key=str):
        told = ", ".join(map(str, place))
        if place not in before or place not in after:
            found.append(f"{told}: only {'after' if place in after else 'before'}")
            continue
        old, new = before[place], after[place]
        found += [f"{told}: {name} {old[name]!r}, now {new[name]!r}" for name in FIGURES if old[name] != new[name]]
    return found


if __name__ == "__main__":
    sys.exit(main())
