"""The client's own rows beside decoys: what lies in the span of an update, whatever its recipe, and what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import fisher_exact
from torch import Tensor, nn

from seepage import datasets, guard
from seepage.errors import BadInputError
from seepage.guard.own_rows import (
    Matches,
    OwnRows,
    compare_with_records,
    compare_with_span,
    divides_out,
    parameters_of_rows,
)
from seepage.learning import LocalTraining
from seepage.models.mlp import mlp, nn3
from seepage.models.model import Model
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table

DATA = datasets.load("german")
ENCODER = Encoder(DATA.schema, Statistics.of(DATA.train), dtype=torch.float32)
ROWS, LABELS = ENCODER.encode(DATA.train.cells), DATA.train.labels.long()
RATE = 0.1
MODEL = mlp(DATA.schema, [64, 64], seed=0)


def network(width: int = 64, seed: int = 0) -> nn.Module:
    return mlp(DATA.schema, [width, width], seed=seed).module


def update(
    module: nn.Module,
    chosen: Tensor,
    smoothing: float = 0.0,
    batches: int = 1,
    epochs: int = 1,
    optimizer_kind: type[torch.optim.Optimizer] = torch.optim.SGD,
    **settings: Any,
) -> dict[str, Tensor]:
    """Return the change of a network by some steps on some records; by SGD if nothing else is said."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    optimizer = optimizer_kind(module.parameters(), **{"lr": RATE, **settings})
    for part in list(chosen.chunk(batches)) * epochs:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(ROWS[part]), LABELS[part], label_smoothing=smoothing).backward()
        optimizer.step()
    change = {name: tensor - before[name] for name, tensor in module.state_dict().items()}
    module.load_state_dict(before)
    return change


