"""Vertical learning as a study: every attack and guess on the same records of several trainings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seepage import datasets, registry
from seepage.assessment import auc, measure_features
from seepage.assessment.features import NO_LEAK
from seepage.assessment.images import measure_images, picture
from seepage.attacks.vertical import (
    DataPassiveAttack,
    ShadowInversion,
    completion_scores,
    gradient_scores,
    left_out,
    raw_scores,
)
from seepage.datasets import Dataset
from seepage.datasets.dataset import split
from seepage.errors import BadInputError
from seepage.models.images import Shape, vertical_images
from seepage.models.vertical import VerticalModel, vertical_mlp
from seepage.protocols.vertical import Rows, TrainedVertical, VerticalLearning, leak
from seepage.seeds import stream
from seepage.settings.grid_of_attacks import deployment_of, refuse_inapplicable
from seepage.settings.spec import Part
from seepage.settings.study import Answer, Measure, Scale, Study, StudyPart, rows_identity
from seepage.settings.vertical_spec import VerticalDefense, VerticalSpec
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Discrete
from seepage.tabular.table import Table
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, Grant

# What InverNet of the data-passive attack makes of its own shadow's features: no attack.
SELF_INVERSION = "self_inversion"
# Labels that a passive party knows, where it is the attacker.
KNOWN_LABELS = 100
# Images of a picture.
_SHOWN = 10
_OF_TABLES = (
    "A number counts as found within a tenth of its column's range, as in UIFV; middle_accuracy takes a tenth of the "
    "range between the 5th and the 95th percentile, which a few large values do not widen.",
    "Were the passive party the attacker, label_auc_completion and label_auc_gradient say how well it tells labels of "
    f"training from its features and from the gradients that come back, knowing {KNOWN_LABELS}; label_auc_columns, "
    "from its columns alone.",
)
_OF_IMAGES = (
    "psnr is the peak signal-to-noise ratio in decibels and ssim the structural similarity, means over images; "
    "accuracy is the share of brightnesses found within a tenth of their range."
)
# Fields of a spec that say what is measured and how it is called, but change no training.
_NOT_DETERMINING = {"attacks", "baselines", "defenses", "data_folder", "dataset", "passive", "threads"}
_GRANTS: dict[Grant, str] = {
    "auxiliary": "auxiliary rows that it holds whole",
    "queries": "answers of the target to rows of its making",
    "leaked": "records of the target with what it sent for them",
    "bottom": "the target's bottom model",
    "gradients": "gradients by that model's parameters, which cross no wire here, of batches of the first records; it "
    "guesses these alone",
}


def vertical_study(spec: VerticalSpec, dataset: Dataset | None = None, own: bool = False) -> Study:
    """Return what a spec of vertical learning measures.

    All trainings under a defense are made side by side, so that their figures depend on how many there are, in the
    last digits at least.

    Args:
        spec: what to do.
        dataset: rows of one's own, instead of those that the spec names.
        own: whether they are private.

    Raises:
        BadInputError: a setting cannot be used with these rows.
    """
    data = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
    partition = spec.partition(data.schema) if data.image is None else _halves(spec, data)
    # Refuses, before anything is trained, a target or widths that no network here fits.
    network = _network(spec, data, partition, [0], VerticalDefense())
    sizes = _sizes(spec, data)
    parts = [StudyPart(Part(name="training"), "about"), *(StudyPart(part, "guess") for part in spec.baselines)]
    parts += [
        StudyPart(Part(name=SELF_INVERSION, options=part.options, label=f"{part.called}_{SELF_INVERSION}"), "about")
        for part in spec.attacks
        if part.name == "uifv_dpa"
    ]
    parts += [StudyPart(part, "attack") for part in spec.attacks]
    by_label = {part.called: spec.defense(part) for part in spec.defenses}
    held, tables = partition.schemas[spec.victim].names, data.image is None

    def granted(defense: str, part: StudyPart) -> dict[str, Any]:
        grants = registry.attacks.of("vertical").create(part.part.name, **part.part.options).grants
        amounts = {"auxiliary": sizes.auxiliary, "queries": sizes.queries, "leaked": spec.leaked, "bottom": "known"}
        amounts["gradients"] = sizes.gradients
        return {
            "sees": "features of every party, and the top model",
            **{grant: amounts[grant] for grant in grants},
            "defense": spec.learning(by_label[defense]).known().describe(),
        }

    return Study(
        kind="vertical",
        dataset=data.name,
        protocol="vertical",
        model=network.name,
        batch_size=spec.batch_size,
        units=spec.units,
        unit="training",
        make=_Federations(spec, data, partition, sizes).make,
        defenses={part.called: part.model_dump(mode="json", exclude={"label"}) for part in spec.defenses},
        parts=tuple(parts),
        identity={
            "spec": spec.model_dump(mode="json", exclude=_NOT_DETERMINING),
            "dataset": data.name,
            "rows": rows_identity(data),
            "columns": [list(columns) for columns in partition.columns],
        },
        scales={
            "loss": Scale(None),
            "queries": Scale(None),
            **{metric: Scale(None, 0.0, 1.0) for metric in NO_LEAK},
            "psnr": Scale(),
            "ssim": Scale(True, -1.0, 1.0),
        },
        granted=granted,
        settings={
            "epochs": spec.epochs,
            "learning_rate": spec.learning_rate,
            **({"bottom": list(spec.bottom), "features": spec.features, "top": list(spec.top)} if tables else {}),
            **({"columns": list(held)} if tables else {}),
        },
        facts=_facts(spec, data, partition, sizes),
        notes=data.notes,
        lead="What the active party of vertical learning learns about the columns that a passive party keeps.",
        attacker="The active party",
        headline="all cells of the passive party" if tables else "all brightnesses of the passive party's half",
        rows=len(data.all),
        target=data.schema.target.name,
        columns=tuple(held) if tables else (),
        sensitive=tuple(c.name for c in data.schema.columns if c.sensitive),
        seed=spec.seed,
        threads=spec.threads,
        own=own,
    )


@dataclass(frozen=True)
class _Sizes:
    """How many rows serve what, in each training."""

    training: int
    auxiliary: int
    attacked: int
    queries: int
    gradients: int


def _sizes(spec: VerticalSpec, data: Dataset) -> _Sizes:
    refuse_inapplicable(spec.attacks, deployment_of(spec))
    for part in spec.attacks:
        made = registry.attacks.of("vertical").create(part.name, **part.options)
        if getattr(made, "linear", False) and (spec.bottom or (spec.top and made.match == "prediction")):
            raise BadInputError(
                f"the attack {part.called!r} takes networks without hidden layers, but the bottom models have "
                f"{list(spec.bottom)} and the top model {list(spec.top)}; audit bottom: [] and top: [], or leave the "
                "attack out."
            )
    # As the split makes them.
    rows = len(data.all)
    train, test = split(data.all, spec.test_share, 0)
    auxiliary = int(spec.auxiliary * len(train))
    training = len(train) - auxiliary
    if spec.auxiliary and not auxiliary:
        raise BadInputError(
            f"a share of {spec.auxiliary:g} of {len(train):,} rows leaves the attacker no auxiliary row; grant a "
            "larger share, or more rows."
        )
    there = len(test) if spec.attacked == "held_out" else training
    if spec.leaked >= there:
        raise BadInputError(
            f"{spec.leaked:,} records of the target are to leak, but of the {rows:,} rows {there:,} are attacked, of "
            "which at least one must remain; let fewer leak."
        )
    attacked = there - spec.leaked if spec.records is None else min(spec.records, there - spec.leaked)
    batches = min(spec.gradient_batches, attacked // spec.gradient_batch)
    if not batches and any(
        "gradients" in registry.attacks.of("vertical").create(p.name, **p.options).grants for p in spec.attacks
    ):
        raise BadInputError(
            f"attacks on gradients are granted those of batches of {spec.gradient_batch} records, but {attacked:,} are "
            "attacked; attack more records, or make gradient_batch smaller."
        )
    queries = auxiliary if spec.queries is None else spec.queries
    return _Sizes(training, auxiliary, attacked, queries, batches * spec.gradient_batch)


def _facts(spec: VerticalSpec, data: Dataset, partition: Partition, sizes: _Sizes) -> tuple[str, ...]:
    held = partition.schemas[spec.victim]
    which = "held-out records, as the trained model predicts for them"
    if spec.attacked == "trained":
        which = "records of training, as they were sent in the last epoch"
    attacks, guesses = registry.attacks.of("vertical"), registry.baselines.of("vertical")
    made = [attacks.create(part.name, **part.options) for part in spec.attacks]
    made += [guesses.create(part.name, **part.options) for part in spec.baselines]
    needed = {grant for one in made for grant in one.grants}
    after = f"{len(held.columns)} columns of passive party {spec.victim}: {', '.join(held.names)}"
    layers = f"Bottom models with layers {(*spec.bottom, spec.features)}, a top model with {spec.top}"
    if data.image is not None:
        after = f"the right half of each image, {len(held.columns):,} brightnesses"
        layers = "Convolutional bottom models and a convolutional top model"
    return (
        "The attacker is the active party, honest but curious: it holds the labels, the top model and "
        f"{len(partition.columns[0]):,} columns, and receives the features of every party.",
        f"It is after {after}.",
        "It knows the schema and the marginals of these columns. What else an attack is granted stands beside it: "
        + ("; ".join(f"{grant}: {what}" for grant, what in _GRANTS.items() if grant in needed) or "nothing")
        + ".",
        f"Vertical learning on {data.name}, {len(data.all):,} rows, {partition.parties} parties: {sizes.training:,} "
        f"rows are trained on, {sizes.auxiliary:,} others are auxiliary, {spec.leaked:,} leak and {sizes.attacked:,} "
        f"are attacked, {which}; up to {sizes.queries:,} queries.",
        f"{layers}, {spec.epochs} epochs of Adam at {spec.learning_rate:g}, batches of {spec.batch_size}.",
        f"{spec.units} training(s) with seeds of their own from seed {spec.seed}; intervals are over trainings.",
        *(_OF_TABLES if data.image is None else (_OF_IMAGES,)),
        "A network of the attacker that diverged is a failure of the attack: it counts under 'failed', and in no "
        "other figure.",
    )


@dataclass
class _Federations:
    """Makes the trainings of a study, all under one defense at a time."""

    spec: VerticalSpec
    data: Dataset
    partition: Partition
    sizes: _Sizes
    _label: str | None = None
    _made: _Made | None = None

    def make(self, unit: int, label: str) -> Measure:
        """Return what measures parts on a training."""
        if self._made is None or self._label != label:
            part = next(one for one in self.spec.defenses if one.called == label)
            defense = self.spec.defense(part)
            self._label, self._made = label, _make(self.spec, self.data, self.partition, self.sizes, defense)
        made = self._made
        return lambda part: made.answer(part)[unit]


@dataclass
class _Made:
    """All trainings under a defense, and what the active party saw of the attacked records."""

    spec: VerticalSpec
    learning: VerticalLearning
    trained: TrainedVertical
    seen: FeatureTranscript
    test: Rows
    known: FeatureKnowledge
    auxiliary: Rows
    sizes: _Sizes
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    shadows: dict[str, ShadowInversion] = field(default_factory=dict)

    def answer(self, part: StudyPart) -> list[Answer]:
        """Return what a part gets out of each training."""
        if part.called not in self.answers:
            self.answers[part.called] = self.training() if part.part.name == "training" else self.guess(part)
        return self.answers[part.called]

    def training(self) -> list[Answer]:
        """Return how well the networks do."""
        target = self.trained.model.schema.target
        assert isinstance(target, Discrete)
        chances = self.learning.predict(
            self.trained, self.test, torch.Generator().manual_seed(self.seeds("defense")[0])
        )
        answers = []
        for k, (said, true) in enumerate(zip(chances, self.test.labels, strict=True)):
            figures: dict[tuple[str, str | None], float | None] = {
                ("task_accuracy", None): float((said.argmax(1) == true).double().mean()),
                ("loss", None): float(self.trained.losses[k, -1]),
            }
            if target.width == 2:
                positive = target.sorted_codes[-1]
                figures["auc", None] = auc(said[:, positive], true == positive)
            answers.append(Answer(figures, picture=self.picture(self.seen.cells[k])))
        if target.width == 2:
            self._labels(target.sorted_codes[-1], answers)
        return answers

    def _labels(self, positive: int, answers: list[Answer]) -> None:
        """Add how well the attacked party, were it the attacker, tells labels of training, of which it knows some."""
        view = self.learning.passive(self.trained, self.spec.victim)
        count = min(KNOWN_LABELS, self.trained.rows.records // 2)
        true = self.trained.rows.labels == positive
        known = torch.arange(count).expand(len(true), count)
        sought = true[:, :count].double()
        if bool((sought == sought[:, :1]).all(1).any()):
            return
        rest = left_out(view, known)
        for name, score in (("completion", completion_scores), ("gradient", gradient_scores), ("columns", raw_scores)):
            for k, said in enumerate(score(view, known, sought)):
                figures = dict(answers[k].figures)
                figures[f"label_auc_{name}", None] = auc(said[rest[k]], true[k][rest[k]])
                answers[k] = replace(answers[k], figures=figures)

    def guess(self, part: StudyPart) -> list[Answer]:
        """Return the figures of an attack, a guess or the self-inversion in each training."""
        name, options = part.part.name, part.part.options
        begun, seen = time.perf_counter(), self.seen
        if name in ("uifv_dpa", SELF_INVERSION):
            shadow = self.shadow(options)
            guess = shadow.guess(seen.view) if name == "uifv_dpa" else shadow.self_inversion(seen.cells)
        else:
            registered = registry.attacks.of("vertical") if part.kind == "attack" else registry.baselines.of("vertical")
            made = registered.create(name, **options)
            known = self.granted(made.grants)
            if "gradients" in made.grants:
                seen = self.first
            guess = made(seen.view, known, self.seeds("attack"))
        return self.figures(seen, guess, time.perf_counter() - begun)

    @property
    def first(self) -> FeatureTranscript:
        """The records that gradients are granted of."""
        return self.seen.of(slice(0, self.sizes.gradients))

    def shadow(self, options: dict[str, Any]) -> ShadowInversion:
        """Return shadow and InverNet of the data-passive attack, trained once for both readings."""
        key = repr(sorted(options.items()))
        if key not in self.shadows:
            attack = DataPassiveAttack(**options)
            self.shadows[key] = attack.fit(self.seen.view, self.granted(attack.grants), self.seeds("attack"))
        return self.shadows[key]

    def figures(self, seen: FeatureTranscript, guess: FeatureGuess, seconds: float) -> list[Answer]:
        """Return a guess's figures in each training."""
        image = self.known.image
        if image is None:
            measured = measure_features(self.known.schema, seen, guess)
        else:
            measured = measure_images(image, seen, guess)
        each = seconds / (seen.view.trainings * seen.view.records)
        answers = []
        for k in range(seen.view.trainings):
            figures: dict[tuple[str, str | None], float | None] = {}
            for one in measured:
                value = float(one.values[k])
                figures[one.metric, one.column] = None if value != value else value
            figures["queries", None] = float(guess.queries)
            answers.append(Answer(figures, each, self.picture(guess.cells[k])))
        return answers

    def picture(self, cells: Float[Tensor, "record column"]) -> str | None:
        """Return a picture of the first images; None of what is none."""
        image = self.known.image
        return None if image is None else picture(image, cells[:_SHOWN]) or None

    def granted(self, grants: Sequence[Grant]) -> FeatureKnowledge:
        """Return what an attack or guess is granted, with a channel of its own."""
        found = self.known
        if "auxiliary" in grants:
            rows = self.learning.auxiliary(self.trained, self.auxiliary, self.spec.victim, self.seeds("auxiliary")[0])
            found = replace(found, auxiliary=rows)
        if "queries" in grants:
            channel = self.learning.queries(
                self.trained, self.spec.victim, self.sizes.queries, self.seeds("queries")[0]
            )
            found = replace(found, queries=channel)
        if "gradients" in grants:
            size = self.spec.gradient_batch
            gradients = self.learning.gradients(self.trained, self.first, size, self.seeds("gradients")[0])
            found = replace(found, gradients=gradients)
        return replace(found, bottom=self.trained.model.bottoms[self.spec.victim]).only(grants)

    def seeds(self, purpose: str) -> list[int]:
        """Return the seeds of each training for a purpose."""
        return _seeds(self.spec, purpose)


