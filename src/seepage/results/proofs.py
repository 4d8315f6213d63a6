"""Treatment of proofs that the truth contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seepage.results.checks.finding import Where
from seepage.results.checks.wording import where_of
from seepage.run.runner import Run

# Metric of certified cells that are wrong, no result: above 0 it is a mistake in seepage.
WRONG = "certified_wrong"


def contradicted(runs: Sequence[Run]) -> dict[Where, float]:
    """Return the attacks whose certified cells contradict the truth, and the share of these cells."""
    return {
        where_of(run): float(figure.values.nanmean())
        for run in runs
        for figure in run.measured
        if figure.metric == WRONG and bool((figure.values > 0).any())
    }


def withdrawn(run: Run) -> Run:
    """Return a run as if its attack had proved nothing."""
    evidence = run.evidence
    if evidence is not None:
        evidence = replace(evidence, certified=None, conditions=None)
    measured = [figure for figure in run.measured if not figure.metric.startswith("certified")]
    return replace(run, measured=measured, evidence=evidence)
