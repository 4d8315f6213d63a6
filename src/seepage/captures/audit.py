"""A capture as an audit: its exposure was read from disk, and no further messages can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from seepage import registry
from seepage.assessment import ResultRow, create
from seepage.assessment.evidence import together
from seepage.assessment.measurement import Measurement, joined_figures
from seepage.captures.spec import AttackSpec
from seepage.digests import Json
from seepage.errors import BadInputError, CertifiedWrongError, one_line
from seepage.results.rows import contradicted, rows_of
from seepage.run.runner import Run
from seepage.run.store import Failure
from seepage.seeds import stream
from seepage.settings.guessing import measure
from seepage.settings.outcomes import attacked_records
from seepage.settings.part import NONE, Part
from seepage.settings.setting import About, Audit, Configuration, Exposure, Outcome, PlannedPart, Progress
from seepage.settings.threat_model import Deployment, mechanisms
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table
from seepage.text import percent
from seepage.wire.horizontal import Knowledge, RecordsGuess
from seepage.wire.secret import RecordsSecret


class CapturedAudit(Audit[AttackSpec]):
    """An audit of captured messages, each of which is one unit; ``stated`` are the defenses that they state."""

    own = True
    repeatable = False

    def __init__(
        self,
        spec: AttackSpec,
        about: About,
        deployed: Deployment,
        exposure: Exposure,
        parts: Sequence[PlannedPart],
        table: Schema,
        records: int | None = None,
        stated: Mapping[str, Mapping[str, Json]] | None = None,
        knowledge: Mapping[str, Json] | None = None,
        usual: Sequence[str] = (),
    ) -> None:
        defenses = tuple(Part(name=name, options=dict(options)) for name, options in (stated or {}).items())
        self.setting, self.parts, self.captured, self._exposure = spec.setting, tuple(parts), 1, exposure
        self.spec = spec.model_copy(update={"defenses": defenses or spec.defenses})
        sensitive = tuple(column.name for column in table.columns if column.sensitive)
        self.about = replace(about, target=table.target.name, sensitive=sensitive)
        self.configurations = (Configuration("+".join(part.name for part in defenses) or NONE, records),)
        self._deployed = replace(deployed, defenses=mechanisms(spec.setting, defenses))
        self._table, self.knowledge, self._usual = table, dict(knowledge or {}), tuple(usual)

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
        return {**self.about.settings, part.kind: part.label}

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return what the attacker was granted or assumed, for results."""
        return self.knowledge

    def expose(self, configuration: Configuration, units: range) -> Exposure:
        """Return the captured messages."""
        return self._exposure

    def run(self, part: PlannedPart, progress: Progress | None = None) -> Run:
        """Run one attack or baseline on the captured messages."""
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
                f"{percent(share)} of the certified cells are wrong by the truth: a mistake in seepage, please report "
                "it, or the truth is that of other records. Nothing of this capture counts as certified."
            )
        return run


