"""Choices about a table as people write them in Python."""

from __future__ import annotations

import pytest

from seepage.errors import BadInputError
from seepage.tabular.policy import Policy


def test_a_kind_may_be_given_as_a_text_and_what_is_no_override_is_refused() -> None:
    assert Policy(overrides={"age": "discrete"}).overrides == {"age": {"kind": "discrete"}}  # pyright: ignore[reportArgumentType]
    for wrong in (["age"], {"age": None}, {"age": 3}):
        with pytest.raises(BadInputError, match=r"override.* such as"):
            Policy(overrides=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadInputError, match="most_categories is a whole number"):
        Policy(most_categories="3")  # pyright: ignore[reportArgumentType]
