"""What baselines get right of batches that no attack sees: no message is needed to know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from seepage.assessment import create
from seepage.assessment.gain import Figure, Reference, References, reference
from seepage.assessment.matched import match_records
from seepage.assessment.measuring import measure_matched
from seepage.seeds import stream
from seepage.settings.guessing import check_guess
from seepage.settings.setting import Configuration, PlannedPart
from seepage.wire.horizontal import Knowledge, RecordsGuess

if TYPE_CHECKING:
    from seepage.settings.horizontal.audit import HorizontalAudit

# Matching takes most of the time, and grows with the records.
_RECORDS, _FEWEST, _MOST = 16_000, 100, 1000
# Victims that are scored together.
_TOGETHER = 10
# Figures with a gain that decides something.
_METRICS = ("accuracy", "exact_match")


def draws_of(records: int) -> int:
    """Return the number of batches of some records on which baselines are scored."""
    return max(_FEWEST, min(_MOST, _RECORDS // records))


def measured_references(
    audit: HorizontalAudit, configuration: Configuration, baselines: Sequence[PlannedPart]
) -> References:
    """Return the figures of baselines over draws of batches, from seeds that no victim has."""
    protocol, subject = audit.protocol(configuration), audit.subject
    schema, statistics = subject.dataset.schema, subject.dataset.statistics
    draws, values = draws_of(protocol.records), dict[str, dict[Figure, list[torch.Tensor]]]()
    # No baseline reads a message, so that these serve all draws.
    messages = audit.expose(configuration, range(min(_TOGETHER, draws))).transcript.view
    metrics = [create(name) for name in _METRICS]
    for begin in range(0, draws, _TOGETHER):
        units = range(begin, min(begin + _TOGETHER, draws))
        secret = protocol.draw(subject.dataset.train, [stream(audit.spec.seed, i, "reference") for i in units])
        granted = audit.granted_beside(protocol, secret)
        knowledge = Knowledge(schema, statistics, **granted)
        view = messages.of(slice(len(units)))
        seeds = [stream(audit.spec.seed, i, "reference baseline") for i in units]
        for part in baselines:
            baseline: Any = audit.instance(part)
            guess = check_guess(part.part, baseline(view, knowledge, seeds), RecordsGuess)
            scored = measure_matched(match_records(schema, statistics, secret, guess), metrics)
            for figure in (figure for figure in scored if figure.is_rate):
                values.setdefault(part.label, {}).setdefault((figure.metric, figure.column), []).append(figure.values)
    references: dict[str, dict[Figure, Reference]] = {}
    for label, figures in values.items():
        of_label = {name: reference(torch.cat(parts), len(baselines)) for name, parts in figures.items()}
        references[label] = {name: known for name, known in of_label.items() if known is not None}
    return references
