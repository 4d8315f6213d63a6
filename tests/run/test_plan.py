"""What would take years, or more memory than there is, is refused before anything is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import seepage
from seepage.auditing import prepare_all
from seepage.config.document import make_specs, read_text_document
from seepage.config.tree import DocumentError
from seepage.config.wording import as_key, as_option
from seepage.errors import BadInputError
from seepage.run.plan import MOST_SECONDS, check_counts, check_memory, check_time, enough_memory
from seepage.settings.catalogue import setting

HUGE = [
    ("horizontal", {"victims": 10**18}, "victims is 1,000,000,000,000,000,000"),
    ("horizontal", {"restarts": 10**9}, "restarts is 1,000,000,000"),
    (
        "horizontal",
        {"attacks": {"name": "tableak", "options": {"restarts": 10**9}}},
        "attacks: tableak: restarts is 1,",
    ),
    ("horizontal", {"batch_sizes": [8, 2**20], "replacement": True}, "batch_sizes is 1,048,576"),
    ("horizontal", {"training": {"records": 10**12}}, "training: records is 1,"),
    ("horizontal", {"protocol": "fedavg", "protocol_options": {"epochs": 10**9}}, "protocol_options: epochs is 1,"),
    ("horizontal", {"dataset": "synthetic", "dataset_options": {"rows": 10**12}}, "dataset_options: rows is 1,"),
    ("split", {"repetitions": 10**18}, "repetitions is 1,"),
    ("vertical", {"features": 10**9}, "features is 1,"),
    ("pooled", {"shadows": 10**9}, "shadows is 1,"),
]


@pytest.mark.parametrize(("name", "fields", "message"), HUGE)
def test_huge_amounts_are_refused_before_anything_is_made(name: str, fields: dict[str, Any], message: str) -> None:
    spec = setting(name).spec.of(**fields)
    with pytest.raises(BadInputError, match=message) as refused:
        prepare_all([spec])
    assert str(refused.value).endswith("allow it: allow_large=True.")
    assert refused.value.worded(as_option).endswith("allow it: --allow-large.")
    assert refused.value.worded(as_key).endswith("allow it: --allow-large.")
    check_counts([setting(name).spec.of(**fields, allow_large=True)])


def test_the_number_of_measurements_is_counted_over_all_specs() -> None:
    specs = make_specs({"seed": list(range(50)), "victims": 10_000, "attacks": ["dlg", "tableak"], "baselines": "mode"})
    with pytest.raises(BadInputError, match="3,000,000 measurements are asked for"):
        check_counts(specs)
    check_counts(specs[:10])


def test_python_and_the_command_of_tables_are_told_too(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="restarts is 1,000,000,000"):
        seepage.audit("german", restarts=10**9, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_document_cannot_consent_to_huge_work(tmp_path: Path) -> None:
    document = {"dataset": "german", "restarts": 10**9}
    refusal = r"allow_large: is consent, which .* cannot give; .* give --allow-large \(in Python: allow_large=True\)"
    with pytest.raises(DocumentError, match=refusal):
        make_specs({**document, "allow_large": True})
    with pytest.raises(DocumentError, match="audit.yaml:2: " + refusal):
        read_text_document("setting: split\nallow_large: false\n", "audit.yaml", tmp_path)
    with pytest.raises(DocumentError, match=refusal):
        seepage.audit_document({**document, "allow_large": True}, allow_large=False)
    # Of the user it is taken, beside a document too.
    assert [spec.allow_large for spec in make_specs(document, {"allow_large": True})] == [True]
    with pytest.raises(BadInputError, match="restarts is 1,000,000,000"):
        seepage.audit_document(document)
    few = {"dataset": "german", "attacks": "dlg", "victims": 2, "iterations": 2, "control": False, "baselines": "mode"}
    [report] = seepage.audit_document({**few, "protocol": {"batch_size": 1}}, allow_large=True)
    assert report.audit.spec.allow_large


def test_seeds_and_bounds_of_columns_are_no_amounts() -> None:
    fields = {"data": Path("a.csv"), "target": "y", "overrides": {"a": {"low": 0, "high": 10**12}}, "seed": 2**62}
    check_counts([setting("horizontal").spec.of(**fields, model_seed=2**62)])


SWEEPS = [
    {"training": {name: list(range(1, 101)) for name in ("rounds", "clients", "records", "epochs")}},
    {
        "setting": "split",
        "defenses": {
            "all": [
                {"name": "label_flip", "probability": [i / 1000 for i in range(1, 201)]},
                {"name": "cut_noise", "noise_multiplier": [float(i) for i in range(1, 201)]},
            ]
        },
    },
    {
        "protocol": {"batch_size": list(range(1, 101))},
        "attacks": {"name": "tableak", "restarts": list(range(1, 1001))},
        "defenses": {"name": "gaussian_noise", "scale": [float(i) for i in range(1, 1001)]},
    },
    {"attacks": [{"name": "dlg", "iterations": list(range(1, 2000)), "label": f"l{i}"} for i in range(6)]},
    {"seed": list(range(1000)), "victims": list(range(1, 1000))},
]


@pytest.mark.parametrize("document", SWEEPS)
def test_sweeps_are_counted_before_they_are_unfolded(document: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match=r"takes (no more|at most)|an audit takes"):
        make_specs(document)


def test_memory_is_forecast_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def spec(**fields: Any) -> Any:
        kept = {"dataset": "german", "batch_sizes": 32, "attacks": ["tableak"], "victims": 1, "restarts": 10**6}
        return setting("horizontal").spec.of(**kept, **fields)

    monkeypatch.setattr("seepage.run.plan.installed_memory", lambda: 16 * 10**9)
    [large] = prepare_all([spec()])
    with pytest.raises(BadInputError, match=r"'tableak' would hold about \d+ GB in 2 processes, more than the 16 GB"):
        check_memory([large], 2)
    check_memory(prepare_all([spec(allow_large=True)]), 2)
    small = prepare_all([setting("horizontal").spec.of(dataset="german", batch_sizes=[8, 128])])
    check_memory(small, 8)


@pytest.mark.long
def test_time_is_forecast_and_refused_above_a_month(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "dataset": "german", "batch_sizes": 8, "attacks": ["tableak"], "victims": 10**5, "iterations": 10**6,
        "labels": "true", "workers": 1, "control": False, "baselines": "mode",
    }  # fmt: skip
    with pytest.raises(
        BadInputError, match=r"would take at least .* years on this machine, above the limit of 30 days"
    ):
        seepage.audit(out=tmp_path / "run", source=options.pop("dataset"), **options)
    check_time(MOST_SECONDS)


def test_arrays_that_no_machine_holds_are_told_in_a_paragraph() -> None:
    with pytest.raises(BadInputError, match="needs more memory than the machine has"), enough_memory():
        torch.empty(2**60)
    with pytest.raises(RuntimeError, match=r"^other$"), enough_memory():
        raise RuntimeError("other")
