"""Inference of a schema from a file or a DataFrame; every inferred field can be overridden.

What speaks for the kind of a column, from the surest to the weakest (``_ColumnReading``):

1. what the policy says of it by name, and its type: categories, booleans, dates and times;
2. how cells are written: digits that are all days, texts that are all numbers, dates or times in one unit;
3. how many values whole numbers have: few are categories, and one for each row, without gaps, numbers the rows;
4. what its name says: codes, things that are counted, measurements;
5. how its numbers are spread: few ones, far apart and on no scale, are codes.

A guess is said with what would change it, and so is a column that stands near the threshold of a rule. What can be read
in two ways with different results, such as dates in either order of day and month, is refused.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, Literal, SupportsFloat, cast

import numpy as np
import pandas as pd
from pydantic import ValidationError

from seepage.errors import BadInputError, Remedy, unknown_name
from seepage.tabular.codes import counted, has_points, meaning_of_name, speaks_for_codes, speaks_of_dates, spread
from seepage.tabular.one_hot import MergedSource, OneHotGroup, one_hot_groups, unlike
from seepage.tabular.policy import GUESSED, Policy
from seepage.tabular.reading import OrderedDates, Source, open_table, typed
from seepage.tabular.schema import LARGEST_BOUND, LARGEST_INTEGER, Column, Continuous, Discrete, Schema, unusable_schema
from seepage.tabular.texts import (
    DAYS,
    HOURS,
    TextColumn,
    Written,
    dates_in_digits,
    days,
    in_both_orders,
    number,
    read_written,
)
from seepage.text import how_many, percent

OTHER, NOTHING = "(other)", "(missing)"
# With fewer distinct texts (or rows) than this, distinct values do not suggest an identifier.
_FEW_TEXTS, _FEW_ROWS = 20, 50
_LISTED = 20
# Whole numbers from here on, nearly all different, name something: amounts have fewer digits.
_LONG = 10**15
_LONG_TEXT = re.compile("[0-9]{16,}")
# Two numbers of a measurement, such as a blood pressure of 120/80, name no row.
_PAIR = re.compile(r"\s*([0-9]{2,3})/([0-9]{2,3})\s*")
_MONTHS = 12
# Codes of digits with a letter before some (C536280) or after some (85123A).
_DIGITS, _PREFIXED = re.compile("[0-9]+"), re.compile("[A-Za-z]{1,3}[-_ ]?([0-9]{2,})")
_SUFFIXED = re.compile("([0-9]{4,})[A-Za-z]{1,2}")
# Numbers that stand for "missing" in many tables, and the least number of cells that shows it.
_STAND_INS = frozenset(
    [
        -1.0,
        -200.0,
        99.9,
        999.9,
        -99.9,
        -999.9,
        *(sign * int(str(digit) * count) for sign in (1, -1) for digit in (7, 8, 9) for count in (1, 2, 3, 4, 5, 6)),
    ]
)
_FEWEST_STAND_INS = 3
# Words for missing cells that are listed for a column.
_MARKS = 5
# Dates in digits have six or more.
_SMALLEST_DIGITS = 100_000
# Share of the joint range that columns with names alike, such as PAY_5 and PAY_6, must have in common.
_ALIKE = 0.8
_NUMBERED = re.compile(r"(.*?)[0-9]+")
# A number of different values within this distance of a bound is near it: as a part of the bound.
_NEAR = 0.3
# Encoded rows of more are searched for days.
_MOST_COLUMNS = 5_000
# Share of a column's cells from which on a line says that they become one category, as check SEEP018 warns of it.
_MUCH = 0.5
_SCHEMA = Remedy("schema_file", placeholder="FILE")


@dataclass(frozen=True)
class InferredColumn:
    """Interpretation of one column of a table, and the reason.

    Attributes:
        name, taken, why: the column, what it was taken for, and why.
        near: the threshold that it was near to; empty where clear.
        remarks: what was guessed, and what a reader should know of the cells; printed in any case.
        instead: the choice that would change a guess.
    """

    name: str
    taken: Literal["discrete", "continuous", "left out"]
    why: str
    near: str = ""
    remarks: tuple[str, ...] = ()
    instead: Remedy | None = None

    def line(self, wording: Callable[[Remedy], str] = str) -> str:
        """Return reason, remarks and what would change a guess, worded for a front end."""
        near = [f"near a threshold: {self.near}"] if self.near else []
        change = "" if self.instead is None else f" (else {wording(self.instead)})"
        return "; ".join([self.why, *near, *self.remarks]) + change

    @property
    def is_guess(self) -> bool:
        """Whether something of the column was guessed, or looks odd."""
        return bool(self.remarks)


@dataclass(frozen=True)
class Inferred:
    """A schema, the reasons for it, and notes that a reader of results needs; ``rows`` counts those of the source."""

    schema: Schema
    columns: tuple[InferredColumn, ...]
    notes: tuple[str, ...]
    rows: int
    groups: tuple[OneHotGroup, ...] = ()


def infer(source: pd.DataFrame | str | Path | Source, target: str, policy: Policy | None = None) -> Inferred:
    """Infer the schema of a table, with the reasons.

    Text, booleans and pandas categories are discrete (in sorted, or in declared order). Numbers are continuous, with
    the smallest and largest value, rounded outwards, as bounds, integer-valued if all are whole, and a tolerance of
    ``tolerance_factor`` unbiased standard deviations (TabLeak section 5.1); whole numbers with at most
    ``discrete_at_most`` different values are discrete instead, and so are codes: whole numbers that the column's name
    or the spread of its values shows to be codes (``codes``). Dates and times are continuous, in days since 1970-01-01,
    texts that are all dates or numbers with thousands separators, and dates in eight digits, likewise. What was guessed
    is in ``InferredColumn.remarks``.

    Identifiers are left out: texts with more than 20 values of which there is one for fewer than two rows, and whole
    numbers without gaps or repeats over 50 rows or more. One-hot encoded columns are merged, see ``one_hot_groups``;
    the target may be named by any of them. Columns are read one after the other; beside one of them, only what is known
    about each is held.
    """
    policy = policy or Policy()
    table = open_table(source) if isinstance(source, pd.DataFrame | str | Path) else source
    table.shown_names()
    if policy.day_first is not None:
        table = OrderedDates(table, policy.day_first)
    groups = () if policy.keep_dummies else one_hot_groups(table, {*policy.overrides, *policy.drop, *policy.beside})
    merged = {member: group.name for group in groups for member in group.members}
    table = MergedSource(table, groups) if groups else table
    target = merged.get(target, target)
    sensitive = frozenset(merged.get(name, name) for name in policy.sensitive)
    for name in (target, *policy.overrides, *sensitive, *policy.drop, *policy.beside, *policy.only):
        if name not in merged and name not in table.names:
            raise table.unknown_column(name)
    if target in policy.drop:
        raise BadInputError(f"the target {target!r} is among the columns to drop; take it out of one of the two.")
    if target in policy.beside:
        raise BadInputError(
            f"{target!r} is the target, and cannot be read as texts or identifiers at once; name another column."
        )
    only = {target, *sensitive, *(merged.get(name, name) for name in policy.only)}
    apart = {
        **{name: "not asked for" for name in table.names if policy.only and name not in only},
        **dict.fromkeys(policy.beside, "read as it is, beside the table"),
        **dict.fromkeys(policy.drop, "as asked for"),
    }
    names = [name for name in table.names if name not in apart]
    if len(names) < 2:
        raise BadInputError(f"the table has no column besides its target {target!r}; an audit needs at least one.")

    if len(names) > _MOST_COLUMNS:
        raise BadInputError(
            f"the table has {len(names):,} columns, above the limit of {_MOST_COLUMNS:,}: an attack on so wide a table "
            "takes days. Drop columns (",
            Remedy("drop", placeholder="COLUMN"),
            "), or give a schema (",
            _SCHEMA,
            "), which may have any number.",
        )

    complete = _complete_rows(table, names, policy) if policy.missing == "drop" else None
    guesses: dict[str, _ColumnReading] = {}
    wrong: list[str | BadInputError] = []
    for name, raw in table.columns(names):
        try:
            guesses[name] = _ColumnReading(name, raw, policy, complete, is_target=name == target)
        except BadInputError as error:
            wrong.append(error)
    _treat_alike(guesses, target)
    if guesses and next(iter(guesses.values())).rows < 2:
        rows = next(iter(guesses.values())).rows
        too_few = f"a schema is inferred from at least two rows, this table has {rows}"
        if complete is None:
            raise BadInputError(f"{too_few}; give more rows, or a schema (", _SCHEMA, ").")
        raise BadInputError(f"{too_few} without missing cells; keep the others (", Remedy("missing", "category"), ").")
    left_out = {
        name: reason
        for name, guess in guesses.items()
        if name not in policy.overrides and (reason := guess.useless_because) is not None
    }
    for name in list(left_out):
        if name == target and guesses[name].useless:
            state = "is empty" if guesses[name].missing == guesses[name].rows else "is the same"
            del left_out[name]
            wrong.append(
                f"the target {target!r} {state} in all {guesses[name].rows} rows, so there is nothing to learn; choose "
                "another target or add rows where it differs"
            )
        elif name == target and guesses[name].listed > policy.most_categories:
            # Said below, with what to do about it.
            del left_out[name]
        elif name == target or name in sensitive:
            role = "the target" if name == target else "sensitive"
            wrong.append(
                f"column {name!r} is {role}, but {left_out.pop(name)}, so it would be left out; choose another column, "
                "or override its kind to keep it"
            )
    wrong += _missing(guesses, left_out, policy)
    limit = _limit(guesses, left_out, policy, target)
    columns: dict[str, Column] = {}
    for name, guess in guesses.items():
        if name in left_out or guess.useless:
            continue
        if name == target and guess.kind == "discrete" and guess.listed > policy.most_categories:
            # More classes than every second row would be identifiers all the same.
            more = () if guess.identifier else (" (", Remedy("most_categories", guess.listed), " allows all)")
            wrong.append(
                BadInputError(
                    f"the target {name!r} has {guess.listed} different values; a model learns to tell at most "
                    f"{policy.most_categories} apart here",
                    *more,
                    ": choose another target or group its values",
                )
            )
            continue
        try:
            columns[name] = guess.column(name in sensitive, limit)
        except BadInputError as error:
            wrong.append(error)
    raise_all(wrong)
    inputs = tuple(column for name, column in columns.items() if name != target)
    if not inputs:
        raise BadInputError(
            f"no column besides the target {target!r} is left: "
            + "; ".join(f"{name!r}: {reason}" for name, reason in list(left_out.items())[:_LISTED])
            + (f"; and {len(left_out) - _LISTED} more" if len(left_out) > _LISTED else "")
            + ". Give a table with other columns",
            *_keeping(name for name in left_out if guesses[name].missing < guesses[name].rows),
            ".",
        )
    schema = Schema(columns=inputs, target=columns[target])
    origins = {group.name: f"{len(group.members)} one-hot columns; " for group in groups}
    out = {**left_out, **apart}
    interpreted = [
        InferredColumn(name, "left out", out[name], **_guessed(guesses.get(name)))
        if name in out
        else InferredColumn(
            name,
            columns[name].kind,
            _reason(origins, guesses[name], columns[name]),
            guesses[name].near,
            **_guessed(guesses[name]),
        )
        for name in table.names
    ]
    notes = _notes(schema, left_out, policy, interpreted)
    if groups:
        notes = (f"one-hot columns merged (keep_dummies leaves them): {_listed(list(map(str, groups)))}", *notes)
    return Inferred(schema, tuple(interpreted), (*table.notes, *notes), guesses[target].rows, groups)


def _keeping(names: Iterator[str]) -> tuple[str | Remedy, ...]:
    name = next(names, None)
    return () if name is None else (", or keep one of these (", Remedy("overrides", {name: "discrete"}), ")")


def _guessed(guess: _ColumnReading | None) -> dict[str, Any]:
    return {} if guess is None else {"remarks": tuple(guess.remarks), "instead": guess.instead}


def _reason(origins: Mapping[str, str], guess: _ColumnReading, column: Column) -> str:
    """Return the reason for a column's interpretation; the categories of a merged column were not declared."""
    why = guess.why(column)
    return origins[guess.name] + why.replace("declared ", "") if guess.name in origins else why


