"""Records from a network that the server crafted: Robbing the Fed (Fowl et al., ICLR 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.attacks.horizontal.exact.first_layer import first_layer, nearest_records, quotients
from seepage.attacks.horizontal.matching.reconstruct import as_gradient, check
from seepage.errors import BadInputError
from seepage.registry import Traits, attacks
from seepage.wire.horizontal import Knowledge, RecordsGuess, View


@attacks.register(
    "robbing_the_fed", "horizontal", traits=Traits(needs=("crafted_network",), network="imprint", exact=True)
)
@dataclass(frozen=True)
class RobbingTheFed:
    """The attack of an active, malicious server on model ``imprint``: neighbouring bins' gradients, subtracted.

    Source: Fowl et al., Robbing the Fed (ICLR 2022).

    A record alone between two neighbouring thresholds is their gradients' difference, weights over bias, exactly; of B
    records in k bins, about the share (1 - 1/k)^(B - 1) are alone. Bins that hold several records give their mean; the
    candidates nearest to valid rows are taken.
    """

    def __call__(self, view: View, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        """Return the guessed records; nothing is random, so ``seeds`` are not used."""
        check(view, knowledge, seeds)
        read, knowledge = as_gradient(view, knowledge)
        layer = first_layer(read)
        rows = layer.layer.weight.detach()
        if len(rows) < 2 or not (rows == rows[:1]).all():
            raise BadInputError(
                f"robbing_the_fed needs a network that the server crafted for it, but the neurons of model "
                f"{view.model.name!r} measure different things; audit model 'imprint', a malicious server's, with it."
            )
        # From the lowest threshold up: each neuron sums its own bin and all bins above.
        order = layer.layer.bias.detach().argsort(descending=True)
        weight, bias = (
            part[:, order] - part[:, order].roll(-1, dims=1).index_fill(1, order.new_tensor([len(order) - 1]), 0)
            for part in (layer.weight, layer.bias)
        )
        return nearest_records(knowledge, quotients(weight, bias))
