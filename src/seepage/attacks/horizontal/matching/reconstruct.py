"""Reconstruction of a batch by matching its gradient: published attacks are presets of it.

With g the received gradient, dummy rows x and labels y, and D a distance of gradients (``matching``), the attack is

    least over v of   D(dL(x(v), y) / dw, g) + sum_k prior_k(x(v)),

where the relaxation x(v) says what rows may be, such as chances of categories, and w is where the gradient was taken.
Each part is replaceable: distance, relaxation, priors, the descent, and the way from several starts to one guess
(``ensemble``). A change of weights by local steps is matched as the mean gradient on their way (``midway``), or by
running the steps on the dummies (``Simulated``). Of rounds with the same records the mean of their distances is taken.

Restarts of all victims descend side by side, in chunks that fit the processor, and meet in the ensemble alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.exact.adaptive import labels_of_step, smoothed
from seepage.attacks.horizontal.exact.defended import undo_clipping
from seepage.attacks.horizontal.exact.updates import Simulated, merge_epochs, midway, moved_by
from seepage.attacks.horizontal.matching.engine import Engine, JointEngine, match
from seepage.attacks.horizontal.matching.ensemble import (
    Decoding,
    Entropy,
    Pooling,
    align,
    decode_by_marginals,
    pool,
    uncertainty,
)
from seepage.attacks.horizontal.matching.labels import Method, restore_labels
from seepage.attacks.horizontal.matching.masks import MaskedEngine, Masks, joined
from seepage.attacks.horizontal.matching.matching import Cosine, Matching
from seepage.attacks.horizontal.matching.optimise import Descent
from seepage.attacks.horizontal.matching.priors import Guided, Prior
from seepage.attacks.horizontal.matching.surrogate import Surrogate
from seepage.errors import BadInputError, check_choice, check_count
from seepage.models.batch_norm import normalisations
from seepage.pace import Progress, scaled
from seepage.tabular.encoder import Encoder
from seepage.tabular.relaxation import Logits, Relaxation
from seepage.tabular.schema import Discrete
from seepage.wire.horizontal import AnyView, GradientView, Knowledge, RecordsGuess, RoundsView, UpdateView, View

Local = Literal["midway", "sme", "simulated"]
Start = Literal["marginals", "symmetric", "unit"]
Select = Literal["projected", "soft"]

# Dummy rows optimised together. On a CPU, enough for efficient matrix products and few enough to
# stay in cache; on an accelerator, enough to fill it.
ROWS_AT_ONCE = {"cpu": 1024, "cuda": 262144}
CLIENTS_AT_ONCE = 16  # number of clients whose local training is simulated together
_LEAST_SHARE = 1e-4  # least share at which a category's logit starts; rarer ones start as if they had it


@dataclass(frozen=True)
class Reconstruction:
    """Match the received gradient from several random starts, pool the results, decode.

    Attributes:
        softmax, sigmoid, logits: settings of the relaxation, see ``Relaxation``.
        start: distribution of the free variables at the start: uniform on [-1, 1] (``symmetric``, the official code)
            or on [0, 1] (``unit``, the paper; D1); with ``marginals`` uniform on [-1, 1], and added to the log of the
            category's public share where they are raw logits, so that the search begins among likely rows.
        restarts: number of starts a victim.
        select: choice of the reference among the restarts: least loss after (``projected``, the official code) or
            before (``soft``, the paper's algorithm 1; D3) projection to valid rows.
        pooling: statistic that merges restarts into one batch, see ``pool``.
        decoding: method that turns a pooled batch into cells: the ``nearest`` valid row (as published), or the
            ``marginals`` where the restarts disagree, see ``decode_by_marginals``.
        entropy: measure of uncertainty, see ``uncertainty``.
        labels: method that restores labels where they are not granted, see ``restore_labels``.
        priors: priors on the rows while they are optimised; losses that are compared and reported leave them out.
        masks: treatment of dropout in clients: masks as ``variables`` beside the records, ``drawn`` anew in each step,
            or ``ignored``, see ``MaskedEngine``. Simulated local steps ignore them.
        local: treatment of the local steps of an update (FedAvg): as one gradient taken ``midway``, see ``midway``; at
            a point of the way that is learnt with the records (``sme``), see ``Surrogate``; or ``simulated`` one by
            one as by Dimitrov et al., see ``Simulated``.
        epoch_prior: weight of the prior that the simulated epochs' records agree.
        rows_at_once: number of dummy rows optimised together, default by device; victims and restarts are split into
            chunks of at most that many (at least one restart).
    """

    matching: Matching = field(default_factory=Cosine)
    descent: Descent = field(default_factory=Descent)
    softmax: bool = True
    sigmoid: bool = True
    logits: Logits = "raw"
    start: Start = "marginals"
    restarts: int = 30
    select: Select = "projected"
    pooling: Pooling = "median"
    decoding: Decoding = "marginals"
    entropy: Entropy = "softmax"
    labels: Method = "bias"
    priors: tuple[Prior, ...] = ()
    masks: Masks = "variables"
    local: Local = "midway"
    epoch_prior: float | int = 0.01
    rows_at_once: int | None = None

    @property
    def iterations(self) -> int:
        """Of the descent."""
        return self.descent.iterations

    def __post_init__(self) -> None:
        check_count("restarts", self.restarts)
        if self.rows_at_once is not None:
            check_count("rows_at_once", self.rows_at_once)
        check_choice("logits", self.logits, Logits)
        check_choice("start", self.start, Start)
        check_choice("select", self.select, Select)
        check_choice("pooling", self.pooling, Pooling)
        check_choice("decoding", self.decoding, Decoding)
        check_choice("entropy", self.entropy, Entropy)
        check_choice("label restoration", self.labels, Method)
        check_choice("treatment of dropout:", self.masks, Masks)
        check_choice("way to meet local steps:", self.local, Local)
        if not 0 <= self.epoch_prior < math.inf:
            raise BadInputError(f"the weight of a prior is at least 0, got epoch_prior={self.epoch_prior}.")

    def __call__(
        self, view: AnyView, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        """Return the guessed records of every victim."""
        # The same dummy records match several rounds of the same records, at the mean of the rounds' distances.
        rounds = view.rounds if isinstance(view, RoundsView) else (view,)
        for round_view in rounds:
            check(round_view, knowledge, seeds)
        victims, records = view.victims, knowledge.batch_size
        first = next(iter(rounds[0].message.values()))
        encoder = Encoder(knowledge.schema, knowledge.statistics, dtype=first.dtype, device=first.device)
        gradients = [as_gradient(round_view, knowledge) for round_view in rounds]
        read = [undo_clipping(gradient, granted, encoder) for gradient, granted in gradients]
        if knowledge.labels is not None:
            labels = knowledge.labels.to(first.device)
        else:
            restored = [
                labels_of_step(round_view, knowledge, encoder)
                if _counts_by_step(round_view)
                else restore_labels(gradient, granted, encoder, self.labels)
                for round_view, gradient, (_, granted) in zip(rounds, read, gradients, strict=True)
            ]
            # Labels are in order of class, so that the median over rounds is a count that most of them agree on.
            labels = torch.stack(restored).median(0).values
        target: AnyView = read[0]
        if isinstance(view, RoundsView):
            if not self.joins(view, knowledge):
                raise BadInputError(
                    f"several rounds can be matched together where each is of all {knowledge.batch_size} records and "
                    f"local steps are met midway; these are of {view.batch_size} records each, local={self.local!r}. "
                    "Attack them one by one (OverRounds)."
                )
            target = replace(view, rounds=tuple(read))
        # Of an aggregate of Adam's steps no single client's can be simulated.
        elif isinstance(view, UpdateView) and (
            self.local == "simulated" or (view.training.optimizer != "sgd" and view.clients == 1)
        ):
            if view.clients > 1:
                raise BadInputError(
                    f"local steps can be simulated for one client's update, but {view.clients} clients' are "
                    "aggregated; take them midway (local='midway')."
                )
            target = view
            if view.training.optimizer != "sgd":
                target = smoothed(view, knowledge, encoder)
            if not knowledge.ordered:
                orders = [torch.randperm(records, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
                labels = labels.take_along_dim(torch.stack(orders).to(labels.device), 1)
        moved = None
        # Signs do not reveal the length of the client's way.
        if isinstance(view, UpdateView) and self.local == "sme" and not knowledge.defense.signs:
            moved = moved_by(view, knowledge.batch_size // view.clients)
        budget = self.rows_at_once or ROWS_AT_ONCE.get(first.device.type, ROWS_AT_ONCE["cpu"])
        if isinstance(target, UpdateView):
            # Each dummy client has weights of its own: the cost of products grows with clients, not with their records.
            budget = max(budget, CLIENTS_AT_ONCE * records * target.training.epochs)
        together = max(1, budget // (self.restarts * records * _copies(target)))
        guesses = []
        for begin in range(0, victims, together):
            chunk = slice(begin, min(begin + together, victims))
            part = target.of(chunk)
            report = scaled(progress, part.victims / victims)
            guesses.append(
                self._reconstruct(
                    part, encoder, knowledge.of(chunk), labels[chunk], seeds[chunk], budget, moved, report
                )
            )
        cells, doubt, losses, courses = zip(*guesses, strict=True)
        return RecordsGuess(
            cells=torch.cat(cells).cpu(),
            uncertainty=torch.cat(doubt).cpu() if self.restarts > 1 else None,
            labels=labels.double().cpu(),
            loss=torch.cat(losses).double().cpu(),
            course=torch.cat(courses).double().cpu(),
        )

    def joins(self, view: RoundsView, knowledge: Knowledge) -> bool:
        """Return whether these rounds are matched together: they have the same records, at known parameters."""
        same_point = self.local == "midway" or isinstance(view.rounds[0], GradientView)
        return view.batch_size == knowledge.batch_size and same_point

    def _reconstruct(
        self,
        view: AnyView,
        encoder: Encoder,
        knowledge: Knowledge,
        labels: Float[Tensor, "victim record"],
        seeds: Sequence[int],
        budget: int,
        moved: float | None,
        progress: Progress | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        copies = _copies(view)
        records = copies * labels.shape[1]
        relaxation = Relaxation(encoder, self.softmax, self.sigmoid, self.logits)
        if isinstance(view, UpdateView):
            engine: Engine = Simulated(view, self.matching, self.epoch_prior, labels.shape[1])
        elif isinstance(view, RoundsView):
            engine = JointEngine(
                [match(round_view, self.matching) for round_view in view.rounds if isinstance(round_view, GradientView)]
            )
        else:
            engine = match(view, self.matching)
        first = view.rounds[0] if isinstance(view, RoundsView) else view
        terms = [prior.on(first, knowledge) for prior in self.priors]
        start = torch.stack([self._start(seed, records, encoder) for seed in seeds])
        parts = start.split(max(1, budget // (len(seeds) * records)), dim=1)
        surrogates: list[Surrogate] = []
        dropped: list[MaskedEngine] = []
        drops = first.model.drops
        if isinstance(view, GradientView) and moved is not None:
            surrogates = [Surrogate(view, self.matching, moved) for _ in parts]
        elif drops is not None and self.masks != "ignored" and isinstance(view, GradientView):
            dropped = [MaskedEngine(engine, drops, self.masks, seeds) for _ in parts]
        ends = [
            self.descent.run(
                Guided(surrogate, terms) if terms else surrogate,
                relaxation,
                part,
                labels,
                scaled(progress, part.shape[1] / self.restarts),
            )
            for part, surrogate in zip(parts, surrogates or dropped or [engine] * len(parts), strict=True)
        ]
        if surrogates:
            # Restarts are compared at the same parameters.
            share = torch.cat([surrogate.share for surrogate in surrogates], dim=1).mean(1)
            engine = match(surrogates[0].gradients_at(share), self.matching)
        rows = merge_epochs(encoder, relaxation.relax(torch.cat([end.variables for end in ends], dim=1)), copies)
        # The median over restarts: the best one does not show whether the others converged.
        course = torch.cat([end.course for end in ends], dim=1).median(dim=1).values
        if self.restarts == 1:
            cells = encoder.decode(rows[:, 0])
            return cells, torch.empty(0), engine.loss(encoder.encode(cells)[:, None], labels)[:, 0], course
        scored = encoder.project(rows) if self.select == "projected" else rows
        masks = joined(dropped) if dropped else None
        aligned = align(encoder, rows, engine.loss(scored if masks is None else torch.cat([scored, masks], -1), labels))
        pooled = pool(encoder, aligned, self.pooling)
        if self.decoding == "marginals":
            cells = decode_by_marginals(encoder, knowledge.statistics, aligned, pooled)
        else:
            cells = encoder.decode(pooled)
        loss = engine.loss(encoder.encode(cells)[:, None], labels)[:, 0]
        return cells, uncertainty(encoder, aligned, self.entropy), loss, course

    def _start(self, seed: int, records: int, encoder: Encoder) -> Float[Tensor, "restart record encoded"]:
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(self.restarts, records, encoder.width, generator=generator, dtype=encoder.mean.dtype)
        start = (uniform if self.start == "unit" else 2 * uniform - 1).to(encoder.mean.device)
        if self.start != "marginals" or not self.softmax or self.logits != "raw":
            return start
        # The mean of a category's indicator is its share.
        logits = encoder.mean.clamp_min(_LEAST_SHARE).log()
        return start + torch.where(encoder.is_continuous, torch.zeros_like(logits), logits)


def as_gradient(view: View, knowledge: Knowledge) -> tuple[GradientView, Knowledge]:
    """Return a view as gradients, and the knowledge with the defense as if it had been applied to them."""
    if isinstance(view, GradientView):
        return view, knowledge
    read, defense = midway(view, knowledge.batch_size // view.clients, knowledge.defense)
    return read, replace(knowledge, defense=defense)


def _copies(view: AnyView) -> int:
    """Return the number of dummy records for each true one."""
    return view.training.epochs if isinstance(view, UpdateView) else 1


def _counts_by_step(view: View) -> TypeGuard[UpdateView]:
    """Return whether labels are counted in all entries of a step of Adam, for which single records have gradients."""
    if not isinstance(view, UpdateView) or view.training.optimizer == "sgd":
        return False
    return view.model.head != "regression" and not normalisations(view.model.module)


def check(view: View, knowledge: Knowledge, seeds: Sequence[int]) -> None:
    """Refuse gradients or updates whose names, shapes or numbers, or whose count of seeds, are wrong."""
    view.model.check(knowledge.schema)
    what = "gradient" if isinstance(view, GradientView) else "update"
    parameters = view.model.parameters
    if list(parameters) != list(view.message):
        raise BadInputError(
            f"the {what} holds {', '.join(view.message) or 'nothing'} where model {view.model.name!r} has the "
            f"parameters {', '.join(parameters)}; hand in one tensor a parameter, in the model's order."
        )
    for name, parameter in parameters.items():
        g = view.message[name]
        if g.shape[1:] != parameter.shape:
            raise BadInputError(
                f"the {what} of {name!r} has shape {tuple(g.shape[1:])} a victim where model {view.model.name!r} "
                f"has {tuple(parameter.shape)}; it was made with another model."
            )
        if not g.isfinite().all():
            raise BadInputError(
                f"the {what} of {name!r} holds {float(g[~g.isfinite()][0])}; training has diverged or the capture "
                "is broken, and nothing can be learned from it."
            )
    largest = torch.stack([g.reshape(len(g), -1).abs().amax(1) for g in view.message.values()]).amax(0)
    if (largest == 0).any():
        raise BadInputError(
            f"the {what} of victim {int((largest == 0).nonzero()[0])} is zero everywhere, so it says nothing about "
            "any record; check that the update was captured before it was applied."
        )
    squares = torch.stack([g.flatten(1).square().sum(1) for g in view.message.values()]).sum(0)
    lost = ~((squares > 0) & squares.isfinite())
    if lost.any():
        victim = int(lost.nonzero()[0])
        raise BadInputError(
            f"the largest entry of victim {victim}'s {what} is {float(largest[victim]):g}, whose square "
            f"{largest.dtype} cannot hold; convert model and {what} to float64."
        )
    if len(seeds) != view.victims:
        raise BadInputError(f"expected one seed for each of {view.victims} victims, got {len(seeds)}.")
    if knowledge.labels is not None:
        expected = view.victims, knowledge.batch_size
        if tuple(knowledge.labels.shape) != expected:
            raise BadInputError(
                f"labels have shape {tuple(knowledge.labels.shape)}; expected (victims, batch size) = {expected}."
            )
        target = knowledge.schema.target
        codes = range(target.width) if isinstance(target, Discrete) else None
        for label in knowledge.labels.unique().tolist():
            if label not in codes if codes is not None else not math.isfinite(label):
                wanted = f"codes from 0 to {codes[-1]}" if codes is not None else "finite numbers"
                raise BadInputError(
                    f"the labels hold {label} where the target {target.name!r} takes {wanted}; give every record's own."
                )
