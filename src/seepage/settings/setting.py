"""The interface of a setting: what a plug-in defines for one kind of collaborative learning.

A setting is one file with a spec and an ``Audit``. Runner, store, rows, checks, verdict, gate, report, documents and
the command line read nothing else and never ask which setting it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from seepage import registry
from seepage.assessment.row import CONTROL, POSSIBLE, QUESTIONS
from seepage.assessment.task import CONSTANT
from seepage.digests import Json
from seepage.pace import Progress
from seepage.settings.catalogue import deployment_of
from seepage.settings.part import make_part

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from seepage.assessment.evidence import Evidence
    from seepage.assessment.gain import References
    from seepage.assessment.measurement import Measurement
    from seepage.assessment.row import ResultRow
    from seepage.assessment.utility import Recipe
    from seepage.datasets.dataset import Dataset
    from seepage.models.model import Model
    from seepage.settings.lever import Lever
    from seepage.settings.part import Part
    from seepage.settings.spec import Spec
    from seepage.settings.threat_model import Deployment
    from seepage.tabular.infer import Inferred
    from seepage.tabular.schema import Schema


@dataclass(frozen=True)
class Layer:
    """The units of one activation layer; ``stuck`` ones have a vanishing derivative on every row looked at."""

    name: str
    kind: str
    units: int
    stuck: int


@dataclass(frozen=True)
class Gradients:
    """Gradients of some batches of one size, with the batches' own labels."""

    batch_size: int
    norms: tuple[float, ...]
    # Greatest difference between two when all have the same labels, as a share of the greatest norm; None where batches
    # cannot differ or all norms are zero.
    spread: float | None


@dataclass(frozen=True)
class Probe:
    """Facts on a model's behaviour on some of a client's rows, without any defense."""

    rows: int
    # Share whose predicted probability is beyond 0.999 or below 0.001 for every class; None for a regression.
    certain: float | None
    layers: tuple[Layer, ...]
    gradients: tuple[Gradients, ...]


S = TypeVar("S", bound="Spec", covariant=True)
PartKind = Literal["about", "baseline", "attack"]
# The share of the gap between the best baseline and certainty that an attack has to close to pass a positive control,
# by the lower end of its interval. Attacks that work close 0.9 to 1 of it, broken ones about 0: half is far from both.
LEAKED = 0.5


@dataclass(frozen=True)
class PlannedPart:
    """One attack or baseline of an audit, or a measurement of the deployment itself.

    Attributes:
        part: registered name, options and label in results.
        kind: ``attack``; ``baseline``, which never reads the message; ``about``, which measures the deployment (task
            accuracy, epsilon).
        column: column that alone is guessed, such as the label; None where all cells are.
    """

    part: Part
    kind: PartKind
    column: str | None = None

    @property
    def label(self) -> str:
        """Name in results."""
        return self.part.title


