"""Networks of one's own by name, and weights from a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seepage.captures.captured import load_capture
from seepage.captures.capturing import capture
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.models.own import check_own, load_own
from seepage.models.weights import load_weights
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.wire.horizontal import GradientView

SCHEMA = distinct(rows=4, continuous=1, discrete=2).schema

SOURCE = """
import functools
import os
from torch import nn
from helper import units

def build(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, units), nn.Tanh(), nn.Linear(units, outputs))

class Net(nn.Module):
    def __init__(self, width, outputs, cardinalities, numbers, seed, schema, head, units=3):
        super().__init__()
        assert (width, outputs, cardinalities, numbers, seed) == (9, 2, [4, 4], 1, 5)
        assert schema.width == 9 and head == "softmax"
        self.out = nn.Linear(width, units)

def plain():
    return nn.Linear(9, 2)

def hidden(inputs, outputs, width=5):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))

def usual_names(num_features, n_classes, num_continuous, cat_dims, d_out=3):
    assert (num_continuous, cat_dims, d_out) == (1, [4, 4], 3)
    return nn.Linear(num_features, n_classes)

def sized(*, size=4, **rest):
    return nn.Linear(9, size)

def raises(inputs):
    raise ValueError("the licence server\\nis not there")

def leaves():
    raise SystemExit(3)

def greedy(inputs, database, table):
    pass

def nothing():
    pass

ready = nn.Linear(9, 2)
number = 3
bound = functools.partial(nn.Linear, 9, 2)

class Table:
    def __init__(self):
        raise AssertionError("called")

