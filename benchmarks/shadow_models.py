"""Shadow models trained at once beside the same trained one after another, in one run.

    python benchmarks/shadow_models.py --threads 2 --out benchmarks/results/shadow_models.csv

Networks with 12 hidden units on Adult (education in four classes), 4,000 rows each, 20 epochs of batches of 128. One by
one, each is a ``torch.nn`` module with Adam, as the papers' code has it; of these a part is trained and its time
multiplied. Both are timed by wall clock and by processor time, as other programs may run beside. Memory is what the
process holds at most beyond what it held before.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from csv_lines import signed
from torch import Tensor, nn

from seepage.datasets import load
from seepage.datasets.marked import marked
from seepage.shadow.stacked import Dense

ROWS = 4_000
RECIPE = Dense(classes=4, hidden=(12,), epochs=20, batch_size=128)


def one_by_one(inputs: Tensor, labels: Tensor, chosen: Tensor) -> list[nn.Module]:
    """Train a module on each line of chosen rows."""
    made: list[nn.Module] = []
    for k, line in enumerate(chosen):
        generator = torch.Generator().manual_seed(k)
        model = nn.Sequential(nn.Linear(inputs.shape[1], 12), nn.ReLU(), nn.Linear(12, 4))
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
        for _ in range(RECIPE.epochs):
            order = line[torch.randperm(len(line), generator=generator)]
            for batch in order.split(128):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
                optimiser.step()
        made.append(model)
    return made


def held(name: str) -> float | None:
    """Return what the kernel counts of this process's memory, in megabytes; None where it tells nothing."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), None)


def timed(work: Callable[[], object]) -> tuple[float, float, float | None]:
    """Return seconds by the wall clock and of the processor, and megabytes held beyond what was held before."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        # Sets the most that was ever held back to what is held now.
        reset.write_text("5")
    before = held("VmRSS")
    wall, processor = time.perf_counter(), time.process_time()
    work()
    spent = time.perf_counter() - wall, time.process_time() - processor
    most = held("VmHWM")
    return *spent, None if most is None or before is None else most - before


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both and write a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1_000)
    parser.add_argument("--one-by-one", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    rows = marked(load("adult_education"), "sex", "Female")
    generator = torch.Generator().manual_seed(0)
    chosen = rows.drawn(torch.full((given.models, 1), 0.33), ROWS, generator)[:, 0]
    few = chosen[: given.one_by_one]
    # Whatever is loaded or made ready once counts for neither.
    RECIPE.train(rows.inputs, rows.labels, chosen[:2, :256], [0, 1])
    one_by_one(rows.inputs, rows.labels, chosen[:1, :256])
    lines = []
    for how, models, work in (
        ("at once", given.models, lambda: RECIPE.train(rows.inputs, rows.labels, chosen, range(given.models))),
        ("one after another", len(few), lambda: one_by_one(rows.inputs, rows.labels, few)),
    ):
        wall, processor, memory = timed(work)
        lines.append(
            {
                "how": how,
                "models": models,
                "threads": given.threads,
                "seconds": round(wall, 2),
                "processor_seconds": round(processor, 2),
                "seconds_of_1000": round(wall * 1000 / models, 1),
                "processor_seconds_of_1000": round(processor * 1000 / models, 1),
                "megabytes": None if memory is None else round(memory, 1),
            }
        )
        print(lines[-1], flush=True)
    ratios = [lines[1][name] / lines[0][name] for name in ("seconds_of_1000", "processor_seconds_of_1000")]
    print(f"at once is {ratios[0]:.1f} times as fast by the clock, {ratios[1]:.1f} times in processor time")
    if given.out is not None:
        with given.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*lines[0], "commit"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(map(signed, lines))


if __name__ == "__main__":
    main()
