"""Attacks of the server in split learning on the client's columns and labels."""

from seepage.attacks.split.exact import Exact
from seepage.attacks.split.label_scoring import LabelScores, direction_scores, norm_scores
from seepage.attacks.split.posterior import Posterior

__all__ = ["Exact", "LabelScores", "Posterior", "direction_scores", "norm_scores"]
