"""Vertical learning: the active party reads the columns that a passive party keeps from the features that it sends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage import datasets, registry
from seepage.assessment import Measurement, auc
from seepage.assessment.features import with_reach
from seepage.assessment.three_questions import Population, Questions
from seepage.attacks.vertical import (
    ShadowInversion,
    completion_scores,
    gradient_scores,
    inversion_in_words,
    left_out,
    raw_scores,
)
from seepage.datasets import Dataset
from seepage.datasets.coins import with_coins
from seepage.datasets.dataset import some_rows, split
from seepage.defenses.bottleneck import Bottleneck
from seepage.defenses.feature_noise import FeatureNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.defenses.mid import Mid
from seepage.defenses.nopeek import NoPeek
from seepage.defenses.returned import ReturnedDefense
from seepage.digests import Json, plain
from seepage.errors import BadInputError
from seepage.models.own import OwnFactory, find_own
from seepage.models.own_parts import as_they_predict, own_bottom, own_top
from seepage.models.split import outputs_of
from seepage.models.vertical import NoFeatures, VerticalModel, vertical_mlp
from seepage.protocols.vertical import Rows, Steering, TrainedVertical, VerticalLearning, leak
from seepage.registry import Attack, Entry, Need
from seepage.seeds import stream
from seepage.settings import labels as label_inference
from seepage.settings.guessing import AttackedSecret, attack_in, entry_in, measure
from seepage.settings.lever import Lever
from seepage.settings.outcomes import FEATURE_SCALES, features_outcome
from seepage.settings.part import Part, entry_of, make_part, marks_of, mechanisms_of
from seepage.settings.setting import About, Configuration, Exposure, Outcome, PlannedPart, Progress, Scale
from seepage.settings.spec import Spec
from seepage.settings.threat_model import Deployment, granted, mechanisms, refuse_inapplicable
from seepage.settings.units import (
    UnitsAudit,
    facts_of,
    joined,
    of_some_rows,
    planned,
    rehearsed_training,
    rows_identity,
    rows_in_time,
    with_few_leaked,
    with_fields,
)
from seepage.settings.vertical.layout import VerticalLayout
from seepage.settings.vertical.spec import VerticalSpec
from seepage.sources import is_own
from seepage.tabular.partition import Partition, by_names, by_shares
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.text import clean, how_many, listed
from seepage.wire.labels import BatchView, LabelGuess, LogitsView, ReturnedView
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView, Grant

# Part for InverNet's guess of its own shadow's features: a diagnosis, no attack.
SELF_INVERSION = "self_inversion"
# Number of labels that a passive party knows, where it is the attacker.
KNOWN_LABELS = 100
# Baselines of attacks on labels.
_LABEL_BASELINES = ("label_mode", "label_columns")
_OF_TABLES = (
    "A number counts as found within a tenth of its column's range, as in UIFV; middle_accuracy takes a tenth of the "
    "range between the 5th and the 95th percentile, which a few large values do not widen.",
    f"A passive party that knows up to {KNOWN_LABELS} labels of training may tell the others, too. How well is "
    "measured from its features, from the gradients that come back, and from its columns alone: the figures "
    "label_auc_completion, label_auc_gradient and label_auc_columns.",
)
_TRAINING = Part(name="training")
_GRANTS: dict[Grant, str] = {
    "auxiliary": "auxiliary rows that it holds whole",
    "queries": "answers of the target to rows of its making",
    "leaked": "records of the target with what it sent for them",
    "bottom": "the target's bottom model",
    "gradients": "gradients by that model's parameters, which cross no wire here, of batches of the first records; it "
    "guesses these alone",
}
# Rows that one training with all attacks of the default processes in a second.
_ROWS_A_SECOND = 300
# Share of the rows above which a rehearsal takes all of them.
_WORTH_A_SHARE = 0.35
# Rows of a control: enough to hold 240 out of and to learn from the others, few enough to train on in seconds.
_CONTROL_ROWS = 1_200
# Attacks learn from a tenth of them. Coins are drawn for each row anew, so that rows of a small table may repeat.
_CONTROL_FEWEST = 320
_CONTROL_COINS = 4
# Chance that what the active party holds of a planted coin shows its side.
_COPIED = 0.8


@dataclass(frozen=True)
class VerticalDefense:
    """Mechanisms of a defense of vertical learning, ready to use."""

    features: FeatureNoise | Mid | None = None
    returned: ReturnedDefense | None = None
    bottleneck: Bottleneck | None = None  # sets the number of features; the spec's if None
    unlike: NoPeek | None = None
    flip: LabelFlip | None = None


def defense_of(part: Part) -> VerticalDefense:
    """Return a defense ready to use."""
    kinds = (FeatureNoise, Mid, ReturnedDefense, Bottleneck, NoPeek, LabelFlip)
    noise, mid, *others = mechanisms_of("vertical", part, *kinds)
    return VerticalDefense(noise or mid, *others)


def _learning(spec: VerticalSpec, defense: VerticalDefense) -> VerticalLearning:
    acts = {"features": defense.features, "returned": defense.returned, "unlike": defense.unlike, "flip": defense.flip}
    return VerticalLearning(spec.epochs, spec.batch_size, spec.learning_rate, **acts)


def partition_of(spec: VerticalSpec, schema: Schema, private: Sequence[str] = ()) -> Partition:
    """Return the columns of each party; where none are named, private ones are the attacked party's.

    Parties that do not fit, and a victim that is no passive party, are refused.
    """
    private = private if 0 < spec.victim < spec.parties else ()
    if spec.passive:
        partition = by_names(schema, [(), *spec.passive])
    elif spec.share is None:
        shares = [1 / spec.parties] * spec.parties
        partition = by_shares(schema, shares, spec.columns_seed, private, spec.victim)
    else:
        others = [(1 - spec.share) / (spec.parties - 1)] * spec.parties
        if 0 < spec.victim < spec.parties:
            others[spec.victim] = spec.share
        partition = by_shares(schema, others, spec.columns_seed, private, spec.victim)
    partition.check_target(spec.victim)
    return partition


def _not_attacked(spec: VerticalSpec, data: Dataset, partition: Partition) -> tuple[str, ...]:
    """Return a sentence on the sensitive columns of a user's table that no attack is after; none where all are."""
    attacked = partition.schemas[spec.victim].names
    spared = [clean(name) for name in data.named_sensitive if name not in attacked]
    if not spared:
        return ()
    columns, are = ("column", "is") if len(spared) == 1 else ("columns", "are")
    whose = f"passive party {spec.victim}, the attacked one"
    return (f"Not attacked: the sensitive {columns} {listed(spared)}, which {are} not held by {whose}.",)


