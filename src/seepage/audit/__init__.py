"""An audit: what to do (spec), doing it (run), what came out (results) and where it came from."""

from seepage.audit.document import make_specs, read_document, read_text_document
from seepage.audit.examples import Cell, Example, read_examples, write_examples
from seepage.audit.files import write_whole
from seepage.audit.mistakes import DocumentError
from seepage.audit.preset import presets, read_preset
from seepage.audit.provenance import check_folder, provenance, write_provenance
from seepage.audit.results import Row, as_csv, rows, write_results
from seepage.audit.run import Listener, Outcome, Run, check_audit, held_runs, run_audit
from seepage.audit.spec import AuditSpec, Gate, Part, make_spec
from seepage.audit.store import Store
from seepage.audit.subject import Subject, prepare
from seepage.audit.tree import read_text

__all__ = [
    "AuditSpec",
    "Cell",
    "DocumentError",
    "Example",
    "Gate",
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
    "make_specs",
    "prepare",
    "presets",
    "provenance",
    "read_document",
    "read_examples",
    "read_preset",
    "read_text",
    "read_text_document",
    "rows",
    "run_audit",
    "write_examples",
    "write_provenance",
    "write_results",
    "write_whole",
]
