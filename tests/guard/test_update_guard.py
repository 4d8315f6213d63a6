"""The guard on real updates: it proves what leaks, passes what does not, and never says more than it tried."""

from __future__ import annotations

import copy
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from seepage import guard
from seepage.captures.captured import Description, read_description, save_capture
from seepage.datasets.planted import distinct
from seepage.defenses.accounting import gaussian_guarantee
from seepage.errors import BadInputError
from seepage.guard.received import signs_of_crafting
from seepage.kernel import RefusedError
from seepage.learning import LocalTraining
from seepage.models.mlp import nn3
from seepage.models.model import Model
from seepage.models.states import changes, state_digest
from seepage.registry import models
from seepage.tabular.encoder import Encoder
from tests.certificates import checked

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
RATE = 0.1
FEDAVG = guard.MessageRecipe(protocol="fedavg", training=LocalTraining(1, 8, RATE), batch_size=8)
FEDSGD = guard.MessageRecipe(batch_size=8)
BLOCK, REPORT = guard.GuardPolicy(), guard.GuardPolicy("report")


def network(kind: type[nn.Module] = nn.ReLU, normalised: bool = False) -> nn.Module:
    made = nn3(DATA.schema, seed=0).module
    layers = [kind() if isinstance(part, nn.ReLU) else part for part in made.children()]
    if normalised:
        layers.insert(1, nn.BatchNorm1d(layers[0].out_features))  # pyright: ignore[reportArgumentType]
    return nn.Sequential(*layers)


def made(recipe: guard.MessageRecipe = FEDAVG, model: Any = None, **options: Any) -> guard.UpdateGuard:
    return guard.UpdateGuard(model or network(), DATA.schema, recipe, reference=DATA.train, **options)


def gradients(module: nn.Module, records: int = 8, first: int = 0) -> dict[str, Tensor]:
    chosen = slice(first, first + records)
    rows, labels = ENCODER.encode(DATA.train.cells[chosen]), DATA.train.labels[chosen].long()
    module.zero_grad()
    nn.functional.cross_entropy(module(rows), labels).backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def trained(module: nn.Module, records: int = 8, rate: float = RATE) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the states before and after one plain step."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    gradients(module, records)
    torch.optim.SGD(module.parameters(), lr=rate).step()
    return before, {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: Mapping[str, Tensor] | None, other: Mapping[str, Tensor]) -> bool:
    return one is not None and one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_an_update_that_leaks_is_proved_and_reported_and_sent() -> None:
    before, after = trained(network())
    answer = made(policy=REPORT)(before, after)
    found = answer.finding
    assert (found.decision, found.proved_records, found.whole_records, found.records) == ("proved", 8, 8, 8)
    assert found.proved_cells == found.cells == 8 * len(DATA.schema.columns)
    assert found.sent
    assert same(answer.message, after)
    assert found.proof is None
    assert found.model == state_digest(before)


def test_blocking_keeps_back_what_is_proved_and_nothing_else() -> None:
    before, after = trained(network())
    answer = made(policy=BLOCK)(before, after)
    assert answer.finding.decision == "proved"
    assert not answer.finding.sent
    assert answer.message is None
    # Of 40 records in a network of 100 units nothing is taken that 8 local batches hide the order of.
    blurred = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1))
        for name, tensor in after.items()
    }
    recipe = FEDAVG.model_copy(update={"defense": {"gaussian_noise": {"scale": 0.1}}})
    answer = made(recipe, policy=BLOCK)(before, blurred)
    assert answer.finding.decision == "pass"
    assert same(answer.message, blurred)
    # A tenth of the declared noise is no noise of that size.
    hardly = {name: tensor + 0.1 * (blurred[name] - tensor) for name, tensor in after.items()}
    assert made(recipe, policy=BLOCK)(before, hardly).finding.decision != "pass"


