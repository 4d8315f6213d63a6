"""Specs: the fields that all settings share, as plain values that are checked before anything runs.

The fields of a spec are the only place where an option is defined: command lines, documents, starter documents, typed
arguments of Python and the reference page are generated from their types, defaults, bounds and ``Option``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from seepage import registry
from seepage.errors import BadInputError, Remedy, unknown_name
from seepage.registry import Registry
from seepage.settings.option import ATTACK, GATE, OUTPUT, RUNNING, TABLE, Count, Option, SpecField, fields_of
from seepage.settings.part import NONE, Part, Parts, combine, entry_of, make_part, several
from seepage.tabular.policy import SUFFIXES, UTF8, Missing, Policy, checked_encoding

S = TypeVar("S", bound="Spec")

# Fields that steer how the schema of a user's table is inferred.
OF_INFERENCE = ("drop", "overrides", "most_categories", "most_encoded", "keep_dummies")
STEERING = ("sensitive", *OF_INFERENCE)
OF_OWN_TABLES = ("target", "schema_file", "missing", "separator", "encoding", "day_first", *STEERING)
_TABLE = ("dataset", "dataset_options", "data", *OF_OWN_TABLES)
# Replacements of pydantic's messages.
_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    "bool_type": "expected true or false",
    "path_type": "expected the name of a file or folder",
    "string_type": "expected a text",
    "tuple_type": "expected a list",
    "dict_type": "expected names and their values",
    "model_type": "expected names and their values",
}
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?")


class Plain(BaseModel):
    """Plain values; no text or truth value is accepted as a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _lists(cls, value: object) -> object:
        return _as_tuples(value)


