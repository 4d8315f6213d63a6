"""Attacks on a transcript of split training with a client that holds all columns: vanilla, U-shaped and with a hop."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from seepage.captures.vertical_transcripts import ActivationExposure, hidden_of
from seepage.errors import BadInputError
from seepage.models.own import find_own, is_own
from seepage.models.own_parts import own_whole
from seepage.models.split import outputs_of
from seepage.models.vertical import Copies, Stack
from seepage.models.weights import load_weights
from seepage.protocols.whole_client import PARTS, WholeClientModel
from seepage.wire.labels import ReturnedView
from seepage.wire.vertical import SmashedView


class WholeTranscriptExposure(ActivationExposure):
    """The messages of a client with all columns to a server, or to a hop before the server."""

    setting = "split"

    @property
    def part(self) -> str:
        """Words for the first layers of the client, and those of the hop where the server is behind it."""
        return "client's first layers" + (" and those of the hop" if self._behind_hop else "")

    @property
    def _behind_hop(self) -> bool:
        about = self.tables.training.about
        return about.topology == "multi_hop" and about.attacker == "server"

    def own(self, places: Tensor) -> Float[Tensor, "record own"]:
        """Return the cells of a party without columns."""
        return self.messages("behind", places).new_zeros(len(places), 0).double()

    def _seen(self) -> SmashedView:
        second = self.tables.training.about.second_cut and self.came_back("output_gradient")
        self.reveals = (SmashedView, *((ReturnedView,) if second else ()))
        return SmashedView(self.messages("activations", self.places).float()[None])

    def _some(self, at: Tensor) -> SmashedView:
        return SmashedView(self.view.received[:, at])

    def _loaded(self, name: str | None, file: Path, width: int) -> nn.Module | None:
        about = self.tables.training.about
        assert about.topology != "columns"
        if name is not None and is_own(name):
            parts = PARTS[about.topology][: 2 if self._behind_hop else 1]
            factory, outputs = find_own(name), outputs_of(self.attacked_schema.target)
            client, further = own_whole(factory, self.attacked_schema, parts, outputs, width, 0, about.options, width)
            load_weights(nn.Sequential(client.networks[0], *further) if further else client.networks[0], file)
            return nn.Sequential(client, Copies(further)) if further else client
        if name != "mlp":
            return None
        hidden = hidden_of(about, "hidden")
        if not self._behind_hop:
            client = Stack((self.attacked_schema.width, *hidden, width), [0])
            load_weights(client, file)
            return client
        hop, cut = hidden_of(about, "hop"), about.options.get("cut")
        if not hop or hop[-1] != width or not isinstance(cut, int) or cut < 1:
            raise BadInputError(
                f"what the hop sends on has {width} entries, but the transcript's network is described by "
                f"hop={list(hop)} and cut={cut!r}; give the units of the hop's layers, and the number of activations "
                "of the client."
            )
        network = WholeClientModel.of(self.attacked_schema, 0, hidden, cut, (), about.topology, hop)
        load_weights(nn.Sequential(network.client, network.middle), file)
        return network.behind_hop

    def _returned(self, places: Tensor) -> ReturnedView:
        return self._exchanged(places, ReturnedView, "outputs", "output_gradient")