@pytest.mark.parametrize("form", ["weights", "difference"])
def test_noise_goes_on_every_update_and_nothing_is_proved_then(form: Any) -> None:
    before, after = trained(network())
    given = after if form == "weights" else {name: after[name] - before[name] for name in after}
    policy = guard.GuardPolicy("noise", clip_norm=1.0, noise_multiplier=2.0)
    guarding = made(policy=policy)
    first = guarding(before, given, form=form)
    assert first.finding.decision == "pass"
    assert first.finding.proved_records == 0
    assert first.message is not None
    moved = torch.cat([(first.message[name] - given[name]).flatten() for name in given])
    assert float(moved.std()) == pytest.approx(2.0, rel=0.02)
    again = guarding(before, given, form=form)
    assert not same(again.message, first.message)
    expected = gaussian_guarantee(1.0, sample_rate=1.0, steps=2, delta=1e-5)
    assert again.finding.guarantee == expected
    assert first.finding.guarantee is not None
    assert expected is not None
    assert first.finding.guarantee.epsilon < expected.epsilon


def test_clipping_shortens_every_update_and_gives_no_epsilon() -> None:
    before, after = trained(network())
    length = float(torch.cat([(before[name] - after[name]).flatten() for name in after]).norm())
    answer = made(policy=guard.GuardPolicy("clip", clip_norm=length / 2))(before, after)
    assert answer.message is not None
    left = torch.cat([(before[name] - answer.message[name]).flatten() for name in after])
    assert float(left.norm()) == pytest.approx(length / 2, rel=1e-3)
    assert answer.finding.guarantee is None
    assert "epsilon" not in answer.finding.log()
    # Below the bound the update is what it was, and so is what it gives away.
    answer = made(policy=guard.GuardPolicy("clip", clip_norm=2 * length))(before, after)
    assert answer.finding.decision == "proved"


def test_noise_is_found_by_the_policy_alone_and_never_from_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = trained(network())
    policy = guard.GuardPolicy("noise", clip_norm=1.0, noise_multiplier=2.0)
    drawn = [made(policy=policy, seed=0)(before, after).message for _ in range(2)]
    assert drawn[0] is not None
    assert not same(drawn[1], drawn[0])
    fixed = [made(policy=policy)(before, after, noise_seed=3).message for _ in range(2)]
    assert fixed[0] is not None
    assert same(fixed[1], fixed[0])


def test_running_statistics_are_part_of_the_message_and_noise_holds_them_back() -> None:
    module = network(normalised=True)
    before, after = trained(module)
    answer = made(model=network(normalised=True))(before, after)
    assert answer.finding.decision == "read"
    policy = guard.GuardPolicy("noise", clip_norm=1.0, noise_multiplier=2.0)
    answer = made(model=network(normalised=True), policy=policy)(before, after)
    assert answer.message is not None
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert not torch.equal(before[name], after[name])
        assert torch.equal(answer.message[name], before[name])


def test_a_gradient_is_counted_where_nobody_says_how_many_records_it_is_of() -> None:
    module = network()
    found = made(guard.MessageRecipe())(module.state_dict(), gradients(module, 6)).finding
    assert (found.decision, found.proved_records, found.records) == ("proved", 6, 6)
    assert "6 records, counted in the update" in found.assumed
    found = made(guard.MessageRecipe())(module.state_dict(), gradients(module, 6), records=6).finding
    assert found.assumed == ()


@pytest.mark.parametrize(
    ("options", "change", "why"),
    [
        ({"model": nn.Sequential(nn.Linear(DATA.schema.width, 2))}, None, "no hidden layer"),
        ({"model": nn.Sequential(nn.Dropout(0.5), *network().children())}, None, "drops values at random"),
        ({"recipe": FEDAVG.model_copy(update={"batch_size": None})}, None, "the number of records is not known"),
        ({"recipe": FEDAVG.model_copy(update={"precision": "mixed"})}, None, "computed in mixed"),
        ({"seconds": 1e-3}, None, "over before the search began"),
        ({}, torch.float16, "the weights are rounded to float16"),
    ],
)
@pytest.mark.parametrize("mode", ["advise", "strict"])
def test_what_was_not_tried_never_passes(options: dict[str, Any], change: Any, why: str, mode: Any) -> None:
    options = dict(options)
    module = options.get("model") or network()
    before, after = trained(module.eval() if isinstance(next(module.children()), nn.Dropout) else module)
    module.train()
    if change is not None:
        after = {name: tensor.to(change) for name, tensor in after.items()}
    answer = made(policy=guard.GuardPolicy("block", mode), **options)(before, after)
    assert answer.finding.decision == "not tried"
    assert why in answer.finding.why
    assert answer.finding.sent == (mode == "advise")
    assert (answer.message is None) == (mode == "strict")
    assert answer.finding.proved_cells == 0


