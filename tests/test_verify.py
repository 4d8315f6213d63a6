"""The verifier accepts true certificates and refuses forged ones; it needs nothing of seepage."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seepage import verify

SOURCE = Path(verify.__file__)
ENCODER: list[dict[str, Any]] = [
    {"kind": "number", "name": "age", "mean": 40.0, "scale": 12.0, "tolerance": 2.5, "integer": True},
    {"kind": "one_hot", "name": "colour", "categories": ["red", 2, True], "mean": [0.3, 0.4, 0.3], "scale": [0.5] * 3},
    {"kind": "number", "name": "weight", "mean": 70.0, "scale": 9.5, "tolerance": 1.5, "integer": False},
    {"kind": "one_hot", "name": "ill", "categories": ["no", "yes"], "mean": [0.5, 0.5], "scale": [0.5, 0.5]},
]
RECORDS = [
    {"cells": [31, "red", 61.25, "no"], "label": 0},
    {"cells": [57, 2, 88.5, "yes"], "label": 1},
    {"cells": [44, True, 70.75, "no"], "label": 1},
    {"cells": [23, 2, 54.125, "yes"], "label": 0},
]
LAYERS: list[Any] = [{"linear": "a"}, "relu", {"linear": "b"}, "relu", {"linear": "c"}]


@dataclass
class Files:
    """A certificate that is put together here by hand, and its files."""

    folder: Path
    certificate: dict[str, Any]
    opened: dict[str, Any]

    @property
    def update(self) -> Path:
        return self.folder / "update.safetensors"

    @property
    def weights(self) -> Path:
        return self.folder / "weights.safetensors"

    @property
    def model(self) -> Path:
        return self.folder / "model.json"

    def commit(self) -> None:
        """Commit anew to what is opened now, as a forger who has the salts can."""
        names = [column["name"] for column in self.certificate["encoder"]]
        for cell, salt in zip(self.certificate["cells"], self.opened["salts"], strict=True):
            i, name = cell["record"], cell["column"]
            value = self.opened["records"][i]["cells"][names.index(name)]
            cell["commitment"] = verify.commitment(self.certificate, salt, i, name, value)

    def claim(self, records: int) -> None:
        """Claim all cells of the first records."""
        self.certificate["cells"] = [
            {"record": i, "column": column["name"], "commitment": "0" * 64}
            for i in range(records)
            for column in self.certificate["encoder"]
        ]
        self.opened["salts"] = [f"{i:064x}" for i in range(len(self.certificate["cells"]))]
        self.commit()

    def run(self, *options: str) -> list[str]:
        (self.folder / "proof.json").write_text(json.dumps(self.certificate))
        (self.folder / "opened.json").write_text(json.dumps(self.opened))
        return [str(self.folder / "proof.json"), str(self.update), str(self.model), *options]

    def check(self, *options: str) -> int:
        return verify.main(self.run("--opened", str(self.folder / "opened.json"), *options))


def network(widths: tuple[int, ...] = (24, 16), outputs: int = 2, bias: bool = True) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes, found = [7, *widths, outputs], {}
    for name, before, after in zip("abc", sizes, sizes[1:], strict=False):
        found[f"{name}.weight"] = torch.randn(after, before, generator=generator) / math.sqrt(before)
        if bias:
            found[f"{name}.bias"] = torch.randn(after, generator=generator) / 4
    return found


def rows_of(records: list[dict[str, Any]]) -> Tensor:
    columns = verify.read_columns(ENCODER)
    return torch.tensor(
        [[x for c, v in zip(columns, one["cells"], strict=True) for x in c.entries(v)] for one in records]
    )


def loss(head: str, outputs: Tensor, labels: Tensor) -> Tensor:
    if head == "softmax":
        return nn.functional.cross_entropy(outputs, labels.long())
    if head == "sigmoid":
        return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels)
    return nn.functional.mse_loss(outputs[:, 0], labels)


def made(
    folder: Path,
    head: str = "softmax",
    layers: list[Any] = LAYERS,
    parameters: dict[str, Tensor] | None = None,
    records: list[dict[str, Any]] = RECORDS,
    training: dict[str, Any] | None = None,
) -> Files:
    """Train as a client does, in float32, and certify all cells of all records."""
    start = network(outputs=2 if head == "softmax" else 1) if parameters is None else parameters
    run = verify.network_of(layers, start).run
    rows, labels = rows_of(records), torch.tensor([float(one["label"]) for one in records])
    now = {name: part.clone().requires_grad_() for name, part in start.items()}
    message: dict[str, Tensor] = {}
    for _ in range(1 if training is None else training["epochs"]):
        steps = dict(zip(now, torch.autograd.grad(loss(head, run(now, rows), labels), list(now.values())), strict=True))
        if training is None:
            message = {name: step.clone() for name, step in steps.items()}
        else:
            rate = training["learning_rate"]
            now = {name: (part - rate * steps[name]).detach().requires_grad_() for name, part in now.items()}
            message = {name: start[name] - part.detach() for name, part in now.items()}
    files = Files(folder, {}, {"format": verify.OPENED_FORMAT, "records": json.loads(json.dumps(records))})
    save_file(message, files.update)
    save_file(start, files.weights)
    files.model.write_text(json.dumps({"layers": layers, "weights": files.weights.name}))
    recipe: dict[str, Any] = {"head": head, "protocol": "fedsgd"}
    if training is not None:
        recipe = {"head": head, "protocol": "fedavg", "training": training}
    files.certificate = {
        "format": verify.FORMAT,
        "update": verify.tensors_digest(message),
        "model": {"weights": verify.tensors_digest(start), "form": verify.digest_of(layers)},
        "encoder": json.loads(json.dumps(ENCODER)),
        "recipe": recipe,
        "conditions": {
            **{"batch_size": len(records), "multiple_of": len(records), "records": len(records)},
            **{"precision": "float32", "roundings": verify.ROUNDINGS},
        },
    }
    files.claim(len(records))
    return files


def verdict(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[0]


def test_it_is_short_and_imports_the_standard_library_and_torch_alone() -> None:
    text = SOURCE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").partition(".")[0])
    assert imported - {"torch"} <= sys.stdlib_module_names


def test_it_runs_alone_and_says_what_it_did(tmp_path: Path) -> None:
    files = made(tmp_path)
    copy = tmp_path / "elsewhere" / "check.py"
    copy.parent.mkdir()
    copy.write_text(SOURCE.read_text(encoding="utf-8"), encoding="utf-8")
    arguments = files.run("--opened", str(tmp_path / "opened.json"))
    ran = subprocess.run([sys.executable, "-I", str(copy), *arguments], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("VERIFIED: replay of 4 records, uniqueness of 16 cells.")


def test_without_opened_cells_it_checks_the_form_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = made(tmp_path)
    assert verify.main(files.run()) == 0
    assert verdict(capsys).startswith("NOT VERIFIED, FORM ONLY")
    files.certificate["opened"] = files.opened
    assert verify.main(files.run()) == 0
    assert verdict(capsys).startswith("VERIFIED")


@pytest.mark.parametrize("head", ["softmax", "sigmoid", "regression"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "silu", {"leaky_relu": 0.1}])
def test_it_accepts_true_certificates_of_all_networks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str, activation: object
) -> None:
    layers = [activation if layer == "relu" else layer for layer in LAYERS]
    assert made(tmp_path, head, layers).check() == 0, verdict(capsys)


@pytest.mark.parametrize("epochs", [1, 3])
def test_it_accepts_true_certificates_of_local_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], epochs: int
) -> None:
    files = made(tmp_path, training={"epochs": epochs, "learning_rate": 0.5})
    assert files.check() == 0, verdict(capsys)
    files.certificate["recipe"]["training"]["epochs"] += 1
    files.commit()
    assert files.check() == 1
    assert "do not replay" in capsys.readouterr().out


def change_cell(files: Files) -> None:
    files.opened["records"][1]["cells"][1] = "red"
    files.commit()


def change_number(files: Files) -> None:
    files.opened["records"][0]["cells"][0] = 34
    files.commit()


def change_cell_below_rounding(files: Files) -> None:
    files.opened["records"][0]["cells"][2] += 1e-9


def change_label(files: Files) -> None:
    files.opened["records"][0]["label"] = 1


def change_salt(files: Files) -> None:
    files.opened["salts"][3] = "ab" * 32


def swap_salts(files: Files) -> None:
    salts = files.opened["salts"]
    salts[0], salts[1] = salts[1], salts[0]


def guessable_salts(files: Files) -> None:
    files.opened["salts"] = ["00"] * 16
    files.commit()


def other_update(files: Files) -> None:
    message = load_file(files.update)
    save_file({name: 1.001 * part for name, part in message.items()}, files.update)


def other_update_and_digest(files: Files) -> None:
    other_update(files)
    files.certificate["update"] = verify.tensors_digest(load_file(files.update))
    files.commit()


def other_weights(files: Files) -> None:
    weights = load_file(files.weights)
    save_file({name: 1.001 * part for name, part in weights.items()}, files.weights)


def other_layers(files: Files) -> None:
    files.model.write_text(json.dumps({"layers": [*LAYERS[:3], "tanh", LAYERS[4]], "weights": files.weights.name}))


def stated(files: Files, **conditions: object) -> None:
    files.certificate["conditions"] |= conditions
    files.commit()


def wrong_batch_size(files: Files) -> None:
    stated(files, batch_size=5, multiple_of=5)


def batch_size_edited(files: Files) -> None:
    files.certificate["conditions"]["batch_size"] = 8


def no_multiple(files: Files) -> None:
    stated(files, batch_size=6)


def record_twice(files: Files) -> None:
    files.opened["records"].append(files.opened["records"][0])
    stated(files, batch_size=5, multiple_of=5, records=5)


def every_record_twice(files: Files) -> None:
    """The message is the same, but of two copies none is needed."""
    files.opened["records"] *= 2
    stated(files, batch_size=8, multiple_of=8, records=8)


def record_left_out(files: Files) -> None:
    files.opened["records"].pop()
    files.certificate["cells"], files.opened["salts"] = files.certificate["cells"][:12], files.opened["salts"][:12]
    stated(files, batch_size=3, multiple_of=3, records=3)


def fewer_roundings(files: Files) -> None:
    stated(files, roundings=1.0)


def other_precision(files: Files) -> None:
    stated(files, precision="float64")


def other_head(files: Files) -> None:
    files.certificate["recipe"]["head"] = "sigmoid"
    files.commit()


def tolerance_edited(files: Files) -> None:
    files.certificate["encoder"][2]["tolerance"] = 20.0


def scale_edited(files: Files) -> None:
    files.certificate["encoder"][2]["scale"] = 19.0
    files.commit()


def unending_scale(files: Files) -> None:
    files.certificate["encoder"][2]["scale"] = math.inf


def no_cells(files: Files) -> None:
    files.certificate["cells"], files.opened["salts"] = [], []


def cell_twice(files: Files) -> None:
    files.certificate["cells"][1] = files.certificate["cells"][0]


def cell_of_no_record(files: Files) -> None:
    files.certificate["cells"][0]["record"] = -1


def finer_than_rounding(files: Files) -> None:
    """A true cell, claimed up to less than the message tells."""
    files.certificate["encoder"][2]["tolerance"] = 1e-6
    files.commit()


def nan_weights(files: Files) -> None:
    weights = load_file(files.weights)
    weights["a.weight"][0, 0] = math.nan
    save_file(weights, files.weights)


def nan_update(files: Files) -> None:
    message = load_file(files.update)
    message["c.bias"][0] = math.inf
    save_file(message, files.update)


def half_precision(files: Files) -> None:
    save_file({name: part.half() for name, part in load_file(files.update).items()}, files.update)


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (change_cell, "do not replay"),
        (change_number, "do not replay"),
        (change_cell_below_rounding, "not what was committed"),
        (change_label, "do not replay"),
        (change_salt, "not what was committed"),
        (swap_salts, "not what was committed"),
        (guessable_salts, "not what was committed"),
        (other_update, "another update"),
        (other_update_and_digest, "do not replay"),
        (other_weights, "other weights or layers"),
        (other_layers, "other weights or layers"),
        (wrong_batch_size, "only 4 of 5"),
        (batch_size_edited, "not what was committed"),
        (no_multiple, "multiple"),
        (record_twice, "do not replay"),
        (every_record_twice, "not unique"),
        (record_left_out, "do not replay"),
        (fewer_roundings, "32 roundings"),
        (other_precision, "float32"),
        (other_head, "REFUSED"),
        (tolerance_edited, "not what was committed"),
        (scale_edited, "do not replay"),
        (unending_scale, "not declared"),
        (no_cells, "no cell"),
        (cell_twice, "twice"),
        (cell_of_no_record, "form"),
        (finer_than_rounding, "not unique"),
        (nan_weights, "not finite"),
        (nan_update, "not finite"),
        (half_precision, "not float32"),
    ],
)
def test_it_refuses_forged_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], forge: Callable[[Files], None], why: str
) -> None:
    files = made(tmp_path)
    forge(files)
    assert files.check() == 1
    line = verdict(capsys)
    assert line.startswith("REFUSED: ")
    assert why in line


@pytest.mark.parametrize(
    "name", ["proof.json", "opened.json", "update.safetensors", "model.json", "weights.safetensors"]
)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_it_refuses_truncated_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, share: float
) -> None:
    files = made(tmp_path)
    arguments = files.run("--opened", str(tmp_path / "opened.json"))
    raw = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(raw[: int(share * len(raw))])
    assert verify.main(arguments) == 1
    assert verdict(capsys).startswith("REFUSED: ")


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return each container of a JSON value with the key of each plain value in it."""
    for key, part in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        if isinstance(part, dict | list):
            yield from leaves(part)
        else:
            yield value, key


