"""Certificates of proved cells as files, and their check: the kernel's, on what the verifier brings.

Update, network and declaration are the verifier's own. Of the files only the witness is used: the cells and labels of
the records. What else they say is compared.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seepage.kernel import ROUNDINGS, Certified, Declaration, RefusedError, certify

FORMAT, OPENED_FORMAT = "seepage certificate 2", "seepage opened cells 2"
# Characters of a reason that a file can have put there.
_LONGEST = 300
# Bytes of a file beside its header and cells, of a cell beside its column's name and value, and of a character.
_BESIDE, _OF_A_CELL, _OF_A_CHARACTER = 2**20, 1_000, 12
# Fields of a certified cell, and of an opened record.
_OF_CELL, _OF_RECORD = {"record", "column", "given", "commitment"}, {"cells", "label"}


class CheckedCertificate(NamedTuple):
    """Outcome of a check that refused nothing; the kernel's proof is None where no cells were opened.

    Of the claimed cells ``verified`` are proved, and ``given`` only given what the proof names.
    """

    cells: int
    verified: int = 0
    given: int = 0
    proof: Certified | None = None


def ensure(true: bool, otherwise: str) -> None:
    """Refuse where something does not hold."""
    if not true:
        raise RefusedError(otherwise)


def digest_of(value: object) -> str:
    """Return the SHA-256 of a JSON value, written without spaces and with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors: of each, in the order of names, its name, type, shape and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        kind, shape = str(tensor.dtype).removeprefix("torch."), "x".join(map(str, tensor.shape))
        digest.update(f"{name}\0{kind}\0{shape}\0".encode() + bytes(tensor.reshape(-1).view(torch.uint8).tolist()))
    return digest.hexdigest()


def header(message: Mapping[str, Tensor], parameters: Mapping[str, Tensor], declared: Declaration) -> dict[str, Any]:
    """Return what a certificate is of, as plain values: digests of update and weights, and the declaration."""
    plain = declared._asdict() | {"roundings": ROUNDINGS, "order": [column.name for column in declared.columns]}
    plain["columns"] = {column.name: column._asdict() for column in declared.columns}
    ours = {"update": tensors_digest(message), "weights": tensors_digest(parameters), "declared": plain}
    return json.loads(json.dumps({"format": FORMAT, **ours}))


def commitment(head: str, salt: str, place: list[object], value: object) -> str:
    """Return the commitment to a cell; its place is record, column, and whether it is certified only as given."""
    return digest_of([head, salt, place, value])


def check(
    certificate: Path, opened: Path | None, module: nn.Module, parameters: Mapping[str, Tensor],
    message: Mapping[str, Tensor], declared: Declaration, classes: int,
) -> CheckedCertificate:  # fmt: skip
    """Check a certificate, with opened cells of a file or, if None, of the certificate itself, if any.

    Network, parameters, message and declaration are the verifier's own; a number as target has 0 classes.

    Raises:
        RefusedError: the certificate is of something else, or claims what is not proved; the message is the reason.
        OSError: a file cannot be read.
    """
    ours = header(message, parameters, declared)
    most = largest_file(ours, declared)
    try:
        said = _read(certificate, most)
        ensure(said.get("format") == FORMAT, f"this is no {FORMAT!r}")
        for difference in _differences({k: v for k, v in said.items() if k not in ("cells", "opened")}, ours):
            raise RefusedError(difference)
        ensure(all(cell.keys() == _OF_CELL for cell in said["cells"]), "a cell has other fields than it should")
        claims = [(cell["record"], cell["column"], cell["given"]) for cell in said["cells"]]
        commitments = [cell["commitment"] for cell in said["cells"]]
        _check_claims(claims, commitments, declared)
        shown = said.get("opened") if opened is None else _read(opened, most)
        if shown is None:
            return CheckedCertificate(declared.records * len(declared.columns))
        ensure(shown["format"] == OPENED_FORMAT and len(shown) == 3, f"the opened cells are no {OPENED_FORMAT!r}")
        cells, labels = _witness(shown["records"], declared, classes)
        head, names = digest_of(ours), ours["declared"]["order"]
        for place, salt, expected in zip(claims, shown["salts"], commitments, strict=True):
            value = shown["records"][place[0]]["cells"][names.index(place[1])]
            same = len(bytes.fromhex(salt)) >= 16 and commitment(head, salt, [*place], value) == expected
            ensure(same, f"{place[1]!r} of record {place[0] + 1} is not what was committed to")
    except RefusedError:
        raise
    except MemoryError as error:
        raise RefusedError("a file needs more memory than there is") from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Whatever a forged file breaks.
        raise RefusedError(f"a file is damaged or altered ({str(error)[:_LONGEST]})") from error
    proof = certify(module, parameters, message, declared, cells, labels)
    ensure(proof.doubt is None, str(proof.doubt))
    for record, name, given in claims:
        i, c, what = record, names.index(name), f"{name!r} of record {record + 1}"
        ensure(bool(proof.cells[i, c] | proof.given[i, c]), f"{what} is not proved: it may be another value")
        if not given:
            ensure(bool(proof.cells[i, c]), f"{what} is proved only given that {' and '.join(proof.fixed)}")
    given = sum(not bool(proof.cells[i, names.index(name)]) for i, name, _ in claims)
    return CheckedCertificate(cells.numel(), len(claims) - given, given, proof)


