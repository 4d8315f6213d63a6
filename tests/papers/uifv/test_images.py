from __future__ import annotations

import pytest
import torch
from torch import nn

from seepage.errors import BadInputError
from seepage.papers.uifv.images import Convolutions, ImageBottom, ImageInverse, ImageTop, vertical_images
from seepage.tabular.partition import Partition
from tests.attacks.vertical.parts import table
from tests.papers.uifv.parts import images

HALF = (3, 8, 8)


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (lambda: nn.Conv2d(3, 5, 3, padding=1), (8, 4)),
        (lambda: nn.ConvTranspose2d(3, 5, 3, stride=2, padding=1, output_padding=1), (16, 8)),
    ],
)
def test_every_network_has_a_convolution_of_its_own(make, places) -> None:
    several = Convolutions(make, seeds=[3, 4])
    drawn = torch.randn(2, 7, 3, 8, 4, generator=torch.Generator().manual_seed(0))
    found = several(drawn)
    assert found.shape == (2, 7, 5, *places)
    for k in range(2):
        one = make()
        one.weight.data, one.bias.data = several.weights[k].detach(), several.biases[k].detach()
        torch.testing.assert_close(found[k], one(drawn[k]), rtol=1e-4, atol=1e-5)
    assert not torch.equal(several.weights[0], several.weights[1])
    found[0].sum().backward()
    assert several.weights.grad is not None
    assert float(several.weights.grad[1].abs().max()) == 0


def test_networks_fit_each_other() -> None:
    rows = torch.randn(2, 6, 192, generator=torch.Generator().manual_seed(0))
    sent = ImageBottom(HALF, [0, 1])(rows)
    assert sent.shape == (2, 6, 64 * 4 * 4)
    assert float(sent.min().detach()) >= 0
    assert ImageTop(HALF, 2, 10, [0, 1])(torch.cat([sent, sent], dim=-1)).shape == (2, 6, 10)
    for layers in (1, 2, 3):
        assert ImageInverse(HALF, layers, [0, 1])(sent).shape == rows.shape


def test_many_images_are_taken_in_parts() -> None:
    rows = torch.randn(1, 300, 192, generator=torch.Generator().manual_seed(0))
    bottom = ImageBottom(HALF, [0])
    with torch.no_grad():
        parts = bottom(rows)
    torch.testing.assert_close(parts, bottom(rows).detach())


def test_features_lie_where_the_parties_are_in_the_image() -> None:
    top = ImageTop(HALF, 2, 1, [0])
    sent = torch.zeros(1, 1, 2 * 64 * 4 * 4)
    # A place at the right edge of the left half and one at the left edge of the right half are neighbours.
    left, right = sent.clone(), sent.clone()
    left.view(2, 64, 4, 4)[0, 0, 1, 3] = 1
    right.view(2, 64, 4, 4)[1, 0, 1, 0] = 1
    whole = [torch.cat(one.unflatten(-1, top.inputs).unbind(2), dim=-1)[0, 0, 0] for one in (left, right)]
    assert [one.nonzero().tolist() for one in whole] == [[[1, 3]], [[1, 4]]]


def test_parties_hold_equal_parts_of_the_image() -> None:
    data = images(rows=4)
    uneven = Partition(data.schema, (tuple(range(100)), tuple(range(100, 384))))
    with pytest.raises(BadInputError, match="parties hold 100 or 284"):
        vertical_images(uneven, [0], HALF)
    with pytest.raises(BadInputError, match="parties of 192 numbers"):
        vertical_images(Partition(table(50).schema, ((0, 1), (2, 3, 4))), [0], HALF)
