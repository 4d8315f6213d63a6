"""A network with its task: the model that the parties train together and that every attacker knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from seepage.errors import BadInputError, check_choice, one_line
from seepage.models.batch_norm import by_batch
from seepage.models.calling import plain_attention
from seepage.models.copies import copied, make_sendable
from seepage.models.dropout import Drops, dropping, drops_of, random_outputs, with_masks, without_dropout
from seepage.models.head import Dropout, Head
from seepage.models.message import PLAIN, MessageForm
from seepage.models.recurrent import by_formula
from seepage.tabular.schema import Discrete, Schema

T = TypeVar("T")


class LocalParameters(NamedTuple):
    """The parameters that clients keep to themselves: a personal head or body, batch normalisation, a frozen base.

    Attributes:
        names: their names.
        trained: whether clients train them with the others.
        known: whether clients begin with the values that the module has; otherwise each client has its own.
    """

    names: tuple[str, ...]
    trained: bool = True
    known: bool = False

    def in_words(self) -> str:
        """Return what they are as a clause."""
        shown = ", ".join(map(repr, self.names[:3])) + (f" and {len(self.names) - 3} more" * (len(self.names) > 3))
        if not self.trained:
            return f"{shown} stayed with the client, frozen at the values of the model"
        return f"{shown} stayed with the client, {'with the values of the model' if self.known else 'values unknown'}"


@dataclass(frozen=True)
class Model:
    """A module and the meaning of its outputs.

    Attributes:
        module: map from encoded rows (record, encoded) to outputs (record, output). Where it holds ``nn.BatchNorm1d``
            or the like, it is a copy in which these are functions of the batch, see ``models.batch_norm``.
        head: ``softmax``: one logit a class, cross-entropy; ``sigmoid``: one logit, binary cross-entropy;
            ``regression``: one number, squared error.
        name: registry name, or the module's class for a user's own.
        crafted: manipulation of the network by a malicious server, as a clause; empty where there is none.
        each: parameters that differ by client, by name, shape (client, *parameter); empty where all clients receive the
            same network, the module's own.
        dropout: ``on``: a module that drops values in training does so in clients, by masks which they draw, see
            ``masked``; ``off``: its copy without dropout is taken, see ``models.dropout``.
        local: parameters that clients keep to themselves, see ``keeping``; None where they send all that they train.
        form: loss that clients differentiate: its reduction, weights of classes, label smoothing and factor.

    Example:
        >>> Model(nn.Linear(3, 2), head="softmax", name="mine").outputs(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    module: nn.Module
    head: Head
    name: str
    crafted: str = ""
    each: Mapping[str, Tensor] = field(default_factory=dict)
    dropout: Dropout = "on"
    switched_off: tuple[str, ...] = ()
    local: LocalParameters | None = None
    form: MessageForm = PLAIN

    def __post_init__(self) -> None:
        check_choice("head", self.head, Head)
        if not any(True for _ in self.module.parameters()):
            raise BadInputError(
                f"model {self.name!r} has no parameters, so no gradient crosses the wire; give it a layer."
            )
        if not self.parameters:
            raise BadInputError(
                f"all parameters of model {self.name!r} are frozen (requires_grad=False), so no gradient crosses the "
                "wire; leave those trained that clients train."
            )
        check_choice("dropout", self.dropout, Dropout)
        if self.dropout == "off":
            module, switched_off = without_dropout(self.module)
            if switched_off:
                object.__setattr__(self, "module", module)
                object.__setattr__(self, "switched_off", switched_off)
        object.__setattr__(self, "module", by_formula(by_batch(self.module, self.name)))
        make_sendable(self.module)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Parameters that clients train, by name in module order, detached: none with ``requires_grad=False``."""
        return {name: p.detach() for name, p in self.module.named_parameters() if p.requires_grad}

    @property
    def frozen(self) -> dict[str, Tensor]:
        """Parameters that stay as they are (``requires_grad=False``), by name: no message holds anything of them."""
        return {name: p.detach() for name, p in self.module.named_parameters() if not p.requires_grad}

    def keeping(self, local: LocalParameters) -> Model:
        """Return the model of clients that keep parameters to themselves, which are in no message."""
        module = copied(self.module)
        for name in local.names:
            module.get_parameter(name).requires_grad_(False)
        return replace(self, module=module, local=local)

    @property
    def drops(self) -> Drops | None:
        """Places where the module drops values by masks that its rows bring; None where there are none."""
        return drops_of(self.module)

    def masked(self, width: int) -> Model:
        """Return the model whose module takes masks of dropout behind the entries of each row, see ``with_masks``."""
        module = with_masks(self.module, width)
        return self if module is self.module else replace(self, module=module)

    def drawn(
        self, encoded: Float[Tensor, "*batch encoded"], generator: torch.Generator
    ) -> Float[Tensor, "*batch entering"]:
        """Return rows with masks that a client draws behind them, the rows themselves where nothing is dropped."""
        drops = self.drops
        if drops is None:
            return encoded
        return torch.cat([encoded, drops.draw(encoded.shape[:-1], generator).to(encoded)], -1)

    def sent(self, clients: int) -> list[Model]:
        """Return the model that each of the clients is sent."""
        if not self.each:
            return [self] * clients
        crafted_for = len(next(iter(self.each.values())))
        if crafted_for != clients:
            raise BadInputError(
                f"model {self.name!r} comes in one version a client, made for {crafted_for}, but the messages of "
                f"{clients} are aggregated; give protocol and model the same number of clients."
            )
        modules = [copied(self.module) for _ in range(clients)]
        with torch.no_grad():
            for name, versions in self.each.items():
                for module, version in zip(modules, versions, strict=True):
                    module.get_parameter(name).copy_(version)
        return [replace(self, module=module, each={}) for module in modules]

    def outputs(self, encoded: Tensor) -> Tensor:
        """Return the module's outputs (..., record, output) of each batch in training mode, without a graph."""
        run: Callable[[Tensor], Tensor] = self.module
        for _ in range(encoded.dim() - 2):
            run = vmap(run)
        with torch.no_grad(), plain_attention():
            return run(encoded)

    def _added(self, parameters: dict[str, Tensor], rows: Tensor) -> Tensor:
        return functional_call(self.module, parameters, (rows,), tie_weights=False).sum()

    def check(self, schema: Schema) -> Model:
        """Return it; refuse a model that does not fit a table by inputs, outputs or head, or cannot be vectorised."""
        first = next(self.module.parameters())
        rows = torch.zeros(2, schema.width, device=first.device, dtype=first.dtype)
        try:
            outputs = self.outputs(rows)
        except Exception as error:  # A user's module may raise anything.
            raise BadInputError(
                f"model {self.name!r} does not take rows of {schema.width} encoded columns ({one_line(error)}); "
                "give its first layer that many inputs."
            ) from error
        classes = schema.target.width if isinstance(schema.target, Discrete) else None
        wanted = classes if self.head == "softmax" else 1
        if (self.head == "regression") != (classes is None) or (self.head == "sigmoid" and classes != 2):
            raise BadInputError(
                f"a {self.head} head does not fit the target {schema.target.name!r}, which "
                + ("is continuous; use head='regression'." if classes is None else "")
                + ("" if classes is None else f"has {classes} classes; use head='softmax'.")
            )
        if tuple(outputs.shape) != (2, wanted):
            raise BadInputError(
                f"model {self.name!r} returns shape {tuple(outputs.shape)} for 2 rows where a {self.head} head "
                f"on target {schema.target.name!r} needs (2, {wanted}); change its last layer."
            )
        if not outputs.isfinite().all():
            raise BadInputError(f"model {self.name!r} returns non-finite outputs; check its parameters.")
        if not torch.equal(outputs, self.outputs(rows)):
            raise random_outputs(self.name, dropping(self.module))
        try:
            # With the gradient, as attacks do.
            with plain_attention():
                parameters = {name: p.detach() for name, p in self.module.named_parameters()}
                vmap(grad(self._added), in_dims=(None, 0))(parameters, rows[None])
        except Exception as error:
            if "randomness" in str(error):
                raise random_outputs(self.name, dropping(self.module)) from error
            why, remedy = _obstacle(error)
            raise BadInputError(
                f"model {self.name!r} is not tried: it cannot be run for several batches at once, as attacks do "
                f"({why}); {remedy}."
            ) from error
        return self


_BRANCHES = "it branches on values, as one_hot(argmax), item and if do"
# What PyTorch says of a network that it does not run for several batches at once, why that is, and what to do.
_OBSTACLES = (
    (".item()", _BRANCHES, "write its forward with tensor operations only, without branches on values"),
    ("data-dependent", _BRANCHES, "write its forward with tensor operations only, without branches on values"),
    (
        "setup_context",
        "its autograd.Function has no setup_context",
        "give it a setup_context and generate_vmap_rule = True, or write it with PyTorch's own operations",
    ),
    ("saved tensor hooks", "it keeps its tensors by hooks, as checkpointing does", "switch checkpointing off"),
    ("Jitted modules", "it is a scripted module", "give the module that was scripted"),
    (
        "running_mean or running_var",
        "a normalisation updates its running statistics",
        "set track_running_stats=False in it",
    ),
    ("inplace arithmetic", "it changes a tensor in place", "write x = x + y in place of x += y"),
)


def _obstacle(error: Exception) -> tuple[str, str]:
    """Return why a network does not run for several batches at once, and what to do."""
    usual = one_line(error), "write its forward with tensor operations only, without branches on values"
    return next(((why, remedy) for sign, why, remedy in _OBSTACLES if sign in str(error)), usual)


def usual_head(schema: Schema) -> Head:
    """Return the head that a target asks for: ``softmax`` for a discrete one, ``regression`` for a continuous one."""
    return "softmax" if isinstance(schema.target, Discrete) else "regression"


def output_width(schema: Schema, head: Head) -> int:
    """Return the number of outputs that a head needs: one logit a class with ``softmax``, else one number."""
    return schema.target.width if head == "softmax" else 1
