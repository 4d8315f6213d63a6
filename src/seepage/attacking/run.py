"""Attacks on captured messages: each part of a capture's audit is run once, and what cannot be run gets a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from seepage.assessment import ResultRow
from seepage.assessment.evidence import together
from seepage.assessment.measurement import joined_figures
from seepage.config.choices import describe
from seepage.errors import BadInputError, CertifiedWrongError, one_line
from seepage.results.rows import contradicted, rows_of
from seepage.run.runner import Run
from seepage.run.store import Failure
from seepage.settings.captured import CapturedAudit, CapturedSpec
from seepage.settings.findings import Findings
from seepage.settings.part import Part, as_part
from seepage.settings.setting import PlannedPart, Progress
from seepage.text import percent


@dataclass(frozen=True)
class Attacked:
    """The results of the attacks on a capture, and the reason for each attack that could not be tried.

    ``negative`` are those on exchanged messages; where there are none the audit says why.
    """

    audit: CapturedAudit
    runs: tuple[Run, ...]
    not_tried: Mapping[str, str] = field(default_factory=dict)
    negative: Attacked | None = None

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        """Rows of results of all attacks and baselines that have figures."""
        return tuple(rows_of(self.audit, [run for run in self.runs if run.measured]))

    def row(self, metric: str = "accuracy", column: str | None = None, attack: str | None = None) -> ResultRow | None:
        """Return a figure of the attack with a label, or of any; None where there is none."""
        rows = (row for row in self.rows if row.is_attack and (row.metric, row.column) == (metric, column))
        return next((row for row in rows if attack in (None, row.attack) and row.mean is not None), None)

    @property
    def findings(self) -> Findings:
        """What the attacks found, as the messages' exposure tells it."""
        return self.audit.exposure.findings(self.rows, self.not_tried)


def labelled(given: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a spec; of its attacks repeats are left out, and those of one name are told by options."""
    if not isinstance(given.get("attacks"), list | tuple):
        return dict(given)
    named = [Part.model_validate(as_part(item)) for item in cast("Sequence[object]", given["attacks"])]
    parts = list({part.model_dump_json(): part for part in named}.values())
    titles = [part.title for part in parts]
    attacks = tuple(
        part.model_copy(update={"label": describe(part.name, part.options)})
        if part.label is None and titles.count(part.title) > 1
        else part
        for part in parts
    )
    return {**given, "attacks": attacks}


def run_parts(audit: CapturedAudit, progress: Callable[[str], Progress | None] | None = None) -> Attacked:
    """Run the attacks and baselines of a capture's audit.

    A baseline that cannot be made is left out: a space too large to go through has no prior. An attack that cannot be
    tried, or fails, ends all or gets a reason, as the exposure says.
    """
    exposure, runs, not_tried = audit.exposure, list[Run](), dict[str, str]()
    for part in audit.parts:
        is_attack = part.kind == "attack"
        reason = exposure.lacks(part) if is_attack else None
        if reason is None:
            begun = progress(part.label) if progress is not None and is_attack else None
            try:
                runs.append(_run(audit, part, begun))
                continue
            except BadInputError as error:
                if not is_attack:
                    continue
                if exposure.all_or_none:
                    raise
                reason = str(error).rstrip(".")
            except Exception as error:  # An attack of another package may fail in any way.
                if exposure.all_or_none or not is_attack or isinstance(error, CertifiedWrongError):
                    raise
                reason = f"it failed with {one_line(error)}"
        not_tried[part.label] = reason
    return Attacked(audit, tuple(runs), not_tried)


def _run(audit: CapturedAudit, part: PlannedPart, progress: Progress | None) -> Run:
    """Run one attack or baseline on the captured messages."""
    [configuration] = audit.configurations
    outcome = audit.exposure.measure(part, progress)
    run = Run(
        configuration,
        part,
        list(outcome.measured),
        (0,),
        outcome.seconds if part.kind == "attack" else None,
        audit.options(configuration, part),
        audit.granted(configuration, part),
        evidence=outcome.evidence[0] if outcome.evidence else None,
        planned=1,
    )
    # Proofs are right about the messages, which are those of others in a negative control.
    for share in contradicted([run] if audit.exposure.exchanged is None else []).values():
        raise CertifiedWrongError(
            f"{percent(share)} of the certified cells are wrong by the truth. Either a declaration (order of columns "
            "or levels, reference, encoder, recipe) differs from what the site did, or the truth is that of other "
            "records: check both first. Else it is a mistake in seepage, please report it. Nothing of this capture "
            "counts as certified."
        )
    return run


def several(name: str, spec: CapturedSpec, captures: Sequence[Attacked], failures: Mapping[int, str]) -> Attacked:
    """Join the results of one attack on several captures into one audit; failures are by the place of their unit."""
    places = [unit for unit in range(len(captures) + len(failures)) if unit not in failures]
    lost = tuple(Failure(range(unit, unit + 1), why, "") for unit, why in failures.items())
    first = captures[0].audit
    about = replace(first.about, dataset=name, threat_model=first.about.threat_model[:1], notes=(), rows=0, settings={})
    audit = copy(first)
    audit.spec, audit.about, audit.captured, audit.knowledge = spec, about, len(places) + len(lost), {}
    audit.parts = tuple({part.label: part for attacked in captures for part in attacked.audit.parts}.values())
    audit.configurations = tuple(dict.fromkeys(run.configuration for attacked in captures for run in attacked.runs))
    runs = []
    for configuration in audit.configurations:
        for part in audit.parts:
            joined = {
                unit: run
                for unit, attacked in zip(places, captures, strict=True)
                for run in attacked.runs
                if (run.configuration, run.label) == (configuration, part.label) and run.measured
            }
            if joined:
                runs.append(_joined(joined, lost))
    return Attacked(audit, tuple(runs))


def _joined(runs: Mapping[int, Run], failures: tuple[Failure, ...]) -> Run:
    """Join the runs of one attack or baseline on several units; a figure that a unit lacks is NaN there."""
    first = next(iter(runs.values()))
    evidence = [run.evidence for run in runs.values() if run.evidence is not None]
    alike = len(evidence) == len(runs) and len({item.column_names for item in evidence}) == 1
    seconds = [run.seconds for run in runs.values() if run.seconds is not None]
    return replace(
        first,
        measured=[replace(figure, clusters=None) for figure in joined_figures([run.measured for run in runs.values()])],
        units=tuple(runs),
        seconds=sum(seconds) / len(seconds) if seconds else None,
        evidence=together(evidence) if alike else None,
        failures=failures if first.is_attack else (),
        planned=len(runs) + len(failures),
    )
