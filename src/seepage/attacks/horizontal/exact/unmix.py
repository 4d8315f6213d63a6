"""Unmix: records read exactly and one by one from a gradient; the rest goes to TabLeak."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage import kernel
from seepage.attacks.horizontal.exact.adaptive import first_gradient, layer_noise, lost_sizes
from seepage.attacks.horizontal.exact.cells_search import COMBINED, MANY_OUTSIDE
from seepage.attacks.horizontal.exact.chains import affine_layers
from seepage.attacks.horizontal.exact.dropped import DroppedHarvester, obstacle
from seepage.attacks.horizontal.exact.form_fit import FittedForm
from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.harvest import Harvest, Harvester
from seepage.attacks.horizontal.exact.inexact import InexactHarvester
from seepage.attacks.horizontal.exact.normalised import NormalisedHarvester
from seepage.attacks.horizontal.exact.normalised_forms import normalised_inputs, seen_of
from seepage.attacks.horizontal.exact.pace import Pace
from seepage.attacks.horizontal.exact.probes import UnreadableError
from seepage.attacks.horizontal.exact.proving import NO_WITNESS, proofs_of
from seepage.attacks.horizontal.exact.replay import can_replay, replayed
from seepage.attacks.horizontal.exact.traced import TracedNetwork, gradient_of, traced, typical_rows
from seepage.attacks.horizontal.exact.unsent import (
    BEFORE_UNSENT,
    NO_REPLAYS,
    TAKING_ROWS,
    UnsentHarvester,
    before_unknown,
    in_words,
    taking_rows,
)
from seepage.attacks.horizontal.exact.updates import moved_by
from seepage.attacks.horizontal.matching.engine import match
from seepage.attacks.horizontal.matching.profiles import Profile, reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction, as_gradient, check
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.errors import check_count, positive
from seepage.models.batch_norm import normalisations
from seepage.pace import Progress, scaled
from seepage.registry import Traits, attacks
from seepage.tabular.align import match as assign
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete
from seepage.text import listed
from seepage.wire.horizontal import NOT_TRIED, ExactSearch, GradientView, Knowledge, RecordsGuess, UpdateView, View
from seepage.wire.precision import cast_noise

# Standard deviation of what rounding a parameter adds in a step, in precisions of its size: those of a number are
# spread evenly over its last place, which is worth between half of it and all.
_ROUNDING_OF_A_STEP = 0.25
_TRIED = 6  # changes of a start that are usual before it ends
_AT_ONCE = 8  # speed of multiplications of whole matrices, relative to the search's own
_SAME_LABEL = 1e-3  # relative difference up to which a granted number is the one that was read


@attacks.register("unmix", "horizontal", traits=Traits(exact=True))
def unmix(
    profile: Profile = "default",
    starts: int = 256,
    rounds: int = 16,
    seconds: float | None = None,
    operations: float = 1e12,
    **options: object,
) -> Unmix:
    """Solves for single records and proves them, in networks of any form; TabLeak, which takes options, does the rest.

    Source: our own.
    """
    return Unmix(reconstruction(profile, **options), starts, rounds, seconds, operations)


@dataclass(frozen=True)
class Unmix:
    """Search single records in the spans of the layers' gradients, and remove them.

    Of the cells of one record, those are wanted whose encoded row lies in the row space of the first layer's gradient
    and whose first hidden layer lies in that of the second layer's (``CellsSearch``). A candidate is tested by
    ``Gradient.prove``, its part of the gradient is taken away, and the search goes on in the rest, which spans less.
    What is left in the end, and whatever is outside these assumptions, goes to TabLeak; what it returns is an estimate.
    Where all records were read, they go to the kernel as a witness. Labels are not needed. See docs/methods/unmix.md.

    Updates of local steps, and noise of a known size: ``InexactHarvester``, ``replayed``. One hidden layer:
    ``search_one_layer``. Batch normalisation: ``NormalisedHarvester``. Networks of any other form: ``TracedNetwork``.

    Source: own. SPEAR (Dimitrov et al., NeurIPS 2024) reads batches out of the first layer's gradient by its sparse
    columns; here the next layer's rows are used, and the discreteness of tables.

    Attributes:
        fallback: attack that guesses the other records.
        starts: number of searches in each round.
        rounds: greatest number of rounds for a victim.
        seconds: time of a victim's search, after which no further round begins and the fallback takes what is missing.
            The same seed gives the same figures only where the time was enough, or with None, which sets no limit.
        operations: number of multiplications that a victim's search may take, as forecast from the sizes of table and
            network: fewer rounds are run where ``rounds`` would take more, and none where one would. 1e12 are some
            minutes of one core. The regime says where the limit was met. It does not depend on the machine, so that the
            same seed gives the same figures.

    Raises:
        BadInputError: a count is below 1, or the seconds or operations are not above 0.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn3
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> data = distinct(rows=40)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> ran = FedSGD(16).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1])
        >>> guess = unmix()(ran.view, Knowledge(data.schema, data.statistics, 16), [0])
        >>> guess.regime, bool(guess.certified.all())
        (('all 16 records proved',), True)
    """

    fallback: Reconstruction
    starts: int = 256
    rounds: int = 16
    seconds: float | None = None
    operations: float = 1e12

    def __post_init__(self) -> None:
        check_count("starts", self.starts)
        check_count("rounds", self.rounds)
        if self.seconds is not None:
            positive("seconds", self.seconds)
        positive("operations", self.operations)

    @property
    def restarts(self) -> int:
        """Of the fallback."""
        return self.fallback.restarts

    def __call__(
        self, view: View, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        """Return the records of every victim, the proved ones first."""
        check(view, knowledge, seeds)
        network, dropping = None, view.model.drops is not None
        try:
            network = traced(view.model, knowledge.schema, knowledge.statistics)
            why = _outside_dropped(view, knowledge, network) if dropping else _outside(view, knowledge, network)
        except UnreadableError as error:
            why = str(error)
        rows_alone = None
        if why in (_ONE_LAYER, _NOT_BEHIND, _NUMBERS):
            rows_alone = taking_rows(view.model, knowledge.schema, knowledge.statistics)
            why = why if rows_alone is None else None
        effort = self._effort(view, knowledge, network)
        rounds = int(min(self.rounds, self.operations / effort))
        if not why and not rounds:
            why = f"a round of the search takes about {effort:.0e} multiplications, {self.operations:.0e} are allowed"
        # Outside of the assumptions everything is the fallback's, and nothing is searched or proved.
        if why:
            guess = self.fallback(view, knowledge, seeds, progress)
            return replace(
                guess,
                proofs=(kernel.nothing(len(guess.cells[0]), guess.cells.shape[2], why),) * view.victims,
                regime=(NOT_TRIED + why,) * view.victims,
            )
        read, facts = as_gradient(view, knowledge)
        first = next(iter(read.gradient.values()))
        encoder = Encoder(facts.schema, facts.statistics, dtype=first.dtype, device=first.device)
        noise = _noise(view, facts, rows_alone or network)
        normalised = bool(normalisations(view.model.module))
        precise = Encoder(facts.schema, facts.statistics, device=first.device)
        pace = Pace(progress, view.victims, rounds)
        starts = Starts(precise, facts.statistics, self.starts, pace.searched)
        limits = encoder, starts, rounds, self.seconds
        further = encoder, Starts(precise, facts.statistics, self.starts), rounds, self.seconds
        harvests: list[Harvest] = []
        estimates: dict[int, RecordsGuess] = {}

        def estimate(victim: int, report: Progress | None) -> RecordsGuess:
            """Return the fallback's guess of all records of a victim, computed once."""
            if victim not in estimates:
                single, part = slice(victim, victim + 1), scaled(report, 1 / view.victims)
                granted = knowledge.of(single)
                estimates[victim] = self.fallback(view.of(single), granted, [seeds[victim]], part)
            return estimates[victim]

        def in_spans(layers: TracedNetwork, victim: int) -> Harvest:
            """Return the rows in the spans of some layers, without labels."""
            sent = layers if read.parameters is None else layers.with_parameters(read.place(victim))
            gradient = gradient_of(sent, read, victim, facts.batch_size)
            # A further search of a victim is no progress.
            searched = limits if layers is rows_alone else further
            return UnsentHarvester(*searched).run(gradient, noise, seeds[victim])

        # Clients whose unsent parameters are unknown: only layers before those can be compared.
        local, before, spanned = view.model.local, None, dict[int, str]()
        if network is not None and local is not None and not local.known and not dropping:
            before = before_unknown(network, local.names)
        # One search for each kind of message: gradients under masks, of normalised batches, as computed, with noise.
        for victim, seed in enumerate(seeds):
            pace.begin()
            victim_network = network
            if network is not None and read.parameters is not None:
                victim_network = network.with_parameters(read.place(victim))
            if dropping:
                assert victim_network is not None
                near = partial(estimate, victim, progress)
                harvest = DroppedHarvester(*limits).run(victim_network, read, victim, facts.batch_size, seed, near)
            elif normalised:
                granted = facts.batch_statistics or {}
                quiet = _rounded(view, facts)
                batch = seen_of(read, victim, facts.batch_size, granted, precise, facts.statistics, quiet)
                harvest = NormalisedHarvester(*limits).run(batch, facts.batch_size, seed)
            elif rows_alone is not None:
                harvest = in_spans(rows_alone, victim)
                spanned[victim] = TAKING_ROWS
            else:
                gradient = gradient_of(victim_network, read, victim, facts.batch_size)
                if noise is None:
                    harvest = Harvester(*limits).run(gradient, seed)
                else:
                    harvest = InexactHarvester(*limits).run(gradient, noise, seed)
                    computed = victim_network is not None and victim_network.layers[0].computed
                    if gradient.network.takes_rows and not computed:
                        layers = () if victim_network is None else victim_network.parameters
                        harvest = _fitted(view, victim, gradient, encoder, starts, harvest, noise, layers)
            if before is not None and len(harvest.cells) < facts.batch_size:
                by_spans = in_spans(before, victim)
                if len(by_spans.cells) > len(harvest.cells):
                    harvest, spanned[victim] = by_spans, BEFORE_UNSENT
            # As many directions as records, and some are missing: their errors are not those of the declared message.
            missed = len(harvest.cells) < facts.batch_size == max(harvest.dimensions[:1], default=0)
            if missed and rows_alone is None and not (normalised or dropping) and facts.batch_size < encoder.width:
                layers_of_rows = taking_rows(view.model, knowledge.schema, knowledge.statistics)
                by_spans = None if layers_of_rows is None else in_spans(layers_of_rows, victim)
                if by_spans is not None and len(by_spans.cells) == facts.batch_size:
                    harvest, spanned[victim] = by_spans, TAKING_ROWS
            if victim in spanned and len(harvest.cells):
                harvest = _labelled(encoder, harvest, estimate(victim, progress))
            # A number of copies is only as good as the replay of the whole batch.
            if not harvest.complete and view.model.head != "regression":
                harvest = harvest.once()
            harvests.append(harvest)
            if len(harvest.cells) == facts.batch_size:
                pace.end()
        # The rest of an exact gradient without the records read is a message of the others, which the fallback attacks.
        exact = noise is None and not (normalised or dropping or spanned)
        if exact:
            batches = self._completed(read, facts, seeds, harvests, encoder, pace.rest)
        else:
            batches = self._estimated(harvests, facts.batch_size, encoder, lambda i: estimate(i, pace.rest))
        cells, labels, doubt, course = batches
        doubts = [_no_witness(harvest) for harvest in harvests]
        doubts = [NO_REPLAYS.get(spanned.get(victim), doubt) for victim, doubt in enumerate(doubts)]
        proofs = proofs_of(view, knowledge, cells, labels, doubts)
        engine = match(read, self.fallback.matching)
        loss = engine.loss(encoder.encode(cells)[:, None], labels.to(encoder.mean.dtype))[:, 0]
        copies = [int(_filling(encoder, harvest).sum()) for harvest in harvests]
        regimes = [_regime(*item, exact) for item in zip(harvests, proofs, copies, strict=True)]
        for victim, where in spanned.items():
            regimes[victim] = in_words(harvests[victim], facts.batch_size, where)
        if rounds < self.rounds:
            ended = f"; the limit of {self.operations:.0e} multiplications allowed {rounds} of {self.rounds} rounds"
            missed = [len(harvest.cells) < facts.batch_size for harvest in harvests]
            regimes = [regime + ended * lacks for regime, lacks in zip(regimes, missed, strict=True)]
        return RecordsGuess(
            cells=cells.cpu(),
            uncertainty=None if doubt is None else doubt.cpu(),
            labels=labels.cpu(),
            loss=loss.double().cpu(),
            course=course,
            proofs=proofs,
            regime=tuple(regimes),
            searches=tuple(
                ExactSearch(int((~part.traceless).sum()), part.dimensions, part.unsure) for part in harvests
            ),
        )

    def _effort(self, view: View, knowledge: Knowledge, network: TracedNetwork | None) -> float:
        """Return the multiplications of one round, in which each start tries all categories of all columns."""
        # Those of a network's own pass are of whole matrices, which a processor does faster.
        width, continuous = knowledge.schema.width, len(knowledge.schema.continuous)
        weights = [p.shape for p in view.model.parameters.values() if p.dim() > 1]
        # A convolution has its units at each encoded column.
        units = weights[0][0] * (width if len(weights[0]) > 2 else 1) if weights else 1
        behind = weights[1][0] if len(weights) > 1 else 0
        outside = min(units, behind)
        if units - knowledge.batch_size > MANY_OUTSIDE:
            outside = min(outside, COMBINED)
        passed = 0.0 if network is None else float(width) * network.work / _AT_ONCE
        by_change = float(width) * units * (width + outside) + float(continuous) ** 3 + passed
        return self.starts * _TRIED * by_change

    def _estimated(
        self, harvests: Sequence[Harvest], records: int, encoder: Encoder, estimate: Callable[[int], RecordsGuess]
    ) -> _Batches:
        """Return the records read, in place of the nearest of the records that the fallback guesses."""
        batches = []
        for victim, harvest in enumerate(harvests):
            cells, labels, doubt = harvest.cells, harvest.labels, _doubt(encoder, harvest)
            course = torch.full((1, 3), torch.nan, dtype=torch.float64)
            if len(cells) < records:
                rest = estimate(victim)
                open_ = _unmatched(encoder, cells, rest.cells[0].to(cells))
                assert rest.labels is not None
                cells = torch.cat([cells, rest.cells[0].to(cells)[open_]])
                labels = torch.cat([labels, rest.labels[0].to(labels)[open_]])
                if rest.uncertainty is not None:
                    doubt = torch.cat([doubt, rest.uncertainty[0].to(doubt)[open_]])
                course = course if rest.course is None else rest.course
            batches.append((cells, labels, doubt, course[0]))
        cells, labels, doubts, courses = zip(*batches, strict=True)
        whole = all(len(doubt) == records for doubt in doubts)
        doubt = torch.stack(doubts) if whole else None
        return _Batches(torch.stack(cells), torch.stack(labels), doubt, torch.stack(courses))

    def _completed(
        self,
        view: GradientView,
        knowledge: Knowledge,
        seeds: Sequence[int],
        harvests: Sequence[Harvest],
        encoder: Encoder,
        progress: Progress | None,
    ) -> _Batches:
        """Return the records read, and estimates of the others from what those leave of the gradient."""
        records, device = knowledge.batch_size, encoder.mean.device
        shape = (view.victims, records, len(knowledge.schema.columns))
        cells = torch.empty(shape, dtype=torch.float64, device=device)
        doubt = torch.empty_like(cells)
        labels = torch.empty(shape[:2], dtype=torch.float64, device=device)
        course = torch.full((view.victims, 3), torch.nan, dtype=torch.float64)
        missing: dict[tuple[int, FittedForm | None], list[int]] = {}
        for victim, harvest in enumerate(harvests):
            taken = len(harvest.cells)
            cells[victim, :taken], labels[victim, :taken] = harvest.cells, harvest.labels
            doubt[victim, :taken] = _doubt(encoder, harvest)
            if taken < records:
                missing.setdefault((records - taken, harvest.form), []).append(victim)
        for (count, form), victims in missing.items():
            rest = _rest(view, [harvests[v] for v in victims], records / count, victims, form)
            rest_knowledge = replace(knowledge, batch_size=count, labels=_other_labels(knowledge, harvests, victims))
            report = scaled(progress, len(victims) / view.victims)
            guess = self.fallback(rest, rest_knowledge, [seeds[v] for v in victims], report)
            cells[victims, -count:] = guess.cells.to(device)
            if guess.labels is not None:
                labels[victims, -count:] = guess.labels.to(device)
            if guess.uncertainty is not None:
                doubt[victims, -count:] = guess.uncertainty.to(device)
            if guess.course is not None:
                course[victims] = guess.course
        return _Batches(cells, labels, doubt if self.fallback.restarts > 1 or not missing else None, course)


