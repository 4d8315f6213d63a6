"""Captured messages as an audit: specs, exposures that were read from files, and what was found in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import model_validator

from seepage import registry
from seepage.assessment import Measurement, ResultRow, create
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.seeds import stream
from seepage.settings.findings import Findings
from seepage.settings.guessing import measure
from seepage.settings.option import ATTACK, KNOWLEDGE, OUTPUT, PARTIES, TABLE, Option, SpecField, fields_of
from seepage.settings.outcomes import attacked_records
from seepage.settings.part import NONE, Part, Parts
from seepage.settings.setting import About, Audit, Configuration, Exposure, Outcome, PlannedPart, Progress
from seepage.settings.spec import File, Spec
from seepage.settings.threat_model import Deployment, mechanisms
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import Knowledge, RecordsGuess
from seepage.wire.secret import RecordsSecret

NO_EXCHANGE = "These files are one message, and there is none that it could be exchanged with."
"""Reason why a capture has no negative control."""

RECONSTRUCTION = "reconstruction.csv"
"""File of the records that were read."""

# Fields of all audits that an attack on any capture has a use for.
_OF_AUDITS = ("separator", "seed", "device", "threads", "allow_large", "gate")
# Last words in the name of a baseline of the negative control that knows the rows behind exchanged messages.
_OF_EXCHANGED = " of exchanged rows"

# Fields that specs of several kinds of captures have.
Network = Annotated[
    str | None,
    Option(
        "Network: a name of `seepage models`, package.module:factory or path/to/file.py:factory. Of a transcript "
        "the one that it names, if left out; of tree files none.",
        PARTIES,
        "NAME",
    ),
]
ClientSchema = Annotated[
    File | None,
    Option(
        "YAML schema of the client's table; `seepage schema` drafts one. Of a transcript the one in its folder, if "
        "left out.",
        TABLE,
        "FILE",
        name="schema",
    ),
]
Attacks = Annotated[
    Parts,
    Option(
        "Attack; `seepage attacks` lists them. Several of a transcript, one of updates.",
        ATTACK,
        "NAME[:OPTIONS]",
        parts="attacks",
        default="unmix, of a transcript those of an audit of its setting",
    ),
]
BatchSize = Annotated[
    int | None, Option("Number of records behind the update, where it does not say it.", KNOWLEDGE, default="counted")
]


class CapturedSpec(Spec):
    """The spec of an attack on captured messages; each kind adds the fields that it has a use for.

    Attributes:
        needs: fields that have to be given, and what each is for.
    """

    unit: ClassVar[str] = "client"
    repeats: ClassVar[str] = "captures"
    needs: ClassVar[Mapping[str, str]] = {}

    data: Annotated[
        File | None,
        Option(
            "Public rows of the same kind (.csv, .parquet): what the attacker knows of the columns.", KNOWLEDGE, "FILE"
        ),
    ] = None
    truth: Annotated[
        File | None,
        Option(
            "True rows of the batch, in any order: scores what was read. For a folder the client's own rows, or a "
            "folder with ID.csv for each client. For a transcript rows with ids.",
            OUTPUT,
            "FILE",
        ),
    ] = None
    control: Annotated[
        bool,
        Option(
            "Whether attacks also run on messages exchanged among clients, or records: the negative control.", ATTACK
        ),
    ] = True

    @model_validator(mode="after")
    def _fits_the_table(self) -> CapturedSpec:
        # The table is not the spec's: rows are those of others, and the schema goes with the messages.
        return self

    def read_rows(self, file: Path | None, schema: Schema) -> Table | None:
        """Return the rows of a file by the separator of the spec, which may lack no cell; None without a file."""
        return None if file is None else Table.read(file, schema, self.separator, missing=None)

    @classmethod
    def taken(cls) -> dict[str, SpecField]:
        """Return the fields that this kind of capture takes: its own, and those that all audits have."""
        kinds = [kind for kind in cls.__mro__ if issubclass(kind, CapturedSpec)]
        names = {*_OF_AUDITS, *(name for kind in kinds for name in kind.__annotations__)}
        return {name: described for name, described in fields_of(cls).items() if name in names}


class CapturedExposure(Exposure, ABC):
    """Messages that were read from files, with what results say of them.

    Attributes:
        about: description of messages and attacker.
        deployed: threat model, but for the stated defenses.
        schema: schema of the table that the messages are of.
        records: number of records behind a message, where there is one message.
        stated: defenses that the messages state, with their options.
        granted: what the attacker was granted or assumed, for results.
        exchanged: in a negative control the marginals of all rows behind exchanged messages; else None.
        all_or_none: whether an attack that cannot be tried ends all; otherwise it gets a reason, and the others run.
    """

    about: About
    schema: Schema
    records: int | None = None
    stated: Mapping[str, Mapping[str, Json]] | None = None
    granted: Mapping[str, Json]
    exchanged: Statistics | None = None
    all_or_none: ClassVar[bool] = True

    @property
    @abstractmethod
    def deployed(self) -> Deployment:
        """Views and side information that the attacker has."""

    @abstractmethod
    def parts(self, named: Sequence[Part]) -> list[PlannedPart]:
        """Return the baselines and the attacks that are tried: those that were named, or the usual ones."""

    def lacks(self, part: PlannedPart) -> str | None:
        """Return why an attack cannot be tried; None where it can."""
        return None

    def swapped(self) -> CapturedExposure:
        """Return the negative control: the same secrets and knowledge, each with the message of another one.

        Raises:
            BadInputError: there are no two messages that could be exchanged.
        """
        raise BadInputError(NO_EXCHANGE)

    @abstractmethod
    def findings(self, rows: Sequence[ResultRow], not_tried: Mapping[str, str]) -> Findings:
        """Return what the attacks found, by their rows of results and the reasons of those that could not be tried."""


class CapturedAudit(Audit[CapturedSpec]):
    """A capture as an audit, each message of which is one unit; no further messages can be drawn.

    An attack on another one's message still learns what rows are like, so that baselines of a negative control come
    twice: by what the attacker knows, and by the marginals of the exchanged rows.
    """

    own = True
    repeatable = False

    def __init__(self, spec: CapturedSpec, exposure: CapturedExposure) -> None:
        self.captured, self.exposure, self.setting = 1, exposure, spec.setting
        self.parts = exposure.parts(spec.attacks)
        if exposure.exchanged is not None:
            self.parts += [
                replace(part, part=part.part.model_copy(update={"label": f"{part.label}{_OF_EXCHANGED}"}))
                for part in self.parts
                if part.kind == "baseline"
            ]
        named = tuple(part.part for part in self.parts if part.kind == "attack")
        stated = tuple(Part(name=name, options=dict(options)) for name, options in (exposure.stated or {}).items())
        # Of the spec results hold what determines figures, and no files of others.
        bare = type(spec).of(attacks=spec.attacks, seed=spec.seed, gate=spec.gate)
        self.spec = bare.model_copy(update={"attacks": named, "defenses": stated or spec.defenses})
        table = exposure.schema
        sensitive = tuple(column.name for column in table.columns if column.sensitive)
        self.about = replace(exposure.about, target=table.target.name, sensitive=sensitive)
        self.configurations = (Configuration("+".join(part.name for part in stated) or NONE, exposure.records),)
        self.knowledge = dict(exposure.granted)
        self._usual = tuple(part.name for part in named) if exposure.all_or_none else ()
        self._deployed = replace(exposure.deployed, defenses=mechanisms(spec.setting, stated))

    @property
    def schema(self) -> Schema:
        """Schema of the table that the messages are of."""
        return self.exposure.schema

    @property
    def units(self) -> int:
        """Number of captured messages, or trainings."""
        return self.captured

    @property
    def usual_attacks(self) -> tuple[str, ...]:
        """Registered names of the attacks that are tried where nobody names any."""
        return self._usual

    def deployment(self) -> Deployment:
        """Return what the deployment showed and granted."""
        return self._deployed

    def identity(self, configuration: Configuration, part: PlannedPart) -> dict[str, Json]:
        """Return the options of a part, without the messages, which are identified by their files."""
        return {**self.about.settings, part.kind: part.label}

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return what the attacker was granted or assumed, for results."""
        return self.knowledge

    def expose(self, configuration: Configuration, units: range) -> CapturedExposure:
        """Return the captured messages."""
        return self.exposure


