"""From a file or a DataFrame to a schema: what the columns seem to hold, every guess overridable."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import ValidationError

from seepage.errors import BadInputError, unknown_name
from seepage.tabular.schema import LARGEST_INTEGER, Column, Continuous, Discrete, Schema, unusable_schema

# What a CSV cell may hold to say "missing". pandas' own list also takes "None", which is a category in many tables.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
# 01 is a code, not a number.
_LEADING_ZERO = re.compile(r"\s*[+-]?0[0-9]")
# Below this many distinct texts (or rows), distinctness says nothing about being an identifier.
_FEW_TEXTS, _FEW_ROWS = 20, 50


def read_frame(path: str | Path, separator: str = ",", as_text: bool = False) -> pd.DataFrame:
    r"""Read a table from a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

    CSV files are UTF-8 with a header line; spaces after a separator are skipped; a cell that is empty
    or one of ``MISSING`` becomes NaN; a column is boolean (true, false), whole, numeric or text, the
    first that all its other cells are; with a leading zero (01) it is text.

    Args:
        path: the file.
        separator: between the cells of a CSV file.
        as_text: leave the cells of a CSV file as they are written (Parquet cells have their own types).

    Returns:
        The file's columns; a named index kept in a Parquet file becomes columns.

    Raises:
        BadInputError: no such file, another kind of file, broken or not UTF-8, no columns or no rows,
            nameless or repeated columns, more cells in a row than columns.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "people.csv"
        ...     _ = file.write_text("age,job\n30,None\n41,nurse\n")
        ...     read_frame(file)["job"].tolist()
        ['None', 'nurse']
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(_SUFFIXES):
        raise BadInputError(
            f"{str(path)!r} is none of the files that can be read ({', '.join(_SUFFIXES)}); "
            "save the table as one of them, or read it with pandas and pass the DataFrame."
        )
    if not path.is_file():
        there = "is not a file" if path.exists() else "does not exist"
        raise BadInputError(f"the table {str(path)!r} {there}; give the path of a {', '.join(_SUFFIXES)} file.")
    try:
        frame = _read_parquet(path) if name.endswith(".parquet") else _read_csv(path, separator, as_text)
    except BadInputError:
        raise
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"the table {str(path)!r} is not UTF-8 text ({error}); save it again with that encoding, "
            "or read it with pandas (read_csv has an encoding argument) and pass the DataFrame."
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error, pd.errors.ParserError, pa.ArrowException) as error:
        raise BadInputError(
            f"the table {str(path)!r} cannot be read: {' '.join(str(error).split())}; it may be truncated or damaged "
            "(compare its size or checksum with the original), or not be what its name says."
        ) from error
    if frame.empty:
        raise BadInputError(f"the table {str(path)!r} has no rows; give a file with a header and at least one row.")
    return frame


