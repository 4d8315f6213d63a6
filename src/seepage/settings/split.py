"""Split learning as a study: every attack and guess on the same records of several trainings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from seepage import datasets, registry
from seepage.assessment import Figures, auc, measure_columns
from seepage.attacks.split import Posterior, direction_scores, norm_scores
from seepage.attacks.split.parts.space import Space, check_enumerable
from seepage.datasets import Dataset
from seepage.datasets.dataset import split
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.models.split import SplitModel
from seepage.protocols.split import SplitLearning, TrainedSplit
from seepage.seeds import stream
from seepage.settings.grid_of_attacks import deployment_of, refuse_inapplicable
from seepage.settings.spec import Part
from seepage.settings.split_spec import SplitDefense, SplitSpec
from seepage.settings.study import Answer, Scale, Study, StudyPart, rows_identity
from seepage.tabular.schema import Discrete
from seepage.tabular.table import Table
from seepage.wire.secret import CutTranscript
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge

# What everyone believes before anything is sent.
PRIOR = "prior"
DELTA = 1e-5
# Fields of a spec that say what is measured, on how many trainings and how it is called, but change no training.
_NOT_DETERMINING = {"attacks", "baselines", "defenses", "units", "private", "data_folder", "dataset"}


def split_study(spec: SplitSpec, dataset: Dataset | None = None, own: bool = False) -> Study:
    """Return what a spec of split learning measures.

    Args:
        spec: what to do.
        dataset: rows of one's own, instead of those that the spec names.
        own: whether they are private.

    Raises:
        BadInputError: a setting cannot be used with these rows.
    """
    data = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
    private = spec.private or default_private(data)
    first = deepfm(data.schema, private, 0, spec.hidden, tower=spec.tower, logit=spec.logit)
    space = Space.of(first, CutKnowledge(data.schema, data.statistics))
    refuse_inapplicable(spec.attacks, deployment_of(spec))
    _check(spec, first, space)
    parts = [StudyPart(Part(name="training"), "about"), *(StudyPart(part, "guess") for part in spec.baselines)]
    if space.configurations <= Posterior().most:
        parts.append(StudyPart(Part(name=PRIOR), "guess"))
    parts += [StudyPart(part, "attack") for part in spec.attacks]
    by_label = {part.called: spec.defense(part) for part in spec.defenses}
    trained = len(split(data.all, spec.test_share, 0)[0])
    held = min(spec.auxiliary, trained)

    def granted(defense: str, part: StudyPart) -> dict[str, Any]:
        told = (
            {} if part.part.name == "exact" and not part.part.options.get("aware") else _known(spec, by_label, defense)
        )
        return {"sees": _sees(spec), "auxiliary": held, "defense": told}

    return Study(
        kind="split",
        dataset=data.name,
        protocol=spec.protocol,
        model="deepfm",
        batch_size=spec.batch_size if spec.protocol == "split" else spec.rows_each,
        units=spec.units,
        unit="training",
        make=lambda unit, defense: _make(spec, data, private, by_label[defense], unit).measure,
        defenses={part.called: part.model_dump(mode="json", exclude={"label"}) for part in spec.defenses},
        parts=tuple(parts),
        identity={
            "spec": spec.model_dump(mode="json", exclude=_NOT_DETERMINING),
            "dataset": data.name,
            "rows": rows_identity(data),
            "private": list(private),
        },
        scales={
            "loss": Scale(None),
            "clip": Scale(None),
            "epsilon": Scale(None),
            "label_epsilon": Scale(None),
            "weights_epsilon": Scale(None),
            "calibration": Scale(None, 0.0, 1.0),
            "ties": Scale(None, 0.0, 1.0),
            "proven": Scale(None, 0.0, 1.0),
        },
        granted=granted,
        settings={"epochs": spec.epochs, "hidden": list(spec.hidden), "tower": list(spec.tower)},
        facts=_facts(spec, data, private, space, trained),
        notes=(
            *data.notes,
            f"{space.configurations:,} configurations of private cells and label",
            *(
                [f"all {held:,} training rows are auxiliary, not {spec.auxiliary:,}: there are no more"]
                if held < spec.auxiliary
                else []
            ),
        ),
        lead="What the server of split learning learns about the columns and labels that clients keep.",
        attacker="The server",
        rows=len(data.all),
        target=data.schema.target.name,
        columns=(*private, data.schema.target.name),
        sensitive=tuple(c.name for c in data.schema.columns if c.sensitive),
        seed=spec.seed,
        threads=spec.threads,
        own=own,
    )


def _sees(spec: SplitSpec) -> str:
    weights = "the client's weights"
    if spec.stale:
        weights += f" of {spec.stale} epoch(s) ago"
    elif spec.final:
        weights += f" {spec.final} epoch(s) later, at the end of training"
    if any(spec.defense(part).published for part in spec.defenses):
        weights += ", with noise on them where that is a defense"
    return f"what it sent and what came back of every record, and {weights}"


def _known(spec: SplitSpec, defenses: dict[str, SplitDefense], label: str) -> dict[str, Any]:
    return spec.learning(defenses[label]).known().describe()


def _facts(spec: SplitSpec, data: Dataset, private: Sequence[str], space: Space, trained: int) -> tuple[str, ...]:
    clients = (
        "one client holds the private columns and labels of all rows"
        if spec.protocol == "split"
        else f"clients hold the private columns and labels of {spec.rows_each} rows each, {spec.clients} take part in "
        "an exchange"
    )
    attacked = "all held-out records" if spec.records is None else f"up to {spec.records:,} held-out records"
    return (
        f"The attacker is the server, honest but curious. It sees {_sees(spec)}.",
        "It is granted the schema, the marginals of all columns and of the label, "
        f"{min(spec.auxiliary, trained):,} training rows that it holds whole, and, where an attack adapts to it, the "
        "defense with its parameters.",
        f"Split learning on {data.name}, {trained:,} rows of clients ({len(data.all) - trained:,} more held out): "
        f"{clients}.",
        f"Private: {space.sizes} and {space.labels} labels, {space.configurations:,} configurations of a record.",
        f"DeepFM with layers {spec.hidden} at the client"
        + (f", {spec.tower} at the server" if spec.tower else "")
        + f", {spec.epochs} epochs of Adagrad at {spec.learning_rate:g}, batches of "
        f"{spec.batch_size if spec.protocol == 'split' else spec.rows_each}.",
        f"Attacked are {attacked}, as though they were trained on next, in {spec.units} training(s) with seeds of "
        f"their own from seed {spec.seed}; intervals are over trainings.",
        "Guesses hold what the server holds anyway and never see what came back; 'prior' is what the posterior "
        "believes before it looks.",
    )


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
    for part in spec.defenses:
        flip = spec.defense(part).flip
        if flip is not None:
            flip.epsilon(model.classes)
    for part in spec.attacks:
        made = registry.attacks.of("split").create(part.name, **part.options)
        if getattr(made, "search", "exhaustive") == "exhaustive" and hasattr(made, "most"):
            check_enumerable(space, made.most)
        noisy = next((one for one in spec.defenses if spec.defense(one).noise is not None), None)
        if getattr(made, "weights", "current") == "about" and noisy is not None:
            raise BadInputError(
                f"{part.called!r} fits how far the client weights are off (weights='about') on gradients as they are, "
                f"but under {noisy.called!r} clients clip theirs; leave out one of the two."
            )
    for name, told in (("stale", "are of {} epochs ago"), ("final", "are those of {} epochs later")):
        epochs = getattr(spec, name)
        if epochs > spec.epochs:
            raise BadInputError(
                f"the client weights that the server knows {told.format(epochs)} ({name}={epochs}), but training takes "
                f"{spec.epochs}; give at most {name}={spec.epochs}."
            )
    if spec.stale and spec.final:
        raise BadInputError(
            f"the client weights that the server knows cannot be both older (stale={spec.stale}) and newer "
            f"(final={spec.final}) than those that answer; give one of the two."
        )


@dataclass(frozen=True)
class _Made:
    """One training and what the server saw of the attacked rows."""

    spec: SplitSpec
    defense: SplitDefense
    learning: SplitLearning
    trained: TrainedSplit
    seen: CutTranscript
    rows: Table
    test: Table
    known: CutKnowledge
    neighbours: CutKnowledge

    def measure(self, part: StudyPart) -> Answer:
        """Return what a part gets."""
        return self.training() if part.kind == "about" else self.guess(part)

    def training(self) -> Answer:
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
        if self.defense.published is not None:
            figures["weights_epsilon", None] = self.defense.published.epsilon(self.learning.epochs, DELTA)
        return Answer(figures)

    def guess(self, part: StudyPart) -> Answer:
        """Return the figures of an attack or a baseline, and its time for a record."""
        seeds = [stream(self.spec.seed, 0, "starts")]
        attack: Callable[..., CutGuess]
        name, options = part.part.name, part.part.options
        if name == PRIOR:
            attack, known = Posterior(observed=False), self.known
        elif part.kind == "attack":
            attack, known = registry.attacks.of("split").create(name, **options), self.known
        else:
            attack, known = registry.baselines.of("split").create(name, **options), self.neighbours
        begun = time.perf_counter()
        guess = attack(self.seen.view, known, seeds)
        seconds = time.perf_counter() - begun
        figures = measure_columns(self.rows.schema, self.trained.model.private, self.seen, guess)
        return Answer(figures, seconds / self.seen.view.records)


def _make(spec: SplitSpec, data: Dataset, private: Sequence[str], defense: SplitDefense, training: int) -> _Made:
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
    stage = replace(trained, model=trained.earlier[-spec.final]) if spec.final else trained
    granted = trained.earlier[-spec.stale] if spec.stale else trained.model
    if defense.published is not None:
        blur = torch.Generator().manual_seed(stream(spec.seed, training, "defense") % 2**62)
        # Published once an epoch: what is known is a change since the epoch before it.
        before = trained.earlier[max(spec.epochs - spec.stale - 1, 0)]
        granted = granted.with_client(defense.published(granted.client, before.client, blur))
    seen = learning.observe(stage, attacked, stream(spec.seed, training, "defense") % 2**62, granted)
    some = train.rows(range(min(spec.auxiliary, len(train)))) if spec.auxiliary else None
    known = CutKnowledge(
        data.schema, data.statistics, learning.known(), None if some is None else Auxiliary(some.cells, some.labels)
    )
    neighbours = CutKnowledge(data.schema, data.statistics, learning.known(), Auxiliary(train.cells, train.labels))
    return _Made(spec, defense, learning, trained, seen, train, test, known, neighbours)