# Why errors of records cannot be told from a message that is not exact, though rows lie in the span of a layer.
_ONE_LAYER = "one hidden layer, and gradients that are not exact"
_NOT_BEHIND = "no layer that takes the row with another one behind it, and gradients that are not exact"
_NUMBERS = "targets are numbers, and gradients that are not exact"


class _Batches(NamedTuple):
    """Whole batches of all victims: records that were read, then estimates, with the course of the latter's descent."""

    cells: Float[Tensor, "victim record column"]
    labels: Float[Tensor, "victim record"]
    doubt: Float[Tensor, "victim record column"] | None
    course: Float[Tensor, "victim 3"]


def _outside(view: View, knowledge: Knowledge, network: TracedNetwork | None) -> str | None:
    """Return why nothing can be proved for this kind of view, if so."""
    if normalisations(view.model.module):
        return _outside_normalised(view, knowledge)
    layers = affine_layers(view.model.module) or ()
    if network is None and len(layers) < 2:
        return "no hidden layer"
    if network is not None and (why := _open_numbers(network, knowledge)):
        return why
    if isinstance(view, UpdateView) and view.training.optimizer != "sgd":
        if network is not None:
            return f"no plain ReLU network, and clients that train with {view.training.optimizer}"
        if lost := lost_sizes(view, knowledge):
            return lost
    if knowledge.defense.signs or knowledge.defense.kept < 1:
        return f"gradients went through {knowledge.defense.name}"
    if not _exact(view, knowledge):
        if network is None and len(layers) < 3:
            return _ONE_LAYER
        if network is not None and not all(layer.isometric for layer in network.layers):
            return "layers whose weights are computed from parameters, and gradients that are not exact"
        if network is not None and not (network.affine and network.taps):
            return _NOT_BEHIND
        if view.model.head == "regression":
            return _NUMBERS
    return None