def infer_schema(
    source: pd.DataFrame | str | Path,
    target: str,
    *,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    sensitive: Iterable[str] = (),
    drop: Iterable[str] = (),
    tolerance_factor: float = 0.319,
    discrete_at_most: int = 10,
    most_categories: int = 500,
    separator: str = ",",
) -> Schema:
    """Guess the schema of a table.

    Text, booleans and pandas categories are discrete (in sorted, or in declared order). Numbers are
    continuous, with the smallest and largest value as bounds, integer-valued if all are whole, and
    a tolerance of ``tolerance_factor`` unbiased standard deviations (TabLeak section 5.1); whole
    numbers with at most ``discrete_at_most`` different values are discrete instead. The bounds are
    those of the table at hand: override them where the column can hold more.

    Args:
        source: a DataFrame, or a file for ``read_frame``.
        target: the column to be learnt; all others are inputs.
        overrides: by column, what to say instead of the guess: any fields of ``Discrete`` or
            ``Continuous`` but the name; what is left out is still guessed. An overridden column is
            taken even if it has one value or looks like an identifier.
        sensitive: columns that a report singles out.
        drop: columns to leave out.
        tolerance_factor: tolerance of a continuous column in standard deviations.
        discrete_at_most: whole numbers with at most so many values are taken as categories.
        most_categories: a text column with more values is refused (each takes an encoded column).
        separator: between the cells of a CSV file.

    Raises:
        BadInputError: fewer than two rows or one input column; a column named in an argument that does not
            exist; names that repeat or are not text; missing or infinite cells; a constant target or
            column (drop it, or override it to keep it); a column of dates, or of what cannot be a
            category; a column that looks like an identifier: text with more than 20 values of which there
            is one for fewer than two rows, or whole numbers without gaps or repeats over 50 rows or more;
            an override that makes no valid column.

    Example:
        >>> frame = pd.DataFrame({"age": [30.5, 41, 65], "job": ["cook", "nurse", "cook"], "ill": [True, False, True]})
        >>> schema = infer_schema(frame, "ill", overrides={"age": {"low": 0, "unit": "years"}})
        >>> schema.columns[0].low, schema.columns[0].high, schema.columns[1].categories
        (0.0, 65.0, ('cook', 'nurse'))
    """
    frame = source if isinstance(source, pd.DataFrame) else read_frame(source, separator)
    sensitive, drop = frozenset(sensitive), frozenset(drop)
    said = {name: dict(fields) for name, fields in (overrides or {}).items()}
    check_columns(frame)
    for name in (target, *said, *sensitive, *drop):
        if name not in frame.columns:
            raise unknown_name("column", name, frame.columns)
    if target in drop:
        raise BadInputError(f"the target {target!r} is among the columns to drop; take it out of one of the two.")
    frame = frame.drop(columns=list(drop))
    if frame.shape[1] < 2:
        raise BadInputError(f"the table has no column besides its target {target!r}; an audit needs at least one.")
    if len(frame) < 2:
        raise BadInputError(f"a schema is inferred from at least two rows, this table has {len(frame)}.")
    refuse_missing(frame)

    columns, constant = {}, []
    for name, series in frame.items():
        guess = _Guess(str(name), series, tolerance_factor, discrete_at_most, most_categories)
        if guess.constant and name not in said:
            constant.append(guess)
            continue
        columns[name] = guess.column(said.get(str(name), {}), sensitive=name in sensitive)
    if any(guess.name == target for guess in constant):
        raise BadInputError(
            f"the target {target!r} is {_unwrap(frame[target].iloc[0])!r} in all {len(frame)} rows, so there is "
            "nothing to learn; choose another target or add rows where it differs."
        )
    if constant:
        raise BadInputError(
            f"{len(constant)} column(s) hold one value only ("
            + ", ".join(f"{guess.name!r}: {guess.values[0]!r}" for guess in constant)
            + "), which says nothing about anyone; drop them, "
            "or override them with the categories or bounds that other rows may have."
        )
    inputs = tuple(column for name, column in columns.items() if name != target)
    return Schema(columns=inputs, target=columns[target])


def check_columns(frame: pd.DataFrame) -> None:
    """Raise ``BadInputError`` unless all column names are text and differ."""
    odd = [name for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise BadInputError(
            f"column names must be text, got {', '.join(map(repr, odd[:5]))}; rename them, "
            "for example frame.columns = frame.columns.map(str)."
        )
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()].unique()
        raise BadInputError(f"column names must differ, these repeat: {', '.join(repeated)}; rename or drop some.")


def refuse_missing(frame: pd.DataFrame) -> None:
    """Raise ``BadInputError`` that names every column with missing cells, and how many."""
    missing = frame.isna()
    counts = missing.sum()
    counts = counts[counts > 0]
    if len(counts):
        found = [
            f"{count} in {name!r} (first in row {missing[name].to_numpy().argmax()})" for name, count in counts.items()
        ]
        raise BadInputError(
            f"the table has missing cells: {', '.join(found)}; drop those rows, fill them, "
            "or give missing values a category of their own such as '?'."
        )


