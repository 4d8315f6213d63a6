"""An audit: what to do (spec), doing it (runner), what came out (results) and where it came from."""

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
from seepage.audit.evidence import Evidence
from seepage.audit.examples import Cell, Example, examples
from seepage.audit.files import make_folder, write_whole
from seepage.audit.forecast import Forecast, forecast
from seepage.audit.mistakes import DocumentError
from seepage.audit.network import make_model
from seepage.audit.preset import presets, read_preset
from seepage.audit.provenance import (
    asked_before,
    check_folder,
    check_study_folder,
    commit,
    provenance,
    study_provenance,
    write_provenance,
)
from seepage.audit.recovery import Recovered, check_new, known_statistics, recover, write_recovered
from seepage.audit.results import Row, as_csv, rows, write_results
from seepage.audit.runner import Listener, Outcome, Plan, Run, held_runs, make_plan, run_audits
from seepage.audit.seeds import stream
from seepage.audit.spec import AuditSpec, Gate, Part, make_spec
from seepage.audit.starter import starter
from seepage.audit.store import Store
from seepage.audit.studies import STUDIES, StudyKind, make_study, study_kind
from seepage.audit.study import Answer, Scale, Study, StudyOutcome, StudyPart, StudyRun, run_study, study_rows
from seepage.audit.study_spec import StudySpec
from seepage.audit.subject import Subject, Subjects, keep_networks, prepare
from seepage.audit.tasks import learnt_rows, task_rows
from seepage.audit.tree import read_text
from seepage.audit.tuning import Tuned, swept, tuned
from seepage.audit.utility import Recipe

__all__ = [
    "STUDIES",
    "Answer",
    "AuditSpec",
    "Capture",
    "Cell",
    "Description",
    "DocumentError",
    "Encoding",
    "Evidence",
    "Example",
    "Forecast",
    "Gate",
    "Listener",
    "Outcome",
    "Part",
    "Plan",
    "Recipe",
    "Recovered",
    "Row",
    "Run",
    "Scale",
    "Store",
    "Study",
    "StudyKind",
    "StudyOutcome",
    "StudyPart",
    "StudyRun",
    "StudySpec",
    "Subject",
    "Subjects",
    "Tuned",
    "as_csv",
    "asked_before",
    "capture",
    "check_folder",
    "check_new",
    "check_study_folder",
    "commit",
    "encoding_of",
    "examples",
    "forecast",
    "held_runs",
    "keep_networks",
    "known_statistics",
    "learnt_rows",
    "load_capture",
    "make_folder",
    "make_model",
    "make_plan",
    "make_spec",
    "make_specs",
    "make_study",
    "prepare",
    "presets",
    "provenance",
    "read_description",
    "read_document",
    "read_preset",
    "read_text",
    "read_text_document",
    "recover",
    "rows",
    "run_audits",
    "run_study",
    "save_capture",
    "starter",
    "stream",
    "study_kind",
    "study_provenance",
    "study_rows",
    "swept",
    "task_rows",
    "tuned",
    "write_provenance",
    "write_recovered",
    "write_results",
    "write_whole",
]
