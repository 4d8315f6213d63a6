"""A user's own texts and graphs, as files and frames hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seepage import audit
from seepage.auditing import prepare_all
from seepage.datasets.dataset import own_table
from seepage.datasets.own_population import own_nodes, own_texts
from seepage.datasets.population import Nodes, Texts
from seepage.datasets.words import ANY_WORD
from seepage.errors import BadInputError
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.setting import Audit
from seepage.tabular.policy import Policy

ROWS = 240
SMALL: dict[str, object] = {
    **{"target": "good", "sensitive": "shop", "rows": 20, "auxiliary": 60, "queries": 10, "targets": 4, "shadows": 4},
    **{"repetitions": 1, "epochs": 1, "shares": (0.2, 0.8), "attacks": ("meta",), "control": False},
}


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    good = rng.random(ROWS) < 0.5
    return pd.DataFrame(
        {
            "id": [f"n{i}" for i in range(ROWS)],
            "said": np.where(good, "very good", "too bad"),
            "age": rng.uniform(20, 80, ROWS),
            "shop": rng.choice(["a", "b"], ROWS),
            "good": np.where(good, "yes", "no"),
        }
    )


def texts_of(said: list[str | None]) -> Texts:
    frame = people().iloc[: len(said)].assign(said=pd.Series(said))
    return own_texts(own_table(frame, target="good", policy=Policy(beside=("said",)))[0], "said", "shop")


def nodes_of(folder: Path, edges: list[tuple[object, object]], **changed: object) -> Nodes:
    pd.DataFrame(edges, columns=pd.Index(["from", "to"])).to_csv(folder / "edges.csv", index=False)
    frame = people().drop(columns="said").assign(**changed)  # pyright: ignore[reportArgumentType]
    data, _ = own_table(frame, target="good", policy=Policy(beside=("id",)))
    return own_nodes(data, "id", folder / "edges.csv", ",", "shop")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The dog's café!", ["the", "dog's", "café"]),
        ("хорошо, Größe_2", ["хорошо", "größe"]),
        ("服が好き", ["服", "が", "好", "き"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("👍 12.5 ?!", []),
    ],
)
def test_words_of_any_script_are_read(text: str, words: list[str]) -> None:
    assert ANY_WORD.findall(text.lower()) == words


def test_texts_without_words_stay_and_are_counted() -> None:
    found = texts_of(["good", None, "", "👍", *["bad good"] * 30])
    assert found.words[:4, 0].tolist()[1:] == [0, 0, 0]
    assert "3 of 34 texts hold no word that is read" in found.notes


def test_texts_of_one_word_each_have_vectors_that_differ() -> None:
    found = texts_of(["good", "bad"] * 10)
    assert found.vectors.isfinite().all()
    assert (found.vectors[1] - found.vectors[2]).abs().max() > 0.1
    assert found.vectors[0].abs().max() == 0


def test_texts_without_a_frequent_word_are_refused() -> None:
    with pytest.raises(BadInputError, match="no word of the 20 texts occurs 5 times"):
        texts_of(["12", "👍"] * 10)


def test_edges_that_count_for_nothing_are_counted(tmp_path: Path) -> None:
    edges = [("n0", "n1"), ("n1", "n0"), ("n2", "n2"), ("n3", "elsewhere"), ("n3", None), ("n1", "n4")]
    found = nodes_of(tmp_path, edges)
    assert sorted(zip(*found.graph.edges.nonzero(), strict=True)) == [(0, 1), (1, 0), (1, 4), (4, 1)]
    notes = "; ".join(found.notes)
    assert "2 edges join nodes by 'from' and 'to'" in notes
    assert "2 of 6 rows of edges count for nothing: a node is not there ('elsewhere', '(missing)')" in notes
    assert "1 of 6 rows of edges counts for nothing: both nodes are the same" in notes
    assert "1 of 6 rows of edges counts for nothing: another row has the same nodes" in notes
    assert "237 of 240 nodes have no edge" in notes


def test_numbers_of_nodes_may_have_decimals_in_one_file_alone(tmp_path: Path) -> None:
    found = nodes_of(tmp_path, [(0.0, 1.0), (2.0, None)], id=range(ROWS))
    assert found.graph.edges.nnz == 2


@pytest.mark.parametrize(
    ("edges", "changed", "said"),
    [
        ([("a", "b")], {}, "no node is called 'a', 'b'"),
        ([("n1", "n1")], {}, "joins two different nodes"),
        ([("n1", "n2")], {"id": "n1"}, "'n1' is that of row 1, too"),
        ([("n1", "n2")], {"id": [None, *range(1, ROWS)]}, "the one of row 1 is missing"),
        ([("n1", "n2")], {"good": np.linspace(0, 1, ROWS)}, "is a number"),
        ([("n1", "n2")], {"shop": ["a", "b", "c"] * 80}, "has 3 categories"),
    ],
)
def test_graphs_that_cannot_be_audited_are_refused(
    tmp_path: Path, edges: list[tuple[object, object]], changed: dict[str, object], said: str
) -> None:
    with pytest.raises(BadInputError, match=said):
        nodes_of(tmp_path, edges, **changed)


def prepared(folder: Path, **changed: object) -> Audit:
    people().to_csv(folder / "people.csv", index=False)
    (folder / "edges.csv").write_text("a,b\nn0,n1\n")
    (folder / "one.csv").write_text("a\nn0\n")
    [prepared_audit] = prepare_all([PooledSpec.of(**{**SMALL, **changed})], None)
    return prepared_audit


def test_rows_that_are_dropped_take_their_texts_with_them(tmp_path: Path) -> None:
    said, good = ["gone gone"] * 40 + ["very good"] * 200, [None] * 40 + ["yes", "no"] * 100
    frame = people().assign(said=pd.Series(said), good=pd.Series(good))
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    data, _ = own_table(tmp_path / "gaps.csv", target="good", policy=Policy(beside=("said",), missing="drop"))
    assert (len(data.train), set(data.beside["said"])) == (200, {"very good"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": "people.csv", "text_column": "sayd"}, "did you mean 'said'.*text_column=COLUMN"),
        ({"data": "people.csv", "text_column": "good"}, "'good' is the target"),
        ({"data": "people.csv", "text_column": "shop"}, "'shop' is the sensitive column"),
        ({"data": "people.csv", "text_column": "said", "edges": "edges.csv"}, "leave out one"),
        ({"data": "people.csv", "text_column": "said", "inputs": "age"}, "holds texts and is no table"),
        ({"nodes": "people.csv"}, "name the edges"),
        ({"nodes": "people.csv", "data": "other.csv", "edges": "edges.csv"}, "leave out another table"),
        ({"nodes": "people.csv", "edges": "one.csv"}, "need two columns"),
        ({"nodes": "people.csv", "edges": "none.csv"}, "does not exist"),
        ({"text_column": "said", "target": None, "sensitive": "sex"}, "is one of a table of your own"),
    ],
)
def test_contradictions_are_one_sentence(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    files = {name: tmp_path / str(changed[name]) for name in ("data", "nodes", "edges") if name in changed}
    people().to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(BadInputError, match=said):
        prepared(tmp_path, **{**changed, **files})


def test_other_columns_of_a_table_of_texts_may_be_anything(tmp_path: Path) -> None:
    people().assign(same=1, gaps=pd.Series([None] * ROWS), mixed=pd.Series(["x", 3] * 120)).to_csv(
        tmp_path / "odd.csv", index=False
    )
    found = prepared(tmp_path, data=tmp_path / "odd.csv", text_column="said")
    assert found.about.model == "lstm"
    assert found.own


def test_other_edges_are_another_audit(tmp_path: Path) -> None:
    given = {"nodes": tmp_path / "people.csv", "edges": tmp_path / "edges.csv"}
    first = prepared(tmp_path, **given)
    assert first.about.model == "gcn"
    (tmp_path / "others.csv").write_text("a,b\nn0,n2\n")
    other = prepared(tmp_path, nodes=given["nodes"], edges=tmp_path / "others.csv")
    configuration, part = first.configurations[0], first.parts[0]
    assert first.identity(configuration, part) != other.identity(configuration, part)
    (tmp_path / "moved.csv").write_text("a,b\nn1,n0\n")
    moved = prepared(tmp_path, nodes=given["nodes"], edges=tmp_path / "moved.csv")
    assert first.identity(configuration, part) == moved.identity(configuration, part)


def test_texts_of_a_frame_are_audited() -> None:
    report = audit(people(), setting="pooled", text_column="said", **SMALL)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert {row.model for row in report.rows} == {"lstm"}


def test_a_table_with_texts_beside_it_can_be_a_key() -> None:
    frame = pd.DataFrame({"id": [f"row {i}" for i in range(40)], "age": range(40), "good": ["yes", "no"] * 20})
    data, _ = own_table(frame, target="good", policy=Policy(beside=("id",)))
    assert {data: 1}[data] == 1
