"""Flower: a mod that checks a client's replies, and captures of what the server receives and sends back.

A mod is part of the app, which the researcher writes: it is advisory. Whoever writes the app can leave it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from safetensors.torch import save
from torch import Tensor

from seepage.captures.captured import Description, save_capture
from seepage.captures.capturing import Ids
from seepage.captures.parties import PartyTranscripts
from seepage.errors import BadInputError
from seepage.files import make_folder, write_whole
from seepage.guard.settings import load
from seepage.guard.update_guard import UpdateGuard
from seepage.models.model import Head
from seepage.models.states import as_state, changes, state_digest
from seepage.packages import extra
from seepage.protocols.recipe import MessageRecipe
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.schema import Schema

with extra("flower", "Flower", "flwr"):
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord
    from flwr.clientapp.typing import ClientAppCallable, Mod
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy.strategy import Strategy
    from flwr.supercore.run import Run

C = TypeVar("C", bound="CaptureReplies")

_LOGGER = logging.getLogger(__name__)
_BLOCKED = "the leak guard sends no update in this round"


def leak_guard_mod(
    guard: UpdateGuard | str | Path | Callable[[Context], UpdateGuard], *, weighted_by_key: str = "num-examples"
) -> Mod:
    """Return a mod that checks the reply to each training message before it is sent.

    Register it first, since the first mod is the last to see the reply: ``@app.train(mods=[leak_guard_mod(...)])``, or
    before all of these with ``ClientApp(mods=[...])``. A reply that is blocked becomes an error, which strategies
    count as a failure. So does a reply that cannot be checked: one without exactly one ``ArrayRecord``, or with that of
    another network.

    Args:
        guard: guard; path of a guard file, whose network is registered; or a function that returns the guard of a
            client, for apps whose clients have other tables. Give it the client's own ``rows``, so that it counts those
            that the reply gives away. Flower starts an app anew in each round: give the guard a log, so that rounds
            with noise are counted.
        weighted_by_key: name of the metric that says how many records the reply is of, where the recipe does not.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn3
        >>> data = distinct(rows=40)
        >>> guarding = UpdateGuard(nn3(data.schema).module, data.schema, MessageRecipe(), reference=data.train)
        >>> app = ClientApp(mods=[leak_guard_mod(guarding)])
    """
    prepared = load(guard) if isinstance(guard, str | Path) else guard

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        checks = prepared if isinstance(prepared, UpdateGuard) else prepared(context)
        # Before the app runs, which may change the arrays in place.
        sent = _only_arrays(message)
        received = None if sent is None else {name: array.numpy().copy() for name, array in sent[1].items()}
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        arrays_of_reply = _only_arrays(reply)
        if received is None or arrays_of_reply is None:
            _LOGGER.warning("leak guard: message and reply each need exactly one ArrayRecord; nothing is sent")
            return _refusal(message)
        key, arrays = arrays_of_reply
        records = None if checks.recipe.batch_size is not None else _number(reply, weighted_by_key)
        try:
            answer = checks(
                received,
                {name: array.numpy() for name, array in arrays.items()},
                records=records,
                round=_round(message),
            )
        except BadInputError as error:
            _LOGGER.warning("leak guard: nothing is sent, since the reply cannot be checked: %s", error)
            return _refusal(message)
        _LOGGER.info("leak guard: %s", answer.finding)
        if answer.message is None:
            return _refusal(message)
        if checks.policy.changes:
            reply.content.array_records[key] = ArrayRecord(
                {name: Array(np.ascontiguousarray(tensor.numpy())) for name, tensor in answer.message.items()}
            )
        return reply

    return mod


class CaptureReplies(Strategy):
    """Mixin that writes what a server really receives, as captured updates.

    Put it before the strategy: ``class Captured(CaptureReplies, FedAvg): ...``, and name a folder with ``capture_to``.
    The folder gets, for its owner alone, a folder a round with ``model.safetensors``, as it was sent, and a captured
    update a client, ``client-ID.safetensors``; see ``seepage attack --help``. Where a strategy sends clients different
    models, each client's stands beside its update, ``model-ID.safetensors``.

    Example:
        >>> from flwr.serverapp.strategy import FedAvg
        >>> from seepage.learning import LocalTraining
        >>> class Captured(CaptureReplies, FedAvg): ...
        >>> training = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)
        >>> recipe = MessageRecipe(protocol="fedavg", training=training)
        >>> strategy = Captured(fraction_evaluate=0.5).capture_to("captured", recipe)
    """

    _capture_folder: Path | None = None

    def capture_to(
        self: C,
        folder: str | Path,
        recipe: MessageRecipe,
        *,
        head: Head | None = None,
        encoder: ClientEncoder | None = None,
        weighted_by_key: str = "num-examples",
    ) -> C:
        """Name the folder and what is known of the clients, and return the strategy.

        Args:
            head: reading of the network's outputs, where it is known.
            encoder: encoder of the clients, where they share one.
            weighted_by_key: name of the metric that says how many records a reply is of.
        """
        self._capture_folder, self._capture_recipe = Path(folder), recipe
        self._capture_facts = {"head": head, "encoder": encoder}
        self._capture_weight = weighted_by_key
        self._capture_sent: dict[int, ArrayRecord] = {}
        return self

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the strategy's messages, and keep the models in them until the replies come."""
        if self._capture_folder is None:
            raise BadInputError("the strategy does not know where to; call capture_to(folder, recipe) before start().")
        messages = list(super().configure_train(server_round, arrays, config, grid))  # pyright: ignore[reportAbstractUsage]
        sent = {message.metadata.dst_node_id: _only_arrays(message) for message in messages}
        self._capture_sent = {node: record[1] for node, record in sent.items() if record is not None}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Write each reply, and return what the strategy makes of all of them."""
        received = list(replies)
        self._capture_round(server_round, received)
        return super().aggregate_train(server_round, received)  # pyright: ignore[reportAbstractUsage]

    def _capture_round(self, server_round: int, replies: Iterable[Message]) -> None:
        assert self._capture_folder is not None
        folder = self._capture_folder / f"round-{server_round:04d}"
        make_folder(self._capture_folder, private=True)
        make_folder(folder, private=True)
        common: str | None = None
        for reply in replies:
            node = reply.metadata.src_node_id
            arrays = None if reply.has_error() else _only_arrays(reply)
            if arrays is None or node not in self._capture_sent:
                continue
            before, after = _state(self._capture_sent[node]), _state(arrays[1])
            digest = state_digest(before)
            if common is None:
                common = digest
                _write_model(folder / "model.safetensors", before)
            elif digest != common:
                _write_model(folder / f"model-{node}.safetensors", before)
            recipe = self._capture_recipe
            update = after if recipe.training is None else changes(before, after)
            count = recipe.batch_size if recipe.batch_size is not None else _number(reply, self._capture_weight)
            facts = {**dict(recipe), "batch_size": count, "sent": digest, **self._capture_facts}
            facts |= {"client": str(node), "round": server_round}
            save_capture(folder / f"client-{node}.safetensors", update, Description(**facts))


class CaptureGrid(Grid):
    """Grid that writes what crosses the wire in vertical learning, as the server that holds the labels sees it.

    It is for apps in which clients answer with features, and the server sends each its part of the gradient, as in
    Flower's example ``vertical-fl``. Wrap the grid in the first line of the server's main function. A reply with one
    array and the client's position is taken for features; the next message with an array of their shape to the same
    node is their gradient. Each client becomes a folder with a transcript, see ``PartyTranscripts``.

    Args:
        grid: grid that the app was given.
        parties: columns of each client, by its position.
        own: server's own columns, or labels alone, with the column of ids.
        ids: ids of the records in the order in which clients send them; those of ``own`` if None.
        position: name of the client's position among the settings of a reply.
        about: further fields of ``TranscriptDescription``, such as ``head`` or ``defense``.

    Raises:
        BadInputError: see ``PartyTranscripts``; or features are of another number of records than there are ids.
    """

    def __init__(
        self,
        grid: Grid,
        folder: str | Path,
        schema: Schema,
        parties: Mapping[str, Sequence[str]] | Mapping[int, Sequence[str]],
        own: pd.DataFrame,
        *,
        ids: Ids | None = None,
        position: str = "pos",
        **about: object,
    ) -> None:
        self._grid, self._position = grid, position
        self._transcripts = PartyTranscripts(folder, schema, parties, own, **about)
        self._ids = own[str(about.get("id", "id"))].tolist() if ids is None else ids
        self._features: dict[int, tuple[str, np.ndarray]] = {}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages as the grid does, and write what they and their replies hold."""
        sent = self._written(messages)
        return self._received(self._grid.send_and_receive(sent, timeout=timeout))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages as the grid does, and write the gradients among them."""
        return self._grid.push_messages(self._written(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return replies as the grid does, and keep the features among them until their gradients are sent."""
        return self._received(self._grid.pull_messages(message_ids))

    def set_run(self, run: Run) -> None:
        """Set the run of the grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Run of the grid."""
        return self._grid.run

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        """Return a message that the grid makes."""
        return self._grid.create_message(*arguments, **options)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the grid's nodes."""
        return self._grid.get_node_ids()

    def _received(self, replies: Iterable[Message]) -> list[Message]:
        received = list(replies)
        for reply in received:
            array = None if reply.has_error() else _only_array(reply)
            places = [] if array is None else [c.get(self._position) for c in reply.content.config_records.values()]
            place = next((place for place in places if isinstance(place, int | str)), None)
            if array is not None and place is not None:
                # The app may change the array in place.
                self._features[reply.metadata.src_node_id] = (str(place), array.copy())
        return received

    def _written(self, messages: Iterable[Message]) -> list[Message]:
        sent = list(messages)
        for message in sent:
            gradient, node = _only_array(message), message.metadata.dst_node_id
            if gradient is None or node not in self._features:
                continue
            party, features = self._features[node]
            if features.shape == gradient.shape:
                self._transcripts.exchange(self._ids, {party: features}, {party: gradient})
                del self._features[node]
        return sent


