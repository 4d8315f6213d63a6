"""Label inference in settings where one party holds the labels and another sees the returned gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage import registry
from seepage.assessment import Measurement, auc
from seepage.assessment.labels import measure_labels
from seepage.assessment.task import of_task
from seepage.errors import BadInputError
from seepage.models.split import label_chances, numbers_of, usual_split_head
from seepage.registry import Entry
from seepage.settings.guessing import AttackedSecret
from seepage.settings.part import Part, entry_of
from seepage.settings.setting import Outcome, PlannedPart
from seepage.tabular.schema import Column, Discrete
from seepage.tabular.statistics import Marginal
from seepage.wire.labels import BatchView, LabelGuess, LabelKnowledge, ReturnedView
from seepage.wire.secureboost import NodesView

T = TypeVar("T")


def with_label_columns(parts: Sequence[PlannedPart], setting: str, label: str) -> tuple[PlannedPart, ...]:
    """Return the parts, with the label as the column of those that guess labels alone."""
    registered = {"attack": registry.attacks.of(setting), "baseline": registry.baselines.of(setting)}

    def on_labels(part: PlannedPart) -> bool:
        entries = registered.get(part.kind)
        if entries is None or (part.part.passed is None and part.part.name not in entries):
            return False
        return guesses_labels(entry_of(entries, part.part))

    return tuple(replace(part, column=label) if on_labels(part) else part for part in parts)


def guesses_labels(entry: Entry[T]) -> bool:
    """Return whether an attack or a baseline guesses labels alone, from what a party without labels sees."""
    return any(issubclass(view, ReturnedView | BatchView | NodesView) for view in entry.sees)


def of_two_kinds(labels: Float[Tensor, "training record"], labelled: int) -> Int[Tensor, "training record"]:
    """Return an order of each training's records whose first, with known labels, are not all alike.

    Where they are alike, as with a rare class, the last of them changes places with the first record of another label.

    Example:
        >>> import torch
        >>> of_two_kinds(torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]]), labelled=2).tolist()
        [[0, 3, 2, 1], [0, 1, 2, 3]]
    """
    order = torch.arange(labels.shape[1]).repeat(len(labels), 1)
    for record_labels, places in zip(labels, order, strict=True):
        others = torch.nonzero(record_labels != record_labels[0])
        if labelled > 1 and len(others) and int(others[0]) >= labelled:
            places[[labelled - 1, int(others[0])]] = places[[int(others[0]), labelled - 1]]
    return order


def mixed_up(view: ReturnedView, labelled: int, gradients: bool = True) -> ReturnedView:
    """Return a view in which each record whose label is unknown, all but the first, has another one's messages.

    Example:
        >>> came = torch.tensor([[[1.0], [2.0], [3.0]]])
        >>> mixed_up(ReturnedView(came, came, came), labelled=1).gradient.flatten().tolist()
        [1.0, 3.0, 2.0]
    """

    def rolled(message: Float[Tensor, "training record feature"]) -> Float[Tensor, "training record feature"]:
        return torch.cat([message[:, :labelled], message[:, labelled:].roll(1, 1)], dim=1)

    gradient = rolled(view.gradient) if gradients else view.gradient
    earlier = tuple(mixed_up(earlier_view, labelled, gradients) for earlier_view in view.earlier)
    return replace(view, features=rolled(view.features), gradient=gradient, earlier=earlier)


def check_two_labels(defense: str, mechanism: object, target: Column) -> None:
    """Refuse a defense for two labels where there are more, or the target is a number."""
    classes = target.width if isinstance(target, Discrete) else None
    if getattr(mechanism, "two_labels", False) and classes != 2:
        has = "is a number" if classes is None else f"has {classes} classes"
        raise BadInputError(
            f"{defense!r} hides which of two labels a record has, but the target {target.name!r} {has}; use another "
            "defense, or a target of two classes."
        )


def classes_of(defense: str, target: Column) -> int:
    """Return the number of classes that a defense of labels flips between; refuse a target that is a number."""
    if not isinstance(target, Discrete):
        raise BadInputError(
            f"{defense!r} flips classes, but the target {target.name!r} is a number; leave it out, or put the target's "
            "values into bins first."
        )
    return target.width


def refuse_class_attacks(setting: str, attacks: Sequence[Part], target: Column) -> None:
    """Refuse attacks that tell classes apart where the target is a number."""
    if isinstance(target, Discrete):
        return
    for part in attacks:
        if entry_of(registry.attacks.of(setting), part).traits.classes:
            raise BadInputError(
                f"the attack {part.title!r} tells classes apart, but the target {target.name!r} is a number; leave it "
                "out, or put the target's values into bins first."
            )


def task_figures(
    target: Column, outputs: Float[Tensor, "record output"], labels: Float[Tensor, " record"]
) -> list[Measurement]:
    """Return figures of one network's predictions of labels, from outputs with the target's usual head.

    ``task_accuracy``: the share of records with the right class, or with a number within the target's tolerance; of two
    classes also ``auc``, of numbers ``task_rmse``, the root of the mean squared error in the target's unit.
    """
    if not isinstance(target, Discrete):
        apart = (numbers_of(target, outputs.cpu()) - labels).abs()
        near = (apart <= target.tolerance).double().mean()
        error = apart.square().mean().sqrt()
        return [*of_task("task_accuracy", near, labels, target.tolerance), *of_task("task_rmse", error, labels)]
    chances = label_chances(usual_split_head(target), outputs).cpu()
    right = (chances.argmax(1) == labels).double()
    figures = of_task("task_accuracy", right.mean(), labels)
    if target.width == 2:
        positive = target.sorted_codes[-1]
        figures += of_task("auc", auc(chances[:, positive], labels == positive), labels)
    return figures


def attacked_labels(
    setting: str,
    view: object,
    target: Column,
    marginal: Marginal,
    true: Float[Tensor, "training record"],
    labelled: int,
    seeds: Sequence[int],
) -> AttackedSecret[LabelGuess]:
    """Return the labels of each training as a secret; the first ``labelled``, which are known, do not count."""
    places = torch.arange(labelled).expand(len(true), labelled)
    knowledge = LabelKnowledge(target, marginal, places, true[:, :labelled])
    counted = (torch.arange(true.shape[1]) >= labelled).expand(true.shape)

    def score(guess: LabelGuess) -> Outcome:
        return Outcome(measure_labels(target, true, guess, counted))

    number = max(1, int(counted.sum()))
    shape = {"training": len(true), "record": true.shape[1]}
    return AttackedSecret(setting, LabelGuess, lambda: (view, knowledge), seeds, score, number, shape)
