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
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pandas as pd
from numpy.lib.npyio import NpzFile
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seepage.assessment.statistics import measure_tables
from seepage.captures.audit import Attacked, ReadRecords, RecordsExposure, run_parts
from seepage.captures.captured import described, json_object, text_of
from seepage.captures.published import Published, shown
from seepage.captures.recovery import attacker_statistics, check_new
from seepage.captures.sources import RECONSTRUCTION, RESULTS, CaptureResult, Kind
from seepage.captures.spec import AttackSpec
from seepage.digests import Json, plain
from seepage.errors import BadInputError, unknown_name
from seepage.files import read_bytes, write_whole
from seepage.run.runner import Listener
from seepage.seeds import stream
from seepage.settings.part import Part
from seepage.settings.setting import About
from seepage.settings.statistics.audit import METRICS, STATISTICS_SCALES, view_of
from seepage.tabular.schema import Category, Continuous, Discrete, Schema
from seepage.tabular.table import Table, frame_of
from seepage.text import how_many, listed, percent
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.statistics import (
    Family,
    NewtonMessage,
    NewtonStep,
    RiskSetMessage,
    RiskStep,
    StatisticsGuess,
    StatisticsKnowledge,
    StatisticsMessage,
    TablesMessage,
)

DECLARATION = "statistics.json"
# Names of one thing in messages: ours, those of dsBase's glmDS2, of v6-glm-py and of NVFlare's hello-lr.
_NAMES = {
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
_MOST_RECORDS = 10_000_000
_LARGEST_JSON, _LARGEST_ARRAYS = 2**28, 2**30
# Share by which the two halves of a matrix may differ, from the order in which a site adds up.
_SYMMETRIC = 1e-9
# Share of the largest sum by which those of standardised columns may be off once they are taken back.
_TAKEN_BACK = 2.0**-40
_USUAL = {"glm": "counts", "cox": "risk_sets", "table": "differencing"}


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
    records: int | None = Field(default=None, ge=1, le=_MOST_RECORDS)
    changed: int = Field(default=1, ge=1, le=_MOST_RECORDS)
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
            spelled |= dict.fromkeys((way.casefold() for way in ways), place)
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
class _Message:
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


def read_statistics(folder: Path) -> tuple[StatisticsDeclaration, StatisticsMessage]:
    """Return the declaration of a folder, and its messages of all iterations as one.

    Raises:
        BadInputError: a file is damaged, or the messages are not those of the declared design.
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
    if declared.protocol == "table":
        return declared, _tables(declared, messages)
    return declared, _survival(declared, messages) if declared.protocol == "cox" else _newton(declared, messages)


def _messages(folder: Path) -> Iterator[_Message]:
    for path in sorted(folder.iterdir()):
        if path.name == DECLARATION or path.suffix not in (".json", ".npz"):
            continue
        if not path.is_file():
            raise BadInputError(f"the message {str(path)!r} is no file; move it out of the folder.")
        for k, values in enumerate(_json(path) if path.suffix == ".json" else _arrays(path)):
            where = f"{path.name}, iteration {k + 1} of the file"
            known: dict[str, Any] = {}
            for ours, names in _NAMES.items():
                given = [name for name in names if values.get(name) is not None]
                if len(given) > 1:
                    raise BadInputError(f"{where} has {' and '.join(given)}, which are the same; leave one out.")
                known |= {ours: values[given[0]]} if given else {}
            known |= {name: values[name] for name in ("before", "after") if name in values}
            yield _Message(known, where)


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


def _count(declared: StatisticsDeclaration, messages: Sequence[_Message]) -> int | None:
    """Return the number of records; all messages have to be of as many."""
    count, where = declared.records, "the declaration"
    for message in messages:
        own = message.number("records")
        if own is None:
            continue
        if count is not None and own != count:
            raise BadInputError(
                f"{message.where} is of {own:g} records, but {where} says {count:,}: rows joined or left between them, "
                "so that they are not sums of one table; give the iterations of one fit on the same rows."
            )
        if own != round(own) or not 1 <= own <= _MOST_RECORDS:
            raise BadInputError(
                f"{message.where} is of {own:g} records, which is no whole number from 1 to {_MOST_RECORDS:,}."
            )
        count, where = int(own), message.where
    return count


def _newton(declared: StatisticsDeclaration, messages: Sequence[_Message]) -> NewtonMessage:
    width, count = len(declared.coefficients), _count(declared, messages)
    steps = []
    for t, message in enumerate(messages):
        coefficients = message.array("coefficients", declared, (width,))
        if coefficients is None and t > 0:
            raise BadInputError(
                f"{message.where} has no coefficients, and only the first iteration can do without; give those that "
                "the site got before it sent these sums."
            )
        if coefficients is None and declared.start == "zero":
            coefficients = np.zeros(width)
        information = message.array("information", declared, (width, width))
        if information is None:
            raise BadInputError(
                f"{message.where} has no information matrix; it is called {' or '.join(_NAMES['information'])}."
            )
        _check_symmetric(information, message.where, declared)
        mean, total = message.number("mean"), message.number("sum_y")
        if mean is None and total is not None and count is not None:
            mean = total / count
        steps.append(
            NewtonStep(
                coefficients,
                (information + information.T) / 2,
                message.array("score", declared, (width,)),
                message.array("right", declared, (width,)),
                message.number("deviance"),
                message.number("dispersion"),
                mean,
            )
        )
    if count is None:
        count = _counted(declared, steps[0])
    rounded = max(declared.rounded, _of_type(messages, count))
    return NewtonMessage(
        declared.family, declared.levels, count, tuple(steps), rounded, means=declared.means, outcomes=declared.outcomes
    )


def _of_type(messages: Sequence[_Message], records: int) -> float:
    """Return what sums in arrays of single or half precision are off by, twice; 0 for those in double precision."""
    off = 0.0
    for message in messages:
        coefficients = np.asarray(message.values.get("coefficients", 0))
        for name in ("information", "score", "right", "sums", "agg1", "agg2", "agg3"):
            array = message.values.get(name)
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.dtype.itemsize < 8:
                # The site may have computed in this type, too.
                reach = records + 64 * max(coefficients.size, 1)
                off = max(off, 2 * reach * float(np.finfo(array.dtype).eps) * float(np.abs(array).max(initial=0.0)))
    return off


def _check_symmetric(matrix: np.ndarray, where: str, declared: StatisticsDeclaration) -> None:
    apart = np.abs(matrix - matrix.T)
    if apart.max(initial=0.0) > _SYMMETRIC * np.abs(matrix).max() + declared.rounded:
        i, j = np.unravel_index(int(apart.argmax()), apart.shape)
        raise BadInputError(
            f"{where}: the matrix is not symmetric: {matrix[i, j]:.6g} in row {i + 1}, column {j + 1}, and "
            f"{matrix[j, i]:.6g} the other way around; give all rows and columns in the order of the coefficients."
        )


def _counted(declared: StatisticsDeclaration, step: NewtonStep) -> int:
    """Return the number of records by the first entry of the information, where all weights are the same there."""
    weight = {"binomial": 0.25, "poisson": 1.0, "gaussian": 1.0}[declared.family]
    alike = declared.family == "gaussian" or (step.coefficients is not None and not step.coefficients.any())
    number = float(step.information[0, 0]) / weight
    if declared.means or not alike or abs(number - round(number)) > 0.01 + declared.rounded / weight or number < 0.5:
        raise BadInputError(
            "the messages do not say of how many records they are, and it does not follow from the first; give "
            "'records' in the declaration."
        )
    return round(number)


def _survival(declared: StatisticsDeclaration, messages: Sequence[_Message]) -> RiskSetMessage:
    width, count = len(declared.coefficients), _count(declared, messages)
    times = next((message.values["times"] for message in messages if "times" in message.values), None)
    events = next((message.values["events"] for message in messages if "events" in message.values), None)
    if times is None:
        raise BadInputError("no message has 'times', the event times of the sums; put them into the first.")
    grid = _numbers("times", times)
    if not len(grid) or (np.diff(grid) <= 0).any():
        raise BadInputError("'times' have to be one or more event times, finite and in ascending order, each once.")
    steps, growths = list[RiskStep](), list[float]()
    for t, message in enumerate(messages):
        coefficients = message.array("coefficients", declared, (width - 1,))
        if coefficients is None and t > 0:
            raise BadInputError(f"{message.where} has no coefficients, and only the first iteration can do without.")
        sums = message.array("sums", declared, (len(grid), width, width))
        if sums is None:
            parts = [
                message.array(name, declared, (len(grid), *(width - 1 for _ in range(k))))
                for k, name in enumerate(("agg1", "agg2", "agg3"))
            ]
            if any(part is None for part in parts):
                raise BadInputError(
                    f"{message.where} has no risk-set sums; give 'sums' (time, coefficient, coefficient) with the "
                    "intercept first, or agg1, agg2 and agg3 as v6-cox-ph names them."
                )
            first, second, third = (np.asarray(part) for part in parts)
            sums = np.zeros((len(grid), width, width))
            sums[:, 0, 0], sums[:, 0, 1:], sums[:, 1:, 0], sums[:, 1:, 1:] = first, second, second, third
        for matrix in sums:
            _check_symmetric(matrix, message.where, declared)
        sent = RiskStep(np.zeros(width - 1) if coefficients is None else coefficients, sums)
        step, growth = _on_levels(sent, declared)
        steps.append(step)
        growths.append(growth)
    own = np.zeros(len(grid)) if events is None else _numbers("events", events)
    if len(own) != len(grid) or (own < 0).any():
        raise BadInputError(
            f"'events' are {len(own)} numbers from {own.min(initial=0):g} up for {len(grid)} times; give the site's "
            "events at each, none below 0."
        )
    at_first = steps[0].sums[0, 0, 0]
    if count is None and not steps[0].coefficients.any():
        count = round(float(at_first))
    if count is None:
        raise BadInputError("the messages do not say of how many records they are; give 'records' in the declaration.")
    rounded = max(declared.rounded, _of_type(messages, count))
    if declared.centre is not None or declared.scale is not None:
        # Each sum is then made of several, and taking columns back adds roundings of its own.
        rounded = rounded * max(growths) + _TAKEN_BACK * max(float(np.abs(step.sums).max()) for step in steps)
    return RiskSetMessage(declared.levels, count, grid, own, tuple(steps), rounded)


def _numbers(name: str, value: object) -> np.ndarray:
    """Return a list of finite numbers."""
    try:
        numbers = np.asarray(value, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if not np.isfinite(numbers).all():
        raise BadInputError(f"{name!r} are {shown(value)}, and have to be a list of finite numbers.")
    return numbers


def _on_levels(step: RiskStep, declared: StatisticsDeclaration) -> tuple[RiskStep, float]:
    """Return the sums of columns of 0 and 1, where they are of standardised ones z = (x - centre) / scale.

    The second is by how much a rounding of what was sent may have grown in them.
    """
    width = len(declared.coefficients) - 1
    if declared.centre is None and declared.scale is None:
        return step, 1.0
    centre = np.zeros(width) if declared.centre is None else np.array(declared.centre)
    scale = np.ones(width) if declared.scale is None else np.array(declared.scale)
    if centre.shape != (width,) or scale.shape != (width,) or not (scale > 0).all():
        raise BadInputError(
            f"'centre' and 'scale' have to be {width} numbers, one a coefficient, scales above 0; got {len(centre)} "
            f"and {len(scale)}."
        )
    coefficients = step.coefficients / scale
    back = np.block([[np.ones((1, 1)), np.zeros((1, width))], [centre[:, None], np.diag(scale)]])
    factor = np.exp(centre @ coefficients)
    growth = float(factor * np.abs(back).sum(1).max() ** 2)
    return RiskStep(coefficients, factor * (back @ step.sums @ back.T)), growth


def _tables(declared: StatisticsDeclaration, messages: Sequence[_Message]) -> TablesMessage:
    if not declared.target.categories:
        raise BadInputError("tables have categories; give the target's in the declaration.")
    runs: dict[str, dict[str, Published]] = {"before": {}, "after": {}}
    names = {column.name: column.categories for column in declared.columns}
    names[declared.target.name] = declared.target.categories
    ways = (declared.rounded, declared.freedom, declared.rule)
    for message in messages:
        for run, own in runs.items():
            given = message.values.get(run)
            if given is not None and not isinstance(given, Mapping):
                raise BadInputError(f"{message.where}: {run!r} is {shown(given)}, and has to be a mapping by names.")
            own |= {str(t): Published(names, message.where, str(t), x, *ways) for t, x in (given or {}).items()}
    before, after = runs["before"], runs["after"]
    if not after:
        raise BadInputError("no message has 'after', the tables of the run; 'before' are those of an earlier one.")
    apart = sorted({item.key for item in before.values()} ^ {item.key for item in after.values()}) if before else []
    if apart:
        lacking = next(own.title for run in runs.values() for own in run.values() if own.key == apart[0])
        raise BadInputError(f"{lacking!r} is published in one run alone; give both, or leave it out.")
    counts, figures = {}, {}
    for run, own in runs.items():
        counts[run] = {item.columns: item.counts() for item in own.values() if not item.is_summary}
        figures[run] = {item.key: item.summary() for item in own.values() if item.is_summary}
    records = _count(declared, messages)
    if records is None:
        run = "before" if before else "after"
        known = [float(table.sum()) for table in counts[run].values() if not np.isnan(table).any()]
        known += [item.records for item in figures[run].values() if item is not None and not item.within]
        if not known:
            raise BadInputError(
                "the tables do not say of how many records they are; give 'records' in the declaration."
            )
        records = round(known[0])
    if not 1 <= records <= _MOST_RECORDS:
        raise BadInputError(f"the tables are of {records:,} records, and have to be of 1 to {_MOST_RECORDS:,}.")
    first, changed = (records, declared.changed) if before else (0, records)
    pairs = [(later, figures["before"].get(key)) for key, later in figures["after"].items()]
    summaries = tuple((x, y) for x, y in pairs if x is not None and (y is not None or not before))
    levels = tuple(tuple(range(len(column.categories))) for column in declared.columns)
    nearest = declared.rounding == "nearest"
    return TablesMessage(
        levels,
        first,
        changed,
        **counts,
        base=declared.base,
        least=declared.minimum,
        summaries=summaries,
        nearest=nearest,
    )


def write_statistics(
    folder: str | Path, declaration: Mapping[str, object], iterations: Sequence[Mapping[str, object]]
) -> None:
    """Write messages of federated statistics as ``seepage attack`` reads them, and check that it can.

    Args:
        folder: folder for the files, made if need be.
        declaration: fields of ``StatisticsDeclaration``.
        iterations: what was sent in each iteration, arrays or nested lists by name.

    Raises:
        BadInputError: the messages are not those of the declared design.

    Example:
        >>> import tempfile
        >>> declaration = {
        ...     "columns": [{"name": "sex", "categories": ["f", "m"]}],
        ...     "target": {"name": "ill", "categories": ["no", "yes"]},
        ... }
        >>> sent = {"information": [[1.0, 0.5], [0.5, 0.5]], "score": [0.0, 1.0]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_statistics(folder, declaration, [sent])
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['iteration-000.json', 'statistics.json']
    """
    at = Path(folder)
    at.mkdir(parents=True, exist_ok=True)
    write_whole(at / DECLARATION, json.dumps(declaration, indent=1) + "\n", private=True)
    for k, message in enumerate(iterations):
        whole = {name: value for name, value in message.items() if value is not None}
        text = json.dumps(whole, default=lambda value: np.asarray(value).tolist())
        write_whole(at / f"iteration-{k:03d}.json", text + "\n", private=True)
    read_statistics(at)


class StatisticsMessagesSpec(AttackSpec):
    """An attack on captured messages of federated statistics."""

    setting: ClassVar[str] = "statistics"
    unit: ClassVar[str] = "site"
    repeats: ClassVar[str] = "sites"


def _attack(path: Path, spec: AttackSpec, out: Path, listener: Listener) -> CaptureResult:
    """Read the messages of a folder, and guess the records behind them."""
    declared, message = read_statistics(path)
    schema = declared.table
    check_new(out, (RECONSTRUCTION, RESULTS))
    truth = None if spec.truth is None else Table.read(spec.truth, schema, spec.separator, missing=None)
    records = message.changed if isinstance(message, TablesMessage) else message.records
    if truth is not None and len(truth) != records:
        raise BadInputError(
            f"the truth has {len(truth):,} rows, but the messages are of {records:,}; give the rows of the same site."
        )
    public = None if spec.data is None else Table.read(spec.data, schema, spec.separator, missing=None)
    statistics, _ = attacker_statistics(schema, reference=public)
    shares = None
    if isinstance(schema.target, Discrete):
        shares = np.array(statistics.target.probabilities.tolist())
    knowledge = StatisticsKnowledge(schema, statistics, records, label_shares=shares)
    view = view_of([message])
    part = spec.attacks[0] if spec.attacks else Part(name=_USUAL[declared.protocol])
    seeds = [stream(spec.seed, 0, "starts") % 2**62]
    exposure = RecordsExposure(view, knowledge, spec.seed, seeds, truth, "statistics", METRICS, further=measure_tables)
    about = About(
        "captured statistics",
        declared.protocol,
        f"{declared.family} regression" if declared.protocol == "glm" else declared.protocol,
        lead="What the sums of a site in federated statistics give away of the records behind them.",
        message="the sums of all iterations",
        size="site size",
        threat_model=(
            "The attacker receives the sums. It has the declared design, and the coefficients of every iteration.",
            "Public rows say how frequent categories are." if public is not None else "It holds no public rows.",
        ),
        scales=STATISTICS_SCALES,
        settings={"seed": spec.seed},
    )
    done = StatisticsMessagesSpec.of(attacks=(part,), seed=spec.seed, gate=spec.gate)
    attacked = run_parts(exposure.audit(done, about, knowledge=cast("Mapping[str, Json]", plain(knowledge.describe()))))
    assert exposure.guess is not None
    guess = exposure.guess
    frame = frame_of(schema, guess.cells[0])
    if guess.labels is not None and bool(guess.labels.isfinite().all()):
        alone = Schema.model_construct(columns=(schema.target,), target=schema.target)
        frame = pd.concat([frame, frame_of(alone, guess.labels[0][:, None])], axis=1)
    return CaptureResult(_findings(attacked, guess, schema, part.title), {RECONSTRUCTION: frame})


def _findings(attacked: Attacked, guess: RecordsGuess, schema: Schema, attack: str) -> ReadRecords:
    """Return what was read as title, sentences and figures."""
    cells, proof = guess.cells[0], guess.proofs[0] if guess.proofs else None
    records, read = len(cells), int(cells.isfinite().all(1).sum())
    certified = 0.0 if proof is None else float(proof.cells.all(1).double().mean())
    facts = dict(guess.facts[0]) if isinstance(guess, StatisticsGuess) and guess.facts else {}
    words = [f"{attack} guesses {how_many(read, 'record')} of {records:,}; {percent(certified)} of them are certified."]
    if proof is not None and proof.doubt:
        words.append(f"Nothing is certified: {proof.doubt}.")
    if proof is not None and certified:
        words.append("A certified record is in the table on these conditions: " + " ".join(proof.conditions))
    points = [f"method: {guess.regime[0]}"] if guess.regime else []
    points.append(f"{schema.target.name}, the outcome: guessed beside the columns, and never certified with them")
    if "proved_alone" in facts:
        points.append(
            f"{percent(facts['proved_alone'])} of the records are proved to be the only ones of their pattern"
        )
    plainly = {"records": records, "certified_records": certified, "facts": facts, "method": points[:1]}
    return ReadRecords(attacked, f"{how_many(records, 'record')} behind sums", tuple(words), tuple(points), plainly)


KIND = Kind(
    "messages of federated statistics",
    lambda at: (at / DECLARATION).is_file(),
    "statistics",
    frozenset({"data", "truth", "separator", "seed", "device", "threads", "attacks", "gate"}),
    _attack,
    lambda at, _: read_statistics(at),
    spec=StatisticsMessagesSpec,
)
