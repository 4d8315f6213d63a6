"""The spec of an audit of vertical learning: plain values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from seepage.settings.option import ATTACK, KNOWLEDGE, PARTIES, Amount, Count, Counts, Fraction, Option, Positive
from seepage.settings.part import Part, named, several
from seepage.settings.spec import Attacks, Baselines, MostRows, QuasiIdentifiers, Spec

Attacked = Literal["held_out", "trained"]


def _parties(value: object) -> object:
    """Return one party's names as a list of one party."""
    value = several(value)
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return (value,)
    return value


class VerticalSpec(Spec):
    """A spec of an audit of vertical learning."""

    setting: ClassVar[str] = "vertical"
    about: ClassVar[str] = "vertical learning: what the active party reads of a passive party's columns"
    unit: ClassVar[str] = "training"
    member: ClassVar[str | None] = "record"
    quick: ClassVar[Mapping[str, object]] = {"repetitions": 1, "epochs": 3, "attacked_records": 1000}

    guide: ClassVar[str] = """Measure what the active party of vertical learning reads of a passive party's columns.

The parties train bottom models and a top model with each defense; then the active party finds a way back from the
features to the passive party's cells, under four levels of access: with auxiliary rows and queries, with auxiliary
rows alone, with queries alone, with some leaked records alone. Attacks use what the active party holds, such as its own
columns; published forms are run by name (uifv_qa and others). A passive party guesses labels from what comes back.
Beside every figure stands the best baseline, which holds all but the message.

`Examples`

    seepage vertical --passive age,education,occupation --defense none --defense 'feature_noise:{scale: 0.1}'

    seepage vertical --data people.csv --target outcome --parties 4 --fail-above 0.2 --out vertical

    seepage vertical --dataset german --attack 'uifv_qa:{epochs: 40}' --attack uifv_sa
"""

    passive: Annotated[
        tuple[tuple[str, ...], ...],
        BeforeValidator(_parties),
        Option(
            "Columns of a passive party, with commas between them, a party each; the active party has the rest.",
            PARTIES,
            "COLUMNS",
            default="equal shares of each kind of column, sensitive ones of your table first",
        ),
    ] = ()
    parties: Annotated[
        int, Field(ge=2), Option("Number of parties with equal shares, where no columns are named.", PARTIES)
    ] = 2
    share: Annotated[
        float | None,
        Field(gt=0, lt=1),
        Option(
            "Share of the columns that the attacked party holds; the others share the rest.", PARTIES, default="equal"
        ),
    ] = None
    columns_seed: Annotated[
        int | None,
        Field(ge=0),
        Option("Seed of a random order of columns before they are shared.", PARTIES, default="the schema's order"),
    ] = None
    victim: Annotated[int, Option("Number of the passive party that is attacked, from 1.", ATTACK)] = 1
    bottom_model: Annotated[str, Option.network("Bottom model of every party. Of your own:")] = "vertical_mlp"
    top_model: Annotated[str, Option.network("Top model. Of your own:")] = "vertical_mlp"
    bottom: Annotated[Counts, Option("Number of units of a hidden layer of bottom models.", PARTIES, "UNITS")] = (
        300,
        100,
    )
    features: Annotated[Count, Option("Number of features that each party sends.", PARTIES)] = 100
    top: Annotated[Counts, Option("Number of units of a hidden layer of the top model.", PARTIES, "UNITS")] = (100, 50)
    unsplit: Annotated[bool, Option("Whether parties send logits that are added up, without a top model.", PARTIES)] = (
        False
    )
    epochs: Annotated[Count, Option("Number of passes over the rows before the attack.", PARTIES)] = 20
    batch_size: Annotated[Count, Option("Number of records of an exchange.", PARTIES, "RECORDS")] = 256
    learning_rate: Annotated[Positive, Option("Learning rate of Adam.", PARTIES)] = 1e-3
    # The strongest of each level of access; published forms are run by their names. A published network of fixed epochs
    # stops here when it has converged.
    attacks: Attacks = (
        Part(name="informed_qa"),
        Part(name="student_dpa"),
        Part(name="uifv_iqa", options={"converge": True}),
        Part(name="informed_sa"),
        Part(name="label_heads"),
    )
    baselines: Baselines = named("constant", "median", "own_columns", "imputer")
    attacked: Annotated[
        Attacked, Option("Attacked records: held out and predicted for, or trained on, whose labels are known.", ATTACK)
    ] = "held_out"
    exposures: Annotated[
        Count, Option("Number of times that each held-out record is predicted, and each query answered.", ATTACK)
    ] = 1
    test_share: Annotated[Fraction, Option("Share of rows that are not trained on.", PARTIES)] = 0.2
    attacked_records: Annotated[
        int | None, Field(ge=1), Option("Largest number of attacked records.", ATTACK, "RECORDS", default="all")
    ] = None
    auxiliary: Annotated[
        float,
        Field(ge=0, lt=1),
        Option(
            "Share of the rows left for training that the attacker holds whole; they are not trained on.", KNOWLEDGE
        ),
    ] = 0.125
    queries: Annotated[
        int | None,
        Field(ge=0),
        Option("Number of queries that a passive party answers.", KNOWLEDGE, default="as many as auxiliary rows"),
    ] = None
    leaked: Annotated[
        Amount, Option("Number of attacked records that the attacker knows; they do not count.", KNOWLEDGE)
    ] = 64
    gradient_batches: Annotated[
        Count,
        Option("Number of batches of attacked records that attacks on gradients are granted gradients of.", KNOWLEDGE),
    ] = 4
    gradient_batch: Annotated[
        Count, Option("Number of records of such a batch; these alone are guessed.", KNOWLEDGE, "RECORDS")
    ] = 64
    known_labels: Annotated[
        Amount,
        Option(
            "Number of training records whose labels a passive party knows, which guesses others; they do not count.",
            KNOWLEDGE,
            "RECORDS",
        ),
    ] = 100
    most_rows: MostRows = None
    quasi_identifiers: QuasiIdentifiers = ()
    repetitions: Annotated[
        Count, Option("Number of trainings, each from seeds of its own; intervals are over them.", ATTACK)
    ] = 5

    @model_validator(mode="after")
    def _named_or_shared(self) -> VerticalSpec:
        if self.passive and self.share is not None:
            raise ValueError(
                f"columns are named (passive) or dealt out by shares (share={self.share}), not both; leave out one"
            )
        if self.attacked == "trained" and self.exposures > 1:
            raise ValueError(
                f"records of training are attacked by their message of the last epoch, got exposures={self.exposures}; "
                "attack held_out records, or leave exposures at 1"
            )
        for model, layers in (("bottom_model", ("bottom",)), ("top_model", ("top", "unsplit"))):
            for name in layers:
                given = getattr(self, name) != type(self).model_fields[name].default
                if ":" in getattr(self, model) and given:
                    raise ValueError(
                        f"{name} is of vertical_mlp, but {model} is {getattr(self, model)!r}; leave {name} out"
                    )
        named = len(self.passive) + 1
        if self.passive and self.parties not in (type(self).model_fields["parties"].default, named):
            raise ValueError(
                f"columns are named (passive) for {named} parties, got parties={self.parties}; leave out one"
            )
        return self
