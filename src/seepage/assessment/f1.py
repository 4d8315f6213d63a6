"""F1 of a guessed discrete column, averaged as EXACT's tables are."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from seepage.tabular.schema import Discrete


def f1(column: Discrete, truth: Float[Tensor, " record"], guess: Float[Tensor, " record"]) -> float | None:
    """Return the F1 of a column: of its positive category where there are two, otherwise the mean over categories.

    The paper does not state the averaging; its figures show that it is this one (it says "0 when all predicted 0", and
    its label-DP rows are the closed form of a binary F1). The positive category is the last in sorted order, as label
    encoders number them: ``Male``, ``yes``, ``>50K``. The mean is over the categories that occur in the truth or in
    the guess; None where no category counts.
    """
    true, guessed = truth.long(), guess.long()
    if column.width == 2:
        return _of(true, guessed, column.sorted_codes[-1])
    scores = [_of(true, guessed, code) for code in range(column.width)]
    defined = [value for value in scores if value is not None]
    return sum(defined) / len(defined) if defined else None


def _of(true: Tensor, guessed: Tensor, code: int) -> float | None:
    both = int(((true == code) & (guessed == code)).sum())
    either = int((true == code).sum()) + int((guessed == code).sum())
    return 2 * both / either if either else None
