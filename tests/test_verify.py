"""The verifier accepts true certificates and refuses forged ones, whatever the prover's files say."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from seepage import verify
from seepage.kernel import Certified, Declaration, EncodedColumn, RefusedError, certify
from seepage.seeds import seeded

COLUMNS = (
    EncodedColumn("age", (40.0,), (12.0,), None, 17.0, 90.0, 2.5, True),
    EncodedColumn("colour", (0.3, 0.4, 0.3), (0.5, 0.5, 0.5), ("red", 2, True)),
    EncodedColumn("weight", (70.0,), (9.5,), None, 40.0, 140.0, 1.5),
    EncodedColumn("ill", (0.5, 0.5), (0.5, 0.5), ("no", "yes")),
)
COLUMN_NAMES = [column.name for column in COLUMNS]
RECORDS = [
    {"cells": [31, "red", 61.25, "no"], "label": 0},
    {"cells": [57, 2, 88.5, "yes"], "label": 1},
    {"cells": [44, True, 70.75, "no"], "label": 1},
    {"cells": [23, 2, 54.125, "yes"], "label": 0},
]


def rows_of(records: list[dict[str, Any]], columns: Sequence[EncodedColumn] = COLUMNS) -> Tensor:
    """Return rows as a client encodes them, in float32."""
    rows = []
    for record in records:
        row: list[float] = []
        for column, cell in zip(columns, record["cells"], strict=True):
            raw = [cell] if column.categories is None else [float(cell is one) for one in column.categories]
            row += [(x - m) / s for x, m, s in zip(raw, column.mean, column.scale, strict=True)]
        rows.append(row)
    return torch.tensor(rows)


def network(outputs: int = 2, activation: type[nn.Module] = nn.ReLU, width: int = 32) -> nn.Sequential:
    def build() -> nn.Sequential:
        last = nn.Linear(width, 24), activation(), nn.Linear(24, outputs)
        return nn.Sequential(nn.Linear(7, width), activation(), *last)

    return seeded(build, 3)


def loss(head: str, outputs: Tensor, labels: Tensor) -> Tensor:
    if head == "softmax":
        return nn.functional.cross_entropy(outputs, labels.long())
    if head == "sigmoid":
        return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels)
    return nn.functional.mse_loss(outputs[:, 0], labels)


@dataclass
class Case:
    """What the verifier brings, and the prover's files."""

    folder: Path
    module: nn.Module
    message: dict[str, Tensor]
    declared: Declaration
    head: dict[str, Any]
    records: list[Any]
    cells: list[dict[str, Any]]
    salts: list[str]

    @property
    def parameters(self) -> dict[str, Tensor]:
        return {name: part.detach() for name, part in self.module.named_parameters()}

    def of(self, message: dict[str, Tensor] | None = None, **declared: Any) -> None:
        """Let the prover certify another message, or by another declaration."""
        made = self.declared._replace(**declared)
        self.head = verify.header(self.message if message is None else message, self.parameters, made)
        self.claim(self.records)

    def claim(self, records: list[Any], given: bool = False) -> None:
        """Claim all cells of some records, and commit to them."""
        self.records, names, digest = records, self.head["declared"]["order"], verify.digest_of(self.head)
        places = [[i, name, given] for i in range(len(records)) for name in names]
        self.salts = [f"{i:064x}" for i in range(len(places))]
        self.cells = []
        for place, salt in zip(places, self.salts, strict=True):
            value = records[place[0]]["cells"][names.index(place[1])]
            commitment = verify.commitment(digest, salt, place, value)
            self.cells.append({"record": place[0], "column": place[1], "given": given, "commitment": commitment})

    def prove(self) -> Certified:
        """Claim what the kernel proves of the records that the prover has now, as an honest prover does."""
        codes = [
            [
                x if c.categories is None else [*map(str, c.categories)].index(str(x))
                for c, x in zip(COLUMNS, one["cells"], strict=True)
            ]
            for one in self.records
        ]
        labels = torch.tensor([float(one["label"]) for one in self.records])
        proof = certify(self.module, self.parameters, self.message, self.declared, torch.tensor(codes).double(), labels)
        digest, names = verify.digest_of(self.head), self.head["declared"]["order"]
        self.cells, self.salts = [], []
        for i, c in (proof.cells | proof.given).nonzero().tolist():
            place, salt = [i, names[c], bool(proof.given[i, c])], f"{i:032x}{c:032x}"
            made = verify.commitment(digest, salt, place, self.records[i]["cells"][c])
            self.cells.append({"record": i, "column": names[c], "given": place[2], "commitment": made})
            self.salts.append(salt)
        return proof

    def write(self) -> tuple[Path, Path]:
        proof, opened = self.folder / "proof.json", self.folder / "opened.json"
        proof.write_text(json.dumps({**self.head, "cells": self.cells}))
        opened.write_text(json.dumps({"format": verify.OPENED_FORMAT, "records": self.records, "salts": self.salts}))
        return proof, opened

    def read(self, proof: Path, opened: Path | None) -> verify.CheckedCertificate:
        classes = 0 if self.declared.head == "regression" else 2
        return verify.check(proof, opened, self.module, self.parameters, self.message, self.declared, classes)

    def check(self) -> verify.CheckedCertificate:
        return self.read(*self.write())

    def refused(self) -> str:
        with pytest.raises(RefusedError) as caught:
            self.check()
        return str(caught.value)


