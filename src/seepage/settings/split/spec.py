"""The spec of an audit of split learning: plain values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from seepage.errors import BadInputError
from seepage.settings.loss import LossOption
from seepage.settings.option import ATTACK, KNOWLEDGE, PARTIES, Amount, Count, Counts, Fraction, Option, Positive
from seepage.settings.part import Part, as_part, several
from seepage.settings.spec import Attacks, Baselines, MostRows, Names, QuasiIdentifiers, Spec
from seepage.wire.topology import SplitAttacker, Topology, holds_second_cut

SplitProtocol = Literal["split", "federated_split"]


_BASELINES = (Part(name="marginals"), Part(name="imputer"))
_ATTACKS = (Part(name="exact"), Part(name="posterior"))
# Defaults where the client holds all columns.
_OF_WHOLE_CLIENTS = (Part(name="constant"), Part(name="median"))
_ON_ACTIVATIONS = (Part(name="layer_inversion"), Part(name="informed_sa"))
# Fields without a meaning there, and without one elsewhere.
_OF_COLUMNS = ("private_columns", "protocol", "logit", "rows_each", "clients", "auxiliary", "stale", "final")
_OF_WHOLE = ("cut", "leaked")
_OF_HOPS = ("hop", "attacker")
_ABOUT = Part(name="posterior", options={"weights": "about"}, label="posterior_about")


def _mechanisms(defenses: object) -> set[str]:
    """Return the names of all mechanisms in unchecked defenses."""
    names = set()
    given = several(defenses)
    for part_like in given if isinstance(given, list | tuple) else ():
        try:
            part = part_like if isinstance(part_like, Part) else Part.model_validate(as_part(part_like))
        except (BadInputError, ValidationError):
            continue
        names |= {mechanism.name for mechanism in part.mechanisms}
    return names


class SplitSpec(Spec):
    """A spec of an audit of split learning."""

    setting: ClassVar[str] = "split"
    about: ClassVar[str] = "split learning: what the server reads of the client's columns and labels"
    unit: ClassVar[str] = "training"
    member: ClassVar[str | None] = "record"
    quick: ClassVar[Mapping[str, object]] = {"repetitions": 1, "attacked_records": 200}

    guide: ClassVar[str] = """Measure what the server of split learning reads of the client's columns and labels.

The network (DeepFM) is trained with each defense; then the server compares the gradients of held-out records with those
of all combinations of private cells and label (exact), and weighs them by what it knows of the defense and of people
(posterior). Where its copy of the client's part is older, newer or blurred, it also fits by how much (posterior_about).
Beside every figure stands the best baseline, which holds all but what came back.

`Examples`

    seepage split --private-column sex --private-column race --defense none --defense 'label_flip:{probability: 0.1}'

    seepage split --data people.csv --target outcome --private-column smoker --fail-above 0.2 --out split