def infer_schema(source: pd.DataFrame | str | Path, target: str, *, separator: str = ",", **choices: Any) -> Schema:
    """Return the schema that ``infer`` infers.

    Args:
        separator: character between the cells of a CSV file.
        choices: fields of ``Policy``; None for the default.

    Raises:
        BadInputError: the table cannot be used; one message says all that is wrong with it.

    Example:
        >>> frame = pd.DataFrame({"age": [30.5, 41, 65], "job": ["cook", "nurse", "cook"], "ill": [True, False, True]})
        >>> schema = infer_schema(frame, "ill", overrides={"age": {"low": 0, "unit": "years"}})
        >>> schema.columns[0].low, schema.columns[0].high, schema.columns[1].categories
        (0.0, 66.0, ('cook', 'nurse'))
    """
    policy = Policy(**{name: choice for name, choice in choices.items() if choice is not None})
    return infer(open_table(source, separator), target, policy).schema


def raise_all(wrong: Sequence[str | BadInputError]) -> None:
    """Raise one ``BadInputError`` for all findings; do nothing where there are none."""
    findings = list({str(finding): _unended(finding) for finding in wrong}.values())
    if len(findings) == 1:
        raise BadInputError(*findings[0], ".")
    if findings:
        listed: list[str | Remedy] = []
        for i, finding in enumerate(findings[:_LISTED], start=1):
            listed += ["; " if i > 1 else "", f"({i}) ", *finding]
        more = f"; and {len(findings) - _LISTED} more" if len(findings) > _LISTED else ""
        raise BadInputError(f"{len(findings)} things keep the table from being used: ", *listed, f"{more}.")


