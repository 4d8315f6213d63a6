"""Reader of the Parquet files that come with the package."""

from __future__ import annotations

from importlib.resources import files

import pandas as pd


def bundled(name: str) -> pd.DataFrame:
    """Return the bundled table with this name, text columns as plain strings."""
    with files("seepage.datasets").joinpath("bundled", f"{name}.parquet").open("rb") as file:
        frame = pd.read_parquet(file, engine="pyarrow")
    for column in frame.columns:
        # Categoricals would carry the file's order of categories, which is not the schema's.
        if isinstance(frame[column].dtype, pd.CategoricalDtype):
            frame[column] = frame[column].astype(object)
        else:
            frame[column] = frame[column].astype("int64")
    return frame
