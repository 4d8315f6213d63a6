"""Membership: which of some records are behind a gradient, by a likelihood-ratio test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import check_count
from seepage.learning import gradient
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, UpdateView

_ENTRIES_AT_ONCE = 1 << 24  # gradient entries in memory at once, 64 MiB in float32


@dataclass(frozen=True)
class GradientMembership:
    """Likelihood-ratio test on the product of a message with a candidate's own gradient.

    After LiRA (Carlini et al., "Membership Inference Attacks From First Principles", 2022): the statistic has a normal
    distribution for members and another one for non-members, and the score is the logarithm of their ratio. Both follow
    without shadow models: the product of a batch's mean gradient with the candidate's is estimated from reference
    records, as RMIA does (Zarifzadeh, Liu and Shokri, 2024), drawn from the public marginals; a member adds its own
    norm. Deviations: local training is read as one step along the mean of its gradients, and what a member's own step
    changes is left out.
    """

    references: int = 256

    def __post_init__(self) -> None:
        check_count("references", self.references)

    def __call__(
        self,
        view: GradientView | UpdateView,
        knowledge: Knowledge,
        candidates: Float[Tensor, "victim candidate column"],
        labels: Float[Tensor, "victim candidate"],
        seeds: Sequence[int],
    ) -> Float[Tensor, "victim candidate"]:
        """Return the logarithm of the likelihood ratio of each candidate, higher for likelier members."""
        records, like = knowledge.batch_size, next(view.model.module.parameters())
        encoder = Encoder(knowledge.schema, knowledge.statistics, dtype=like.dtype)
        # Number by which a mean gradient is multiplied in the message.
        scale = 1.0
        if isinstance(view, UpdateView):
            training = view.training
            scale = training.learning_rate * training.epochs * len(training.batches(records // view.clients))
        messages = torch.cat([part.flatten(1) for part in view.message.values()], 1).double() / scale
        together = max(1, _ENTRIES_AT_ONCE // messages[0].numel())
        scores = []
        for victim, seed in enumerate(seeds):
            drawn = torch.Generator().manual_seed(seed % 2**62)
            shape = (self.references, len(knowledge.schema.columns))
            rows = knowledge.statistics.rows(torch.rand(shape, generator=drawn, dtype=torch.float64)[None])[0]
            # Labels of reference records are those of the candidates, in a random order.
            order = torch.randint(len(labels[victim]), (self.references,), generator=drawn)
            references = self._clipped(view, knowledge, encoder.encode(rows), labels[victim][order])
            parts = []
            for group, targets in zip(candidates[victim].split(together), labels[victim].split(together), strict=True):
                gradients = self._clipped(view, knowledge, encoder.encode(group), targets)
                size = gradients.square().sum(1)
                products = gradients @ references.T
                mean, spread = products.mean(1), products.var(1)
                noise = (knowledge.defense.noise / scale) ** 2 * size
                without = (mean, spread / records + noise)
                among = (mean * (records - 1) / records + size / records, spread * (records - 1) / records**2 + noise)
                statistic = gradients @ messages[victim]
                parts.append(_log_density(statistic, *among) - _log_density(statistic, *without))
            scores.append(torch.cat(parts))
        return torch.stack(scores)

    def _clipped(
        self, view: GradientView | UpdateView, knowledge: Knowledge, encoded: Tensor, labels: Tensor
    ) -> Tensor:
        """Return each record's gradient as a row, at the length at which it enters the message."""
        gradients = gradient(view.model, encoded[:, None], labels[:, None].to(encoded))
        rows = torch.cat([part.flatten(1) for part in gradients.values()], 1).double()
        bound = knowledge.defense.record_norm
        if bound is None:
            return rows
        return rows * (bound / rows.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1.0)


def _log_density(values: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    variance = variance.clamp(min=torch.finfo(torch.float64).tiny)
    return -0.5 * ((values - mean).square() / variance + variance.log())