def counts() -> int:
    raise AssertionError("called")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    # Names no other test uses: an imported module stays imported.
    (tmp_path / "ownnetworks.py").write_text(SOURCE.replace("helper", "ownhelper"))
    (tmp_path / "ownhelper.py").write_text("units = 6")
    (tmp_path / "broken.py").write_text("import torch\nx = 1 / 0\n")
    (tmp_path / "half.py").write_text("def f(:\n")
    (tmp_path / "needs.py").write_text("import no_such_library\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("ownnetworks", "ownhelper", "broken", "half", "needs"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("place", ["ownnetworks", "ownnetworks.py"])
def test_a_factory_is_handed_what_it_takes(folder: Path, place: str) -> None:
    before = list(sys.path)
    built = load_own(f"{place}:build", SCHEMA).network
    assert isinstance(built, nn.Sequential)
    assert [tuple(p.shape) for p in built.parameters()] == [(6, 9), (6,), (2, 6), (2,)]
    assert isinstance(load_own(f"{place}:Net", SCHEMA, seed=5, options={"units": 4}).network, nn.Module)
    assert isinstance(load_own(f"{place}:plain", SCHEMA).network, nn.Linear)
    # With a default of its own, a width is that of a layer.
    assert load_own(f"{place}:hidden", SCHEMA).network[0].out_features == 5  # pyright: ignore
    assert load_own(f"{place}:sized", SCHEMA, options={"size": 7, "more": 1}).network.out_features == 7  # pyright: ignore
    assert load_own(f"{place}:usual_names", SCHEMA).network.weight.shape == (2, 9)  # pyright: ignore
    assert sys.path == before


def test_weights_follow_the_seed_and_leave_global_state_alone(folder: Path) -> None:
    state = torch.get_rng_state()
    one, same, other = (load_own("ownnetworks:plain", SCHEMA, seed=seed).network for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(one, nn.Linear)
    assert isinstance(same, nn.Linear)
    assert isinstance(other, nn.Linear)
    assert torch.equal(one.weight, same.weight)
    assert not torch.equal(one.weight, other.weight)


def test_the_digest_is_that_of_the_source(folder: Path) -> None:
    digests = set()
    for text in (SOURCE, SOURCE + "\n# another\n"):
        (folder / "ownnetworks.py").write_text(text.replace("helper", "ownhelper"))
        digests.add(load_own("ownnetworks.py:plain", SCHEMA).digest)
    assert len(digests) == 2
    assert None not in digests


@pytest.mark.parametrize(
    ("reference", "options", "message"),
    [
        (":build", {}, "package.module:factory"),
        ("ownnetworks:", {}, "package.module:factory"),
        ("ownnetworks:biuld", {}, "did you mean 'build'"),
        ("ownnetwork:build", {}, "no module 'ownnetwork'"),
        ("no.such.module:build", {}, "no module 'no'"),
        ("missing.py:build", {}, "'missing.py', which does not exist"),
        ("broken:f", {}, r"raised ZeroDivisionError: division by zero \(broken.py, line 2\)"),
        ("broken.py:f", {}, r"raised ZeroDivisionError: division by zero \(broken.py, line 2\)"),
        ("half:f", {}, "raised SyntaxError"),
        ("needs:f", {}, "No module named 'no_such_library'"),
        ("ownnetworks:raises", {}, r"raised ValueError: the licence server is not there \(ownnetworks.py, line"),
        ("ownnetworks:leaves", {}, "raised SystemExit: 3"),
        ("ownnetworks:greedy", {}, "needs 'database', 'table', which seepage does not pass"),
        ("ownnetworks:nothing", {}, "an object of type NoneType"),
        ("ownnetworks:ready", {}, "an object of type Linear, not a factory"),
        ("ownnetworks:number", {}, "an object of type int, not a factory"),
        ("ownnetworks:build", {"unit": 3}, "unknown option"),
        ("os:system", {"command": "touch seen"}, "the module 'os' of Python's standard library"),
        ("subprocess:Popen", {"args": ["touch", "seen"]}, "the module 'subprocess' of Python's standard library"),
        ("ownnetworks:os.system", {"command": "touch seen"}, "an object of type builtin_function_or_method"),
        ("ownnetworks:os.makedirs", {"name": "seen"}, "is only imported there; name it where it is defined: os:make"),
        ("ownnetworks.py:nn.Linear", {}, "is defined: torch.nn.modules.linear:Linear"),
        ("ownnetworks:bound", {}, "an object of type partial; a factory is defined as a class or as a function"),
        ("ownnetworks:Table", {}, r"is a class \(Table\) that is not derived from nn.Module"),
        ("ownnetworks.py:counts", {}, r"is a function that returns a class \(int\) that is not derived"),
    ],
)
def test_a_bad_reference_gets_one_paragraph(
    folder: Path, reference: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=message) as raised:
        load_own(reference, SCHEMA, options=options)
    assert "\n" not in str(raised.value)
    assert not (folder / "seen").exists()


def test_a_check_calls_no_factory(folder: Path) -> None:
    check_own("ownnetworks:raises")
    with pytest.raises(BadInputError, match="not a factory"):
        check_own("ownnetworks:ready")


def test_an_audit_takes_the_factory_and_its_weights(folder: Path) -> None:
    linear = "torch.nn.modules.linear:Linear"
    trained = load_own(linear, SCHEMA, seed=9, options={"in_features": 63, "out_features": 2}).network
    assert isinstance(trained, nn.Linear)
    save_file(trained.state_dict(), folder / "model.safetensors")
    options = {"in_features": 63, "out_features": 2}
    spec = make_spec(dataset="german", model=linear, model_options=options, weights="model.safetensors")
    subject = prepare(spec)
    assert torch.equal(subject.model.parameters["weight"], trained.weight)
    assert subject.model.name == linear
    untrained = prepare(spec.model_copy(update={"weights": None}))
    assert untrained.model_digest != subject.model_digest
    assert subject.model_source is not None


@pytest.mark.parametrize("build", [lambda: nn.Linear(9, 5), lambda: nn.Linear(8, 2)])
def test_a_network_of_another_size_is_refused(build: Any) -> None:
    with pytest.raises(BadInputError, match=r"first layer|last layer"):
        Model(build(), "softmax", "own").check(SCHEMA)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)
        self.other.weight = self.one.weight
        self.register_buffer("steps", torch.zeros(3, dtype=torch.int64))


def tensors(**changes: Tensor | None) -> dict[str, Tensor]:
    full = {"one.weight": torch.ones(2, 2), "one.bias": torch.ones(2), "other.bias": torch.ones(2)}
    changed: dict[str, Tensor | None] = {**full, "steps": torch.tensor([1, 2, 3]), **changes}
    return {name: tensor for name, tensor in changed.items() if tensor is not None}


class OneLogit(nn.Module):
    def __init__(self, column: bool) -> None:
        super().__init__()
        self.layer, self.column = nn.Linear(9, 1), column

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows) if self.column else self.layer(rows).squeeze(-1)


