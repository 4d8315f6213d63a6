"""Audits of federated trees: a recipient of a client's sums or tree files reads the records behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from seepage.assessment.measurement import Measurement
from seepage.assessment.trees import TreesSecret, measure_trees
from seepage.datasets import Dataset
from seepage.datasets.coins import numbered
from seepage.digests import Json, plain
from seepage.errors import BadInputError
from seepage.protocols import trees as boosting
from seepage.seeds import stream
from seepage.settings.federations import AttackedParty, FederationsExposure
from seepage.settings.lever import Lever
from seepage.settings.part import Part, named
from seepage.settings.setting import About, Configuration, Given, PlannedPart, Scale
from seepage.settings.spec import Spec
from seepage.settings.threat_model import Deployment, mechanisms, refuse_inapplicable
from seepage.settings.trees.base import (
    TESTED,
    TreesDefense,
    defense_of,
    numbers_of,
    table_of,
    utility,
)
from seepage.settings.trees.columns import ColumnsAudit, deployed
from seepage.settings.trees.spec import TreesSpec
from seepage.settings.units import (
    Tables,
    UnitsAudit,
    facts_of,
    planned,
    rows_identity,
)
from seepage.text import how_many
from seepage.wire.forest import Objective
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret
from seepage.wire.trees import FileMessage, HistogramMessage, HistogramsView, TreeFilesView, TreesGuess, TreesKnowledge

DELTA = 1e-5
_UNACCOUNTED = "Bins and the base score follow from the clients' rows, and are not part of this epsilon."
_TRAINING = Part(name="training")
# Fields that results show.
_SHOWN = ("trees", "depth", "learning_rate", "regularisation", "clients", "summed")
METRICS = ("accuracy", "certified", "exact_match", "rmse")
TREES_SCALES = {
    "epsilon": Scale(None),
    **dict.fromkeys(("leaf_counts", "hidden_sums", "values", "values_right"), Scale(None, 0.0, 1.0)),
    "rmse": Scale(False),
}
# Fewer rows than bins, so that each row is alone in its bin; enough for trees that separate all rows.
_CONTROL_ROWS, _CONTROL_CLIENTS = 25, 4


class TreesAudit(UnitsAudit[TreesSpec, TreesDefense]):
    """An audit of federated trees; a unit is one attacked client, in a federation of its own."""

    setting = "trees"
    fewest_rows = 20
    ignored = frozenset({*Spec.model_fields, "repetitions", "rows"}) - {"dataset_options", "seed"}
    data: Dataset

    def _set_up(self, spec: TreesSpec, dataset: Dataset | None) -> None:
        self.dataset = self.data = data = table_of(spec, dataset)
        self.objective: Objective
        self.objective, self.classes = boosting.objective_of(data.schema)
        if "rows" not in spec.model_fields_set:
            fitting = min(max(spec.rows), len(data.all) // spec.clients)
            self.spec = spec = spec.model_copy(update={"rows": (max(1, fitting),)})
        most = max(spec.rows) * spec.clients
        if most > len(data.all):
            raise BadInputError(
                f"{spec.clients} clients with {max(spec.rows):,} rows each hold {most:,} rows, but {data.name!r} has "
                f"{len(data.all):,}; give fewer clients or rows."
            )
        refuse_inapplicable(spec.attacks, deployment(spec), spec.baselines)
        self.defenses = {part.title: defense_of(part) for part in spec.defenses}
        for label, defense in self.defenses.items():
            _check_defense(spec, label, defense)
        self.parts = planned([_TRAINING], spec.baselines, spec.attacks)
        self.configurations = tuple(Configuration(label, rows) for rows in spec.rows for label in self.defenses)
        self.rows = rows_identity(data)
        self.about = self._about()

    def _about(self) -> About:
        spec, data = self.spec, self.data
        return About(
            **facts_of(data),
            protocol=spec.protocol,
            model=f"xgboost ({spec.trees} rounds, depth {spec.depth})",
            lead="What sums and tree files of federated boosted trees tell of the records that they were made of.",
            attacker="Who receives them" if spec.protocol == "cyclic" else "The server",
            sender="A client",
            secret="all cells",
            message="the sums" if spec.protocol == "histogram" else "the tree files",
            size="client size",
            size_option="--rows",
            control="Each record is alone in a bin of a planted column, so a working attack reads all of them.",
            threat_model=_threat_model(spec, data),
            rounds=spec.trees,
            scales=TREES_SCALES,
            utility=("auc", "task_accuracy", "task_rmse"),
            unaccounted=_UNACCOUNTED if any(defense.noise is not None for defense in self.defenses.values()) else None,
            settings={name: getattr(spec, name) for name in _SHOWN},
        )

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        if part.kind != "attack":
            return {}
        knowledge = _knowledge(self, self.defenses[configuration.defense], configuration)
        sees = "sums of derivatives" if self.spec.protocol == "histogram" else "tree files"
        return {"sees": sees, **cast("Mapping[str, Json]", plain(knowledge.describe()))}

    def expose(self, configuration: Configuration, units: range) -> TreesExposure:
        """Grow trees in some federations, and return the messages of the attacked clients."""
        seeds = [stream(self.spec.seed, unit, "clients") % 2**62 for unit in units]
        return TreesExposure(self, configuration, units, [_federation(self, configuration, seed) for seed in seeds])

    def levers(self) -> tuple[Lever, ...]:
        """Return noise on sums or fields that are not sent, larger leaves, coarser bins and shallower trees."""
        bins, depth = self.spec.max_bin, self.spec.depth
        noise = Lever("histogram_noise", 0.01, 1000.0, strengths=(("deviation",),))
        return (
            noise if self.spec.protocol == "histogram" else Lever("strip_fields", 1, 1),
            Lever("min_child_weight", 1.0, 100.0, strengths=(("weight",),)),
            *([Lever("max_bin", bins, 2, True, strengths=(("bins",),))] if bins > 2 else []),
            Lever("shared_cuts", 128, 2, True, strengths=(("bins",),)),
            *([Lever("depth", depth, 1, True, spec_field="depth")] if depth > 1 else []),
        )

    @property
    def too_small_for_control(self) -> bool:
        """Whether the table has too few rows for the control; where tree files are sent there is none."""
        return self.spec.protocol == "histogram" and len(self.data.all) < _CONTROL_CLIENTS * _CONTROL_ROWS

    def planted(self, swapped: bool) -> TreesAudit | None:
        """Return a control: a column with another number in each row beside the table's columns, which are shuffled.

        Each column keeps its own distribution and tells nothing of any other, so that rows of another client fit as
        well as drawn ones. Every record is alone in a bin of the planted column, and labels are coins. None where tree
        files are sent, which hold no records that an attack must find, or where the table is too small.
        """
        spec = self.spec
        if spec.protocol != "histogram" or self.too_small_for_control:
            return None
        changed = {
            **{"rows": (_CONTROL_ROWS,), "clients": _CONTROL_CLIENTS, "summed": 1, "trees": 12, "depth": 6},
            **{"learning_rate": 0.3, "regularisation": 1.0, "min_child_weight": 1.0, "max_bin": 256},
            "base_score": None,
            "baselines": named("stereotypes", "mode", "random", "own_marginals"),
        }
        rows = numbered(self.data, _CONTROL_CLIENTS * _CONTROL_ROWS, spec.seed)
        return self.control_on(rows, changed, swapped)


@dataclass(frozen=True)
class AttackedClient(AttackedParty):
    """One federation: message of the attacked client, the records behind it, and what files tell of them."""

    message: HistogramMessage | FileMessage
    secret: TreesSecret


@dataclass
class TreesExposure(FederationsExposure["TreesAudit", AttackedClient]):
    """Messages of some attacked clients."""

    metrics = METRICS

    def knowledge(self) -> TreesKnowledge:
        """Return what the attacker knows beside the messages."""
        return _knowledge(self.audit, self.audit.defenses[self.configuration.defense], self.configuration)

    def further(self, secret: RecordsSecret, guess: RecordsGuess) -> list[Measurement]:
        """Return figures of tree files."""
        if not isinstance(guess, TreesGuess):
            return []
        return measure_trees([federation.secret for federation in self.federations], guess)

    def view(self) -> HistogramsView | TreeFilesView:
        """Return the attacker's view of all messages."""
        messages = [federation.message for federation in self.federations]
        if self.audit.spec.protocol == "histogram":
            sums = tuple(message for message in messages if isinstance(message, HistogramMessage))
            return HistogramsView(sums, self.audit.spec.summed)
        return TreeFilesView(tuple(message for message in messages if isinstance(message, FileMessage)))


