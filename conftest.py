"""What every test, docstring example and documentation block runs under.

seepage itself is not imported here: the shape checks are switched on before its first import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from tests.docs.program import folder_of_program
from tests.processes import HANGS

# Audits that name no number of workers measure in the process itself, in documents' commands too: starting workers,
# which import PyTorch again, takes longer than a test's few measurements. Tests of several workers name their number.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")

# The runner uses a process a core; threads inside each would only fight over them.
torch.set_num_threads(1)

settings.register_profile(
    "checks",
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", parent=settings.get_profile("checks"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "checks"))


# Pages whose blocks run whole audits: `make slow` runs them, and `make test` those of README.md and the other pages.
SLOW_PAGES = {
    *("captured-updates", "defenses", "guard", "hospital", "networks", "report", "settings", "specs", "transcripts"),
    *("grad-inversion", "label-inference", "membership", "published-defenses", "compare", "pipeline"),
    *("three-questions", "quickstart", "CONTRIBUTING"),
    *("split", "vertical", "pooled", "trees"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the blocks of long pages before those that were not asked for are left out."""
    for item in items:
        if item.path.suffix == ".md" and item.path.stem in SLOW_PAGES:
            item.add_marker(pytest.mark.slow)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a test by its bytes no more: a compressed file holds the time, and parallel workers must agree on names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="module")
def document_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One empty folder for all blocks of a document."""
    return tmp_path_factory.mktemp("document")


@pytest.fixture
def in_document_folder(document_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(document_folder)


def run_bash(example: Example) -> str | None:
    # The programs of this environment come first, as after `source .venv/bin/activate`; seepage before them.
    path = os.pathsep.join([str(folder_of_program()), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.parsed],
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANGS,
        check=False,
    )
    return f"exit status {done.returncode} of\n{example.parsed}\n{done.stdout}" if done.returncode else None


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), CodeBlockParser(language="bash", evaluator=run_bash), SkipParser()],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md"],
    fixtures=["in_document_folder"],
).pytest()
