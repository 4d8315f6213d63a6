"""Words of texts as numbers, and their vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seepage.datasets.words import cooccurrence_vectors, numbered, read_glove
from seepage.errors import BadInputError


def test_texts_become_numbers_by_frequency_and_vectors_come_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "glove.6B.50d.txt").write_text("dress 1 2\nfits 3 4\nunread 5 6\n")
    texts = ["The dress fits", "dress, DRESS; xyz xyz fits!"]
    words, vectors, said = numbered(texts, tmp_path, length=3, least=2)
    # "xyz" is frequent enough but has no vector, "the" is too rare.
    assert words.tolist() == [[1, 2, 0], [1, 1, 2]]
    assert vectors.tolist() == [[0, 0], [1, 2], [3, 4]]
    assert "GloVe" in said


def test_words_that_occur_with_the_same_words_are_near_each_other() -> None:
    rng = np.random.default_rng(0)
    # 1 and 2 stand beside 3 to 6, 7 and 8 beside 9 to 12.
    texts = [[int(rng.integers(1, 3)), int(rng.integers(3, 7))] for _ in range(300)]
    texts += [[int(rng.integers(7, 9)), int(rng.integers(9, 13))] for _ in range(300)]
    made = cooccurrence_vectors(texts, words=13, size=4)
    made = made / np.linalg.norm(made, axis=1, keepdims=True).clip(1e-9)
    assert made[1] @ made[2] > 0.9
    assert abs(made[1] @ made[7]) < 0.1
    _, _, said = numbered(["a b a b"] * 6, least=5)
    assert "co-occurrence" in said


def test_broken_vectors_are_refused() -> None:
    with pytest.raises(BadInputError, match="line 2 of the word vectors"):
        read_glove(b"cat 1 2\ndog 1 x\n", ["cat", "dog"])
    with pytest.raises(BadInputError, match="2 numbers"):
        read_glove(b"cat 1 2\ndog 1\n", ["cat", "dog"])