def _seeds(spec: VerticalSpec, purpose: str) -> list[int]:
    return [stream(spec.seed, unit, purpose) % 2**62 for unit in range(spec.units)]


def _make(spec: VerticalSpec, data: Dataset, partition: Partition, sizes: _Sizes, defense: VerticalDefense) -> _Made:
    # The split must not tell one defense from another.
    both = [split(data.all, spec.test_share, stream(spec.seed, unit, "split") % 2**32) for unit in range(spec.units)]
    rest, test = _rows([train for train, _ in both]), _rows([test for _, test in both])
    auxiliary, train = rest.of(slice(0, sizes.auxiliary)), rest.of(slice(sizes.auxiliary, None))
    model = _network(spec, data, partition, _seeds(spec, "initialisation"), defense)
    learning = spec.learning(defense)
    trained = learning.train(model, train, _seeds(spec, "training"))
    if spec.attacked == "trained":
        seen = learning.recall(trained, spec.victim)
    else:
        seen = learning.observe(trained, test, spec.victim, _seeds(spec, "defense")[0])
    seen, leaked = leak(seen, spec.leaked)
    known = replace(learning.knowledge(trained, spec.victim, data.statistics), leaked=leaked)
    return _Made(spec, learning, trained, seen.of(slice(0, sizes.attacked)), test, known, auxiliary, sizes)


