"""A document becomes the specs that it says, and every mistake in it is told with its line and key."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from seepage import cli, registry
from seepage.config.document import keys_of, make_specs, presets, read_document, read_preset, read_text_document
from seepage.config.tree import DocumentError
from seepage.errors import BadInputError
from seepage.settings import catalogue
from seepage.settings.command import given_options, table_option
from seepage.settings.horizontal.spec import HorizontalSpec, make_spec
from seepage.settings.option import fields_of
from seepage.settings.part import Part
from seepage.settings.spec import Gate, Wish
from tests.parts import horizontal

KEYS = list(keys_of(HorizontalSpec))


def read(text: str, given: dict[str, Any] | None = None) -> list[HorizontalSpec]:
    return horizontal(read_text_document(textwrap.dedent(text), "audit.yaml", Path(), given))


def one(text: str, given: dict[str, Any] | None = None) -> HorizontalSpec:
    [spec] = read(text, given)
    return spec


def mistakes(text: str, given: dict[str, Any] | None = None) -> tuple[str, ...]:
    with pytest.raises(DocumentError) as caught:
        read(text, given)
    assert "\n" not in str(caught.value)
    return caught.value.lines


FULL = """\
dataset: {name: adult, missing: category}
model: {name: nn2, head: sigmoid, seed: 3}
training: {rounds: 4, clients: 5}
protocol: {name: fedsgd, batch_size: [8, 2], replacement: true}
attacks:
  - tableak
  - {name: dlg, iterations: 20, step: 1e-2, label: mine}
