"""Certificates of split learning: planted cells are certified right, and every forgery certifies nothing."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import math
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage import kernel
from seepage.kernel import Certified, Declaration, EncodedColumn, certify_cut, cuts
from seepage.kernel.operations import Ball
from seepage.seeds import seeded

COLUMNS = (
    EncodedColumn("a", (0.0,), (1.0,), ("x", "y", "z")),
    EncodedColumn("b", (0.0,), (1.0,), ("no", "yes")),
    EncodedColumn("n", (0.0,), (4.0,), None, 0.0, 4.0, 0.0, True),
)
SIZES = (3, 2, 5)
CUT, RECORDS = 4, 60


class Client(nn.Module):
    """A client part with a table of embeddings, a layer and logits."""

    def __init__(self, outputs: int = 3, bend: nn.Module | None = None) -> None:
        super().__init__()
        self.table, self.bend = nn.Embedding(3, 4), bend or nn.ReLU(inplace=True)
        self.first, self.last = nn.Linear(CUT + 6, 24), nn.Linear(24, outputs)

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        """Return the logits."""
        entries = torch.cat([cut, self.table(cells[:, 0].long()), cells[:, 1:]], 1)
        return self.last(self.bend(self.first(entries)))


def setting(head: str = "softmax", bend: nn.Module | None = None, seed: int = 0) -> SimpleNamespace:
    """Return a client, what it received and holds, and its plain answer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # noqa: TID251 - layers draw from it, within a fork
        client = Client(3 if head == "softmax" else 1, bend)
        sent = torch.randn(RECORDS, CUT)
        codes = torch.stack([torch.randint(size, (RECORDS,)) for size in SIZES], 1)
        labels = torch.randint(3 if head == "softmax" else 2, (RECORDS,))
    made = SimpleNamespace(client=client, sent=sent, codes=codes, labels=labels, head=head)
    made.declared = Declaration(COLUMNS, RECORDS, head)
    return made


def returned(one: SimpleNamespace, client: nn.Module | None = None, smoothing: float = 0.0) -> Tensor:
    """Return the gradient of a mean cross-entropy by the activations, by autograd alone."""
    here = one.sent.clone().requires_grad_()
    cells = one.codes.float() / torch.tensor([1.0, 1.0, 4.0])
    outputs = (client or one.client)(here, cells)
    if one.head == "softmax":
        loss = nn.functional.cross_entropy(outputs, one.labels, label_smoothing=smoothing)
    elif one.head == "sigmoid":
        loss = nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], one.labels.float())
    else:
        loss = (outputs[:, 0] - one.labels).square().mean()
    return torch.autograd.grad(loss, here)[0]


def proof(one: SimpleNamespace, message: Tensor, behind: float = RECORDS, cells: Tensor | None = None) -> Certified:
    held = torch.full((RECORDS,), float(behind))
    witness = one.codes if cells is None else cells
    return certify_cut(one.client, one.sent, message, held, one.declared, witness.double())


@pytest.mark.parametrize("head", ["softmax", "sigmoid", "regression"])
@pytest.mark.parametrize("bend", [nn.ReLU(), nn.Tanh(), nn.GELU()])
def test_planted_cells_are_certified_and_no_wrong_witness_is(head: str, bend: nn.Module) -> None:
    one = setting(head, bend)
    found = proof(one, returned(one))
    assert found.doubt is None
    # Of a number as label the direction alone is used, which is the same for all values with the same active units.
    assert float(found.cells.double().mean()) > (0.7 if head == "regression" else 0.9)
    assert any("knows the client's part" in condition for condition in found.conditions)
    other = one.codes.clone()
    other[:, 1] = 1 - other[:, 1]
    wrong = proof(one, returned(one), cells=other)
    assert not wrong.cells[:, 1].any()
    assert torch.equal(wrong.cells[:, [0, 2]], found.cells[:, [0, 2]])


def test_what_other_values_replay_is_not_certified() -> None:
    one = setting()
    with torch.no_grad():
        one.client.table.weight[1] = one.client.table.weight[0]
    cells = proof(one, returned(one)).cells
    assert not cells[one.codes[:, 0] < 2, 0].any()
    assert bool(cells[one.codes[:, 0] == 2, 0].float().mean() > 0.8)
    assert float(cells[:, 1:].double().mean()) > 0.9


