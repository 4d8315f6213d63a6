"""A check at the client, before an update leaves: whether the exact attacks read records out of it.

Example:
    >>> import torch
    >>> from torch import nn
    >>> from seepage import guard
    >>> from seepage.datasets.planted import distinct
    >>> from seepage.models.mlp import nn3
    >>> data = distinct(rows=40)
    >>> model = nn3(data.schema, seed=0).module
    >>> recipe = guard.MessageRecipe(batch_size=4)
    >>> update_guard = guard.UpdateGuard(model, data.schema, recipe, reference=data.train)
    >>> rows = update_guard.encoder.encode(data.train.cells[:4]).float()
    >>> nn.functional.cross_entropy(model(rows), data.train.labels[:4].long()).backward()
    >>> answer = update_guard(model.state_dict(), {name: p.grad for name, p in model.named_parameters()})
    >>> answer.finding.decision, answer.finding.proved_records, answer.message is None
    ('proved', 4, True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.guard.finding import Answer, Decision, GuardFinding, Proof
    from seepage.guard.policy import GuardPolicy
    from seepage.guard.settings import load
    from seepage.guard.update_guard import UpdateGuard
    from seepage.protocols.recipe import MessageRecipe
    from seepage.tabular.client_encoder import ClientEncoder

lazy_package(__name__)

__all__ = [
    "Answer",
    "ClientEncoder",
    "Decision",
    "GuardFinding",
    "GuardPolicy",
    "MessageRecipe",
    "Proof",
    "UpdateGuard",
    "load",
]
