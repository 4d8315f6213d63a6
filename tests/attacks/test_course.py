"""The loss along a descent is that of the rows it passes, which shorter descents end at."""

from __future__ import annotations

import torch

from seepage import datasets
from seepage.attacks.horizontal.matching.engine import match
from seepage.attacks.horizontal.matching.matching import Cosine
from seepage.attacks.horizontal.matching.optimise import Descent
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.models.mlp import nn1
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.encoder import Encoder
from seepage.tabular.relaxation import Relaxation
from seepage.wire.horizontal import Knowledge

VICTIMS, RESTARTS, RECORDS = 2, 3, 4


def test_the_course_is_the_loss_of_shorter_descents() -> None:
    data = datasets.load("german")
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float64)
    model = nn1(data.schema)
    model.module.double()
    ran = FedSGD(RECORDS).run(model, data.train, encoder, range(VICTIMS))
    engine, relaxation, labels = match(ran.view, Cosine()), Relaxation(encoder), ran.secret.labels
    generator = torch.Generator().manual_seed(0)
    start = torch.rand(VICTIMS, RESTARTS, RECORDS, encoder.width, generator=generator, dtype=torch.float64)

    def loss_after(steps: int) -> torch.Tensor:
        ended = start if steps == 0 else Descent(iterations=steps).run(engine, relaxation, start, labels).variables
        return engine.loss(relaxation.relax(ended), labels)

    course = Descent(iterations=20).run(engine, relaxation, start, labels).course
    for i, steps in enumerate((0, 17, 19)):
        torch.testing.assert_close(course[..., i], loss_after(steps))
    single = Descent(iterations=1).run(engine, relaxation, start, labels).course
    assert bool((single == course[..., :1]).all())


def test_a_guess_carries_the_middle_course_of_its_restarts() -> None:
    data = datasets.load("german")
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model = nn1(data.schema)
    ran = FedSGD(RECORDS).run(model, data.train, encoder, range(VICTIMS))
    known = Knowledge(data.schema, data.statistics, RECORDS, ran.secret.labels)
    descent = Descent(iterations=30)
    whole = Reconstruction(descent=descent, restarts=RESTARTS)(ran.view, known, range(VICTIMS)).course
    parts = Reconstruction(descent=descent, restarts=RESTARTS, rows_at_once=RECORDS)(ran.view, known, range(VICTIMS))
    assert whole is not None
    assert parts.course is not None
    assert whole.shape == (VICTIMS, 3)
    torch.testing.assert_close(whole, parts.course, rtol=1e-3, atol=1e-4)
    assert bool((whole[:, 0] > whole[:, 2]).all())
