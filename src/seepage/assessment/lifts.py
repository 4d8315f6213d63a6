"""Lifts of an attack's figures over the best baseline, each with the narrowest interval that its data allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seepage.assessment.gain import (
    Figure,
    Proofs,
    Reference,
    References,
    ScoredGain,
    best_reference,
    gain_estimates,
    pooled,
    reference,
)
from seepage.assessment.measurement import Lift, Measurement, estimates, gained
from seepage.assessment.task import over_constant

# Metric of the share of certified cells.
PROVED_CELLS = "certified_cells"


def lifts(
    shown: Sequence[Measurement],
    telling: Sequence[bool],
    compared: Mapping[str, Sequence[Measurement]],
    constants: Sequence[Measurement],
    references: References,
    by_members: bool,
    proving: bool = True,
) -> list[Lift | None]:
    """Return the lift of each figure over its reference, or else over the best baseline on the same units.

    Args:
        shown: figures of one attack.
        telling: whether each is a figure of leakage; others are compared with a constant answer, if with anything.
        compared: figures of each baseline on the same units.
        constants: figures of constant answers.
        references: figures of baselines over draws that no attack sees.
        by_members: whether a figure is bounded over the members of its repetitions.
        proving: whether proofs bound the lift, too. It costs a fifth of the error probability, so that it is decided
            before the attack is looked at.
    """
    proved = next((m.values for m in shown if proving and m.metric == PROVED_CELLS and m.column is None), None)
    of_figures: list[Lift | None] = [None] * len(shown)
    bounded: dict[int, tuple[str, ScoredGain]] = {}
    paired: dict[int, tuple[str, float | None, Measurement]] = {}
    for i, (measured, tells) in enumerate(zip(shown, telling, strict=True)):
        figure = (measured.metric, measured.column)
        if not tells:
            beside = over_constant(measured, constants)
        else:
            members = _members_of(measured, compared) if by_members else None
            best = best_reference(members or references, figure) if measured.is_rate else None
            if best is not None:
                clusters = None if members is None or measured.clusters is None else pooled(measured.clusters)
                baseline = next((m for m in compared.get(best[0], ()) if (m.metric, m.column) == figure), None)
                proofs = Proofs(proved, baseline.values) if proved is not None and baseline is not None else None
                bounded[i] = (
                    best[0],
                    ScoredGain(
                        measured.values,
                        best[1],
                        clusters,
                        None if members else proofs,
                        None if members else measured.total,
                    ),
                )
                continue
            beside = gained(measured, compared)
        if beside is not None:
            paired[i] = beside
    for i, gain in zip(bounded, gain_estimates([gain for _, gain in bounded.values()]), strict=True):
        name, over = bounded[i]
        of_figures[i] = Lift(name, over.reference.mean, gain)
    for i, gain in zip(paired, estimates([beside[2] for beside in paired.values()]), strict=True):
        of_figures[i] = Lift(*paired[i][:2], gain)
    return of_figures


def _members_of(measured: Measurement, compared: Mapping[str, Sequence[Measurement]]) -> References | None:
    """Return the references by the attacked members of the same repetitions; None where figures are of no members."""
    if measured.clusters is None:
        return None
    by_baseline: dict[str, dict[Figure, Reference]] = {}
    for name, figures in compared.items():
        for other in figures:
            if (other.metric, other.column) == (measured.metric, measured.column):
                values = other.values if other.clusters is None else pooled(other.clusters)
                known = reference(values, len(compared))
                if known is not None:
                    by_baseline.setdefault(name, {})[other.metric, other.column] = known
    return by_baseline or None
