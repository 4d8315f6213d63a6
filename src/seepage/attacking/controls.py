"""The negative control of captures: attacks run again on exchanged messages, which hold nothing of what is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from seepage.assessment.measurement import Measurement
from seepage.attacking.run import Attacked, run_parts, several
from seepage.errors import BadInputError, one_line
from seepage.settings.captured import CapturedAudit, CapturedExposure, CapturedSpec, RecordsExposure
from seepage.settings.setting import Progress
from seepage.settings.units import CONTROL_UNITS
from seepage.tabular.statistics import partial_statistics

VARIANT = "negative control"
_FEWEST = 2
_SWITCHED_OFF = "It was switched off."

Started = Callable[[str], "Progress | None"]


def with_control(attacked: Attacked, spec: CapturedSpec, started: Started | None = None) -> Attacked:
    """Return the results of one capture beside those of the attacks that ran, on messages exchanged among its records.

    Each record is a unit of the control. Where there are no two messages, the audit says so in place of a control.
    """
    audit = attacked.audit
    try:
        if not spec.control:
            raise BadInputError(_SWITCHED_OFF)
        exposure = audit.exposure.swapped()
    except BadInputError as error:
        audit.no_negative = str(error)
        return attacked
    attacks = tuple(run.part.part for run in attacked.runs if run.is_attack)
    control = CapturedAudit(spec.model_copy(update={"attacks": attacks, "gate": None}), exposure)
    control.spec = control.spec.model_copy(update={"variant": VARIANT})
    results = run_parts(control, None if started is None else lambda name: started(f"{VARIANT}, {name}"))
    runs = []
    for run in results.runs:
        measured = [_of_members(figure) for figure in run.measured if figure.clusters is not None]
        control.captured = max([control.captured, *(len(figure.values) for figure in measured)])
        runs.append(replace(run, measured=measured, evidence=None))
    units = tuple(range(control.captured))
    return replace(attacked, negative=Attacked(control, tuple(replace(run, units=units) for run in runs)))


def _of_members(figure: Measurement) -> Measurement:
    """Return a figure of one training as one of its records."""
    [members] = figure.clusters or (figure.values,)
    return replace(figure, values=members, clusters=None)


def with_controls(
    attacked: Attacked, captures: Mapping[str, Attacked], spec: CapturedSpec, started: Started | None = None
) -> Attacked:
    """Return the results of several updates beside those of attacks on messages exchanged among clients.

    Args:
        attacked: results of all updates.
        captures: results of one scored update a client, the units of the control.
    """
    try:
        if not spec.control:
            raise BadInputError(_SWITCHED_OFF)
        swapped = swapped_among({client: capture.audit.exposure for client, capture in captures.items()})
        controls = []
        for client, exposure in swapped.items():
            if started is not None:
                started(f"{VARIANT}, client {client}")
            controls.append(run_parts(CapturedAudit(captures[client].audit.spec, exposure)))
    # An attack may fail in any way on a message that is not of the records that it knows of.
    except Exception as error:
        attacked.audit.no_negative = str(error) if isinstance(error, BadInputError) else one_line(error)
        return attacked
    named = attacked.audit.spec.model_copy(update={"variant": VARIANT, "gate": None})
    return replace(attacked, negative=several(attacked.audit.about.dataset, named, controls, {}))


def swapped_among(exposures: Mapping[str, CapturedExposure]) -> dict[str, RecordsExposure]:
    """Return the exposures of some clients, each with the message of another one: nothing of its own is left in it.

    What the attacker knows and guesses stays with the client, so that an attack reads as much as before only where it
    does not read the message. Clients are exchanged whose messages have one form: number of records, columns, defense.

    Raises:
        BadInputError: fewer than two clients have such messages.
    """
    scored = {
        client: exposure
        for client, exposure in exposures.items()
        if isinstance(exposure, RecordsExposure) and exposure.truth is not None
    }
    names, swapped = [*scored], dict[str, RecordsExposure]()
    for place, name in enumerate(names):
        others = [
            scored[other] for other in (*names[place + 1 :], *names[:place]) if _alike(scored[name], scored[other])
        ]
        if others and len(swapped) < CONTROL_UNITS:
            swapped[name] = _with_message(scored[name], others)
    if len(swapped) < _FEWEST:
        raise BadInputError(
            "Messages are exchanged among clients whose records are known, if they are of as many records; there are "
            f"{len(swapped)} such clients."
        )
    return swapped


def _with_message(exposure: RecordsExposure, others: Sequence[RecordsExposure]) -> RecordsExposure:
    """Return an exposure with the message of the first of some others, whose rows tell baselines what rows are like."""
    schema, sender = exposure.schema, others[0]
    truths = [other.truth for other in others if other.truth is not None]
    cells = torch.cat([torch.cat([truth.cells, truth.labels[:, None]], dim=1) for truth in truths])
    columns = zip((*schema.names, schema.target.name), cells.unbind(1), strict=True)
    # Moments of a batch are a part of the message.
    knowledge = replace(exposure.knowledge, batch_statistics=sender.knowledge.batch_statistics)
    return replace(exposure, view=sender.view, knowledge=knowledge, exchanged=partial_statistics(schema, dict(columns)))


def _alike(first: RecordsExposure, second: RecordsExposure) -> bool:
    """Return whether two messages are of one form, and of other records."""
    known, other, rows, others = first.knowledge, second.knowledge, first.truth, second.truth
    assert rows is not None
    assert others is not None
    return (
        type(first.view) is type(second.view)
        and (known.schema, known.batch_size, known.defense) == (other.schema, other.batch_size, other.defense)
        and (known.labels is None) == (other.labels is None)
        and torch.equal(known.statistics.mean, other.statistics.mean)
        and torch.equal(known.statistics.std, other.statistics.std)
        and sorted(rows.cells.tolist()) != sorted(others.cells.tolist())
    )
