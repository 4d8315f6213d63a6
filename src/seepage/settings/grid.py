"""What an audit consists of: settings (a point of the sweep and an attack or baseline) and groups of their victims."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seepage.assessment import Metric
from seepage.attacks.horizontal.matching.over_rounds import OverRounds
from seepage.attacks.horizontal.matching.reconstruct import ROWS_AT_ONCE
from seepage.errors import BadInputError
from seepage.learning import batch_statistics
from seepage.models.batch_norm import Moments, normalisations
from seepage.protocols.clients import Clients
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import takes
from seepage.run.job import Job
from seepage.run.store import digest_of
from seepage.seeds import stream
from seepage.settings.code import foreign_code, own_code
from seepage.settings.device import find_device
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.part import Part
from seepage.settings.parts import registry
from seepage.settings.subject import Subject
from seepage.versions import installed
from seepage.wire.horizontal import AnyView, Knowledge, View
from seepage.wire.secret import Transcript

# Victims of a group: enough to share a product's cost at small batch sizes, few enough that little is lost by a kill.
_GROUP = {"cpu": 8, "cuda": 64}
_BASELINE_GROUP = 16


@dataclass(frozen=True)
class Setting:
    """One attack or baseline at one point of the sweep.

    Attributes:
        spec, subject: whose it is.
        batch_size: records behind one gradient.
        defense: what the clients do to their updates, as the spec names it.
        protocol: what the parties do, ready to run; it knows the defense.
        part: the attack or baseline as the spec names it.
        is_attack: which of the two.
        made: it, ready to run.
        configuration: all its arguments.
        key: a digest of everything that determines its figures.
        identity: what the key stands for.
        group: victims that are attacked together.
    """

    spec: HorizontalSpec
    subject: Subject
    batch_size: int
    defense: Part
    protocol: Clients[View]
    part: Part
    is_attack: bool
    made: Callable[..., Any]
    configuration: dict[str, Any]
    key: str
    identity: dict[str, Any]
    group: int

    @property
    def called(self) -> str:
        """What to call it before people."""
        under = "" if self.defense.called == "none" else f", {self.defense.called}"
        variant = "" if self.spec.variant is None else f"{self.spec.variant}: "
        return f"{variant}{self.part.called} at batch size {self.batch_size}{under}"

    def groups(self, held: set[int]) -> list[range]:
        """Return the groups that hold a victim of the spec which is not measured yet.

        Their bounds depend on nothing else, and a group is always attacked whole, also where the spec asks
        for fewer victims: so the figures of a victim are the same, to the last bit, whatever was asked for
        and measured before.
        """
        wanted = range(0, self.spec.victims, self.group)
        groups = [range(begin, begin + self.group) for begin in wanted]
        return [group for group in groups if any(v not in held for v in group if v < self.spec.victims)]

    def job(self, victims: Sequence[int]) -> Job:
        """Return the job of attacking these victims; the client's rows are read here and stay here."""
        transcript = self.transcript(victims)
        purpose = "starts" if self.is_attack else "baseline"
        return Job(
            key=self.key,
            first=victims[0],
            made=self.made,
            is_attack=self.is_attack,
            transcript=transcript,
            granted=self.granted(transcript),
            seeds=tuple(stream(self.spec.seed, victim, purpose) for victim in victims),
            keep_records=self.spec.keep_records or not self.subject.own,
            metrics=_metrics(self.spec),
        )

    def transcript(self, victims: Sequence[int]) -> Transcript[AnyView]:
        """Return what crosses the wire for these victims, and the secret behind it."""
        spec, subject = self.spec, self.subject
        seeds, guarding = (
            [stream(spec.seed, victim, purpose) for victim in victims] for purpose in ("batch", "defense")
        )
        rows, encoder = subject.dataset.train, subject.encoder
        if _in_rounds(subject, self.protocol):
            return self.protocol.run_rounds([subject.model, *subject.later], rows, encoder, seeds, guarding)
        return self.protocol.run(subject.model, rows, encoder, seeds, guarding)

    def granted(self, transcript: Transcript) -> dict[str, Any]:
        """Return what the attacker knows beside schema and statistics, arguments of ``Knowledge``."""
        secret = transcript.secret
        labels = secret.labels if secret.used is None else secret.labels.gather(1, secret.used.flatten(1))
        known = self._granted(None if self.spec.labels == "restored" else labels)
        if self._grants_statistics:
            encoder = self.subject.encoder
            found = batch_statistics(self.subject.model, encoder.encode(secret.cells.to(encoder.mean.device)))
            known["batch_statistics"] = {name: Moments(*(t.cpu() for t in moments)) for name, moments in found.items()}
        return known

    @property
    def _grants_statistics(self) -> bool:
        granted = self.is_attack and self.spec.batch_statistics == "granted"
        return granted and bool(normalisations(self.subject.model.module))

    def _granted(self, labels: Tensor | None) -> dict[str, Any]:
        known = self.protocol.known()
        ordered = self.spec.labels == "ordered"
        return {"batch_size": self.protocol.records, "labels": labels, "defense": known, "ordered": ordered}

    def settings(self) -> dict[str, Any]:
        """Return how it was configured, for results."""
        spec = self.spec
        return {
            "profile": spec.profile if self.is_attack else None,
            "replacement": spec.replacement,
            "protocol_options": spec.protocol_options,
            "model_seed": spec.seed if spec.model_seed is None else spec.model_seed,
            "device": find_device(spec.device).type,
            "threads": spec.threads,
            "configuration": self.configuration,
        }

    def knowledge(self) -> dict[str, Any]:
        """Return what the attacker was granted, for results."""
        labels = None if self.spec.labels == "restored" else torch.zeros(1, self.protocol.records)
        dataset = self.subject.dataset
        granted = self._granted(labels)
        if self._grants_statistics:
            granted["batch_statistics"] = {}
        known = Knowledge(dataset.schema, dataset.statistics, **granted)
        described = {"sees": self._sees, **known.describe()}
        # A guess would be the same with other labels.
        return described if self.is_attack else {**described, "labels": "not used"}

    @property
    def _sees(self) -> str:
        if not _in_rounds(self.subject, self.protocol):
            return self.protocol.sees
        rounds, held = 1 + len(self.subject.later), self.protocol.holds
        batch = "" if held == self.protocol.batch_size else f", a batch drawn anew from the {held} that a client holds"
        return f"{self.protocol.sees}, in {rounds} round(s) of the same clients{batch}"


