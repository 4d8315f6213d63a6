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
from seepage.guard.beside import check_beside, check_name, counted_records, without_text
from seepage.guard.settings import load
from seepage.guard.update_guard import UpdateGuard
from seepage.models.model import Head
from seepage.models.states import as_state, changes, state_digest
from seepage.packages import extra
from seepage.protocols.recipe import MessageRecipe
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.schema import Schema

with extra("flower", "Flower", "flwr"):
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Context,
        Error,
        Message,
        MessageType,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp.typing import ClientAppCallable, Mod
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy.strategy import Strategy
    from flwr.supercore.run import Run

C = TypeVar("C", bound="CaptureReplies")

_LARGEST_CODE = 999  # codes of errors, Flower's and an app's own

_LOGGER = logging.getLogger(__name__)
_BLOCKED = "the leak guard sends no update in this round"
_WITHHELD = "the leak guard withholds this reply; the client's own log says why"


def leak_guard_mod(
    guard: UpdateGuard | str | Path | Callable[[Context], UpdateGuard], *, weighted_by_key: str = "num-examples"
) -> Mod:
    """Return a mod that checks each reply before it is sent: the update of a training message, and what is beside it.

    Register it for all messages with ``ClientApp(mods=[leak_guard_mod(...)])``, and before all other mods, since the
    first mod is the last to see the reply. An update that is blocked becomes an error, which strategies count as a
    failure. So does a reply that cannot be checked: a training reply without exactly one ``ArrayRecord``, or with that
    of another network; arrays in replies to ``evaluate`` and ``query``; and whatever a reply holds beside the model but
    a few numbers under usual names, see ``seepage.guard.beside``. A policy that reports and advises sends these, with a
    warning. The text of an exception of the app, or of an error that it returns, never leaves.

    Args:
        guard: guard; path of a guard file, whose network is registered; or a function that returns the guard of a
            client, for apps whose clients have other tables. Give it the client's own ``rows``, so that it counts those
            that the reply gives away. Flower starts an app anew in each round: give the guard a log, so that rounds
            with noise are counted.
        weighted_by_key: name of the metric that says how many records the reply is of, where the recipe does not: a
            whole number from 1 to 2**20.

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
        try:
            checks = prepared if isinstance(prepared, UpdateGuard) else prepared(context)
            # Before the app runs, which may change the arrays in place.
            received = _arrays(message)
        except Exception as error:
            return _raised(message, error, ErrorCode.MOD_FAILED_PRECONDITION)
        try:
            reply = call_next(message, context)
        except Exception as error:
            return _raised(message, error, ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
        try:
            if reply.has_error():
                return _app_error(message, reply.error)
            training = message.metadata.message_type.partition(".")[0] == MessageType.TRAIN
            return _checked(checks, message, received, reply, weighted_by_key, training=training)
        except BadInputError as error:
            _LOGGER.warning("leak guard: nothing is sent, since the reply cannot be checked: %s", error)
            return _refusal(message, _WITHHELD)
        except Exception as error:
            return _raised(message, error, ErrorCode.MOD_FAILED_PRECONDITION)

    return mod


def _checked(
    checks: UpdateGuard,
    message: Message,
    received: dict[str, np.ndarray] | None,
    reply: Message,
    weighted_by_key: str,
    *,
    training: bool,
) -> Message:
    """Return the reply as it may be sent; ``BadInputError`` where it cannot be checked."""
    further = (*checks.policy.metrics, weighted_by_key)
    count = _number(reply, weighted_by_key, training)
    arrays = None
    try:
        for name in reply.content:
            check_name(name, name, further)
        check_beside(_numbers_of(reply), further)
        if not training and any(reply.content.array_records.values()):
            raise BadInputError(
                f"a reply to {message.metadata.message_type!r} holds arrays, which the guard compares with nothing; "
                "return metrics alone"
            )
    except BadInputError as error:
        if not checks.policy.sends_unread:
            raise
        _LOGGER.warning("leak guard: sent unread, as the policy reports and advises: %s", error)
        if not training:
            return reply
    if training:
        records = list(reply.content.array_records.items())
        if received is None or len(records) != 1:
            raise BadInputError("message and reply each need exactly one ArrayRecord")
        [(key, record)] = records
        given = {name: array.numpy() for name, array in record.items()}
        records_behind = None if checks.recipe.batch_size is not None else count
        answer = checks(received, given, records=records_behind, round=_round(message))
        _LOGGER.info("leak guard: %s", answer.finding)
        if answer.message is None:
            return _refusal(message, _BLOCKED)
        if checks.policy.changes:
            given = {name: tensor.numpy() for name, tensor in answer.message.items()}
        # Written anew from what was checked: the bytes of an array may hold more than the array.
        arrays = key, ArrayRecord({name: Array(np.ascontiguousarray(part)) for name, part in given.items()})
    return _written_anew(message, reply, arrays)


def _written_anew(message: Message, reply: Message, arrays: tuple[str, ArrayRecord] | None) -> Message:
    """Return the reply with arrays that were checked, and without what its metadata may hold besides."""
    content = RecordDict()
    for name, record in reply.content.items():
        if isinstance(record, ArrayRecord):
            record = ArrayRecord() if arrays is None else arrays[1]
        content[name] = record
    return Message(content, reply_to=message)


def _numbers_of(reply: Message) -> Iterable[tuple[tuple[str, str], object]]:
    """Yield place and value of what a reply holds beside arrays."""
    for records in (reply.content.metric_records, reply.content.config_records):
        for name, record in records.items():
            for key, value in record.items():
                yield (name, key), value


def _raised(message: Message, error: Exception, code: int) -> Message:
    _LOGGER.error("leak guard: an exception, whose text stays here", exc_info=error)
    return Message(Error(code=code, reason=without_text(error)), reply_to=message)


def _app_error(message: Message, error: Error) -> Message:
    """Return an app's error without its text."""
    _LOGGER.error("leak guard: the app returned error %d, whose text stays here: %s", error.code, error.reason)
    code = error.code if 0 <= error.code <= _LARGEST_CODE else ErrorCode.UNKNOWN
    reason = "the client's app returned an error; its text is in the client's own log, as it may hold cells"
    return Message(Error(code=code, reason=reason), reply_to=message)


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
            count = recipe.batch_size if recipe.batch_size is not None else self._counted(reply)
            facts = {**dict(recipe), "batch_size": count, "sent": digest, **self._capture_facts}
            facts |= {"client": str(node), "round": server_round}
            save_capture(folder / f"client-{node}.safetensors", update, Description(**facts))

    def _counted(self, reply: Message) -> int | None:
        """Return how many records a reply says it is of; None where it does not, or says what cannot be."""
        try:
            return _number(reply, self._capture_weight)
        except BadInputError as error:
            _LOGGER.warning("a reply is captured without its number of records: %s", error)
            return None


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


def _number(reply: Message, key: str, trained: bool = True) -> int | None:
    """Return how many records a reply says it is of; None where it does not.

    Raises:
        BadInputError: it is no whole number within bounds, or two records of the reply contradict each other.
    """
    records = (*reply.content.metric_records.values(), *reply.content.config_records.values())
    counts = {counted_records(record[key], key, trained=trained) for record in records if key in record}
    if len(counts) > 1:
        raise BadInputError(f"the reply says {key!r} more than once, {' and '.join(map(str, sorted(counts)))}.")
    return next(iter(counts), None)


def _round(message: Message) -> int | None:
    for config in message.content.config_records.values():
        value = config.get("server-round")
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _arrays(message: Message) -> dict[str, np.ndarray] | None:
    """Return copies of the arrays of the one ArrayRecord of a message; None where it has none, or several."""
    record = _only_arrays(message) if message.has_content() else None
    return None if record is None else {name: array.numpy().copy() for name, array in record[1].items()}


def _refusal(message: Message, reason: str) -> Message:
    return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=reason), reply_to=message)