def case(
    folder: Path,
    head: str = "softmax",
    module: nn.Module | None = None,
    records: list[Any] = RECORDS,
    epochs: int = 0,
    rate: float = 0.5,
    columns: tuple[EncodedColumn, ...] = COLUMNS,
) -> Case:
    """Train as a client does, in float32, and certify all cells of all records."""
    module = network(2 if head == "softmax" else 1) if module is None else module
    rows, labels = rows_of(records, columns), torch.tensor([float(one["label"]) for one in records])
    start = {name: part.detach().clone() for name, part in module.named_parameters()}
    now, message = start, dict[str, Tensor]()
    for _ in range(max(1, epochs)):
        now = {name: part.detach().requires_grad_() for name, part in now.items()}
        outputs = torch.func.functional_call(module, now, (rows,))
        found = dict(zip(now, torch.autograd.grad(loss(head, outputs, labels), list(now.values())), strict=True))
        now = {name: part.detach() - rate * found[name] for name, part in now.items()}
        message = {name: start[name] - now[name] for name in now} if epochs else found
    declared = Declaration(columns, len(records), head, (0.0, 1.0), max(1, epochs), rate if epochs else None)
    made = Case(folder, module, message, declared, {}, json.loads(json.dumps(records)), [], [])
    made.of()
    return made


# Every head, and every activation; all pairs are slow.
PAIRS = [(nn.ReLU, "softmax"), (nn.GELU, "sigmoid"), (nn.Tanh, "regression"), (nn.SiLU, "softmax")]
EVERY = list(itertools.product([nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU], ["softmax", "sigmoid", "regression"]))


@pytest.mark.parametrize(
    ("activation", "head"), [*PAIRS, *(pytest.param(*one, marks=pytest.mark.slow) for one in EVERY if one not in PAIRS)]
)
def test_true_certificates_are_verified(tmp_path: Path, head: str, activation: type[nn.Module]) -> None:
    made = case(tmp_path, head, network(2 if head == "softmax" else 1, activation))
    verdict = made.check()
    assert (verdict.cells, verdict.verified, verdict.given) == (16, 16, 0)
    assert verdict.proof is not None
    assert verdict.proof.conditions == made.declared.describe()


