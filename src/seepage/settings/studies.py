"""The settings that are audited as studies: a line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seepage.datasets import Dataset
from seepage.errors import unknown_name
from seepage.settings.pooled import PooledAudit
from seepage.settings.pooled_spec import PooledSpec
from seepage.settings.setting import Audit
from seepage.settings.spec import Spec
from seepage.settings.split import SplitAudit
from seepage.settings.split_spec import SplitSpec
from seepage.settings.study import Study, study_of
from seepage.settings.subject import load_rows
from seepage.settings.vertical import VerticalAudit
from seepage.settings.vertical_spec import VerticalSpec


@dataclass(frozen=True)
class StudyKind:
    """A setting.

    Attributes:
        spec: class of its specs.
        audit: makes an audit of one; takes the spec, rows of one's own (or None) and whether they are private.
    """

    spec: type[Spec]
    audit: Callable[..., Audit]

    def study(self, spec: Spec, dataset: Dataset | None = None, own: bool = False) -> Study:
        """Return the study of a spec, on rows of one's own where they are given."""
        return study_of(self.audit(spec, dataset, own))


STUDIES: dict[str, StudyKind] = {
    "split": StudyKind(SplitSpec, SplitAudit),
    "vertical": StudyKind(VerticalSpec, VerticalAudit),
    "pooled": StudyKind(PooledSpec, PooledAudit),
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


def load_study(spec: Spec) -> tuple[Spec, Study]:
    """Return a spec, with the name of its table, and the study that it asks for.

    Raises:
        BadInputError: the rows cannot be read, or a value does not suit them.
    """
    kind = study_kind(spec.setting)
    if spec.data is None:
        return spec, kind.study(spec, None, own=False)
    loaded, _ = load_rows(spec)
    spec = spec.model_copy(update={"dataset": loaded.name})
    return spec, kind.study(spec, loaded, own=True)


def make_study(name: str, **values: Any) -> Study:
    """Return the study of a setting from plain values of its spec.

    Raises:
        BadInputError: a value cannot be used, or does not suit the rows.
    """
    kind = study_kind(name)
    return load_study(kind.spec.of(**values))[1]
