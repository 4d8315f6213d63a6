"""An invented fifth setting in one file: parties send coins, and a listener reads which side is up.

It is what a plug-in of another package would be: importing it registers the setting, its attack, baseline and defense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from seepage import registry
from seepage.assessment.measurement import Measurement
from seepage.seeds import stream
from seepage.settings.catalogue import Setting, add_setting
from seepage.settings.lever import Lever
from seepage.settings.option import ATTACK, Option
from seepage.settings.part import Part
from seepage.settings.setting import (
    About,
    Audit,
    Configuration,
    Exposure,
    Given,
    Outcome,
    PlannedPart,
    Progress,
    Scale,
)
from seepage.settings.spec import Attacks, Baselines, Spec
from seepage.settings.threat_model import Deployment
from seepage.settings.units import Tables


@dataclass(frozen=True)
class CoinView:
    """The sounds that coins make.

    Attributes:
        sounds: 1 for heads and 0 for tails where nothing dampens them, (unit, coin).
    """

    sounds: Tensor


@registry.attacks.register("listen", "coins")
@dataclass(frozen=True)
class Listen:
    """Reads each coin by its sound."""

    threshold: float = 0.5

    def __call__(self, view: CoinView, seeds: list[int]) -> Tensor:
        """Return the side of each coin, (unit, coin)."""
        return (view.sounds > self.threshold).double()


@registry.baselines.register("heads", "coins")
@dataclass(frozen=True)
class Heads:
    """Says heads, whatever was sent."""

    def __call__(self, view: CoinView, seeds: list[int]) -> Tensor:
        """Return heads for each coin, (unit, coin)."""
        return torch.ones_like(view.sounds)


@registry.defenses.register("gloves", "coins")
@dataclass(frozen=True)
class Gloves:
    """Noise on each sound."""

    noise: float = 1.0


class CoinSpec(Spec):
    """An audit of coins in plain values."""

    setting: ClassVar[str] = "coins"
    about: ClassVar[str] = "coins: what a listener reads of their sides"
    unit: ClassVar[str] = "toss"
    guide: ClassVar[str] = "Listen to coins.\n\n    seepage coins --attack listen"

    attacks: Attacks = (Part(name="listen"),)
    baselines: Baselines = (Part(name="heads"),)
    repetitions: Annotated[int, Field(ge=1), Option("Number of tosses; intervals are over them.", ATTACK)] = 6
    coins: Annotated[int, Field(ge=1), Option("Number of coins of a toss.", ATTACK)] = 40


class CoinAudit(Audit[CoinSpec]):
    """An audit of coins."""

    setting = "coins"

    def __init__(self, spec: CoinSpec, control: str = "") -> None:
        self.spec, self._control = spec, control
        self.configurations = tuple(Configuration(part.label or part.name) for part in spec.defenses)
        self.parts = (
            PlannedPart(Part(name="bank"), "about"),
            *(PlannedPart(part, "baseline") for part in spec.baselines),
            *(PlannedPart(part, "attack") for part in spec.attacks),
        )
        self.about = About(
            "coins", "toss", "none", attacker="A listener", secret="all coins", message="the sound",
            threat_model=("The attacker listens.",), columns=("side",), scales={"worth": Scale(None)},
            notes=("bent coins are left out",),
        )  # fmt: skip

    def identity(self, configuration: Configuration, part: PlannedPart) -> dict[str, Any]:
        """Return everything that determines the figures of a part."""
        defense = next(p for p in self.spec.defenses if (p.label or p.name) == configuration.defense)
        options = {"coins": self.spec.coins, "seed": self.spec.seed, "control": self._control}
        return {**options, "defense": [defense.name, defense.options], "part": [part.part.name, part.part.options]}

    def expose(self, configuration: Configuration, units: range) -> CoinExposure:
        """Return some tosses under a defense."""
        defense = next(p for p in self.spec.defenses if (p.label or p.name) == configuration.defense)
        noise = 0.0 if defense.name == "none" else Gloves(**defense.options).noise
        return CoinExposure(self.spec, units, noise, self._control == "negative")

    def levers(self) -> tuple[Lever, ...]:
        """Return thicker gloves."""
        return (Lever("gloves", 0.1, 100.0, mechanism="gloves", strengths=(("noise",),)),)

    def control(self) -> CoinAudit:
        """Return undefended tosses."""
        spec = self.spec.model_copy(update={"defenses": (Part(name="none"),), "variant": "positive control"})
        return CoinAudit(spec, "positive")

    def negative(self) -> CoinAudit:
        """Return tosses whose sounds are those of other coins."""
        spec = self.spec.model_copy(update={"defenses": (Part(name="none"),), "variant": "negative control"})
        return CoinAudit(spec, "negative")


class CoinExposure(Exposure):
    """Some tosses: the sounds, and the sides behind them."""

    def __init__(self, spec: CoinSpec, units: range, noise: float, swapped: bool) -> None:
        seeds = [stream(spec.seed, unit, "toss") % 2**62 for unit in units]
        draws = [torch.rand(3, spec.coins, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        drawn = torch.stack(draws)
        self.seeds, self.sides = seeds, (drawn[:, 0] < 0.6).double()
        self.view = CoinView((drawn[:, 1 if swapped else 0] < 0.6) + noise * (drawn[:, 2] - 0.5))

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Return the share of coins that a part reads."""
        if part.kind == "about":
            return Outcome([Measurement("worth", None, self.sides.sum(1), True, (0.0, float("inf")))])
        registered = (registry.attacks if part.kind == "attack" else registry.baselines).of("coins")
        read = (registered.create(part.part.name, **part.part.options)(self.view, self.seeds) == self.sides).double()
        found = [Measurement("accuracy", column, read.mean(1), True, (0.0, 1.0)) for column in (None, "side")]
        return Outcome(found, 1e-6)


def prepared_audit(spec: CoinSpec, given: Given, tables: Tables) -> CoinAudit:
    """Return the audit of a spec."""
    return CoinAudit(spec)


def deployment(spec: CoinSpec) -> Deployment:
    """Return what tosses show a listener."""
    return Deployment("coins", "toss", (CoinView,))


add_setting(Setting("coins", CoinSpec.about, CoinSpec, prepared_audit, deployment))
