"""An audit of split learning: every attack and baseline on the same records of several trainings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from seepage import datasets
from seepage.assessment import Figures, Measurement, auc, lift, measure_columns
from seepage.attacks.split import Posterior, direction_scores, norm_scores
from seepage.attacks.split.parts.space import Space, check_enumerable
from seepage.audit.code import own_code
from seepage.audit.grid import plain
from seepage.audit.parts import registry
from seepage.audit.results import Row
from seepage.audit.seeds import stream
from seepage.audit.spec import Part
from seepage.audit.split_spec import CutDefense, SplitSpec
from seepage.audit.store import Store
from seepage.audit.workers import threads
from seepage.datasets import Dataset
from seepage.datasets.dataset import split
from seepage.errors import BadInputError
from seepage.guesses import CutGuess
from seepage.knowledge import Auxiliary, CutKnowledge
from seepage.models.deepfm import deepfm
from seepage.models.split import SplitModel
from seepage.protocols.split import SplitLearning, TrainedSplit
from seepage.tabular.schema import Discrete
from seepage.tabular.table import Table
from seepage.transcript import CutTranscript

# Below it, figures leak more the higher they are; these say how good an answer is instead.
_NO_LEAK = {"calibration", "ties"}
# What everyone believes before anything is sent.
PRIOR = "prior"
DELTA = 1e-5


@dataclass(frozen=True)
class SplitRun:
    """What one attack or baseline got out of the trainings under one defense.

    Attributes:
        defense: what clients did.
        called: name in results; ``training`` for the trained network itself.
        is_attack: whether it saw what came back.
        measured: figures, one value a training.
        milliseconds: mean time for a record; None for what is no attack.
        settings: how it was configured.
        knowledge: what it was granted.
    """

    defense: str
    called: str
    is_attack: bool
    measured: list[Measurement]
    milliseconds: float | None
    settings: dict[str, Any]
    knowledge: dict[str, Any]


@dataclass(frozen=True)
class SplitOutcome:
    """All runs of an audit.

    Attributes:
        spec: what was done.
        dataset: to which rows.
        configurations: of private cells and label that a record may have.
        runs: baselines before attacks, under each defense.
    """

    spec: SplitSpec
    dataset: Dataset
    configurations: int
    runs: list[SplitRun] = field(default_factory=list)


def run_split(
    spec: SplitSpec,
    store: Store,
    dataset: Dataset | None = None,
    say: Callable[[str], None] = lambda _: None,
    run_missing: bool = True,
) -> SplitOutcome:
    """Measure what the server of split learning reads, and return it.

    Each training is measured whole and kept in the store with everything that determines it; a stopped audit
    continues.

    Args:
        spec: what to do.
        store: holds what was measured before.
        dataset: rows of one's own, instead of those that the spec names.
        say: called with what is trained next.
        run_missing: whether to measure what the store does not hold.

    Raises:
        BadInputError: a setting cannot be used with these rows.
    """
    data = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
    private = spec.private or default_private(data)
    first = deepfm(data.schema, private, 0, spec.hidden, tower=spec.tower, logit=spec.logit)
    space = Space.of(first, CutKnowledge(data.schema, data.statistics))
    _check(spec, first, space)
    outcome = SplitOutcome(spec, data, space.configurations)
    parts = [(part, False) for part in spec.baselines]
    if space.configurations <= Posterior().most:
        parts.append((Part(name=PRIOR), False))
    parts += [(part, True) for part in spec.attacks]
    for defense in spec.defenses:
        held: dict[str, list[dict[str, Any]]] = {}
        for training in range(spec.trainings):
            found = _training(spec, data, private, defense, training, parts, store, say, run_missing)
            for called, values in found.items():
                held.setdefault(called, []).append(values)
        for part, is_attack in [(Part(name="training"), False), *parts]:
            if part.called in held:
                outcome.runs.append(_run(spec, data, defense, part, is_attack, held[part.called]))
    return outcome


def default_private(data: Dataset) -> tuple[str, ...]:
    """Return the sensitive columns with categories, the client's where none are named.

    Raises:
        BadInputError: there are none, or no others.
    """
    found = tuple(c.name for c in data.schema.columns if c.sensitive and isinstance(c, Discrete))
    if not found or len(found) == len(data.schema.columns):
        raise BadInputError(
            f"no private columns were named, and the schema of {data.name!r} singles out {len(found)} of its "
            f"{len(data.schema.columns)} columns as sensitive with categories; name those that the client holds."
        )
    return found


def _check(spec: SplitSpec, model: SplitModel, space: Space) -> None:
    """Refuse, before anything is trained, what would fail after it."""
    for defense in spec.defenses:
        flip = defense.made[0]
        if flip is not None:
            flip.epsilon(model.classes)
    for part in spec.attacks:
        made = registry.cut_attacks.create(part.name, **part.options)
        if getattr(made, "search", "exhaustive") == "exhaustive" and hasattr(made, "most"):
            check_enumerable(space, made.most)
    if spec.stale > spec.epochs:
        raise BadInputError(
            f"the server is to know client weights of {spec.stale} epochs ago, but training takes {spec.epochs}; "
            f"give at most {spec.epochs}."
        )


def _training(
    spec: SplitSpec,
    data: Dataset,
    private: Sequence[str],
    defense: CutDefense,
    training: int,
    parts: Sequence[tuple[Part, bool]],
    store: Store,
    say: Callable[[str], None],
    run_missing: bool,
) -> dict[str, dict[str, Any]]:
    """Return the values of one training by what measured them."""
    base = {
        "split": spec.model_dump(
            mode="json",
            include={
                *("dataset_options", "protocol", "hidden", "tower", "logit", "epochs", "batch_size", "learning_rate"),
                *("rows_each", "clients", "test_share", "records", "auxiliary", "stale", "seed", "threads"),
            },
        ),
        "dataset": data.name,
        "rows": _digest(data),
        "private": list(private),
        "code": own_code(),
        "defense": {k: v for k, v in defense.model_dump(mode="json").items() if k != "label"},
        "training": training,
    }
    made: _Made | None = None
    values: dict[str, dict[str, Any]] = {}
    for part, is_attack in [(Part(name="training"), False), *parts]:
        identity = {**base, "part": part.name, "options": plain(part.options)}

        def measure(part: Part = part, is_attack: bool = is_attack) -> dict[str, Any]:
            nonlocal made
            with threads(spec.threads):
                if made is None:
                    say(f"training {training + 1} of {spec.trainings} under {defense.label}")
                    made = _make(spec, data, private, defense, training)
                return made.training() if part.name == "training" else made.guess(part, is_attack)

        found = store.setup(identity, measure if run_missing else None)
        if found is not None:
            values[part.called] = found
    return values


@dataclass(frozen=True)
class _Made:
    """One training and what the server saw of the attacked rows."""

    spec: SplitSpec
    learning: SplitLearning
    trained: TrainedSplit
    seen: CutTranscript
    rows: Table
    test: Table
    known: CutKnowledge
    neighbours: CutKnowledge

    def training(self) -> dict[str, Any]:
        """Return how well the network does, what the defense guarantees and how labels score without any search."""
        schema, model = self.rows.schema, self.trained.model
        target = schema.target
        assert isinstance(target, Discrete)
        chances = model.probabilities(self.test.cells).cpu()
        figures: Figures = {
            ("task_accuracy", None): float((chances.argmax(1) == self.test.labels).double().mean()),
            ("loss", None): self.trained.losses[-1],
        }
        if target.width == 2:
            positive = target.sorted_codes[-1]
            figures["auc", None] = auc(chances[:, positive], self.test.labels == positive)
            labels = self.seen.labels
            rare = float(labels.mode().values)
            wanted = (labels == 1 - rare).nonzero()
            figures["label_auc_norm", None] = auc(norm_scores(self.seen.view).scores, labels == 1 - rare)
            if len(wanted):
                # One record of the rarer label is known, and left out.
                hint = int(wanted[0])
                rest = torch.arange(len(labels)) != hint
                scores = direction_scores(self.seen.view, hint).scores
                figures["label_auc_direction", None] = auc(scores[rest], (labels == 1 - rare)[rest])
        if self.learning.flip is not None:
            figures["label_epsilon", None] = self.learning.flip.epsilon(target.width)
        if self.learning.noise is not None:
            figures["epsilon", None] = self.learning.noise.epsilon(self.learning.epochs, DELTA)
            figures["clip", None] = self.trained.clip
        return {"figures": _plain(figures), "milliseconds": None}

    def guess(self, part: Part, is_attack: bool) -> dict[str, Any]:
        """Return the figures of an attack or a baseline, and its time for a record."""
        seeds = [stream(self.spec.seed, 0, "starts")]
        attack: Callable[..., CutGuess]
        if part.name == PRIOR:
            attack, known = Posterior(observed=False), self.known
        elif is_attack:
            attack, known = registry.cut_attacks.create(part.name, **part.options), self.known
        else:
            attack, known = registry.cut_baselines.create(part.name, **part.options), self.neighbours
        begun = time.perf_counter()
        guess = attack(self.seen.view, known, seeds)
        seconds = time.perf_counter() - begun
        figures = measure_columns(self.rows.schema, self.trained.model.private, self.seen, guess)
        return {"figures": _plain(figures), "milliseconds": 1e3 * seconds / self.seen.view.records}


def _make(spec: SplitSpec, data: Dataset, private: Sequence[str], defense: CutDefense, training: int) -> _Made:
    # The split must not tell one defense from another.
    train, test = split(data.all, spec.test_share, stream(spec.seed, training, "split") % 2**32)
    model = deepfm(
        data.schema,
        private,
        stream(spec.seed, training, "initialisation") % 2**62,
        spec.hidden,
        tower=spec.tower,
        logit=spec.logit,
    )
    learning = spec.learning(defense)
    trained = learning.train(model, train, stream(spec.seed, training, "training") % 2**62)
    attacked = test if spec.records is None else test.rows(range(min(spec.records, len(test))))
    granted = trained.earlier[-spec.stale] if spec.stale else None
    seen = learning.observe(trained, attacked, stream(spec.seed, training, "defense") % 2**62, granted)
    some = train.rows(range(min(spec.auxiliary, len(train)))) if spec.auxiliary else None
    known = CutKnowledge(
        data.schema, data.statistics, learning.known(), None if some is None else Auxiliary(some.cells, some.labels)
    )
    neighbours = CutKnowledge(data.schema, data.statistics, learning.known(), Auxiliary(train.cells, train.labels))
    return _Made(spec, learning, trained, seen, train, test, known, neighbours)


def _digest(data: Dataset) -> list[Any]:
    cells = data.all
    return [len(cells), plain(cells.cells), plain(cells.labels)]


def _plain(figures: Mapping[tuple[str, str | None], float | None]) -> list[list[Any]]:
    return [[metric, column, value] for (metric, column), value in figures.items()]


def _run(
    spec: SplitSpec, data: Dataset, defense: CutDefense, part: Part, is_attack: bool, held: list[dict[str, Any]]
) -> SplitRun:
    figures: dict[tuple[str, str | None], list[float]] = {}
    for k, values in enumerate(held):
        for metric, column, value in values["figures"]:
            row = figures.setdefault((metric, column), [float("nan")] * len(held))
            row[k] = float("nan") if value is None else value
    rates = {"loss": (0.0, float("inf")), "clip": (0.0, float("inf"))}
    measured = [
        Measurement(
            metric,
            column,
            torch.tensor(row, dtype=torch.float64),
            metric not in _NO_LEAK,
            rates.get(metric, (0.0, float("inf") if "epsilon" in metric else 1.0)),
        )
        for (metric, column), row in figures.items()
    ]
    times = [values["milliseconds"] for values in held if values["milliseconds"] is not None]
    known = {
        "sees": "what it sent and what came back of every record, and the client's weights"
        + (f" of {spec.stale} epoch(s) ago" if spec.stale else ""),
        "auxiliary": spec.auxiliary,
        "defense": {}
        if part.name == "exact" and not part.options.get("aware")
        else spec.learning(defense).known().describe(),
    }
    return SplitRun(
        defense.label,
        part.called,
        is_attack,
        measured,
        sum(times) / len(times) if times and is_attack else None,
        {"epochs": spec.epochs, "hidden": list(spec.hidden), "tower": list(spec.tower), "options": plain(part.options)},
        known,
    )


def split_rows(outcome: SplitOutcome) -> list[Row]:
    """Return the results of an audit of split learning as rows, see ``audit.rows``; units are trainings."""
    made: list[Row] = []
    spec = outcome.spec
    for defense in spec.defenses:
        here = [run for run in outcome.runs if run.defense == defense.label]
        guessing = {run.called: run.measured for run in here if not run.is_attack and run.called != "training"}
        for run in here:
            for measured in run.measured:
                estimate = measured.estimate()
                comparable = {
                    name: [m for m in other if len(m.values) == len(measured.values)]
                    for name, other in guessing.items()
                }
                gained = lift(measured, comparable) if run.is_attack and measured.metric not in _NO_LEAK else None
                made.append(
                    {
                        "dataset": outcome.dataset.name,
                        "protocol": spec.protocol,
                        "model": "deepfm",
                        "variant": None,
                        "batch_size": spec.batch_size if spec.protocol == "split" else spec.rows_each,
                        "attack": run.called,
                        "defense": run.defense,
                        "metric": measured.metric,
                        "column": measured.column,
                        "mean": estimate.mean,
                        "low": estimate.low,
                        "high": estimate.high,
                        "std": estimate.std,
                        "n": estimate.n,
                        "baseline": None if gained is None else gained.reference.mean,
                        "baseline_name": None if gained is None else gained.baseline,
                        "lift": None if gained is None else gained.gain.mean,
                        "lift_low": None if gained is None else gained.gain.low,
                        "lift_high": None if gained is None else gained.gain.high,
                        "seconds_per_victim": None if run.milliseconds is None else run.milliseconds / 1e3,
                        "is_attack": run.is_attack,
                        "status": "undefined" if estimate.mean is None else "ok",
                        "seed": spec.seed,
                        "settings": run.settings,
                        "knowledge": run.knowledge,
                    }
                )
    return made
