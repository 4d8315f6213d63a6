"""Rows, runs, findings and example records of one audit, with what several parts of a report make of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd
import torch
from torch import Tensor

from seepage import registry
from seepage.assessment import certainties, scales, spreads
from seepage.assessment.evidence import SHOWN, Evidence
from seepage.assessment.row import ResultRow
from seepage.errors import BadInputError
from seepage.report import frames
from seepage.report.frames import Record, Setting, setting_of
from seepage.results.checks.descent import Longer
from seepage.results.checks.every import not_applicable
from seepage.results.checks.facts import Facts, Gap, in_words
from seepage.results.checks.finding import LOWER_BOUNDS, Finding, Where
from seepage.results.gate import Decision
from seepage.results.verdict import UNDEFENDED
from seepage.run.limits import deployed
from seepage.run.runner import Run
from seepage.settings.part import entry_of
from seepage.settings.part import in_words as defense_in_words
from seepage.settings.setting import Audit
from seepage.settings.threat_model import Applicability, grid_of_attacks
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import frame_of
from seepage.text import capitalised, clean, how_many, listed, lowered


@dataclass(frozen=True)
class Cell:
    """One cell: certainty is 1 less the normalised entropy (discrete), spread is in the column's unit."""

    column: str
    truth: object
    guess: object
    right: bool
    certainty: float | None
    spread: float | None


@dataclass(frozen=True)
class Example:
    """A true record and its guess."""

    batch_size: int | None
    defense: str
    attack: str
    cells: tuple[Cell, ...]


def examples(
    schema: Schema,
    statistics: Statistics,
    evidence: Evidence,
    run: tuple[int | None, str, str],
) -> list[Example]:
    """Return the first records of the first victims, read well or not; none where records are not kept."""
    if evidence.true is None or evidence.guess is None:
        return []
    shown = []
    certainty = spread = None
    if evidence.uncertainty is not None:
        doubt, scale = torch.tensor(evidence.uncertainty, dtype=torch.float64), scales(schema, statistics)
        certainty, spread = certainties(schema, doubt, scale), spreads(schema, doubt, scale)
    positions = [(v, r) for v in range(evidence.victims) for r in range(evidence.true.shape[1])][:SHOWN]
    for victim, record in positions:
        only = slice(record, record + 1)
        truth = frame_of(schema, torch.tensor(evidence.true[victim, only]))
        guess_cells = torch.tensor(evidence.guess[victim, only])
        guess = frame_of(schema, guess_cells) if bool(guess_cells.isfinite().all()) else None
        cells = []
        for i, column in enumerate(schema.columns):
            cells.append(
                Cell(
                    column.name,
                    _value(truth, i),
                    None if guess is None else _value(guess, i),
                    bool(evidence.right[victim, record, i]),
                    _finite(certainty, victim, record, i) if isinstance(column, Discrete) else None,
                    _finite(spread, victim, record, i),
                )
            )
        shown.append(Example(*run, tuple(cells)))
    return shown


def _finite(values: Tensor | None, *index: int) -> float | None:
    if values is None or not math.isfinite(value := float(values[index])):
        return None
    return value


def _value(frame: pd.DataFrame, column: int) -> object:
    return frame.iloc[:, column].tolist()[0]


# Where nearly every cell is right, all that is to be compared is alike.
_NEARLY_ALL = 0.98


