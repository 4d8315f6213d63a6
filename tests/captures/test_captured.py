"""Captured updates: what is written is read back; what is damaged, foreign or implausible is refused."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

import seepage
from seepage.attacking.updates import recover
from seepage.captures.captured import (
    Description,
    Encoding,
    attacker_statistics,
    encoding_of,
    load_capture,
    read_description,
    save_capture,
)
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.seeds import stream
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics, standardised_statistics, uniform_statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.horizontal import GradientView, Knowledge
from tests.laws.strategies import schemas

DATA = distinct(rows=8, continuous=1, discrete=2)


def network(dtype: torch.dtype = torch.float32) -> Model:
    return Model(nn.Sequential(nn.Linear(17, 4), nn.ReLU(), nn.Linear(4, 2)).to(dtype), "softmax", "own")


def gradients(**changes: Tensor | None) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    full = {name: torch.randn(p.shape, generator=generator) for name, p in network().parameters.items()}
    return {name: tensor for name, tensor in {**full, **changes}.items() if tensor is not None}


def write(path: Path, gradient: dict[str, Tensor], about: Any = None, beside: Any = None) -> Path:
    file = path / "update.safetensors"
    save_file(gradient, file, metadata=None if about is None else {"seepage": about})
    if beside is not None:
        (path / "update.json").write_text(beside if isinstance(beside, str) else json.dumps(beside))
    return file


def refused(path: Path, schema: Schema | None = None, model: Model | None = None) -> str:
    with pytest.raises(BadInputError) as raised:
        load_capture(path, model or network(), schema)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_training_loop_writes_what_the_server_would_get(tmp_path: Path) -> None:
    model = network()
    statistics = DATA.statistics
    encoder = Encoder(DATA.schema, statistics, dtype=torch.float32)
    rows, labels = encoder.encode(DATA.train.cells[:3]), DATA.train.labels[:3]
    nn.functional.cross_entropy(model.module(rows), labels.long()).backward()
    seepage.capture(
        model.module.named_parameters(),
        tmp_path / "u.safetensors",
        batch_size=3,
        labels=labels,
        statistics=statistics,
        head="softmax",
    )
    assert stat.S_IMODE((tmp_path / "u.safetensors").stat().st_mode) == 0o600
    found = load_capture(tmp_path / "u.safetensors", model, DATA.schema)
    for name, parameter in model.module.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(found.view.message[name][0], parameter.grad)
    assert found.notes == ()
    assert found.about == Description(
        batch_size=3, labels=tuple(labels.tolist()), head="softmax", encoding=encoding_of(statistics)
    )


def test_a_loop_that_has_no_gradient_yet_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"after loss.backward\(\)"):
        seepage.capture(network().module.named_parameters(), tmp_path / "u.safetensors")
    with pytest.raises(BadInputError, match="at least one"):
        seepage.capture([], tmp_path / "u.safetensors")
    with pytest.raises(BadInputError, match="2 labels for a batch of 3"):
        save_capture(tmp_path / "u.safetensors", gradients(), Description(batch_size=3, labels=(0, 1)))
    with pytest.raises(BadInputError, match="holds nan"):
        save_capture(tmp_path / "u.safetensors", {"weight": torch.tensor([torch.nan])})
    assert list(tmp_path.iterdir()) == []


def test_sparse_gradients_of_tables_are_made_dense(tmp_path: Path) -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 3, 3])).sum().backward()
    seepage.capture(table.named_parameters(), tmp_path / "u.safetensors")
    found = load_capture(tmp_path / "u.safetensors", Model(table, "softmax", "own"))
    assert found.view.message["weight"][0, :, 0].tolist() == [0, 1, 0, 2, 0]


@pytest.mark.parametrize("where", ["inside", "beside", "both"])
def test_the_description_is_inside_or_beside(tmp_path: Path, where: str) -> None:
    about = {"format": 1, "batch_size": 2, "encoding": {"mean": [0.1] * 17, "std": [1] * 17}}
    path = write(
        tmp_path,
        gradients(),
        None if where == "beside" else json.dumps(about),
        None if where == "inside" else about,
    )
    expected = Description(batch_size=2, encoding=Encoding(mean=(0.1,) * 17, std=(1.0,) * 17))
    assert read_description(path) == expected


def test_a_file_of_tensors_alone_says_nothing_else(tmp_path: Path) -> None:
    assert read_description(write(tmp_path, gradients())) == Description()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"0.wieght": torch.ones(4, 17)}, "did you mean '0.weight'"),
        ({"extra": torch.ones(1)}, "holds 'extra', which the model has not"),
        ({"2.bias": torch.ones(3)}, "'2.bias' of shape (3,) where the model has (2,)"),
        ({"0.weight": torch.ones(17, 4)}, "of shape (17, 4) where the model has (4, 17)"),
        ({"2.bias": torch.tensor([0.0, torch.nan])}, "holds nan (1 of its 2 numbers"),
        ({"2.bias": torch.tensor([0.0, torch.inf])}, "holds inf"),
        ({"2.bias": torch.ones(2, dtype=torch.int8)}, "of type int8"),
        ({"2.bias": torch.ones(2, dtype=torch.float8_e4m3fn)}, "of type float8_e4m3fn"),
        ({"2.bias": torch.ones(2, dtype=torch.bool)}, "of type bool"),
        ({"2.bias": torch.ones(2, dtype=torch.complex64)}, "of type complex64"),
        ({"2.bias": torch.tensor([1e300, 0.0], dtype=torch.float64)}, "1e+300, which the model's float32 cannot hold"),
    ],
)
def test_tensors_that_cannot_be_the_models_are_refused(
    tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    assert message in refused(write(tmp_path, gradients(**changes)))


def test_an_update_of_zeros_is_refused(tmp_path: Path) -> None:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in gradients().items()}
    assert "zero everywhere" in refused(write(tmp_path, zeros))


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "type list where a JSON object"),
        ({"format": 3}, "format 3; this version of seepage reads formats 1 and 2"),
        ({"format": 10**30}, "install a newer one"),
        ({"format": 0}, "format:"),
        ({"format": "new"}, "format:"),
        ({"batchsize": 3}, "did you mean 'batch_size'"),
        ({"batch_size": 0}, "batch_size:"),
        ({"batch_size": 10**12}, "batch_size:"),
        ({"protocol": "fedavgg"}, "protocol:"),
        ({"protocol": "fedavg"}, "needs the client's training"),
        ({"head": "softmaxx"}, "head:"),
        ({"training": {"epochs": 1, "batch_size": 2, "learning_rate": 0.1}}, "a training belongs to protocol fedavg"),
        ({"protocol": "fedavg", "training": {"epochs": 1}}, "local training needs batch_size and learning_rate"),
        ({"protocol": "fedavg", "training": 3}, "training:"),
        ({"defense": {"clipping": {}, "sign": {}}}, "one name with its options, got 2"),
        ({"defense": {"clippping": {"norm": 1.0}}}, "did you mean 'clipping'"),
        ({"batch_size": 7, "clients": 2}, "7 records are not shared evenly by 2 clients"),
        ({"precision": "float8"}, "precision:"),
        ({"sent": "abc"}, "sent:"),
        ({"encoder": {"columns": []}}, "encoder.columns:"),
        ({"encoder": {"columns": [{"kind": "number", "name": "x"}]}}, "the schema has no column 'x'"),
        ({"labels": [0, 1], "batch_size": 3}, "2 labels for a batch of 3"),
        ({"labels": [0, 2]}, "has the label 2 (1 such)"),
        ('{"labels": [NaN]}', "labels.0:"),
        ({"head": "regression"}, "give --head regression"),
        ({"encoding": {"mean": [0], "std": [1]}}, "rows of 1 encoded columns"),
        ({"encoding": {"mean": [0]}}, "encoding.std:"),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_descriptions_that_make_no_sense_are_refused(
    tmp_path: Path, about: dict[str, Any] | str, message: str, beside: bool
) -> None:
    text = about if isinstance(about, str) else json.dumps(about)
    path = write(tmp_path, gradients(), None if beside else text, text if beside else None)
    assert message in refused(path, DATA.schema)


def test_descriptions_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, gradients(), json.dumps({"batch_size": 2}), {"batch_size": 3})
    assert "contradict each other" in refused(path)
    (tmp_path / "update.json").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refused(path)


@given(data=st.data())
def test_a_file_cut_anywhere_or_with_a_byte_changed_never_ends_in_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = write(folder, gradients(), json.dumps({"batch_size": 2}))
    content = path.read_bytes()
    if data.draw(st.booleans()):
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        assert "whole safetensors file" in refused(path)
        return
    changed = bytearray(content)
    changed[data.draw(st.integers(0, min(len(content) - 1, 600)))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(changed))
    with contextlib.suppress(BadInputError):
        found = load_capture(path, network(), DATA.schema)
        assert all(tensor.isfinite().all() for tensor in found.view.message.values())


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
def test_rounded_gradients_are_widened_and_a_note_says_so(tmp_path: Path, narrow: torch.dtype) -> None:
    given_ = {name: tensor.to(narrow) for name, tensor in gradients().items()}
    found = load_capture(write(tmp_path, given_), network())
    assert all(torch.equal(found.view.message[name][0], tensor.float()) for name, tensor in given_.items())
    assert found.view.precision == str(narrow).removeprefix("torch.")
    assert f"4 of 4 tensors were rounded to {str(narrow).removeprefix('torch.')}" in found.notes[0]


def test_wider_gradients_are_rounded_to_the_models_type(tmp_path: Path) -> None:
    wide = {name: tensor.double() + 1e-12 for name, tensor in gradients().items()}
    found = load_capture(write(tmp_path, wide), network())
    assert all(torch.equal(found.view.message[name][0], tensor.float()) for name, tensor in wide.items())
    assert load_capture(write(tmp_path, wide), network(torch.float64)).view.message["2.bias"].dtype == torch.float64


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_module.", "_module._orig_mod."])
def test_the_prefix_of_a_wrapper_is_taken_away(tmp_path: Path, prefix: str) -> None:
    found = load_capture(write(tmp_path, {prefix + name: tensor for name, tensor in gradients().items()}), network())
    assert list(found.view.message) == list(network().parameters)
    assert prefix in found.notes[0]


def test_a_captured_update_gives_the_very_reconstruction_of_the_audit(tmp_path: Path) -> None:
    """Through files and back, bit for bit: gradient, statistics, starts."""
    data, seed, records = load("german"), 3, 2
    model, _ = make_model("nn1", data.schema, data.statistics, seed=seed)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    transcript = FedSGD(records).run(model, data.train, encoder, [stream(seed, 0, "batch")])
    made = attacks.create("tableak", restarts=3, iterations=25)
    starts = [stream(seed, 0, "starts")]
    expected = made(transcript.view, Knowledge(data.schema, data.statistics, records), starts)

    about = Description(batch_size=records, encoding=encoding_of(data.statistics))
    save_capture(tmp_path / "u.safetensors", {n: g[0] for n, g in transcript.view.gradient.items()}, about)
    data.all.frame.to_csv(tmp_path / "reference.csv", index=False)
    found = load_capture(tmp_path / "u.safetensors", model, data.schema)
    reference = Table.read(tmp_path / "reference.csv", data.schema)
    statistics, origin = attacker_statistics(data.schema, found.about, reference)
    assert origin == "reference rows"
    read = recover(
        found, data.schema, statistics, origin, "tableak", options={"restarts": 3, "iterations": 25}, seed=seed
    )
    assert torch.equal(read.guess.cells, expected.cells)
    assert expected.uncertainty is not None
    assert read.guess.uncertainty is not None
    assert torch.equal(read.guess.uncertainty, expected.uncertainty)
    assert read.guess.loss is not None
    assert expected.loss is not None
    assert torch.equal(read.guess.loss, expected.loss)


def test_uniform_statistics_are_those_of_a_table_that_has_every_value_once() -> None:
    schema = Schema(
        columns=(
            Continuous(name="n", low=3, high=42, tolerance=1, integer=True),
            Discrete(name="d", categories=("a", "b", "c", "d")),
        ),
        target=Discrete(name="y", categories=(0, 1)),
    )
    cells = torch.cartesian_prod(torch.arange(3.0, 43.0).double(), torch.arange(4.0).double())
    frame = frame_of(schema, cells).assign(y=[i % 2 for i in range(len(cells))])
    table = Table(schema, frame)
    found, measured = uniform_statistics(schema), Statistics.of(table)
    torch.testing.assert_close(found.mean, measured.mean)
    torch.testing.assert_close(found.std, measured.std, rtol=0.01, atol=0)
    for one, other in zip((*found.marginals, found.target), (*measured.marginals, measured.target), strict=True):
        torch.testing.assert_close(one.values, other.values)
        torch.testing.assert_close(one.probabilities, other.probabilities)
        assert one.median == other.median
        assert one.mean == pytest.approx(other.mean)
        assert one.std == pytest.approx(other.std, rel=0.01)


@given(schema=schemas(largest=1e9))
def test_assumed_statistics_fit_every_schema(schema: Schema) -> None:
    uniform = uniform_statistics(schema)
    again = standardised_statistics(schema, uniform.mean.tolist(), uniform.std.tolist())
    for statistics in (uniform, again):
        assert bool((statistics.std > 0).all())
        for column, marginal in zip(schema.columns, statistics.marginals, strict=True):
            assert float(marginal.probabilities.sum()) == pytest.approx(1)
            assert bool((marginal.probabilities > 0).all())
            assert bool((marginal.values.diff() > 0).all())
            low, high = (0, column.width - 1) if isinstance(column, Discrete) else (column.low, column.high)
            assert low <= marginal.values.min() <= marginal.median <= marginal.values.max() <= high
    assert torch.equal(again.mean, uniform.mean)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.0], [1.0], "1 means and 1 standard deviations where the schema takes 17"),
        ([0.0] * 17, [1.0] * 16 + [0.0], "standard deviations positive"),
        ([torch.nan] * 17, [1.0] * 17, "must be finite"),
    ],
)
def test_an_impossible_encoding_is_refused(mean: list[float], std: list[float], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        standardised_statistics(DATA.schema, mean, std)


def test_a_message_of_parameters_that_the_model_freezes_is_refused(tmp_path: Path) -> None:
    network = nn.Linear(3, 2)
    network.bias.requires_grad_(False)
    model, weight = Model(network, "softmax", "mine"), torch.ones(2, 3)
    save_capture(tmp_path / "none.safetensors", {"weight": weight, "bias": torch.zeros(2)})
    view = load_capture(tmp_path / "none.safetensors", model).view
    assert isinstance(view, GradientView)
    assert list(view.gradient) == ["weight"]
    save_capture(tmp_path / "some.safetensors", {"weight": weight, "bias": torch.ones(2)})
    with pytest.raises(BadInputError, match="'bias' that is not zero"):
        load_capture(tmp_path / "some.safetensors", model)
