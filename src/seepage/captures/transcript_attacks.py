"""Attacks on a transcript of split or vertical training, without its raw data and without its parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pandas as pd
import torch

from seepage import registry
from seepage.assessment.row import ResultRow
from seepage.captures.alignment import Alignment, alignment
from seepage.captures.audit import Attacked, CapturedAudit, run_parts
from seepage.captures.spec import SPECS
from seepage.captures.split_transcripts import SplitTranscriptExposure, split_model
from seepage.captures.transcript_runs import OWN_FIGURES, ActivationExposure, TranscriptExposure, TranscriptTables
from seepage.captures.transcripts import RecordedTraining
from seepage.digests import Json
from seepage.registry import Attack, Entry, Need
from seepage.settings.catalogue import setting as setting_of
from seepage.settings.catalogue import view_in_words
from seepage.settings.labels import guesses_labels, with_label_columns
from seepage.settings.part import Part, entry_of
from seepage.settings.setting import PlannedPart
from seepage.settings.spec import Gate
from seepage.settings.threat_model import Deployment
from seepage.tabular.schema import Discrete
from seepage.text import how_many
from seepage.wire.labels import ReturnedView

# What has to be given for an attack that lacks it.
_LACKS: dict[Need, str] = {
    "auxiliary": "it needs public rows of the same kind; give --data TABLE",
    "leaked": "it needs records whose private cells the attacker knows; give --known TABLE",
    "labels": "it needs records whose label the attacker knows; give --known TABLE",
    "weights": "it needs the client's weights; put client-N.safetensors into the folder",
    "bottom": "it needs the attacked party's first layers, or bottom model; put client-N.safetensors into the folder",
    "queries": "it needs a live party that answers queries, which no transcript is",
    "gradients": "it needs gradients of the passive party's own parameters, which cross no wire",
    "steering": "it needs a training that it changes, which no transcript is",
}
# Needs that no table or file beside a transcript meets.
_OF_LIVE: tuple[Need, ...] = ("queries", "gradients", "steering")
_ACTIVE = "it is active: it needs a training that it changes, which no transcript is"


@dataclass(frozen=True)
class TriedAttack:
    """The results of an attack on ``columns`` or the ``label``: figures of its answers, and rows with a known truth."""

    attack: str
    sought: str
    records: int
    seconds: float
    shown: Mapping[tuple[str, str | None], float | None]
    rows: tuple[ResultRow, ...] | None
    answers: pd.DataFrame


@dataclass(frozen=True)
class TranscriptFindings:
    """The results of all attacks on a transcript; limits are of its network, doubts of answers that replay little."""

    attacked: Attacked
    setting: str
    records: int
    rounds: int
    private: tuple[str, ...]
    answers: Mapping[str, pd.DataFrame]
    knowledge: Mapping[str, Json]
    notes: tuple[str, ...]
    scored: int | None = None
    limits: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    alignment: Alignment | None = None
    left_out: tuple[str, ...] = ()
    cannot: Mapping[str, str] = field(default_factory=dict)

    @property
    def not_tried(self) -> Mapping[str, str]:
        """Reason, for each attack that could not be tried; ``left_out`` could be, and were not asked for."""
        return {**self.attacked.not_tried, **self.cannot}

    @property
    def tried(self) -> tuple[TriedAttack, ...]:
        """Results of each attack that ran."""
        tried = []
        for run in self.attacked.runs:
            if run.is_attack:
                rows = [row for row in self.attacked.rows if row.attack == run.label]
                shown = {(row.metric, row.column): row.mean for row in rows if row.metric in OWN_FIGURES}
                scored = tuple(row for row in rows if row.metric not in OWN_FIGURES and row.mean is not None)
                sought, answers = "columns" if run.part.column is None else "label", self.answers[run.label]
                seconds = run.seconds or 0.0
                tried.append(TriedAttack(run.label, sought, len(answers), seconds, shown, scored or None, answers))
        return tuple(tried)

    def to_plain(self) -> dict[str, Json]:
        """Return the findings as JSON values, without any guessed cell."""
        return {
            "setting": self.setting,
            "records": self.records,
            "rounds": self.rounds,
            "private": list(self.private),
            "knowledge": dict(self.knowledge),
            "notes": list(self.notes),
            "scored": self.scored,
            "alignment": None if self.alignment is None else asdict(self.alignment),
            "attacks": [{"attack": t.attack, "sought": t.sought, "records": t.records} for t in self.tried],
            "left_out": list(self.left_out),
            "not_tried": [{"attack": name, "reason": reason} for name, reason in self.not_tried.items()],
        }

    @property
    def reconstruction(self) -> pd.DataFrame:
        """Guessed cells of each record and attack."""
        frames = list(self.answers.values())
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"attack": [], "id": []})


@dataclass
class TranscriptAttack:
    """An attack on a transcript by the fields of ``AttackSpec``.

    Without names the attacks are those that an audit of the setting runs by default. Where none of these can be tried
    on the columns, or the label, all others on these are.
    """

    training: RecordedTraining
    model: str | None = None
    attacks: Sequence[object] = ()
    data: Path | None = None
    known: Path | None = None
    truth: Path | None = None
    separator: str = ","
    seed: int = 0
    gate: Gate | None = None
    _tables: TranscriptTables = field(init=False)

    def __post_init__(self) -> None:
        training, about = self.training, self.training.about
        self._tables = TranscriptTables(training, self.data, self.known, self.truth, self.separator, self.seed)
        self._spec = SPECS[about.setting].of(attacks=tuple(self.attacks), seed=self.seed, gate=self.gate)
        # Refuses a network that does not fit, before anything is attacked.
        columns = about.setting == "split" and not about.whole
        self._model = split_model(training, self.model) if columns else None

    def run(self, progress: Callable[[str], None] | None = None) -> TranscriptFindings:
        """Run the attacks and return what they read; ``progress`` gets the label of each before it begins."""
        training, tables, model = self.training, self._tables, self._model
        exposure = ActivationExposure(tables, self.model) if model is None else SplitTranscriptExposure(tables, model)
        granted: dict[str, Json] = {
            "statistics": tables.origin,
            "auxiliary": 0 if tables.public is None else len(tables.public),
            "labels": 0 if tables.known_labels is None else len(tables.known_labels[0]),
            "leaked": 0 if tables.leaked is None else len(tables.leaked[0]),
            "weights": len(training.weights),
            "own columns": training.own is not None,
            "defense": {name: dict(options) for name, options in (training.about.defense or {}).items()},
        }
        registered = registry.attacks.of(exposure.setting)
        audit = self._audit(exposure, granted)
        attacked = run_parts(audit, lambda part: _lacks(entry_of(registered, part.part), exposure), progress)
        planned = {part.part.name for part in audit.parts if part.kind == "attack"}
        others = {name for name in registered.names() if name not in planned and not self._spec.attacks}
        reasons = {name: _lacks(registered[name], exposure) for name in registered.names() if name in others}
        return TranscriptFindings(
            attacked,
            exposure.setting,
            len(tables.ids),
            len(training.rounds),
            training.about.private,
            exposure.answers,
            granted,
            tuple(dict.fromkeys(exposure.notes)),
            None if tables.truth is None else len(tables.truth[0]),
            tuple(exposure.limits),
            tuple(exposure.doubts),
            tables.assumed,
            self._alignment(),
            tuple(name for name, reason in reasons.items() if reason is None),
            {name: reason for name, reason in reasons.items() if reason is not None},
        )

    def _usual(self, exposure: TranscriptExposure) -> list[Part]:
        """Return the attacks that are tried where nobody names any, those of the setting's audits first."""
        about, registered = self.training.about, registry.attacks.of(exposure.setting)
        spec = setting_of(exposure.setting).spec
        described = {"topology": about.topology, "attacker": about.attacker}
        fields = {name: value for name, value in described.items() if name in spec.model_fields}
        usual = [*spec.of(**fields).attacks, *exposure.further]
        tried = [entry for part in usual if _lacks(entry := entry_of(registered, part), exposure) is None]
        labels = any(exposure.labels_too or guesses_labels(entry) for entry in tried)
        columns = any(not guesses_labels(entry) for entry in tried)
        names = {part.name for part in usual}
        others = [entry for entry in registered.entries() if entry.name not in names]
        others = [entry for entry in others if not (labels if guesses_labels(entry) else columns)]
        return [*usual, *(Part(name=entry.name) for entry in others if _lacks(entry, exposure) is None)]

    def _alignment(self) -> Alignment | None:
        """Return what the attacker learnt by alignment; None where it gave no table of its own."""
        training = self.training
        if training.own is None:
            return None
        rows, cells, labelled = training.own
        columns = [training.schema.columns[i] for i in training.public] + [training.schema.target] * labelled
        shared = torch.zeros(len(cells), dtype=torch.bool)
        shared[[rows[identifier] for identifier in training.ids]] = True
        return alignment(cells, columns, shared, self.seed)

    def _audit(self, exposure: TranscriptExposure, granted: Mapping[str, Json]) -> CapturedAudit:
        """Return the transcript as an audit."""
        tables, about, setting = self._tables, self.training.about, exposure.setting
        target, vertical = tables.schema.target.name, setting == "vertical"
        attacks = self._spec.attacks or tuple(self._usual(exposure))
        parts = [PlannedPart(part, "attack") for part in attacks]
        if tables.truth is not None:
            back = any(issubclass(view, ReturnedView) for view in exposure.reveals)
            beside = [*exposure.baselines(), *([Part(name="label_mode")] if back else [])]
            parts = [*(PlannedPart(part, "baseline") for part in beside), *parts]
        parts = with_label_columns(parts, setting, target)
        labels = any(part.column is not None for part in parts if part.kind == "attack")
        attacker = "The active party" if vertical else f"The {about.attacker}"
        facts = replace(
            exposure.about,
            model=self.model or about.model or "not named",
            lead="What a transcript gives away of the columns and labels that its parties keep.",
            attacker=attacker,
            message="what crossed the wire",
            threat_model=(
                f"The attacker is {attacker.lower()}, honest but curious. It has what crossed the wire in "
                f"{how_many(len(self.training.rounds), 'round')} of {setting} learning, with "
                f"{how_many(len(tables.ids), 'record')}. "
                f"Private: {', '.join(about.private)}.",
                f"Its marginals: {tables.origin}.",
            ),
            limits=tuple(exposure.limits),
            rows=len(tables.ids),
            label=target if labels or self._model is not None else None,
            label_attacker="The passive party" if vertical else None,
            columns=about.private,
            settings={"seed": self.seed, "model": self.model or about.model},
        )
        protocol = setting if about.topology == "columns" else about.topology
        spec = self._spec.model_copy(update={"attacks": attacks})
        deployment = Deployment(setting, protocol, exposure.reveals, frozenset(exposure.grants))
        return CapturedAudit(spec, facts, deployment, exposure, parts, tables.schema, None, about.defense, granted)


def _lacks(entry: Entry[Attack], exposure: TranscriptExposure) -> str | None:
    """Return why an attack cannot be tried; None where it can."""
    if entry.traits.active:
        return _ACTIVE
    target = exposure.tables.schema.target
    if entry.traits.classes and not isinstance(target, Discrete):
        return f"it tells classes apart, and the target {target.name!r} is a number"
    if entry.sees and not any(issubclass(shown, seen) for seen in entry.sees for shown in exposure.reveals):
        views = " or ".join(view_in_words(view.__name__) for view in entry.sees)
        return f"it takes {views}, which this transcript does not show"
    live: Need | None = next((need for need in _OF_LIVE if need in entry.needs), None)
    if live is not None:
        return _LACKS[live]
    if "auxiliary" in entry.needs and "auxiliary" not in exposure.grants and exposure.tables.public is not None:
        return "it needs the attacker's own columns (own.csv) beside public rows, and this transcript has none"
    return next((_LACKS.get(need, f"it needs {need}") for need in entry.needs if need not in exposure.grants), None)
