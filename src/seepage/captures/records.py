"""Captured messages whose records are guessed as a whole, as exposures: updates, rounds of updates, tree files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seepage import registry
from seepage.assessment import create
from seepage.captures.audit import CapturedAudit
from seepage.captures.spec import AttackSpec
from seepage.digests import Json
from seepage.seeds import stream
from seepage.settings.part import NONE, Part, make_part
from seepage.settings.records import records_outcome
from seepage.settings.setting import About, Configuration, Exposure, Outcome, PlannedPart, Progress
from seepage.settings.threat_model import Deployment, mechanisms
from seepage.tabular.table import Table
from seepage.wire.horizontal import Knowledge, RecordsGuess
from seepage.wire.secret import RecordsSecret


@dataclass
class RecordsExposure(Exposure):
    """A captured message of one victim, as the attacker sees it.

    Attributes:
        attack: attack, which is called with a function that takes note of its progress, or None.
        truth: true records; None where they are not known.
        metrics: names of the figures; all if empty.
        guess: what the attack read; None before it was run.
    """

    setting: str
    view: Any
    knowledge: Knowledge
    seed: int
    attack: Callable[[Progress | None], RecordsGuess]
    truth: Table | None = None
    metrics: Sequence[str] = ()
    guess: RecordsGuess | None = None

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Run the attack or a baseline, and score its guess where the truth is known."""
        knowledge, begun = self.knowledge, time.perf_counter()
        if part.kind == "attack":
            guess = self.guess = self.attack(progress)
        else:
            baseline = make_part(registry.baselines.of(self.setting), part.part)
            # What only an attacker is granted is no baseline's business.
            plainly = replace(knowledge, batch_statistics=None)
            guess = baseline(self.view, plainly, [stream(self.seed, 0, "baseline")])
        seconds = time.perf_counter() - begun
        if self.truth is None:
            return Outcome([], seconds)
        secret = RecordsSecret(self.truth.cells[None], self.truth.labels[None])
        metrics = [create(name) for name in self.metrics or registry.metrics.names()]
        keep = False if part.kind == "attack" else None
        return records_outcome(
            knowledge.schema, knowledge.statistics, secret, guess, metrics, seconds, keep_records=keep
        )

    def audit(
        self,
        spec: AttackSpec,
        facts: About,
        defense: Mapping[str, Mapping[str, object]] | None = None,
        settings: Mapping[str, Json] | None = None,
        knowledge: Mapping[str, Json] | None = None,
    ) -> CapturedAudit:
        """Return the message as an audit.

        Args:
            spec: what to do; its first attack is that of the exposure.
        """
        schema, records, setting = self.knowledge.schema, self.knowledge.batch_size, self.setting
        defenses = tuple(Part(name=name, options=dict(options)) for name, options in (defense or {}).items())
        baselines = [] if self.truth is None else registry.baselines.of(setting).entries()
        parts = [PlannedPart(Part(name=entry.name), "baseline") for entry in baselines if not entry.needs]
        return CapturedAudit(
            spec.model_copy(update={"defenses": defenses or spec.defenses}),
            replace(
                facts,
                attacker="The server",
                secret="all cells",
                rows=records,
                target=schema.target.name,
                columns=schema.names,
                sensitive=tuple(column.name for column in schema.columns if column.sensitive),
            ),
            Deployment(
                setting, facts.protocol, (type(self.view),), model=facts.model, defenses=mechanisms(setting, defenses)
            ),
            self,
            Configuration(defenses[0].title if defenses else NONE, records),
            [*parts, PlannedPart(spec.attacks[0], "attack")],
            schema,
            settings,
            knowledge,
            [part.name for part in spec.attacks[:1]],
        )