def _only_array(message: Message) -> np.ndarray | None:
    """Return the one array of a message; None where it has none, or several."""
    record = _only_arrays(message) if message.has_content() else None
    return next(iter(record[1].values())).numpy() if record is not None and len(record[1]) == 1 else None


def _write_model(path: Path, state: dict[str, Tensor]) -> None:
    write_whole(path, save({name: tensor.contiguous().clone() for name, tensor in state.items()}), private=True)


def _state(arrays: ArrayRecord) -> dict[str, Tensor]:
    return as_state({name: array.numpy() for name, array in arrays.items()}, "the message")


def _only_arrays(message: Message) -> tuple[str, ArrayRecord] | None:
    """Return the key and the one ArrayRecord of a message; None where it has none, or several."""
    records = list(message.content.array_records.items())
    return records[0] if len(records) == 1 else None


def _number(reply: Message, key: str) -> int | None:
    """Return a whole number among the metrics of a reply; None where there is none of that name."""
    for metrics in reply.content.metric_records.values():
        value = metrics.get(key)
        if isinstance(value, int | float) and value >= 1 and value == int(value):
            return int(value)
    return None


def _round(message: Message) -> int | None:
    for config in message.content.config_records.values():
        value = config.get("server-round")
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _refusal(message: Message) -> Message:
    return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=_BLOCKED), reply_to=message)