def _knowledge(audit: TreesAudit, defense: TreesDefense, configuration: Configuration) -> TreesKnowledge:
    spec, data = audit.spec, audit.data
    assert configuration.batch_size is not None
    recipe: dict[str, Any] = {
        **{"regularisation": spec.regularisation, "learning_rate": spec.learning_rate},
        "max_bin": None if defense.cuts is not None else spec.max_bin if defense.max_bin is None else defense.max_bin,
        "noise": 0.0 if defense.noise is None else defense.noise.deviation * spec.summed**0.5,
    }
    return TreesKnowledge(data.schema, data.statistics, configuration.batch_size * spec.summed, **recipe)


def _federation(audit: TreesAudit, configuration: Configuration, seed: int) -> AttackedClient:
    spec, data = audit.spec, audit.data
    defense = audit.defenses[configuration.defense]
    count = configuration.batch_size
    assert count is not None
    table = data.all
    order = np.random.default_rng(seed).permutation(len(table))
    splits = [order[k * count : (k + 1) * count] for k in range(spec.clients)]
    tested = order[spec.clients * count :][:TESTED]

    def rows_of(places: np.ndarray) -> np.ndarray:
        cells, _ = table.take(torch.from_numpy(places))
        rows = boosting.encoded(data.schema, data.statistics, cells)
        return rows if defense.cuts is None else defense.cuts.rounded(data.schema, data.statistics, rows)

    labels = [numbers_of(data, table.take(torch.from_numpy(places))[1]) for places in splits]
    parts = [rows_of(places) for places in splits]
    least = spec.min_child_weight if defense.min_child_weight is None else defense.min_child_weight
    most = spec.max_bin if defense.max_bin is None else defense.max_bin
    rates = (spec.learning_rate, spec.regularisation, least)
    recipe = boosting.Boosting(audit.objective, audit.classes, spec.trees, spec.depth, *rates, most, spec.base_score)
    victims = range(spec.summed)
    # In the negative control the message is that of clients whose records are not scored.
    senders = range(spec.summed, 2 * spec.summed) if audit.swapped else victims
    message: HistogramMessage | FileMessage
    if spec.protocol != "histogram":
        _, messages = (boosting.bagging if spec.protocol == "bagging" else boosting.cyclic)(parts, labels, recipe)
        forest, message = messages[0].forest, messages[0]
        secret = _secret(message, parts[0], labels[0], data, table.take(torch.from_numpy(splits[0]))[0])
        message = replace(message, forest=forest.stripped(defense.hidden))
    elif defense.noise is not None:
        noise, generator = defense.noise, np.random.default_rng([seed, 1])
        if recipe.base_score is None:
            # Clients that add noise agree on a score beforehand.
            score = 0.5 if recipe.objective != "reg:squarederror" else float(np.mean(np.concatenate(labels)))
            recipe = replace(recipe, base_score=score)
        forest, message = boosting.grow_together(parts, labels, recipe, lambda sums: noise(sums, generator), senders)
        secret = TreesSecret((), (), (), {})
    else:
        booster, cuts = boosting.train_together(parts, labels, recipe)
        forest = boosting.forest_of(booster)
        rows, their_labels = np.concatenate([parts[k] for k in senders]), np.concatenate([labels[k] for k in senders])
        message = boosting.histograms(forest, cuts, rows, their_labels, spec.depth)
        secret = TreesSecret((), (), (), {})
    figures = utility(forest, rows_of(tested), numbers_of(data, table.take(torch.from_numpy(tested))[1]))
    if defense.noise is not None:
        outputs = None if forest.labels is None else forest.outputs
        guarantee = defense.noise.guarantee(spec.trees, forest.columns, spec.depth, outputs, DELTA)
        if guarantee is not None:
            figures.append(Measurement.of_unit("epsilon", None, guarantee.epsilon))
    attacked = torch.from_numpy(np.concatenate([splits[k] for k in victims]))
    cells, true = table.take(attacked)
    return AttackedClient(message, cells, true, figures, secret)


