"""Captures on disk, one class a kind: an update, a folder of updates, a transcript, tree files."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch

from seepage import registry
from seepage.attacks.horizontal.exact.certifying import WrittenCertificate, check_new_certificate, write_certificate
from seepage.captures.audit import Attacked
from seepage.captures.federation import FederationAttack, FederationFindings, find_captures
from seepage.captures.recovery import FILES, Recovered, check_new, write_recovered
from seepage.captures.spec import PROOFS_ONLY, AttackSpec, SplitTranscriptSpec, TreeFilesSpec, VerticalTranscriptSpec
from seepage.captures.transcript_attacks import TranscriptAttack, TranscriptFindings
from seepage.captures.transcripts import TRANSCRIPT, is_transcript, read_about, read_transcript
from seepage.captures.trees import ReadTrees, is_tree_file, load_tree_files, read_trees
from seepage.devices import find_device
from seepage.errors import BadInputError, check_count
from seepage.run.runner import Listener
from seepage.settings.option import fields_of
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of

PAGE, RESULTS, RECONSTRUCTION = "report.html", FILES[2], FILES[0]
# What an option is about, where that is not a captured update.
_OF = {
    "known": "the records of a transcript",
    "certificate": "one update",
    "open_certificate": "the certificate of one update",
    "holds": "a folder of updates of several rounds",
    "regularisation": "tree files",
    "learning_rate": "tree files",
}
_COMMON = frozenset({"schema_file", "data", "truth", "separator", "seed", "device", "threads", "allow_large", "gate"})
_UPDATES = _COMMON | {"model", "weights", "head", "model_seed", "dropout", "batch_size", "attacks", "proofs_only"}
_UPDATES |= {"restore_labels", "profile", "restarts", "iterations"}
# Fields of a spec that are fields of ``FederationAttack``, too.
_SHARED = ("truth", "weights", "batch_size", "holds", "head", "separator", "seed", "restore_labels", "allow_large")
_SHARED += ("model_seed", "dropout", "gate")


@dataclass(frozen=True)
class CaptureResult:
    """The results of an attack on a capture.

    Attributes:
        attacked: the same as an audit; None where nothing could be attacked.
        certificate: certificate that was written; None without one.
        incomplete: whether a part of the capture could not be attacked.
    """

    findings: Recovered | FederationFindings | TranscriptFindings | ReadTrees
    attacked: Attacked | None
    plain: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]
    certificate: WrittenCertificate | None = None
    incomplete: bool = False


class CapturedSource(ABC):
    """A capture on disk with the spec of the attack on it.

    Attributes:
        words: the kind of capture in messages.
        takes: names of the fields of the spec that this kind uses; others are refused.
    """

    words: ClassVar[str]
    takes: ClassVar[frozenset[str]] = _UPDATES
    specs: type[AttackSpec] = AttackSpec

    def __init__(self, path: Path, given: Mapping[str, object]) -> None:
        self.path = path
        fields = fields_of(AttackSpec)
        for name in given:
            if name not in self.takes:
                flag, of = fields[name].flag, _OF.get(name, "captured updates")
                raise BadInputError(f"{flag} is of {of}; leave out {flag} for {self.words}.")
        self.spec = self.specs.of(**given)
        torch.set_num_threads(self.spec.threads)

    @staticmethod
    @abstractmethod
    def reads(path: Path) -> bool:
        """Return whether a path holds a capture of this kind."""

    @abstractmethod
    def attack(self, out: Path, listener: Listener) -> CaptureResult:
        """Attack the capture.

        Args:
            out: folder of the results; nothing in it is replaced.
        """

    def schema(self, what: str) -> Schema:
        """Return the schema of the client's table; ``what`` begins its error message, such as "tree files are"."""
        if self.spec.schema_file is None:
            raise BadInputError(f"Missing option '--schema': {what} read with the schema of the client's table.")
        return Schema.load(self.spec.schema_file)

    def table(self, path: Path | None, schema: Schema) -> Table | None:
        """Return a table of the client's schema; None without a file."""
        return None if path is None else Table.read(path, schema, self.spec.separator, missing=None)


class TranscriptFolder(CapturedSource):
    """The folder of a transcript of split or vertical training."""

    words = "a transcript"
    takes = _COMMON | {"model", "attacks", "known"}

    def __init__(self, path: Path, given: Mapping[str, object]) -> None:
        vertical = read_about(path / TRANSCRIPT).setting == "vertical"
        self.specs = VerticalTranscriptSpec if vertical else SplitTranscriptSpec
        super().__init__(path, given)

    @staticmethod
    def reads(path: Path) -> bool:
        """Return whether a folder holds a transcript."""
        return is_transcript(path)

    def attack(self, out: Path, listener: Listener) -> CaptureResult:
        """Run the named attacks on the transcript, or all attacks that can be tried."""
        spec = self.spec
        training = read_transcript(self.path, None if spec.schema_file is None else Schema.load(spec.schema_file))
        attack = TranscriptAttack(
            training, spec.model, spec.attacks, spec.data, spec.known, spec.truth, spec.separator, spec.seed, spec.gate
        )
        check_new(out, (RESULTS, RECONSTRUCTION))
        findings = attack.run(listener.started)
        return CaptureResult(
            findings, findings.attacked, findings.to_plain(), {RECONSTRUCTION: findings.reconstruction}
        )


