"""Lines of the program in which nothing of the input steers the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from seepage.text import clean


def print_message(line: str) -> None:
    """Print one line on the error stream, in which nothing of the input can steer the terminal."""
    print(f"seepage: {clean(line, 4000)}", file=sys.stderr)


def shown_path(path: str | Path) -> str:
    """Return a path as it is printed."""
    return clean(path, 4000)