def _outside_dropped(view: View, knowledge: Knowledge, network: TracedNetwork | None) -> str | None:
    """Return why no record can be read from clients that drop values at random, if so."""
    if not isinstance(view, GradientView) or not _exact(view, knowledge):
        return "the network drops values at random, and the message is no exact gradient of one batch"
    if network is None:
        return "the network drops values at random, and normalises by the batch"
    return obstacle(network, view.model)


def _open_numbers(network: TracedNetwork, knowledge: Knowledge) -> str | None:
    """Return that numbers are normalised together, where they are."""
    schema, probe = knowledge.schema, network.probes.rows
    encoder = Encoder(schema, knowledge.statistics, device=probe.device)
    places = [schema.blocks[i].start for i in schema.continuous]
    ways = network.open_numbers(typical_rows(encoder, knowledge.statistics), places) if places else 0
    if not ways:
        return None
    return (
        "numbers that reach the layers only together, as by a normalisation of them, so that moving all of them in "
        f"{'one direction' if ways == 1 else f'{ways} directions'} leaves no trace"
    )


def _exact(view: View, knowledge: Knowledge) -> bool:
    """Return whether a message is a gradient as the client computed it."""
    return isinstance(view, GradientView) and knowledge.defense.name == "none" and view.precision == "full"


