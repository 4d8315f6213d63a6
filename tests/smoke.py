"""One small audit of each setting and a look at every kind of packaged file, as a program that needs no test tools."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

SETTINGS = {
    "audit": ["--attack", "dlg:{iterations: 2}", "--batch-size", "1", "--victims", "2"],
    "split": ["--private-column", "housing", "--repetitions", "1", "--attacked-records", "5", "--attack", "label_norm"],
    "vertical": ["--attack", "ridge_sa", "--repetitions", "1", "--epochs", "1"],
    "pooled": ["--sensitive", "housing", "--value", "own", "--attack", "meta", "--shadows", "4", "--targets", "4"],
    "trees": ["--rows", "50", "--trees", "2", "--repetitions", "1", "--attack", "anchor"],
    "statistics": ["--rows", "50", "--repetitions", "1"],
}
_SMALL = ["--dataset", "german", "--no-control", "--defense", "none", "--workers", "1", "--quiet"]
# Checks, published tables, presets and starters are files of the package, as are tables and templates of reports.
COMMANDS = [
    ["checks", "SEEP012"],
    ["reproduce"],
    ["spec", "new", "--dataset", "german", "--out", "new.yaml"],
    ["new", "attack", "mine.py"],
    *([name, *options, *_SMALL, "--out", name] for name, options in SETTINGS.items()),
]
# Prints where the package is, and a line for every file that is opened in a folder in which it must open none.
_PROGRAM = """
import os, sys
commands, forbidden, allowed = eval(sys.argv[1])
def seen(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        path = os.path.abspath(arguments[0])
        if forbidden and path.startswith(forbidden + os.sep) and not path.startswith(allowed + os.sep):
            print("opened", path)
sys.addaudithook(seen)
import seepage
from seepage.cli import main
print("package", os.path.dirname(seepage.__file__))
for command in commands:
    sys.argv = ["seepage", *command]
    try:
        main()
        status = 0
    except SystemExit as stopped:
        status = stopped.code or 0
    print("status", command[0], status)
"""


def smoke(
    python: str | Path, source: Path, folder: Path, forbidden: Path | None = None, allowed: Path | None = None
) -> tuple[list[str], dict[str, int], Path, str]:
    """Run the commands in one process.

    Args:
        python: interpreter.
        source: folder that holds the package.
        folder: working folder, which gets the run folders.
        forbidden: folder in which no file may be opened; None for none.
        allowed: folder in that one in which files may be opened.

    Returns:
        Forbidden files that were opened, exit statuses by command, folder of the package, and all that was printed.
    """
    arguments = repr((COMMANDS, *("" if one is None else str(one) for one in (forbidden, allowed))))
    done = _run([str(python), "-c", _PROGRAM, arguments], source, folder)
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    opened = [rest for word, *more in lines if word == "opened" for rest in more]
    statuses = {
        name: int(status)
        for word, *more in lines
        if word == "status"
        for name, status in (rest.split() for rest in more)
    }
    places = [rest for word, *more in lines if word == "package" for rest in more]
    return opened, statuses, Path(places[0] if places else "nowhere"), done.stdout + done.stderr


def _run(command: Sequence[str], source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=3600, check=False
    )
