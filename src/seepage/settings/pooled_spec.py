"""What an audit of pooled learning is to do: plain values, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from seepage import registry
from seepage.defenses.answers import CoarseAnswers, LabelOnly, RoundedAnswers
from seepage.defenses.joint_training import DpTraining, QueryLimit, WithoutColumns
from seepage.errors import BadInputError
from seepage.settings.spec import OnePart, Part, Parts, combinable, combine, of_kind, several_parts
from seepage.settings.study_spec import Names, StudySpec, known, told_apart
from seepage.tabular.schema import Category

PooledProtocol = Literal["multi_party", "single_party", "update"]


@dataclass(frozen=True)
class PooledDefense:
    """What parties that pool their rows do, ready to use.

    Attributes:
        without: names of columns that models are not trained on.
        answers: what is done to answers.
        queries: number of queries that are answered; None for any.
        training: differentially private training.
    """

    without: tuple[str, ...] = ()
    answers: CoarseAnswers | None = None
    queries: int | None = None
    training: DpTraining | None = None


PooledDefenses = Annotated[
    tuple[Annotated[OnePart, AfterValidator(combinable(registry.defenses.of("pooled")))], ...],
    BeforeValidator(several_parts),
    Field(min_length=1),
]


class Synthetic(BaseModel):
    """A synthetic sensitive column, see ``datasets.marked.with_synthetic``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: Names = ()
    target: bool = True
    strength: float = Field(default=0.8, ge=0, le=1)


