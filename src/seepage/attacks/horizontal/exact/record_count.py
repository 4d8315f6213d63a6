"""Number of records behind a gradient, read from the gradient."""

from __future__ import annotations

from collections import Counter

import torch

from seepage.attacks.horizontal.exact.cells_search import CellsSearch, occurring
from seepage.attacks.horizontal.exact.gradients import STRICT
from seepage.attacks.horizontal.exact.harvest import CHANGES, tells
from seepage.attacks.horizontal.exact.probes import UnreadableError
from seepage.attacks.horizontal.exact.traced import gradient_of, traced
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.models.batch_norm import normalisations
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import GradientView

_WHOLE = 1e-2  # relative distance of a count from a whole number
_STARTS, _ROUNDS = 256, 4
_TWICE = 2  # records to a dimension of the gradient beyond which a factor is likelier than copies


def count_records(
    view: GradientView, schema: Schema, statistics: Statistics, victim: int = 0, seed: int = 0
) -> int | None:
    """Return the number of records that a gradient is the mean of, or None where no record is found.

    Records are sought one by one, as ``Unmix`` does, which takes no count. What one of them has added to the gradient
    is its own gradient over the count: with its chances p by the network and its label y, the second layer says what
    (p - y) / count is, and only one label makes the count a positive number. Copies of a record divide it, so that the
    count on which most records agree is taken, the larger one of several. Under a factor, as of a sum of losses, it
    contradicts the rank of the gradient, which is taken instead. None is found with fewer than two hidden layers,
    noise, or more records than the layers are wide.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn3
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> data = distinct(rows=40)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> ran = FedSGD(11).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1])
        >>> count_records(ran.view, data.schema, data.statistics)
        11
    """
    if normalisations(view.model.module) or view.model.head == "regression":
        return None
    try:
        network = traced(view.model, schema, statistics)
    except UnreadableError:
        return None
    gradient = gradient_of(None if network is None else network.with_parameters(view.place(victim)), view, victim, 1)
    spans = gradient.spans()
    deeper = next((tap.layer for tap in gradient.network.taps if tap.layer < len(spans)), None)
    if deeper is None or not tells(spans[deeper]):
        return None
    first = next(iter(view.gradient.values()))
    client = Encoder(schema, statistics, dtype=first.dtype, device=first.device)
    encoder = Encoder(schema, statistics, device=first.device)
    allowed = torch.ones_like(encoder.is_continuous)
    if gradient.network.takes_rows:
        allowed = occurring(encoder, spans[0], gradient.rounding)
    search, starts = CellsSearch(encoder, gradient.network, spans, allowed), Starts(encoder, statistics, _STARTS)
    generator = torch.Generator().manual_seed(seed)
    votes: Counter[int] = Counter()
    spanned = False
    for _ in range(_ROUNDS):
        ends = search.run(*starts.draw(allowed, generator), CHANGES)
        cells = starts.cells(ends)[ends.misfit < STRICT.misfit].unique(dim=0)
        evidence = gradient.evidence(deeper, spans[deeper], client.encode(cells).double())
        passed = (evidence.outside < STRICT.outside) & (evidence.off < STRICT.outside)
        for chances, total in zip(evidence.chances[passed], evidence.total[passed], strict=True):
            votes.update(_counts(chances, total))
        spanned |= bool(passed.any())
        if votes:
            break
    rank = spans[deeper].rank
    if not votes:
        # Records whose share of the message is no count: the message has a factor.
        return rank if spanned else None
    count = max(votes, key=lambda count: (votes[count], count))
    # Copies, and records of no active unit, make the rank smaller than the number; nothing makes it larger.
    return count if rank <= count <= max(rank + 2, _TWICE * rank) else rank


def _counts(chances: torch.Tensor, total: torch.Tensor) -> set[int]:
    """Return the counts of records for which a candidate is there once."""
    largest = int(total.abs().argmax())
    counts: set[int] = set()
    for label in range(len(chances)):
        error = chances.clone()
        error[label] -= 1
        count = float(error[largest] / total[largest])
        if count > 0.5 and abs(count - round(count)) < _WHOLE and bool(((error - count * total).abs() < _WHOLE).all()):
            counts.add(round(count))
    return counts