def _is_plain_step(view: View, knowledge: Knowledge) -> bool:
    """Return whether an update is one plain step of one client, that is its gradient but for rounding."""
    if not isinstance(view, UpdateView) or view.clients > 1 or not view.training.plain or view.precision != "full":
        return False
    single = view.training.accumulation == 1 and view.training.steps(knowledge.batch_size) == 1
    return single and view.training.optimizer == "sgd" and knowledge.defense.name == "none"


def _rounded(view: View, knowledge: Knowledge) -> dict[str, float]:
    """Return the standard deviation of what rounding parameters adds to a gradient, by name; none in a gradient."""
    if not isinstance(view, UpdateView):
        return {}
    moved = moved_by(view, knowledge.batch_size)
    sizes = {name: float(part.detach().double().square().mean().sqrt()) for name, part in view.model.parameters.items()}
    precisions = {name: torch.finfo(part.dtype).eps for name, part in view.model.parameters.items()}
    return {name: _ROUNDING_OF_A_STEP * precisions[name] * size / moved for name, size in sizes.items()}


def _outside_normalised(view: View, knowledge: Knowledge) -> str | None:
    if view.model.head == "regression":
        return "labels are numbers"
    if not _exact(view, knowledge) and not _is_plain_step(view, knowledge):
        return "batch normalisation, and gradients that are not exact"
    rows = torch.zeros(2, knowledge.schema.width)
    if not normalised_inputs(view.model.module, rows).keys() <= (knowledge.batch_statistics or {}).keys():
        return "batch normalisation by a mean and variance that are not known; running statistics would tell them"
    # Whether a layer can be read is seen once.
    read, facts = as_gradient(view, knowledge)
    precise = Encoder(facts.schema, facts.statistics, device=next(iter(read.gradient.values())).device)
    try:
        quiet = _rounded(view, facts)
        seen_of(read, 0, facts.batch_size, facts.batch_statistics or {}, precise, facts.statistics, quiet)
    except UnreadableError as error:
        return str(error)
    return None


