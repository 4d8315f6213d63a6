"""What an audit of split learning is to do: plain values, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from seepage import registry
from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.defenses.weight_noise import WeightNoise
from seepage.protocols.split import SplitLearning
from seepage.settings.spec import OnePart, Part, Parts, combinable, combine, of_kind, several_parts
from seepage.settings.study_spec import Names, StudySpec, known, told_apart

SplitProtocol = Literal["split", "federated_split"]


@dataclass(frozen=True)
class SplitDefense:
    """What clients of split learning do, ready to use.

    Attributes:
        flip: what is done to labels.
        noise: what is done to gradients at the cut.
        published: what is done to the client weights that the server gets.
    """

    flip: LabelFlip | None = None
    noise: CutNoise | None = None
    published: WeightNoise | None = None


SplitDefenses = Annotated[
    tuple[Annotated[OnePart, AfterValidator(combinable(registry.defenses.of("split")))], ...],
    BeforeValidator(several_parts),
    Field(min_length=1),
]

# Beside every figure: what was believed beforehand, and what the paper compares with.
_BASELINES = (
    Part(name="marginals"),
    Part(name="knn", options={"on": "features"}, label="knn_features"),
    Part(name="knn", options={"on": "output"}, label="knn_output"),
)


class SplitSpec(StudySpec):
    """An audit of split learning in plain values.

    Attributes:
        dataset, dataset_options, data_folder: as in ``AuditSpec``.
        private: the client's columns; the sensitive ones with categories if none are named.
        protocol: ``split`` (one client holds all rows) or ``federated_split`` (``rows_each`` a client).
        hidden, tower, logit: of DeepFM, see ``models.deepfm``.
        epochs, batch_size, learning_rate, rows_each, clients: see ``SplitLearning``.
        defenses: what clients do, by registered name; one is audited after the other.
        attacks: by registered name; the nearest gradient and the posterior if none are given.
        baselines: by registered name; the prior is always there.
        test_share: of rows that are not trained on; the attacked ones are among them.
        records: attacked, at most; all held-out rows if None.
        auxiliary: training rows that the posterior's attacker holds whole; 0 for marginals alone. Neighbours of the
            KNN baselines are all training rows, as in the paper.
        stale: epochs by which the client weights that the server knows are old.
        final: epochs before the end at which the attacked exchange takes place, where the server knows the client's
            final weights alone; 0 for an exchange after the end.
        units: trainings, each from seeds of its own: initialisation, split, batches, defense.
        seed: every random number follows from it.
        threads: CPU threads.

    Example:
        >>> SplitSpec(dataset="adult", private="sex", units=1).private
        ('sex',)
    """

    unit: ClassVar[str] = "training"

    private: Names = ()
    protocol: SplitProtocol = "split"
    hidden: tuple[int, ...] = (256, 128)
    tower: tuple[int, ...] = ()
    logit: bool = True
    epochs: int = Field(default=5, ge=1)
    batch_size: int = Field(default=256, ge=1)
    learning_rate: float = Field(default=0.01, gt=0)
    rows_each: int = Field(default=16, ge=1)
    clients: int = Field(default=16, ge=1)
    defenses: SplitDefenses = (Part(name="none"),)
    attacks: Parts = (Part(name="exact"), Part(name="posterior"))
    baselines: Parts = _BASELINES
    test_share: float = Field(default=0.1, gt=0, lt=1)
    records: int | None = Field(default=None, ge=1)
    auxiliary: int = Field(default=2_000, ge=0)
    stale: int = Field(default=0, ge=0)
    final: int = Field(default=0, ge=0)

    @field_validator("attacks")
    @classmethod
    def _known_attacks(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return known("attack", registry.attacks.of("split"), parts)

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return known("baseline", registry.baselines.of("split"), parts)

    @field_validator("defenses")
    @classmethod
    def _told_apart(cls, defenses: tuple[Part, ...]) -> tuple[Part, ...]:
        told_apart("defense", [defense.called for defense in defenses])
        return defenses

    def defense(self, part: Part) -> SplitDefense:
        """Return a defense ready to use."""
        made = combine(registry.defenses.of("split"), part)
        return SplitDefense(of_kind(made, LabelFlip), of_kind(made, CutNoise), of_kind(made, WeightNoise))

    def learning(self, defense: SplitDefense) -> SplitLearning:
        """Return the protocol under a defense."""
        return SplitLearning(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            rows_each=self.rows_each if self.protocol == "federated_split" else None,
            clients=self.clients,
            flip=defense.flip,
            noise=defense.noise,
        )
