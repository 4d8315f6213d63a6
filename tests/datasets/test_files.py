"""Fault, unpacking, checking and downloading, on files made here and served from this machine."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from seepage import registry
from seepage.datasets import catalogue, load
from seepage.datasets.about import DatasetCard, File, card_of
from seepage.datasets.files import cache_folder, obtain
from seepage.errors import BadInputError

CONTENT = b"a,b\n1,2\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def card(*files: File, copies: tuple[File, ...] = ()) -> DatasetCard:
    return DatasetCard("sample", 1, 1, 1, "b", "made here", "none", "https://example.org/sample", files, copies)


def zipped(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"__MACOSX/._{name}", b"litter")
        archive.writestr(f"folder/{name}", data)
    return buffer.getvalue()


NESTED = File("a.csv", inside=("outer.zip", "inner.zip"), sha256=SHA256)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", CONTENT),
        ("a.csv.gz", gzip.compress(CONTENT)),
        ("inner.zip", zipped("a.csv", CONTENT)),
        ("outer.zip", zipped("inner.zip", zipped("a.csv", CONTENT))),
    ],
)
def test_every_packing_is_unpacked(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    obtained = obtain(card(NESTED), tmp_path)
    assert obtained.contents == {"a.csv": CONTENT}
    assert not obtained.copy


def test_the_original_wins_over_a_copy(tmp_path):
    both = card(NESTED, copies=(File("copy.csv"),))
    (tmp_path / "copy.csv").write_bytes(b"copied")
    assert obtain(both, tmp_path).contents == {"copy.csv": b"copied"}
    assert obtain(both, tmp_path).copy
    (tmp_path / "a.csv").write_bytes(CONTENT)
    assert not obtain(both, tmp_path).copy


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"a,b\n1,3\n", "not the published file"),
        ("a.csv.gz", gzip.compress(CONTENT)[:-10], "damaged or cut short"),
        ("a.csv.gz", CONTENT, "damaged or cut short"),
        ("inner.zip", zipped("a.csv", CONTENT)[:-30], "damaged or cut short"),
        ("inner.zip", zipped("b.csv", CONTENT), r"should hold a\.csv, but has __MACOSX/\._b\.csv, folder/b\.csv"),
        ("outer.zip", zipped("inner.zip", b"no archive"), "damaged or cut short"),
    ],
)
def test_wrong_files_are_refused(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInputError, match=message):
        obtain(card(NESTED), tmp_path)


def test_a_missing_file_says_where_to_get_and_put_it(tmp_path):
    with pytest.raises(BadInputError, match=r"lawschs1_1\.dta, .*no folder was given.*seaphe.*SEEPAGE_DATA"):
        load("lawschool")
    with pytest.raises(BadInputError, match=r"bank-full\.csv .*not found in .*leave out the folder"):
        load("bank_full", tmp_path)
    with pytest.raises(BadInputError, match="should be a folder"):
        load("bank_full", tmp_path / "nowhere")
    # Three of four tables are not the original.
    for name in ("Claims", "DrugCount", "LabCount"):
        (tmp_path / f"{name}.csv").write_bytes(b"")
    with pytest.raises(BadInputError, match=r"Members\.csv"):
        load("health_heritage", tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that this machine serves, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_a_download_is_checked_and_kept(server, nothing_from_outside):
    folder, address = server
    (folder / "x.zip").write_bytes(zipped("inner.zip", zipped("a.csv", CONTENT)))
    wanted = card(File("a.csv", f"{address}/x.zip", NESTED.inside, SHA256))
    assert obtain(wanted).contents == {"a.csv": CONTENT}
    assert cache_folder().is_relative_to(nothing_from_outside)
    (folder / "x.zip").unlink()
    assert obtain(wanted).contents == {"a.csv": CONTENT}


def test_a_damaged_download_is_not_kept(server):
    folder, address = server
    wanted = card(File("a.csv", f"{address}/a.csv", sha256=SHA256))
    (folder / "a.csv").write_bytes(b"half")
    with pytest.raises(BadInputError, match="not the published file"):
        obtain(wanted)
    (folder / "a.csv").write_bytes(CONTENT)
    assert obtain(wanted).contents == {"a.csv": CONTENT}


def test_a_failed_download_says_what_to_do(server):
    wanted = card(File("a.csv", f"{server[1]}/gone.csv"))
    with pytest.raises(BadInputError, match=r"could not be downloaded .*404.*example\.org.*SEEPAGE_DATA"):
        obtain(wanted)
    assert not (cache_folder() / "a.csv").exists()


def test_a_standing_folder_without_the_file_does_not_stop_the_download(server, tmp_path, monkeypatch):
    folder, address = server
    (folder / "a.csv").write_bytes(CONTENT)
    monkeypatch.setenv("SEEPAGE_DATA", str(tmp_path))
    assert obtain(card(File("a.csv", f"{address}/a.csv", sha256=SHA256))).contents == {"a.csv": CONTENT}


def test_catalogue_without_any_files():
    listed = {listing.name: listing for listing in catalogue()}
    assert list(listed) == [*registry.datasets.names(), *registry.populations.names()]
    assert [name for name, listing in listed.items() if listing.pooled] == registry.populations.names()
    assert {name: listing.availability for name, listing in listed.items()} == {
        "adult": "bundled",
        "adult_education": "bundled",
        "german": "bundled",
        "lawschool": "manual",
        "health_heritage": "manual",
        "health_years": "manual",
        "bank_full": "download",
        "bank_additional": "download",
        "credit": "download",
        "crime": "download",
        "cifar10": "manual",
        "synthetic": "generated",
        "synthetic_highdim": "generated",
        "taobao": "manual",
        "taobao_synthetic": "generated",
        **dict.fromkeys(registry.populations.names(), "manual"),
    }
    for listing in listed.values():
        assert listing.summary.endswith((".", "rows"))
        assert listing.licence
        assert listing.where
    assert (listed["adult"].rows, listed["adult"].columns, listed["adult"].width) == (45_222, 14, 105)


def test_catalogue_sees_files(tmp_path):
    cache_folder().mkdir(parents=True)
    (cache_folder() / "bank+marketing.zip").write_bytes(b"")
    (tmp_path / "communities.data.gz").write_bytes(b"")
    (tmp_path / "UCI_Credit_Card.csv").write_bytes(b"")
    listed = {listing.name: listing for listing in catalogue(tmp_path)}
    assert (listed["crime"].availability, listed["crime"].where) == ("found", str(tmp_path / "communities.data.gz"))
    assert listed["credit"].availability == "copy found"
    assert listed["bank_full"].availability == "cached"
    # A folder that is given is the only place that load looks in; the listing says what load would do without it.
    assert listed["bank_additional"].availability == "cached"


@pytest.mark.parametrize("name", ["bank_full", "bank_additional", "credit", "crime", "lawschool"])
def test_published_sizes_of_the_cards(name):
    published = {
        "bank_full": (45_211, 16),
        "bank_additional": (41_188, 20),
        "credit": (30_000, 23),
        "crime": (1994, 100),
        "lawschool": (96_584, 7),
    }
    card = card_of(name)
    assert card is not None
    assert (card.rows, card.columns) == published[name]