defenses: [none, {name: gaussian_noise, scale: 0.01}]
baselines: mode
metrics: [accuracy, rmse]
labels: true
dropout: off
loss: {reduction: sum, weights: [1, 9]}
batch_statistics: granted
auxiliary: 90
profile: faithful
restarts: 4
iterations: 50
victims: 6
seed: 7
device: cpu
threads: 2
workers: 3
keep_records: true
non_members: 20
quasi_identifiers: [job, sex]
control: false
gate: {above: 0.25, column: age}
recommend: {below: 0.1, max_cost: 0.02}
data_folder: tables
"""


def test_every_key_reaches_its_field() -> None:
    expected = make_spec(
        dataset="adult",
        dataset_options={"missing": "category"},
        model="nn2",
        head="sigmoid",
        model_seed=3,
        training={"rounds": 4, "clients": 5},
        protocol="fedsgd",
        batch_sizes=[8, 2],
        replacement=True,
        attacks=["tableak", {"name": "dlg", "options": {"iterations": 20, "step": 0.01}, "label": "mine"}],
        defenses=["none", {"name": "gaussian_noise", "options": {"scale": 0.01}}],
        baselines="mode",
        metrics=["accuracy", "rmse"],
        labels="true",
        dropout="off",
        loss={"reduction": "sum", "weights": (1.0, 9.0)},
        batch_statistics="granted",
        auxiliary=90,
        profile="faithful",
        restarts=4,
        iterations=50,
        victims=6,
        seed=7,
        device="cpu",
        threads=2,
        workers=3,
        keep_records=True,
        non_members=20,
        quasi_identifiers=["job", "sex"],
        control=False,
        gate=Gate(above=0.25, column="age"),
        recommend=Wish(below=0.1, max_cost=0.02),
        data_folder=Path("tables"),
    )
    assert one(FULL) == expected
    own = "data: p.csv\ntarget: ill\nsensitive: [job, 'no']\ndrop: id\nseparator: ';'"
    assert one(own) == make_spec(data="p.csv", target="ill", sensitive=["job", "no"], drop=["id"], separator=";")
    steering = "overrides: {age: {low: 0}, zip: discrete}\nmissing: category\nmost_categories: 30\nmost_encoded: 200"
    steering += "\nkeep_dummies: true\nday_first: true\nencoding: cp1252"
    assert one(f"{own}\n{steering}") == make_spec(
        **{"data": "p.csv", "target": "ill", "sensitive": ["job", "no"], "drop": ["id"], "separator": ";"},
        overrides={"age": {"low": 0}, "zip": {"kind": "discrete"}},
        missing="category",
        most_categories=30,
        most_encoded=200,
        keep_dummies=True,
        day_first=True,
        encoding="cp1252",
    )
    assert one("data: p.csv\nschema: p.yaml") == make_spec(data="p.csv", schema_file="p.yaml")
    told = {key for text in (FULL, own, steering, "schema: x") for key in yaml.safe_load(text)}
    below = {one.key for one in fields_of(HorizontalSpec).values() if one.option.below}
    assert told == set(KEYS) - below - {"time_budget", "variant"}


def test_the_mapping_and_the_text_are_twins() -> None:
    text = FULL.replace("1e-2", "0.01")
    assert make_specs(yaml.safe_load(text)) == read(text)


def test_what_is_left_out_is_the_default() -> None:
    assert one("victims: 40") == make_spec()
    assert one("protocol: fedsgd") == make_spec()
    assert one("protocol: {batch_size: 4}") == make_spec(batch_sizes=4)


def test_a_part_is_written_with_its_options_below_its_name_as_on_the_command_line() -> None:
    inner = one("defenses: [none, gaussian_noise: {scale: 0.1}]")
    beside = one("defenses: [none, {name: gaussian_noise, scale: 0.1}]")
    option = read("dataset: german", {"defenses": ["none", "gaussian_noise:{scale: 0.1}"]})
    assert inner.defenses == beside.defenses == option[0].defenses
    swept = one("defenses: [gaussian_noise: {scale: [0.1, 1]}]")
    assert [part.title for part in swept.defenses] == ["gaussian_noise(scale=0.1)", "gaussian_noise(scale=1)"]
    with pytest.raises(BadInputError, match="this defense has no name"):
        one("defenses: [gausian_noise: {scale: 0.1}]")


def test_the_command_of_a_spec_is_read_back_as_the_same_spec(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec(
        dataset="german",
        batch_sizes=16,
        attacks={"name": "dlg", "iterations": 30},
        protocol="fedavg",
        protocol_options={"epochs": 3, "optimizer": "adam"},
        training={"rounds": 2},
        defenses=["none", {"name": "dp_sgd", "epsilon": 0.123456789}],
        control=False,
    )
    given: list[Any] = []
    monkeypatch.setattr("seepage.cli.running.run", lambda specs, *_, **__: given.extend(specs))
    arguments = shlex.split(f"{table_option(spec)} {given_options(spec)}")
    monkeypatch.setattr("sys.argv", ["seepage", "audit", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code, capsys.readouterr().err
    assert given == [spec]


def test_presets_are_documents() -> None:
    assert list(presets()) == ["decide", "default", "faithful", "quick"]
    assert all(presets().values())
    assert read(read_preset("default")) == [make_spec(control=True)]
    assert one(read_preset("quick")) == make_spec(batch_sizes=8, victims=4, restarts=5, iterations=500)
    random = {"name": "random", "options": {"one_draw_per_column": True}, "label": "random_one_draw"}
    baselines = ["likeliest", "mode", "random", random]
    attacks = ["tableak", "inverting_gradients"]
    faithful = make_spec(profile="faithful", labels="true", replacement=True, baselines=baselines, attacks=attacks)
    assert one(read_preset("faithful")) == faithful


@pytest.mark.parametrize("name", [name for name, plugin in catalogue.settings().items() if plugin.decide])
def test_every_setting_has_defenses_that_decide_for_each_protocol(name: str) -> None:
    plugin = catalogue.setting(name)
    more = {"split": {"private_columns": "housing"}, "pooled": {"sensitive": "housing"}}.get(name, {})
    for protocol in plugin.decide:
        own = {"protocol": protocol} if protocol else {}
        preset = plugin.preset("decide", {"dataset": ["german"], **own})
        [spec] = make_specs({"setting": name, "dataset": "german", **more, **preset, **own})
        assert spec.defenses[0].name == "none"
        assert len(spec.defenses) == 3
    with pytest.raises(BadInputError, match="has no preset 'quick'; it has the preset 'decide'"):
        plugin.preset("quick", {})
    with pytest.raises(BadInputError, match="has no preset 'decide'; use 'seepage recommend --setting"):
        replace(plugin, decide={}).preset("decide", {})


def test_times_make_the_survival_model_that_decide_has_defenses_for() -> None:
    defenses = catalogue.setting("statistics").preset("decide", {"time": "days", "rows": ["50"]})["defenses"]
    assert defenses == ["none", "coarser_times", "jump_guard"]


def test_files_are_looked_for_from_the_folder_of_the_document(tmp_path: Path) -> None:
    document = tmp_path / "audit.yaml"
    document.write_text(f"data: people.csv\nschema: {tmp_path}/s.yaml\ndata_folder: ../tables\n")
    [spec] = read_document(document)
    assert (spec.data, spec.schema_file) == (tmp_path / "people.csv", tmp_path / "s.yaml")
    assert spec.data_folder == tmp_path / "../tables"
    [other] = read_document(document, {"data": Path("mine.csv"), "target": "ill"})
    assert (other.data, other.schema_file, other.target) == (Path("mine.csv"), None, "ill")


def test_lists_sweep_and_what_they_make_is_told_apart() -> None:
    specs = read("""
        dataset: [german, {name: adult, missing: [drop, category]}]
        model: [linear, {name: nn1, seed: [0, 1]}]
        protocol: {batch_size: [1, 8], replacement: [false, true]}
        attacks: [tableak, {name: [tableak, dlg], iterations: [5, 6]}]
        defenses: [none, {name: gaussian_noise, scale: [1e-3, 0.01]}]
        labels: [true, restored]
        """)
    assert len(specs) == 3 * 3 * 2 * 2
    assert len({spec.model_dump_json() for spec in specs}) == len(specs)
    assert len({(spec.dataset, spec.model, spec.variant) for spec in specs}) == len(specs)
    assert {spec.batch_sizes for spec in specs} == {(1, 8)}
    attacks = ["tableak", "tableak(iterations=5)", "tableak(iterations=6)", "dlg(iterations=5)", "dlg(iterations=6)"]
    for spec in specs:
        assert [part.title for part in spec.attacks] == attacks
        scales = [part.options.get("scale") for part in spec.defenses]
        assert scales == [None, 0.001, 0.01]
    assert [spec.variant for spec in specs[:2]] == [
        f"fedsgd(replacement=false), labels={x}" for x in ("true", "restored")
    ]
    assert specs[-1].variant == "adult(missing=category), nn1(seed=1), fedsgd(replacement=true), labels=restored"


def test_protocols_may_each_have_their_batch_sizes() -> None:
    specs = read("protocol: [{batch_size: [1, 2]}, {name: fedsgd, batch_size: 8, replacement: true}]")
    assert [(spec.batch_sizes, spec.replacement) for spec in specs] == [((1, 2), False), ((8,), True)]


def test_the_same_part_with_other_options_gets_a_label_and_one_alone_does_not() -> None:
    spec = one("attacks: [tableak, {name: tableak, restarts: 3}, {name: tableak, restarts: 4, label: four}]")
    assert [part.title for part in spec.attacks] == ["tableak", "tableak(restarts=3)", "four"]
    assert one("attacks: {name: tableak, restarts: 3}").attacks == (Part(name="tableak", options={"restarts": 3}),)
    swept = one("attacks: {name: tableak, options: {restarts: [3, 4]}, label: mine}")
    assert [part.title for part in swept.attacks] == ["mine(restarts=3)", "mine(restarts=4)"]


def test_a_list_within_a_list_is_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def weighted(weights: list[int]) -> list[int]:
        """An attack whose option is a list."""
        return weights

    monkeypatch.setattr(registry.attacks, "_entries", dict(registry.attacks._entries))
    registry.attacks.register("weighted", "horizontal")(weighted)
    spec = one("attacks: {name: weighted, weights: [[1, 2], [3]]}")
    assert [part.options for part in spec.attacks] == [{"weights": [1, 2]}, {"weights": [3]}]
    assert spec.attacks[0].title == "weighted(weights=[1, 2])"


def test_words_of_other_yaml_versions_stay_words() -> None:
    spec = one("data: a.csv\ntarget: no\nsensitive: [on, yes, 2020-01-01, 'null', '8']")
    assert (spec.target, spec.sensitive) == ("no", ("on", "yes", "2020-01-01", "null", "8"))


def test_a_model_of_ones_own_is_named_with_its_options_and_weights() -> None:
    def own(text: str, folder: str = "") -> HorizontalSpec:
        [spec] = horizontal(read_text_document(text, "a.yaml", Path(folder), allow_code=True))
        return spec

    spec = own("model: {name: 'nets/mine.py:make', width: 3, weights: w.safetensors}")
    assert (spec.model, spec.weights) == ("nets/mine.py:make", Path("w.safetensors"))
    assert spec.model_options == {"width": 3}
    there = own("model: {name: 'mine.py:make', weights: w}", "there")
    assert (there.model, there.weights) == ("there/mine.py:make", Path("there/w"))
    assert own("model: package.nets:make").model == "package.nets:make"
    assert one("model: nn1", {"weights": Path("w")}).weights == Path("w")
    assert "weights" in mistakes("model: {name: nn1, weights: 3}")[0]


@pytest.mark.parametrize(
    "text",
    [
        "model: os:system",
        "model: {name: 'os:system', command: 'touch seen'}",
        "model: [nn1, nets.py:make]",
        "model: {name: [nn1, nets.py:make]}",
        "model: &m nets.py:make\nvariant: x",
    ],
)
def test_a_document_names_code_only_with_consent(text: str) -> None:
    [message] = mistakes(text)
    assert message.startswith("audit.yaml:1: model")
    assert "is code, which a document may run only with your consent" in message
    assert "--allow-code (in Python: allow_code=True)" in message
    mapping = yaml.safe_load(text)
    with pytest.raises(DocumentError, match="allow_code=True"):
        make_specs(mapping)
    assert make_specs(mapping, allow_code=True)
    # What the command line names is consent by itself, whatever the document says.
    assert one(text, {"model": ["other.py:make"]}).model == "other.py:make"


def test_aliases_are_read() -> None:
    assert one("protocol: &p {batch_size: [1, 2]}\nvictims: &n 3\nworkers: *n").workers == 3


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("victim: 3", "1: victim", "did you mean 'victims'"),
        ("seed: 1\n\nbatch_size: 3", "3: batch_size", "protocol: {batch_size: ...}"),
        ("seed: 1\nvictims: 3\nseed: 2", "3: seed", "stands on line 1 already"),
        ("seed: 1\nattacks:\n  - name: dlg\n    name: dlg", "4: attacks[0].name", "stands on line 3 already"),
        ("victims:", "1: victims", "has no value"),
        ("victims: 0", "1: victims", "greater than or equal to 1, got 0"),
        ("victims: ten", "1: victims", "whole number, got ten"),
        ("victims: '10'", "1: victims", 'whole number, got "10"'),
        ("victims: 2.5", "1: victims", "whole number, got 2.5"),
        ("victims: true", "1: victims", "whole number, got true"),
        ("victims: [3, 0]", "1: victims[1]", "greater than or equal to 1, got 0"),
        ("victims: {a: 4}", "1: victims", "whole number, got {"),
        ("batch_sizes: 3\nprotocol: {batch_size: 4}", "2: protocol.batch_size", "is given in batch_sizes already"),
        ("seed: 9223372036854775808", "1: seed", "less than"),
        ("seed: [0, x]", "1: seed[1]", "whole number, got x"),
        ("seed: [0, -1]", "1: seed[1]", "greater than or equal to 0"),
        ("seed: [0,\n 0]", "2: seed[1]", "repeats seed[0]"),
        ("seed: []", "1: seed", "sweeps over nothing"),
        ("seed: .nan", "1: seed", "finite number"),
        ("seed: 1e999", "1: seed", "finite number"),
        (f"seed: {'9' * 5000}", "1: seed", "finite number"),
        (f"seed: {'9' * 200}", "1: seed", "200 digits"),
        ("control: yes", "1: control", "true or false, got yes"),
        ("device: gpu", "1: device", "unknown device 'gpu'"),
        ("device: 3", "1: device", "put it in quotes"),
        ("labels: tru", "1: labels", "did you mean 'true'"),
        ("labels: [true, true]", "1: labels[1]", "repeats labels[0]"),
        ("profile: [default, faithfull]", "1: profile[1]", "did you mean 'faithful'"),
        ("dataset: adlut", "1: dataset", "did you mean 'adult'"),
        ("dataset: {name: adult, mising: drop}", "1: dataset.mising", "did you mean 'missing'"),
        ("dataset: {name: lawschool, folder: x}", "1: dataset.folder", "unknown option"),
        ("dataset: {missing: drop}", "1: dataset", "no name"),
        ("dataset: [adult, adult]", "1: dataset[1]", "repeats dataset[0]"),
        ("model: nn33", "1: model", "did you mean 'nn3'"),
        ("model: {name: nn3, schema: x}", "1: model.schema", "unknown option of model 'nn3'"),
        ("model: {name: nn3, seed: -1}", "1: model.seed", "greater than or equal to 0"),
        ("model: {name: nn3, head: softmx}", "1: model.head", "did you mean 'softmax'"),
        ("model: {name: nn3, label: ''}", "1: model.label", "at least one letter"),
        ("protocol: fedsdg", "1: protocol", "did you mean 'fedsgd'"),
        ("protocol: {batch_size: []}", "1: protocol.batch_size", "sweeps over nothing"),
        ("protocol:\n  batch_size: [8,\n    x]", "3: protocol.batch_size[1]", "whole number, got x"),
        ("protocol:\n  batch_size: [8,\n    0]", "3: protocol.batch_size[1]", "greater than or equal to 1, got 0"),
        ("protocol: {batch_size: [8, 8]}", "1: protocol.batch_size[1]", "repeats protocol.batch_size[0] (8)"),
        ("protocol: {replacement: 1}", "1: protocol.replacement", "true or false"),
        (
            "protocol: {name: fedsgd, rounds: 3}",
            "1: protocol.rounds",
            "batch_size, clients, holds, name, precision, replacement",
        ),
        ("attacks: [tableak,\n  tabelak]", "2: attacks[1]", "did you mean 'tableak'"),
        ("attacks: [tableak, tableak]", "1: attacks[1]", "repeats attacks[0]"),
        ("attacks: [tableak, {name: tableak}]", "1: attacks[1]", "repeats attacks[0]"),
        ("attacks: [tableak, {name: dlg, label: tableak}]", "1: attacks[1]", "would be called 'tableak'"),
        ("attacks: [[tableak]]", "1: attacks[0]", "by name, or as a mapping"),
        ("attacks: {name: 3}", "1: attacks.name", "go by their names"),
        ("attacks: [{name: dlg,\n  restart: 3}]", "2: attacks[0].restart", "did you mean 'restarts'"),
        ("attacks: [{name: dlg,\n  restarts: [3,\n 0]}]", "3: attacks[0].restarts[1]", "from 1 up, got restarts=0"),
        ("attacks: {name: dlg, options: {stp: 3}}", "1: attacks.options.stp", "did you mean 'step'"),
        (
            "attacks: {name: dlg, step: 0.1, options: {step: 0.3}}",
            "1: attacks.options.step",
            "beside 'options' already",
        ),
        ("attacks: {name: dlg, label: random}\nbaselines: random", "1: attacks", "an attack and a baseline"),
        ("defenses: []", "1: defenses", "sweeps over nothing"),
        ("defenses: gaussian_noise", "1: defenses", "needs 'scale'"),
        ("defenses: {name: gaussian_noise, scale: [1, -1]}", "1: defenses.scale[1]", "got scale=-1"),
        ("baselines: modes", "1: baselines", "did you mean 'mode'"),
        ("gate: high", "1: gate.above", "expected a number, got high"),
        ("gate: {above: 3}", "1: gate.above", "between 0 and 1 (0.2 is 20 points"),
        ("gate: {column: age}", "1: gate", "needs gate: {above: LIFT}"),
        ("gate: {above: 0.1, colunm: age}", "1: gate.colunm", "did you mean 'column'"),
        ("gate: {above: 0.1, column: 3}", "1: gate.column", "expected a text, got 3; put it in quotes"),
        ("target: ill", "1: target", "no data file was given"),
        ("separator: ;", "1: separator", "no data file was given"),
        ("data: a.csv", "1: data", "needs a target"),
        ("dataset: adult\ndata: a.csv\ntarget: ill", "2: data", "leave one of the two out"),
        ("data: a.csv\nschema: s.yaml\ndrop: id", "2: schema", "say it there instead"),
        ("data: a.csv\ntarget: ill\ndrop: [id, 3]", "3: drop[1]", "expected a text, got 3; put it in quotes"),
        ("data: a.csv\ntarget: ill\nseparator: ';;'", "3: separator", "at most 1 character"),
        ("data: ''\ntarget: ill", "1: data", "got an empty one"),
        ("seed: [1", "1", "no valid YAML"),
        ("seed: 1\n\tvictims: 3", "2", "no valid YAML"),
        ("seed: 1\n  victims: 3", "2", "no valid YAML"),
        ("- seed", "1", "is a mapping of keys"),
        ("seed: 1\n---\nseed: 2", "2", "second document"),
        ("seed: !!python/object/apply:os.system [ls]", "1: seed", "tags such as"),
        ("? [a]\n: 3", "1", "a key is a word"),
        ("1: 3", "1", "a key is a word"),
        ("seed: *n", "1: seed", "refers to nothing"),
        ("seed: &n [*n]", "1: seed[0]", "refers to nothing"),
        ("<<: {seed: 1}", "1: <<", "unknown key"),
        ("seed: 1\nvictims: \x07", "2", "U+0007"),
        ("[" * 100_000, "1", "levels deep"),
    ],
)
def test_a_mistake_is_told_with_line_and_key(text: str, place: str, message: str) -> None:
    [line] = mistakes(text)
    assert line.startswith(f"audit.yaml:{place}: ")
    assert message in line
    assert len(line) < 600


def test_nothing_is_not_a_document() -> None:
    for text in ("", "# only a comment", "~", "---"):
        assert "holds nothing" in mistakes(text)[0]


def test_all_mistakes_are_told_at_once_in_the_order_of_lines() -> None:
    lines = mistakes("""\
        datset: adult
        model: nn33
        protocol: {batch_size: [8, 0, x]}
        attacks: [tabelak, {name: dlg, restarts: 0, stp: 3}]
        labels: [true, tru]
        seed: -1
        device: gpu
        victims: 0
        """)
    places = [line.split(": ")[0:2] for line in lines]
    keys = ["datset", "model", "protocol.batch_size[1]", "protocol.batch_size[2]"]
    keys += ["attacks[0]", "attacks[1].restarts", "attacks[1].stp", "labels[1]", "seed", "device", "victims"]
    assert [key for _, key in places] == keys
    assert [int(place.removeprefix("audit.yaml:")) for place, _ in places] == [1, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8]
    many = mistakes("\n".join(f"key{i}: 1" for i in range(60)))
    assert "35 more mistakes" in many[-1]


def test_values_that_explode_are_refused() -> None:
    levels = ["a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"]
    levels += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)]
    assert "more than 10,000 values" in mistakes("\n".join(levels))[0]
    axes = ", ".join(f"o{i}: [1, 2]" for i in range(60))
    assert "at most 10,000" in mistakes(f"attacks: {{name: dlg, {axes}}}")[0]
    seeds = ", ".join(map(str, range(200)))
    swept = mistakes(f"seed: [{seeds}]\nrestarts: [1, {seeds[6:]}]")
    assert "sweeps over 39,800 audits" in swept[0]


def test_files_that_are_no_documents_are_refused(tmp_path: Path) -> None:
    large, latin, pipe = tmp_path / "large.yaml", tmp_path / "latin.yaml", tmp_path / "pipe"
    large.write_text("#" * 1_000_001)
    latin.write_bytes("seed: 1\n# über".encode("latin-1"))
    os.mkfifo(pipe)
    cases = {
        tmp_path / "none.yaml": "does not exist",
        tmp_path: "is no file",
        pipe: "is no file",
        large: "larger than 1 MB",
        latin: f"{latin}:2: is no UTF-8 text",
    }
    for path, message in cases.items():
        with pytest.raises(DocumentError) as caught:
            read_document(path)
        assert message in str(caught.value)


def test_a_mapping_takes_plain_values_only() -> None:
    for bad in ({"model": object()}, {"seed": math.nan}, {"seed": {1: 2}}):
        with pytest.raises(DocumentError):
            make_specs(bad)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DocumentError, match="levels deep"):
        make_specs({"seed": endless})
    assert horizontal(make_specs({"labels": True, "data": Path("a.csv"), "target": "ill"}))[0].labels == "true"


def test_options_take_precedence() -> None:
    assert one(FULL, {"victims": 2}) == make_spec(**{**_fields(one(FULL)), "victims": 2})
    assert one(FULL, {"batch_sizes": [4], "replacement": False}).batch_sizes == (4,)
    assert one(FULL, {"head": "softmax", "model_seed": 9}).model_seed == 9
    assert one(FULL, {"model": ["nn1"]}).head is None
    assert [part.title for part in one(FULL, {"attacks": ["dlg", "dlg"]}).attacks] == ["dlg"]
    assert one(FULL, {"dataset_options": {"missing": "drop"}}).dataset_options == {"missing": "drop"}
    own = one(FULL, {"data": Path("a.csv"), "target": "ill"})
    assert (own.data, own.dataset_options, own.data_folder) == (Path("a.csv"), {}, Path("tables"))
    assert one("data: a.csv\ntarget: ill\ndrop: x", {"schema_file": Path("s.yaml"), "target": "y"}).drop == ()
    assert one("data: a.csv\ntarget: ill", {"dataset": ["german"]}) == make_spec(dataset="german")
    assert [spec.dataset for spec in read("victims: 10", {"dataset": ["german", "adult"]})] == ["german", "adult"]


def test_an_option_ends_the_sweep_over_what_it_sets() -> None:
    text = "attacks: [tableak, {name: tableak, restarts: [10, 30]}, {name: dlg, iterations: 3}]\nrestarts: [1, 2]"
    spec = one(text, {"restarts": 5})
    assert [part.title for part in spec.attacks] == ["tableak", "dlg"]
    assert spec.restarts == 5
    swept = "protocol: [{batch_size: [1, 2]}, {batch_size: 8, replacement: true}]"
    assert [s.batch_sizes for s in read(swept, {"batch_sizes": [4]})] == [(4,), (4,)]
    assert one(swept, {"batch_sizes": [4], "replacement": False}).batch_sizes == (4,)


def test_a_mistake_in_an_option_names_the_option() -> None:
    assert mistakes("victims: 3", {"victims": 0})[0].startswith("--victims: must be greater")
    assert mistakes("victims: 3", {"attacks": ["dlg", "x"]})[0].startswith("--attack: unknown attack 'x'")


def _fields(spec: HorizontalSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in HorizontalSpec.model_fields}


def _axis(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=len(values), unique=True)


_LISTS: dict[str, list[Any]] = {
    "dataset.missing": ["drop", "category"],
    "model.name": ["nn1", "nn2", "linear"],
    "model.seed": [0, 1, 5],
    "protocol.batch_size": [1, 2, 8, 64],
    "protocol.replacement": [True, False],
    "attacks.restarts": [1, 10, 30],
    "attacks.step": [0.1, 0.01, 1.0],
    "defenses.scale": [0.1, 0.001],
    "labels": ["true", "restored"],
    "profile": ["default", "faithful"],
    "seed": [0, 3, 2**63 - 1],
}
_IN_A_SPEC = ("protocol.batch_size", "attacks.restarts", "attacks.step", "defenses.scale")


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Return lists of which at most four hold more than one value."""
    longer = draw(st.sets(st.sampled_from(sorted(_LISTS)), max_size=4))
    chosen = {}
    for key, values in _LISTS.items():
        most = len(values) if key in longer else 1
        chosen[key] = draw(st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True))
    return chosen