def test_no_single_value_can_be_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path, training={"epochs": 1, "learning_rate": 0.5})
    edited = 0
    for container, key in [*leaves(files.certificate), *leaves(files.opened)]:
        before = container[key]
        container[key] = {bool: lambda x: not x, str: lambda x: x + "0"}.get(type(before), lambda x: x + 1)(before)
        assert files.check() == 1, (key, before)
        assert capsys.readouterr().out.startswith("REFUSED: ")
        container[key] = before
        edited += 1
    assert edited > 100
    assert files.check() == 0


def test_bytes_behind_the_tensors_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path)
    files.update.write_bytes(files.update.read_bytes() + b"\0" * 4)
    assert files.check() == 1
    assert "altered" in verdict(capsys)


@pytest.mark.parametrize("bias", [-100.0, 0.0])
def test_a_record_of_no_active_unit_is_not_unique(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bias: float
) -> None:
    """Whatever its cells are, its message is the same."""
    parameters = network()
    parameters["a.bias"] += bias
    if not bias:
        # Only the first record is silent.
        parameters["a.weight"] = torch.cat(
            [p := parameters["a.weight"][:, :1].abs(), 0 * parameters["a.weight"][:, 1:]], 1
        )
        parameters["a.bias"] = -p[:, 0] * float(rows_of(RECORDS)[:, 0].sort().values[:2].mean())
    files = made(tmp_path, parameters=parameters)
    assert files.check() == 1
    assert "not unique" in verdict(capsys)


