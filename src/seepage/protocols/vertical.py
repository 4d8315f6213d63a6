"""Vertical federated learning: parties hold columns of the same rows, the active one the labels and the top model.

Party p computes features ``f_p = b_p(x_p)`` of its own columns by its bottom model and sends them. The active party
computes ``z = top(f_0, f_1, ...)`` and the loss l, steps its own parts, and sends ``dl / df_p`` back, from which p
takes its step: ``dl / dw_p = (df_p / dw_p)^T dl / df_p``. No party gets another's columns, but each message says
something of them: the features of x_p, and what comes back of the label and of all other features. Under the mean over
n records the latter is 1 / n of the gradient of a record's own loss, and views hold that of its own loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.defenses.feature_noise import FeatureNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.defenses.mid import Mid
from seepage.defenses.nopeek import NoPeek
from seepage.defenses.returned import ReturnedDefense
from seepage.errors import BadInputError, check_count, positive
from seepage.learning import VerticalStep, check_finite, check_labels, check_losses, vertical_step
from seepage.models.split import for_loss
from seepage.models.vertical import Stack, VerticalModel
from seepage.registry import name_of
from seepage.tabular.statistics import Statistics
from seepage.wire.labels import BatchView, LogitsView, ReturnedView
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import (
    FeatureAuxiliary,
    FeatureKnowledge,
    FeatureView,
    KnownFeatures,
    Leaked,
    Queries,
    WeightGradients,
)

Seen = FeatureTranscript[FeatureView]
Messages = tuple[Tensor, ...]
# Entries of gradients below this count as this in ratios (Fu et al.).
_LEAST = 1e-7


@dataclass(frozen=True)
class Rows:
    """Rows of a table for each of several trainings."""

    cells: Float[Tensor, "training record column"]
    labels: Float[Tensor, "training record"]

    @property
    def records(self) -> int:
        """Number of rows of each training."""
        return self.cells.shape[1]

    def of(self, records: slice | Int[Tensor, " some"]) -> Rows:
        """Return some rows of each training."""
        return Rows(self.cells[:, records], self.labels[:, records])


@dataclass(frozen=True)
class VerticalStage:
    """Several trainings as an epoch began; ``learned`` is the deviation of noise that is learned, empty elsewhere."""

    model: VerticalModel
    learned: tuple[Float[Tensor, "training 1 _feature"], ...]


@dataclass(frozen=True)
class TrainedVertical:
    """Result of several trainings in vertical learning; losses are in nats, and stages those at the start of epochs.

    ``spread`` is the standard deviation of each party's features over the rows of training before any defense, or of
    the noise on them where it is learned. Labels as ``taught`` may be flipped. Features ``sent``, and gradients of each
    record's own loss that came ``back``, are those of the last epoch.
    """

    model: VerticalModel
    spread: tuple[Float[Tensor, "training 1 _feature"], ...]
    losses: Float[Tensor, "training epoch"]
    rows: Rows
    taught: Float[Tensor, "training record"]
    sent: tuple[Float[Tensor, "training record _feature"], ...]
    back: tuple[Float[Tensor, "training record _feature"], ...]
    earlier: tuple[VerticalStage, ...] = ()


@dataclass(frozen=True)
class Steering:
    """Steps of a passive party that make the top model rely on its features.

    Source: Fu et al., Label Inference Attacks Against Vertical Federated Learning (USENIX Security 2022), the malicious
    local optimiser: each entry of a step is multiplied by 1 + gamma times the ratio of its gradient to that of the step
    before, at least 1 and at most ``most``. Deviation: the paper multiplies the gradient of stochastic gradient
    descent. Here parties step by Adam, which would undo that, so that the factor is that of Adam's step.
    """

    party: int
    gamma: float | int = 1.0
    most: float | int = 5.0

    def __post_init__(self) -> None:
        positive("gamma", self.gamma)
        positive("most", self.most)
        if self.most < 1:
            raise BadInputError(f"the largest factor of a step is at least 1, got most={self.most!r}.")

    def factor(self, now: Tensor, before: Tensor) -> Tensor:
        """Return the factor of each entry's step."""
        # A gradient of zero must not divide by zero, and keeps the sign of the ratio elsewhere.
        least = torch.where(before < 0, -_LEAST, _LEAST)
        return (1 + self.gamma * now / torch.where(before.abs() < _LEAST, least, before)).clamp(1.0, float(self.most))