@dataclass(frozen=True)
class AuditResult:
    """What an audit found; ``findings`` and results of controls are None where they were not run, see ``Facts``."""

    audit: Audit
    rows: Sequence[ResultRow]
    runs: Sequence[Run] = ()
    findings: Sequence[Finding] | None = ()
    control: Sequence[ResultRow] | None = None
    negative: Sequence[ResultRow] | None = None
    origin: Mapping[str, object] = field(default_factory=dict)
    decision: Decision | None = None
    contradicted: Mapping[Where, float] = field(default_factory=dict)
    longer: Sequence[Longer] = ()

    @property
    def left_out(self) -> bool:
        """Whether there was no time for units that were asked for."""
        return any(run.status == "left_out" for run in self.runs)

    @cached_property
    def grid(self) -> list[Applicability]:
        """Attacks of this audit and registered ones, which of them apply to this deployment, and why others do not."""
        names = [part.part.name for part in self.audit.parts if part.kind == "attack"]
        try:
            attacks = grid_of_attacks(self.audit.deployment())
        except BadInputError:
            # A setting of another package may declare no threat model.
            attacks = []
        tried = {applicability.attack for applicability in attacks}
        return [*(Applicability(name, (), (), None) for name in dict.fromkeys(names) if name not in tried), *attacks]

    @property
    def names(self) -> list[Record]:
        """Each attack and defense of this audit by its name in results: what it does and who published it."""
        setting = self.audit.spec.setting
        attacks = [part.part for part in self.audit.parts if part.kind == "attack"]
        names = []
        for registered, parts in ((registry.attacks, attacks), (registry.defenses, self.audit.spec.defenses)):
            for part in parts:
                try:
                    entries = [entry_of(registered.of(setting), mechanism) for mechanism in part.mechanisms]
                except BadInputError:
                    # Nothing is known here of a part that another program registered.
                    continue
                sources = dict.fromkeys(entry.source for entry in entries if entry.source is not None)
                does = " ".join(entry.summary for entry in entries)
                names.append({"name": part.title, "does": does, "source": "; ".join(sources)})
        return names

    @property
    def evidence(self) -> dict[tuple[int | None, str, str], Evidence]:
        """What is kept of the units, by batch size, defense and attack."""
        return {
            (run.configuration.batch_size, run.configuration.defense, run.label): run.evidence
            for run in self.runs
            if run.evidence is not None
        }

    @property
    def failed(self) -> list[Run]:
        """The runs of which a job failed; beside a gate those of what is deployed, which it is about."""
        gate = self.audit.spec.gate
        counts = self.audit.configurations if gate is None else deployed(self.audit, gate)
        return [run for run in self.runs if run.failures and run.configuration in counts]

    @property
    def units_run(self) -> str:
        """Number of units that each attack was run on, in words; beside it what was asked for, where that is more."""
        attacks = [run for run in self.runs if run.is_attack]
        counts = [len(run.units) for run in attacks if run.units]
        wanted = max((run.planned for run in attacks), default=self.audit.units)
        of = how_many(wanted, self.audit.spec.unit)
        if not counts:
            return f"none of {of}" if attacks else of
        least, most = min(counts), max(counts)
        number = f"{least}" if least == most else f"{least} to {most}"
        if any(run.status == "left_out" for run in attacks) or most < wanted:
            return f"{number} of {of}"
        words = how_many(most, self.audit.spec.unit)
        return f"{words} in each configuration" if least == most else f"{least} to {words}"

    @cached_property
    def examples(self) -> list[Example]:
        """Reconstructed records beside the truth, where records are kept."""
        dataset = self.audit.dataset
        if dataset is None:
            return []
        return [
            example
            for of, evidence in self.evidence.items()
            for example in examples(self.schema_of(evidence), dataset.statistics, evidence, of)
        ]

    @cached_property
    def facts(self) -> Facts:
        """What checks read."""
        return Facts(self.audit, self.rows, self.runs, self.control, self.negative, self.contradicted, self.longer)

    @property
    def not_applicable(self) -> dict[str, str]:
        """Codes of the checks that do not apply to this audit, with the reason."""
        return not_applicable(self.facts)

    @property
    def gaps(self) -> Sequence[Gap]:
        """Evidence that this audit lacks to show that little leaks; empty where checks were not run."""
        return [] if self.findings is None else self.facts.gaps

    def missing(self, setting: Setting) -> str:
        """Return the evidence that a configuration lacks to show that little leaks, in words."""
        return in_words([gap for gap in self.gaps if (gap.batch_size, gap.defense) == setting])

    @property
    def not_reached(self) -> list[Setting]:
        """Configurations in which no attack has a figure, by batch size and defense."""
        figured = set(map(setting_of, self.attacked))
        configured = [(configuration.batch_size, configuration.defense) for configuration in self.audit.configurations]
        return [setting for setting in configured if setting not in figured]

    @property
    def all_findings(self) -> Sequence[Finding]:
        """The findings, none where checks were not run."""
        return self.findings or ()

    @cached_property
    def overviews(self) -> list[Record]:
        """The strongest attack of each configuration, see ``frames.overview``."""
        about = self.audit.about
        return frames.overview(self.rows, self.all_findings, about.label)

    @property
    def attacked(self) -> list[Record]:
        """The configurations in which an attack has a figure."""
        return [overview for overview in self.overviews if overview["attack"] is not None]

    @property
    def worst(self) -> Record | None:
        """The configuration in which most leaks, see ``frames.worst``; None without attacks."""
        return frames.worst(self.overviews)

    @property
    def reference(self) -> Record | None:
        """The configuration of the headline: of those without a defense, or of all, the one in which most leaks."""
        return (
            frames.worst([overview for overview in self.overviews if overview["defense"] == UNDEFENDED]) or self.worst
        )

    @property
    def beside(self) -> list[Record]:
        """For each other defense than that of the reference, the configuration in which most leaks."""
        first = self.reference
        if first is None:
            return []
        by_defense: dict[str, list[Record]] = {}
        for overview in self.overviews:
            if overview["defense"] != first["defense"]:
                by_defense.setdefault(overview["defense"], []).append(overview)
        strongest = map(frames.worst, by_defense.values())
        return [record for record in strongest if record is not None and record["mean"] is not None]

    @cached_property
    def by_column(self) -> dict[Setting, list[Record]]:
        """What the strongest attack of each configuration reads of each column, see ``frames.columns``."""
        shared = (self.all_findings, self.audit.about.sensitive, self.audit.schema)
        return {setting: frames.columns(self.rows, setting, *shared) for setting in map(setting_of, self.attacked)}

    @cached_property
    def frontier(self) -> list[Record]:
        """Leakage beside how well the task is learnt, see ``frames.frontier``."""
        return frames.frontier(self.rows, self.overviews, self.audit.about.utility)

    @property
    def open(self) -> bool:
        """Whether records may be shown: a table of one's own is the secret, unless its records are kept anyway."""
        return self.audit.keeps_records

    @property
    def sized(self) -> bool:
        """Whether batch sizes differ, so that figures differ by them."""
        return len({overview["batch_size"] for overview in self.overviews}) > 1

    @property
    def defended(self) -> bool:
        """Whether there is a defense, so that figures differ by it."""
        return any(overview["defense"] != UNDEFENDED for overview in self.overviews)

    @property
    def units(self) -> str:
        """Head of the column with the number of units that a figure is a mean of."""
        return f"{self.audit.spec.unit}s".capitalize()

    def marked(self, name: str, longest: int = 48) -> str:
        """Return the name of an attack or a defense with its remark for tables."""
        mark = self.audit.about.marks.get(name)
        return clean(name, longest) + ("" if mark is None else f" ({mark})")

    def defense(self, name: str) -> str:
        """Return a defense in words, followed by its name in results where that is more precise."""
        if name == UNDEFENDED:
            return "no defense"
        part = next((part for part in self.audit.spec.defenses if part.title == name), None)
        words = None if part is None else defense_in_words(self.audit.spec.setting, part)
        return clean(name, 60) if words is None else f"{clean(words, 160)} ({clean(name, 60)})"

    @property
    def not_reached_in_words(self) -> list[str]:
        """Configurations without a figure, those of one size together; several defenses by their names in results."""
        by_size = dict[int | None, list[str]]()
        for size, defense in self.not_reached:
            by_size.setdefault(size, []).append(defense)
        words = []
        for size, names in by_size.items():
            short = [self.defense(name) if name == UNDEFENDED else clean(name, 60) for name in names]
            with_size = f" at {self.audit.about.size} {size}" if size is not None else ""
            words.append(f"{listed(short) if len(names) > 1 else self.defense(names[0])}{with_size}")
        return words

    def not_tried(self, setting: Setting, attack: str) -> str | None:
        """Return that a stronger attack was not tried in a configuration, and the code of the finding; None if not."""
        for finding in self.all_findings:
            if finding.code in LOWER_BOUNDS and finding.concerns(*setting, attack):
                return f"{lowered(finding.title)} ({finding.code})"
        return None

    def unreliable(self, setting: Setting, attack: str) -> Finding | None:
        """Return the finding because of which an attack's figures cannot be relied on; None where there is none."""
        errors = (finding for finding in self.all_findings if finding.severity == "error")
        return next((finding for finding in errors if finding.concerns(*setting, attack)), None)

    def label(self, setting: Setting, in_words: bool = False) -> str:
        """Return a configuration without the values that all configurations share."""
        size, defense = setting
        parts = [f"{self.audit.about.size} {size}"] if self.sized else []
        if self.defended or not self.sized:
            named = self.defense(defense) if in_words else self.marked(defense, 40)
            parts.append("no defense" if defense == UNDEFENDED else named)
        return ", ".join(parts)

    def place(self, size: int | None, defense: str) -> str:
        """Return the beginning of a sentence: the configuration and the attacker."""
        # Where trials of whole models are counted, no message is that of a batch.
        whole = self.audit.about.trials is not None and not self.sized
        parts = [] if size is None or whole else [f"at {self.audit.about.size} {size}"]
        if defense != UNDEFENDED:
            words = self.defense(defense)
            parts.append(f"under {words}" if words == clean(defense, 60) else f"with {words}")
        elif self.defended:
            parts.append("with no defense")
        words = " ".join([*parts, lowered(self.audit.about.attacker)])
        return capitalised(words)

    def schema_of(self, evidence: Evidence) -> Schema:
        """Return the schema of the columns of some evidence."""
        schema = self.audit.schema
        assert schema is not None
        columns = {column.name: column for column in (*schema.columns, schema.target)}
        if evidence.column_names == schema.names:
            return schema
        return schema.model_copy(update={"columns": tuple(columns[name] for name in evidence.column_names)})

    def telling(self, wanted: str, mixed: bool = False) -> tuple[Record, Evidence] | None:
        """Return the configuration with the most leakage among those whose evidence has the field ``wanted``.

        With ``mixed``, one in which nearly every cell is right is passed over, since all that is to be compared is
        alike there.
        """
        having = []
        for overview in self.overviews:
            evidence = self.evidence.get((overview["batch_size"], overview["defense"], overview["attack"]))
            if evidence is not None and getattr(evidence, wanted) is not None:
                having.append((overview, evidence))
        telling = [overview for overview, evidence in having if not mixed or evidence.right.mean() < _NEARLY_ALL]
        best = frames.worst(telling or [overview for overview, _ in having])
        return next(((overview, evidence) for overview, evidence in having if overview is best), None)
