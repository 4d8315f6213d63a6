"""Parts of a report on single cells: certainty, the most exposed ones, example records, groups of records."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.report import figures, frames, grids
from seepage.report.document import Grid, GridCell, Plot, Section, empty, heads
from seepage.report.frames import Record, setting_of
from seepage.report.grids import MOST_COLUMNS, cut_columns, where
from seepage.report.result import AuditResult, Cell, Example
from seepage.results.verdict import pick
from seepage.text import capitalised, clean, listed, percent, plain_number, shown_value

# On a table of one's own, a rate never speaks of fewer records than this.
LEAST_RECORDS = 5
_OF_A_RECORD = 60


def reliability_section(result: AuditResult) -> Section | None:
    """Return whether the attacker's own certainty can be trusted; None where no attack keeps single cells."""
    title = "How well the attacker knows which cells it has"
    if not result.evidence:
        return None
    best = result.telling("uncertainty", mixed=True)
    if best is None:
        why = "No attack of this audit says how certain it is of a cell, so there is nothing to compare with the truth."
        return empty("reliability", title, why)
    record, evidence = best
    schema = result.schema_of(evidence)
    binned = frames.calibration(evidence, schema)
    covered = frames.coverage(evidence, schema)
    if not binned:
        return empty("reliability", title, "The attack gave no certainty for any cell.")
    rates = frames.sure(evidence, schema)
    reach = listed([f"{percent(rate, 0)} of the {kind} cells" for kind, rate in rates.items()])
    associated = [
        f"{kind} cells {-row.mean:+.2f}"
        for kind in ("discrete", "continuous")
        for row in pick(frames.rows_of_setting(result.rows, setting_of(record)), metric=f"kendall_{kind}")
        if row.attack == record["attack"] and row.mean is not None
    ]
    words = [
        f"An attacker that knows which of its guesses are right can act on them. Taking cells from the most certain "
        f"down, {frames.SURE:.0%} are right up to {reach} ({where(result, record)})."
    ]
    if associated:
        words.append(
            f"Kendall's tau between its certainty about a {result.audit.spec.unit} and what it reads of it: "
            f"{listed(associated)}. At +1 more certainty always means that more is read, at 0 it means nothing."
        )
    first, second = "Accuracy by the attacker's own certainty", "Accuracy of the cells it is most certain of"
    return Section(
        "reliability",
        title,
        [
            *words,
            Plot(
                figures.reliability("reliability", binned, first),
                grids.grid(
                    first,
                    [
                        grids.text("Cells of kind", "kind"),
                        grids.share("Certainty from", "from", 0),
                        grids.share("to", "to", 0),
                        grids.share("Mean certainty", "certainty"),
                        grids.share("Right", "mean"),
                        grids.interval("95% interval"),
                        grids.count("Cells", "cells"),
                        grids.count(result.units, "n"),
                    ],
                    binned,
                    "Certainty of discrete cells is 1 less their normalised entropy; of continuous cells, whose "
                    "entropy has no scale, the rank among all of them.",
                ),
            ),
            Plot(
                figures.covered("coverage", covered, second),
                grids.grid(
                    second,
                    [
                        grids.text("Cells of kind", "kind"),
                        grids.share("Most certain share", "share"),
                        grids.share("Right", "mean"),
                        grids.count("Cells", "cells"),
                    ],
                    covered,
                ),
            ),
        ],
    )


def exposed_section(result: AuditResult) -> Section | None:
    """Return the right cells that reveal most; None where no attack keeps single cells."""
    title = "The most exposed cells"
    if not result.evidence:
        return None
    best = result.telling("uncertainty")
    if best is None:
        why = "Without the attacker's own certainty no cell can be called more exposed than another it got right."
        return empty("exposed", title, why)
    record, evidence = best
    rates = {row["column"]: row["baseline"] for row in result.by_column[setting_of(record)]}
    cells = frames.exposed(evidence, result.schema_of(evidence), rates)
    if not cells:
        why = "No cell is right that the attacker gave a certainty for and that no baseline always gets."
        return empty("exposed", title, why)
    if not result.open:
        cells = [{**cell, "truth": None, "guess": None} for cell in cells]
    caption = f"Right, and the attacker most certain ({where(result, record)})"
    table = grids.filled(
        caption,
        [
            grids.text("Column", "column", mark="sensitive"),
            grids.count(result.audit.spec.unit.capitalize(), "victim"),
            grids.count("Record", "record"),
            grids.text("Kind", "kind"),
            grids.share("Certainty", "certainty", 0),
            grids.number("Spread (standard deviations of the column)", "spread"),
            grids.share("Best baseline right", "baseline"),
            grids.text("Truth", "truth", _OF_A_RECORD),
            grids.text("Read", "guess", _OF_A_RECORD),
        ],
        cells,
    )
    words = [
        "Cells that the attack read correctly: sensitive columns first, then those that the best baseline gets least "
        "often. Of each column and each record stands one, that of which the attack was most certain."
    ]
    if not result.open:
        words.append("This is a table of your own: positions are shown, records are not.")
    return Section("exposed", title, [*words, table])