@dataclass
class RecordsExposure(CapturedExposure):
    """A captured message of one victim whose records are guessed as a whole: an update, its rounds, tree files, sums.

    ``starts`` are the seeds of the attack; those of baselines follow from ``seed`` and the message's place, ``unit``.
    ``usual`` is the attack where nobody names one; ``attack`` runs in place of the part's own. ``guess`` is the
    attack's, once it has run, and ``findings_of`` says what there is in it.
    """

    view: Any
    knowledge: Knowledge
    seed: int
    starts: Sequence[int]
    about: About
    usual: str
    findings_of: Callable[[RecordsGuess, str], Findings] | None = None
    truth: Table | None = None
    setting: str = "horizontal"
    metrics: Sequence[str] = ()
    attack: Callable[..., RecordsGuess] | None = None
    unit: int = 0
    guess: RecordsGuess | None = None
    further: Callable[[RecordsSecret, RecordsGuess], Sequence[Measurement]] | None = None
    exchanged: Statistics | None = None
    stated: Mapping[str, Mapping[str, Json]] | None = None
    granted: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.title = self.usual
        self.schema, self.records = self.knowledge.schema, self.knowledge.batch_size
        of_server = {"attacker": "The server", "secret": "all cells"}
        self.about = replace(self.about, **of_server, rows=self.records, columns=self.schema.names)

    @property
    def deployed(self) -> Deployment:
        """The message; what is known beside it is no kind of side information."""
        return Deployment(self.setting, self.about.protocol, (type(self.view),), model=self.about.model)

    def parts(self, named: Sequence[Part]) -> list[PlannedPart]:
        """Return one attack, and where the truth is known the baselines that read no more than it."""
        baselines = [] if self.truth is None else registry.baselines.of(self.setting).entries()
        taken = [entry for entry in baselines if not entry.needs and isinstance(self.view, entry.sees or object)]
        if len(named) > 1:
            raise BadInputError(
                f"these messages are read by one attack, got {' and '.join(part.title for part in named)}; name one, "
                "and the others in further commands with an --out of their own."
            )
        [attack] = named or [Part(name=self.usual)]
        self.title = attack.title
        return [*(PlannedPart(Part(name=entry.name), "baseline") for entry in taken), PlannedPart(attack, "attack")]

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Run the attack or a baseline, and score its guess where the truth is known."""
        is_attack, known, truth = part.kind == "attack", self.knowledge, self.truth
        # What only an attacker is granted is no baseline's business.
        plainly = replace(
            known, batch_statistics=None, statistics=marginals_of(part, self.exchanged) or known.statistics
        )
        records = attacked_records(
            self.setting,
            known.statistics,
            known.schema,
            (self.view, known if is_attack else plainly),
            None if truth is None else RecordsSecret(truth.cells[None], truth.labels[None]),
            self.starts if is_attack else [stream(self.seed, self.unit, "baseline")],
            [create(name) for name in self.metrics or registry.metrics.names()],
            attack=self.attack if is_attack else None,
            keep_records=False if is_attack else None,
            further=self.further,
        )

        def score(guess: RecordsGuess) -> Outcome:
            if is_attack:
                self.guess = guess
            return records.score(guess)

        return measure(part, replace(records, score=score), progress)

    def findings(self, rows: Sequence[ResultRow], not_tried: Mapping[str, str]) -> Findings:
        """Return what the attack's guess holds."""
        assert self.guess is not None
        assert self.findings_of is not None
        return self.findings_of(self.guess, self.title)


def marginals_of(part: PlannedPart, exchanged: Statistics | None) -> Statistics | None:
    """Return the marginals of exchanged rows for the baselines that know them; None for all other parts."""
    return exchanged if part.kind == "baseline" and part.label.endswith(_OF_EXCHANGED) else None


@dataclass(frozen=True)
class Reader:
    """A kind of captured messages that ``seepage attack`` reads.

    Attributes:
        words: name of the messages, as the object of a sentence.
        reads: whether a path is of this kind.
        spec: fields of the spec that say what the files do not.
        read: function that returns the exposure of a path.
        check: function that refuses files that are not of this kind; it takes the schema's file, too.
    """

    words: str
    reads: Callable[[Path], bool]
    spec: type[CapturedSpec]
    read: Callable[[Path, Any], CapturedExposure]
    check: Callable[[Path, Path | None], object]
