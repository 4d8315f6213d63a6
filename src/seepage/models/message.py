"""Form of a message, a gradient, update or cut: the client's loss, its scale, its number format."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError, check_choice
from seepage.models.head import Head, Loss, Reduction

Format = Literal["float32", "float16", "bfloat16", "int8"]
ScaleOf = Literal["known", "round", "record"]

_LEVELS = 127  # steps of a quantised message between zero and its largest entry
_WHOLE = 1e-3  # deviation from a whole number of steps that float32 leaves
_MOST_LOGIT = 40.0
# Usual settings of losses, and a fine grid of all.
_SMOOTHINGS = tuple(k / 100 for k in range(1, 41))
_GAMMAS = tuple(k / 4 for k in range(1, 21))
_ANY_SMOOTHING = tuple(k / 500 for k in range(1, 401))
_ANY_GAMMA = tuple(k / 20 for k in range(1, 101))


@dataclass(frozen=True)
class MessageForm:
    """The facts that turn records' outputs into the gradient that crosses the wire, in all settings.

    ``weights``, ``smoothing`` and their sum are those of PyTorch's ``cross_entropy`` and, for one logit,
    ``binary_cross_entropy_with_logits`` with ``pos_weight``, which is a weight of the second class. The squared error
    is of logits, or of chances (``squared_chance``); with a number as target it is of the output. The focal loss is
    that of Lin et al. (2017), whose ``alpha`` are weights.

    Attributes:
        loss: loss of one record.
        reduction: what a batch's loss is of those of its records. As in PyTorch, the ``mean`` of ``cross_entropy`` is
            over the sum of the records' weights, and that of one logit over their number.
        weights: weight of each class; empty where all are 1.
        smoothing: share of a label that is spread evenly over all classes.
        gamma: exponent of the focal loss.
        delta: error from which on Huber's loss is a straight line.
        scale: factor of all messages, such as a loss scale that is not undone, or 1 / steps of gradient accumulation;
            below 0 where their sign is reversed.
        scale_of: whether the factor is ``known``, or another one for each ``round`` or ``record``, and is fitted.
        format: number format in which messages crossed the wire.
        noise: standard deviation of what is left unexplained of each number, in units of a message's norm.
        training: whether the client's part ran in training mode, where dropout draws a mask for each record, and batch
            normalisation takes the statistics of the batch.
        estimated: whether any of this was estimated on the messages.

    Raises:
        BadInputError: an argument is out of range.

    Example:
        >>> MessageForm(weights=(1.0, 3.0)).slopes("sigmoid", torch.zeros(1, 1)).flatten().tolist()
        [0.5, -1.5]
    """

    loss: Loss = "cross_entropy"
    reduction: Reduction = "mean"
    weights: tuple[float, ...] = ()
    smoothing: float | int = 0.0
    gamma: float | int = 0.0
    delta: float | int = 1.0
    scale: float | int = 1.0
    scale_of: ScaleOf = "known"
    format: Format = "float32"
    noise: float | int = 0.0
    training: bool = False
    estimated: bool = False

    def __post_init__(self) -> None:
        check_choice("loss of the messages:", self.loss, Loss)
        check_choice("reduction of the messages:", self.reduction, Reduction)
        check_choice("format of the messages:", self.format, Format)
        check_choice("scale_of:", self.scale_of, ScaleOf)
        for name, positive in (
            *(("smoothing", False), ("gamma", False), ("noise", False)),
            ("delta", True),
        ):
            value = getattr(self, name)
            most = 1.0 if name == "smoothing" else math.inf
            if isinstance(value, bool) or not 0 <= value < most or (positive and value == 0):
                above = "above 0" if positive else "from 0"
                below = " and below 1" if name == "smoothing" else ""
                raise BadInputError(f"{name} of the messages is a number {above}{below}, got {value!r}.")
        if isinstance(self.scale, bool) or not math.isfinite(self.scale) or self.scale == 0:
            raise BadInputError(f"scale of the messages is a number other than 0, got {self.scale!r}.")
        if any(isinstance(w, bool) or not 0 <= w < math.inf for w in self.weights):
            raise BadInputError(f"weights of classes are numbers from 0, got {list(self.weights)}.")

    @property
    def plain(self) -> bool:
        """Whether the loss of a record is its cross-entropy, or squared error, as it is."""
        even = len(set(self.weights)) < 2 and (not self.weights or self.weights[0] == 1)
        usual = self.loss == "cross_entropy" and self.reduction == "mean" and even and not self.smoothing
        return usual and self.scale == 1 and self.scale_of == "known" and not self.training

    @property
    def unit(self) -> float:
        """Distance of 1 to the next larger number of the format."""
        return 2.0**-10 if self.format == "float16" else 2.0**-7 if self.format == "bfloat16" else 2.0**-23

    def share(self, head: Head, labels: Float[Tensor, " record"]) -> Tensor:
        """Return the factor of one record's loss in a batch's, by the labels of the batch."""
        if self.reduction == "sum":
            return labels.new_tensor(float(self.scale))
        if head == "softmax" and self.loss == "cross_entropy" and self.weights:
            return self.scale / labels.new_tensor(self.weights)[labels.long()].sum()
        return labels.new_tensor(self.scale / len(labels))

    def own_factor(self, behind: Float[Tensor, " record"]) -> Float[Tensor, " record"]:
        """Return what makes each record's part of a message the gradient of its own loss, by the batch's records.

        Where class weights are averaged by their sum, a factor of the batch is left.
        """
        return (torch.ones_like(behind) if self.reduction == "sum" else behind) / self.scale

    def loss_of(
        self, head: Head, outputs: Float[Tensor, "record output"], labels: Float[Tensor, " record"]
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch as PyTorch computes it, times ``scale``; differentiable in the outputs.

        Labels are class codes for ``softmax``, 0 or 1 for ``sigmoid`` and numbers for ``regression``.
        """
        if self.loss == "cross_entropy" and head != "regression":
            loss = self._cross_entropy(head, outputs, labels)
        elif self.loss == "huber" and head == "regression":
            loss = functional.huber_loss(
                outputs[:, 0], labels.to(outputs.dtype), reduction=self.reduction, delta=float(self.delta)
            )
        elif head == "regression":
            loss = functional.mse_loss(outputs[:, 0], labels.to(outputs.dtype), reduction=self.reduction)
        else:
            loss = self._by_record(head, outputs, labels)
        return loss if self.scale == 1 else loss * self.scale

    def _cross_entropy(self, head: Head, outputs: Tensor, labels: Tensor) -> Tensor:
        if head == "softmax":
            weight = outputs.new_tensor(self.weights) if self.weights else None
            return functional.cross_entropy(
                outputs, labels.long(), weight=weight, reduction=self.reduction, label_smoothing=float(self.smoothing)
            )
        no, yes = self.weights or (1.0, 1.0)
        targets = labels.to(outputs.dtype) * (1 - self.smoothing) + self.smoothing / 2
        if no == 0:
            losses = yes * targets * functional.softplus(-outputs[:, 0])
            return losses.mean() if self.reduction == "mean" else losses.sum()
        weight = None if no == 1 else outputs.new_full((len(outputs),), no)
        positive = None if yes == no else outputs.new_tensor(yes / no)
        return functional.binary_cross_entropy_with_logits(
            outputs[:, 0], targets, weight=weight, reduction=self.reduction, pos_weight=positive
        )

    def _by_record(self, head: Head, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the other losses, whose derivatives ``slopes`` has."""
        if head == "sigmoid":
            logs = torch.cat([functional.logsigmoid(-outputs), functional.logsigmoid(outputs)], 1)
        else:
            logs = outputs.log_softmax(1)
        classes = logs.shape[1]
        codes = labels.long()
        # Not one_hot, which needs the values: attackers differentiate under vmap.
        soft = codes[:, None] == torch.arange(classes, device=codes.device)
        targets = soft.to(outputs.dtype) * (1 - self.smoothing) + self.smoothing / classes
        if head == "sigmoid" and self.loss == "squared_chance":
            pulls = targets * outputs.new_tensor(self.weights or [1.0, 1.0])
            losses = (pulls * (1 - logs.exp()).square()).sum(1)
            return losses.mean() if self.reduction == "mean" else losses.sum()
        if self.loss == "focal":
            log = logs.gather(1, codes[:, None])[:, 0]
            losses = -(1 - log.exp()).pow(float(self.gamma)) * log
        else:
            given = logs.exp() if self.loss == "squared_chance" else outputs
            wanted = targets[:, 1:] if head == "sigmoid" else targets
            if self.loss == "huber":
                apart = functional.huber_loss(given, wanted, reduction="none", delta=float(self.delta))
            else:
                apart = (given - wanted).square()
            losses = apart.sum(1)
        if self.weights:
            losses = losses * outputs.new_tensor(self.weights)[codes]
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def slopes(self, head: Head, logits: Float[Tensor, "*some output"]) -> Float[Tensor, "*some label output"]:
        """Return the derivative of a record's loss with respect to its logits, for every label it may have.

        ``scale`` is left out: it is undone on the received messages.
        """
        weights, targets = self._weighted(2 if head == "sigmoid" else logits.shape[-1], logits)
        if head == "sigmoid":
            return self._of_single_logit(logits, weights, targets)
        return self._of_logits(logits, weights, targets)

    def pulls(self, classes: int, like: Tensor) -> Float[Tensor, "label class"]:
        """Return the weight with which cross-entropy pulls a record of each label to each class.

        With ``t`` a label's row and ``p`` the chances of the classes, its slope is ``sum(t) p - t``.
        """
        weights, targets = self._weighted(classes, like)
        return targets * weights

    def _weighted(self, classes: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of classes, and the soft labels."""
        if self.weights and len(self.weights) != classes:
            raise BadInputError(
                f"messages of {classes} classes have {len(self.weights)} weights; give one weight for each class."
            )
        targets = torch.eye(classes, dtype=like.dtype, device=like.device) * (1 - self.smoothing)
        return like.new_tensor(self.weights or [1.0] * classes), targets + self.smoothing / classes

    def _of_single_logit(self, logits: Tensor, weights: Tensor, targets: Tensor) -> Tensor:
        # Not sigmoid(s) - 1, which rounds to 0 for large s long before the true value does.
        yes, no = torch.sigmoid(logits), torch.sigmoid(-logits)
        if self.loss in ("squared", "huber"):
            error = torch.stack([logits - target for target in targets[:, 1]], dim=-2) * weights[:, None]
            bound = self.delta * weights[:, None]
            return 2 * error if self.loss == "squared" else error.clamp(-bound, bound)
        # The part of each class, which pulls the logit to its own side.
        pulled = targets * weights
        slope = torch.stack([part[0] * yes - part[1] * no for part in pulled], dim=-2)
        if self.loss == "squared_chance":
            return 2 * slope * (yes * no)[..., None, :]
        if self.loss == "focal":
            return slope * torch.stack([self._focused(yes), self._focused(no)], dim=-2)
        return slope

    def _of_logits(self, logits: Tensor, weights: Tensor, targets: Tensor) -> Tensor:
        if self.loss in ("squared", "huber"):
            error = (logits[..., None, :] - targets) * weights[:, None]
            bound = self.delta * weights[:, None]
            return 2 * error if self.loss == "squared" else error.clamp(-bound, bound)
        chances = logits.softmax(-1)
        if self.loss == "squared_chance":
            error = (chances[..., None, :] - targets) * weights[:, None]
            mean = (error * chances[..., None, :]).sum(-1, keepdim=True)
            return 2 * chances[..., None, :] * (error - mean)
        pulled = targets * weights
        slope = chances[..., None, :] * pulled.sum(1, keepdim=True) - pulled
        if self.loss == "focal":
            rest = 1 - chances
            # Of a label that is nearly certain, the sum of the others is exact, and 1 - chance is not.
            others = torch.stack([chances.masked_fill(row, 0).sum(-1) for row in torch.eye(len(weights)).bool()], -1)
            return slope * self._focused(torch.where(rest < 0.5, others, rest))[..., None]
        return slope

    def _focused(self, rest: Tensor) -> Tensor:
        """Return the factor that the focal loss has before the slope of cross-entropy, by 1 - chance of the label."""
        small = rest.clamp(min=torch.finfo(rest.dtype).tiny)
        ratio = torch.where(rest < 1e-4, 1 + rest / 2, -torch.log1p(-rest.clamp(max=1 - 1e-7)) / small)
        return rest.pow(self.gamma) * (1 + self.gamma * (1 - rest) * ratio)

    def logits_of(self, slope: Float[Tensor, " record"]) -> Float[Tensor, " record"]:
        """Return the logit of a sigmoid whose loss has a slope; the slope's sign tells the label."""
        # Slopes rise with the logit, but for those of some focal losses and squared errors of chances where the label
        # is all but excluded: there this is the logit of the other branch.
        label = (slope < 0).long()
        low, high = torch.full_like(slope, -_MOST_LOGIT), torch.full_like(slope, _MOST_LOGIT)
        for _ in range(60):
            middle = (low + high) / 2
            slope_there = self.slopes("sigmoid", middle[:, None])[torch.arange(len(slope)), label, 0]
            low, high = torch.where(slope_there < slope, middle, low), torch.where(slope_there < slope, high, middle)
        return (low + high) / 2

    def describe(self) -> str:
        """Return what is not plain, in words."""
        parts = []
        if self.reduction == "sum":
            parts.append("a sum over the records")
        if self.loss != "cross_entropy":
            parts.append({"focal": f"focal loss with exponent {self.gamma:g}", "squared": "squared error",
                          "squared_chance": "squared error of chances",
                          "huber": f"Huber's loss with delta {self.delta:.3g}"}[self.loss])  # fmt: skip
        if len(set(self.weights)) > 1:
            parts.append(f"class weights {' : '.join(f'{w:.4g}' for w in self.weights)}")
        if self.smoothing:
            parts.append(f"label smoothing {self.smoothing:.3g}")
        if self.scale != 1:
            # A fit from float32 has a digit less than what is declared.
            digits = 5 if self.estimated else 6
            parts.append(f"a factor of {self.scale:.{digits}g}")
        if self.scale_of != "known":
            parts.append(f"a factor of its own for each {self.scale_of}")
        if self.format != "float32":
            parts.append(f"messages in {self.format}")
        if self.noise:
            parts.append(f"noise of {self.noise:.2g} of a message's norm in each number")
        if self.training:
            parts.append("a client in training mode")
        return ", ".join(parts) or "cross-entropy, messages as they are"

    def to_plain(self) -> dict[str, object]:
        """Return the fields as plain values, without those of a plain form."""
        usual = MessageForm()
        return {f.name: asdict(self)[f.name] for f in fields(self) if getattr(self, f.name) != getattr(usual, f.name)}


PLAIN = MessageForm()
"""Cross-entropy, or the squared error of a number, in float32 as it is."""


def shapes(form: MessageForm, fine: bool = False) -> Iterator[MessageForm]:
    """Yield forms with other usual losses: label smoothing, the focal loss, and where not ``fine`` squared errors."""
    for smoothing in _ANY_SMOOTHING if fine else _SMOOTHINGS:
        yield replace(form, smoothing=smoothing)
    for gamma in _ANY_GAMMA if fine else _GAMMAS:
        yield replace(form, loss="focal", gamma=gamma)
    if not fine:
        yield replace(form, loss="squared_chance")
        yield replace(form, loss="squared")


def format_of(messages: Float[Tensor, "record cut"]) -> Format:
    """Return the coarsest number format that holds all messages of a tensor as they are."""
    numbers = messages.detach().float().contiguous()
    if len(numbers) > 1 and bool(quantised(numbers).all()):
        return "int8"
    # By the last bits of the fraction, which a power of two as a factor, such as a loss scale, leaves as they are.
    bits = numbers.view(torch.int32)
    if not bool((bits & (2**16 - 1)).any()):
        return "bfloat16"
    return "float32" if bool((bits & (2**13 - 1)).any()) else "float16"


def quantised(numbers: Float[Tensor, "record cut"]) -> Bool[Tensor, "record cut"]:
    """Return where numbers are whole multiples of the largest divided by 127."""
    step = numbers.abs().max() / _LEVELS
    return ((numbers / step) - (numbers / step).round()).abs() < _WHOLE


def step_of(messages: Float[Tensor, "record cut"]) -> float:
    """Return the distance of two numbers of a quantised message."""
    return float(messages.abs().max()) / _LEVELS
