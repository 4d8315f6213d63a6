"""Networks as people hand them in: lazy layers, classes, and what returns more than logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.making import make_model

DATA = distinct(rows=8, continuous=2, discrete=1)
WIDTH = DATA.schema.width


class Several(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.last = how, nn.Linear(WIDTH, 2)

    def forward(self, rows: Tensor) -> Any:
        outputs = self.last(rows)
        return {"tuple": (outputs, rows), "dict": {"logits": outputs}, "list": [outputs]}[self.how]


@pytest.mark.parametrize("how", ["tuple", "dict", "list"])
def test_a_network_that_returns_more_than_logits_is_refused(how: str) -> None:
    with pytest.raises(BadInputError, match=f"returns a {how}; let its forward return the logits alone"):
        make_model(Several(how), DATA.schema, DATA.statistics)


@pytest.mark.parametrize("wrong", [nn.Linear, lambda inputs: nn.Linear(inputs, 2), object()])
def test_what_is_no_network_is_refused_with_what_came(wrong: Any) -> None:
    with pytest.raises(BadInputError, match=r"an instance of a torch\.nn\.Module, got "):
        make_model(wrong, DATA.schema, DATA.statistics)


def test_lazy_layers_get_their_shapes_and_no_random_number_is_used_up() -> None:
    lazy = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(2))
    before = torch.random.get_rng_state()
    model, _ = make_model(lazy, DATA.schema, DATA.statistics)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {name: tuple(part.shape) for name, part in model.parameters.items()}["0.weight"] == (6, WIDTH)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        return 2 * rows

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return 2 * slopes[0]


class _Wrapped(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.last = how, nn.Linear(WIDTH, 2)
        self.register_buffer("total", torch.zeros(WIDTH))

    def forward(self, rows: Tensor) -> Tensor:
        if self.how == "function":
            rows = _Doubled.apply(rows)
        elif self.how == "checkpoint":
            rows = checkpoint(torch.tanh, rows, use_reentrant=False)
        return self.last(rows)


@pytest.mark.parametrize(("how", "remedy"), [("function", "setup_context"), ("checkpoint", "switch checkpointing off")])
def test_what_keeps_a_network_from_several_batches_is_named_with_a_remedy(how: str, remedy: str) -> None:
    with pytest.raises(BadInputError, match=f"several batches at once.*; .*{remedy}"):
        make_model(_Wrapped(how), DATA.schema, DATA.statistics)
