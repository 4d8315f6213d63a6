"""Search for single records that are consistent with the spans of the layers' gradients.

Each record's input ``a_l`` of a layer l lies in the span of the rows of the layer's gradient (``spans``). With the rows
of ``Q_l`` an orthonormal basis of what is orthogonal to the span, and ``x(z, n)`` the encoded row of categories z and
standardised numbers n, every record is a zero of

    f(z, n) = |Q_1 (x, 1)|^2 + sum_l s_l^2 |Q_l (a_l(x), 1)|^2,   l the deeper layers that are compared (taps),

where ``s_l`` brings inputs to one usual length. The first term is also 0 at every row of the table that is a
combination of records. The others are not, since what lies between the layers is not linear: a combination of rows does
not enter a deeper layer as the combination of their inputs. A zero proves nothing yet; ``Gradient.prove`` decides.

The row is affine in the one-hot categories and in the numbers, and so are ``Q_1 (x, 1)`` and the state, from which the
taps' inputs follow: one category adds one column to both. All changes of one category are therefore tried together,
each with a Gauss-Newton step of the numbers where the network is not too large for it,

    n <- n - (J^T J)^-1 J^T r,   r the entries of f before they are squared,   J = dr / dn.

J is taken where the start stands, once for all its changes: the matrix is wrong by as much as one category moves the
slopes, but the step is only kept where f falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.attacks.horizontal.exact.networks import Layered, Network, errors_back
from seepage.attacks.horizontal.exact.spans import Span
from seepage.tabular.encoder import Encoder

_NUMBERS_AT_ONCE = 2**21  # number of entries of the largest temporary, so that it stays in the processor's cache
_SQUARES_AT_ONCE = 2**23  # the same of the square matrices of many numbers: 64 MB
_LAYERS = 10  # layers of a network after each of which what it returned is no longer needed
# Share of the largest squared slope below which a slope is a rounding error; such numbers keep their start values.
_DETERMINED = 1e-8
# Numbers that a row takes, in sizes of the state, from which its numbers do not move along with each category tried.
_COSTLY = 50
# Dimensions outside a span from which as many random combinations of them are compared as the second number says.
MANY_OUTSIDE, COMBINED = 300, 128
_GAIN = 1e-6  # an improvement by less than this share ends a search


@dataclass(frozen=True)
class SearchEnds:
    """Ends of searches: codes, standardised numbers, and squared distance from the spans."""

    codes: Int[Tensor, "start discrete"]
    numbers: Float[Tensor, "start continuous"]
    misfit: Float[Tensor, " start"]

    @classmethod
    def joined(cls, parts: Sequence[SearchEnds]) -> SearchEnds:
        """Return the ends of several searches, one after the other."""
        codes, numbers = torch.cat([part.codes for part in parts]), torch.cat([part.numbers for part in parts])
        return cls(codes, numbers, torch.cat([part.misfit for part in parts]))

    def of(self, chosen: Tensor) -> SearchEnds:
        """Return some of the ends, by a mask or by their places."""
        return SearchEnds(self.codes[chosen], self.numbers[chosen], self.misfit[chosen])


class CellsSearch:
    """Coordinate descent on the cells of one record, from many starts at once.

    The misfit of a record is the squared distance of its encoded row from the span of the first layer's gradient, plus
    that of its first hidden layer's outputs from the span of the second layer's: zero for each record by itself. A
    round takes the category that lowers the misfit most, with a Gauss-Newton step of the numbers. ``allowed``: see
    ``occurring``. ``errors`` weighs the share of a record's error outside the span of the first layer's columns, where
    the units that it activates determine it: with one hidden layer and one output, or the difference of two.
    """

    def __init__(
        self,
        encoder: Encoder,
        network: Layered,
        spans: Sequence[Span],
        allowed: Bool[Tensor, " encoded"],
        errors: float = 0.0,
    ) -> None:
        schema = encoder.schema
        starts = [block.start for block in schema.blocks]
        device = encoder.mean.device
        self._first = torch.tensor([starts[i] for i in schema.discrete], dtype=torch.long, device=device)
        self._place = torch.tensor([starts[i] for i in schema.continuous], dtype=torch.long, device=device)
        options = [
            (column, code)
            for column, i in enumerate(schema.discrete)
            for code in range(schema.columns[i].width)
            if bool(allowed[starts[i] + code])
        ]
        self._column = torch.tensor([column for column, _ in options], dtype=torch.long, device=device)
        self._code = torch.tensor([code for _, code in options], dtype=torch.long, device=device)
        self._low, self._high = encoder.low[self._place], encoder.high[self._place]
        weight, bias = network.state_weight, network.state_bias
        # A raw row's zero is not the encoded row's.
        base = torch.where(encoder.is_continuous, torch.zeros_like(encoder.mean), -encoder.mean / encoder.std)
        # Effect of a category on the state, the first layer's outputs in plain networks, and on the distance from the
        # span of the first layer's inputs.
        self._network = network
        self._output_weight, self._output_base = weight.T / encoder.std[:, None], weight @ base + bias
        off, shift = network.away(spans)
        self._away = off.T / encoder.std[:, None]
        self._away_base = off @ base + shift
        self._slope = weight[:, self._place]
        self._away_slope = off[:, self._place]
        self._costly = network.memory > _COSTLY * len(weight)
        self._deep = [
            _Tap.of(spans[tap.layer], tap.inputs, tap.scale) for tap in network.taps if tap.layer < len(spans)
        ]
        self._errors = errors
        back = errors_back(network) if errors and isinstance(network, Network) else ()
        if len(back) == 1:
            target = back[0] / spans[0].scale
            self._size, self._beyond = target.square(), spans[0].off_columns * target
        else:
            self._errors = 0.0

    @property
    def determined(self) -> bool:
        """Whether distances from the first layer's span determine the numbers."""
        values = torch.linalg.svdvals(self._away_slope)
        enough = len(self._away_slope) >= self._away_slope.shape[1]
        return not len(values) or (enough and bool(values[-1] ** 2 > _DETERMINED * values[0] ** 2))

    def run(
        self,
        codes: Int[Tensor, "start discrete"],
        numbers: Float[Tensor, "start continuous"],
        rounds: int,
        report: Callable[[float], None] | None = None,
    ) -> SearchEnds:
        """Return the ends of the searches from codes and standardised numbers, after ``rounds`` changes at most."""
        if not len(codes):
            # A network of a user's own need not take a batch without rows.
            return SearchEnds(codes, numbers, numbers.new_zeros(0))
        width = len(self._output_base) + len(self._away_base) + self._network.memory // _LAYERS
        per_start = max(1, len(self._code)) * width
        # Each start has a square matrix of its numbers.
        squares = _SQUARES_AT_ONCE // max(1, self._place.numel() ** 2)
        chunk = max(1, min(_NUMBERS_AT_ONCE // per_start, squares))
        parts = []
        for c, n in zip(codes.split(chunk), numbers.split(chunk), strict=True):
            parts.append(self._run(c.clone(), n.clone(), rounds))
            if report is not None:
                report(len(c) / len(codes))
        return SearchEnds.joined(parts)

    def hidden_outputs(self, ends: SearchEnds) -> Float[Tensor, "start unit"]:
        """Return the first layer's outputs at the ends of searches, before its ReLU."""
        return self._output_base + self._output_weight[self._first + ends.codes].sum(1) + ends.numbers @ self._slope.T

    def spread(self, ends: SearchEnds) -> Float[Tensor, "start continuous"]:
        """Return the standard errors of standardised numbers, if the remaining misfit is random."""
        hidden = self.hidden_outputs(ends)
        jacobian = self._away_slope.expand(len(hidden), -1, -1)
        if self._deep:
            slopes = self._network.slopes(hidden, self._slope)
            parts = [tap.off @ slope for tap, slope in zip(self._deep, slopes, strict=True)]
            jacobian = torch.cat([jacobian, *parts], 1)
        inverse = torch.linalg.pinv(jacobian.mT @ jacobian, hermitian=True)
        rest = max(1, jacobian.shape[1] - jacobian.shape[2])
        return (inverse.diagonal(dim1=-2, dim2=-1) * ends.misfit[:, None] / rest).clamp_min(0).sqrt()

    def _run(self, codes: Tensor, numbers: Tensor, rounds: int) -> SearchEnds:
        index = self._first + codes
        outputs = self._output_base + self._output_weight[index].sum(1)
        away = self._away_base + self._away[index].sum(1)
        misfit = self._misfit(outputs, away, numbers)
        live = torch.arange(len(codes), device=codes.device)
        for _ in range(rounds):
            if not len(live):
                break
            m, a, n, f = outputs[live], away[live], numbers[live], misfit[live]
            step = self._step(m, n)
            moved = (n - step(m, a, n)).clamp(self._low, self._high)
            if self._place.numel():
                g = self._misfit(m, a, moved)
                better = g < f
                n, f = torch.where(better[:, None], moved, n), torch.where(better, g, f)
            improved = f < misfit[live] * (1 - _GAIN)
            numbers[live], misfit[live] = n, f
            if len(self._code):
                # The columns that leave and enter the row with each change of one category.
                old = (self._first + codes[live])[:, self._column]
                new = self._first[self._column] + self._code
                dm = self._output_weight[new] - self._output_weight[old]
                da = self._away[new] - self._away[old]
                tried = start = n[:, None].expand(-1, len(new), -1)
                if not self._costly:
                    tried = (start - step((m[:, None] + dm), (a[:, None] + da), start)).clamp(self._low, self._high)
                g = self._misfit(m[:, None] + dm, a[:, None] + da, tried, rough=self._costly)
                best = g.min(1)
                take = (best.values < f * (1 - _GAIN)).nonzero()[:, 0]
                which, moves = live[take], best.indices[take]
                codes[which, self._column[moves]] = self._code[moves]
                outputs[which] += dm[take, moves]
                away[which] += da[take, moves]
                numbers[which], misfit[which] = tried[take, moves], best.values[take]
                improved[take] = True
            live = live[improved]
        return SearchEnds(codes, numbers, misfit)

    def _misfit(self, outputs: Tensor, away: Tensor, numbers: Tensor, rough: bool = False) -> Tensor:
        misfit = (away + numbers @ self._away_slope.T).square().sum(-1)
        if self._errors:
            active = ((outputs + numbers @ self._slope.T) > 0).to(outputs.dtype)
            outside = (active @ self._beyond.T).square().sum(-1) / (active @ self._size).clamp_min(1e-300)
            return misfit + self._errors * outside
        if not self._deep:
            return misfit
        for tap, entered in zip(self._deep, self._network.deep(outputs + numbers @ self._slope.T, rough), strict=True):
            misfit = misfit + tap.distance(entered)
        return misfit

    def _step(self, outputs: Tensor, numbers: Tensor):
        """Return the Gauss-Newton step of the numbers, with the taps' slopes where they are now."""
        flat = self._away_slope
        gram = (flat.T @ flat).expand(len(outputs), -1, -1)
        if not self._deep:
            inverse = torch.linalg.pinv(gram[:1], hermitian=True, rtol=_DETERMINED)[0] if flat.numel() else gram[0]
            return lambda m, a, n: (a + n @ flat.T) @ flat @ inverse
        slopes = self._network.slopes(outputs + numbers @ self._slope.T, self._slope)
        jacobians = [tap.off @ slope for tap, slope in zip(self._deep, slopes, strict=True)]
        backs = [tap.off.T @ jacobian for tap, jacobian in zip(self._deep, jacobians, strict=True)]
        for jacobian in jacobians:
            gram = gram + jacobian.mT @ jacobian
        ridge = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * 1e-12 + 1e-300
        inverse = torch.linalg.inv(gram + ridge * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device))
        constants = [(j * tap.shift[:, None]).sum(-2) for tap, j in zip(self._deep, jacobians, strict=True)]

        def step(m: Tensor, a: Tensor, n: Tensor) -> Tensor:
            entering = self._network.deep(m + n @ self._slope.T)
            single = m.dim() == 2
            gradient = None
            for entered, back, constant in zip(entering, backs, constants, strict=True):
                part = torch.einsum("sh,shc->sc", entered, back) if single else torch.bmm(entered, back)
                part = part + (constant if single else constant[:, None])
                gradient = part if gradient is None else gradient + part
            assert gradient is not None
            gradient = gradient + (a + n @ flat.T) @ flat
            return torch.einsum("sc,scd->sd", gradient, inverse) if single else torch.bmm(gradient, inverse)

        return step


@dataclass(frozen=True)
class _Tap:
    """Map from the inputs of a deeper layer to their part outside of their span, with its constant part.

    ``rows`` are those of the span itself where it has fewer dimensions, which is cheaper.
    """

    off: Float[Tensor, "rest input"]
    shift: Float[Tensor, " rest"]
    rows: tuple[Tensor, Tensor] | None
    scale: float
    constant: float

    @classmethod
    def of(cls, span: Span, inputs: int, scale: float) -> _Tap:
        """Return the tap of a layer with so many inputs, whose usual length is a unit over the scale."""
        biased = span.off_rows.shape[1] > inputs
        off, rows = combined(span.off_rows) * scale, span.rows * scale
        none = off.new_zeros(len(off)), off.new_zeros(len(rows))
        cheap = (rows[:, :inputs], rows[:, -1] if biased else none[1]) if len(off) > len(rows) else None
        return cls(off[:, :inputs], off[:, -1] if biased else none[0], cheap, scale, float(biased))

    def distance(self, entered: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch"]:
        """Return the squared distance of inputs from the span."""
        if self.rows is None:
            return (entered @ self.off.T + self.shift).square().sum(-1)
        # Pythagoras: what lies outside is the whole less what lies inside.
        inside = entered @ self.rows[0].T + self.rows[1]
        return (self.scale**2 * (entered.square().sum(-1) + self.constant) - inside.square().sum(-1)).clamp_min(0)


def combined(off_rows: Float[Tensor, "rest input"]) -> Float[Tensor, "combination input"]:
    """Return directions outside a span, or random combinations where there are many, of the same length on average."""
    # A vector in the span is orthogonal to all of them, any other to hardly any.
    if len(off_rows) <= MANY_OUTSIDE:
        return off_rows
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(COMBINED, len(off_rows), generator=generator, dtype=torch.float64).to(off_rows)
    return mixed @ off_rows / COMBINED**0.5


def occurring(encoder: Encoder, span: Span, rounding: float) -> Bool[Tensor, " encoded"]:
    """Return which encoded columns differ from 0 in some raw row of the batch."""
    # A category that no record has makes a raw column of zeros, and so one of zeros in the span of the rows.
    raw = span.rows[:, :-1] * encoder.std + span.rows[:, -1:] * encoder.mean
    size = torch.linalg.vector_norm(span.rows[:, :-1] * encoder.std, dim=0) + encoder.mean.abs()
    return encoder.is_continuous | (torch.linalg.vector_norm(raw, dim=0) > 1e4 * rounding * size)
