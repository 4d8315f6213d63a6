from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seepage.attacks.horizontal.matching.labels import restore_labels
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.mlp import mlp
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.tabular.relaxation import Relaxation
from seepage.tabular.schema import Discrete
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge
from tests.laws.strategies import schemas, tables
from tests.oracles.gradients import relaxed

TABLES = tables(schemas(largest=1e3))
LOGITS = st.sampled_from(["raw", "standardised"])


def normal(*shape: int, seed: int) -> torch.Tensor:
    return 4 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def model_for(rows: Table, seed: int) -> Model:
    model = mlp(rows.schema, [6, 4], seed=seed)
    return Model(model.module.double(), model.head, model.name)


@pytest.mark.long
@given(TABLES, st.booleans(), st.booleans(), LOGITS, st.integers(0, 99))
def test_relaxation_and_its_pullback_are_the_formulas_on_any_schema(
    rows: Table, softmax: bool, sigmoid: bool, logits: Literal["raw", "standardised"], seed: int
) -> None:
    encoder = Encoder(rows.schema, Statistics.of(rows))
    z, toward = normal(2, 3, encoder.width, seed=seed).requires_grad_(), normal(2, 3, encoder.width, seed=seed + 1)
    expected = relaxed(rows.schema, encoder.mean, encoder.std, z, softmax, sigmoid, logits == "standardised")
    relaxation = Relaxation(encoder, softmax, sigmoid, logits)
    size = 1 + float(encoder.low.abs().max() + encoder.high.abs().max())
    torch.testing.assert_close(relaxation.relax(z.detach()), expected.detach(), rtol=1e-9, atol=1e-12 * size)
    (by_z,) = torch.autograd.grad(expected, z, toward)
    torch.testing.assert_close(relaxation.pullback(toward), by_z, rtol=1e-9, atol=1e-12 * size)


@pytest.mark.long
@given(TABLES, LOGITS, st.floats(0.01, 1e30), st.integers(0, 99))
def test_relaxed_rows_lie_within_bounds_and_groups_sum_to_one(
    rows: Table, logits: Literal["raw", "standardised"], size: float, seed: int
) -> None:
    encoder = Encoder(rows.schema, Statistics.of(rows))
    raw = encoder.destandardise(Relaxation(encoder, logits=logits).relax(size * normal(5, encoder.width, seed=seed)))
    for column, block in zip(rows.schema.columns, rows.schema.blocks, strict=True):
        share = raw[..., block]
        if isinstance(column, Discrete):
            assert ((share >= -1e-12) & (share <= 1 + 1e-12)).all()
            torch.testing.assert_close(share.sum(-1), torch.ones(5).double(), rtol=0, atol=1e-11)
        else:
            slack = 1e-11 * (1 + abs(column.low) + abs(column.high))
            assert ((share >= column.low - slack) & (share <= column.high + slack)).all()


@pytest.mark.long
@given(TABLES, st.integers(0, 99))
def test_gradients_do_not_depend_on_the_order_of_records(rows: Table, seed: int) -> None:
    encoder = Encoder(rows.schema, Statistics.of(rows))
    model = model_for(rows, seed)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    encoded = encoder.encode(rows.cells)
    one, other = (gradient(model, encoded[i], rows.labels[i]) for i in (torch.arange(len(rows)), order))
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-9, atol=1e-11 * (1 + float(tensor.abs().max())))


@pytest.mark.long
@settings(max_examples=25)
@given(
    TABLES,
    st.sampled_from(["tableak", "tableak_no_softmax", "inverting_gradients", "dlg"]),
    st.sampled_from(["default", "faithful"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_a_guess_is_made_of_valid_records_with_the_right_number_of_labels(
    rows: Table, name: str, profile: str, granted: bool, seed: int
) -> None:
    assume(granted or isinstance(rows.schema.target, Discrete))
    statistics = Statistics.of(rows)
    encoder = Encoder(rows.schema, statistics)
    records = min(3, len(rows))
    transcript = FedSGD(records).run(model_for(rows, seed), rows, encoder, [seed, seed + 1])
    # A target of one class, or records that cancel out, leave no gradient: there is nothing to attack.
    largest = torch.stack([g.flatten(1).abs().amax(1) for g in transcript.view.gradient.values()]).amax(0)
    assume(bool((largest > 1e-9).all()))
    knowledge = Knowledge(rows.schema, statistics, records, transcript.secret.labels if granted else None)
    options = {"restarts": 3} if name.startswith("tableak") else {}
    run = attacks.create(name, profile=profile, iterations=3, **options)
    reason, guess = "", None
    try:
        guess = run(transcript.view, knowledge, [0, 1])
    except BadInputError as refusal:
        reason = str(refusal)
    if guess is None:
        # The published label restoration divides by activations, which a dead layer does not have.
        assert profile == "faithful"
        assert not granted
        assert "needs a hidden ReLU layer" in reason
        return
    assert guess.cells.shape == transcript.secret.cells.shape
    assert guess.cells.dtype == torch.float64
    for i, column in enumerate(rows.schema.columns):
        cells = guess.cells[..., i]
        if isinstance(column, Discrete):
            assert torch.equal(cells, cells.round())
            assert ((cells >= 0) & (cells < column.width)).all()
        else:
            assert ((cells >= column.low) & (cells <= column.high)).all()
            assert not column.integer or torch.equal(cells, cells.round())
    assert guess.labels is not None
    assert guess.labels.shape == transcript.secret.labels.shape
    if isinstance(rows.schema.target, Discrete):
        assert ((guess.labels >= 0) & (guess.labels < rows.schema.target.width)).all()
    assert guess.loss is not None
    assert guess.loss.isfinite().all()
    if guess.uncertainty is not None:
        assert not guess.uncertainty.isnan().any()


@pytest.mark.long
@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 99), st.data())
def test_any_counts_are_restored_where_all_predictions_are_alike(
    classes: int, records: int, seed: int, data: st.DataObject
) -> None:
    rows = data.draw(tables(schemas(largest=1e3)))
    target = Discrete(name=rows.schema.target.name, categories=tuple(range(classes)))
    schema = rows.schema.model_copy(update={"target": target})
    statistics = Statistics.of(rows)
    encoder = Encoder(schema, statistics)
    model = mlp(schema, [], seed=seed)
    model = Model(model.module.double(), model.head, model.name)
    with torch.no_grad():
        model.module.get_parameter("0.weight").zero_()
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (2, records), generator=generator).double()
    encoded = encoder.encode(rows.cells[torch.randint(len(rows), (2, records), generator=generator)])
    view = GradientView(model, gradient(model, encoded, labels))
    restored = restore_labels(view, Knowledge(schema, statistics, records), encoder, seed=seed)
    assert torch.equal(restored, labels.sort(dim=1).values)
