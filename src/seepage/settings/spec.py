"""What an audit is to do: plain values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import torch
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from seepage import registry
from seepage.attacks.horizontal.matching.profiles import Profile
from seepage.errors import BadInputError, unknown_name
from seepage.models.model import Head
from seepage.tabular.infer import Missing, Policy

M = TypeVar("M")
Labels = Literal["restored", "true", "ordered"]
BatchStatistics = Literal["hidden", "granted"]
# What steers how the schema of a table of one's own is inferred.
_STEERING = ("sensitive", "drop", "overrides", "most_categories", "most_encoded")


class Part(BaseModel):
    """An attack, a defense or a baseline by its registered name, with arguments.

    Attributes:
        name: registered name; those of several mechanisms with ``+`` between them for a defense that combines them.
        options: arguments of its factory; those of each mechanism, by its name, for a combination.
        label: name in results; the registered name if None.

    Raises:
        BadInputError: a combination has a mechanism twice, or options of something that it does not have.

    Example:
        >>> Part(name="random", options={"one_draw_per_column": True}, label="random_one_draw").called
        'random_one_draw'
        >>> both = Part(name="label_flip+cut_noise", options={"label_flip": {"probability": 0.1}})
        >>> [(one.name, one.options) for one in both.mechanisms]
        [('label_flip', {'probability': 0.1}), ('cut_noise', {})]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None

    @property
    def called(self) -> str:
        """The name in results."""
        return self.label or self.name

    @property
    def mechanisms(self) -> tuple[Part, ...]:
        """What a defense combines: each mechanism with its options; itself alone for a single one."""
        names = self.name.split(_AND)
        if len(names) == 1:
            return (self,)
        return tuple(Part(name=name, options=self.options.get(name, {})) for name in names)

    @model_validator(mode="after")
    def _each_once(self) -> Part:
        names = self.name.split(_AND)
        if len(names) > 1:
            for name in names:
                if names.count(name) > 1:
                    raise BadInputError(f"{self.name!r} combines {name!r} with itself; give it once.")
            for name, options in self.options.items():
                if name not in names:
                    raise unknown_name(f"mechanism of {self.name!r}:", name, names)
                if not isinstance(options, Mapping):
                    raise BadInputError(f"options of {name!r} are a mapping from their names, got {options!r}.")
        return self


# Between the names of mechanisms that a defense combines.
_AND = "+"


def read_part(text: str) -> dict[str, Any]:
    """Return name and options of a part that is written as text.

    Args:
        text: ``name`` or ``name:{option: value}``; several with ``+`` between them for a defense that combines them.

    Raises:
        BadInputError: it is written otherwise.

    Example:
        >>> read_part("label_flip:{probability: 0.01}+label_only")
        {'name': 'label_flip+label_only', 'options': {'label_flip': {'probability': 0.01}}}
    """
    made = [_mechanism(one, text) for one in _apart(text)]
    return made[0] if len(made) == 1 else _together(made)


def _apart(text: str) -> list[str]:
    """Return what stands between plus signs outside of brackets."""
    pieces, depth = [""], 0
    for sign in text:
        depth += (sign in "{[") - (sign in "}]")
        if sign == _AND and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += sign
    return pieces


def _mechanism(text: str, whole: str) -> dict[str, Any]:
    name, colon, said = text.strip().partition(":{")
    try:
        options = yaml.safe_load("{" + said) if colon else {}
    except yaml.YAMLError:
        options = None
    if not name or not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise BadInputError(
            "expected a name, or a name with options such as gaussian_noise:{scale: 0.01}, perhaps several with + "
            f"between them, got {whole!r}."
        )
    return {"name": name, "options": options} if options else {"name": name}