def _in_rounds(subject: Subject, protocol: Clients[View]) -> bool:
    return bool(subject.later) or protocol.holds > protocol.batch_size


def settings(spec: HorizontalSpec, subject: Subject) -> list[Setting]:
    """Return the settings of an audit, baselines before attacks at each point.

    Raises:
        BadInputError: an attack, baseline or defense does not take its arguments.
    """
    made = []
    baselines = [(part, False, registry.baselines.create(part.name, **part.options)) for part in spec.baselines]
    attacks = [(part, True, _make_attack(spec, part)) for part in spec.attacks]
    guards = [(part, registry.defenses.create(part.name, **part.options)) for part in spec.defenses]
    for batch_size in spec.batch_sizes:
        for defense, guard in guards:
            protocol = registry.protocols.create(
                spec.protocol,
                batch_size=batch_size,
                replacement=spec.replacement,
                defense=guard,
                **spec.protocol_options,
            )
            if spec.labels == "ordered" and getattr(protocol, "shuffle", True):
                raise BadInputError(
                    f"labels are to be granted in the order of the client's records, but clients of the protocol "
                    f"{spec.protocol!r} have none that they keep; grant them as 'true', or have clients of 'fedavg' "
                    "not shuffle (shuffle: false)."
                )
            if spec.batch_statistics == "granted" and _in_rounds(subject, protocol):
                raise BadInputError(
                    "batch statistics are those of one round's batch, but several rounds, or batches of a larger "
                    "holding, are attacked; leave them hidden, or attack one round of whole holdings."
                )
            if spec.batch_statistics == "granted" and not isinstance(protocol, FedSGD):
                raise BadInputError(
                    f"batch statistics are those of one batch, but clients of protocol {spec.protocol!r} go through "
                    "several; leave them hidden, or use 'fedsgd'."
                )
            for part, is_attack, one in (*baselines, *attacks):
                made.append(_setting(spec, subject, batch_size, defense, protocol, part, is_attack, one))
    return made