def _secret(message: FileMessage, rows: np.ndarray, labels: np.ndarray, data: Dataset, cells: Tensor) -> TreesSecret:
    leaves, hessians, parents = [], [], []
    classes = message.forest.labels
    for number, position in enumerate(message.own):
        tree = message.forest.trees[position]
        if message.before[number] == message.before[0]:
            reached = tree.members(rows)
            kinds = np.zeros(len(rows), dtype=np.int64) if classes is None else labels.astype(np.int64)
            width = 1 if classes is None else classes
            counts = [np.bincount(kinds[reached[leaf]], minlength=width) for leaf in tree.leaves]
            leaves.append(np.stack(counts).astype(np.float64))
        assert tree.hessian is not None
        above = tree.hessian.copy()
        for node in np.flatnonzero(tree.left >= 0):
            above[[tree.left[node], tree.right[node]]] = tree.hessian[node]
        hessians.append(tree.hessian)
        parents.append(above)
    numeric = {data.schema.columns[i].name: cells[:, i].numpy() for i in data.schema.continuous}
    return TreesSecret(tuple(leaves), tuple(hessians), tuple(parents), numeric)


def _check_defense(spec: TreesSpec, label: str, defense: TreesDefense) -> None:
    if defense.first is not None or defense.shuffled is not None:
        raise BadInputError(
            f"the defense {label!r} is for parties that share out columns; use the protocol 'secureboost', or another "
            "defense."
        )
    if defense.noise is not None and spec.protocol != "histogram":
        raise BadInputError(
            f"the defense {label!r} adds noise to sums, but clients of {spec.protocol!r} send tree files; use the "
            "protocol 'histogram', or another defense."
        )
    if defense.hidden and spec.protocol == "histogram":
        raise BadInputError(
            f"the defense {label!r} leaves out fields of tree files, but clients of 'histogram' send sums; use the "
            "protocol 'bagging' or 'cyclic', or another defense."
        )


