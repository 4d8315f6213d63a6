"""Whether a guess explains a captured update: what an attack's own certainty is worth depends on it."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from seepage.captures.captured import Capture
from seepage.learning import gradient, local_update
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.text import percent
from seepage.wire.horizontal import RecordsGuess, UpdateView

# Share of an update, by its length, that guessed records may leave unexplained for agreement to count as certainty:
# above what estimates leave that are mostly whole, 0.04 to 0.24 on updates of 8 and 32 records of German and Adult.
_LEFT = 0.25
# Differences of a network's outputs, as a share, that count as none, and of counts of labels, in records, that do not.
_SAME, _OFF = 1e-6, 0.02


def without_certainty(
    capture: Capture, guess: RecordsGuess, left: float | None
) -> tuple[Bool[Tensor, " record"], str | None]:
    """Return of which records the agreement of attempts is no certainty, and why; those that were solved for are none.

    Attempts agree on what they cannot tell, too: where an update holds fewer numbers than they guess, and where records
    on which they agree do not give the update: ``left`` is the share that these leave, see ``unexplained``.
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
    view = capture.view
    if guess.labels is None or not _replays(capture):
        return None
    replayed = _replayed(capture, _rows(capture, schema, statistics, guess), guess.labels[:1])
    sent = torch.cat([view.message[name].double().flatten() for name in replayed])
    expected = torch.cat([part.double().flatten() for part in replayed.values()])
    # Up to a common factor, which may not be declared, and which estimates do not rest on.
    factor = float(sent @ expected) / max(float(expected.square().sum()), 1e-300)
    return float((sent - factor * expected).norm() / sent.norm())


def refuted_counts(capture: Capture, schema: Schema, statistics: Statistics, guess: RecordsGuess) -> float | None:
    """Return by how much of a record the counts of the labels miss an update that no counts give; None where some do.

    Where a network says the same of every row, as one of zeros does, the change of its output bias in one step depends
    on the counts alone, under the declared recipe. None is also the answer where this cannot be told.
    """
    view, model = capture.view, capture.view.model
    target = schema.target
    single_step = not isinstance(view, UpdateView) or (
        view.training.epochs == 1 and view.training.batch_size >= guess.cells.shape[1]
    )
    if guess.labels is None or not isinstance(target, Discrete) or not single_step or not _replays(capture):
        return None
    rows, labels = _rows(capture, schema, statistics, guess), guess.labels[:1]
    outputs = model.outputs(rows[0])
    if float((outputs - outputs[:1]).abs().max()) > _SAME * (1 + float(outputs.abs().max())):
        return None
    # The parameters that a label moves, whatever the row: the bias of the outputs.
    other = labels.clone()
    other[:, 0] = (other[:, 0] + 1) % target.width
    replayed, changed = _replayed(capture, rows, labels), _replayed(capture, rows, other)
    nothing = _replayed(capture, torch.zeros_like(rows), labels)
    biases = [
        name
        for name, part in replayed.items()
        if part.dim() == 2 and bool((changed[name] != part).any()) and torch.allclose(nothing[name], part)
    ]
    if not biases:
        return None
    unit = max(float((changed[name] - replayed[name]).abs().max()) for name in biases)
    off = max(float((view.message[name] - replayed[name]).abs().max()) for name in biases) / unit
    return off if off > _OFF else None


def _replays(capture: Capture) -> bool:
    """Return whether guessed records can be put through the client's own computation."""
    about = capture.about
    return about.defense is None and about.sent_as == "full" and about.clients == 1 and capture.view.model.drops is None


def _rows(capture: Capture, schema: Schema, statistics: Statistics, guess: RecordsGuess) -> Tensor:
    """Return the guessed records of the one client as the network takes them (client, record, entry)."""
    first = next(iter(capture.view.message.values()))
    return Encoder(schema, statistics, dtype=first.dtype, device=first.device).encode(guess.cells[:1].to(first.device))


def _replayed(capture: Capture, rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the message of records under the declared recipe."""
    view, labels = capture.view, labels.to(rows)
    if not isinstance(view, UpdateView):
        return gradient(view.model, rows, labels)
    epochs = view.training.epochs
    rows, labels = rows[:, None].expand(-1, epochs, -1, -1), labels[:, None].expand(-1, epochs, -1)
    return local_update(view.model, rows, labels, view.training)
