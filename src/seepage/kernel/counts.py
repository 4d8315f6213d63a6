"""Proofs about sums of known functions of categories: bounds of how many records of a site have each pattern.

A record adds to each sum what its categories say, so that sums are linear in the whole numbers of records of each
pattern. Any combination of these equations, given as multipliers, bounds every number from both sides. The kernel takes
multipliers from anywhere, since wrong ones bound nothing, and rounds what they bound to whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

from seepage.kernel.statement import Certified, EncodedColumn, RefusedError, as_numbers, nothing, refused
from seepage.kernel.summaries import Summary, check_figures, check_form, most_of, sums_of

# The unit roundoff of double precision, in which sites add up, and roundings of one record's contribution.
DOUBLE = 2.0**-53
_ROUNDINGS = 64.0
# More patterns than these are not listed.
MOST_PATTERNS = 200_000
# Share of a record that bounds may err by before they are rounded to whole numbers.
_SAME = 1e-6
_ROUNDS = 3
# Numbers beyond this are refused, so that no sum or product of a few overflows; what is lost of the smallest.
_LARGEST, _SMALLEST = 1e100, 1e-290
_OTHER_FORM = "the sums, records or multipliers are of another form than declared"
# Records that may all be alike without a doubt that their number was rounded.
_FEW_ALIKE = 3
_NO_NUMBERS = "no numbers of records have these sums"
_NOT_THOSE = "the first message is not that of the declared records and levels"


class Step(NamedTuple):
    """Sums that a site sends at public coefficients; None is what it does not send.

    ``coefficients`` are None where the step starts from the outcomes themselves, see ``contributions``; ``mean`` is the
    mean of the site's outcomes, where it sends that.
    """

    coefficients: tuple[float, ...] | None
    information: Tensor | None = None
    score: Tensor | None = None
    right: Tensor | None = None
    deviance: float | None = None
    dispersion: float | None = None
    mean: float | None = None


class CountTable(NamedTuple):
    """Numbers of records by the categories of some columns; NaN where a number below ``minimum`` was left out."""

    columns: tuple[int, ...]
    counts: Tensor
    minimum: int = 0


class Totals(NamedTuple):
    """Sums of a site, and how they came about as far as that is public.

    Attributes:
        columns: columns with their categories, in the order of the design.
        levels: for each column, codes of the categories that records have; the first is the reference.
        family: ``binomial``, ``gaussian`` or ``poisson``, with its canonical link.
        records: number of records behind the sums.
        labels: values of the outcome, where a pattern has one; None where patterns are those of the columns alone.
        rounded: distance of neighbouring values that can be sent, 0 for double precision.
        off: by how much sums may be off beyond that, such as differences of larger ones.
        defense: name of what changed the sums otherwise.
        means: whether sums were sent as means, so that only the declaration says of how many records.
        summaries: published figures of numbers, of a run with the records and of one without them, None where there is
            no such run.
    """

    columns: tuple[EncodedColumn, ...]
    levels: tuple[tuple[int, ...], ...]
    family: str
    records: int
    steps: tuple[Step, ...] = ()
    tables: tuple[CountTable, ...] = ()
    labels: tuple[float, ...] | None = None
    rounded: float = 0.0
    defense: str = "none"
    off: float = 0.0
    means: bool = False
    summaries: tuple[tuple[Summary, Summary | None], ...] = ()

    def describe(self) -> tuple[str, ...]:
        """Return as sentences what a statement about these sums is conditional on."""
        each = ", ".join(column.name for column in self.columns)
        if not self.steps:
            return self._of_tables(each)
        return (
            f"The sums are those of exactly {self.records} records, each of weight 1 and the same in every iteration.",
            f"The model is {self.family} with its canonical link and no offset, at exactly these coefficients.",
            f"Sums were sent in {self.precision}.",
            self.design,
        )

    @property
    def precision(self) -> str:
        """In what numbers sums were sent."""
        return "double precision" if not self.rounded else f"multiples of {self.rounded:g}"

    @property
    def design(self) -> str:
        """What the columns of the design are, as a sentence."""
        each = ", ".join(column.name for column in self.columns)
        return (
            f"Every record has one of the levels of the model in each column: {each}. Coefficients are those of the "
            "intercept and of these levels, in the declared order, of entries that are 0 or 1."
        )

    def _of_tables(self, each: str) -> tuple[str, ...]:
        ways = list(dict.fromkeys(after.describe() for after, _ in self.summaries))
        if self.tables and self.rounded:
            ways.append(f"Each number of the tables, or difference of two, is off by at most {self.rounded / 2:g}.")
        least = {table.minimum for table in self.tables if bool(table.counts.isnan().any())}
        if least and max(least) <= self.records:
            ways.append(f"Numbers that were left out are below {max(least)}.")
        return (
            f"The tables, or the differences of two, are those of exactly {self.records} records, each counted once; "
            "of two runs, the second has all records of the first.",
            *ways,
            f"Every record has one of the declared categories and numbers in each column: {each}.",
        )


class Equations(NamedTuple):
    """Sums over patterns: ``matrix`` (equation, pattern), and values with the most that they may be off by."""

    matrix: Tensor
    values: Tensor
    slack: Tensor

    def fits(self, numbers: Tensor) -> bool:
        """Return whether whole numbers from 0 up, one a pattern, have all sums within what these may be off by."""
        if len(numbers) != self.matrix.shape[1] or bool((numbers < 0).any() | (numbers != numbers.round()).any()):
            return False
        off = (self.matrix @ numbers - self.values).abs()
        own = (len(numbers) + _ROUNDINGS) * DOUBLE * (self.matrix.abs() @ numbers)
        return bool((off <= self.slack + own).all())


class Split(NamedTuple):
    """Numbers of a pattern up to ``number``, and above: each case bounded by combinations of its own, or split again.

    Combinations are multipliers (combination, equation), any number of them.
    """

    pattern: int
    number: float
    below: Split | Tensor
    above: Split | Tensor


def design(sent: Totals, patterns: Tensor) -> Tensor:
    """Return design rows (pattern, coefficient): 1, then one entry for each level but the first of each column."""
    parts = [torch.ones(len(patterns), 1, dtype=torch.float64)]
    for i, levels in enumerate(sent.levels):
        parts.append(torch.nn.functional.one_hot(patterns[:, i], len(levels))[:, 1:].double())
    return torch.cat(parts, 1)


def contributions(
    family: str, rows: Tensor, labels: Tensor, coefficients: Sequence[float] | None, mean: float | None = None
) -> dict[str, Tensor]:
    """Return what one record of each pattern adds to the sums of a step, by their names.

    The information is x x^T w, the score x (y - mu), the right side x w z. Without coefficients the step starts from
    the outcomes as statsmodels does: mu = (y + 1/2) / 2 with two classes, else (y + mean) / 2.
    """
    if coefficients is None:
        eta, mu, weight = _start(family, labels, mean)
    else:
        eta = rows @ torch.tensor(coefficients, dtype=torch.float64)
        mu, weight = _mean(family, eta)
    over = torch.triu_indices(rows.shape[1], rows.shape[1])
    squares = rows[:, over[0]] * rows[:, over[1]]
    return {
        "information": (squares * weight[:, None]).T,
        "score": (rows * (labels - mu)[:, None]).T,
        "right": (rows * (weight * eta + labels - mu)[:, None]).T,
        "deviance": _deviance(family, labels, eta, mu)[None],
        "dispersion": ((labels - mu).square() / weight)[None],
    }


def _mean(family: str, eta: Tensor) -> tuple[Tensor, Tensor]:
    if family == "binomial":
        return torch.sigmoid(eta), torch.sigmoid(eta) * torch.sigmoid(-eta)
    if family == "poisson":
        return eta.exp(), eta.exp()
    return eta, torch.ones_like(eta)


def _start(family: str, labels: Tensor, mean: float | None) -> tuple[Tensor, Tensor, Tensor]:
    if family == "binomial":
        mu = (labels + 0.5) / 2
        return torch.log(mu / (1 - mu)), mu, mu * (1 - mu)
    if mean is None:
        raise RefusedError("the mean of the outcomes that the first step starts from is not known")
    mu = (labels + mean) / 2
    return (mu.log(), mu, mu) if family == "poisson" else (mu, mu, torch.ones_like(mu))


def _deviance(family: str, labels: Tensor, eta: Tensor, mu: Tensor) -> Tensor:
    if family == "binomial":
        return 2 * (torch.nn.functional.softplus(eta) - labels * eta)
    if family == "poisson":
        return 2 * (torch.xlogy(labels, labels) - labels * eta - labels + mu)
    return (labels - mu).square()


def _cancelled(family: str, rows: Tensor, coefficients: Sequence[float] | None) -> dict[str, float]:
    """Return by how many roundoffs one record's part may be off beyond its own size, by the way it is computed.

    Projects write weights as mu (1 - mu) or as squares over variances, and deviances as logarithms of mu and 1 - mu,
    all of which cancel where mu is near 1.
    """
    if coefficients is None or family == "gaussian":
        return {}
    far = float((rows @ torch.tensor(coefficients, dtype=torch.float64)).abs().max())
    each = {"information": 8.0, "score": 8.0, "right": 8 * (1 + far), "deviance": 8 * (1 + far)}
    if family == "binomial":
        # R cuts predictors off at 30, beyond which a weight is a roundoff.
        cut = math.exp(-30) / DOUBLE if far > 30 else 0.0
        each |= {"information": each["information"] + cut, "score": each["score"] + cut}
        # Beyond 36 means are no longer distinct from 0 or 1, and projects cut them off.
        each["deviance"] += 4 * math.exp(min(far, 36.0)) + (4 * far / DOUBLE if far > 30 else 0.0)
    if far > (30 if family == "binomial" else 600):
        # Weights that round to 0 take a record's residual with them, as w (eta + (y - mu) / w) is written.
        each["right"] += 2 * (1 + far) / DOUBLE
    return each


def _like_weight(family: str, step: Step) -> float | None:
    """Return the weight of all records in a step; None where they differ."""
    if step.coefficients is not None and (family == "gaussian" or not any(step.coefficients)):
        return float(_mean(family, torch.zeros(1, dtype=torch.float64))[1])
    if step.coefficients is None:
        return {"binomial": 3 / 16, "gaussian": 1.0}.get(family)
    return None


def _pairs(sent: Totals) -> list[list[tuple[Tensor, Tensor]]] | None:
    """Return the products of every two columns' levels, and what each may be off by; None without like weights.

    All weights are alike at coefficients of 0, and in a start from the outcomes of two classes, so that the information
    is the cross tables themselves.
    """
    alike = (s for s in sent.steps if s.information is not None and _like_weight(sent.family, s) is not None)
    first = next(alike, None)
    weight = None if first is None else _like_weight(sent.family, first)
    if first is None or first.information is None or weight is None:
        return None
    products = first.information.double() / weight
    slack = (sent.off + sent.rounded / 2 + (sent.records + _ROUNDINGS) * DOUBLE * sent.records) / weight
    begin, above = 1, []
    for levels in sent.levels:
        shown = torch.zeros(len(levels), len(products), dtype=torch.float64)
        shown[:, begin : begin + len(levels) - 1][1:] = torch.eye(len(levels) - 1, dtype=torch.float64)
        shown[0, 0] = 1
        shown[0, begin : begin + len(levels) - 1] = -1
        above.append(shown)
        begin += len(levels) - 1
    off = [shown.abs().sum(1) for shown in above]
    return [
        [(left @ products @ right.T, slack * off[i][:, None] * off[j]) for j, right in enumerate(above)]
        for i, left in enumerate(above)
    ]


def cross_tables(sent: Totals) -> list[list[Tensor]] | None:
    """Return the numbers of records by the levels of every two columns; None where no message tells them.

    Raises:
        RefusedError: they are no whole numbers that belong to the declared records.
    """
    pairs = _pairs(sent)
    if pairs is None:
        return None
    if any(bool((table + off < -_SAME).any()) for row in pairs for table, off in row):
        raise RefusedError(_NOT_THOSE)
    if any(not bool((off < 0.5).all()) for row in pairs for _, off in row):
        return None
    whole = [[table.round() for table, _ in row] for row in pairs]
    apart = any(
        bool(((table - number).abs() > off).any())
        for row, numbers in zip(pairs, whole, strict=True)
        for (table, off), number in zip(row, numbers, strict=True)
    )
    least = min(float(number.min()) for row in whole for number in row)
    total = {float(number.sum()) for row in whole for number in row}
    if apart or least < 0 or total != {float(sent.records)}:
        raise RefusedError(_NOT_THOSE)
    return whole


def _informed(bound: Tensor, nothing: float) -> Tensor:
    """Return bounds with those that are not finite replaced by what says nothing, since overflow excludes nothing."""
    return torch.where(bound.isfinite(), bound, nothing)


def patterns_of(sent: Totals) -> tuple[Tensor, Tensor]:
    """Return all patterns (pattern, column) that records may have, and the most records of each.

    Where cross tables are known, patterns with levels that no record has together are left out. A pattern with an
    outcome has its place among the declared values as the last entry.

    Raises:
        RefusedError: there are more patterns than are listed.
    """
    cross_tables(sent)
    pairs = _pairs(sent)
    found = torch.zeros(1, 0, dtype=torch.long)
    most = torch.tensor([sent.records], dtype=torch.float64)
    for i, levels in enumerate(sent.levels):
        if len(found) * len(levels) > 4 * MOST_PATTERNS:
            raise RefusedError(f"there are more than {MOST_PATTERNS:,} patterns")
        level = torch.arange(len(levels)).repeat(len(found))
        found = torch.cat([found.repeat_interleave(len(levels), 0), level[:, None]], 1)
        most = most.repeat_interleave(len(levels))
        for j in range(i + 1 if pairs is not None else 0):
            assert pairs is not None
            table, off = pairs[j][i]
            most = torch.minimum(most, _informed((table + off + _SAME).floor(), math.inf)[found[:, j], level])
        for table in sent.tables:
            if max(table.columns) == i:
                number = table.counts.double()[tuple(found[:, column] for column in table.columns)]
                most = torch.minimum(most, _informed((number + sent.rounded / 2 + _SAME).floor(), math.inf))
        for pair in sent.summaries:
            if max(pair[0].column, *(column for column, _ in pair[0].within), -1) == i:
                group = _in_group(sent, pair[0], found)
                cap = torch.tensor(most_of(*pair), dtype=torch.float64)[found[:, pair[0].column]]
                most = torch.where(group, torch.minimum(most, _informed((cap + _SAME).floor(), math.inf)), most)
        found, most = found[most > 0], most[most > 0]
        if len(found) > MOST_PATTERNS:
            raise RefusedError(f"there are more than {MOST_PATTERNS:,} patterns")
        if not len(found):
            raise RefusedError("no records have these tables together")
    if sent.labels is not None:
        several = len(sent.labels)
        outcome = torch.arange(several).repeat(len(found))
        found = torch.cat([found.repeat_interleave(several, 0), outcome[:, None]], 1)
        most = most.repeat_interleave(several)
    return found, most


def equations(sent: Totals, patterns: Tensor) -> Equations:
    """Return the equations of all sums, those of outcomes' parts left out where patterns have none.

    The score's and the deviance's outcomes cancel in differences of two steps. The first equation is the number of
    records.
    """
    rows = design(sent, patterns)
    labels = torch.zeros(len(rows), dtype=torch.float64)
    if sent.labels is not None:
        labels = torch.tensor(sent.labels, dtype=torch.float64)[patterns[:, -1]]
    records = torch.tensor([sent.records], dtype=torch.float64)
    system = _System(sent, [torch.ones(1, len(rows), dtype=torch.float64)], [records])
    reference = None
    for step in sent.steps:
        if step.coefficients is None and (step.mean is None or sent.labels is None) and sent.family != "binomial":
            continue
        parts = contributions(sent.family, rows, labels, step.coefficients, step.mean)
        system.reach, system.cancelled = _reach(step, rows), _cancelled(sent.family, rows, step.coefficients)
        if step.information is not None:
            over = torch.triu_indices(rows.shape[1], rows.shape[1])
            # An entry of 0 or 1 is its own square, and two levels of a column exclude each other.
            apart = _apart(sent)[over[0], over[1]]
            information = step.information.double()[over[0], over[1]][apart]
            system.add("information", parts["information"][apart], information)
        reference = _outcomes(system, step, parts, reference)
    for table in sent.tables:
        _add_table(system, table, patterns)
    for pair in sent.summaries:
        group = _in_group(sent, pair[0], patterns)
        for weights, low, high in sums_of(*pair):
            each = torch.tensor(weights, dtype=torch.float64)[patterns[:, pair[0].column]]
            system.add_between(each * group, low, high)
    return system.joined()


def _in_group(sent: Totals, summary: Summary, patterns: Tensor) -> Tensor:
    """Return which patterns are of the group that figures are of."""
    if len(summary.values) != len(sent.levels[summary.column]):
        raise RefusedError("figures are not of one number for each level of their column")
    group = torch.ones(len(patterns), dtype=torch.bool)
    for column, level in summary.within:
        group &= patterns[:, column] == level
    return group


def _apart(sent: Totals) -> Tensor:
    """Return which entries of the information are no copies of others: those of two columns."""
    column = torch.tensor([0, *(i + 1 for i, levels in enumerate(sent.levels) for _ in levels[1:])])
    apart = column[:, None] != column[None, :]
    apart[0, 0] = True
    return apart


def _check_levels(sent: Totals, patterns: Tensor) -> None:
    """Refuse an information whose entries of one column are not those of its levels, which exclude each other."""
    rows = design(sent, patterns)
    for step in sent.steps:
        if step.information is None:
            continue
        information = step.information.double()
        size = 1.01 * float(information.abs().max()) + sent.rounded + sent.off
        lost = (sent.records + _ROUNDINGS + _reach(step, rows)) * size
        lost += sent.records * _cancelled(sent.family, rows, step.coefficients).get("information", 0.0)
        off = 2 * (lost * DOUBLE + sent.rounded / 2 + sent.off)
        if bool(((information - torch.diag(information[0])).abs() > off)[~_apart(sent)].any()):
            raise RefusedError("the information has entries that are not those of the levels of one column")


def _check_grid(sent: Totals) -> None:
    """Refuse counts that lie on a coarser grid than is declared: multiples of a number, or of few significant digits.

    Sums whose weights differ show by themselves that they were rounded, since no records have them.
    """
    check_figures([own for pair in sent.summaries for own in pair if own is not None])
    steps = [step for step in sent.steps if step.information is not None]
    weights = [_like_weight(sent.family, step) for step in steps]
    counts, weight = [table.counts.double().flatten() for table in sent.tables], 1.0
    if steps and None not in weights:
        weight = min(w for w in weights if w is not None)
        pairs = _pairs(sent) or []
        # Cells, and the entries that were sent.
        counts += [table.flatten() for row in pairs for table, _ in row]
    if not counts or (steps and None in weights) or sent.rounded >= weight:
        return
    cells = {round(float(count)) for count in torch.cat(counts) if not bool(count.isnan()) and abs(float(count)) > 0.5}
    multiple = math.gcd(*cells)
    # A few records that are alike, such as twins that join, have no other counts.
    if multiple > 1 and not (cells == {sent.records} and sent.records <= _FEW_ALIKE):
        raise RefusedError(f"all numbers of records are multiples of {multiple}, as if they were rounded")
    sent_counts = [step.information.double().flatten() for step in steps if step.information is not None]
    entries = {round(float(x), 9) for x in torch.cat(sent_counts or counts).nan_to_num()}
    for digits in range(1, 6):
        wide = [(x, 10.0 ** (math.floor(math.log10(x)) - digits + 1)) for x in entries if x > 10.0**digits * weight]
        wide = [(x, step) for x, step in wide if step > weight]
        others = {x for x, _ in wide} - {round(sent.records * weight, 9)}
        if others and all(abs(x / step - round(x / step)) < 1e-9 for x, step in wide):
            raise RefusedError(f"all large sums have {digits} significant digits, as if they were rounded")


class _System:
    """Equations as they are gathered."""

    def __init__(self, sent: Totals, matrix: list[Tensor], values: list[Tensor]) -> None:
        self.sent, self.matrix, self.values = sent, matrix, [value.double() for value in values]
        self.slack, self.reach = [torch.zeros(1, dtype=torch.float64)], 0.0
        self.cancelled: dict[str, float] = {}

    def bound(self, name: str, matrix: Tensor, values: Tensor, unknown: float = 0.0) -> Tensor:
        """Return by how much sums of contributions may be off: of double precision, and of what is sent of them.

        ``unknown`` bounds what the outcomes add to the sizes of the contributions of all records, where they are none
        of a pattern's.
        """
        n, sent = self.sent.records, self.sent
        largest = n * matrix.abs().amax(1) + unknown
        positive = (matrix >= 0).all(1) & (unknown == 0)
        size = torch.where(positive, torch.minimum(values.abs() * 1.01 + sent.rounded + sent.off, largest), largest)
        own = (n + _ROUNDINGS + self.reach) * (size + largest / n) + n * self.cancelled.get(name, 0.0)
        return own * DOUBLE + sent.rounded / 2 + sent.off

    def add(self, name: str, matrix: Tensor, values: Tensor, more: Tensor | float = 0.0) -> None:
        """Add equations, whose values may be off by ``more`` than their own roundings."""
        self.matrix.append(matrix)
        self.values.append(values)
        self.slack.append(self.bound(name, matrix, values) + more)

    def add_between(self, weights: Tensor, low: float, high: float) -> None:
        """Add that a sum is between two numbers, which hold their own roundings."""
        own = (self.sent.records + _ROUNDINGS) * DOUBLE * self.sent.records * float(weights.abs().max())
        slack = (high - low) / 2 + own + 4 * DOUBLE * max(abs(low), abs(high))
        self.matrix.append(weights[None])
        self.values.append(torch.tensor([(low + high) / 2], dtype=torch.float64))
        self.slack.append(torch.tensor([slack], dtype=torch.float64))

    def joined(self) -> Equations:
        """Return all equations; refuse those that double precision has no numbers for."""
        found = Equations(torch.cat(self.matrix), torch.cat(self.values), torch.cat(self.slack))
        if not all(bool(part.isfinite().all()) for part in found):
            raise RefusedError("the sums of some patterns are too large for double precision")
        return found


def _reach(step: Step, rows: Tensor) -> float:
    """Return roundings of the linear predictor, which weights multiply."""
    if step.coefficients is None:
        return _ROUNDINGS
    coefficients = torch.tensor(step.coefficients, dtype=torch.float64)
    return 4 * len(coefficients) * (1 + float((rows.abs() @ coefficients.abs()).max()))


class _Reference(NamedTuple):
    coefficients: Tensor
    score: Tensor
    matrix: Tensor
    slack: Tensor
    deviance: tuple[Tensor, Tensor, Tensor] | None


def _outcomes(system: _System, step: Step, parts: dict[str, Tensor], reference: _Reference | None) -> _Reference | None:
    """Add the equations in which outcomes are, or from which those of an earlier step take them away.

    In a gaussian model the latter are sums of the cross tables, which are there already.
    """
    deviance = None if step.deviance is None else torch.tensor([step.deviance], dtype=torch.float64)
    if system.sent.labels is not None:
        score, more = _score(step, system, parts, 0.0)
        if score is not None:
            system.add("score", parts["score"], score, more)
        if score is None and step.right is not None:
            system.add("right", parts["right"], step.right.double())
        if deviance is not None and step.coefficients is not None:
            system.add("deviance", parts["deviance"], deviance)
        if step.dispersion is not None:
            system.add("dispersion", parts["dispersion"], torch.tensor([step.dispersion], dtype=torch.float64))
        return reference
    if step.coefficients is None or system.sent.family == "gaussian":
        return reference
    unknown = _outcomes_at_most(system.sent, step, parts)
    score, more = _score(step, system, parts, unknown)
    if score is None:
        return reference
    coefficients = torch.tensor(step.coefficients, dtype=torch.float64)
    own = more + system.bound("score", parts["score"], score, unknown)
    far = 2 * unknown * (2 + system.reach + math.log1p(unknown))
    if reference is None:
        if deviance is None:
            return _Reference(coefficients, score, parts["score"], own, None)
        off = system.bound("deviance", parts["deviance"], deviance, far)
        return _Reference(coefficients, score, parts["score"], own, (deviance, parts["deviance"], off))
    system.add("score", parts["score"] - reference.matrix, score - reference.score, own + reference.slack)
    if deviance is not None and reference.deviance is not None:
        apart = 2 * (coefficients - reference.coefficients)
        matrix = parts["deviance"] - reference.deviance[1] + apart @ reference.matrix
        value = deviance - reference.deviance[0] + apart @ reference.score
        both = system.bound("deviance", parts["deviance"], deviance, far) + reference.deviance[2]
        largest = system.sent.records * (apart.abs() @ reference.matrix.abs()).max()
        lost = (len(apart) + 4) * DOUBLE * (largest + apart.abs() @ reference.score.abs())
        system.add("deviance", matrix, value, both + apart.abs() @ reference.slack + lost)
    return reference


def _outcomes_at_most(sent: Totals, step: Step, parts: dict[str, Tensor]) -> float:
    """Return the most that the outcomes of all records add up to: one a record, or what the score says with counts."""
    if sent.family == "binomial":
        return float(sent.records)
    expected = sent.records * float(parts["score"][0].abs().max())
    if step.score is not None:
        return float(step.score[0].abs()) + expected
    if step.right is None or step.information is None or step.coefficients is None:
        return expected
    linear = step.information[0].double() @ torch.tensor(step.coefficients, dtype=torch.float64)
    return float((step.right[0] - linear).abs()) + expected


def _score(
    step: Step, system: _System, parts: dict[str, Tensor], unknown: float
) -> tuple[Tensor | None, Tensor | float]:
    """Return the score and by how much it may be off, from the right side where that is sent."""
    if step.score is not None:
        return step.score.double(), 0.0
    if step.right is None or step.information is None or step.coefficients is None:
        return None, 0.0
    coefficients = torch.tensor(step.coefficients, dtype=torch.float64)
    over = torch.triu_indices(len(coefficients), len(coefficients))
    slack = torch.zeros(len(coefficients), len(coefficients), dtype=torch.float64)
    information = step.information.double()[over[0], over[1]]
    slack[over[0], over[1]] = system.bound("information", parts["information"], information)
    slack = torch.maximum(slack, slack.T)
    score = step.right.double() - step.information.double() @ coefficients
    own = system.bound("right", parts["right"], step.right.double(), unknown)
    size = step.right.abs() + step.information.abs().double() @ coefficients.abs()
    return score, own + slack @ coefficients.abs() + (len(coefficients) + 4) * DOUBLE * size


def _add_table(system: _System, table: CountTable, patterns: Tensor) -> None:
    shape = table.counts.shape
    place = torch.zeros(len(patterns), dtype=torch.long)
    for column, width in zip(table.columns, shape, strict=True):
        place = place * width + patterns[:, column]
    counts = table.counts.double().flatten()
    matrix = torch.nn.functional.one_hot(place, counts.numel()).T.double()
    half = torch.where(counts.isnan(), (table.minimum - 1) / 2, 0.0).double()
    system.add("table", matrix, torch.where(counts.isnan(), half, counts), half)


def narrowed(found: Equations, multipliers: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return closer bounds of the numbers of records of all patterns, from combinations of the equations.

    For multipliers y (combination, equation), r = y A: c_p r_p is y b less what the others add, which lies between
    bounds since each number does. What r is off by in double precision counts for all records. What is not finite says
    nothing.

    Raises:
        RefusedError: no numbers have these sums.
    """
    within = _narrowed(found, multipliers, low, high)
    if within is None:
        raise RefusedError(_NO_NUMBERS)
    return within


