"""Comparison of two paths to the same numbers, which differ by roundings and never by more.

Two paths round differently: by the order of a sum, by a fused multiplication, by the kernel that a shape, a processor
or a number of threads picks. No test asks equal bits of them.
"""

import torch
from torch import Tensor


def assert_rounded_alike(
    found: Tensor, expected: Tensor, roundings: float, scale: float | None = None, what: object = ""
) -> None:
    """Fail unless each entry differs by at most so many roundings of a number of the size of ``scale``.

    The rounding is that of the coarser of the two types. Without a scale it is the largest entry: a sum that cancels
    keeps the error of its terms, so that a small entry is no more accurate than a large one.
    """
    unit = max(torch.finfo(tensor.dtype).eps for tensor in (found, expected))
    if scale is None:
        scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(
        found.double(),
        expected.double(),
        rtol=0,
        atol=roundings * unit * scale,
        equal_nan=True,
        msg=lambda text: f"{what} {text}",
    )
