"""Old options of ``seepage split``, ``vertical`` and ``pooled``, which keep working for one release."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from seepage.cli.text import print_message
from seepage.settings.old import GOES


@dataclass(frozen=True)
class OldOption:
    """An old option.

    Attributes:
        type: type of its value; lists are repeatable.
        now: the new option with ``{}`` in the place of the value.
        field: field of the spec.
        value: makes the field's value, or one defense for each item of a list; None for the value itself.
    """

    type: Any
    now: str
    field: str
    value: Callable[[Any], Any] | None = None


def _defense(name: str, option: str, label: str, type_: Any = float, **more: Any) -> OldOption:
    def made(value: object) -> dict[str, object]:
        return {"name": name, **more, option: value, "label": f"{label}_{value:g}"}

    given = "".join(f"{key}: {value:g}, " for key, value in more.items())
    return OldOption(list[type_], f"--defense '{name}:{{{given}{option}: {{}}}}'", "defenses", made)


def _bottleneck(width: int) -> dict[str, object]:
    both = [{"name": "bottleneck", "width": width}, {"name": "feature_noise", "scale": 0.1}]
    return {"all": both, "label": f"bottleneck_{width}"}


_TRAININGS = OldOption(int, "--repetitions {}", "repetitions")
_RECORDS = OldOption(int, "--attacked-records {}", "attacked_records")
OPTIONS: Mapping[str, Mapping[str, OldOption]] = {
    "split": {
        "trainings": _TRAININGS,
        "records": _RECORDS,
        "private": OldOption(list[str], "--private-column {}", "private_columns"),
        "federated": OldOption(bool, "--protocol federated_split", "protocol", lambda _: "federated_split"),
        "flip": _defense("label_flip", "probability", "label_dp"),
        "noise": _defense("cut_noise", "noise_multiplier", "noise"),
        "weights_noise": _defense("weight_noise", "noise_multiplier", "weights"),
        "search": OldOption(
            str,
            "--attack 'exact:{{search: {}}}'",
            "attacks",
            lambda search: ["exact", "posterior"] if search == "exhaustive" else [{"name": "exact", "search": search}],
        ),
    },
    "vertical": {
        "trainings": _TRAININGS,
        "records": _RECORDS,
        "trained": OldOption(bool, "--attacked trained", "attacked", lambda _: "trained"),
        "feature_noise": _defense("feature_noise", "scale", "feature_noise"),
        "gradient_noise": _defense("returned_noise", "scale", "gradient_noise"),
        "bottleneck": OldOption(
            list[int],
            "--defense 'bottleneck:{{width: {}}}+feature_noise:{{scale: 0.1}}'",
            "defenses",
            _bottleneck,
        ),
        "returned": OldOption(list[str], "--defense {}", "defenses", lambda name: name),
    },
    "pooled": {
        "seeds": OldOption(int, "--repetitions {}", "repetitions"),
        "leave_out": OldOption(bool, "--no-keep", "keep", lambda _: False),
        "without": OldOption(
            list[str],
            "--defense 'without_columns:{{columns: [{}]}}'",
            "defenses",
            lambda name: {"name": "without_columns", "columns": [[name]], "label": f"without_{name}"},
        ),
        "digits": _defense("rounded_answers", "digits", "digits", int),
        "label_only": OldOption(bool, "--defense label_only", "defenses", lambda _: "label_only"),
        "limit": _defense("query_limit", "queries", "queries", int),
        "noise": _defense("dp_training", "noise_multiplier", "dp_sgd", clip=1.0),
    },
}


def parameters(setting: str) -> list[inspect.Parameter]:
    """Return the old options of a setting's command, which its help does not show."""
    return [
        inspect.Parameter(
            f"old_{name}",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                old.type | None, typer.Option(f"--{name.replace('_', '-')}", hidden=True, show_default=False)
            ],
        )
        for name, old in OPTIONS.get(setting, {}).items()
    ]


def translated(setting: str, given: dict[str, Any], values: dict[str, object]) -> dict[str, Any]:
    """Return what was given, with what old options say; each is answered with a line that says what replaces it.

    Args:
        setting: name of the setting.
        given: values by field.
        values: values of all parameters of the command; those of old options are taken out.
    """
    given = dict(given)
    for name, old in OPTIONS.get(setting, {}).items():
        value = values.pop(f"old_{name}")
        if value is None or value is False or value == []:
            continue
        given_value = value[0] if isinstance(value, list) else value
        now = old.now.replace("{}", str(given_value)).replace("{{", "{").replace("}}", "}")
        print_message(f"--{name.replace('_', '-')} is now {now}; {GOES}")
        defense_from = old.value or (lambda value: value)
        if old.field == "defenses":
            given.setdefault("defenses", ["none"])
            given["defenses"] += [defense_from(item) for item in (value if isinstance(value, list) else [value])]
        else:
            given[old.field] = defense_from(value)
    return given
