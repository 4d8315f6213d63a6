"""Declaration of a client's own encoder: the meaning of each entry of a row that enters the network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler
from torch import nn

from seepage.errors import BadInputError
from seepage.files import read_text
from seepage.tabular.schema import Category, Discrete, Schema

# Largest difference between a declared entry and the client's own one, of the entry's size or 1.
_SAME = 1e-5

Number = Annotated[float, Field(allow_inf_nan=False)]
Divisor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)


class NumberInput(_Declared):
    """A column that enters the network as one number, (cell - mean) / scale."""

    kind: Literal["number"] = "number"
    mean: Number = 0.0
    scale: Divisor = 1.0


class OneHotInput(_Declared):
    """A column that enters the network as one entry a category, each with shift and divisor; 0 and 1 where left out."""

    kind: Literal["one_hot"] = "one_hot"
    categories: tuple[Category, ...] = Field(min_length=1)
    mean: tuple[Number, ...] | None = None
    scale: tuple[Divisor, ...] | None = None

    @model_validator(mode="after")
    def _check(self) -> OneHotInput:
        for entries in (self.mean, self.scale):
            if entries is not None and len(entries) != len(self.categories):
                raise ValueError(f"column {self.name!r}: {len(entries)} numbers for {len(self.categories)} categories")
        return self


class EmbeddedInput(_Declared):
    """A column that enters the network as the position of its category, which the network looks up in a table."""

    kind: Literal["embedding"] = "embedding"
    categories: tuple[Category, ...] = Field(min_length=1)


DeclaredInput: TypeAlias = Annotated[NumberInput | OneHotInput | EmbeddedInput, Field(discriminator="kind")]


class ClientEncoder(BaseModel):
    """The columns that enter the network, in order, and how each does; see the page on captured updates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[DeclaredInput, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> ClientEncoder:
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each column is declared once, got {', '.join(map(repr, twice))} several times")
        return self

    @property
    def width(self) -> int:
        """Number of entries of a row, a looked-up category counted as one entry a category."""
        return len(self.mean)

    @property
    def mean(self) -> list[float]:
        """Shift of each entry."""
        return [shift for shift, _ in self._entries()]

    @property
    def scale(self) -> list[float]:
        """Divisor of each entry."""
        return [divisor for _, divisor in self._entries()]

    def _entries(self) -> Iterator[tuple[float, float]]:
        for column in self.columns:
            if isinstance(column, NumberInput):
                yield column.mean, column.scale
            elif isinstance(column, EmbeddedInput):
                yield from [(0.0, 1.0)] * len(column.categories)
            else:
                ones = len(column.categories)
                yield from zip(column.mean or (0.0,) * ones, column.scale or (1.0,) * ones, strict=True)

    def arranged(self, schema: Schema) -> Schema:
        """Return the schema with columns and categories in the order of the declaration; both must have the same."""
        described = {column.name: column for column in schema.columns}
        declared = {column.name: column for column in self.columns}
        for names, others, where in ((declared, described, "schema"), (described, declared, "client's encoder")):
            lacking = [name for name in names if name not in others]
            if lacking:
                raise BadInputError(
                    f"the {where} has no column {', '.join(map(repr, lacking[:3]))}"
                    f"{' and more' if len(lacking) > 3 else ''}; schema and encoder describe the same columns: "
                    "declare every column that enters the network, and no other."
                )
        columns = []
        for name, entry in declared.items():
            column = described[name]
            if isinstance(column, Discrete) == isinstance(entry, NumberInput):
                kind = "categories" if isinstance(column, Discrete) else "numbers"
                raise BadInputError(
                    f"column {name!r} holds {kind} in the schema and enters the network as {entry.kind}; make them "
                    "agree."
                )
            if not isinstance(entry, NumberInput):
                assert isinstance(column, Discrete)
                odd = set(entry.categories) ^ set(column.categories)
                if odd:
                    raise BadInputError(
                        f"column {name!r} has {len(entry.categories)} categories in the client's encoder and "
                        f"{len(column.categories)} in the schema; {sorted(map(str, odd))[0]!r} is in one of them only."
                    )
                column = column.model_copy(update={"categories": entry.categories})
            columns.append(column)
        return schema.model_copy(update={"columns": tuple(columns)})

    def check_inputs(self, module: nn.Module, name: str) -> None:
        """Refuse an encoder of another width than a network's first layer takes, where that is affine."""
        first = next(
            (part for part in module.modules() if next(part.parameters(recurse=False), None) is not None), None
        )
        if not isinstance(first, nn.Linear):
            return
        inputs = first.in_features
        if self.width == inputs:
            return
        parts = [
            f"{column.name} {1 if isinstance(column, NumberInput) else len(column.categories)}"
            for column in self.columns
        ]
        listing = ", ".join(parts[:12]) + (", ..." if len(parts) > 12 else "")
        raise BadInputError(
            f"the client's encoder makes rows of {self.width} entries ({listing}), the first layer of model {name!r} "
            f"takes {inputs}; declare the columns as they enter the network."
        )

    def check_rows(self, frame: pd.DataFrame, encoded: Float[np.ndarray, "record entry"]) -> None:
        """Refuse a declaration that does not give the client's own encoding of some rows; run it where the rows are."""
        if any(isinstance(column, EmbeddedInput) for column in self.columns):
            raise BadInputError("columns that are looked up enter as positions; check the other columns without them.")
        if encoded.shape != (len(frame), self.width):
            raise BadInputError(
                f"{len(frame)} rows are encoded as {len(frame)} x {self.width} numbers by the declaration and as "
                f"{' x '.join(map(str, encoded.shape))} by the client."
            )
        place = 0
        for column in self.columns:
            cells = frame[column.name]
            if isinstance(column, NumberInput):
                raw = cells.to_numpy(dtype=float)[:, None]
            else:
                raw = np.stack([(cells == category).to_numpy(dtype=float) for category in column.categories], 1)
            there = slice(place, place + raw.shape[1])
            place = there.stop
            ours = (raw - np.array(self.mean[there])) / np.array(self.scale[there])
            off = np.abs(ours - encoded[:, there]) > _SAME * np.maximum(1, np.abs(ours))
            if off.any():
                first = int(off.any(1).argmax())
                raise BadInputError(
                    f"column {column.name!r} enters the network otherwise than declared, first in row {first + 1} of "
                    f"{len(frame)}; mend its place, categories, mean or scale."
                )

    def to_json(self) -> str:
        """Return the declaration as text; ``from_json`` reads it back unchanged."""
        return json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ClientEncoder:
        """Read a declaration, or raise a ``BadInputError`` that names each bad key."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, p['loc'])) or 'text'}: {p['msg']}" for p in error.errors()]
            raise BadInputError(f"the encoder declaration cannot be used: {'; '.join(problems[:4])}.") from error

    @classmethod
    def load(cls, path: str | Path) -> ClientEncoder:
        """Read a declaration from a JSON file."""
        try:
            return cls.from_json(read_text(Path(path), f"the encoder declaration {str(path)!r}"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"the encoder declaration {str(path)!r} cannot be read: {error}.") from error

    @classmethod
    def of_schema(cls, schema: Schema, mean: Sequence[float] = (), scale: Sequence[float] = ()) -> ClientEncoder:
        """Return seepage's own encoding of a schema: its columns in order, categories as one-hot entries."""
        mean, scale = mean or [0.0] * schema.width, scale or [1.0] * schema.width
        columns: list[NumberInput | OneHotInput] = []
        for column, block in zip(schema.columns, schema.blocks, strict=True):
            if isinstance(column, Discrete):
                shift, divisor = tuple(mean[block]), tuple(scale[block])
                if not any(shift) and set(divisor) == {1}:
                    shift = divisor = None
                columns.append(OneHotInput(name=column.name, categories=column.categories, mean=shift, scale=divisor))
            else:
                columns.append(NumberInput(name=column.name, mean=mean[block.start], scale=scale[block.start]))
        return cls(columns=tuple(columns))

    @classmethod
    def of_transformer(cls, fitted: ColumnTransformer) -> ClientEncoder:
        """Return the encoding of a fitted scikit-learn ``ColumnTransformer`` of encoders that stand for a cell each.

        Its parts are ``OneHotEncoder``, ``StandardScaler``, ``MinMaxScaler``, ``passthrough``, ``drop``, and pipelines
        of a ``SimpleImputer`` and one of these.

        Example:
            >>> frame = pd.DataFrame({"age": [30.0, 50.0], "sex": ["f", "m"]})
            >>> transformer = ColumnTransformer([("n", StandardScaler(), ["age"]), ("c", OneHotEncoder(), ["sex"])])
            >>> encoder = ClientEncoder.of_transformer(transformer.fit(frame))
            >>> encoder.mean, encoder.scale, encoder.columns[1].categories
            ([40.0, 0.0, 0.0], [10.0, 1.0, 1.0], ('f', 'm'))
        """
        if not hasattr(fitted, "transformers_") or not hasattr(fitted, "feature_names_in_"):
            raise BadInputError(
                "the ColumnTransformer is not fitted on a DataFrame; fit it on rows with named columns first."
            )
        weights = fitted.transformer_weights or {}
        weighted = [name for name, _, _ in fitted.transformers_ if weights.get(name, 1) != 1]
        if weighted:
            raise BadInputError(
                f"the ColumnTransformer multiplies its part {weighted[0]!r} by a weight (transformer_weights), which "
                "no declaration says; fit it without transformer_weights, or put the factor into the scaler."
            )
        all_names = fitted.feature_names_in_  # pyright: ignore[reportAttributeAccessIssue]  there after fitting
        columns: list[DeclaredInput] = []
        placed = {name: part for name, part, _ in fitted.transformers_ if part != "drop"}
        chosen = {name: picked for name, _, picked in fitted.transformers_}
        for name in sorted(placed, key=lambda key: fitted.output_indices_[key].start):
            names, span = _names(chosen[name], list(all_names)), fitted.output_indices_[name]
            declared = _inputs(placed[name], names)
            width = sum(len(column.categories) if isinstance(column, OneHotInput) else 1 for column in declared)
            if width != span.stop - span.start:
                raise _unknown(placed[name], names)
            columns += declared
        if not columns:
            raise BadInputError("the ColumnTransformer lets no column into the network; declare at least one.")
        try:
            return cls(columns=tuple(columns))
        except ValidationError as error:
            raise BadInputError(
                "the ColumnTransformer takes a column twice, which is not read here; let each column enter once."
            ) from error


def _names(picked: object, names: list[str]) -> list[str]:
    """Return the names of columns that were picked by name, position, slice or mask."""
    frame = pd.DataFrame(columns=names)
    if isinstance(picked, str):
        return [str(picked)]
    if isinstance(picked, slice):
        by_name = isinstance(picked.start, str) or isinstance(picked.stop, str)
        return list((frame.loc[:, picked] if by_name else frame.iloc[:, picked]).columns)
    listed = np.asarray(picked)
    return [str(name) for name in listed] if listed.dtype.kind in "OUT" else list(frame.columns[listed])


def _inputs(part: object, names: Sequence[str]) -> list[DeclaredInput]:
    """Return how the columns of one part of a ``ColumnTransformer`` enter the network."""
    if isinstance(part, Pipeline):
        steps = [step for _, step in part.steps if not isinstance(step, SimpleImputer) and step != "passthrough"]
        if len(steps) > 1:
            raise _unknown(part, names)
        for imputer in (step for _, step in part.steps if isinstance(step, SimpleImputer)):
            if len(imputer.get_feature_names_out()) != len(names):
                raise BadInputError(
                    f"the SimpleImputer of {', '.join(map(repr, names[:3]))} adds or leaves out columns "
                    "(add_indicator=True, or a column without any value), which no declaration says; fit it with "
                    "add_indicator=False and keep_empty_features=True."
                )
        part = steps[0] if steps else "passthrough"
    if part == "passthrough" or (isinstance(part, FunctionTransformer) and part.func is None):
        return [NumberInput(name=name) for name in names]
    if isinstance(part, StandardScaler):
        mean = np.zeros(len(names)) if part.mean_ is None or not part.with_mean else np.asarray(part.mean_)
        scale = np.ones(len(names)) if part.scale_ is None else np.asarray(part.scale_)
        return [NumberInput(name=n, mean=float(m), scale=float(s)) for n, m, s in zip(names, mean, scale, strict=True)]
    if isinstance(part, MinMaxScaler):
        if part.clip:
            raise BadInputError(
                f"a MinMaxScaler with clip=True cuts numbers of {names[0]!r} off, which no declaration says; fit it "
                "without."
            )
        # It computes cell * scale_ + min_.
        return [
            NumberInput(name=n, mean=-float(m) / float(s), scale=1 / float(s))
            for n, m, s in zip(names, part.min_, part.scale_, strict=True)
        ]
    if isinstance(part, OneHotEncoder):
        dropped = part.drop_idx_ is not None and any(index is not None for index in part.drop_idx_)
        joined = part.min_frequency is not None or part.max_categories is not None
        if dropped or joined:
            raise BadInputError(
                f"the OneHotEncoder of {', '.join(map(repr, names[:3]))} leaves out or joins categories, so that "
                "entries do not stand for one category each; fit it with drop=None and without min_frequency and "
                "max_categories."
            )
        return [
            OneHotInput(name=name, categories=tuple(_plain(category) for category in categories))
            for name, categories in zip(names, part.categories_, strict=True)
        ]
    raise _unknown(part, names)


def _plain(category: object) -> bool | int | float | str:
    value = category.item() if isinstance(category, np.generic) else category
    if not isinstance(value, bool | int | float | str) or value != value:
        raise BadInputError(
            f"the category {value!r} of the OneHotEncoder is no text, number or boolean; give missing cells a "
            "category of their own, such as '?'."
        )
    return value


def _unknown(part: object, names: Sequence[str]) -> BadInputError:
    return BadInputError(
        f"the columns {', '.join(map(repr, list(names)[:3]))} go through {type(part).__name__}, which is not read here "
        "(OneHotEncoder, StandardScaler, MinMaxScaler and passthrough are, after a SimpleImputer too); declare the "
        "encoder by hand, see the page on captured updates."
    )