"""

    private_columns: Annotated[
        Names,
        Option("Column that the client holds.", PARTIES, "COLUMN", default="sensitive categories, else half of them"),
    ] = ()
    protocol: Annotated[
        SplitProtocol,
        Option("Clients: one that holds all rows (split), or many of rows_each rows each (federated_split).", PARTIES),
    ] = "split"
    model: Annotated[
        str,
        Option.network(
            "Network. Of your own, with the modules server and client in it, and last or hop where the topology has "
            "one:"
        ),
    ] = "deepfm"
    topology: Annotated[
        Topology,
        Option(
            "Who holds what: columns, the server some columns and the client the others and the label; vanilla, the "
            "client all columns and the server the labels; u_shaped, the client all columns, labels and last layer; "
            "multi_hop, as vanilla with a third party's layers between client and server.",
            PARTIES,
        ),
    ] = "columns"
    attacker: Annotated[
        SplitAttacker,
        Option("Party that attacks, where there is a hop: the server behind it, or the hop itself.", PARTIES),
    ] = "server"
    hidden: Annotated[
        Counts, Option("Number of units of a hidden layer of DeepFM at the client.", PARTIES, "UNITS")
    ] = (256, 128)
    tower: Annotated[
        Counts,
        Option("Number of units of a hidden layer of DeepFM at the server.", PARTIES, "UNITS", default="no layer"),
    ] = ()
    cut: Annotated[
        Count, Option("Number of activations at the cut of a client that holds all columns.", PARTIES, "UNITS")
    ] = 32
    hop: Annotated[
        Counts,
        Field(min_length=1),
        Option("Number of units of a layer of the hop between client and server.", PARTIES, "UNITS"),
    ] = (32,)
    logit: Annotated[bool, Option("Whether DeepFM ends in one logit for two classes.", PARTIES)] = True
    epochs: Annotated[Count, Option("Number of passes over the rows before the attack.", PARTIES)] = 5
    batch_size: Annotated[Count, Option("Number of records of an exchange with one client.", PARTIES, "RECORDS")] = 256
    learning_rate: Annotated[Positive, Option("Learning rate of Adagrad.", PARTIES)] = 0.01
    loss: LossOption = None
    rows_each: Annotated[Count, Option("Number of rows of each of many clients.", PARTIES, "ROWS")] = 16
    clients: Annotated[Count, Option("Number of clients in an exchange, where there are many.", PARTIES)] = 16
    attacks: Attacks = _ATTACKS
    baselines: Baselines = _BASELINES
    test_share: Annotated[
        Fraction, Option("Share of rows that are not trained on; attacked ones are among them.", PARTIES)
    ] = 0.1
    attacked_records: Annotated[
        int | None,
        Field(ge=1),
        Option("Largest number of attacked records.", ATTACK, "RECORDS", default="all held-out rows"),
    ] = None
    auxiliary: Annotated[
        Amount,
        Option("Number of training rows that the attacker holds whole; 0 for marginals alone.", KNOWLEDGE, "ROWS"),
    ] = 2_000
    exposures: Annotated[
        int | None,
        Field(ge=1),
        Option("Number of exchanges in which the server sees each attacked record.", ATTACK, default="one an epoch"),
    ] = None
    leaked: Annotated[
        Amount,
        Option(
            "Number of attacked records that the server knows where the client holds all columns; they do not count.",
            KNOWLEDGE,
            "RECORDS",
        ),
    ] = 64
    stale: Annotated[
        Amount, Option("Number of epochs by which the client weights that the server knows are old.", KNOWLEDGE)
    ] = 0
    final: Annotated[
        Amount,
        Option(
            "Number of epochs before the end at which the attacked exchange takes place, where the server knows the "
            "client's final weights alone; 0 for an exchange after the end.",
            KNOWLEDGE,
        ),
    ] = 0
    known_labels: Annotated[
        Amount, Option("Number of training records whose labels attacks on labels alone know.", KNOWLEDGE, "RECORDS")
    ] = 100
    most_rows: MostRows = None
    quasi_identifiers: QuasiIdentifiers = ()
    repetitions: Annotated[
        Count, Option("Number of trainings, each from seeds of its own; intervals are over them.", ATTACK)
    ] = 5

    @model_validator(mode="before")
    @classmethod
    def _of_marginals_alone(cls, values: object) -> object:
        """Leave out the baseline that learns from auxiliary rows where there are none."""
        without = isinstance(values, Mapping) and values.get("auxiliary") == 0
        return {"baselines": _BASELINES[:1], **values} if isinstance(values, Mapping) and without else values

    @model_validator(mode="before")
    @classmethod
    def _of_whole_clients(cls, values: object) -> object:
        """Fill in the attacks and baselines for a client that holds all columns."""
        if not isinstance(values, Mapping) or values.get("topology") not in get_args(Topology)[1:]:
            return values
        # Gradients at a second cut carry information on labels.
        second = holds_second_cut(values["topology"], values.get("attacker", "server"))
        attacks = (*_ON_ACTIVATIONS, Part(name="label_heads")) if second else _ON_ACTIVATIONS
        return {"attacks": attacks, "baselines": _OF_WHOLE_CLIENTS, **values}

    @model_validator(mode="after")
    def _of_one_topology(self) -> SplitSpec:
        whole, hop = self.topology != "columns", self.topology == "multi_hop"
        refused = dict.fromkeys(
            _OF_COLUMNS if whole else _OF_WHOLE,
            "the client holds all columns" if whole else "the server holds columns of its own",
        )
        if not hop:
            refused |= dict.fromkeys(_OF_HOPS, "no party is between client and server")
        for name, why in refused.items():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is not of the topology {self.topology!r}, in which {why}; leave it out")
        return self

    @model_validator(mode="after")
    def _layers_of_ours(self) -> SplitSpec:
        if ":" in self.model:
            for name in ("hidden", "tower", "logit", "hop"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    ours = "deepfm" if self.topology == "columns" else "the fully connected network"
                    raise ValueError(f"{name} is of {ours}, but the model is {self.model!r}; leave {name} out")
        return self

    @property
    def exchanges(self) -> int:
        """Number of exchanges in which the server sees each attacked record."""
        return self.epochs if self.exposures is None else self.exposures

    @model_validator(mode="before")
    @classmethod
    def _of_other_weights(cls, values: object) -> object:
        """Add the attack that fits the error of the server's copy of the client's weights, where there is one."""
        if not isinstance(values, Mapping) or "attacks" in values:
            return values
        mechanisms = _mechanisms(values.get("defenses", ()))
        off = values.get("stale") or values.get("final") or "weight_noise" in mechanisms
        # Its fit on bare gradients is void where they are clipped.
        blurred = mechanisms & {"cut_noise", "marvell", "max_norm"}
        return {**values, "attacks": (*_ATTACKS, _ABOUT)} if off and not blurred else values
