"""Captures on disk: each kind is read by its setting's reader, and attacked by the fields of its spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from seepage.attacking.controls import with_control
from seepage.attacking.federation import FederationAttack
from seepage.attacking.run import Attacked, labelled, run_parts
from seepage.attacking.updates import FILES, check_new, write_recovered
from seepage.attacks.horizontal.exact.certifying import WrittenCertificate, check_new_certificate, write_certificate
from seepage.captures.captured import read_description
from seepage.captures.folder import find_captures
from seepage.captures.trees import is_tree_file
from seepage.errors import BadInputError
from seepage.files import check_file
from seepage.run.runner import Listener
from seepage.settings.captured import NO_EXCHANGE, RECONSTRUCTION, CapturedAudit, CapturedSpec, Reader
from seepage.settings.catalogue import settings
from seepage.settings.findings import Findings
from seepage.settings.horizontal.read import FolderSpec, UpdateSpec, UpdatesSpec
from seepage.settings.option import SpecField
from seepage.tabular.schema import Schema
from seepage.text import listed

PAGE, RESULTS = "report.html", FILES[2]


@dataclass(frozen=True)
class CaptureResult:
    """The results of an attack on a capture; ``incomplete`` ones lack an update that could not be attacked."""

    findings: Findings
    attacked: Attacked | None
    certificate: WrittenCertificate | None = None
    incomplete: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of capture: what it is, the fields of its spec, and an attack on a path.

    The attack works into a folder in which nothing is replaced; without one nothing is written.
    """

    words: str
    reads: Callable[[Path], bool]
    spec: type[CapturedSpec]
    attack: Callable[[Path, Any, Path | None, Listener], CaptureResult]
    check: Callable[[Path, Path | None], object]


def kinds() -> list[Kind]:
    """Return the kinds of captures, of which the first that reads a path counts."""
    readers = [plugin.reader for plugin in reversed(settings().values()) if plugin.reader is not None]
    return [*map(_kind_of_reader, readers), *_OF_UPDATES]


def options() -> list[tuple[type[CapturedSpec], SpecField]]:
    """Return the fields that any kind of capture takes, each with the first spec that has it."""
    fields: dict[str, tuple[type[CapturedSpec], SpecField]] = {}
    for kind in reversed(kinds()):
        fields = {**{name: (kind.spec, described) for name, described in kind.spec.taken().items()}, **fields}
    return list(fields.values())


def attack_capture(path: Path, **given: object) -> CaptureResult:
    """Attack the capture at a path by the fields of its spec, and write nothing.

    Raises:
        BadInputError: files or fields cannot be used.
    """
    _check_format(path)
    kind = next(kind for kind in kinds() if kind.reads(path))
    return kind.attack(path, kind.spec.of(**labelled(given)), None, Listener())


def open_source(path: Path, given: Mapping[str, object], out: Path | None) -> Callable[[Listener], CaptureResult]:
    """Return the attack on the capture at a path into a folder, by the fields of the spec that are given.

    What is wrong with the files is said before what is wrong with the options.
    """
    _check_format(path)
    kind = next(kind for kind in kinds() if kind.reads(path))
    wrong = _wrong_options(kind, given, out)
    if wrong is not None:
        _check_named({name: given[name] for name in given if name in kind.spec.taken()})
        kind.check(path, cast("Path | None", given.get("schema_file")))
        raise BadInputError(wrong)
    spec = kind.spec.of(**labelled(given))
    torch.set_num_threads(spec.threads)
    return partial(kind.attack, path, spec, out)


def _wrong_options(kind: Kind, given: Mapping[str, object], out: Path | None) -> str | None:
    """Return what is wrong with the options that are given for a kind of capture, if anything is."""
    fields = {described.name: described for _, described in options()}
    for name in given:
        if name not in kind.spec.taken():
            flag = fields[name].flag
            of = listed(list(dict.fromkeys(other.words for other in kinds() if name in other.spec.taken())))
            return f"{flag} is of {of}; leave out {flag} for {kind.words}."
    if "gate" in given and "truth" not in given:
        return "a gate judges what is read beside the truth; give it with --truth, or leave it out."
    lacking = {fields[name].flag: why for name, why in kind.spec.needs.items() if name not in given}
    if out is None:
        lacking["--out"] = "results are written to a folder"
    if not lacking:
        return None
    flags = ", ".join(f"'{flag}'" for flag in lacking)
    return f"Missing option{'s'[: len(lacking) - 1]} {flags}: {'; '.join(dict.fromkeys(lacking.values()))}."


