"""Networks that parties train together. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from seepage import registry
from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.models.model import Head, Model
    from seepage.seeds import seeded

# Registered name and module, which is imported when the network is first made.
registry.models.declare(
    {
        "dcn_v2": "seepage.models.dcn",
        "ft_transformer": "seepage.models.rtdl",
        "imprint": "seepage.models.imprint",
        "loki": "seepage.models.loki",
        **dict.fromkeys(("linear", "nn1", "nn2", "nn3", "nn4", "nn5", "wide"), "seepage.models.mlp"),
        "resnet_bn": "seepage.models.resnet",
        "rtdl_resnet": "seepage.models.rtdl",
        "tab_transformer": "seepage.models.tab_transformer",
        "tabm": "seepage.models.rtdl",
    },
    "horizontal",
)
registry.models.declare({"deepfm": "seepage.models.deepfm"}, "split")
registry.models.declare({"vertical_mlp": "seepage.models.vertical"}, "vertical")


def create(name: str, **options: object) -> Model:
    """Return a network of horizontal learning, from the options of its factory, ``schema`` among them."""
    return cast("Model", registry.models.of("horizontal").create(name, **options))


lazy_package(__name__)

__all__ = ["Head", "Model", "create", "seeded"]
