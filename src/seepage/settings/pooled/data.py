"""Rows of pooled learning, tables and others, and the training of models on them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor

from seepage import datasets, registry
from seepage.datasets import Dataset
from seepage.datasets.marked import SYNTHETIC, marked, usual_value, with_synthetic
from seepage.datasets.own_population import own_nodes, own_texts
from seepage.datasets.population import Nodes, Population, Texts
from seepage.digests import Json, plain
from seepage.errors import BadInputError, Remedy, unknown_name
from seepage.settings.pooled.parts import PooledDefense, defense_of, views_of
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.units import rows_identity
from seepage.shadow.graph import Convolutional
from seepage.shadow.learner import Learner
from seepage.shadow.pooling import MarkedRows
from seepage.shadow.recurrent import Recurrent
from seepage.shadow.stacked import Dense
from seepage.tabular.schema import Category, Discrete
from seepage.wire.pooled import GradientsView


def _value(spec: PooledSpec, data: Dataset, sensitive: str) -> Category | None:
    """Return the value whose share is the secret: the spec's text as a value of the column, or a usual one if None."""
    discrete = isinstance(data.schema.column(sensitive), Discrete)
    # A target as a secret is refused where rows are marked.
    if spec.value is None and discrete and sensitive in data.schema.names:
        return usual_value(data.all, sensitive)
    if not isinstance(spec.value, str) or discrete:
        return spec.value
    try:
        return float(spec.value)
    except ValueError:
        raise BadInputError(
            Remedy("value"),
            f" of the column of numbers {sensitive!r} is a number, above which the attribute is carried; got "
            f"{spec.value!r}.",
        ) from None


def _rows(spec: PooledSpec, data: Dataset, sensitive: str, defense: PooledDefense) -> MarkedRows:
    names = data.schema.names
    grouping = () if spec.group is None else (spec.group,)
    for name in (*spec.inputs, *defense.without, *grouping):
        if name not in names:
            raise unknown_name("column", name, names)
    left_out = {name for name in names if spec.inputs and name not in (*spec.inputs, sensitive)}
    left_out |= {*defense.without, *grouping}
    value = 5 if spec.synthetic is not None else _value(spec, data, sensitive)
    keep = spec.keep and sensitive not in left_out
    rows = marked(data, sensitive, value, keep, sorted(left_out - {sensitive}))
    return rows if spec.group is None else replace(rows, groups=_groups(data, spec.group))


def _groups(data: Dataset, name: str) -> Int[Tensor, " row"]:
    position = data.schema.names.index(name)
    column, cells = data.schema.columns[position], data.all.column(position)
    if isinstance(column, Discrete) and column.other is not None:
        together = int((cells == column.categories.index(column.other)).sum())
        raise BadInputError(
            f"rare values of the column {name!r} were taken together, {together} rows in all, so that it does not say "
            "which rows belong together; write its values as numbers, or keep more values (",
            Remedy("most_categories"),
            ").",
        )
    return cells.unique(return_inverse=True)[1]


@dataclass(frozen=True)
class PooledData:
    """Rows of any kind, and the training of models on them."""

    spec: PooledSpec
    name: str
    notes: tuple[str, ...]
    extent: str
    count: int
    target: str
    sensitive: str
    value: Category | None  # of numbers the share above it, None for the median
    identity: list[Json]
    by_columns: Mapping[tuple[str, ...], MarkedRows]  # by the columns that a defense leaves out
    classes: int
    table: Dataset | None = None
    of_population: Learner | None = None

    def rows(self, defense: PooledDefense) -> MarkedRows:
        """Return the rows as models take them under a defense."""
        return self.by_columns[defense.without]

    def learner(self, defense: PooledDefense) -> Learner:
        """Return the training of models under a defense."""
        if self.of_population is not None:
            return self.of_population
        spec, private = self.spec, defense.training
        clip, noise = (None, 0.0) if private is None else (float(private.clip), float(private.noise_multiplier))
        rates = spec.learning_rate, spec.weight_decay, clip, noise
        return Dense(self.classes, spec.hidden, spec.epochs, spec.batch_size, *rates)


