"""The settings that are audited as studies: a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seepage.datasets import Dataset
from seepage.errors import unknown_name
from seepage.settings.pooled import PooledAudit
from seepage.settings.pooled_spec import PooledSpec
from seepage.settings.setting import Audit
from seepage.settings.split import SplitAudit
from seepage.settings.split_spec import SplitSpec
from seepage.settings.study import Study, study_of
from seepage.settings.study_spec import StudySpec
from seepage.settings.vertical import VerticalAudit
from seepage.settings.vertical_spec import VerticalSpec


@dataclass(frozen=True)
class StudyKind:
    """A setting.

    Attributes:
        spec: what its specs are.
        audit: makes an audit of one; takes the spec, rows of one's own (or None) and whether they are private.
        about: what it is, in a line.
        quick: fields of the spec for a quick look.
    """

    spec: type[StudySpec]
    audit: Callable[..., Audit]
    about: str
    quick: Mapping[str, Any] = field(default_factory=dict)

    def study(self, spec: StudySpec, dataset: Dataset | None = None, own: bool = False) -> Study:
        """Return the study of a spec, on rows of one's own where they are given."""
        return study_of(self.audit(spec, dataset, own))


STUDIES: dict[str, StudyKind] = {
    "split": StudyKind(
        SplitSpec,
        SplitAudit,
        "split learning: what the server reads of the client's columns and labels",
        {"units": 1, "records": 200},
    ),
    "vertical": StudyKind(
        VerticalSpec,
        VerticalAudit,
        "vertical learning: what the active party reads of a passive party's columns",
        {"units": 1, "epochs": 3, "records": 1000},
    ),
    "pooled": StudyKind(
        PooledSpec,
        PooledAudit,
        "pooled learning: what a joint model's answers tell of a sensitive column's distribution",
        {"units": 2, "targets": 20, "shadows": 40},
    ),
}


def study_kind(name: str) -> StudyKind:
    """Return the setting ``name``.

    Raises:
        BadInputError: there is none; the message names the nearest.

    Example:
        >>> study_kind("split").spec.__name__
        'SplitSpec'
    """
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]


def make_study(name: str, **values: Any) -> Study:
    """Return the study of a setting from plain values of its spec.

    Raises:
        BadInputError: a value cannot be used, or does not suit the rows.
    """
    kind = study_kind(name)
    return kind.study(kind.spec.of(**values))
