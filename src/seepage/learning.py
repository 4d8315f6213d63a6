"""Loss and gradient as pure functions that clients and attackers share: replaying reproduces a view bit for bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Literal, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, vmap

from seepage.errors import BadInputError, NotFiniteError, check_choice, check_count, unknown_name
from seepage.models.batch_norm import Moments, normalisations, run_watched
from seepage.models.calling import call
from seepage.models.message import PLAIN, MessageForm
from seepage.models.model import Head, Model
from seepage.models.split import SplitModel, batches, record_losses
from seepage.models.vertical import ActiveModel, losses_of
from seepage.tabular.schema import Column


def mean_loss(
    head: Head, outputs: Float[Tensor, "record output"], labels: Float[Tensor, " record"], form: MessageForm = PLAIN
) -> Float[Tensor, ""]:
    """Return the loss of a batch: the mean over its records, if its form is no other (``MessageForm.loss_of``).

    Labels are class codes for ``softmax``, 0 or 1 for ``sigmoid`` and numbers for ``regression``, whose outputs are
    predictions; those of the others are logits.
    """
    return form.loss_of(head, outputs, labels)


def gradient(
    model: Model,
    encoded: Float[Tensor, "*batch record encoded"],
    labels: Float[Tensor, "*batch record"],
    parameters: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return the gradient of each batch's loss by parameter name, shape (*batch, *parameter).

    The loss has the model's ``form``, the mean over records if it is plain. Differentiable in ``encoded``, so that
    attackers match a gradient with the same function that computed it. ``parameters`` hold other ones for each entry of
    the first batch axis, shape (batch, *parameter).
    """

    def loss(parameters: dict[str, Tensor], rows: Tensor, targets: Tensor) -> Tensor:
        return mean_loss(model.head, call(model.module, parameters, rows), targets, model.form)

    per_batch = grad(loss)
    for axis in reversed(range(encoded.dim() - 2)):
        per_batch = vmap(per_batch, in_dims=(0 if axis == 0 and parameters is not None else None, 0, 0))
    return per_batch(model.parameters if parameters is None else parameters, encoded, labels)


GradientOf = Callable[[Model, Tensor, Tensor, dict[str, Tensor] | None], dict[str, Tensor]]
"""A function that computes gradients: ``gradient``, or a client's defended one in its place."""


def batch_statistics(
    model: Model, encoded: Float[Tensor, "*batch record encoded"], parameters: dict[str, Tensor] | None = None
) -> dict[str, Moments]:
    """Return mean and unbiased variance of the inputs of each batch normalisation, of shape (*batch, channel).

    A client's running statistics reveal these, see ``models.batch_norm.from_running``. Differentiable in ``encoded``.
    ``parameters`` have the form that ``gradient`` takes.
    """
    if not normalisations(model.module):
        return {}

    def moments(parameters: dict[str, Tensor], rows: Tensor) -> dict[str, Moments]:
        return run_watched(model.module, rows, parameters)[1]

    for axis in reversed(range(encoded.dim() - 2)):
        moments = vmap(moments, in_dims=(0 if axis == 0 and parameters is not None else None, 0))
    return moments(model.parameters if parameters is None else parameters, encoded)


Optimizer = Literal["sgd", "adam", "adamw"]
"""A local optimiser by the name that it has in ``torch.optim``, in small letters."""

Schedule = Literal["constant", "step", "exponential", "cosine"]
"""A course of the learning rate over the optimiser's steps of one message."""