def _noise(view: View, knowledge: Knowledge, network: TracedNetwork | None) -> list[float] | None:
    """Return the standard deviation of each layer's mean gradient by noise and rounding; None where it is exact."""
    names = list(view.message)[::2] if network is None else [weight for weight, _ in network.parameters]
    if _exact(view, knowledge):
        return None
    rounded = [cast_noise(view.message[name], view.precision) for name in names]
    if isinstance(view, GradientView):
        return [math.hypot(knowledge.defense.noise, size) for size in rounded]
    records = knowledge.batch_size // view.clients
    if view.training.optimizer != "sgd":
        return layer_noise(first_gradient(view, records))
    steps, moved = view.training.steps(records), moved_by(view, records)
    weights = [view.model.parameters[name] for name in names]
    deviations = []
    for weight, size in zip(weights, rounded, strict=True):
        usual = float(weight.detach().double().square().mean().sqrt())
        steps_rounding = _ROUNDING_OF_A_STEP * torch.finfo(weight.dtype).eps * usual * math.sqrt(steps) / moved
        deviations.append(math.hypot(knowledge.defense.noise, steps_rounding, size / moved))
    return deviations


def _fitted(
    view: View,
    victim: int,
    gradient: Gradient,
    client: Encoder,
    starts: Starts,
    harvest: Harvest,
    noise: Sequence[float],
    parameters: Sequence[tuple[str, str | None]],
) -> Harvest:
    """Return a harvest whose records were fitted by a replay of them."""
    if len(harvest.cells) < gradient.records or not can_replay(view, gradient.records):
        return harvest
    replay = replayed(view, victim, gradient, client, starts, harvest.cells, harvest.labels, noise, parameters)
    if not replay.fits:
        return replace(harvest, traceless=replay.traceless)
    spread = starts.spread(harvest.cells, replay.error[:, None] * client.std[starts.place].to(replay.error))
    return replace(harvest, cells=replay.cells, traceless=replay.traceless, spread=spread, complete=True)


