"""Cocktail Party Attack (Kariyappa et al., ICML 2023): the first layer's gradient unmixed by independent components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.exact.first_layer import first_layer, nearest_records, quotients
from seepage.attacks.horizontal.matching.optimise import report_interval
from seepage.attacks.horizontal.matching.reconstruct import as_gradient, check
from seepage.errors import BadInputError, check_count
from seepage.pace import Progress
from seepage.registry import attacks
from seepage.wire.horizontal import Knowledge, RecordsGuess, View

_NORMAL = 0.37456720  # the mean of log cosh of a standard normal variable


@attacks.register("cocktail_party", "horizontal")
@dataclass(frozen=True)
class CocktailParty:
    """Independent component analysis of the first layer's gradient, whose rows are mixtures of the batch's records.

    Source: Kariyappa et al., Cocktail Party Attack (ICML 2023).

    The rows are centred and whitened to one component for each record. An unmixing matrix of unit rows maximises the
    mean over sources of (mean log cosh s - mean log cosh of a normal)^2, less ``apart`` times the mean over pairs of
    rows of exp(``sharpness`` |cosine|) - 1. Weights and bias give each record's sign and scale.

    Deviations: the released code overwrites its measure of non-normality with zero, so that only the decorrelation
    remains (D26); here the measure is Hyvärinen's, with the normal's own value subtracted, so that sparse sources
    count as well as flat ones; the sign comes from the bias; no image priors; rows of tables, with few columns and
    common categories, are correlated, so that ``apart`` is 0.01 where 1.47 was chosen for images.

    Attributes:
        iterations: number of Adam steps.
        step: learning rate of Adam.
        apart, sharpness: weight and temperature of the decorrelation.

    Raises:
        BadInputError: a number is not positive.
    """

    iterations: int = 25_000
    step: float | int = 1e-3
    apart: float | int = 0.01
    sharpness: float | int = 12.4

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        for name in ("step", "apart", "sharpness"):
            if not getattr(self, name) > 0:
                raise BadInputError(f"{name} is a positive number, got {name}={getattr(self, name)!r}.")

    def __call__(
        self, view: View, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        """Return the guessed records; ``seeds`` are not used, the search starts from the whitened rows."""
        check(view, knowledge, seeds)
        read, knowledge = as_gradient(view, knowledge)
        layer = first_layer(read)
        mixed = torch.cat([layer.weight, layer.bias[..., None]], dim=2).double()
        unmixed = self.unmix(mixed, knowledge.batch_size, progress)
        return nearest_records(knowledge, quotients(unmixed[..., :-1], unmixed[..., -1]))

    def unmix(
        self, mixed: Float[Tensor, "victim neuron extended"], records: int, progress: Progress | None
    ) -> Float[Tensor, "victim source extended"]:
        """Return each source of the first layer's gradient: a record times its last entry."""
        rows = mixed[..., :-1]
        sources = min(records, *rows.shape[1:])
        centred = rows - rows.mean(-1, keepdim=True)
        left, values, right = torch.linalg.svd(centred, full_matrices=False)
        # Directions without weight contain no record; whitening would amplify them.
        there = values[:, :sources] > values[:, :1] * 1e-9
        inverse = torch.where(there, values[:, :sources].reciprocal(), torch.zeros_like(values[:, :sources]))
        white = right[:, :sources] * there[..., None] * centred.shape[-1] ** 0.5
        unmixing = torch.nn.Parameter(
            torch.eye(sources, dtype=mixed.dtype, device=mixed.device).repeat(len(mixed), 1, 1)
        )
        adam = torch.optim.Adam([unmixing], lr=self.step)
        interval = report_interval(self.iterations)
        for i in range(self.iterations):
            adam.zero_grad()
            with torch.enable_grad():
                self._objective(unmixing, white).sum().backward()
            adam.step()
            if progress is not None and ((i + 1) % interval == 0 or i + 1 == self.iterations):
                progress(((i % interval) + 1) / self.iterations)
        map_ = torch.nn.functional.normalize(unmixing.detach(), dim=-1) @ (inverse[..., None] * left.mT[:, :sources])
        return map_ @ mixed

    def _objective(self, unmixing: Tensor, white: Tensor) -> Tensor:
        directions = torch.nn.functional.normalize(unmixing, dim=-1)
        sources = directions @ white
        # log cosh without overflow.
        size = sources.abs()
        spread = (size + torch.nn.functional.softplus(-2 * size) - torch.log(size.new_tensor(2.0))).mean(-1)
        far = (spread - _NORMAL).square().mean(-1)
        count = unmixing.shape[1]
        if count == 1:
            return -far
        cosine = (directions @ directions.mT).abs()
        pairs = torch.expm1(self.sharpness * cosine) * (1 - torch.eye(count, dtype=cosine.dtype, device=cosine.device))
        return self.apart * pairs.sum((1, 2)) / (count * (count - 1)) - far