def _together(mechanisms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    options = {one["name"]: one["options"] for one in mechanisms if one.get("options")}
    return {"name": _AND.join(one["name"] for one in mechanisms), "options": options}


def _part(value: Any) -> Any:
    """Return name, options and label of a part in any of the forms that a document may write it in."""
    if isinstance(value, str):
        return read_part(value)
    if not isinstance(value, Mapping) or "options" in value:
        return value
    if "all" in value:
        return _all(value)
    # Options may stand beside the name.
    options = {key: option for key, option in value.items() if key not in Part.model_fields}
    return {**{key: said for key, said in value.items() if key not in options}, "options": options}


def _all(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a combination that is written as ``{all: [{name: ..., ...}, ...], label: ...}``."""
    more = [key for key in value if key not in ("all", "label")]
    if more:
        raise BadInputError(f"a defense that combines mechanisms has the keys all and label, got {more[0]!r} beside.")
    listed = value["all"]
    made = [_part(one) for one in listed] if isinstance(listed, list | tuple) else []
    named = [one for one in made if isinstance(one, Mapping) and isinstance(one.get("name"), str)]
    if not made or len(named) < len(made) or any("label" in one or _AND in one["name"] for one in named):
        raise BadInputError(
            "a defense that combines mechanisms lists each with name and options (all: [{name: label_flip, "
            f"probability: 0.01}}, ...]) and has one label, got all={listed!r}."
        )
    names = [one["name"] for one in named]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"the defense combines {name!r} with itself; give it once.")
    return {**(named[0] if len(named) == 1 else _together(named)), "label": value.get("label")}


def combine(registered: registry.Registry[Any], part: Part, nothing: str = "none") -> tuple[object, ...]:
    """Return the mechanisms of a defense, made from their options; empty for no defense.

    Args:
        registered: defenses of the setting. What can be combined has an attribute ``acts_on``, the thing that it
            changes: two mechanisms never change the same.
        part: the defense.
        nothing: registered name of no defense.

    Raises:
        BadInputError: a name or an option is unknown or out of range, two mechanisms act on the same thing, or a
            defense would be called as no defense is in results.

    Example:
        >>> both = Part(name="rounded_answers+query_limit", options={
        ...     "rounded_answers": {"digits": 1}, "query_limit": {"queries": 100}})
        >>> combine(registry.defenses.of("pooled"), both)
        (RoundedAnswers(digits=1), QueryLimit(queries=100))
    """
    made: dict[str, tuple[str, object]] = {}
    for one in part.mechanisms:
        mechanism = registered.create(one.name, **one.options)
        if one.name == nothing:
            if len(part.mechanisms) > 1:
                raise BadInputError(f"{part.name!r} combines a defense with none; leave {nothing!r} out.")
            continue
        if part.called == nothing:
            raise BadInputError(
                f"a defense that does something would be called {nothing!r} in results; give it a label of its own, "
                "such as label: mine."
            )
        acts_on = str(getattr(mechanism, "acts_on", one.name))
        if acts_on in made:
            raise BadInputError(
                f"{made[acts_on][0]!r} and {one.name!r} both act on the {acts_on}, so that one defense has only one of "
                "them; leave out one, or give two defenses."
            )
        made[acts_on] = (one.name, mechanism)
    return tuple(mechanism for _, mechanism in made.values())


def combinable(registered: registry.Registry[Any]) -> Callable[[Part], Part]:
    """Return what refuses defenses that ``combine`` cannot make, for the field of a spec."""

    def checked(part: Part) -> Part:
        combine(registered, part)
        return part

    return checked


def of_kind(mechanisms: Sequence[object], kind: type[M]) -> M | None:
    """Return the mechanism of a class among those of a defense; None where there is none.

    Example:
        >>> of_kind((1, "one"), str), of_kind((1,), str)
        ('one', None)
    """
    return next((one for one in mechanisms if isinstance(one, kind)), None)


def several_parts(value: Any) -> Any:
    """Return one part as a sequence of one."""
    return (value,) if isinstance(value, str | int | Mapping | Part) else value


def _all_baselines() -> tuple[Part, ...]:
    return tuple(Part(name=name) for name in registry.baselines.of("horizontal").names())


def _all_metrics() -> tuple[Part, ...]:
    return tuple(Part(name=name) for name in registry.metrics.names())


OnePart = Annotated[Part, BeforeValidator(_part)]
Parts = Annotated[tuple[OnePart, ...], BeforeValidator(several_parts)]
BatchSizes = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(several_parts)]


class ContradictionError(BadInputError):
    """Settings that do not go together; ``field`` is the one to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Gate(BaseModel):
    """A limit that an audit has to stay below.

    Attributes:
        above: the lift over guessing above which it fails, in [0, 1).
        column: whose lift counts; that over all cells if None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    above: float = Field(ge=0, lt=1)
    column: str | None = None


class Training(BaseModel):
    """How the network was trained before and during the rounds that are attacked: rounds of the same clients.

    Each client trains on records of its own, the same in every round, all of them in one step an epoch, and the
    server takes the mean of what comes out. With one epoch that is FedSGD at the same learning rate.

    Attributes:
        rounds: before the attack; an attack in round k comes after k - 1 of them.
        attacked_rounds: in how many rounds, one after the other from there on, a victim's messages are received.
        clients: that take part in each.
        records: of a client; fewer where the table has not as many for all of them.
        epochs: local steps of a round.
        learning_rate: of these steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(default=0, ge=0, le=100_000)
    attacked_rounds: int = Field(default=1, ge=1, le=1_000)
    clients: int = Field(default=50, ge=1)
    records: int = Field(default=32, ge=1)
    epochs: int = Field(default=1, ge=1)
    learning_rate: float = Field(default=0.5, gt=0, lt=float("inf"))


class AuditSpec(BaseModel):
    """An audit in plain values.

    Attributes:
        dataset: registered name, or what to call a table of one's own.
        data: file of a table of one's own (``.csv``, ``.csv.gz``, ``.parquet``), read instead of a dataset.
        schema_file: YAML schema of that table; inferred where None.
        target: that table's column to be learnt; may be left out with a schema file.
        sensitive, drop: columns of that table to single out and to leave out, where the schema is inferred.
        overrides: by column of that table, what to say instead of what is inferred, see ``tabular.Policy``.
        missing: what becomes of that table's missing cells: ``refuse`` them, ``drop`` the rows that have one,
            or take them as a ``category`` of their own and, in columns of numbers, as the median.
        most_categories, most_encoded: of one column and of that table, where the schema is inferred.
        separator: between the cells of that table, where it is a CSV file.
        dataset_options: arguments of the dataset's loader, such as ``{"missing": "category"}``.
        data_folder: where datasets look for local files, see ``datasets.load``.
        protocol: registered name.
        protocol_options: arguments of it beside batch size, replacement and defense, such as ``{"epochs": 5}`` of
            ``fedavg``.
        replacement: whether a batch may hold a row twice.
        model, model_options: registered name, or ``package.module:factory`` of one's own, and arguments of its factory
            beside schema, seed and head.
        weights: safetensors file that the model's weights are taken from; those of its initialisation if None.
        head: of the model, where it is not the target's usual one.
        model_seed: of the network's initialisation; the audit's seed if None.
        training: what the network went through before the attacked round, and in how many rounds the same victims are
            attacked; nothing and one round if None.
        batch_sizes: swept.
        attacks, baselines: swept; names, or ``Part`` for one with arguments. All registered baselines
            if none are given.
        metrics: what is measured; all registered metrics if none are given.
        defenses: swept; what clients do to their updates before they send them.
        labels: whether the attacker restores labels from the message (``restored``), is granted the true ones
            in no particular order (``true``), or in the order in which clients go through their records
            (``ordered``; of protocols with local steps, where clients do not shuffle).
        batch_statistics: whether the attacker is granted mean and variance of each batch where the model normalises it,
            as it is where clients send running statistics along; without batch normalisation there are none.
        profile: ``default``, the strongest we know, or ``faithful`` to the official implementations.
        restarts: random starts of the attacks that use several; each attack's own if None.
        iterations: descent steps; each attack's own if None.
        victims: batches attacked in each setting.
        seed: every random number of the audit follows from it.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:1``.
        workers: processes that compute at the same time; as many as there are cores if None. Figures do not
            depend on it.
        threads: CPU threads of each worker.
        keep_records: whether true and reconstructed records of a table of one's own are stored.
        control: whether a positive control (batch size 1, a wide network) shows that the attack works here.
        gate: what the audit has to stay below; None for no limit.
        variant: what tells it from the other specs of one document, beside the names that results show anyway.

    Raises:
        pydantic.ValidationError: a value is of the wrong kind or out of range; ``make_spec`` raises
            ``BadInputError`` with the same messages.

    Example:
        >>> AuditSpec(dataset="adult", batch_sizes=8, attacks=["tableak"], victims=4).batch_sizes
        (8,)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: ClassVar[str] = "victim"
    setting: ClassVar[str] = "horizontal"

    @classmethod
    def of(cls, **values: Any) -> AuditSpec:
        """Return a spec of plain values."""
        return make_spec(**values)

    dataset: str = "adult"
    data: Path | None = None
    schema_file: Path | None = None
    target: str | None = None
    sensitive: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    overrides: dict[str, dict[str, Any]] = Field(default_factory=dict)
    missing: Missing = "refuse"
    most_categories: int = Field(default=Policy.most_categories, ge=2)
    most_encoded: int = Field(default=Policy.most_encoded, ge=1)
    separator: str = Field(default=",", min_length=1, max_length=1)
    dataset_options: dict[str, Any] = Field(default_factory=dict)
    data_folder: Path | None = None
    protocol: str = "fedsgd"
    protocol_options: dict[str, Any] = Field(default_factory=dict)
    replacement: bool = False
    model: str = "nn3"
    model_options: dict[str, Any] = Field(default_factory=dict)
    weights: Path | None = None
    head: Head | None = None
    model_seed: int | None = Field(default=None, ge=0, lt=2**63)
    training: Training | None = None
    batch_sizes: BatchSizes = (8, 32)
    attacks: Parts = (Part(name="unmix"), Part(name="inverting_gradients"))
    defenses: Parts = (Part(name="none"),)
    labels: Labels = "restored"
    batch_statistics: BatchStatistics = "hidden"
    profile: Profile = "default"
    restarts: int | None = Field(default=None, ge=1)
    iterations: int | None = Field(default=None, ge=1)
    baselines: Parts = Field(default_factory=_all_baselines)
    metrics: Parts = Field(default_factory=_all_metrics)
    victims: int = Field(default=10, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    device: str = "auto"
    workers: int | None = Field(default=None, ge=1, le=1024)
    threads: int = Field(default=1, ge=1, le=1024)
    keep_records: bool = False
    control: bool = True
    gate: Gate | None = None
    variant: str | None = None

    @field_validator("protocol")
    @classmethod
    def _known_protocol(cls, name: str) -> str:
        return registry.protocols.of("horizontal")[name].name

    @field_validator("labels", "batch_statistics", "profile", "head", "missing", mode="before")
    @classmethod
    def _known_choice(cls, value: Any, info: Any) -> Any:
        choices = {"labels": Labels, "batch_statistics": BatchStatistics, "profile": Profile}
        known = get_args({**choices, "head": Head, "missing": Missing}[info.field_name])
        if isinstance(value, str) and value not in known:
            raise unknown_name(f"choice of {info.field_name}:", value, known)
        return value

    @field_validator("model_options")
    @classmethod
    def _not_what_the_audit_gives(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in ("schema", "seed", "head"):
            if name in options:
                said = {"schema": "comes from the table", "seed": "is model_seed", "head": "is a setting of its own"}
                raise BadInputError(f"model option {name!r} {said[name]}; leave it out of the model's options.")
        return options

    @field_validator("attacks")
    @classmethod
    def _known_attacks(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        for part in parts:
            registry.attacks.of("horizontal")[part.name]
        return _distinct("attack", parts)

    @field_validator("protocol_options")
    @classmethod
    def _not_what_the_protocol_is_given(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in ("batch_size", "replacement", "defense"):
            if name in options:
                raise BadInputError(f"protocol option {name!r} is a setting of its own; leave it out of the options.")
        return options

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        for part in parts:
            registry.baselines.of("horizontal")[part.name]
        return _distinct("baseline", parts)

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        for part in parts:
            registry.metrics[part.name]
        if "accuracy" not in {part.name for part in parts}:
            raise BadInputError(
                "an audit measures the accuracy, which its verdict rests on; add 'accuracy' to metrics."
            )
        return _distinct("metric", parts)

    @field_validator("defenses")
    @classmethod
    def _known_defenses(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        for part in parts:
            if len(part.mechanisms) > 1:
                raise BadInputError(
                    f"{part.name!r} combines mechanisms, but what an attacker of horizontal learning knows of a "
                    "defense is about one of them; give each as a defense of its own."
                )
            registry.defenses.of("horizontal")[part.name]
        if not parts:
            raise BadInputError("an audit needs at least one defense; give 'none' for updates sent as they are.")
        return _distinct("defense", parts)

    @field_validator("batch_sizes")
    @classmethod
    def _some(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if not sizes:
            raise BadInputError("an audit needs at least one batch size; give 8, for example.")
        return tuple(dict.fromkeys(sizes))

    @field_validator("device")
    @classmethod
    def _at_hand(cls, device: str) -> str:
        if device == "auto":
            return device
        try:
            kind = torch.device(device)
        except RuntimeError:
            raise unknown_name("device", device, ("auto", "cpu", "cuda")) from None
        if kind.type not in ("cpu", "cuda"):
            raise unknown_name("device", device, ("auto", "cpu", "cuda"))
        if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
            raise BadInputError(
                f"device {device!r} was asked for but PyTorch sees {torch.cuda.device_count()} CUDA device(s); "
                "use 'cpu' or 'auto', or install a PyTorch build with CUDA support."
            )
        return device

    @model_validator(mode="after")
    def _fits(self) -> AuditSpec:
        for part in self.attacks:
            if part.called in {baseline.called for baseline in self.baselines}:
                raise ContradictionError(
                    "attacks",
                    f"an attack and a baseline would both be called {part.called!r} in results; give one a label.",
                )
        if self.data is None:
            for name in ("schema_file", "target", "missing", "separator", *_STEERING):
                if getattr(self, name) != _default(name):
                    raise ContradictionError(
                        name,
                        f"{name} describes a table of your own, but no data file was given; "
                        f"add the file (data, --data FILE) or leave {name} out.",
                    )
        elif self.dataset_options:
            raise ContradictionError(
                "dataset_options",
                f"dataset options ({', '.join(self.dataset_options)}) steer the loader of a registered dataset, but "
                f"the table is {str(self.data)!r}; leave them out, or name a dataset instead.",
            )
        elif self.schema_file is not None and (said := [n for n in _STEERING if getattr(self, n) != _default(n)]):
            raise ContradictionError(
                "schema_file",
                f"{' and '.join(said)} steer(s) how a schema is inferred, but a schema file was given; say it there "
                "instead.",
            )
        elif self.schema_file is None and self.target is None:
            raise ContradictionError(
                "data",
                f"the table {str(self.data)!r} needs a target, the column that the model learns; "
                "name it (target, --target COLUMN) or give a schema file that does.",
            )
        return self

    @property
    def repeated(self) -> int:
        """Number of victims."""
        return self.victims

    @property
    def attacked_rounds(self) -> int:
        """In how many rounds the same victims are attacked."""
        return 1 if self.training is None else self.training.attacked_rounds

    @property
    def policy(self) -> Policy:
        """How the schema of a table of one's own is inferred."""
        return Policy(**{name: getattr(self, name) for name in ("missing", *_STEERING)})

    @property
    def where(self) -> torch.device:
        """The device that computes."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def plain(self) -> dict[str, Any]:
        """Return the spec as JSON values; ``make_spec`` makes an equal one of them."""
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a value of a spec.

    Attributes:
        field: of ``AuditSpec``; empty where it is about the whole.
        index: of the item, where the field is a sequence and one item is wrong.
        message: what was expected and, where that is not told yet, what came and what to do.
        path: of the value within the spec, empty where the message tells it.
        value: what came, where there is a path.
        contradiction: whether it is not one value that is wrong, but several that do not go together.
    """

    field: str
    index: int | None
    message: str
    path: str = ""
    value: Any = None
    contradiction: bool = False

    def __str__(self) -> str:
        return f"{self.path}={self.value!r}: {self.message}." if self.path else self.message


def try_spec(values: Mapping[str, Any]) -> AuditSpec | list[Problem]:
    """Make a spec, or return all that is wrong with its values.

    Example:
        >>> [str(problem) for problem in try_spec({"victims": 0})]
        ['victims=0: Input should be greater than or equal to 1.']
    """
    try:
        return AuditSpec(**values)
    except ValidationError as error:
        return [_problem(details) for details in error.errors()]


def _problem(details: Any) -> Problem:
    place = [*details["loc"], "", None]
    field, index = str(place[0]), place[1] if isinstance(place[1], int) else None
    if details["type"] == "value_error":
        refusal = details["ctx"]["error"]
        if isinstance(refusal, ContradictionError):
            return Problem(refusal.field, None, str(refusal), contradiction=True)
        return Problem(field, index, str(refusal))
    if details["type"] == "extra_forbidden" and len(details["loc"]) == 1:
        return Problem("", None, str(unknown_name("setting", field, AuditSpec.model_fields)))
    return Problem(field, index, details["msg"], ".".join(map(str, details["loc"])), details["input"])


def _default(name: str) -> Any:
    return AuditSpec.model_fields[name].get_default(call_default_factory=True)


def make_spec(**values: Any) -> AuditSpec:
    """Make a spec.

    Raises:
        BadInputError: a value is unknown, of the wrong kind or out of range; one paragraph names all.

    Example:
        >>> make_spec(attacks=["tabelak"])
        Traceback (most recent call last):
        ...
        seepage.errors.BadInputError: unknown attack 'tabelak'; did you mean 'tableak'...
    """
    made = try_spec(values)
    if isinstance(made, AuditSpec):
        return made
    raise BadInputError(" ".join(dict.fromkeys(map(str, made))))


def _distinct(kind: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Drop exact repeats; refuse different parts that results would call the same."""
    kept = list({part.model_dump_json(): part for part in parts}.values())
    names = [part.called for part in kept]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"two different {kind}s would both be called {name!r} in results; give one a label.")
    return tuple(kept)


Spec = AuditSpec
