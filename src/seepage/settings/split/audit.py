"""Split learning: the server reads private columns and labels that clients keep from the gradients they send back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from seepage import registry
from seepage.assessment import Measurement, auc
from seepage.assessment.three_questions import Population, Questions
from seepage.attacks.split import Posterior, direction_scores, norm_scores
from seepage.attacks.split.parts.space import Space, check_enumerable, not_exact
from seepage.datasets import Dataset
from seepage.datasets.coins import with_coins
from seepage.datasets.dataset import some_rows, split
from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.defenses.returned import BatchDefense
from seepage.defenses.weight_noise import WeightNoise
from seepage.digests import Json, plain
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.models.message import MessageForm
from seepage.models.own_parts import as_they_predict, own_split
from seepage.models.split import SplitModel
from seepage.models.vertical import encoder_of
from seepage.protocols.split import SplitLearning, TrainedSplit
from seepage.registry import Attack, Entry, argument
from seepage.seeds import stream
from seepage.settings import labels as label_inference
from seepage.settings.guessing import AttackedSecret, entry_in
from seepage.settings.lever import Lever
from seepage.settings.loss_form import form_of, loss_in_words
from seepage.settings.part import Part, entry_of, make_part, marks_of, mechanisms_of
from seepage.settings.setting import About, Configuration, Given, Outcome, PlannedPart, Scale
from seepage.settings.split.base import COLUMN_SCALES, AttackedTopology, TopologyAudit, columns_outcome
from seepage.settings.split.spec import SplitSpec
from seepage.settings.split.whole_client import WholeClientAudit
from seepage.settings.threat_model import Deployment, granted, mechanisms
from seepage.settings.units import Tables, facts_of, of_some_rows, planned
from seepage.sources import is_own
from seepage.tabular.schema import Continuous, Discrete
from seepage.tabular.table import Table
from seepage.text import how_many
from seepage.wire.labels import LabelGuess, ReturnedView
from seepage.wire.secret import CutTranscript
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge, CutView

# Part that guesses from the marginals alone, before anything is sent.
PRIOR = "prior"
DELTA = 1e-5
_TRAINING = Part(name="training")
# Figures of a training that are no rates.
_NO_RATES = ("loss", "task_rmse", "clip", "epsilon", "label_epsilon", "weights_epsilon")
_BOUND_FOLLOWS = (
    "The clipping bound of cut_noise is published, and follows the norms of records' gradients from batch to batch "
    "without noise. What it tells of them is not in epsilon."
)
# Rows on which a network is tried before it is trained.
_PROBED = 16
# Rows of a control: enough to hold 100 out of, few enough to train on in a second.
_CONTROL_ROWS = 1_500
# Combinations of a client's values and label that attacks go through in seconds for each record.
_FEW_CONFIGURATIONS = 2_000


@dataclass(frozen=True)
class SplitDefense:
    """Mechanisms of a defense of split learning, ready to use."""

    flip: LabelFlip | None = None
    noise: CutNoise | None = None  # on each record's gradient at the cut
    published: WeightNoise | None = None  # on the client weights that the server gets
    returned: BatchDefense | None = None  # on the gradients of a batch together


def defense_of(part: Part) -> SplitDefense:
    """Return a defense ready to use."""
    return SplitDefense(*mechanisms_of("split", part, LabelFlip, CutNoise, WeightNoise, BatchDefense))


def _learning(spec: SplitSpec, defense: SplitDefense) -> SplitLearning:
    acts = {"flip": defense.flip, "noise": defense.noise, "returned": defense.returned}
    rows_each = spec.rows_each if spec.protocol == "federated_split" else None
    settings = (spec.epochs, spec.batch_size, spec.learning_rate)
    return SplitLearning(*settings, rows_each=rows_each, clients=spec.clients, **acts)


class SplitAudit(TopologyAudit[SplitDefense]):
    """An audit of split learning in which the server has columns too; a unit is one training."""

    def _set_up(self, spec: SplitSpec, dataset: Dataset | None) -> None:
        super()._set_up(spec, dataset)
        dataset = self.data
        label_inference.refuse_class_attacks("split", spec.attacks, dataset.schema.target)
        self.private = spec.private_columns or default_private(dataset)
        first = self.network(0)
        if self.factory is not None:
            # Refuse networks that do not fit the table before anything is trained.
            first.check(dataset.all.cells[:_PROBED])
        space = Space.of(first, CutKnowledge(dataset.schema, dataset.statistics))
        _check(spec, first, space)
        parts = planned([_TRAINING], [*spec.baselines, Part(name=PRIOR)], spec.attacks)
        self.parts = label_inference.with_label_columns(parts, "split", dataset.schema.target.name)
        self.defenses = {part.title: defense_of(part) for part in spec.defenses}
        size = spec.batch_size if spec.protocol == "split" else spec.rows_each
        self.configurations = tuple(Configuration(label, size) for label in self.defenses)
        trained = len(split(dataset.all, spec.test_share, 0)[0])
        self.auxiliary = min(spec.auxiliary, trained)
        self.about = self._about(first, space, trained)

    def _about(self, network: SplitModel, space: Space, trained: int) -> About:
        spec, dataset = self.spec, self.data
        noises = [defense.noise for defense in self.defenses.values() if defense.noise is not None]
        follows = [noise.rule == "quantile" and noise.noise_multiplier > 0 for noise in noises]
        label = dataset.schema.target.name
        notes = (*dataset.notes, f"{space.configurations:,} configurations of private cells and label")
        if self.auxiliary < spec.auxiliary:
            more = f"all {self.auxiliary:,} training rows are auxiliary, not {spec.auxiliary:,}: there are no more"
            notes = (*notes, more)
        return About(
            **facts_of(dataset, notes=notes, columns=(*self.private, label)),
            protocol=spec.protocol,
            model=network.name,
            lead="What the server of split learning learns about the columns and labels that clients keep.",
            limits=(
                *filter(None, [not_exact(network, space)]),
                *of_some_rows(dataset, self.table),
                *(as_they_predict({"server": network.server, "client": network.client}) if self.factory else ()),
            ),
            attacker="The server",
            sender="The client",
            message="the gradients at the cut",
            control="Without noise, the gradient that comes back differs with each value of the planted column, so a "
            "working attack reads nearly all of it.",
            threat_model=_threat_model(spec, dataset, self.private, space, trained),
            rounds=spec.exchanges,
            label=label,
            scales={**dict.fromkeys(_NO_RATES, Scale(None)), **COLUMN_SCALES},
            marks=marks_of("split", spec.attacks, spec.defenses),
            unaccounted=_BOUND_FOLLOWS if any(follows) else None,
            settings={"epochs": spec.epochs, "hidden": list(spec.hidden), "tower": list(spec.tower)},
        )

    @property
    def determining(self) -> Mapping[str, Json]:
        """Everything that determines figures beside spec, rows, defense and part, as JSON values."""
        return {"private": list(self.private), **super().determining}

    def network(self, seed: int) -> SplitModel:
        """Return the network before it is trained."""
        spec, schema = self.spec, self.data.schema
        if self.factory is not None:
            model = own_split(self.factory, schema, self.private, seed)
        else:
            model = deepfm(schema, self.private, seed, spec.hidden, tower=spec.tower, logit=spec.logit)
        return replace(model, form=form_of(spec.loss, model.head, model.classes))

    @staticmethod
    def deployed(spec: SplitSpec) -> Deployment:
        """Return the threat model of a server with columns of its own."""
        grants = granted({"auxiliary": spec.auxiliary, "labels": spec.known_labels}, ("weights",))
        reveals = (*SplitLearning.reveals, ReturnedView)
        return Deployment("split", spec.protocol, reveals, grants, None, mechanisms("split", spec.defenses))

    def attacked(self, defense: SplitDefense, unit: int) -> AttackedTraining:
        """Return a training, with the server's view of the attacked records."""
        spec, data = self.spec, self.data
        # The split is the same under all defenses.
        train, test = split(data.all, spec.test_share, stream(spec.seed, unit, "split") % 2**32)
        model = self.network(stream(spec.seed, unit, "initialisation") % 2**62)
        learning = _learning(spec, defense)
        trained = learning.train(model, train, stream(spec.seed, unit, "training") % 2**62)
        attacked = test if spec.attacked_records is None else test.rows(range(min(spec.attacked_records, len(test))))
        blur = torch.Generator().manual_seed(stream(spec.seed, unit, "defense") % 2**62)
        exchanges = _exchanges(spec, defense, trained, blur)
        transcript = learning.observe_all(exchanges, attacked, stream(spec.seed, unit, "defense") % 2**62)
        if self.swapped:
            # Rows were shuffled, so that the record before is any other.
            rolled = [(view, view.gradient.roll(1, 0), view.behind.roll(1, 0)) for view in transcript.view.exchanges]
            first, *others = (replace(view, gradient=gradient, behind=behind) for view, gradient, behind in rolled)
            transcript = replace(transcript, view=replace(first, earlier=tuple(others)))
        known = (data.schema, data.statistics, learning.known())
        rows = train.rows(range(min(spec.auxiliary, len(train)))) if spec.auxiliary else None
        form = _known_form(model)
        knowledge = CutKnowledge(*known, None if rows is None else Auxiliary(rows.cells, rows.labels), form)
        training = (self, unit, defense, learning, trained, transcript, train, test, knowledge, exchanges)
        some_schema = data.schema.model_copy(update={"columns": tuple(data.schema.columns[i] for i in model.private)})
        population = Population.of(data.all, some_schema, data.statistics, spec.quasi_identifiers)
        known = attacked.cells[None, :, list(model.public)]
        questions = Questions(population, [stream(spec.seed, unit, "questions") % 2**62], known)
        return AttackedTraining(*training, questions)

    @property
    def fewest(self) -> float:
        """Least number of rows of a rehearsal."""
        return 200.0

    def rehearsed(self, share: float) -> Mapping[str, Json]:
        """Return fields of the spec for a rehearsal: as many messages of a share of the records."""
        held_out = int(len(self.data.all) * self.spec.test_share)
        records = held_out if self.spec.attacked_records is None else min(self.spec.attacked_records, held_out)
        fields = {"attacked_records": max(1, int(share * records)), "stale": 0, "final": 0}
        return {**fields, "exposures": self.spec.exchanges}

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        if part.kind != "attack":
            return {}
        if part.column is not None:
            return {"sees": "what it sent and what came back of every record", "labels": self.spec.known_labels}
        adapts = argument(make_part(registry.attacks.of("split"), part.part), "aware", True)
        defense_facts = _learning(self.spec, self.defenses[configuration.defense]).known().describe() if adapts else {}
        return {"sees": _sees(self.spec), "auxiliary": self.auxiliary, "defense": plain(defense_facts)}

    def levers(self) -> tuple[Lever, ...]:
        """Return flipped labels, noise on returned gradients, noise on published weights, and fewer epochs."""
        target = self.data.schema.target
        classes = target.width if isinstance(target, Discrete) else 2
        # A little below the probability at which labels carry no information.
        most = 0.98 * (classes - 1) / classes
        flips = Lever("label_flip", 0.01, most, strengths=(("probability",),))
        epochs = self.spec.epochs
        return (
            Lever("cut_noise", 0.01, 100.0, strengths=(("noise_multiplier",),)),
            *([flips] if isinstance(target, Discrete) else []),
            Lever("weight_noise", 0.01, 10.0, strengths=(("noise_multiplier",),)),
            *([Lever("epochs", epochs, 1, True, spec_field="epochs")] if epochs > 1 else []),
        )

    def planted(self, swapped: bool) -> SplitAudit | None:
        """Return a control: a fair coin, the client's only private column, behind bare gradients of known weights.

        Attacks on labels guess those of the same trainings. Attacks that learn the client's part, and are not given it,
        are left out: how well that goes on few epochs says little about them.
        """
        attacks = tuple(
            part
            for part in self.spec.attacks
            if self._in_control(entry_of(registry.attacks.of("split"), part))
            # A search that stops where it finds a fit goes on for minutes on a gradient that nothing fits.
            and not (swapped and part.options.get("search", "exhaustive") != "exhaustive")
        )
        if not attacks:
            return None
        planted = with_coins(some_rows(self.data, _CONTROL_ROWS, self.spec.seed), 1, self.spec.seed)
        # Where the target is a number, one gradient fits either side of the coin, each with a label of its own.
        number = isinstance(self.data.schema.target, Continuous)
        changed = {
            **{"private_columns": (planted.schema.names[-1],), "protocol": "split", "attacks": attacks},
            **{"epochs": 3 if number else 2, "exposures": 3 if number else 1},
            **{"attacked_records": 100, "stale": 0, "final": 0},
            "auxiliary": min(self.spec.auxiliary, _CONTROL_ROWS),
        }
        why = (
            "they learn the client's part instead of being given it, search until something fits, or read labels of "
            "some tables alone"
        )
        return self.control_on(planted, changed, swapped, why)

    def _in_control(self, entry: Entry[Attack]) -> bool:
        """Return whether an attack reads the coin or the labels where nothing protects them."""
        if label_inference.guesses_labels(entry):
            return entry.traits.bare_labels
        return "weights" in entry.needs


