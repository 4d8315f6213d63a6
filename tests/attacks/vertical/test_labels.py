from __future__ import annotations

import pytest
import torch
from sklearn.metrics import roc_auc_score

from seepage.attacks.vertical import completion_scores, gradient_scores, left_out, raw_scores
from seepage.errors import BadInputError
from tests.attacks.vertical.parts import setting

HERE = setting()
VIEW = HERE.protocol.passive(HERE.trained, 1)
TRUE = HERE.trained.rows.labels
KNOWN = torch.stack([torch.arange(60), torch.arange(100, 160)])
SOUGHT = TRUE.gather(1, KNOWN)
REST = left_out(VIEW, KNOWN)


def test_labels_are_told_from_features_and_from_what_comes_back() -> None:
    found = {}
    for score in (completion_scores, gradient_scores, raw_scores):
        said = score(VIEW, KNOWN, SOUGHT)
        found[score.__name__] = [
            roc_auc_score(TRUE[k][REST[k]].numpy(), said[k][REST[k]].numpy()) for k in range(len(TRUE))
        ]
    assert min(found["completion_scores"]) > 0.65
    # The derivative by a feature is the one by the logit, whose sign is the label, times a direction of the record.
    assert min(found["gradient_scores"]) > 0.95
    assert min(found["raw_scores"]) > 0.55


def test_the_gradients_that_came_back_are_of_each_record_s_own_loss() -> None:
    once = HERE.protocol.__class__(epochs=1, batch_size=500)
    trained = once.train(HERE.trained.model, HERE.trained.rows, [0, 1])
    view = once.passive(trained, 1)
    model = HERE.trained.model
    features = [one.detach().requires_grad_(True) for one in model.features(model.encoded(HERE.trained.rows.cells))]
    logits = model.outputs(features)[..., 0]
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, TRUE.float(), reduction="none")
    [expected] = torch.autograd.grad(losses.sum(), [features[1]])
    torch.testing.assert_close(view.gradient, expected, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(view.features, features[1].detach(), rtol=1e-4, atol=1e-5)


def test_known_records_are_left_out_and_must_differ() -> None:
    assert REST.sum(1).tolist() == [440, 440]
    assert not bool(REST[1, 100:160].any())
    for score in (completion_scores, gradient_scores):
        with pytest.raises(BadInputError, match="known labels of a training are the same"):
            score(VIEW, KNOWN, torch.ones_like(SOUGHT))
    with pytest.raises(BadInputError, match="attacker itself"):
        HERE.protocol.passive(HERE.trained, 0)