@dataclass(frozen=True)
class VerticalLearning:
    """Parties send features of the same records, the active one returns gradients of them; all train by Adam.

    Source: Yang et al., UIFV (arXiv 2406.12588), section 3. It states neither optimiser nor learning rate nor epochs;
    Adam at 0.001, batches of 64 records (its comparison's) and 10 epochs are our choice.

    Attributes:
        features: defense of features by passive parties, in training and at inference; None for nothing.
        returned: defense of each record's gradient on its way to a passive party; None for nothing.
        unlike: term in the loss by which passive parties' features shall not resemble their rows; None for nothing.
        flip: defense of labels by the active party; None for nothing.
        steering: passive party whose own steps break the protocol, and how; None where all follow it.

    Raises:
        BadInputError: a count is below 1, or the rate is not a positive number.
    """

    reveals: ClassVar[tuple[type, ...]] = (FeatureView,)

    epochs: int = 10
    batch_size: int = 64
    learning_rate: float | int = 1e-3
    features: FeatureNoise | Mid | None = None
    returned: ReturnedDefense | None = None
    unlike: NoPeek | None = None
    flip: LabelFlip | None = None
    steering: Steering | None = None

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        rate = self.learning_rate
        if isinstance(rate, bool) or not 0 < rate < math.inf:
            raise BadInputError(f"a learning rate is a positive number, got learning_rate={rate!r}.")

    def train(self, model: VerticalModel, rows: Rows, seeds: Sequence[int]) -> TrainedVertical:
        """Train a copy of all parts, in all trainings at once, each with batches and noise of its own seed."""
        check_labels(rows.labels, model.schema.target)
        model = model.copy()
        # Each purpose has a random stream of its own, so that a defense changes no batch.
        order = [torch.Generator().manual_seed(seed) for seed in seeds]
        noising, returning = (torch.Generator().manual_seed(seeds[0] + i) for i in (1, 2))
        encoded = model.encoded(rows.cells)
        labels = taught = self._taught(model, rows.labels, seeds)
        parameters = [p for part in (*model.bottoms, model.top) for p in part.parameters() if p.requires_grad]
        learned = self._learned(model, encoded)
        parameters += learned
        optimiser = torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)
        top = dict(model.top.named_parameters())
        trainings = torch.arange(len(seeds))[:, None]
        losses = torch.zeros(len(seeds), self.epochs)
        sent: list[Tensor] = []
        back: list[Tensor] = []
        steered = [] if self.steering is None else list(model.bottoms[self.steering.party].parameters())
        before: list[Tensor] | None = None
        earlier = []
        for epoch in range(self.epochs):
            earlier.append(VerticalStage(model.copy(), tuple(log_noise.detach().exp() for log_noise in learned)))
            shuffled = torch.stack([torch.randperm(rows.records, generator=generator) for generator in order])
            for batch in shuffled.split(self.batch_size, dim=1):
                inputs, answers = [columns[trainings, batch] for columns in encoded], labels[trainings, batch]
                computed = model.features(inputs)
                spread = [log_noise.exp() for log_noise in learned] or _spread(computed)
                blurred = self._blurred(computed, spread, noising)
                messages = tuple(features.detach() for features in blurred)
                step = vertical_step(model.active, messages, answers.to(messages[0].dtype))
                gradients = self._returned(step, answers, returning)
                optimiser.zero_grad()
                terms = self._terms(inputs, computed, spread)
                torch.autograd.backward([*blurred, *terms], [*gradients, *(torch.ones_like(term) for term in terms)])
                for name, gradient in step.parameters.items():
                    top[name].grad = gradient
                start = [p.detach().clone() for p in steered]
                optimiser.step()
                if self.steering is not None:
                    before = _steered(self.steering, steered, start, before)
                losses[:, epoch] += step.losses * batch.shape[1] / rows.records
                if epoch == self.epochs - 1:
                    if not sent:
                        sent = [message.new_zeros(len(seeds), rows.records, message.shape[-1]) for message in messages]
                        back = [torch.zeros_like(tensor) for tensor in sent]
                    for store, message in zip((*sent, *back), (*messages, *gradients), strict=True):
                        store[trainings, batch] = message
                    # The gradients of a batch are those of its mean loss.
                    for store in back:
                        store[trainings, batch] *= batch.shape[1]
        check_losses(losses, "vertical", self.learning_rate)
        with torch.no_grad():
            spread = tuple(log_noise.exp() for log_noise in learned) or _spread(model.features(encoded))
        return TrainedVertical(model, spread, losses, rows, taught, tuple(sent), tuple(back), tuple(earlier))

    def send(
        self, trained: TrainedVertical, rows: Rows, generator: torch.Generator, exposures: int = 1
    ) -> tuple[Float[Tensor, "training record _feature"], ...]:
        """Return every party's features of rows at inference; the active party's own features have no defense.

        Each row is sent ``exposures`` times with fresh noise; in the mean, which is returned, is all that they say.
        """
        check_count("exposures", exposures)
        with torch.no_grad():
            computed = trained.model.features(trained.model.encoded(rows.cells))
        # Without noise all messages of a row are the same.
        times = 1 if self.features is None else exposures
        first, *others = (self._defended(computed, trained.spread, generator) for _ in range(times))
        if not others:
            return first
        return tuple(torch.stack(messages).mean(0) for messages in zip(first, *others, strict=True))

    def observe(self, trained: TrainedVertical, rows: Rows, target: int, seed: int, exposures: int = 1) -> Seen:
        """Return the active party's view of a target when the trained model predicts for rows."""
        earlier = self.recall(trained, target).view
        sent = self.send(trained, rows, torch.Generator().manual_seed(seed), exposures)
        return _transcript(trained.model, target, rows, sent, None, earlier)

    def recall(self, trained: TrainedVertical, target: int) -> Seen:
        """Return the active party's view of the records of training, as sent in the last epoch, see ``observe``."""
        trained.model.partition.check_target(target)
        return _transcript(trained.model, target, trained.rows, trained.sent, trained.rows.labels)

    def passive(
        self, trained: TrainedVertical, party: int, records: int | None = None, exchanges: int = 1, seed: int = 0
    ) -> ReturnedView:
        """Return a passive party's view of the first records of training, the newest exchange first.

        The newest exchange is that of the last epoch. Those before are as though the records had been sent together at
        the beginning of each earlier epoch.
        """
        trained.model.partition.check_target(party)
        first_records = slice(0, records)
        inputs = trained.model.encoded(trained.rows.of(first_records).cells)[party]
        kind = LogitsView if trained.model.unsplit else ReturnedView
        generator = torch.Generator().manual_seed(seed)
        messages = [(trained.sent[party][:, first_records], trained.back[party][:, first_records])]
        rows, starts = Rows(trained.rows.cells, trained.taught), range(0, inputs.shape[1], self.batch_size)
        batches = [slice(start, min(start + self.batch_size, inputs.shape[1])) for start in starts]
        for stage in self._stages(trained, exchanges):
            parts = [self._exchange(stage, rows.of(batch), party, generator) for batch in batches]
            messages.append((torch.cat([sent for sent, _ in parts], 1), torch.cat([back for _, back in parts], 1)))
        for _, back in messages:
            check_finite({"gradients sent back": back})
        first, *others = (kind(sent, back, inputs) for sent, back in messages)
        return replace(first, earlier=tuple(others))

    def passive_batches(
        self, trained: TrainedVertical, party: int, batch_size: int, seed: int, exchanges: int = 1
    ) -> BatchView:
        """Return a passive party's view where only gradients of whole batches of training records come back.

        The newest exchange is one after the training; those before are at the beginning of each earlier epoch.
        """
        model, rows = trained.model, trained.rows
        model.partition.check_target(party)
        if not isinstance(model.bottoms[party], Stack):
            raise BadInputError(
                "label inference from gradients of batches reads the last layer of fully connected bottom models, got "
                f"{type(model.bottoms[party]).__name__}; leave the attack out."
            )
        batches = rows.records // batch_size
        if not batches:
            raise BadInputError(
                f"a batch of {batch_size} records is more than the {rows.records} of training; ask for smaller ones."
            )
        used = Rows(rows.cells, trained.taught).of(slice(0, batches * batch_size))
        last = VerticalStage(model, trained.spread if isinstance(self.features, Mid) else ())
        first, *others = (
            self._batches(stage, used, party, batch_size, seed + 2 * number)
            for number, stage in enumerate((last, *self._stages(trained, exchanges)))
        )
        return replace(first, earlier=tuple(others))

    def _batches(self, stage: VerticalStage, used: Rows, party: int, batch_size: int, seed: int) -> BatchView:
        model, batches = stage.model, used.records // batch_size
        bottom = model.bottoms[party]
        assert isinstance(bottom, Stack)
        encoded = model.encoded(used.cells)
        with torch.no_grad():
            computed = model.features(encoded)
            hidden = bottom.hidden(encoded[party])
        spread = stage.learned or _spread(computed)
        messages = self._defended(computed, spread, torch.Generator().manual_seed(seed))
        step = vertical_step(model.active, messages, used.labels.to(messages[0].dtype))
        # Those are gradients of the mean over all records.
        came, hidden, sent, active = (
            tensor.unflatten(1, (batches, batch_size))
            for tensor in (step.returned[party] * used.records, hidden, messages[party], encoded[party])
        )
        if self.returned is not None:
            answers = used.labels.unflatten(1, (batches, batch_size)).flatten(0, 1)
            defended = self.returned(came.flatten(0, 1), torch.Generator().manual_seed(seed + 1), answers)
            came = defended.unflatten(0, came.shape[:2])
        return BatchView(hidden, hidden.mT @ came / batch_size, came.mean(2), sent, active)

    def _stages(self, trained: TrainedVertical, exchanges: int) -> tuple[VerticalStage, ...]:
        """Return the stages of all exchanges but the newest, the newest first."""
        check_count("exchanges", exchanges)
        if exchanges > max(1, len(trained.earlier)):
            raise BadInputError(
                f"each record of training was sent once an epoch, {len(trained.earlier)} times, got "
                f"exchanges={exchanges}; ask for fewer."
            )
        return trained.earlier[::-1][1:exchanges]

    def _exchange(
        self, stage: VerticalStage, rows: Rows, party: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "training record feature"], Float[Tensor, "training record feature"]]:
        """Return a party's features of a batch, and the gradient of each record's own loss that comes back."""
        with torch.no_grad():
            computed = stage.model.features(stage.model.encoded(rows.cells))
        messages = self._defended(computed, stage.learned or _spread(computed), generator)
        step = vertical_step(stage.model.active, messages, rows.labels.to(messages[0].dtype))
        back = self._returned(step, rows.labels, generator)[party] * rows.records
        return messages[party], back

    def predict(
        self, trained: TrainedVertical, rows: Rows, generator: torch.Generator
    ) -> Float[Tensor, "training record output"]:
        """Return the outputs of the active party's network for the parties' features."""
        with torch.no_grad():
            return trained.model.outputs(self.send(trained, rows, generator))

    def queries(self, trained: TrainedVertical, target: int, limit: int, seed: int, exposures: int = 1) -> Queries:
        """Return the channel on which a target answers queries with its (defended) features, the mean of exposures."""
        trained.model.partition.check_target(target)
        noising = torch.Generator().manual_seed(seed)

        def answer(rows: Tensor) -> Tensor:
            with torch.no_grad():
                computed = trained.model.bottoms[target](rows)
            if self.features is None:
                return computed
            answers = [self.features(computed, trained.spread[target], noising) for _ in range(exposures)]
            return answers[0] if exposures == 1 else torch.stack(answers).mean(0)

        return Queries(answer, limit)

    def auxiliary(
        self, trained: TrainedVertical, rows: Rows, target: int, seed: int, exposures: int = 1
    ) -> FeatureAuxiliary:
        """Return complete rows of the attacker, with the features that parties other than the target send."""
        active, theirs = (list(trained.model.partition.columns[party]) for party in (0, target))
        sent = self.send(trained, rows, torch.Generator().manual_seed(seed), exposures)
        others = tuple(None if party == target else features for party, features in enumerate(sent))
        return FeatureAuxiliary(rows.cells[..., theirs], rows.cells[..., active], rows.labels, others)

    def gradients(self, trained: TrainedVertical, transcript: Seen, batch_size: int, seed: int) -> WeightGradients:
        """Return the gradients of the target's bottom model if the network took a step on whole attacked batches."""
        check_count("batch_size", batch_size)
        view, batches = transcript.view, transcript.view.records // batch_size
        if not batches:
            raise BadInputError(
                f"a batch of {batch_size} records is more than the {view.records} that are attacked; ask for smaller "
                "batches, or attack more records."
            )
        used = transcript.of(slice(0, batches * batch_size))
        split = [feature.unflatten(1, (batches, batch_size)).flatten(0, 1) for feature in used.view.features]
        top = {name: p.repeat_interleave(batches, 0) for name, p in _detached(view.model.top)}
        answers = for_loss(trained.model.schema.target, used.labels).unflatten(1, (batches, batch_size)).flatten(0, 1)
        step = vertical_step(view.model, split, answers.to(split[0].dtype), top)
        back = self._returned(step, answers, torch.Generator().manual_seed(seed))[view.target]
        bottom = trained.model.bottoms[view.target]
        weights = {name: p.repeat_interleave(batches, 0).requires_grad_(True) for name, p in _detached(bottom)}
        rows = trained.model.encoders[view.target].encode(used.cells).unflatten(1, (batches, batch_size)).flatten(0, 1)
        sent = torch.func.functional_call(bottom, weights, (rows,))
        gradients = torch.autograd.grad(sent, list(weights.values()), back)
        parts = {name: tensor.unflatten(0, (-1, batches)) for name, tensor in zip(weights, gradients, strict=True)}
        return WeightGradients(parts, back.unflatten(0, (-1, batches)).flatten(1, 2))

    def known(self) -> KnownFeatures:
        """Return the knowledge of an attacker who knows the defenses."""
        defenses = (self.features, self.unlike, self.flip, self.returned)
        names = {name_of(defense): asdict(defense) for defense in defenses if defense is not None}
        return KnownFeatures(names, float(self.features.scale) if isinstance(self.features, FeatureNoise) else 0.0)

    def knowledge(self, trained: TrainedVertical, target: int, statistics: Statistics) -> FeatureKnowledge:
        """Return the active party's knowledge of a target before anything is granted."""
        partition = trained.model.partition
        partition.check_target(target)
        marginals = tuple(statistics.marginals[i] for i in partition.columns[target])
        return FeatureKnowledge(partition.schemas[target], marginals, self.known(), layout=trained.model.layout)

    def _blurred(self, computed: Sequence[Tensor], spread: Sequence[Tensor], generator: torch.Generator) -> Messages:
        """Return the parties' messages, with derivatives with respect to the computed features."""
        if self.features is None:
            return tuple(computed)
        noisy = [self.features(feature, s, generator) for feature, s in zip(computed[1:], spread[1:], strict=True)]
        return (computed[0], *noisy)

    def _defended(self, computed: Sequence[Tensor], spread: Sequence[Tensor], generator: torch.Generator) -> Messages:
        return tuple(feature.detach() for feature in self._blurred(computed, spread, generator))

    def _taught(
        self, model: VerticalModel, labels: Float[Tensor, "training record"], seeds: Sequence[int]
    ) -> Float[Tensor, "training record"]:
        """Return the labels that are trained with, as the loss takes them, each flipped once."""
        if self.flip is None:
            return for_loss(model.schema.target, labels)
        draws = [torch.Generator().manual_seed(seed + 3) for seed in seeds]
        return torch.stack([self.flip(label, model.classes, draw) for label, draw in zip(labels, draws, strict=True)])

    def _learned(self, model: VerticalModel, encoded: Sequence[Tensor]) -> list[nn.Parameter]:
        """Return the logarithms of the noise that is learned, for each party; none where it is not."""
        if not isinstance(self.features, Mid):
            return []
        with torch.no_grad():
            first = model.features([columns[:, :1] for columns in encoded])
        return [nn.Parameter(torch.zeros_like(feature)) for feature in first]

    def _terms(self, inputs: Sequence[Tensor], computed: Sequence[Tensor], spread: Sequence[Tensor]) -> list[Tensor]:
        """Return the passive parties' terms in the loss of a batch."""
        terms = []
        for rows, features, noise in zip(inputs[1:], computed[1:], spread[1:], strict=True):
            if self.unlike is not None:
                terms.append(self.unlike.loss(rows, features))
            if isinstance(self.features, Mid):
                terms.append(self.features.information(features, noise))
        return terms

    def _returned(self, step: VerticalStep, labels: Tensor, generator: torch.Generator) -> Messages:
        active, *theirs = step.returned
        if self.returned is None:
            return step.returned
        behind = active.shape[1]
        answers = labels.to(active)
        return (active, *(self.returned(their * behind, generator, answers) / behind for their in theirs))


