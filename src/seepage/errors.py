"""Errors that seepage raises on purpose."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

# Similarity of two names, from 0 to 1, from which one is suggested for the other.
_NEAR = 0.6
# Number of names beyond which not all are listed beside a near one.
_MANY = 30


@dataclass(frozen=True)
class Remedy:
    """A field of a spec that a message advises to give; a placeholder stands for a value that only the user knows."""

    field: str
    value: object = None
    placeholder: str | None = None

    def __str__(self) -> str:
        if self.value is None and self.placeholder is None:
            return self.field
        return f"{self.field}={self.value!r}" if self.placeholder is None else f"{self.field}={self.placeholder}"


class CertifiedWrongError(RuntimeError):
    """A certified cell contradicts the truth: a mistake in seepage, a wrong declaration, or the truth of others."""


class BadInputError(ValueError):
    """An input from the caller that cannot be used.

    The message is one paragraph: what was expected, what came (with the value), what to do next.
    The command line prints it without a traceback and exits with status 2.

    Attributes:
        message: texts, and fields of a spec that it advises to give; as text, the error words these for Python.

    Example:
        >>> error = BadInputError("the table has missing cells; give ", Remedy("missing", "drop"), ".")
        >>> print(error)
        the table has missing cells; give missing='drop'.
        >>> error.worded(lambda remedy: f"--{remedy.field} {remedy.value}")
        'the table has missing cells; give --missing drop.'
    """

    def __init__(self, *message: str | Remedy) -> None:
        super().__init__("".join(map(str, message)))
        self.message = message

    def worded(self, wording: Callable[[Remedy], str]) -> str:
        """Return the message with the fields that it advises in a front end's words."""
        return "".join(wording(piece) if isinstance(piece, Remedy) else piece for piece in self.message)


class FieldError(BadInputError):
    """One of several fields cannot be used; ``field`` is its path as text, such as ``defenses.1.flip``."""

    def __init__(self, path: Sequence[str | int], reason: str) -> None:
        self.path, self.field, self.reason = tuple(path), ".".join(map(str, path)), reason
        super().__init__(f"{self.field}: {reason}")


class NotFiniteError(ArithmeticError):
    """Numbers that are not finite, computed from usable input: they end the job that computes them, not the run."""


def one_line(error: BaseException) -> str:
    """Return an error as one line; one that seepage did not raise on purpose with its type."""
    # Names of files need not be UTF-8, and what is written of them has to be.
    text = " ".join(str(error).encode(errors="backslashreplace").decode().split())
    return text if isinstance(error, BadInputError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> BadInputError:
    """Return the error for a name that no registered ``kind`` has, with the nearest names."""
    names = sorted(choices)
    parts = [part.strip() for part in name.split(",")]
    joined = len(parts) > 1 and set(parts) <= set(names)
    near = f"these are {len(parts)} names: give each one by itself." if joined else nearest(name, names)
    # A long list is no help beside the similar name.
    further = f" and {len(names) - _MANY:,} more" if len(names) > _MANY else ""
    listing = "" if near and further else f" Known: {', '.join(names[:_MANY]) or 'none'}{further}."
    return BadInputError(f"unknown {kind} {name!r}{f'; {near}' if near else '.'}{listing}")


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return a question that suggests the similar ones of some names; empty where none is similar."""
    near = difflib.get_close_matches(name, sorted(choices), n=3, cutoff=_NEAR)
    return f"did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


def check_choice(kind: str, value: object, choices: object) -> None:
    """Refuse a value that is not among the choices of a ``Literal`` type."""
    options = get_args(choices)
    if value not in options:
        raise unknown_name(kind, str(value), options)


def check_count(name: str, value: object) -> None:
    """Refuse, as bad input, a value that is not a whole number from 1 up."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInputError(f"{name} is a whole number from 1 up, got {name}={value!r}.")


def positive(name: str, value: object, most: float = math.inf) -> float:
    """Return a finite number above 0 and at most ``most`` as a float."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value <= most:
        return float(value)
    bound = "" if most == math.inf else f" and at most {most:g}"
    # YAML reads 1e-3, without a point, as text.
    meant = _number(value)
    hint = "" if meant is None else f"; write it without quotes and with a point, as in {meant!r}"
    raise BadInputError(f"{name} is a number above 0{bound}, got {name}={value!r}{hint}.")


def non_negative(name: str, value: object) -> float:
    """Return a number from 0 up as a float."""
    if isinstance(value, int | float) and value == 0 and not isinstance(value, bool):
        return 0.0
    try:
        return positive(name, value)
    except BadInputError as error:
        raise BadInputError(str(error).replace("is a number above 0", "is a number from 0 up", 1)) from None


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None
