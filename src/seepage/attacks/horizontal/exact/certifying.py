"""Certificates of proofs by exact attacks, as files that ``seepage verify`` checks."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from seepage import verify
from seepage.attacks.horizontal.exact.proving import declaration
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, View


@dataclass(frozen=True)
class WrittenCertificate:
    """The files of a certificate, and the size of its claim.

    Attributes:
        certificate: file that may travel; with the cells inside where they were to be opened.
        opened: file of cells and salts, which stays with the client; None where they are in the certificate.
        cells: number of certified cells.
        given: number of cells that are certified only given what the proof names.
    """

    certificate: Path
    opened: Path | None
    cells: int
    given: int
    records: int

    def __str__(self) -> str:
        """Return the certificate in a sentence."""
        given = f", and {self.given} more only given what the proof names" if self.given else ""
        return f"{self.cells} cells of {self.records} records are certified{given}"


def certificate_files(path: str | Path) -> tuple[Path, Path]:
    """Return the files of a certificate: itself and opened cells."""
    path = Path(path)
    return path, path.with_name(f"{path.stem}.opened.json")


def check_new_certificate(path: str | Path) -> None:
    """Refuse a certificate's name where one of its files is there already, with a ``BadInputError``."""
    there = [file for file in certificate_files(path) if file.exists()]
    if there:
        raise BadInputError(f"the file {str(there[0])!r} is there already; choose another name for the certificate.")


def write_certificate(
    path: str | Path,
    guess: RecordsGuess,
    view: View,
    schema: Schema,
    statistics: Statistics,
    *,
    victim: int = 0,
    opened: bool = False,
) -> WrittenCertificate:
    """Write a certificate of the kernel's proof of an attack's guess, and its opened cells.

    Args:
        path: file of the certificate, such as ``proof.json``; the cells stand beside it, see ``certificate_files``.
        schema: schema of the table, in the order of the client's encoder.
        statistics: statistics whose means and standard deviations rows are standardised with.
        opened: whether cells and salts are written into the certificate itself.

    Raises:
        BadInputError: no cell is certified, or a file exists already or cannot be written.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from seepage.attacks import create
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn3
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> from seepage.tabular.encoder import Encoder
        >>> data = distinct(rows=40)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> view = FedSGD(4).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1]).view
        >>> guess = create("unmix")(view, Knowledge(data.schema, data.statistics, 4), [0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(write_certificate(f"{folder}/proof.json", guess, view, data.schema, data.statistics))
        24 cells of 4 records are certified
    """
    check_new_certificate(path)
    proof = None if guess.proofs is None else guess.proofs[victim]
    if proof is None or guess.labels is None or not bool((proof.cells | proof.given).any()):
        why = "" if proof is None or proof.doubt is None else f" ({proof.doubt})"
        raise BadInputError(f"no cell is certified, so that there is nothing to write a certificate of{why}.")
    file, cells_file = certificate_files(path)
    cells, labels = guess.cells[victim], guess.labels[victim]
    if not isinstance(schema.target, Discrete):
        # What was solved for may lie a rounding outside.
        labels = labels.clamp(schema.target.low, schema.target.high)
    records = [
        {"cells": [_plain(*pair) for pair in zip(schema.columns, row, strict=True)], "label": label}
        for row, label in zip(cells.tolist(), labels.tolist(), strict=True)
    ]
    message = {name: part[victim].detach().cpu() for name, part in view.message.items()}
    parameters = view.place(victim) if isinstance(view, GradientView) else view.model.parameters
    head = verify.header(message, parameters, declaration(view, Knowledge(schema, statistics, len(records))))
    claims, salts, digest = [], [], verify.digest_of(head)
    for i, c in (proof.cells | proof.given).nonzero().tolist():
        place, salt = [i, schema.names[c], not bool(proof.cells[i, c])], secrets.token_hex(32)
        commitment = verify.commitment(digest, salt, place, records[i]["cells"][c])
        claims.append(dict(zip(("record", "column", "given", "commitment"), [*place, commitment], strict=True)))
        salts.append(salt)
    shown = {"format": verify.OPENED_FORMAT, "records": records, "salts": salts}
    certificate = {**head, "cells": claims, **({"opened": shown} if opened else {})}
    if not opened:
        write_whole(cells_file, _text(shown), private=True)
    write_whole(file, _text(certificate))
    given = int((proof.given & ~proof.cells).sum())
    return WrittenCertificate(file, None if opened else cells_file, int(proof.cells.sum()), given, records=len(records))


def _plain(column: Column, cell: float) -> bool | int | float | str:
    """Return a cell as its category, or as a number, without a fraction where there is none."""
    if isinstance(column, Discrete):
        return column.categories[int(cell)]
    return int(cell) if column.integer and cell == int(cell) else cell


def _text(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
