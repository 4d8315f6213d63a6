"""Transcripts of vertical training with several passive parties, as the party that holds the labels sees it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from seepage.captures.capturing import Ids, TranscriptWriter
from seepage.errors import BadInputError, unknown_name
from seepage.tabular.schema import Schema

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class PartyTranscripts:
    """Writes one transcript for each passive party, in a folder of its name.

    Args:
        parties: columns of each passive party, by the party's name or number.
        own: active party's own columns with the column of ids, those of records that no other party has included; ids
            and labels alone will do.
        about: further fields of ``TranscriptDescription``, such as ``id``, ``loss``, ``model`` or ``defense``.

    Raises:
        BadInputError: a party's name is no folder's, or a column or field is unknown.

    Example:
        >>> import tempfile
        >>> from seepage.datasets.planted import telling
        >>> rows = telling(rows=20).train
        >>> own = rows.frame[["label"]].assign(id=range(20))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     parties = {"bank": ["cause"], "shop": ["noise_0", "noise_1"]}
        ...     transcripts = PartyTranscripts(folder, rows.schema, parties, own)
        ...     sent = {"bank": torch.ones(2, 3), "shop": torch.ones(2, 4)}
        ...     transcripts.exchange([7, 8], sent, sent)
        ...     sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("round-*"))
        ['bank/round-000000.safetensors', 'shop/round-000000.safetensors']
    """

    def __init__(
        self,
        folder: str | Path,
        schema: Schema,
        parties: Mapping[str, Sequence[str]] | Mapping[int, Sequence[str]],
        own: pd.DataFrame,
        **about: object,
    ) -> None:
        for name in parties:
            if _FOLDER.fullmatch(str(name)) is None:
                raise BadInputError(
                    f"the party {name!r} gives its name to a folder; name it with letters, digits, '_', '.' and '-'."
                )
        self._writers = {
            str(name): TranscriptWriter(Path(folder) / str(name), schema, columns, "vertical", own, **about)
            for name, columns in parties.items()
        }

    def exchange(self, ids: Ids, features: Mapping[Any, object], gradients: Mapping[Any, object]) -> None:
        """Write the messages of one round: what each party sent, and what went back to it.

        Keys are names of parties, or objects whose ``party`` is the name, such as SecretFlow's devices. Values are
        tensors or arrays; lists of them, which are joined; or objects whose ``hidden`` is that, such as SecretFlow's
        ``ForwardData``. Parties to which nothing goes back are left out of the round, as the active party itself is.

        Raises:
            BadInputError: a gradient is of an unknown party, of one that sent nothing, or has another shape.
        """
        sent = {_party(key): value for key, value in features.items()}
        for key, gradient in gradients.items():
            name = _party(key)
            if name not in self._writers:
                if name in sent and isinstance(key, str | int):
                    raise unknown_name("passive party:", name, self._writers)
                continue
            if name not in sent:
                raise BadInputError(f"the party {name!r} gets a gradient and sent no features in this round.")
            self._writers[name].exchange(ids, _tensor(sent[name]), _tensor(gradient))


def _party(key: object) -> str:
    return str(getattr(key, "party", key))


def _tensor(value: object) -> Tensor:
    """Return numbers as they crossed the wire as one tensor."""
    value = getattr(value, "hidden", value)
    if isinstance(value, list | tuple):
        return torch.cat([_tensor(part) for part in value], dim=1)
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