def largest_file(ours: Mapping[str, Any], declared: Declaration) -> int:
    """Return how many bytes a certificate of a declaration may have, indented and with its cells opened."""
    names = [
        max((len(str(one)) for one in column.categories or ()), default=0) + 2 * len(column.name)
        for column in declared.columns
    ]
    cells = declared.records * sum(_OF_A_CELL + _OF_A_CHARACTER * size for size in names)
    return _BESIDE + 4 * len(json.dumps(ours, indent=1)) + cells


def _read(path: Path, most: int) -> dict[str, Any]:
    """Return a JSON object of at most some bytes; each key stands in it once, and every number is finite."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        ensure(len({key for key, _ in pairs}) == len(pairs), f"{path.name!r} has a key twice")
        return dict(pairs)

    def finite(text: str) -> float:
        ensure(math.isfinite(float(text)), f"{path.name!r} holds {text[:_LONGEST]}, which is no finite number")
        return float(text)

    # Pipes and devices need not come to an end.
    ensure(path.is_file() or not path.exists(), f"{path.name!r} is no file on a disk")
    with path.open("rb") as file:
        raw = file.read(most + 1)
    ensure(len(raw) <= most, f"{path.name!r} has more than {most:,} bytes, the most that your declaration needs")
    found = json.loads(raw, object_pairs_hook=once, parse_float=finite, parse_constant=finite)
    ensure(isinstance(found, dict), f"{path.name!r} is no JSON object")
    return found


def _differences(said: object, ours: object, where: str = "") -> Iterator[str]:
    """Return where the certificate's words differ from the verifier's own, as clauses."""
    if isinstance(said, dict) and isinstance(ours, dict):
        for key in [*ours, *(said.keys() - ours)]:
            yield from _differences(said.get(key), ours.get(key), f"{where}.{key}".removeprefix("."))
    elif digest_of(said) != digest_of(ours):
        texts = (json.dumps(words)[: _LONGEST // 4] for words in (said, ours))
        yield "{} is {} in the certificate, and {} by your own files and declaration".format(where, *texts)


def _check_claims(claims: list[tuple[object, object, object]], commitments: list[str], declared: Declaration) -> None:
    names = {column.name for column in declared.columns}
    known = all(type(i) is int and 0 <= i < declared.records and name in names for i, name, _ in claims)
    known &= all(type(given) is bool for *_, given in claims)
    known &= all(re.fullmatch("[0-9a-f]{64}", text) is not None for text in commitments)
    once = len({(i, name) for i, name, _ in claims}) == len(claims) > 0
    ensure(known and once, "no cell is certified, one is twice, or one has another form")


def _witness(records: list[Any], declared: Declaration, classes: int) -> tuple[Tensor, Tensor]:
    """Return opened records as the kernel takes them."""

    def number(value: float | int, low: float = -math.inf, high: float = math.inf) -> float:
        ensure(type(value) in (int, float) and low <= value <= high, "a cell or label is no value of its column")
        ensure(float(value) == value, "a cell or label has more digits than a number in double precision")
        return float(value)

    cells, labels = [], []
    for record in records:
        ensure(record.keys() == _OF_RECORD, "an opened record has other fields than it should")
        row = []
        for column, value in zip(declared.columns, record["cells"], strict=True):
            if column.categories is None:
                row.append(number(value))
            else:
                row.append([(type(x), x) for x in column.categories].index((type(value), value)))
        cells.append(row)
        label = number(record["label"], *((0.0, classes - 1.0) if classes else declared.target))
        ensure(not classes or label.is_integer(), "a label is no class")
        labels.append(label)
    ensure(len(cells) == declared.records, f"{len(cells)} of {declared.records} records were opened")
    return torch.tensor(cells, dtype=torch.float64).reshape(len(cells), -1), torch.tensor(labels, dtype=torch.float64)