def test_local_steps_are_replayed_as_declared(tmp_path: Path) -> None:
    made = case(tmp_path, module=network(width=128), epochs=2, rate=0.05)
    proof = made.prove()
    verdict = made.check()
    assert verdict.verified == 0
    assert verdict.given == len(made.cells) == int(proof.given.sum()) > 0
    # A prover who does not say that they hold only so is refused.
    made.claim(made.records)
    keep = [i for i, cell in enumerate(made.cells) if proof.given[cell["record"], COLUMN_NAMES.index(cell["column"])]]
    made.cells, made.salts = [made.cells[i] for i in keep], [made.salts[i] for i in keep]
    assert f"proved only given that {proof.fixed[0]}" in made.refused()
    made.declared = made.declared._replace(steps=3)
    assert "declared.steps is 2 in the certificate, and 3" in made.refused()
    made.of()
    assert "do not replay" in made.refused()


def test_without_opened_cells_nothing_is_verified(tmp_path: Path) -> None:
    made = case(tmp_path)
    proof, opened = made.write()
    assert made.read(proof, None) == verify.CheckedCertificate(16)
    proof.write_text(json.dumps({**json.loads(proof.read_text()), "opened": json.loads(opened.read_text())}))
    assert made.read(proof, None).verified == 16


def swap_categories(made: Case) -> None:
    colour = COLUMNS[1]._replace(categories=(2, "red", True))
    for record in made.records:
        record["cells"][1] = {"red": 2, 2: "red"}.get(record["cells"][1], True)
    made.of(columns=(COLUMNS[0], colour, *COLUMNS[2:]))


def shift_number(made: Case) -> None:
    for record in made.records:
        record["cells"][2] += 20
    made.of(columns=(*COLUMNS[:2], COLUMNS[2]._replace(mean=(90.0,)), COLUMNS[3]))


def stretch_number(made: Case) -> None:
    for record in made.records:
        record["cells"][2] *= 3
    made.of(columns=(*COLUMNS[:2], COLUMNS[2]._replace(mean=(210.0,), scale=(28.5,), high=420.0), COLUMNS[3]))


def swap_names(made: Case) -> None:
    age, weight = COLUMNS[0]._replace(name="weight"), COLUMNS[2]._replace(name="age")
    made.of(columns=(age, COLUMNS[1], weight, COLUMNS[3]))


def order_only(made: Case) -> None:
    made.head["declared"]["order"].reverse()
    made.claim([{**one, "cells": one["cells"][::-1]} for one in made.records])


def no_tolerance(made: Case) -> None:
    made.of(columns=(*COLUMNS[:2], COLUMNS[2]._replace(tolerance=0.0), COLUMNS[3]))


def any_tolerance(made: Case) -> None:
    made.of(columns=(*COLUMNS[:2], COLUMNS[2]._replace(tolerance=1e9), COLUMNS[3]))


def hundred_copies(made: Case) -> None:
    made.records *= 100
    made.of(records=400)


def other_head(made: Case) -> None:
    made.of(head="sigmoid")


def other_precision(made: Case) -> None:
    made.of(precision="float64")


def more_roundings(made: Case) -> None:
    made.head["declared"]["roundings"] = 1e9
    made.claim(made.records)


def another_key(made: Case) -> None:
    made.head["declared"]["note"] = "trust me"
    made.claim(made.records)


def other_message(made: Case) -> None:
    made.of({name: 2 * part for name, part in made.message.items()})


def other_parameters(made: Case) -> None:
    with torch.no_grad():
        next(made.module.parameters()).mul_(1.001)


def other_parameters_and_digest(made: Case) -> None:
    other_parameters(made)
    made.of()


def swap_cells(made: Case) -> None:
    """The verifier's own header, but with the two categories swapped in the records alone."""
    for record in made.records:
        record["cells"][1] = {"red": 2, 2: "red"}.get(record["cells"][1], True)
    made.of()


def shift_cells(made: Case) -> None:
    for record in made.records:
        record["cells"][2] += 20
    made.of()


def change_label(made: Case) -> None:
    made.records[0]["label"] = 1


