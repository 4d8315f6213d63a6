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

# Names of the views in sentences, by their classes' names; a view of a plug-in has none but its class's.
VIEWS: dict[str, str] = {
    "GradientView": "a gradient",
    "UpdateView": "an update",
    "RoundsView": "messages of several rounds",
    "CutView": "activations and the gradients that come back",
    "ActivationView": "activations",
    "SmashedView": "activations",
    "FeatureView": "features of every party",
    "ReturnedView": "what a party sent and what came back of it",
    "LogitsView": "logits that are added up",
    "BatchView": "gradients of whole batches",
    "PredictionView": "answers of the model",
    "ModelView": "the model itself",
    "UpdatedView": "answers before and after new data",
    "GradientsView": "gradients of another party",
    "HistogramsView": "sums of derivatives",
    "TreeFilesView": "tree files",
}


def view_in_words(name: str) -> str:
    """Return what a view of this class's name is, in words.

    Example:
        >>> view_in_words("GradientView"), view_in_words("Letters")
        ('a gradient', 'Letters')
    """
    return VIEWS.get(name, name)
