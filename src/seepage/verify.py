"""Checks certificates of records that were read out of a client's update, with PyTorch and nothing else.

    python verify.py CERTIFICATE UPDATE MODEL [--opened FILE] [--allow-code]

It imports nothing of seepage, and runs alone. Statement, proof and limits: "Verify a certificate" in the documentation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

FORMAT, OPENED_FORMAT = "seepage certificate 1", "seepage opened cells 1"
# Every other value of a certified cell changes the first layer's message by more than so many of its roundings.
ROUNDINGS = 32.0
# Roundings of a tensor by which the replayed message may differ from the received one.
REPLAY = 1.0
ACTIVATIONS, HEADS = ("relu", "gelu", "silu", "tanh", "sigmoid"), ("softmax", "sigmoid", "regression")
# Relative rounding of a record's own gradient, in float64; and what keeps divisors above 0.
_PRECISE, _TINY = 1e-9, sys.float_info.min
_PARTS = ("format", "update", "model", "encoder", "recipe", "conditions", "cells")


class EncodedColumn(NamedTuple):
    """A column as it enters the network; a number has no categories, and counts as another one from ``move`` on."""

    name: str
    categories: list[Any] | None
    mean: list[Any]
    scale: list[Any]
    move: float | int

    def entries(self, value: Any) -> list[float]:
        """Return the standardised entries of a cell."""
        raw = [float(type(value) is type(one) and value == one) for one in self.categories or []]
        ensure(sum(raw) == 1 if raw else _number(value), f"a cell of {self.name!r} is no value of the column")
        return [(x - mean) / scale for x, mean, scale in zip(raw or [value], self.mean, self.scale, strict=True)]


class CheckedNetwork(NamedTuple):
    """A network as a function of parameters and rows, the names of its first layer's, and the digest of its form."""

    run: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    parameters: dict[str, Tensor]
    weight: str
    bias: str
    form: str


def ensure(true: bool, otherwise: str) -> None:
    """Refuse where something does not hold."""
    if not true:
        raise ValueError(otherwise)


def _number(value: Any, above: float | int = -math.inf) -> bool:
    return type(value) in (int, float) and above < value < math.inf


def digest_of(value: object) -> str:
    """Return the SHA-256 of a JSON value, written without spaces and with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def commitment(certificate: Mapping[str, Any], salt: str, record: int, column: str, value: object) -> str:
    """Return the commitment to one cell; it holds for a certificate with these other parts alone."""
    return digest_of([salt, *(certificate[part] for part in _PARTS[:-1]), record, column, value])


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors: of each, in the order of names, its name, type, shape and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        kind, shape = str(tensor.dtype).removeprefix("torch."), "x".join(map(str, tensor.shape))
        digest.update(f"{name}\0{kind}\0{shape}\0".encode() + bytes(tensor.reshape(-1).view(torch.uint8).tolist()))
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the float32 tensors of a safetensors file, without what wrappers put before all names."""
    raw, found, end = path.read_bytes(), {}, 0
    header, body = json.loads(raw[8 : (start := 8 + int.from_bytes(raw[:8], "little"))]), raw[start:]
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        ensure(begin == end < stop <= len(body), f"{path.name!r} was cut short or altered")
        ensure(entry["dtype"] == "F32", f"{name!r} in {path.name!r} is not float32, in which messages are replayed")
        found[name] = torch.frombuffer(bytearray(body[begin:stop]), dtype=torch.float32).reshape(entry["shape"])
        ensure(bool(found[name].isfinite().all()), f"{name!r} in {path.name!r} holds what is not finite")
        end = stop
    ensure(0 < end == len(body), f"{path.name!r} was cut short or altered")
    while all(re.match(r"(_orig_mod|_?module)\.", name) for name in found):
        found = {name.partition(".")[2]: tensor for name, tensor in found.items()}
    return found


def read_columns(declared: list[dict[str, Any]]) -> list[EncodedColumn]:
    """Return the columns that an encoder declaration lists."""
    columns = []
    for one in declared:
        number, move = one["kind"] == "number", one.get("tolerance", 0)
        mean, scale, categories = ([one.get(key)] if number else one[key] for key in ("mean", "scale", "categories"))
        move = math.floor(move) + 1 if number and one["integer"] is True else move
        sound = all(_number(s, 0) for s in scale) and all(map(_number, [*mean, move])) and move >= 0
        sound &= number or (one["kind"] == "one_hot" and 0 < len(categories) == len(set(map(digest_of, categories))))
        ensure(sound and len(mean) == len(scale), f"column {one['name']!r} is not declared as expected")
        columns.append(EncodedColumn(one["name"], None if number else categories, mean, scale, move))
    ensure(0 < len(columns) == len({column.name for column in columns}), "the encoder lists no column, or one twice")
    return columns


