"""TimberStrike's own code beside seepage's `timberstrike`, on the same tree files, rows and scores.

    git clone https://github.com/necst/TimberStrike their
    python timberstrike.py train --folder their     # trees of bagging, as their Flower clients make them
    theirs/bin/python timberstrike.py theirs --folder their
    python timberstrike.py ours --folder their --out benchmarks/results/timberstrike.csv

`train` and `theirs` need an environment of their own with xgboost 2.1, pulp, pandas and scikit-learn; `ours` that of
seepage. `theirs` runs their reconstruction with CBC, whole, with leaves at random, and of the first tree alone. `ours`
scores both, and baselines: rows from the public marginals, those of the attacker and of all other clients, and single
rows. Cells are those of columns without the label, matched as in seepage; numbers count within 0.319 of the victim's
own standard deviation. Methods with randomness are means over 10 seeds. `_drawn` fills their intervals from the
marginals as ours does, `_middles` fills ours with middles as theirs does. The file in the results has `--tables
diabetes` and `--tables stroke` with `--limit 20`, and `--rounds 100 --limit 10` and `--rounds 30 --victims 2`.
"""

# Each part imports what its environment has, their code draws from numpy's global state, and what is defined in a loop
# is called in the same turn.
# ruff: noqa: PLC0415, NPY002, TID251, B023

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from csv_lines import signed

# Their partitions, by table, below their repository.
PARTITIONS = {"diabetes": "data/diabetes/nc_3/data", "stroke": "data/stroke/nc_5/data"}
# Share of a standard deviation within which a number counts as right, in TabLeak and in their evaluation.
TOLERANCE = 0.319
SEEDS = range(10)


@dataclass(frozen=True)
class Clients:
    """Training rows of all clients of a table.

    Attributes:
        names: columns, in order.
        numeric: whether each column is a number; others hold codes of categories.
        rows, labels: of each client.
    """

    names: tuple[str, ...]
    numeric: np.ndarray
    rows: tuple[np.ndarray, ...]
    labels: tuple[np.ndarray, ...]

    @classmethod
    def read(cls, case: Case) -> Clients:
        """Return the clients whose files lie in their repository."""
        folder = case.folder / PARTITIONS[case.table]
        config = json.loads((folder / "config/config.json").read_text())
        names = tuple(config["features"])
        number = len(list(folder.glob("client_*")))
        parts = [folder / f"client_{client}" / "train" for client in range(number)]
        return cls(
            names,
            np.array([name in config["numerical_features"] for name in names]),
            tuple(np.load(part / "x_train.npy").astype(np.float64) for part in parts),
            tuple(np.load(part / "y_train.npy").ravel() for part in parts),
        )


@dataclass(frozen=True)
class Case:
    """One victim of a table.

    Attributes:
        folder: their repository.
        table: name of the table.
        victim: number of the client that is attacked.
        rounds: number of rounds; the victim sends one tree in each.
        depth: largest depth of trees.
        score: base score, ``own`` where each client estimates its own as theirs do, or a number that is agreed on.
    """

    folder: Path
    table: str
    victim: int
    rounds: int
    depth: int
    score: str

    @property
    def stem(self) -> str:
        """Start of the names of its files."""
        return f"{self.table}_c{self.victim}_r{self.rounds}_d{self.depth}_{self.score}"

    def file(self, ending: str) -> Path:
        """Return one of its files."""
        return self.folder / "work" / f"{self.stem}{ending}"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of xgboost, those of their configuration but for the number of threads."""
        given: dict[str, Any] = {
            "objective": "binary:logistic",
            "eta": 0.3,
            "max_depth": self.depth,
            "gamma": 0,
            "lambda": 1,
            "eval_metric": "auc",
            "nthread": 1,
            "num_parallel_tree": 1,
            "subsample": 1,
            "tree_method": "hist",
        }
        return given if self.score == "own" else {**given, "base_score": float(self.score)}


def train(case: Case) -> None:
    """Write the global model, and whose each tree is; the victim's message comes first, so the header is its own."""
    import pandas as pd
    import xgboost as xgb

    clients = Clients.read(case)
    order = [case.victim, *(c for c in range(len(clients.rows)) if c != case.victim)]
    held = {
        c: xgb.DMatrix(pd.DataFrame(clients.rows[c], columns=list(clients.names)), label=clients.labels[c])
        for c in order
    }
    content: dict[str, Any] | None = None
    owners: list[int] = []
    for number in range(case.rounds):
        sent = []
        for client in order:
            if content is None:
                booster = xgb.train(case.parameters(), held[client], num_boost_round=1)
            else:
                booster = xgb.Booster(params=case.parameters())
                booster.load_model(bytearray(json.dumps(content).encode()))
                booster.update(held[client], booster.num_boosted_rounds())
                booster = booster[number * len(order) : number * len(order) + 1]
            sent.append(json.loads(bytes(booster.save_raw("json"))))
        for client, new in zip(order, sent, strict=True):
            owners.append(client)
            content = new if content is None else _appended(content, new)
    case.file("_model.json").write_text(json.dumps(content))
    case.file("_owners.json").write_text(json.dumps(owners))


