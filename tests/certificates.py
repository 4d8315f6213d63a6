"""Checking certificates as a verifier does who brings the rest."""

from __future__ import annotations

from pathlib import Path

from seepage import verify
from seepage.attacks.horizontal.exact.certifying import certificate_files
from seepage.attacks.horizontal.exact.proving import declaration
from seepage.captures.captured import load_capture
from seepage.models.model import Model
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import Knowledge, View


def checked(
    path: Path, sent: View | Path, model: Model, schema: Schema, statistics: Statistics, records: int
) -> verify.CheckedCertificate:
    """Return the verdict on a certificate of a view, or of a file with the verifier's recipe in it.

    Args:
        path: file of the certificate.
        sent: message as the verifier received it.
        model, schema, statistics, records: what the verifier knows of it.

    Raises:
        RefusedError: the certificate is refused.
    """
    view = load_capture(sent, model).view if isinstance(sent, Path) else sent
    file, opened = certificate_files(path)
    message = {name: part[0] for name, part in view.message.items()}
    declared = declaration(view, Knowledge(schema, statistics, records))
    classes = schema.target.width if isinstance(schema.target, Discrete) else 0
    shown = opened if opened.exists() else None
    return verify.check(file, shown, model.module, model.parameters, message, declared, classes)
