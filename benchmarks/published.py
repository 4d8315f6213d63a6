"""A published table beside ours as Markdown, from a run folder of ``seepage reproduce``; runs nothing.

seepage reproduce tableak/table17 --victims 20 --out table17
python benchmarks/published.py tableak/table17 table17
"""

from __future__ import annotations

import argparse
from pathlib import Path

from seepage.reproduce import load_table, reproduce


def main() -> None:
    """Print two Markdown tables: ours beside the printed figures, and the default profile's gain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--victims", type=int, default=20)
    arguments = parser.parse_args()
    comparison = reproduce(load_table(arguments.table), arguments.folder, arguments.victims, run_missing=False)
    print("| profile | labels | method | batch | n | ours | printed | difference [95%] | within | best guess | lift |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for cell in comparison.cells:
        printed = "–" if cell.published is None else f"{_points(cell.published)} ± {_points(cell.published_std)}"
        difference = "–"
        if cell.difference is not None:
            difference = f"{_signed(cell.difference)} [{_signed(cell.low)}, {_signed(cell.high)}]"
        print(
            f"| {cell.run} | {cell.labels} | {cell.method} | {cell.batch_size} | {cell.n} "
            f"| {_points(cell.ours)} ± {_points(cell.ours_std)} | {printed} | {difference} | {cell.agrees or '–'} "
            f"| {_points(cell.guess)} {cell.guess_name or ''} | {_signed(cell.lift)} |"
        )
    for run, gains in comparison.gains.items():
        print(f"\n| `{run}` over `{load_table(arguments.table).runs[0].name}` | batch | n | gain [95%] |")
        print("|---|---|---|---|")
        for one in gains:
            gain = one.gain
            between = f"{_signed(gain.mean)} [{_signed(gain.low)}, {_signed(gain.high)}]"
            print(f"| {one.method}, {one.labels} labels | {one.batch_size} | {gain.n} | {between} |")


def _points(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f}"


def _signed(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:+.1f}"


if __name__ == "__main__":
    main()
