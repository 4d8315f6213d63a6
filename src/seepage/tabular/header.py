"""A first line that holds data where names of columns are expected: recognised before any message can show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from seepage.errors import BadInputError
from seepage.tabular.texts import is_mark, read_written

# Columns and lines that are looked at.
COLUMNS, LINES = 60, 400
# Cells that show the form of a column.
_FEWEST = 5
_WHOLE, _DIGITS = re.compile(r"[0-9]{1,9}"), re.compile("[0-9]+")
_YEARS = (1800, 2150)


def refuse_data(table: str, names: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Raise ``BadInputError`` where the first line looks like data; the message shows none of it.

    A name over a column of numbers speaks for names. A date, a number with a fraction, or a text that later lines of
    the column repeat, or that differs from them by its digits alone, speaks for data. Whole numbers are names where
    they count up evenly, or are years.

    Args:
        table: the table, for the message.
        names: cells of the first line.
        lines: cells of the lines that follow; some hundred are enough.
    """
    names = [name.strip() for name in names]
    odd = _looks_like_data(names[:COLUMNS], [[cell.strip() for cell in line[:COLUMNS]] for line in lines[:LINES]])
    if odd:
        what = "is a date, a number" if odd == 1 else "are dates, numbers"
        raise BadInputError(
            f"the names of the columns of {table} look like a row of data ({odd} of {len(names)} {what} or what later "
            "rows repeat), so it seems to have no header. Put a line with the names of the columns before it; "
            "names that are numbers or dates need a letter."
        )


def _looks_like_data(names: Sequence[str], lines: Sequence[Sequence[str]]) -> int:
    """Return how many cells of the first line speak for data; 0 where it holds names."""
    if not lines or not any(names):
        return 0
    names_over_numbers, data, whole = 0, 0, []
    dates: list[float] = []
    for i, name in enumerate(names):
        cells = [line[i] for line in lines if i < len(line) and line[i] and not is_mark(line[i])]
        if not name or is_mark(name):
            continue
        value = _number(name)
        if value is None:
            numbers = sum(_number(cell) is not None for cell in cells)
            names_over_numbers += bool(cells) and 10 * numbers >= 9 * len(cells)
            data += name in cells or _shaped_alike(name, cells)
        elif _WHOLE.fullmatch(name):
            whole.append(int(name))
        elif _is_date(name):
            dates.append(value)
        else:
            data += 1
    for counts in (whole, dates):
        # The columns of a matrix, or of a series of years or days.
        if counts and not _counts_up(counts):
            data += len(counts)
    if data > names_over_numbers:
        alone = names_over_numbers == 0 and data == 1 and len(names) > 3
        # One name may be a value of its column by chance, as "other" is; a number or date may not.
        by_chance = alone and all(_number(name) is None for name in names)
        return 0 if by_chance else data
    return 0


def _shaped_alike(name: str, cells: Sequence[str]) -> bool:
    """Return whether a text is that of nearly all cells under it but for its digits, as "P 12" over "P 7" is."""
    if len(cells) < _FEWEST or not any(sign.isdigit() for sign in name):
        return False
    form = _DIGITS.sub("0", name)
    return 10 * sum(_DIGITS.sub("0", cell) == form for cell in cells) >= 9 * len(cells)


def _counts_up(values: Sequence[float | int]) -> bool:
    steps = {second - first for first, second in pairwise(values)}
    years = all(_YEARS[0] <= value <= _YEARS[1] for value in values)
    if any(step <= 0 for step in steps):
        return False
    return years or (len(values) > 2 and len(steps) == 1) or (len(steps) < 2 and steps <= {1} and values[0] in (0, 1))


def _number(text: str) -> float | None:
    """Return the number or date that a text stands for, None for another text."""
    if not any(sign.isdigit() for sign in text):
        return None
    read = read_written([text])
    if read.undecided:
        return 0.0
    value = float(read.values[0])
    return None if value != value or (read.unit is not None and not _is_date(text) and ":" not in text) else value


def _is_date(text: str) -> bool:
    return read_written([text]).is_date
