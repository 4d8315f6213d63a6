"""What settings whose parts share an exposure have in common: figures of units, and forecasts from rehearsals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from seepage.assessment import Measurement
from seepage.datasets import Dataset
from seepage.digests import digest_of, plain
from seepage.errors import BadInputError
from seepage.settings.part import Part, distinct_names
from seepage.settings.setting import About, Exposure, Outcome, PlannedPart
from seepage.settings.spec import Spec

S = TypeVar("S", bound=Spec)

# A forecast gives up where a rehearsal takes longer: the run itself would tell as soon. The first one may take more.
_LONGEST_REHEARSALS_SECONDS = (15.0, 8.0, 8.0)


@dataclass(frozen=True)
class UnitFigures:
    """What one part got out of one unit.

    Attributes:
        figures: values by metric and column (None: all of them); None where a metric does not apply.
        seconds: time for each attacked record or target model; None where that says nothing.
        picture: data URI of an image of what was found, or is to be found; None for what is no image.
        each: values that a figure is the mean of, by its metric and column, one a record or target model of the unit.
            A gate judges these; intervals are over units, whose members are not independent.
    """

    figures: Mapping[tuple[str, str | None], float | None]
    seconds: float | None = None
    picture: str | None = None
    each: Mapping[tuple[str, str | None], Sequence[float]] = field(default_factory=dict)


def outcome(units: Sequence[UnitFigures], about: About) -> Outcome:
    """Return the figures of some units as measurements; a figure that a unit does not have is NaN there.

    Args:
        units: what a part got out of each.
        about: gives the reading of each metric.

    Example:
        >>> about = About("coins", "toss", "none")
        >>> found = outcome([UnitFigures({("accuracy", None): 0.5}), UnitFigures({("accuracy", None): None})], about)
        >>> found.measured[0].values.tolist()
        [0.5, nan]
    """
    measured = []
    for metric, column in dict.fromkeys(key for unit in units for key in unit.figures):
        found = [unit.figures.get((metric, column)) for unit in units]
        numbers = torch.tensor([float("nan") if value is None else value for value in found], dtype=torch.float64)
        scale = about.scale(metric)
        each = [unit.each.get((metric, column)) for unit in units]
        clusters = tuple(torch.tensor(list(values), dtype=torch.float64) for values in each if values is not None)
        measured.append(
            Measurement(
                metric,
                column,
                numbers,
                scale.higher_leaks is not False,
                (scale.low, scale.high),
                clusters if len(clusters) == len(units) else None,
            )
        )
    times = [unit.seconds for unit in units if unit.seconds is not None]
    pictures = tuple(unit.picture for unit in units)
    return Outcome(measured, sum(times) / len(times) if times else None, pictures=pictures if any(pictures) else ())


def planned(about: Sequence[Part], baselines: Sequence[Part], attacks: Sequence[Part]) -> tuple[PlannedPart, ...]:
    """Return the parts of an audit in the order of results.

    Raises:
        BadInputError: two would have the same name in results.
    """
    found = (
        *(PlannedPart(part, "about") for part in about),
        *(PlannedPart(part, "baseline") for part in baselines),
        *(PlannedPart(part, "attack") for part in attacks),
    )
    distinct_names("part", [part.label for part in found])
    return found


def with_fields(spec: S, changed: Mapping[str, Any]) -> S:
    """Return a spec with other values of some fields, which are taken as valid.

    Raises:
        KeyError: the spec has no such field.
    """
    for name in changed:
        type(spec).model_fields[name]
    return spec.model_copy(update=changed)


def control_fields(swapped: bool) -> dict[str, Any]:
    """Return what the controls of all settings have in common as fields of a spec.

    Args:
        swapped: whether it is the negative control.
    """
    variant = "negative control" if swapped else "positive control"
    return {
        "control": False,
        "gate": None,
        "keep_records": False,
        "variant": variant,
        "repetitions": CONTROL_UNITS,
        "defenses": (Part(name="none"),),
    }


# Enough for an interval that an attack which works clears, and that one which finds nothing does not exceed by chance.
CONTROL_UNITS = 5


def without_others(about: About, wanted: Sequence[Part], kept: Sequence[Part], why: str) -> About:
    """Return an audit's description with a note on the attacks that a control leaves out.

    Args:
        about: description of the control.
        wanted: attacks of the audit.
        kept: attacks of the control.
        why: the reason, as the end of a sentence.
    """
    names = [part.called for part in wanted if part not in kept]
    if not names:
        return about
    return replace(about, notes=(*about.notes, f"this control leaves out {', '.join(names)}: {why}"))


def attacks_and_baselines(parts: Sequence[PlannedPart]) -> tuple[PlannedPart, ...]:
    """Return the parts that a control consists of: how well the task is learnt there interests nobody."""
    return tuple(part for part in parts if part.kind != "about")


def rows_identity(data: Dataset) -> list[Any]:
    """Return what tells these rows from others: their number, digests of cells and labels."""
    cells = data.all
    return [len(cells), plain(cells.cells), plain(cells.labels)]


def origin_of(data: Dataset, rows: list[Any]) -> dict[str, Any]:
    """Return what tells a table from others, for provenance; nothing of the rows but digests.

    Args:
        data: the table.
        rows: its ``rows_identity``.
    """
    return {
        "dataset": {
            "name": data.name,
            "rows": len(data.all),
            "digest": digest_of({"rows": rows}),
            "source": data.source,
            "licence": data.licence,
            "notes": list(data.notes),
        }
    }


def check_cpu(device: str, setting: str) -> None:
    """Refuse another device than the CPU for a setting whose code runs there alone.

    Args:
        device: device that the spec names; ``auto`` is the CPU here.
        setting: name of the setting.

    Raises:
        BadInputError: another device was asked for.
    """
    if device not in ("auto", "cpu"):
        raise BadInputError(f"{setting} learning is computed on the CPU alone, got device={device!r}; use 'cpu'.")


@dataclass(frozen=True)
class Rehearsal:
    """Seconds of a small rehearsal.

    Attributes:
        exposure: seconds until the exposure was there.
        parts: seconds of all its parts.
    """

    exposure: float
    parts: float


def rehearse(expose: Callable[[int], Exposure], parts: Sequence[PlannedPart]) -> tuple[Rehearsal, Rehearsal] | None:
    """Return the seconds of a small exposure with all its parts, and of one of twice its size.

    Args:
        expose: makes an exposure of size 1 or 2.
        parts: what is measured on it; one that fails is taken as quick.

    Returns:
        None where rehearsals would take too long, so that only running the audit tells.

    Raises:
        BadInputError: so small an exposure cannot be made.
    """
    found = []
    # What is done for the first time in a process takes longer than ever after.
    for size, longest in zip((1, 1, 2), _LONGEST_REHEARSALS_SECONDS, strict=True):
        begun = time.perf_counter()
        exposure = expose(size)
        made = time.perf_counter() - begun
        for part in parts:
            if time.perf_counter() - begun > longest:
                return None
            try:
                exposure.measure(part)
            except (BadInputError, RuntimeError, ValueError):
                # The audit itself will record the failure; a small exposure may also be too small for the part.
                continue
        found.append(Rehearsal(made, time.perf_counter() - begun - made))
    return found[1], found[2]


def extrapolated(small: float, double: float, times: float) -> float:
    """Return what takes ``times`` as long as a small rehearsal, from that one and one of twice its size.

    What both take alike is there once: it does not grow with the size.

    Example:
        >>> extrapolated(3.0, 5.0, times=10.0)
        21.0
    """
    slope = max(double - small, 0.0)
    return small + slope * (times - 1)
