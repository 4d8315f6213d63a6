"""Attacks every captured update of a run, as the server could, and says what each gives away.

    python audit.py run/captured

Exit statuses: 0 nothing was proved, 1 records were proved, 2 there is nothing to attack.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flower_adult.task import DATA, Net
from rich.console import Console
from rich.table import Table

from seepage.captures.captured import load_capture, read_description
from seepage.captures.recovery import client_schema, known_statistics, recover
from seepage.settings.network import make_model


def main() -> int:
    """Attack the updates of the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Attack every captured update of a run.")
    parser.add_argument("captured", type=Path, help="folder of the captured updates")
    folder = parser.parse_args().captured
    found = audit(folder)
    table = Table("round", "client", "records", "proved", "what the attack says", title="What each update gives away")
    for row in found:
        table.add_row(*map(str, row))
    Console().print(table if found else f"no update was captured in {folder}")
    return 2 if not found else int(any(proved for _, _, _, proved, _ in found))


def audit(folder: Path) -> list[tuple[str, str, int, int, str]]:
    """Return round, client, number of records, number of proved records and the attack's own words of each update."""
    rows = []
    for update in sorted(folder.glob("round-*/client-*.safetensors")):
        about = read_description(update)
        schema = client_schema(DATA.schema, about)
        statistics, origin = known_statistics(schema, about, DATA.train)
        weights = update.with_name("model.safetensors")
        model, _ = make_model(Net(), schema, statistics, head=about.head, weights=weights)
        capture = load_capture(update, model, schema)
        # What is not read exactly would be estimated; here a single step is enough.
        guess = recover(capture, schema, statistics, origin, options={"restarts": 1, "iterations": 1}).guess
        proved = 0 if guess.certified is None else int(guess.certified.any(2).sum())
        regime = guess.regime[0] if guess.regime else ""
        client = update.stem.removeprefix("client-")
        rows.append((update.parent.name.removeprefix("round-"), client, guess.cells.shape[1], proved, regime))
    return rows


if __name__ == "__main__":
    sys.exit(main())
