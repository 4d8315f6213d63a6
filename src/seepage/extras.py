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
    """Turn failing imports of another program's packages into advice on what to install.

    Args:
        packages: top-level packages that are imported, the one of the program first.

    Raises:
        MissingExtraError: a package is not installed, or lacks a name that is imported.

    Example:
        >>> with extra("flower", "Flower", "flower_of_nobody"):
        ...     import flower_of_nobody
        Traceback (most recent call last):
        ...
        seepage.extras.MissingExtraError: Flower is not installed; pip install 'seepage[flower]'.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        what = "is not installed"
        if not isinstance(error, ModuleNotFoundError):
            what = f"{installed(packages[0])} cannot be used ({' '.join(str(error).split())})"
        raise MissingExtraError(f"{program} {what}; pip install 'seepage[{name}]'.") from error
