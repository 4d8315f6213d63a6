"""ResNet and FT-Transformer (NeurIPS 2021) and TabM (ICLR 2025) of Gorishniy et al., from the authors' packages."""

from __future__ import annotations

from torch import Tensor, nn

from seepage.models.model import Head, Model, output_width, usual_head
from seepage.models.packaged import of_columns, package
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema

_PACKAGE = "rtdl_revisiting_models"


@models.register("ft_transformer", "horizontal")
def ft_transformer(schema: Schema, seed: int = 0, head: Head | None = None, blocks: int = 2, width: int = 64) -> Model:
    """FT-Transformer of the package rtdl_revisiting_models: attention over one token a column.

    Args:
        blocks: number of blocks.
        width: size of a token, a multiple of its 8 heads.

    Raises:
        BadInputError: the package is not installed, or refuses an argument.
    """
    library = package(_PACKAGE, "ft_transformer")

    def build(cardinalities: list[int], numbers: int, outputs: int) -> nn.Module:
        return library.FTTransformer(
            n_cont_features=numbers,
            cat_cardinalities=cardinalities,
            d_out=outputs,
            n_blocks=blocks,
            d_block=width,
            attention_n_heads=8,
            attention_dropout=0.0,
            ffn_d_hidden_multiplier=4 / 3,
            ffn_dropout=0.0,
            residual_dropout=0.0,
        )

    return of_columns(build, schema, seed, head, "ft_transformer")


@models.register("rtdl_resnet", "horizontal")
def rtdl_resnet(schema: Schema, seed: int = 0, head: Head | None = None, blocks: int = 2, width: int = 64) -> Model:
    """ResNet of the package rtdl_revisiting_models: residual blocks with batch normalisation.

    Args:
        blocks: number of blocks.
        width: width of the blocks; hidden layers have twice as many units.

    Raises:
        BadInputError: the package is not installed.
    """
    head = head or usual_head(schema)
    library = package(_PACKAGE, "rtdl_resnet")

    def build() -> nn.Module:
        return library.ResNet(
            d_in=schema.width,
            d_out=output_width(schema, head),
            n_blocks=blocks,
            d_block=width,
            d_hidden_multiplier=2.0,
            dropout1=0.0,
            dropout2=0.0,
        )

    return Model(seeded(build, seed), head, "rtdl_resnet")


class MeanOfMembers(nn.Module):
    """An ensemble of numbers and codes that answers with the mean of its members' outputs (record, member, output)."""

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