class _Guess:
    """What one column without missing cells seems to hold."""

    def __init__(
        self, name: str, series: pd.Series, tolerance_factor: float, discrete_at_most: int, most_categories: int
    ) -> None:
        self.name = name
        self.series = series.infer_objects()
        if pd.api.types.infer_dtype(self.series, skipna=False) in ("decimal", "mixed-integer-float"):
            self.series = self.series.astype(np.float64)
        self.tolerance_factor = tolerance_factor
        self.discrete_at_most = discrete_at_most
        self.most_categories = most_categories
        try:
            self.values = list(dict.fromkeys(_unwrap(v) for v in self.series.drop_duplicates()))
        except TypeError as error:
            raise BadInputError(
                f"column {name!r} holds {type(series.iloc[0]).__name__} objects such as {series.iloc[0]!r}; "
                "a cell must be a text, a number or a boolean: spread them over columns or drop the column."
            ) from error
        self.constant = len(self.values) == 1

    def column(self, said: dict[str, Any], sensitive: bool) -> Column:
        kind = said.get("kind") or self._kind_said(said) or self._kind_seen(check=not said)
        if kind not in ("discrete", "continuous"):
            raise unknown_name(f"kind of column {self.name!r}:", str(kind), ("discrete", "continuous"))
        made = Discrete if kind == "discrete" else Continuous
        known = [field for field in made.model_fields if field != "name"]
        for field in said:
            if field not in known:
                raise unknown_name(f"field of the {kind} column {self.name!r}:", str(field), known)
        fields = self._categories(said) if kind == "discrete" else self._numbers(said)
        try:
            return made(**{"name": self.name, "sensitive": sensitive, **fields, **said})
        except ValidationError as error:
            raise unusable_schema(error, f"column {self.name!r}") from error

    def _kind_said(self, said: dict[str, Any]) -> str | None:
        if "categories" in said:
            return "discrete"
        return "continuous" if {"low", "high", "tolerance", "integer"} & set(said) else None

    def _kind_seen(self, check: bool) -> Literal["discrete", "continuous"]:
        series, types = self.series, pd.api.types
        if isinstance(series.dtype, pd.CategoricalDtype) or types.is_bool_dtype(series):
            return "discrete"
        if types.is_numeric_dtype(series) and not types.is_complex_dtype(series):
            values = self._as_numbers()
            whole = bool((values == np.round(values)).all())
            if whole and len(self.values) <= self.discrete_at_most:
                return "discrete"
            gapless = whole and len(self.values) == len(values) == values.max() - values.min() + 1
            if check and gapless and len(values) >= _FEW_ROWS:
                raise BadInputError(
                    f"column {self.name!r} numbers the rows from {values.min():.0f} to {values.max():.0f} without "
                    "gaps or repeats, so it looks like an identifier; drop it, "
                    "or override its kind with continuous to keep it."
                )
            return "continuous"
        seen = types.infer_dtype(series, skipna=False)
        if seen not in ("string", "boolean", "mixed", "mixed-integer"):
            raise BadInputError(
                f"column {self.name!r} holds {seen} cells such as {series.iloc[0]!r}; turn them into numbers "
                "(days since a date, for example) or text, or drop the column."
            )
        if check:
            self._refuse_identifier()
        return "discrete"

    def _refuse_identifier(self) -> None:
        distinct, rows = len(self.values), len(self.series)
        named = distinct > _FEW_TEXTS and 2 * distinct > rows
        if not named and distinct <= self.most_categories:
            return
        numeric = pd.to_numeric(pd.Series(self.values, dtype=object), errors="coerce").notna()
        if 2 * int(numeric.sum()) > distinct:
            rest = [value for value, is_number in zip(self.values, numeric, strict=True) if not is_number]
            raise BadInputError(
                f"column {self.name!r} holds numbers stored as text"
                + (f", except for {', '.join(map(repr, rest[:5]))}" if rest else "")
                + "; turn it into numbers with pandas.to_numeric (and fill or drop what is none)."
            )
        raise BadInputError(
            f"column {self.name!r} has {distinct} different texts in {rows} rows, such as {self.values[0]!r}; "
            + ("it looks like an identifier or free text" if named else f"more than {self.most_categories} are refused")
            + "; drop it, group its values into fewer, or override its kind with discrete to keep it."
        )

    def _categories(self, said: dict[str, Any]) -> dict[str, Any]:
        if "categories" in said:
            return {}
        if isinstance(self.series.dtype, pd.CategoricalDtype):
            return {"categories": tuple(_unwrap(value) for value in self.series.cat.categories)}
        values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in self.values]
        return {"categories": tuple(sorted(values, key=_sort_key))}

    def _numbers(self, said: dict[str, Any]) -> dict[str, Any]:
        values = self._as_numbers()
        low, high = float(values.min()), float(values.max())
        # A constant column's mean may be off by a rounding, its spread is still none; scaled, squares cannot overflow.
        scale = np.abs(values).max() if high > low else 0.0
        std = float((values / scale).std(ddof=1) * scale) if scale else 0.0
        whole = bool((values == np.round(values)).all()) and max(-low, high) <= LARGEST_INTEGER
        return {"low": low, "high": high, "tolerance": self.tolerance_factor * std, "integer": whole}

    def _as_numbers(self) -> np.ndarray:
        return as_numbers(self.name, self.series)


