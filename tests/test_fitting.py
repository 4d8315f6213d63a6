"""Default parts that cannot act on a network or a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from seepage.auditing import fitting, prepare_all
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.split.spec import SplitSpec
from seepage.settings.units import with_few_leaked

# Only two factors of each layer are trained: no bias of the output, from which labels could be restored.
ADAPTED = """
import torch
from torch import nn

class Adapted(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.first = nn.Parameter(torch.randn(3, inputs))
        self.second = nn.Parameter(torch.zeros(outputs, 3))

    def forward(self, rows):
        return self.base(rows) + rows @ self.first.T @ self.second.T

class Net(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(Adapted(inputs, 16), nn.ReLU(), Adapted(16, outputs))
"""


@pytest.mark.long
def test_a_default_defense_that_cannot_act_is_not_tried_and_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapted.py").write_text(ADAPTED)
    monkeypatch.chdir(tmp_path)
    spec = make_spec(
        dataset="german",
        model="adapted.py:Net",
        batch_sizes=2,
        victims=1,
        restarts=1,
        iterations=2,
        control=False,
        attacks=["inverting_gradients"],
        defenses=["none", {"name": "dp_sgd", "clip_norm": 1.0, "noise_multiplier": 0.01}],
    )
    [audit], reasons = fitting(prepare_all([spec]))
    [name] = reasons
    assert "no output bias" in reasons[name]
    assert audit.not_tried == reasons
    assert [point.defense for point in audit.configurations] == ["none"]
    # One that was named is left for the plan, which refuses it.
    [named], reasons = fitting(prepare_all([spec]), given=["defenses"])
    assert (reasons, named.not_tried) == ({}, {})
    assert len(named.configurations) == 2


def test_the_default_leaks_half_of_few_records_and_a_number_that_is_given_stays() -> None:
    usual = SplitSpec(dataset="german", topology="vanilla")
    for attacked, leaked in ((64, 32), (30, 15), (1, 0), (65, 64)):
        assert with_few_leaked(usual, usual.leaked, attacked).leaked == leaked
    given = usual.model_copy(update={"leaked": 64})
    assert with_few_leaked(given, given.leaked, 30) is given