def _sees(spec: SplitSpec) -> str:
    weights = "the client's weights"
    if spec.stale:
        weights += f" of {how_many(spec.stale, 'epoch')} ago"
    elif spec.final:
        weights += f" {how_many(spec.final, 'epoch')} later, at the end of training"
    if any(defense_of(part).published for part in spec.defenses):
        weights += ", with noise on them where that is a defense"
    times = "once" if spec.exchanges == 1 else f"{spec.exchanges:,} times"
    return f"what it sent and what came back of every record, {times}, and {weights}"


def _layers(spec: SplitSpec) -> str:
    if is_own(spec.model):
        return f"The network {spec.model}"
    at_server = f", {spec.tower} at the server" if spec.tower else ""
    return f"DeepFM with layers {spec.hidden} at the client{at_server}"


def _threat_model(
    spec: SplitSpec, data: Dataset, private: Sequence[str], space: Space, trained: int
) -> tuple[str, ...]:
    clients = (
        "one client holds the private columns and labels of all rows"
        if spec.protocol == "split"
        else f"clients hold the private columns and labels of {spec.rows_each} rows each, {spec.clients} take part in "
        "an exchange"
    )
    number = not isinstance(data.schema.target, Discrete)
    labels = "a number as label" if number else f"{space.labels} labels"
    most = spec.attacked_records
    attacked = "all held-out records" if most is None else f"up to {most:,} held-out records"
    return (
        f"The attacker is the server, honest but curious. It sees {_sees(spec)}.",
        "It is granted the schema, the marginals of all columns and of the label, "
        f"{min(spec.auxiliary, trained):,} training rows that it holds whole, and, where an attack adapts to it, the "
        "defense with its parameters.",
        f"Split learning on {data.name}, {trained:,} rows of clients ({len(data.all) - trained:,} more held out): "
        f"{clients}.",
        f"Private: {space.sizes} and {labels}, {space.configurations:,} configurations of a record.",
        _layers(spec) + f", {spec.epochs} epochs of Adagrad at {spec.learning_rate:g}, batches of "
        f"{spec.batch_size if spec.protocol == 'split' else spec.rows_each}{loss_in_words(spec.loss)}.",
        f"Attacked are {attacked}, as though they were trained on next, in {how_many(spec.repetitions, 'training')} "
        f"with seeds of their own from seed {spec.seed}; intervals are over trainings.",
        "Baselines know what the server knows anyway and never see what came back; 'prior' is what the posterior "
        "believes before it looks.",
    )


