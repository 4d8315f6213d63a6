from __future__ import annotations

import pytest
import torch
from torch import nn

from seepage.datasets.planted import distinct
from seepage.defenses import RecordDefense
from seepage.defenses.defense import flat
from seepage.defenses.soteria import Soteria
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.mlp import nn1
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import defenses
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(victims: int = 2, records: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(victims, records, 6, generator=generator)
    return rows, torch.randint(3, (victims, records), generator=generator).float()


@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
def test_of_each_record_the_telling_entries_are_pruned_and_nothing_else(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels = batch()
    model = Model(seeded(make, seed=2), "softmax", "mine")
    sent = Soteria(share).gradient(model, rows, labels, seeds=[0, 1])
    bare = gradient(model, rows, labels)
    body, last = model.module[:4], model.module[4]  # pyright: ignore
    for v in range(2):
        weight = torch.zeros(3, 8)
        for x, y in zip(rows[v], labels[v], strict=True):
            x = x.clone().requires_grad_()
            r = body(x)
            slopes = torch.stack([torch.autograd.grad(r[i], x, retain_graph=True)[0].norm() for i in range(8)])
            order = sorted(range(8), key=lambda i, r=r, slopes=slopes: -float(r[i].detach().abs() / slopes[i]))
            pruned = order[: max(1, round(share * 8))]
            error = last(r).softmax(0) - nn.functional.one_hot(y.long(), 3)
            kept = torch.tensor([0.0 if i in pruned else 1.0 for i in range(8)])
            weight += torch.outer(error, r * kept).detach() / 4
        torch.testing.assert_close(sent["4.weight"][v], weight, rtol=1e-4, atol=1e-6)
    for name in bare:
        if name != "4.weight":
            torch.testing.assert_close(sent[name], bare[name], rtol=1e-4, atol=1e-6)
    monkeypatch.setattr("seepage.defenses.soteria._ENTRIES_AT_ONCE", 1)
    torch.testing.assert_close(flat(Soteria(share).gradient(model, rows, labels, seeds=[0, 1])), flat(sent))


def test_gradients_are_taken_at_places_of_their_own() -> None:
    rows, labels = batch()
    model = Model(seeded(make, seed=2), "softmax", "mine")
    places = {n: torch.stack([p, 3 * p]).detach() for n, p in model.parameters.items()}
    both = flat(Soteria(0.5).gradient(model, rows, labels, [0, 1], places))
    own = {n: p[1:] for n, p in places.items()}
    torch.testing.assert_close(flat(Soteria(0.5).gradient(model, rows[1:], labels[1:], [1], own))[0], both[1])


def test_a_client_sends_pruned_gradients() -> None:
    guard = Soteria(0.5)
    assert isinstance(guard, RecordDefense)
    known = guard.describe()
    assert defenses.create(known.name, **known.arguments) == guard
    data = distinct(rows=20)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model = nn1(data.schema, seed=1)
    transcript = FedSGD(4, defense=guard).run(model, data.train, encoder, [3, 4], [7, 8])
    rows = encoder.encode(transcript.secret.cells)
    expected = guard.gradient(model, rows, transcript.secret.labels, [0, 0])
    torch.testing.assert_close(flat(transcript.view.gradient), flat(expected))
    assert FedSGD(4, defense=guard).known().noise == 0


def test_what_cannot_be_pruned_is_refused() -> None:
    rows, labels = batch()
    with pytest.raises(BadInputError, match="share is a number above 0 and at most 1"):
        Soteria(1.5)
    normed = Model(seeded(lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)), seed=0), "softmax", "mine")
    with pytest.raises(BadInputError, match="'soteria' works on the gradient of each record"):
        Soteria(0.5).gradient(normed, rows, labels, [0, 1])
    scaled = Model(seeded(lambda: nn.PReLU(6), seed=0), "softmax", "bare")
    with pytest.raises(BadInputError, match="model 'bare' has none; choose another"):
        Soteria(0.5).gradient(scaled, rows, labels, [0, 1])