def _check_named(given: Mapping[str, object]) -> None:
    """Refuse files that are named by options and are not there."""
    flags = {described.name: described.flag for _, described in options()}
    for name, file in given.items():
        if isinstance(file, Path) and name in flags and not file.exists() and name != "certificate":
            raise BadInputError(f"the file {str(file)!r} of {flags[name]} does not exist; name one.")


def _check_format(path: Path) -> None:
    """Refuse a file that is no capture, before options of captures are asked for."""
    if not path.exists():
        raise BadInputError(f"the capture {str(path)!r} does not exist; give the path of one.")
    if path.is_dir() or path.suffix == ".safetensors" or is_tree_file(path):
        return
    check_file(path, f"the capture {str(path)!r}")
    with path.open("rb") as file:
        # A file of safetensors begins with the length of its header in JSON, in eight bytes.
        begins = file.read(9)
    if begins[8:] != b"{":
        raise BadInputError(
            f"{str(path)!r} is in no format that is read: captured updates are .safetensors, client's trees xgboost's "
            "JSON (Booster.save_model), and folders transcripts and messages of federated statistics. Pickled files "
            "(.pkl, .pt) are never opened, since they can run code: save the tensors with "
            "safetensors.torch.save_file. LightGBM's files are not read."
        )


def _kind_of_reader(reader: Reader) -> Kind:
    """Return the kind of capture of a setting's reader."""

    def attack(path: Path, spec: CapturedSpec, out: Path | None, listener: Listener) -> CaptureResult:
        if out is not None:
            check_new(out, (RESULTS, RECONSTRUCTION))
        attacked = run_parts(CapturedAudit(spec, reader.read(path, spec)), listener.started)
        attacked = with_control(attacked, spec, listener.started)
        return CaptureResult(attacked.findings, attacked)

    return Kind(reader.words, reader.reads, reader.spec, attack, reader.check)


def _on_updates(spec: UpdatesSpec) -> FederationAttack:
    """Return the attack on captured updates by a spec."""
    assert spec.model is not None
    assert spec.schema_file is not None
    return FederationAttack(spec.model, Schema.load(spec.schema_file), spec)


def _attack_folder(path: Path, spec: FolderSpec, out: Path | None, listener: Listener) -> CaptureResult:
    """Attack the updates of many clients and rounds, and link the rounds of each client."""
    attack = _on_updates(spec)
    if out is not None:
        check_new(out, (RESULTS, PAGE))
        for file in find_captures(path, spec.weights):
            check_new(out / file.name)
    keep = None if out is None else lambda name, update: write_recovered(out / name, update)
    federation = attack.run(path, listener, keep)
    return CaptureResult(federation.findings, federation.attacked, incomplete=federation.incomplete)


def _attack_update(path: Path, spec: UpdateSpec, out: Path | None, listener: Listener) -> CaptureResult:
    """Attack one update, and write a certificate where one is asked for."""
    attack, written = _on_updates(spec), None
    if out is not None:
        check_new(out, (*FILES, PAGE))
    if spec.certificate is not None:
        check_new_certificate(spec.certificate)
    listener.begin(1.0, jobs=1)
    recovered = attack.update(path, spec.weights, spec.truth, listener.advance)
    recovered.attacked.audit.no_negative = NO_EXCHANGE
    if spec.certificate is not None:
        view, opened = recovered.capture.view, spec.open_certificate
        written = write_certificate(
            spec.certificate, recovered.guess, view, recovered.schema, recovered.statistics, opened=opened
        )
    return CaptureResult(recovered.findings, recovered.attacked, written)


_OF_UPDATES = (
    Kind("a folder of updates", Path.is_dir, FolderSpec, _attack_folder, lambda path, _: find_captures(path)),
    Kind("one update", lambda _: True, UpdateSpec, _attack_update, lambda path, _: read_description(path)),
)
