"""Horizontal federated learning: the server reads the gradients or updates that clients send."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Metric
from seepage.assessment.gain import References, as_plain, from_plain
from seepage.assessment.membership import membership_figures
from seepage.assessment.row import ResultRow
from seepage.assessment.three_questions import Population, Questions, check_quasi_identifiers
from seepage.assessment.visible import visible
from seepage.attacks.horizontal.matching.over_rounds import OverRounds
from seepage.attacks.horizontal.matching.reconstruct import ROWS_AT_ONCE
from seepage.attacks.horizontal.membership import GradientMembership
from seepage.devices import find_device
from seepage.digests import Json, arguments_of, plain
from seepage.errors import BadInputError
from seepage.learning import batch_statistics
from seepage.models.batch_norm import Moments, keeps_statistics, normalisations, statistics_sent
from seepage.packages import installed
from seepage.protocols.clients import Clients
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import takes
from seepage.seeds import stream
from seepage.settings.guessing import AttackedSecret, entry_in, measure
from seepage.settings.horizontal.facts import threat_model
from seepage.settings.horizontal.probe import look
from seepage.settings.horizontal.reference import draws_of, measured_references
from seepage.settings.horizontal.spec import BatchStatistics, HorizontalSpec, make_spec
from seepage.settings.horizontal.subject import Subject, keep_networks, prepare, subject_of
from seepage.settings.horizontal.tasks import learnt_rows, planned_protocol, task_rows
from seepage.settings.lever import Lever
from seepage.settings.outcomes import attacked_records
from seepage.settings.part import Part, entry_of, make_part, named, source_of
from seepage.settings.setting import (
    About,
    Audit,
    Cache,
    Configuration,
    Exposure,
    Given,
    Outcome,
    PlannedPart,
    Probe,
    Progress,
    TaskTraining,
)
from seepage.settings.threat_model import Deployment, granted, mechanisms, refuse_inapplicable
from seepage.settings.units import CONTROL_UNITS, Tables, facts_of, table_origin, with_fields
from seepage.sources import own_code
from seepage.text import how_many
from seepage.wire.horizontal import AnyView, GradientView, Knowledge, RecordsGuess, UpdateView, View
from seepage.wire.membership import MembershipGuess
from seepage.wire.secret import RecordsSecret, Transcript

# Victims of a group: enough to share a product's cost at small batch sizes, few enough that little is lost by a kill.
# One looks at multiples of five, so that these sizes waste no victim.
_GROUPS = {"cpu": (5, 1), "cuda": (40, 20, 10, 5, 1)}
# A table with so many disjoint batches at most is split into them: of more, the default number of victims is a tenth.
_FEW_BATCHES = 400
# Bytes that a search takes for each number of its rows, measured.
_BYTES = 110

# Ends of what a recommendation searches: records of a message, which attacks read in seconds, and local epochs.
_MOST_RECORDS, _MOST_EPOCHS = 64, 16
# Name of the test of membership in results.
MEMBERSHIP = "membership"
_FEDAVG: Mapping[str, object] = {"protocol": "fedavg"}

Attack = Callable[..., RecordsGuess]
# Entries of an encoded row from which fast exact attacks are run beside the others.
_WIDE = 200
_NETWORK = "wide"
# Cells of one record each. With fewer than these a baseline may be right in all of them by chance.
_CELLS = 60
_FEWEST, _MOST = CONTROL_UNITS, 20


class HorizontalAudit(Audit[HorizontalSpec]):
    """An audit of gradients or updates; a unit is one victim, a batch or client with one message a round."""

    setting = "horizontal"
    shared = False
    nothing_to_add = MappingProxyType({"inverting_gradients": "unmix"})

    def __init__(self, spec: HorizontalSpec, subject: Subject, swapped: bool = False) -> None:
        self.spec, self.subject, self.swapped = spec, subject, swapped
        self.dataset, self.own, self.inferred = subject.dataset, subject.own, subject.inferred
        self.metrics = tuple(cast("Metric", make_part(registry.metrics, part)) for part in spec.metrics)
        baselines = registry.baselines.of("horizontal")
        self.instances: dict[str, Attack] = {part.title: make_part(baselines, part) for part in spec.baselines}
        self.instances |= {part.title: _attack(spec, part) for part in spec.attacks}
        test = [PlannedPart(Part(name=MEMBERSHIP, options={"non_members": spec.non_members}), "about")]
        self.membership = GradientMembership()
        deployed = replace(deployment(spec), model=subject.model.name)
        refuse_inapplicable(spec.attacks, deployed, spec.baselines)
        attacked = [PlannedPart(part, "baseline") for part in spec.baselines]
        attacked += [PlannedPart(part, "attack") for part in spec.attacks]
        self.parts = (*(test if spec.non_members else []), *attacked)
        self._protocols = dict(_protocols(spec, subject))
        self.configurations = tuple(self._protocols)
        self.about = self._about()

    def _about(self) -> About:
        spec, subject = self.spec, self.subject
        messages = "the gradient" if spec.attacked_rounds == 1 else f"the gradients of {spec.attacked_rounds} rounds"
        return About(
            **facts_of(subject.dataset, rows=len(subject.dataset.train)),
            protocol=spec.protocol,
            model=subject.model.name,
            lead="What an honest-but-curious participant learns about the records behind an update.",
            attacker="The server",
            sender="A client",
            secret="all cells",
            message=messages,
            control="The gradient of a single record in the control's network holds that record, so a working attack "
            "reads nearly all of it.",
            rounds=spec.attacked_rounds,
            utility=("task_accuracy", "task_rmse"),
            without_dropout=subject.model.switched_off,
            limits=(self._conditional(),),
        )

    def _conditional(self) -> str:
        """Return a sentence on the one network that all victims are sent, which victims' intervals say nothing of."""
        drawn = self.spec.weights is None and self.subject.learnt is None and self.spec.model in registry.models.names()
        if drawn:
            return (
                "These figures hold for one random initialisation, the same for all victims. Repeat with another "
                "--model-seed."
            )
        return "These figures hold for this network, the same for all victims."

    @property
    def usual_attacks(self) -> tuple[str, ...]:
        """Registered names of the attacks that this audit runs where nobody names any."""
        return (*(part.name for part in fast_attacks(self.subject)), *super().usual_attacks)

    @property
    def where(self) -> str:
        """The kind of device that computes: ``cpu`` or ``cuda``."""
        return find_device(self.spec.device).type

    @property
    def origin(self) -> Mapping[str, Json]:
        """Digests of the table and the network that distinguish them from others."""
        dataset, model = self.subject.dataset, self.subject.model
        network: Json = {"name": model.name, "head": model.head, "digest": self.subject.model_digest}
        return {**table_origin(dataset, len(dataset.train), self.subject.rows_digest), "model": network}

    def threat_model(self) -> tuple[str, ...]:
        """Return the threat model and the set-up, a sentence each."""
        attack = next((part for part in self.parts if part.kind == "attack"), None)
        granted = {} if attack is None else {c.defense: self.granted(c, attack) for c in self.configurations}
        ran = [self.protocol(configuration) for configuration in self.configurations]
        together = sorted({protocol.batch_size * protocol.clients for protocol in ran})
        batches = {protocol.records: self.batches(c) for c, protocol in zip(self.configurations, ran, strict=True)}
        return threat_model(self.spec, self.subject, granted, together, batches)

    def protocol(self, configuration: Configuration) -> Clients[View]:
        """Return the protocol of a configuration."""
        return self._protocols[configuration][1]

    def identity(self, configuration: Configuration, part: PlannedPart) -> dict[str, Json]:
        """Return everything that determines the figures of a part, as JSON values."""
        spec, subject = self.spec, self.subject
        defense, protocol = self._protocols[configuration]
        is_attack = part.kind == "attack"
        kind = registry.attacks.of("horizontal") if is_attack else registry.baselines.of("horizontal")
        identity = {
            "version": installed("seepage"),
            "code": {
                **own_code(),
                "plugin": None if part.kind == "about" else source_of(kind, part.part),
                "defense": source_of(registry.defenses.of("horizontal"), defense),
            },
            "dataset": {"name": subject.dataset.name, "rows": subject.rows_digest},
            "model": {"name": subject.model.name, "parameters": subject.model_digest},
            "protocol": {"name": spec.protocol, "replacement": spec.replacement, **spec.protocol_options},
            "batch_size": configuration.batch_size,
            "defense": {"name": defense.name, **arguments_of(protocol.defense)},
            part.kind: {"name": part.part.name, **self._arguments(part)},
            "labels": spec.labels if is_attack else None,
            "batch_statistics": self._statistics(protocol) if is_attack else None,
            "auxiliary": plain(subject.public),
            "seed": spec.seed,
            **({} if (batches := self.batches(configuration)) is None else {"batches": batches}),
            "device": find_device(spec.device).type if is_attack else None,
            "threads": spec.threads,
            "records": spec.keep_records,
            "metrics": [plain(metric) for metric in self.metrics],
            "questions": [list(spec.quasi_identifiers), list(self.about.sensitive)],
        }
        return {**identity, "swapped": True} if self.swapped else identity

    def instance(self, part: PlannedPart) -> Attack:
        """Return an attack or a baseline, ready to use."""
        return self.instances.get(part.label) or _attack(self.spec, part.part)

    def exact(self, part: PlannedPart) -> bool:
        """Return whether a part is an attack that solves for records in place of fitting them."""
        return part.kind == "attack" and entry_in(self.setting, part).traits.exact

    def group(self, configuration: Configuration, part: PlannedPart) -> int:
        """Return the number of victims that are attacked together."""
        if part.kind != "attack":
            return _GROUPS["cpu"][0]
        # What an attack optimises together anyway.
        restarts = int(registry.argument(self.instance(part), "restarts", 1))
        fit = ROWS_AT_ONCE[self.where] // (restarts * self.protocol(configuration).records)
        return next((group for group in _GROUPS[self.where] if group <= fit), 1)

    def memory(self, configuration: Configuration, part: PlannedPart) -> int:
        """Return the bytes of a search from all random starts at once, or of the client's own pass over its batch."""
        restarts = int(registry.argument(self.instance(part), "restarts", 1)) if part.kind == "attack" else 1
        rows = self.group(configuration, part) * restarts * self.protocol(configuration).records
        return rows * self.subject.encoder.width * _BYTES

    def expose(self, configuration: Configuration, units: range) -> HorizontalExposure:
        """Return the messages of some victims, and the secret behind them."""
        spec, subject, protocol = self.spec, self.subject, self.protocol(configuration)
        seeds, guarding = ([stream(spec.seed, unit, purpose) for unit in units] for purpose in ("batch", "defense"))
        transcript = self._transcript(protocol, seeds, guarding, self._disjoint(configuration, units))
        granted = self._granted_of(protocol, transcript)
        if self.swapped:
            others = [stream(spec.seed, unit, "negative control") for unit in units]
            other = self._transcript(protocol, others, guarding)
            granted = self._granted_of(protocol, other)
            transcript = replace(transcript, view=other.view)
        schema, statistics = subject.dataset.schema, subject.dataset.statistics
        knowledge = Knowledge(schema, statistics, **granted)
        # What only an attacker is granted is no baseline's business.
        plainly = Knowledge(schema, statistics, **{k: v for k, v in granted.items() if k != "batch_statistics"})
        return HorizontalExposure(self, configuration, units, transcript, knowledge, plainly)

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        protocol = self.protocol(configuration)
        labels = None if self.spec.labels == "restored" else torch.zeros(1, protocol.records)
        granted = self._granted(protocol, labels)
        if part.kind == "attack" and self._grants_statistics(protocol):
            granted["batch_statistics"] = {}
        knowledge = Knowledge(self.subject.dataset.schema, self.subject.dataset.statistics, **granted)
        described = {"sees": self._sees(configuration), **knowledge.describe()}
        # A baseline would be the same with other labels.
        return described if part.kind == "attack" else {**described, "labels": "not used"}

    def options(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return how a part was configured, for results."""
        spec = self.spec
        return {
            "profile": spec.profile if part.kind == "attack" else None,
            "replacement": spec.replacement,
            "protocol_options": spec.protocol_options,
            "model_seed": spec.seed if spec.model_seed is None else spec.model_seed,
            "device": find_device(spec.device).type,
            "threads": spec.threads,
            "configuration": self._arguments(part),
        }

    def control(self) -> HorizontalAudit:
        """Return the positive control: one record behind each gradient of a wide network, see ``settings.control``."""
        return control_of(self)

    def negative(self) -> HorizontalAudit:
        """Return the negative control: as the positive one, but each message is that of other records."""
        control = control_of(self)
        spec = with_fields(control.spec, {"variant": "negative control"})
        return HorizontalAudit(spec, control.subject, swapped=True)

    def levers(self) -> tuple[Lever, ...]:
        """Return noise, sparser messages, larger batches, more clients in an aggregate and more local steps."""
        [size] = self.spec.batch_sizes[:1]
        # A message about more than a quarter of the rows would leave few to draw other victims from.
        most = min(max(_MOST_RECORDS, 2 * size), len(self.subject.dataset.train) // 4)
        return (
            Lever("dp_sgd", 1e-2, 10.0, options={"clip_norm": 1.0}, strengths=(("noise_multiplier",),)),
            Lever("gaussian_noise", 1e-3, 1.0, strengths=(("scale",),)),
            Lever("top_k", 0.5, 1e-3, strengths=(("share",),)),
            Lever("sign", 1, 1),
            *([Lever("batch_size", size, most, True, spec_field="batch_sizes")] if most > size else []),
            *([Lever("aggregation", 1, most // size, True, strengths=(("clients",),))] if most >= 2 * size else []),
            Lever("epochs", 1, _MOST_EPOCHS, True, spec_field="protocol_options", key="epochs", beside=_FEDAVG),
        )

    def probe(self) -> Probe:
        """Return facts on the network's behaviour on some of the client's rows."""
        return look(self.spec, self.subject)

    def further_rows(
        self, cache: Cache, say: Callable[[str], None], training: TaskTraining | None = None
    ) -> list[ResultRow]:
        """Return rows for the task under each defense, and for the attacked network."""
        spec, learnt = self.spec, learnt_rows(self.spec, self.subject)
        if training is None:
            return [*task_rows(spec, self.subject, cache, say), *learnt]
        if training.recipe is None:
            return learnt
        if training.configurations:
            sizes = {configuration.batch_size for configuration in training.configurations}
            labels = {configuration.defense for configuration in training.configurations}
            some_sizes = tuple(size for size in spec.batch_sizes if size in sizes)
            some_defenses = tuple(part for part in spec.defenses if part.title in labels)
            narrowed = spec.model_copy(update={"batch_sizes": some_sizes, "defenses": some_defenses})
            task_rows(narrowed, self.subject, cache, say, training.recipe)
        return [*task_rows(spec, self.subject, cache, say, training.recipe, train=False), *learnt]

    def references(self, cache: Cache, say: Callable[[str], None]) -> Mapping[int | None, References]:
        """Return what baselines get right of batches that no attack sees; none of controls and of several rounds."""
        if self.spec.variant is not None:
            return {}
        baselines = [part for part in self.parts if part.kind == "baseline"]
        by_size: dict[int | None, References] = {}
        for configuration, (_, protocol) in self._protocols.items():
            # Under a defense baselines get the same.
            if configuration.batch_size in by_size or _in_rounds(self.subject, protocol) or not baselines:
                continue

            def measure(place: Configuration = configuration) -> object:
                say(f"baselines at batch size {place.batch_size}")
                return as_plain(measured_references(self, place, baselines))

            identity: list[Json] = [self.identity(configuration, part) for part in baselines]
            draws = draws_of(protocol.records)
            stored = cache({"references": identity, "draws": draws, "seed": self.spec.seed}, measure)
            if stored is not None:
                by_size[configuration.batch_size] = from_plain(stored)
        return by_size

    def save(self, folder: Path) -> None:
        """Keep networks that were trained for the audit."""
        keep_networks(folder, [(self.spec, self.subject)])

    def batches(self, configuration: Configuration) -> int | None:
        """Return the number of disjoint batches of a small table, which victims then are; None of a large one.

        None, too, where more victims are asked for than there are, where a batch may hold a row twice, and for a gate,
        whose evidence is from independent victims.
        """
        spec, protocol = self.spec, self.protocol(configuration)
        if spec.replacement or spec.gate is not None or spec.variant is not None or _in_rounds(self.subject, protocol):
            return None
        batches = len(self.subject.dataset.train) // protocol.records
        return batches if self.units <= batches <= _FEW_BATCHES else None

    def _disjoint(self, configuration: Configuration, units: range) -> Tensor | None:
        """Return the places of the records of some victims, each a part of the same random order of the rows."""
        batches, records = self.batches(configuration), self.protocol(configuration).records
        if batches is None or units.stop > batches:
            return None
        generator = torch.Generator().manual_seed(stream(self.spec.seed, 0, "disjoint batches") % 2**62)
        order = torch.randperm(len(self.subject.dataset.train), generator=generator)
        return order[units.start * records : units.stop * records].view(len(units), records)

    def _transcript(
        self, protocol: Clients[View], seeds: Sequence[int], guarding: Sequence[int], drawn: Tensor | None = None
    ) -> Transcript[AnyView]:
        subject = self.subject
        rows, encoder = subject.dataset.train, subject.encoder
        if _in_rounds(subject, protocol):
            return protocol.run_rounds([subject.model, *subject.later], rows, encoder, seeds, guarding)
        return protocol.run(subject.model, rows, encoder, seeds, guarding, drawn)

    def granted_beside(self, protocol: Clients[View], secret: RecordsSecret) -> dict[str, Any]:
        """Return what is granted of some records without any message, as arguments of ``Knowledge``."""
        labels = secret.labels if secret.used is None else secret.labels.gather(1, secret.used.flatten(1))
        return self._granted(protocol, None if self.spec.labels == "restored" else labels)

    def _granted_of(self, protocol: Clients[View], transcript: Transcript[AnyView]) -> dict[str, Any]:
        """Return the attacker's knowledge beside schema and statistics, as arguments of ``Knowledge``."""
        secret = transcript.secret
        knowledge = self.granted_beside(protocol, secret)
        if self._grants_statistics(protocol):
            encoder = self.subject.encoder
            statistics = batch_statistics(self.subject.model, encoder.encode(secret.cells.to(encoder.mean.device)))
            if self._statistics(protocol) == "sent":
                statistics = statistics_sent(self.subject.model.module, statistics)
            sent = {name: Moments(*(t.cpu() for t in moments)) for name, moments in statistics.items()}
            knowledge["batch_statistics"] = sent
        return knowledge

    def _statistics(self, protocol: Clients[View]) -> BatchStatistics:
        """Return which statistics of a batch the attacker is granted, where the protocol sends them."""
        spec, subject = self.spec, self.subject
        if spec.batch_statistics != "sent":
            return spec.batch_statistics
        single = isinstance(protocol, FedSGD) and protocol.clients == 1 and not _in_rounds(subject, protocol)
        return "sent" if single and keeps_statistics(subject.model.module) else "hidden"

    def _grants_statistics(self, protocol: Clients[View]) -> bool:
        return self._statistics(protocol) != "hidden" and bool(normalisations(self.subject.model.module))

    def _granted(self, protocol: Clients[View], labels: Tensor | None) -> dict[str, Any]:
        ordered = self.spec.labels == "ordered"
        known = {"batch_size": protocol.records, "labels": labels, "defense": protocol.known(), "ordered": ordered}
        return {**known, "auxiliary": self.subject.public}

    def _arguments(self, part: PlannedPart) -> dict[str, Json]:
        """Return all arguments of an attack or baseline, defaults included where it is an object."""
        if part.kind == "about":
            return {"non_members": self.spec.non_members, **arguments_of(self.membership)}
        instance = self.instance(part)
        return {"options": plain(part.part.options)} if inspect.isfunction(instance) else arguments_of(instance)

    def _sees(self, configuration: Configuration) -> str:
        protocol = self.protocol(configuration)
        if not _in_rounds(self.subject, protocol):
            return protocol.sees
        rounds, holds = 1 + len(self.subject.later), protocol.holds
        batch = "" if holds == protocol.batch_size else f", a batch drawn anew from the {holds} that a client holds"
        return f"{protocol.sees}, in {how_many(rounds, 'round')} of the same clients{batch}"


@dataclass
class HorizontalExposure(Exposure):
    """Messages of some victims."""

    audit: HorizontalAudit
    configuration: Configuration
    units: range
    transcript: Transcript[AnyView]
    knowledge: Knowledge
    plainly: Knowledge

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Attack the victims and score the guesses."""
        audit, is_attack = self.audit, part.kind == "attack"
        if part.kind == "about":
            return measure(part, self._membership(), progress)
        purpose, dataset, attack = "starts" if is_attack else "baseline", audit.subject.dataset, audit.instance(part)
        if is_attack and _in_rounds(audit.subject, audit.protocol(self.configuration)):
            attack = OverRounds(attack)
        records = attacked_records(
            audit.setting,
            dataset.statistics,
            dataset.schema,
            (self.transcript.view, self.knowledge if is_attack else self.plainly),
            self.transcript.secret,
            [stream(audit.spec.seed, unit, purpose) for unit in self.units],
            audit.metrics,
            attack=attack,
            visible=self._visible,
            keep_records=audit.keeps_records if is_attack else None,
            questions=lambda: self._questions(is_attack),
        )
        return measure(part, records, progress)

    def _visible(self, guess: RecordsGuess) -> Tensor | None:
        """Return whether each record stands above the client's own rounding, where an attack certifies records."""
        if guess.certified is None or self.knowledge.defense.name != "none" or self.audit.swapped:
            return None
        return visible(self.transcript.view, self.transcript.secret, self.audit.subject.encoder)

    def _questions(self, possible: bool) -> Questions:
        """Return the three questions on guesses of these victims."""
        spec, dataset = self.audit.spec, self.audit.subject.dataset
        population = Population.of(dataset.train, dataset.schema, dataset.statistics, spec.quasi_identifiers)
        seeds = [stream(spec.seed, unit, "questions") % 2**62 for unit in self.units]
        # Restored labels come from the message; granted ones the attacker knows anyway.
        known = None if spec.labels == "restored" else self.transcript.secret.labels[..., None].cpu()
        return Questions(population, seeds, known, possible)

    def _membership(self) -> AttackedSecret[MembershipGuess]:
        """Return which records are behind each message as a secret, among others of the table."""
        audit, secret, view = self.audit, self.transcript.secret, self.transcript.view
        rows, count = audit.subject.dataset.train, audit.spec.non_members
        assert isinstance(view, GradientView | UpdateView)
        cells, labels = [], []
        for victim, unit in enumerate(self.units):
            members = {tuple(record) for record in secret.cells[victim].tolist()}
            generator = torch.Generator().manual_seed(stream(audit.spec.seed, unit, "non-members") % 2**62)
            order = torch.randperm(len(rows), generator=generator)
            # What is alike cannot be told apart, and is no other record.
            others = [i for i in order.tolist() if tuple(rows.cells[i].tolist()) not in members][:count]
            cells.append(torch.cat([secret.cells[victim], rows.cells[others].to(secret.cells)]))
            labels.append(torch.cat([secret.labels[victim], rows.labels[others].to(secret.labels)]))
        seeds = [stream(audit.spec.seed, unit, "references") for unit in self.units]

        def attack(view: GradientView | UpdateView, knowledge: Knowledge, seeds: Sequence[int]) -> MembershipGuess:
            return MembershipGuess(
                [
                    audit.membership(view.of(slice(i, i + 1)), knowledge, batch[None], targets[None], seeds[i : i + 1])[
                        0
                    ]
                    for i, (batch, targets) in enumerate(zip(cells, labels, strict=True))
                ]
            )

        def score(guess: MembershipGuess) -> Outcome:
            records = secret.cells.shape[1]
            least = min(len(scores) for scores in guess.scores) - records
            members = torch.stack([scores[:records] for scores in guess.scores])
            others = torch.stack([scores[records : records + least] for scores in guess.scores])
            return Outcome(membership_figures(members, others))

        inputs = (view, self.plainly)
        return AttackedSecret(audit.setting, MembershipGuess, lambda: inputs, seeds, score, len(seeds), attack=attack)


def _in_rounds(subject: Subject, protocol: Clients[View]) -> bool:
    return bool(subject.later) or protocol.holds > protocol.batch_size


def _protocols(spec: HorizontalSpec, subject: Subject) -> Iterator[tuple[Configuration, tuple[Part, Clients[View]]]]:
    for batch_size in spec.batch_sizes:
        for part in spec.defenses:
            protocol = planned_protocol(spec, subject, batch_size, part)
            _check_granted(spec, subject, protocol)
            _check_membership(spec, subject, protocol)
            yield Configuration(part.title, batch_size), (part, protocol)


def _check_granted(spec: HorizontalSpec, subject: Subject, protocol: Clients[View]) -> None:
    """Refuse labels in an order that clients do not keep, and statistics of one batch where there are several."""
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


def _check_membership(spec: HorizontalSpec, subject: Subject, protocol: Clients[View]) -> None:
    """Refuse a test of membership where it has nothing to work on."""
    if not spec.non_members:
        return
    if normalisations(subject.model.module) or _in_rounds(subject, protocol):
        raise BadInputError(
            "a test of membership compares one message with the gradients of single records, but the network "
            "normalises by the batch, or several rounds are attacked; leave non_members at 0."
        )
    if len(subject.dataset.train) < protocol.records + 10:
        raise BadInputError(
            f"a test of membership needs records beside the {protocol.records} of a message, but the table has "
            f"{len(subject.dataset.train)}; leave non_members at 0, or give more rows."
        )


def _attack(spec: HorizontalSpec, part: Part) -> Attack:
    if part.passed is not None:
        # Its own arguments are complete.
        return make_part(registry.attacks.of("horizontal"), part)
    factory = registry.attacks.of("horizontal")[part.name].factory
    options: dict[str, Json] = {}
    # A factory that passes any argument on may not know a profile, so it is given none but another one.
    if "profile" in inspect.signature(factory).parameters or (spec.profile != "default" and takes(factory, "profile")):
        options["profile"] = spec.profile
    if spec.iterations is not None and takes(factory, "iterations"):
        options["iterations"] = spec.iterations
    registered = registry.attacks.of("horizontal")
    attack = registered.create(part.name, **{**options, **part.options})
    # An attack defined by its single start would be another attack with several.
    several = registry.argument(attack, "restarts", 1) > 1 and takes(factory, "restarts")
    if spec.restarts is not None and several and "restarts" not in part.options:
        attack = registered.create(part.name, **{**options, "restarts": spec.restarts, **part.options})
    return attack


def control_of(audit: HorizontalAudit) -> HorizontalAudit:
    """Return the positive control of an audit: one record behind each gradient of a wide, untrained network.

    The gradient of the first layer's weights (400 ReLU units) is there a multiple of the record, so nothing but the
    attack stands between server and record: one that does not close ``LEAKED`` of the gap to certainty is broken. Where
    an attack is made for a certain network, the audit's stays.
    """
    spec, subject = audit.spec, audit.subject
    columns = len(subject.dataset.schema.columns)
    registered = registry.attacks.of("horizontal")
    comparators = registry.baselines.of("horizontal")
    plain_baselines = tuple(part for part in spec.baselines if not entry_of(comparators, part).needs)
    keeps_network = any(entry_of(registered, attack).traits.network for attack in spec.attacks)
    control = make_spec(
        **{
            **{name: getattr(spec, name) for name in HorizontalSpec.model_fields},
            # The rows are passed on as they are loaded.
            "dataset_options": {},
            "batch_sizes": (1,),
            **({} if keeps_network else {"model": _NETWORK, "model_options": {}, "weights": None}),
            "training": None,
            "protocol_options": {name: value for name, value in spec.protocol_options.items() if name != "holds"},
            "head": subject.model.head,
            "defenses": (Part(name="none"),),
            # The control's own rows are all its clients'.
            "auxiliary": 0,
            "baselines": plain_baselines or HorizontalSpec().baselines,
            "victims": min(_MOST, max(_FEWEST, -(-_CELLS // columns))),
            "keep_records": False,
            "control": False,
            "gate": None,
            "variant": "positive control",
        }
    )
    prepared = prepare(control, subject.dataset, subject.model if keeps_network else None)
    return HorizontalAudit(control, replace(prepared, own=subject.own))


def prepared_audit(spec: HorizontalSpec, given: Given, tables: Tables) -> HorizontalAudit:
    """Return the audit of a spec, with networks that were trained before."""
    if given.dataset is None and given.model is None:
        subject = subject_of(spec, tables)
    else:
        subject = prepare(spec, given.dataset, given.model, given.folder)
    check_quasi_identifiers(subject.dataset.schema, spec.quasi_identifiers)
    if "attacks" not in spec.model_fields_set:
        spec = spec.model_copy(update={"attacks": (*fast_attacks(subject), *spec.attacks)})
    if subject.model.head == "regression" and spec.labels == "restored":
        return HorizontalAudit(with_fields(spec, {"labels": "true"}), _with_labels_granted(subject))
    return HorizontalAudit(spec, subject)


def fast_attacks(subject: Subject) -> tuple[Part, ...]:
    """Return fast exact attacks for wide tables where nobody names any: there ``unmix`` takes minutes."""
    leaves = [part for part in subject.model.module.modules() if next(part.children(), None) is None]
    first = leaves[0] if leaves else None
    read = isinstance(first, nn.Linear) and first.bias is not None and all(p.requires_grad for p in first.parameters())
    if subject.encoder.width < _WIDE or not read:
        return ()
    rectified = len(leaves) > 2 and type(leaves[1]) is nn.ReLU
    return named("single_activation", *(["spear"] if rectified else []))


def _with_labels_granted(subject: Subject) -> Subject:
    """Return a subject whose notes say that labels are granted, which are numbers that no message restores."""
    note = (
        f"the target {subject.dataset.schema.target.name!r} is a number, which is not restored from a gradient: the "
        "attacker is granted the labels of each batch"
    )
    dataset = subject.dataset
    return replace(subject, dataset=replace(dataset, notes=(*dataset.notes, note)))


def deployment(spec: HorizontalSpec) -> Deployment:
    """Return the threat model of a spec: views and side information of the server."""
    protocol = registry.protocols.of("horizontal")[spec.protocol]
    reveals: tuple[type, ...] = getattr(protocol.factory, "reveals", ())
    blurred = mechanisms("horizontal", spec.defenses)
    grants = granted({"auxiliary": spec.auxiliary})
    return Deployment("horizontal", spec.protocol, reveals, grants, spec.model, blurred)
