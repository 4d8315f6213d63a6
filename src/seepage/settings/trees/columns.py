"""Boosted trees over columns of two parties (SecureBoost): cells of the passive one, labels of the active one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seepage import registry
from seepage.assessment.features import with_reach
from seepage.datasets import Dataset
from seepage.datasets.coins import with_label_coins
from seepage.datasets.dataset import some_rows
from seepage.digests import Json, plain
from seepage.errors import BadInputError
from seepage.models.vertical import encoder_of
from seepage.protocols import trees as boosting
from seepage.protocols.secureboost import GrownTrees, SecureBoost
from seepage.registry import Need
from seepage.seeds import stream
from seepage.settings.guessing import AttackedSecret
from seepage.settings.labels import attacked_labels, guesses_labels, refuse_class_attacks, with_label_columns
from seepage.settings.lever import Lever
from seepage.settings.outcomes import FEATURE_SCALES, features_outcome
from seepage.settings.part import Part, entry_of, marks_of, named
from seepage.settings.setting import About, Configuration, Exposure, Outcome, PlannedPart, Scale
from seepage.settings.spec import Spec
from seepage.settings.threat_model import Deployment, granted, mechanisms, refuse_inapplicable
from seepage.settings.trees.base import (
    TESTED,
    TreesDefense,
    defense_of,
    numbers_of,
    table_of,
    utility,
)
from seepage.settings.trees.spec import TreesSpec
from seepage.settings.units import (
    UnitsAudit,
    UnitsExposure,
    facts_of,
    planned,
    rows_identity,
    with_fields,
)
from seepage.tabular.partition import Partition, by_names, by_shares
from seepage.tabular.schema import Discrete, Schema
from seepage.text import clean, how_many, listed
from seepage.wire.forest import Objective
from seepage.wire.secret import ColumnsSecret
from seepage.wire.secureboost import ColumnSumsView, NodesView
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, KnownFeatures, Leaked

_TRAINING = Part(name="training")
_SHOWN = ("trees", "depth", "learning_rate", "regularisation")
# Rows where none are asked for, and the share of the table that they are at most, so that others test the trees.
_ROWS, _MOST = 2_000, 0.8
# Records whose labels are guessed at most, the first: all rows by all nodes would fill the memory.
_GUESSED = 5_000
# Rows and coins of a control, and its trees: enough for equations that determine the coins, and for known labels.
_CONTROL_ROWS, _CONTROL_COINS = 400, 4
_CONTROL_TREES = {"trees": 30, "depth": 5, "learning_rate": 0.3, "regularisation": 1.0, "min_child_weight": 1.0}


class ColumnsAudit(UnitsAudit[TreesSpec, TreesDefense]):
    """An audit of boosted trees over columns; a unit is one training, with all its rows in it."""

    setting = "trees"
    fewest_rows = 400
    ignored = frozenset({*Spec.model_fields, "repetitions", "rows", "passive", "label_party"}) - {
        "dataset_options",
        "seed",
    }
    data: Dataset

    def _set_up(self, spec: TreesSpec, dataset: Dataset | None) -> None:
        self.dataset = self.data = data = table_of(spec, dataset)
        self.objective: Objective
        self.objective, self.classes = boosting.objective_of(data.schema)
        if "rows" not in spec.model_fields_set:
            self.spec = spec = with_fields(spec, {"rows": (max(1, min(_ROWS, int(_MOST * len(data.all)))),)})
        if max(spec.rows) > len(data.all):
            raise BadInputError(
                f"the parties train on {max(spec.rows):,} rows, but {data.name!r} has {len(data.all):,}; give fewer."
            )
        known = [name for name in ("leaked", "known_labels") if name not in spec.model_fields_set]
        if known:
            # Of few rows most are left to guess.
            few = {name: min(getattr(spec, name), min(spec.rows) // 4) for name in known}
            self.spec = spec = with_fields(spec, few)
        for name in ("leaked", "known_labels"):
            guessed = min(spec.rows) if name == "leaked" else min(*spec.rows, _GUESSED)
            if getattr(spec, name) >= guessed:
                raise BadInputError(
                    f"{name}={getattr(spec, name):,} records are known of {guessed:,}, so that none is left to guess; "
                    f"give fewer ({name}), or more rows."
                )
        self.partition = partition_of(spec, data)
        self.observer = _observer(spec, self.partition)
        refuse_class_attacks("trees", spec.attacks, data.schema.target)
        refuse_inapplicable(spec.attacks, deployed(spec), spec.baselines)
        self.defenses = {part.title: defense_of(part) for part in spec.defenses}
        for label, defense in self.defenses.items():
            _check_defense(spec, label, defense)
        self.parts = with_label_columns(
            planned([_TRAINING], spec.baselines, spec.attacks), "trees", data.schema.target.name
        )
        self.configurations = tuple(Configuration(label, rows) for rows in spec.rows for label in self.defenses)
        self.rows = rows_identity(data)
        self.about = self._about()

    def _about(self) -> About:
        spec, data = self.spec, self.data
        columns = self.partition.schemas[1].names
        on_labels = any(part.column is not None for part in self.parts if part.kind == "attack")
        return About(
            **facts_of(data, columns=columns),
            protocol=spec.protocol,
            model=f"SecureBoost ({spec.trees} rounds, depth {spec.depth})",
            lead="What boosted trees over columns tell the parties of each other's columns and labels.",
            limits=_not_attacked(data, columns),
            attacker="The active party",
            secret="all cells of the passive party",
            message="the decrypted sums",
            size="rows",
            size_option="--rows",
            control="There are more equations than rows, and the active party's planted column gives the label away, "
            "so a working attack reads nearly all planted cells and labels.",
            threat_model=_threat_model(spec, data, self.partition),
            marks=marks_of("trees", spec.attacks, spec.defenses),
            rounds=spec.trees,
            label=data.schema.target.name if on_labels else None,
            label_attacker="The passive party" if on_labels else None,
            scales={"task_rmse": Scale(None), **FEATURE_SCALES},
            utility=("auc", "task_accuracy", "task_rmse"),
            settings={**{name: getattr(spec, name) for name in _SHOWN}, "columns": list(columns)},
        )

    @property
    def schema(self) -> Schema:
        """The schema with the distances within which a number counts as found here."""
        return with_reach(self.data.schema)

    @property
    def determining(self) -> Mapping[str, Json]:
        """Everything that determines figures beside spec, rows, defense and part, as JSON values."""
        observer: Mapping[str, Json] = {"observer": list(self.observer)} if self.spec.label_party else {}
        return {"columns": [list(columns) for columns in self.partition.columns], **observer}

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        if part.kind != "attack":
            return {}
        spec = self.spec
        known = _known_defense(self.defenses[configuration.defense])
        if part.column is None:
            return {"sees": "decrypted sums, and sides of splits", "defense": plain(known.describe())}
        return {"sees": "the rows of each node", "known_labels": spec.known_labels, "defense": plain(known.describe())}

    def expose(self, configuration: Configuration, units: range) -> Exposure:
        """Grow trees in some trainings."""
        return UnitsExposure(self.about, [_training(self, configuration, unit) for unit in units])

    def levers(self) -> tuple[Lever, ...]:
        """Return noise on sums, trees of the active party alone, larger leaves, coarser bins and shallower trees."""
        bins, depth, trees = self.spec.max_bin, self.spec.depth, self.spec.trees
        return (
            Lever("histogram_noise", 0.01, 1000.0, strengths=(("deviation",),)),
            *([Lever("first_trees", 1, trees - 1, True, strengths=(("rounds",),))] if trees > 2 else []),
            Lever("min_child_weight", 1.0, 100.0, strengths=(("weight",),)),
            *([Lever("max_bin", bins, 2, True, strengths=(("bins",),))] if bins > 2 else []),
            *([Lever("depth", depth, 1, True, spec_field="depth")] if depth > 1 else []),
        )

    @property
    def too_small_for_control(self) -> bool:
        """Whether the table has too few rows for the control."""
        return len(self.data.all) < _CONTROL_ROWS // 2

    def planted(self, swapped: bool) -> ColumnsAudit | None:
        """Return a control: the passive party holds fair coins, and labels follow another coin, of the active one.

        Of few rows, so that there are more equations than unknown bins. Attacks on labels are left out where the target
        is a number. None where the table has too few rows.
        """
        if self.too_small_for_control:
            return None
        planted = with_label_coins(some_rows(self.data, _CONTROL_ROWS, self.spec.seed), _CONTROL_COINS, self.spec.seed)
        rows = len(planted.all)
        classes = isinstance(planted.schema.target, Discrete)
        registered = registry.attacks.of("trees")
        attacks = [part for part in self.spec.attacks if classes or not guesses_labels(entry_of(registered, part))]
        if not attacks:
            return None
        known = min(100, rows // 4)
        changed = {
            **_CONTROL_TREES,
            **{"rows": (rows,), "passive": planted.schema.names[-_CONTROL_COINS:], "label_party": ()},
            **{"max_bin": 256, "base_score": None},
            **{"leaked": known, "known_labels": known, "attacks": tuple(attacks)},
            # No column tells anything of a coin, so that a prediction from all of them is as good as this.
            "baselines": named("constant", *(("label_mode", "label_columns") if classes else ())),
        }
        return self.control_on(planted, changed, swapped, "its labels are two, far apart")


@dataclass(frozen=True)
class _Grown:
    """One training: what each party sees of it, and the secrets."""

    audit: ColumnsAudit
    unit: int
    defense: TreesDefense
    grown: GrownTrees
    cells: Float[Tensor, "record column"]
    labels: Float[Tensor, " record"]
    tested: tuple[np.ndarray, np.ndarray]

    def about(self, part: PlannedPart) -> Outcome:
        """Return how well the trees predict."""
        return Outcome(utility(self.grown.forest, *self.tested))

    def secret(self, part: PlannedPart) -> AttackedSecret[Any]:
        """Return the passive party's cells, or the labels of the active one, as a secret."""
        purpose = "starts" if part.kind == "attack" else "baseline"
        seeds = [stream(self.audit.spec.seed, self.unit, purpose) % 2**62]
        if part.column is None:
            return self.columns(seeds)
        target, marginal = self.audit.data.schema.target, self.audit.data.statistics.target
        true, labelled = self.labels[None, :_GUESSED], self.audit.spec.known_labels
        return attacked_labels("trees", self.nodes(), target, marginal, true, labelled, seeds)

    @property
    def passive(self) -> list[int]:
        """Positions of the passive party's columns."""
        return list(self.audit.partition.columns[1])

    def sums(self) -> ColumnSumsView:
        """Return what the active party sees."""
        partition = self.audit.partition
        inputs = encoder_of(partition.schemas[0]).encode(self.cells[:, list(partition.columns[0])])
        target = partition.schema.target
        labels = self.labels[:, None]
        if isinstance(target, Discrete):
            labels = torch.nn.functional.one_hot(self.labels.long(), target.width)
        return ColumnSumsView((self.grown.decrypted,), torch.cat([inputs.double(), labels.double()], dim=1)[None])

    def nodes(self) -> NodesView:
        """Return what the passive party sees; in the negative control, the nodes of other rows."""
        observer, known = list(self.audit.observer), self.audit.spec.known_labels
        whole = self.audit.data.schema
        schema = Schema(columns=tuple(whole.columns[i] for i in observer), target=whole.target)
        nodes = self.grown.nodes[:_GUESSED]
        if self.audit.swapped:
            nodes = torch.cat([nodes[:known], nodes[known:].roll(1, 0)])
        inputs = encoder_of(schema).encode(self.cells[:_GUESSED, observer])
        return NodesView(nodes[None], self.grown.tree_of, inputs[None].double())

    def knows_columns(self) -> FeatureKnowledge:
        """Return the side information of the active party."""
        schema, statistics = self.audit.partition.schemas[1], self.audit.data.statistics
        count = self.audit.spec.leaked
        active_cells = self.cells[None, :count, list(self.audit.partition.columns[0])]
        leaked = (
            Leaked(self.cells[None, :count, self.passive], self.cells.new_zeros(1, count, 0), active_cells)
            if count
            else None
        )
        marginals = tuple(statistics.marginals[i] for i in self.passive)
        return FeatureKnowledge(schema, marginals, _known_defense(self.defense), leaked=leaked)

    def columns(self, seeds: Sequence[int]) -> AttackedSecret[FeatureGuess]:
        """Return the passive party's cells as a secret; the records that the active party knows do not count."""
        counted = slice(self.audit.spec.leaked, None)
        secret = ColumnsSecret(self.cells[None, counted, self.passive], self.labels[None, counted])
        inputs = (self.sums(), self.knows_columns())

        def score(guess: FeatureGuess) -> Outcome:
            chances = guess.chances and tuple(c if c is None else c[:, counted] for c in guess.chances)
            scored = replace(guess, cells=guess.cells[:, counted], chances=chances)
            return features_outcome(inputs[1], secret, scored, self.audit.keeps_records)

        shape = {"training": 1, "record": len(self.cells), "column": len(self.passive)}
        return AttackedSecret("trees", FeatureGuess, lambda: inputs, seeds, score, secret.cells.shape[1], shape)


