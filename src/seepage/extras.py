"""Packages of other programs that are installed with an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seepage.errors import BadInputError
from seepage.versions import installed


class MissingExtraError(BadInputError, ImportError):
    """A package of an extra is missing, or its version cannot be used."""


@contextmanager
def extra(name: str, program: str, *packages: str) -> Iterator[None]:
    """Turn failing imports of another program's packages, its own first, into advice on what to install."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        what = "is not installed"
        if not isinstance(error, ModuleNotFoundError):
            what = f"{installed(packages[0])} cannot be used ({' '.join(str(error).split())})"
        raise MissingExtraError(f"{program} {what}; pip install 'seepage[{name}]'.") from error
