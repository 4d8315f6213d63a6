"""Made-up rows against what is known of them by construction."""

from __future__ import annotations

import pytest
import torch

from seepage.attacks.pooled.parts.synthesis import synthesised
from seepage.errors import BadInputError
from seepage.shadow.pooling import MarkedRows
from seepage.wire.pooled import PredictionView


def rows(count: int = 4000, column: int | None = 0) -> MarkedRows:
    """Two categories that always agree and a number; the first category is the attribute."""
    generator = torch.Generator().manual_seed(0)
    code = (torch.rand(count, generator=generator) < 0.3).long()
    both = torch.nn.functional.one_hot(code, 2).float()
    number = torch.randn(count, 1, generator=generator)
    return MarkedRows(torch.cat([both, both, number], dim=1), code, code.bool(), (2, 2, 1), column)


def sure_of_the_number(queries: torch.Tensor) -> torch.Tensor:
    chance = torch.sigmoid(3 * queries[:, 4])
    return torch.stack([1 - chance, chance], dim=1)[None]


def view() -> PredictionView:
    return PredictionView(sure_of_the_number, 1, 2, None)


def test_marginals_stay_and_what_columns_have_to_do_with_each_other_goes() -> None:
    known = rows()
    made = synthesised("marginals", view(), known, seed=1)
    torch.testing.assert_close(made.inputs.mean(0), known.inputs.mean(0))
    assert torch.equal(made.inputs.sort(dim=0).values, known.inputs.sort(dim=0).values)
    # The attribute goes with its column and with no other one.
    assert torch.equal(made.carries, made.inputs[:, 1] > 0)
    together = (made.inputs[:, 1] * made.inputs[:, 3]).mean()
    torch.testing.assert_close(together, torch.tensor(0.09), rtol=0, atol=0.015)
    # Labels are drawn with the chances that the model answers.
    right = sure_of_the_number(made.inputs)[0, :, 1]
    torch.testing.assert_close(made.labels.float().mean(), right.mean(), rtol=0, atol=0.02)
    assert made.labels[right > 0.9].float().mean() > 0.9


def test_rows_climb_to_what_the_model_is_sure_of() -> None:
    known = rows()
    asked = view()
    made = synthesised("answers", asked, known, seed=1)
    chance = sure_of_the_number(made.inputs)[0].gather(1, made.labels[:, None])
    before = sure_of_the_number(known.inputs)[0].gather(1, made.labels[:, None])
    assert chance.mean() > 0.8 > 0.55 > before.mean()
    assert asked.asked == 21 * len(known)
    assert torch.equal(made.carries, made.inputs[:, 1] > 0)
    torch.testing.assert_close(made.labels.float().mean(), known.labels.float().mean())


def test_an_attribute_that_no_column_shows_is_independent_of_everything() -> None:
    made = synthesised("answers", view(), rows(column=None), seed=2)
    share = made.carries[made.labels == 1].float().mean() - made.carries[made.labels == 0].float().mean()
    assert abs(float(share)) < 0.06
    texts = MarkedRows(torch.zeros(3, 2), torch.zeros(3).long(), torch.ones(3).bool())
    with pytest.raises(BadInputError, match="tables only"):
        synthesised("marginals", view(), texts, 0)