def top(change: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    least = torch.cat([tensor.flatten() for tensor in change.values()]).abs().quantile(1 - share)
    return {name: tensor * (tensor.abs() >= least) for name, tensor in change.items()}


def chosen_rows(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return positions of a client's rows and of all others."""
    order = torch.randperm(len(ROWS), generator=torch.Generator().manual_seed(seed))
    return order[:count], order[count:]


def answered(change: dict[str, Tensor], own: Tensor, decoys: Tensor, width: int = 64, **options: Any) -> guard.Answer:
    """Return what a guard with the default policy says, which knows a recipe of one plain step."""
    records = options.pop("records", len(own))
    recipe = guard.MessageRecipe(protocol="fedavg", training=LocalTraining(1, records, RATE), batch_size=records)
    module = network(width)
    options = {"decoys": ROWS[decoys], "seconds": 1, **options}
    guarding = guard.UpdateGuard(module, DATA.schema, recipe, reference=DATA.train, **options)
    return guarding(module.state_dict(), change, form="difference", rows=ROWS[own])


FORMS: dict[str, Any] = {
    "smoothing": lambda chosen: update(network(), chosen, smoothing=0.1),
    "scaled": lambda chosen: {name: 0.37 * part for name, part in update(network(), chosen).items()},
    "top half": lambda chosen: top(update(network(), chosen), 0.5),
    "two batches": lambda chosen: update(network(), chosen, batches=2),
    "momentum": lambda chosen: update(network(), chosen, momentum=0.9, epochs=3),
    "decay": lambda chosen: update(network(), chosen, weight_decay=0.1),
}
# What blurs the span: some records still stand out.
BLURRED: dict[str, Any] = {
    "top tenth": lambda chosen: top(update(network(), chosen), 0.1),
    "adam": lambda chosen: update(network(), chosen, optimizer_kind=torch.optim.Adam, lr=1e-3),
    "adam and decay": lambda chosen: update(
        network(), chosen, optimizer_kind=torch.optim.Adam, lr=1e-3, weight_decay=1e-3
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_updates_in_forms_that_the_recipe_does_not_say_are_blocked_by_default(form: str) -> None:
    own, decoys = chosen_rows(8)
    answer = answered(FORMS[form](own), own, decoys)
    assert answer.finding.decision in ("read", "in the span")
    assert answer.message is None
    assert answer.finding.rows_in_span is not None
    assert answer.finding.rows_in_span.matched_rows >= 7
    # Nearest of few decoys in one of five tests, each in about one of 400.
    assert answer.finding.rows_in_span.matched_decoys <= 0.0125 * answer.finding.rows_in_span.decoys


@pytest.mark.parametrize("form", BLURRED)
def test_updates_whose_span_is_blurred_are_blocked_by_default(form: str) -> None:
    own, decoys = chosen_rows(8)
    answer = answered(BLURRED[form](own), own, decoys, seconds=0.1)
    assert answer.finding.decision == "in the span"
    assert answer.message is None


@pytest.mark.parametrize("biases", [True, False])
def test_a_multiple_of_the_weights_is_taken_off(biases: bool) -> None:
    """A planted change: six rows, and three tenths of the weights, with or without those of biases."""
    own, others = chosen_rows(6)
    rows = OwnRows(ROWS[own].double(), ROWS[others].double())
    layer = nn.Linear(DATA.schema.width, 40)
    module = nn.Sequential(layer)
    mixture = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    weight, bias = layer.weight.detach(), layer.bias.detach()
    change = {"0.weight": 0.01 * mixture @ ROWS[own] + 0.3 * weight}
    change["0.bias"] = 0.01 * mixture.sum(1) + 0.3 * biases * bias
    tested = compare_with_span(Model(module, "softmax", "one layer"), change, rows, 6)
    assert tested.matches is not None
    assert tested.matches.matched_rows == 6
    # Of an update of weight decay alone nothing is left but rounding.
    alone = {"0.weight": 0.3 * weight, "0.bias": 0.3 * bias}
    tested = compare_with_span(Model(module, "softmax", "one layer"), alone, rows, 6)
    assert tested.matches is None or not tested.matches.significant


@pytest.mark.parametrize("units", [64, 20])
def test_without_rows_as_many_directions_as_records_are_in_the_span_unless_noise_has_as_many(units: int) -> None:
    """With as many units as records, noise too has the rank of the records."""
    chosen, _ = chosen_rows(20)
    module = network(units)
    recipe = guard.MessageRecipe(protocol="fedavg", training=LocalTraining(1, 20, RATE), batch_size=20)
    guarding = guard.UpdateGuard(module, DATA.schema, recipe, reference=DATA.train)
    noise = {
        name: torch.randn(part.shape, generator=torch.Generator().manual_seed(0))
        for name, part in module.state_dict().items()
    }
    assert guarding(module.state_dict(), noise, form="difference").finding.decision in ("pass", "not tried")
    plain = guarding(module.state_dict(), update(module, chosen), form="difference").finding
    assert (plain.decision == "not tried") == (units == 20)
    assert plain.decision != "pass"


@pytest.mark.parametrize("kind", ["narrow", "noise", "random"])
def test_updates_that_give_no_record_away_are_sent_and_pass_where_the_attack_could_have_read(kind: str) -> None:
    """Noise that the recipe does not know keeps the attack from reading, and rows alone are no evidence."""
    own, decoys = chosen_rows(300 if kind == "narrow" else 8)
    width = 8 if kind == "narrow" else 64
    change = update(network(width), own)
    size = float(torch.cat([part.flatten() for part in change.values()]).norm())
    noise = {
        name: torch.randn(part.shape, generator=torch.Generator().manual_seed(i))
        for i, (name, part) in enumerate(change.items())
    }
    if kind != "narrow":
        change = {name: (kind == "noise") * part + size * noise[name] for name, part in change.items()}
    answer = answered(change, own, decoys, width)
    assert answer.finding.decision == ("pass" if kind == "narrow" else "not tried")
    assert answer.message is not None
    assert "own rows" in answer.finding.why


def test_rows_that_are_not_in_an_update_are_told_from_decoys_by_chance_alone() -> None:
    """Other rows of the same table: at most 1 of 100 tests may be significant, by 0.2% that are expected."""
    found = 0
    for seed in range(100):
        chosen, others = chosen_rows(8, seed)
        own = OwnRows(ROWS[others[:20]].double(), ROWS[others[20:]].double())
        model = mlp(DATA.schema, [32, 32], seed=seed)
        tested = compare_with_span(model, update(model.module, chosen), own, 8)
        assert tested.matches is not None
        found += tested.matches.significant
    assert found <= 1


def test_the_span_of_the_first_layer_is_that_of_the_rows() -> None:
    """A planted change: any mixture of rows, as any loss makes one; and one of other rows."""
    own, others = chosen_rows(6)
    rows = OwnRows(ROWS[own].double(), ROWS[others].double())
    model = Model(nn.Sequential(nn.Linear(DATA.schema.width, 40)), "softmax", "one layer")
    mixture = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)).double()
    extended = torch.cat([ROWS, torch.ones(len(ROWS), 1)], dim=1).double()

    def planted(chosen: Tensor) -> dict[str, Tensor]:
        layer = (mixture @ extended[chosen]).float()
        return {"0.weight": layer[:, :-1], "0.bias": layer[:, -1]}

    tested = compare_with_span(model, planted(own), rows, 6)
    assert tested.matches is not None
    assert (tested.matches.matched_rows, tested.contradicted) == (6, False)
    tested = compare_with_span(model, planted(others[:6]), rows, 6)
    assert tested.matches is not None
    # The update is of exactly six rows, and these are others.
    assert (tested.matches.matched_rows, tested.contradicted) == (0, True)


def test_a_span_of_everything_says_nothing() -> None:
    own, others = chosen_rows(200)
    module = nn.Sequential(nn.Linear(DATA.schema.width, 150))
    rows = OwnRows(ROWS[own].double(), ROWS[others].double())
    change = {
        name: torch.randn(part.shape, generator=torch.Generator().manual_seed(0))
        for name, part in module.state_dict().items()
    }
    assert compare_with_span(Model(module, "softmax", "one layer"), change, rows, 200).matches is None


def test_layers_too_wide_for_the_time_are_left_out() -> None:
    own, others = chosen_rows(8)
    rows = OwnRows(ROWS[own].double(), ROWS[others].double())
    change = update(network(), own)
    tested = compare_with_span(MODEL, change, rows, 8, operations=3e6)
    assert tested.matches is not None
    assert compare_with_span(MODEL, change, rows, 8, operations=1e3).matches is None


def test_too_few_decoys_say_nothing() -> None:
    own, others = chosen_rows(1)
    few = OwnRows(ROWS[own].double(), ROWS[others[:100]].double())
    assert compare_with_span(MODEL, update(network(), own), few, 1).matches is None


@pytest.mark.parametrize("table", [(8, 8, 100, 3), (8, 1, 1000, 1), (60, 20, 500, 2), (8, 0, 100, 5)])
def test_the_chance_is_that_of_fishers_exact_test(table: tuple[int, int, int, int]) -> None:
    rows, matched, decoys, others = table
    counts = [[matched, rows - matched], [others, decoys - others]]
    assert Matches(*table).chance == pytest.approx(fisher_exact(counts, alternative="greater")[1])


def test_a_share_is_of_the_records_behind_the_update_and_less_that_of_decoys() -> None:
    assert Matches(100, 8, 1000, 0).share(8) == 1.0
    assert Matches(100, 8, 1000, 50).share(100) == pytest.approx(0.03)
    assert Matches(8, 1, 1000, 500).share(8) == 0.0


def test_records_that_an_attack_read_are_rows_with_every_cell_right() -> None:
    own, others = chosen_rows(5)
    rows = OwnRows.of(ROWS[own], ROWS[others], ENCODER, DATA.schema, seed=0)
    read = torch.cat([ROWS[own[:3]], ROWS[own[3:4]] + 0.2]).double()
    matches = compare_with_records(read, rows)
    assert (matches.rows, matches.matched_rows, matches.matched_decoys) == (5, 3, 0)


def test_more_rows_than_the_round_was_of_hide_nothing() -> None:
    own, others = chosen_rows(40)
    answer = answered(FORMS["top half"](own[:8]), own, others, records=8)
    assert answer.finding.decision in ("read", "in the span")


def test_rows_in_another_encoding_are_no_pass() -> None:
    own, decoys = chosen_rows(8)
    change = update(network(), own)
    module = network()
    recipe = guard.MessageRecipe(protocol="fedavg", training=LocalTraining(1, 8, RATE), batch_size=8)
    guarding = guard.UpdateGuard(module, DATA.schema, recipe, seconds=1e-3, decoys=ROWS[decoys].flip(1))
    finding = guarding(module.state_dict(), change, form="difference", rows=ROWS[own].flip(1)).finding
    assert finding.decision == "not tried"
    assert "encoded in another way" in finding.why


def test_the_log_has_counts_and_no_row(tmp_path: Path) -> None:
    own, decoys = chosen_rows(8)
    answered(FORMS["smoothing"](own), own, decoys, log=tmp_path / "log")
    [line] = [json.loads(text) for text in (tmp_path / "log").read_text().splitlines()]
    assert line["rows_in_span"].keys() == {"rows", "matched_rows", "decoys", "matched_decoys"}
    assert line["rows_in_span"]["rows"] == 8


def test_tables_are_encoded_as_the_guard_encodes_and_a_guard_file_names_them(tmp_path: Path) -> None:
    own, _ = chosen_rows(8)
    frame = DATA.train.frame
    (tmp_path / "schema.yaml").write_text(DATA.schema.to_yaml())
    frame.iloc[own.tolist()].to_csv(tmp_path / "own.csv", index=False)
    frame.to_csv(tmp_path / "public.csv", index=False)
    (tmp_path / "guard.yaml").write_text(
        "{model: nn3, schema: schema.yaml, reference: public.csv, rows: own.csv, "
        "recipe: {protocol: fedavg, training: {epochs: 1, batch_size: 8, learning_rate: 0.1}}}"
    )
    guarding = guard.load(tmp_path / "guard.yaml")
    module = nn3(DATA.schema, seed=0).module
    answer = guarding(module.state_dict(), update(module, own, smoothing=0.1), form="difference")
    assert answer.finding.decision in ("read", "in the span")
    assert answer.message is None
    assert "8 records, as many as own rows were given" in answer.finding.assumed


def test_rows_that_cannot_be_compared_are_refused() -> None:
    own, decoys = chosen_rows(8)
    table = Table(DATA.schema, DATA.train.frame.iloc[:8])
    with pytest.raises(BadInputError, match="both tables, or both rows"):
        OwnRows.of(table, ROWS[decoys], ENCODER, DATA.schema, 0)
    with pytest.raises(BadInputError, match=r"rows are a table, or rows of \d+ numbers.*got \(8, 3\)"):
        OwnRows.of(ROWS[own, :3], ROWS[decoys], ENCODER, DATA.schema, 0)
    module = network()
    guarding = guard.UpdateGuard(module, DATA.schema, guard.MessageRecipe(batch_size=8))
    with pytest.raises(BadInputError, match="compared with decoys, and there are none"):
        guarding(module.state_dict(), update(network(), own), form="gradient", rows=table)


class Decoding(nn.Module):
    """A network whose last affine layer, in the order of its definition, gives no classes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(DATA.schema.width, 32), nn.ReLU())
        self.head, self.decoder = nn.Linear(32, 2), nn.Linear(32, DATA.schema.width)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.body(rows))


class Multiplied(nn.Module):
    """A network of raw parameters, and not of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shift = nn.Parameter(0.2 * torch.randn(DATA.schema.width, 32)), nn.Parameter(torch.zeros(32))
        self.last = nn.Parameter(0.2 * torch.randn(32, 2))

    def forward(self, rows: Tensor) -> Tensor:
        return torch.relu(rows @ self.first + self.shift) @ self.last


def of_network(
    module: nn.Module, change: dict[str, Tensor], rows: Tensor, decoys: Tensor | None, **options: Any
) -> guard.Answer:
    """Return the answer of a guard that knows a network and a recipe of one plain step."""
    recipe = guard.MessageRecipe(protocol="fedavg", training=LocalTraining(1, len(rows), RATE), batch_size=len(rows))
    options = {"seconds": 1, "reference": DATA.train, **options}
    guarding = guard.UpdateGuard(
        module, DATA.schema, recipe, decoys=None if decoys is None else ROWS[decoys], **options
    )
    rows_of_client = None if decoys is None else ROWS[rows]
    return guarding(module.state_dict(), change, form="difference", rows=rows_of_client)


@pytest.mark.parametrize("kind", [Decoding, Multiplied])
def test_networks_whose_layers_say_no_number_of_classes_end_no_training(kind: type[nn.Module]) -> None:
    own, decoys = chosen_rows(8)
    module = seeded(kind, 0)
    finding = of_network(module, update(module, own, smoothing=0.1), own, decoys).finding
    assert finding.decision != "pass"
    assert "does not expect" not in finding.why


@pytest.mark.parametrize("mode", ["advise", "strict"])
@pytest.mark.parametrize("place", ["compare_with_span", "signs_of_crafting", "_in_order"])
def test_an_unexpected_error_of_a_check_is_no_pass_and_ends_no_training(
    place: str, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("Tim from Ely")

    monkeypatch.setattr(f"seepage.guard.update_guard.{place}", broken)
    own, decoys = chosen_rows(8)
    # Of what two hidden layers of 8 units pass, nothing can be read.
    module = network(8)
    answer = of_network(module, update(module, chosen_rows(300)[0]), own, decoys, policy=guard.GuardPolicy(mode=mode))
    assert answer.finding.decision == "not tried"
    assert "ZeroDivisionError" in answer.finding.why
    assert "Tim" not in answer.finding.why
    assert (answer.message is None) == (mode == "strict")


def test_the_clients_rows_never_turn_a_block_into_a_send() -> None:
    """Signs of a record's gradient span no row, and the change of its layer has one direction all the same."""
    own, decoys = chosen_rows(1)
    signs = {name: part.sign() for name, part in update(network(), own).items()}
    alone, with_rows = (of_network(network(), signs, own, others).finding for others in (None, decoys))
    assert (alone.decision, alone.sent) == ("in the span", False)
    assert not with_rows.sent


class Adapter(nn.Module):
    """A frozen layer with a low-rank addition, of which the change of a matrix that takes the rows is sent."""

    def __init__(self, inputs: int, units: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, units).requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(rank, inputs))
        self.up = nn.Parameter(0.1 * torch.randn(units, rank))

    def forward(self, rows: Tensor) -> Tensor:
        return self.base(rows) + rows @ self.down.T @ self.up.T


def adapted() -> nn.Module:
    return nn.Sequential(
        Adapter(DATA.schema.width, 32, 12), nn.ReLU(), Adapter(32, 32, 12), nn.ReLU(), nn.Linear(32, 2)
    )


def test_rows_lie_in_the_span_of_an_adapters_matrix() -> None:
    own, others = chosen_rows(8)
    module = seeded(adapted, 0)
    rows = OwnRows(ROWS[own].double(), ROWS[others].double())
    change = {name: part for name, part in update(module, own).items() if part.any()}
    tested = compare_with_span(Model(module, "softmax", "adapted"), change, rows, 8)
    assert tested.matches is not None
    assert (tested.matches.matched_rows, tested.looked) == (8, True)
    answer = of_network(module, update(module, own, smoothing=0.1), own, others)
    assert answer.finding.decision in ("read", "in the span")
    assert answer.message is None


def test_rows_lie_in_the_span_of_a_matrix_on_whose_left_they_are_multiplied() -> None:
    own, others = chosen_rows(8)
    module = seeded(Multiplied, 0)
    rows = OwnRows(ROWS[own].double(), ROWS[others].double())
    change = {name: part for name, part in update(module, own).items() if name != "last"}
    tested = compare_with_span(Model(module, "softmax", "multiplied"), change, rows, 8)
    assert tested.matches is not None
    assert (tested.matches.matched_rows, tested.contradicted) == (8, False)


def test_only_matrices_that_are_multiplied_with_the_rows_themselves_are_compared() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.scaled, self.unused = (nn.Parameter(torch.ones(9, DATA.schema.width)) for _ in range(3))

        def forward(self, rows: Tensor) -> Tensor:
            return rows @ self.used.T + (2 * rows) @ self.scaled.T

    assert parameters_of_rows(Scaled(), ROWS) == {"used": False}
    assert parameters_of_rows(Multiplied(), ROWS) == {"first": True}
    for units in (1, 3, DATA.schema.width):
        assert parameters_of_rows(linear(units), ROWS) == {"0.weight": False}


def test_where_no_layer_can_be_looked_at_none_of_the_rows_is_said_to_be_outside() -> None:
    """Two units mix eight records."""
    own, others = chosen_rows(8)
    module = seeded(adapted, 0)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith("4."))
    rows = OwnRows(ROWS[own].double(), ROWS[others].double())
    tested = compare_with_span(Model(module, "softmax", "adapted"), update(module, own), rows, 8)
    assert (tested.matches, tested.looked) == (None, False)
    answer = of_network(module, update(module, own), own, others)
    assert answer.finding.decision == "not tried"
    assert "own rows were not compared" in answer.finding.why


def linear(units: int = 2) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(DATA.schema.width, units)), 0)


