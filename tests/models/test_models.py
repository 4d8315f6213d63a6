from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from seepage import models
from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.models.mlp import linear, mlp, nn3
from seepage.models.model import Head, Model
from seepage.seeds import seeded
from seepage.tabular.schema import Continuous, Discrete, Schema

COLUMNS = (
    Discrete(name="job", categories=("cook", "nurse", "never")),
    Continuous(name="age", low=0, high=99, tolerance=5),
)
BINARY = Schema(columns=COLUMNS, target=Discrete(name="ill", categories=("no", "yes")))
THREE = Schema(columns=COLUMNS, target=Discrete(name="grade", categories=("a", "b", "c")))
NUMBER = Schema(columns=COLUMNS, target=Continuous(name="pay", low=0, high=9, tolerance=1))


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("linear", []),
        ("nn1", [50]),
        ("nn2", [100]),
        ("nn3", [100, 100]),
        ("nn4", [200, 200, 200]),
        ("nn5", [400, 400, 400]),
    ],
)
def test_published_networks_have_their_published_shapes(name: str, widths: list[int]) -> None:
    model = models.create(name, schema=load("adult").schema, seed=1)
    sizes = [105, *widths, 2]
    expected = [shape for a, b in pairwise(sizes) for shape in ((b, a), (b,))]
    assert [tuple(p.shape) for p in model.parameters.values()] == expected
    assert (model.name, model.head) == (name, "softmax")
    layers = list(model.module.children())
    assert [type(layer) for layer in layers[1::2]] == [nn.ReLU] * len(widths)


def test_heads_follow_the_target() -> None:
    assert mlp(THREE, [4], seed=0).outputs(torch.zeros(5, 4)).shape == (5, 3)
    assert mlp(NUMBER, [4], seed=0).head == "regression"
    assert mlp(NUMBER, [4], seed=0).outputs(torch.zeros(5, 4)).shape == (5, 1)
    assert linear(BINARY, head="sigmoid").outputs(torch.zeros(2, 3, 4)).shape == (2, 3, 1)


def test_initialisation_is_that_of_pytorch_and_of_the_seed_alone() -> None:
    state = torch.random.get_rng_state()
    first, again, other = nn3(BINARY, seed=5), nn3(BINARY, seed=5), nn3(BINARY, seed=6)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(p, again.parameters[name]) for name, p in first.parameters.items())
    assert not any(torch.equal(p, other.parameters[name]) for name, p in first.parameters.items())
    wide = mlp(BINARY, [4000], seed=0).parameters
    for name, inputs in (("0.weight", 4), ("0.bias", 4), ("2.weight", 4000)):
        bound = inputs**-0.5
        assert float(wide[name].abs().max()) <= bound
        # Uniform numbers come this close to their bound, and have this variance.
        assert float(wide[name].abs().max()) > 0.99 * bound
        assert float(wide[name].var()) == pytest.approx(bound**2 / 3, rel=0.06)


def test_layers_that_drop_values_without_a_mask_are_refused_by_name() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.AlphaDropout(0.5)), nn.Linear(4, 2))
    model = Model(module, "softmax", "mine").masked(4)
    assert model.drops is None
    with pytest.raises(BadInputError, match=r"It drops values: AlphaDropout at '1.1'\."):
        model.check(BINARY)


def test_a_model_without_parameters_or_with_an_unknown_head_is_refused() -> None:
    with pytest.raises(BadInputError, match="model 'empty' has no parameters"):
        Model(nn.ReLU(), "softmax", "empty")
    # The shape checks that tests run under would stop a wrong word before the model can.
    model = object.__new__(Model)
    for name, value in (("module", nn.Linear(2, 2)), ("head", "softmaks"), ("name", "mine")):
        object.__setattr__(model, name, value)
    with pytest.raises(BadInputError, match=r"unknown head 'softmaks'; did you mean 'softmax'"):
        model.__post_init__()


class Picky(nn.Module):
    """Refuses what it does not know with an error of its own kind."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(4, 2), error

    def forward(self, rows: Tensor) -> Tensor:
        if rows.shape[-1] != 9:
            raise self.error("nine columns or nothing")
        return self.layer(rows[..., :4])


@pytest.mark.parametrize(
    ("module", "head", "schema", "message"),
    [
        (nn.Linear(7, 2), "softmax", BINARY, "does not take rows of 4 encoded columns.*give its first layer that many"),
        (Picky(ValueError), "softmax", BINARY, "does not take rows of 4 encoded columns.*nine columns"),
        (Picky(IndexError), "softmax", BINARY, "does not take rows of 4 encoded columns.*nine columns"),
        (nn.Embedding(4, 2), "softmax", BINARY, "does not take rows of 4 encoded columns"),
        (nn.Linear(4, 3), "softmax", BINARY, r"returns shape \(2, 3\) for 2 rows.*needs \(2, 2\)"),
        (nn.Linear(4, 2), "sigmoid", BINARY, r"returns shape \(2, 2\) for 2 rows.*needs \(2, 1\)"),
        (nn.Linear(4, 1), "sigmoid", THREE, "sigmoid head does not fit the target 'grade', which has 3 classes"),
        (nn.Linear(4, 1), "regression", BINARY, "regression head does not fit the target 'ill', which has 2 classes"),
        (nn.Linear(4, 2), "softmax", NUMBER, "softmax head does not fit the target 'pay', which is continuous"),
        (nn.Linear(4, 1), "sigmoid", NUMBER, "sigmoid head does not fit the target 'pay', which is continuous"),
        (nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), "regression", NUMBER, r"returns shape \(2,\)"),
    ],
)
def test_models_that_do_not_fit_the_table_are_refused(
    module: nn.Module, head: Head, schema: Schema, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        Model(module, head, "mine").check(schema)


def test_a_model_that_returns_no_numbers_is_refused() -> None:
    module = seeded(lambda: nn.Linear(4, 2), seed=0)
    with torch.no_grad():
        module.get_parameter("bias").fill_(float("nan"))
    with pytest.raises(BadInputError, match="returns non-finite outputs"):
        Model(module, "softmax", "mine").check(BINARY)


class Shaky(nn.Module):
    """Drops values without a layer that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = seeded(lambda: nn.Linear(4, 50), seed=0), seeded(lambda: nn.Linear(50, 2), seed=1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(nn.functional.dropout(self.first(rows)))


def test_a_model_that_answers_by_chance_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"other outputs for the same rows each time.*functional.dropout"):
        Model(Shaky(), "softmax", "mine").check(BINARY)


class Branching(nn.Module):
    """Looks at a value to choose its way."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = seeded(lambda: nn.Linear(4, 2), seed=0)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows if float(rows.sum()) > 0 else -rows)


def test_a_model_that_cannot_be_vectorised_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"cannot be run for several batches at once.*without branches on values"):
        Model(Branching(), "softmax", "mine").check(BINARY)


def test_unknown_names_get_the_nearest_ones() -> None:
    with pytest.raises(BadInputError, match=r"unknown model 'nn6'; did you mean 'nn"):
        models.create("nn6", schema=BINARY)
    with pytest.raises(BadInputError, match="unknown argument of model 'nn3': 'sed'; did you mean 'seed'"):
        models.create("nn3", schema=BINARY, sed=1)


def test_a_module_of_ones_own_is_as_good_as_a_registered_one() -> None:
    Model(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), "softmax", "mine").check(BINARY)
    Model(nn.Linear(4, 2, dtype=torch.float64), "softmax", "mine").check(BINARY)
