"""A first line that holds data where names of columns are expected: recognised before any message can show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from seepage.errors import BadInputError
from seepage.tabular.texts import is_mark, read_written

# Columns and lines that are looked at. What a cell stands for is kept: columns repeat their cells.
COLUMNS, LINES = 60, 400
# Cells that show the form of a column.
_FEWEST = 5
# Numbers of a column that show how far apart they lie.
_MANY = 20
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


def names_numbers(names: Sequence[str], lines: Sequence[Sequence[str]]) -> bool:
    """Return whether a text of the first line stands over numbers, which speaks for names.

    Over texts alone the first line may be the first person's cells as well, so that no message lists it.
    """
    for i, name in enumerate(names[:COLUMNS]):
        cells = [line[i].strip() for line in lines[:LINES] if i < len(line) and line[i].strip()]
        if name.strip() and _number(name.strip()) is None and _over_numbers([c for c in cells if not is_mark(c)]):
            return True
    return False


def _over_numbers(cells: Sequence[str]) -> bool:
    """Return whether nearly all cells are numbers or dates."""
    return bool(cells) and 10 * sum(_number(cell) is not None for cell in cells) >= 9 * len(cells)


def _looks_like_data(names: Sequence[str], lines: Sequence[Sequence[str]]) -> int:
    """Return how many cells of the first line speak for data; 0 where it holds names."""
    if not lines or not any(names):
        return 0
    names_over_numbers, data = 0, 0
    # Numbers and dates in the first line by their form, with the numbers under each.
    numbers: dict[str, list[tuple[float, list[float]]]] = {"whole": [], "date": [], "fraction": []}
    for i, name in enumerate(names):
        cells = [line[i] for line in lines if i < len(line) and line[i] and not is_mark(line[i])]
        if not name or is_mark(name):
            continue
        value = _number(name)
        below = [number for cell in cells if (number := _number(cell)) is not None]
        if value is None:
            names_over_numbers += _over_numbers(cells)
            data += name in cells or _shaped_alike(name, cells)
        else:
            form = "whole" if _WHOLE.fullmatch(name) else "date" if _is_date(name) else "fraction"
            numbers[form].append((value, below))
    far = _far(numbers["whole"] + numbers["fraction"])
    for form, listed in numbers.items():
        values = [value for value, _ in listed]
        # The columns of a matrix, or of a series of years or days, or what lies far from all numbers below it.
        series = (
            form != "fraction" and _counts_up(values) and not any(_are_years(value, below) for value, below in listed)
        )
        if not series and not (_far(listed) if form == "date" else far):
            data += len(listed)
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
    """Return whether values are years in order, or numbers or days at even distances."""
    steps = {second - first for first, second in pairwise(values)}
    years = all(_YEARS[0] <= value <= _YEARS[1] for value in values)
    if years and len(values) > 1 and all(step < 0 for step in steps):
        return True
    if any(step <= 0 for step in steps):
        return False
    return years or (len(values) > 2 and len(steps) == 1) or (len(steps) < 2 and steps <= {1} and values[0] in (0, 1))


def _are_years(value: float, below: Sequence[float]) -> bool:
    """Return whether a year stands over years, as the first of them would."""
    years = sum(_YEARS[0] <= number <= _YEARS[1] for number in below)
    return len(below) >= _FEWEST and _YEARS[0] <= value <= _YEARS[1] and 10 * years >= 9 * len(below)


def _far(listed: Sequence[tuple[float, Sequence[float]]]) -> bool:
    """Return whether each of several numbers lies farther from those of its column than they lie apart."""
    return len(listed) > 1 and all(
        len(below) >= _MANY and max(min(below) - value, value - max(below)) > max(below) - min(below)
        for value, below in listed
    )


@lru_cache(maxsize=4096)
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
