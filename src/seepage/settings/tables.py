"""Tables that specs name, each loaded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seepage import datasets
from seepage.datasets import Dataset, own_table
from seepage.errors import unknown_name
from seepage.settings.spec import Spec
from seepage.tabular.infer import Inferred
from seepage.tabular.one_hot import groups_of_schema
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Schema

# Fields of a spec that determine its rows.
_ROWS = (
    *("dataset", "dataset_options", "data_folder", "data", "schema_file", "target", "sensitive", "separator"),
    *("encoding", "policy"),
)


class Tables:
    """Tables of specs, shared between specs of the same rows; ``folder`` holds networks that were trained before."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.cache: dict[str, Any] = {}
        self._loaded: dict[str, tuple[Dataset, Inferred | None]] = {}

    def rows(self, spec: Spec) -> tuple[Dataset, Inferred | None]:
        """Return the rows of a spec, see ``load_rows``."""
        key = rows_key(spec)
        if key not in self._loaded:
            self._loaded[key] = load_rows(spec)
        return self._loaded[key]


def rows_key(spec: Spec) -> str:
    """Return all fields of a spec that determine its rows."""
    return repr([getattr(spec, name) for name in _ROWS])


def load_rows(spec: Spec) -> tuple[Dataset, Inferred | None]:
    """Return the rows of a spec, and the inference of their schema where it was inferred."""
    if spec.data is not None:
        return _own(spec)
    return datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options), None


def _own(spec: Spec) -> tuple[Dataset, Inferred | None]:
    assert spec.data is not None
    separator, encoding = spec.separator, spec.encoding
    if spec.schema_file is None:
        assert spec.target is not None
        return own_table(spec.data, target=spec.target, policy=spec.policy, separator=separator, encoding=encoding)
    schema = Schema.load(spec.schema_file)
    learnt = schema.target.name
    if spec.target not in (None, learnt):
        groups = groups_of_schema(open_table(spec.data, separator=separator, encoding=encoding), schema)
        # The target may be named by any of the one-hot columns that it is made of.
        if any(group.name == learnt and spec.target in group.members for group in groups):
            learnt = spec.target
    if spec.target not in (None, learnt):
        raise unknown_name(f"target of the schema {str(spec.schema_file)!r}:", str(spec.target), [schema.target.name])
    return own_table(spec.data, schema, policy=spec.policy, separator=separator, encoding=encoding)