def _setting(
    spec: HorizontalSpec,
    subject: Subject,
    batch_size: int,
    defense: Part,
    protocol: Clients[View],
    part: Part,
    is_attack: bool,
    made: Callable[..., Any],
) -> Setting:
    kind = registry.attacks if is_attack else registry.baselines
    configuration = _configuration(made, part)
    identity = {
        "version": installed("seepage"),
        "code": {**own_code(), "plugin": foreign_code(kind[part.name].factory)},
        "dataset": {"name": subject.dataset.name, "rows": subject.rows_digest},
        "model": {"name": subject.model.name, "parameters": subject.model_digest},
        "protocol": {"name": spec.protocol, "replacement": spec.replacement, **spec.protocol_options},
        "batch_size": batch_size,
        "defense": {"name": defense.name, **plain(protocol.defense)},
        "attack" if is_attack else "baseline": {"name": part.name, **configuration},
        "labels": spec.labels if is_attack else None,
        "batch_statistics": spec.batch_statistics if is_attack else None,
        "seed": spec.seed,
        "device": find_device(spec.device).type if is_attack else None,
        "threads": spec.threads,
        "records": spec.keep_records,
        "metrics": [plain(metric) for metric in _metrics(spec)],
    }
    key = digest_of(identity)
    group = _BASELINE_GROUP
    if is_attack:
        # What an attack optimises together anyway.
        fit = ROWS_AT_ONCE[find_device(spec.device).type] // (int(getattr(made, "restarts", 1)) * protocol.records)
        group = max(1, min(fit, _GROUP[find_device(spec.device).type]))
        if _in_rounds(subject, protocol):
            made = OverRounds(made)
    return Setting(
        spec, subject, batch_size, defense, protocol, part, is_attack, made, configuration, key, identity, group
    )


def _metrics(spec: HorizontalSpec) -> tuple[Metric, ...]:
    return tuple(registry.metrics.create(part.name, **part.options) for part in spec.metrics)


def _make_attack(spec: HorizontalSpec, part: Part) -> Callable[..., Any]:
    factory = registry.attacks[part.name].factory
    options: dict[str, Any] = {}
    # A factory that passes any argument on may not know a profile, so it is told of none but another one.
    if "profile" in inspect.signature(factory).parameters or (spec.profile != "default" and takes(factory, "profile")):
        options["profile"] = spec.profile
    if spec.iterations is not None and takes(factory, "iterations"):
        options["iterations"] = spec.iterations
    made = registry.attacks.create(part.name, **{**options, **part.options})
    # An attack defined by its single start would be another attack with several.
    several = getattr(made, "restarts", 1) > 1 and takes(factory, "restarts")
    if spec.restarts is not None and several and "restarts" not in part.options:
        made = registry.attacks.create(part.name, **{**options, "restarts": spec.restarts, **part.options})
    return made


def _configuration(made: object, part: Part) -> dict[str, Any]:
    """Return all arguments of an attack or baseline, defaults included where it is an object."""
    return {"options": plain(part.options)} if inspect.isfunction(made) else plain(made)


def plain(value: Any) -> Any:
    """Return a part and all its arguments as JSON values, equal for equal parts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__qualname__, **fields}
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor | np.ndarray):
        return [list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]]
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    # Never repr(): by default it holds an address, which differs from run to run.
    inner = {name: plain(item) for name, item in sorted(getattr(value, "__dict__", {}).items())}
    return {"kind": type(value).__qualname__, **inner}