def _appended(content: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return a model with one more tree, as Flower's bagging appends it."""
    model, further = (one["learner"]["gradient_booster"]["model"] for one in (content, new))
    [tree] = further["trees"]
    model["trees"].append({**tree, "id": len(model["trees"])})
    model["tree_info"].append(0)
    model["gbtree_model_param"]["num_trees"] = str(len(model["trees"]))
    model["iteration_indptr"].append(len(model["trees"]))
    return content


def theirs(case: Case, limit: float) -> None:
    """Run their reconstruction, and that with leaves at random, and keep intervals, rows and their printed accuracy."""
    sys.path.insert(0, str(case.folder))
    os.environ.setdefault("MPLBACKEND", "Agg")
    import pandas as pd
    import pulp
    import xgboost as xgb
    import xgboost_reconstruction as theirs_own
    from xgboost_reconstruction import run_attack
    from xgboost_reconstruction.xgboost_utils import GenericXGBoostInfo

    # Plots take time and are no part of the score.
    run_attack.tsne_plot = lambda *_, **__: None

    # Their fallback reads these two, which the solver has only where it is Gurobi; it stops there as it was published.
    pulp.PULP_CBC_CMD.solveTime = float("nan")
    pulp.PULP_CBC_CMD.close = lambda _: None

    class Limited(theirs_own.DatabaseReconstructor):
        """Theirs with another time limit; its own are 600 and 360 seconds a tree."""

        def step(self, *args: Any, **kwargs: Any) -> bool:
            return bool(super().step(*args, **{**kwargs, "time_limit": limit}))

    clients = Clients.read(case)
    names = list(clients.names)
    pooled = np.concatenate(clients.rows)
    categorical = [name for name, number in zip(names, clients.numeric, strict=True) if not number]
    values = {name: np.unique(pooled[:, names.index(name)]) for name in categorical}
    ranges = {name: [pooled[:, i].min(), pooled[:, i].max()] for i, name in enumerate(names) if clients.numeric[i]}
    text = case.file("_model.json").read_text()
    owners = json.loads(case.file("_owners.json").read_text())
    model = xgb.Booster(model_file=bytearray(text.encode()))
    score = json.loads(text)["learner"]["learner_model_param"]["base_score"]
    info = GenericXGBoostInfo(base_score=float(score), lambda_=1, lr=0.3, gamma=0)
    boosters = list(model)
    frames = [b.trees_to_dataframe() for b, owner in zip(boosters, owners, strict=True) if owner == case.victim]
    trees = [{"cid": owner, "tree": b.save_raw("json")} for b, owner in zip(boosters, owners, strict=True)]
    data = (clients.rows[case.victim], clients.labels[case.victim])
    other = _attacker(case, clients)
    for kind in ("first", "random_leaves", "full"):
        np.random.seed(42)
        start = time.perf_counter()
        with case.file(f"_{kind}.log").open("w") as log, contextlib.redirect_stdout(log):
            reconstructor = Limited(frames, names, info)
            if kind != "first":
                theirs_own.run_attack_bagging_with_interleaving(
                    reconstructor, trees, case.victim, names, case.parameters(), str(case.folder / "work/log"), data,
                    names, categorical, values, ranges, tol=TOLERANCE, to_drop=[], compromised_df=None,
                    evaluation_step=10**9, baseline=kind == "random_leaves",
                )  # fmt: skip
            database = reconstructor.database
            final = theirs_own.database_to_final_dataframe(
                database, categorical_features=categorical, categorical_values=values, numerical_ranges=ranges
            )
            if categorical:
                attacker = pd.DataFrame(clients.rows[other], columns=names)
                filled = run_attack.impute_missing_values(final, categorical, compromised_df=attacker)
            else:
                filled = final
            seconds = time.perf_counter() - start
            np.random.seed(42)
            run_attack.evaluate_attack(
                str(case.folder / "work"), database, data, names, categorical, values, ranges, tol=TOLERANCE,
                to_drop=[], compromised_df=pd.DataFrame(clients.rows[other], columns=names),
            )  # fmt: skip
        printed = re.findall(r"Reconstruction accuracy: ([\d.]+)%", case.file(f"_{kind}.log").read_text())
        samples = database.get_samples()
        boxes = np.array([[(s.features[n].min, s.features[n].max) for n in names] for s in samples])
        np.savez(
            case.file(f"_{kind}.npz"),
            boxes=boxes, rows=filled[names].to_numpy(dtype=float), labels=np.array([s.label for s in samples]),
            seconds=seconds, printed=float(printed[-1]),
        )  # fmt: skip
        print(case.stem, kind, f"{seconds:.1f} s, {len(samples)} rows, they print {printed[-1]} %", flush=True)


def _attacker(case: Case, clients: Clients) -> int:
    """Return the client that attacks: their configuration has number 2."""
    return 2 if case.victim != 2 else 0


def ours(case: Case) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, share of right cells, the same with the label as one more column, and seconds of each attack."""
    import pandas as pd
    import torch

    from seepage.attacks.trees.timberstrike import TimberStrike, drawn
    from seepage.baselines.mode import Likeliest, Mode
    from seepage.baselines.random import Random
    from seepage.tabular.align import match, pairwise_error, reorder, right_cells
    from seepage.tabular.schema import Continuous, Discrete, Schema
    from seepage.tabular.statistics import Statistics
    from seepage.tabular.table import Table
    from seepage.wire.forest import read_forest
    from seepage.wire.trees import FileMessage, TreeFilesView, TreesKnowledge

    clients = Clients.read(case)
    true, labels = clients.rows[case.victim], clients.labels[case.victim]
    pooled = np.concatenate(clients.rows)
    # Codes of categories are numbers to these trees: whole ones, right only where they are the true one.
    columns = tuple(
        Continuous(
            name=name, low=float(pooled[:, i].min()), high=float(pooled[:, i].max()),
            tolerance=float(TOLERANCE * true[:, i].std()) if clients.numeric[i] else 0.0,
            integer=bool((pooled[:, i] == np.rint(pooled[:, i])).all()),
        )
        for i, name in enumerate(clients.names)
    )  # fmt: skip
    schema = Schema(columns=columns, target=Discrete(name="label", categories=(0, 1)))
    frame = pd.DataFrame(pooled, columns=list(clients.names))
    frame["label"] = np.concatenate(clients.labels)
    statistics = Statistics.of(Table(schema, frame))
    knowledge = TreesKnowledge(schema, statistics, len(true))
    owners = json.loads(case.file("_owners.json").read_text())
    own = tuple(i for i, owner in enumerate(owners) if owner == case.victim)
    number = len(clients.rows)
    forest = read_forest(case.file("_model.json").read_text())
    message = FileMessage(forest, own, tuple(i // number * number for i in own))
    view = TreeFilesView((message,))
    wide = Schema(columns=(*columns, Continuous(name="of it", low=0, high=1, tolerance=0)), target=schema.target)
    answer = torch.from_numpy(true)
    whole = torch.from_numpy(np.column_stack([true, labels]))

    def share(scheme: Schema, guess: torch.Tensor, truth: torch.Tensor) -> float:
        if len(guess) < len(truth):  # Rows that are not guessed are wrong.
            none = torch.full((len(truth) - len(guess), guess.shape[1]), 1e12, dtype=torch.float64)
            guess = torch.cat([guess, none])
        index = match(pairwise_error(scheme, guess[None], truth[None]))
        return float(right_cells(scheme, reorder(guess[None], index), truth[None]).double().mean())

    def scored(make: Callable[[int], tuple[np.ndarray, np.ndarray | None]], seeds: Any) -> tuple[float, float]:
        both = []
        for seed in seeds:
            rows, guessed = make(seed)
            rows = np.nan_to_num(rows, nan=1e12)
            with_label = float("nan")
            if guessed is not None:
                with_label = share(wide, torch.from_numpy(np.column_stack([rows, guessed])), whole)
            both.append((share(schema, torch.from_numpy(rows), answer), with_label))
        return tuple(np.mean(both, axis=0))

    def middles(boxes: np.ndarray) -> np.ndarray:
        low = np.where(np.isfinite(boxes[..., 0]), boxes[..., 0], pooled.min(0))
        high = np.where(np.isfinite(boxes[..., 1]), boxes[..., 1], pooled.max(0))
        filled = (low + high) / 2
        # For codes of categories a middle is none; the first code of the interval stands for it.
        codes = np.minimum(np.ceil(low), pooled.max(0))
        return np.where(clients.numeric, filled, codes)

    for kind in ("first", "random_leaves", "full"):
        saved = np.load(case.file(f"_{kind}.npz"))
        yield f"theirs_{kind}", *scored(lambda _: (saved["rows"], saved["labels"]), [0]), float(saved["seconds"])
        boxes, guessed = saved["boxes"], saved["labels"]
        yield (
            f"theirs_{kind}_boxes_drawn",
            *scored(lambda s: (drawn(schema, statistics, boxes, np.random.default_rng([s, 2])), guessed), SEEDS),
            float("nan"),
        )
    for name, trees in (("ours", case.rounds), ("ours_first_tree", 1)):
        attack = TimberStrike(trees=trees)
        start = time.perf_counter()
        rows = attack._rows(message, knowledge)
        drawn(schema, statistics, rows.boxes, np.random.default_rng([0, 2]))
        seconds = time.perf_counter() - start
        if name == "ours":
            whole_attack = attack(view, knowledge, [0])
            again = drawn(schema, statistics, rows.boxes, np.random.default_rng([0, 2]))
            assert np.array_equal(whole_attack.cells[0].numpy(), again)
        yield (
            name,
            *scored(
                lambda s: (drawn(schema, statistics, rows.boxes, np.random.default_rng([s, 2])), rows.labels), SEEDS
            ),
            seconds,
        )
        yield f"{name}_boxes_middles", *scored(lambda _: (middles(rows.boxes), rows.labels), [0]), seconds
    other = _attacker(case, clients)

    def of_attacker(seed: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng([seed, 7])
        size = len(clients.rows[other])
        chosen = generator.choice(size, len(true), replace=size < len(true))
        return clients.rows[other][chosen], clients.labels[other][chosen]

    yield "attackers_rows", *scored(of_attacker, SEEDS), 0.0

    def of_pooled_others(seed: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng([seed, 8])
        rest = [c for c in range(number) if c != case.victim]
        held = np.concatenate([clients.rows[c] for c in rest])
        held_labels = np.concatenate([clients.labels[c] for c in rest])
        chosen = generator.choice(len(held), len(true), replace=len(held) < len(true))
        return held[chosen], held_labels[chosen]

    yield "other_clients_rows", *scored(of_pooled_others, SEEDS), 0.0
    for name, baseline in (("random", Random()), ("likeliest", Likeliest()), ("mode", Mode())):
        seeds = SEEDS if name == "random" else [0]
        yield (
            name,
            *scored(
                lambda s: (baseline(view, knowledge, [s]).cells[0].numpy(), None),
                seeds,
            ),
            0.0,
        )
    unbounded = np.tile([-np.inf, np.inf], (*true.shape, 1))
    yield "middle_of_range", *scored(lambda _: (middles(unbounded), None), [0]), 0.0


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("train", "theirs", "ours"))
    parser.add_argument("--folder", type=Path, required=True, help="their repository")
    parser.add_argument("--tables", nargs="+", default=["diabetes"])
    parser.add_argument("--victims", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--score", default="own")
    parser.add_argument("--limit", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=Path("timberstrike.csv"))
    given = parser.parse_args()
    (given.folder / "work").mkdir(exist_ok=True)
    cases = [
        Case(given.folder, t, v, given.rounds, given.depth, given.score) for t in given.tables for v in given.victims
    ]
    lines = []
    for case in cases:
        if given.part == "train":
            train(case)
        elif given.part == "theirs":
            theirs(case, given.limit)
        else:
            rows = len(Clients.read(case).rows[case.victim])
            for name, accuracy, with_label, seconds in ours(case):
                print(f"{case.stem} {name:32} {accuracy:.4f} {with_label:.4f} {seconds:8.2f} s", flush=True)
                lines.append((case, rows, name, accuracy, with_label, seconds))
    if lines:
        with given.out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["table", "client", "rows", "trees", "attack", "accuracy", "seconds", "commit"])
            for case, rows, name, accuracy, _, seconds in lines:
                kept = "" if np.isnan(seconds) else f"{seconds:.2f}"
                figures = [f"{accuracy:.4f}", kept, signed({})["commit"]]
                writer.writerow([case.table, case.victim, rows, case.rounds, name, *figures])


if __name__ == "__main__":
    main()