def as_numbers(name: str, series: pd.Series) -> np.ndarray:
    """Return a column's cells as finite float64 numbers; numbers written as text are read.

    Raises:
        BadInputError: cells are dates, complex, not numbers or infinite; the message names the first.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(object).infer_objects()
    types = pd.api.types
    seen = types.infer_dtype(series, skipna=True)
    if types.is_datetime64_any_dtype(series) or seen.startswith(("date", "time", "period", "interval", "complex")):
        raise BadInputError(
            f"column {name!r} is continuous but holds {seen} cells such as {series.iloc[0]!r}; "
            "turn them into numbers (days since a date, for example) or drop the column."
        )
    try:
        values = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except OverflowError as error:
        raise BadInputError(
            f"column {name!r} is continuous but holds a whole number too large for float64 (beyond 1.8e308); "
            "measure it in a larger unit or make the column discrete."
        ) from error
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise BadInputError(
            f"column {name!r} is continuous but row {wrong[0]} holds {_unwrap(series.iloc[wrong[0]])!r} "
            f"({len(wrong)} such cell(s) in all); give finite numbers, drop those rows, or make the column discrete."
        )
    return values


def _unwrap(value: Hashable) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _sort_key(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (2, repr(value))


def _read_parquet(path: Path) -> pd.DataFrame:
    frame = pd.read_parquet(path)
    named = [level for level in frame.index.names if level is not None]
    frame = frame.reset_index(level=named) if named else frame
    return frame.reset_index(drop=True)


def _read_csv(path: Path, separator: str, as_text: bool) -> pd.DataFrame:
    if len(separator) != 1:
        raise BadInputError(f"a separator is one character, got {separator!r}; give ';', for example.")
    # pandas renames repeated and nameless columns without a word, so the header is looked at first.
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])
    if not any(header):
        raise BadInputError(f"the table {str(path)!r} is empty; its first line must name the columns.")
    likely = [sign for sign in ";\t|," if len(header) == 1 and sign != separator and sign in header[0]]
    if likely:
        raise BadInputError(
            f"the table {str(path)!r} has one column when split at {separator!r}, its header reads {header[0][:60]!r}; "
            f"pass separator={likely[0]!r}, on the command line --separator {likely[0]!r}."
        )
    if "" in header:
        position = header.index("")
        raise BadInputError(
            f"column {position + 1} of the table {str(path)!r} has no name"
            + (", it may be an index that pandas saved (to_csv(index=False) leaves it out)" if position == 0 else "")
            + "; name it or take it out of the file."
        )
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise BadInputError(
            f"column names must differ, these repeat in {str(path)!r}: {', '.join(repeated)}; rename or drop some."
        )
    # Cells are read as text: pandas' own guesses differ between its versions, to the last digit of a float.
    frame = pd.read_csv(
        path,
        sep=separator,
        encoding="utf-8-sig",
        skipinitialspace=True,
        keep_default_na=False,
        dtype=str,
    )
    if not isinstance(frame.index, pd.RangeIndex):
        raise BadInputError(
            f"the rows of the table {str(path)!r} have more cells than its header has names ({len(header)}); "
            "name every column, or quote cells that contain the separator."
        )
    return frame if as_text else frame.apply(_typed)


def _typed(series: pd.Series) -> pd.Series:
    """Return a column of texts as booleans, whole numbers, numbers or texts: the first that all cells are."""
    position, texts = pd.factorize(series.mask(series.isin(MISSING)))
    texts = [str(text) for text in texts]
    values: list[Any] = texts
    if {text.lower() for text in texts} <= {"true", "false"}:
        values = [text.lower() == "true" for text in texts]
    elif not any("_" in text or _LEADING_ZERO.match(text) for text in texts):
        for read in (_whole, float):
            try:
                values = [read(text) for text in texts]
                break
            except ValueError:
                pass
    # Position -1 (missing) takes the last entry.
    return pd.Series([*values, None], dtype=object).iloc[position].reset_index(drop=True).infer_objects()


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) >= 2**63:
        raise ValueError("no 64-bit integer")
    return value
