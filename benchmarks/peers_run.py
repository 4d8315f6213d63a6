"""The half of ``peers.py`` that runs under the interpreter of the peers: reads scores and rows with their own code.

PYTHON benchmarks/peers_run.py FOLDER PRIVACY_GUARD REVISION
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator
from privacy_guard.analysis.mia.aggregate_analysis_input import AggregationType
from privacy_guard.analysis.mia.analysis_node import AnalysisNode
from privacy_guard.analysis.mia.mia_results import MIAResults
from privacy_guard.attacks.lira_attack import LiraAttack
from privacy_guard.attacks.rmia_attack import RmiaAttack
from sklearn.metrics import roc_auc_score

ANONYMETER = "Anonymeter"
GUARD = "PrivacyGuard"
SEED = 0
# Resamplings of PrivacyGuard's intervals, which are not read.
RESAMPLED = 20


def membership(folder: Path, delta: float) -> dict[tuple[str, str, str], list[float]]:
    """Return figures of PrivacyGuard's attacks on each model, by question, attack and figure."""
    figures: dict[tuple[str, str, str], list[float]] = {}
    for path in sorted(folder.glob("models*.npz")):
        kept = np.load(path)
        logits, others, members, shadows = (kept[name] for name in ("logits", "others", "members", "shadows"))
        inside, truth = members[shadows], members[0]
        frame = of_shadows(logits[0], logits[shadows], inside)
        parts = (frame[truth].copy(), frame[~truth].copy())
        lira = LiraAttack(
            *parts, AggregationType.NONE, use_fixed_variance=True, std_dev_type="mix", online_attack=True
        ).run_attack()
        chances = of_references(logits[0], logits[shadows], inside)
        population = of_references(others[0], others[shadows], np.zeros((int(shadows.sum()), others.shape[1]), bool))
        rmia = RmiaAttack(
            chances[truth], chances[~truth], population, AggregationType.NONE, int(shadows.sum()), online=True
        ).run_attack()
        for name, found in (("lira", lira), ("rmia", rmia)):
            node = AnalysisNode(found, delta, len(truth), num_bootstrap_resampling_times=RESAMPLED)
            output = node.run_analysis()
            own, other = (part["score"].to_numpy() for part in (found.df_train_user, found.df_test_user))
            labels = np.concatenate([np.ones(len(own)), np.zeros(len(other))])
            add(figures, ("membership", name, "auc"), roc_auc_score(labels, np.concatenate([own, other])))
            threshold = np.sort(other)[::-1][int(0.01 * len(other))]
            add(figures, ("membership", name, "tpr at 1%"), (own > threshold).mean())
            if name == "lira":
                add(figures, ("epsilon of a model", name, "bound eps_cp"), output.eps_cp)
                add(figures, ("epsilon of a model", name, "bound eps (default)"), output.eps)
    return figures


def add(figures: dict[tuple[str, str, str], list[float]], place: tuple[str, str, str], value: float) -> None:
    """Add a value to those of a figure."""
    figures.setdefault(place, []).append(float(value))


def of_shadows(target: np.ndarray, shadows: np.ndarray, inside: np.ndarray) -> pd.DataFrame:
    """Return the columns that PrivacyGuard's LiRA takes."""
    columns = {"user_id": np.arange(len(target)), "score_orig": target}
    for side, chosen in (("in", inside), ("out", ~inside)):
        values = np.where(chosen, shadows, np.nan)
        columns |= {f"score_mean_{side}": np.nanmean(values, 0), f"score_std_{side}": np.nanstd(values, 0)}
    return pd.DataFrame(columns)


def of_references(target: np.ndarray, shadows: np.ndarray, inside: np.ndarray) -> pd.DataFrame:
    """Return the columns that PrivacyGuard's RMIA takes, chances of the own class."""
    columns = {"user_id": np.arange(len(target)), "score_orig": 1 / (1 + np.exp(-target))}
    columns |= {f"score_ref_{i}": 1 / (1 + np.exp(-row)) for i, row in enumerate(shadows)}
    columns |= {f"member_ref_{i}": row for i, row in enumerate(inside)}
    return pd.DataFrame(columns)


def accused(folder: Path, delta: float, epsilon: float) -> dict[tuple[str, str, str], list[float]]:
    """Return whether PrivacyGuard's bounds are above the epsilon of a correct mechanism, one value a run."""
    kept = np.load(folder / "mechanism.npz")
    figures: dict[tuple[str, str, str], list[float]] = {}
    for present, absent in zip(kept["present"], kept["absent"], strict=True):
        found = MIAResults(torch.from_numpy(present), torch.from_numpy(absent))
        *_, bound = found.compute_acc_auc_ci_epsilon(delta)
        add(figures, ("epsilon of a mechanism", "gaussian", "accused by eps_cp"), bound > epsilon)
    return figures


def questions(folder: Path, attack: str, linked: list[list[str]], secret: str) -> list[dict[str, object]]:
    """Return Anonymeter's figures of guessed rows, with the guesses as the synthetic table."""
    true, guess, control = (pd.read_csv(folder / f"{attack}-{part}.csv") for part in ("true", "guess", "control"))
    others = [name for name in true.columns if name != secret]
    count = len(true)
    evaluators = {
        "singling out": SinglingOutEvaluator(true, guess, n_attacks=count, control=control, n_cols=4, seed=SEED),
        "linkability": LinkabilityEvaluator(true, guess, (linked[0], linked[1]), count, control=control),
        "inference": InferenceEvaluator(true, guess, others, secret, n_attacks=count, control=control),
    }
    lines = []
    for question, evaluator in evaluators.items():
        try:
            found = (
                evaluator.evaluate(mode="multivariate") if question == "singling out" else evaluator.evaluate(n_jobs=1)
            )
            results, risk = found.results(), found.risk()
        except RuntimeError as error:
            print(attack, question, error)
            continue
        rates = (("attack", results.attack_rate), ("control", results.control_rate))
        ends = {name: (rate.value, max(0.0, rate.value - rate.error), rate.value + rate.error) for name, rate in rates}
        ends["risk"] = (risk.value, *risk.ci)
        about = {"question": question, "what": attack, "tool": ANONYMETER, "version": version("anonymeter"), "n": count}
        for figure, (value, low, high) in ends.items():
            lines.append({**about, "figure": figure, "value": float(value), "low": float(low), "high": float(high)})
    return lines


def main() -> None:
    """Write what the peers find as JSON."""
    folder, revision = Path(sys.argv[1]), sys.argv[2]
    asked = json.loads((folder / "asked.json").read_text())
    figures = membership(folder, asked["delta"]) | accused(folder, asked["delta"], asked["epsilon"])
    lines: list[dict[str, object]] = [
        {"question": q, "what": what, "figure": figure, "tool": GUARD, "version": revision, "values": values}
        for (q, what, figure), values in figures.items()
    ]
    for attack in asked["attacks"]:
        lines += questions(folder, attack, asked["linked"], asked["secret"])
    (folder / "peers.json").write_text(json.dumps(lines))


if __name__ == "__main__":
    main()
