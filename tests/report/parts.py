"""Audits for tests of reports: real ones of hostile tables, and ones with planted figures in settings of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch

from seepage.assessment import Measurement
from seepage.assessment.evidence import Evidence
from seepage.auditing import audit
from seepage.report.report import Report
from seepage.settings.option import RUNNING, Option
from seepage.settings.part import Part
from seepage.settings.setting import (
    About,
    Audit,
    Configuration,
    Exposure,
    Outcome,
    PartKind,
    PlannedPart,
    Progress,
    Scale,
)
from seepage.settings.spec import Spec
from seepage.tabular.infer import infer_schema
from seepage.tabular.schema import Discrete, Schema

SCRIPT = "</script><script>window.__hacked=1</script>"
IMAGE = "<img src=x onerror=window.__hacked=2>"
LINK = '<a href="javascript:window.__hacked=3">x</a><b>bold</b>'
TURNED = "abc\u202egnp.exe\u2066"
LONG = "w" * 10_000
QUOTES = "\"'`${window.__hacked=4}{{7*7}}%{x}"
HEBREW = "\u05d2\u05d9\u05dc"
LINES = "first\nsecond\r\x00\x1b[31mred"
HOSTILE = (SCRIPT, IMAGE, LINK, TURNED, LONG, QUOTES, HEBREW, LINES)


def hostile_frame(rows: int = 48) -> pd.DataFrame:
    """A table whose column names and cells are what nobody would want in a page."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({name: draw.choice(["a", IMAGE + "!", SCRIPT + "!", HEBREW + "!"], rows) for name in HOSTILE})
    frame["number"] = draw.normal(0, 10, rows).round(2)
    frame[LINK + "2"] = draw.integers(0, 50, rows)
    frame["target <i>"] = draw.choice([SCRIPT, "no"], rows)
    return frame


def hostile_audit(**settings: Any) -> Report:
    """A real audit of the hostile table."""
    chosen: dict[str, Any] = {"batch_sizes": [1, 4], "attacks": ["tableak", "dlg"], "victims": 3, **settings}
    frame = hostile_frame()
    schema = infer_schema(frame, "target <i>", sensitive=(SCRIPT, "number"))
    return audit(frame, schema=schema, restarts=2, iterations=20, control=False, **chosen)


def planted(report: Report, seed: int = 0) -> Report:
    """Return a report whose attacks have evidence in which a cell is right as often as the attacker is sure."""
    dataset = report.audit.dataset
    assert dataset is not None
    runs = []
    for run in report.runs:
        size = run.configuration.batch_size
        if run.is_attack and size is not None:
            run = replace(run, evidence=calibrated(dataset.schema, 12, size, seed))
        runs.append(run)
    return replace(report, runs=runs)


def without_evidence(report: Report) -> Report:
    """Return a report whose attacks keep nothing of single cells."""
    return replace(report, runs=[replace(run, evidence=None) for run in report.runs])


def evidence(
    schema: Schema,
    right: np.ndarray,
    uncertainty: np.ndarray | None,
    rarity: np.ndarray,
    groups: dict[str, dict[str, tuple[int, int]]],
) -> Evidence:
    """Return evidence with these fields, and nothing of what is not planted."""
    return Evidence(schema.names, right, uncertainty, rarity, groups, None, None, None, None)


def calibrated(schema: Schema, victims: int, records: int, seed: int) -> Evidence:
    """Evidence in which a discrete cell of certainty p is right with probability p, and numbers likewise by rank."""
    draw = np.random.default_rng(seed)
    shape = (victims, records, len(schema.columns))
    certainty = draw.beta(2, 0.8, shape)
    right = draw.random(shape) < certainty
    entropy = 1 - certainty
    entropy[..., list(schema.continuous)] = np.log(entropy[..., list(schema.continuous)]) - 1
    width = len(schema.columns)
    marked = [c for c in (*schema.columns, schema.target) if isinstance(c, Discrete) and c.sensitive]
    groups = {}
    for column in [*marked, schema.target]:
        assert isinstance(column, Discrete)
        names = [str(category) for category in column.categories]
        counts = draw.multinomial(victims * records, np.ones(len(names)) / len(names))
        groups[column.name] = {
            name: (int(count) * width, int(draw.binomial(count * width, 0.7)))
            for name, count in zip(names, counts, strict=True)
            if count
        }
    rare = draw.gamma(4, 0.4, shape[:2]).astype(np.float32)
    return evidence(schema, right, entropy.astype(np.float32), rare, groups)


class CoinSpec(Spec):
    """An invented setting: somebody peeks at coins.

    Attributes:
        flips: number of coins that are flipped.
    """

    setting: ClassVar[str] = "coins"
    about: ClassVar[str] = "coins: what a peeker learns"
    unit: ClassVar[str] = "flip"
    repeats: ClassVar[str] = "flips"

    flips: Annotated[int, Option("Number of coins that are flipped.", RUNNING)] = 5


