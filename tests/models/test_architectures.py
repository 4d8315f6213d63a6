"""Architectures for tables, of maintained packages and of PyTorch's own layers, as registered networks."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.align import match, pairwise_error, reorder, tolerances
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import NOT_TRIED, Knowledge, RecordsGuess

DATA = distinct(rows=12, continuous=2, discrete=2)
SMALL: dict[str, dict[str, Any]] = {
    "ft_transformer": {"width": 16, "blocks": 1},
    "rtdl_resnet": {"width": 16},
    "tabm": {"members": 4, "width": 16},
    "tab_transformer": {"width": 8},
    "dcn_v2": {"width": 4},
}


def made(name: str, data: Any = DATA, **options: Any) -> Model:
    return make_model(name, data.schema, data.statistics, options={**SMALL[name], **options}, seed=1)[0]


def attacked(model: Model, records: int) -> tuple[RecordsGuess, float]:
    """Return the guess of the exact attack and the share of records that it reads whole."""
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    ran = FedSGD(records).run(model, DATA.train, encoder, seeds=[3])
    guess = unmix(restarts=2, iterations=50)(ran.view, Knowledge(DATA.schema, DATA.statistics, records), [0])
    true = ran.secret.cells[0]
    cells = reorder(guess.cells, match(pairwise_error(DATA.schema, guess.cells, true[None])))[0]
    return guess, float(((cells - true).abs() <= tolerances(DATA.schema)).all(1).double().mean())


@pytest.mark.parametrize("name", SMALL)
def test_several_batches_at_once_have_the_gradients_of_single_ones(name: str) -> None:
    model = made(name)
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    rows, labels = encoder.encode(DATA.train.cells[:8]).view(2, 4, -1), DATA.train.labels[:8].view(2, 4)
    together = gradient(model, rows, labels)
    for batch in range(2):
        alone = gradient(model, rows[batch], labels[batch])
        assert any(bool(part.any()) for part in alone.values())
        for parameter, part in alone.items():
            torch.testing.assert_close(together[parameter][batch], part, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("kinds", [{"continuous": 0, "discrete": 2}, {"continuous": 2, "discrete": 0}])
def test_tables_with_columns_of_one_kind_fit(name: str, kinds: dict[str, int]) -> None:
    data = distinct(rows=10, **kinds)
    if name == "tab_transformer" and not kinds["discrete"]:
        with pytest.raises(BadInputError, match="tab_transformer embeds discrete columns, of which the table has none"):
            made(name, data)
    else:
        assert made(name, data).outputs(torch.zeros(3, data.schema.width)).shape == (3, data.schema.target.width)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ft_transformer", "dcn_v2"])
def test_batches_are_read_whole(name: str) -> None:
    guess, whole = attacked(made(name), 4)
    assert guess.regime is not None
    assert not guess.regime[0].startswith(NOT_TRIED)
    assert whole == 1.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rtdl_resnet", "batch normalisation by a mean and variance that are not known"),
        ("tabm", "no affine layer"),
    ],
)
def test_what_is_not_read_exactly_is_estimated_and_says_why(name: str, reason: str) -> None:
    guess, _ = attacked(made(name), 4)
    assert guess.regime is not None
    assert guess.regime[0].startswith(NOT_TRIED + reason)
    assert "Dropout" not in guess.regime[0]


@pytest.mark.parametrize(("name", "package"), [("ft_transformer", "rtdl_revisiting_models"), ("tabm", "tabm")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInputError, match=rf"'{package}', which is not.*pip install 'seepage\[architectures\]'"):
        made(name)


def test_what_a_package_refuses_is_one_paragraph() -> None:
    with pytest.raises(BadInputError, match="'ft_transformer' cannot be built: d_embedding must be a multiple"):
        made("ft_transformer", width=33)
