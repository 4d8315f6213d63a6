"""A linear or kernel regression from features to cells, for which few leaked records suffice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.attacks.vertical.parts.choice import or_constants, right_pairs
from seepage.models.inverse import Calibration, cells_of
from seepage.models.kernel_regression import fitted
from seepage.models.vertical import encoder_of
from seepage.registry import attacks
from seepage.wire.vertical import ActivationView, FeatureGuess, FeatureKnowledge


@attacks.register("ridge_sa", "split", needs=("leaked",))
@attacks.register("ridge_sa", "vertical", needs=("leaked",))
@dataclass(frozen=True)
class RidgeStealth:
    """Kernel ridge regression on leaked records; penalty and kernel are those with the least leave-one-out error.

    Source: our own. A closed form in place of the stealth attack's InverNet, which has only a few dozen pairs to learn
    from. The leave-one-out residuals of a linear smoother are its residuals divided by one less its diagonal (Golub,
    Heath and Wahba 1979). They also give the confidence of the answers: chances and radii are fitted on the leaked
    records, each left out in turn. A column that it reads no better than a constant on these records is answered by the
    constant, see ``parts.choice``.
    """

    def __call__(self, view: ActivationView, knowledge: FeatureKnowledge, seeds: Sequence[int] = (0,)) -> FeatureGuess:
        """Return the guess; ``seeds`` are not used."""
        leaked = knowledge.granted_leaked("the stealth attack by regression")
        encoder = encoder_of(knowledge.schema)
        encoded = encoder.encode(leaked.cells).double()
        fit = fitted(leaked.features.double(), encoded, view.received.double())
        sure = Calibration.of(encoder, fit.left_out, encoded)
        guess = FeatureGuess(
            cells_of(encoder, fit.values),
            sure.chances(encoder, fit.values),
            sure.widths(encoder),
            ~fit.values.flatten(1).isfinite().all(1),
        )
        right = right_pairs(knowledge.schema, cells_of(encoder, fit.left_out), leaked.cells)
        return or_constants(guess, right, leaked.cells, encoder, knowledge)[0]
