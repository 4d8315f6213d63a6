"""Lines on the error stream."""

from __future__ import annotations

import sys

from seepage.text import clean


def print_message(line: str) -> None:
    """Print one line on the error stream, in which nothing of the input can steer the terminal."""
    print(f"seepage: {clean(line, 4000)}", file=sys.stderr)
