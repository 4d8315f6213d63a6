"""What a guard found in an update, and its answer to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from seepage.attacks.horizontal.exact.certifying import WrittenCertificate, write_certificate
from seepage.captures.captured import Description, save_capture
from seepage.defenses.accounting import Guarantee
from seepage.errors import BadInputError
from seepage.guard.own_rows import Matches
from seepage.protocols.recipe import MessageRecipe
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import RecordsGuess, View

Decision = Literal["pass", "proved", "read", "in the span", "matched whole", "not tried"]
"""``pass``: the attack was tried and read nothing, and no more of the client's rows than of decoys lie in the span of
the update, where rows were given. ``proved``: cells are certified. ``read``: records were read out of the message one
by one, or by a division, and nothing proves them. ``in the span``: more of the
client's rows than of decoys lie in what the update spans, or along it; without rows, the layer that takes them changed
in as many directions as there are records, and fewer than it has units. ``matched whole``: records that no proof covers
replay the whole message to rounding. ``not tried``: the attacks say nothing, and no rows lie in the span, which is no
evidence by itself."""


@dataclass(frozen=True)
class Proof:
    """The content of a certificate; it holds records.

    The view is the message that was to be sent, with the received model; digests of both are SHA-256, see
    ``models.states.state_digest``. Rows are standardised with the statistics, in the order of the client's encoder.
    """

    guess: RecordsGuess
    view: View
    recipe: MessageRecipe
    schema: Schema
    statistics: Statistics
    update: str
    model: str

    def write(self, path: str | Path, *, opened: bool = False) -> WrittenCertificate:
        """Write a certificate of what was proved, see ``write_certificate``, and the message as a captured update.

        The update stands beside the certificate, ``NAME.update.safetensors`` for ``NAME.json``. It gives the records
        away and is for its owner alone. ``opened`` writes cells and salts into the certificate itself.

        Raises:
            BadInputError: a file exists already or cannot be written.
        """
        beside = Path(path).with_name(f"{Path(path).stem}.update.safetensors")
        if beside.exists():
            raise BadInputError(f"the file {str(beside)!r} is there already; choose another name for the certificate.")
        written = write_certificate(path, self.guess, self.view, self.schema, self.statistics, opened=opened)
        about = Description(
            **{**dict(self.recipe), "batch_size": self.guess.cells.shape[1], "sent": self.model},
            model=self.view.model.name,
            head=self.view.model.head,
        )
        save_capture(beside, {name: part[0] for name, part in self.view.message.items()}, about)
        return written


@dataclass(frozen=True)
class GuardFinding:
    """What was found in one update; numbers and no record.

    Attributes:
        why: reason why nothing was tried, or what the attack says of its result.
        records: number of records behind the update; None where it is not known.
        proved_records: number of records with a certified cell.
        whole_records: number of records all of whose cells are certified.
        update, model: SHA-256 of the message that was checked, as it was to be sent, and of the received model.
        assumed, warnings, notes: what the guard assumed, signs that the server crafted the received model, and what
            went otherwise than asked for, as sentences.
        rows_read: numbers of the client's own rows and of decoys among the records that the attack returned; None where
            no rows were compared, or more was found.
        rows_in_span: numbers of those that lie in the span of the update; None as well where that says nothing.
        guarantee: differential privacy of all rounds so far; None where the policy gives none.
        proof: what a certificate is written from; None where nothing was proved, or records are not to be kept.
        certificate: certificate that was written; None where none was asked for, or none can be.
    """

    decision: Decision
    why: str
    records: int | None
    proved_records: int
    whole_records: int
    proved_cells: int
    cells: int
    seconds: float
    update: str
    model: str
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]
    sent: bool
    rows_read: Matches | None = None
    rows_in_span: Matches | None = None
    guarantee: Guarantee | None = None
    proof: Proof | None = None
    certificate: WrittenCertificate | None = None
    notes: tuple[str, ...] = ()

    def log(self, **more: int | str | None) -> dict[str, object]:
        """Return the finding as JSON values for a log, without any record."""
        entry = {
            **{name: value for name, value in more.items() if value is not None},
            **{name: getattr(self, name) for name in _LOGGED},
            "seconds": round(self.seconds, 3),
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }
        for name in ("rows_read", "rows_in_span"):
            if (matches := getattr(self, name)) is not None:
                entry[name] = asdict(matches)
        if self.certificate is not None:
            entry["certificate"] = self.certificate.certificate.name
        if self.notes:
            entry["notes"] = list(self.notes)
        if self.guarantee is not None:
            guarantee = self.guarantee
            entry |= {"epsilon": guarantee.epsilon, "delta": guarantee.delta, "rounds": guarantee.steps}
        return entry

    def __str__(self) -> str:
        """Return the finding as a sentence."""
        of = "" if self.records is None else f" of {self.records} records"
        decision = {
            "pass": f"nothing read{of}",
            "proved": f"{self.proved_records}{of} proved",
            "read": f"records read one by one{of}",
            "in the span": f"own rows in the span of the update{of}",
            "matched whole": f"the whole message matched{of}",
            "not tried": "not tried",
        }[self.decision]
        done = "sent" if self.sent else "blocked"
        return f"{decision} ({self.why}); {done}, {self.seconds:.1f} s"


_LOGGED = (
    *("decision", "why", "sent", "records", "proved_records", "whole_records", "proved_cells", "cells"),
    *("seconds", "update", "model"),
)


@dataclass(frozen=True)
class Answer:
    """What a guard returns: the message to send in the form in which the update came; None where it is blocked."""

    finding: GuardFinding
    message: dict[str, Tensor] | None
