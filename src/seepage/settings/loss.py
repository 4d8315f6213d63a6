"""The loss of a batch as an option, the same in every setting whose parties take one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from seepage.errors import BadInputError
from seepage.models.head import Loss, Reduction, loss_fields
from seepage.settings.option import PARTIES, Option
from seepage.settings.spec import Plain

_NumberFrom0 = Annotated[float, Field(ge=0, lt=float("inf"))]


class BatchLoss(Plain):
    """Loss of a batch, where it is not the mean of the records' usual losses."""

    loss: Annotated[Loss, Option("Loss of one record: cross_entropy, focal, ...", PARTIES)] = "cross_entropy"
    reduction: Annotated[Reduction, Option("What is taken over the records of a batch: mean or sum.", PARTIES)] = "mean"
    weights: Annotated[
        tuple[_NumberFrom0, ...], Option("Weight of each class, in the order of its categories.", PARTIES)
    ] = ()
    smoothing: Annotated[float, Field(ge=0, lt=1), Option("Label smoothing.", PARTIES)] = 0.0
    gamma: Annotated[_NumberFrom0, Option("Exponent of the focal loss.", PARTIES)] = 0.0
    delta: Annotated[
        float, Field(gt=0, lt=float("inf")), Option("Error from which on Huber's loss is a straight line.", PARTIES)
    ] = 1.0
    scale: Annotated[
        float,
        Field(allow_inf_nan=False),
        Option("Factor of the loss, such as a loss scale or the number of accumulated batches.", PARTIES),
    ] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """Take the name of a reduction or of a loss for the whole."""
        return loss_fields(value)

    @field_validator("scale")
    @classmethod
    def _some_factor(cls, scale: float) -> float:
        if scale == 0:
            raise BadInputError("a loss with the factor 0 has no gradient; give another scale.")
        return scale


LossOption = Annotated[
    BatchLoss | None,
    Option(
        "Loss of a batch: mean or sum over its records, or options such as '{reduction: sum, weights: [1, 9], "
        "smoothing: 0.1, scale: 4}'. Attackers know it.",
        PARTIES,
        "OPTIONS",
        default="the mean of cross-entropy, or of the squared error of a number",
        whole="reduction",
        example="{reduction: sum, weights: [1, 9]}",
    ),
]