def no_class(made: Case) -> None:
    made.records[0]["label"] = 2


def label_between(made: Case) -> None:
    made.records[0]["label"] = 0.5


def leave_record_out(made: Case) -> None:
    made.records.pop()
    made.claim(made.records)


def leave_record_out_of_opened(made: Case) -> None:
    made.records.pop()


def record_twice(made: Case) -> None:
    made.claim([*made.records, made.records[0]])


def change_cell_below_rounding(made: Case) -> None:
    made.records[0]["cells"][2] += 1e-9


def unknown_category(made: Case) -> None:
    made.records[0]["cells"][1] = 1
    made.claim(made.records)


def equal_category_of_another_type(made: Case) -> None:
    made.records[2]["cells"][1] = 2.0
    made.claim(made.records)


def change_salt(made: Case) -> None:
    made.salts[3] = "ab" * 32


def guessable_salts(made: Case) -> None:
    made.salts = ["00"] * 16


def no_cells(made: Case) -> None:
    made.cells, made.salts = [], []


def cell_twice(made: Case) -> None:
    made.cells[1] = made.cells[0]


def cell_of_no_record(made: Case) -> None:
    made.cells[0]["record"] = -1


def words_beside_a_cell(made: Case) -> None:
    made.cells[0]["value"] = "a lie"


def words_beside_a_record(made: Case) -> None:
    made.records[0]["name"] = "Jane Doe"


def more_digits_than_are_compared(made: Case) -> None:
    made.records[0]["cells"][0] = 2**53 + 1
    made.claim(made.records)


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (words_beside_a_cell, "a cell has other fields"),
        (words_beside_a_record, "record has other fields"),
        (more_digits_than_are_compared, "more digits"),
        (swap_categories, "declared.columns.colour.categories is"),
        (shift_number, "declared.columns.weight.mean is [90.0] in the certificate, and [70.0] by your own"),
        (stretch_number, "declared.columns.weight.mean is [210.0]"),
        (swap_names, "declared.columns.age"),
        (order_only, "declared.order"),
        (no_tolerance, "declared.columns.weight.tolerance is 0.0 in the certificate, and 1.5"),
        (any_tolerance, "declared.columns.weight.tolerance is 1000000000.0 in the certificate, and 1.5"),
        (hundred_copies, "declared.records is 400 in the certificate, and 4 by your own"),
        (other_head, "declared.head"),
        (other_precision, "declared.precision"),
        (more_roundings, "declared.roundings"),
        (another_key, "declared.note"),
        (other_message, "update is"),
        (other_parameters, "weights is"),
        (other_parameters_and_digest, "do not replay"),
        (swap_cells, "do not replay"),
        (shift_cells, "do not replay"),
        (change_label, "do not replay"),
        (no_class, "no value of its column"),
        (label_between, "no class"),
        (leave_record_out, "3 of 4 records"),
        (leave_record_out_of_opened, "3 of 4 records were opened"),
        (record_twice, "another form"),
        (change_cell_below_rounding, "not what was committed"),
        (unknown_category, "damaged or altered"),
        (equal_category_of_another_type, "damaged or altered"),
        (change_salt, "not what was committed"),
        (guessable_salts, "not what was committed"),
        (no_cells, "no cell"),
        (cell_twice, "twice"),
        (cell_of_no_record, "form"),
    ],
)
def test_forged_certificates_are_refused(tmp_path: Path, forge: Callable[[Case], None], why: str) -> None:
    made = case(tmp_path)
    forge(made)
    assert why in made.refused()


def test_copies_of_a_batch_are_not_verified_by_a_verifier_who_was_told_them(tmp_path: Path) -> None:
    made = case(tmp_path)
    made.declared = made.declared._replace(records=8)
    made.records *= 2
    made.of()
    assert made.refused()
    assert not bool(made.prove().cells.any())