def test_a_record_that_no_proof_covers_is_matched_whole() -> None:
    """One record in a linear model: what is read in closed form replays the message."""
    module = nn.Sequential(nn.Linear(DATA.schema.width, 2))
    recipe = guard.MessageRecipe(batch_size=1)
    options: dict[str, Any] = {"model": module, "policy": BLOCK}
    answer = made(recipe, keep_records=True, **options)(module.state_dict(), gradients(module, 1, first=3))
    assert answer.finding.decision == "matched whole"
    assert answer.message is None
    assert answer.finding.proof is not None
    assert answer.finding.proof.guess.cells[0].round().tolist() == DATA.train.cells[3:4].round().tolist()
    # What no record of the table gives is not matched.
    strange = {
        name: torch.randn(p.shape, generator=torch.Generator().manual_seed(0)) for name, p in module.named_parameters()
    }
    assert made(recipe, **options)(module.state_dict(), strange).finding.decision in ("pass", "not tried")


def test_the_log_is_private_has_a_line_a_round_and_no_record(tmp_path: Path) -> None:
    module, log = network(), tmp_path / "guard.jsonl"
    before, after = trained(module)
    guarding = made(policy=BLOCK, log=log, keep_records=True)
    answers = [guarding(before, after, round=1), guarding(before, before | {"4.bias": before["4.bias"] + 1}, round=2)]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    assert [line["decision"] for line in lines] == [answer.finding.decision for answer in answers]
    assert lines[0]["proved_records"] == 8
    assert lines[0]["update"] == answers[0].finding.update
    proof = answers[0].finding.proof
    assert proof is not None
    kept = sorted(map(tuple, proof.guess.cells[0].tolist()))
    assert kept == sorted(map(tuple, DATA.train.cells[:8].tolist()))
    assert proof.update == answers[0].finding.update
    plain = {name: value for name, value in lines[0].items() if isinstance(value, int | float | str | bool)}
    assert set(lines[0]) - set(plain) == {"assumed", "warnings"}
    assert lines[0]["assumed"] == lines[0]["warnings"] == []


def test_a_certificate_of_what_was_proved_is_accepted_and_a_forged_one_is_not(tmp_path: Path) -> None:
    module = network()
    model = Model(copy.deepcopy(module), "softmax", "mine")
    before, after = trained(module)
    guarding = made(policy=BLOCK, certificates=tmp_path / "proofs", log=tmp_path / "log.jsonl")
    found = guarding(before, after, round=3).finding
    # Only the files hold records, not the finding.
    assert found.proof is None
    assert found.certificate is not None
    assert found.certificate.cells == 8 * len(DATA.schema.columns)
    name = found.certificate.certificate.stem
    assert name == f"round-0003-{found.update[:16]}"
    assert json.loads((tmp_path / "log.jsonl").read_text())["certificate"] == f"{name}.json"
    folder = tmp_path / "proofs"
    update = folder / f"{name}.update.safetensors"
    assert stat.S_IMODE(update.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / f"{name}.opened.json").stat().st_mode) == 0o600
    about = {"training": LocalTraining(1, 8, RATE), "protocol": "fedavg"}

    def cells(file: Path) -> int:
        proof = folder / f"{name}.json"
        return checked(proof, file, model, DATA.schema, DATA.statistics, 8).verified

    assert cells(update) == found.certificate.cells
    # What a server receives and captures is the same update.
    save_capture(tmp_path / "server.safetensors", changes(before, after), Description(round=3, **about))
    assert cells(tmp_path / "server.safetensors") == found.certificate.cells
    other = {part: tensor * 1.5 for part, tensor in changes(before, after).items()}
    save_capture(tmp_path / "other.safetensors", other, Description(**about))
    with pytest.raises(RefusedError, match="update is"):
        cells(tmp_path / "other.safetensors")
    opened = json.loads((folder / f"{name}.opened.json").read_text())
    record = opened["records"][0]["cells"]
    record[0], record[1] = record[1], record[0]
    (folder / f"{name}.opened.json").write_text(json.dumps(opened))
    with pytest.raises(RefusedError, match="not what was committed"):
        cells(update)
    # The same update again replaces nothing, and is blocked all the same.
    again = guarding(before, after, round=3).finding
    assert (again.decision, again.sent, again.certificate) == ("proved", False, None)
    assert "there already" in again.notes[0]


