"""Texts as word numbers, and word vectors: GloVe's where its file is available, otherwise computed from the texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor

from seepage.datasets.about import DatasetCard, File, local_folder, path_of
from seepage.datasets.files import obtain
from seepage.errors import BadInputError, check_count

GLOVE = "glove.6B.50d.txt"
CARD = DatasetCard(
    name="glove",
    rows=400_000,
    columns=50,
    width=None,
    target="",
    source="Pennington, Socher and Manning, GloVe (2014), trained on Wikipedia and Gigaword",
    licence="PDDL 1.0",
    home="https://nlp.stanford.edu/projects/glove/",
    files=(File(GLOVE, inside=("glove.6B.zip",)),),
)
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
# Letters with the marks that follow them, in any script; a sign alone where words are not set apart.
_APART = r"\u0e00-\u0e7f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_LETTER = rf"(?:(?![{_APART}])[^\W\d_])"
_MARKED = rf"{_LETTER}(?:{_LETTER}|[\u0300-\u036f\u0591-\u05c7\u064b-\u0670\u0900-\u0dff])*"
ANY_WORD = re.compile(rf"[{_APART}]|{_MARKED}(?:['\u2019]{_MARKED})?")
# Number of words before and after a word that co-occur with it.
_WINDOW = 4


def read_glove(content: bytes, words: Sequence[str]) -> dict[str, np.ndarray]:
    r"""Return the vectors of some words from a file in GloVe's format: a word and its numbers a line."""
    wanted = {word.encode() for word in words}
    vectors: dict[str, np.ndarray] = {}
    width = None
    for number, line in enumerate(content.split(b"\n"), start=1):
        word, _, rest = line.partition(b" ")
        if word not in wanted:
            continue
        try:
            vector = np.array(rest.split(), dtype=np.float32)
        except ValueError:
            vector = np.empty(0, dtype=np.float32)
        if not len(vector) or (width is not None and len(vector) != width) or not np.isfinite(vector).all():
            raise BadInputError(
                f"line {number} of the word vectors should hold a word and {width or 'its'} numbers, but does not; "
                "check that it is a file in GloVe's format, complete and unedited."
            )
        width = len(vector)
        vectors[word.decode()] = vector
    return vectors


def cooccurrence_vectors(
    texts: Sequence[Sequence[int]], words: int, size: int = 50, seed: int = 0
) -> Float[np.ndarray, "word size"]:
    """Return word vectors from co-occurrence: the leading singular vectors of the words' association.

    Positive pointwise mutual information of words within four of each other, factorised (Levy and Goldberg, 2014); used
    where no trained vectors are available. Where no word goes with another, vectors are random.
    """
    pairs = [
        np.array(part, dtype=np.int64)
        for gap in range(1, _WINDOW + 1)
        for text in texts
        if len(text) > gap
        for part in [[text[:-gap], text[gap:]]]
    ]
    first, second = np.concatenate(pairs, axis=1) if pairs else np.empty((2, 0), dtype=np.int64)
    ones = np.ones(2 * len(first))
    places = np.concatenate([first, second]), np.concatenate([second, first])
    counts = sparse.coo_array((ones, places), shape=(words, words)).tocsr().tocoo()
    total, marginal = counts.sum(), np.asarray(counts.sum(0)).ravel()
    information = np.log(counts.data * total / (marginal[counts.row] * marginal[counts.col])).clip(min=0)
    association = sparse.coo_array((information, (counts.row, counts.col)), shape=(words, words)).tocsr()
    if not association.count_nonzero():
        vectors = np.random.default_rng(seed).standard_normal((words, size)).astype(np.float32)
        vectors[0] = 0
        return vectors
    rank = min(size, words - 1)
    start = np.random.default_rng(seed).standard_normal(words)
    left, values, _ = svds(association, k=rank, v0=start)
    vectors = np.zeros((words, size), dtype=np.float32)
    vectors[:, :rank] = left * np.sqrt(values)
    return vectors


def numbered(
    texts: Sequence[str],
    folder: str | Path | None = None,
    length: int = 40,
    least: int = 5,
    most: int = 5_000,
    seed: int = 0,
    pattern: re.Pattern[str] = _WORD,
) -> tuple[Int[Tensor, "text {length}"], Float[Tensor, "word embedding"], str]:
    """Return texts as rows of word numbers, vectors of these words, and a sentence on the origin of the vectors.

    Words are in lower case, and runs of the letters a to z unless a pattern says otherwise; words without a vector are
    skipped, and so are words of a text beyond the first ``length``, words with fewer than ``least`` occurrences, and
    all but the ``most`` frequent ones. Without GloVe's file in the folder, vectors are computed from the texts.
    """
    for name, value in (("length", length), ("least", least), ("most", most)):
        check_count(name, value)
    split = [pattern.findall(text.lower()) for text in texts]
    counts = Counter(word for text in split for word in text)
    # Equally frequent words in alphabetical order, so that the order of texts changes nothing.
    ranked = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    words = ranked[:most]
    local = local_folder(folder)
    glove: dict[str, np.ndarray] = {}
    if local is not None and path_of(CARD.files[0], local) is not None:
        glove = read_glove(obtain(CARD, local).contents[GLOVE], words)
        words = [word for word in words if word in glove]
    if not words:
        raise BadInputError(
            f"no word of the {len(texts)} texts occurs {least} times and has a vector; give more texts, or the column "
            "that holds them."
        )
    codes = {word: code for code, word in enumerate(words, start=1)}
    coded = [[codes[word] for word in text if word in codes] for text in split]
    if glove:
        size = len(next(iter(glove.values())))
        vectors = np.stack([np.zeros(size, dtype=np.float32), *(glove[word] for word in words)])
        origin = f"word vectors are GloVe's ({size} numbers, {GLOVE})"
    else:
        vectors = cooccurrence_vectors(coded, len(words) + 1, seed=seed)
        origin = f"word vectors are computed from the words' co-occurrence in all texts, as {GLOVE} is not available"
    rows = torch.zeros(len(texts), length, dtype=torch.long)
    for i, text in enumerate(coded):
        rows[i, : len(text[:length])] = torch.tensor(text[:length], dtype=torch.long)
    return rows, torch.from_numpy(vectors), origin