def partition_of(spec: TreesSpec, data: Dataset) -> Partition:
    """Return the columns of the active and of the passive party."""
    if spec.passive:
        return by_names(data.schema, [(), spec.passive])
    return by_shares(data.schema, [1 - spec.share, spec.share], None, data.named_sensitive, 1)


def _observer(spec: TreesSpec, partition: Partition) -> tuple[int, ...]:
    """Return the columns of the passive party that is after the labels."""
    passive = dict(zip(partition.schemas[1].names, partition.columns[1], strict=True))
    foreign = [name for name in spec.label_party if name not in passive]
    if foreign:
        raise BadInputError(
            f"label_party names {foreign[0]!r}, which is no passive column; those are {', '.join(passive)}."
        )
    return tuple(passive[name] for name in spec.label_party) or tuple(partition.columns[1])


def _training(audit: ColumnsAudit, configuration: Configuration, unit: int) -> _Grown:
    spec, data, seed = audit.spec, audit.data, stream(audit.spec.seed, unit, "clients") % 2**62
    defense, count = audit.defenses[configuration.defense], configuration.batch_size
    assert count is not None
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(data.all)))
    (cells, labels), (others, theirs) = (data.all.take(part) for part in (order[:count], order[count:][:TESTED]))
    grown_on = cells
    passive = list(audit.partition.columns[1])
    if audit.swapped:
        # The passive party's columns are those of the row before: rows were shuffled, so that it is any other.
        grown_on = cells.clone()
        grown_on[:, passive] = cells[:, passive].roll(1, 0)
    numbers = numbers_of(data, labels)
    score = spec.base_score
    if score is None:
        score = float(numbers.mean()) if audit.objective == "reg:squarederror" else 0.5
    least = spec.min_child_weight if defense.min_child_weight is None else defense.min_child_weight
    most = spec.max_bin if defense.max_bin is None else defense.max_bin
    rates = (spec.learning_rate, spec.regularisation, least)
    recipe = boosting.Boosting(audit.objective, audit.classes, spec.trees, spec.depth, *rates, most, score)
    noise, generator = defense.noise, np.random.default_rng([seed, 1])
    learning = SecureBoost(
        recipe,
        audit.partition.columns[1],
        0 if defense.first is None else defense.first.rounds,
        None if noise is None else lambda sums: noise(sums, generator),
        None if defense.shuffled is None else np.random.default_rng([seed, 2]),
        defense.shuffled is not None and defense.shuffled.renumbered,
        audit.observer,
    )
    rows = boosting.encoded(data.schema, data.statistics, grown_on)
    tested = boosting.encoded(data.schema, data.statistics, others), numbers_of(data, theirs)
    return _Grown(audit, unit, defense, learning.grow(data.schema, rows, numbers), cells, labels, tested)


