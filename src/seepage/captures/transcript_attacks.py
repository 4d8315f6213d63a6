"""Attacks on a transcript of split or vertical training, without its raw data and without its parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from seepage import registry
from seepage.assessment.row import ResultRow
from seepage.captures.audit import Attacked, CapturedAudit, run_parts
from seepage.captures.spec import SplitTranscriptSpec, VerticalTranscriptSpec
from seepage.captures.split_transcripts import SplitTranscriptExposure, split_model
from seepage.captures.transcript_runs import OWN_FIGURES, TranscriptExposure, TranscriptTables
from seepage.captures.transcripts import RecordedTraining
from seepage.captures.vertical_transcripts import VerticalTranscriptExposure
from seepage.captures.whole_transcripts import WholeTranscriptExposure
from seepage.digests import Json
from seepage.needs import Need
from seepage.registry import Attack, Entry
from seepage.settings.labels import with_label_columns
from seepage.settings.part import NONE, Part, entry_of
from seepage.settings.setting import About, Configuration, PlannedPart
from seepage.settings.spec import Gate
from seepage.settings.threat_model import Deployment, mechanisms
from seepage.tabular.schema import Discrete
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
_ACTIVE = "it is active: it needs a training that it changes, which no transcript is"


@dataclass(frozen=True)
class TriedAttack:
    """The results of one attack.

    Attributes:
        sought: ``columns``, or ``label`` where labels alone are guessed.
        shown: figures of its own answers, by metric and column: shares that are likely, certified, tied or possible.
        rows: results beside the best baseline; None without the truth.
        answers: guessed cells of each record, with its id, for ``reconstruction.csv``.
    """

    attack: str
    sought: str
    records: int
    seconds: float
    shown: Mapping[tuple[str, str | None], float | None]
    rows: tuple[ResultRow, ...] | None
    answers: pd.DataFrame


@dataclass(frozen=True)
class TranscriptFindings:
    """The results of all attacks on a transcript.

    Attributes:
        attacked: the transcript as an audit, with what each attack and baseline got.
        setting: ``split`` or ``vertical``.
        answers: guessed cells of each record by the label of the attack.
        scored: number of records with a known truth; None without.
        limits: sentence for each part of the network that no attack solves exactly.
        doubts: sentence for an attack whose answers replay few messages, so that something does not fit.
    """

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

    @property
    def not_tried(self) -> Mapping[str, str]:
        """Reason, for each attack that could not be tried."""
        return self.attacked.not_tried

    @property
    def tried(self) -> tuple[TriedAttack, ...]:
        """Results of each attack that ran."""
        return tuple(
            self._tried(run.label, run.part.column is not None, run.seconds or 0.0)
            for run in self.attacked.runs
            if run.is_attack
        )

    def _tried(self, label: str, on_labels: bool, seconds: float) -> TriedAttack:
        rows = [row for row in self.attacked.rows if row.attack == label]
        shown = {(row.metric, row.column): row.mean for row in rows if row.metric in OWN_FIGURES}
        scored = tuple(row for row in rows if row.metric not in OWN_FIGURES and row.mean is not None)
        answers = self.answers[label]
        sought = "label" if on_labels else "columns"
        return TriedAttack(label, sought, len(answers), seconds, shown, scored or None, answers)

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
            "attacks": [
                {"attack": tried.attack, "sought": tried.sought, "records": tried.records} for tried in self.tried
            ],
            "not_tried": [{"attack": name, "reason": reason} for name, reason in self.not_tried.items()],
        }

    @property
    def reconstruction(self) -> pd.DataFrame:
        """Guessed cells of each record and attack."""
        frames = list(self.answers.values())
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"attack": [], "id": []})


@dataclass
class TranscriptAttack:
    """An attack on a transcript.

    Args:
        training: the transcript.
        model: name of the network, or ``path/to/file.py:factory`` of one of your own; that of the transcript if None.
        attacks: attacks by name, with options; all that the setting knows if empty.
        data, known, truth, separator, seed, gate: fields of ``AttackSpec``.

    Raises:
        BadInputError: something does not fit the transcript.
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
        training, setting = self.training, self.training.about.setting
        self._tables = TranscriptTables(training, self.data, self.known, self.truth, self.separator, self.seed)
        spec = SplitTranscriptSpec if setting == "split" else VerticalTranscriptSpec
        self._spec = spec.of(attacks=tuple(self.attacks), seed=self.seed, gate=self.gate)
        # Refuses a network that does not fit, before anything is attacked.
        columns = setting == "split" and not training.about.whole
        self._model = split_model(training, self.model) if columns else None

    def run(self, progress: Callable[[str], None] | None = None) -> TranscriptFindings:
        """Run the attacks and return what they read.

        Args:
            progress: function that is called with the label of each attack before it begins.

        Raises:
            BadInputError: nothing is left to attack, or a file does not fit the transcript.
            CertifiedWrongError: the truth contradicts a cell that is certified.
        """
        training, tables = self.training, self._tables
        if self._model is not None:
            exposure: TranscriptExposure = SplitTranscriptExposure(tables, self._model)
        else:
            exposure = (WholeTranscriptExposure if training.about.whole else VerticalTranscriptExposure)(
                tables, self.model
            )
        registered = registry.attacks.of(exposure.setting)
        attacked = run_parts(
            self._audit(exposure),
            lambda part: _lacks(entry_of(registered, part.part), exposure),
            None if progress is None else lambda label: progress(label),
        )
        return TranscriptFindings(
            attacked,
            exposure.setting,
            len(tables.ids),
            len(training.rounds),
            training.about.private,
            exposure.answers,
            self._granted(),
            tuple(dict.fromkeys(exposure.notes)),
            None if tables.truth is None else len(tables.truth[0]),
            tuple(exposure.limits),
            tuple(exposure.doubts),
            tables.assumed,
        )

    def _granted(self) -> dict[str, Json]:
        training, tables = self.training, self._tables
        return {
            "statistics": tables.origin,
            "auxiliary": 0 if tables.public is None else len(tables.public),
            "labels": 0 if tables.known_labels is None else len(tables.known_labels[0]),
            "leaked": 0 if tables.leaked is None else len(tables.leaked[0]),
            "weights": len(training.weights),
            "own columns": training.own is not None,
            "defense": {name: dict(options) for name, options in (training.about.defense or {}).items()},
        }

    def _audit(self, exposure: TranscriptExposure) -> CapturedAudit:
        """Return the transcript as an audit."""
        about, schema, setting = self.training.about, self._tables.schema, exposure.setting
        names = registry.attacks.of(setting).names()
        attacks = self._spec.attacks or (*(Part(name=name) for name in names), *exposure.further)
        defenses = tuple(Part(name=name, options=dict(options)) for name, options in (about.defense or {}).items())
        parts = [PlannedPart(part, "attack") for part in attacks]
        if self._tables.truth is not None:
            back = any(issubclass(view, ReturnedView) for view in exposure.reveals)
            beside = [*exposure.baselines(), *([Part(name="label_mode")] if back else [])]
            parts = [*(PlannedPart(part, "baseline") for part in beside), *parts]
        parts = list(with_label_columns(parts, setting, schema.target.name))
        return CapturedAudit(
            self._spec.model_copy(update={"attacks": attacks, "defenses": defenses or self._spec.defenses}),
            self._described(exposure, any(part.column is not None for part in parts if part.kind == "attack")),
            Deployment(
                setting,
                setting if about.topology == "columns" else about.topology,
                exposure.reveals,
                frozenset(exposure.grants),
                None,
                mechanisms(setting, defenses),
            ),
            exposure,
            Configuration("+".join(part.name for part in defenses) or NONE),
            parts,
            schema,
            {"seed": self.seed, "model": self.model or about.model},
            self._granted(),
        )

    def _described(self, exposure: TranscriptExposure, labels: bool) -> About:
        """Return the transcript in words."""
        about, schema, private = self.training.about, self._tables.schema, self.training.about.private
        attacker = "The active party" if about.setting == "vertical" else f"The {about.attacker}"
        return replace(
            exposure.about,
            model=self.model or about.model or "not named",
            lead="What a transcript gives away of the columns and labels that its parties keep.",
            attacker=attacker,
            message="what crossed the wire",
            threat_model=(
                f"The attacker is {attacker.lower()}, honest but curious. It has what crossed the wire in "
                f"{len(self.training.rounds):,} rounds of {about.setting} learning, with {len(self._tables.ids):,} "
                f"records. Private: {', '.join(private)}.",
                f"Its marginals: {self._tables.origin}.",
            ),
            limits=tuple(exposure.limits),
            rows=len(self._tables.ids),
            target=schema.target.name,
            label=schema.target.name if labels or self._model is not None else None,
            label_attacker="The passive party" if about.setting == "vertical" else None,
            columns=private,
            sensitive=tuple(column.name for column in schema.columns if column.sensitive),
        )


def _lacks(entry: Entry[Attack], exposure: TranscriptExposure) -> str | None:
    """Return why an attack cannot be tried; None where it can."""
    if getattr(entry.factory, "active", False):
        return _ACTIVE
    target = exposure.tables.schema.target
    if getattr(entry.factory, "of_classes", False) and not isinstance(target, Discrete):
        return f"it tells classes apart, and the target {target.name!r} is a number"
    if entry.sees and not any(issubclass(shown, seen) for seen in entry.sees for shown in exposure.reveals):
        return f"it takes {' or '.join(view.__name__ for view in entry.sees)}, which this transcript does not show"
    return next((_LACKS.get(need, f"it needs {need}") for need in entry.needs if need not in exposure.grants), None)
