"""The updates of one client in several rounds, attacked together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seepage import registry
from seepage.attacking.findings import ClientFinding, counts_of
from seepage.attacking.run import run_parts
from seepage.attacking.updates import Recovered, doubts
from seepage.attacks.horizontal.matching.over_rounds import OverRounds
from seepage.attacks.horizontal.matching.rounds import pooled
from seepage.seeds import stream
from seepage.settings.captured import CapturedAudit, RecordsExposure
from seepage.settings.part import Part
from seepage.tabular.table import Table
from seepage.wire.horizontal import Knowledge, RecordsGuess, RoundsView

_LINKED = "rounds attacked one by one, equal records linked"
_MATCHED = "all rounds matched together, as of the same records"


def linked(
    client: str, attacked: Sequence[Recovered], part: Part, holds: int | None, rows: Table | None, seed: int
) -> ClientFinding:
    """Return what the updates of a client give away together.

    Where all rounds have the same records, an attack that matches gradients matches them together; else equal records
    are linked, as ``attacks.horizontal.matching.rounds`` does.

    Args:
        holds: number of records that the client holds; None where it is not known.
        rows: the client's own rows, which say how many it holds, and score the guess.
    """
    why = _unlinkable(attacked)
    largest = max((recovered.number for recovered in attacked), default=0)
    if not why and holds is not None and holds < largest:
        why = f"the client holds {holds} records, but an update is of {largest}"
    if why:
        return ClientFinding(client, why=f"not linked: {why}")
    first, numbers = attacked[0], [recovered.number for recovered in attacked]
    rows = None if rows is None or len(rows) < largest else rows
    known_total = holds if rows is None else len(rows)
    total = sum(numbers) if known_total is None else known_total
    knowledge = Knowledge(first.schema, first.statistics, total, defense=first.capture.about.known(first.number))
    view = RoundsView(tuple(recovered.capture.view for recovered in attacked), largest)
    together = OverRounds(registry.attacks.of("horizontal").create(part.name, **part.options))
    same = known_total == largest and set(numbers) == {largest}
    method = _MATCHED if same and together.together(view, knowledge) else _LINKED

    def attack(view: RoundsView, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        if method == _MATCHED:
            return together(view, knowledge, seeds)
        return pooled([recovered.guess for recovered in attacked], knowledge)

    audit, starts = first.attacked.audit, [stream(seed, 0, "starts")]
    about, stated = replace(audit.about, settings={}), first.capture.about.defense
    exposure = RecordsExposure(
        view, knowledge, seed, starts, about, part.name, truth=rows, attack=attack, stated=stated
    )
    score, guess = run_parts(CapturedAudit(audit.spec, exposure)).row(), exposure.guess
    assert guess is not None
    records, cells, estimated = counts_of(guess, doubts(first.schema, first.statistics, guess)[0])
    if method == _LINKED:
        # Records that no round has shown are filled by the marginals, which is no estimate from an update.
        estimated = min(estimated, sum(counts_of(recovered.guess, recovered.certainty)[2] for recovered in attacked))
    return ClientFinding(client, len(attacked), total, records, cells, estimated, method, score)


def _unlinkable(attacked: Sequence[Recovered]) -> str:
    """Return why rounds cannot be linked; empty where they can."""
    if len(attacked) < 2:
        return f"{len(attacked)} of the client's updates could be attacked"
    if any(recovered.capture.about.clients > 1 for recovered in attacked):
        return "an update is the mean over several clients"
    if len({recovered.capture.about.protocol for recovered in attacked}) > 1:
        return "the updates are of two protocols"
    if any(recovered.schema != attacked[0].schema for recovered in attacked):
        return "the client encoded its rows in several ways"
    if any((recovered.guess.labels is None) != (attacked[0].guess.labels is None) for recovered in attacked):
        return "labels are known in some rounds only"
    return ""