def _unended(finding: str | BadInputError) -> list[str | Remedy]:
    parts: list[str | Remedy] = [finding] if isinstance(finding, str) else list(finding.message)
    return [*parts[:-1], parts[-1].rstrip(".")] if isinstance(parts[-1], str) else parts


def missing_cells(
    counts: Mapping[str, tuple[int, int]], steered: bool = True, marks: Iterable[str] = ()
) -> BadInputError:
    """Return the error for missing cells, (number, first) by column; ``steered``: the user has an option for them.

    ``marks`` are words that count as missing beside numbers.
    """
    listed = [f"{count} in {name!r} (first in data row {first + 1})" for name, (count, first) in counts.items()]
    more = f" and {how_many(len(listed) - _LISTED, 'more column')}" if len(listed) > _LISTED else ""
    message = f"the table has missing cells: {', '.join(listed[:_LISTED])}{more}; "
    signs = sorted(set(marks))
    end = f"{_listed([repr(mark) for mark in signs])} beside numbers counts as missing. " if signs else ""
    end += "Data row 1 is the first under the header"
    if not steered:
        return BadInputError(f"{message}fill them as in training, or leave out the rows that have one. {end}")
    return BadInputError(
        f"{message}add ",
        Remedy("missing", "category"),
        " (they become a category of their own, in columns of numbers the median) or ",
        Remedy("missing", "drop"),
        f" (rows that have one are left out), or fill them yourself. {end}",
    )


def _complete_rows(table: Source, names: list[str], policy: Policy) -> np.ndarray:
    """Return which rows have no missing cell in the columns that will be part of the schema."""
    complete: np.ndarray | None = None
    for name, raw in table.columns(names):
        series = typed(raw)
        present = series.notna().to_numpy()
        complete = np.ones(len(present), dtype=bool) if complete is None else complete
        if present.all() or not present.any():
            continue
        try:
            reading = _ColumnReading(name, raw, policy, None)
            left_out = name not in policy.overrides and reading.useless_because is not None
        except BadInputError:
            left_out = True
        if not left_out:
            complete &= present
    assert complete is not None
    return complete


def _treat_alike(guesses: Mapping[str, _ColumnReading], target: str) -> None:
    """Take whole numbers of neighbours with ranges nearly the same, such as PAY_5 and PAY_6, as numbers if one is."""
    families: dict[str, list[_ColumnReading]] = {}
    for name, guess in guesses.items():
        match = _NUMBERED.fullmatch(name)
        if match and name != target and guess.codes is not None and not guess.override and guess.identifier is None:
            families.setdefault(match[1], []).append(guess)
    for family in families.values():
        numbers = [guess for guess in family if guess.kind == "continuous"]
        for guess in family:
            near = next((other for other in numbers if _alike(guess, other)), None)
            if guess.kind == "discrete" and near is not None:
                guess.become_numbers(f"as {near.name!r} is")


def _alike(first: _ColumnReading, second: _ColumnReading) -> bool:
    """Return whether two columns of whole numbers have nearly the same range and about as many values."""
    assert first.codes is not None
    assert second.codes is not None
    low, high = max(first.codes.min(), second.codes.min()), min(first.codes.max(), second.codes.max())
    joint = max(first.codes.max(), second.codes.max()) - min(first.codes.min(), second.codes.min())
    return bool(high - low >= _ALIKE * joint and second.distinct <= 2 * first.distinct)


def _missing(
    guesses: dict[str, _ColumnReading], left_out: Mapping[str, str], policy: Policy
) -> list[str | BadInputError]:
    if policy.missing != "refuse":
        return []
    counts = {
        name: (guess.missing, guess.first_missing)
        for name, guess in guesses.items()
        if guess.missing and not guess.useless and name not in left_out and "missing" not in guess.override
    }
    return [missing_cells(counts, marks=[m for name in counts for m in guesses[name].marks])] if counts else []


