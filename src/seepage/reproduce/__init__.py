"""Published tables as data, run by the same runner as any audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.reproduce.page import table_document
    from seepage.reproduce.reproduce import Selection, TableComparison, reproduce
    from seepage.reproduce.table import PublishedTable, load_table, tables

lazy_package(__name__)

__all__ = ["PublishedTable", "Selection", "TableComparison", "load_table", "reproduce", "table_document", "tables"]
