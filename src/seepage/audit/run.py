"""The runner: every attack and baseline against the same victims, in chunks that are kept as they finish."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from seepage.assessment import Measured, match_records, measure
from seepage.attacks.gradient.parts.reconstruct import ROWS_AT_ONCE
from seepage.audit.code import foreign_code, own_code
from seepage.audit.examples import Example, examples
from seepage.audit.parts import registry
from seepage.audit.seeds import stream
from seepage.audit.spec import AuditSpec, Part
from seepage.audit.store import Store
from seepage.audit.subject import Subject
from seepage.audit.versions import installed
from seepage.guesses import RecordsGuess
from seepage.knowledge import Knowledge
from seepage.transcript import Transcript

_BASELINE_VICTIMS_AT_ONCE = 64


class Listener:
    """Told how an audit gets on; this one ignores it."""

    def begin(self, work: float) -> None:
        """Called once, with the sum of the work of all victims."""

    def setting(self, batch_size: int, attack: str, done: int, victims: int) -> None:
        """Called before each chunk: what is attacked and how many of its victims are done."""

    def advance(self, work: float) -> None:
        """Called now and then with the work done since the last call."""


@dataclass(frozen=True)
class Run:
    """What one attack or baseline got out of the victims of one setting.

    Attributes:
        batch_size: records behind one gradient.
        called: name of the attack or baseline in results.
        is_attack: whether it saw the gradient.
        measured: its scores.
        victims: number of victims.
        seconds: mean time an attack took for a victim; None for baselines.
        settings: how it was configured.
        knowledge: what the attacker was granted.
    """

    batch_size: int
    called: str
    is_attack: bool
    measured: list[Measured]
    victims: int
    seconds: float | None
    settings: dict[str, Any]
    knowledge: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """All runs of an audit, baselines before attacks at each batch size, and example reconstructions."""

    runs: list[Run] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class _Job:
    """One attack or baseline at one batch size."""

    index: int
    batch_size: int
    part: Part
    is_attack: bool
    made: Callable[..., Any]
    configuration: dict[str, Any]
    key: str
    setting: dict[str, Any]

    @property
    def restarts(self) -> int:
        return int(getattr(self.made, "restarts", 1))

    @property
    def cost(self) -> float:
        """Relative time a victim takes."""
        if not self.is_attack:
            return 0.0
        descent = getattr(self.made, "descent", None)
        return float(self.restarts * max(self.batch_size, 4) * getattr(descent, "iterations", 1))


def check_audit(spec: AuditSpec, subject: Subject, store: Store) -> None:
    """Try every setting of an audit that has victims left to measure, without keeping anything.

    Each attack is started on the first victim and stopped at its first sign of progress; one that
    gives no sign runs to its end.

    Args:
        spec: what to do.
        subject: the rows and the model.
        store: holds what was measured before.

    Raises:
        BadInputError: a setting cannot be run (the batch is larger than the data, an option is unknown,
            labels cannot be restored, ...).
    """
    torch.set_num_threads(spec.threads)
    for job in _jobs(spec, subject):
        if any(_chunks(spec, job, store)):
            _try(spec, subject, job)


def run_audit(
    spec: AuditSpec, subject: Subject, store: Store, listener: Listener | None = None, *, checked: bool = False
) -> Outcome:
    """Run what of an audit is not in the store yet, and return all of it.

    Args:
        spec: what to do.
        subject: the rows and the model.
        store: holds what was measured before and keeps what is measured now.
        listener: told about the progress.
        checked: whether ``check_audit`` has passed already; else it is called first.

    Raises:
        BadInputError: a setting cannot be run. Every setting is tried first, so that a bad one stops
            the audit before anything is kept.
    """
    if not checked:
        check_audit(spec, subject, store)
    torch.set_num_threads(spec.threads)
    listener = listener or Listener()
    jobs = _jobs(spec, subject)
    chunks = {job.index: list(_chunks(spec, job, store)) for job in jobs}
    listener.begin(sum((job.cost * len(chunk) for job in jobs for chunk in chunks[job.index]), 0.0))
    shown: list[Example] = []
    for job in jobs:
        for chunk in chunks[job.index]:
            listener.setting(job.batch_size, job.part.called, chunk.start, spec.victims)
            shown.extend(_attack(spec, subject, job, chunk, store, listener))
    return Outcome([_run(spec, subject, job, store, spec.victims) for job in jobs], shown)


def held_runs(spec: AuditSpec, subject: Subject, store: Store) -> list[Run]:
    """Return what the store holds of an audit, without running anything: of each part its first victims."""
    runs = []
    for job in _jobs(spec, subject):
        held = store.victims(job.key)
        victims = next((i for i in range(spec.victims) if i not in held), spec.victims)
        if victims:
            runs.append(_run(spec, subject, job, store, victims))
    return runs


def _run(spec: AuditSpec, subject: Subject, job: _Job, store: Store, victims: int) -> Run:
    held = store.victims(job.key)
    return Run(
        batch_size=job.batch_size,
        called=job.part.called,
        is_attack=job.is_attack,
        measured=store.measured(job.key, victims),
        victims=victims,
        seconds=sum(held[i].seconds for i in range(victims)) / victims if job.is_attack else None,
        settings=_settings(spec, job),
        knowledge=_knowledge(spec, subject, job),
    )


class _Started(Exception):  # noqa: N818 - no error: it ends a trial
    """An attack has begun its search."""


def _try(spec: AuditSpec, subject: Subject, job: _Job) -> None:
    """Start an attack on the first victim and stop it as soon as it reports progress."""

    def stop(_: float) -> None:
        raise _Started

    transcript = _transcript(spec, subject, job.batch_size, range(1))
    if job.is_attack:
        with contextlib.suppress(_Started):
            _guess(job, transcript, _granted(spec, subject, job.batch_size, transcript), [0], stop)


def _guess(
    job: _Job,
    transcript: Transcript,
    knowledge: Knowledge,
    seeds: Sequence[int],
    progress: Callable[[float], None],
) -> RecordsGuess:
    reports = job.is_attack and _takes(job.made, "progress")
    return job.made(transcript.view, knowledge, seeds, **({"progress": progress} if reports else {}))


def _takes(made: Callable[..., Any], argument: str) -> bool:
    """Return whether a callable has such an argument, by name or because it takes any."""
    parameters = inspect.signature(made).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _granted(spec: AuditSpec, subject: Subject, batch_size: int, transcript: Transcript) -> Knowledge:
    labels = transcript.secret.labels if spec.labels == "true" else None
    return Knowledge(subject.dataset.schema, subject.dataset.statistics, batch_size, labels)


def _attack(
    spec: AuditSpec, subject: Subject, job: _Job, chunk: range, store: Store, listener: Listener
) -> list[Example]:
    """Attack one chunk of victims, keep their scores and return examples if the first victim is among them."""
    dataset = subject.dataset
    transcript = _transcript(spec, subject, job.batch_size, chunk)
    knowledge = _granted(spec, subject, job.batch_size, transcript)
    seeds = [stream(spec.seed, victim, "starts" if job.is_attack else "baseline") for victim in chunk]
    reported = 0.0

    def progress(share: float) -> None:
        nonlocal reported
        reported += share
        listener.advance(share * job.cost * len(chunk))

    begun = time.perf_counter()
    guess = _guess(job, transcript, knowledge, seeds, progress)
    seconds = (time.perf_counter() - begun) / len(chunk)
    # An attack may report nothing, or stop early.
    listener.advance(max(0.0, 1 - reported) * job.cost * len(chunk))
    measured = measure(dataset.schema, dataset.statistics, transcript.secret, guess)
    losses = None if guess.loss is None else guess.loss.tolist()
    store.add(job.key, job.setting, chunk.start, measured, seconds, losses)
    if not job.is_attack or chunk.start > 0:
        return []
    matched = match_records(dataset.schema, dataset.statistics, transcript.secret, guess)
    return examples(matched, dataset.name, subject.model.name, job.batch_size, job.part.called)


def _transcript(spec: AuditSpec, subject: Subject, batch_size: int, victims: Sequence[int]) -> Transcript:
    protocol = registry.protocols.create(spec.protocol, batch_size=batch_size, replacement=spec.replacement)
    seeds = [stream(spec.seed, victim, "batch") for victim in victims]
    return protocol.run(subject.model, subject.dataset.train, subject.encoder, seeds)


def _jobs(spec: AuditSpec, subject: Subject) -> list[_Job]:
    jobs = []
    baselines = [(part, False, registry.baselines.create(part.name, **part.options)) for part in spec.baselines]
    attacks = [(part, True, _make_attack(spec, part)) for part in spec.attacks]
    for batch_size in spec.batch_sizes:
        for part, is_attack, made in (*baselines, *attacks):
            kind = registry.attacks if is_attack else registry.baselines
            configuration = _configuration(made, part)
            setting = {
                "version": installed("seepage"),
                "code": {**own_code(), "plugin": foreign_code(kind[part.name].factory)},
                "dataset": {"name": subject.dataset.name, "rows": subject.rows_digest},
                "model": {"name": subject.model.name, "parameters": subject.model_digest},
                "protocol": {"name": spec.protocol, "replacement": spec.replacement},
                "batch_size": batch_size,
                "attack" if is_attack else "baseline": {"name": part.name, **configuration},
                "labels": spec.labels if is_attack else None,
                "seed": spec.seed,
                "device": spec.where.type if is_attack else None,
                "metrics": [_plain(entry.factory()) for entry in registry.metrics.entries()],
            }
            text = json.dumps(setting, sort_keys=True)
            key = hashlib.sha256(text.encode()).hexdigest()[:16]
            jobs.append(_Job(len(jobs), batch_size, part, is_attack, made, configuration, key, setting))
    return jobs


def _make_attack(spec: AuditSpec, part: Part) -> Callable[..., Any]:
    factory = registry.attacks[part.name].factory
    options: dict[str, Any] = {}
    # A factory that passes any argument on may not know a profile, so it is told of none but another one.
    if "profile" in inspect.signature(factory).parameters or (spec.profile != "default" and _takes(factory, "profile")):
        options["profile"] = spec.profile
    if spec.iterations is not None and _takes(factory, "iterations"):
        options["iterations"] = spec.iterations
    made = registry.attacks.create(part.name, **{**options, **part.options})
    # An attack defined by its single start would be another attack with several.
    several = getattr(made, "restarts", 1) > 1 and _takes(factory, "restarts")
    if spec.restarts is not None and several and "restarts" not in part.options:
        made = registry.attacks.create(part.name, **{**options, "restarts": spec.restarts, **part.options})
    return made


def _chunks(spec: AuditSpec, job: _Job, store: Store) -> list[range]:
    """Return runs of victims that are not in the store; their bounds do not depend on what is."""
    if job.is_attack:
        # What an attack optimises together anyway, and a few seconds' work between two writes to the store.
        size = max(1, ROWS_AT_ONCE[spec.where.type] // (job.restarts * job.batch_size))
    else:
        size = _BASELINE_VICTIMS_AT_ONCE
    held = store.victims(job.key)
    chunks = []
    for begin in range(0, spec.victims, size):
        chunk = range(begin, min(begin + size, spec.victims))
        missing = [victim for victim in chunk if victim not in held]
        if missing:
            chunks.append(range(missing[0], missing[-1] + 1))
    return chunks


def _configuration(made: object, part: Part) -> dict[str, Any]:
    """Return all arguments of an attack or baseline, defaults included where it is an object."""
    return {"options": _plain(part.options)} if inspect.isfunction(made) else _plain(made)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__qualname__, **fields}
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor | np.ndarray):
        return [list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]]
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    # Never repr(): by default it holds an address, which differs from run to run.
    inner = {name: _plain(item) for name, item in sorted(getattr(value, "__dict__", {}).items())}
    return {"kind": type(value).__qualname__, **inner}


def _settings(spec: AuditSpec, job: _Job) -> dict[str, Any]:
    return {
        "profile": spec.profile if job.is_attack else None,
        "replacement": spec.replacement,
        "model_seed": spec.seed if spec.model_seed is None else spec.model_seed,
        "device": spec.where.type,
        "configuration": job.configuration,
    }


def _knowledge(spec: AuditSpec, subject: Subject, job: _Job) -> dict[str, Any]:
    granted = torch.zeros(1, job.batch_size) if spec.labels == "true" else None
    described = Knowledge(subject.dataset.schema, subject.dataset.statistics, job.batch_size, granted).describe()
    # A guess would be the same with other labels.
    return described if job.is_attack else {**described, "labels": "not used"}
