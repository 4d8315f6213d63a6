"""Attacks of the server in split learning on the client's columns and labels."""

from seepage.attacks.split.exact import Exact
from seepage.attacks.split.fsha import FSHA
from seepage.attacks.split.label_scoring import LabelScores, direction_scores, norm_scores
from seepage.attacks.split.posterior import Posterior
from seepage.attacks.split.unsplit import UnSplit

__all__ = ["FSHA", "Exact", "LabelScores", "Posterior", "UnSplit", "direction_scores", "norm_scores"]