def test_two_records_are_not_verified_as_copies_of_their_mean(tmp_path: Path) -> None:
    """The network does not read the age, so that both have the same errors, and their mean twice the same message."""
    module = network()
    with torch.no_grad():
        next(module.parameters())[:, 0] = 0.0
    pair = [{"cells": [age, "red", 61.25, "no"], "label": 0} for age in (30, 36)]
    made = case(tmp_path, module=module, records=[*pair, *RECORDS[1:3]])
    true = made.records
    mean = {"cells": [33, "red", 61.25, "no"], "label": 0}
    for records in (true, [mean, mean, *true[2:]]):
        made.claim(records)
        # Both replay the message. Which of them it is holds only given that no two errors are alike, and here two are.
        assert "do not replay" not in made.refused()
        proof = made.prove()
        assert not bool(proof.cells.any())
        assert made.check().verified == 0


class Clipped(nn.Module):
    """A network that cuts one number of a row off above a bound which ordinary rows do not reach."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.layers = network()
        self.bounds = torch.tensor([math.inf] * 4 + [bound] + [math.inf] * 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(torch.minimum(rows, self.bounds))


def test_a_number_that_the_network_cuts_off_is_not_verified(tmp_path: Path) -> None:
    high = [*RECORDS[:3], {"cells": [23, 2, 130.0, "yes"], "label": 0}]
    bound = (110.0 - 70.0) / 9.5
    made = case(tmp_path, module=Clipped(bound), records=high)
    # The certificate of the bound itself replays the same message.
    made.claim([*RECORDS[:3], {"cells": [23, 2, 110.0, "yes"], "label": 0}])
    assert made.refused()
    without = case(tmp_path, module=Clipped(bound).layers, records=high)
    assert without.check().verified == 16


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_message_of_sixteen_bits_is_not_verified(tmp_path: Path, kind: torch.dtype) -> None:
    made = case(tmp_path)
    made.message = {name: part.to(kind).float() for name, part in made.message.items()}
    made.of()
    assert made.refused()


def test_a_defense_that_the_verifier_declares_verifies_nothing(tmp_path: Path) -> None:
    made = case(tmp_path)
    made.declared = made.declared._replace(defense="clipping")
    made.of()
    assert "clipping" in made.refused()


@pytest.mark.parametrize("name", ["proof.json", "opened.json"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_truncated_files_are_refused(tmp_path: Path, name: str, share: float) -> None:
    made = case(tmp_path)
    files = made.write()
    raw = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(RefusedError):
        made.read(*files)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format":' * 50_000,
        "[]",
        "null",
        "NaN",
        '{"format": NaN}',
        '{"format": Infinity}',
        '{"format": 1e999}',
        '{"format": ' + "9" * 10_000 + "}",
        '{"format": "a", "format": "b"}',
        '{"format": "seepage certificate 2", "cells": 3}',
        '{"format": "seepage certificate 2", "cells": [[1]]}',
        "\ufeff{}",
    ],
)
@pytest.mark.parametrize("name", ["proof.json", "opened.json"])
def test_hostile_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    made = case(tmp_path)
    files = made.write()
    (tmp_path / name).write_text(text)
    with pytest.raises(RefusedError) as caught:
        made.read(*files)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["proof.json", "opened.json"])
def test_a_file_is_read_up_to_what_the_declaration_needs(tmp_path: Path, name: str) -> None:
    made = case(tmp_path)
    files = made.write()
    most, text = verify.largest_file(made.head, made.declared), (tmp_path / name).read_text()
    (tmp_path / name).write_text(text + " " * (most - len(text)))
    assert made.read(*files).verified
    (tmp_path / name).write_text(text + " " * (most - len(text) + 1))
    with pytest.raises(RefusedError, match="the most that your declaration needs"):
        made.read(*files)
    # A file of 8 GB without blocks on the disk takes no memory.
    with (tmp_path / name).open("r+b") as file:
        file.truncate(2**33)
    with pytest.raises(RefusedError, match="the most that your declaration needs"):
        made.read(*files)


@given(st.text(min_size=1, max_size=40), st.lists(st.text(max_size=60), min_size=1, max_size=5, unique=True))
def test_a_true_certificate_is_never_too_large(name: str, categories: list[str]) -> None:
    column = EncodedColumn(name, (0.1,) * len(categories), (0.3,) * len(categories), tuple(categories))
    number = EncodedColumn(name + "x", (1 / 3,), (1 / 7,), None, -1e300, 1e300, 1e-300)
    declared = Declaration((column, number), 5, "softmax")
    module = nn.Linear(len(categories) + 1, 2)
    at = dict(module.named_parameters())
    head = verify.header(at, at, declared)
    longest = max(categories, key=lambda text: len(json.dumps(text)))
    records = [{"cells": [longest, -1.7976931348623157e308], "label": -1.7976931348623157e308}] * 5
    claims = [
        {"record": 4, "column": one.name, "given": False, "commitment": "f" * 64}
        for one in (column, number)
        for _ in range(5)
    ]
    shown = {"format": verify.OPENED_FORMAT, "records": records, "salts": ["f" * 64] * 10}
    text = json.dumps({**head, "cells": claims, "opened": shown}, indent=1)
    assert len(text.encode()) <= verify.largest_file(head, declared)


def test_a_lack_of_memory_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = case(tmp_path)
    files = made.write()

    usual = json.loads

    def none_left(text: str | bytes, **how: Any) -> object:
        if isinstance(text, bytes):
            raise MemoryError
        return usual(text, **how)

    monkeypatch.setattr(verify.json, "loads", none_left)
    with pytest.raises(RefusedError, match="more memory than there is"):
        made.read(*files)


@pytest.mark.parametrize("value", ["NaN", "1e999", "1" * 400, "1e308", "-1e308", "null", '"31"', "true", "[31]", "{}"])
def test_hostile_cells_are_refused(tmp_path: Path, value: str) -> None:
    made = case(tmp_path)
    for where in ("cells", "label"):
        made.claim(json.loads(json.dumps(RECORDS)))
        proof, opened = made.write()
        text = opened.read_text()
        before, after = (
            ('"cells": [31,', f'"cells": [{value},') if where == "cells" else ('"label": 0', f'"label": {value}')
        )
        assert before in text
        opened.write_text(text.replace(before, after, 1))
        with pytest.raises(RefusedError):
            made.read(proof, opened)


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return each container of a JSON value with the key of each plain value in it."""
    for key, part in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        if isinstance(part, dict | list):
            yield from leaves(part)
        else:
            yield value, key


