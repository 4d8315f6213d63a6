"""Size of audits: counts, memory and time are forecast, and refused above limits, before any work."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pydantic import BaseModel

from seepage.errors import BadInputError, Remedy
from seepage.settings.option import TABLE, fields_of
from seepage.settings.part import Part
from seepage.settings.setting import Audit
from seepage.settings.spec import Spec
from seepage.text import lasting

# More restarts, steps, records or units than any published audit has.
MOST = 1_000_000
MOST_SECONDS = 30 * 86_400.0
_ALLOWED = Remedy("allow_large", True)
# Whole numbers that are no amounts.
_NO_AMOUNTS = ("seed", "model_seed")


def check_counts(specs: Sequence[Spec]) -> None:
    """Refuse specs with amounts, or numbers of measurements, above a million before anything is computed."""
    total = 0
    for spec in specs:
        if spec.allow_large:
            continue
        for name, amount in _amounts(spec):
            if amount > MOST:
                raise BadInputError(
                    f"{name} is {amount:,}, above the limit of {MOST:,}; give a smaller one, or allow it: ",
                    _ALLOWED,
                    ".",
                )
        total += spec.repeated * points_of(spec) * (len(spec.attacks) + len(spec.baselines))
    if total > MOST:
        raise BadInputError(
            f"{total:,} measurements are asked for (units times configurations times attacks and baselines), above "
            f"the limit of {MOST:,}; ask for fewer, or allow it: ",
            _ALLOWED,
            ".",
        )


def points_of(spec: Spec) -> int:
    """Return the number of configurations of a spec."""
    swept = [getattr(spec, name) for name, field in fields_of(type(spec)).items() if field.option.swept]
    return math.prod(map(len, (spec.defenses, *swept)))


def check_memory(audits: Sequence[Audit], workers: int) -> None:
    """Refuse, as bad input, audits whose attacks need more memory than this machine has, unless the spec allows it."""
    limit = installed_memory()
    for audit in audits:
        if audit.spec.allow_large or limit is None:
            continue
        for configuration in audit.configurations:
            for part in audit.parts:
                needed = audit.memory(configuration, part) * workers
                if needed > limit:
                    raise BadInputError(
                        f"{part.label!r} would hold about {needed / 1e9:,.0f} GB in {workers} "
                        f"{'process' if workers == 1 else 'processes'}, more than "
                        f"the {limit / 1e9:,.0f} GB of this machine; ask for fewer restarts, records or ",
                        Remedy("workers"),
                        ", or allow it: ",
                        _ALLOWED,
                        ".",
                    )


def check_time(seconds: float) -> None:
    """Refuse, as bad input, work with a forecast above a month."""
    if seconds > MOST_SECONDS:
        raise BadInputError(
            f"this would take at least {lasting(seconds)} on this machine, above the limit of {lasting(MOST_SECONDS)}; "
            "ask for less, set a limit with ",
            Remedy("time_budget", placeholder="TIME"),
            ", or allow it: ",
            _ALLOWED,
            ".",
        )


@contextmanager
def enough_memory() -> Iterator[None]:
    """Turn errors of arrays that are too large for the machine into a ``BadInputError``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        message = " ".join(str(error).split())
        if not isinstance(error, MemoryError) and "memory" not in message:
            raise
        raise BadInputError(
            f"this needs more memory than the machine has ({message or 'an array could not be allocated'}); ask for "
            "fewer records, columns, units of the network or restarts."
        ) from error


def installed_memory() -> int | None:
    """Return the bytes of memory of the machine; None where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _amounts(spec: Spec) -> Iterator[tuple[str, int]]:
    for name, field in fields_of(type(spec)).items():
        # Bounds of columns and seeds may be of any size.
        if (field.option.panel != TABLE or name == "dataset_options") and name not in _NO_AMOUNTS:
            yield from _within(field.key, getattr(spec, name))


def _within(name: str, value: object) -> Iterator[tuple[str, int]]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield name, value
    elif isinstance(value, Part):
        yield from _within(f"{name}: {value.name}", value.options)
    elif isinstance(value, BaseModel):
        yield from _within(name, dict(value))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _NO_AMOUNTS:
                yield from _within(f"{name}: {key}", inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _within(name, inner)
