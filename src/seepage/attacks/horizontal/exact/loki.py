"""Records of single clients from an aggregate of crafted networks' gradients: LOKI (Zhao et al., 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.exact.first_layer import nearest_records, quotients
from seepage.attacks.horizontal.matching.reconstruct import check
from seepage.errors import BadInputError
from seepage.registry import Traits, attacks
from seepage.wire.horizontal import Knowledge, RecordsGuess, View


@attacks.register("loki", "horizontal", traits=Traits(needs=("crafted_network",), network="loki", exact=True))
@dataclass(frozen=True)
class Loki:
    """The attack of an active, malicious server on model ``loki``: every client's bins, read from their aggregate.

    Source: Zhao et al., LOKI (IEEE S&P 2024).

    The gradient of the second layer's weights has one block a client: its records times a scale, and the scale itself,
    each times the error of their bin. A record alone in its bin is the quotient of the two, exactly; with B records a
    client in k bins, about the share (1 - 1/k)^(B - 1) are. The rows nearest to valid ones are taken, client by client.

    Example:
        >>> import torch
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.loki import loki
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> from seepage.tabular.encoder import Encoder
        >>> data = distinct(rows=20)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> ran = FedSGD(1, clients=3).run(loki(data.schema, clients=3), data.train, encoder, seeds=[1])
        >>> guess = Loki()(ran.view, Knowledge(data.schema, data.statistics, 3), [0])
        >>> bool(torch.isclose(guess.cells, ran.secret.cells, atol=1e-3).all())
        True
    """

    def __call__(self, view: View, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        """Return the guessed records, one client's after the other's; ``seeds`` are not used."""
        check(view, knowledge, seeds)
        blocks = _blocks(view, knowledge)
        clients = blocks.shape[1]
        of_client = replace(knowledge, batch_size=knowledge.batch_size // clients)
        # A client whose gradient is zero must not be measured by the other clients' gradients.
        flat = blocks.flatten(0, 1)
        cells = nearest_records(of_client, quotients(flat[..., :-1], flat[..., -1])).cells
        return RecordsGuess(cells.unflatten(0, (-1, clients)).flatten(1, 2))


def _blocks(view: View, knowledge: Knowledge) -> Float[Tensor, "victim client bin extended"]:
    """Return each client's share of the received gradient of the second layer's weights."""
    model, width = view.model, knowledge.schema.width + 1
    name = list(model.parameters)[2:3]
    clients = len(next(iter(model.each.values()))) if model.each else 0
    if clients == 0 or not name or view.message[name[0]].shape[2:] != (clients * width,):
        raise BadInputError(
            f"loki needs networks that the server crafted for it, another one for each client, but model "
            f"{model.name!r} is none of them; audit model 'loki', a malicious server's, with it."
        )
    return view.message[name[0]].unflatten(2, (clients, width)).transpose(1, 2)