def _network(
    spec: VerticalSpec, data: Dataset, partition: Partition, seeds: Sequence[int], defense: VerticalDefense
) -> VerticalModel:
    """Return the networks of some trainings before they are trained."""
    if data.image is not None:
        return vertical_images(partition, seeds, _half(data.image))
    narrow = spec.features if defense.bottleneck is None else defense.bottleneck.width
    widths = [spec.features] + [narrow] * (partition.parties - 1)
    return vertical_mlp(partition, seeds, spec.bottom, widths, spec.top)


def _half(image: Shape) -> Shape:
    return (image[0], image[1], image[2] // 2)


def _halves(spec: VerticalSpec, data: Dataset) -> Partition:
    """Return the partition of images into a left half, the active party's, and a right one."""
    narrow = next((one.called for one in spec.defenses if spec.defense(one).bottleneck is not None), None)
    if spec.passive or spec.parties != 2 or spec.share is not None or spec.victim != 1 or narrow is not None:
        raise BadInputError(
            f"images of {data.name!r} are cut into a left half, the active party's, and a right one, the passive "
            "party's, with networks of their own; leave out named columns, shares, further parties and bottlenecks."
        )
    assert data.image is not None
    width = data.image[2]
    right = tuple(i for i in range(len(data.schema.columns)) if i % width >= width // 2)
    left = tuple(i for i in range(len(data.schema.columns)) if i % width < width // 2)
    return Partition(data.schema, (left, right))


def _rows(tables: Sequence[Table]) -> Rows:
    return Rows(torch.stack([one.cells for one in tables]), torch.stack([one.labels for one in tables]))