def _threat_model(spec: TreesSpec, data: Dataset) -> tuple[str, ...]:
    who = {
        "histogram": "The attacker sees the sums of derivatives that a client sends for every node, column and bin: "
        "the server that adds them up, or whoever reads them on the way.",
        "bagging": "The attacker is the server, which receives the trees that a client grew on its own rows as "
        "xgboost's JSON.",
        "cyclic": "The attacker is the next client, which receives the whole model as xgboost's JSON.",
    }[spec.protocol]
    together = "" if spec.summed == 1 else f" Sums of {spec.summed} clients are added up before it sees them."
    return (
        who + together,
        "It follows the protocol, and knows the schema, the public marginals, the bins and the recipe of the trees.",
        f"It is after all cells of {max(spec.rows) * spec.summed:,} records at most; the number of records is known.",
        f"{spec.clients} clients with {', '.join(f'{rows:,}' for rows in spec.rows)} rows each of {data.name}, "
        f"{len(data.all):,} rows: {spec.trees} boosting rounds, depth {spec.depth}, eta {spec.learning_rate:g}, lambda "
        f"{spec.regularisation:g}, at most {spec.max_bin} bins a column.",
        f"{how_many(spec.repetitions, 'federation')} from seed {spec.seed}, one attacked client in each; "
        "intervals are over them.",
        "Messages are those of xgboost: its trees, and the sums from which these follow.",
    )


def prepared(spec: TreesSpec, given: Given, tables: Tables) -> TreesAudit | ColumnsAudit:
    """Return the audit of a spec, by how the table is shared out."""
    return (ColumnsAudit if spec.protocol == "secureboost" else TreesAudit).prepared(spec, given, tables)


def deployment(spec: TreesSpec) -> Deployment:
    """Return the threat model of a spec: views and side information of a recipient of messages."""
    if spec.protocol == "secureboost":
        return deployed(spec)
    view = HistogramsView if spec.protocol == "histogram" else TreeFilesView
    return Deployment("trees", spec.protocol, (view,), frozenset(), None, mechanisms("trees", spec.defenses))