@given(sweeps())
def test_the_settings_are_the_product_of_the_lists(lists: dict[str, list[Any]]) -> None:
    document: dict[str, Any] = {"dataset": {"name": "adult"}, "protocol": {"name": "fedsgd"}, "model": {}}
    document |= {"attacks": {"name": "tableak"}, "defenses": {"name": "gaussian_noise"}}
    for key, values in lists.items():
        entry, _, option = key.partition(".")
        if option:
            document[entry][option] = values
        else:
            document[entry] = values
    specs = horizontal(make_specs(document))
    assert len(specs) == math.prod(len(values) for key, values in lists.items() if key not in _IN_A_SPEC)
    assert len({(spec.model, spec.variant) for spec in specs}) == len(specs)
    for spec in specs:
        assert list(spec.batch_sizes) == lists["protocol.batch_size"]
        inside = len(lists["attacks.restarts"]) * len(lists["attacks.step"])
        assert len({part.title for part in spec.attacks}) == len(spec.attacks) == inside
        assert [part.options["scale"] for part in spec.defenses] == lists["defenses.scale"]
        assert HorizontalSpec.model_validate(spec.plain()) == spec
    assert read_text_document(yaml.safe_dump(document), "audit.yaml", Path()) == specs


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["tableak", "nn3"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, "name", "label", "options", "restarts", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYS), _VALUES, max_size=4))
def test_values_of_any_kind_give_specs_or_mistakes(document: dict[str, Any]) -> None:
    with contextlib.suppress(BadInputError):
        assert all(isinstance(spec, HorizontalSpec) for spec in make_specs(document))


