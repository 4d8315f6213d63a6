"""Texts and graphs from files in their publishers' formats, on small planted ones and, where they are at hand, real."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from seepage import registry
from seepage.errors import BadInputError
from seepage.papers.property.graphs import amazon_products, cora
from seepage.papers.property.reviews import clothing_reviews, yelp_health

REAL = os.environ.get("SEEPAGE_DATA")


def test_clothing_reviews_are_read(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "Review Text": ["soft dress"] * 5 + ["nice top", None],
            "Rating": [5, 4, 3, 1, 5, 5, 5],
            "Department Name": ["Dresses"] * 5 + ["Tops"] * 2,
        }
    )
    frame.to_parquet(tmp_path / "womens_reviews.parquet.brotli", compression="brotli")
    made = clothing_reviews(tmp_path, length=4, least=5)
    assert made.labels.tolist() == [1, 1, 0, 0, 1, 1]
    assert made.marks["Dresses"].tolist() == [True] * 5 + [False]
    assert made.words[0].tolist()[2:] == [0, 0]
    with pytest.raises(BadInputError, match="Shoes"):
        made.marked("Shoes")


def yelp(folder: Path, reviews: list[dict[str, object]]) -> None:
    businesses = [
        {"business_id": "p", "categories": "Doctors, Pediatricians"},
        {"business_id": "o", "categories": "Ophthalmologists"},
        {"business_id": "both", "categories": "Pediatricians, Ophthalmologists"},
        {"business_id": "none", "categories": None},
    ]
    (folder / "yelp_academic_dataset_business.json").write_text("\n".join(map(json.dumps, businesses)))
    (folder / "yelp_academic_dataset_review.json").write_text("\n".join(map(json.dumps, reviews)))


def test_yelps_files_are_read(tmp_path: Path) -> None:
    ids = ["p", "o", "both", "none", "p", "o"]
    reviews: list[dict[str, object]] = [
        {"business_id": id_, "stars": stars, "text": "kind and quick"}
        for id_, stars in zip(ids, [5.0, 3.0, 1.0, 1.0, 2.0, 4.0], strict=True)
    ]
    yelp(tmp_path, reviews)
    made = yelp_health(tmp_path, least=1)
    assert made.labels.tolist() == [1, 0, 0, 1]
    assert made.marks["Pediatricians"].tolist() == [True, False, True, False]
    with pytest.raises(BadInputError, match="'Dentists'"):
        yelp_health(tmp_path, second="Dentists", first="Surgeons")
    (tmp_path / "yelp_academic_dataset_review.json").write_text('{"stars": 1}\nno json')
    with pytest.raises(BadInputError, match="line 2"):
        yelp_health(tmp_path)
    yelp(tmp_path, [{"stars": 1}])
    with pytest.raises(BadInputError, match="lacks 'business_id'"):
        yelp_health(tmp_path)


SNAP = """# Full information about Amazon Share the Love products
Total items: 4

Id:   0
ASIN: 0771044445
  discontinued product

Id:   1
ASIN: 0827229534
  title: Patterns of Preaching: A Sermon Sampler
  group: Book
  salesrank: 396585
  similar: 0
  categories: 0
  reviews: total: 2  downloaded: 2  avg rating: 5
    2000-7-28  cutomer: A2JW67OY8U6HHK  rating: 5  votes:  10  helpful:   9
    2003-12-14  cutomer: A2VE83MZF98ITY  rating: 5  votes:   6  helpful:   5

Id:   2
ASIN: 0738700797
  title: Candlemas
  group: Music
  salesrank: 168596
  similar: 0
  categories: 0
  reviews: total: 1  downloaded: 1  avg rating: 2.5
    2001-12-16  cutomer: A2VE83MZF98ITY  rating: 2  votes:   5  helpful:   4

Id:   3
ASIN: 0486287785
  title: A Sermon on Candlemas
  group: Book
  salesrank: 1
  similar: 0
  categories: 0
  reviews: total: 1  downloaded: 1  avg rating: 3
    2001-12-16  cutomer: A11NCO6YTE4BTJ  rating: 3  votes:   5  helpful:   4
"""


def test_snaps_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "amazon-meta.txt").write_text(SNAP)
    made = amazon_products(tmp_path, classes=11, words=2)
    assert made.labels.tolist() == [10, 5, 6]
    assert made.marks["Book"].tolist() == [True, False, True]
    # The second customer reviewed the first two products.
    assert made.graph.edges.toarray().astype(int).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    # "a" and "candlemas" are the most frequent words of titles that come first.
    assert made.graph.features[:, [0]].toarray()[:, 0].tolist() == [1, 0, 1]
    assert amazon_products(tmp_path, classes=2).labels.tolist() == [1, 0, 0]
    with pytest.raises(BadInputError, match="2, 6 or 11"):
        amazon_products(tmp_path, classes=5)
    (tmp_path / "amazon-meta.txt").write_text("Id: 1\n  title: x\n")
    with pytest.raises(BadInputError, match="no product"):
        amazon_products(tmp_path)


def citations(folder: Path) -> None:
    rng = np.random.default_rng(0)
    words = sparse.csr_array((rng.random((60, 5)) < 0.5).astype(np.float32))
    cites = sparse.csr_array((rng.random((60, 60)) < 0.1).astype(np.float32))
    names = {"adj": cites, "attr": words}
    parts = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in names.items()
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(folder / "cora.npz", labels=np.arange(60) % 7, **parts)


def test_a_citation_graph_is_read_and_the_secret_word_is_not_shown(tmp_path: Path) -> None:
    citations(tmp_path)
    made = cora(tmp_path)
    edges = made.graph.edges.toarray()
    assert (edges == edges.T).all()
    assert set(made.labels.tolist()) == set(range(7))
    shown = made.visible("word 3", keep=True).features.toarray()
    hidden = made.visible("word 3", keep=False).features.toarray()
    assert (made.marks["word 3"].numpy() == (shown[:, 3] > 0)).all()
    assert (hidden == np.delete(shown, 3, axis=1)).all()
    assert set(cora(tmp_path, classes=2).labels.tolist()) == {0, 1}
    with pytest.raises(BadInputError, match="2 to 7"):
        cora(tmp_path, classes=8)
    with_word = made.marks["word 3"]
    follows = cora(tmp_path, classes=2, follows="word 3", strength=1).labels.bool()
    assert (follows == with_word).all()
    loosely = cora(tmp_path, classes=2, follows="word 3", strength=0.5).labels.bool()
    assert 0 < int((loosely != with_word).sum()) < len(with_word)
    with pytest.raises(BadInputError, match="strength"):
        cora(tmp_path, follows="word 3", strength=2)
    (tmp_path / "cora.npz").write_bytes(b"no archive")
    with pytest.raises(BadInputError, match="cannot be read as a graph"):
        cora(tmp_path)


@pytest.mark.parametrize("name", registry.populations.names())
def test_missing_files_are_asked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="needs"):
        registry.populations.create(name, folder=tmp_path)


@pytest.mark.skipif(REAL is None, reason="no folder with real files")
def test_real_files() -> None:
    texts = clothing_reviews(REAL)
    assert len(texts) > 22_000
    assert 0.2 < texts.marks["Dresses"].double().mean() < 0.4
    assert 0.7 < texts.labels.double().mean() < 0.85
    graph = cora(REAL)
    assert (len(graph), graph.graph.width) == (2_708, 1_433)
    assert graph.graph.edges.nnz > 10_000
    assert torch.bincount(graph.labels).min() > 100
