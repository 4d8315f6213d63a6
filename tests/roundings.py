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
        scale = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(
        found.double(),
        expected.double(),
        rtol=0,
        atol=roundings * unit * scale,
        equal_nan=True,
        msg=lambda text: f"{what} {text}",
    )


def assert_guessed_alike(found: Tensor, expected: Tensor, share: float = 0.01) -> None:
    """Fail unless two guesses have the same cells, but for a small share.

    A rounding tips the choice between two values that fit nearly equally well, so that equal cells cannot be asked of
    two paths. A guess that depends on other victims or seeds differs in far more cells.
    """
    assert found.shape == expected.shape
    same = torch.isclose(found, expected, rtol=1e-4, atol=1e-6)
    assert float((~same).double().mean()) <= share, f"{int((~same).sum())} of {same.numel()} cells differ"
