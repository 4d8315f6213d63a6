"""Whether a guess explains a captured update: what an attack's own certainty is worth depends on it."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from seepage.captures.captured import Capture
from seepage.learning import gradient, local_update
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.text import percent
from seepage.wire.horizontal import RecordsGuess, UpdateView

# Share of an update, by its length, that guessed records may leave unexplained for agreement to count as certainty:
# above what estimates leave that are mostly whole, 0.04 to 0.24 on updates of 8 and 32 records of German and Adult.
_LEFT = 0.25


def without_certainty(
    capture: Capture, schema: Schema, statistics: Statistics, guess: RecordsGuess
) -> tuple[Bool[Tensor, " record"], str | None]:
    """Return of which records the agreement of attempts is no certainty, and why; those that were solved for are none.

    Attempts agree on what they cannot tell, too: where an update holds fewer numbers than they guess, and where records
    on which they agree do not give the update.
    """
    records, columns = guess.cells.shape[1:]
    estimated = torch.ones(records, dtype=torch.bool)
    if guess.searches is not None:
        estimated[: guess.searches[0].read] = False
    if guess.proofs is not None:
        estimated &= ~(guess.proofs[0].cells | guess.proofs[0].given).any(1)
    nobody = torch.zeros_like(estimated)
    if not bool(estimated.any()) or guess.uncertainty is None:
        return nobody, None
    numbers, cells = sum(part[0].numel() for part in capture.view.message.values()), records * columns
    left = unexplained(capture, schema, statistics, guess)
    reasons = []
    if numbers <= cells:
        fewer = f"the update holds {numbers:,} numbers, its {records:,} records {cells:,} cells"
        reasons.append(f"{fewer}, so that attempts agree on what they cannot tell")
    if left is not None and left > _LEFT:
        local = capture.view.model.local
        other = "" if local is None or local.known else "what stayed with the client has other values, "
        why = f"{other}the declared recipe is not the client's, or the search was too short"
        reasons.append(f"the guessed records leave {percent(left, 0)} of the update unexplained: {why}")
    if not reasons:
        return nobody, None
    return estimated, f"no certainty is given: {'; '.join(reasons)}"


def unexplained(capture: Capture, schema: Schema, statistics: Statistics, guess: RecordsGuess) -> float | None:
    """Return the share of an update's length that the guessed records leave of it, at the best common factor.

    None where no replay applies.
    """
    view, about = capture.view, capture.about
    plain = about.defense is None and about.sent_as == "full" and about.clients == 1
    if guess.labels is None or not plain or view.model.drops is not None:
        return None
    first = next(iter(view.message.values()))
    encoder = Encoder(schema, statistics, dtype=first.dtype, device=first.device)
    rows, labels = encoder.encode(guess.cells[:1].to(first.device)), guess.labels[:1].to(first)
    if isinstance(view, UpdateView):
        epochs = view.training.epochs
        rows, labels = rows[:, None].expand(-1, epochs, -1, -1), labels[:, None].expand(-1, epochs, -1)
        replayed = local_update(view.model, rows, labels, view.training)
    else:
        replayed = gradient(view.model, rows, labels)
    sent = torch.cat([view.message[name].double().flatten() for name in replayed])
    expected = torch.cat([part.double().flatten() for part in replayed.values()])
    # Up to a common factor, which may not be declared, and which estimates do not rest on.
    factor = float(sent @ expected) / max(float(expected.square().sum()), 1e-300)
    return float((sent - factor * expected).norm() / sent.norm())