_WORDS = ["seed", "attacks:", "- ", "\n  ", "é", "\0", "\ufeff"]
_SIGNS = st.sampled_from([*"abn:-[]{}&*!|>'\"%@`#,?<~ \n\t\\0", *_WORDS])


@settings(max_examples=200)
@given(st.lists(_SIGNS, max_size=30).map("".join) | st.text(max_size=40))
def test_garbage_gives_mistakes_with_their_line(text: str) -> None:
    with contextlib.suppress(DocumentError):
        read_text_document(text, "audit.yaml", Path())


def test_metrics_are_chosen_as_other_parts_are() -> None:
    [spec] = horizontal(make_specs({"metrics": ["accuracy", {"name": "exact_match"}]}))
    assert [part.name for part in spec.metrics] == ["accuracy", "exact_match"]
    assert len(horizontal(make_specs({}))[0].metrics) == len(registry.metrics.names())
    assert "did you mean 'accuracy'" in mistakes("metrics: acuracy")[0]
    assert "add 'accuracy' to metrics" in mistakes("metrics: [rmse]")[0]
    assert mistakes("dataset: adult\nmetrics: [rmse]")[0].startswith("audit.yaml:2: metrics")


@settings(max_examples=100)
@given(st.binary(max_size=60))
def test_bytes_of_any_kind_give_mistakes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage.yaml"
    path.write_bytes(content)
    with contextlib.suppress(DocumentError):
        read_document(path)