def _limit(guesses: dict[str, _ColumnReading], left_out: Mapping[str, str], policy: Policy, target: str) -> int:
    """Return how many categories a column may keep, so that the table does not get too wide."""
    widths = [
        1 if guess.kind == "continuous" else guess.listed
        for name, guess in guesses.items()
        if name not in left_out and name != target
    ]
    limit = policy.most_categories
    while limit > _FEW_TEXTS and sum(min(width, limit) for width in widths) > policy.most_encoded:
        limit -= 1
    return limit


def _notes(
    schema: Schema, left_out: Mapping[str, str], policy: Policy, columns: Sequence[InferredColumn]
) -> tuple[str, ...]:
    notes = []
    guessed = [f"{column.name!r} {column.taken} ({'; '.join(column.remarks)})" for column in columns if column.is_guess]
    if guessed:
        notes.append(f"{GUESSED} {_listed(guessed)}")
    if left_out:
        notes.append(f"columns left out: {_listed([f'{name!r} ({reason})' for name, reason in left_out.items()])}")
    if schema.width > policy.most_encoded:
        notes.append(
            f"{schema.width:,} encoded columns, more than the {policy.most_encoded:,} aimed at (most_encoded): attacks "
            "take longer; drop columns or group their values"
        )
    return tuple(notes)


def _listed(all_: Sequence[str]) -> str:
    return ", ".join(all_[:_LISTED]) + (f" and {len(all_) - _LISTED} more" if len(all_) > _LISTED else "")