def _known_defense(defense: TreesDefense) -> KnownFeatures:
    """Return what the attacker knows of a defense: its mechanisms and their options."""
    kinds = {"histogram_noise": defense.noise, "first_trees": defense.first, "shuffled_bins": defense.shuffled}
    named = {name: cast("dict[str, float]", plain(vars(kind))) for name, kind in kinds.items() if kind is not None}
    return KnownFeatures(named)


def _check_defense(spec: TreesSpec, label: str, defense: TreesDefense) -> None:
    if defense.hidden or defense.cuts is not None:
        raise BadInputError(
            f"the defense {label!r} acts on tree files or on bins that clients share, which 'secureboost' does not "
            "have; use histogram_noise, first_trees, shuffled_bins, min_child_weight or max_bin."
        )
    if defense.first is not None and defense.first.rounds >= spec.trees:
        raise BadInputError(
            f"the defense {label!r} leaves the passive party out of {defense.first.rounds} rounds, but there are "
            f"{spec.trees}; leave it some."
        )


def _not_attacked(data: Dataset, columns: tuple[str, ...]) -> tuple[str, ...]:
    spared = [clean(name) for name in data.named_sensitive if name not in columns]
    if not spared:
        return ()
    noun, verb = ("column", "is") if len(spared) == 1 else ("columns", "are")
    return (f"Not attacked: the sensitive {noun} {listed(spared)}, which {verb} not held by the passive party.",)


