"""What an audit of vertical learning is to do: plain values, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from seepage import registry
from seepage.defenses.bottleneck import Bottleneck
from seepage.defenses.feature_noise import FeatureNoise
from seepage.defenses.returned import PaImfl, ReturnedDefense, ReturnedNoise, VflDefender
from seepage.protocols.vertical import VerticalLearning
from seepage.settings.spec import OnePart, Part, Parts, combinable, combine, of_kind, several_parts
from seepage.settings.study_spec import StudySpec, known, several, told_apart
from seepage.tabular.partition import Partition, by_names, by_shares
from seepage.tabular.schema import Schema

Attacked = Literal["held_out", "trained"]


@dataclass(frozen=True)
class VerticalDefense:
    """What the parties of vertical learning do, ready to use.

    Attributes:
        features: what passive parties do to features.
        returned: what is done to the gradients that passive parties get.
        bottleneck: how many features passive parties send instead of the spec's number.
    """

    features: FeatureNoise | None = None
    returned: ReturnedDefense | None = None
    bottleneck: Bottleneck | None = None


VerticalDefenses = Annotated[
    tuple[Annotated[OnePart, AfterValidator(combinable(registry.defenses.of("vertical")))], ...],
    BeforeValidator(several_parts),
    Field(min_length=1),
]


def _parties(value: Any) -> Any:
    """Return one party's names as a list of one party."""
    value = several(value)
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return (value,)
    return value


class VerticalSpec(StudySpec):
    """An audit of vertical learning in plain values.

    Attributes:
        dataset, dataset_options, data_folder: as in ``AuditSpec``.
        passive: names of the columns of each passive party; the active party has the rest. By shares if none are named.
        parties: of equal shares of each kind of column, where none are named.
        share: of the columns that the target holds, instead of an equal one; the others share the rest evenly.
        columns_seed: of a random order of columns before they are shared; the schema's order if None.
        victim: number of the passive party that is attacked, from 1.
        bottom, features, top: units of hidden layers of bottom models, features that each party sends, units of hidden
            layers of the top model.
        epochs, batch_size, learning_rate: see ``VerticalLearning``.
        defenses: what the parties do, by registered name; one is audited after the other.
        attacks: by registered name; UIFV's four if none are given.
        baselines: by registered name.
        attacked: records that are ``held_out`` and predicted for, or those ``trained`` on, whose labels are known.
        test_share: of rows that are not trained on.
        records: attacked, at most; all of them if None.
        auxiliary: share of the rows left for training that the attacker holds whole; they are not trained on.
        queries: that a passive party answers; as many as there are auxiliary rows if None.
        leaked: attacked records that the attacker knows; they do not count.
        gradient_batches, gradient_batch: number and size of the batches of attacked records, the first ones, that
            attacks on gradients are granted gradients of; they guess these records alone.
        units: trainings, each from seeds of its own: split, initialisation, batches, defense, attack.
        seed: every random number follows from it.
        threads: CPU threads.

    Example:
        >>> VerticalSpec(passive="age", units=1).passive
        (('age',),)
    """

    unit: ClassVar[str] = "training"

    passive: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_parties)] = ()
    parties: int = Field(default=2, ge=2)
    share: float | None = Field(default=None, gt=0, lt=1)
    columns_seed: int | None = Field(default=None, ge=0)
    victim: int = 1
    bottom: tuple[Annotated[int, Field(ge=1)], ...] = (300, 100)
    features: int = Field(default=100, ge=1)
    top: tuple[Annotated[int, Field(ge=1)], ...] = (100, 50)
    epochs: int = Field(default=20, ge=1)
    batch_size: int = Field(default=256, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    defenses: VerticalDefenses = (Part(name="none"),)
    attacks: Parts = tuple(Part(name=f"uifv_{name}") for name in ("qa", "dpa", "iqa", "sa"))
    baselines: Parts = tuple(Part(name=name) for name in ("constant", "median", "random", "own_columns"))
    attacked: Attacked = "held_out"
    test_share: float = Field(default=0.2, gt=0, lt=1)
    records: int | None = Field(default=None, ge=1)
    auxiliary: float = Field(default=0.125, ge=0, lt=1)
    queries: int | None = Field(default=None, ge=0)
    leaked: int = Field(default=64, ge=0)
    gradient_batches: int = Field(default=4, ge=1)
    gradient_batch: int = Field(default=64, ge=1)

    @field_validator("attacks")
    @classmethod
    def _known_attacks(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return known("attack", registry.attacks.of("vertical"), parts)

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return known("baseline", registry.baselines.of("vertical"), parts)

    @field_validator("defenses")
    @classmethod
    def _told_apart(cls, defenses: tuple[Part, ...]) -> tuple[Part, ...]:
        told_apart("defense", [defense.called for defense in defenses])
        return defenses

    @model_validator(mode="after")
    def _named_or_shared(self) -> VerticalSpec:
        if self.passive and self.share is not None:
            raise ValueError(
                f"columns are named (passive) or dealt out by shares (share={self.share}), not both; leave out one"
            )
        named = len(self.passive) + 1
        if self.passive and self.parties not in (type(self).model_fields["parties"].default, named):
            raise ValueError(
                f"columns are named (passive) for {named} parties, got parties={self.parties}; leave out one"
            )
        return self

    def partition(self, schema: Schema) -> Partition:
        """Return who holds which columns.

        Raises:
            BadInputError: parties do not fit the columns, or the victim is no passive party.
        """
        if self.passive:
            found = by_names(schema, [(), *self.passive])
        elif self.share is None:
            found = by_shares(schema, [1 / self.parties] * self.parties, self.columns_seed)
        else:
            others = [(1 - self.share) / (self.parties - 1)] * self.parties
            if 0 < self.victim < self.parties:
                others[self.victim] = self.share
            found = by_shares(schema, others, self.columns_seed)
        found.check_target(self.victim)
        return found

    def defense(self, part: Part) -> VerticalDefense:
        """Return a defense ready to use."""
        made = combine(registry.defenses.of("vertical"), part)
        returned = next((one for one in made if isinstance(one, ReturnedNoise | PaImfl | VflDefender)), None)
        return VerticalDefense(of_kind(made, FeatureNoise), returned, of_kind(made, Bottleneck))

    def learning(self, defense: VerticalDefense) -> VerticalLearning:
        """Return the protocol under a defense."""
        return VerticalLearning(self.epochs, self.batch_size, self.learning_rate, defense.features, defense.returned)
