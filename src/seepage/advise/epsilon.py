"""Audit of whole trainings by membership: which canaries of a table a trained network was trained on.

Each canary is trained on by the toss of a coin. Under an epsilon, and delta aside, a guess whether it was is right with
probability ``exp(epsilon) / (1 + exp(epsilon))`` at most, whatever the other coins were. So the number of right ones of
G guesses is no more, in distribution, than a binomial one with that probability. The bound is the largest epsilon that
so many right guesses exclude (``assessment.one_run``). The epsilon that is accounted for has to be at least as large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from seepage.assessment.one_run import FEWEST_CANARIES, CanaryKind, TrainingAudit, audit_training
from seepage.assessment.utility import Recipe
from seepage.auditing import Network, Source, fitting, spec_of
from seepage.errors import BadInputError
from seepage.protocols.fedavg import FedAvg
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.tasks import local_training, planned_protocol
from seepage.tabular.schema import Schema
from seepage.text import clean

# Canaries by default: a third of the rows, so that the task is still learnt, and no more than this.
_SHARE, _MOST = 1 / 3, 1_000


@dataclass(frozen=True)
class TrainingEpsilon:
    """What one training of a configuration shows of its epsilon."""

    batch_size: int
    defense: str
    training: TrainingAudit

    @property
    def line(self) -> str:
        """The result in three sentences."""
        area, guarantee = self.training.auc, self.training.guarantee
        losses = (
            "" if area is None else f" Losses tell included canaries from those left out with an AUC of {area:.2f}."
        )
        if guarantee is None:
            beside = "No epsilon is accounted for."
        elif self.training.refuted:
            beside = (
                f"The accounted {guarantee.epsilon:.3g} does not hold: noise or clipping is not what it is said to be."
            )
        else:
            beside = f"Accounted for are {guarantee.epsilon:.3g} ({guarantee.accountant}, {guarantee.sampling})."
        place = f"Batch size {self.batch_size}, {clean(self.defense, 80)}"
        return f"{place}: {self.training.measured.words}{losses} {beside}"

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {**asdict(self), "refuted": self.training.refuted, "line": self.line}


def epsilon(
    source: Source = "adult",
    model: Network = None,
    *,
    canaries: int | None = None,
    kind: CanaryKind = "mislabelled",
    recipe: Recipe | None = None,
    schema: Schema | None = None,
    say: Callable[[str], None] = lambda _: None,
    **options: object,
) -> list[TrainingEpsilon]:
    """Bound the epsilon of whole trainings of horizontal learning from below, with one training each.

    Args:
        source, model, schema: arguments of ``audit``.
        canaries: number of rows that are trained on by the toss of a coin each; a third of the rows, at most 1,000, if
            None.
        kind: canaries with the label of another row, or the rows as they are.
        recipe: recipe of the training, see ``audit_training``.
        say: gets a line on each training.
        options: fields of the spec of horizontal learning, such as batch_sizes, defenses, protocol and seed.

    Returns:
        A result for each batch size and defense.

    Example:
        >>> [found] = epsilon("german", batch_sizes=32, canaries=100, recipe=Recipe(epochs=1))
        >>> found.training.measured.canaries, found.training.guarantee
        (100, None)
    """
    spec, dataset, network = spec_of(source, model, "horizontal", schema, options)
    given = {"attacks", "baselines"} | ({"defenses"} if not spec.is_usual("defenses") else set())
    # No attack is run here, so that none can be at fault.
    [audit] = fitting([spec.model_copy(update={"attacks": (), "baselines": ()})], None, given, dataset, network)
    for line in audit.untried:
        say(line)
    assert isinstance(audit, HorizontalAudit)
    subject, rows = audit.subject, len(audit.subject.dataset.train)
    number = canaries if canaries is not None else min(_MOST, int(_SHARE * rows))
    if number < FEWEST_CANARIES:
        raise BadInputError(
            f"{FEWEST_CANARIES} canaries are needed at least, got {number} of {rows} rows; give more rows."
        )
    results = []
    for size in audit.spec.batch_sizes:
        for part in audit.spec.defenses:
            protocol = planned_protocol(audit.spec, subject, size, part, recipe)
            local = local_training(protocol)
            shuffle = isinstance(protocol, FedAvg) and protocol.shuffle
            say(f"training at batch size {size}, {part.title}, with {number} canaries")
            trained = audit_training(
                subject.dataset,
                subject.model,
                subject.encoder,
                size,
                number,
                defense=protocol.defense,
                recipe=recipe,
                kind=kind,
                seed=audit.spec.seed,
                local=local,
                shuffle=shuffle,
                clients=protocol.clients,
            )
            results.append(TrainingEpsilon(size, part.title, trained))
    return results