def _threat_model(spec: TreesSpec, data: Dataset, partition: Partition) -> tuple[str, ...]:
    active, passive = partition.columns
    return (
        "The active party holds the labels and "
        f"{how_many(len(active), 'column')}. It decrypts the sums of derivatives over each bin of the passive party's "
        "columns in every node, and knows which rows go left at every split.",
        f"It is after {how_many(len(passive), 'column')} of the passive party: "
        f"{', '.join(partition.schemas[1].names)}. It knows their schema and marginals, the order of bins unless they "
        "are shuffled, and no value at which a bin ends.",
        "The passive party is told the rows of each node that it sends sums for, and knows those on either side of its "
        f"own splits.{_of_several(spec)} It is after the labels of {min(max(spec.rows), _GUESSED):,} rows, of which it "
        f"knows {spec.known_labels:,}.",
        f"Baselines from own columns learn from {spec.leaked:,} records that the active party knows whole.",
        f"SecureBoost on {', '.join(f'{rows:,}' for rows in spec.rows)} rows of {data.name}, {len(data.all):,} rows: "
        f"{spec.trees} rounds, depth {spec.depth}, eta {spec.learning_rate:g}, lambda {spec.regularisation:g}, at most "
        f"{spec.max_bin} bins a column. More rows for as many trees leak less of each: give the number of your own.",
        f"{how_many(spec.repetitions, 'training')} from seed {spec.seed}; intervals are over trainings.",
        "Encryption is left out, since what is decrypted is what counts. Noise has no epsilon here: the rows that go "
        "left at a split are sent as they are.",
    )


def _of_several(spec: TreesSpec) -> str:
    """Return which of several passive parties is after the labels, as a sentence; nothing where there is one."""
    if not spec.label_party:
        return ""
    return (
        f" Several share the passive columns, and the one with {', '.join(map(clean, spec.label_party))} is measured."
    )


def deployed(spec: TreesSpec) -> Deployment:
    """Return the threat model of a spec: what either party sees."""
    amounts: dict[Need, float | int | None] = {"leaked": spec.leaked, "labels": spec.known_labels}
    reveals = (ColumnSumsView, NodesView)
    return Deployment("trees", spec.protocol, reveals, granted(amounts), None, mechanisms("trees", spec.defenses))