COIN, PEEK, SURE, SETUP = "coin", "peek", "sure", "set-up"
KINDS: dict[str, PartKind] = {SETUP: "about", COIN: "baseline", PEEK: "attack", SURE: "attack"}
FIGURES = {("none", COIN): 0.49, ("none", PEEK): 0.88, ("gloves", COIN): 0.49, ("gloves", PEEK): 0.53}


@dataclass(frozen=True)
class Flips(Exposure):
    """Coins under one defense; a figure is planted, and grows with each flip, an attack's twice as fast."""

    audit: CoinAudit
    configuration: Configuration
    units: range

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Return the planted figures."""
        if {part.label, f"{self.configuration.defense} {part.label}"} & set(self.audit.broken):
            raise ValueError("the coin rolled <under> the table")
        if part.kind == "about":
            figures: Mapping[tuple[str, str | None], list[float]] = {
                ("auc", None): [0.8] * len(self.units),
                ("epsilon", None): [float("nan") if self.configuration.defense == "none" else 2.5] * len(self.units),
            }
            return Outcome(self._measured(figures), pictures=[self.audit.picture for _ in self.units])
        mean = self.audit.figures[self.configuration.defense, part.label]
        spread = self.audit.spread * (1 if part.kind == "attack" else 0.5)
        values = [mean + unit * spread for unit in self.units]
        figures = {("accuracy", None): values, **{("accuracy", name): values for name in self.audit.about.columns}}
        if self.audit.picture:
            figures |= {("psnr", None): [12.5] * len(values), ("ssim", None): [0.5] * len(values)}
        return Outcome(self._measured(figures), 0.25, pictures=[self.audit.picture for _ in self.units])

    def _measured(self, figures: Mapping[tuple[str, str | None], Sequence[float]]) -> list[Measurement]:
        return [
            Measurement(metric, column, torch.tensor(values), True, (0.0, 1.0))
            for (metric, column), values in figures.items()
        ]


class CoinAudit(Audit):
    """An audit of coins whose figures are planted; its rows are no table.

    Args:
        spec: what to do.
        parts: labels of its parts.
        figures: accuracies by defense and label.
        spread: growth of an attack's accuracy from one flip to the next; that of a baseline is half of it.
        sizes: batch sizes; several of them, or none.
        broken: labels of parts that fail, or defense and label with a space between.
        picture: data URI of an image; None without one.
        own: whether the coins are the user's own.
        about: fields of ``About``.
    """

    setting = "coins"

    def __init__(
        self,
        spec: CoinSpec | None = None,
        *,
        parts: Sequence[str] = (SETUP, COIN, PEEK),
        figures: Mapping[tuple[str, str], float] = FIGURES,
        spread: float = 0.02,
        sizes: Sequence[int | None] = (None,),
        broken: Sequence[str] = (),
        picture: str | None = None,
        own: bool = False,
        **about: Any,
    ) -> None:
        self.spec = CoinSpec(control=False, workers=1) if spec is None else spec
        self.figures, self.spread, self.broken, self.picture = dict(figures), spread, tuple(broken), picture
        self.own = own
        self.parts = [PlannedPart(Part(name=name), KINDS[name]) for name in parts]
        defenses = dict.fromkeys(defense for defense, _ in figures)
        self.configurations = [Configuration(defense, size) for size in sizes for defense in defenses]
        usual: dict[str, Any] = {
            "dataset": "coins",
            "protocol": "one_flip",
            "model": "none",
            "lead": "What a peeker learns about coins.",
            "attacker": "The peeker",
            "secret": "all sides",
            "message": "the glimpse",
            "threat_model": ("The peeker stands behind the player.",),
            "notes": ("coins are fair",),
            "columns": ("a",),
            "scales": {"epsilon": Scale(None), "psnr": Scale(), "auc": Scale(None)},
            "captions": {"psnr": "{:.1f} dB", "ssim": "similarity {:.2f}"},
        }
        self.about = About(**{**usual, **about})

    @property
    def origin(self) -> Mapping[str, Any]:
        """What tells these coins from others."""
        return {"dataset": {"name": self.about.dataset, "digest": self.about.dataset}}

    def identity(self, configuration: Configuration, part: PlannedPart) -> dict[str, Any]:
        """Return what determines the figures."""
        mean = self.figures.get((configuration.defense, part.label))
        where = [configuration.defense, configuration.batch_size, part.label, self.about.dataset]
        return {"coins": where, "mean": mean, "spread": self.spread, "broken": self.broken, "picture": self.picture}

    def expose(self, configuration: Configuration, units: range) -> Exposure:
        """Return the flips."""
        return Flips(self, configuration, units)