def _as_tuples(value: object) -> object:
    """Return lists, as in YAML and JSON, as tuples at any depth, but not within mappings."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _seconds(value: object) -> object:
    """Return a span of time in seconds; a value that is no text is unchanged.

    Example:
        >>> _seconds("90s"), _seconds("1h30m")
        (90.0, 5400.0)
    """
    if not isinstance(value, str):
        return value
    match = _TIME.fullmatch(value.replace(" ", ""))
    numbers = match.groups() if match else (0, 0, 0, 0)
    total = sum(float(number or 0) * unit for number, unit in zip(numbers, (86_400, 3_600, 60, 1), strict=True))
    if not total > 0:
        raise BadInputError(f"a time is written like 90s, 30m or 2h, got {value!r}; say number and unit.")
    return total


def _tabulator(value: object) -> object:
    """Return a tabulator for its name, or for a backslash and t, which shells do not replace."""
    return "\t" if value in ("\\t", "tab") else value


def _kinds(value: object) -> object:
    """Return kinds of columns that are given by one word as fields of a schema."""
    if not isinstance(value, Mapping):
        return value
    for column, kind in value.items():
        if isinstance(kind, str) and kind not in ("discrete", "continuous"):
            raise unknown_name(f"kind of column {column!r}:", kind, ("discrete", "continuous"))
    return {column: {"kind": kind} if isinstance(kind, str) else kind for column, kind in value.items()}


Names = Annotated[tuple[str, ...], BeforeValidator(several)]
# JSON and YAML have no type of their own for these.
File = Annotated[Path, Field(strict=False)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, lt=float("inf"))]

# Fields whose defaults differ between settings.
DatasetName = Annotated[
    str,
    Option(
        "Dataset by name; `seepage datasets` lists them.", TABLE, "NAME", parts="datasets", own=True, replaces=_TABLE
    ),
]


def _parts(parts: str, description: str) -> Option:
    return Option(description, ATTACK, "NAME[:OPTIONS]", parts=parts)


_DEFENSE = "Defense by name, or none; `seepage defenses` lists them. Each is audited."
Attacks = Annotated[Parts, _parts("attacks", "Attack by name; `seepage attacks` lists them.")]
Baselines = Annotated[Parts, _parts("baselines", "Baseline to compare attacks with, which knows all but the message.")]
Defenses = Annotated[Parts, _parts("defenses", _DEFENSE)]


def _number_as(field: str) -> BeforeValidator:
    """Return a validator that takes a number alone as this field of a nested model."""
    return BeforeValidator(lambda value: {field: value} if _is_number(value) else value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class ContradictionError(BadInputError):
    """Fields that contradict each other; ``field`` is the one to change."""

    def __init__(self, field: str, *message: str | Remedy) -> None:
        super().__init__(*message)
        self.field = field


def _lift(value: object) -> object:
    if isinstance(value, int | float) and _is_number(value) and not 0 < value < 1:
        raise BadInputError(
            "the limit of a lift is a number between 0 and 1 (0.2 is 20 points; no number of repetitions shows 0), "
            f"got {value!r}."
        )
    return value


def _worst(value: object) -> object:
    """Return SHARE:LIFT as two numbers."""
    if value is None:
        return None
    pieces = value.split(":") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    try:
        share, lift = (float(piece) for piece in pieces)
    except (TypeError, ValueError):
        share = lift = math.nan
    if not (0 < share < 1 and 0 <= lift < 1):
        raise BadInputError(
            "a limit on the worst repetitions is written SHARE:LIFT with numbers between 0 and 1, such as 0.1:0.5 "
            f"(less than a tenth of them above 50 points), got {value!r}."
        )
    return share, lift


class ItemError(BadInputError):
    """An item of a list that cannot be used; ``index`` is its position."""

    def __init__(self, index: int, *message: str | Remedy) -> None:
        super().__init__(*message)
        self.index = index


def _limited_column(name: str) -> Option:
    usual = "all cells, whole records, label and sensitive columns"
    return Option("Column whose lift is limited.", GATE, "COLUMN", name=name, default=usual)


class Gate(Plain):
    """A limit that an audit has to stay below."""

    above: Annotated[
        float,
        BeforeValidator(_lift),
        Field(gt=0, lt=1),
        Option(
            "Lift over the best baseline (0.2: 20 points) that every attack must be shown to stay below, in every "
            "deployed configuration. Repetitions are added until that is certain. Exit status: 0 shown, 1 failed, "
            "3 some jobs failed, 4 undecided.",
            GATE,
            "LIFT",
            name="fail_above",
        ),
    ]
    column: Annotated[str | None, _limited_column("fail_column")] = None
    deployed: Annotated[
        Names,
        Option(
            "Defense that is deployed, by its label in results; the gate is about these alone.",
            GATE,
            "LABEL",
            name="deployed",
            default="every defense, or none where there is none",
        ),
    ] = ()
    whole_records: Annotated[
        bool, Option("Whether the share of whole records alone is limited.", GATE, name="fail_whole_records")
    ] = False
    worst: Annotated[
        tuple[float, float] | None,
        BeforeValidator(_worst),
        Option(
            "Also fail unless less than this share of repetitions is shown to be above this lift, as in 0.1:0.5.",
            GATE,
            "SHARE:LIFT",
            name="fail_worst",
            as_text=True,
            default="no such limit",
        ),
    ] = None
    over_trainings: Annotated[
        bool,
        Option(
            "Whether the limit holds for new trainings or attack seeds, which needs many of them; otherwise it holds "
            "for those that were run.",
            GATE,
            name="over_trainings",
        ),
    ] = False


class Wish(Plain):
    """Requirements on a recommended configuration."""

    below: Annotated[
        float,
        BeforeValidator(_lift),
        Field(gt=0, lt=1),
        Option(
            "Lift over the best baseline (0.2: 20 points) that the recommended configuration is shown to stay below.",
            GATE,
            "LIFT",
            name="below",
        ),
    ]
    column: Annotated[str | None, _limited_column("below_column")] = None
    whole_records: Annotated[
        bool, Option("Whether the share of whole records alone is limited.", GATE, name="whole_records")
    ] = False
    max_cost: Annotated[
        float | None,
        Field(gt=0, lt=float("inf")),
        Option(
            "Largest loss in the metric of the task, in its own unit (0.02: 2 points of accuracy).",
            GATE,
            "COST",
            name="max_cost",
            default="any",
        ),
    ] = None

    @model_validator(mode="after")
    def _one_figure(self) -> Wish:
        if self.column is not None and self.whole_records:
            raise BadInputError(
                f"either a column or whole records are limited, got column={self.column!r} and whole_records; "
                "leave out one."
            )
        return self


MostRows = Annotated[
    Annotated[int, Field(ge=20)] | None,
    Option(
        "Rows of the table that are used, drawn at random.",
        TABLE,
        "ROWS",
        default="all, or as many as --time-budget is enough for",
        example="5000",
    ),
]


QuasiIdentifiers = Annotated[
    Names,
    Option(
        "Column that a public table may hold, by which guessed records are linked to its rows (see the three questions "
        "of the report).",
        TABLE,
        "COLUMN",
        default="all columns that are not sensitive",
    ),
]


class Spec(Plain):
    """An audit in plain values; a setting adds its own fields.

    ``fields_of`` describes each field; the reference page of options lists them.

    Attributes:
        unit: name of an independent repetition.
        quick: values of fields for a quick look.
        guide: help of the setting's command, with examples.
        first: fields of its own that the short help of its command shows.
        steering: fields that steer how the schema of a user's table is inferred.
        of_own: further fields that describe a user's table.
        repeats: field with the number of independent repetitions.
        member: name of one of the things that are attacked in a repetition, where it holds many; None where the
            repetition itself is attacked.
    """

    setting: ClassVar[str]
    about: ClassVar[str]
    unit: ClassVar[str]
    quick: ClassVar[Mapping[str, object]] = {}
    guide: ClassVar[str] = ""
    first: ClassVar[tuple[str, ...]] = ()
    steering: ClassVar[tuple[str, ...]] = STEERING
    of_own: ClassVar[tuple[str, ...]] = ()
    repeats: ClassVar[str] = "repetitions"
    member: ClassVar[str | None] = None
    members: ClassVar[str] = "attacked_records"

    dataset: DatasetName = "adult"
    dataset_options: Annotated[
        dict[str, Any],
        Option(
            "Argument of the dataset's loader, such as missing=category of adult.",
            TABLE,
            "NAME=VALUE",
            below="dataset",
            key="",
        ),
    ] = Field(default_factory=dict)
    data_folder: Annotated[
        File | None,
        Option("Folder with the files of datasets.", TABLE, "FOLDER", default="the one that SEEPAGE_DATA names"),
    ] = None
    data: Annotated[
        File | None,
        Option(f"A table of your own ({', '.join(SUFFIXES)}) instead of a dataset.", TABLE, "FILE", replaces=_TABLE),
    ] = None
    schema_file: Annotated[
        File | None,
        Option(
            "YAML schema of your table; `seepage schema` drafts one.",
            TABLE,
            "FILE",
            name="schema",
            default="inferred",
            replaces=STEERING,
        ),
    ] = None
    target: Annotated[
        str | None, Option("Column of your table that the model learns.", TABLE, "COLUMN", default="the schema's")
    ] = None
    sensitive: Annotated[Names, Option("Column of your table that the report singles out.", TABLE, "COLUMN")] = ()
    drop: Annotated[Names, Option("Column of your table to leave out.", TABLE, "COLUMN")] = ()
    overrides: Annotated[
        dict[str, dict[str, Any]],
        BeforeValidator(_kinds),
        Option(
            "Kind of a column of your table: discrete or continuous, or fields of the schema as in "
            "'age={low: 0, high: 110}'.",
            TABLE,
            "COLUMN=KIND",
        ),
    ] = Field(default_factory=dict)
    missing: Annotated[
        Missing,
        Option(
            "Missing cells of your table: refuse the table, drop the rows that have one, or take them as a category of "
            "their own and as the median of numbers.",
            TABLE,
        ),
    ] = "refuse"
    most_categories: Annotated[
        int,
        Field(ge=2),
        Option(
            "Number of different values that a discrete column keeps, fewer in tables that would get too wide. The "
            "rarest beyond are taken together as (other), which the attacker then guesses as one.",
            TABLE,
        ),
    ] = Policy.most_categories
    most_encoded: Annotated[
        Count, Option("Number of encoded columns beyond which most_categories is lowered.", TABLE)
    ] = Policy.most_encoded
    keep_dummies: Annotated[
        bool,
        Option(
            "Leave one-hot encoded columns as they are, instead of merging each group of them into one of categories.",
            TABLE,
        ),
    ] = False
    separator: Annotated[
        str,
        Field(min_length=1, max_length=1),
        BeforeValidator(_tabulator),
        Option("Character between the cells of your CSV file; tab for a tabulator.", TABLE, "CHARACTER"),
    ] = ","
    encoding: Annotated[
        str,
        AfterValidator(checked_encoding),
        Option("Encoding of your CSV file, such as cp1252 or latin-1.", TABLE, "NAME"),
    ] = UTF8
    day_first: Annotated[
        bool | None,
        Option(
            "Whether the day is before the month in columns of dates that leave it open, such as 05/12/2020.",
            TABLE,
            default="what the column's dates tell",
            example="true",
        ),
    ] = None
    attacks: Attacks = ()
    baselines: Baselines = ()
    defenses: Defenses = (Part(name=NONE),)
    seed: Annotated[
        int, Field(ge=0, lt=2**63), Option("Seed that every random number of the audit follows from.", RUNNING)
    ] = 0
    device: Annotated[
        str, Option("Device that computes: auto (a GPU where there is one), cpu, cuda or cuda:1.", RUNNING, "NAME")
    ] = "auto"
    workers: Annotated[
        int | None,
        Field(ge=1, le=1024),
        Option(
            "Number of processes that compute at the same time; figures do not depend on it.",
            RUNNING,
            default="one a core",
        ),
    ] = None
    threads: Annotated[int, Field(ge=1, le=1024), Option("Number of CPU threads of each worker.", RUNNING)] = 1
    time_budget: Annotated[
        Seconds | None,
        Option(
            "Time for the whole audit, such as 30m or 2h: positive controls, then the first units of every "
            "configuration, then as many more as fit.",
            RUNNING,
            "TIME",
            default="no limit",
            example="30m",
            as_text=True,
        ),
    ] = None
    allow_large: Annotated[
        bool,
        Option(
            "Whether to start what is above the limits: amounts and measurements above a million, a forecast above 30 "
            "days or above the memory of the machine. A document cannot say so.",
            RUNNING,
            consent=True,
        ),
    ] = False
    keep_records: Annotated[
        bool, Option("Whether true and reconstructed records of your own table are stored.", OUTPUT)
    ] = False
    control: Annotated[bool, Option("Whether a positive control shows that the attacks work here.", ATTACK)] = True
    gate: Annotated[
        Gate | None,
        _number_as("above"),
        Option("Limit that the audit has to stay below.", GATE, whole="above", example="{above: 0.2}"),
    ] = None
    recommend: Annotated[
        Wish | None,
        _number_as("below"),
        Option(
            "What a recommended configuration has to meet; `seepage recommend` searches for it.",
            GATE,
            whole="below",
            example="{below: 0.2}",
        ),
    ] = None
    variant: Annotated[
        str | None,
        Option("Name that tells this audit from others beside it in results.", OUTPUT, "TEXT", default="none"),
    ] = None

    @field_validator("*")
    @classmethod
    def _known_parts(cls, value: Any, info: Any) -> object:
        field = fields_of(cls)[str(info.field_name)]
        if field.option.parts is None:
            return value
        registered = cls.registered(field)
        if not field.parts:
            if not field.option.own:
                registered[value]
            return value
        for i, part in enumerate(value):
            try:
                for mechanism in part.mechanisms:
                    entry_of(registered, mechanism)
            except BadInputError as error:
                raise ItemError(i, str(error)) from error
        return distinct(field.name.removesuffix("s"), value)

    @field_validator("defenses")
    @classmethod
    def _some_defense(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        if not parts:
            raise BadInputError("an audit needs at least one defense; give 'none' for messages sent as they are.")
        for i, part in enumerate(parts):
            if part.title == NONE and part.name != NONE:
                raise ItemError(
                    i,
                    f"a defense that does something would be called {NONE!r} in results; give it a label of its own, "
                    "such as label: mine.",
                )
        return parts

    @field_validator("device")
    @classmethod
    def _some_device(cls, device: str) -> str:
        if not _DEVICE.fullmatch(device):
            raise unknown_name("device", device, ("auto", "cpu", "cuda"))
        return device

    @model_validator(mode="after")
    def _fits_the_table(self: S) -> S:
        changed = [name for name in OF_OWN_TABLES if getattr(self, name) != fields_of(type(self))[name].default]
        steered = [name for name in changed if name in self.steering]
        about_own = [name for name in changed if name in self.steering or name not in STEERING]
        if self.data is None and about_own:
            raise ContradictionError(
                about_own[0],
                f"{fields_of(type(self))[about_own[0]].key} describes a table of your own, but no data file was given; "
                "add the file (",
                Remedy("data", placeholder="FILE"),
                ") or leave it out.",
            )
        if self.data is not None and self.dataset_options:
            raise ContradictionError(
                "dataset_options",
                f"dataset options ({', '.join(self.dataset_options)}) steer the loader of a registered dataset, but "
                f"the table is {str(self.data)!r}; leave them out, or name a dataset instead.",
            )
        if self.schema_file is not None and steered:
            raise ContradictionError(
                "schema_file",
                f"{' and '.join(steered)} {'steer' if len(steered) > 1 else 'steers'} how a schema is "
                "inferred, but a schema file was given; say it there "
                "instead.",
            )
        if self.data is not None and self.schema_file is None and self.target is None:
            raise ContradictionError(
                "data",
                f"the table {str(self.data)!r} needs a target, the column that the model learns; name it (",
                Remedy("target", placeholder="COLUMN"),
                ") or give a schema file that does.",
            )
        return self

    @model_validator(mode="after")
    def _distinguishable(self: S) -> S:
        for part in self.attacks:
            if part.title in {baseline.title for baseline in self.baselines}:
                raise ContradictionError(
                    "attacks",
                    f"an attack and a baseline would both be called {part.title!r} in results; give one a label.",
                )
        return self

    @classmethod
    def registered(cls, field: SpecField) -> Registry[object]:
        """Return the registry that the names of a field are looked up in."""
        assert field.option.parts is not None
        registered: Registry[object] = getattr(registry, field.option.parts)
        return registered.of(cls.setting) if any(entry.setting for entry in registered.entries()) else registered

    @classmethod
    def of(cls: type[S], **values: object) -> S:
        """Return a spec of plain values; one ``BadInputError`` names all that are unusable."""
        spec = cls.attempt(values)
        if isinstance(spec, list):
            raise BadInputError(" ".join(dict.fromkeys(map(str, spec))))
        spec.check_parts()
        return spec

    @classmethod
    def attempt(cls: type[S], values: Mapping[str, object]) -> S | list[Problem]:
        """Return a spec of plain values, or all problems with them."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            return [_problem(cls, details) for details in error.errors()]

    def check_parts(self) -> None:
        """Create every part once, to check its options."""
        for field in fields_of(type(self)).values():
            if field.parts:
                registered = self.registered(field)
                for part in getattr(self, field.name):
                    combine(registered, part) if field.name == "defenses" else make_part(registered, part)

    @property
    def passed(self) -> tuple[Part, ...]:
        """Parts that are objects of the caller."""
        fields = (name for name, field in fields_of(type(self)).items() if field.parts)
        return tuple(part for name in fields for part in getattr(self, name) if part.passed is not None)

    @property
    def repeated(self) -> int:
        """Number of independent repetitions, such as victims or trainings."""
        return getattr(self, self.repeats)

    def with_usual_attacks(self: S) -> S:
        """Return the same audit with the default attacks."""
        values = {name: getattr(self, name) for name in self.model_fields_set - {"attacks"}}
        usual = type(self).attempt(values)
        return self if isinstance(usual, list) else usual

    def is_usual(self, name: str) -> bool:
        """Return whether a field has the value that it has where nobody names one, such as the default attacks."""
        if name not in self.model_fields_set:
            return True
        # Some defaults follow from other fields, and are set when these are checked.
        usual = type(self).attempt({field: getattr(self, field) for field in self.model_fields_set - {name}})
        return not isinstance(usual, list) and getattr(usual, name) == getattr(self, name)

    def reseeded(self: S, seed: int) -> S:
        """Return the same audit with another seed: other repetitions of the same deployment."""
        return self.model_copy(update={"seed": seed})

    @property
    def policy(self) -> Policy:
        """Policy by which the schema of a user's table is inferred."""
        steered: dict[str, Any] = {name: getattr(self, name) for name in self.steering}
        steered.update(self.read_beside(self.__dict__))
        return Policy(missing=self.missing, day_first=self.day_first, **steered)

    @classmethod
    def read_beside(cls, values: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
        """Return the fields ``beside`` and ``only`` of the policy, where a setting reads more than the table."""
        return {}

    def plain(self) -> dict[str, Any]:
        """Return the spec as JSON values; ``of`` returns an equal spec from them."""
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class Problem:
    """A problem with a value of a spec."""

    path: tuple[str | int, ...]
    message: str
    value: object = None  # of the user, where the message does not contain it
    advised: BadInputError | None = None  # message that advises settings, which front ends put in their own words
    contradiction: bool = False

    def __str__(self) -> str:
        if self.value is None:
            return self.message
        return f"{'.'.join(map(str, self.path))}={self.value!r}: {self.message}."


def _problem(cls: type[Spec], details: ErrorDetails) -> Problem:
    path, kind, value = tuple(details["loc"]), details["type"], details["input"]
    if kind == "value_error":
        refusal = details.get("ctx", {})["error"]
        advised = refusal if isinstance(refusal, BadInputError) else None
        if isinstance(refusal, ItemError):
            path = (*path, refusal.index)
        if isinstance(refusal, ContradictionError):
            return Problem((refusal.field,), str(refusal), advised=advised, contradiction=True)
        return Problem(path, str(refusal), advised=advised, contradiction=not path)
    if kind == "extra_forbidden":
        fields = fields_of(cls) if len(path) == 1 else fields_of(cls)[str(path[0])].fields
        what = "setting" if len(path) == 1 else f"key of {path[0]}:"
        return Problem(path, str(unknown_name(what, str(path[-1]), fields)))
    if kind == "missing":
        nested = fields_of(cls)[str(path[0])].fields.get(str(path[-1]))
        placeholder = nested.option.metavar if nested is not None else None
        needed = BadInputError("needs ", Remedy(".".join(map(str, path)), placeholder=placeholder or "..."), ".")
        return Problem(path[:-1], str(needed), advised=needed)
    choices = fields_of(cls)[str(path[0])].choices if len(path) == 1 else ()
    if kind == "literal_error" and choices and isinstance(value, str):
        return Problem(path, str(unknown_name(f"choice of {path[0]}:", value, choices)))
    message = str(details["msg"]).replace("Input should be", "must be").replace("String should", "must")
    return Problem(path, _WORDS.get(kind, message), value)


def distinct(kind: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts without exact repeats; refuse different ones that would have the same name in results."""
    distinct_parts = list({(part.model_dump_json(), id(part.passed)): part for part in parts}.values())
    names = [part.title for part in distinct_parts]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"two different {kind}s would both be called {name!r} in results; give one a label.")
    return tuple(distinct_parts)
