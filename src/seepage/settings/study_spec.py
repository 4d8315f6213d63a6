"""What the specs of all studies have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from seepage.config.choices import shown
from seepage.errors import BadInputError, FieldError
from seepage.registry import Registry
from seepage.settings.spec import Part, Parts

S = TypeVar("S", bound="StudySpec")
# In place of what pydantic says of them.
_WORDS = {"extra_forbidden": "is no key here", "tuple_type": "Input should be a list", "missing": "is missing"}


def _as_tuples(value: Any) -> Any:
    """Return lists, as YAML and JSON have them, as tuples, whatever they are nested in but mappings."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


class Plain(BaseModel):
    """Plain values, of which no text or truth value passes for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    _lists = field_validator("*", mode="before")(_as_tuples)


class StudySpec(Plain):
    """A study in plain values; subclasses add what their setting takes, ``defenses`` among it.

    Attributes:
        dataset, dataset_options, data_folder: as in ``AuditSpec``.
        attacks, baselines: by registered name.
        units: independent repetitions, from seeds of their own; intervals are over them.
        seed: every random number follows from it.
        threads: CPU threads.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:1``.
        keep_records: whether true and reconstructed records of a table of one's own are stored.
        variant: name that tells it from audits beside it in results.
    """

    # What a unit is called.
    unit: ClassVar[str] = "unit"

    dataset: str = "adult"
    dataset_options: dict[str, Any] = Field(default_factory=dict)
    data_folder: str | None = None
    attacks: Parts = ()
    baselines: Parts = ()
    units: int = Field(default=3, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    threads: int = Field(default=1, ge=1, le=1024)
    device: str = "auto"
    keep_records: bool = False
    variant: str | None = None

    @property
    def repeated(self) -> int:
        """Number of units."""
        return self.units

    @property
    def swept(self) -> tuple[Part, ...]:
        """The defenses."""
        return getattr(self, "defenses", ())

    @classmethod
    def of(cls: type[S], **values: Any) -> S:
        """Return a spec of plain values.

        Raises:
            FieldError: names the field and what it got.
            BadInputError: fields do not go together.

        Example:
            >>> StudySpec.of(units=0)
            Traceback (most recent call last):
            ...
            seepage.errors.FieldError: units: Input should be greater than or equal to 1, got 0.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise problems(error)[0] from error


def problems(error: ValidationError) -> list[BadInputError]:
    """Return what is wrong with plain values of a spec: a ``FieldError`` each, or what does not go together."""
    found = []
    for one in error.errors():
        said = _WORDS.get(one["type"], str(one["msg"]).removeprefix("Value error, ").removesuffix("."))
        # What refuses a value in its own words tells it, too.
        told = f"{said}." if one["type"] == "value_error" else f"{said}, got {shown(one['input'])}."
        found.append(FieldError(one["loc"], told) if one["loc"] else BadInputError(told))
    return found


def several(value: Any) -> Any:
    """Return one text as a list of one."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(several)]


def known(kind: str, registered: Registry[Any], parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts whose names and options are known and whose names in results differ.

    Raises:
        BadInputError: names the first that is not so.
    """
    for part in parts:
        registered.create(part.name, **part.options)
    told_apart(kind, [part.called for part in parts])
    return parts


def told_apart(kind: str, called: Sequence[str]) -> None:
    """Refuse two things that results would call the same.

    Raises:
        BadInputError: names the first.
    """
    for name in called:
        if list(called).count(name) > 1:
            raise BadInputError(f"two {kind}s would both be called {name!r} in results; give one another label.")