def default_private(data: Dataset) -> tuple[str, ...]:
    """Return the columns that the client holds where none are named: the sensitive ones with categories.

    Where the schema marks none, those of the last half of the columns with categories whose configurations are few
    enough to be enumerated; without these the last of the sensitive numbers, or of all, at most two.
    """
    columns = data.schema.columns
    discrete = [column for column in columns if isinstance(column, Discrete)]
    private = tuple(column.name for column in discrete if column.sensitive)
    if not private and len(columns) > 1:
        configurations, fitting = data.schema.target.width if isinstance(data.schema.target, Discrete) else 1, []
        for column in reversed(discrete[len(discrete) // 2 :]):
            if configurations * column.width <= _FEW_CONFIGURATIONS:
                configurations *= column.width
                fitting.append(column.name)
        private = tuple(reversed(fitting))
    if not private:
        numbers = [column for column in columns if isinstance(column, Continuous)]
        chosen = [column.name for column in numbers if column.sensitive] or [column.name for column in numbers]
        private = tuple(chosen[-min(2, len(columns) - 1) :]) if len(columns) > 1 else ()
    if not private or len(private) == len(columns):
        raise BadInputError(
            f"of the {len(columns)} columns of {data.name!r}, {len(discrete)} have categories, {len(private)} of them "
            "fit to be the client's; split learning is audited for a client with columns of at most some thousand "
            "combined categories, or with numbers, beside a server with others: add columns, merge rare categories in "
            "the table, or audit vertical learning."
        )
    return private


def _known_form(model: SplitModel) -> MessageForm:
    """Return what the server knows of the form: all, but for the sum of class weights that a batch is divided by."""
    return replace(model.form, scale_of="round") if _divided_by_weights(model) else model.form


def _divided_by_weights(model: SplitModel) -> bool:
    form = model.form
    averaged = form.reduction == "mean" and form.loss == "cross_entropy" and model.head == "softmax"
    return averaged and len(set(form.weights)) > 1


def _check(spec: SplitSpec, model: SplitModel, space: Space) -> None:
    """Refuse, before training, settings that would fail after it."""
    for part in spec.defenses:
        defense = defense_of(part)
        own_scale = model.form.reduction == "sum" or model.form.scale != 1
        if (defense.noise or defense.returned) and _divided_by_weights(model):
            raise BadInputError(
                f"class weights that the mean is divided by give each batch a factor of its own, which the server "
                f"cannot fit under {part.title!r}; give 'reduction: sum' in loss, or leave one of the two out."
            )
        if defense.returned and own_scale:
            raise BadInputError(
                f"{part.title!r} is audited for clients that take the mean of their losses; leave reduction and scale "
                "out of loss, or another defense."
            )
    for part in spec.defenses:
        flip = defense_of(part).flip
        if flip is not None:
            flip.epsilon(label_inference.classes_of(part.title, model.schema.target))
        label_inference.check_two_labels(part.title, defense_of(part).returned, model.schema.target)
    for part in spec.attacks:
        attack = make_part(registry.attacks.of("split"), part)
        most = argument(attack, "most")
        if most is not None and argument(attack, "search", "exhaustive") == "exhaustive":
            check_enumerable(space, most)
        blurred = [(part, defense_of(part)) for part in spec.defenses]
        noisy = next((part for part, blur in blurred if blur.noise is not None or blur.returned is not None), None)
        if argument(attack, "weights") == "about" and noisy is not None:
            raise BadInputError(
                f"{part.title!r} fits how far the client weights are off (weights='about') on gradients as they are, "
                f"but under {noisy.title!r} clients change theirs; leave out one of the two."
            )
    for name, when in (("stale", "are of {} epochs ago"), ("final", "are those of {} epochs later")):
        epochs = getattr(spec, name)
        if epochs > spec.epochs:
            raise BadInputError(
                f"the client weights that the server knows {when.format(epochs)} ({name}={epochs}), but training takes "
                f"{spec.epochs}; give at most {name}={spec.epochs}."
            )
    if spec.stale and spec.final:
        raise BadInputError(
            f"the client weights that the server knows cannot be both older (stale={spec.stale}) and newer "
            f"(final={spec.final}) than those that answer; give one of the two."
        )


@dataclass(frozen=True)
class AttackedTraining(AttackedTopology):
    """One training and the server's view of the attacked rows."""

    audit: SplitAudit
    unit: int
    defense: SplitDefense
    learning: SplitLearning
    trained: TrainedSplit
    transcript: CutTranscript
    rows: Table
    test: Table
    knowledge: CutKnowledge
    exchanges: Sequence[tuple[TrainedSplit, SplitModel]]  # stage of the training, known client part
    questions: Questions

    def about(self, part: PlannedPart) -> Outcome:
        """Return the network's quality, the defense's guarantee and label scores without any search."""
        target, model = self.rows.schema.target, self.trained.model
        figures = [Measurement.of_unit("loss", None, self.trained.losses[-1])]
        figures += label_inference.task_figures(target, model.answers(self.test.cells), self.test.labels)
        if isinstance(target, Discrete) and target.width == 2:
            labels = self.transcript.labels
            rare = float(labels.mode().values)
            wanted = (labels == 1 - rare).nonzero()
            by_norm = auc(_all(self.transcript.view, norm_scores), labels == 1 - rare)
            figures.append(Measurement.of_unit("label_auc_norm", None, by_norm))
            if len(wanted):
                # One record of the rarer label is known, and left out.
                hint = int(wanted[0])
                rest = torch.arange(len(labels)) != hint
                scores = _all(self.transcript.view, lambda view: direction_scores(view, hint))
                by_direction = auc(scores[rest], (labels == 1 - rare)[rest])
                figures.append(Measurement.of_unit("label_auc_direction", None, by_direction))
        if self.learning.flip is not None and isinstance(target, Discrete):
            figures.append(Measurement.of_unit("label_epsilon", None, self.learning.flip.epsilon(target.width)))
        if self.learning.noise is not None:
            epsilon = self.learning.noise.epsilon(self.audit.spec.exchanges, DELTA)
            figures.append(Measurement.of_unit("epsilon", None, epsilon))
            figures.append(Measurement.of_unit("clip", None, self.trained.clip))
        if self.defense.published is not None:
            epsilon = self.defense.published.epsilon(self.learning.epochs, DELTA)
            figures.append(Measurement.of_unit("weights_epsilon", None, epsilon))
        return Outcome(figures)

    def labels(self) -> AttackedSecret[LabelGuess]:
        """Return the labels of the attacked records as a secret, behind known ones of some records of training."""
        spec, model, schema = self.audit.spec, self.trained.model, self.rows.schema
        form = model.form
        hints = self.rows.rows(range(min(spec.known_labels, len(self.rows))))
        seed = stream(spec.seed, self.unit, "known labels") % 2**62
        parts = [self.transcript.view]
        if len(hints):
            parts = [self.learning.observe_all(self.exchanges, hints, seed).view, *parts]
        public_schema = schema.model_copy(update={"columns": tuple(schema.columns[i] for i in model.public)})
        inputs = encoder_of(public_schema).encode(torch.cat([view.features for view in parts])[None])
        first, *others = (
            ReturnedView(
                torch.cat([view.cut for view in views])[None],
                torch.cat([v.gradient * form.own_factor(v.behind)[:, None].to(v.gradient) for v in views])[None],
                inputs,
            )
            for views in zip(*(view.exchanges for view in parts), strict=True)
        )
        view = replace(first, earlier=tuple(others))
        if self.audit.swapped:
            # The gradients of attacked rows are those of others already.
            view = label_inference.mixed_up(view, len(hints), gradients=False)
        true = torch.cat([hints.labels, self.transcript.labels])[None]
        seeds, marginal = [stream(spec.seed, self.unit, "starts")], self.knowledge.statistics.target
        return label_inference.attacked_labels("split", view, schema.target, marginal, true, len(hints), seeds)

    def columns(self, part: PlannedPart) -> AttackedSecret[CutGuess]:
        """Return the private columns and the label of the attacked records as a secret."""
        exchanged, knowledge = self.transcript, self.knowledge
        table = (self.rows.schema, self.trained.model.private, knowledge.statistics)
        prior = Posterior(observed=False) if part.part.name == PRIOR else None
        if part.kind == "baseline" and prior is None and not entry_in("split", part).needs:
            # Neighbours are of all training rows, as in the paper; what names its need has what is granted.
            knowledge = replace(knowledge, auxiliary=Auxiliary(self.rows.cells, self.rows.labels))

        def score(guess: CutGuess) -> Outcome:
            return columns_outcome(*table, exchanged, guess, self.audit.keeps_records, self.questions)

        records, seeds = exchanged.view.records, [stream(self.audit.spec.seed, self.unit, "starts")]
        shape = {"record": records, "private column": len(table[1])}
        return AttackedSecret(
            "split", CutGuess, lambda: (exchanged.view, knowledge), seeds, score, records, shape, prior
        )


def _all(view: CutView, scored: Callable[[CutView], Float[Tensor, " record"]]) -> Float[Tensor, " record"]:
    """Return the mean of label scores over all exchanges of the records."""
    return torch.stack([scored(exchange) for exchange in view.exchanges]).mean(0)


def _exchanges(
    spec: SplitSpec, defense: SplitDefense, trained: TrainedSplit, blur: torch.Generator
) -> list[tuple[TrainedSplit, SplitModel]]:
    """Return the stages of the exchanges that show each record, the newest first, and the known client parts.

    There is one at the end of each epoch. Further ones come after the training, with weights that no longer move.
    """
    stages = trained.stages
    last = len(stages) - 1 - spec.final
    after = max(0, spec.exchanges - max(1, last))
    exchanges, published = [], {}
    for number in range(spec.exchanges):
        answering = max(last - max(0, number - after), min(1, last))
        stage = len(stages) - 1 if spec.final else max(answering - spec.stale, 0)
        granted = stages[stage].model
        if defense.published is not None:
            if stage not in published:
                # Published once an epoch: the known part is a change since the epoch before it.
                before = stages[max(stage - 1, 0)].model
                published[stage] = granted.with_client(defense.published(granted.client, before.client, blur))
            granted = published[stage]
        exchanges.append((stages[answering], granted))
    return exchanges


def _kind(spec: SplitSpec) -> type[SplitAudit | WholeClientAudit]:
    return SplitAudit if spec.topology == "columns" else WholeClientAudit


def deployment(spec: SplitSpec) -> Deployment:
    """Return the threat model of a spec: views and side information of the attacker."""
    return _kind(spec).deployed(spec)


def prepared(spec: SplitSpec, given: Given, tables: Tables) -> SplitAudit | WholeClientAudit:
    """Return the audit of a spec, by its topology."""
    return _kind(spec).prepared(spec, given, tables)