@pytest.mark.parametrize("column", [True, False])
def test_one_logit_for_two_classes_is_taken_as_such(column: bool) -> None:
    data = distinct(rows=4, continuous=1, discrete=2)
    model, _ = make_model(OneLogit(column), data.schema, data.statistics)
    assert (model.head, list(model.parameters)) == ("sigmoid", ["layer.weight", "layer.bias"])
    rows = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0))
    assert gradient(model, rows, torch.ones(2, 3))["layer.bias"].shape == (2, 1)
    with pytest.raises(BadInputError, match="softmax head on target"):
        make_model(OneLogit(column), data.schema, data.statistics, head="softmax")


def test_what_is_frozen_is_in_no_message(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(9, 3), nn.ReLU(), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    model = Model(module, "softmax", "mine")
    assert list(model.parameters) == list(gradient(model, torch.ones(4, 9), torch.zeros(4))) == ["2.weight", "2.bias"]
    assert list(model.frozen) == ["0.weight", "0.bias"]
    nn.functional.cross_entropy(module(torch.ones(4, 9)), torch.zeros(4).long()).backward()
    capture(module.named_parameters(), tmp_path / "update.safetensors", batch_size=4)
    held = load_capture(tmp_path / "update.safetensors", model).view
    assert isinstance(held, GradientView)
    assert list(held.gradient) == ["2.weight", "2.bias"]
    with pytest.raises(BadInputError, match="all parameters of model 'mine' are frozen"):
        Model(module.requires_grad_(False), "softmax", "mine")


def test_weights_are_copied_tied_ones_once(tmp_path: Path) -> None:
    module = Tied()
    save_file(tensors(**{"one.bias": torch.full((2,), 0.5, dtype=torch.bfloat16)}), tmp_path / "w.safetensors")
    load_weights(module, tmp_path / "w.safetensors")
    assert torch.equal(module.other.weight, torch.ones(2, 2))
    assert module.one.bias.tolist() == [0.5, 0.5]
    assert module.one.bias.dtype == torch.float32
    assert module.steps.tolist() == [1, 2, 3]  # pyright: ignore


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"one.weihgt": torch.ones(2, 2)}, "did you mean 'one.weight'"),
        ({"other.bias": None}, "lacks 'other.bias' of the model's 5"),
        ({"one.weight": torch.ones(2, 3)}, r"shape \(2, 3\) where the model has \(2, 2\)"),
        ({"one.bias": torch.ones(2, dtype=torch.float64)}, "type float64, which the model's float32 would round"),
        ({"one.bias": torch.ones(2, dtype=torch.int8)}, "type int8 where floating-point"),
        ({"steps": torch.ones(3)}, "type float32, the model's of type int64"),
        ({"one.bias": torch.tensor([1.0, torch.nan])}, "holds nan .1 of its 2 numbers"),
        ({"one.bias": torch.tensor([1.0, -torch.inf])}, "holds -inf"),
    ],
)
def test_weights_of_another_network_change_nothing(
    tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    module = Tied()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    save_file(tensors(**changes), tmp_path / "w.safetensors")
    with pytest.raises(BadInputError, match=message) as raised:
        load_weights(module, tmp_path / "w.safetensors")
    assert "\n" not in str(raised.value)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def header(**entries: Any) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 a pickled zip archive",
        b"\xff" * 64,
        (2**62).to_bytes(8, "little") + b"{}",
        header(**{"one.bias": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}}),
        header(**{"one.bias": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}) + b"\0" * 3,
        header(**{"one.bias": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}) + b"\0" * 8,
        header(**{"one.bias": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}) + b"\0" * 8,
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(BadInputError, match="no whole safetensors file"):
        load_weights(Tied(), tmp_path / "w.safetensors")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="does not exist"):
        load_weights(Tied(), tmp_path / "w.safetensors")
    with pytest.raises(BadInputError, match="does not exist"):
        load_weights(Tied(), tmp_path)
