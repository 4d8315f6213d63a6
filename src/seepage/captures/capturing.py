"""A few lines of a client's or a server's code that write updates and transcripts as they are sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack, overload

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save
from sklearn.compose import ColumnTransformer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from seepage.captures.captured import Description, Local, as_description, encoding_of, save_capture
from seepage.captures.transcripts import OWN, SCHEMA, SERVER, TRANSCRIPT, check_columns, transcript_description
from seepage.errors import BadInputError, check_count, unknown_name
from seepage.files import write_whole
from seepage.learning import LocalTraining
from seepage.models.head import loss_fields
from seepage.models.model import Head
from seepage.models.pairing import is_list
from seepage.models.states import State, as_state, changes, common_prefix, is_buffer, state_digest
from seepage.protocols.recipe import Arithmetic
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.precision import Precision


class _Facts(TypedDict, total=False):
    """What ``capture`` says of an update besides its numbers."""

    batch_size: int | None
    labels: Tensor | Sequence[float] | None
    model: str | None
    head: Head | None
    statistics: Statistics | None
    encoder: ClientEncoder | ColumnTransformer | None
    clients: int
    defense: Mapping[str, Mapping[str, bool | int | float | str]] | None
    precision: Arithmetic | None
    sent_as: Precision
    client: str | None
    round: int | None
    local: Local | None
    loss: str | Mapping[str, object] | None
    weights: Sequence[float] | None
    scale: float | None


# Facts by name, before they are checked.
_Given = Mapping[str, object]


@overload
def capture(
    named_parameters: Iterable[tuple[str, Tensor]],
    path: str | Path,
    /,
    *,
    optimizer: Optimizer | None = None,
    **facts: Unpack[_Facts],
) -> RemovableHandle | None: ...


@overload
def capture(
    before: State,
    after: State,
    path: str | Path,
    /,
    *,
    training: LocalTraining,
    names: Iterable[str] | None = None,
    **facts: Unpack[_Facts],
) -> None: ...


@overload
def capture(path: str | Path | None = None, /, *, encoder: ColumnTransformer) -> ClientEncoder: ...


def capture(
    *given: object, optimizer: object = None, names: Iterable[str] | None = None, **facts: object
) -> RemovableHandle | ClientEncoder | None:
    """Write what a client sends to a file that only its owner may read.

    - ``capture(model.named_parameters(), path, ...)``: the gradients of the last ``backward()``. Call it before the
      optimiser steps and before gradients are set to zero. Say with ``loss``, ``weights`` and ``scale`` where the loss
      is not the mean over the batch; of what is not said, an attack fits what it can and proves nothing.
    - ``capture(model.named_parameters(), path, optimizer=optimizer, ...)``: the gradient with which the optimiser
      steps next. Call it before that step. With Opacus' ``DPOptimizer`` this is the clipped gradient with noise, which
      is sent; what ``backward()`` leaves is the clean one, which never leaves the client.
    - ``capture(before, after, path, training=...)``: the parameters before local training less those after it, and the
      running statistics after it. States are those of ``State``; a list of arrays takes its names from the other state
      or from ``names=model.state_dict()``, else its order and shapes say later which parameters these are. What the
      state after training lacks stayed with the client, such as a personal head.
    - ``capture(encoder=fitted)``: the declaration of an encoder, a fitted scikit-learn ``ColumnTransformer``; with a
      path it is written there as JSON.

    Args:
        given: update and path, as above.
        names: names of the arrays of a list, in order.
        facts: what else is known of the update. ``batch_size``: number of records behind it. ``labels``: labels of the
            records, codes or numbers, where the attacker is to be granted them. ``model``: what to call the network.
            ``head``: reading of its outputs, such as ``softmax``. ``statistics``: statistics with which seepage's
            encoder standardised the rows, where it did. ``encoder``: the client's own encoder. ``training``: local
            training. ``clients``: number of clients whose messages are averaged. ``defense``: defense that the message
            went through, ``{name: options}``. ``precision``: number format in which the client computed. ``sent_as``:
            number format to which the message was cast. ``loss``: ``mean`` or ``sum`` over the batch, or the fields of
            ``DeclaredLoss``. ``weights``: weight of each class in the loss. ``scale``: factor of the loss, such as a
            ``GradScaler``'s. ``client``, ``round``: name of the client and number of the round, by which ``seepage
            attack DIR`` links the updates of one client. ``local``: the values that the client trained with of
            parameters that it did not send: ``unknown`` to the attacker, which is the default; those ``as_sent`` by the
            server, trained with the others; or ``frozen``, as sent and not trained.

    Returns:
        With an optimiser a handle whose ``remove()`` takes the order back; with an encoder alone its declaration.

    Raises:
        BadInputError: a parameter has no gradient, or one that is not finite; the gradient is Opacus' clean one; the
            states are not of one network; an argument is of the wrong kind; or the file cannot be written.

    Example:
        >>> import tempfile
        >>> import seepage
        >>> model = nn.Linear(3, 2)
        >>> loss = nn.functional.cross_entropy(model(torch.randn(4, 3)), torch.tensor([0, 1, 1, 0]))
        >>> loss.backward()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     seepage.capture(model.named_parameters(), f"{folder}/update.safetensors", batch_size=4)
        ...     sorted(as_state(f"{folder}/update.safetensors", "the update"))
        ['bias', 'weight']
    """
    arguments = [*_Facts.__annotations__, "training", "optimizer", "names"]
    for name in facts:
        if name not in arguments:
            raise unknown_name("argument of capture:", name, arguments)
    if len(given) <= 1 and facts.keys() == {"encoder"} and optimizer is None:
        declaration = _encoder(facts["encoder"])
        if given:
            write_whole(_path(given[0]), declaration.to_json())
        return declaration
    if len(given) == 3:
        if optimizer is not None:
            raise BadInputError("two states are captured after the optimiser is done; leave out optimizer.")
        _capture_change(given[0], given[1], _path(given[2]), names, facts)
        return None
    if len(given) != 2:
        raise BadInputError(
            f"capture takes model.named_parameters() and a path, or the states before and after training and a path, "
            f"got {len(given)} of them."
        )
    parameters, path = _parameters(given[0]), _path(given[1])
    if facts.get("training") is not None:
        raise BadInputError(
            "training describes local steps between two states: seepage.capture(before, after, FILE, training=...); "
            "a gradient has none."
        )
    if optimizer is None:
        return _capture_gradient(parameters, path, facts)
    return _capture_step(parameters, path, optimizer, facts)


def _capture_change(before: object, after: object, path: Path, names: Iterable[str] | None, facts: _Given) -> None:
    if facts.get("training") is None:
        raise BadInputError(
            "the change of a model is captured with training=LocalTraining(epochs=..., batch_size=..., "
            "learning_rate=...): without it nobody can replay the update."
        )
    states = {"the state before training": before, "the state after training": after}
    given = list(names) if names is not None and not isinstance(names, Mapping) else names
    named = [what for what, state in states.items() if isinstance(state, str) or not isinstance(state, Sequence)]
    if given is None and len(named) == 1:
        # A list of arrays takes its names from the other state.
        given = as_state(states[named[0]], named[0])
    sent, trained = (as_state(state, what, given) for what, state in states.items())
    change = changes(sent, trained)
    # What stayed with the client was not sent: of a part the digest is that of this part.
    parts = sent if len(change) == len(sent) or is_list(sent) else {name: sent[name] for name in change}
    about = _about({**facts, "protocol": "fedavg", "sent": state_digest(parts)})
    if not any(tensor.any() for name, tensor in change.items() if not is_buffer(name, tensor)):
        raise BadInputError(
            "the states before and after training have the same parameters, so that nothing was learnt; "
            "model.state_dict() changes with the model: copy it before training, with "
            "{name: tensor.clone() for name, tensor in model.state_dict().items()}."
        )
    save_capture(path, change, about)


def _capture_gradient(parameters: Sequence[tuple[str, Tensor]], path: Path, facts: _Given, sent: bool = False) -> None:
    gradient: dict[str, Tensor] = {}
    prefix = common_prefix(name for name, _ in parameters)
    for name, parameter in parameters:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            raise BadInputError(
                f"the parameter {name!r} has no gradient: capture an update after loss.backward() and before the "
                "gradients are set to zero; a parameter that is not trained has to be part of the loss all the same."
            )
        single = getattr(parameter, "grad_sample", None) is not None and getattr(parameter, "summed_grad", None) is None
        if single and not sent:
            raise BadInputError(
                f"the parameter {name!r} has Opacus' gradients of single records, which are neither clipped nor noised "
                "yet: its gradient is not what is sent. Call seepage.capture(model.named_parameters(), FILE, "
                "optimizer=optimizer) before optimizer.step()."
            )
        gradient[name.removeprefix(prefix)] = parameter.grad
    save_capture(path, gradient, _about(facts))


def _capture_step(
    parameters: Sequence[tuple[str, Tensor]], path: Path, optimizer: object, facts: _Given
) -> RemovableHandle:
    # Opacus clips and noises in its own step and then has this one make the real step.
    inner = getattr(optimizer, "original_optimizer", optimizer)
    if not isinstance(inner, Optimizer):
        raise BadInputError(
            f"optimizer is of type {type(optimizer).__name__} where a torch.optim.Optimizer, or Opacus' around one, is "
            "expected."
        )
    trained = {id(parameter) for group in inner.param_groups for parameter in group["params"]}
    foreign = [name for name, parameter in parameters if parameter.requires_grad and id(parameter) not in trained]
    if foreign:
        raise BadInputError(
            f"the optimiser does not step {', '.join(map(repr, foreign[:3]))}; give the optimiser that trains these "
            "parameters, and of the model those that it trains."
        )
    # Facts that cannot be used are refused now, not in the middle of training.
    _about(facts)

    def write(*_: object) -> None:
        handle.remove()
        _capture_gradient(parameters, path, facts, sent=True)

    handle = inner.register_step_pre_hook(write)
    return handle


def _about(facts: _Given) -> Description:
    """Return the description of an update from the facts about it."""
    given = {name: value for name, value in facts.items() if value is not None}
    labels, statistics = given.pop("labels", None), given.pop("statistics", None)
    if labels is not None:
        given["labels"] = _numbers(
            labels, "labels", "codes: the place of each label among the target's categories, from 0, or its number"
        )
    if statistics is not None:
        if not isinstance(statistics, Statistics):
            raise BadInputError(f"statistics are of type {type(statistics).__name__}; give a seepage Statistics.")
        given["encoding"] = encoding_of(statistics)
    if given.keys() & {"loss", "weights", "scale"}:
        given["loss"] = _loss(given.pop("loss", None), given.pop("weights", None), given.pop("scale", None))
    if "encoder" in given:
        given["encoder"] = _encoder(given["encoder"])
    if "training" in given and not isinstance(given["training"], LocalTraining):
        raise BadInputError(f"training is of type {type(given['training']).__name__}; give a seepage LocalTraining.")
    return as_description(given, "the description of the update")


def _numbers(given: object, name: str, expected: str) -> list[float]:
    """Return numbers from a tensor, an array or a list; refuse others with what is expected, and no cell."""
    try:
        return torch.as_tensor(given).detach().flatten().tolist()
    except (TypeError, ValueError, RuntimeError) as error:
        first = given[0] if isinstance(given, list | tuple) and given else None
        of = "" if first is None else f" of {type(first).__name__}"
        raise BadInputError(f"{name} are a {type(given).__name__}{of}; give {expected}.") from error


def _loss(loss: object, weights: object, scale: object) -> dict[str, object]:
    """Return the fields of a declared loss from its name or fields, its class weights and its factor."""
    named = {} if loss is None else loss_fields(loss)
    # What is neither a name nor fields is refused with its value, as the loss of one record.
    fields = dict(named) if isinstance(named, Mapping) else {"loss": named}
    if weights is not None:
        fields["weights"] = _numbers(weights, "weights", "one number a class")
    return fields if scale is None else {**fields, "scale": scale}


def _encoder(given: object) -> ClientEncoder:
    if isinstance(given, ClientEncoder):
        return given
    if not isinstance(given, ColumnTransformer):
        raise BadInputError(
            f"an encoder is a fitted scikit-learn ColumnTransformer, got {type(given).__name__}; declare any other by "
            "hand, as a ClientEncoder."
        )
    return ClientEncoder.of_transformer(given)


def _parameters(given: object) -> list[tuple[str, Tensor]]:
    if isinstance(given, nn.Module):
        raise BadInputError("capture takes the parameters with their names: give model.named_parameters().")
    pairs = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping) else None
    if pairs is None or not all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Tensor)
        for pair in pairs
    ):
        kinds = "" if not pairs else f" of {type(pairs[0]).__name__}"
        raise BadInputError(
            f"the first argument of capture is of type {type(given).__name__}{kinds} where pairs of name and parameter "
            "are expected: give model.named_parameters(). Two states take a third argument, the path."
        )
    return pairs


def _path(given: object) -> Path:
    if not isinstance(given, str | Path):
        raise BadInputError(
            f"the path is of type {type(given).__name__}; give the file to write last, such as 'update.safetensors'."
        )
    return Path(given)


Ids = Sequence[int] | Sequence[str] | Tensor | np.ndarray | pd.Series | pd.Index


class TranscriptWriter:
    """Writes what crosses the wire, as the party that attacks it sees it: the server, or the active party.

    Make one before the training, and call ``exchange`` once a round. The other party writes its weights, where these
    are to be granted to the attack, with ``write_weights``. Files of both go into one folder.

    Args:
        private: columns of the attacked party; all of them where it is a client that holds all (``topology``).
        setting: ``split`` or ``vertical``.
        own: the attacker's own columns with the column of ids; None where it gives none. In vertical learning labels
            alone will do, and columns of further parties are left out.
        about: further fields of ``TranscriptDescription``, such as ``topology``, ``model``, ``options``, ``loss`` or
            ``defense``.

    Raises:
        BadInputError: a column or field is unknown, or the folder holds a transcript already.

    Example:
        >>> import tempfile
        >>> from seepage.datasets.planted import telling
        >>> schema = telling(rows=20).schema
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = TranscriptWriter(folder, schema, ["noise_0"])
        ...     cut = torch.randn(2, 3, requires_grad=True)
        ...     writer.exchange([7, 8], cut)
        ...     cut.backward(torch.ones(2, 3))
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['round-000000.safetensors', 'schema.yaml', 'transcript.json']
    """

    def __init__(
        self,
        folder: str | Path,
        schema: Schema,
        private: Sequence[str],
        setting: str = "split",
        own: pd.DataFrame | None = None,
        **about: object,
    ) -> None:
        self.folder = Path(folder)
        self._next = 0
        if (self.folder / TRANSCRIPT).exists() or any(self.folder.glob("round-*.safetensors")):
            raise BadInputError(f"{str(self.folder)!r} holds a transcript already; name another folder.")
        values = {"setting": setting, "private": list(private), **about}
        self._about = described = transcript_description(values, "the description of the transcript")
        check_columns(described, schema)
        if own is not None:
            if setting == "vertical":
                # Columns of further passive parties are neither attacked here nor the attacker's.
                there = {*described.private, *own.columns}
                schema = schema.model_copy(
                    update={"columns": tuple(column for column in schema.columns if column.name in there)}
                )
            names = [described.id, *(name for name in schema.names if name not in described.private)]
            lacking = [name for name in names if name not in own.columns]
            if lacking:
                raise BadInputError(
                    f"the attacker's own columns lack {', '.join(map(repr, lacking))}; give the ids and every column "
                    "that is not private."
                )
            write_whole(self.folder / OWN, own.to_csv(index=False), private=True)
        write_whole(self.folder / SCHEMA, schema.to_yaml(), private=True)
        text = json.dumps(described.model_dump(mode="json", exclude_none=True), indent=1)
        write_whole(self.folder / TRANSCRIPT, text + "\n", private=True)

    def exchange(
        self,
        ids: Ids,
        activations: Tensor,
        gradients: Tensor | None = None,
        *,
        outputs: Tensor | None = None,
        output_gradients: Tensor | None = None,
        number: int | None = None,
        clip: float | None = None,
    ) -> None:
        """Write the messages of one round.

        Without ``gradients``, those that the next backward pass brings to ``activations`` are written when it does:
        call this before ``activations.backward(received)``, or before ``loss.backward()`` at the active party. The same
        holds for ``outputs``.

        Args:
            activations, gradients: activations or features, and their gradients, as they crossed the wire.
            outputs: what the attacker sends on at a second cut: the server of ``u_shaped``, the hop of ``multi_hop``.
            output_gradients: gradients with respect to the outputs, as they came back.
            number: number of the round; one more than the last if None.
            clip: bound on the norm of a record's own gradient, where clients publish it.

        Raises:
            BadInputError: shapes do not fit, or no backward pass can reach the activations.
        """
        this, tensors = self._begun(ids, activations, number)
        if clip is not None:
            tensors["clip"] = torch.tensor([float(clip)])
        if activations.ndim != 2 or len(activations) != len(tensors["ids"]):
            raise BadInputError(
                f"round {this} has {len(tensors['ids'])} ids for activations of shape {tuple(activations.shape)}; give "
                "a row of activations a record."
            )
        if outputs is not None and not self._about.second_cut:
            raise BadInputError(
                f"the attacker sends no outputs on in the topology {self._about.topology!r}; they are of the server of "
                "u_shaped and of the hop of multi_hop."
            )
        awaited = {"gradients": (activations, gradients)}
        if outputs is not None:
            tensors["outputs"] = _copy(outputs)
            awaited["output_gradients"] = (outputs, output_gradients)
        given = {name: gradient for name, (_, gradient) in awaited.items() if gradient is not None}
        hooked = {name: sent for name, (sent, gradient) in awaited.items() if gradient is None and sent.requires_grad}
        # What is sent on tells by its gradients alone; those of the activations are then of no use.
        needed = "gradients" if outputs is None else "output_gradients"
        if needed not in {**given, **hooked}:
            raise BadInputError(
                f"round {this} has no {needed}, and its {'activations take' if outputs is None else 'outputs take'} "
                f"none; give {needed}=..., or call exchange before the backward pass with tensors that require "
                "gradients."
            )
        if not hooked:
            self._write(this, tensors, given)
        for name, sent in hooked.items():

            def take(gradient: Tensor, name: str = name) -> None:
                given[name] = gradient
                # The last gradient of the round is there.
                if hooked.keys() <= given.keys():
                    self._write(this, tensors, given)

            sent.register_hook(take)

    def inference(self, ids: Ids, activations: Tensor, *, number: int | None = None) -> None:
        """Write messages to which no gradient came back, such as those of a prediction; see ``exchange``."""
        self._write(*self._begun(ids, activations, number), {})

    def own_weights(self, module: nn.Module) -> None:
        """Write the weights of the attacker's own part, which attacks with auxiliary rows use."""
        write_whole(self.folder / SERVER, _saved(module), private=True)

    def _begun(self, ids: Ids, activations: Tensor, number: int | None) -> tuple[int, dict[str, Tensor]]:
        """Return the number of a round, and its first tensors."""
        this = self._next if number is None else check_round(number)
        self._next = this + 1
        return this, {"ids": _as_ids(ids), "activations": _copy(activations)}

    def _write(self, number: int, tensors: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
        written = dict(tensors)
        for name, gradient in gradients.items():
            sent = "activations" if name == "gradients" else "outputs"
            if gradient.shape != written[sent].shape:
                raise BadInputError(
                    f"round {number} has {name} of shape {tuple(gradient.shape)} for {sent} of shape "
                    f"{tuple(written[sent].shape)}; give one gradient for each of the {sent}."
                )
            written[name] = _copy(gradient)
        write_whole(self.folder / f"round-{number:06d}.safetensors", save(written), private=True)


def write_weights(module: nn.Module, folder: str | Path, number: int) -> None:
    """Write the weights of the attacked party's part before a round, at that party's site.

    They go into the folder of the transcript, or one whose files are copied there.

    Raises:
        BadInputError: the number is negative, or the file cannot be written.
    """
    write_whole(Path(folder) / f"client-{check_round(number):06d}.safetensors", _saved(module), private=True)


def check_round(number: object) -> int:
    """Return the number of a round."""
    if number == 0 and not isinstance(number, bool):
        return 0
    check_count("number of the round", number)
    assert isinstance(number, int)
    return number


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone().contiguous()


def _saved(module: nn.Module) -> bytes:
    return save({name: tensor.contiguous().clone() for name, tensor in as_state(module, "the part").items()})


def _as_ids(ids: Ids) -> Tensor:
    """Return ids as a tensor: whole numbers, or rows of UTF-8 bytes that are filled up with zeros."""
    values = ids.reshape(-1).tolist() if isinstance(ids, Tensor | np.ndarray) else list(ids)
    # A list may hold numbers of numpy.
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]
    if listed and all(isinstance(identifier, str) for identifier in listed):
        encoded = [str(identifier).encode() for identifier in listed]
        width = max(map(len, encoded)) or 1
        return torch.tensor([list(identifier.ljust(width, b"\0")) for identifier in encoded], dtype=torch.uint8)
    if not listed or not all(isinstance(identifier, int) and not isinstance(identifier, bool) for identifier in listed):
        raise BadInputError("ids are whole numbers or texts, one a record, and there is at least one.")
    return torch.tensor(listed, dtype=torch.int64)
