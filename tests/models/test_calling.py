"""Networks with self-attention: clients' gradients and attackers' second derivatives, by the same formula."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import seepage
from seepage.datasets.planted import distinct
from seepage.learning import gradient
from seepage.models.calling import call
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder

Kind = Literal["function", "layer", "encoder"]
DATA = distinct(rows=12, continuous=1, discrete=2)


class Attending(nn.Module):
    """Every encoded column is a token, which attends to the others."""

    def __init__(self, kind: Kind, outputs: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.place = nn.Parameter(torch.randn(DATA.schema.width, 4))
        made = {
            "layer": lambda: nn.MultiheadAttention(4, 2, batch_first=True),
            "encoder": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", batch_first=True),
        }
        self.attention = made[kind]() if kind in made else None
        self.out = nn.Linear(4, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        tokens = self.embed(rows[..., None]) + self.place
        if self.attention is None:
            one = tokens[:, None]
            tokens = nn.functional.scaled_dot_product_attention(one, one, one)[:, 0]
        elif isinstance(self.attention, nn.MultiheadAttention):
            tokens = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        else:
            tokens = self.attention(tokens)
        return self.out(tokens.mean(1))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["function", "layer", "encoder"])
def test_a_network_with_attention_is_attacked_as_any_other(kind: Kind) -> None:
    network = seeded(lambda: Attending(kind), 0)
    report = seepage.audit(
        DATA, network, batch_sizes=2, attacks=["inverting_gradients", "dlg", "unmix"], victims=2, restarts=2,
        iterations=3, workers=1, control=False, baselines="mode",
    )  # fmt: skip
    assert not report.failed
    read = report.frame().query("metric == 'accuracy' and column.isna()")
    assert sorted(read["attack"]) == ["dlg", "inverting_gradients", "mode", "unmix"]


@pytest.mark.parametrize("kind", ["function", "layer", "encoder"])
def test_the_second_derivative_is_that_of_differences(kind: Kind) -> None:
    model = Model(seeded(lambda: Attending(kind), 1).double(), "softmax", "own")
    encoder = Encoder(DATA.schema, DATA.statistics)
    ran = FedSGD(3).run(model, DATA.train, encoder, [0])
    rows = encoder.encode(ran.secret.cells)[:1].requires_grad_()
    again = gradient(model, rows, ran.secret.labels[:1])
    assert all(torch.allclose(again[name], ran.view.message[name], rtol=1e-9) for name in again)

    def length(at: Tensor) -> Tensor:
        return torch.stack([g.square().sum() for g in gradient(model, at, ran.secret.labels[:1]).values()]).sum()

    (found,) = torch.autograd.grad(length(rows), rows)
    step = 1e-5 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        change = (length(rows + step) - length(rows - step)) / 2
    assert torch.isclose((found * step).sum(), change, rtol=1e-5)


@pytest.mark.parametrize("affine", [True, False])
def test_layer_normalisation_is_that_of_pytorch(affine: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = nn.LayerNorm([2, 3], elementwise_affine=affine).double()
    layer.load_state_dict({n: torch.randn(t.shape, generator=generator) for n, t in layer.state_dict().items()})
    rows = torch.randn(4, 2, 3, generator=generator, dtype=torch.float64)
    assert torch.allclose(call(layer, {}, rows), layer(rows), rtol=1e-12)