class _ColumnReading:
    """Inferred content of one column; the column itself is not kept."""

    def __init__(
        self, name: str, raw: pd.Series | TextColumn, policy: Policy, mask: np.ndarray | None, is_target: bool = False
    ) -> None:
        self.name, self.policy = name, policy
        # Nothing can be learnt from a row without a target.
        self.fills = policy.missing == "category" and not is_target
        self.override = dict(policy.overrides.get(name, {}))
        self.is_target = is_target
        self.meaning, self.word = meaning_of_name(name)
        self.remarks: list[str] = []
        self.instead: Remedy | None = None
        # Identifiers of eight digits may all look like days.
        keeps = self._keeps_digits() or (self.meaning == "codes" and not speaks_of_dates(name))
        dated = None if keeps else dates_in_digits(raw, months=self.meaning not in ("codes", "things"))
        raw = raw if dated is None else dated
        if dated is not None and not self.override:
            self._guess("dates by their digits, as 20200103 is one", "discrete")
        self.marks = raw.marks() if isinstance(raw, TextColumn) else {}
        # Numbers this long would not be told apart as floats.
        series = raw.as_texts() if isinstance(raw, TextColumn) and raw.all_match(_LONG_TEXT) else typed(raw)
        series = series if mask is None else series[mask].reset_index(drop=True)
        missing = series.isna().to_numpy()
        self.rows, self.missing = len(series), int(missing.sum())
        self.first_missing = int(missing.argmax()) if self.missing else 0
        series = (series[~missing] if self.missing else series).infer_objects()
        if series.dtype == object and pd.api.types.infer_dtype(series) in ("decimal", "mixed-integer-float"):
            series = series.astype(np.float64)
        self.unit: str | None = None
        self.numbers: dict[str, object] | None = None
        self.counts: dict[Hashable, int] = {}
        self.identifier: str | None = None
        self.holds = self.near = ""
        # Values of whole numbers that may be taken for categories.
        self.codes: np.ndarray | None = None
        self.kind: str = "continuous"
        self.distinct = _distinct(name, series)
        # A single value beside missing cells, such as a tick, is a category beside theirs.
        tick = series.iloc[0] if self.distinct == 1 else None
        self.ticks = self.missing > 0 and isinstance(tick, str | bool | int | float | np.generic)
        self.useless = self.distinct < 2 and name not in policy.overrides and not (self.ticks and self.fills)
        if self.useless:
            return
        suggested = "discrete" if self.ticks and not self.override else self._suggested(series)
        self.holds = self.holds or "one value"
        self.kind = str(self.override.get("kind") or self._overridden_kind() or suggested)
        if self.kind == "discrete" and "categories" not in self.override:
            self.counts = _counted(series)
            odd = next((value for value in self.counts if not isinstance(value, str | bool | int | float)), None)
            if odd is not None:
                raise BadInputError(
                    f"column {name!r} holds {type(odd).__name__} objects; a category must be a text, a number or a "
                    "boolean: turn them into text or drop the column (",
                    Remedy("drop", [name]),
                    ")",
                )
        elif self.kind == "continuous":
            self.numbers = self._measured(series)
        if suggested == "discrete" and self.kind == "discrete":
            self._name_identifier(series)
        self._as_numbers = self._measured(series) if self.codes is not None and self.kind == "discrete" else None
        self._remark_on_cells(series)

    @property
    def useless_because(self) -> str | None:
        """Why the column is left out; None where it is not."""
        if not self.useless:
            return self.identifier
        if self.missing == self.rows:
            return "it is empty"
        ticks = self.ticks and self.policy.missing == "refuse"
        return "it holds one value only" + (", beside missing cells, which can be a category" if ticks else "")

    @property
    def listed(self) -> int:
        return len(self._values)

    @property
    def _values(self) -> list[Hashable]:
        return list(cast("Iterable[Hashable]", self.override.get("categories", self.counts)))

    def column(self, sensitive: bool, limit: int) -> Column:
        if self.kind not in ("discrete", "continuous"):
            raise unknown_name(f"kind of column {self.name!r}:", self.kind, ("discrete", "continuous"))
        column_type = Discrete if self.kind == "discrete" else Continuous
        allowed = [field for field in column_type.model_fields if field != "name"]
        for given in self.override:
            if given not in allowed:
                raise unknown_name(f"field of the {self.kind} column {self.name!r}:", str(given), allowed)
        fields = self._categories(limit) if self.kind == "discrete" else self.numbers or {}
        try:
            return column_type.model_validate({"name": self.name, "sensitive": sensitive, **self.override, **fields})
        except ValidationError as error:
            raise unusable_schema(error, f"column {self.name!r}") from error

    def why(self, column: Column) -> str:
        """Return a short description of the column's content and of its interpretation."""
        text = self.holds
        if isinstance(column, Continuous):
            text += f" from {_end(column, column.low)} to {_end(column, column.high)}"
        if isinstance(column, Discrete) and column.other is not None and "other" not in self.override:
            text += f", the {self.listed - (column.width - 1 - (column.missing is not None))} rarest as {column.other}"
        if self.missing:
            share = f"{self.missing:,} missing"
            fill = column.missing
            shown = "" if fill is None else f" as {fill}" if isinstance(column, Discrete) else " as the median"
            if self.is_target and fill is None and self.policy.missing == "category":
                shown = ": these rows are left out"
            text += f", {share}{shown}"
        return text + (", overridden" if self.override else "")

    def _guess(self, reason: str, instead: str) -> None:
        """Note a guess, its reason, and the kind that would change it."""
        self.remarks.append(f"a guess: {reason}")
        self.instead = Remedy("overrides", {self.name: instead})

    def _take_codes(self, reason: str, instead: str = "continuous") -> str:
        self.holds, self.near, self.codes = f"{self.distinct:,} different codes", "", None
        if not self._overridden_kind():
            self._guess(f"codes {reason}", instead)
        return "discrete"

    def _remark_on_cells(self, series: pd.Series) -> None:
        """Say which cells were taken for missing, or look as if they should be, and which texts are nearly equal."""
        if self.marks:
            listed = [f"{mark!r} in {how_many(count, 'cell')}" for mark, count in self.marks.items()]
            more = f" and {len(listed) - _MARKS} more" if len(listed) > _MARKS else ""
            self.remarks.append(f"counts as missing beside numbers: {', '.join(listed[:_MARKS])}{more}")
        if self.kind == "continuous" and self.unit not in (DAYS, HOURS, "days"):
            values, counts = np.unique(as_numbers(self.name, series), return_counts=True)
            self.remarks += _stand_ins(values, counts)
        if self.kind == "discrete" and self.identifier is None and 2 <= len(self.counts) <= _MOST_COLUMNS:
            alike = len(self.counts) - len({_written_alike(value) for value in self.counts})
            if alike:
                self.remarks.append(
                    f"{how_many(alike, 'value')} written unlike another in capitals or blanks alone, or as 1 and 1.0 "
                    "are: write them alike"
                )

    def _keeps_digits(self) -> bool:
        """Return whether an override takes digits as they are, though they may be dates."""
        bounds = [self.override.get(name) for name in ("low", "high")]
        far = any(isinstance(bound, int | float) and abs(bound) >= _SMALLEST_DIGITS for bound in bounds)
        return far or "categories" in self.override or self.override.get("kind") == "discrete"

    def _overridden_kind(self) -> str | None:
        if "categories" in self.override:
            return "discrete"
        return "continuous" if {"low", "high", "tolerance", "integer"} & set(self.override) else None

    def _suggested(self, series: pd.Series) -> str:
        """Return the kind the cells suggest, and describe them."""
        types = pd.api.types
        if isinstance(series.dtype, pd.CategoricalDtype):
            self.holds = f"{len(series.cat.categories):,} declared categories"
            return "discrete"
        if types.is_bool_dtype(series):
            self.holds = "true or false"
            return "discrete"
        if types.is_numeric_dtype(series) and not types.is_complex_dtype(series):
            return self._seen_numbers(series)
        if types.is_datetime64_any_dtype(series) or types.is_timedelta64_dtype(series):
            self.holds = "days" if types.is_timedelta64_dtype(series) else "dates, taken as days,"
            self.unit = "days" if types.is_timedelta64_dtype(series) else DAYS
            return "continuous"
        content = types.infer_dtype(series, skipna=False)
        if content in ("decimal", "mixed-integer-float", "floating", "integer"):
            self.holds = "numbers"
            if content == "integer" and self._names_rows(len(series)) and min(map(abs, series)) >= _LONG:
                self.identifier = f"{self.distinct:,} different numbers of 16 digits or more in {len(series):,} rows"
            return "continuous" if self.distinct > self.policy.discrete_at_most else "discrete"
        if content in ("date", "datetime"):
            self.holds, self.unit = "dates, taken as days,", DAYS
            return "continuous"
        self.holds = f"{self.distinct:,} different {'texts' if content == 'string' else 'values'}"
        if content not in ("string", "boolean", "mixed", "mixed-integer"):
            if self.override.get("kind") or self._overridden_kind():
                return "discrete"
            raise BadInputError(
                f"column {self.name!r} holds {content} cells; turn them into numbers or text, or drop the column (",
                Remedy("drop", [self.name]),
                ")",
            )
        return self._seen_texts(series) if content == "string" else "discrete"

    def _seen_numbers(self, series: pd.Series) -> str:
        values = series.to_numpy(dtype=np.float64)
        finite = bool(np.isfinite(values).all())
        whole = finite and bool((values == np.round(values)).all())
        self.holds = "whole numbers" if whole else "numbers"
        bound = self.policy.discrete_at_most
        if whole and self.distinct <= 2 * bound:
            self.codes = np.unique(values)
        if whole and abs(self.distinct - bound) <= _NEAR * bound:
            self.near = f"up to {bound} different whole numbers are categories"
        if whole and self.distinct <= bound:
            self.holds = f"{self.distinct} different whole numbers"
            return "discrete"
        if whole and self._names_rows(len(values)) and np.abs(values).min() >= _LONG:
            self.identifier = f"{self.distinct:,} different numbers of 16 digits or more in {len(values):,} rows"
        if whole and len(values) >= _FEW_ROWS and self.distinct == len(values) == np.ptp(values) + 1:
            self.identifier = "it numbers the rows, without gaps or repeats"
        if self.identifier is None and finite and self.distinct > bound:
            return self._seen_codes(*np.unique(values, return_counts=True), whole)
        return "continuous"

    def _seen_codes(self, values: np.ndarray, counts: np.ndarray, whole: bool) -> str:
        """Return the kind of more numbers than categories usually have: codes by name or by spread are categories."""
        by_name = f"by the word {self.word!r} in its name"
        pointed = has_points(self.name) and bool(np.allclose(values * 100, np.round(values * 100), rtol=0, atol=1e-6))
        if self.meaning == "codes" and (whole or pointed):
            return self._take_codes(by_name)
        if not whole or self.meaning == "measured":
            return "continuous"
        if self.meaning == "maybe" and speaks_for_codes(values):
            return self._take_codes(f"{by_name} and the size of its numbers")
        if self.meaning == "things" and not counted(values, counts):
            return self._take_codes(by_name)
        spreads = spread(values, int(counts.sum()))
        if spreads == "codes" and not self.is_target:
            return self._take_codes("as few numbers, far apart and on no scale")
        if spreads and not self.override:
            self._guess("numbers, though as few and as far apart as codes", "discrete")
        return "continuous"

    def _seen_texts(self, series: pd.Series) -> str:
        """Recognise numbers and dates that are written as text, and identifiers, among the texts."""
        texts = [str(text).strip() for text in pd.unique(series)]
        if all(map(_LONG_TEXT.fullmatch, texts)):
            return "discrete"
        # Reading a million different texts takes seconds; where none of a thousand is a number, few are.
        sample = texts[:: max(1, len(texts) // 1000)]
        written = _written(sample)
        if written.undecided or written.mixed or not np.isnan(written.values).all():
            written = _written(texts)
        coded_name = self.meaning in ("codes", "things")
        if written.mixed and self.distinct > _FEW_TEXTS and not self.override and not coded_name:
            raise BadInputError(
                f"column {self.name!r} holds numbers with a decimal comma and others with a decimal point; write all "
                "with a point, or have all its values taken as categories (",
                Remedy("overrides", {self.name: "discrete"}),
                ")",
            )
        if written.undecided and not self.override:
            raise BadInputError(
                f"column {self.name!r} holds dates such as 05/12/2020, and no cell tells whether the day or the month "
                "comes first; say so (",
                Remedy("day_first", True),
                " or ",
                Remedy("day_first", False),
                ")",
            )
        readable = int((~np.isnan(written.values)).sum())
        if coded_name and 2 * readable > len(texts) and written.unit not in (DAYS, HOURS):
            return self._take_codes(f"by the word {self.word!r} in its name")
        if _lettered(texts, written):
            return self._take_codes("as some have a letter before or after the digits", "discrete")
        if written.unit == DAYS and readable == len(texts):
            self.holds, self.unit = "dates, taken as days,", DAYS
            return "continuous"
        if written.unit == HOURS and readable == len(texts) and self.distinct > self.policy.discrete_at_most:
            self.holds, self.unit = "times of day, taken as hours,", HOURS
            return "continuous"
        if not readable or written.unit == HOURS:
            return "discrete"
        coded = any(text[:1] == "0" and text[1:2].isdigit() for text in texts)
        if readable == len(texts) and not coded:
            return self._seen_written(series, written, texts)
        if 2 * readable > len(texts) and not coded and self.distinct > _FEW_TEXTS and not self.override:
            cells = _cells_of(series, texts, np.isnan(written.values))
            limits = 0 if written.limits is None else _cells_of(series, texts, written.limits)
            raise BadInputError(
                f"column {self.name!r} holds numbers, but {cells} of its cells "
                f"({how_many(len(texts) - readable, 'different text')}) are "
                f"not numbers{'' if written.unit is None else f' in {written.unit}'}; leave them empty "
                "where they mean missing, write a number for a word, write all in one unit and with one decimal sign, "
                "or have all its values taken as categories (",
                Remedy("overrides", {self.name: "discrete"}),
                f"){f'; {limits:,} more are limits (<, > or +), read as the number of the limit' if limits else ''}",
            )
        return "discrete"

    def _seen_written(self, series: pd.Series, written: Written, texts: list[str]) -> str:
        """Return the kind of numbers that are written as text: few plain ones are codes, as whole ones are."""
        limits = written.limits is not None
        plain = written.unit is None and not limits and not any("," in text for text in texts)
        whole = bool((written.values == np.round(written.values)).all())
        if limits and self.distinct > self.policy.discrete_at_most and not self.override:
            cells = how_many(_cells_of(series, texts, written.limits), "cell")
            self._guess(f"{cells} of limits (<, > or +) as the number of the limit", "discrete")
        if (plain and self.distinct <= _FEW_TEXTS) or (whole and self.distinct <= self.policy.discrete_at_most):
            return "discrete"
        self.unit = written.unit
        self.holds = "numbers written as text," if written.unit is None else f"numbers written with {written.unit},"
        if all(map(_DIGITS.fullmatch, texts)):
            cells = series.astype(str).str.strip().astype(np.float64).to_numpy()
            return self._seen_codes(*np.unique(cells, return_counts=True), whole=True)
        return "continuous"

    def _name_identifier(self, series: pd.Series) -> None:
        if self._says_pairs():
            self.remarks.append("pairs of numbers such as 120/80: split the column in two to keep both as numbers")
        declared = isinstance(series.dtype, pd.CategoricalDtype)
        if not declared and self.distinct > _FEW_TEXTS and abs(2 * self.distinct / len(series) - 1) <= _NEAR:
            self.near = "texts with fewer than two rows each are identifiers"
        if not declared and self._names_rows(len(series)) and not all(_PAIR.fullmatch(str(v)) for v in self.counts):
            self.identifier = f"{self.distinct:,} different values in {len(series):,} rows: an identifier or free text"
            if in_both_orders([str(value) for value in self.counts]):
                self.identifier = "dates, some with the day before the month and some after it: write them in one order"

    def _says_pairs(self) -> bool:
        """Return whether nearly all cells are two numbers with a slash, neither of them always a month."""
        if self.distinct <= self.policy.discrete_at_most:
            return False
        pairs = [(match, count) for value, count in self.counts.items() if (match := _PAIR.fullmatch(str(value)))]
        if 20 * sum(count for _, count in pairs) < 19 * sum(self.counts.values()):
            return False
        sides = (max(int(match[side]) for match, _ in pairs) for side in (1, 2))
        return all(largest > _MONTHS for largest in sides)

    def _names_rows(self, rows: int) -> bool:
        """Return whether there are so many different values that they seem to name the rows."""
        return self.distinct > _FEW_TEXTS and 2 * self.distinct > rows

    def become_numbers(self, why: str) -> None:
        """Take whole numbers that were taken for categories as numbers."""
        self.kind, self.holds, self.near = "continuous", f"whole numbers, taken {why},", ""
        self.numbers = self._as_numbers

    def _categories(self, limit: int) -> dict[str, object]:
        categories = self._values
        fields: dict[str, object] = {}
        if "categories" not in self.override and "other" not in self.override and len(categories) > limit:
            rank = {value: i for i, value in enumerate(categories)}
            frequent = sorted(categories, key=lambda value: (-self.counts[value], rank[value]))[: limit - 1]
            self._remark_on_rare(sum(self.counts[value] for value in frequent), limit)
            categories = sorted(frequent, key=rank.__getitem__)
            fields["other"] = unlike(categories, OTHER)
            categories.append(fields["other"])
        if self.missing and self.fills and "missing" not in self.override:
            fields["missing"] = unlike(categories, NOTHING)
            categories.append(fields["missing"])
        return {**fields, "categories": tuple(categories)}

    def _remark_on_rare(self, frequent_cells: int, limit: int) -> None:
        """Say where much of a column becomes one category: who reads that has not read the value."""
        share = 1 - frequent_cells / (self.rows - self.missing)
        if share < _MUCH:
            return
        self.remarks.append(f"{percent(share, 0)} of its cells become {OTHER}, so their values are not audited")
        if self.instead is None and limit == self.policy.most_categories and self.listed <= self.policy.most_encoded:
            self.instead = Remedy("most_categories", self.listed)

    def _measured(self, series: pd.Series) -> dict[str, object]:
        if not len(series):
            return {}
        values = as_numbers(self.name, series)
        low, high = float(values.min()), float(values.max())
        # A constant column's mean may be off by a rounding, its spread is still none; scaled, squares cannot overflow.
        scale = np.abs(values).max() if high > low else 0.0
        std = float((values / scale).std(ddof=1) * scale) if scale else 0.0
        whole = bool((values == np.round(values)).all()) and max(-low, high) <= LARGEST_INTEGER
        # The lower of two middle values, which is whole where all are.
        middle = (len(values) - 1) // 2
        low, high = rounded_outwards(low, high, whole)
        fields = {"low": low, "high": high, "tolerance": self.policy.tolerance_factor * std, "integer": whole}
        if self.missing and self.fills:
            fields["missing"] = float(np.partition(values, middle)[middle])
        return {name: value for name, value in {**fields, "unit": self.unit}.items() if name not in self.override}


def _cells_of(series: pd.Series, texts: Sequence[str], chosen: np.ndarray | None) -> int:
    """Return how many cells hold one of the chosen texts."""
    assert chosen is not None
    marked = dict(zip(texts, chosen.tolist(), strict=True))
    return int(series.map(lambda text: marked[str(text).strip()]).sum())


def _lettered(texts: Sequence[str], written: Written) -> bool:
    """Return whether texts are digits, some with a letter before or after: codes such as C536280 or 85123A."""
    unread = np.isnan(written.values)
    if written.mixed or written.unit is not None or not unread.any() or unread.all():
        return False
    plain = [text for text, odd in zip(texts, unread, strict=True) if not odd]
    others = [text for text, odd in zip(texts, unread, strict=True) if odd]
    if not all(_DIGITS.fullmatch(text) for text in plain):
        return False
    if all(_PREFIXED.fullmatch(text) for text in others):
        return True
    lengths = {len(text) for text in plain}
    ends = [_SUFFIXED.fullmatch(text) for text in others]
    return len(lengths) == 1 and all(match is not None and len(match[1]) in lengths for match in ends)


def _stand_ins(values: np.ndarray, counts: np.ndarray) -> list[str]:
    """Return remarks on numbers at either end that look as if they stood for missing cells.

    They are of the usual ones, occur in several cells, and are farther from all other numbers than these reach, or the
    only number below zero.
    """
    cells: dict[str, int] = {}
    low, high = 0, len(values) - 1
    while high - low > 2:
        inner_low, inner_high = values[low + 1 : high + 1], values[low:high]
        if _stands_in(float(values[low]), int(counts[low]), inner_low):
            cells[f"{values[low]:g}"] = int(counts[low])
            low += 1
        elif _stands_in(float(values[high]), int(counts[high]), inner_high):
            cells[f"{values[high]:g}"] = int(counts[high])
            high -= 1
        else:
            break
    if not cells:
        return []
    listed = ", ".join(f"{value} in {how_many(count, 'cell')}" for value, count in cells.items())
    return [f"apart from all other numbers: {listed}; leave cells empty where it means missing"]


def _stands_in(value: float, count: int, others: np.ndarray) -> bool:
    if value not in _STAND_INS or count < _FEWEST_STAND_INS:
        return False
    only_negative = value < 0 <= others.min()
    distance = others.min() - value if value < others.min() else value - others.max()
    return bool(only_negative or distance > np.ptp(others))


def _written_alike(value: Hashable) -> Hashable:
    """Return a category without what people write in two ways: capitals, and the zeros behind a point."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if value[:1] != "0" or "." in value else value
    except ValueError:
        return " ".join(value.casefold().split())


def rounded_outwards(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Return bounds that hold all cells but are no one's cell: multiples of 1, 2 or 5 times a power; equal ones stay.

    The distance of the multiples is at most a tenth of the range, and at least 2 for whole numbers.
    """
    if low == high:
        return low, high
    least, most = Decimal(low), Decimal(high)
    step = Decimal(1).scaleb((most - least).adjusted() - 1)
    step = max(step * factor for factor in (1, 2, 5) if step * factor * 10 <= most - least)
    step = max(step, Decimal(2)) if whole else step
    down, up = (
        float((value / step).to_integral_value(rounding) * step)
        for value, rounding in ((least, ROUND_FLOOR), (most, ROUND_CEILING))
    )
    limit = float(LARGEST_INTEGER) if whole else LARGEST_BOUND
    # Rounding to float64 must leave no cell outside.
    return min(low, max(down, -limit)), max(high, min(up, limit))


def _end(column: Continuous, value: float) -> str:
    if column.unit != DAYS:
        return f"{value:.6g}"
    try:
        return str((pd.Timestamp(0) + pd.Timedelta(days=value)).date())
    except (ValueError, OverflowError):
        # Further away than a nanosecond clock reaches.
        return f"{value:.6g}"


def as_numbers(name: str, series: pd.Series) -> np.ndarray:
    """Return cells, none of them missing, as finite float64 numbers; dates, times and durations in days."""
    values = numbers_of(name, series)
    refuse_odd(name, values, np.ones(len(values), dtype=bool))
    return values


def refuse_odd(name: str, values: np.ndarray, there: np.ndarray) -> None:
    """Raise ``BadInputError`` if a cell that is present is infinite or NaN (no number)."""
    wrong = np.flatnonzero(~np.isfinite(values) & there)
    if len(wrong):
        what = "is infinite" if np.isinf(values[wrong[0]]) else "is no number"
        raise BadInputError(
            f"column {name!r} is continuous but data row {wrong[0] + 1} {what} ({how_many(len(wrong), 'such cell')} in "
            "all); give finite numbers, drop those rows, or make the column discrete (",
            Remedy("overrides", {name: "discrete"}),
            ")",
        )


def numbers_of(name: str, series: pd.Series) -> np.ndarray:
    """Return cells as float64 numbers, NaN where a cell is missing or no number."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(object).infer_objects()
    types = pd.api.types
    if types.is_datetime64_any_dtype(series):
        # Open ends such as 9999-12-31 lie outside of what nanoseconds reach.
        moments = series.to_numpy(dtype="datetime64[us]", na_value=np.datetime64("NaT"))
        return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 86_400e6)
    if types.is_timedelta64_dtype(series):
        return series.dt.total_seconds().to_numpy(dtype=np.float64, na_value=np.nan) / 86_400
    if types.is_numeric_dtype(series) and not types.is_complex_dtype(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    inferred = types.infer_dtype(series, skipna=True)
    if inferred in ("date", "datetime"):
        return series.map(days, na_action="ignore").to_numpy(dtype=np.float64, na_value=np.nan)
    if inferred.startswith(("time", "period", "interval", "complex")):
        raise BadInputError(
            f"column {name!r} is continuous but holds {inferred} cells; turn them into numbers "
            "(days since a date, for example) or drop the column"
        )
    if inferred == "string":
        return TextColumn.of_series(series).numbers()
    try:
        values = series.map(_as_number, na_action="ignore")
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except OverflowError as error:
        raise BadInputError(
            f"column {name!r} is continuous but holds a whole number too large for float64 (beyond 1.8e308); "
            "measure it in a larger unit or make the column discrete"
        ) from error


def _as_number(value: object) -> float:
    if isinstance(value, str):
        return number(value)
    if isinstance(value, datetime.date):
        return days(value)
    try:
        return float(cast("SupportsFloat", value))
    except (TypeError, ValueError):
        return np.nan


def _written(texts: list[str]) -> Written:
    """Return the numbers that texts stand for, each text by itself where all can be read so."""
    values = np.array([number(text) for text in texts])
    read = read_written(texts)
    if read.undecided or read.mixed or np.isnan(read.values).sum() < np.isnan(values).sum():
        return read
    return Written(values, read.unit if read.unit in (DAYS, HOURS) and not np.isnan(read.values).any() else None)


def _distinct(name: str, series: pd.Series) -> int:
    try:
        return int(series.nunique())
    except TypeError as error:
        raise BadInputError(
            f"column {name!r} holds {type(series.iloc[0]).__name__} objects; a cell must be a text, a number or a "
            "boolean: spread them over columns or drop the column (",
            Remedy("drop", [name]),
            ")",
        ) from error


def _counted(series: pd.Series) -> dict[Hashable, int]:
    """Return how often each value occurs, in sorted (declared) order, as plain values."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        counts = series.value_counts(sort=False).reindex(series.cat.categories)
        return {_unwrap(value): int(count) for value, count in counts.items()}
    position, distinct = pd.factorize(series)
    counted: dict[Hashable, int] = {}
    for value, count in zip(distinct, np.bincount(position, minlength=len(distinct)).tolist(), strict=True):
        plain = _unwrap(value)
        plain = int(plain) if isinstance(plain, float) and plain.is_integer() else plain
        counted[plain] = counted.get(plain, 0) + count
    return {value: counted[value] for value in sorted(counted, key=_sort_key)}


def _unwrap(value: Hashable) -> Hashable:
    return value.item() if isinstance(value, np.generic) else value


def _sort_key(value: Hashable) -> tuple[int, float | int | str]:
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (2, repr(value))