def test_no_single_value_can_be_edited(tmp_path: Path) -> None:
    made = case(tmp_path)
    edited = 0
    change = {bool: lambda x: not x, str: lambda x: x + "0", type(None): lambda _: 1}
    for container, key in [
        part for whole in (made.head, made.cells, made.records, made.salts) for part in leaves(whole)
    ]:
        before = container[key]
        container[key] = change.get(type(before), lambda x: x + 1)(before)
        assert made.refused(), (key, before)
        container[key] = before
        edited += 1
    assert edited > 100
    assert made.check().verified == 16


def test_a_record_that_activates_no_unit_is_not_verified(tmp_path: Path) -> None:
    """Whatever its cells are, its message is the same."""
    module = network()
    with torch.no_grad():
        weight, first, *_ = module.parameters()
        weight[:, 1:] = 0.0
        weight[:, :1].abs_()
        # Only the youngest is silent.
        first.copy_(-weight[:, 0] * float(rows_of(RECORDS)[:, 0].sort().values[:2].mean()))
    assert case(tmp_path, module=module).refused()


def test_files_that_are_not_there_are_wrong_use(tmp_path: Path) -> None:
    made = case(tmp_path)
    proof, opened = made.write()
    proof.unlink()
    with pytest.raises(OSError, match="proof"):
        made.read(proof, opened)
