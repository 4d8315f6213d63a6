"""The side information that attacks may need beyond their view, and the messages that defenses act on."""

from __future__ import annotations

from typing import Literal

Need = Literal[
    "auxiliary", "queries", "leaked", "weights", "bottom", "gradients", "crafted_network", "labels", "steering"
]

# Parts of the message that a defense blurs or withholds.
ActsOn = Literal[
    "update",
    "gradients of single records",
    "labels",
    "published weights",
    "features",
    "number of features",
    "gradients that go back",
    "answers",
    "queries",
    "columns",
    "training",
    "sums of derivatives",
    "tree files",
    "splits",
    "bins",
]

# Names of the kinds in sentences.
NEEDS: dict[Need, str] = {
    "auxiliary": "auxiliary rows",
    "queries": "answers to its queries",
    "leaked": "leaked records of the target",
    "weights": "the client's weights",
    "bottom": "the target's bottom model",
    "gradients": "gradients of the target's bottom model",
    "crafted_network": "a network that a malicious server crafts for it",
    "labels": "labels of some records",
    "steering": "a training in which its own steps break the protocol",
}