@dataclass
class RecordsExposure(Exposure):
    """A captured message of one victim whose records are guessed as a whole: an update, its rounds, tree files.

    ``starts`` are the seeds of the attack; those of baselines follow from ``seed`` and the message's place, ``unit``.
    ``attack`` runs in place of the part's own; ``guess`` is the attack's, once it has run.
    """

    view: object
    knowledge: Knowledge
    seed: int
    starts: Sequence[int]
    truth: Table | None = None
    setting: str = "horizontal"
    metrics: Sequence[str] = ()
    attack: Callable[..., RecordsGuess] | None = None
    unit: int = 0
    guess: RecordsGuess | None = None
    further: Callable[[RecordsSecret, RecordsGuess], Sequence[Measurement]] | None = None

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Run the attack or a baseline, and score its guess where the truth is known."""
        is_attack, known, truth = part.kind == "attack", self.knowledge, self.truth
        records = attacked_records(
            self.setting,
            known.statistics,
            known.schema,
            # What only an attacker is granted is no baseline's business.
            (self.view, known if is_attack else replace(known, batch_statistics=None)),
            None if truth is None else RecordsSecret(truth.cells[None], truth.labels[None]),
            self.starts if is_attack else [stream(self.seed, self.unit, "baseline")],
            [create(name) for name in self.metrics or registry.metrics.names()],
            attack=self.attack if is_attack else None,
            keep_records=False if is_attack else None,
            further=self.further,
        )

        def score(guess: RecordsGuess) -> Outcome:
            if is_attack:
                self.guess = guess
            return records.score(guess)

        return measure(part, replace(records, score=score), progress)

    def audit(
        self,
        spec: AttackSpec,
        facts: About,
        defense: Mapping[str, Mapping[str, Json]] | None = None,
        knowledge: Mapping[str, Json] | None = None,
    ) -> CapturedAudit:
        """Return the message as an audit, of the first attack of the spec alone."""
        schema, records, setting = self.knowledge.schema, self.knowledge.batch_size, self.setting
        baselines = [] if self.truth is None else registry.baselines.of(setting).entries()
        taken = [entry for entry in baselines if not entry.needs and isinstance(self.view, entry.sees or object)]
        parts = [PlannedPart(Part(name=entry.name), "baseline") for entry in taken]
        return CapturedAudit(
            spec,
            replace(facts, attacker="The server", secret="all cells", rows=records, columns=schema.names),
            Deployment(setting, facts.protocol, (type(self.view),), model=facts.model),
            self,
            [*parts, PlannedPart(spec.attacks[0], "attack")],
            schema,
            records,
            defense,
            knowledge,
            [spec.attacks[0].name],
        )


@dataclass(frozen=True)
class Attacked:
    """The results of the attacks on a capture, and the reason for each attack that could not be tried."""

    audit: CapturedAudit
    runs: tuple[Run, ...]
    not_tried: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        """Rows of results of all attacks and baselines that have figures."""
        return tuple(rows_of(self.audit, [run for run in self.runs if run.measured]))

    def row(self, metric: str = "accuracy", column: str | None = None, attack: str | None = None) -> ResultRow | None:
        """Return a figure of the attack with a label, or of any; None where there is none."""
        rows = (row for row in self.rows if row.is_attack and (row.metric, row.column) == (metric, column))
        return next((row for row in rows if attack in (None, row.attack) and row.mean is not None), None)


@dataclass(frozen=True)
class ReadRecords:
    """What was read of messages that one attack reads as a whole, in words for a report that holds no record.

    Attributes:
        attacked: results of the attack and the baselines.
        title, words, points: heading, sentences and remarks.
        figures: the same as JSON values.
    """

    attacked: Attacked
    title: str
    words: tuple[str, ...]
    points: tuple[str, ...]
    figures: Mapping[str, object]

    def to_plain(self) -> dict[str, object]:
        """Return all results but the records as JSON values."""
        return dict(self.figures)


def run_parts(
    audit: CapturedAudit,
    lacks: Callable[[PlannedPart], str | None] | None = None,
    progress: Callable[[str], Progress | None] | None = None,
) -> Attacked:
    """Run the attacks and baselines of an audit on a capture; an attack that cannot be tried gets a reason.

    A baseline that cannot be made is left out: a space too large to go through has no prior. ``lacks`` says why an
    attack cannot be tried; without it an attack that fails ends all.
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
    """Join the results of one attack on several captures into one audit; failures are by the place of their unit."""
    places = [unit for unit in range(len(each) + len(failures)) if unit not in failures]
    lost = tuple(Failure(range(unit, unit + 1), why, "") for unit, why in failures.items())
    first = each[0].audit
    about = replace(first.about, dataset=name, threat_model=first.about.threat_model[:1], notes=(), rows=0, settings={})
    audit = copy(first)
    audit.spec, audit.about, audit.captured, audit.knowledge = spec, about, len(places) + len(lost), {}
    audit.parts = tuple({part.label: part for attacked in each for part in attacked.audit.parts}.values())
    audit.configurations = tuple(dict.fromkeys(run.configuration for attacked in each for run in attacked.runs))
    runs = []
    for configuration in audit.configurations:
        for part in audit.parts:
            own = {
                unit: run
                for unit, attacked in zip(places, each, strict=True)
                for run in attacked.runs
                if (run.configuration, run.label) == (configuration, part.label) and run.measured
            }
            if own:
                runs.append(_joined(own, lost))
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
