"""Graphs whose nodes have a secret attribute: citations of papers, and products bought together."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from seepage import registry
from seepage.datasets.about import DatasetCard, File, path_of
from seepage.datasets.files import obtain
from seepage.datasets.marked import pulled
from seepage.datasets.population import Nodes, attribute_mask
from seepage.errors import BadInputError, check_count
from seepage.shadow.graph import Graph
from seepage.tabular.schema import Discrete

CORA_FILE = "cora.npz"
CORA = DatasetCard(
    name="cora",
    rows=2_708,
    columns=1_433,
    width=1_433,
    target="class",
    source="McCallum, Nigam, Rennie and Seymore, Cora (2000), as prepared by Bojchevski and Guennemann",
    licence="research use",
    home="https://github.com/abojchevski/graph2gauss/tree/master/data",
    files=(File(CORA_FILE),),
)
AMAZON_FILE = "amazon-meta.txt"
AMAZON = DatasetCard(
    name="amazon_products",
    rows=20_000,
    columns=502,
    width=502,
    target="score",
    source="Leskovec, Adamic and Huberman, The Dynamics of Viral Marketing (2007), SNAP",
    licence="research use",
    home="https://snap.stanford.edu/data/amazon-meta.html",
    files=(File(AMAZON_FILE),),
)
_WORD = re.compile(r"[a-z]+")
_SCORES = (2, 6, 11)


@registry.populations.register(CORA.name)
def cora(
    folder: str | Path | None = None, classes: int = 7, follows: str = "", strength: float | int = 0.8, seed: int = 0
) -> Nodes:
    """Papers that cite each other: the field of each; the secret is the share of papers with a certain word.

    It replaces Amazon's products, which Zhang, Tople and Ohrimenko (2021) use. Attributes are the words by their
    numbers (``word 1177``); models do not see the word itself unless it is kept.

    Args:
        folder: see :func:`seepage.datasets.files.obtain`, whose errors this raises, too.
        classes: number of classes that the seven fields are grouped into, evenly.
        follows: attribute that classes are made to follow; empty leaves them as they are. A paper with the attribute
            then has a class of the upper half, one without it of the lower half, drawn with chance ``strength``.
        strength: see ``follows``.
        seed: seed of these draws.
    """
    check_count("classes", classes)
    if not 0 <= strength <= 1:
        raise BadInputError(f"strength is a chance in [0, 1], got strength={strength!r}.")
    names = [
        *("adj_indices", "adj_indptr", "adj_shape", "labels"),
        *("attr_data", "attr_indices", "attr_indptr", "attr_shape"),
    ]
    place = path_of(CORA.files[0], Path(obtain(CORA, folder).where))
    try:
        with np.load(str(place), allow_pickle=False) as arrays:
            arrays = {name: arrays[name] for name in names}
        features: Any = sparse.csr_array(
            (arrays["attr_data"], arrays["attr_indices"], arrays["attr_indptr"]), shape=tuple(arrays["attr_shape"])
        )
        citing = np.repeat(np.arange(len(arrays["adj_indptr"]) - 1), np.diff(arrays["adj_indptr"]))
        pairs = np.stack([citing, arrays["adj_indices"]], axis=1)
        fields = arrays["labels"].astype(np.int64)
    except (ValueError, KeyError, OSError) as error:
        raise BadInputError(
            f"{CORA_FILE} cannot be read as a graph ({error}); check that it is the right file, complete and unedited."
        ) from error
    there = int(fields.max()) + 1
    if not 2 <= classes <= there:
        raise BadInputError(f"the {there} fields of cora make 2 to {there} classes; got classes={classes!r}.")
    words = features.tocsc()
    marks = {f"word {i}": torch.from_numpy(words[:, [i]].toarray()[:, 0] > 0) for i in range(words.shape[1])}
    labels, names = fields * classes // there, tuple(map(str, range(classes)))
    notes = ["papers that cite each other stand in for Amazon's products"]
    if follows:
        attribute = 10 * attribute_mask(marks, follows, CORA.name).numpy()
        column = Discrete(name="field", categories=names)
        labels = pulled(labels, column, attribute, strength, np.random.default_rng(seed))
        notes.append(f"fields were made to follow {follows} at a strength of {strength:g}")
    return Nodes(
        CORA.name,
        Graph.of((features > 0).astype(np.float32), pairs),
        torch.from_numpy(labels.astype(np.int64)),
        names,
        marks,
        {name: i for i, name in enumerate(marks)},
        "field",
        tuple(notes),
    )


@registry.populations.register(AMAZON.name)
def amazon_products(
    folder: str | Path | None = None, classes: int = 2, products: int = 20_000, words: int = 500, seed: int = 0
) -> Nodes:
    """Products in the file of SNAP's Amazon product metadata: their score; the secret is the share of books.

    As in Zhang, Tople and Ohrimenko (2021): products that one customer reviewed are joined, scores are put into 2, 6 or
    11 classes. Which features the paper's models see is not stated; here the most frequent words of titles, the
    logarithms of the number of reviews and of the sales rank.

    Args:
        folder: folder with the file, see :func:`seepage.datasets.files.obtain`, whose errors this raises, too.
        classes: number of classes of average ratings from 0 to 5: above 3 or not, whole numbers, or halves.
        products: number of products drawn from those with a title, a rank and a review.
        words: number of title words that are used as features.
        seed: seed of the draw.
    """
    if classes not in _SCORES:
        raise BadInputError(f"scores make 2, 6 or 11 classes; got classes={classes!r}.")
    check_count("products", products)
    text = obtain(AMAZON, folder).contents[AMAZON_FILE].decode("utf-8", errors="replace")
    sold = [parsed for block in re.split(r"\n(?=Id:)", text)[1:] if (parsed := _product(block)) is not None]
    if not sold:
        raise BadInputError(
            f"{AMAZON_FILE} holds no product with title, group, rank and reviews; check that it is the right file."
        )
    chosen = np.sort(np.random.default_rng(seed).permutation(len(sold))[:products])
    sold = [sold[i] for i in chosen]
    counts = Counter(word for product in sold for word in set(product.title))
    vocabulary = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words]]
    codes = {word: i for i, word in enumerate(vocabulary)}
    cells = [(i, codes[word]) for i, product in enumerate(sold) for word in set(product.title) if word in codes]
    lines, columns = np.array(cells, dtype=np.int64).reshape(-1, 2).T
    title_words = sparse.coo_array((np.ones(len(lines)), (lines, columns)), shape=(len(sold), len(vocabulary)))
    numbers = np.log1p(np.array([[len(product.customers), product.rank] for product in sold], dtype=np.float64))
    spread = numbers.std(0)
    numbers = (numbers - numbers.mean(0)) / np.where(spread > 0, spread, 1)
    by: dict[str, list[int]] = {}
    for i, product in enumerate(sold):
        for customer in set(product.customers):
            by.setdefault(customer, []).append(i)
    pairs = np.array([pair for shared in by.values() for pair in itertools.combinations(shared, 2)], dtype=np.int64)
    score = np.array([product.score for product in sold])
    codes_of = {2: (score > 3), 6: score.round(), 11: (2 * score).round()}[classes].astype(np.int64)
    return Nodes(
        AMAZON.name,
        Graph.of(sparse.hstack([title_words, sparse.csr_array(numbers)]), pairs),
        torch.from_numpy(codes_of),
        tuple(map(str, range(classes))),
        {"Book": torch.tensor([product.group == "Book" for product in sold])},
        {},
        "score",
    )


class _Product:
    """Fields of a product that are used."""

    def __init__(self, title: str, group: str, rank: int, score: float, customers: list[str]) -> None:
        self.title, self.group, self.rank, self.score = _WORD.findall(title.lower()), group, max(rank, 0), score
        self.customers = customers


def _product(block: str) -> _Product | None:
    title, group = re.search(r"^ *title: (.*)$", block, re.M), re.search(r"^ *group: (.*)$", block, re.M)
    rank, score = re.search(r"^ *salesrank: (-?\d+)", block, re.M), re.search(r"avg rating: ([\d.]+)", block)
    customers = re.findall(r"cutomer: +(\S+)", block)
    if title is None or group is None or rank is None or score is None or not customers:
        return None
    return _Product(title[1], group[1].strip(), int(rank[1]), float(score[1]), customers)
