"""What the columns of a table were taken for, as a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from seepage.report.document import Aside, Block, Document, Grid, GridCell, Section, heads
from seepage.results.checks.finding import few_of
from seepage.tabular.policy import GUESSED
from seepage.text import as_sentence, clean, how_many, listed

if TYPE_CHECKING:
    from seepage.errors import Remedy
    from seepage.tabular.infer import Inferred, InferredColumn

_COLUMNS = 40
# Rank of columns that nobody needs to look at.
_OTHERS = 4
# Sensitive columns that are named where no column is in doubt.
_NAMED = 6
# Largest number of characters of a note.
_WIDE = 400


def inferred_document(
    inferred: Inferred,
    all_columns: bool = False,
    advice: str = "Write it down with seepage schema, correct it and give it with --schema.",
    wording: Callable[[Remedy], str] = str,
) -> Document:
    """Return a line a column: what it was taken for and why; of others than those to look at, if not all, the number.

    To look at are the target, sensitive columns, those left out, and those whose kind was guessed or decided near a
    threshold; where no column is of the last two kinds, a paragraph says it all. ``wording`` words the choice that
    would change a guess.
    """

    def document(blocks: Sequence[Block]) -> Document:
        return Document("Columns", [Section("columns", "", blocks)])

    target = inferred.schema.target.name
    sensitive = {column.name for column in inferred.schema.columns if column.sensitive}

    def rank(column: InferredColumn) -> int:
        doubtful = bool(column.near) or column.is_guess
        marks = (column.name == target, column.name in sensitive, column.taken == "left out", doubtful, True)
        return marks.index(True)

    ranked = sorted(inferred.columns, key=rank)
    first = sum(rank(column) < _OTHERS for column in ranked)
    title = (
        f"Columns as inferred from {inferred.rows:,} rows: {_counts(ranked)}; "
        f"{how_many(inferred.schema.width, 'encoded column')}"
    )
    clear = not any(column.taken == "left out" or column.near or column.is_guess for column in ranked)
    if clear and not all_columns:
        named = [f"target {clean(target, 32)}"]
        if sensitive:
            names = [clean(name, 32) for name in sorted(sensitive)]
            named.append(f"sensitive: {listed(few_of(names, _NAMED))}")
        notes = [as_sentence(clean(note, _WIDE)) for note in inferred.notes]
        return document([" ".join([f"{title}; {'; '.join(named)}.", *notes, advice])])
    # All that was guessed is shown, however much it is.
    shown = ranked[: max(first, _COLUMNS) if all_columns else first]
    rows = []
    for column in shown:
        marks = " (target)" if column.name == target else " (sensitive)" if column.name in sensitive else ""
        kind = "tier gain" if column.taken == "left out" or column.near or column.is_guess else None
        texts = (clean(column.name, 32) + marks, column.taken, clean(column.line(wording), _WIDE))
        rows.append([GridCell(text, text, kind if text == column.taken else None) for text in texts])
    blocks: list[Block] = [Grid(title, heads("column", "taken as", "because"), rows, most=None)]
    if rest := ranked[len(shown) :]:
        blocks.append(f"... and {how_many(len(rest), 'more column')}: {_counts(rest)}.")
    all_named = all(column.taken != "left out" for column in rest)
    # Which columns are left out, and what was guessed, the table says.
    shown_already = (GUESSED, "columns left out") if all_named else (GUESSED,)
    blocks += [clean(note, _WIDE) for note in inferred.notes if not note.startswith(shown_already)]
    return document([*blocks, Aside(advice)])


def guesses(inferred: Inferred, wording: Callable[[Remedy], str] = str) -> list[str]:
    """Return a line for each column of which something was guessed, or whose kind was decided near a threshold."""
    columns = [column for column in inferred.columns if column.is_guess or column.near]
    return [clean(f"column {column.name!r}: {column.taken}, {column.line(wording)}", _WIDE) for column in columns]


def _counts(columns: Sequence[InferredColumn]) -> str:
    counts = {kind: sum(column.taken == kind for column in columns) for kind in ("discrete", "continuous", "left out")}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
