"""An attack seed of pooled learning: split of the rows, joint models, and figures of each part."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.assessment import Measurement
from seepage.assessment.task import of_task
from seepage.attacks.pooled import binary_shadows, halved_shadows, spread_shadows, train_shadows
from seepage.attacks.pooled.parts.synthesis import synthesised
from seepage.defenses.accounting import gaussian_guarantee
from seepage.protocols.pooled import PooledLearning, Sets, alternating, federated, parted
from seepage.seeds import stream
from seepage.settings.guessing import AttackedSecret, attack_in, entry_in, measure
from seepage.settings.part import Part
from seepage.settings.pooled.data import PooledData
from seepage.settings.pooled.parts import PooledDefense, estimates_shares
from seepage.settings.pooled.spec import PooledSpec, pair
from seepage.settings.setting import Outcome, PlannedPart
from seepage.shadow.pooling import MarkedRows
from seepage.shadow.stacked import Dense
from seepage.wire.pooled import (
    GradientsView,
    ModelView,
    PooledKnowledge,
    PropertyGuess,
    ShadowKind,
    Shadows,
    UpdatedView,
)
from seepage.wire.secret import PooledTranscript

DELTA = 1e-5
# Part that attacks with shuffled shadow models: no better than the baseline, or the audit is at fault.
SHUFFLED = "shuffled"
_SHUFFLES = 5
# Models that are trained without other parties' rows.
_LOCAL = 20


def sets_of(spec: PooledSpec, rows: MarkedRows, unit: int) -> Sets:
    """Return the split of the rows among parties in an attack seed."""
    sizes, seed = (spec.auxiliary, spec.rows, spec.queries), stream(spec.seed, unit, "sets")
    return parted(rows, *sizes, seed, spec.auxiliary_share, spec.own_share, spec.apart)


@dataclass(frozen=True)
class AttackSeed:
    """One attack seed: split of the rows, joint models and knowledge; shadow models are trained when first read.

    ``senders`` are the targets whose answers the attacker gets in place of each target's own; None for its own.
    """

    spec: PooledSpec
    unit: int
    defense: PooledDefense
    learning: PooledLearning
    sets: Sets
    knowledge: PooledKnowledge
    senders: Int[Tensor, " target"] | None = None

    def swapped(self) -> AttackSeed:
        """Return the negative control: each target with another one's answers.

        Shares alternate. A target gets answers of a run of targets of the same length for each share, so that choices
        which are right of the answers' own targets are right as often as the baseline.
        """
        worlds = 4 if self.spec.protocol == "update" else len(self.spec.shares)
        return replace(self, senders=torch.arange(self.spec.targets) // worlds % worlds)

    def about(self, part: PlannedPart) -> Outcome:
        """Return accuracies of joint models, or the figures of the attack with shuffled shadow models."""
        return self._shuffled() if part.part.name == SHUFFLED else self._training()

    def secret(self, part: PlannedPart) -> AttackedSecret[PropertyGuess]:
        """Return the shares of the targets as a secret; joint models and gradients are made in the attack's time."""
        attack, knowledge, is_baseline = attack_in("pooled", part), self.knowledge, part.kind == "baseline"
        # Baselines take a number of targets in place of a view, and no seed.
        call = (lambda targets, known, _: attack(targets, known)) if is_baseline else attack
        entry, seeds = entry_in("pooled", part), [self._seed("attack") % 2**31]

        def see() -> tuple[object, object]:
            if is_baseline:
                return self.spec.targets, knowledge
            if UpdatedView in entry.sees:
                view, _ = self._updates
                return replace(view, before=view.before.again(), after=view.after.again()), knowledge
            if GradientsView in entry.sees:
                return self._gradients(attack.rounds, attack.rate), knowledge
            return self._transcript.models if ModelView in entry.sees else self._transcript.answers.again(), knowledge

        def score(guess: PropertyGuess) -> Outcome:
            if is_baseline:
                return Outcome(self._of_baseline(guess))
            if UpdatedView in entry.sees:
                return Outcome(self._of_updates(guess))
            return Outcome(self._figures(guess))

        secret = AttackedSecret("pooled", PropertyGuess, see, seeds, score, self.spec.targets, attack=call)
        estimates = entry.traits.shares and not is_baseline and UpdatedView not in entry.sees
        return replace(secret, further=(self._on_the_range(secret),)) if estimates else secret

    def _on_the_range(self, secret: AttackedSecret[PropertyGuess]) -> AttackedSecret[PropertyGuess]:
        """Return the shares of other targets, over the whole range: estimates and intervals are held against them."""

        def see() -> tuple[object, object]:
            pool, adversary, truth = self.sets.held, self._adversary, self._spread_truth
            return self.learning.train(pool, adversary, truth, self._seed("range")).answers, self.knowledge

        return replace(secret, see=see, score=lambda guess: Outcome(self._of_estimates(guess)))

    def _of_baseline(self, guess: PropertyGuess) -> list[Measurement]:
        """Return the figures of a baseline, whose accuracy is the probability that it gives the truth."""
        # Of new rows, one of two shares is the truth.
        chance = 0.5 if self.spec.protocol == "update" else float(guess.chances[0].max())
        figures = [Measurement.of_unit("accuracy", column, chance) for column in (None, *self.spec.scored_columns)]
        if guess.share is not None and estimates_shares(self.spec):
            figures += [replace(figure, clusters=None) for figure in self._of_estimates(guess)]
        return figures

    def _shuffled(self) -> Outcome:
        """Return the figures of the attack with shuffled shadow models, over several shuffles."""
        part, rights = PlannedPart(Part(name="meta", options={"shuffled": True}), "attack"), list[Tensor]()
        secret = replace(self.secret(part), score=lambda guess: Outcome(_accuracies({None: self._right(guess)})))
        for again in range(_SHUFFLES):
            seed = stream(self.spec.seed, self.unit, f"{SHUFFLED} {again}") % 2**31
            [accuracy] = measure(part, replace(secret, seeds=[seed])).measured
            rights += accuracy.clusters or ()
        return Outcome(_accuracies({None: torch.stack(rights).mean(0)}))

    @cached_property
    def _adversary(self) -> MarkedRows | None:
        return None if self.spec.protocol == "single_party" else self.sets.adversary

    @cached_property
    def _trained(self) -> Tensor:
        return alternating(self.spec.shares, self.spec.targets)

    @cached_property
    def _truth(self) -> Tensor:
        """The shares that the attacker's choices are compared with."""
        return self._trained if self.senders is None else self._trained[self.senders]

    @cached_property
    def _transcript(self) -> PooledTranscript:
        return self.learning.train(self.sets.held, self._adversary, self._trained, self._seed("targets"))

    def drawn(self) -> dict[str, Tensor]:
        """Return the pool that victims draw from, and the positions of each target's rows in it."""
        shares, pool = self._trained[:, None], self.sets.held
        if self.spec.protocol == "update":
            shares = self._pairs
        chosen = self.learning.drawn(pool, shares, self._seed("targets"))
        return {"inputs": pool.inputs, "labels": pool.labels, "carries": pool.carries, "drawn": chosen}

    def _seed(self, purpose: str) -> int:
        return stream(self.spec.seed, self.unit, purpose) % 2**62

    def _training(self) -> Outcome:
        """Return accuracies of joint models on rows that none was trained on, beside those of the victim's alone."""
        tested = self.sets.auxiliary
        queries, labels = tested.inputs, tested.labels

        def accuracy(transcript: PooledTranscript) -> float:
            models = [
                transcript.models.models.of(slice(k, k + 1)) for k in range(min(_LOCAL, transcript.models.targets))
            ]
            hits = [(model.answers(queries)[0].argmax(1) == labels).double().mean() for model in models]
            return float(torch.stack(hits).mean())

        if self.spec.protocol == "update":
            pairs, _ = self._updates
            accuracy_after = (pairs.after.ask(queries).argmax(2) == labels).double().mean()
            return Outcome([*of_task("task_accuracy", accuracy_after, labels), *self._shared()])
        truth = alternating(self.spec.shares, len(self.spec.shares) * max(1, _LOCAL // len(self.spec.shares)))
        local = replace(self.learning, others=()).train(self.sets.held, None, truth, self._seed("local"))
        figures = of_task("task_accuracy", accuracy(self._transcript), labels)
        figures += [Measurement.of_unit("local_accuracy", None, accuracy(local)), *self._shared()]
        private = self.defense.training
        if private is not None:
            count = self.spec.rows * (self.spec.parties if self._adversary is not None else 1)
            size = min(self.spec.batch_size or count, count)
            steps = self.spec.epochs * -(-count // size)
            noise = float(private.noise_multiplier)
            guarantee = gaussian_guarantee(noise, size / count, steps, DELTA) if noise else None
            figures.append(Measurement.of_unit("epsilon", None, None if guarantee is None else guarantee.epsilon))
        return Outcome(figures)

    def _shared(self) -> list[Measurement]:
        """Return the shares of victims' rows that other victims drew too, and that the attacker holds as well.

        ``overlap`` is the mean over pairs of joint models with the same share, of the share where it is largest.
        ``duplicates`` are rows that equal one of the attacker's in all that models take, label and attribute.
        """
        shares = self._pairs if self.spec.protocol == "update" else self._trained[:, None]
        pool = self.sets.held
        # Further parties' rows come after the victim's.
        drawn = self.drawn()["drawn"][:, : shares.shape[1]].flatten(1)
        holds = torch.zeros(len(drawn), len(pool)).scatter_(1, drawn, 1.0)
        common = holds @ holds.T / drawn.shape[1]
        worlds = [common[mask][:, mask] for share in shares.unique(dim=0) if (mask := (shares == share).all(1)).any()]
        pairs = [(world.sum() - world.trace(), len(world) * (len(world) - 1)) for world in worlds if len(world) > 1]
        among = [float(total / count) for total, count in pairs]
        attackers = (
            self.knowledge.auxiliary
            if self._adversary is None
            else self.knowledge.auxiliary.followed_by(self._adversary)
        )
        theirs, mine = _contents(pool), set(_contents(attackers))
        is_auxiliary = torch.tensor([row in mine for row in theirs], dtype=torch.float64)
        overlap = Measurement.of_unit("overlap", None, max(among, default=None))
        return [overlap, Measurement.of_unit("duplicates", None, is_auxiliary[drawn].mean())]

    def _right(self, guess: PropertyGuess) -> Float[Tensor, " target"]:
        shares = torch.tensor(self.knowledge.shares, dtype=torch.float64)
        return (shares[guess.chosen] == self._truth).double()

    def _figures(self, guess: PropertyGuess) -> list[Measurement]:
        right = self._right(guess)
        if len(self.knowledge.shares) == 2:
            return _accuracies({None: right})
        by_share = {f"{share:.0%}": right[self._truth == share] for share in self.knowledge.shares}
        return _accuracies({None: right, **by_share})

    @property
    def _spread_truth(self) -> Tensor:
        """The shares of targets that estimates are compared with."""
        return torch.linspace(*self.knowledge.within, self.spec.targets, dtype=torch.float64)

    def _of_estimates(self, guess: PropertyGuess) -> list[Measurement]:
        truth = self._spread_truth
        assert guess.share is not None
        assert guess.low is not None
        assert guess.high is not None
        # A share is a whole number of rows.
        slack = 0.5 / self.spec.rows
        inside = (guess.low - slack <= truth) & (truth <= guess.high + slack)
        error, width = (guess.share - truth).abs(), guess.high - guess.low
        by_target = {"share_error": error, "coverage": inside.double(), "width": width}
        return [Measurement.of_unit(metric, None, values.mean(), values) for metric, values in by_target.items()]

    def _gradients(self, rounds: int, rate: float) -> GradientsView:
        """Return the gradients of federated training instead of the joint model."""
        learner = self.learning.learner
        # Refused otherwise before anything ran.
        assert isinstance(learner, Dense)
        pool, adversary, truth, rows = self.sets.held, self.sets.adversary, self._trained, self.spec.rows
        return federated(learner, pool, adversary, truth, rows, rounds, rate, self._seed("federated"))

    @cached_property
    def _updates(self) -> Any:
        return self.learning.update(self.sets.held, self._adversary, self._pairs, self._seed("targets"))

    @property
    def _pairs(self) -> Tensor:
        """Shares of each victim's first and new rows."""
        ends = self.spec.new_shares
        pairs = torch.tensor([[a, b] for a in ends for b in ends], dtype=torch.float64)
        return pairs.repeat(self.spec.targets // 4, 1)

    def _of_updates(self, guess: PropertyGuess) -> list[Measurement]:
        shares, (low, high) = self._updates[1], self.spec.new_shares
        shares = shares if self.senders is None else shares[self.senders]
        right = ((guess.chosen == 1) == (shares[:, 1] == high)).double()
        pairs = [(a, b) for a in (low, high) for b in (low, high)]
        by_pair = {pair(a, b): right[(shares[:, 0] == a) & (shares[:, 1] == b)] for a, b in pairs}
        return _accuracies({None: right, **by_pair})


class _OnDemand(UserDict[ShadowKind, Any]):
    """Shadow models by kind, trained at the first access by the function that stands in their place."""

    def __getitem__(self, kind: ShadowKind) -> Shadows:
        if callable(train := self.data[kind]):
            self.data[kind] = train()
        return self.data[kind]


def _accuracies(right: dict[str | None, Tensor]) -> list[Measurement]:
    return [Measurement.of_unit("accuracy", column, hits.mean(), hits) for column, hits in right.items()]


def _contents(rows: MarkedRows) -> list[bytes]:
    """Return the bytes of each row, the same for equal rows."""
    # Adding zero turns -0.0 into 0.0.
    contents = torch.cat([rows.inputs.flatten(1).double(), rows.labels[:, None], rows.carries[:, None]], dim=1) + 0.0
    return [row.tobytes() for row in contents.numpy()]


def attack_seed(spec: PooledSpec, source: PooledData, defense: PooledDefense, unit: int) -> AttackSeed:
    """Return an attack seed with its split of the rows."""
    learner = source.learner(defense)
    sets = sets_of(spec, source.rows(defense), unit)
    learning = PooledLearning(learner, spec.rows, others_of(spec), defense.answers, defense.queries)
    n_queries = spec.queries if defense.queries is None else min(spec.queries, defense.queries)
    adversary = None if spec.protocol == "single_party" else sets.adversary
    auxiliary, queries = sets.auxiliary, sets.queries
    if spec.auxiliary_from != "rows":
        even = torch.full((1,), 0.5, dtype=torch.float64)
        answers = learning.train(sets.held, adversary, even, stream(spec.seed, unit, "asked") % 2**62).answers
        auxiliary = synthesised(spec.auxiliary_from, answers, auxiliary, stream(spec.seed, unit, "made") % 2**62)
        queries = auxiliary.rows(torch.arange(spec.queries))
    known = (learner, auxiliary, queries.inputs[:n_queries], adversary, spec.rows, spec.shares)
    knowledge = PooledKnowledge(*known, others_of(spec), defense.answers)
    return AttackSeed(spec, unit, defense, learning, sets, _with_shadows(knowledge, spec, unit))


def _with_shadows(knowledge: PooledKnowledge, spec: PooledSpec, unit: int) -> PooledKnowledge:
    """Return knowledge with shadow models of each kind, which are trained when an attack first reads them."""
    count, doubled = spec.shadows, replace(knowledge, rows=2 * spec.rows)
    low, high = spec.new_shares
    pairs = torch.tensor([[a, b] for a in (low, high) for b in (low, high)], dtype=torch.float64)
    lines = pairs.repeat(-(-count // 4), 1)

    def seed(purpose: str) -> int:
        return stream(spec.seed, unit, purpose) % 2**62

    first = "before" if spec.protocol == "update" else "shadows"
    shadows: dict[ShadowKind, Any] = {
        "even": lambda: binary_shadows(knowledge, count, seed(first)),
        "halved": lambda: halved_shadows(knowledge, count, seed("halved")),
        "spread": lambda: spread_shadows(knowledge, count, seed("spread")),
        "even_after": lambda: binary_shadows(doubled, count, seed("after")),
        "pairs": lambda: train_shadows(knowledge, lines[:, :1], seed("before")),
        "pairs_after": lambda: train_shadows(knowledge, lines, seed("after")),
    }
    return replace(knowledge, shadows=_OnDemand(shadows))


def others_of(spec: PooledSpec) -> tuple[float, ...]:
    """Return the share of the attribute in the rows of each further party."""
    return (0.5,) * (spec.parties - 2)