def test_the_set_of_what_replays_is_that_of_a_naive_search_in_double_precision() -> None:
    one = setting("sigmoid")
    message, cells = returned(one).double(), proof(one, returned(one)).cells
    client, every = copy.deepcopy(one.client).double(), [*itertools.product(*map(range, SIZES))]
    for r in range(20):
        near = []
        for codes, label in itertools.product(every, (0.0, 1.0)):
            here = one.sent[r : r + 1].double().requires_grad_()
            own = torch.tensor([codes]).double() / torch.tensor([1.0, 1.0, 4.0]).double()
            loss = nn.functional.binary_cross_entropy_with_logits(
                client(here, own)[:, 0], torch.tensor([label]).double()
            )
            off = (torch.autograd.grad(loss, here)[0][0] / RECORDS - message[r]).norm() / message[r].norm()
            near += [codes] if float(off) < 1e-6 else []
        for column in range(3):
            if len({codes[column] for codes in near}) != 1:
                assert not cells[r, column]


FORGERIES = {
    "half": lambda one, plain: returned(one).half().float(),
    "bfloat16": lambda one, plain: plain.bfloat16().float(),
    "int8": lambda one, plain: (plain / plain.abs().max() * 127).round() * plain.abs().max() / 127,
    "smoothed": lambda one, plain: returned(one, smoothing=0.1),
    "factor": lambda one, plain: plain * 1.001,
    "noise": lambda one, plain: plain * (1 + 1e-3 * torch.sin(torch.arange(CUT))),
    "mixed up": lambda one, plain: plain.roll(1, 0),
    "other weights": lambda one, plain: returned(one, setting(seed=7).client),
    "clipped": lambda one, plain: plain.clamp(-plain.abs().max() * 0.9, plain.abs().max() * 0.9),
    "four of sixty": lambda one, plain: plain * torch.where(torch.arange(RECORDS) < 4, 1.5, 1.0)[:, None],
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_message_that_is_not_as_declared_certifies_nothing_and_says_why(name: str) -> None:
    one = setting()
    found = proof(one, FORGERIES[name](one, returned(one)))
    assert not found.cells.any()
    assert found.doubt is not None
    why = {"half": "coarser grid", "bfloat16": "coarser grid", "clipped": "clipping"}
    assert why.get(name, "within rounding") in found.doubt


def test_a_declared_defense_precision_or_a_number_without_a_list_certifies_nothing() -> None:
    one, number = setting(), COLUMNS[2]._replace(integer=False)
    plain = one.declared
    for changed, why in (
        (plain._replace(defense="cut_noise"), "cut_noise"),
        (plain._replace(precision="bfloat16"), "bfloat16"),
        (plain._replace(columns=(*COLUMNS[:2], number)), "cannot be listed"),
    ):
        one.declared = changed
        found = proof(one, returned(one))
        assert not found.cells.any()
        assert why in (found.doubt or "")
    one.declared = plain
    assert not proof(one, returned(one), behind=RECORDS + 1).cells.any()


def test_a_number_is_certified_within_its_tolerance() -> None:
    one = setting()
    with torch.no_grad():
        one.client.first.weight[:, -1] = 0
    assert not proof(one, returned(one)).cells[:, 2].any()
    one.declared = one.declared._replace(columns=(*COLUMNS[:2], COLUMNS[2]._replace(tolerance=2.0)))
    middle = one.codes.clone()
    middle[:, 2] = 2
    assert float(proof(one, returned(one), cells=middle).cells[:, 2].double().mean()) > 0.9


@pytest.mark.parametrize(("kind", "low"), [(torch.float16, 2100), (torch.bfloat16, 270)])
def test_numbers_that_a_client_may_hold_in_16_bits_are_certified_only_within_what_these_lose(
    kind: torch.dtype, low: int
) -> None:
    one, high = setting(), low + 120

    def declare(tolerance: float = 0.0) -> None:
        number = COLUMNS[2]._replace(low=float(low), high=float(high), tolerance=tolerance)
        one.declared = one.declared._replace(columns=(*COLUMNS[:2], number))

    declare()
    with torch.no_grad():
        one.client.first.weight[:, -1] *= 8 / high
    true = torch.randint(low, high, (RECORDS,), generator=torch.Generator().manual_seed(0))
    one.codes[:, 2] = true.to(kind).long()
    assert int((one.codes[:, 2] - true).abs().max()) == 1
    found = proof(one, returned(one))
    assert not bool(found.cells[:, 2].any())
    assert bool(found.cells[:, :2].any())
    declare(tolerance=1.0)
    assert bool(proof(one, returned(one)).cells[:, 2].any())
    # A number that 16 bits do not hold shows that the column is held in more.
    declare()
    one.codes[:, 2] = true
    assert bool(proof(one, returned(one)).cells[:, 2].any())


def test_a_few_misfits_are_left_out_and_a_transcript_is_judged_as_one() -> None:
    one = setting()
    changed = returned(one)
    changed[:2] *= 1.5
    some = proof(one, changed)
    assert some.doubt is None
    assert not some.cells[:2].any()
    assert some.replayed is not None
    assert some.replayed[:2].tolist() == [0, 0]
    bad = proof(one, returned(one) * 1.5)
    both = kernel.joined([some, bad])
    assert not both.cells.any()
    assert "62 of 120" in (both.doubt or "")
    order = torch.tensor([5, -1])
    taken = some.take(order)
    assert torch.equal(taken.cells[0], some.cells[5])
    assert not taken.cells[1].any()


def test_an_operation_without_a_bound_and_a_client_that_draws_are_refused() -> None:
    for bend, doubt in ((nn.Softmax(1), "is not bounded"), (nn.Dropout(), "draws random numbers")):
        one = setting(bend=bend)
        found = proof(one, returned(one))
        assert not found.cells.any()
        assert doubt in (found.doubt or "")


class Centred(Client):
    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        return super().forward(cut, torch.cat([cells[:, :2], cells[:, 2:] - cells[:, 2:].mean(0)], 1))


class Sized(Client):
    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        return super().forward(cut * (2.0 if len(cut) == RECORDS else 1.0), cells)


class Halved(Client):
    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        return super().forward(cut, cells).half().to(cut.dtype)


class Counting(Client):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        self.runs += 1
        return super().forward(cut * float(self.runs > 1), cells)


class Typed(Client):
    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        return super().forward(cut * (2.0 if cut.dtype == torch.float32 else 1.0), cells)


class Normal(Client):
    def __init__(self) -> None:
        super().__init__(bend=nn.BatchNorm1d(24))


@pytest.mark.parametrize("made", [Centred, Sized, Halved, Counting, Normal])
def test_a_client_part_that_is_no_function_of_a_record_in_single_precision_is_refused(made: type[Client]) -> None:
    one = setting()
    one.client = seeded(made, 0)
    found = proof(one, returned(one))
    assert found.doubt is not None
    assert not found.cells.any()


def test_a_client_part_that_heeds_the_type_of_its_inputs_is_followed_as_the_client_runs_it() -> None:
    one = setting()
    one.client = seeded(Typed, 0)
    found = proof(one, returned(one))
    assert found.doubt is None
    assert float(found.cells.double().mean()) > 0.9
    other = one.codes.clone()
    other[:, 1] = 1 - other[:, 1]
    assert not proof(one, returned(one), cells=other).cells[:, 1].any()


class Cast(nn.Module):
    """Computes a part in half precision where a client does, and not in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.own = nn.Linear(CUT, 24), nn.Linear(24, 3), nn.Linear(1, 1)

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            lost = self.own(cells)
        return 4 * self.last(torch.tanh(self.first(cut))) + lost.to(cut.dtype) * torch.tensor([[1.0, 0.0, -1.0]])


class Threshold(nn.Module):
    """Asks whether a number is above a constant that has a value in single precision, and another in double."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(CUT + 1, 24), nn.Linear(24, 3)

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        above = (cells > torch.tensor([1 / 14], dtype=cells.dtype)).to(cut.dtype)
        return self.last(torch.tanh(self.first(torch.cat([cut, above], 1))))


class Falling(Threshold):
    """Has a softplus that falls at its threshold, so that another value of a flag makes up for another number."""

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        made = nn.functional.softplus(cells[:, :1] * 14, 1.0, 1.0) + (math.log(1 + math.e) - 1) * cells[:, 1:]
        return self.last(torch.tanh(self.first(torch.cat([cut, made], 1))))


class Underflowing(nn.Module):
    """Passes small gradients back through numbers that single precision rounds away."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(CUT - 1, 16), nn.Linear(16, 1)
        nn.init.constant_(self.last.bias, -69.0)

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        path = torch.relu((cut[:, 3:] + (2 * cells[:, :1] - 1) * 5) * 1e20) * 1e-20
        return self.last(torch.tanh(self.first(cut[:, :3]))) + path + cells[:, 1:]


def asked(client: nn.Module, columns: tuple[EncodedColumn, ...], cells: Tensor, witness: Tensor) -> Certified:
    """Return what is certified of records in the message of others."""
    records, head = len(cells), "sigmoid" if isinstance(client, Underflowing) else "softmax"
    sent = torch.randn(records, CUT, generator=torch.Generator().manual_seed(1))
    sent[:, 3] *= float(head == "softmax")
    scale = torch.tensor([one.scale[0] for one in columns]).double()
    here, labels = (
        sent.clone().requires_grad_(),
        (torch.arange(records) == 4 if head == "sigmoid" else torch.arange(records) % 3),
    )
    outputs = client(here, (cells.double() / scale).float())
    binary = nn.functional.binary_cross_entropy_with_logits
    loss = binary(outputs[:, 0], labels.float()) if head == "sigmoid" else nn.functional.cross_entropy(outputs, labels)
    [message] = torch.autograd.grad(loss, here)
    behind = torch.full((records,), float(records))
    return certify_cut(client, sent, message, behind, Declaration(columns, records, head), witness.double())


class Rare(nn.Module):
    """Asks of one value among many whether a number is above a constant that has it in double precision alone."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.table, self.rare = nn.Linear(2 * CUT, 3), nn.Embedding(1500, 1), nn.Embedding(1500, 1)
        with torch.no_grad():
            self.rare.weight.copy_(functional.one_hot(torch.tensor([1321]), 1500).T)

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        number, place = cells[:, :1], cells[:, 1].long()
        above = torch.where(number > torch.full_like(number, 0.1), 1.0, 0.0)
        found = self.table(place) + above * self.rare(place)
        return self.last(torch.tanh(torch.cat([cut, cut * found], 1)))


COUNT = EncodedColumn("count", (0.0,), (14.0,), None, 0.0, 14.0, 0.0, True)
FLAG = EncodedColumn("flag", (0.0,), (1.0,), ("no", "yes"))


@pytest.mark.parametrize(
    ("made", "columns", "cells", "others"),
    [
        (Threshold, (COUNT,), [[1], [5], [1], [5], [7], [1]], [[0], [5], [0], [5], [7], [0]]),
        (
            *(Falling, (COUNT, FLAG), [[1, 0], [2, 1], [1, 0], [0, 0], [2, 0], [1, 0]]),
            [[1, 1], [2, 1], [1, 1], [0, 0], [2, 0], [1, 1]],
        ),
        (
            *(Rare, (COUNT._replace(scale=(10.0,), high=1.0), COUNT._replace(scale=(1.0,), high=1499.0))),
            *([[1, 1321], [0, 17], [1, 99], [0, 300]], [[0, 1321], [0, 17], [1, 99], [0, 300]]),
        ),
        (
            *(Underflowing, (FLAG, COUNT._replace(scale=(1.0,), high=9.0))),
            *([[1, 0], [1, 2], [0, 3], [1, 4], [0, 1], [1, 3]], [[0, 5], [0, 7], [0, 3], [0, 9], [0, 1], [0, 8]]),
        ),
    ],
)
def test_what_single_precision_does_not_tell_apart_is_not_certified(
    made: type[nn.Module], columns: tuple[EncodedColumn, ...], cells: list[list[int]], others: list[list[int]]
) -> None:
    client = seeded(made, 0)
    true, witness = torch.tensor(cells), torch.tensor(others)
    assert not (asked(client, columns, true, witness).cells & (true != witness)).any()


def test_numbers_that_lose_digits_where_they_are_scaled_are_refused() -> None:
    client = seeded(Threshold, 0)
    date = COUNT._replace(low=20240101.0, high=20240131.0, mean=(20240101.0,), scale=(30.0,))
    cells = torch.tensor([[20240103], [20240107]])
    assert "may lose digits" in (asked(client, (date,), cells, cells).doubt or "")


def test_a_part_in_half_precision_is_refused() -> None:
    client = seeded(Cast, 0)
    cells = torch.arange(6)[:, None]
    assert "another precision" in (asked(client, (COUNT,), cells, cells).doubt or "")


def test_the_radius_of_a_multiple_is_a_multiple() -> None:
    one = Ball(torch.tensor([1.0]).double(), torch.tensor([0.1]).double())
    assert float(one.plus(one, -3.0).rad) == pytest.approx(0.4)


def test_bounds_hold_what_single_precision_does_and_are_not_loose() -> None:
    for bend in (nn.ReLU(), nn.Tanh(), nn.GELU(), nn.SiLU(), nn.ELU(), nn.Softplus(), nn.LayerNorm(24)):
        one = setting(bend=bend)
        cells = one.codes.float() / torch.tensor([1.0, 1.0, 4.0])

        client = copy.deepcopy(one.client).requires_grad_(False)
        bounds = cuts.followed(client, (CUT, 3, 3), (RECORDS,))(one.sent.double(), cells.double())
        for got, ball in zip(cuts._run(one.client, one.sent, cells), bounds, strict=True):
            off = (got.detach().double() - ball.mid).abs()
            assert bool((off <= ball.rad).all())
            assert float(ball.rad.norm() / ball.mid.norm()) < 2e-3


@pytest.fixture(scope="module")
def falsifier() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "falsify_split.py"
    spec = importlib.util.spec_from_file_location("falsify_split", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        spec.loader.exec_module(found)
    return found


def test_no_certificate_of_the_falsifier_is_false(falsifier: ModuleType) -> None:
    lines = [falsifier.judged(2, form) for form in ("mean", "amp", "label_smoothing", "clipping", "noise")]
    assert sum(line["cells"] for line in lines) > 200
    assert not any(line["false"] for line in lines)


def test_the_falsifier_finds_a_false_cell_once_messages_need_not_be_replayed(
    falsifier: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not falsifier.judged(3, "focal")["false"]
    monkeypatch.setattr(cuts, "_MISFIT", 1.0)
    assert falsifier.judged(3, "focal")["false"]


def test_a_value_that_is_left_out_of_the_search_makes_a_certificate_false(monkeypatch: pytest.MonkeyPatch) -> None:
    one = setting()
    with torch.no_grad():
        one.client.table.weight[2] = one.client.table.weight[1]
    witness = one.codes.clone()
    witness[:, 0] = witness[:, 0].clamp(max=1)
    wrong = one.codes[:, 0] == 2
    assert not proof(one, returned(one), cells=witness).cells[wrong, 0].any()
    listed = cuts._values  # pyright: ignore[reportPrivateUsage]

    def without_last(column: EncodedColumn) -> tuple[Tensor, Tensor]:
        values, own = listed(column)
        return (values[:2], own[:2]) if column.name == "a" else (values, own)

    monkeypatch.setattr(cuts, "_values", without_last)
    assert proof(one, returned(one), cells=witness).cells[wrong, 0].any()


class Own(Client):
    """Computes something else in single precision, on the client's own number of records."""

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        own = cut.dtype == torch.float32 and len(cut) == RECORDS
        return super().forward(cut * (2.0 if own else 1.0), cells)


def test_what_a_client_computes_of_its_own_number_of_records_is_looked_at() -> None:
    one = setting()
    one.client = seeded(Own, 0)
    assert "number of rows" in (proof(one, returned(one)).doubt or "")