def test_a_finding_that_keeps_records_writes_a_certificate_later(tmp_path: Path) -> None:
    guarding = made(FEDSGD, keep_records=True)
    module = network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    proof = guarding(before, gradients(module)).finding.proof
    assert proof is not None
    assert str(proof.write(tmp_path / "proof.json", opened=True)) == "48 cells of 8 records are certified"
    update = tmp_path / "proof.update.safetensors"
    assert read_description(update).sent == state_digest(before)
    model = Model(module, "softmax", "mine")
    assert checked(tmp_path / "proof.json", update, model, DATA.schema, DATA.statistics, 8).verified == 48
    with pytest.raises(BadInputError, match="there already"):
        proof.write(tmp_path / "proof.json")


def test_the_rounds_of_a_log_count_for_epsilon(tmp_path: Path) -> None:
    """A client that is started anew each round, as Flower does it, has spent what it spent."""
    before, after = trained(network())
    policy = guard.GuardPolicy("noise", clip_norm=1.0, noise_multiplier=8.0)
    spent = []
    for _ in range(3):
        guarantee = made(policy=policy, log=tmp_path / "log")(before, after).finding.guarantee
        assert guarantee is not None
        spent.append((guarantee.steps, guarantee.epsilon))
    assert [steps for steps, _ in spent] == [1, 2, 3]
    assert spent[0][1] < spent[1][1] < spent[2][1]
    (tmp_path / "log").write_text("{")
    with pytest.raises(BadInputError, match="the rounds before are not known"):
        made(policy=policy, log=tmp_path / "log")


def test_a_gradient_that_is_cast_is_read_as_one_with_that_noise() -> None:
    module = network()
    halves = {name: tensor.half() for name, tensor in gradients(module).items()}
    answer = made(FEDSGD, policy=REPORT)(module.state_dict(), halves)
    assert answer.finding.decision == "read"
    assert answer.finding.why.startswith("8 of 8 records read one by one")
    assert same(answer.message, halves)


def test_a_gradient_that_is_not_exact_is_read_without_any_row() -> None:
    """A factor and the rounding of weights from whose change it was computed: its layers have every rank."""
    module = network()
    state, exact = module.state_dict(), gradients(module)
    computed = {name: (state[name] - (state[name] - RATE * part)) / RATE * 0.9 for name, part in exact.items()}
    answer = made(FEDSGD)(module.state_dict(), computed)
    assert answer.finding.decision == "read"
    assert "8 records read one by one" in answer.finding.why
    assert answer.message is None
    nothing = {
        name: torch.randn(part.shape, generator=torch.Generator().manual_seed(1)) for name, part in exact.items()
    }
    assert made(FEDSGD, seconds=1)(module.state_dict(), nothing).finding.decision == "not tried"


def test_names_of_opacus_come_back_as_they_were() -> None:
    before, after = trained(network())
    wrapped = {f"_module.{name}": tensor for name, tensor in after.items()}
    assert same(made(policy=REPORT)(before, wrapped).message, wrapped)


def test_lists_of_arrays_are_taken_in_the_order_of_the_model() -> None:
    before, after = trained(network())
    found = made()(before, [tensor.numpy() for tensor in after.values()]).finding
    assert found.decision == "proved"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"form": "gradient"}, "the recipe is of protocol fedavg and the update is gradient"),
        ({"records": 9}, "the recipe says 8 records, the update is of 9"),
        ({"records": 0}, "a whole number from 1 to 1,048,576; got 0"),
        ({"records": 10**12}, "a whole number from 1 to 1,048,576; got 1000000000000"),
    ],
)
def test_calls_that_contradict_the_recipe_are_refused(call: dict[str, Any], message: str) -> None:
    before, after = trained(network())
    with pytest.raises(BadInputError, match=message):
        made()(before, after, **call)


