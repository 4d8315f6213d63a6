"""Records from neurons that a single record of the batch activates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.attacks.horizontal.exact.first_layer import first_layer, nearest_records, quotients
from seepage.attacks.horizontal.matching.reconstruct import as_gradient, check
from seepage.registry import Traits, attacks
from seepage.wire.horizontal import Knowledge, RecordsGuess, View


@attacks.register("single_activation", "horizontal", traits=Traits(exact=True))
@dataclass(frozen=True)
class SingleActivation:
    """Passive attack on neurons that react to one record alone; the closed form for a batch of one.

    Source: Boenisch et al., When the Curious Abandon Honesty (EuroS&P 2023), after Phong et al. (2018).

    Where one record of the batch activates neuron j, the gradient of its weights over that of its bias is the record
    (Phong et al. 2018 for a batch of one; Boenisch et al. 2023 observe it in larger batches of untrained networks).
    Every neuron is a candidate; those nearest to valid rows are taken.

    Example:
        >>> import torch
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn1
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> from seepage.tabular.encoder import Encoder
        >>> data = distinct(rows=20)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> ran = FedSGD(1).run(nn1(data.schema, seed=0), data.train, encoder, seeds=[1])
        >>> guess = SingleActivation()(ran.view, Knowledge(data.schema, data.statistics, 1), [0])
        >>> bool(torch.isclose(guess.cells, ran.secret.cells, atol=1e-3).all())
        True
    """

    def __call__(self, view: View, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        """Return the guessed records; nothing is random, so ``seeds`` are not used."""
        check(view, knowledge, seeds)
        read, knowledge = as_gradient(view, knowledge)
        layer = first_layer(read)
        return nearest_records(knowledge, quotients(layer.weight, layer.bias))