def leak(transcript: Seen, records: int) -> tuple[Seen, Leaked]:
    """Return a transcript without its first records, which leak, and these records."""
    count = transcript.view.records
    if not isinstance(records, int) or isinstance(records, bool) or records < 0:
        raise BadInputError(f"the number of leaked records is a whole number from 0 up, got leaked={records!r}.")
    if records >= count:
        raise BadInputError(
            f"{records:,} records of the target are to leak, but the party predicts for {count:,}, of which at least "
            "one must remain to attack; let fewer leak."
        )
    view = transcript.view
    first = Leaked(transcript.cells[:, :records], view.received[:, :records], view.own[:, :records])
    return transcript.of(slice(records, None)), first


def _steered(
    steering: Steering, parameters: Sequence[Tensor], starts: Sequence[Tensor], before: Sequence[Tensor] | None
) -> list[Tensor]:
    """Scale a step up, and return its gradients."""
    now = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    with torch.no_grad():
        for place, start, gradient, then in zip(parameters, starts, now, before or now, strict=True):
            if before is not None:
                place.copy_(start + steering.factor(gradient, then) * (place - start))
    return now


def _transcript(
    model: VerticalModel,
    target: int,
    rows: Rows,
    sent: Messages,
    labels: Tensor | None,
    earlier: FeatureView | None = None,
) -> Seen:
    check_finite({f"features of party {party}": features for party, features in enumerate(sent)})
    active, theirs = (rows.cells[..., list(model.partition.columns[party])] for party in (0, target))
    return FeatureTranscript(FeatureView(model.active, target, active, sent, labels, earlier), theirs, rows.labels)


def _detached(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, parameter.detach()) for name, parameter in module.named_parameters()]


def _spread(features: Sequence[Tensor]) -> Messages:
    # Features of no entry have no deviation.
    return tuple(
        feature.detach().std(dim=1, keepdim=True, correction=0) if feature.shape[-1] else feature.detach()[:, :1]
        for feature in features
    )
