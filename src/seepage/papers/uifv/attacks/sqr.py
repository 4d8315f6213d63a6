"""Records as the components of a tensor that the output layer's gradient averages to (Wang, Lee and Lei, 2023)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.first_layer import choose_records, refuse_frozen
from seepage.attacks.horizontal.matching.reconstruct import as_gradient, check
from seepage.errors import BadInputError, check_count
from seepage.pace import Progress
from seepage.registry import Traits, attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, View

Weights = Float[Tensor, "place unit encoded"]
Gradient = Float[Tensor, "victim output unit"]
Values = Float[Tensor, "victim unit"]

# Number of victims whose units are in memory at once.
_TOGETHER = 4
# Number of random directions in which a tensor of third order is decomposed, of which the best counts.
_DIRECTIONS = 16
# Least second or third order of an activation that can be measured.
_LEAST = 0.01
# Grid of norms of a record, times the size of a weight, in which its own is searched.
_SIZES = (0.05, 20.0, 600)
_NODES = 200


@attacks.register("sqr", "horizontal", traits=Traits(network="gaussian"))
@dataclass(frozen=True)
class Sqr:
    """Tensor decomposition of a single gradient query, for one wide hidden layer of normal weights without biases.

    Source: Wang, Lee and Lei, Reconstructing Training Data from Model Gradient, Provably (AISTATS 2023).

    The gradient of the output weight of unit j is g_j = sum of r_i s(w_j x_i) over the records, s the activation and
    r_i the error of record i. The w_j are a sample of a normal distribution, so g_j times the Hermite polynomial of
    order p of w_j has the mean sum of c_i x_i^(p) (Stein's lemma), a tensor of order p whose components are the
    records.

    1. The second order has rank B: its leading eigenvectors span the records.
    2. Within that span the orders one to three are fitted, and decomposed: of two matrices with the
       same components, the second order and the third along any direction, the quotient has the records'
       directions as eigenvectors. Of several directions the one that explains both orders best is taken.
    3. Components of three orders tell a direction's sign and the record's norm, since the activation's own Hermite
       coefficients at that norm are known.

    Errors fall as the square root of encoded columns over units: thousands of units are needed for a few independent
    records; a few hundred, as in networks for tables, give next to nothing. Honest but curious.

    Comparisons of vertical attacks call it SQR.

    Deviations: each order is fitted by least squares instead of averaged, which takes the noise of the lower orders out
    of the higher ones; eigenvectors of a quotient (Jennrich) instead of the power method, since errors r_i have both
    signs; norms are found as in 3, where the paper takes records of norm one; with several outputs the leading
    combination of their gradients is taken.

    Attributes:
        components: largest number of records that are searched; in larger batches those with the largest effect.

    Raises:
        BadInputError: there is no component.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.papers.uifv.gaussian import gaussian
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> data = telling()
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> ran = FedSGD(1).run(gaussian(data.schema, width=5000), data.train, encoder, seeds=[1])
        >>> Sqr()(ran.view, Knowledge(data.schema, data.statistics, 1), [0]).cells.shape == ran.secret.cells.shape
        True
    """

    components: int = 12

    def __post_init__(self) -> None:
        check_count("components", self.components)

    def __call__(
        self, view: View, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        """Return the guessed records; labels are not used, each victim's directions have its seed."""
        check(view, knowledge, seeds)
        read, restored = as_gradient(view, knowledge)
        network = _network(read)
        units, width = network.weight.shape[1:]
        count = min(self.components, restored.batch_size, width)
        # Twice as many equations as coefficients.
        while count > 1 and 2 * math.comb(count + 3, 3) > units:
            count -= 1
        rows = []
        for begin in range(0, read.victims, _TOGETHER):
            chunk = slice(begin, begin + _TOGETHER)
            weight = network.weight if len(network.weight) == 1 else network.weight[chunk]
            rows.append(components(weight, network.gradient[chunk], network.activation, count, seeds[chunk]))
            if progress is not None:
                progress(len(rows[-1]) / read.victims)
        solved = torch.cat(rows)
        dtype = next(iter(read.gradient.values())).dtype
        encoder = Encoder(restored.schema, restored.statistics, dtype=dtype, device=solved.device)
        return RecordsGuess(choose_records(encoder, restored, solved.to(dtype)).cpu())


class _Network(NamedTuple):
    """One hidden layer, and the output weights' gradient."""

    weight: Weights
    activation: nn.Module
    gradient: Gradient


class Orders(NamedTuple):
    """Mean derivatives of a function of normal variables, of first, second and third order."""

    first: Float[Tensor, "*batch component"]
    second: Float[Tensor, "*batch component component"]
    third: Float[Tensor, "*batch component component component"]


def _network(view: GradientView) -> _Network:
    module = view.model.module
    parts = [(name, part) for name, part in module.named_modules() if not list(part.children())]
    plain = all(type(part) is nn.Sequential for part in module.modules() if list(part.children()))
    kinds = [type(part) is nn.Linear for _, part in parts]
    if not plain or kinds != [True, False, True] or any(True for _ in parts[1][1].parameters()):
        raise _refused(view, "is of another kind")
    names = [f"{name}.weight" for name, _ in (parts[0], parts[2])]
    if parts[0][1].bias is not None:
        raise _refused(view, "has biases in its first layer")
    refuse_frozen("sqr", view, names)
    first = (view.parameters or {name: p[None] for name, p in view.model.parameters.items()})[names[0]].double()
    if first.shape[1] < 2 * (first.shape[2] + 1):
        raise _refused(
            view, f"has {first.shape[1]:,} units for {first.shape[2]} encoded columns, fewer than twice as many"
        )
    size = torch.ones(1, dtype=torch.float64)
    if hermite(parts[1][1], size)[0, 1:].abs().min() < _LEAST:
        raise _refused(view, f"has {type(parts[1][1]).__name__} units, of which one of these vanishes (ELU has both)")
    return _Network(first, parts[1][1], view.gradient[names[1]].double())


def _refused(view: GradientView, why: str) -> BadInputError:
    return BadInputError(
        f"sqr is about networks of one wide hidden layer without biases, whose activation has Hermite coefficients of "
        f"second and third order, but model {view.model.name!r} {why}; audit model 'gaussian' with it, or leave the "
        "attack out."
    )


def components(
    weight: Weights, gradient: Gradient, activation: nn.Module, count: int, seeds: Sequence[int]
) -> Float[Tensor, "victim component encoded"]:
    """Return the rows whose errors and activations explain the gradient of the weights that leave a hidden layer."""
    # With several outputs, which differ only in a record's error, the combination with the largest gradient.
    left = torch.linalg.svd(gradient, full_matrices=False)[0][..., 0]
    values = (left[:, None] @ gradient)[:, 0]
    values = values / values.square().mean(1, keepdim=True).sqrt()
    size = weight.square().mean((1, 2), keepdim=True).sqrt()
    normal = weight / size
    span = _span(normal, values, count)
    orders = fitted(normal @ span, values)
    drawn = [torch.randn(_DIRECTIONS, count, generator=torch.Generator().manual_seed(s)) for s in seeds]
    directions = decomposed(orders, torch.stack(drawn).to(orders.first))
    norms = _norms(orders, directions, activation)
    return (span @ directions).mT * (norms / size[:, 0])[..., None]


def _span(normal: Weights, values: Values, count: int) -> Float[Tensor, "victim encoded component"]:
    """Return the leading eigenvectors of the second order."""
    ones = torch.ones_like(normal[..., :1])
    rest = values - (torch.cat([ones, normal], -1) @ _least_squares(torch.cat([ones, normal], -1), values))[..., 0]
    eye = torch.eye(normal.shape[-1], dtype=normal.dtype, device=normal.device)
    second = normal.mT @ (rest[..., None] * normal) / values.shape[1] - rest.mean(1)[:, None, None] * eye
    sizes, vectors = torch.linalg.eigh((second + second.mT) / 2)
    leading = sizes.abs().argsort(dim=1, descending=True)[:, :count]
    return vectors.gather(2, leading[:, None].expand(-1, vectors.shape[1], -1))


def _least_squares(features: Tensor, values: Tensor) -> Tensor:
    """Return the coefficients (victim, feature, 1) by which features (victim, unit, feature) explain the values."""
    solution = torch.linalg.solve_ex(features.mT @ features, features.mT @ values[..., None]).result
    return solution.nan_to_num(0.0, 0.0, 0.0)


def fitted(variables: Float[Tensor, "victim unit component"], values: Values) -> Orders:
    """Return the orders of values that are a function of independent standard normal variables.

    The values are fitted by all products of Hermite polynomials up to the third degree; a mean derivative is the
    coefficient of its product, times the factorials of its degrees (Stein's lemma).
    """
    count = variables.shape[-1]
    powers = torch.stack([_polynomial(variables, k) for k in range(4)])
    indices = [i for k in range(4) for i in itertools.combinations_with_replacement(range(count), k)]
    features = torch.stack(
        [torch.stack([powers[i.count(c), ..., c] for c in set(i)] or [powers[0, ..., 0]]).prod(0) for i in indices], -1
    )
    coefficients = _least_squares(features, values)[..., 0]
    orders = [variables.new_zeros(len(values), *[count] * k) for k in range(4)]
    for place, i in enumerate(indices):
        mean = coefficients[:, place] * math.prod(math.factorial(i.count(c)) for c in set(i))
        for order in set(itertools.permutations(i)):
            orders[len(i)][(slice(None), *order)] = mean
    return Orders(*orders[1:])


def decomposed(
    orders: Orders, along: Float[Tensor, "victim direction component"]
) -> Float[Tensor, "victim component record"]:
    """Return unit vectors (as columns) whose weighted sums of powers are the second and third order.

    The third order is contracted ``along`` directions.
    """
    slices = torch.einsum("vijk,vnk->vnij", orders.third, along)
    quotients = slices @ torch.linalg.pinv(orders.second)[:, None]
    vectors = torch.linalg.eig(quotients)[1]
    # Both parts of a pair that noise made complex span the same plane as its two records.
    first = vectors.imag.abs().amax(-2, keepdim=True).gt(1e-9).cumsum(-1) % 2 == 1
    real = torch.where(first | vectors.imag.abs().amax(-2, keepdim=True).le(1e-9), vectors.real, vectors.imag)
    units = nn.functional.normalize(real, dim=-2)
    wanted = (orders.second.flatten(1)[:, None], orders.third.flatten(1)[:, None])
    # Entries that stand for several derivatives of one product count once, as in the sum of squares of a fit.
    off = sum(
        (power @ _weights(power, order) - order[..., None]).square().sum((-2, -1)) / math.factorial(k)
        for k, power, order in zip((2, 3), _powers(units), wanted, strict=True)
    )
    assert isinstance(off, Tensor)
    best = off.nan_to_num(nan=torch.inf).argmin(1)
    return units[torch.arange(len(best), device=best.device), best]


def _powers(units: Float[Tensor, "*batch component record"]) -> tuple[Tensor, Tensor]:
    """Return outer squares and cubes of unit vectors, flattened, as columns."""
    squares = (units[..., :, None, :] * units[..., None, :, :]).flatten(-3, -2)
    return squares, (squares[..., :, None, :] * units[..., None, :, :]).flatten(-3, -2)


def _weights(power: Tensor, order: Tensor) -> Tensor:
    return torch.linalg.pinv(power) @ order[..., None]


def _norms(
    orders: Orders, directions: Float[Tensor, "victim component record"], activation: nn.Module
) -> Float[Tensor, "victim record"]:
    """Return the factor of each unit vector at which the activation has the orders found.

    A record whose norm is t for the units has the orders r H_k(t), with an unknown error r.
    """
    powers = (directions, *_powers(directions))
    weights = [
        _weights(power, order.flatten(1))[..., 0] / math.sqrt(math.factorial(k))
        for k, power, order in zip((1, 2, 3), powers, orders, strict=True)
    ]
    low, high, number = _SIZES
    sizes = torch.logspace(math.log10(low), math.log10(high), number, dtype=directions.dtype)
    coefficients = hermite(activation, sizes)
    coefficients = torch.cat([coefficients, coefficients * coefficients.new_tensor([-1.0, 1.0, -1.0])]).to(
        directions.device
    )
    alike = nn.functional.normalize(torch.stack(weights, -1), dim=-1) @ nn.functional.normalize(coefficients, dim=-1).T
    return torch.cat([sizes, -sizes]).to(directions.device)[alike.abs().argmax(-1)]


def hermite(activation: nn.Module, sizes: Float[Tensor, " size"]) -> Float[Tensor, "size 3"]:
    """Return an activation's normalised Hermite coefficients of order one to three, of normal inputs of some size."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(_NODES))
    with torch.no_grad():
        values = activation(sizes.cpu()[:, None] * nodes) * (weights / weights.sum())
    return torch.stack(
        [(values * _polynomial(nodes, k)).sum(-1) / math.sqrt(math.factorial(k)) for k in (1, 2, 3)], dim=-1
    )


def _polynomial(z: Tensor, order: int) -> Tensor:
    """Return the probabilists' Hermite polynomial."""
    return (torch.ones_like(z), z, z.square() - 1, z**3 - 3 * z)[order]