def pooled_data(spec: PooledSpec, dataset: Dataset | None = None) -> PooledData:
    """Return the rows of a caller or, if None, of a spec, and the training of models on them."""
    if dataset is None and spec.dataset in registry.populations.names():
        named = registry.populations[spec.dataset]
        folder = {"folder": spec.data_folder} if "folder" in inspect.signature(named.factory).parameters else {}
        population = registry.populations.create(spec.dataset, **folder, **spec.dataset_options)
        return _of_population(spec, cast("Population", population))
    if spec.nodes is not None and (spec.nodes != spec.data or spec.edges is None):
        raise BadInputError(
            f"the nodes {str(spec.nodes)!r} are the table, and come with their edges; leave out another table (",
            Remedy("data"),
            ") and name the edges (",
            Remedy("edges", placeholder="FILE"),
            ").",
        )
    if not spec.beside:
        return _of_table(spec, dataset)
    [column] = spec.beside
    if dataset is None or column not in dataset.beside:
        raise BadInputError(
            f"the column {column!r} of texts or identifiers is one of a table of your own; name the table (",
            Remedy("data", placeholder="FILE"),
            ").",
        )
    value = _value(spec, dataset, spec.secret)
    if spec.text_column is not None:
        named = spec.model_copy(update={"value": value})
        return _of_population(named, own_texts(dataset, column, spec.secret, value, spec.data_folder))
    assert spec.edges is not None
    nodes = own_nodes(dataset, column, spec.edges, spec.separator, spec.secret, value, spec.keep)
    return _of_population(spec.model_copy(update={"value": value}), nodes)


def _of_table(spec: PooledSpec, dataset: Dataset | None) -> PooledData:
    data = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
    if spec.synthetic is not None:
        synthetic = spec.synthetic
        data = with_synthetic(data, synthetic.columns, synthetic.target, synthetic.strength, spec.seed)
    sensitive = SYNTHETIC if spec.synthetic is not None else spec.secret
    # Rows are the same under all defenses that train on the same columns.
    by_columns = {defense.without: _rows(spec, data, sensitive, defense) for defense in map(defense_of, spec.defenses)}
    target = data.schema.target
    # Rows were refused otherwise.
    assert isinstance(target, Discrete)
    value = None if spec.synthetic is not None else _value(spec, data, sensitive)
    about = (spec, data.name, data.notes, data.extent, len(data.all), target.name, sensitive, value)
    return PooledData(*about, rows_identity(data), by_columns, target.width, data)


def _of_population(spec: PooledSpec, data: Texts | Nodes) -> PooledData:
    """Return texts or nodes of a graph; training is that of their recipes where the spec does not change it."""
    kind = "texts" if isinstance(data, Texts) else "nodes of a graph"
    for defense in map(defense_of, spec.defenses):
        of_tables = (defense.without, defense.training, spec.inputs, spec.synthetic, spec.group)
        if any(value not in ((), None) for value in of_tables):
            raise BadInputError(
                f"{data.name} holds {kind} and is no table: columns to train on (inputs, without), groups, a synthetic "
                "column and DP-SGD are for tables; leave them out."
            )
    for part in spec.attacks:
        if GradientsView in views_of(part):
            raise BadInputError(
                f"{part.name} reads gradients of networks on tables, and {data.name} holds {kind}; leave it out."
            )
    if spec.auxiliary_from != "rows":
        raise BadInputError(f"{data.name} holds {kind}, and only rows of tables are made up; leave out auxiliary_from.")
    given = spec.model_fields_set & {"epochs", "batch_size", "learning_rate", "weight_decay"}
    options = {name: getattr(spec, name) for name in given}
    classes = len(data.classes)
    learner: Learner
    if isinstance(data, Texts):
        if len(spec.hidden) not in (0, 2):
            raise BadInputError(f"networks on texts have two widths (recurrent, dense), got hidden={spec.hidden!r}.")
        options |= dict(zip(("units", "dense"), spec.hidden, strict=False))
        identity = [len(data), plain(data.words), plain(data.labels), plain(data.vectors)]
        learner = Recurrent(classes, data.vectors, **options)
    else:
        if len(spec.hidden) > 1 or options.pop("batch_size", None) is not None:
            raise BadInputError(
                "networks on graphs have one hidden layer and train on whole batches (batch_size: null)."
            )
        options |= dict(zip(("hidden",), spec.hidden, strict=False))
        graph = data.visible(spec.secret, spec.keep)
        parts = (graph.features.indices, graph.features.data, graph.edges.indices, graph.edges.indptr)
        identity = [len(data), plain(data.labels), *(plain(torch.from_numpy(part)) for part in parts)]
        learner = Convolutional(classes, graph, **options)
    rows = data.marked(spec.secret)
    extent = f"{len(data):,} {'texts' if isinstance(data, Texts) else 'nodes'}"
    about = (spec, data.name, data.notes, extent, len(data), data.target, spec.secret, spec.value)
    return PooledData(*about, [*identity, plain(rows.carries.long())], {(): rows}, classes, of_population=learner)