def _unmatched(encoder: Encoder, taken: Tensor, guessed: Tensor) -> Tensor:
    """Return the places of guessed records that match no record read."""
    if not len(taken):
        return torch.arange(len(guessed), device=guessed.device)
    cost = torch.cdist(encoder.encode(guessed).double(), encoder.encode(taken).double())
    stands = torch.zeros(len(guessed), dtype=torch.bool, device=guessed.device)
    stands[assign(cost)] = True
    return (~stands).nonzero()[:, 0]


def _labelled(encoder: Encoder, harvest: Harvest, guess: RecordsGuess) -> Harvest:
    """Return rows that were read without labels with those of the nearest records of a guess."""
    assert guess.labels is not None
    cost = torch.cdist(
        encoder.encode(guess.cells[0].to(harvest.cells)).double(), encoder.encode(harvest.cells).double()
    )
    return replace(harvest, labels=guess.labels[0].to(harvest.labels)[assign(cost)])


def _rest(
    view: GradientView, harvests: Sequence[Harvest], factor: float, victims: Sequence[int], fitted: FittedForm | None
) -> GradientView:
    """Return the gradient of the other records, of the declared form or, without its factor, of the fitted one."""
    model = view.model
    if fitted is not None and fitted.agreeing:
        factor, model = factor / fitted.form.scale, replace(model, form=replace(fitted.form, scale=1.0))
    elif model.form.reduction == "sum":
        factor = 1.0
    left = {
        name: (torch.stack([harvest.left[name] for harvest in harvests]).to(part.dtype) * factor).contiguous()
        for name, part in view.gradient.items()
    }
    where = None if view.parameters is None else {name: p[list(victims)] for name, p in view.parameters.items()}
    return GradientView(model, left, where)


