"""Captures on disk: an update, a folder of updates, a transcript and tree files are kinds of one source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import torch

from seepage import registry
from seepage.attacks.horizontal.exact.certifying import WrittenCertificate, check_new_certificate, write_certificate
from seepage.attacks.trees.files import Hessians, LeafCounts, Thresholds
from seepage.captures.audit import ReadRecords, RecordsExposure, run_parts
from seepage.captures.captured import read_description
from seepage.captures.federation import FederationAttack, FederationFindings, find_captures
from seepage.captures.recovery import FILES, Recovered, check_new, write_recovered
from seepage.captures.spec import PROOFS_ONLY, SPECS, AttackSpec, TreeFilesSpec
from seepage.captures.transcript_attacks import TranscriptAttack, TranscriptFindings
from seepage.captures.transcripts import TRANSCRIPT, read_about, read_transcript
from seepage.devices import find_device
from seepage.digests import Json, plain
from seepage.errors import BadInputError, check_count
from seepage.files import check_file, read_bytes
from seepage.protocols.recipe import DeclaredLoss
from seepage.run.runner import Listener
from seepage.settings.catalogue import settings
from seepage.settings.option import fields_of
from seepage.settings.setting import About
from seepage.settings.trees.audit import METRICS, TREES_SCALES
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from seepage.text import clean
from seepage.wire.forest import Forest, read_forest
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.trees import FileMessage, TreeFilesView, TreesKnowledge

# Bytes of a file that a program writes, with all records or trees.
_MOST_BYTES = 2**30
SUFFIX = ".json"
# Weights of a file that was grown with this recipe add up within this share.
_RECIPE = 1e-3
# Thresholds of a column that are shown at most.
_SHOWN = 4


def is_tree_file(path: Path) -> bool:
    """Return whether a path is a tree file in JSON, or a folder of them and of no other captures."""
    if path.is_dir():
        return any(path.glob(f"*{SUFFIX}")) and not any(path.glob("*.safetensors"))
    return path.suffix == SUFFIX


def _forests(path: Path) -> dict[Path, Forest]:
    """Return the trees of one xgboost file in JSON, or of all files of a folder by name."""
    forests = {}
    for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
        try:
            forests[file] = read_forest(read_bytes(file, f"the tree file {str(file)!r}", _MOST_BYTES), repr(str(file)))
        except OSError as error:
            raise BadInputError(f"the tree file {str(file)!r} cannot be read: {error}.") from error
    return forests


def load_tree_files(path: Path, columns: int) -> FileMessage:
    """Return the trees of a client: those of one xgboost file in JSON, or of all files of a folder by name."""
    by_file = _forests(path)
    files, forests = list(by_file), list(by_file.values())
    for file, forest in by_file.items():
        if forest.columns != columns:
            raise BadInputError(
                f"{str(file)!r} has trees of {forest.columns} columns, but the schema encodes {columns}: numbers as "
                "they are, a column of 0 and 1 for each category; give the schema that the client trained with."
            )
        if (forest.objective, forest.outputs) != (forests[0].objective, forests[0].outputs):
            raise BadInputError(f"{str(file)!r} learns another target than {str(files[0])!r}; give files of one run.")
        if not forest.trees:
            raise BadInputError(f"{str(file)!r} has no tree; give the model after a round of boosting.")
    trees = tuple(tree for forest in forests for tree in forest.trees)
    outputs = forests[0].outputs
    if len(trees) % outputs:
        raise BadInputError(
            f"the files have {len(trees)} trees of {outputs} classes each round; give whole rounds of one client."
        )
    forest = replace(forests[0], trees=trees, rounds=tuple(range(outputs, len(trees) + 1, outputs)))
    return FileMessage(forest, tuple(range(len(trees))), tuple(t // outputs * outputs for t in range(len(trees))))


def read_trees(
    message: FileMessage, schema: Schema, statistics: Statistics, truth: Table | None, spec: AttackSpec
) -> tuple[ReadRecords, RecordsGuess]:
    """Attack the tree files of a client, the first of which was grown from the base score.

    The figures are the number of rows of each class in every leaf of the first tree, where it is known, thresholds by
    column, and the sums of second derivatives of every node of each tree, None where unknown.
    """
    regularisation, learning_rate, seed = spec.regularisation, spec.learning_rate, spec.seed
    classes = schema.target.width if isinstance(schema.target, Discrete) else None
    if classes != message.forest.labels:
        trees, target = ("numbers" if n is None else f"{n} classes" for n in (message.forest.labels, classes))
        raise BadInputError(
            f"the trees learn {trees}, but the schema's target {schema.target.name!r} has {target}; give the client's "
            "schema."
        )
    _check_recipe(message, regularisation, learning_rate)
    count = _count(message) if spec.batch_size is None else spec.batch_size
    knowledge = TreesKnowledge(schema, statistics, count, regularisation=regularisation, learning_rate=learning_rate)
    view = TreeFilesView((message,))
    counted, listed = LeafCounts()(view, knowledge, [seed]).leaves, Thresholds()(view, knowledge, [seed]).values
    sums = Hessians()(view, knowledge, [seed]).hessians
    assert counted is not None
    assert listed is not None
    assert sums is not None
    leaves = counted[0][0] if counted[0] else np.zeros((0, 1))
    exact = np.isfinite(leaves).all()
    exposure = RecordsExposure(view, knowledge, seed, [seed], truth, "trees", METRICS)
    if truth is not None and len(truth) != count:
        raise BadInputError(
            f"the truth has {len(truth)} rows, but the trees were grown on {count}; give the rows of the same client."
        )
    facts = About(
        "tree files",
        "bagging",
        f"xgboost ({len(message.own)} trees)",
        lead="What the tree files of a client give away of the rows that they were grown on.",
        message="the tree files",
        size="client size",
        threat_model=(
            "The attacker is whoever receives the files. It has the client's schema, the marginals of public rows and "
            "the recipe of the trees.",
        ),
        scales=TREES_SCALES,
        settings={"seed": seed},
    )
    done = TreeFilesSpec.of(attacks=("timberstrike",), seed=seed, gate=spec.gate)
    granted = cast("Mapping[str, Json]", plain(knowledge.describe()))
    attacked = run_parts(exposure.audit(done, facts, knowledge=granted))
    assert exposure.guess is not None
    counts = [[int(value) for value in np.rint(row)] for row in leaves] if exact else []
    points = [f"rows of each class in the first tree's {len(counts)} leaves are known exactly"] if counts else []
    for name, values in listed[0].items():
        some = ", ".join(f"{value:g}" for value in values[:_SHOWN]) + ", ..." * (len(values) > _SHOWN)
        points.append(f"{clean(name, 32)}: {len(values)} values of its rows: {some}")
    figures = {
        "records": count,
        "leaf_counts": counts,
        "thresholds": {name: values.tolist() for name, values in listed[0].items()},
        "sum_hessian": [[None if value != value else value for value in tree.tolist()] for tree in sums[0]],
    }
    title = f"{len(sums[0])} trees of a client with {count} rows"
    return ReadRecords(attacked, title, (), tuple(points), figures), exposure.guess


def _check_recipe(message: FileMessage, regularisation: float, learning_rate: float) -> None:
    """Refuse lambda and eta with which the first derivatives of children do not add up to their parent's."""
    for tree in message.forest.trees:
        if tree.hessian is None or tree.weight is None:
            continue
        scaled = np.where(tree.left < 0, tree.condition.astype(np.float64) / learning_rate, tree.weight)
        slopes = scaled * (tree.hessian + regularisation)
        inner = np.flatnonzero(tree.left >= 0)
        apart = np.abs(slopes[tree.left[inner]] + slopes[tree.right[inner]] - slopes[inner])
        if len(inner) and float(apart.max()) > _RECIPE * float(np.abs(slopes).max() + 1):
            raise BadInputError(
                f"with lambda {regularisation:g} and eta {learning_rate:g} the weights of a tree's nodes do not add up "
                "to those of their parents; give --regularisation and --learning-rate as the client trained."
            )


