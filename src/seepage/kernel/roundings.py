"""What single precision may lose: of sums in any order, and of activations, whose roundings were measured."""

from __future__ import annotations

from seepage.kernel.statement import ROUNDINGS, UNIT, RefusedError

# Roundings of an activation of its value, of its argument (up to 16, beyond which it is its argument, or 0) and of 1,
# and of its derivative of 1 and of its argument. Others are exact, or rounded once. Measured against double precision
# over every 256th number of single precision, of either sign and any size up to 1e31, with PyTorch 2's vectorised and
# plain loops and its kernels without AVX. Largest shares that were seen of what is allowed, by value and derivative:
# gelu 0.71 (every 16th number) and 0.62, silu 0.25 and 0.22, mish 0.38 and 0.30, elu 0.14 and 0.08, selu 0.39 and 0.28,
# celu 0.37 and 0.07, hardswish 0.27 and 0.07, hardsigmoid 0.22 and 0, softplus 0.52 and 0.16, logsigmoid 0.50 and 0.14,
# erf 0.20 and 0.31, and by the last default tanh 0.26 and 0.10, sigmoid 0.57 and 0.05, exp 0.26, expm1 0.34, log 0.25,
# log1p 0.33, sqrt 0.26, rsqrt 0.37, leaky_relu 0.34, softsign 0.50. Other processors may round otherwise.
ROUNDED: dict[str, tuple[float, float, float, float]] = {
    "gelu": (8, 8, 0, 8),
    "silu": (4, 4, 0, 8),
    "mish": (4, 4, 0, 8),
    "elu": (4, 4, 0, 8),
    "celu": (4, 4, 0, 8),
    "hardswish": (4, 4, 0, 8),
    "hardsigmoid": (4, 1, 1, 8),
    "softplus": (4, 1, 0, 8),
    "log_sigmoid_forward": (4, 0, 0, 8),
    "erf": (4, 0, 1, 8),
}


def roundings(terms: int) -> float:
    """Return the most that single precision may lose of a sum of so many products, in any order.

    It is a share of the sum of their magnitudes: n u / (1 - n u) with a rounding u (Higham, Accuracy and Stability of
    Numerical Algorithms, 2002, section 3.1). Of equal terms this is lost but for a factor of 4 or less.
    """
    count = max(ROUNDINGS, float(terms))
    if count * UNIT >= 0.01:
        raise RefusedError(f"sums of {terms:,} terms in single precision have no digits that are certain")
    return UNIT * count / (1 - UNIT * count)


def roundings_of_records(records: int) -> tuple[float, float]:
    """Return what a sum over records of e_j v_j^T may lose, as shares of max |e| max |v|, by entry and as a matrix.

    A term passes through c_j <= n roundings, its own product's among them, where in any binary tree of sums the c_j are
    at most n, n, n - 1, ..., 2 in some order. An entry loses at most u sum_j c_j |e_j| |v_j|. Of a mean each |e_j| is
    at most max |e| / n, so that this is a share u sum_j c_j / n of max |e| max |v|. Squares of entries, each of which
    may be summed in an order of its own, add up by Cauchy and Schwarz to u^2 (sum_j c_j^2) sum_j |e_j|^2 |v_j|^2 at
    most. The root of that is a share u root(sum_j c_j^2 / n) of the largest lengths of an e_j, times n, and of a v_j.
    """
    n = records
    most = roundings(n) / max(ROUNDINGS, float(n))
    total, squares = n + n * (n + 1) / 2 - 1, n * n + n * (n + 1) * (2 * n + 1) / 6 - 1
    return most * max(ROUNDINGS, total / n), most * max(ROUNDINGS, (squares / n) ** 0.5)
