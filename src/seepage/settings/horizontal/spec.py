"""The spec of an audit of horizontal federated learning: plain values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from seepage import registry
from seepage.attacks.horizontal.matching.profile import Profile
from seepage.errors import BadInputError
from seepage.models.head import Dropout, Head
from seepage.settings.loss import LossOption
from seepage.settings.option import ATTACK, KNOWLEDGE, PARTIES, Amount, Count, Counts, Option
from seepage.settings.part import Part, Parts, named, several
from seepage.settings.spec import Attacks, Baselines, File, ItemError, Plain, QuasiIdentifiers, Spec

Labels = Literal["restored", "true", "ordered"]
BatchStatistics = Literal["sent", "hidden", "granted"]


def _switch_text(value: object) -> object:
    # YAML reads both words as truth values.
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _label_text(value: object) -> object:
    # YAML reads the word as a truth value.
    return "true" if value is True else value


class Training(Plain):
    """Training of the network before and during the rounds that are attacked: rounds of the same clients.

    Each client trains on the same own records in every round, all of them in one step an epoch, and the server takes
    the mean. With one epoch that is FedSGD. An attack in round k comes after k - 1 rounds.
    """

    rounds: Annotated[
        int, Field(ge=0, le=100_000), Option("Number of rounds of training before the attacked one.", PARTIES)
    ] = 0
    attacked_rounds: Annotated[
        int,
        Field(ge=1, le=1_000),
        Option("Number of successive rounds in which a victim's messages are received.", PARTIES),
    ] = 1
    clients: Annotated[Count, Option("Number of clients in each round.", PARTIES)] = 50
    records: Annotated[
        Count, Option("Number of records of a client, fewer where the table has not as many.", PARTIES)
    ] = 32
    epochs: Annotated[Count, Option("Number of local steps of a round.", PARTIES)] = 1
    learning_rate: Annotated[float, Field(gt=0, lt=float("inf")), Option("Learning rate of local steps.", PARTIES)] = (
        0.5
    )


class HorizontalSpec(Spec):
    """A spec of an audit of horizontal federated learning."""

    setting: ClassVar[str] = "horizontal"
    about: ClassVar[str] = "horizontal federated learning: what the server reads of a client's records"
    unit: ClassVar[str] = "victim"
    repeats: ClassVar[str] = "victims"
    quick: ClassVar[Mapping[str, object]] = {"victims": 3}
    guide: ClassVar[str] = """Attack gradients and report what was read out of them, beside the best baseline.

Each victim is one batch of a client's records. Attacks see its gradient as the server does; their guesses are then
matched to the true records. The run folder gets report.html to read in a browser, results.json and results.csv (one row
a figure, with interval, baseline and lift), audit.sqlite (all that was measured, from which a run that was stopped
continues) and provenance.json.

A document may be of any setting; all options of that setting can be given beside it and take precedence.

`Examples`

The default audit of census records, without and with defenses:

    seepage audit

One configuration, into a folder of your choice:

    seepage audit --dataset german --batch-size 8 --attack tableak --victims 4 --out german-8

Your own table, with a look at the columns that matter:

    seepage audit --data patients.csv --target readmitted --sensitive hiv --sensitive age

What a document says (`seepage spec new` drafts one), with more victims:

    seepage audit audit.yaml --victims 40 --out mine

A gate for a pipeline: exit status 0 if passed, 1 if failed, 4 if undecided:

    seepage audit --data patients.csv --target readmitted --fail-above 0.2
