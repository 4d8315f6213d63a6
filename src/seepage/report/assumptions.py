"""The threat model of an audit and everything the attacker was granted, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.audit import AuditSpec, Row, Subject
from seepage.report.text import clean


def assumptions(spec: AuditSpec, subject: Subject, rows: Sequence[Row]) -> list[str]:
    """Return one sentence an assumption, the threat model first; table texts in them are printable lines."""
    facts = [
        "the attacker is an honest-but-curious server that sees one client's gradient of one batch and the model",
    ]
    granted = next((row["knowledge"] for row in rows if row["seconds_per_victim"] is not None), None)
    if granted is not None:
        told = ", ".join(
            f"{clean(name, 40).replace('_', ' ')} ({clean(value, 80)})"
            for name, value in granted.items()
            if name not in ("labels", "batch_size")
        )
        labels = "the true labels" if granted["labels"] == "true" else "no labels: it restores them from the gradient"
        facts.append(f"it is granted: {told}, batch size; {labels}")
    if spec.profile != "default":
        facts.append(f"attacks as in the official implementations (profile {spec.profile}), not the strongest known")
    return facts + [clean(note, 200) for note in subject.dataset.notes]
