"""What was found in captured messages, in words and tables that a report makes a document of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

Written = Literal["text", "long", "count", "share", "gain", "number", "interval", "share_interval", "outcome"]


@dataclass(frozen=True)
class FindingsTable:
    """A table of findings as plain values: title, key and form of each column, and a record a line.

    ``sparse`` tables are shown without columns that no record has a value of.
    """

    caption: str
    columns: tuple[tuple[str, str, Written], ...]
    records: tuple[Mapping[str, Any], ...]
    sparse: bool = False


@dataclass(frozen=True)
class FindingsSection:
    """A part of what was found, in words and tables for a report that holds no record."""

    title: str
    words: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    tables: tuple[FindingsTable, ...] = ()
    name: str = "read"


@dataclass(frozen=True)
class Findings:
    """What was found in captured messages of any kind.

    Attributes:
        sections: parts of a report.
        figures: the same as JSON values, without any guessed cell.
        files: guessed records and what goes with them, by the name of their file.
        records: first records, for those who may see them; None where they are not shown.
    """

    sections: tuple[FindingsSection, ...]
    figures: Mapping[str, object]
    files: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    records: FindingsTable | None = None