def examples_section(result: AuditResult) -> Section | None:
    """Return reconstructed records beside the truth; None where no attack keeps single cells."""
    title = "Example records, as they are and as they are read"
    if not result.evidence:
        return None
    if not result.open:
        why = "Records of a table of your own are not shown in reports. " + (
            "Audit with --keep-records (in a document keep_records: true) if whoever reads the report may see them."
            if result.audit.repeatable
            else "What was read of them is in the files beside this page."
        )
        return empty("examples", title, why)
    # Of the configurations of one batch size the first, which is the undefended one where there is any.
    chosen: dict[int | None, tuple[str, str]] = {}
    for record in result.overviews:
        chosen.setdefault(record["batch_size"], (record["defense"], record["attack"]))
    by_size = {
        size: [
            record for record in result.examples if (record.batch_size, record.defense, record.attack) == (size, *key)
        ]
        for size, key in chosen.items()
    }
    shown = [_example_grid(result, group) for group in by_size.values() if group]
    if not shown:
        return empty("examples", title, "No reconstructed records were kept with this run.")
    words = [
        f"The first records of the first {result.audit.spec.unit}s, whether they were read well or badly. Wrong cells "
        "carry a ✗. In brackets, the attacker's own certainty, or the spread of its attempts."
    ]
    return Section("examples", title, [*words, *shown])


def _example_grid(result: AuditResult, shown: Sequence[Example]) -> Grid:
    titles = ["Column", *(f"{name} {i + 1}" for i in range(len(shown)) for name in ("Truth", "Read"))]
    lines = []
    for position, cell in enumerate(shown[0].cells[:MOST_COLUMNS]):
        name = clean(cell.column, grids.LONGEST)
        line = [GridCell(name, name)]
        for example in shown:
            line += truth_and_guess(example.cells[position], _OF_A_RECORD)
        lines.append(line)
    first = shown[0]
    right = sum(cell.right for example in shown for cell in example.cells)
    cells = sum(len(example.cells) for example in shown)
    place = result.label((first.batch_size, first.defense))
    caption = f"{capitalised(place)}, {clean(first.attack)}: {right} of {cells} cells right"
    return Grid(caption, heads(*titles), lines, cut_columns(len(first.cells)))


def truth_and_guess(cell: Cell, longest: int) -> list[GridCell]:
    """Return a cell as it is and as it was read, with the attacker's own certainty or the spread of its attempts."""
    truth = shown_value(cell.truth, longest)
    guess = grids.MISSING if cell.guess is None else shown_value(cell.guess, longest)
    behind = ""
    if cell.certainty is not None:
        behind = f"({percent(cell.certainty, 0)})"
    elif cell.spread is not None:
        behind = f"(±{plain_number(cell.spread)})"
    return [GridCell(truth, truth), GridCell(guess, guess, None if cell.right else "wrong", behind)]


def groups_section(result: AuditResult) -> Section | None:
    """Return whether some records are read better than others; None where no attack keeps single cells."""
    title = "Groups and rare records"
    if not result.evidence:
        return None
    best = result.telling("right", mixed=True)
    if best is None:
        return empty("groups", title, "The run kept no record of single cells, so groups cannot be distinguished.")
    record, evidence = best
    width = len(evidence.column_names)
    least = 1 if not result.audit.own else LEAST_RECORDS
    grouped = frames.subgroups(evidence, least, width)
    rare = frames.rarity(evidence)
    place = where(result, record)
    shown = []
    words = ["A mean over all records can hide that some of them are read far better than others."]
    if rare:
        caption = f"Cells read by rarity of the record ({place})"
        table = grids.grid(
            caption,
            [
                grids.count("Quarter", "quarter"),
                grids.number("Rarity from", "from"),
                grids.number("to", "to"),
                grids.share("Cells read", "mean"),
                grids.interval("95% interval"),
                grids.count("Records", "records"),
                grids.count(result.units, "n"),
            ],
            rare,
            "Rarity grows as the values of a record's cells get rarer: it is their mean self-information under the "
            "public marginals, in nats.",
        )
        shown.append(Plot(figures.quarters("rarity", rare, caption), table))
    else:
        words.append("There are too few records, or they are all equally rare, to compare rare with common ones.")
    if grouped:
        caption = f"Cells read by group of records ({place})"
        named = [{**group, "shown": _group_name(group)} for group in grouped]
        table = grids.grid(
            caption,
            [
                grids.text("Column", "column"),
                grids.text("Group", "shown"),
                grids.share("Cells read", "mean"),
                grids.count("Records", "records"),
                grids.count("Cells", "cells"),
            ],
            named,
            None if least == 1 else f"Groups of fewer than {least} records are taken together.",
        )
        shown.append(Plot(figures.groups("groups", grouped, record["mean"], caption), table))
    else:
        words.append("No discrete column is marked as sensitive, so there are no groups to compare.")
    return Section("groups", title, [*words, *shown])


def _group_name(group: Record) -> str:
    return f"{group['pooled']} small categories together" if group["pooled"] else clean(group["category"])
