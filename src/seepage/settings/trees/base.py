"""What audits of all protocols of federated trees share: defenses, labels as trees learn them, quality of the trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seepage import datasets
from seepage.assessment import auc
from seepage.assessment.measurement import Measurement
from seepage.assessment.task import of_task
from seepage.datasets import Dataset
from seepage.defenses.trees import (
    FirstTrees,
    HistogramNoise,
    MaxBin,
    MinChildWeight,
    SharedCuts,
    ShuffledBins,
    StripFields,
)
from seepage.errors import BadInputError
from seepage.protocols import trees as boosting
from seepage.settings.part import Part, mechanisms_of
from seepage.settings.trees.spec import TreesSpec
from seepage.tabular.schema import Discrete
from seepage.wire.forest import Forest

# Number of rows that test the joint model.
TESTED = 2_000


@dataclass(frozen=True)
class TreesDefense:
    """Mechanisms of a defense of federated trees, ready to use."""

    hidden: tuple[str, ...] = ()  # fields that are removed from tree files
    min_child_weight: float | None = None  # the spec's if None, as the next
    max_bin: int | None = None
    cuts: SharedCuts | None = None  # bins from public marginals; from the clients' rows if None
    noise: HistogramNoise | None = None
    first: FirstTrees | None = None
    shuffled: ShuffledBins | None = None


def defense_of(part: Part) -> TreesDefense:
    """Return a defense ready to use."""
    kinds = (StripFields, MinChildWeight, MaxBin, SharedCuts, HistogramNoise, FirstTrees, ShuffledBins)
    strip, leaf, bins, *others = mechanisms_of("trees", part, *kinds)
    least = None if leaf is None else float(leaf.weight)
    return TreesDefense(() if strip is None else strip.hidden, least, None if bins is None else bins.bins, *others)


def table_of(spec: TreesSpec, dataset: Dataset | None) -> Dataset:
    """Return the rows of a spec, that of the spec itself where none are given; refuse what trees cannot be grown on."""
    boosting.check_installed()
    data = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
    if data.layout is not None:
        raise BadInputError(f"trees are grown on tables, but the rows of {data.name!r} are none; name a table.")
    objective, _ = boosting.objective_of(data.schema)
    if spec.base_score is not None and objective == "binary:logistic" and not 0 < spec.base_score < 1:
        raise BadInputError(
            f"the base score of two classes is a probability between 0 and 1, got base_score={spec.base_score:g}."
        )
    return data


def numbers_of(data: Dataset, labels: Tensor) -> np.ndarray:
    """Return labels as trees learn them: classes from 0 up in sorted order, or values."""
    target = data.schema.target
    if not isinstance(target, Discrete):
        return labels.numpy()
    place = np.empty(target.width)
    place[target.sorted_codes] = np.arange(target.width)
    numbered_labels: np.ndarray = place[labels.long().numpy()]
    return numbered_labels


def utility(forest: Forest, rows: np.ndarray, labels: np.ndarray) -> list[Measurement]:
    """Return figures of the joint model on rows that no client holds; nothing where there are none."""
    if not len(rows):
        return []
    margins = forest.margins(rows)
    if forest.labels is None:
        return of_task("task_rmse", float(np.sqrt(np.square(margins[:, 0] - labels).mean())), labels)
    if forest.outputs > 1:
        return of_task("task_accuracy", float((margins.argmax(1) == labels).mean()), labels)
    accuracy = of_task("task_accuracy", float(((margins[:, 0] > 0) == labels).mean()), labels)
    area = auc(torch.from_numpy(margins[:, 0]), torch.from_numpy(labels) == 1)
    return accuracy if area is None else [*accuracy, *of_task("auc", area, labels)]
