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
from seepage.captures.recovery import (
    FILES,
    Recovered,
    check_new,
    write_recovered,
)
from seepage.captures.spec import (
    PROOFS_ONLY,
    AttackSpec,
    SplitTranscriptSpec,
    TreeFilesSpec,
    VerticalTranscriptSpec,
)
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
_EVERY = frozenset({"schema_file", "data", "truth", "separator", "seed", "device", "threads", "allow_large", "gate"})
_UPDATES = _EVERY | {"model", "weights", "head", "model_seed", "dropout", "batch_size", "attacks", "proofs_only"}
_UPDATES |= {"restore_labels", "profile", "restarts", "iterations"}


@dataclass(frozen=True)
class Found:
    """What a capture gave away.

    Attributes:
        findings: findings of its kind.
        attacked: the same as an audit; None where nothing could be attacked.
        plain: what goes beside the rows of results, as JSON values.
        tables: tables that are written, by name of the file.
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
    """A capture on disk with what is to be done.

    Args:
        path: file or folder.
        given: fields of the spec that were given.

    Attributes:
        words: words for it, in messages.
        takes: names of the fields of the spec that are of use for it.
        specs: class of the spec.

    Raises:
        BadInputError: a value cannot be used, or a field is of another kind of capture.
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
        """Return whether a path is of this kind."""

    @abstractmethod
    def attack(self, out: Path, listener: Listener) -> Found:
        """Attack the capture.

        Args:
            out: folder of the results; nothing in it is replaced.
            listener: object that is informed of the progress.

        Raises:
            BadInputError: the capture cannot be read or attacked, or the folder holds results.
        """

    def schema(self, what: str) -> Schema:
        """Return the schema of the client's table.

        Args:
            what: words for what is read with it.
        """
        if self.spec.schema_file is None:
            raise BadInputError(f"Missing option '--schema': {what} read with the schema of the client's table.")
        return Schema.load(self.spec.schema_file)

    def table(self, path: Path | None, schema: Schema) -> Table | None:
        """Return a table of the client's schema; None without a file."""
        return None if path is None else Table.read(path, schema, self.spec.separator, missing=None)


class TranscriptFolder(CapturedSource):
    """The folder of a transcript of split or vertical training."""

    words = "a transcript"
    takes = _EVERY | {"model", "attacks", "known"}

    def __init__(self, path: Path, given: Mapping[str, object]) -> None:
        vertical = read_about(path / TRANSCRIPT).setting == "vertical"
        self.specs = VerticalTranscriptSpec if vertical else SplitTranscriptSpec
        super().__init__(path, given)

    @staticmethod
    def reads(path: Path) -> bool:
        """Return whether a folder holds a transcript."""
        return is_transcript(path)

    def attack(self, out: Path, listener: Listener) -> Found:
        """Attack the transcript with all attacks that are named, or that can be tried."""
        spec = self.spec
        training = read_transcript(self.path, None if spec.schema_file is None else Schema.load(spec.schema_file))
        made = TranscriptAttack(
            training, spec.model, spec.attacks, spec.data, spec.known, spec.truth, spec.separator, spec.seed, spec.gate
        )
        check_new(out, (RESULTS, RECONSTRUCTION))
        found = made.run(listener.started)
        return Found(found, found.attacked, found.to_plain(), {RECONSTRUCTION: found.reconstruction})


class TreeFiles(CapturedSource):
    """A client's trees as xgboost's JSON, or a folder with those of its rounds."""

    words = "tree files"
    takes = _EVERY | {"batch_size", "regularisation", "learning_rate"}
    specs = TreeFilesSpec

    @staticmethod
    def reads(path: Path) -> bool:
        """Return whether a path is a tree file, or a folder of them and of no other captures."""
        return is_tree_file(path)

    def attack(self, out: Path, listener: Listener) -> Found:
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
        found = read_trees(
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
        guessed = frame_of(schema, found.guess.cells[0])
        return Found(found, found.attacked, found.to_plain(), {RECONSTRUCTION: guessed})


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
        """Return what was asked for; each attack says itself what it does not take."""
        spec, factory = self.spec, registry.attacks.of("horizontal")[self.name].factory
        profiled = spec.profile != "default" or "profile" in inspect.signature(factory).parameters
        asked = {"restarts": spec.restarts, "iterations": spec.iterations}
        found: dict[str, Any] = {"profile": spec.profile} if profiled else {}
        found |= {name: value for name, value in asked.items() if value is not None}
        return found | (PROOFS_ONLY if spec.proofs_only else {})

    @property
    def made(self) -> FederationAttack:
        """The attack."""
        spec = self.spec
        assert spec.model is not None
        return FederationAttack(
            spec.model,
            self.schema("captured updates are"),
            self.name,
            self.options,
            reference=spec.data,
            truth=spec.truth,
            weights=spec.weights,
            batch_size=spec.batch_size,
            holds=spec.holds,
            head=spec.head,
            separator=spec.separator,
            device=find_device(spec.device),
            seed=spec.seed,
            restore_labels=spec.restore_labels,
            allow_large=spec.allow_large,
            model_seed=spec.model_seed,
            dropout=spec.dropout,
            gate=spec.gate,
        )

    def attack(self, out: Path, listener: Listener) -> Found:
        """Attack every update, and link the rounds of each client."""
        made = self.made
        check_new(out, (RESULTS, PAGE))
        for file in find_captures(self.path, self.spec.weights):
            check_new(out / file.name)
        found = made.run(self.path, listener, lambda name, recovered: write_recovered(out / name, recovered))
        return Found(found, found.attacked, found.to_plain(), {}, incomplete=found.incomplete)


class UpdateFile(UpdateFolder):
    """One captured update."""

    words = "one update"
    takes = _UPDATES | {"certificate", "open_certificate"}

    @staticmethod
    def reads(path: Path) -> bool:
        """Return whether a path is no folder."""
        return not path.is_dir()

    def attack(self, out: Path, listener: Listener) -> Found:
        """Attack the update, and write a certificate where one is asked for."""
        spec, written = self.spec, None
        check_new(out, (*FILES, PAGE))
        if spec.certificate is not None:
            check_new_certificate(spec.certificate)
        listener.begin(1.0, jobs=1)
        found = self.made.update(self.path, spec.weights, spec.truth, listener.advance)
        if spec.certificate is not None:
            view, opened = found.capture.view, spec.open_certificate
            written = write_certificate(
                spec.certificate, found.guess, view, found.schema, found.statistics, opened=opened
            )
        return Found(found, found.attacked, found.to_plain(), found.tables, written)


# The first that reads a path counts.
KINDS: tuple[type[CapturedSource], ...] = (TranscriptFolder, TreeFiles, UpdateFolder, UpdateFile)


def open_source(path: Path, given: Mapping[str, object]) -> CapturedSource:
    """Return the capture at a path, with what is to be done.

    Args:
        path: file or folder.
        given: fields of the spec that were given.

    Raises:
        BadInputError: a value cannot be used, or a field is of another kind of capture.
    """
    return next(kind for kind in KINDS if kind.reads(path))(path, given)
