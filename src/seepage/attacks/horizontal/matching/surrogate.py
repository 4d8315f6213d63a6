"""SME (Zhu, Yao and Blaschko, ICML 2023): the point of the client's way at which a gradient is matched, learnt too."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.matching.engine import DifferentiatedEngine
from seepage.attacks.horizontal.matching.matching import Labels, Losses, Matching, PerTensor, Rows, products
from seepage.learning import gradient
from seepage.wire.horizontal import GradientView

# Learning rate of the share, as in the paper.
START, RATE = 0.5, 1e-3


class Surrogate(DifferentiatedEngine):
    """The distance of dummy gradients taken at a point between the server's model and the client's.

    Each restart of each victim has a share of the way of its own; every call takes one step of Adam along its
    derivative and clips it to [0, 1]. The point of ``midway``'s gradients is ignored. Deviations: the paper descends
    along rows with an optimiser of its own, here it is the caller's.
    """

    def __init__(self, view: GradientView, matching: Matching, moved: float) -> None:
        super().__init__(view.model, view.gradient, matching)
        self._moved = moved
        self._begun: tuple[torch.nn.Parameter, torch.optim.Optimizer] | None = None

    @property
    def share(self) -> Float[Tensor, "victim restart"]:
        """Learnt shares; they do not exist before the first call."""
        assert self._begun is not None
        return self._begun[0].detach()

    def gradients_at(self, share: Float[Tensor, " victim"]) -> GradientView:
        """Return the gradients as taken at one share of each victim's way."""
        place = {name: p[:, 0] for name, p in self._place(share[:, None]).items()}
        return GradientView(self._model, self._received, place)

    def __call__(self, rows: Rows, labels: Labels) -> tuple[Losses, Rows]:
        """Return the loss of each restart and its derivative with respect to the rows, and move the shares."""
        if self._begun is None:
            share = torch.nn.Parameter(torch.full_like(rows[..., 0, 0], START))
            self._begun = share, torch.optim.Adam([share], lr=RATE)
        share, adam = self._begun
        loss, (derivative, share.grad) = self._differentiated(rows, labels, share)
        adam.step()
        with torch.no_grad():
            share.clamp_(0, 1)
        return loss, derivative

    def _place(self, share: Tensor) -> dict[str, Tensor]:
        """Return the parameters at shares (victim, restart) of the way, shape (victim, restart, *parameter)."""
        begin = self._model.parameters
        return {
            name: begin[name] - self._moved * share.view(*share.shape, *[1] * begin[name].dim()) * g[:, None]
            for name, g in self._received.items()
        }

    def _products(self, rows: Tensor, labels: Tensor, *others: Tensor) -> tuple[PerTensor, PerTensor]:
        [share] = others or (self.share,)
        repeated = labels[:, None].expand(rows.shape[:3]).flatten(0, 1)
        place = {name: p.flatten(0, 1) for name, p in self._place(share).items()}
        dummy = gradient(self._model, rows.flatten(0, 1), repeated, place)
        return products({name: g.unflatten(0, rows.shape[:2]) for name, g in dummy.items()}, self._received)
