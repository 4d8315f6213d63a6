"""Defenses in one syntax: text, YAML, combinations, and what cannot be combined."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.errors import BadInputError
from seepage.registry import Registry, defenses
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.part import Part, Parts, combine
from seepage.settings.pooled import audit as pooled
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.split import audit as split
from seepage.settings.split.spec import SplitSpec

PARTS = TypeAdapter(Parts)
BOTH = "label_flip:{probability: 0.01}+cut_noise:{noise_multiplier: 0.01, rule: own}"


def test_text_and_yaml_say_the_same() -> None:
    listed = {
        "all": [
            {"name": "label_flip", "probability": 0.01},
            {"name": "cut_noise", "options": {"noise_multiplier": 0.01, "rule": "own"}},
        ]
    }
    [text], [document] = (PARTS.validate_python(one) for one in (BOTH, listed))
    assert text == document
    assert text.title == "label_flip+cut_noise"
    assert combine(defenses.of("split"), text) == (LabelFlip(0.01), CutNoise(0.01, "own"))
    assert PARTS.validate_python([text.model_dump(mode="json")]) == (text,)
    [labelled] = PARTS.validate_python({**listed, "label": "both"})
    assert labelled.title == "both"
    assert labelled.mechanisms == text.mechanisms
    assert PARTS.validate_python({"all": ["label_only"]})[0].name == "label_only"


def test_what_is_combined_is_what_each_mechanism_does() -> None:
    spec = SplitSpec.of(defenses=["none", BOTH])
    none, both = map(split.defense_of, spec.defenses)
    assert (none.flip, none.noise, none.published) == (None, None, None)
    assert (both.flip, both.noise, both.published) == (LabelFlip(0.01), CutNoise(0.01, "own"), None)


@pytest.mark.parametrize(
    ("registered", "given", "said"),
    [
        (defenses.of("split"), "label_flip+label_flip", "combines 'label_flip' with itself"),
        (defenses.of("split"), {"all": ["label_flip", "label_flip"]}, "combines 'label_flip' with itself"),
        (defenses.of("split"), "none+label_flip:{probability: 0.1}", "combines a defense with none"),
        (
            defenses.of("split"),
            {"name": "label_flip+cut_noise", "probability": 0.1},
            "unknown mechanism .*'probability'",
        ),
        (defenses.of("split"), {"all": ["label_flip"], "probability": 0.1}, "got 'probability' beside"),
        (defenses.of("split"), {"all": []}, "lists each with name and options"),
        (defenses.of("split"), {"all": [{"name": "label_flip", "label": "mine"}, "cut_noise"]}, "has one label"),
        (defenses.of("split"), "label_flip:{probability: 0.1", "expected a name, or a name with options"),
        (
            defenses.of("vertical"),
            "pa_imfl+vfldefender",
            "'vfldefender' both act on the gradients that go back",
        ),
        (defenses.of("vertical"), "returned_noise:{scale: 1}+pa_imfl", "both act on the gradients that go back"),
        (defenses.of("pooled"), "rounded_answers:{digits: 1}+label_only", "both act on the answers"),
        (defenses.of("pooled"), "dp_training:{noise_multiplier: 1}", "needs clip"),
        (defenses.of("pooled"), "dp_training:{clip: 0}", "clip is a number above 0"),
        (
            defenses.of("pooled"),
            "dp_training:{clip: 1, noise_multiplier: -1}",
            "noise_multiplier is a number from 0",
        ),
        (defenses.of("pooled"), "query_limit:{queries: 0}", "queries is a whole number from 1 up"),
        (defenses.of("pooled"), "rounded_answers:{digits: -1}", "digits is a whole number from 0 up"),
        (defenses.of("pooled"), "without_columns:{columns: []}", "one at least"),
        (defenses.of("vertical"), "bottleneck:{width: 0}", "width is a whole number from 1 up"),
    ],
)
def test_what_cannot_be_combined_is_refused(registered: Registry, given: object, said: str) -> None:
    # What pydantic raises while it reads a part is a ValueError that holds the refusal.
    with pytest.raises(ValueError, match=said):
        combine(registered, PARTS.validate_python(given)[0])


def test_every_setting_has_no_defense_and_names_what_each_does() -> None:
    for registered in (defenses.of("horizontal"), defenses.of("split"), defenses.of("vertical"), defenses.of("pooled")):
        assert "none" in registered
        assert all(entry.summary.endswith(".") for entry in registered.entries())
    for registered in (defenses.of("split"), defenses.of("vertical"), defenses.of("pooled")):
        assert all(getattr(e.factory, "acts_on", "") for e in registered.entries() if e.name != "none")


def test_horizontal_learning_takes_one_mechanism() -> None:
    with pytest.raises(BadInputError, match="give each as a defense of its own"):
        make_spec(defenses=["clipping:{norm: 1}+sign"])
    assert make_spec(defenses="gaussian_noise:{scale: 0.1}").defenses == (
        Part(name="gaussian_noise", options={"scale": 0.1}),
    )


def test_pooled_defenses_are_what_was_said() -> None:
    spec = PooledSpec.of(defenses=["without_columns:{columns: income}+query_limit:{queries: 30}"])
    [both] = map(pooled.defense_of, spec.defenses)
    assert (both.without, both.queries, both.answers, both.training) == (("income",), 30, None, None)
