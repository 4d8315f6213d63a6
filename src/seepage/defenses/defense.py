"""Interface of defenses: a map from a client's update to its message, or from its records to a gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError, NotFiniteError
from seepage.learning import GradientOf, gradient
from seepage.models.batch_norm import normalisations
from seepage.models.model import Model
from seepage.registry import ActsOn
from seepage.wire.horizontal import KnownDefense

# Arguments of ``learning.gradient`` for several batches, and whole updates as rows.
Batches = Float[Tensor, "victim record encoded"]
Labels = Float[Tensor, "victim record"]
Update = dict[str, Tensor]
Entries = Float[Tensor, "victim entry"]


@runtime_checkable
class Defense(Protocol):
    """A client's transformation of its update before it is sent; a message depends on its own update and seed alone."""

    def __call__(self, update: Update, seeds: Sequence[int]) -> Update:
        """Return the messages of updates (victim, *parameter), which are left unchanged, with one seed a victim."""
        ...

    def describe(self) -> KnownDefense:
        """Return the knowledge of an attacker who knows the defense."""
        ...


@runtime_checkable
class RecordDefense(Protocol):
    """A client's transformation of single records' contributions, which replaces the gradient.

    It applies to every gradient that a client computes: the message itself in FedSGD, each local step in FedAvg.
    """

    def gradient(
        self, model: Model, encoded: Batches, labels: Labels, seeds: Sequence[int], parameters: Update | None = None
    ) -> Update:
        """Return the defended gradients of the mean loss, shape (victim, *parameter), see ``learning.gradient``.

        Without one seed a victim, or where the model normalises by the batch, a BadInputError.
        """
        ...

    def noise(self, records: int) -> float:
        """Return the standard deviation of the noise on every entry of a gradient over a number of records."""
        ...

    def describe(self) -> KnownDefense:
        """Return the knowledge of an attacker who knows the defense, the noise excepted, which ``noise`` returns."""
        ...


AnyDefense = Defense | RecordDefense


class UpdateDefense(ABC):
    """A defense without random numbers that maps each victim's whole update, as one row, to what is sent."""

    acts_on: ClassVar[ActsOn] = "update"

    def __call__(self, update: Update, seeds: Sequence[int]) -> Update:
        """Return the messages, see ``Defense``."""
        check_seeds(update, seeds)
        return unflat(self.sent(flat(update)), update)

    @abstractmethod
    def sent(self, entries: Entries) -> Entries:
        """Return the entries of each victim's message."""


def check_sent(defense: Defense, sent: object, update: Mapping[str, Tensor]) -> Update:
    """Return a defense's message, checked: tensors with the names and shapes of the update."""
    name = type(defense).__name__
    if not isinstance(sent, dict):
        raise BadInputError(
            f"the defense {name} returned an object of type {type(sent).__name__}, expected a dict of tensors, one for "
            f"each parameter: {', '.join(list(update)[:4])}."
        )
    for key, tensor in update.items():
        message = sent.get(key)
        if not isinstance(message, Tensor) or message.shape != tensor.shape:
            shown = f"shape {tuple(message.shape)}" if isinstance(message, Tensor) else f"type {type(message).__name__}"
            raise BadInputError(
                f"the defense {name} returned {shown} for {key!r}, expected a tensor of shape {tuple(tensor.shape)}, "
                "victims leading; an entry that is withheld is zero."
            )
    return sent


def defended(
    defense: AnyDefense | None,
    model: Model,
    encoded: Batches,
    labels: Labels,
    seeds: Sequence[int],
    parameters: Update | None = None,
    gradient_of: GradientOf = gradient,
) -> Update:
    """Return the gradients of batches as clients send them under a defense of either kind, or none."""
    if isinstance(defense, RecordDefense):
        return defense.gradient(model, encoded, labels, seeds, parameters)
    gradients = gradient_of(model, encoded, labels, parameters)
    return gradients if defense is None else defense(gradients, seeds)


def guarded(defense: AnyDefense | None, seeds: Sequence[int]) -> GradientOf:
    """Return the function that computes clients' gradients under a defense of records, each with its own seeds."""
    if not isinstance(defense, RecordDefense):
        return gradient
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def gradient_of(model: Model, encoded: Tensor, labels: Tensor, parameters: Update | None = None) -> Update:
        drawn = [int(torch.randint(2**62, (), generator=generator)) for generator in generators]
        if encoded.dim() > 2:
            return defense.gradient(model, encoded, labels, drawn, parameters)
        return {name: g[0] for name, g in defense.gradient(model, encoded[None], labels[None], drawn).items()}

    return gradient_of


def with_noise(entries: Entries, seeds: Sequence[int], deviation: float) -> Entries:
    """Return entries with normal noise by each victim's seed alone; NotFiniteError where that is beyond their type."""
    largest = torch.finfo(entries.dtype).max
    if deviation > largest:
        kind = str(entries.dtype).removeprefix("torch.")
        raise NotFiniteError(f"noise of standard deviation {deviation:g} is beyond {kind} ({largest:.1e}); give less.")
    # Trainings that compare learning rates share their seeds, and most of a noisy step's time is the drawing.
    distinct = {seed: index for index, seed in enumerate(dict.fromkeys(seeds))}
    noise = torch.empty((len(distinct), *entries.shape[1:]), dtype=entries.dtype)
    for row, seed in zip(noise, distinct, strict=True):
        row.normal_(generator=torch.Generator().manual_seed(seed))
    if len(distinct) < len(seeds):
        noise = noise[[distinct[seed] for seed in seeds]]
    return torch.add(entries, noise.to(entries.device), alpha=deviation)


def flat(update: Update) -> Entries:
    """Return each victim's whole update as one row, parameters in order."""
    return torch.cat([tensor.flatten(1) for tensor in update.values()], dim=1)


def unflat(entries: Entries, like: Update) -> Update:
    """Undo ``flat``: return rows as the parameters of ``like``."""
    parts = entries.split([tensor[0].numel() for tensor in like.values()], dim=1)
    return {name: part.view_as(like[name]) for name, part in zip(like, parts, strict=True)}


def check_seeds(update: Update, seeds: Sequence[int]) -> None:
    """Refuse anything but one seed a victim of the update."""
    check_seed_count(len(next(iter(update.values()))), seeds)


def check_seed_count(victims: int, seeds: Sequence[int]) -> None:
    """Refuse anything but one seed a victim."""
    if len(seeds) != victims:
        raise BadInputError(f"a defense needs one seed for each of {victims} victims, got {len(seeds)}.")


def check_separate(defense: str, model: Model, victims: int, seeds: Sequence[int]) -> None:
    """Refuse a model whose records have no gradients of their own, and anything but one seed a victim."""
    check_seed_count(victims, seeds)
    if normalised := normalisations(model.module):
        raise BadInputError(
            f"{defense!r} works on the gradient of each record, but in model {model.name!r} a record's depends on the "
            f"others of its batch, by which layer {next(iter(normalised))!r} normalises; use a model without batch "
            "normalisation, or another defense."
        )


def check_switch(name: str, value: object) -> None:
    """Refuse an argument that is neither true nor false."""
    if not isinstance(value, bool):
        raise BadInputError(f"{name} is true or false, got {name}={value!r}.")
