"""SecretFlow: a callback of ``SLModel`` that writes what crosses the wire, as the party with the labels sees it."""

from __future__ import annotations

from collections import deque
from importlib import import_module
from typing import Any

import numpy as np

from seepage.captures.capturing import Ids
from seepage.captures.parties import PartyTranscripts
from seepage.errors import BadInputError

# SLModel moved out of the package secretflow after version 1.11.
_PLACES = ("secretflow_fl.ml.nn.callbacks.callback", "secretflow.ml.nn.callbacks.callback")


def capture_callback(transcripts: PartyTranscripts, ids: Ids, batch_size: int) -> Any:
    """Return a callback for ``SLModel.fit`` that writes each batch's features and the gradients that go back.

    Source: the calls of ``SLModel.fit`` in SecretFlow's repository. Features are taken before they are aggregated or
    compressed, and gradients as each party gets them. A pipeline, whose gradients lag behind, is followed.

    Args:
        transcripts: transcripts by names of parties, which are those of SecretFlow's devices.
        ids: ids of the training records in the order of the data. Train with ``shuffle=False``.
        batch_size: number of records of a batch, as for ``fit``.

    Raises:
        BadInputError: SecretFlow's federated learning is not installed, or there are fewer ids than records.

    Example:
        >>> import pandas as pd, tempfile
        >>> from seepage.datasets.planted import telling
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     own = pd.DataFrame({"id": [0, 1]})
        ...     transcripts = PartyTranscripts(folder, telling(rows=20).schema, {"alice": ["cause"]}, own)
        ...     capture_callback(transcripts, [0, 1], batch_size=2)
        Traceback (most recent call last):
        ...
        seepage.errors.BadInputError: SecretFlow's SLModel is not installed: ...
    """
    base = reveal = None
    for place in _PLACES:
        try:
            base, reveal = import_module(place).Callback, import_module("secretflow.device").reveal
        except (ImportError, AttributeError):
            continue
    if base is None or reveal is None:
        raise BadInputError(
            f"SecretFlow's SLModel is not installed: there is no module {' or '.join(_PLACES)}; run this where SLModel "
            "runs, or write the messages with PartyTranscripts."
        )
    capture = _Capture(transcripts, ids, batch_size)

    class Captured(base):
        """Callback that hands on what is read, revealed to the program that drives all parties."""

        def on_train_batch_begin(self, batch: int) -> None:
            capture.batches.append(batch)

        def on_agglayer_forward_begin(self, hiddens: Any = None) -> None:
            # Batches of tests and predictions have no number, and nothing goes back for them.
            if capture.batches:
                capture.features = capture.batches.popleft(), reveal(hiddens)

        def on_agglayer_backward_end(self, gradients: Any = None) -> None:
            capture.write(reveal(gradients))

    return Captured()


class _Capture:
    """Batches that are under way, and the features of the one whose gradients come next."""

    def __init__(self, transcripts: PartyTranscripts, ids: Ids, batch_size: int) -> None:
        self.transcripts, self.ids, self.batch_size = transcripts, np.asarray(ids), batch_size
        self.batches: deque[int] = deque()
        self.features: tuple[int, Any] | None = None

    def write(self, gradients: Any) -> None:
        """Write a batch's messages."""
        assert self.features is not None
        batch, features = self.features
        chosen = self.ids[batch * self.batch_size : (batch + 1) * self.batch_size]
        if not len(chosen):
            raise BadInputError(f"batch {batch} begins after the last of {len(self.ids)} ids; give those of all rows.")
        self.transcripts.exchange(chosen, features, gradients)
