"""Attacks on a transcript of split or vertical training, without its raw data and without its parties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seepage import registry
from seepage.captures.split_transcripts import SplitRun, split_model
from seepage.captures.transcript_runs import TranscriptFindings, TranscriptRun, TranscriptTables
from seepage.captures.transcripts import RecordedTraining
from seepage.captures.vertical_transcripts import VerticalRun
from seepage.captures.whole_transcripts import WholeClientRun
from seepage.config.choices import describe
from seepage.digests import Json
from seepage.errors import BadInputError, CertifiedWrongError, one_line, unknown_name
from seepage.needs import Need
from seepage.registry import Attack, Entry
from seepage.settings.part import Part, as_part, entry_of
from seepage.tabular.schema import Discrete

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


@dataclass
class TranscriptAttack:
    """An attack on a transcript.

    Args:
        training: the transcript.
        model: name of the network, or ``path/to/file.py:factory`` of one of your own; that of the transcript if None.
        attacks: attacks by name, with options; all that the setting knows if empty.
        data: public rows of the same kind.
        known: table of records that the attacker knows, with ids and the label, all private columns, or both.
        truth: table of true private cells and labels, with ids.
        separator: separator of the cells of CSV files.
        seed: seed of the attacks.

    Raises:
        BadInputError: something does not fit the transcript.
    """

    training: RecordedTraining
    model: str | None = None
    attacks: Sequence[str] = ()
    data: Path | None = None
    known: Path | None = None
    truth: Path | None = None
    separator: str = ","
    seed: int = 0
    _tables: TranscriptTables = field(init=False)

    def __post_init__(self) -> None:
        training, setting = self.training, self.training.about.setting
        self._tables = TranscriptTables(training, self.data, self.known, self.truth, self.separator, self.seed)
        parts = _labelled([Part.model_validate(as_part(one)) for one in dict.fromkeys(self.attacks)])
        registered = registry.attacks.of(setting)
        for part in parts:
            if part.name not in registered:
                raise unknown_name("attack", part.name, registered.names())
        self._parts = parts or [Part(name=name) for name in registered.names()]
        # Refuses a network that does not fit, before anything is attacked.
        columns = setting == "split" and not training.about.whole
        self._model = split_model(training, self.model) if columns else None

    def run(self, progress: Callable[[str], None] | None = None) -> TranscriptFindings:
        """Return what the attacks read.

        Args:
            progress: called with the label of each attack before it begins.
        """
        training, tables = self.training, self._tables
        if self._model is not None:
            runner: TranscriptRun = SplitRun(tables, self._model)
        else:
            runner = (WholeClientRun if training.about.whole else VerticalRun)(tables, self.model)
        registered = registry.attacks.of(runner.setting)
        tried, reasons = [], {}
        for part in [*self._parts, *(() if self.attacks else runner.further)]:
            reason = _lacks(entry_of(registered, part), runner)
            if reason is None:
                if progress is not None:
                    progress(part.called)
                try:
                    tried.append(runner.tried(part))
                    continue
                except CertifiedWrongError:
                    raise
                except BadInputError as error:
                    reason = str(error).rstrip(".")
                except Exception as error:  # An attack of another package may fail in any way.
                    reason = f"it failed with {one_line(error)}"
            reasons[part.called] = reason
        granted: dict[str, Json] = {
            "statistics": tables.origin,
            "auxiliary": 0 if tables.public is None else len(tables.public),
            "labels": 0 if tables.known_labels is None else len(tables.known_labels[0]),
            "leaked": 0 if tables.leaked is None else len(tables.leaked[0]),
            "weights": len(training.weights),
            "own columns": training.own is not None,
            "defense": {name: dict(options) for name, options in (training.about.defense or {}).items()},
        }
        return TranscriptFindings(
            runner.setting,
            len(tables.ids),
            len(training.rounds),
            training.about.private,
            tuple(tried),
            reasons,
            granted,
            tuple(dict.fromkeys(runner.notes)),
            None if tables.truth is None else len(tables.truth[0]),
            tuple(runner.limits),
            tuple(runner.doubts),
            tables.assumed,
        )


def _labelled(parts: Sequence[Part]) -> list[Part]:
    """Return parts of which those of the same label have all their options as label."""
    labels = [part.called for part in parts]
    return [
        part.model_copy(update={"label": describe(part.name, part.options)})
        if part.label is None and labels.count(part.called) > 1
        else part
        for part in parts
    ]


def _lacks(entry: Entry[Attack], runner: TranscriptRun) -> str | None:
    """Return why an attack cannot be tried; None where it can."""
    if getattr(entry.factory, "active", False):
        return _ACTIVE
    target = runner.tables.schema.target
    if getattr(entry.factory, "of_classes", False) and not isinstance(target, Discrete):
        return f"it tells classes apart, and the target {target.name!r} is a number"
    if entry.sees and not any(issubclass(shown, seen) for seen in entry.sees for shown in runner.reveals):
        return f"it takes {' or '.join(view.__name__ for view in entry.sees)}, which this transcript does not show"
    return next((_LACKS.get(need, f"it needs {need}") for need in entry.needs if need not in runner.grants), None)
