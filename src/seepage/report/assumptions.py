"""The threat model of an audit and everything the attacker was granted, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seepage.results.rows import Row
from seepage.results.text import clean, listed, percent
from seepage.results.tiers import is_attack
from seepage.results.verdict import UNDEFENDED
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.subject import Subject
from seepage.settings.training import Learnt
from seepage.tabular.encoder import Encoder
from seepage.tabular.rank import batch_rank, rank_ceiling
from seepage.tabular.schema import Column, Continuous, Schema
from seepage.tabular.texts import DAYS

# Ranks are a matter of a second within these bounds, and left out beyond them.
_WIDEST_RANKED = 500
_LARGEST_RANKED = 1024
_RANKED_BATCHES = 30
_LABELS = {
    "true": "the true labels, in no particular order",
    "ordered": "the true labels in the order in which the client goes through its records, so who is in which batch",
    "restored": "no labels: it restores them from what it sees",
}


def assumptions(spec: HorizontalSpec, subject: Subject, rows: Sequence[Row]) -> list[str]:
    """Return one sentence an assumption, the threat model first; table texts in them are printable lines."""
    granted = next((row["knowledge"] for row in rows if is_attack(row)), None)
    sees = "what clients send" if granted is None else clean(granted["sees"], 300)
    crafted = subject.model.crafted
    kind = f"an active, malicious server that {crafted}; it" if crafted else "an honest-but-curious server that"
    facts = [f"the attacker is {kind} sees {sees}, and the model"]
    if granted is not None:
        told = ", ".join(
            f"{clean(name, 40).replace('_', ' ')} ({clean(value, 80)})"
            for name, value in granted.items()
            if name not in ("sees", "labels", "batch_size", "defense")
        )
        facts.append(f"it is granted: {told}, batch size; {_LABELS[granted['labels']]}")
        facts += _of_defenses(rows)
    if subject.learnt is not None:
        facts.append(_of_training(subject.learnt))
    if spec.profile != "default":
        facts.append(f"attacks as in the official implementations (profile {spec.profile}), not the strongest known")
    return facts + _rank(spec, subject) + [clean(note, 200) for note in subject.dataset.notes]


def _rank(spec: HorizontalSpec, subject: Subject) -> list[str]:
    """Return how many records the rows of the table can be told apart by linear algebra, in all and in a batch."""
    dataset = subject.dataset
    encoder, cells = Encoder(dataset.schema, dataset.statistics), dataset.train.cells.cpu()
    if encoder.width > _WIDEST_RANKED:
        return []
    of_batches = [
        f"{batch_rank(encoder, cells, size, spec.seed, _RANKED_BATCHES, spec.replacement):.3g} of a batch of {size}"
        for size in spec.batch_sizes
        if size <= _LARGEST_RANKED
    ]
    mean = f", on average {listed(of_batches)}" if of_batches else ""
    return [
        f"the rows, encoded and with a constant, have rank {rank_ceiling(encoder, cells)}{mean}: the most records that "
        "the first layer's gradient lets anybody tell apart by linear algebra alone; deeper layers may tell more"
    ]


def tolerances(schema: Schema, most: int = 12) -> str:
    """Return within what distance a number counts as read, by column, as a sentence; nothing without numbers.

    Example:
        >>> from seepage.tabular.schema import Discrete
        >>> age = Continuous(name="age", low=0, high=99, tolerance=4.25, unit="years")
        >>> tolerances(Schema(columns=(age,), target=Discrete(name="ill", categories=(0, 1))))
        'A number counts as read within its tolerance: age ±4.25 years.'
    """
    told = [f"{clean(one.name, 32)} {tolerance(one)}" for one in schema.columns if isinstance(one, Continuous)]
    if not told:
        return ""
    more = f" and {len(told) - most} more columns, see the report" if len(told) > most else ""
    return f"A number counts as read within its tolerance: {', '.join(told[:most])}{more}."


def tolerance(column: Column) -> str:
    """Return the distance within which a cell counts as read; a category has to be the very one.

    Example:
        >>> tolerance(Continuous(name="age", low=0, high=99, tolerance=4.25))
        '±4.25'
    """
    if not isinstance(column, Continuous):
        return "exact"
    # The distance between two dates is one of days.
    unit = "days" if column.unit == DAYS else (column.unit or "").partition(",")[0]
    return f"±{column.tolerance:.3g} {clean(unit, 24)}".strip()


def _of_training(learnt: Learnt) -> str:
    """Return what the network went through before the attack, and how well it does."""
    done, rows = learnt.training, f"{learnt.test_rows:,} rows held out"
    if learnt.metric == "model_accuracy":
        does = f"predicts {percent(learnt.value)} of {rows} (guessing {percent(learnt.guess)})"
    else:
        does = f"errs by {learnt.value:.4g} (RMSE) on {rows} (guessing {learnt.guess:.4g})"
    attacked = f"; it is attacked in {done.attacked_rounds:,} rounds from there on, the last time when it"
    return (
        f"the network was trained before, in {done.rounds:,} round(s) of {done.clients:,} clients with "
        f"{learnt.records:,} records each at a learning rate of {done.learning_rate:g}"
        f"{attacked if done.attacked_rounds > 1 else ', and'} {does}"
    )


def _of_defenses(rows: Sequence[Row]) -> list[str]:
    """Return what the attacker knows of the defenses that were audited."""
    known = {
        row["defense"]: row["knowledge"]["defense"] for row in rows if is_attack(row) and "defense" in row["knowledge"]
    }
    told = [_told(what) for name, what in known.items() if name != UNDEFENDED]
    return [f"it knows how updates were defended: {clean(', '.join(told), 400)}"] if told else []


def _told(what: object) -> str:
    if not isinstance(what, Mapping):
        return str(what)
    arguments = ", ".join(f"{name}={value}" for name, value in what.items() if name != "name")
    return f"{what.get('name', 'defense')}({arguments})" if arguments else str(what.get("name", "defense"))
