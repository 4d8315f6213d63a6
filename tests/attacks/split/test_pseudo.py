"""Attacks of a server that does not know the client's weights, against planted cells and against guessing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from seepage.attacks.split import AdversarialClientAttack, PseudoClientAttack
from seepage.errors import BadInputError
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge
from tests.attacks.split.test_exact import PLAIN, exchange, table

DATA = table(2, rows=700)
OTHERS = DATA.train.rows(range(100, 700))
KNOWN = CutKnowledge(DATA.schema, DATA.statistics, auxiliary=Auxiliary(OTHERS.cells, OTHERS.labels))
_, SEEN = exchange(DATA, PLAIN, records=100)
SHORT: dict[str, Any] = {"client_epochs": 20, "epochs": 20}


def labels_right(guess: CutGuess) -> float:
    return float((guess.labels == SEEN.labels).double().mean())


@pytest.mark.long
@pytest.mark.parametrize("attack", [PseudoClientAttack(**SHORT), AdversarialClientAttack(**SHORT, weight=0.1)])
def test_labels_are_read_without_the_client_s_weights(attack: PseudoClientAttack) -> None:
    guess = attack(SEEN.view, KNOWN, seeds=[0])
    assert labels_right(guess) > 0.95
    again = attack(SEEN.view, KNOWN, seeds=[0])
    assert torch.equal(again.cells, guess.cells)
    commonest = float((SEEN.cells[:, 0, None] == SEEN.cells[:, 0]).double().mean(0).max())
    assert float((guess.cells[:, 0] == SEEN.cells[:, 0]).double().mean()) > commonest - 0.1
    # No weight of the client's part is looked at: another client's part changes nothing.
    other = exchange(DATA, replace(PLAIN, epochs=1), records=4)[0].client
    blind = replace(SEEN.view, model=SEEN.view.model.with_client(other))
    assert torch.equal(attack(blind, KNOWN, seeds=[0]).cells, guess.cells)


@pytest.mark.long
def test_the_adversary_changes_the_pseudo_client() -> None:
    plain, pressed = (
        attack(SEEN.view, KNOWN, seeds=[0]).label_chances
        for attack in (PseudoClientAttack(**SHORT), AdversarialClientAttack(**SHORT, weight=5.0))
    )
    assert plain is not None
    assert pressed is not None
    assert not torch.equal(plain, pressed)


def test_what_they_cannot_use_is_refused() -> None:
    with pytest.raises(BadInputError, match="the attacker holds none; grant some"):
        PseudoClientAttack()(SEEN.view, CutKnowledge(DATA.schema, DATA.statistics))
    with pytest.raises(BadInputError, match="a number from 0 up, got weight=-1"):
        AdversarialClientAttack(weight=-1)
    with pytest.raises(BadInputError, match="client_epochs is a whole number from 1 up"):
        PseudoClientAttack(client_epochs=0)
    with pytest.raises(BadInputError, match="'pcat' needs auxiliary rows"):
        SplitAudit(SplitSpec.of(private_columns=["a"], attacks=["pcat"], auxiliary=0), DATA)


def test_fsha_is_marked_as_an_active_attack_that_only_listens_here() -> None:
    audit = SplitAudit(SplitSpec.of(private_columns=["a"], attacks=["fsha", "exact"]), DATA)
    assert audit.about.marks == {"fsha": "active in its paper, passive here"}
