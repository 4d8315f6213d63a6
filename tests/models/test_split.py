from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from seepage.attacks.split.parts.responder import responder
from seepage.datasets.planted import distinct, telling
from seepage.errors import BadInputError
from seepage.models.deepfm import DeepFMClient, deepfm
from seepage.models.message import PLAIN
from seepage.models.split import SplitModel, positions
from seepage.seeds import seeded
from seepage.tabular.schema import Continuous, Discrete, Schema
from tests.roundings import assert_rounded_alike

DATA = telling(rows=40)


def mixed(classes: int) -> Schema:
    """Return a schema with columns of both kinds on either side of the cut."""
    return Schema(
        columns=(
            Discrete(name="a", categories=("x", "y", "z")),
            Continuous(name="b", low=-5, high=5, tolerance=1),
            Discrete(name="c", categories=("x", "y", "z", "w")),
            Discrete(name="d", categories=("x", "y")),
            Continuous(name="e", low=0, high=3, tolerance=1),
            Discrete(name="f", categories=("x", "y", "z")),
        ),
        target=Discrete(name="t", categories=tuple(range(classes))),
    )


def shaken(model: SplitModel, seed: int = 0) -> SplitModel:
    """Return the network in float64 with weights as large as after training."""
    model = replace(model, server=model.server.double(), client=model.client.double())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in (model.server, model.client):
            for parameter in part.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return model


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("tower", [(), (6,)])
@pytest.mark.parametrize("logit", [True, False])
@pytest.mark.parametrize("hidden", [(7,), (7, 5), (7, 5, 4)])
def test_the_closed_form_is_the_derivative(
    classes: int, tower: tuple[int, ...], logit: bool, hidden: tuple[int, ...]
) -> None:
    schema = mixed(classes)
    model = shaken(deepfm(schema, ["c", "e", "f"], seed=0, hidden=hidden, tower=tower, logit=logit, dim=3))
    assert isinstance(model.client, DeepFMClient)
    generator = torch.Generator().manual_seed(1)
    cells = torch.stack([torch.randint(2, (9,), generator=generator).double() for _ in schema.columns], dim=1)
    cut, own = model.cut(cells), torch.rand(5, 3, generator=generator, dtype=torch.float64).round(decimals=1) * 2
    own[:, [0, 2]] = own[:, [0, 2]].round()
    for records, candidates in ((9, 5), (5, 5)):
        found = []
        for respond in (responder(model), responder(model, closed_form=False)):
            side = respond.of_cut(cut[:records])
            side = side.across() if records != candidates else side
            logits, jacobian = respond.responses(side, respond.of_cells(own))
            assert_rounded_alike(respond.outputs(side, respond.of_cells(own)), logits, roundings=64)
            found.append((logits, jacobian))
        torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("logit", [True, False])
def test_an_additive_coordinate_is_the_derivative_by_the_logit(logit: bool) -> None:
    model = shaken(deepfm(mixed(3), ["c"], seed=0, logit=logit))
    respond = responder(model)
    if not logit:
        assert respond.additive is None
        return
    assert respond.additive is not None
    cut = torch.rand(4, respond.additive + 3, dtype=torch.float64)
    _, jacobian = respond.responses(respond.of_cut(cut), respond.of_cells(torch.zeros(4, 1, dtype=torch.float64)))
    assert torch.equal(jacobian[..., respond.additive :], torch.eye(3, dtype=torch.float64).expand(4, 3, 3))


@pytest.mark.parametrize(("head", "outputs"), [("sigmoid", 1), ("softmax", 3)])
def test_slopes_are_derivatives_of_the_loss(head: str, outputs: int) -> None:
    logits = torch.tensor([-700.0, 0.3, 40.0], dtype=torch.float64)[:outputs].requires_grad_(True)
    for label in range(max(2, outputs)):
        both = logits if head == "softmax" else torch.cat([torch.zeros_like(logits), logits])
        loss = torch.logsumexp(both, 0) - both[label]
        torch.testing.assert_close(
            PLAIN.slopes(head, logits.detach())[label],  # pyright: ignore[reportArgumentType]
            torch.autograd.grad(loss, logits)[0],
        )


def test_scaling_is_undone() -> None:
    rows = distinct(rows=20).train
    model = deepfm(rows.schema, ["continuous_0", "discrete_1"], seed=0)
    scaled = model.scaled(rows.cells, model.private)
    assert float(scaled[:, 0].max()) == 1
    assert torch.equal(model.unscaled(scaled, model.private), rows.cells[:, list(model.private)])


class Blind(nn.Module):
    """A client part that leaves out what it is told to."""

    def __init__(self, cut: int, sees_cut: bool, sees_column: bool) -> None:
        super().__init__()
        self.layer = seeded(lambda: nn.Linear(cut + 2, 1), seed=0)
        self.sees_cut, self.sees_column = sees_cut, sees_column

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        cells = cells if self.sees_column else torch.stack([cells[:, 0], torch.zeros_like(cells[:, 1])], dim=1)
        return self.layer(torch.cat([cut if self.sees_cut else cut.detach(), cells], dim=1))


@pytest.mark.parametrize(
    ("sees_cut", "sees_column", "said"),
    [(False, True, "no gradient crosses the cut"), (True, False, "'noise_1' does not reach the client part")],
)
def test_parts_that_cannot_be_attacked_are_refused(sees_cut: bool, sees_column: bool, said: str) -> None:
    server = seeded(lambda: nn.Linear(2, 3), seed=0)
    private = positions(DATA.schema, ["cause", "noise_1"])
    SplitModel(server, Blind(3, True, True), DATA.schema, private, "sigmoid", "mine").check(DATA.train.cells)
    model = SplitModel(server, Blind(3, sees_cut, sees_column), DATA.schema, private, "sigmoid", "mine")
    with pytest.raises(BadInputError, match=said):
        model.check(DATA.train.cells)


@pytest.mark.parametrize(
    ("private", "said"),
    [
        ([], "no column is private"),
        (["cause", "cause"], "named as private twice|private twice"),
        (["cause", "noise_0", "noise_1", "noise_2"], "server has nothing"),
        (["label"], "labels are private anyway"),
        (["noise"], "did you mean 'noise_"),
    ],
)
def test_columns_that_cannot_be_private_are_refused(private: list[str], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        deepfm(DATA.schema, private, seed=0)


def test_parts_that_do_not_fit_are_refused() -> None:
    server, client = nn.Linear(3, 2), Blind(2, True, True)
    model = SplitModel(server, client, DATA.schema, (0, 1), "sigmoid", "mine")
    with pytest.raises(BadInputError, match="do not fit the table's 2 public and 2 private columns"):
        model.check(DATA.train.cells)
    with pytest.raises(BadInputError, match="needs a target of two classes"):
        deepfm(mixed(3), ["c"], seed=0, head="sigmoid")
    continuous = Schema(columns=mixed(2).columns, target=Continuous(name="t", low=0, high=1, tolerance=0.1))
    assert deepfm(continuous, ["c"], seed=0).head == "regression"
    with pytest.raises(BadInputError, match="the target 't' is a number, which the head 'sigmoid' is not for"):
        deepfm(continuous, ["c"], seed=0, head="sigmoid")
    with pytest.raises(BadInputError, match="of classes, which the head 'regression' is not for"):
        deepfm(mixed(2), ["c"], seed=0, head="regression")
    with pytest.raises(BadInputError, match="at least one hidden layer"):
        deepfm(mixed(2), ["c"], seed=0, hidden=())
