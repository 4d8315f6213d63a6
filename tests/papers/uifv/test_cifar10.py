from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.papers.uifv.cifar10 import BINARY, KINDS, SAMPLE
from seepage.papers.uifv.layout import ImageHalves


def archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))


def records(count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.integers(0, 10, (count, 1)), generator.integers(0, 256, (count, 3072))], 1).astype(
        np.uint8
    )


@pytest.mark.slow
def test_the_binary_version_is_read(tmp_path: Path) -> None:
    first, second, test = (records(count, seed) for seed, count in enumerate((3, 2, 4)))
    folder = "cifar-10-batches-bin"
    archive(
        tmp_path / BINARY,
        {
            f"{folder}/test_batch.bin": test.tobytes(),
            f"{folder}/data_batch_2.bin": second.tobytes(),
            f"{folder}/data_batch_1.bin": first.tobytes(),
            f"{folder}/batches.meta.txt": b"airplane\n",
        },
    )
    data = load("cifar10", tmp_path)
    assert data.layout == ImageHalves((3, 32, 32))
    assert data.notes == ()
    assert data.test is not None
    np.testing.assert_array_equal(data.train.cells.numpy(), np.concatenate([first, second])[:, 1:])
    assert [KINDS[int(code)] for code in data.test.labels] == [KINDS[code] for code in test[:, 0]]
    # The publisher's order: colour by colour, row by row.
    assert data.schema.names[:33][-1] == "red_01_00"
    assert data.schema.names[1024] == "green_00_00"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"data_batch_1.bin": b"short"}, "records of 3,073 bytes"),
        ({"data_batch_1.bin": bytes([11] + [0] * 3072)}, "a class from 0 to 9"),
        ({"data_batch_1.bin": bytes(3073)}, "test_batch.bin are wanted"),
        ({"data_batch_1": b"pickled"}, "there are none"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    archive(tmp_path / BINARY, files)
    with pytest.raises(BadInputError, match=said):
        load("cifar10", tmp_path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / BINARY).write_bytes(b"nothing of the kind")
    with pytest.raises(BadInputError, match="cannot be read"):
        load("cifar10", tmp_path)
    with pytest.raises(BadInputError, match=SAMPLE):
        load("cifar10", tmp_path / "..")


def test_images_as_files(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")

    def jpeg(colour: tuple[int, int, int], size: int = 32) -> bytes:
        held = io.BytesIO()
        image.new("RGB", (size, size), colour).save(held, format="JPEG", quality=100)
        return held.getvalue()

    archive(tmp_path / "made.gz", {})
    with tarfile.open(tmp_path / SAMPLE, "w") as made:
        for name, content in {"train/ship/1.jpg": jpeg((200, 10, 60)), "test/bird/1.jpg": jpeg((0, 90, 0))}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    data = load("cifar10", tmp_path)
    assert "2 images" in data.notes[0]
    assert KINDS[int(data.train.labels[0])] == "ship"
    assert abs(float(data.train.cells[0, :1024].mean()) - 200) < 3
    assert abs(float(data.train.cells[0, 2048:].mean()) - 60) < 3
    with tarfile.open(tmp_path / SAMPLE, "w") as made:
        entry = tarfile.TarInfo("train/ship/1.jpg")
        content = jpeg((0, 0, 0), 16)
        entry.size = len(content)
        made.addfile(entry, io.BytesIO(content))
    with pytest.raises(BadInputError, match="16 by 16 pixels"):
        load("cifar10", tmp_path)


def test_the_copy_of_real_images(real) -> None:
    pytest.importorskip("PIL")
    data = load("cifar10", real(SAMPLE))
    assert data.test is not None
    assert (len(data.train), len(data.test), data.schema.width) == (2000, 1000, 3072)
    assert set(np.bincount(data.train.labels.long().numpy())) == {200}