@dataclass(frozen=True)
class LocalTraining:
    """A client's local training between two messages (FedAvg): an optimiser, which starts anew, with its settings.

    Attributes:
        epochs: number of passes over the client's records.
        batch_size: number of records of one local batch; the last of an epoch may have fewer.
        learning_rate: learning rate of the first step.
        optimizer: ``sgd``, ``adam`` or ``adamw``, as in ``torch.optim``.
        momentum: factor of the former direction in SGD's next one; 0 for none.
        nesterov: whether SGD looks ahead along its momentum.
        weight_decay: factor of the parameters that is added to gradients; AdamW takes it off the parameters instead.
        betas: factors of the former moments in Adam and AdamW.
        epsilon: number that Adam and AdamW add to the root of the second moment.
        schedule: course of the learning rate. ``step`` multiplies it by ``rate_factor`` every ``rate_every`` steps,
            ``exponential`` in each step; ``cosine`` lets it fall to 0 over all steps.
        rate_factor: factor of the schedules ``step`` and ``exponential``.
        rate_every: number of steps between two changes of the schedule ``step``.
        accumulation: number of batches whose gradients are added up before the optimiser's step, each over this number.
            The last step of an epoch takes what batches there are.
        drop_last: whether an epoch leaves out a last batch with fewer records than the others.

    Raises:
        BadInputError: a count is below 1, a number is out of its range, a name is unknown, or a setting is given that
            the optimiser or the schedule does not use.

    Example:
        >>> training = LocalTraining(epochs=5, batch_size=8, learning_rate=0.01)
        >>> training.batches(20), training.steps(20)
        ([slice(0, 8, None), slice(8, 16, None), slice(16, 20, None)], 15)
    """

    epochs: int
    batch_size: int
    learning_rate: float | int
    optimizer: Optimizer = "sgd"
    momentum: float | int = 0.0
    nesterov: bool = False
    weight_decay: float | int = 0.0
    betas: tuple[float | int, float | int] = (0.9, 0.999)
    epsilon: float | int = 1e-8
    schedule: Schedule = "constant"
    rate_factor: float | int = 0.1
    rate_every: int = 1
    accumulation: int = 1
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("local_batch_size", self.batch_size)
        check_count("rate_every", self.rate_every)
        check_count("accumulation", self.accumulation)
        check_choice("optimizer", self.optimizer, Optimizer)
        check_choice("schedule", self.schedule, Schedule)
        rate = self.learning_rate
        if not _number(rate) or not 0 < rate < math.inf:
            raise BadInputError(f"a learning rate is a positive number, got learning_rate={rate!r}.")
        pair = self.betas
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(_number(beta) and 0 <= beta < 1 for beta in pair):
            raise BadInputError(f"betas are two numbers of at least 0 and below 1, got betas={pair!r}.")
        if not _number(self.momentum) or not 0 <= self.momentum < 1:
            raise BadInputError(f"momentum is a number of at least 0 and below 1, got momentum={self.momentum!r}.")
        if not _number(self.weight_decay) or not 0 <= self.weight_decay < math.inf:
            raise BadInputError(f"weight_decay is a number of at least 0, got weight_decay={self.weight_decay!r}.")
        # An entry whose gradient is 0, as of a unit that no record activates, would become 0 / 0.
        if not _number(self.epsilon) or not 0 < self.epsilon < math.inf:
            raise BadInputError(f"epsilon is a number above 0, got epsilon={self.epsilon!r}.")
        if not _number(self.rate_factor) or not 0 < self.rate_factor <= 1:
            raise BadInputError(f"rate_factor is a number above 0 and at most 1, got rate_factor={self.rate_factor!r}.")
        for name in ("nesterov", "drop_last"):
            if not isinstance(getattr(self, name), bool):
                raise BadInputError(f"{name} is true or false, got {name}={getattr(self, name)!r}.")
        self._check_use()

    def _check_use(self) -> None:
        """Refuse settings without effect, since they were meant for another training."""
        used = {"sgd": ("momentum", "nesterov"), "adam": ("betas", "epsilon"), "adamw": ("betas", "epsilon")}
        changes = {"constant": (), "step": ("rate_factor", "rate_every"), "exponential": ("rate_factor",), "cosine": ()}
        for kind, users in {"optimizer": used, "schedule": changes}.items():
            chosen = getattr(self, kind)
            for name in dict.fromkeys(name for names in users.values() for name in names):
                value = getattr(self, name)
                if name not in users[chosen] and value != type(self).__dataclass_fields__[name].default:
                    of = " and ".join(user for user, names in users.items() if name in names)
                    raise BadInputError(
                        f"{name} is a setting of {of}, got {name}={value!r} with {kind}={chosen!r}; leave it out."
                    )
        if self.nesterov and not self.momentum:
            raise BadInputError("nesterov looks ahead along a momentum, got none; give one, such as momentum=0.9.")

    @property
    def plain(self) -> bool:
        """Whether each step takes one batch's gradient at one rate off the parameters: plain SGD."""
        return (
            self.optimizer == "sgd"
            and not (self.momentum or self.weight_decay)
            and self.schedule == "constant"
            and self.accumulation == 1
        )

    def batches(self, records: int) -> list[slice]:
        """Return the records of each batch of an epoch, by their position in the epoch's order."""
        starts = range(0, records, self.batch_size)
        slices = [slice(start, min(start + self.batch_size, records)) for start in starts]
        if self.drop_last and slices[-1].stop - slices[-1].start < self.batch_size:
            slices.pop()
        if not slices:
            raise BadInputError(
                f"with drop_last and {records} records of a client no local batch of {self.batch_size} is left; give a "
                "smaller local_batch_size, or drop_last=False."
            )
        return slices

    def groups(self, records: int) -> list[list[slice]]:
        """Return the batches of each of the optimiser's steps in an epoch."""
        batches = self.batches(records)
        return [batches[i : i + self.accumulation] for i in range(0, len(batches), self.accumulation)]

    def steps(self, records: int) -> int:
        """Return the number of the optimiser's steps for a number of records."""
        return self.epochs * len(self.groups(records))

    def rates(self, records: int) -> list[float]:
        """Return the learning rate of each of the optimiser's steps."""
        first, steps = self.learning_rate, self.steps(records)
        if self.schedule == "step":
            return [first * self.rate_factor ** (step // self.rate_every) for step in range(steps)]
        if self.schedule == "exponential":
            return [first * self.rate_factor**step for step in range(steps)]
        if self.schedule == "cosine":
            return [first * (1 + math.cos(math.pi * step / steps)) / 2 for step in range(steps)]
        return [first] * steps

    def factors(self, records: int) -> list[float]:
        """Return the factor of each of SGD's step directions in the update, as gradient and weight decay enter it.

        With rates r_t and momentum m, step s enters by the sum over all steps t from s on of r_t m^(t - s); under
        Nesterov's momentum by r_s and the sum of r_t m^(t - s + 1).
        """
        if self.optimizer != "sgd":
            raise BadInputError(f"a step of SGD alone is a sum of gradients, got optimizer={self.optimizer!r}.")
        factors, later = [], 0.0
        for rate in reversed(self.rates(records)):
            later = rate * (self.momentum if self.nesterov else 1.0) + self.momentum * later
            factors.append(later + rate if self.nesterov else later)
        return factors[::-1]

    def to_plain(self) -> dict[str, object]:
        """Return all settings as values of JSON."""
        return {**asdict(self), "betas": list(self.betas)}

    @classmethod
    def of_plain(cls, values: Mapping[str, object]) -> LocalTraining:
        """Return the training with settings as ``to_plain`` returns them; those with a default may be missing."""
        required = {field.name: field.default is MISSING for field in fields(cls)}
        unknown = [name for name in values if name not in required]
        if unknown:
            raise unknown_name("setting of local training", str(unknown[0]), required)
        missing = [name for name, needed in required.items() if needed and name not in values]
        if missing:
            raise BadInputError(f"local training needs {' and '.join(missing)}; give them.")
        given = dict(values)
        if isinstance(given.get("betas"), list):
            given["betas"] = tuple(given["betas"])  # pyright: ignore[reportArgumentType]
        return cls(**given)  # pyright: ignore[reportArgumentType]

    def describe(self) -> str:
        """Return optimiser, rate and differences to plain SGD, in words."""
        text = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}[self.optimizer]
        text += f" at a learning rate of {self.learning_rate:g}"
        if self.schedule == "cosine":
            text += " (cosine)"
        elif self.schedule != "constant":
            interval = f"{self.rate_every} steps" if self.schedule == "step" and self.rate_every > 1 else "step"
            text += f" (times {self.rate_factor:g} every {interval})"
        if self.momentum:
            text += f", momentum {self.momentum:g}" + " (Nesterov)" * self.nesterov
        if self.optimizer != "sgd":
            text += f", betas {self.betas[0]:g} and {self.betas[1]:g}, epsilon {self.epsilon:g}"
        if self.weight_decay:
            text += f", weight decay {self.weight_decay:g}"
        if self.accumulation > 1:
            text += f", gradients of {self.accumulation} batches a step"
        return text + ", uneven last batches dropped" * self.drop_last


def _number(value: object) -> TypeGuard[float | int]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def local_update(
    model: Model,
    encoded: Float[Tensor, "client epoch record encoded"],
    labels: Float[Tensor, "client epoch record"],
    training: LocalTraining,
    gradient_of: GradientOf = gradient,
    parameters: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return the difference of each client's parameters before and after local training, shape (client, *parameter).

    Differentiable in ``encoded``: each client's records in the order in which it uses them. The optimiser's state is
    fresh at the start, as in a client that makes its optimiser anew in each round. Gradients of clients are computed at
    once; clients may start from parameters of their own, shape (client, *parameter). Parameters that clients keep to
    themselves are trained with the others, see ``Model.local``, and not returned.
    """
    begin = parameters
    if begin is None:
        begin = {name: p.expand(len(encoded), *p.shape) for name, p in model.parameters.items()}
    sent = tuple(begin)
    if model.local is not None and model.local.trained:
        # They move the others from the second step on.
        unsent = {name: model.module.get_parameter(name).detach() for name in model.local.names}
        begin = begin | {name: p.expand(len(encoded), *p.shape) for name, p in unsent.items()}
    epochs, records = encoded.shape[1:3]
    if epochs != training.epochs:
        raise BadInputError(f"the training has {training.epochs} epochs, got the records of {epochs}.")
    now, optimiser = begin, _Optimiser(training)
    order = itertools.product(range(epochs), training.groups(records))
    for (epoch, group), rate in zip(order, training.rates(records), strict=True):
        steps = [gradient_of(model, encoded[:, epoch, batch], labels[:, epoch, batch], now) for batch in group]
        now = optimiser.step(now, _accumulated(steps, training.accumulation), rate)
    return {name: begin[name] - now[name] for name in sent}


def _accumulated(gradients: Sequence[dict[str, Tensor]], count: int) -> dict[str, Tensor]:
    """Return the sum of gradients over a number of batches; their own where each is a step by itself."""
    if count == 1:
        return gradients[0]
    return {name: sum(grads[name] / count for grads in gradients[1:]) + g / count for name, g in gradients[0].items()}


class _Optimiser:
    """An optimiser of ``torch.optim`` as a function of parameters and gradients; only its state is kept.

    Momentum, weight decay and Adam take the operations of ``torch.optim`` on a CPU one by one. The bits still differ:
    gradients of several clients at once are other sums, and plain SGD rounds once more than ``torch.optim``, which
    multiplies and subtracts at once.
    """

    def __init__(self, training: LocalTraining) -> None:
        self._training = training
        self._steps = 0
        self._first: dict[str, Tensor] = {}
        self._second: dict[str, Tensor] = {}

    def step(self, parameters: dict[str, Tensor], gradients: dict[str, Tensor], rate: float) -> dict[str, Tensor]:
        """Return the parameters after a step."""
        self._steps += 1
        if self._training.optimizer != "sgd":
            return {name: self._adam(name, p, gradients[name], rate) for name, p in parameters.items()}
        if self._training.momentum or self._training.weight_decay:
            return {name: self._sgd(name, p, gradients[name], rate) for name, p in parameters.items()}
        return {name: p - rate * gradients[name] for name, p in parameters.items()}

    def _sgd(self, name: str, parameter: Tensor, step: Tensor, rate: float) -> Tensor:
        decay, momentum = self._training.weight_decay, self._training.momentum
        if decay:
            step = step.add(parameter, alpha=decay)
        if momentum:
            before = self._first.get(name)
            self._first[name] = step if before is None else (before * momentum).add(step)
            step = step.add(self._first[name], alpha=momentum) if self._training.nesterov else self._first[name]
        return parameter.add(step, alpha=-rate)

    def _adam(self, name: str, parameter: Tensor, step: Tensor, rate: float) -> Tensor:
        training, (first, second) = self._training, self._training.betas
        if training.optimizer == "adamw":
            parameter = parameter * (1 - rate * training.weight_decay)
        elif training.weight_decay:
            step = step.add(parameter, alpha=training.weight_decay)
        mean = self._first.get(name, torch.zeros_like(step)).lerp(step, 1 - first)
        square = (self._second.get(name, torch.zeros_like(step)) * second).addcmul(step, step, value=1 - second)
        self._first[name], self._second[name] = mean, square
        # The root has no derivative at 0, where an entry's gradients have all been 0.
        root = torch.where(square > 0, square, 1).sqrt() * (square > 0)
        below = root / (1 - second**self._steps) ** 0.5 + training.epsilon
        return parameter.addcdiv(mean, below, value=-rate / (1 - first**self._steps))


@dataclass(frozen=True)
class CutStep:
    """The results of a client's computation in one exchange of split learning.

    ``sent`` is the gradient of the loss of the client's records with respect to each record's activations, their mean
    if the model's ``form`` is no other, ``parameters`` that of the losses summed over clients, by name; ``loss`` is the
    mean of the usual loss over the records, in nats.
    """

    sent: Float[Tensor, "record cut"]
    parameters: dict[str, Tensor]
    loss: float


def cut_step(
    model: SplitModel,
    cut: Float[Tensor, "record cut"],
    cells: Float[Tensor, "record private"],
    labels: Float[Tensor, " record"],
    behind: Float[Tensor, " record"],
) -> CutStep:
    """Return the results of the client's computation from activations, its columns and its labels.

    Cells are as of ``SplitModel.scaled``, labels as of ``models.split.for_loss``; ``behind`` is the number of records
    in the loss that each record's client takes, one client after the other.
    """
    received = cut.detach().requires_grad_(True)
    trained = {name: p for name, p in model.client.named_parameters() if p.requires_grad}
    outputs = model.client(received, cells)
    losses = record_losses(model.head, outputs, labels.to(cut.device))
    if model.form.plain:
        total = (losses / behind.to(losses)).sum()
    else:
        by_client = [(outputs[batch], labels[batch].to(cut.device)) for batch in batches(behind)]
        total = torch.stack([model.form.loss_of(model.head, *of_client) for of_client in by_client]).sum()
    sent, *gradients = torch.autograd.grad(
        total, [received, *trained.values()], allow_unused=True, materialize_grads=True
    )
    return CutStep(sent, dict(zip(trained, gradients, strict=True)), float(losses.detach().mean()))


@dataclass(frozen=True)
class VerticalStep:
    """The results of the active party's computation on a batch of features.

    ``returned`` is the gradient of each training's mean loss with respect to each party's features, ``parameters`` that
    of the losses summed over trainings with respect to the top model, by name; losses are means over the batch, in
    nats.
    """

    returned: tuple[Float[Tensor, "training record _feature"], ...]
    parameters: dict[str, Tensor]
    losses: Float[Tensor, " training"]


def vertical_step(
    active: ActiveModel,
    features: Sequence[Float[Tensor, "training record _feature"]],
    labels: Float[Tensor, "training record"],
    parameters: Mapping[str, Tensor] | None = None,
) -> VerticalStep:
    """Return the results of the active party's computation from all features and labels (``models.split.for_loss``)."""
    received = [tensor.detach().requires_grad_(True) for tensor in features]
    top = dict(active.top.named_parameters()) if parameters is None else parameters
    trained = {name: p for name, p in top.items() if p.requires_grad}
    outputs = torch.func.functional_call(active.top, dict(top), (torch.cat(received, dim=-1),))
    losses = losses_of(active.head, outputs, labels).mean(1)
    gradients = torch.autograd.grad(
        losses.sum(), [*received, *trained.values()], allow_unused=True, materialize_grads=True
    )
    return VerticalStep(
        tuple(gradients[: len(received)]), dict(zip(trained, gradients[len(received) :], strict=True)), losses.detach()
    )


def check_finite(message: Mapping[str, Tensor]) -> None:
    """Refuse with NotFiniteError a message with an entry that is not finite: no attack's figure would mean anything."""
    for name, tensor in message.items():
        finite = tensor.isfinite()
        if not bool(finite.all()):
            wrong = tensor[~finite]
            raise NotFiniteError(
                f"the message holds {float(wrong[0])} in its {name} ({len(wrong)} of {tensor.numel()} entries not "
                "finite); give less noise."
            )


def check_labels(labels: Tensor, target: Column) -> None:
    """Refuse labels that are the same in all rows, which lie along the last axis."""
    if bool((labels == labels[..., :1]).all(-1).any()):
        raise BadInputError(
            f"the target {target.name!r} is the same in all {labels.shape[-1]} rows, so there is nothing to learn; "
            "choose another target or add rows where it differs."
        )


def check_losses(losses: Tensor, training: str, learning_rate: float | int) -> None:
    """Refuse a training whose losses are not finite."""
    if not bool(losses.isfinite().all()):
        raise BadInputError(
            f"{training} training at a learning rate of {learning_rate:g} ended in numbers that are not finite; give a "
            "smaller learning_rate."
        )
