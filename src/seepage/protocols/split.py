"""Split learning: the server computes up to the cut, the client from there to the loss; gradients come back.

With ``a_i`` the activations of record i and ``l_i`` its own loss as the client computes it from ``a_i``, its private
columns and its label, the loss of a batch is ``sum_i s l_i``: s is 1 / n for the mean of n records, and the form of the
loss may have another factor. What comes back of record i is therefore

    r_i = s dl_i / da_i,

a vector that depends on that record alone but for s. Its owner, and whoever attacks it, divides s out: all that clips,
blurs or compares gradients of single records works on ``r_i / s``, and what is sent is multiplied by s again. Several
clients answer one exchange, each with an s of its own rows, and the mean of their losses is trained on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.defenses.returned import BatchDefense
from seepage.errors import BadInputError, check_count
from seepage.learning import CutStep, check_finite, check_labels, check_losses, cut_step
from seepage.models.deepfm import Fields
from seepage.models.message import PLAIN
from seepage.models.split import SplitModel, batches, for_loss
from seepage.registry import name_of
from seepage.tabular.table import Table
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutView, KnownCut


@dataclass(frozen=True)
class TrainedSplit:
    """Result of a training in split learning: mean losses of epochs in nats, parts and bounds as each epoch began.

    Bounds are those of gradients' norms, None where these are not clipped to one.
    """

    model: SplitModel
    clip: float | None
    losses: tuple[float, ...]
    earlier: tuple[SplitModel, ...]
    clips: tuple[float | None, ...] = ()

    @property
    def stages(self) -> tuple[TrainedSplit, ...]:
        """The training as it stood at the beginning of each epoch and at the end."""
        begun = zip(self.earlier, self.clips, strict=True)
        return (*(replace(self, model=model, clip=clip) for model, clip in begun), self)


@dataclass(frozen=True)
class SplitLearning:
    """One client that holds the private columns of all rows (SL), or many with some rows each (FSL).

    In every exchange the server sends the activations of some records, the client answers with the gradient with
    respect to them, and both take a step of Adagrad. With several clients, each takes the mean loss over its own rows,
    and the client parts' gradients are averaged over the clients of the exchange; each record's gradient still reaches
    the server.

    Source: Qiu et al., EXACT (2024), section 4. Settings that it does not state are those of DeepCTR-Torch, which it
    uses: batches of 256, weight decay of 1e-5 (added to the loss, not halved) on embeddings and first-order
    weights. The number of epochs is not stated there, 5 here.

    Attributes:
        decay: weight of the squared embeddings and first-order weights in the loss.
        rows_each: number of rows of a client; None for one client with all of them.
        clients: number of clients in an exchange, where there are several.
        flip: defense of labels; none if None.
        noise: defense of gradients, record by record; none if None.
        returned: defense of the gradients of each client's records together; none if None.

    Raises:
        BadInputError: a count is below 1, a rate is not a number from 0 up, or gradients have two defenses.
    """

    reveals: ClassVar[tuple[type, ...]] = (CutView,)

    epochs: int = 5
    batch_size: int = 256
    learning_rate: float | int = 0.01
    decay: float | int = 1e-5
    rows_each: int | None = None
    clients: int = 16
    flip: LabelFlip | None = None
    noise: CutNoise | None = None
    returned: BatchDefense | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and self.returned is not None:
            raise BadInputError(
                f"gradients that go back have one defense, got noise={self.noise} and returned={self.returned}; leave "
                "out one."
            )
        for name in ("epochs", "batch_size", "clients"):
            check_count(name, getattr(self, name))
        if self.rows_each is not None:
            check_count("rows_each", self.rows_each)
        for name in ("learning_rate", "decay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not 0 <= value < math.inf or (name == "learning_rate" and value == 0):
                raise BadInputError(f"{name} is a number from 0 up, got {name}={value!r}.")

    def train(self, model: SplitModel, rows: Table, seed: int) -> TrainedSplit:
        """Train a copy of both parts; the server holds the public columns, clients all others and the labels."""
        model.check(rows.cells)
        check_labels(rows.labels, rows.schema.target)
        model = model.copy()
        # Each purpose has a random stream of its own, so that a defense changes no batch.
        order, flipping, noising = (torch.Generator().manual_seed(seed + i) for i in range(3))
        labels = self._taught(model, rows, flipping)
        theirs, private = model.scaled(rows.cells, model.public), model.scaled(rows.cells, model.private)
        optimisers = [
            torch.optim.Adagrad([p for p in part.parameters() if p.requires_grad], lr=self.learning_rate)
            for part in (model.client, model.server)
            if any(p.requires_grad for p in part.parameters())
        ]
        bound = None if self.noise is None else self.noise.start
        holdings = [] if self.rows_each is None else torch.randperm(len(rows), generator=order).split(self.rows_each)
        losses, earlier, clips = [], [], []
        shared = self.noise is not None and self.noise.rule == "quantile"
        for _ in range(self.epochs):
            earlier.append(model.copy())
            clips.append(bound if shared else None)
            total = 0.0
            for batch, behind, clients in self._batches(len(rows), holdings, order):
                step, cut = _exchange(model, theirs[batch], private[batch], labels[batch], behind)
                sent, bound = self._defended(model, step.sent, behind, labels[batch], bound, noising)
                for optimiser in optimisers:
                    optimiser.zero_grad()
                if cut.requires_grad:
                    cut.backward(sent / clients)
                for name, parameter in model.client.named_parameters():
                    if name in step.parameters:
                        parameter.grad = step.parameters[name] / clients
                self._decay(model)
                for optimiser in optimisers:
                    optimiser.step()
                total += step.loss * len(batch)
            losses.append(total / len(rows))
        check_losses(torch.tensor(losses, dtype=torch.float64), "split", self.learning_rate)
        return TrainedSplit(model, bound if shared else None, tuple(losses), tuple(earlier), tuple(clips))

    def observe(
        self, trained: TrainedSplit, rows: Table, seed: int, granted: SplitModel | None = None
    ) -> CutTranscript:
        """Return the server's view of rows in one more exchange, without a step of either part.

        ``granted`` is the client part that the server knows, where it is not the one that answers.
        """
        return self.observe_all([(trained, granted)], rows, seed)

    def observe_all(
        self, exchanges: Sequence[tuple[TrainedSplit, SplitModel | None]], rows: Table, seed: int
    ) -> CutTranscript:
        """Return the server's view of the same rows in several exchanges, the newest first, with fresh noise in each.

        A record's label is flipped once, and stays so. An exchange is a stage of the training and a ``granted`` client.
        """
        if not exchanges:
            raise BadInputError("rows are seen in at least one exchange, got none; name one.")
        flipping, noising = (torch.Generator().manual_seed(seed + i) for i in range(2))
        labels = self._taught(exchanges[0][0].model, rows, flipping)
        views = [self._view(stage, granted, rows, labels, noising) for stage, granted in exchanges]
        private = rows.cells[:, list(views[0].model.private)]
        return CutTranscript(replace(views[0], earlier=tuple(views[1:])), private, rows.labels)

    def _view(
        self, trained: TrainedSplit, granted: SplitModel | None, rows: Table, labels: Tensor, noising: torch.Generator
    ) -> CutView:
        model = trained.model
        model.check(rows.cells)
        theirs, private = model.scaled(rows.cells, model.public), model.scaled(rows.cells, model.private)
        size = self.batch_size if self.rows_each is None else self.rows_each
        cuts, sent, means = [], [], []
        for start in range(0, len(rows), size):
            batch = slice(start, min(start + size, len(rows)))
            behind = torch.full((batch.stop - batch.start,), float(batch.stop - batch.start))
            step, cut = _exchange(model, theirs[batch], private[batch], labels[batch], behind)
            cuts.append(cut.detach())
            sent.append(self._defended(model, step.sent, behind, labels[batch], trained.clip, noising)[0])
            means.append(behind)
        # A form is what the attacker knows of the client, and undoes on what it received.
        view = CutView(
            model=replace(model if granted is None else model.with_client(granted.client), form=PLAIN),
            features=rows.cells[:, list(model.public)],
            cut=torch.cat(cuts),
            gradient=torch.cat(sent),
            behind=torch.cat(means),
            clip=trained.clip,
        )
        check_finite({"activations at the cut": view.cut, "gradients at the cut": view.gradient})
        return view

    def known(self) -> KnownCut:
        """Return the knowledge of an attacker who knows the defenses."""
        noise, flip = self.noise, self.flip
        return KnownCut(
            noise_multiplier=0.0 if noise is None else float(noise.noise_multiplier),
            clips=noise is not None,
            own_norm=noise is not None and noise.rule == "own",
            flip=0.0 if flip is None else float(flip.probability),
            shaped=None if self.returned is None else name_of(self.returned),
        )

    def _taught(self, model: SplitModel, rows: Table, generator: torch.Generator) -> Float[Tensor, " record"]:
        """Return the labels that clients train with, as the loss takes them, flipped where that is a defense."""
        if self.flip is None:
            return for_loss(model.schema.target, rows.labels)
        return self.flip(rows.labels, model.classes, generator)

    def _defended(
        self,
        model: SplitModel,
        sent: Tensor,
        behind: Tensor,
        labels: Tensor,
        bound: float | None,
        generator: torch.Generator,
    ) -> tuple[Tensor, float | None]:
        if self.noise is None and self.returned is None:
            return sent, bound
        # Records are clipped and blurred by their own loss, whatever is taken of the batch.
        means = _means(model, labels, behind)[:, None].to(sent)
        record_gradients = sent * means
        if self.returned is not None:
            # A client knows its own records alone.
            blurred = [
                self.returned(record_gradients[None, batch], generator, labels[None, batch])[0]
                for batch in batches(behind)
            ]
            return torch.cat(blurred) / means, bound
        assert self.noise is not None
        limit = self.noise.start if bound is None else bound
        return self.noise(record_gradients, limit, generator) / means, self.noise.follow(limit, record_gradients)

    def _batches(
        self, rows: int, holdings: Sequence[Tensor], generator: torch.Generator
    ) -> list[tuple[Int[Tensor, " record"], Float[Tensor, " record"], int]]:
        """Return, for each exchange, positions, number of records in each record's loss, and number of clients."""
        if not holdings:
            batches = torch.randperm(rows, generator=generator).split(self.batch_size)
            return [(batch, torch.full((len(batch),), float(len(batch))), 1) for batch in batches]
        groups = torch.randperm(len(holdings), generator=generator).split(self.clients)
        exchanges = []
        for group in groups:
            chosen = [holdings[i] for i in group.tolist()]
            behind = torch.cat([torch.full((len(positions),), float(len(positions))) for positions in chosen])
            exchanges.append((torch.cat(chosen), behind, len(chosen)))
        return exchanges

    def _decay(self, model: SplitModel) -> None:
        parts = [*model.server.modules(), *model.client.modules()]
        for parameter in (p for part in parts if isinstance(part, Fields) for p in part.parameters()):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach(), alpha=2 * self.decay)


def _means(model: SplitModel, labels: Tensor, behind: Tensor) -> Float[Tensor, " record"]:
    """Return what makes each record's part of its client's loss its own loss."""
    if model.form.plain:
        return behind
    shares = [model.form.share(model.head, labels[batch]).expand(len(labels[batch])) for batch in batches(behind)]
    return 1 / torch.cat(shares)


def _exchange(
    model: SplitModel, theirs: Tensor, private: Tensor, labels: Tensor, behind: Tensor
) -> tuple[CutStep, Tensor]:
    cut = model.server(theirs)
    return cut_step(model, cut, private, labels, behind), cut
