"""Tree files of a client: xgboost's JSON, one file or those of its rounds in a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seepage.captures.transcripts import TRANSCRIPT
from seepage.errors import BadInputError
from seepage.files import read_bytes
from seepage.wire.forest import Forest, read_forest
from seepage.wire.trees import FileMessage

# Bytes of a file that a program writes, with all records or trees.
_MOST_BYTES = 2**30
SUFFIX = ".json"


def is_tree_file(path: Path) -> bool:
    """Return whether a path is a tree file in JSON, or a folder of them and of no other captures."""
    if path.is_dir():
        return not (path / TRANSCRIPT).exists() and any(path.glob(f"*{SUFFIX}")) and not any(path.glob("*.safetensors"))
    return path.suffix == SUFFIX


def forests_at(path: Path) -> dict[Path, Forest]:
    """Return the trees of one xgboost file in JSON, or of all files of a folder by name."""
    forests = {}
    for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
        try:
            forests[file] = read_forest(read_bytes(file, f"the tree file {str(file)!r}", _MOST_BYTES), repr(str(file)))
        except OSError as error:
            raise BadInputError(f"the tree file {str(file)!r} cannot be read: {error}.") from error
    return forests


def load_tree_files(path: Path, columns: int) -> FileMessage:
    """Return the trees of a client: those of one xgboost file in JSON, or of all files of a folder by name."""
    by_file = forests_at(path)
    files, forests = list(by_file), list(by_file.values())
    for file, forest in by_file.items():
        if forest.columns != columns:
            raise BadInputError(
                f"{str(file)!r} has trees of {forest.columns} columns, but the schema encodes {columns}: numbers as "
                "they are, a column of 0 and 1 for each category; give the schema that the client trained with."
            )
        if (forest.objective, forest.outputs) != (forests[0].objective, forests[0].outputs):
            raise BadInputError(f"{str(file)!r} learns another target than {str(files[0])!r}; give files of one run.")
        if not forest.trees:
            raise BadInputError(f"{str(file)!r} has no tree; give the model after a round of boosting.")
    trees = tuple(tree for forest in forests for tree in forest.trees)
    outputs = forests[0].outputs
    if len(trees) % outputs:
        raise BadInputError(
            f"the files have {len(trees)} trees of {outputs} classes each round; give whole rounds of one client."
        )
    forest = replace(forests[0], trees=trees, rounds=tuple(range(outputs, len(trees) + 1, outputs)))
    return FileMessage(forest, tuple(range(len(trees))), tuple(t // outputs * outputs for t in range(len(trees))))
