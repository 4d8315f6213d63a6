"""A network in two parts: the server's up to the cut layer, the client's from there to the loss."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.errors import BadInputError, check_choice, one_line, unknown_name
from seepage.models.head import Head
from seepage.models.message import PLAIN, MessageForm
from seepage.tabular.schema import Column, Continuous, Discrete, Schema

SplitHead = Head

# Number of rows on which a client part is tested for reading a column.
_PROBES = 16


@dataclass(frozen=True)
class SplitModel:
    """A server part, a client part and the columns of each; the label is the client's too.

    Both parts take cells, not one-hot rows: a discrete cell is its code, a continuous one is scaled so that its
    schema's bounds are 0 and 1. Each part is free in how it represents codes: by embeddings or by one-hot vectors.
    ``server`` maps (record, public) to (record, cut), ``client`` that and (record, private) to (record, output): one
    logit for ``sigmoid``, one a class for ``softmax``, one number for ``regression``. ``form`` is that of the gradients
    that the client returns.
    """

    server: nn.Module
    client: nn.Module
    schema: Schema
    private: tuple[int, ...]
    head: SplitHead
    name: str
    form: MessageForm = PLAIN

    def __post_init__(self) -> None:
        check_head(self.head, self.schema.target)
        if not self.private:
            raise BadInputError(
                "no column is private, so that there is nothing for the server to guess but labels; name the columns "
                "that the client holds."
            )
        if len(set(self.private)) < len(self.private):
            raise BadInputError("a column is named as private twice; name each once.")
        if not self.public:
            raise BadInputError(
                f"all {len(self.schema.columns)} columns are private, so that the server has nothing to compute on; "
                "leave it at least one."
            )

    @property
    def public(self) -> tuple[int, ...]:
        """Positions of the server's columns."""
        return tuple(i for i in range(len(self.schema.columns)) if i not in self.private)

    @property
    def private_names(self) -> tuple[str, ...]:
        """Names of the client's columns."""
        return tuple(self.schema.columns[i].name for i in self.private)

    @property
    def classes(self) -> int:
        """Number of labels; 1 for a number, which follows from private cells and message."""
        return self.schema.target.width if isinstance(self.schema.target, Discrete) else 1

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return 1 if self.head != "softmax" else self.classes

    @property
    def dtype(self) -> torch.dtype:
        """Type of the client's parameters."""
        return next(self.client.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Device of the client's parameters."""
        return next(self.client.parameters()).device

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        columns = self.schema.columns
        low = torch.tensor([0.0 if isinstance(c, Discrete) else c.low for c in columns], dtype=torch.float64)
        span = [1.0 if isinstance(c, Discrete) else (c.high - c.low or 1.0) for c in columns]
        return low, torch.tensor(span, dtype=torch.float64)

    def scaled(self, cells: Float[Tensor, "*some column"], columns: Sequence[int]) -> Float[Tensor, "*some chosen"]:
        """Return cells of a table in the form that the parts take."""
        low, span = self._bounds
        chosen = list(columns)
        return ((cells[..., chosen].cpu() - low[chosen]) / span[chosen]).to(self.device, self.dtype)

    def unscaled(self, cells: Float[Tensor, "*some chosen"], columns: Sequence[int]) -> Float[Tensor, "*some chosen"]:
        """Undo ``scaled``, in float64; numbers of integer columns are rounded."""
        low, span = self._bounds
        chosen = list(columns)
        values = cells.cpu().double() * span[chosen] + low[chosen]
        whole = [isinstance(c, Discrete) or c.integer for c in (self.schema.columns[i] for i in chosen)]
        return torch.where(torch.tensor(whole), values.round(), values)

    def cut(self, cells: Float[Tensor, "record column"]) -> Float[Tensor, "record cut"]:
        """Return the activations that the server sends for rows of the table, without a graph."""
        with torch.no_grad():
            return self.server(self.scaled(cells, self.public))

    def answers(self, cells: Float[Tensor, "record column"]) -> Float[Tensor, "record output"]:
        """Return the outputs of both parts together for rows of the table, without a graph."""
        with torch.no_grad():
            return self.client(self.cut(cells), self.scaled(cells, self.private))

    def probabilities(self, cells: Float[Tensor, "record column"]) -> Float[Tensor, "record label"]:
        """Return the chance of each label that both parts together predict for rows of the table."""
        return label_chances(self.head, self.answers(cells))

    def copy(self) -> SplitModel:
        """Return a copy whose parts may be trained without changing this one's."""
        return replace(self, server=copy.deepcopy(self.server), client=copy.deepcopy(self.client))

    def to(self, device: torch.device) -> SplitModel:
        """Return it on a device."""
        copied = self.copy()
        return replace(copied, server=copied.server.to(device), client=copied.client.to(device))

    def slopes(self, logits: Float[Tensor, "*some output"]) -> Float[Tensor, "*some label output"]:
        """Return the derivative of a record's loss with respect to its logits, for every label it may have."""
        return self.form.slopes(self.head, logits)

    def with_client(self, client: nn.Module) -> SplitModel:
        """Return the model with another client part, such as one of an earlier round."""
        return replace(self, client=client)

    def check(self, cells: Float[Tensor, "record column"]) -> None:
        """Refuse parts that do not fit the table or each other, pass no gradient, or read no private column."""
        tried = cells[:_PROBES]
        try:
            cut = self.cut(tried)
            private = self.scaled(tried, self.private)
            cut.requires_grad_(True)
            outputs = self.client(cut, private)
            again = self.client(cut, private)
        except Exception as error:  # A user's module may raise anything.
            reason = one_line(error)
            raise BadInputError(
                f"the parts of {self.name!r} do not fit the table's {len(self.public)} public and {len(self.private)} "
                f"private columns, or each other ({reason}); the server part takes (record, {len(self.public)}), "
                f"the client part activations and (record, {len(self.private)})."
            ) from error
        if tuple(outputs.shape) != (len(tried), self.outputs) or not bool(outputs.isfinite().all()):
            raise BadInputError(
                f"the client part of {self.name!r} returns shape {tuple(outputs.shape)} for {len(tried)} records where "
                f"finite numbers of shape ({len(tried)}, {self.outputs}) are needed; change its last layer."
            )
        if not torch.equal(outputs, again):
            raise BadInputError(
                f"the client part of {self.name!r} returns other outputs for the same records each time, so that no "
                "message can be replayed; draw random numbers only where self.training is true."
            )
        gradient = torch.autograd.grad(outputs.sum(), cut, allow_unused=True)[0] if outputs.requires_grad else None
        if gradient is None or not bool(gradient.any()):
            raise BadInputError(
                f"no gradient crosses the cut of {self.name!r}, so that the server learns nothing from it and cannot "
                "train: the client part's outputs do not depend on the activations; cut the network elsewhere."
            )
        for i, column in enumerate(self.private):
            if not self._reads(cut.detach(), private, i):
                raise BadInputError(
                    f"the private column {self.schema.columns[column].name!r} does not reach the client part of "
                    f"{self.name!r}: its outputs are the same whatever the column holds, so that no gradient can tell "
                    "of it; feed the column in, or make it the server's."
                )

    def _reads(self, cut: Tensor, private: Tensor, column: int) -> bool:
        kind = self.schema.columns[self.private[column]]
        values = torch.arange(kind.width) if isinstance(kind, Discrete) else torch.linspace(0, 1, 5)
        if len(values) == 1:
            return True
        position = torch.tensor([column], device=private.device)
        with torch.no_grad():
            outputs = [self.client(cut, private.index_fill(1, position, float(value))) for value in values]
        return any(not torch.equal(outputs[0], output) for output in outputs[1:])


def positions(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of columns in a schema; the target, which is the client's anyway, is refused."""
    for name in names:
        if name not in schema.names:
            if name == schema.target.name:
                raise BadInputError(
                    f"the target {name!r} was named as a private column; labels are private anyway, leave it out."
                )
            raise unknown_name("private column", name, schema.names)
    return tuple(schema.names.index(name) for name in names)


def categories_of(schema: Schema, columns: Sequence[int]) -> list[int | None]:
    """Return the number of categories of some columns, None for a number."""
    chosen = [schema.columns[i] for i in columns]
    return [column.width if isinstance(column, Discrete) else None for column in chosen]


def usual_split_head(target: Column) -> SplitHead:
    """Return the usual head for a target: ``sigmoid`` for two classes, ``softmax`` for more, else ``regression``."""
    if not isinstance(target, Discrete):
        return "regression"
    return "sigmoid" if target.width == 2 else "softmax"


def outputs_of(target: Column, head: SplitHead | None = None) -> int:
    """Return the number of outputs of a network: one a class with a softmax head, else one."""
    return target.width if isinstance(target, Discrete) and (head or usual_split_head(target)) == "softmax" else 1


def check_head(head: SplitHead, target: Column) -> None:
    """Refuse a head that does not fit the target."""
    check_choice("head of a split network", head, SplitHead)
    usual = usual_split_head(target)
    if (head == "regression") != (usual == "regression"):
        kind = "a number" if usual == "regression" else "of classes"
        raise BadInputError(f"the target {target.name!r} is {kind}, which the head {head!r} is not for; use {usual!r}.")
    if head == "sigmoid" and isinstance(target, Discrete) and target.width != 2:
        raise BadInputError(
            f"a sigmoid head needs a target of two classes, but {target.name!r} has {target.width}; use head='softmax'."
        )


def for_loss(target: Column, labels: Float[Tensor, "*some"]) -> Float[Tensor, "*some"]:
    """Return labels as losses take them: class codes, or numbers scaled so that the target's bounds are -1 and 1."""
    if isinstance(target, Discrete):
        return labels
    return (labels - (target.high + target.low) / 2) / half_of(target)


def numbers_of(target: Continuous, outputs: Float[Tensor, "*some 1"]) -> Float[Tensor, "*some"]:
    """Return the numbers that a network predicts, in the target's unit; its outputs have bounds -1 and 1."""
    return outputs[..., 0].double() * half_of(target) + (target.high + target.low) / 2


def half_of(target: Continuous) -> float:
    """Return half of a target's range, 1 where it has a single value."""
    return (target.high - target.low) / 2 or 1.0


def label_chances(head: SplitHead, logits: Float[Tensor, "*some output"]) -> Float[Tensor, "*some label"]:
    """Return the chance of each label."""
    if head == "softmax":
        return logits.softmax(-1)
    return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)


def batches(behind: Float[Tensor, " record"]) -> list[slice]:
    """Return the records of each client's batch, one after the other, by the number of records in their loss."""
    slices, start = [], 0
    while start < len(behind):
        stop = min(start + int(behind[start]), len(behind))
        slices.append(slice(start, stop))
        start = stop
    return slices


def record_losses(
    head: SplitHead, outputs: Float[Tensor, "record output"], labels: Float[Tensor, " record"] | Int[Tensor, " record"]
) -> Float[Tensor, " record"]:
    """Return each record's loss: cross-entropy in nats, or the squared error of a number."""
    if head == "softmax":
        return nn.functional.cross_entropy(outputs, labels.long(), reduction="none")
    if head == "regression":
        return (outputs[:, 0] - labels.to(outputs)).square()
    return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels.to(outputs.dtype), reduction="none")