class VerticalAudit(UnitsAudit[VerticalSpec, VerticalDefense]):
    """An audit of vertical learning; a unit is one training, with all attacked records in it.

    All trainings of a configuration run side by side, so that their figures depend on their number, in the last digits.
    """

    setting = "vertical"
    # Trainings run side by side, so that their number changes figures.
    ignored = frozenset({*Spec.model_fields, "passive"}) - {"dataset_options", "seed"}
    data: Dataset

    def _set_up(self, spec: VerticalSpec, dataset: Dataset | None) -> None:
        self._table = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
        rate = _ROWS_A_SECOND / spec.repetitions
        data = rows_in_time(self._table, spec.most_rows, spec.time_budget, rate, spec.seed)
        self.dataset = self.data = data
        if spec.attacked == "held_out":
            spec = with_few_leaked(spec, spec.leaked, len(split(data.all, spec.test_share, 0)[1]))
        self.spec = spec
        self.layout = _layout(spec, data)
        self.partition = (
            self.layout.partition(data.schema) if self.layout else partition_of(spec, data.schema, data.named_sensitive)
        )
        # Refuse, before anything is trained, a target or widths that no network here fits.
        networks = {kind: getattr(spec, f"{kind}_model") for kind in ("bottom", "top")}
        self._factories = {kind: find_own(name) for kind, name in networks.items() if is_own(name)}
        _check_own(spec, data, self._factories)
        network = self.network([0], VerticalDefense())
        for defense in map(defense_of, spec.defenses):
            if defense.bottleneck is not None and "bottom" in self._factories:
                self.network([0], defense)
        self.sizes = _sizes(spec, data)
        label_inference.refuse_class_attacks("vertical", spec.attacks, data.schema.target)
        registered = registry.attacks.of("vertical")
        shadowing = [part for part in spec.attacks if entry_of(registered, part).traits.shadow]
        self.shadowing = {part.title: make_part(registered, part) for part in shadowing}
        self.parts = self._planned()
        self.defenses = {part.title: defense_of(part) for part in spec.defenses}
        _check_target(self.defenses, data.schema.target)
        self.configurations = tuple(Configuration(label, spec.batch_size) for label in self.defenses)
        self.rows = rows_identity(data)
        # One forecast serves both controls.
        self._forecast: dict[str, float | None] = {}
        self._of_controls: dict[str, float | None] = {}
        self.about = self._about(network)

    def _planned(self) -> tuple[PlannedPart, ...]:
        """Return the parts in order: baselines, self-inversions, attacks."""
        spec, label = self.spec, self.data.schema.target.name
        shadowing = [part for part in spec.attacks if part.title in self.shadowing]
        names = [{"name": SELF_INVERSION, "label": f"{part.title}_{SELF_INVERSION}"} for part in shadowing]
        itself = [part.model_copy(update=name) for part, name in zip(shadowing, names, strict=True)]
        parts = planned([_TRAINING, *itself], spec.baselines, spec.attacks)
        parts = label_inference.with_label_columns(parts, "vertical", label)
        if _reads_labels(parts):
            labels = {part.label for part in parts}
            further = [Part(name=name) for name in _LABEL_BASELINES if name not in labels]
            parts = (*parts, *(PlannedPart(part, "baseline", label) for part in further))
        first, *others = parts
        kinds = {"baseline": 0, "about": 1, "attack": 2}
        return (first, *sorted(others, key=lambda part: kinds[part.kind]))

    def _about(self, network: VerticalModel) -> About:
        spec, data, partition, label = self.spec, self.data, self.partition, self.data.schema.target.name
        layout, victim_schema = self.layout, partition.schemas[spec.victim]
        tables = layout is None
        columns, on_labels = victim_schema.names, _reads_labels(self.parts)
        own_parts = {"bottom": network.bottoms[spec.victim], "top": network.top}
        layers = {"bottom": list(spec.bottom), "features": spec.features, "top": list(spec.top)} if tables else {}
        return About(
            **facts_of(data, columns=tuple(columns) if tables else ()),
            protocol="vertical",
            model=network.name,
            lead="What the active party of vertical learning learns about the columns that a passive party keeps.",
            limits=(
                *(_not_attacked(spec, data, partition) if tables else ()),
                *(
                    (inversion_in_words(network.bottoms[spec.victim], victim_schema),)
                    if "bottom" in self._factories
                    else ()
                ),
                *as_they_predict({kind: own_parts[kind] for kind in self._factories}),
                *of_some_rows(data, self._table),
            ),
            attacker="The active party",
            sender="The passive party",
            secret="all cells of the passive party" if layout is None else layout.words["secret"],
            message="the features",
            control="Without a hidden layer and with as many features as inputs, the features hold the planted "
            "columns, so a working attack reads nearly all of them.",
            threat_model=_threat_model(spec, data, layout, partition, self.sizes),
            marks=marks_of("vertical", spec.attacks, spec.defenses),
            rounds=spec.exposures,
            label=label if on_labels else None,
            label_attacker="A passive party" if on_labels else None,
            scales={
                **dict.fromkeys(("loss", "task_rmse", "queries", "label_epsilon"), Scale(None)),
                **FEATURE_SCALES,
                **(layout.scales if layout else {}),
            },
            captions=layout.captions if layout else {},
            settings={
                "epochs": spec.epochs,
                "learning_rate": spec.learning_rate,
                **layers,
                **({"columns": list(columns)} if tables else {}),
            },
        )

    @property
    def schema(self) -> Schema:
        """The schema with the distances within which a number counts as found here."""
        return with_reach(self.data.schema)

    @property
    def determining(self) -> Mapping[str, Json]:
        """Everything that determines figures beside spec, rows, defense and part, as JSON values."""
        networks: dict[str, Json] = {kind: factory.digest for kind, factory in self._factories.items()}
        return {"columns": [list(columns) for columns in self.partition.columns], "networks": networks}

    def network(self, seeds: Sequence[int], defense: VerticalDefense) -> VerticalModel:
        """Return the networks of some trainings before they are trained."""
        spec, layout, partition, factories = self.spec, self.layout, self.partition, self._factories
        if layout is not None:
            return layout.network(partition, seeds)
        narrow = spec.features if defense.bottleneck is None else defense.bottleneck.width
        widths = [spec.features] + [narrow] * (partition.parties - 1)
        bottoms: list[nn.Module] = []
        if "bottom" in factories:
            for party, (schema, features) in enumerate(zip(partition.schemas, widths, strict=True)):
                if not schema.columns:
                    bottoms.append(NoFeatures())
                    widths[party] = 0
                    continue
                bottom, width = own_bottom(
                    factories["bottom"], schema, party, features, [seed + party + 1 for seed in seeds]
                )
                if party and defense.bottleneck is not None and width != features:
                    raise BadInputError(
                        f"the bottleneck asks for {features} features, but {spec.bottom_model!r} sends {width}; have "
                        "its factory take the parameter features."
                    )
                bottoms.append(bottom)
                widths[party] = width
        model = vertical_mlp(partition, seeds, spec.bottom, widths, None if spec.unsplit else spec.top)
        if bottoms:
            model = replace(model, bottoms=tuple(bottoms), name=spec.bottom_model)
        if "top" in factories:
            outputs = outputs_of(model.schema.target, model.head)
            model = replace(model, top=own_top(factories["top"], widths, outputs, seeds))
        return model

    def seeds(self, purpose: str) -> list[int]:
        """Return the seeds of each training for a purpose."""
        return [stream(self.spec.seed, unit, purpose) % 2**62 for unit in range(self.spec.repetitions)]

    def group(self, configuration: Configuration, part: PlannedPart) -> int:
        """Return the number of all trainings, which run and are attacked side by side."""
        return self.units

    def few(self) -> VerticalAudit:
        """Return the audit of the first training alone."""
        return VerticalAudit(with_fields(self.spec, {"repetitions": 1}), self.data, self.own, self.swapped)

    def expose(self, configuration: Configuration, units: range) -> VerticalExposure:
        """Run all trainings of a configuration side by side and return the active party's view."""
        if units != range(self.units):
            raise BadInputError(
                f"trainings of vertical learning are made all at once, {self.units} here; got units {units.start} to "
                f"{units.stop - 1}."
            )
        spec, data, sizes = self.spec, self.data, self.sizes
        defense = self.defenses[configuration.defense]
        # The split is the same under all defenses.
        seeds = [stream(spec.seed, unit, "split") % 2**32 for unit in range(spec.repetitions)]
        both = [split(data.all, spec.test_share, seed) for seed in seeds]
        rest, test = _rows([train for train, _ in both]), _rows([test for _, test in both])
        auxiliary, train = rest.of(slice(0, sizes.auxiliary)), rest.of(slice(sizes.auxiliary, None))
        order = label_inference.of_two_kinds(train.labels, sizes.labels)
        trainings = torch.arange(spec.repetitions)[:, None]
        train = Rows(train.cells[trainings, order], train.labels[trainings, order])
        model = self.network(self.seeds("initialisation"), defense)
        learning = _learning(spec, defense)
        trained = learning.train(model, train, self.seeds("training"))
        if spec.attacked == "trained":
            transcript = learning.recall(trained, spec.victim)
        else:
            transcript = learning.observe(trained, test, spec.victim, self.seeds("defense")[0], spec.exposures)
        transcript, leaked = leak(transcript, spec.leaked)
        knowledge = replace(learning.knowledge(trained, spec.victim, data.statistics), leaked=leaked)
        transcript = transcript.of(slice(0, sizes.attacked))
        if self.swapped:
            # Rows were shuffled, so that the record before is any other.
            features = list(transcript.view.features)
            features[spec.victim] = features[spec.victim].roll(1, 1)
            transcript = replace(transcript, view=replace(transcript.view, features=tuple(features)))
        return VerticalExposure(self, learning, trained, transcript, test, knowledge, auxiliary, model)

    def forecast(self, configuration: Configuration) -> float | None:
        """Return the seconds of all trainings with all parts, from rehearsals on two small shares of the rows.

        All defenses take about as long, so that there is one forecast for all. Attacks with a fixed number of steps
        take as long in a rehearsal as in the audit, and count once. The error is that of extrapolating a line.
        """
        if "seconds" not in self._forecast:
            rows, sizes = len(self.data.all), self.sizes
            # Rows beyond those whose number is fixed: leaked records and batches of gradients.
            fixed = (self.spec.leaked + self.spec.gradient_batch) / self.spec.test_share
            share = max(0.02, (200 + 2 * fixed) / rows)
            # Little is saved where there are few rows.
            share = share if share < _WORTH_A_SHARE else 1.0

            def expose(size: int, epochs: int) -> Exposure:
                sample = self.data if share == 1.0 else some_rows(self.data, int(size * share * rows), self.spec.seed)
                attacked = max(self.spec.gradient_batch, int(size * share * sizes.attacked))
                attacked = min(attacked, sizes.attacked)
                spec = with_fields(self.spec, {"epochs": epochs, "attacked_records": attacked})
                return VerticalAudit(spec, sample, self.own).expose(configuration, range(self.units))

            self._forecast["seconds"] = rehearsed_training(expose, self.parts, share, self.spec.epochs)
        return self._forecast["seconds"]

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        if part.kind != "attack":
            return {}
        spec, sizes = self.spec, self.sizes
        amounts = {"auxiliary": sizes.auxiliary, "queries": sizes.queries, "leaked": spec.leaked, "bottom": "known"}
        amounts |= {"gradients": sizes.gradients, "labels": sizes.labels, "steering": "its own steps"}
        needs = entry_of(registry.attacks.of("vertical"), part.part).needs
        sees = "features of every party, and the top model"
        return {
            "sees": sees if part.column is None else "what a passive party sent, and what came back of it",
            **{need: amounts[need] for need in needs},
            "defense": plain(_learning(spec, self.defenses[configuration.defense]).known().describe()),
        }

    def levers(self) -> tuple[Lever, ...]:
        """Return noise on features, fewer features, and noise on messages in both directions."""
        both = (("feature_noise", "scale"), ("returned_noise", "scale"))
        width = self.spec.features
        narrower = [Lever("bottleneck", width, 1, True, strengths=(("width",),))]
        return (
            Lever("feature_noise", 0.01, 100.0, strengths=(("scale",),)),
            *(narrower if width > 1 and self.layout is None else []),
            Lever("noise_both_ways", 0.01, 100.0, mechanism="feature_noise+returned_noise", strengths=both),
        )

    def planted(self, swapped: bool) -> VerticalAudit | None:
        """Return a control: fair coins, which are all that the passive party holds, behind linear bottom models.

        The active party has a copy of each coin that is right in four cases of five: an attack that averages what its
        own columns say needs one. Features are as many as the coins have inputs, so that they hold the coins; nothing
        protects them. Attacks that are not made for such networks, or are granted what crosses no wire, are left out.
        None for images.
        """
        attacks = tuple(
            part
            for part in self.spec.attacks
            if self._in_control(entry_of(registry.attacks.of("vertical"), part))
            # Batches cannot be mixed up record by record.
            and not (swapped and BatchView in entry_of(registry.attacks.of("vertical"), part).sees)
        )
        if not attacks or self.layout is not None:
            return None
        sample = some_rows(self.data, _CONTROL_ROWS, self.spec.seed, _CONTROL_FEWEST)
        planted = with_coins(sample, _CONTROL_COINS, self.spec.seed, copies=_COPIED)
        changed = {
            "passive": (planted.schema.names[-_CONTROL_COINS:],),
            **{"parties": 2, "share": None, "columns_seed": None, "victim": 1},
            # A control needs a network that loses nothing, whatever a user's network does.
            **{"bottom_model": "vertical_mlp", "top_model": "vertical_mlp"},
            # A coin is one-hot: two inputs. Logits are too few for the coins.
            **{"unsplit": self._logits, "bottom": (), "features": 2 * _CONTROL_COINS, "top": (16,), "epochs": 2},
            **{"test_share": 0.2, "auxiliary": 0.4, "queries": None, "leaked": min(64, len(sample.all) // 10)},
            "attacked_records": 200,
            "attacked": "held_out",
            "attacks": attacks,
            # What the active party's copies tell of the coins is no leak.
            "baselines": (Part(name="constant"), Part(name="own_columns")),
        }
        why = (
            "they have no pair of features and cells to learn from, read labels of some tables alone, or stand beside "
            "one that takes logits, which hold too little of a row"
        )
        control = self.control_on(planted, changed, swapped, why)
        control._forecast = self._of_controls
        return control

    def _in_control(self, entry: Entry[Attack]) -> bool:
        """Return whether an attack reads the planted columns, or the labels, where nothing protects them."""
        if label_inference.guesses_labels(entry):
            return entry.traits.bare_labels
        learns = {"queries", "leaked"} & set(entry.needs) or entry.traits.averages
        return not self._logits and bool(learns)

    @property
    def _logits(self) -> bool:
        """Whether an attack takes the logits that parties add up."""
        registered = registry.attacks.of("vertical")
        return any(LogitsView in entry_of(registered, part).sees for part in self.spec.attacks)


@dataclass(frozen=True)
class _Sizes:
    """Numbers of rows by their use, in each training."""

    training: int
    auxiliary: int
    attacked: int
    queries: int
    gradients: int
    labels: int


def _linear(part: Part) -> tuple[str, ...]:
    """Return the networks that must have no hidden layer for an attack."""
    registered = registry.attacks.of("vertical")
    linear = entry_of(registered, part).traits.linear
    return () if linear is None else linear(make_part(registered, part))


def _sizes(spec: VerticalSpec, data: Dataset) -> _Sizes:
    refuse_inapplicable(spec.attacks, deployment(spec))
    for part in spec.attacks:
        if any(getattr(spec, network) for network in _linear(part)):
            raise BadInputError(
                f"the attack {part.title!r} takes networks without hidden layers, but the bottom models have "
                f"{list(spec.bottom)} and the top model {list(spec.top)}; audit bottom: [] and top: [], or leave the "
                "attack out."
            )
    # Sizes of the splits.
    rows = len(data.all)
    train, test = split(data.all, spec.test_share, 0)
    auxiliary = int(spec.auxiliary * len(train))
    training = len(train) - auxiliary
    if spec.auxiliary and not auxiliary:
        raise BadInputError(
            f"a share of {spec.auxiliary:g} of {len(train):,} rows leaves the attacker no auxiliary row; grant a "
            "larger share, or more rows."
        )
    there = len(test) if spec.attacked == "held_out" else training
    if spec.leaked >= there:
        raise BadInputError(
            f"{spec.leaked:,} records of the target are to leak, but of the {rows:,} rows {there:,} are attacked, of "
            "which at least one must remain; let fewer leak."
        )
    attacked = there - spec.leaked if spec.attacked_records is None else min(spec.attacked_records, there - spec.leaked)
    batches = min(spec.gradient_batches, attacked // spec.gradient_batch)
    attacks = registry.attacks.of("vertical")
    if not batches and any("gradients" in entry_of(attacks, part).needs for part in spec.attacks):
        raise BadInputError(
            f"attacks on gradients are granted those of batches of {spec.gradient_batch} records, but {attacked:,} are "
            "attacked; attack more records, or make gradient_batch smaller."
        )
    queries = auxiliary if spec.queries is None else spec.queries
    labels = min(spec.known_labels, training // 2)
    return _Sizes(training, auxiliary, attacked, queries, batches * spec.gradient_batch, labels)


def _threat_model(
    spec: VerticalSpec, data: Dataset, layout: VerticalLayout | None, partition: Partition, sizes: _Sizes
) -> tuple[str, ...]:
    victim_schema = partition.schemas[spec.victim]
    which = "held-out records, as the trained model predicts for them"
    if spec.attacked == "trained":
        which = "records of training, as they were sent in the last epoch"
    elif spec.exposures > 1:
        which += f", {spec.exposures:,} times each"
    attacks, baselines = registry.attacks.of("vertical"), registry.baselines.of("vertical")
    entries = [entry_of(attacks, part) for part in spec.attacks]
    entries += [entry_of(baselines, part) for part in spec.baselines]
    needed = {need for entry in entries for need in entry.needs}
    after = f"{len(victim_schema.columns)} columns of passive party {spec.victim}: {', '.join(victim_schema.names)}"
    layers = f"Bottom models with layers {(*spec.bottom, spec.features)}, a top model with {spec.top}"
    if is_own(spec.bottom_model) or is_own(spec.top_model):
        layers = f"Bottom models {spec.bottom_model}, top model {spec.top_model}"
    if layout is not None:
        after, layers = layout.words["sought"], layout.words["networks"]
    return (
        "The attacker is the active party, honest but curious: it holds the labels, the top model and "
        f"{how_many(len(partition.columns[0]), 'column')}, and receives the features of every party.",
        f"It is after {after}.",
        "Alignment has told each party which of its records the others have, too. All rows here are shared, so that "
        "this is not measured; an attack on a transcript with the party's whole table (own.csv) measures it.",
        "It knows the schema and the marginals of these columns. What else an attack is granted stands beside it: "
        + ("; ".join(f"{grant}: {what}" for grant, what in _GRANTS.items() if grant in needed) or "nothing")
        + ".",
        f"Vertical learning on {data.name}, {len(data.all):,} rows, {partition.parties} parties: {sizes.training:,} "
        f"rows are trained on, {sizes.auxiliary:,} others are auxiliary, {spec.leaked:,} leak and {sizes.attacked:,} "
        f"are attacked, {which}; up to {sizes.queries:,} queries.",
        f"{layers}, {spec.epochs} epochs of Adam at {spec.learning_rate:g}, batches of {spec.batch_size}.",
        f"{how_many(spec.repetitions, 'training')} with seeds of their own from seed {spec.seed}; intervals are over "
        "trainings.",
        *(_OF_TABLES if layout is None else (layout.words["figures"],)),
        *_of_labels(entries, sizes),
        "A network of the attacker that diverged is a failure of the attack: it counts under 'failed', and in no "
        "other figure.",
    )


def _of_labels(entries: Sequence[Entry[Attack]], sizes: _Sizes) -> tuple[str, ...]:
    """Return the threat model of attacks on labels, where there are any."""
    guessing = [entry for entry in entries if label_inference.guesses_labels(entry)]
    if not guessing:
        return ()
    active = [entry.name for entry in guessing if "steering" in entry.needs]
    return (
        f"Attacks on labels are those of the passive party, which knows {sizes.labels:,} labels of training, not all "
        "alike. It guesses others from what it sent and what came back, once an epoch; their verdict stands apart.",
        *(
            [f"{', '.join(active)} is an active attack: the party scales its own steps up, against the protocol."]
            if active
            else []
        ),
    )


@dataclass
class VerticalExposure(Exposure):
    """All trainings of a configuration, and the active party's view of the attacked records."""

    audit: VerticalAudit
    learning: VerticalLearning
    trained: TrainedVertical
    transcript: FeatureTranscript[FeatureView]
    test: Rows
    knowledge: FeatureKnowledge  # before anything is granted
    auxiliary: Rows
    start: VerticalModel
    shadows: dict[str, ShadowInversion] = field(default_factory=dict)  # trained once for two readings

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Return the figures of a part in each training."""
        if part.part.name == _TRAINING.name and part.kind == "about":
            return joined([self.training()], self.audit.about)
        secret: AttackedSecret[Any] = self.columns(part) if part.column is None else self.labels(part)
        return joined([measure(part, secret, progress)], self.audit.about)

    def training(self) -> Outcome:
        """Return the networks' quality."""
        target = self.trained.model.schema.target
        generator = torch.Generator().manual_seed(self.audit.seeds("defense")[0])
        outputs = self.learning.predict(self.trained, self.test, generator)
        trainings = []
        for k, (predicted, true) in enumerate(zip(outputs, self.test.labels, strict=True)):
            figures = [Measurement.of_unit("loss", None, float(self.trained.losses[k, -1]))]
            figures += label_inference.task_figures(target, predicted, true)
            if self.learning.flip is not None and isinstance(target, Discrete):
                figures.append(Measurement.of_unit("label_epsilon", None, self.learning.flip.epsilon(target.width)))
            trainings.append(Outcome(figures, pictures=[self.picture(self.transcript.cells[k])]))
        quality = joined(trainings, self.audit.about)
        if isinstance(target, Discrete) and target.width == 2:
            return replace(quality, measured=[*quality.measured, *self._labels(target.sorted_codes[-1])])
        return quality

    def _labels(self, positive: int) -> list[Measurement]:
        """Return figures of the attacked party as an attacker on labels of training, of which it knows some."""
        view = self.learning.passive(self.trained, self.audit.spec.victim)
        count = min(KNOWN_LABELS, self.trained.rows.records // 2)
        true = self.trained.rows.labels == positive
        places = torch.arange(count).expand(len(true), count)
        sought = true[:, :count].double()
        if bool((sought == sought[:, :1]).all(1).any()):
            return []
        rest = left_out(view, places)
        figures = []
        for name, score in (("completion", completion_scores), ("gradient", gradient_scores), ("columns", raw_scores)):
            areas = [auc(scores[rest[k]], true[k][rest[k]]) for k, scores in enumerate(score(view, places, sought))]
            values = torch.tensor([float("nan") if area is None else area for area in areas], dtype=torch.float64)
            figures.append(Measurement(f"label_auc_{name}", None, values))
        return figures

    def columns(self, part: PlannedPart) -> AttackedSecret[FeatureGuess]:
        """Return the attacked party's cells as a secret of an attack, a baseline or the self-inversion."""
        itself, is_table = part.kind == "about", self.audit.layout is None
        needs = () if itself else entry_in("vertical", part).needs
        observed, attack = self.first if "gradients" in needs else self.transcript, None
        label = part.label.removesuffix(f"_{SELF_INVERSION}") if itself else part.label
        if part.kind != "baseline" and label in self.audit.shadowing:
            # A shadow that serves two readings is given what it needs where it is trained.
            needs, read = (), lambda view, *_: self.shadow(label).guess(view)
            attack = (lambda *_: self.shadow(label).self_inversion(observed.cells)) if itself else read

        def score(guess: FeatureGuess) -> Outcome:
            return self.figures(observed, guess, self.questions if is_table and not itself else None)

        trainings, records, seeds = observed.view.trainings, observed.view.records, self.audit.seeds("attack")
        shape = {"training": trainings, "record": records, "column": len(self.knowledge.schema.columns)}
        given = (lambda: (observed.view, self.granted(needs)), seeds, score, trainings * records)
        return AttackedSecret("vertical", FeatureGuess, *given, shape if is_table else None, attack)

    def labels(self, part: PlannedPart) -> AttackedSecret[LabelGuess]:
        """Return the labels of training as the secret of a passive party, which knows some."""
        entry, victim, labelled = entry_in("vertical", part), self.audit.spec.victim, self.audit.sizes.labels
        trained = self.steered(attack_in("vertical", part)) if "steering" in entry.needs else self.trained
        view: ReturnedView | BatchView
        if BatchView in entry.sees:
            size, [seed] = min(self.audit.spec.gradient_batch, trained.rows.records), self.audit.seeds("returned")[:1]
            view = self.learning.passive_batches(trained, victim, size, seed, self.audit.spec.epochs)
        else:
            view = self.returned if trained is self.trained else self.returned_in(trained)
        true = trained.rows.labels[:, : view.records]
        target, marginal = trained.model.schema.target, self.audit.data.statistics.target
        known = (true, labelled, self.audit.seeds("attack"))
        return label_inference.attacked_labels("vertical", view, target, marginal, *known)

    @cached_property
    def returned(self) -> ReturnedView:
        """What a passive party sent, and what came back to it, of the records whose labels are guessed."""
        return self.returned_in(self.trained)

    def returned_in(self, trained: TrainedVertical) -> ReturnedView:
        """Return the passive party's view of some trainings; in the negative control that of other records."""
        labels, [seed] = self.audit.sizes.labels, self.audit.seeds("returned")[:1]
        records = min(labels + self.audit.sizes.attacked, trained.rows.records)
        view = self.learning.passive(trained, self.audit.spec.victim, records, self.audit.spec.epochs, seed)
        return label_inference.mixed_up(view, labels) if self.audit.swapped else view

    def steered(self, attack: Attack) -> TrainedVertical:
        """Return the trainings in which the attacked party takes the steps of an active attack."""
        steering = Steering(self.audit.spec.victim, attack.gamma, attack.most)
        return replace(self.learning, steering=steering).train(
            self.start, self.trained.rows, self.audit.seeds("training")
        )

    @cached_property
    def questions(self) -> Questions:
        """The three questions on guesses of the attacked records, of which the active party holds its own columns."""
        audit, spec = self.audit, self.audit.spec
        sought = audit.partition.schemas[spec.victim].names
        schema = audit.schema.model_copy(update={"columns": tuple(map(audit.schema.column, sought))})
        population = Population.of(audit.data.all, schema, audit.data.statistics, spec.quasi_identifiers)
        rows = self.test if spec.attacked == "held_out" else self.trained.rows
        attacked = slice(spec.leaked, spec.leaked + audit.sizes.attacked)
        known = rows.cells[:, attacked][..., list(audit.partition.columns[0])]
        return Questions(population, audit.seeds("questions"), known)

    @property
    def first(self) -> FeatureTranscript[FeatureView]:
        """The records whose gradients are granted."""
        return self.transcript.of(slice(0, self.audit.sizes.gradients))

    def shadow(self, label: str) -> ShadowInversion:
        """Return shadow and InverNet of an attack, trained once for both readings."""
        if label not in self.shadows:
            attack = self.audit.shadowing[label]
            needs = registry.attacks.of("vertical").entry_of(attack).needs
            self.shadows[label] = attack.fit_shadow(
                self.transcript.view, self.granted(needs), self.audit.seeds("attack")
            )
        return self.shadows[label]

    def figures(
        self, observed: FeatureTranscript[FeatureView], guess: FeatureGuess, questions: Questions | None
    ) -> Outcome:
        """Return a guess's figures in each training."""
        if self.audit.layout is None:
            outcome = features_outcome(self.knowledge, observed, guess, self.audit.keeps_records, questions)
        else:
            pictures = [self.picture(cells) for cells in guess.cells]
            outcome = Outcome(self.audit.layout.measure(observed, guess), pictures=pictures)
        queries = torch.full((observed.view.trainings,), guess.queries, dtype=torch.float64)
        return replace(outcome, measured=[*outcome.measured, Measurement("queries", None, queries)])

    def picture(self, cells: Float[Tensor, "record column"]) -> str | None:
        """Return a picture of the first records; None of tables."""
        return None if self.audit.layout is None else self.audit.layout.picture(cells)

    def granted(self, grants: Collection[Need]) -> FeatureKnowledge:
        """Return the knowledge of an attack or baseline, with a channel of its own."""
        knowledge, learning, trained, spec = self.knowledge, self.learning, self.trained, self.audit.spec
        seeds = {name: self.audit.seeds(name)[0] for name in ("auxiliary", "queries", "gradients")}
        if "auxiliary" in grants:
            rows = learning.auxiliary(trained, self.auxiliary, spec.victim, seeds["auxiliary"], spec.exposures)
            knowledge = replace(knowledge, auxiliary=rows)
        if "queries" in grants:
            count = self.audit.sizes.queries
            channel = learning.queries(trained, spec.victim, count, seeds["queries"], spec.exposures)
            knowledge = replace(knowledge, queries=channel)
        if "gradients" in grants:
            gradients = learning.gradients(trained, self.first, spec.gradient_batch, seeds["gradients"])
            knowledge = replace(knowledge, gradients=gradients)
        return replace(knowledge, bottom=trained.model.bottoms[spec.victim]).only(grants)


def _check_target(defenses: Mapping[str, VerticalDefense], target: Discrete | Continuous) -> None:
    """Refuse defenses of labels that are not made for this target."""
    for name, defense in defenses.items():
        label_inference.check_two_labels(name, defense.returned, target)
        if defense.flip is not None:
            defense.flip.epsilon(label_inference.classes_of(name, target))


def _reads_labels(parts: Sequence[PlannedPart]) -> bool:
    return any(part.column is not None for part in parts if part.kind == "attack")


def _check_own(spec: VerticalSpec, data: Dataset, factories: Mapping[str, OwnFactory]) -> None:
    """Refuse attacks that read layers which a user's own network need not have."""
    if factories and data.layout is not None:
        raise BadInputError(f"rows of {data.name!r} have networks of their own; leave bottom_model and top_model out.")
    attacks = registry.attacks.of("vertical")
    for part in spec.attacks:
        entry = entry_of(attacks, part)
        linear = set(_linear(part)) & factories.keys()
        layered = "bottom" in factories and ("gradients" in entry.needs or BatchView in entry.sees)
        if linear or layered or ("gradients" in entry.needs and "top" in factories):
            raise BadInputError(
                f"the attack {part.title!r} is made for the fully connected networks of vertical_mlp, but "
                f"{' and '.join(f'{kind}_model' for kind in factories)} is your own; leave the attack out."
            )


def _layout(spec: VerticalSpec, data: Dataset) -> VerticalLayout | None:
    """Return the layout of rows that are no table, None for a table."""
    if data.layout is None:
        return None
    if not isinstance(data.layout, VerticalLayout):
        raise BadInputError(
            f"rows of {data.name!r} are no table but of type {type(data.layout).__name__}, which lacks what vertical "
            "learning needs (settings.vertical.layout); name a table."
        )
    narrow = next((part.title for part in spec.defenses if defense_of(part).bottleneck is not None), None)
    if spec.passive or spec.parties != 2 or spec.share is not None or spec.victim != 1 or narrow is not None:
        raise BadInputError(
            f"rows of {data.name!r} are {data.layout.words['split']}, with networks of their own; leave out named "
            "columns, shares, further parties and bottlenecks."
        )
    return data.layout


def _rows(tables: Sequence[Table]) -> Rows:
    return Rows(torch.stack([table.cells for table in tables]), torch.stack([table.labels for table in tables]))


def deployment(spec: VerticalSpec) -> Deployment:
    """Return the threat model of a spec; the audit measures what leaks of a bottom model or gradients where granted."""
    rows: dict[Need, float | int | None] = {"auxiliary": spec.auxiliary, "queries": spec.queries, "leaked": spec.leaked}
    grants = granted({**rows, "labels": spec.known_labels}, ("bottom", "gradients", "steering"))
    blurred = mechanisms("vertical", spec.defenses)
    # A passive party, were it the attacker, sees what comes back to it, record by record or added up over a batch.
    reveals = (*VerticalLearning.reveals, LogitsView if spec.unsplit else ReturnedView, BatchView)
    return Deployment("vertical", "vertical", reveals, grants, None, blurred)