def _no_witness(harvest: Harvest) -> str | None:
    """Return why a harvest is no witness of a proof; None where it is one."""
    if not harvest.complete:
        return NO_WITNESS
    if harvest.form is not None:
        how = "was fitted" if harvest.form.agreeing else "is not known"
        return f"the form of the message {how}, and the kernel has no rule for it"
    return None


def _other_labels(knowledge: Knowledge, harvests: Sequence[Harvest], victims: Sequence[int]) -> Tensor | None:
    """Return the granted labels without those of the records that were taken; None where they contradict each other."""
    if knowledge.labels is None:
        return None
    rest = []
    for victim in victims:
        labels = knowledge.labels[victim].tolist()
        for label in harvests[victim].labels.tolist():
            # A number is read up to rounding.
            nearest = min(labels, key=lambda granted: abs(granted - label))
            if abs(nearest - label) > _SAME_LABEL * max(1.0, abs(label)):
                return None
            labels.remove(nearest)
        rest.append(labels)
    return torch.tensor(rest, dtype=knowledge.labels.dtype, device=knowledge.labels.device)


def _filling(encoder: Encoder, harvest: Harvest) -> Bool[Tensor, " record"]:
    target = encoder.schema.target
    return harvest.filling(len(target.categories) if isinstance(target, Discrete) else None)


def _doubt(encoder: Encoder, harvest: Harvest) -> Float[Tensor, "record column"]:
    """Return the uncertainty of records that were read."""
    schema, filling = encoder.schema, _filling(encoder, harvest)
    doubt = torch.zeros_like(harvest.spread)
    for i in schema.continuous:
        scale = float(encoder.std[schema.blocks[i].start])
        error = torch.where(filling, scale, harvest.spread[:, i].clamp(max=scale))
        doubt[:, i] = 0.5 + 0.5 * (2 * math.pi * (error / scale).square()).log()
    doubt[:, list(schema.discrete)] += (harvest.traceless | filling)[:, None].to(doubt)
    return doubt


def _regime(harvest: Harvest, proof: kernel.Certified, copies: int, exact: bool) -> str:
    """Return a short description of what was proved, what was read, and what was not."""
    records, read = len(proof.cells), len(harvest.cells)
    proved, given = int(proof.cells.any(1).sum()), int((proof.given | proof.cells).any(1).sum())
    whole, silent = int(proof.cells.all(1).sum()), int(harvest.traceless.sum())
    rank = f" (rank of the layers' gradients: {listed([str(number) for number in harvest.dimensions])})"
    if not read and exact:
        above = harvest.ceiling is not None and records > harvest.ceiling
        if not any(harvest.dimensions):
            return "estimated: the layers' gradients say nothing of any record"
        tells = f"; the layers' gradients tell at most {harvest.ceiling} records apart" * above
        return f"estimated: no record was found one by one{tells}{rank}"
    if proved == records:
        return f"all {records} records proved" + f", {records - whole} of them in part" * (whole < records)
    if harvest.complete:
        text = f"all {records} records read, which explains the whole message"
    else:
        text = f"{read or 'none'} of {records} records read one by one{rank}"
    if given > proved:
        text += f", {given} proved given that {'; '.join(proof.fixed)}"
    else:
        text += f", {proved or 'none'} proved"
    text += ", the others estimated" * (read < records)
    if copies:
        of_them = "one of them is a copy that fills" if copies == 1 else f"{copies} of them are copies that fill"
        text += (
            f", {of_them} up the batch and not sure: records without a trace, as of a class weight of 0, give the same"
        )
    if silent:
        text += f", {silent} leave{'s' if silent == 1 else ''} no trace"
    if exact and read == records and not harvest.complete:
        text += "; together they do not give the message, as where loss or recipe differ from what was declared"
    if harvest.form is not None:
        text += f"; {harvest.form}"
        # Other labels, under another factor or setting, may explain as much.
        text += ", and the labels are not sure" * (not harvest.complete or not harvest.form.tells_labels)
    return text + (f" (not proved: {proof.doubt})" if proof.doubt and harvest.complete else "")
