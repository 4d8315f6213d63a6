"""TabM of Gorishniy et al. (ICLR 2025), from the authors' package ``tabm``."""

from __future__ import annotations

from torch import Tensor, nn

from seepage.models.model import Head, Model
from seepage.models.packaged import of_columns, package
from seepage.registry import models
from seepage.tabular.schema import Schema


class MeanOfMembers(nn.Module):
    """An ensemble that answers with the mean of its members.

    Args:
        members: network of numbers and codes with outputs (record, member, output).
    """

    def __init__(self, members: nn.Module) -> None:
        super().__init__()
        self.members = members

    def forward(self, x_num: Tensor | None, x_cat: Tensor | None) -> Tensor:
        """Return the mean output of the members, (record, output)."""
        return self.members(x_num, x_cat).mean(1)


@models.register("tabm", "horizontal")
def tabm(
    schema: Schema,
    seed: int = 0,
    head: Head | None = None,
    members: int = 32,
    blocks: int = 2,
    width: int = 64,
    kind: str = "tabm",
) -> Model:
    """TabM of the package tabm: an ensemble of networks that share most weights, trained on their mean output.

    The authors train each member on a loss of its own; here, as a module with one output a class, the members' mean is
    the output.

    Args:
        members: number of members.
        blocks: number of hidden layers.
        width: units of each.
        kind: sharing of weights: tabm, tabm-mini or tabm-packed.

    Raises:
        BadInputError: the package is not installed, or refuses an argument.
    """
    library = package("tabm", "tabm")

    def build(cardinalities: list[int], numbers: int, outputs: int) -> nn.Module:
        network = library.TabM.make(
            n_num_features=numbers,
            cat_cardinalities=cardinalities,
            d_out=outputs,
            k=members,
            n_blocks=blocks,
            d_block=width,
            arch_type=kind,
            dropout=0.0,
        )
        return MeanOfMembers(network)

    return of_columns(build, schema, seed, head, "tabm")