@pytest.mark.parametrize("recipe", [FEDAVG, FEDSGD])
def test_what_noise_would_not_cover_is_never_sent(recipe: guard.MessageRecipe) -> None:
    """A tensor that the model has not, and numbers that clipping cannot bound."""
    before, after = trained(network())
    noisy = made(recipe, policy=guard.GuardPolicy("noise", clip_norm=1.0, noise_multiplier=2.0))
    with pytest.raises(BadInputError, match="holds 'rows', which the model as sent has not"):
        noisy(before, {**after, "rows": torch.ones(3)})
    with pytest.raises(BadInputError, match="not finite"):
        noisy(before, {**after, "0.bias": torch.full_like(after["0.bias"], torch.nan)})


def test_another_network_than_the_guards_is_not_tried() -> None:
    small = nn.Sequential(nn.Linear(DATA.schema.width, 4), nn.ReLU(), nn.Linear(4, 2))
    before, after = trained(small)
    assert "not the network that the guard was given" in made()(before, after).finding.why


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "noise", "clip_norm": 1.0}, "noise_multiplier is a setting of policy noise"),
        ({"action": "noise", "noise_multiplier": 1.0}, "clip_norm is a setting of policy noise and clip"),
        ({"action": "block", "clip_norm": 1.0}, "with policy block; leave it out"),
        ({"action": "clip", "clip_norm": -1}, "clip_norm is a number above 0"),
        ({"delta": 0.0}, "delta lies between"),
        ({"share": 1.0}, "share is 0 or more and below 1"),
    ],
)
def test_policies_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        guard.GuardPolicy(**options)


HONEST = ["nn1", "nn2", "nn3", "linear"]


@pytest.mark.parametrize("name", [name for name in HONEST if name in models.of("horizontal").names()])
@pytest.mark.parametrize("seed", [0, 1])
def test_honest_models_show_no_sign_of_crafting_before_and_after_training(name: str, seed: int) -> None:
    model = models.create(name, schema=DATA.schema, seed=seed, head=None)
    assert isinstance(model, Model)
    assert signs_of_crafting(model, ENCODER, DATA.statistics) == ()
    optimizer = torch.optim.Adam(model.module.parameters(), lr=0.01)
    for _ in range(50):
        gradients(model.module, 40)
        optimizer.step()
    assert signs_of_crafting(model, ENCODER, DATA.statistics) == ()


@pytest.mark.parametrize("name", ["imprint", "loki"])
def test_crafted_models_are_noticed_and_strict_sends_no_update_of_them(name: str) -> None:
    crafted = models.create(name, schema=DATA.schema, seed=0, head=None)
    assert isinstance(crafted, Model)
    [sent, *_] = crafted.sent(4) if crafted.each else [crafted]
    assert signs_of_crafting(sent, ENCODER, DATA.statistics)
    module = sent.module
    before, after = trained(module)
    for policy, goes in ((guard.GuardPolicy("report"), True), (guard.GuardPolicy("report", "strict"), False)):
        answer = made(model=sent, policy=policy)(before, after)
        assert answer.finding.warnings
        assert answer.finding.sent == goes


def test_traps_for_single_records_are_noticed() -> None:
    module = network()
    first = next(iter(module.children()))
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.bias.sub_(1e3)
    assert (
        "react to hardly any record" in signs_of_crafting(Model(module, "softmax", "own"), ENCODER, DATA.statistics)[0]
    )


FILE = """
model: nn3
schema: schema.yaml
reference: public.csv
recipe: {protocol: fedavg, batch_size: 8, training: {epochs: 1, batch_size: 8, learning_rate: 0.1}}
policy: block
mode: strict
log: guard.jsonl
"""


def site(folder: Path, text: str = FILE) -> Path:
    (folder / "schema.yaml").write_text(DATA.schema.to_yaml())
    DATA.train.frame.to_csv(folder / "public.csv", index=False)
    (folder / "guard.yaml").write_text(text)
    return folder / "guard.yaml"


