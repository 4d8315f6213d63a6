"""Transcripts with the tables beside them: public rows, records that the attacker knows, and the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from seepage.captures.transcripts import (
    RecordedTraining,
    read_cells,
)
from seepage.errors import BadInputError
from seepage.settings.captured import (
    Attacks,
    CapturedSpec,
    ClientSchema,
    Network,
)
from seepage.settings.option import KNOWLEDGE, Option
from seepage.settings.spec import File
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Column
from seepage.tabular.statistics import Statistics, partial_statistics


class TranscriptSpec(CapturedSpec):
    """An attack on a transcript.

    Without names the attacks are those that an audit of the setting runs by default. Where none of these can be tried
    on the columns, or the label, all others on these are.
    """

    unit: ClassVar[str] = "training"
    repeats: ClassVar[str] = "trainings"
    member: ClassVar[str | None] = "record"
    members: ClassVar[str] = "records"

    model: Network = None
    schema_file: ClientSchema = None
    attacks: Attacks = ()
    known: Annotated[
        File | None,
        Option(
            "For a transcript: records that the attacker knows, with ids and the label, private columns or both.",
            KNOWLEDGE,
            "FILE",
        ),
    ] = None

    def check_parts(self) -> None:
        """Check nothing: an attack whose options do not fit is reported as not tried, and the others run."""


class TranscriptTables:
    """A transcript with the tables beside it: public rows, records that the attacker knows, and the truth.

    ``known_labels``, ``leaked`` and ``truth`` are positions of records and their cells (the truth's with the label);
    ``places`` is the position of each record by its id.
    """

    def __init__(self, training: RecordedTraining, spec: TranscriptSpec) -> None:
        self.training, self.schema, self.spec = training, training.schema, spec
        self.separator, self.seed, data, granted, truth = spec.separator, spec.seed, spec.data, spec.known, spec.truth
        schema, private = self.schema, training.private_columns
        self.public = spec.read_rows(data, schema)
        self.ids = training.ids
        self.places = {identifier: place for place, identifier in enumerate(self.ids)}
        self.truth = None if truth is None else self._table(truth, "the truth", (*private, schema.target))
        self.known_labels: tuple[Tensor, Tensor] | None = None
        self.leaked: tuple[Tensor, Tensor] | None = None
        cells = {} if granted is None else self._granted_cells(granted)
        self.statistics = partial_statistics(schema, cells) if self.public is None else Statistics.of(self.public)
        names = [column.name for column in (*private, schema.target)]
        self.assumed = tuple(name for name in names if self.public is None and name not in cells)

    @property
    def origin(self) -> str:
        """Origin of the statistics, in words."""
        if self.public is not None:
            return "marginals of the public rows"
        assumed = f"all values likely of {', '.join(self.assumed)}"
        if self.known_labels is None and self.leaked is None:
            return f"assumed: {assumed}"
        return "marginals of the known records" + (f"; assumed: {assumed}" if self.assumed else "")

    def true_cells(self, places: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return indices of the given records with a known truth, and their true cells; None without any."""
        if self.truth is None:
            return None
        positions, cells = among(self.truth, places)
        return (positions, cells) if len(positions) else None

    def own_cells(self, places: Sequence[int]) -> Tensor:
        """Return the attacker's own cells of some records, and labels where it gave them; zeros without own columns."""
        if self.training.own_columns is None:
            return torch.zeros(len(places), len(self.training.public), dtype=torch.float64)
        rows, cells, _ = self.training.own_columns
        return cells[[rows[self.ids[place]] for place in places]]

    def _table(self, path: Path, what: str, columns: Sequence[Column]) -> tuple[Tensor, Tensor]:
        """Return positions of the transcript's records in a table, and their cells."""
        rows, cells = read_cells(path, columns, self.training.about.id, what, self.separator)
        there = [(place, rows[identifier]) for identifier, place in self.places.items() if identifier in rows]
        if not there:
            raise BadInputError(
                f"{what}, {str(path)!r}, and the transcript have no record in common: ids there are such as "
                f"{next(iter(rows))!r}, in the transcript such as {self.ids[0]!r}."
            )
        places, chosen = map(list, zip(*there, strict=True))
        return torch.tensor(places), cells[chosen]

    def _granted_cells(self, granted: Path) -> dict[str, Tensor]:
        """Read known labels and known private cells; return the cells by column."""
        names, target, what = open_table(granted, self.separator).names, self.schema.target, "the known records"
        private = self.training.private_columns
        lacking = [column.name for column in private if column.name not in names]
        if target.name not in names and lacking:
            raise BadInputError(
                f"{what}, {str(granted)!r}, have neither the label {target.name!r} nor all private columns (they "
                f"lack {', '.join(map(repr, lacking))}); give one of the two."
            )
        granted_cells: dict[str, Tensor] = {}
        if target.name in names:
            places, cells = self._table(granted, what, [target])
            self.known_labels = places, cells[:, 0]
            granted_cells[target.name] = cells[:, 0]
        if not lacking:
            self.leaked = self._table(granted, what, private)
            columns = zip(private, self.leaked[1].unbind(1), strict=True)
            granted_cells |= {column.name: cells for column, cells in columns}
        return granted_cells

    def labels_of(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return indices of the given records whose labels the attacker knows, and these labels."""
        if self.known_labels is None:
            return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
        return among(self.known_labels, places)


def among(table: tuple[Tensor, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices of the given records that a table of positions and rows holds, and their rows in the table."""
    place_of = {place: k for k, place in enumerate(places.tolist())}
    there = [(place_of[place], k) for k, place in enumerate(table[0].tolist()) if place in place_of]
    positions, chosen = torch.tensor(there, dtype=torch.long).reshape(-1, 2).unbind(1)
    return positions, table[1][chosen]
