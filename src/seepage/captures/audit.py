"""A capture as an audit: its exposure was read from disk, and no further messages can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from seepage.assessment import Measurement, ResultRow
from seepage.assessment.evidence import together
from seepage.captures.spec import AttackSpec
from seepage.digests import Json
from seepage.errors import BadInputError, CertifiedWrongError, one_line
from seepage.results.proofs import contradicted
from seepage.results.rows import rows_of
from seepage.run.runner import Run
from seepage.run.store import Failure
from seepage.settings.setting import About, Audit, Configuration, Exposure, PlannedPart, Progress
from seepage.settings.threat_model import Deployment
from seepage.tabular.schema import Schema


class CapturedAudit(Audit[AttackSpec]):
    """An audit of captured messages; each captured message is one unit.

    Args:
        usual: registered names of the attacks that are tried where nobody names any.
    """

    own = True
    repeatable = False

    def __init__(
        self,
        spec: AttackSpec,
        about: About,
        deployed: Deployment,
        exposure: Exposure | None,
        configuration: Configuration,
        parts: Sequence[PlannedPart],
        table: Schema,
        settings: Mapping[str, Json] | None = None,
        knowledge: Mapping[str, Json] | None = None,
        usual: Sequence[str] = (),
    ) -> None:
        self.setting, self.spec, self.about, self.parts = spec.setting, spec, about, tuple(parts)
        self.configurations = (configuration,)
        self._deployed, self._exposure, self._table = deployed, exposure, table
        self._settings, self._knowledge, self._usual = dict(settings or {}), dict(knowledge or {}), tuple(usual)
        self.captured = 1

    def like(self, spec: AttackSpec, about: About, parts: Sequence[PlannedPart], units: int) -> CapturedAudit:
        """Return an audit of several captures on the same table, each of which was attacked by itself."""
        first = self.configurations[0]
        audit = CapturedAudit(spec, about, self._deployed, None, first, parts, self._table, usual=self._usual)
        audit.captured = units
        return audit

    @property
    def schema(self) -> Schema:
        """Schema of the table that the messages are of."""
        return self._table

    @property
    def units(self) -> int:
        """Number of captured messages, or trainings."""
        return self.captured

    @property
    def usual_attacks(self) -> tuple[str, ...]:
        """Registered names of the attacks that are tried where nobody names any."""
        return self._usual

    def deployment(self) -> Deployment:
        """Return what the deployment showed and granted."""
        return self._deployed

    def identity(self, configuration: Configuration, part: PlannedPart) -> dict[str, Json]:
        """Return the options of a part, without the messages, which are identified by their files."""
        return {**self._settings, part.kind: part.label}

    def options(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the options of a part, for results."""
        return {**self._settings, "options": part.part.options}

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return what the attacker was granted or assumed, for results."""
        return self._knowledge

    def expose(self, configuration: Configuration, units: range) -> Exposure:
        """Return the captured messages."""
        assert self._exposure is not None
        return self._exposure

    def run(self, part: PlannedPart, progress: Progress | None = None) -> Run:
        """Run one attack or baseline on the captured messages.

        Args:
            progress: called now and then with the share of the work done since the last call.
        """
        [configuration] = self.configurations
        outcome = self.expose(configuration, range(1)).measure(part, progress)
        run = Run(
            configuration,
            part,
            list(outcome.measured),
            (0,),
            outcome.seconds if part.kind == "attack" else None,
            self.options(configuration, part),
            self.granted(configuration, part),
            evidence=outcome.evidence[0] if outcome.evidence else None,
            planned=1,
        )
        for share in contradicted([run]).values():
            raise CertifiedWrongError(
                f"{share:.1%} of the certified cells are wrong by the truth: a mistake in seepage, please report it, "
                "or the truth is that of other records. Nothing of this capture counts as certified."
            )
        return run


@dataclass(frozen=True)
class Attacked:
    """The results of the attacks on a capture.

    Attributes:
        runs: what each part got out of it.
        not_tried: reason, for each attack that could not be tried.
    """

    audit: CapturedAudit
    runs: tuple[Run, ...]
    not_tried: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        """Rows of results of all attacks and baselines that have figures."""
        return tuple(rows_of(self.audit, [run for run in self.runs if run.measured]))

    def row(self, metric: str = "accuracy", column: str | None = None, attack: str | None = None) -> ResultRow | None:
        """Return a figure of an attack; None where there is none.

        Args:
            attack: label of the attack; any if None.
        """
        rows = (row for row in self.rows if row.is_attack and (row.metric, row.column) == (metric, column))
        return next((row for row in rows if attack in (None, row.attack) and row.mean is not None), None)


def run_parts(
    audit: CapturedAudit,
    lacks: Callable[[PlannedPart], str | None] | None = None,
    progress: Callable[[str], Progress | None] | None = None,
) -> Attacked:
    """Run the attacks and baselines of an audit on a capture; an attack that cannot be tried gets a reason.

    A baseline that cannot be made is left out: a space too large to go through has no prior.

    Args:
        lacks: returns why an attack cannot be tried, None where it can; without it an attack that fails ends all.
        progress: called with the label of each attack before it begins; returns what takes note of its progress.
    """
    runs, not_tried = list[Run](), dict[str, str]()
    for part in audit.parts:
        reason = lacks(part) if lacks is not None and part.kind == "attack" else None
        if reason is None:
            begun = progress(part.label) if progress is not None and part.kind == "attack" else None
            try:
                runs.append(audit.run(part, begun))
                continue
            except BadInputError as error:
                if part.kind == "baseline":
                    continue
                if lacks is None:
                    raise
                reason = str(error).rstrip(".")
            except Exception as error:  # An attack of another package may fail in any way.
                if lacks is None or part.kind == "baseline" or isinstance(error, CertifiedWrongError):
                    raise
                reason = f"it failed with {one_line(error)}"
        not_tried[part.label] = reason
    return Attacked(audit, tuple(runs), not_tried)


def several(name: str, spec: AttackSpec, each: Sequence[Attacked], failures: Mapping[int, str]) -> Attacked:
    """Join the results of several captures into one audit with a unit for each capture.

    Args:
        name: what they are called.
        spec: what to do.
        each: captures that were attacked by the same attack.
        failures: reason, by the place of each unit that could not be attacked.
    """
    places = [unit for unit in range(len(each) + len(failures)) if unit not in failures]
    lost = tuple(Failure(range(unit, unit + 1), why, "") for unit, why in failures.items())
    first = each[0].audit
    about = replace(first.about, dataset=name, threat_model=first.about.threat_model[:1], notes=(), rows=0)
    parts = {part.label: part for attacked in each for part in attacked.audit.parts}
    audit = first.like(spec, about, tuple(parts.values()), len(places) + len(failures))
    audit.configurations = tuple(dict.fromkeys(run.configuration for attacked in each for run in attacked.runs))
    runs = []
    for configuration in audit.configurations:
        for part in audit.parts:
            own = [
                (unit, run)
                for unit, attacked in zip(places, each, strict=True)
                for run in attacked.runs
                if (run.configuration, run.label) == (configuration, part.label) and run.measured
            ]
            if own:
                runs.append(_joined([run for _, run in own], tuple(unit for unit, _ in own), lost))
    return Attacked(audit, tuple(runs))


def _joined(runs: Sequence[Run], units: tuple[int, ...], failures: tuple[Failure, ...]) -> Run:
    """Join the runs of one attack or baseline on several units."""
    first, evidence = runs[0], [run.evidence for run in runs if run.evidence is not None]
    alike = len(evidence) == len(runs) and len({item.column_names for item in evidence}) == 1
    seconds = [run.seconds for run in runs if run.seconds is not None]
    return replace(
        first,
        measured=_side_by_side([run.measured for run in runs]),
        units=units,
        seconds=sum(seconds) / len(seconds) if seconds else None,
        evidence=together(evidence) if alike else None,
        failures=failures if first.is_attack else (),
        planned=len(units) + len(failures),
    )


def _side_by_side(measured: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    """Return the figures of several units as one measurement each, NaN where a unit has none."""
    values: dict[tuple[str, str | None], dict[int, Measurement]] = {}
    for unit, figures in enumerate(measured):
        for figure in figures:
            values.setdefault((figure.metric, figure.column), {})[unit] = figure
    joined: list[Measurement] = []
    for own in values.values():
        numbers = [own[unit].values if unit in own else torch.full((1,), torch.nan) for unit in range(len(measured))]
        joined.append(replace(next(iter(own.values())), values=torch.cat(numbers), clusters=None))
    return joined