def _narrowed(found: Equations, multipliers: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the same; None where no numbers have the sums."""
    total, terms = float(found.values[0]), len(found.values)
    # Any multipliers will do, those among them that overflow nothing: a power of two changes no digit.
    size = multipliers.abs().amax(1, keepdim=True) if terms else multipliers.abs()
    multipliers = multipliers * torch.pow(2.0, -torch.frexp(size).exponent.double())
    ratio, value, size = multipliers @ found.matrix, multipliers @ found.values, multipliers.abs()
    blur = (terms + _ROUNDINGS) * DOUBLE * (size @ found.matrix.abs()).amax(1) * total
    off = size @ (found.slack + (terms + 4) * DOUBLE * found.values.abs()) + blur
    off = off + len(low) * DOUBLE * (ratio.abs() @ high) + _SMALLEST * (1 + total)
    for k in (ratio.isfinite().all(1) & value.isfinite() & off.isfinite()).nonzero()[:, 0].tolist():
        r = ratio[k]
        least, most = torch.minimum(r * low, r * high), torch.maximum(r * low, r * high)
        some = r.abs() > 1e-9 * float(r.abs().max().clamp(min=_SMALLEST))
        above = (value[k] + off[k] - (least.sum() - least))[some] / r[some]
        below = (value[k] - off[k] - (most.sum() - most))[some] / r[some]
        up, down = torch.maximum(above, below), torch.minimum(above, below)
        known = above.isfinite() & below.isfinite()
        up, down = torch.where(known, up, math.inf), torch.where(known, down, -math.inf)
        high[some] = torch.minimum(high[some], (up + _SAME).floor())
        low[some] = torch.maximum(low[some], (down - _SAME).ceil())
        if bool((low > high).any()):
            return None
    return low, high


def bounds(
    sent: Totals, multipliers: Tensor, witness: Tensor, splits: Sequence[Split] = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """Return patterns, and the least and the most records of each that combinations of the equations leave.

    ``witness`` are numbers of all patterns that have the sums. Without any, the sums are not what they are declared to
    be (altered, rounded further, of weighted or other records), and prove nothing. ``splits`` bound further numbers by
    cases, of which those that no numbers have are left out.

    Raises:
        RefusedError: the sums, the multipliers or the witness cannot be used, for the reason given.
    """
    if sent.defense != "none":
        raise RefusedError(f"sums that {sent.defense} changed prove nothing")
    _check_form(sent)
    patterns, high = patterns_of(sent)
    _check_levels(sent, patterns)
    _check_grid(sent)
    found = equations(sent, patterns)
    multipliers = _multipliers(multipliers, found, "the multipliers")
    if not found.fits(as_numbers(witness, "the witness", (len(patterns),))):
        raise RefusedError("no numbers of records are shown to have these sums as they are declared")
    low = torch.zeros_like(high)
    for _ in range(_ROUNDS):
        before = float((high - low).sum())
        low, high = narrowed(found, multipliers, low, high)
        if float((high - low).sum()) == before:
            break
    for split in splits:
        within = _by_cases(found, low, high, split)
        if within is None:
            raise RefusedError(_NO_NUMBERS)
        low, high = within
    if sent.means:
        _check_records(sent, low, high)
    return patterns, low, high


def _multipliers(thing: object, found: Equations, what: str) -> Tensor:
    return as_numbers(thing, what, (None, len(found.values)))


def _check_form(sent: Totals) -> None:
    """Refuse a message or declaration with what is no number, of another shape, or too large to be added up."""
    sizes = {"the number of records": sent.records, "the rounding": sent.rounded, "what sums are off by": sent.off}
    for what, size in sizes.items():
        if not isinstance(size, (int, float)) or not 0 <= size < _LARGEST:
            raise RefusedError(f"{what} is no number from 0 up")
    if not isinstance(sent.records, Integral) or sent.records < 1 or not 0 < len(sent.levels) == len(sent.columns):
        raise RefusedError("the number of records or of columns is none")
    if sent.family not in ("binomial", "gaussian", "poisson"):
        raise RefusedError(f"the family {sent.family!r} is not known")
    for column, levels in zip(sent.columns, sent.levels, strict=True):
        if not levels or len(set(levels)) < len(levels):
            raise RefusedError(f"the levels of {column.name} are none, or not each of them once")
    width = 1 + sum(len(levels) - 1 for levels in sent.levels)
    for step in sent.steps:
        numbers = (step.coefficients, (step.deviance, step.dispersion, step.mean))
        for each, lengths in zip(numbers, ((width,), (3,)), strict=True):
            known = [0.0 if one is None else float(one) for one in each or ()]
            if each is not None and (len(known),) != lengths:
                raise RefusedError("a step has not one coefficient for each column of the design")
            as_numbers(torch.tensor(known, dtype=torch.float64), "a step", (len(known),), _LARGEST)
        shapes = {"information": (width, width), "score": (width,), "right": (width,)}
        for name, shape in shapes.items():
            if (part := getattr(step, name)) is not None:
                as_numbers(part, f"the {name} of a step", shape, _LARGEST)
    if sent.labels is not None:
        as_numbers(torch.tensor(sent.labels, dtype=torch.float64), "the outcomes", (None,), _LARGEST)
    for table in sent.tables:
        if len(set(table.columns)) < len(table.columns) or any(not 0 <= c < len(sent.columns) for c in table.columns):
            raise RefusedError("a table is of columns that are not there, or of one twice")
        shape = tuple(len(sent.levels[column]) for column in table.columns)
        counts = as_numbers(table.counts.double().nan_to_num(0.0, math.inf), "a table", shape, _LARGEST)
        if bool((counts < -sent.rounded / 2).any()) or not 0 <= table.minimum < _LARGEST:
            raise RefusedError("a table has a number of records below 0")
    for summary in (own for pair in sent.summaries for own in pair if own is not None):
        check_form(summary, _LARGEST)


def _by_cases(found: Equations, low: Tensor, high: Tensor, proof: Split | Tensor) -> tuple[Tensor, Tensor] | None:
    """Return bounds that hold in every case; None where no case has numbers."""
    if isinstance(proof, Tensor):
        return _narrowed(found, _multipliers(proof, found, "what bounds a case"), low.clone(), high.clone())
    if not isinstance(proof, Split) or not isinstance(proof.pattern, Integral) or not 0 <= proof.pattern < len(low):
        raise RefusedError("a case is split by what is no pattern")
    if not isinstance(proof.number, (int, float)) or not abs(proof.number) < _LARGEST:
        raise RefusedError("a case is split at what is no number")
    least, most = low.clone(), high.clone()
    most[proof.pattern] = min(float(most[proof.pattern]), math.floor(proof.number))
    least[proof.pattern] = max(float(least[proof.pattern]), math.floor(proof.number) + 1)
    cases = []
    for begin, end, part in ((low, most, proof.below), (least, high, proof.above)):
        within = _by_cases(found, begin, end, part) if bool((begin <= end).all()) else None
        cases += [] if within is None else [within]
    if not cases:
        return None
    lows, highs = zip(*cases, strict=True)
    return torch.stack(lows).amin(0), torch.stack(highs).amax(0)


def _check_records(sent: Totals, low: Tensor, high: Tensor) -> None:
    """Refuse means that fewer records have as well: all numbers are then multiples of one."""
    tables = cross_tables(sent)
    numbers = low if tables is None else torch.cat([table.flatten() for row in tables for table in row])
    multiple = math.gcd(*(int(number) for number in numbers))
    if multiple > 1 or (tables is None and bool((low < high).any())):
        fewer = f", such as those of {sent.records // multiple}" if multiple > 1 else ""
        raise RefusedError(f"these means may be those of fewer records than {sent.records}{fewer}")


def certify_counts(
    sent: Totals, cells: Tensor, multipliers: Tensor, witness: Tensor, splits: Sequence[Split] = ()
) -> Certified:
    """Return which of a guess's records (record, column) are proved: as many of a pattern as its least number.

    Multipliers, ``witness`` and ``splits`` are those of ``bounds``.
    """
    try:
        return _certify(sent, cells, multipliers, witness, splits)
    except RefusedError as error:
        return refused(cells, getattr(sent, "columns", ()), str(error))
    except Exception as error:  # Numbers from outside may be of any form.
        return refused(cells, getattr(sent, "columns", ()), f"{_OTHER_FORM} ({type(error).__name__})")


def _certify(
    sent: Totals, cells: Tensor, multipliers: Tensor, witness: Tensor, splits: Sequence[Split] = ()
) -> Certified:
    records, columns = len(cells), len(sent.columns)
    if records != sent.records:
        raise RefusedError(f"the guess has {records} records, not {sent.records}")
    if cells.shape[1:] != (columns,):
        raise RefusedError("the guess has not one cell for each column")
    if sent.labels is not None:
        raise RefusedError("patterns have outcomes")
    patterns, low, _ = bounds(sent, multipliers, witness, splits)
    levels = [torch.tensor(codes) for codes in sent.levels]
    codes = torch.stack([levels[i][patterns[:, i]] for i in range(columns)], 1)
    number = {tuple(code): int(least) for code, least in zip(codes.tolist(), low.tolist(), strict=True) if least > 0}
    proved = torch.zeros(records, dtype=torch.bool)
    for i, cell in enumerate(cells.tolist()):
        # What is no whole number is no code.
        key = tuple(int(x) if math.isfinite(x) and x == int(x) else -1 for x in cell)
        if number.get(key, 0) > 0:
            number[key] -= 1
            proved[i] = True
    every = proved[:, None].expand(-1, columns).clone()
    return Certified(every, torch.zeros_like(every), sent.describe())


def _check_leaving(part: Totals) -> None:
    """Refuse a number of records that the sums at coefficients of zero, which count them, do not tell."""
    sums = (step.information for step in part.steps if _like_weight(part.family, step) is not None)
    first = next((information for information in sums if information is not None), None)
    off = part.off + part.rounded / 2 + (part.records + _ROUNDINGS) * DOUBLE * part.records
    if first is None or off >= 0.5 or abs(float(first[0, 0]) - part.records) > off:
        raise RefusedError("the sums do not tell how many records leave: that takes those at coefficients of zero")


def certify_groups(
    groups: Sequence[tuple[Totals, Tensor, Tensor, Tensor, Sequence[Split]]], others: Sequence[Totals], records: int
) -> Certified:
    """Return which of a site's records are proved, those of several groups first, each by its own sums.

    A group is what leaves a risk set between two event times, whose sums are the difference of the two. ``others`` are
    such differences of which nothing is to be proved. Where one is not that of records, records join risk sets or are
    of other weights, and nothing is proved.
    """
    try:
        return _certify_groups(groups, others, records)
    except Exception as error:  # Numbers from outside may be of any form.
        known = records if type(records) is int and records >= 0 else 0
        return nothing(known, 0, f"{_OTHER_FORM} ({type(error).__name__})")


def _certify_groups(
    groups: Sequence[tuple[Totals, Tensor, Tensor, Tensor, Sequence[Split]]], others: Sequence[Totals], records: int
) -> Certified:
    parts = [group[0] for group in groups] + list(others)
    columns = len(parts[0].columns) if parts else 0
    try:
        if not groups:
            raise RefusedError("no group of records is told apart")
        if (left := sum(part.records for part in parts)) > records:
            raise RefusedError(f"{left} records leave the risk sets, more than the {records} that are declared")
        for part in parts:
            cross_tables(part)
            _check_leaving(part)
            _check_form(part)
    except RefusedError as error:
        why = "sums at neighbouring event times differ by what is no sum over records that leave"
        return nothing(records, columns, why if str(error) == _NOT_THOSE else str(error))
    proofs = [certify_counts(*group) for group in groups]
    cells = torch.cat([proof.cells for proof in proofs])
    cells = torch.cat([cells, torch.zeros(records - len(cells), columns, dtype=torch.bool)])
    conditions = (
        "Sums at neighbouring event times differ by the records that left the risk set, each of weight 1, and each "
        "record is in all risk sets up to its own time.",
        f"Sums are of exp(x beta) at exactly these coefficients, and were sent in {parts[0].precision}.",
        parts[0].design,
    )
    doubts = [proof.doubt for proof in proofs if proof.doubt is not None]
    return Certified(
        cells, torch.zeros_like(cells), conditions, doubt=doubts[0] if len(doubts) == len(proofs) else None
    )