def test_numbers_of_a_layer_without_bias_are_not_unique(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row and its multiples are one direction."""
    files = made(tmp_path, parameters=network(bias=False))
    assert files.check() == 1
    assert "'age' of record 0 is not unique" in verdict(capsys)
    chosen = [i for i, cell in enumerate(files.certificate["cells"]) if cell["column"] == "colour"]
    files.certificate["cells"] = [files.certificate["cells"][i] for i in chosen]
    files.opened["salts"] = [files.opened["salts"][i] for i in chosen]
    assert files.check() == 0


def test_a_part_of_a_batch_is_never_called_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path)
    files.opened["records"].pop()
    files.certificate["conditions"]["records"] = 3
    files.claim(3)
    assert files.check() == 1
    assert "only 3 of 4 records were read" in verdict(capsys)
    assert verify.main(files.run()) == 0
    said = capsys.readouterr().out
    assert said.startswith("NOT VERIFIED, FORM ONLY")
    assert "Only a part of the batch was read" in said


def test_wrong_use_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path)
    files.weights.unlink()
    assert files.check() == 2
    assert verdict(capsys).startswith("WRONG USE: ")
    with pytest.raises(SystemExit) as ended:
        verify.main(["proof.json"])
    assert ended.value.code == 2


FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(7, 24), nn.Linear(24, 16), nn.Linear(16, 2)

    def forward(self, rows):
        return self.c(torch.relu(self.b(torch.relu(self.a(rows)))))

class Squared(Net):
    def forward(self, rows):
        return super().forward(rows * rows)
"""


def test_code_runs_only_where_it_is_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path)
    (tmp_path / "net.py").write_text(FACTORY)
    files.certificate["model"]["form"] = hashlib.sha256(FACTORY.encode()).hexdigest()
    files.commit()
    files.model.write_text(json.dumps({"factory": "net.py:Net", "weights": files.weights.name}))
    assert files.check() == 2
    assert "--allow-code" in verdict(capsys)
    assert files.check("--allow-code") == 0, verdict(capsys)
    capsys.readouterr()
    files.model.write_text(json.dumps({"factory": "net.py:Squared", "weights": files.weights.name}))
    assert files.check("--allow-code") == 1
    assert "does not take the encoded row alone" in verdict(capsys)


