"""The errors that seepage raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInputError(ValueError):
    """Something the caller handed in cannot be used.

    The message is one paragraph: what was expected, what came (with the value), what to do next.
    The command line prints it without a traceback and exits with status 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> BadInputError:
    """Return the error for a name that no registered ``kind`` carries, with the nearest names.

    Example:
        >>> print(unknown_name("dataset", "adlut", ["adult", "german"]))
        unknown dataset 'adlut'; did you mean 'adult'? Known: adult, german.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else "."
    return BadInputError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}.")
