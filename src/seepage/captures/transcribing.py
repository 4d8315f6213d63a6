"""A few lines in the loop of plain PyTorch split or vertical training that write a transcript."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save
from torch import Tensor, nn

from seepage.captures.transcripts import OWN, SCHEMA, SERVER, TRANSCRIPT, as_description, check_columns
from seepage.errors import BadInputError, check_count
from seepage.files import write_whole
from seepage.models.states import as_state
from seepage.tabular.schema import Schema

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
        self._about = described = as_description(values, "the description of the transcript")
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