def behind_layer_norm() -> nn.Module:
    width = DATA.schema.width
    return seeded(lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2)), 0)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("build", [linear, lambda: network(16)])
def test_a_single_record_is_read_by_a_division_whatever_the_factor(build: Any, decay: float) -> None:
    own, _ = chosen_rows(1)
    module = build()
    changed = update(module, own, smoothing=0.1, epochs=3, weight_decay=decay)
    change = {name: 3.7 * part for name, part in changed.items()}
    answer = of_network(module, change, own, None)
    assert answer.finding.decision in ("read", "in the span", "proved", "matched whole")
    assert answer.message is None


def test_a_change_that_is_not_of_one_row_is_not_divided() -> None:
    own, _ = chosen_rows(1)
    model = Model(linear(3), "softmax", "linear")
    several = dict(model.parameters)
    noise = {name: torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) for name, p in several.items()}
    assert divides_out(model, noise, ROWS[own]) is None
    behind = Model(behind_layer_norm(), "softmax", "normalised")
    assert divides_out(behind, update(behind.module, own), ROWS[own]) is None
    planted = torch.outer(torch.tensor([1.0, -2.0, 1.0]), torch.cat([ROWS[own[0]], torch.ones(1)]))
    assert divides_out(model, {"0.weight": planted[:, :-1], "0.bias": planted[:, -1]}, ROWS[own]) == "0"


def test_noise_on_a_single_unit_is_no_row() -> None:
    """Any change of a single unit has one direction."""
    own, _ = chosen_rows(1)
    model = Model(linear(1), "sigmoid", "linear")
    change = {name: torch.ones_like(part) for name, part in model.parameters.items()}
    assert divides_out(model, change, ROWS[own]) == "0"
    assert divides_out(model, change, ROWS[own], several=True) is None
