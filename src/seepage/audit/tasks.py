"""What the task loses to each defense of an audit, beside what the defense keeps back."""

from __future__ import annotations

from collections.abc import Callable

from seepage.audit.code import own_code
from seepage.audit.grid import plain
from seepage.audit.parts import registry
from seepage.audit.results import Row
from seepage.audit.spec import AuditSpec, Part
from seepage.audit.store import Store
from seepage.audit.subject import Subject
from seepage.audit.utility import Recipe, measure_utility, utility_row
from seepage.audit.workers import threads


def task_rows(spec: AuditSpec, subject: Subject, store: Store, say: Callable[[str], None]) -> list[Row]:
    """Return a row of results for each batch size and defense: how well the task is learnt under it.

    Training takes seconds, so it is done only where a defense is swept, and once for all attacks and
    audits that share table, model, batch size and defense.

    Args:
        spec, subject: of the audit.
        store: holds what was trained before.
        say: called with what is trained next.

    Raises:
        BadInputError: there are too few rows to train on and to hold some out.
    """
    if all(part.name == "none" for part in spec.defenses):
        return []
    return [_row(spec, subject, size, part, store, say) for size in spec.batch_sizes for part in spec.defenses]


def _row(
    spec: AuditSpec, subject: Subject, batch_size: int, part: Part, store: Store, say: Callable[[str], None]
) -> Row:
    defense, recipe = registry.defenses.create(part.name, **part.options), Recipe()

    def train() -> Row:
        say(f"training at batch size {batch_size}, {part.called}")
        with threads(spec.threads):
            found = measure_utility(
                subject.dataset, subject.model, subject.encoder, batch_size, defense, recipe, seed=spec.seed
            )
        return utility_row(
            found,
            dataset=subject.dataset.name,
            protocol=spec.protocol,
            model=subject.model.name,
            batch_size=batch_size,
            defense=part.called,
            seed=spec.seed,
        )

    made_from = {
        "task": plain(recipe),
        "code": own_code(),
        "rows": subject.rows_digest,
        "model": subject.model_digest,
        "protocol": spec.protocol,
        "batch_size": batch_size,
        "defense": {"name": part.name, **plain(defense)},
        "seed": spec.seed,
        "threads": spec.threads,
    }
    # Another label for the same defense is no other training.
    return {**store.setup(made_from, train), "defense": part.called}
