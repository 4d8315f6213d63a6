"""What the same clients give away as they take part in more rounds: one line over the audits of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seepage.report import figures, frames, grids
from seepage.report.document import Grid, Plot, Section
from seepage.report.frames import Record
from seepage.report.grids import attack_column, score_columns
from seepage.report.result import AuditResult
from seepage.results.verdict import UNDEFENDED, pick
from seepage.settings.spec import Spec
from seepage.text import clean

NAME = "rounds"


def accumulated(reports: Sequence[AuditResult]) -> Section | None:
    """Return leakage against the number of attacked rounds beside baselines; None where no audits differ in it.

    Audits belong together that are of the same rows and settings in all else.
    """
    groups: dict[str, list[AuditResult]] = {}
    for report in reports:
        groups.setdefault(_fields_but_rounds(report.audit.spec), []).append(report)
    swept = [group for group in groups.values() if len({_rounds(record) for record in group}) > 1]
    if not swept:
        return None
    shown = []
    for group in swept:
        records = [record for report in group for record in _scores_with_rounds(report)]
        attacked = [record for record in records if record["is_attack"]]
        for size, defense in dict.fromkeys(map(frames.setting_of, attacked)):
            # A baseline is the same under every defense, and stands with the first.
            curve = [
                record
                for record in records
                if record["batch_size"] == size and (record["defense"] == defense or not record["is_attack"])
            ]
            curve = list({(record["rounds"], record["attack"]): record for record in reversed(curve)}.values())[::-1]
            curve.sort(key=lambda record: record["rounds"])
            about = group[0].audit.about
            title = f"{clean(about.dataset)}, model {clean(about.model)}"
            title += "" if size is None else f", {about.size} {size}"
            title += "" if defense == UNDEFENDED else f", {clean(defense, 40)}"
            shown.append(Plot(figures.by_rounds(f"{NAME}-{len(shown)}", curve, title), _grid(group[0], curve, title)))
    words = (
        "The same clients are attacked in more and more rounds. A cell counts as read when it is right in what the "
        "attacker says of all records of a client, put together from all rounds. Baselines answer for the same cells."
    )
    return Section(NAME, "Leakage over rounds", [words, *shown])


def _rounds(report: AuditResult) -> int:
    """Return in how many rounds the same units are attacked."""
    return report.audit.about.rounds


def _fields_but_rounds(spec: Spec) -> str:
    """Return the fields of a spec without its rounds and its name."""
    plain = spec.model_dump(mode="json", exclude={"variant", "victims"})
    return repr(_without_rounds(dict(sorted(plain.items()))))


def _without_rounds(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_rounds(item) for name, item in value.items() if name not in ("attacked_rounds", "exposures")}


def _scores_with_rounds(report: AuditResult) -> list[Record]:
    """Return the scores of an audit, each with the number of rounds and the share of whole records."""
    records = []
    for record in frames.scores(report.rows, report.all_findings):
        key = {name: record[name] for name in ("batch_size", "defense", "attack")}
        whole = frames.row_of(pick(report.rows, **key), "exact_match")
        exact = None if whole is None else whole.mean
        records.append({**record, "rounds": _rounds(report), "exact": exact})
    return records


def _grid(report: AuditResult, records: Sequence[Record], title: str) -> Grid:
    columns = [
        grids.count("Rounds", "rounds"),
        attack_column(report),
        *score_columns(report, baseline=False),
        grids.share("Whole records", "exact"),
    ]
    return grids.filled(title, columns, sorted(records, key=lambda record: (record["rounds"], not record["is_attack"])))
