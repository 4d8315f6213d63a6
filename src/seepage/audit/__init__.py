"""An audit: what to do (spec), doing it (run), what came out (results) and where it came from."""

from seepage.audit.captured import (
    Capture,
    Description,
    Encoding,
    capture,
    encoding_of,
    load_capture,
    read_description,
    save_capture,
)
from seepage.audit.document import make_specs, read_document, read_text_document
from seepage.audit.examples import Cell, Example, read_examples, write_examples
from seepage.audit.files import make_private_folder, write_whole
from seepage.audit.mistakes import DocumentError
from seepage.audit.network import make_model
from seepage.audit.preset import presets, read_preset
from seepage.audit.provenance import check_folder, provenance, write_provenance
from seepage.audit.recovery import Recovered, check_new, known_statistics, recover, write_recovered
from seepage.audit.results import Row, as_csv, rows, write_results
from seepage.audit.run import Listener, Outcome, Run, check_audit, held_runs, run_audit
from seepage.audit.seeds import stream
from seepage.audit.spec import AuditSpec, Gate, Part, make_spec
from seepage.audit.starter import starter
from seepage.audit.store import Store
from seepage.audit.subject import Subject, prepare
from seepage.audit.tree import read_text

__all__ = [
    "AuditSpec",
    "Capture",
    "Cell",
    "Description",
    "DocumentError",
    "Encoding",
    "Example",
    "Gate",
    "Listener",
    "Outcome",
    "Part",
    "Recovered",
    "Row",
    "Run",
    "Store",
    "Subject",
    "as_csv",
    "capture",
    "check_audit",
    "check_folder",
    "check_new",
    "encoding_of",
    "held_runs",
    "known_statistics",
    "load_capture",
    "make_model",
    "make_private_folder",
    "make_spec",
    "make_specs",
    "prepare",
    "presets",
    "provenance",
    "read_description",
    "read_document",
    "read_examples",
    "read_preset",
    "read_text",
    "read_text_document",
    "recover",
    "rows",
    "run_audit",
    "save_capture",
    "starter",
    "stream",
    "write_examples",
    "write_provenance",
    "write_recovered",
    "write_results",
    "write_whole",
]
