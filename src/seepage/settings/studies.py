"""The settings that are audited as studies: a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seepage.errors import unknown_name
from seepage.settings.pooled import pooled_study
from seepage.settings.pooled_spec import PooledSpec
from seepage.settings.split import split_study
from seepage.settings.split_spec import SplitSpec
from seepage.settings.study import Study
from seepage.settings.study_spec import StudySpec
from seepage.settings.vertical import vertical_study
from seepage.settings.vertical_spec import VerticalSpec


@dataclass(frozen=True)
class StudyKind:
    """A setting.

    Attributes:
        spec: what its specs are.
        study: makes a study of one; takes the spec, rows of one's own (or None) and whether they are private.
        about: what it is, in a line.
        quick: fields of the spec for a quick look.
    """

    spec: type[StudySpec]
    study: Callable[..., Study]
    about: str
    quick: Mapping[str, Any] = field(default_factory=dict)


STUDIES: dict[str, StudyKind] = {
    "split": StudyKind(
        SplitSpec,
        split_study,
        "split learning: what the server reads of the client's columns and labels",
        {"units": 1, "records": 200},
    ),
    "vertical": StudyKind(
        VerticalSpec,
        vertical_study,
        "vertical learning: what the active party reads of a passive party's columns",
        {"units": 1, "epochs": 3, "records": 1000},
    ),
    "pooled": StudyKind(
        PooledSpec,
        pooled_study,
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
