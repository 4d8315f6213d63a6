"""Published figures of numbers: bounds hold for all tables that have the same figures, found by listing them all."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from seepage import kernel
from seepage.attacks.statistics.solving import solve
from seepage.kernel.summaries import QUANTILES

VALUES = (0.0, 1.0, 2.5, 7.0)
Record = tuple[int, int]


def figures(records: list[Record], group: int | None, **options: Any) -> kernel.Summary:
    """What is published of some records, by the standard library and numpy."""
    own = [VALUES[value] for value, ward in records if group in (None, ward)]
    shares, rule, digits = options.get("shares", (0.25, 0.5, 0.9)), options.get("rule", "linear"), options.get("digits")
    free = options.get("freedom", 1)
    sent: dict[str, Any] = {
        "mean": statistics.fmean(own) if own else None,
        "variance": sum((v - statistics.fmean(own)) ** 2 for v in own) / (len(own) - free) if len(own) > free else None,
    }
    if digits is not None:
        sent = {name: None if x is None else round(x, digits) for name, x in sent.items()}
    cuts = np.quantile(own, shares, method=rule).tolist() if own and shares else []
    return kernel.Summary(
        0,
        VALUES,
        len(own),
        quantiles=tuple(zip(shares, cuts if digits is None else [round(x, digits) for x in cuts], strict=bool(own))),
        within=() if group is None else ((1, group),),
        freedom=free,
        rule=rule,
        rounded=0.0 if digits is None else 10.0**-digits,
        **sent,
    )


def published(first: list[Record], added: list[Record], **options: Any) -> list[Any]:
    """Figures of both runs, of all records and by ward, as a list of pairs."""
    pairs = []
    for group in (None, 0, 1):
        later = figures(first + added, group, **options)
        if later.records:
            earlier = figures(first, group, **options) if first else None
            if earlier is None or earlier.records:
                pairs.append((later, earlier))
    return pairs


def totals(first: list[Record], added: list[Record], **options: Any) -> kernel.Totals:
    columns = (kernel.EncodedColumn("age", (), (), VALUES), kernel.EncodedColumn("ward", (), (), ("a", "b")))
    levels = (tuple(range(len(VALUES))), (0, 1))
    return kernel.Totals(columns, levels, "gaussian", len(added), summaries=tuple(published(first, added, **options)))


def alike(first: list[Record], number: int, sent: list[Any], **options: Any) -> list[Counter[Record]]:
    """All records that would have been published alike, were they added to the first ones."""
    each = list(itertools.product(range(len(VALUES)), (0, 1)))
    found = []
    for added in itertools.combinations_with_replacement(each, number):
        other = published(first, list(added), **options)
        if len(other) == len(sent) and all(_alike(a, b) for (a, _), (b, _) in zip(other, sent, strict=True)):
            found.append(Counter(added))
    return found


def _alike(one: kernel.Summary, other: kernel.Summary) -> bool:
    if (one.records, one.within) != (other.records, other.within):
        return False
    numbers = [(one.mean, other.mean), (one.variance, other.variance)]
    numbers += [(a[1], b[1]) for a, b in zip(one.quantiles, other.quantiles, strict=True)]
    return all(a is b or (a is not None and b is not None and abs(a - b) < 1e-9) for a, b in numbers)


CASES: list[dict[str, Any]] = [
    {},
    {"rule": "inverted_cdf"},
    {"rule": "averaged_inverted_cdf", "freedom": 0},
    {"rule": "weibull", "shares": (0.1, 0.5)},
    {"rule": "median_unbiased", "shares": (0.0, 0.4, 1.0)},
    {"digits": 1},
    {"digits": 0, "shares": (0.5,)},
    {"shares": ()},
]


@pytest.mark.parametrize("before", [0, 4])
@pytest.mark.parametrize("options", CASES)
def test_bounds_hold_for_all_records_with_the_same_figures(options: dict[str, Any], before: int) -> None:
    rng = np.random.default_rng(len(str(options)) + before)
    settled = open_numbers = 0
    for _ in range(2):
        first, added = (
            [(int(v), int(w)) for v, w in zip(rng.integers(0, 4, n), rng.integers(0, 2, n), strict=True)]
            for n in (before, int(rng.integers(1, 4)))
        )
        sent = totals(first, added, **options)
        patterns, most = kernel.patterns_of(sent)
        others = alike(first, len(added), list(sent.summaries), **options)
        keys = [tuple(p) for p in patterns.tolist()]
        counts = torch.tensor([[own[key] for key in keys] for own in others], dtype=torch.float64)
        assert Counter(added) in others
        # Nothing that may be there is left out, and everything that may be there has the equations.
        assert all(int(row.sum()) == len(added) for row in counts)
        assert bool((counts <= most).all())
        system = kernel.equations(sent, patterns)
        assert all(system.fits(row) for row in counts)
        random = torch.randn(30, len(system.values), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        evidences: list[Any] = [(random, counts[0]), solve(sent).evidence]
        for evidence in evidences:
            _, low, high = kernel.bounds(sent, *evidence)
            assert bool((low <= counts.amin(0)).all())
            assert bool((high >= counts.amax(0)).all())
            settled += int((low == high).sum()) if evidence is evidences[1] else 0
        open_numbers += int((counts.amin(0) == counts.amax(0)).sum())
    # Most of what is determined is proved, where it does not take roundings together.
    assert "digits" in options or settled >= 0.5 * open_numbers


@pytest.mark.parametrize("rule", QUANTILES)
def test_places_of_quantiles_are_those_of_numpy(rule: Any) -> None:
    for records in (1, 2, 3, 7, 10, 60):
        values = np.cumsum(np.arange(1.0, records + 1))
        for share in (0.0, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.7, 0.9, 1.0):
            cut = float(np.quantile(values, share, method=rule))
            summary = kernel.Summary(0, tuple(values), records, quantiles=((share, cut),), rule=rule)
            least, most = (np.array(part) for part in summary.below())
            below = np.arange(1, records + 1)
            assert (least <= below).all()
            assert (below <= most).all()
            # It tells where the quantile is.
            assert records < 3 or (least > 0).any() or (most < records).any()


def test_figures_coarser_than_their_numbers_prove_nothing() -> None:
    values = (0.0, 0.25, 0.75)
    columns = (kernel.EncodedColumn("dose", (), (), values),)

    def bounds(**figures: Any) -> tuple[torch.Tensor, ...]:
        summary = kernel.Summary(0, values, 2, **figures)
        sent = kernel.Totals(columns, ((0, 1, 2),), "gaussian", 2, summaries=((summary, None),))
        return kernel.bounds(sent, *solve(sent).evidence)

    # A sum of 0 may be one of small doses that was rounded.
    with pytest.raises(kernel.RefusedError, match="all figures are multiples of 1, and numbers are not"):
        bounds(total=0.0)
    # Numbers that these sums exclude are no patterns.
    assert bounds(total=0.5)[1].tolist() == [0.0, 2.0]
    patterns, low, high = bounds(total=1.0, mean=0.5)
    assert (patterns.flatten().tolist(), low.tolist(), high.tolist()) == ([1, 2], [1.0, 1.0], [1.0, 1.0])


def test_contradictions_and_other_numbers_are_refused() -> None:
    summary = kernel.Summary(0, VALUES, 4, mean=1.0)
    columns = (kernel.EncodedColumn("age", (), (), VALUES),)
    sent = kernel.Totals(columns, ((0, 1, 2, 3),), "gaussian", 1, summaries=((summary, summary._replace(records=5)),))
    with pytest.raises(kernel.RefusedError, match="fewer records than the first"):
        kernel.patterns_of(sent)
    for broken, said in (
        (summary._replace(total=99.0), "contradict each other"),
        (summary._replace(quantiles=((0.0, 3.3),)), "no declared number has the quantile 3.3 at 0"),
        (summary._replace(quantiles=((1.5, 1.0),)), "is not known"),
        (summary._replace(values=VALUES[:2]), "one number for each level"),
    ):
        with pytest.raises(kernel.RefusedError, match=said):
            kernel.patterns_of(sent._replace(records=4, summaries=((broken, None),)))
    with pytest.raises(kernel.RefusedError, match="same group and numbers"):
        kernel.patterns_of(sent._replace(summaries=((summary, summary._replace(within=((0, 1),), records=3)),)))
