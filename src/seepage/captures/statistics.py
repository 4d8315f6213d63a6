"""Captured messages of federated statistics: a folder with a declaration of the design and the sums of each iteration.

``statistics.json`` declares the design, all other ``.json`` and ``.npz`` files are messages in the order of their
names; docs/captured-statistics.md has the form. Nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.npyio import NpzFile
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seepage.captures.captured import described, json_object, text_of
from seepage.errors import BadInputError, unknown_name
from seepage.files import read_bytes
from seepage.tabular.schema import Category, Continuous, Discrete, Schema
from seepage.text import listed
from seepage.wire.statistics import Family

DECLARATION = "statistics.json"
# Names of one thing in messages: ours, those of dsBase's glmDS2, of v6-glm-py and of NVFlare's hello-lr.
NAMES = {
    "coefficients": ("coefficients", "beta_coefficients", "beta.vect", "beta", "betas", "theta"),
    "information": ("information", "info.matrix", "info_matrix", "XTX", "hessian"),
    "score": ("score", "score.vect", "score_vect", "gradient"),
    "right": ("right", "XTz"),
    "deviance": ("deviance", "dev"),
    "dispersion": ("dispersion",),
    "records": ("records", "numsubs", "num_observations", "n"),
    "mean": ("mean",),
    "sum_y": ("sum_y",),
    "sums": ("sums",),
    "agg1": ("agg1",),
    "agg2": ("agg2",),
    "agg3": ("agg3",),
    "times": ("times",),
    "events": ("events",),
}
_INTERCEPTS = frozenset({"intercept", "(intercept)", "const"})
# Rows are listed one by one.
MOST_RECORDS = 10_000_000
_LARGEST_JSON, _LARGEST_ARRAYS = 2**28, 2**30


def shown(value: object) -> str:
    """Return a value as an error shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class DesignColumn(BaseModel):
    """A column of the design: its categories, and the one that has no coefficient of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    categories: tuple[Category, ...] = Field(min_length=2)
    reference: Category | None = None


class DeclaredOutcome(BaseModel):
    """The outcome: its categories, in the order in which they are 0 and 1, or none for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    categories: tuple[Category, ...] | None = None


