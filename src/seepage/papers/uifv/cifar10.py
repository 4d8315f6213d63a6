"""CIFAR-10: small colour images in ten classes, one column a pixel and colour."""

from __future__ import annotations

import importlib
import io
import itertools
import re
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import TOLERANCE, Dataset
from seepage.datasets.files import obtain
from seepage.errors import BadInputError
from seepage.papers.uifv.layout import ImageHalves
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table

BINARY = "cifar-10-binary.tar.gz"
SAMPLE = "cifar10_jpeg_3000.tar"
KINDS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Channels, height and width.
SHAPE = (3, 32, 32)
_BATCH = re.compile(r"(data_batch_\d|test_batch)\.bin")

CARD = DatasetCard(
    name="cifar10",
    rows=60_000,
    columns=3072,
    width=3072,
    target="kind",
    source="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    licence="none stated",
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(File(BINARY),),
    copies=(File(SAMPLE),),
    notes=("images, a column a pixel and colour",),
)


@dataset(CARD)
def cifar10(folder: str | Path | None = None) -> Dataset:
    """Sixty thousand colour images of 32 by 32 pixels in ten classes.

    A column is the brightness of a pixel in one of three colours, from 0 to 255; columns go colour by colour, row by
    row. The publisher's binary version is read, in which nothing is pickled. Where it is missing, a copy of 3,000 of
    the images as JPEG files is read, which needs Pillow (``pip install seepage[images]``). Argument and errors are
    those of :func:`seepage.datasets.files.obtain`.
    """
    files = obtain(CARD, folder)
    read = _images if files.copy else _records
    name = SAMPLE if files.copy else BINARY
    try:
        (train, train_kinds), (test, test_kinds) = read(files.contents[name])
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        raise BadInputError(
            f"{name} from {files.where} cannot be read ({error}); check that it is the right file, complete and "
            "unedited."
        ) from error
    images = len(train) + len(test)
    notes = (f"read from the copy {SAMPLE}, {images:,} images as JPEG, whose pixels are rounded",) if files.copy else ()
    # The standard deviation of a uniform distribution, which that of brightness is close to.
    tolerance = TOLERANCE * 255 / 12**0.5
    columns = tuple(
        Continuous(name=f"{colour}_{row:02}_{place:02}", low=0, high=255, tolerance=tolerance, integer=True)
        for colour, row, place in itertools.product(("red", "green", "blue"), range(SHAPE[1]), range(SHAPE[2]))
    )
    schema = Schema(columns=columns, target=Discrete(name=CARD.target, categories=KINDS))
    training, held_out = _table(schema, train, train_kinds), _table(schema, test, test_kinds)
    return Dataset(CARD.name, training, held_out, notes, CARD.source, CARD.licence, ImageHalves(SHAPE))


def _table(schema: Schema, pixels: np.ndarray, kinds: np.ndarray) -> Table:
    frame = pd.DataFrame(pixels, columns=list(schema.names))
    return Table(schema, pd.concat([frame, pd.Series(np.array(KINDS)[kinds], name=CARD.target)], axis=1))


def _records(content: bytes) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return pixels and kinds of training and test images of the binary version."""
    size = 1 + SHAPE[0] * SHAPE[1] * SHAPE[2]
    batches: dict[str, np.ndarray] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            stream = archive.extractfile(member) if member.isfile() and _BATCH.fullmatch(name) else None
            if stream is not None:
                flat = np.frombuffer(stream.read(), dtype=np.uint8)
                if not len(flat) or len(flat) % size or flat[::size].max() >= len(KINDS):
                    raise ValueError(f"{name} does not hold records of {size:,} bytes, a class from 0 to 9 first")
                batches[name] = flat.reshape(-1, size)
    trained = [batch for name, batch in sorted(batches.items()) if name.startswith("data_batch_")]
    if not trained or "test_batch.bin" not in batches:
        raise ValueError(f"data_batch_1.bin and test_batch.bin are wanted, there are {sorted(batches) or 'none'}")
    train, test = np.concatenate(trained), batches["test_batch.bin"]
    return (train[:, 1:], train[:, 0]), (test[:, 1:], test[:, 0])


def _images(content: bytes) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return pixels and kinds of training and test images in folders of JPEG files."""
    try:
        image = importlib.import_module("PIL.Image")
    except ImportError as error:
        raise BadInputError(
            f"{SAMPLE} holds JPEG files, which Pillow reads, and that is not installed; pip install 'seepage[images]', "
            f"or put {BINARY} into the folder."
        ) from error
    images: dict[str, tuple[list[np.ndarray], list[int]]] = {"train": ([], []), "test": ([], [])}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in sorted(archive.getmembers(), key=lambda entry: entry.name):
            parts = PurePosixPath(member.name).parts
            if not member.isfile() or len(parts) < 3 or parts[-3] not in images or parts[-2] not in KINDS:
                continue
            with image.open(archive.extractfile(member), formats=("JPEG",)) as opened:
                if opened.size != (SHAPE[2], SHAPE[1]):
                    raise ValueError(f"{member.name} has {opened.size[0]} by {opened.size[1]} pixels, not 32 by 32")
                pixels = np.asarray(opened.convert("RGB"), dtype=np.uint8)
            images[parts[-3]][0].append(pixels.transpose(2, 0, 1).ravel())
            images[parts[-3]][1].append(KINDS.index(parts[-2]))
    if not images["train"][0] or not images["test"][0]:
        raise ValueError("folders train and test of images in folders by class are wanted")
    (train, train_kinds), (test, test_kinds) = images.values()
    return (np.stack(train), np.array(train_kinds)), (np.stack(test), np.array(test_kinds))