def network_of(layers: list[Any], parameters: dict[str, Tensor]) -> CheckedNetwork:
    """Return a network of layers: names of activations, ``{"leaky_relu": slope}``, and ``{"linear": name}``."""
    parts = [next(iter(one.items())) if isinstance(one, dict) else (one, None) for one in layers]
    names = [name for kind, name in parts if kind == "linear"]
    known = all(kind in ACTIVATIONS if value is None else kind in ("linear", "leaky_relu") for kind, value in parts)
    known &= len(set(names)) == len(names) and parts[0][0] == "linear"
    ensure(known, f"layers are linear first, each named once; then also leaky_relu, {', '.join(ACTIVATIONS)}")
    weights, biases = {f"{name}.weight" for name in names}, {f"{name}.bias" for name in names}
    ensure(weights <= parameters.keys() <= weights | biases, "layers and weights do not belong together")

    def run(at: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        for kind, value in parts:
            if kind == "linear":
                rows = functional.linear(rows, at[f"{value}.weight"], at.get(f"{value}.bias"))
            else:
                rows = getattr(functional, kind)(rows) if value is None else functional.leaky_relu(rows, value)
        return rows

    return CheckedNetwork(run, parameters, f"{names[0]}.weight", f"{names[0]}.bias", digest_of(layers))


def read_network(path: Path, allow_code: bool) -> CheckedNetwork:
    """Return the network of a model file: layers and weights, or a factory and weights where code may run."""
    model = json.loads(path.read_bytes())
    parameters = read_tensors(path.parent / model["weights"])
    if "factory" not in model:
        return network_of(model["layers"], parameters)
    place, _, name = model["factory"].rpartition(":")
    source, code = (path.parent / place).read_bytes(), {"__name__": "checked_network"}
    if not allow_code:
        raise PermissionError(f"the model is code, {model['factory']!r}, which runs only with --allow-code")
    exec(compile(source, place, "exec", dont_inherit=True), code)
    module: nn.Module = code[name]().double()  # pyright: ignore[reportCallIssue]
    ensure(dict(module.named_parameters()).keys() == parameters.keys(), "the weights are those of another network")
    first = next(key for key, part in module.named_modules() if type(part) is nn.Linear)
    run = lambda at, rows: torch.func.functional_call(module, dict(at), (rows,))  # noqa: E731
    return CheckedNetwork(run, parameters, f"{first}.weight", f"{first}.bias", hashlib.sha256(source).hexdigest())


def prove(
    network: CheckedNetwork, message: dict, recipe: dict, columns: list[EncodedColumn], records: list
) -> tuple[float, Tensor]:
    """Return how many roundings a replay of records leaves of a message, and the least change by other cells in them.

    With v_i the row of record i and a 1, and e_i its error at the first layer, the message there is sum_i e_i v_i^T.
    A direction that is orthogonal to all other errors sees record i alone. If its v_i becomes v_i', the message
    changes by at least |e_i off the span of the others| times min_s |s v_i' - v_i|, whatever its new error is.
    """
    bias, eps = network.bias in message, torch.finfo(torch.float32).eps
    encoded = [[column.entries(x) for column, x in zip(columns, one["cells"], strict=True)] for one in records]
    rows = torch.tensor([[x for cell in row for x in cell] for row in encoded], dtype=torch.float32).double()
    training = recipe.get("training", {"epochs": 1, "learning_rate": 1.0})
    rate, at = training["learning_rate"] / len(rows), {name: p.double() for name, p in network.parameters.items()}
    left, rounding = {name: message[name].double() for name in at}, dict.fromkeys(at, 0.0)
    errors = torch.zeros(len(rows), len(at[network.weight]), dtype=torch.float64)
    for _ in range(training["epochs"]):
        now = {name: part.detach().clone().requires_grad_() for name, part in at.items()}
        for i, one in enumerate(records):
            outputs, label, own = network.run(now, rows[i : i + 1])[0], one["label"], dict.fromkeys(at, torch.zeros(()))
            z, head, classes = outputs.detach(), recipe["head"], range(max(2, len(outputs)))
            ensure(_number(label) and (head == "regression" or label in classes), "a label is no class")
            true = functional.one_hot(torch.tensor(int(label)), len(z)) if head == "softmax" else label
            error = {"softmax": z.softmax(0) - true, "sigmoid": z.sigmoid() - true, "regression": 2 * (z - true)}[head]
            for k, size in enumerate(2 * (1 + z.abs()) + error.abs()):
                found = torch.autograd.grad(outputs[k], list(now.values()), retain_graph=True, materialize_grads=True)
                for name, part in zip(now, found, strict=True):
                    own[name] = own[name] + rate * error[k] * part
                    rounding[name] += rate * float(size * part.norm())
            weight, row = own[network.weight], rows[i]
            alone = own[network.bias] if bias else weight @ row / row.square().sum().clamp_min(_TINY)
            outer = bool((weight - alone[:, None] * row).norm() <= _PRECISE * weight.norm())
            ensure(outer, "the first layer does not take the encoded row alone")
            errors[i] += alone
            for name, part in own.items():
                left[name], at[name] = left[name] - part, at[name] - part
        if recipe["protocol"] == "fedavg":  # Each step rounds the parameters, too.
            rounding = {name: size + float(at[name].norm()) for name, size in rounding.items()}
    off = {name: float(part.norm()) / eps for name, part in left.items()}
    ensure(all(map(math.isfinite, [*off.values(), *rounding.values()])), "the replay is not finite")
    scale = eps * max(math.hypot(part[network.weight], part.get(network.bias, 0)) for part in (off, rounding))
    least = torch.zeros(len(rows), len(columns), dtype=torch.float64)
    for i, one in enumerate(records):
        # As many directions as there are others, also where these are dependent: the bound only falls by that.
        others = torch.linalg.qr(torch.cat([errors[:i], errors[i + 1 :]]).T).Q
        alone = float((errors[i] - others @ (others.T @ errors[i])).norm()) / max(scale, _TINY)
        for c, (column, cell) in enumerate(zip(columns, one["cells"], strict=True)):
            least[i, c] = alone * _distance(column, cell, bias)
    return max(size / max(rounding[name], _TINY) for name, size in off.items()), least


def _distance(column: EncodedColumn, cell: Any, bias: bool) -> float:
    """Return the least distance of a cell's entries and a 1 from all multiples of those of another value."""
    own, step = column.entries(cell), column.move / column.scale[0]
    others = [column.entries(x) for x in column.categories or [] if (type(x), x) != (type(cell), cell)]
    others = others if column.categories else [[own[0] + step], [own[0] - step]]
    v, *rest = (torch.tensor([*x, 1.0][: len(own) + bias], dtype=torch.float64) for x in (own, *others))
    apart = [(v - (v @ w) / (w @ w).clamp_min(_TINY) * w).norm() for w in rest]
    # Of numbers, the distance rises and then falls to 1 on either side: the nearest and the furthest bound it.
    return float(torch.tensor([math.inf if column.categories else 1.0, *apart]).min())


def check_form(certificate: dict[str, Any], update: Mapping[str, Tensor], network: CheckedNetwork) -> None:
    """Check digests, conditions and form of a certificate."""
    ensure(certificate.get("format") == FORMAT, f"this is no {FORMAT!r}")
    ensure(set(_PARTS) == certificate.keys() - {"opened"}, f"the parts of a certificate are {', '.join(_PARTS)}")
    model, recipe, conditions = (certificate[part] for part in ("model", "recipe", "conditions"))
    ensure(certificate["update"] == tensors_digest(update), "this is another update than the certificate's")
    same = model == {"weights": tensors_digest(network.parameters), "form": network.form}
    ensure(same, "the network has other weights or layers than the certificate's")
    fits = {n: p.shape for n, p in update.items()} == {n: p.shape for n, p in network.parameters.items()}
    columns = read_columns(certificate["encoder"])
    fits &= update[network.weight].shape[1] == sum(len(column.mean) for column in columns)
    ensure(fits and conditions["precision"] == "float32", "update, network and encoder do not fit, or are not float32")
    counts = size_given, size, records = [conditions[key] for key in ("batch_size", "multiple_of", "records")]
    whole = all(type(n) is int and n > 0 for n in counts) and size_given % size == 0 and records <= size
    ensure(whole, "batch_size is a multiple of multiple_of, and records are at most as many: positive whole numbers")
    ensure(conditions["roundings"] == ROUNDINGS, f"a certificate is for {ROUNDINGS:g} roundings")
    protocol, training = recipe["protocol"], recipe.get("training", {"epochs": 1, "learning_rate": 1.0})
    known = {**recipe, "training": 0} == {"head": recipe["head"], "protocol": protocol, "training": 0}
    known &= recipe["head"] in HEADS and protocol == ("fedavg" if "training" in recipe else "fedsgd")
    sound = training["epochs"] in range(1, 10_001) and _number(training["learning_rate"], 0)
    ensure(known and sound and len(training) == 2 and len(conditions) == 5, "the recipe is none that is replayed here")
    cells, names = [(one["record"], one["column"]) for one in certificate["cells"]], {c.name for c in columns}
    known = all(type(r) is int and 0 <= r < records and name in names for r, name in cells)
    known &= all(re.fullmatch("[0-9a-f]{64}", cell["commitment"]) is not None for cell in certificate["cells"])
    ensure(known and 0 < len(cells) == len(set(cells)), "no cell is certified, one is twice, or one has another form")


def check_opened(certificate: dict, opened: dict, update: dict[str, Tensor], network: CheckedNetwork) -> None:
    """Check commitments, replay and uniqueness of a certificate whose form was checked, with its opened cells."""
    columns, conditions, cells = read_columns(certificate["encoder"]), certificate["conditions"], certificate["cells"]
    records, salts, names = opened["records"], opened["salts"], [column.name for column in columns]
    size, stated = conditions["multiple_of"], conditions["records"]
    ensure(opened["format"] == OPENED_FORMAT and len(salts) == len(cells), "the opened cells are another certificate's")
    ensure(len(records) == stated, f"{len(records)} records were opened, {stated} are stated")
    ensure(stated == size, f"only {stated} of {size} records were read: no replay can be checked, nothing is verified")
    left, least = prove(network, update, certificate["recipe"], columns, records)
    ensure(left <= REPLAY, f"the records do not replay the update: {left:.3g} roundings are left, {REPLAY:g} may be")
    for cell, salt in zip(cells, salts, strict=True):
        i, c, what = cell["record"], names.index(cell["column"]), f"{cell['column']!r} of record {cell['record']}"
        same = commitment(certificate, salt, i, names[c], records[i]["cells"][c]) == cell["commitment"]
        ensure(same and len(bytes.fromhex(salt)) >= 16, f"{what} is not what was committed to under these conditions")
        ensure(bool(least[i, c] > ROUNDINGS), f"{what} is not unique: {least[i, c]:.3g} roundings by another value")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check what the command line names, print the outcome, and return 0: accepted, 1: refused, 2: wrong use."""
    parser = argparse.ArgumentParser("verify", description=(__doc__ or "").partition("\n")[0])
    for name in ("certificate", "update", "model", "--opened"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--allow-code", action="store_true", help="run the Python file that the model names")
    given = parser.parse_args(arguments)
    try:
        certificate = json.loads(given.certificate.read_bytes())
        opened = json.loads(given.opened.read_bytes()) if given.opened else certificate.get("opened")
        update, network = read_tensors(given.update), read_network(given.model, given.allow_code)
        check_form(certificate, update, network)
        if opened is not None:
            check_opened(certificate, opened, update, network)
    except OSError as error:
        print(f"WRONG USE: {error}")
        return 2
    except Exception as error:  # Whatever a forged file breaks is a refusal.
        print(f"REFUSED: {error if type(error) is ValueError else f'a file is damaged or altered ({error!r})'}")
        return 1
    conditions, form = certificate["conditions"], "digests, conditions and form agree; no cell was opened or replayed"
    shown = f"replay of {conditions['records']} records, uniqueness of {len(certificate['cells'])} cells"
    print(f"NOT VERIFIED, FORM ONLY: {form}." if opened is None else f"VERIFIED: {shown}.")
    if conditions["records"] < conditions["multiple_of"]:
        print("Only a part of the batch was read: its replay cannot be checked, even with its cells opened.")
    print(f"Conditions: {json.dumps({**certificate['recipe'], **conditions})}; the errors of the other records.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