class StatisticsDeclaration(BaseModel):
    """What messages are sums of, see docs/captured-statistics.md.

    Attributes:
        order: names of the coefficients in the messages' order; those of ``columns`` in their order if left out.
        start: first iteration without coefficients: those of zero, or from the outcomes as vantage6 does.
        records: number of records behind the sums; taken from the messages if left out.
        changed: number of records by which the second run of tables has more.
        base: multiple that numbers of tables were rounded to.
        rounding: to the nearest multiple, or up or down, as random and controlled rounding do.
        minimum: least number of records that tables show, where all smaller ones, and only these, are left out.
        freedom, rule: what variances are divided by, n less this, and the definition of quantiles, as numpy names it.
        centre, scale: what a survival model's columns were standardised with, in the order of the coefficients.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    protocol: Literal["glm", "cox", "table"] = "glm"
    family: Family = "binomial"
    columns: tuple[DesignColumn, ...] = Field(min_length=1)
    target: DeclaredOutcome
    order: tuple[str, ...] | None = None
    start: Literal["zero", "outcome"] = "zero"
    records: int | None = Field(default=None, ge=1, le=MOST_RECORDS)
    changed: int = Field(default=1, ge=1, le=MOST_RECORDS)
    rounded: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    base: int = Field(default=0, ge=0)
    rounding: Literal["nearest", "either"] = "nearest"
    minimum: int | None = Field(default=None, ge=1)
    freedom: Literal[0, 1] = 1
    rule: Literal["linear", "weibull", "hazen", "median_unbiased", "inverted_cdf", "averaged_inverted_cdf"] = "linear"
    means: bool = False
    offset: bool = False
    weights: bool = False
    centre: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    @property
    def table(self) -> Schema:
        """Schema of the table that the declaration is of."""
        number = Continuous(name=self.target.name, low=-1e12, high=1e12, tolerance=0.0)
        target = number
        if self.target.categories is not None:
            target = Discrete(name=self.target.name, categories=self.target.categories)
        return Schema(
            columns=tuple(Discrete(name=c.name, categories=c.categories) for c in self.columns), target=target
        )

    @property
    def outcomes(self) -> tuple[float, ...] | None:
        """What each category of the outcome counts as: its number in models of numbers, else its place."""
        classes = self.target.categories
        if classes is None:
            return None
        numbers = [float(c) for c in classes if isinstance(c, int | float) and not isinstance(c, bool)]
        as_they_are = len(numbers) == len(classes) and self.family != "binomial"
        return tuple(numbers) if as_they_are else tuple(map(float, range(len(classes))))

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Codes of each column's levels, the reference first."""
        codes = []
        for column in self.columns:
            reference = column.categories[0] if column.reference is None else column.reference
            if reference not in column.categories:
                raise unknown_name(f"reference of column {column.name!r}:", str(reference), map(str, column.categories))
            first = column.categories.index(reference)
            codes.append((first, *(k for k in range(len(column.categories)) if k != first)))
        return tuple(codes)

    @property
    def coefficients(self) -> list[tuple[str, str]]:
        """Column and level of each coefficient in the order of the design, the intercept first."""
        pairs = [("", "")]
        for column, levels in zip(self.columns, self.levels, strict=True):
            pairs += [(column.name, str(column.categories[code])) for code in levels[1:]]
        return pairs

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the place of each coefficient of the design among names, such as ``sexm`` or ``sex[T.m]``."""
        spelled: dict[str, int] = {}
        for place, (column, level) in enumerate(self.coefficients):
            ways = _INTERCEPTS if not column else {f"{column}{level}", f"{column}[{level}]", f"{column}_{level}"}
            spelled |= dict.fromkeys((spelling.casefold() for spelling in ways), place)
        places: dict[int, int] = {}
        for k, name in enumerate(names):
            plainly = re.sub(r"\[T\.", "[", re.sub(r"^C\(([^,)]+).*\)(?=\[)", r"\1", name)).casefold()
            place = spelled.get(plainly)
            if place is None or place in places:
                why = "named twice" if place in places else "of no column and level of the declaration"
                known = listed([f"{column}[{level}]" if column else "Intercept" for column, level in self.coefficients])
                raise BadInputError(f"the coefficient {name!r} is {why}; the declaration has {known}.")
            places[place] = k
        lacking = [self.coefficients[place] for place in range(len(self.coefficients)) if place not in places]
        if lacking:
            words = listed([f"{column}[{level}]" if column else "Intercept" for column, level in lacking])
            raise BadInputError(
                f"the messages have no coefficient of {words}; give it in 'order', or leave the level out of the "
                "column's categories if no record has it. Designs without an intercept are not read."
            )
        return [places[place] for place in range(len(self.coefficients))]


@dataclass(frozen=True)
class SentSums:
    """One iteration as it stands in a file: values by our names, and where it is."""

    values: Mapping[str, Any]
    where: str

    def number(self, name: str) -> float | None:
        """Return a number; None where the message has none."""
        value = self.values.get(name)
        if value is None:
            return None
        number = np.asarray(value)
        if number.size != 1 or number.dtype.kind not in "iuf" or not np.isfinite(number).all():
            raise BadInputError(f"{self.where}: {name} is {shown(value)}, and has to be one finite number.")
        return float(number.reshape(()))

    def array(self, name: str, declared: StatisticsDeclaration, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return an array in the order of the design; None where the message has none.

        Axes of the size of the design are put in order. Mappings by the names of coefficients need no order.
        """
        value, width = self.values.get(name), len(declared.coefficients)
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = self._named(name, value, declared)
        try:
            if np.iscomplexobj(value):
                raise ValueError
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise BadInputError(f"{self.where}: {name} is {shown(value)}, and has to be an array of numbers.") from None
        if array.size == int(np.prod(shape)) and len(shape) == 1:
            array = array.reshape(shape)
        if array.shape != shape:
            raise BadInputError(
                f"{self.where}: {name} has the shape {array.shape}, and has to have {shape}: {width} coefficients, the "
                "intercept and each level but the reference of each column; declare the columns of the design as they "
                "were sent."
            )
        if not np.isfinite(array).all():
            raise BadInputError(
                f"{self.where}: {name} has entries that are no finite numbers, such as a site sends whose guard "
                "refuses; leave the iteration out, or give sums of a site that answered."
            )
        if declared.order is not None and not isinstance(self.values[name], Mapping):
            order = declared.places(declared.order)
            shifted = [place - 1 for place in order[1:]] if order[0] == 0 else None
            # The first axis of risk-set sums is that of times.
            first = int(name in ("sums", "agg1", "agg2", "agg3"))
            for axis, size in list(enumerate(shape))[first:]:
                if size == width:
                    array = array.take(order, axis)
                elif size == width - 1 and shifted is not None:
                    array = array.take(shifted, axis)
        return array

    def _named(self, name: str, value: Mapping[str, Any], declared: StatisticsDeclaration) -> np.ndarray:
        """Return a mapping by names of coefficients as an array; that of a data frame has columns, then rows."""
        if len(value) == 1 and name not in ("information", "coefficients"):
            # A data frame of one column, such as the outcome's.
            inner = next(iter(value.values()))
            value = inner if isinstance(inner, Mapping) else value
        keys = declared.places(list(value))
        names = list(value)
        if name != "information":
            return np.array([value[names[k]] for k in keys], dtype=object)
        rows = [value[names[k]] for k in keys]
        if not all(isinstance(row, Mapping) and set(row) == set(names) for row in rows):
            raise BadInputError(f"{self.where}: {name} has to be a mapping of mappings with the same names in both.")
        return np.array([[row[names[k]] for k in keys] for row in rows], dtype=object)


