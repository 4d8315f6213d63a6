"""Membership, epsilon and the three questions by other tools, on the models, scores and guesses that seepage has.

    python -m venv peers && peers/bin/pip install anonymeter==1.1.0 'pandas<3' torch scikit-learn scipy tqdm
    git clone https://github.com/facebookresearch/PrivacyGuard
    python benchmarks/peers.py --python peers/bin/python --privacy-guard PrivacyGuard --revision fb9c26c

seepage trains the models, attacks the messages, and writes scores and rows; ``peers_run.py`` reads them with the peer's
own code under the peer's interpreter, and its output is read here. A line has a figure by both tools:

- ``membership``: AUC on one model of German Credit (300 records, 20 epochs) by LiRA and RMIA from the same logits of
  the same 30 shadow models, and the true-positive rate at 1% false positives; mean and 95% interval over draws;
- ``epsilon of a model``: lower bounds of epsilon from these scores of LiRA, at delta 1e-5;
- ``epsilon of a mechanism``: scores of a Gaussian mechanism of epsilon 1 at delta 1e-5; ``value`` is the share of runs
  whose bound is above 1, an accusation without a cause;
- ``singling out``, ``linkability``, ``inference``: success rates and risk of guessed records of German Credit beside
  control records. Anonymeter gets the guessed records as the synthetic table, the attacked ones as the original one,
  and as many other rows as control.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from scipy.optimize import root_scalar
from torch import Tensor

import seepage
from seepage.assessment.empirical_epsilon import error_bound, one_run_bound
from seepage.assessment.intervals import interval
from seepage.assessment.membership import membership_figures
from seepage.attacks.membership import lira_scores, rmia_scores
from seepage.datasets import load
from seepage.defenses.accounting import gaussian_epsilon
from seepage.report.questions import questions
from seepage.report.report import Report
from seepage.settings.training_membership import RATES, MembershipTest, RowCounts, train_models
from seepage.shadow.stacked import Dense
from seepage.tabular.schema import Discrete

OUT = Path(__file__).parent / "results" / "peers.csv"
FIELDS = ("question", "what", "figure", "tool", "version", "value", "low", "high", "n", "commit")
OURS = "seepage"
DELTA, EPSILON, RUNS, CANARIES = 1e-5, 1.0, 100, 200
RECIPE = Dense(2, (100,), epochs=20, batch_size=32, weight_decay=0.0)
DRAWS, MODELS, ROWS = 5, 32, 300
SECRET = "checking_account"
QUASI = ("age", "housing", "job")
# What Anonymeter's linkability joins: some columns of a record, and others.
LINKED = (("age", "job"), ("housing", "status_and_sex"))
ATTACKS = ("unmix",)


def membership(folder: Path) -> list[dict[str, object]]:
    """Train the models, write their logits, and return our figures."""
    test, sizes = MembershipTest(ROWS, MODELS, DRAWS), RowCounts(ROWS, 100)
    pairs = torch.arange(MODELS) // 2
    lines, lows, figures = list[dict[str, object]](), list[float](), dict[tuple[str, str], list[float]]()
    for draw in range(DRAWS):
        trained = train_models(load("german"), RECIPE, test, sizes, torch.Generator().manual_seed(draw))
        logits, others = (part["final"][:MODELS] for part in (trained.candidates, trained.population))
        members = trained.members
        left_out = pairs[:1, None] == pairs
        scores = {
            "lira": lira_scores(logits[:1], logits, members, left_out)[0],
            "rmia": rmia_scores(logits[:1], logits, members, (others[:1], others), left_out)[0],
        }
        for attack, values in scores.items():
            for name, value in rates(values, members[0]).items():
                figures.setdefault((attack, name), []).append(value)
        lows.append(one_run_bound(members[0].numpy(), scores["lira"].numpy(), DELTA).low)
        shadows = (pairs != 0).numpy()
        arrays = {"logits": logits[..., 0].numpy(), "others": others[..., 0].numpy(), "members": members.numpy()}
        np.savez(folder / f"models{draw}.npz", **arrays, shadows=shadows)
    for (attack, name), values in figures.items():
        lines.append(line("membership", attack, name, OURS, values))
    lines.append(line("epsilon of a model", "lira", "lower bound", OURS, lows, (0.0, 10.0)))
    return lines


def rates(scores: Tensor, members: Tensor) -> dict[str, float]:
    """Return the AUC and the true-positive rate at 1% false positives."""
    found = membership_figures(scores[members][None], scores[~members][None], RATES)
    named = {figure.metric: float(figure.values[0]) for figure in found}
    return {"auc": named["membership_auc"], "tpr at 1%": named["membership_tpr_1"]}


def mechanism(folder: Path) -> list[dict[str, object]]:
    """Write scores of a mechanism whose epsilon is known, and return how often our bound is above it."""
    mu = float(root_scalar(lambda mu: gaussian_epsilon(mu, DELTA) - EPSILON, bracket=(1e-3, 10)).root)
    generator = np.random.default_rng(0)
    present, absent = generator.normal(mu, 1, (RUNS, CANARIES)), generator.normal(0, 1, (RUNS, CANARIES))
    np.savez(folder / "mechanism.npz", present=present, absent=absent)
    above = [
        error_bound(p, a, DELTA, seed=i).low > EPSILON for i, (p, a) in enumerate(zip(present, absent, strict=True))
    ]
    return [line("epsilon of a mechanism", "gaussian", "accused", OURS, list(map(float, above)))]


def guessed(folder: Path, attack: str) -> list[dict[str, object]]:
    """Attack messages, write attacked, guessed and control rows, and return our figures."""
    report = seepage.audit(
        "german",
        batch_sizes=8,
        attacks=attack,
        victims=15,
        control=False,
        workers=1,
        keep_records=True,
        quasi_identifiers=QUASI,
        iterations=200,
    )
    assert isinstance(report, Report)
    [run] = [run for run in report.runs if run.label == attack]
    assert run.evidence is not None
    assert run.evidence.true is not None
    assert run.evidence.guess is not None
    dataset = load("german")
    true, guess = (torch.from_numpy(part).flatten(0, 1) for part in (run.evidence.true, run.evidence.guess))
    rows = dataset.all.cells
    apart = ~(rows[:, None] == true[None]).all(2).any(1)
    order = torch.randperm(int(apart.sum()), generator=torch.Generator().manual_seed(0))[: len(true)]
    for name, cells in (("true", true), ("guess", guess), ("control", rows[apart][order])):
        frame_of(cells, dataset.schema).to_csv(folder / f"{attack}-{name}.csv", index=False)
    [entry] = questions(report)
    lines = []
    for answer in (each for each in entry["answers"] if each["column"] in (None, SECRET)):
        for figure, part in (("attack", "attack_rate"), ("control", "control"), ("risk", "risk")):
            ends = answer[part] or {}
            known = {"value": ends.get("mean"), "low": ends.get("low"), "high": ends.get("high"), "n": answer["units"]}
            about = {"question": answer["name"].lower(), "what": attack, "figure": figure, "tool": OURS}
            lines.append({**about, "version": seepage.__version__, **known})
    return lines


def frame_of(cells: Tensor, schema: seepage.Schema) -> pd.DataFrame:
    """Return rows as categories and numbers."""
    columns = {}
    for i, column in enumerate(schema.columns):
        values = cells[:, i].tolist()
        columns[column.name] = (
            [column.categories[int(value)] for value in values] if isinstance(column, Discrete) else values
        )
    return pd.DataFrame(columns)


def line(
    question: str, what: str, figure: str, tool: str, values: list[float], bounds: tuple[float, float] = (0.0, 1.0)
) -> dict[str, object]:
    """Return a line of the file: a mean over draws with its interval."""
    found = interval(torch.tensor(values, dtype=torch.float64), bounds=bounds)
    ends = {"value": found.mean, "low": found.low, "high": found.high, "n": found.n}
    version = seepage.__version__ if tool == OURS else tool
    return {"question": question, "what": what, "figure": figure, "tool": tool, "version": version, **ends}


def main() -> None:
    """Measure with both tools and write the file anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="interpreter that has the peers")
    parser.add_argument("--privacy-guard", type=Path, required=True, help="folder of PrivacyGuard's source")
    parser.add_argument("--revision", required=True, help="commit of PrivacyGuard's source")
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ours = [*membership(folder), *mechanism(folder), *(row for a in ATTACKS for row in guessed(folder, a))]
        asked = {"attacks": ATTACKS, "linked": LINKED, "secret": SECRET, "delta": DELTA, "epsilon": EPSILON}
        (folder / "asked.json").write_text(json.dumps(asked))
        environment = {**os.environ, "PYTHONPATH": str(chosen.privacy_guard.resolve())}
        script = Path(__file__).with_name("peers_run.py")
        subprocess.run([chosen.python, script, folder, chosen.revision], check=True, env=environment)
        theirs = json.loads((folder / "peers.json").read_text())
    lines = list(ours)
    for entry in theirs:
        values = entry.pop("values", None)
        if values is not None:
            version = entry.pop("version")
            most = 10.0 if "bound" in entry["figure"] else 1.0
            lines.append({**line(values=values, bounds=(0.0, most), **entry), "version": version})
        else:
            lines.append(entry)
    chosen.out.unlink(missing_ok=True)
    shown = [{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in lines]
    add_lines(chosen.out, FIELDS, sorted(shown, key=lambda row: (row["question"], row["what"], row["figure"])))
    print(len(read_lines(chosen.out)), "lines")


if __name__ == "__main__":
    main()
