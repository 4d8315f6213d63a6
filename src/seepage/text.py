"""Figures and texts of tables in readable form."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping


def clean(value: object, longest: int = 48) -> str:
    """Return a text of a table as one short printable line.

    What a table contains may come from anyone: control characters, which a terminal would obey, are
    written as escapes, and long texts are cut.
    """
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def shown_value(value: object, longest: int) -> str:
    """Return a cell of a table in at most so many characters, numbers with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else clean(value, longest)


def steers(text: str) -> bool:
    """Return whether a text has characters that a terminal obeys, such as escapes and marks of writing direction."""
    # Control characters, formats, lone surrogates, and separators of lines and paragraphs.
    return any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text)


def printable_json(content: object, allow_nan: bool = True) -> str:
    """Return JSON of several lines in which no character steers a terminal; letters of all scripts stay as they are."""
    text = json.dumps(content, indent=1, allow_nan=allow_nan, ensure_ascii=False)
    return _NOT_PLAIN.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


_ALMOST = 1e-9
_HALF = 0.5
# Possibly not printable: all but line breaks and the printable characters of ASCII.
_NOT_PLAIN = re.compile(r"[^\n -~]")


def percent(rate: float | None, digits: int = 1) -> str:
    """Return a rate in percent, a dash for a missing one; only all is 100%, and only nothing is 0%."""
    if rate is None:
        return "–"
    least = 10.0**-digits
    # Means of floating-point numbers miss 0 and 1 by a last digit.
    if _ALMOST < rate < 1 - _ALMOST:
        return f"{min(max(100 * rate, least), 100 - least):.{digits}f}%"
    return f"{round(100 * rate, digits) + 0.0:.{digits}f}%"


def points(difference: float | None) -> str:
    """Return a difference of rates in percentage points, with its sign, a dash for a missing one."""
    return "–" if difference is None else f"{100 * difference:+.1f}"


def span(low: float | None, high: float | None) -> str:
    """Return the interval of a rate in percent, nothing for a missing one."""
    if low is None or high is None:
        return ""
    # Ends are rounded as far as they stay outside: one above 0 or below 1 is not said to be there from within.
    first = percent(low).removesuffix("%") if low > _HALF else f"{100 * low:.1f}"
    return f"[{first}, {percent(high).removesuffix('%') if high < _HALF else f'{100 * high:.1f}'}]"


def plain_number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits and without an exponent.

    Example:
        >>> plain_number(2404.2), plain_number(0.6), plain_number(1.5e-05)
        ('2,400', '0.6', '0.000015')
    """
    rounded = float(f"{value:.{digits}g}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else 0
    text = f"{rounded:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Days of a month and of a year, on average.
_MONTH, _YEAR = 30.44, 365.25


def days_in_words(days: float) -> str:
    """Return a number of days in the unit in which people say it, with two digits.

    Example:
        >>> [days_in_words(days) for days in (0.25, 12, 400, 2404)]
        ['6 hours', '12 days', '13 months', '6.6 years']
    """
    if days < 1:
        return f"{plain_number(24 * days, 2)} hours"
    if days < 3 * _MONTH:
        return f"{plain_number(days, 2)} days"
    if days < 2 * _YEAR:
        return f"{plain_number(days / _MONTH, 2)} months"
    return f"{plain_number(days / _YEAR, 2)} years"


def how_many(number: int, name: str) -> str:
    """Return a number with the name of what is counted, which takes an s for several.

    Example:
        >>> how_many(1, "row"), how_many(2000, "row")
        ('1 row', '2,000 rows')
    """
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def listed(names: list[str]) -> str:
    """Return names as in running text."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"


def capitalised(text: str) -> str:
    """Return a text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def as_sentence(text: str) -> str:
    """Return a note as a sentence, with a capital first letter and one full stop."""
    return f"{capitalised(text).removesuffix('.')}."


def lowered(text: str) -> str:
    """Return a text with a small first letter, for the middle of a sentence; acronyms stay as they are."""
    return text if text[:2].isupper() and text[1:2].isalpha() else text[:1].lower() + text[1:]


def flattened(value: object, path: str = "") -> list[tuple[str, str]]:
    """Return nested values as lines of a table; lists of plain values stay on one line, missing ones are a dash."""
    if isinstance(value, Mapping) and value:
        lines = (flattened(item, f"{path}.{name}" if path else str(name)) for name, item in value.items())
        return [line for group in lines for line in group]
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return [line for i, item in enumerate(value, start=1) for line in flattened(item, f"{path} {i}".strip())]
    shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return [(path, "–" if shown is None or shown in ("", {}) else str(shown))]


def to_go(least: float, most: float) -> str:
    """Return in words how long something still takes."""
    low, high = lasting(least), lasting(most)
    return f"about {high} to go" if low == high else f"{low} to {high} to go"


def lasting(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 200:
        return f"{hours} h {minutes} min" if hours < 24 else f"{hours} h"
    days = hours // 24
    return f"{days} days" if days < 1000 else f"{round(days / 365.25):,} years"
