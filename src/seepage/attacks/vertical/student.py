"""A valid data-passive attack: predictions from auxiliary rows, averaged over similar features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.baselines.vertical import own_inputs
from seepage.errors import BadInputError, check_count
from seepage.models.inverse import Inverter, cells_of
from seepage.models.vertical import encoder_of
from seepage.registry import Traits, attacks
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView


@attacks.register("student_dpa", "vertical", traits=Traits(needs=("auxiliary",), averages=True))
@dataclass(frozen=True)
class StudentAttack:
    """A teacher guesses the target's cells from the attacker's own columns and labels; a student averages by features.

    Source: our own. The teacher learns on auxiliary rows. Its guesses for the training records, whose labels the
    attacker knows, are noisy, but records whose target cells are the same send the same features: a student that
    regresses the guesses on the features averages the noise out. The attack does not rely on a shadow with the target's
    axes.

    Attributes:
        hidden: units of the teacher's hidden layers.
        epochs: number of epochs of the teacher.
        student_epochs: number of epochs of the student.
        converge: whether both stop once they no longer gain on held-out rows; the numbers of epochs are then the most.

    Raises:
        BadInputError: an argument is out of range.
    """

    hidden: tuple[int, ...] = (100, 100)
    epochs: int = 15
    student_epochs: int = 10
    converge: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "student_epochs"):
            check_count(name, getattr(self, name))

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess from a view with labels: of training records (``earlier``), or its own."""
        rows = knowledge.granted_auxiliary("the student attack")
        labelled = view if view.labels is not None else view.earlier
        if labelled is None or labelled.labels is None:
            raise BadInputError(
                "the student attack learns from records whose labels the attacker knows, but the view has none; keep "
                "those of training (earlier)."
            )
        encoder = encoder_of(knowledge.schema)
        teacher = Inverter(self.hidden, "fields", epochs=self.epochs, converge=self.converge).fit(
            own_inputs(view, rows.own, rows.labels), encoder.encode(rows.cells), encoder, seeds
        )
        taught = expected(encoder, teacher.outputs(own_inputs(labelled, labelled.own, labelled.labels)))
        student = Inverter(epochs=self.student_epochs, batch_size=128, converge=self.converge).fit(
            labelled.received, taught, encoder, seeds
        )
        outputs = student.outputs(view.received)
        failed = teacher.failed | student.failed
        cells = torch.where(failed[:, None, None], torch.nan, cells_of(encoder, outputs))
        return FeatureGuess(cells, failed=failed)


def expected(encoder: Encoder, outputs: Float[Tensor, "training row encoded"]) -> Float[Tensor, "training row encoded"]:
    """Return encoded rows in expectation: chances of categories by their logits, numbers as they are."""
    parts = [
        outputs[..., block].softmax(-1) if isinstance(column, Discrete) else outputs[..., block]
        for column, block in zip(encoder.schema.columns, encoder.schema.blocks, strict=True)
    ]
    return torch.cat(parts, dim=-1)