@dataclass(frozen=True)
class Configuration:
    """A point of a sweep.

    Attributes:
        defense: label of the defense in results; ``none`` without one.
        batch_size: records behind one message; None where a setting has no such number.
    """

    defense: str = "none"
    batch_size: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Figures of one part on the units of an exposure: arrays and plain values.

    Attributes:
        measured: figures, one value a unit.
        seconds: processor time for a unit, or for one of the things that a unit attacks (a record, a target model).
        evidence: evidence of each unit, where the attack has any; empty otherwise.
        pictures: data URI of a picture for each unit; empty where there is nothing to show.
    """

    measured: Sequence[Measurement]
    seconds: float | None = None
    evidence: Sequence[Evidence] = ()
    pictures: Sequence[str | None] = ()


@dataclass(frozen=True)
class Scale:
    """The reading of a metric; ``higher_leaks`` is None where a value says nothing about leakage."""

    higher_leaks: bool | None = True
    low: float = 0.0
    high: float = float("inf")


RATE = Scale(True, 0.0, 1.0)
# Rates that say nothing about leakage in all settings: those of controls, and of guesses that would be right.
_COMPARED = tuple(f"{question}{ending}" for question in QUESTIONS for ending in (CONTROL, POSSIBLE))
_SHARED_SCALES = dict.fromkeys(_COMPARED, Scale(None, 0.0, 1.0))


@dataclass(frozen=True)
class Trials:
    """The question whose right answers an accuracy counts.

    Attributes:
        does: verb phrase for a right answer, in the third person ("tells whether 33% or 67% of the rows smoke").
        each: number of trials of a repetition.
    """

    does: str
    each: int


@dataclass(frozen=True)
class About:
    """Description of an audit in words and plain values, for results and the report.

    Attributes:
        dataset, protocol, model: names in results.
        lead: first sentence of the report.
        attacker: who attacks, as the subject of a sentence ("The server").
        sender: who sends the message that is read, as the subject of a sentence ("A client").
        secret: what is attacked, as an object ("all cells").
        record: cells that a whole record has, where these are not all of a row; empty where they are.
        message: data that the attacker has and a baseline has not ("the gradient").
        trials: question of an accuracy that is no share of read cells.
        size: name of the number of records behind a message.
        control: sentence that says why a working attack reads nearly all of the positive control.
        threat_model: sentences on the attacker's view and knowledge, the deployment and the unit.
        limits: sentences on what figures are restricted to, for the headline.
        rounds: number of rounds in which the same units are attacked.
        label: name of the column of labels, where they are a secret with a verdict of its own; None where they are not.
        marks: marks that tables print behind the names of attacks and defenses that differ from their publication.
        label_attacker: who attacks the label, as the subject of a sentence, where that is not ``attacker``: its verdict
            then stands apart. None where it is, so that the graver verdict is that of the configuration.
        columns: names of the columns with figures of their own.
        sensitive: names of the columns that the report marks.
        scales: readings of metrics that are no rates.
        derived: metrics that follow from an attack's mean accuracy over all cells: increasing functions of it, None
            where there is no value.
        of_nothing: labels of measurements of the deployment that are attacks on messages without information, so that
            they must not exceed the baselines.
        captions: format of a metric's mean below a picture, by metric.
        utility: metrics that say how well the task is learnt, in order of preference.
        without_dropout: layers of the network whose dropout was switched off for the audit.
        unaccounted: sentences on what a printed epsilon leaves out; None where there are none.
    """

    dataset: str
    protocol: str
    model: str
    lead: str = "What an honest-but-curious participant learns from what crosses the wire."
    attacker: str = "The attacker"
    sender: str = "Another party"
    secret: str = "all private cells"
    record: str = ""
    message: str = "what crosses the wire"
    trials: Trials | None = None
    size: str = "batch size"
    size_option: str = "--batch-size"
    control: str = "The positive control gives the secret away, so a working attack reads nearly all of it."
    threat_model: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    rows: int = 0
    rounds: int = 1
    target: str | None = None
    label: str | None = None
    label_attacker: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    scales: Mapping[str, Scale] = field(default_factory=dict)
    derived: Mapping[str, Callable[[float], float | None]] = field(default_factory=dict)
    of_nothing: tuple[str, ...] = ()
    captions: Mapping[str, str] = field(default_factory=dict)
    utility: tuple[str, ...] = ("auc", "task_accuracy")
    settings: Mapping[str, Json] = field(default_factory=dict)
    without_dropout: tuple[str, ...] = ()
    unaccounted: str | None = None

    def scale(self, metric: str) -> Scale:
        """Return the reading of a metric; that of a rate by default."""
        metric = metric.removeprefix(CONSTANT)
        return self.scales.get(metric, _SHARED_SCALES.get(metric, RATE))


class Exposure(ABC):
    """Messages, secret and knowledge of some units under one configuration; lives in one worker process."""

    @abstractmethod
    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Return the figures of a part on these units.

        Args:
            progress: callback that gets the share of the work done since the last call, and 0 once there is a guess,
                before it is scored: a trial stops there.

        Raises:
            BadInputError: the part cannot be run on these units.
        """


@dataclass(frozen=True)
class TaskTraining:
    """Trainings of the task that a published table asks for; without a recipe none, only earlier ones are read."""

    recipe: Recipe | None
    configurations: Sequence[Configuration] = ()


