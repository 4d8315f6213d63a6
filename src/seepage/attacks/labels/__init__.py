"""Attacks on labels by a party that does not hold them: the server of split learning, a passive party."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.attacks.labels.batch import LabelBatch
    from seepage.attacks.labels.completion import ActiveLabelCompletion, LabelCompletion, LabelDirect
    from seepage.attacks.labels.heads import LabelHeads
    from seepage.attacks.labels.nodes import NodeClusters, NodeHeads
    from seepage.attacks.labels.scores import LabelDirection, LabelNorm

lazy_package(__name__)

__all__ = [
    "ActiveLabelCompletion",
    "LabelBatch",
    "LabelCompletion",
    "LabelDirect",
    "LabelDirection",
    "LabelHeads",
    "LabelNorm",
    "NodeClusters",
    "NodeHeads",
]
