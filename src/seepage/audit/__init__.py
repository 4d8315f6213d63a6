"""An audit: what to do (spec), doing it (run), what came out (results) and where it came from."""

from seepage.audit.examples import Cell, Example, read_examples, write_examples
from seepage.audit.files import write_whole
from seepage.audit.provenance import check_folder, provenance, write_provenance
from seepage.audit.results import Row, as_csv, rows, write_results
from seepage.audit.run import Listener, Outcome, Run, check_audit, held_runs, run_audit
from seepage.audit.spec import AuditSpec, Part, make_spec
from seepage.audit.store import Store
from seepage.audit.subject import Subject, prepare

__all__ = [
    "AuditSpec",
    "Cell",
    "Example",
    "Listener",
    "Outcome",
    "Part",
    "Row",
    "Run",
    "Store",
    "Subject",
    "as_csv",
    "check_audit",
    "check_folder",
    "held_runs",
    "make_spec",
    "prepare",
    "provenance",
    "read_examples",
    "rows",
    "run_audit",
    "write_examples",
    "write_provenance",
    "write_results",
    "write_whole",
]