"""

    model: Annotated[
        str,
        Option(
            "Network; `seepage models` lists them. Of your own: package.module:factory or path/to/file.py:factory.",
            PARTIES,
            "NAME[:OPTIONS]",
            parts="models",
            own=True,
            code=True,
            replaces=("model_options", "weights", "head", "model_seed"),
        ),
    ] = "nn3"
    model_options: Annotated[
        dict[str, Any], Option("Argument of the network's factory.", PARTIES, "NAME=VALUE", below="model", key="")
    ] = Field(default_factory=dict)
    weights: Annotated[
        File | None,
        Option(
            "Weights of the network (.safetensors).",
            PARTIES,
            "FILE",
            default="those of its initialisation",
            below="model",
            key="weights",
        ),
    ] = None
    head: Annotated[
        Head | None,
        Option("Output of the network.", PARTIES, default="what the target asks for", below="model", key="head"),
    ] = None
    model_seed: Annotated[
        int | None,
        Field(ge=0, lt=2**63),
        Option("Seed of the network's initialisation.", PARTIES, default="seed", below="model", key="seed"),
    ] = None
    dropout: Annotated[
        Dropout,
        BeforeValidator(_switch_text),
        Option(
            "Networks that drop values in training: on, by masks that clients draw and nobody is sent, or off to audit "
            "them as if clients trained without dropout.",
            PARTIES,
        ),
    ] = "on"
    loss: LossOption = None
    training: Annotated[
        Training | None,
        Option(
            "Rounds of training before the attacked one, and number of rounds in which the same victims are attacked, "
            "such as '{rounds: 9, clients: 5}'.",
            PARTIES,
            "OPTIONS",
            default="none, and one round",
            example="{rounds: 9, clients: 5}",
        ),
    ] = None
    protocol: Annotated[
        str,
        Option(
            "Training of the parties: fedsgd, or fedavg with options such as "
            "'fedavg:{epochs: 5, local_batch_size: 8, optimizer: adam}'.",
            PARTIES,
            "NAME[:OPTIONS]",
            parts="protocols",
            replaces=("protocol_options",),
        ),
    ] = "fedsgd"
    protocol_options: Annotated[
        dict[str, Any],
        Option(
            "Argument of the protocol, such as epochs=5 of fedavg.", PARTIES, "NAME=VALUE", below="protocol", key=""
        ),
    ] = Field(default_factory=dict)
    batch_sizes: Annotated[
        Counts,
        BeforeValidator(several),
        Option(
            "Number of records behind one message. Each is audited.",
            PARTIES,
            "RECORDS",
            below="protocol",
            key="batch_size",
            swept=True,
        ),
    ] = (8, 32)
    replacement: Annotated[
        bool, Option("Whether a batch may hold a row twice.", PARTIES, below="protocol", key="replacement")
    ] = False
    attacks: Attacks = (Part(name="unmix"), Part(name="inverting_gradients"))
    labels: Annotated[
        Labels,
        BeforeValidator(_label_text),
        Option(
            "Labels that the attacker has: restored from the message, the true ones in no particular order, or ordered "
            "as clients go through their records (with local steps, where clients do not shuffle).",
            KNOWLEDGE,
        ),
    ] = "restored"
    batch_statistics: Annotated[
        BatchStatistics,
        Option(
            "Mean and variance of each batch that the attacker is granted where the network normalises it: sent, what "
            "the running statistics that clients send along tell of a single batch (FedSGD, one round of whole "
            "holdings); granted, the exact ones; hidden, none.",
            KNOWLEDGE,
        ),
    ] = "sent"
    auxiliary: Annotated[
        Amount,
        Option(
            "Number of public rows that the server holds whole, held-out ones that no client has; a table without any "
            "holds out as many. Baselines learn from them; with 0 they know the columns' marginals alone.",
            KNOWLEDGE,
            "ROWS",
        ),
    ] = 0
    profile: Annotated[
        Profile,
        Option(
            "Configuration of attacks: default is the strongest we know; faithful has the official implementations' "
            "details.",
            ATTACK,
            of_attacks=True,
        ),
    ] = "default"
    restarts: Annotated[
        int | None,
        Field(ge=1),
        Option(
            "Number of random starts of attacks that use several.", ATTACK, default="each attack's own", of_attacks=True
        ),
    ] = None
    iterations: Annotated[
        int | None,
        Field(ge=1),
        Option("Number of descent steps of an attack.", ATTACK, default="each attack's own", of_attacks=True),
    ] = None
    non_members: Annotated[
        Amount,
        Option(
            "Number of records that are not behind a message and are told from its members by a likelihood-ratio test, "
            "1,000 for a false-positive rate of 0.1%; 0 for no test.",
            ATTACK,
            "RECORDS",
        ),
    ] = 0
    baselines: Baselines = named("stereotypes", "mode", "random")
    metrics: Annotated[
        Parts, Option("Figure that is measured.", ATTACK, "NAME[:OPTIONS]", parts="metrics", default="all")
    ] = Field(default_factory=lambda: named(*registry.metrics.names()))
    quasi_identifiers: QuasiIdentifiers = ()
    victims: Annotated[
        Count,
        Option("Number of attacked batches in each configuration.", ATTACK, default="5 to 40, as needed"),
    ] = 40

    @model_validator(mode="before")
    @classmethod
    def _of_public_rows(cls, values: object) -> object:
        """Add the baseline of a tree of columns where there are public rows to learn it from."""
        if not isinstance(values, Mapping) or not values.get("auxiliary"):
            return values
        return {"baselines": (*cls.model_fields["baselines"].default, Part(name="chow_liu")), **values}

    @field_validator("model_options")
    @classmethod
    def _not_what_the_audit_gives(cls, options: dict[str, object]) -> dict[str, object]:
        for name in ("schema", "seed", "head"):
            if name in options:
                reasons = {"schema": "comes from the table", "seed": "is model_seed", "head": "is a setting of its own"}
                raise BadInputError(f"model option {name!r} {reasons[name]}; leave it out of the model's options.")
        return options

    @field_validator("protocol_options")
    @classmethod
    def _not_what_the_protocol_is_given(cls, options: dict[str, object]) -> dict[str, object]:
        for name in ("batch_size", "replacement", "defense"):
            if name in options:
                raise BadInputError(f"protocol option {name!r} is a setting of its own; leave it out of the options.")
        return options

    @field_validator("defenses")
    @classmethod
    def _one_mechanism(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        for i, part in enumerate(parts):
            if len(part.mechanisms) > 1:
                raise ItemError(
                    i,
                    f"{part.name!r} combines mechanisms, but what an attacker of horizontal learning knows of a "
                    "defense is about one of them; give each as a defense of its own.",
                )
        return parts

    @field_validator("metrics")
    @classmethod
    def _with_accuracy(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        if "accuracy" not in {part.name for part in parts}:
            raise BadInputError(
                "an audit measures the accuracy, which its verdict rests on; add 'accuracy' to metrics."
            )
        return parts

    @field_validator("batch_sizes")
    @classmethod
    def _not_empty(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if not sizes:
            raise BadInputError("an audit needs at least one batch size; give 8, for example.")
        return tuple(dict.fromkeys(sizes))

    def reseeded(self, seed: int) -> HorizontalSpec:
        """Return the same audit with other victims; the network keeps its initialisation."""
        network_seed = self.seed if self.model_seed is None else self.model_seed
        return super().reseeded(seed).model_copy(update={"model_seed": network_seed})

    @property
    def attacked_rounds(self) -> int:
        """Number of rounds in which the same victims are attacked."""
        return 1 if self.training is None else self.training.attacked_rounds


def make_spec(**values: object) -> HorizontalSpec:
    """Return a spec of horizontal learning, or a ``BadInputError`` whose one paragraph names all that is wrong."""
    return HorizontalSpec.of(**values)
