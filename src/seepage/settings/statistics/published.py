"""Published tables and figures of numbers, as they stand in a message of ``seepage attack``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from seepage import kernel
from seepage.captures.statistics import shown
from seepage.errors import BadInputError
from seepage.tabular.schema import Category
from seepage.text import listed


@dataclass(frozen=True)
class Published:
    """A table, or figures of a number, as they stand under a title such as ``sex|ward`` or ``age|died=yes``.

    Attributes:
        names: declared columns with their categories, the target last.
        where: file and iteration.
        rounded, freedom, rule: those of ``kernel.Summary``.
    """

    names: Mapping[str, tuple[Category, ...]]
    where: str
    title: str
    given: Any
    rounded: float
    freedom: int
    rule: str

    @property
    def is_summary(self) -> bool:
        """Whether these are figures of a number."""
        return isinstance(self.given, Mapping)

    @property
    def parts(self) -> list[tuple[int, int | None]]:
        """Places of the columns in the title, with that of a category where the title names one."""
        places, names = [], list(self.names)
        for part in self.title.split("|"):
            name, _, category = part.partition("=")
            name, category = name.strip(), category.strip()
            spelled = [str(level) for level in self.names.get(name, ())]
            if name not in names or (category and category not in spelled):
                raise BadInputError(
                    f"{self.where}: the table {self.title!r} is of {part.strip()!r}, and not of a declared column or "
                    "category; name it 'column', 'column|column' or 'number|column=category'."
                )
            places.append((names.index(name), spelled.index(category) if category else None))
        return places

    @property
    def columns(self) -> tuple[int, ...]:
        """Places of the columns, in ascending order."""
        return tuple(sorted(place for place, _ in self.parts))

    @property
    def key(self) -> tuple:
        """What tells it from others."""
        return (self.is_summary, *sorted(self.parts, key=lambda part: (part[1] is not None, part)))

    def counts(self) -> np.ndarray:
        """Return the numbers of records by the levels of the columns, in ascending order of the columns."""
        places = [place for place, _ in self.parts]
        widths = tuple(len(levels) for levels in self.names.values())
        wanted = tuple(widths[place] for place in places)
        try:
            counts = np.array(_without_none(self.given), dtype=float)
        except (TypeError, ValueError):
            raise BadInputError(
                f"{self.where}: the table {self.title!r} is {shown(self.given)}; give nested lists of numbers."
            ) from None
        if len(set(places)) < len(places) or len(places) > 2 or any(level is not None for _, level in self.parts):
            raise BadInputError(f"{self.where}: the table {self.title!r} is of no one or two different columns.")
        if counts.shape != wanted:
            raise BadInputError(
                f"{self.where}: the table {self.title!r} has the shape {counts.shape}, and has to have {wanted}: an "
                "entry for each category, in the declared order."
            )
        if not (np.isnan(counts) | ((counts >= 0) & (counts < 1e9) & (counts == np.rint(counts)))).all():
            raise BadInputError(f"{self.where}: the table {self.title!r} has numbers that are no numbers of records.")
        return counts if len(places) < 2 or places[0] < places[1] else counts.T

    def summary(self) -> kernel.Summary | None:
        """Return the figures of a number; None where they were left out."""
        (column, level), *groups = self.parts
        values = list(self.names.values())[column]
        if level is not None or any(level is None for _, level in groups) or not all(map(_is_number, values)):
            raise BadInputError(
                f"{self.where}: {self.title!r} has figures, and has to be a column whose categories are numbers, or "
                "such a column within a category of others ('age|died=yes')."
            )
        known = {"n", "mean", "sum", "squares", "centre", "variance", "sd", "quantiles"}
        if set(self.given) - known or "n" not in self.given:
            raise BadInputError(
                f"{self.where}: {self.title!r} has {listed(sorted(map(str, self.given)))}; figures are n, and any of "
                f"{listed(sorted(known - {'n'}))}."
            )
        quantiles = self.given.get("quantiles") or {}
        if not isinstance(quantiles, Mapping):
            raise BadInputError(f"{self.where}: quantiles of {self.title!r} have to be a mapping of shares to values.")
        figures = {
            name: self._number(name, x) for name, x in self.given.items() if name != "quantiles" and x is not None
        }
        shares = [
            (self._number("share", s), self._number("quantile", x)) for s, x in quantiles.items() if x is not None
        ]
        if any(not 0 <= share <= 1 for share, _ in shares):
            raise BadInputError(f"{self.where}: quantiles of {self.title!r} are at shares from 0 to 1.")
        if "n" not in figures or not figures["n"]:
            return None
        if figures["n"] != round(figures["n"]) or figures["n"] < 0:
            raise BadInputError(
                f"{self.where}: {self.title!r} is of {figures['n']:g} records, which is no number of them."
            )
        named = {"total": "sum", "deviation": "sd"}
        moments = {
            name: figures.get(named.get(name, name)) for name in ("mean", "total", "squares", "variance", "deviation")
        }
        return kernel.Summary(
            column,
            tuple(float(cast("float", value)) for value in values),
            int(figures["n"]),
            **moments,
            quantiles=tuple(shares),
            within=tuple((place, cast("int", level)) for place, level in groups),
            centre=figures.get("centre", 0.0),
            freedom=self.freedom,
            rule=self.rule,
            rounded=self.rounded,
        )

    def _number(self, name: str, value: object) -> float:
        try:
            number = float(cast("Any", value))
        except (TypeError, ValueError):
            number = np.nan
        if isinstance(value, bool) or not np.isfinite(number):
            raise BadInputError(
                f"{self.where}: {name} of {self.title!r} is {shown(value)}, and has to be one finite number."
            )
        return number


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _without_none(value: object) -> object:
    """Return nested lists with NaN for what was left out."""
    if isinstance(value, list | tuple):
        return [_without_none(part) for part in value]
    return np.nan if value is None else value
