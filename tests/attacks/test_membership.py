"""Members are told from non-members by the message, less so behind noise, and not at all where it carries nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seepage.assessment.measurement import Measurement
from seepage.assessment.membership import membership_figures
from seepage.errors import BadInputError
from seepage.settings.horizontal.audit import MEMBERSHIP, HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare


def figures_of(swapped: bool = False, **values: Any) -> dict[str, float]:
    spec = make_spec(
        **{"dataset": "german", "model": "nn1", "batch_sizes": 8, "victims": 8, "non_members": 200, **values}
    )
    audit = HorizontalAudit(spec, prepare(spec), swapped)
    [part] = [part for part in audit.parts if part.label == MEMBERSHIP]
    outcome = audit.expose(audit.configurations[0], range(8)).measure(part)
    return {one.metric: float(one.values.mean()) for one in outcome.measured if isinstance(one, Measurement)}


def test_members_are_told_from_others_and_less_so_behind_noise_and_in_large_batches() -> None:
    plain, large = figures_of(), figures_of(batch_sizes=64)
    noisy = figures_of(defenses="dp_sgd:{clip_norm: 1.0, noise_multiplier: 30.0}")
    assert plain["membership_auc"] > 0.75
    assert plain["membership_auc"] > large["membership_auc"] > 0.5
    assert abs(noisy["membership_auc"] - 0.5) < 0.12
    assert plain["membership_tpr"] > noisy["membership_tpr"]


def test_a_single_record_is_always_told_from_others() -> None:
    assert figures_of(batch_sizes=1) == {"membership_auc": 1.0, "membership_tpr": 1.0}


def test_the_message_of_other_records_tells_nothing() -> None:
    assert abs(figures_of(swapped=True)["membership_auc"] - 0.5) < 0.12


def test_local_training_is_tested_too() -> None:
    assert figures_of(protocol="fedavg", protocol_options={"epochs": 3})["membership_auc"] > 0.7


def test_the_rate_allows_a_thousandth_of_the_others() -> None:
    others = torch.arange(2000.0)[None]
    # Two of 2,000 may be above: 1998 and 1999 are, 1997 is not.
    found = membership_figures(torch.tensor([[1996.0, 1997.0, 1997.5, 3000.0]]), others)
    assert found[1].values.tolist() == [0.5]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"training": {"attacked_rounds": 2, "clients": 2, "records": 8}}, "several rounds are attacked"),
        ({"batch_sizes": 995}, "needs records beside the 995 of a message"),
        ({"non_members": -1}, "non_members"),
    ],
)
def test_where_there_is_nothing_to_test_it_says_so(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        figures_of(**values)
