"""The registered attacks that a configuration admits, and why it does not admit the others.

An attack declares the view that it takes, by its annotation, and the side information that it needs, where it is
registered. A protocol declares the views that it reveals. A spec has the rest. Nothing is trained or attacked here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seepage import registry
from seepage.errors import BadInputError
from seepage.registry import ActsOn, Need
from seepage.settings.catalogue import view_in_words
from seepage.settings.part import Part, entry_of

# Kinds of side information, in sentences.
NEEDS: dict[Need, str] = {
    "auxiliary": "auxiliary rows",
    "queries": "answers to its queries",
    "leaked": "leaked records of the target",
    "weights": "the client's weights",
    "bottom": "the target's bottom model",
    "gradients": "gradients of the target's bottom model",
    "crafted_network": "a network that a malicious server crafts for it",
    "labels": "labels of some records",
    "steering": "a training in which its own steps break the protocol",
}


@dataclass(frozen=True)
class Deployment:
    """Views and side information that a deployment gives the attacker.

    Attributes:
        grants: side information that the attacker holds.
        model: name of the trained network; None where attacks need none that is crafted.
        defenses: name of each mechanism that is audited, and the part of the message that it blurs or withholds.
    """

    setting: str
    protocol: str
    reveals: tuple[type, ...]
    grants: frozenset[Need] = frozenset()
    model: str | None = None
    defenses: tuple[tuple[str, ActsOn], ...] = ()


@dataclass(frozen=True)
class Applicability:
    """Whether an attack can be run on a deployment; if not, ``reason`` names both sides of the mismatch."""

    attack: str
    sees: tuple[str, ...]
    needs: tuple[Need, ...]
    reason: str | None

    @property
    def applies(self) -> bool:
        """Whether the attack can be run."""
        return self.reason is None


def granted(amounts: Mapping[Need, float | int | None], further: Iterable[Need] = ()) -> frozenset[Need]:
    """Return the granted side information: amounts that are not 0 (None: all there is), and further kinds."""
    return frozenset({*(need for need, amount in amounts.items() if amount != 0), *further})


def mechanisms(setting: str, parts: Iterable[Part]) -> tuple[tuple[str, ActsOn], ...]:
    """Return the mechanisms of some defenses, each with the part of the message that it blurs or withholds."""
    registered = registry.defenses.of(setting)
    entries = [entry_of(registered, mechanism) for part in parts for mechanism in part.mechanisms]
    acts_on = {entry.name: getattr(entry.factory, "acts_on", None) for entry in entries}
    return tuple((name, part) for name, part in acts_on.items() if part is not None)


def applicability(entry: registry.Entry[registry.Attack], deployment: Deployment) -> Applicability:
    """Return whether an attack can be run on a deployment."""
    sees = tuple(view.__name__ for view in entry.sees)
    return Applicability(entry.name, sees, entry.needs, _reason(entry, deployment))


def grid_of_attacks(deployment: Deployment) -> list[Applicability]:
    """Return the applicability of each registered attack of the setting, in order of registration."""
    return [applicability(entry, deployment) for entry in registry.attacks.of(deployment.setting).entries()]


def refuse_inapplicable(attacks: Iterable[Part], deployment: Deployment, baselines: Iterable[Part] = ()) -> None:
    """Refuse attacks that cannot be run, before anything is; name the view or needs of each, and the deployment's.

    Refused are baselines, too, that guess what another protocol's messages are of, or need what the deployment lacks.
    """
    registered = registry.attacks.of(deployment.setting)
    mismatches = [applicability(entry_of(registered, part), deployment).reason for part in attacks]
    reasons = [reason for reason in dict.fromkeys(mismatches) if reason is not None]
    if reasons:
        raise BadInputError(" ".join(reasons))
    for part in baselines:
        entry = entry_of(registry.baselines.of(deployment.setting), part)
        if entry.sees and not any(issubclass(shown, view) for view in entry.sees for shown in deployment.reveals):
            raise BadInputError(
                f"the baseline {part.title!r} is for {_names(entry.sees)}, which {deployment.protocol!r} does not "
                "send; leave it out."
            )
        for need in entry.needs:
            if need not in deployment.grants:
                raise BadInputError(
                    f"the baseline {part.title!r} needs {NEEDS[need]}, but none are granted ({need}: 0); grant some, "
                    "or leave it out."
                )


def _reason(entry: registry.Entry[registry.Attack], deployment: Deployment) -> str | None:
    sees = entry.sees
    # An attack without an annotation is not checked; an attack may take more than the views of a setting.
    if sees and not any(issubclass(shown, view) for view in sees for shown in deployment.reveals):
        return (
            f"The attack {entry.name!r} takes {_names(sees)} ({_described(sees)}), but {deployment.setting} learning "
            f"by {deployment.protocol!r} reveals {_names(deployment.reveals)}; choose another attack or protocol."
        )
    for need in entry.needs:
        if need == "crafted_network":
            crafted = entry.traits.network
            # Whether a user's network was crafted shows only when it runs.
            if deployment.model in (crafted, None) or deployment.model not in registry.models.names():
                continue
            return (
                f"The attack {entry.name!r} needs {NEEDS[need]}, {crafted!r}, but the parties train "
                f"{deployment.model!r}; audit the model {crafted!r}, or leave the attack out."
            )
        if need not in deployment.grants:
            return (
                f"The attack {entry.name!r} needs {NEEDS[need]}, but {deployment.setting} learning as configured "
                f"grants none ({need}: 0); grant some, or leave the attack out."
            )
    return None


def _names(views: Iterable[type]) -> str:
    return " or ".join(view_in_words(view.__name__) for view in views)


def _described(views: Iterable[type]) -> str:
    summaries = ((inspect.getdoc(view) or "").split("\n", 1)[0].rstrip(".") for view in views)
    return "; ".join(f"{words[:1].lower()}{words[1:]}" for words in summaries)