class PooledSpec(StudySpec):
    """An audit of pooled learning in plain values.

    Attributes:
        dataset, dataset_options, data_folder: as in ``AuditSpec``.
        sensitive: the column whose distribution is the secret.
        value: of it, whose share is asked for, see ``datasets.marked.marked``.
        keep: whether models are trained on the column, too.
        inputs: columns that models are trained on besides; all if none are named.
        synthetic: a sensitive column to be made up; its name is ``A`` and the sensitive one then.
        protocol: ``multi_party`` (the attacker puts rows of its own into the pool), ``single_party`` (it only asks) or
            ``update`` (the victim brings in new rows, whose share is asked for).
        hidden, epochs, batch_size, learning_rate, weight_decay: of models, see ``Dense``.
        rows: that the victim, the adversary and each further party hold.
        auxiliary: rows of the attacker's own, with the attribute known.
        auxiliary_share: of the attribute in them; as it comes if None.
        auxiliary_from: ``rows`` of the same kind; or made up from columns' ``marginals`` alone, with labels from a
            joint model's answers, or from its ``answers`` (see ``attacks.pooled.parts.synthesis``). The model that is
            asked is another than those attacked, with an even share, so that all targets have the same shadow models.
        own_share: of the attribute in the adversary's rows.
        queries: that the attacker asks.
        apart: whether queries are rows of their own, and not among the auxiliary ones.
        shares: of the attribute in the victim's rows, as many targets of each.
        parties: that pool their rows in all; those beyond two hold as many rows each, half of them with the attribute.
        targets: joint models that are attacked in a unit.
        shadows: models that the attacker trains in a unit.
        defenses: what the parties do, by registered name; one is audited after the other.
        attacks: by registered name; the published one on answers and our strongest if none are given.
        units: attack seeds: another auxiliary sample, adversary, shadow models and targets each.

    Example:
        >>> PooledSpec(sensitive="sex", shares=(0.1, 0.9)).protocol
        'multi_party'
    """

    unit: ClassVar[str] = "attack seed"

    dataset: str = "adult_education"
    sensitive: str = "sex"
    value: Category | None = None
    keep: bool = True
    inputs: Names = ()
    synthetic: Synthetic | None = None
    protocol: PooledProtocol = "multi_party"
    hidden: tuple[int, ...] = ()
    epochs: int = Field(default=20, ge=1)
    batch_size: int | None = Field(default=128, ge=1)
    learning_rate: float = Field(default=0.01, gt=0)
    weight_decay: float = Field(default=1e-4, ge=0)
    rows: int = Field(default=2_000, ge=1)
    auxiliary: int = Field(default=10_000, ge=4)
    auxiliary_share: float | None = Field(default=0.5, gt=0, lt=1)
    auxiliary_from: Literal["rows", "marginals", "answers"] = "rows"
    own_share: float = Field(default=0.33, ge=0, le=1)
    queries: int = Field(default=1_000, ge=1)
    apart: bool = False
    shares: tuple[float, ...] = (0.33, 0.67)
    parties: int = Field(default=2, ge=2, le=10)
    targets: int = Field(default=100, ge=2)
    shadows: int = Field(default=100, ge=4)
    defenses: PooledDefenses = (Part(name="none"),)
    attacks: Parts = (
        Part(name="meta", options={"features": "raw", "classifier": "lr"}, label="meta_raw"),
        Part(name="meta"),
        Part(name="kl"),
    )
    baselines: Parts = (Part(name="chance"),)
    units: int = Field(default=5, ge=1)

    @field_validator("attacks")
    @classmethod
    def _known_attacks(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return known("attack", registry.attacks.of("pooled"), parts)

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return known("baseline", registry.baselines.of("pooled"), parts)

    @field_validator("defenses")
    @classmethod
    def _told_apart(cls, defenses: tuple[Part, ...]) -> tuple[Part, ...]:
        told_apart("defense", [defense.called for defense in defenses])
        return defenses

    def defense(self, part: Part) -> PooledDefense:
        """Return a defense ready to use."""
        made = combine(registry.defenses.of("pooled"), part)
        without, limit = of_kind(made, WithoutColumns), of_kind(made, QueryLimit)
        return PooledDefense(
            () if without is None else tuple(without.columns),
            next((one for one in made if isinstance(one, RoundedAnswers | LabelOnly)), None),
            None if limit is None else limit.queries,
            of_kind(made, DpTraining),
        )

    @property
    def new_shares(self) -> tuple[float, float]:
        """Shares of rows that an update may bring in: next to the ends of those told apart, as both kinds are mixed."""
        skipped = 1 if len(self.shares) >= 4 else 0
        return self.shares[skipped], self.shares[-1 - skipped]

    @property
    def told(self) -> tuple[str, ...]:
        """What accuracies are told of one by one, as columns of results: each of several shares, or pairs of them."""
        if self.protocol == "update":
            return tuple(pair(a, b) for a in self.new_shares for b in self.new_shares)
        return tuple(f"{share:.0%}" for share in self.shares) if len(self.shares) > 2 else ()

    @model_validator(mode="after")
    def _fits(self) -> PooledSpec:
        shares = self.shares
        if len(shares) < 2 or any(not 0 <= share <= 1 for share in shares) or list(shares) != sorted(set(shares)):
            raise BadInputError(f"shares are at least two numbers in [0, 1], in increasing order; got {list(shares)}.")
        update = self.protocol == "update"
        worlds = 4 if update else len(shares)
        if self.targets % worlds:
            raise BadInputError(
                f"targets are as many of each of {worlds} {'pairs of shares' if update else 'shares'}; got "
                f"{self.targets}, give a multiple of {worlds}."
            )
        if self.shadows % len(shares) or self.shadows < 2 * len(shares):
            raise BadInputError(
                f"shadow models are as many of each of {len(shares)} shares, two at least; got {self.shadows}."
            )
        if self.shadows % 4 and any(part.name == "ratio" for part in self.attacks):
            raise BadInputError(
                f"the attack ratio trains shadow models in pairs from two halves of the auxiliary rows; got "
                f"{self.shadows}, give a multiple of 4."
            )
        for part in self.attacks:
            of_updates = part.name in UPDATES
            if of_updates != update:
                fitting = ", ".join(UPDATES) if update else "one of answers or of models"
                raise BadInputError(
                    f"the attack {part.name!r} is on {'updates' if of_updates else 'single models'}, the protocol is "
                    f"{self.protocol!r}; choose {fitting}."
                )
        if any(part.name == "melis" for part in self.attacks) and (
            self.protocol != "multi_party" or self.parties > 2 or any(one.name != "none" for one in self.defenses)
        ):
            raise BadInputError(
                "the attack melis is on another's gradients in federated training of two parties (multi_party), which "
                "defenses of a joint model do not reach; leave out further parties and defenses, or the attack."
            )
        if update and (self.parties > 2 or len(shares) < 3):
            raise BadInputError(
                "an update is audited with two parties and at least three shares, such as 0.1, 0.3, 0.5, 0.7 and 0.9; "
                f"got {self.parties} parties and {list(shares)}."
            )
        return self


# Attacks on a model before and after new rows came in.
UPDATES = ("dominant", "joint")


def pair(first: float, second: float) -> str:
    """Return what results call the shares of a victim's first and of its new rows.

    Example:
        >>> pair(0.3, 0.7)
        '30% then 70%'
    """
    return f"{first:.0%} then {second:.0%}"
