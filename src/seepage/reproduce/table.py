"""A published table as data: the audits that make it and the figures it prints."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from seepage.audit import AuditSpec, make_spec
from seepage.errors import unknown_name

_SUFFIX = ".yaml"


class Figure(BaseModel):
    """One published figure, in [0, 1].

    Attributes:
        mean: over the published victims.
        std: population standard deviation over them.
    """

    model_config = ConfigDict(frozen=True)

    mean: float
    std: float


class PlannedRun(BaseModel):
    """One audit of a table.

    Attributes:
        name: what the comparison calls it, such as ``faithful``.
        audit: fields of ``AuditSpec`` besides those of the whole table.
        compared: published method that each attack or baseline is held against; its own name where
            none is given here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    audit: dict[str, Any]
    compared: dict[str, str] = Field(default_factory=dict)


class PublishedTable(BaseModel):
    """A table of a paper.

    Attributes:
        name: ``system/table``.
        title, source: what it shows and where it was printed.
        published_victims: number of victims behind each published figure.
        metric: of the figures.
        audit: fields of ``AuditSpec`` that all runs share.
        runs: what to run.
        published: mean and standard deviation in percent, by labels, method and batch size.

    Example:
        >>> table = load_table("tableak/table17")
        >>> table.figure("true", "tableak", 32)
        Figure(mean=0.793, std=0.045)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    source: str
    published_victims: int = Field(ge=2)
    metric: str
    audit: dict[str, Any]
    runs: tuple[PlannedRun, ...]
    published: dict[str, dict[str, dict[int, tuple[float, float]]]]

    def figure(self, labels: str, method: str, batch_size: int) -> Figure | None:
        """Return a published figure, None where the table has none."""
        found = self.published.get(labels, {}).get(method, {}).get(batch_size)
        return None if found is None else Figure(mean=round(found[0] / 100, 6), std=round(found[1] / 100, 6))

    def specs(self, **settings: Any) -> Iterator[tuple[PlannedRun, AuditSpec]]:
        """Return the runs with their specs.

        Args:
            settings: fields of ``AuditSpec`` that replace the table's (victims, device, threads).

        Raises:
            BadInputError: a setting cannot be used.
        """
        for planned in self.runs:
            yield planned, make_spec(**{**self.audit, **planned.audit, **settings})


def tables() -> dict[str, PublishedTable]:
    """Return all tables by name."""
    folder = resources.files("seepage.reproduce")
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(_SUFFIX)]
    loaded = [PublishedTable.model_validate(yaml.safe_load(text)) for text in texts]
    return {table.name: table for table in sorted(loaded, key=lambda table: table.name)}


def load_table(name: str) -> PublishedTable:
    """Return the table ``name``.

    Raises:
        BadInputError: there is none; the message names the nearest.
    """
    known = tables()
    if name not in known:
        raise unknown_name("table", name, known)
    return known[name]