class Audit(ABC, Generic[S]):
    """A spec with its rows and networks, ready to run. It is sent to worker processes, so that it can be pickled.

    Attributes:
        parts: baselines, measurements of the deployment and attacks, in the order of results.
        dataset: the table; None where the rows are no table.
        whole: the table with all columns, of which ``dataset`` has some; None where it has all.
        own: whether the rows are the user's own, so that they are kept out of files and reports.
        inferred: origin of the schema; None where it was not inferred.
        shared: whether parts of a configuration and unit share an exposure that is expensive. The runner then
            measures all of them in one job.
        not_tried: default parts and controls that cannot act on these rows or this network, with the reason.
        defaults: fields of the spec whose parts nobody named, and ``about`` for measurements of the deployment: one
            that cannot act is not tried, and ends no audit.
        repeatable: whether further units and other configurations can be run; not where messages were captured.
        nothing_to_add: default attacks, each with the one that leaves it nothing to add by proving all cells.
        yields: those of ``nothing_to_add`` that nobody named: they run only where the other one leaves a cell unproved.
        controls: the audit that this one is a control of; None where it is none.
        no_negative: reason why no negative control was run, as a sentence; empty where there is none to tell.
    """

    setting: str
    spec: S
    about: About
    configurations: Sequence[Configuration]
    parts: Sequence[PlannedPart]
    dataset: Dataset | None = None
    whole: Dataset | None = None
    own: bool = False
    inferred: Inferred | None = None
    shared: bool = True
    repeatable: bool = True
    not_tried: Mapping[str, str] = MappingProxyType({})
    defaults: frozenset[str] = frozenset()
    nothing_to_add: ClassVar[Mapping[str, str]] = MappingProxyType({})
    yields: Mapping[str, str] = MappingProxyType({})
    controls: Audit | None = None
    no_negative: str = ""

    @property
    def untried(self) -> list[str]:
        """Sentences on what is not tried, and why."""
        return [f"{name} is not tried: {why}" for name, why in self.not_tried.items()]

    @property
    def keeps_records(self) -> bool:
        """Whether results may hold attacked cells: a user's own do not unless asked for."""
        return self.spec.keep_records or not self.own

    @property
    def schema(self) -> Schema | None:
        """Schema of the rows; None where they are no table."""
        return None if self.dataset is None else self.dataset.schema

    def deployment(self) -> Deployment:
        """Return the threat model: views and side information of the attacker."""
        return deployment_of(self.spec)

    @property
    def origin(self) -> Mapping[str, Json]:
        """Digests that distinguish the rows and the network from others, as JSON values."""
        return {}

    @property
    def units(self) -> int:
        """Number of repetitions that the spec asks for."""
        return self.spec.repeated

    def batches(self, configuration: Configuration) -> int | None:
        """Return the number of all units, of which those that are run are drawn without replacement.

        None where each unit is drawn independently of the others.
        """
        return None

    @property
    def usual_attacks(self) -> tuple[str, ...]:
        """Registered names of the attacks that this audit runs where nobody names any."""
        return tuple(part.name for part in self.spec.with_usual_attacks().attacks)

    @abstractmethod
    def identity(self, configuration: Configuration, part: PlannedPart) -> dict[str, Json]:
        """Return everything that determines the figures of a part, as JSON values; neither units nor labels."""

    @abstractmethod
    def expose(self, configuration: Configuration, units: range) -> Exposure:
        """Return messages, secret and knowledge of some units of a configuration.

        Raises:
            BadInputError: the configuration cannot be used with these rows.
        """

    def threat_model(self) -> tuple[str, ...]:
        """Return the threat model and the set-up, a sentence each."""
        return self.about.threat_model

    @property
    def where(self) -> str:
        """The kind of device that computes: ``cpu`` or ``cuda``."""
        return "cpu"

    def group(self, configuration: Configuration, part: PlannedPart) -> int:
        """Return the number of units that are measured together; the last digits of figures may depend on it."""
        return 1

    def memory(self, configuration: Configuration, part: PlannedPart) -> int:
        """Return an upper bound of the bytes of one job of a part, as far as it is known before it runs; else 0."""
        return 0

    def forecast(self, configuration: Configuration) -> float | None:
        """Return the seconds of a group of units with all parts; None where only running them tells.

        Settings whose parts share an exposure return a forecast; for others the runner times each part.
        """
        return None

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, as plain values for results."""
        return {}

    def options(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the options of a part, as plain values for results."""
        return {**self.about.settings, "options": part.part.options}

    def instance(self, part: PlannedPart) -> object:
        """Return an attack, ready to use."""
        return make_part(registry.attacks.of(self.setting), part.part)

    def exact(self, part: PlannedPart) -> bool:
        """Return whether a part is an attack that solves for the secret in place of fitting guesses to the message."""
        return False

    def few(self) -> Audit:
        """Return the audit with as few units as can be exposed without the others; the first are the same."""
        return self

    def control(self) -> Audit | None:
        """Return the positive control: leakage planted on this table that the attacks must find; None without one."""
        return None

    @property
    def too_small_for_control(self) -> bool:
        """Whether this setting has a positive control, which this table has too few rows for."""
        return False

    def negative(self) -> Audit | None:
        """Return the negative control: messages without information, where attacks must not exceed baselines."""
        return None

    def levers(self) -> Sequence[Lever]:
        """Return changes of the deployment that may lower its leakage; a recommendation searches among them."""
        return ()

    def probe(self) -> Probe | None:
        """Return facts on the model's behaviour on some rows; None in settings where no gradient is the message."""
        return None

    def further_rows(
        self, cache: Cache, say: Callable[[str], None], training: TaskTraining | None = None
    ) -> list[ResultRow]:
        """Return results beside those of the parts, such as the cost of defenses.

        Args:
            cache: store of JSON values; see ``Cache``.
            say: callback that gets the name of the next computation.
            training: trainings of the task that a published table asks for; those of the audit if None.
        """
        return []

    def references(self, cache: Cache, say: Callable[[str], None]) -> Mapping[int | None, References]:
        """Return figures of the baselines over draws that no attack sees, by batch size; empty where draws are costly.

        Args:
            cache: store of JSON values; see ``Cache``.
            say: callback that gets the name of the next computation.
        """
        return {}

    def save(self, folder: Path) -> None:
        """Keep in a run folder what is expensive to compute, such as trained networks."""


# Called with everything that determines some JSON values and a function that computes them; without the function,
# values that are not stored are None.
Cache = Callable[[Mapping[str, Json], Callable[[], object] | None], Any]


@dataclass(frozen=True)
class Given:
    """Objects that a caller passed in place of names in the spec; ``folder`` may hold networks trained before."""

    dataset: Dataset | None = None
    model: Model | nn.Module | None = None
    folder: Path | None = None