def _count(message: FileMessage) -> int:
    tree, forest = message.forest.trees[0], message.forest
    if tree.hessian is None:
        raise BadInputError(
            "the first tree has no 'sum_hessian', so that the number of rows does not follow; give --batch-size, which "
            "clients report to the server."
        )
    of_row = float(forest.gradients(forest.intercept[None], np.zeros(1))[0, 0, 1])
    count = tree.hessian[0] / of_row
    if abs(count - round(count)) > 0.05 or round(count) < 1:
        raise BadInputError(
            f"the first tree was grown on {count:.4g} rows by its sums, which is no whole number: it builds on earlier "
            "trees, or rows have weights; give the client's first file, or --batch-size."
        )
    return round(count)


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
_UPDATES |= {"loss", "restore_labels", "profile", "restarts", "iterations"}
_OF_A_TRANSCRIPT = _COMMON | {"model", "attacks", "known"}
_OF_TREES = _COMMON | {"batch_size", "regularisation", "learning_rate"}
# Fields of a spec that are fields of an attack in Python, too.
_OF_TRANSCRIPTS = ("model", "attacks", "data", "known", "truth", "separator", "seed", "gate")
_SHARED = ("truth", "weights", "batch_size", "holds", "head", "separator", "seed", "restore_labels", "allow_large")
_SHARED += ("model_seed", "dropout", "gate")


