"""Transcripts of vertical training: columns behind features, and labels behind the gradients that come back."""

from __future__ import annotations

from typing import ClassVar

from seepage.settings.activations import ActivationExposure
from seepage.settings.transcript_tables import TranscriptSpec
from seepage.settings.transcripts import transcript_reader


class VerticalTranscriptSpec(TranscriptSpec):
    """An attack on a transcript of vertical training."""

    setting: ClassVar[str] = "vertical"


READER = transcript_reader(VerticalTranscriptSpec, ActivationExposure)
