"""Running audits in tests without a report."""

from __future__ import annotations

from seepage.assessment.row import ResultRow
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.setting import Audit


def measured(audit: Audit, store: Store | None = None) -> list[ResultRow]:
    """Return the results of an audit, measured in this process."""
    if store is None:
        with Store(None) as fresh:
            return measured(audit, fresh)
    [runs] = run_audits([audit], store)
    return rows_of(audit, runs)