@dataclass(frozen=True)
class CaptureResult:
    """The results of an attack on a capture, with tables to write by the name of their file."""

    findings: Recovered | FederationFindings | TranscriptFindings | ReadRecords
    tables: Mapping[str, pd.DataFrame]
    certificate: WrittenCertificate | None = None
    incomplete: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of capture. An attack works on a path, by a spec and into a folder in which nothing is replaced.

    ``check`` refuses files that are no capture of this kind; it takes the schema's file, too. ``needs`` has the fields
    that have to be given, and what each is for.
    """

    words: str
    reads: Callable[[Path], bool]
    setting: str | None  # None where the capture says it
    takes: frozenset[str]
    attack: Callable[[Path, AttackSpec, Path, Listener], CaptureResult]
    check: Callable[[Path, Path | None], object]
    needs: Mapping[str, str] = field(default_factory=dict)
    spec: type[AttackSpec] | None = None  # None for those of ``SPECS``


def open_source(path: Path, given: Mapping[str, object], out: Path | None) -> Callable[[Listener], CaptureResult]:
    """Return the attack on the capture at a path into a folder, by the fields of the spec that are given.

    What is wrong with the files is said before what is wrong with the options.
    """
    _check_format(path)
    kind = next(kind for kind in (*of_settings(), *KINDS) if kind.reads(path))
    specs = kind.spec or SPECS[kind.setting or read_about(path / TRANSCRIPT).setting]
    wrong = _wrong_options(kind, given, out)
    if wrong is not None:
        _check_named({name: given[name] for name in given if name in kind.takes})
        kind.check(path, cast("Path | None", given.get("schema_file")))
        raise BadInputError(wrong)
    spec = specs.of(**given)
    torch.set_num_threads(spec.threads)
    assert out is not None
    return partial(kind.attack, path, spec, out)


def _wrong_options(kind: Kind, given: Mapping[str, object], out: Path | None) -> str | None:
    """Return what is wrong with the options that are given for a kind of capture, if anything is."""
    fields = fields_of(AttackSpec)
    for name in given:
        if name not in kind.takes:
            flag, of = fields[name].flag, _OF.get(name, "captured updates")
            return f"{flag} is of {of}; leave out {flag} for {kind.words}."
    if "gate" in given and "truth" not in given:
        return "a gate judges what is read beside the truth; give it with --truth, or leave it out."
    lacking = {fields[name].flag: why for name, why in kind.needs.items() if name not in given}
    if out is None:
        lacking["--out"] = "results are written to a folder"
    if not lacking:
        return None
    flags = ", ".join(f"'{flag}'" for flag in lacking)
    return f"Missing option{'s'[: len(lacking) - 1]} {flags}: {'; '.join(dict.fromkeys(lacking.values()))}."


def _check_named(given: Mapping[str, object]) -> None:
    """Refuse files that are named by options and are not there."""
    for name in ("schema_file", "weights", "data", "known", "truth"):
        file = given.get(name)
        if isinstance(file, Path) and not file.exists():
            raise BadInputError(
                f"the file {str(file)!r} of {fields_of(AttackSpec)[name].flag} does not exist; name one."
            )


def of_settings() -> Iterator[Kind]:
    """Yield the kinds of captures that settings name when they are registered."""
    for setting in settings().values():
        if setting.captures_at is not None:
            yield cast("Kind", setting.captures)


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


def _attack_transcript(path: Path, spec: AttackSpec, out: Path, listener: Listener) -> CaptureResult:
    """Run the named attacks on a transcript, or all attacks that can be tried."""
    training = read_transcript(path, None if spec.schema_file is None else Schema.load(spec.schema_file))
    attack = TranscriptAttack(training, **{name: getattr(spec, name) for name in _OF_TRANSCRIPTS})
    check_new(out, (RESULTS, RECONSTRUCTION))
    findings = attack.run(listener.started)
    return CaptureResult(findings, {RECONSTRUCTION: findings.reconstruction})


def _attack_trees(path: Path, spec: AttackSpec, out: Path, listener: Listener) -> CaptureResult:
    """Read a client's trees, one file or those of its rounds, and guess the client's rows."""
    assert spec.schema_file is not None
    assert spec.data is not None
    schema = Schema.load(spec.schema_file)
    check_new(out, (RECONSTRUCTION, RESULTS))
    if spec.batch_size is not None:
        check_count("batch_size", spec.batch_size)
    public = Table.read(spec.data, schema, spec.separator, missing=None)
    message = load_tree_files(path, schema.width)
    truth = None if spec.truth is None else Table.read(spec.truth, schema, spec.separator, missing=None)
    findings, guess = read_trees(message, schema, Statistics.of(public), truth, spec)
    return CaptureResult(findings, {RECONSTRUCTION: frame_of(schema, guess.cells[0])})


def _on_updates(spec: AttackSpec) -> FederationAttack:
    """Return the attack on captured updates with the options of a spec."""
    assert spec.model is not None
    assert spec.schema_file is not None
    if len(spec.attacks) > 1:
        raise BadInputError(
            f"captured updates are read by one attack, got {' and '.join(part.title for part in spec.attacks)}; name "
            "one, and the others in further commands with an --out of their own."
        )
    name = spec.attacks[0].name if spec.attacks else "unmix"
    factory = registry.attacks.of("horizontal")[name].factory
    profiled = spec.profile != "default" or "profile" in inspect.signature(factory).parameters
    # The attack itself refuses options that it does not take.
    options: dict[str, Json] = {"profile": spec.profile} if profiled else {}
    limits = {"restarts": spec.restarts, "iterations": spec.iterations}
    options |= {limit: value for limit, value in limits.items() if value is not None}
    options |= (PROOFS_ONLY if spec.proofs_only else {}) | (dict(spec.attacks[0].options) if spec.attacks else {})
    return FederationAttack(
        spec.model,
        Schema.load(spec.schema_file),
        name,
        options,
        reference=spec.data,
        device=find_device(spec.device),
        loss=None if spec.loss is None else DeclaredLoss(**spec.loss.model_dump()),
        **{name: getattr(spec, name) for name in _SHARED},
    )


def _attack_folder(path: Path, spec: AttackSpec, out: Path, listener: Listener) -> CaptureResult:
    """Attack the updates of many clients and rounds, and link the rounds of each client."""
    attack = _on_updates(spec)
    check_new(out, (RESULTS, PAGE))
    for file in find_captures(path, spec.weights):
        check_new(out / file.name)
    findings = attack.run(path, listener, lambda name, update: write_recovered(out / name, update))
    return CaptureResult(findings, {}, incomplete=findings.incomplete)


def _attack_update(path: Path, spec: AttackSpec, out: Path, listener: Listener) -> CaptureResult:
    """Attack one update, and write a certificate where one is asked for."""
    attack, written = _on_updates(spec), None
    check_new(out, (*FILES, PAGE))
    if spec.certificate is not None:
        check_new_certificate(spec.certificate)
    listener.begin(1.0, jobs=1)
    recovered = attack.update(path, spec.weights, spec.truth, listener.advance)
    if spec.certificate is not None:
        view, opened = recovered.capture.view, spec.open_certificate
        written = write_certificate(
            spec.certificate, recovered.guess, view, recovered.schema, recovered.statistics, opened=opened
        )
    return CaptureResult(recovered, recovered.tables, written)


_OF_CLIENTS: dict[str, str] = dict.fromkeys(
    ("model", "schema_file"), "captured updates are attacked with their model and schema"
)
_FOR_TREES = {
    "schema_file": "tree files are read with the schema of the client's table",
    "data": "cells that trees do not tell are drawn from public rows of the same kind",
}
# The first that reads a path counts.
KINDS = (
    Kind(
        "a transcript", lambda at: (at / TRANSCRIPT).exists(), None, _OF_A_TRANSCRIPT, _attack_transcript,
        lambda at, schema: read_transcript(at, None if schema is None else Schema.load(schema)),
    ),
    Kind("tree files", is_tree_file, "trees", _OF_TREES, _attack_trees, lambda at, _: _forests(at), _FOR_TREES),
    Kind(
        "a folder of updates", Path.is_dir, "horizontal", _UPDATES | {"holds"}, _attack_folder,
        lambda at, _: find_captures(at), _OF_CLIENTS,
    ),
    Kind(
        "one update", lambda _: True, "horizontal", _UPDATES | {"certificate", "open_certificate"}, _attack_update,
        lambda at, _: read_description(at), _OF_CLIENTS,
    ),
)  # fmt: skip