def test_a_guard_file_makes_the_same_guard(tmp_path: Path) -> None:
    guarding = guard.load(site(tmp_path))
    before, after = trained(network())
    answer = guarding(before, after)
    assert (answer.finding.decision, answer.message) == ("proved", None)
    assert len((tmp_path / "guard.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("policy: block", "polcy: block"), "did you mean 'policy'"),
        (FILE.replace("policy: block", "policy: blok"), "policy: Input should be 'report'"),
        (FILE.replace("model: nn3", "model: nn33"), "did you mean 'nn3'"),
        (FILE.replace("model: nn3", "model: networks.py:build"), "names code of your own"),
        (FILE.replace("fedavg", "fedsgd"), "a training belongs to protocol fedavg"),
        (FILE.replace("schema: schema.yaml", ""), "schema: Field required"),
        (FILE.replace("policy: block", "policy: noise"), "clip_norm is a setting of policy noise"),
        ("[1]", "holds list where keys"),
    ],
)
def test_guard_files_that_make_no_sense_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        guard.load(site(tmp_path, text))


def test_a_network_of_the_sites_own_runs_where_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "networks.py").write_text(
        "from torch import nn\n\ndef build(inputs, outputs):\n"
        "    return nn.Sequential(nn.Linear(inputs, 100), nn.ReLU(), nn.Linear(100, outputs))\n"
    )
    guarding = guard.load(site(tmp_path, FILE.replace("nn3", "networks.py:build")), allow_code=True)
    module = nn.Sequential(nn.Linear(DATA.schema.width, 100), nn.ReLU(), nn.Linear(100, 2))
    before, after = trained(module)
    assert guarding(before, after).finding.decision in ("read", "matched whole")


def test_a_frame_is_not_needed_where_the_encoder_is_declared() -> None:
    encoder = guard.ClientEncoder.of_schema(DATA.schema, DATA.statistics.mean.tolist(), DATA.statistics.std.tolist())
    before, after = trained(network())
    found = guard.UpdateGuard(network(), DATA.schema, FEDAVG, encoder=encoder)(before, after).finding
    assert found.decision == "proved"
    assert "columns are distributed as the encoder's means" in found.assumed[0]
    assert isinstance(DATA.train.frame, pd.DataFrame)


def test_records_that_are_read_but_not_proved_are_no_pass() -> None:
    # Means that are a little off, as those of other rows of the same table: the search comes near, the replay does not.
    means = [mean + 1e-3 for mean in DATA.statistics.mean.tolist()]
    encoder = guard.ClientEncoder.of_schema(DATA.schema, means, DATA.statistics.std.tolist())
    before, after = trained(network())
    policy = guard.GuardPolicy("block", "strict")
    found = guard.UpdateGuard(network(), DATA.schema, FEDAVG, encoder=encoder, policy=policy)(before, after).finding
    assert found.decision == "read"
    assert "are not quite right" in found.why
    assert not found.sent


def frozen(*layers: int) -> nn.Sequential:
    module = network()
    assert isinstance(module, nn.Sequential)
    for i in layers:
        for parameter in module[i].parameters():
            parameter.requires_grad_(False)
    return module


def of(records: int) -> guard.MessageRecipe:
    return guard.MessageRecipe(protocol="fedavg", training=LocalTraining(1, records, RATE), batch_size=records)


@pytest.mark.parametrize(
    ("recipe", "module", "why"),
    [
        (of(4), network(), "are more than 4 records leave"),
        (of(1), network(), "are more than 1 records leave"),
        (of(8), frozen(0), "the layer that takes the rows sends nothing"),
        (of(8), frozen(0, 2), "the layer that takes the rows sends nothing"),
        (of(8), frozen(2), "the recipe is not right, or rounding hides them"),
    ],
)
def test_a_message_that_contradicts_what_was_assumed_is_no_pass(
    recipe: guard.MessageRecipe, module: nn.Module, why: str
) -> None:
    found = made(recipe, seconds=3)(*trained(module)).finding
    assert found.decision == "not tried"
    assert why in found.why


