"""What is cheap loads nothing expensive: lists, help and refusals import neither PyTorch nor pandas nor Plotly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seepage import registry
from seepage.datasets.about import card_of
from seepage.results.checks.every import CHECKS
from seepage.results.checks.finding import titles

EXPENSIVE = ("torch", "pandas", "scipy", "sklearn")
# Runs the program on its arguments and prints its status and what of the expensive packages it has loaded.
PROGRAM = f"""
import sys
status = 0
try:
    from seepage.cli import main
    main()
except SystemExit as stopped:
    status = stopped.code or 0
print("status", status, file=sys.stderr)
print("loaded", *(name for name in {EXPENSIVE!r} if name in sys.modules), file=sys.stderr)
"""


def loaded(program: str, *arguments: str) -> tuple[str, list[str], str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    *_, status, found = done.stderr.splitlines()
    return status, found.split()[1:], done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--version"], 0, "seepage"),
        (["--help"], 0, "Draft and check audit documents in YAML."),
        (["checks"], 0, "SEEP012"),
        (["checks", "seep006"], 0, "Why it matters."),
        (["attacks"], 0, "tableak_no_pooling"),
        (["defenses"], 0, "dp_sgd"),
        (["models"], 0, "resnet_bn"),
        (["datasets"], 0, "health_heritage"),
        (["rounds", "nowhere.csv"], 2, "does not exist"),
        (["scan", "examples/flower-adult"], 0, "weights after local training"),
        (["adit"], 2, "Did you mean 'audit'?"),
        (["audit", "--modle", "nn3"], 2, "did you mean '--model'"),
        (["pooled", "--dataset", "adlut"], 2, "did you mean 'adult'"),
        (["vertical", "--device", "cdua"], 2, "did you mean 'cuda'?"),
        (["split", "--baseline", "kn"], 2, "did you mean 'knn'?"),
        *(
            case
            for command, attack, right, defense in [
                ("audit", "tabelak", "tableak", "sing"),
                ("split", "exatc", "exact", "lable_flip"),
                ("vertical", "ginvr", "ginver", "featrue_noise"),
                ("pooled", "mtea", "meta", "labl_only"),
            ]
            for case in [
                ([command, "--attack", attack], 2, f"did you mean {right!r}?"),
                ([command, "--defense", defense], 2, "did you mean"),
                ([command, "--atack", "none"], 2, "did you mean '--attack'"),
                ([command, "adit.yaml"], 2, "'adit.yaml' does not exist"),
                ([command, "--help"], 0, "--fail-above"),
            ]
        ),
    ],
)
def test_what_is_cheap_loads_nothing_expensive(arguments: list[str], status: int, said: str) -> None:
    ended, found, output = loaded(PROGRAM, *arguments)
    assert (ended, found) == (f"status {status}", [])
    assert said in output


def test_importing_the_package_loads_nothing_expensive_and_offers_everything() -> None:
    program = """
import sys
import seepage
print("loaded", *(name for name in {expensive!r} if name in sys.modules), file=sys.stderr)
from seepage import BadInputError, Encoder, GradientView, Knowledge, Report, UpdateView
from seepage import attacks, audit, audit_document, capture, guard, models, read_table, write_certificate
assert [name for name in seepage.__all__ if not hasattr(seepage, name)] == []
assert set(seepage.__all__) <= set(dir(seepage))
assert callable(audit) and callable(capture) and callable(write_certificate)
import seepage.captures, seepage.report.report
assert seepage.capture is capture and seepage.audit is audit
print("status 0", file=sys.stderr)
print("loaded", file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program.format(expensive=EXPENSIVE)], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[0].split() == ["loaded"]


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [("datasets", "catalogue", "catalogue"), ("tabular", "infer", "infer")],
)
def test_a_function_is_not_hidden_by_the_module_that_has_its_name(package: str, module: str, name: str) -> None:
    program = f"import seepage.{package}.{module}; from seepage.{package} import {name}; assert callable({name})"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_summaries_and_cards_read_from_sources_are_those_of_the_imported_parts() -> None:
    program = """
from seepage import registry
from seepage.datasets.about import card_of
read = {}
for kind in ("attacks", "baselines", "defenses", "models", "protocols", "metrics", "datasets", "populations"):
    for entry in getattr(registry, kind).entries():
        card = card_of(entry.name) if kind in ("datasets", "populations") else None
        read[kind, entry.setting, entry.name] = [entry.summary, entry.source, card]
assert not any(entry.loaded for entry in registry.attacks.entries())
print(repr({key: (summary, source, repr(card)) for key, (summary, source, card) in read.items()}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # Keys and values are texts.
    read: dict[tuple[str, str | None, str], tuple[str, str | None, str]] = eval(done.stdout)
    assert len(read) > 80
    for (kind, setting, name), (summary, source, card) in read.items():
        kinds = getattr(registry, kind)
        entry = (kinds if setting is None else kinds.of(setting))[name]
        assert entry.factory is not None
        assert entry.loaded
        assert (entry.summary, entry.source) == (summary, source)
        if kind in ("datasets", "populations"):
            assert repr(card_of(name)) == card


def test_titles_of_checks_read_from_sources_are_those_of_the_registered_checks() -> None:
    assert titles() == sorted((check.code, check.severity, check.title) for check in CHECKS.values())
