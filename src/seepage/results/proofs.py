"""What becomes of proofs that the truth contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seepage.assessment import Measurement
from seepage.results.checks.finding import Where
from seepage.run.runner import Run

# Measured beside certified cells, and no result: above 0 it is a mistake in seepage.
WRONG = "certified_wrong"


def contradicted(runs: Sequence[Run]) -> dict[Where, float]:
    """Return which attacks certified cells that are not what the truth says, and the share of their certified cells."""
    found = {}
    for run in runs:
        for one in run.measured:
            if isinstance(one, Measurement) and one.metric == WRONG and bool((one.values > 0).any()):
                here = Where(run.configuration.batch_size, run.configuration.defense, run.label)
                found[here] = float(one.values.nanmean())
    return found


def withdrawn(run: Run) -> Run:
    """Return a run as if its attack had proved nothing."""
    evidence = run.evidence
    if evidence is not None:
        evidence = replace(evidence, certified=None, conditions=None)
    measured = [one for one in run.measured if not one.metric.startswith("certified")]
    return replace(run, measured=measured, evidence=evidence)
