"""Networks that a malicious server crafts, one a client, so that the clients stay separable in an aggregate."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seepage.errors import BadInputError, check_count
from seepage.models.imprint import measure, thresholds
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema


@models.register("loki", "horizontal")
def loki(
    schema: Schema, seed: int = 0, head: Head | None = None, clients: int = 4, bins: int = 400, scale: float | int = 50
) -> Model:
    """A malicious server's networks, one a client: each copies its records to a place of its own, then bins them.

    The first layer has one block a client, as wide as a record and a one. A client's own block is the identity,
    times ``scale``, and all others are zero, so that in the layer after it the weights' gradient has a block a client
    too, which only that client's records enter: summed over clients they stay apart. That second layer, the same
    for all, sorts records into bins by one random measure: neuron j is below 0 or above 1, and so
    has no gradient, for any record but those between thresholds j and j + 1 (Zhao et al., IEEE S&P 2024, "LOKI").

    The scale lets a record move the second layer's small weights by much, next to their own size, which the subtraction
    of parameters in a client's update needs, and its threshold by little, so that local training keeps the bins.

    The server is active and malicious, not honest-but-curious: clients could inspect the network that they receive,
    and could notice that no two receive the same.

    Deviations: fully connected, where the paper puts a convolution of identity kernels in front; each block
    has a one beside the record, so that a client's own share of the bias's gradient comes back too (the paper
    does without and rescales images, but a row of a table has no range to be scaled to); bins of hard tanh in FedSGD
    as well as in FedAvg; one measure drawn at random, with the quantiles of a normal distribution.

    Args:
        clients: number of clients whose messages will be aggregated, the protocol's.
        bins: number of neurons of the second layer, shared by all clients.

    Raises:
        BadInputError: a count is below 1, or the scale is not positive.
    """
    check_count("clients", clients)
    check_count("bins", bins)
    if not 0 < scale < math.inf:
        raise BadInputError(f"records are scaled by a positive number, got scale={scale!r}.")
    head = head or usual_head(schema)
    width, outputs = schema.width, output_width(schema, head)

    def build() -> nn.Module:
        layers = nn.Linear(width, clients * (width + 1)), nn.Linear(clients * (width + 1), bins)
        last = nn.Linear(bins, outputs)
        with torch.no_grad():
            edges = thresholds(bins + 1)
            block = torch.cat([measure(width).expand(bins, -1), -edges[:-1, None]], 1)
            layers[1].weight.copy_((block / (scale * edges.diff()[:, None])).repeat(1, clients))
            layers[1].bias.zero_()
            # A record is above half of the thresholds: the sum of their neurons must not make the prediction certain.
            last.weight.copy_(last.weight[:, :1].expand(-1, bins) / math.sqrt(bins))
        return nn.Sequential(*layers, nn.Hardtanh(0.0, 1.0), last)

    module = seeded(build, seed)
    identities = _identities(width, clients, scale)
    with torch.no_grad():
        for name, versions in identities.items():
            module.get_parameter(name).copy_(versions[0])
    crafted = "sends every client another network, crafted so that records can be read off their aggregate (LOKI)"
    return Model(module, head, "loki", crafted, identities).check(schema)


def _identities(width: int, clients: int, scale: float | int) -> dict[str, Tensor]:
    """Return the first layer of each client: a record and a one, in the client's own block."""
    weight, bias = torch.zeros(clients, clients, width + 1, width), torch.zeros(clients, clients, width + 1)
    for client in range(clients):
        weight[client, client, :width] = scale * torch.eye(width)
        bias[client, client, width] = scale
    return {"0.weight": weight.flatten(1, 2), "0.bias": bias.flatten(1, 2)}
