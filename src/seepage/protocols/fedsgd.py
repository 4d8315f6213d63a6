"""FedSGD: a client sends the gradient of one batch of its records."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seepage.defenses import Defense
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.model import Model
from seepage.registry import protocols
from seepage.tabular.encoder import Encoder
from seepage.tabular.table import Table
from seepage.transcript import RecordsSecret, Transcript
from seepage.views import GradientView


@protocols.register("fedsgd")
class FedSGD:
    """One round of FedSGD: the server sends a model, a client returns its batch's mean gradient, defended.

    The replication unit is a victim: one batch drawn from the client's rows.

    Args:
        batch_size: records behind one gradient.
        replacement: whether a batch may hold a row twice (TabLeak's code draws with replacement).
        defense: what each client does to its gradient before it sends it; nothing if None.
    """

    def __init__(self, batch_size: int, replacement: bool = False, defense: Defense | None = None) -> None:
        if batch_size < 1:
            raise BadInputError(f"a batch holds at least one record, got batch_size={batch_size}.")
        self.batch_size = batch_size
        self.replacement = replacement
        self.defense = defense

    def run(
        self,
        model: Model,
        rows: Table,
        encoder: Encoder,
        seeds: Sequence[int],
        defense_seeds: Sequence[int] | None = None,
    ) -> Transcript:
        """Return the gradients of one batch for each seed, and the records behind them.

        A victim depends on its own seeds alone, not on the victims it is run with. Its records do not
        depend on the defense.

        Args:
            model: the global model.
            rows: the client's.
            encoder: from rows to the model's inputs.
            seeds: one a victim, of its batch.
            defense_seeds: one a victim, of what the defense draws; needed where there is a defense.

        Raises:
            BadInputError: the batch is larger than the client's data, the model does not fit it, there
                is no seed, or not one a victim for the defense.
        """
        model.check(rows.schema)
        if len(seeds) == 0:
            raise BadInputError("FedSGD needs at least one seed, one for each victim, got none.")
        if self.batch_size > len(rows) and not self.replacement:
            raise BadInputError(
                f"batch size {self.batch_size} is larger than the client's {len(rows)} rows; "
                f"use a batch size of at most {len(rows)} or draw with replacement."
            )
        chosen = torch.stack([self._draw(len(rows), seed) for seed in seeds])
        cells, labels = rows.at(chosen)
        encoded = encoder.encode(cells.to(encoder.mean.device))
        # One client at a time: the bits of a gradient must not depend on how many clients are simulated at once.
        gradients = [gradient(model, x, y) for x, y in zip(encoded, labels.to(encoded.device), strict=True)]
        sent = {name: torch.stack([g[name] for g in gradients]) for name in gradients[0]}
        if self.defense is not None:
            sent = self.defense(sent, defense_seeds or ())
        return Transcript(GradientView(model, sent), RecordsSecret(cells, labels))

    def _draw(self, rows: int, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        if self.replacement:
            return torch.randint(rows, (self.batch_size,), generator=generator)
        return torch.randperm(rows, generator=generator)[: self.batch_size]