def test_no_alternative_comes_nearer_than_the_bound(tmp_path: Path) -> None:
    """Other rows may be anything, and so may the new record's error: least squares finds the nearest message."""
    files = made(tmp_path)
    net = verify.read_network(files.model, allow_code=False)
    columns, message = verify.read_columns(ENCODER), verify.read_tensors(files.update)
    _, least = verify.prove(net, message, {"head": "softmax", "protocol": "fedsgd"}, columns, RECORDS)
    # One rounding of the first layer, counted here in another way: all outputs' derivatives at once.
    parameters = {name: part.double() for name, part in net.parameters.items()}
    rows = rows_of(RECORDS).double()
    sums = dict.fromkeys(("a.weight", "a.bias"), 0.0)
    errors = []
    for row, one in zip(rows, RECORDS, strict=True):
        tracked = [parameters[name].requires_grad_() for name in sums]
        outputs = net.run(parameters, row[None])[0]
        each = [torch.autograd.grad(output, tracked, retain_graph=True) for output in outputs]
        slopes = {name: torch.stack([one[at] for one in each]) for at, name in enumerate(sums)}
        outputs = outputs.detach()
        error = outputs.softmax(0) - torch.eye(2, dtype=torch.float64)[int(one["label"])]
        for k in range(2):
            for name in sums:
                sums[name] += float((2 * (1 + outputs[k].abs()) + error[k].abs()) * slopes[name][k].norm()) / 4
        errors.append(error @ slopes["a.bias"].flatten(1) / 4)
    rounding = torch.finfo(torch.float32).eps * math.hypot(*sums.values())
    e, v = torch.stack(errors), torch.nn.functional.pad(rows, (0, 1), value=1.0)
    sent = e.T @ v
    starts = [0, 1, 4, 5]
    for i in range(4):
        others = torch.cat([e[:i], e[i + 1 :]]).T
        outside = torch.eye(len(others), dtype=torch.float64) - others @ torch.linalg.pinv(others)
        for c, column in enumerate(columns):
            values: list[Any] = [x for x in column.categories or [] if x is not RECORDS[i]["cells"][c]]
            if column.categories is None:
                away = [column.move * factor for factor in (1.0, 1.5, 4.0, 1e3)]
                values = [RECORDS[i]["cells"][c] + sign * x for x in away for sign in (1, -1)]
            nearest = math.inf
            for value in values:
                new = v[i].clone()
                entries = torch.tensor(column.entries(value), dtype=torch.float64)
                new[starts[c] : starts[c] + len(entries)] = entries
                # All other cells of the new record are free, too; what is seen of the others is nothing.
                seen = torch.cat([new[starts[c] : starts[c] + len(entries)], new[-1:]])
                part = torch.cat([sent[:, starts[c] : starts[c] + len(entries)], sent[:, -1:]], 1)
                left = outside @ part
                left = left - torch.outer(left @ seen, seen) / seen.square().sum()
                nearest = min(nearest, float(left.norm()))
            bound = float(least[i, c]) * rounding
            assert bound <= nearest * (1 + 1e-6)
            # The bound is met, so that it is not needlessly small.
            assert bound >= nearest * (1 - 1e-6) or column.categories is None