class TreeFiles(CapturedSource):
    """A client's trees as xgboost's JSON, or a folder with those of its rounds."""

    words = "tree files"
    takes = _COMMON | {"batch_size", "regularisation", "learning_rate"}
    specs = TreeFilesSpec

    @staticmethod
    def reads(path: Path) -> bool:
        """Return whether a path is a tree file, or a folder of them and of no other captures."""
        return is_tree_file(path)

    def attack(self, out: Path, listener: Listener) -> CaptureResult:
        """Read the files, and guess the client's rows."""
        spec, schema = self.spec, self.schema("tree files are")
        check_new(out, (RECONSTRUCTION, RESULTS))
        if spec.batch_size is not None:
            check_count("batch_size", spec.batch_size)
        public = self.table(spec.data, schema)
        if public is None:
            raise BadInputError(
                "cells that trees do not tell are drawn from public rows of the same kind; give some with --data FILE."
            )
        findings = read_trees(
            load_tree_files(self.path, schema.width),
            schema,
            Statistics.of(public),
            spec.batch_size,
            spec.regularisation,
            spec.learning_rate,
            spec.seed,
            self.table(spec.truth, schema),
            spec.gate,
        )
        guessed = frame_of(schema, findings.guess.cells[0])
        return CaptureResult(findings, findings.attacked, findings.to_plain(), {RECONSTRUCTION: guessed})


class UpdateFolder(CapturedSource):
    """A folder of the updates of many clients and rounds."""

    words = "a folder of updates"
    takes = _UPDATES | {"holds"}

    def __init__(self, path: Path, given: Mapping[str, object]) -> None:
        super().__init__(path, given)
        for name, value in (("--model", self.spec.model), ("--schema", self.spec.schema_file)):
            if value is None:
                raise BadInputError(
                    f"Missing option '{name}': captured updates are attacked with their model and schema."
                )
        attacks = [part.title for part in self.spec.attacks]
        if len(attacks) > 1:
            raise BadInputError(
                f"captured updates are read by one attack, got {' and '.join(attacks)}; name one, and the others in "
                "further commands with an --out of their own."
            )
        part = self.spec.attacks[0] if attacks else None
        self.name = "unmix" if part is None else part.name
        self.options = {**self._options(), **({} if part is None else part.options)}

    @staticmethod
    def reads(path: Path) -> bool:
        """Return whether a path is a folder."""
        return path.is_dir()

    def _options(self) -> dict[str, Any]:
        """Return the options that the spec sets; the attack itself refuses those that it does not take."""
        spec, factory = self.spec, registry.attacks.of("horizontal")[self.name].factory
        profiled = spec.profile != "default" or "profile" in inspect.signature(factory).parameters
        limits = {"restarts": spec.restarts, "iterations": spec.iterations}
        options: dict[str, Any] = {"profile": spec.profile} if profiled else {}
        options |= {name: value for name, value in limits.items() if value is not None}
        return options | (PROOFS_ONLY if spec.proofs_only else {})

    @property
    def federation_attack(self) -> FederationAttack:
        """The attack with the options of the spec."""
        spec = self.spec
        assert spec.model is not None
        return FederationAttack(
            spec.model,
            self.schema("captured updates are"),
            self.name,
            self.options,
            reference=spec.data,
            device=find_device(spec.device),
            **{name: getattr(spec, name) for name in _SHARED},
        )

    def attack(self, out: Path, listener: Listener) -> CaptureResult:
        """Attack every update, and link the rounds of each client."""
        attack = self.federation_attack
        check_new(out, (RESULTS, PAGE))
        for file in find_captures(self.path, self.spec.weights):
            check_new(out / file.name)
        findings = attack.run(self.path, listener, lambda name, update: write_recovered(out / name, update))
        return CaptureResult(findings, findings.attacked, findings.to_plain(), {}, incomplete=findings.incomplete)


class UpdateFile(UpdateFolder):
    """One captured update."""

    words = "one update"
    takes = _UPDATES | {"certificate", "open_certificate"}

    @staticmethod
    def reads(path: Path) -> bool:
        """Return whether a path is no folder."""
        return not path.is_dir()

    def attack(self, out: Path, listener: Listener) -> CaptureResult:
        """Attack the update, and write a certificate where one is asked for."""
        spec, written = self.spec, None
        check_new(out, (*FILES, PAGE))
        if spec.certificate is not None:
            check_new_certificate(spec.certificate)
        listener.begin(1.0, jobs=1)
        recovered = self.federation_attack.update(self.path, spec.weights, spec.truth, listener.advance)
        if spec.certificate is not None:
            view, opened = recovered.capture.view, spec.open_certificate
            written = write_certificate(
                spec.certificate, recovered.guess, view, recovered.schema, recovered.statistics, opened=opened
            )
        return CaptureResult(recovered, recovered.attacked, recovered.to_plain(), recovered.tables, written)


# The first that reads a path counts.
KINDS: tuple[type[CapturedSource], ...] = (TranscriptFolder, TreeFiles, UpdateFolder, UpdateFile)


def open_source(path: Path, given: Mapping[str, object]) -> CapturedSource:
    """Return the capture at a path with the spec of the attack on it."""
    return next(kind for kind in KINDS if kind.reads(path))(path, given)
