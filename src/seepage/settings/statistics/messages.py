"""Messages of federated statistics from the files of a folder, as a site of the declared design would send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seepage.captures.statistics import (
    DECLARATION,
    MOST_RECORDS,
    NAMES,
    SentSums,
    StatisticsDeclaration,
    read_sums,
    shown,
)
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.settings.statistics.published import Published
from seepage.wire.statistics import (
    NewtonMessage,
    NewtonStep,
    RiskSetMessage,
    RiskStep,
    StatisticsMessage,
    TablesMessage,
)

# Share by which the two halves of a matrix may differ, from the order in which a site adds up.
_SYMMETRIC = 1e-9
# Share of the largest sum by which those of standardised columns may be off once they are taken back.
_TAKEN_BACK = 2.0**-40


def read_statistics(folder: Path) -> tuple[StatisticsDeclaration, StatisticsMessage]:
    """Return the declaration of a folder, and its messages of all iterations as one.

    Raises:
        BadInputError: a file is damaged, or the messages are not those of the declared design.
    """
    declared, messages = read_sums(folder)
    if declared.protocol == "table":
        return declared, _tables(declared, messages)
    return declared, _survival(declared, messages) if declared.protocol == "cox" else _newton(declared, messages)


def _count(declared: StatisticsDeclaration, messages: Sequence[SentSums]) -> int | None:
    """Return the number of records; all messages have to be of as many."""
    count, where = declared.records, "the declaration"
    for message in messages:
        records = message.number("records")
        if records is None:
            continue
        if count is not None and records != count:
            raise BadInputError(
                f"{message.where} is of {records:g} records, but {where} says {count:,}: rows joined or left between "
                "them, so that they are not sums of one table; give the iterations of one fit on the same rows."
            )
        if records != round(records) or not 1 <= records <= MOST_RECORDS:
            raise BadInputError(
                f"{message.where} is of {records:g} records, which is no whole number from 1 to {MOST_RECORDS:,}."
            )
        count, where = int(records), message.where
    return count


def _newton(declared: StatisticsDeclaration, messages: Sequence[SentSums]) -> NewtonMessage:
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
                f"{message.where} has no information matrix; it is called {' or '.join(NAMES['information'])}."
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


def _of_type(messages: Sequence[SentSums], records: int) -> float:
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


def _survival(declared: StatisticsDeclaration, messages: Sequence[SentSums]) -> RiskSetMessage:
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
    by_time = np.zeros(len(grid)) if events is None else _numbers("events", events)
    if len(by_time) != len(grid) or (by_time < 0).any():
        raise BadInputError(
            f"'events' are {len(by_time)} numbers from {by_time.min(initial=0):g} up for {len(grid)} times; give the "
            "site's events at each, none below 0."
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
    return RiskSetMessage(declared.levels, count, grid, by_time, tuple(steps), rounded)


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


def _tables(declared: StatisticsDeclaration, messages: Sequence[SentSums]) -> TablesMessage:
    if not declared.target.categories:
        raise BadInputError("tables have categories; give the target's in the declaration.")
    runs: dict[str, dict[str, Published]] = {"before": {}, "after": {}}
    names = {column.name: column.categories for column in declared.columns}
    names[declared.target.name] = declared.target.categories
    ways = (declared.rounded, declared.freedom, declared.rule)
    for message in messages:
        for run, tables in runs.items():
            given = message.values.get(run)
            if given is not None and not isinstance(given, Mapping):
                raise BadInputError(f"{message.where}: {run!r} is {shown(given)}, and has to be a mapping by names.")
            tables |= {str(t): Published(names, message.where, str(t), x, *ways) for t, x in (given or {}).items()}
    before, after = runs["before"], runs["after"]
    if not after:
        raise BadInputError("no message has 'after', the tables of the run; 'before' are those of an earlier one.")
    apart = sorted({item.key for item in before.values()} ^ {item.key for item in after.values()}) if before else []
    if apart:
        lacking = next(table.title for run in runs.values() for table in run.values() if table.key == apart[0])
        raise BadInputError(f"{lacking!r} is published in one run alone; give both, or leave it out.")
    counts, figures = {}, {}
    for run, tables in runs.items():
        counts[run] = {item.columns: item.counts() for item in tables.values() if not item.is_summary}
        figures[run] = {item.key: item.summary() for item in tables.values() if item.is_summary}
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
    if not 1 <= records <= MOST_RECORDS:
        raise BadInputError(f"the tables are of {records:,} records, and have to be of 1 to {MOST_RECORDS:,}.")
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
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / DECLARATION, json.dumps(declaration, indent=1) + "\n", private=True)
    for k, message in enumerate(iterations):
        whole = {name: value for name, value in message.items() if value is not None}
        text = json.dumps(whole, default=lambda value: np.asarray(value).tolist())
        write_whole(place / f"iteration-{k:03d}.json", text + "\n", private=True)
    read_statistics(place)