def read_sums(folder: Path) -> tuple[StatisticsDeclaration, list[SentSums]]:
    """Return the declaration of a folder, and what was sent in each iteration.

    Raises:
        BadInputError: a file is damaged, or declares what is not read.
    """
    path = folder / DECLARATION
    what, advice = f"the declaration {str(path)!r}", "docs/captured-statistics.md has the form"
    values = json_object(text_of(path, what, _LARGEST_JSON, advice), what, advice)
    declared = described(StatisticsDeclaration, values, what, 1)
    try:
        _ = declared.table
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadInputError(f"{what} cannot be used: {why}.") from error
    classes = declared.target.categories
    if classes is not None and len(classes) != 2 and (len(classes) < 2 or declared.protocol == "cox"):
        raise BadInputError(
            f"{what} has {len(classes)} categories of the target; give both of an event (cox), or two or more."
        )
    if declared.means and declared.protocol != "glm":
        raise BadInputError(f"{what} says that sums are means, which are read of a 'glm' alone; give sums.")
    if declared.offset or declared.weights:
        given = " and ".join(name for name in ("offset", "weights") if getattr(declared, name))
        raise BadInputError(
            f"{what} says that the model has {given}: every record then has a number of its own in all sums, beyond "
            "its categories, and no number of records of a pattern follows. Such models are not read; fit without it, "
            "or cut it into levels and declare it as a column."
        )
    messages = list(_messages(folder))
    if not messages:
        raise BadInputError(f"{str(folder)!r} has a declaration and no message; put .json or .npz files beside it.")
    return declared, messages


def _messages(folder: Path) -> Iterator[SentSums]:
    for path in sorted(folder.iterdir()):
        if path.name == DECLARATION or path.suffix not in (".json", ".npz"):
            continue
        if not path.is_file():
            raise BadInputError(f"the message {str(path)!r} is no file; move it out of the folder.")
        for k, values in enumerate(_json(path) if path.suffix == ".json" else _arrays(path)):
            where = f"{path.name}, iteration {k + 1} of the file"
            known: dict[str, Any] = {}
            for ours, names in NAMES.items():
                given = [name for name in names if values.get(name) is not None]
                if len(given) > 1:
                    raise BadInputError(f"{where} has {' and '.join(given)}, which are the same; leave one out.")
                known |= {ours: values[given[0]]} if given else {}
            known |= {name: values[name] for name in ("before", "after") if name in values}
            yield SentSums(known, where)


def _json(path: Path) -> list[Mapping[str, Any]]:
    what, advice = f"the message {str(path)!r}", "give an object of each iteration, or a list of them"
    text = text_of(path, what, _LARGEST_JSON, advice)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{what} is not JSON ({error}); {advice}.") from error
    values = values.get("iterations", [values]) if isinstance(values, dict) else values
    if not isinstance(values, list) or not all(isinstance(iteration, dict) for iteration in values):
        raise BadInputError(f"{what} is of type {type(values).__name__}; {advice}.")
    return values


def _arrays(path: Path) -> list[Mapping[str, Any]]:
    """Return the iterations of an npz file: arrays by their names, or with an iteration's number behind a slash."""
    what = f"the message {str(path)!r}"
    try:
        packed = io.BytesIO(read_bytes(path, what, _LARGEST_ARRAYS))
        file = np.load(packed, allow_pickle=False)
        if not isinstance(file, NpzFile):
            raise BadInputError(f"{what} holds a single array without a name; write it with numpy.savez.")
        with file:
            with zipfile.ZipFile(packed) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > _LARGEST_ARRAYS:
                raise BadInputError(
                    f"{what} unfolds to {unpacked:,} bytes, more than sums need; give fewer iterations."
                )
            arrays = {name: file[name] for name in file.files}
    except BadInputError:
        raise
    # A header may claim any shape, an array of which does not fit into memory.
    except (ValueError, OSError, EOFError, MemoryError, OverflowError, zlib.error, zipfile.BadZipFile) as error:
        why = "it has pickled objects, which are never loaded" if "pickle" in str(error) else str(error)
        why = " ".join(why.split())[:120]
        raise BadInputError(
            f"{what} is no whole npz file of arrays of numbers ({why}); write it with numpy.savez."
        ) from error
    iterations: dict[int, dict[str, Any]] = {}
    for name, array in arrays.items():
        before, _, number = name.rpartition("/")
        place, key = (int(number), before) if before and number.isdigit() else (0, name)
        iterations.setdefault(place, {})[key] = array
    return [iterations[place] for place in sorted(iterations)]