def test_another_encoder_and_another_optimiser_than_assumed_are_no_pass() -> None:
    module = network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    rows, labels = ENCODER.encode(DATA.train.cells[:8]) * 1.5 + 0.2, DATA.train.labels[:8].long()
    nn.functional.cross_entropy(module(rows), labels).backward()
    torch.optim.SGD(module.parameters(), lr=RATE).step()
    found = made(seconds=3)(before, module.state_dict()).finding
    assert (found.decision, "the encoder is not the client's" in found.why) == ("in the span", True)
    assert not found.sent
    module = network()
    gradients(module)
    torch.optim.AdamW(module.parameters(), lr=0.01).step()
    found = made(seconds=3)(before, module.state_dict()).finding
    assert (found.decision, "the recipe is not right" in found.why) == ("not tried", True)


def test_what_is_read_in_rounded_messages_is_no_pass() -> None:
    before, after = trained(network())
    rounded = {name: (after[name] - tensor).bfloat16() for name, tensor in before.items()}
    found = made()(before, rounded, form="difference").finding
    assert (found.decision, "no proof is possible" in found.why) == ("read", True)


def test_lists_are_taken_for_the_model_as_sent_too() -> None:
    before, after = trained(network())
    lists = [[tensor.numpy() for tensor in state.values()] for state in (before, after)]
    assert made()(*lists).finding.decision == "proved"


def test_what_a_client_trained_is_looked_at_though_the_guards_copy_freezes_it() -> None:
    before, after = trained(network())
    answer = made(model=frozen(0), policy=BLOCK)(before, after)
    assert answer.finding.decision == "proved"
    assert answer.message is None


def without_some(kind: str) -> tuple[guard.MessageRecipe, dict[str, Tensor]]:
    """Return a recipe of nine records and the gradient of eight of them."""
    module = network()
    rows, labels = ENCODER.encode(DATA.train.cells[:9]), DATA.train.labels[:9].long()
    weights = torch.ones(9)
    weights[8] = 0
    if kind == "masked":
        loss = (nn.functional.cross_entropy(module(rows), labels, reduction="none") * weights).mean()
        names = dict(module.named_parameters())
        slopes = torch.autograd.grad(loss, [*names.values()])
        return guard.MessageRecipe(batch_size=9), dict(zip(names, slopes, strict=True))
    return guard.MessageRecipe(batch_size=9), gradients(module)


@pytest.mark.parametrize("kind", ["masked", "counted one too many"])
def test_records_that_are_read_are_never_sent_though_fewer_than_declared_left_a_trace(kind: str) -> None:
    recipe, given = without_some(kind)
    answer = made(recipe)(network().state_dict(), given)
    assert answer.finding.decision in ("read", "proved")
    assert answer.message is None


@pytest.mark.parametrize("records", [100, 400])
def test_a_sum_over_more_records_than_a_layer_has_directions_is_not_read(records: int) -> None:
    data = distinct(rows=records)
    model = nn3(data.schema, seed=0)
    rows = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(data.train.cells[:records])
    labels = data.train.labels[:records].long()
    nn.functional.cross_entropy(model.module(rows), labels).backward()
    given = {name: p.grad.clone() for name, p in model.module.named_parameters() if p.grad is not None}
    recipe = guard.MessageRecipe(batch_size=len(rows))
    guarding = guard.UpdateGuard(model, data.schema, recipe, reference=data.train, seconds=1)
    answer = guarding(model.module.state_dict(), given)
    assert answer.finding.decision in ("pass", "not tried")
    assert "records read" not in answer.finding.why or "none of" in answer.finding.why


@pytest.mark.parametrize("mode", ["advise", "strict"])
@pytest.mark.parametrize("size", [0.0, 1e-9])
def test_declared_noise_that_is_not_there_hides_nothing(mode: Any, size: float) -> None:
    module = network()
    generator = torch.Generator().manual_seed(0)
    given = {
        name: part + size * torch.randn(part.shape, generator=generator) for name, part in gradients(module).items()
    }
    recipe = guard.MessageRecipe(batch_size=8, defense={"gaussian_noise": {"scale": 1.0}})
    answer = made(recipe, policy=guard.GuardPolicy(mode=mode))(module.state_dict(), given)
    assert answer.finding.decision in ("proved", "read", "matched whole")
    assert answer.finding.why.startswith("as if there were no gaussian_noise")
    assert answer.message is None
