"""Transcripts of split training: private columns and labels behind the gradients that come back."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Measurement
from seepage.assessment.columns import shown_figures
from seepage.attacks.split.parts.message_fit import RIGHT, fitted_messages
from seepage.attacks.split.parts.messages import FAR, rounding
from seepage.attacks.split.parts.space import Space, not_exact
from seepage.captures.transcripts import SERVER, RecordedTraining, RoundMessages
from seepage.errors import BadInputError, one_line, unknown_name
from seepage.models.batch_norm import Moments, by_batch, from_running, keeps_statistics, normalising, running_statistics
from seepage.models.copies import copied
from seepage.models.deepfm import deepfm
from seepage.models.dropout import dropping
from seepage.models.own import find_own
from seepage.models.own_parts import own_split
from seepage.models.split import SplitModel
from seepage.models.vertical import encoder_of
from seepage.models.weights import load_weights
from seepage.protocols.split import SplitLearning
from seepage.registry import Attack, reporting
from seepage.seeds import stream
from seepage.settings.activations import ActivationExposure
from seepage.settings.guessing import AttackedSecret, attack_in, entry_in
from seepage.settings.part import Part, as_part
from seepage.settings.setting import Outcome, PlannedPart, Progress
from seepage.settings.split.audit import PRIOR, defense_of
from seepage.settings.split.base import COLUMN_SCALES, columns_outcome
from seepage.settings.transcript_tables import TranscriptSpec, TranscriptTables
from seepage.settings.transcripts import TranscriptExposure, UnknownPart, meaningful, transcript_reader
from seepage.sources import is_own
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import frame_of_columns
from seepage.text import how_many
from seepage.wire.labels import LabelGuess, ReturnedView
from seepage.wire.secret import CutTranscript
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge, CutRounds, CutView, KnownCut, check_gradient

# Number of groups of records with the same weights in all of their messages up to which these are used together, and
# records in each group from which on they are used whatever the number of groups: each group takes a search.
_FEW_GROUPS, _MANY_RECORDS = 64, 16
# Share of records whose messages must be replayed, below which the transcript is said not to fit.
_MOST, _MOST_ALONE = 0.5, 0.9
_SCALED = (
    "Each message has a factor of its own that no loss explains, such as weights of records, clipping, or another "
    "loss: only the directions of messages were used. More may leak than was read."
)


class SplitTranscriptSpec(TranscriptSpec):
    """An attack on a transcript of split training."""

    setting: ClassVar[str] = "split"


# Place of a round and of the record in it, of each message of each record, the oldest first.
_History = Mapping[int, Sequence[tuple[int, int]]]
# Place of the weights, and bound on norms, of an exchange.
_Kind = tuple[int, float | None]


class SplitTranscriptExposure(TranscriptExposure):
    """A transcript of split learning in which the server holds columns of its own."""

    scales = COLUMN_SCALES
    labels_too = True

    def __init__(self, tables: TranscriptTables, model: SplitModel) -> None:
        training = tables.training
        answered = tuple(messages for messages in training.rounds if messages.gradients is not None)
        if not answered:
            raise BadInputError(
                "no round of the transcript holds gradients, which are what the server of split learning receives."
            )
        super().__init__(tables, replace(training, rounds=answered))
        self.reveals = (CutView, ReturnedView)
        if len(answered) < len(training.rounds):
            self.notes.append(f"{len(training.rounds) - len(answered)} rounds without gradients are left out")
        self._base = model
        self._models: dict[int, SplitModel] = {}
        if training.weights:
            self.grants.add("weights")
        if tables.public is not None:
            self.grants.add("auxiliary")
        self._defense = _cut_defense(training.about.defense)
        space = Space.of(self._base, CutKnowledge(tables.schema, tables.statistics))
        self.limits = [*filter(None, [not_exact(self._base, space)])]
        self._used_messages = self._messages_with_gradient()
        self._factors: dict[int, float] = {}
        self._usual, self._checked = 1.0, False
        self._fit_messages(space)
        self.places = torch.tensor(list(self.history))
        for messages in answered:
            # Weights that do not fit are refused before anything is attacked.
            self._with_weights(self._weights_of(messages.number))

    def exchange(self, sender: Mapping[int, int]) -> None:
        """Give each record the messages of its sender; the server's own cells stay with the record."""
        super().exchange(sender)
        used = self._used_messages
        self._used_messages = {place: used[other] for place, other in sender.items() if other in used}
        self.places = torch.tensor(list(self.history))

    def columns(self, part: PlannedPart) -> AttackedSecret[CutGuess]:
        """Return the private columns and labels as a secret, behind the messages of each record."""
        is_prior, is_baseline = part.part.name == PRIOR, part.kind == "baseline"
        attack = _prior() if is_prior else attack_in(self.setting, part)
        in_rounds = is_prior or entry_in(self.setting, part).traits.rounds
        auxiliary = not is_baseline and "auxiliary" in entry_in(self.setting, part).needs
        history = self.history if is_baseline else self._used_messages
        knowledge, seeds = self._knowledge(auxiliary, self.statistics_of(part)), [stream(self.tables.seed, 0, "starts")]
        call = partial(self._grouped_guess if is_baseline else self._guess_with_prior, attack, in_rounds)
        score = self._outcome_of if is_baseline else partial(self._attack_outcome, part)
        records = len(self.places)
        shape = {"record": records, "private column": len(self.training.private)}
        return AttackedSecret(self.setting, CutGuess, lambda: (history, knowledge), seeds, score, records, shape, call)

    def _attack_outcome(self, part: PlannedPart, guess: CutGuess) -> Outcome:
        """Keep an attack's guess, and return its figures with those of its own answers."""
        fits = self._fitting(part.part, guess)
        if fits is not None and guess.ties is not None:
            # Several answers of which none replays the message are no ties.
            guess = replace(guess, ties=torch.where(fits, guess.ties.cpu(), 0))
        scored = self._outcome_of(guess)
        self._keep_answers(part, guess)
        if guess.proof is not None and guess.proof.doubt is not None and not self.doubts:
            less = "not all that it may" if bool(guess.proof.cells.any()) else "nothing"
            self.doubts.append(f"{part.label} certifies {less}: {guess.proof.doubt}.")
        shown = shown_figures(self._base.schema, self._base.private, guess)
        if fits is not None:
            shown.append(Measurement.of_unit("replayed", None, fits.double().mean()))
        return replace(scored, measured=[*scored.measured, *shown])

    def _keep_answers(self, part: PlannedPart, guess: CutGuess) -> None:
        columns, target = self.training.private_columns, self._base.schema.target
        answers = torch.cat([guess.cells, guess.labels[:, None].to(guess.cells)], dim=1)
        frame = frame_of_columns((*columns, target), answers)
        if guess.certified is not None:
            for column, cells in zip(columns, guess.certified.unbind(1), strict=True):
                frame[f"{column.name} certified"] = cells.tolist()
        self.keep(part, self.places, frame)

    def _knowledge(self, auxiliary: bool, statistics: Statistics | None = None) -> CutKnowledge:
        """Return what the server knows, with auxiliary rows where these are needed or its own columns tell of them."""
        rows, auxiliary_rows = self.tables.public, None
        # Without its own columns the server cannot tell its records by them from the auxiliary rows.
        if rows is not None and (auxiliary or self.training.own_columns is not None):
            auxiliary_rows = Auxiliary(rows.cells, rows.labels)
        known = (self.tables.schema, statistics or self.tables.statistics, self._defense)
        return CutKnowledge(*known, auxiliary_rows, self._base.form)

    def _guess_with_prior(
        self, attack: Any, in_rounds: bool, history: _History, *given: Any, progress: Progress | None = None
    ) -> CutGuess:
        """Return an attack's guess of all records; records without a gradient get the guess of the prior."""
        if not history:
            check_gradient(
                self._view(0, None, [exchanges[-1] for exchanges in self.history.values()], list(self.history))
            )
        guess = self._grouped_guess(attack, in_rounds, history, *given, progress=progress)
        rest = {place: exchanges for place, exchanges in self.history.items() if place not in history}
        if not rest:
            return guess
        by_marginals = not in_rounds and not self.training.weights
        prior = replace(attack, observed=False) if in_rounds else _prior()
        if by_marginals:
            prior = registry.baselines.of("split").create("marginals")
        unread = _unread(guess, self._grouped_guess(prior, not by_marginals, rest, self._knowledge(False), *given[1:]))
        return CutGuess.joined([guess, unread]).take(torch.tensor([*history, *rest]).argsort())

    def _grouped_guess(
        self, attack: Attack, in_rounds: bool, history: _History, *given: Any, progress: Progress | None = None
    ) -> CutGuess:
        """Return an attack's guess of the records of a history, in the order of their positions.

        ``given`` are knowledge and seeds. ``in_rounds`` is whether the attack has the trait ``rounds``.
        """
        if not in_rounds or not attack.observed:
            # All other attacks read one message of each record.
            history = _newest(history, 1)
        if in_rounds:
            rounds = self._by_round(history)
            if attack.by_round(rounds.views[0], given[0]):
                return attack.of_rounds(rounds, *given)
            history = self._in_few_groups(history)
        guesses, order = [], []
        for kinds, places in self._by_weights(history).items():
            # Records whose messages have the same weights and bounds, exchange by exchange.
            exchanges = zip(*(reversed(history[place]) for place in places), strict=True)
            newest, *earlier = (
                self._view(*kind, messages, places) for kind, messages in zip(kinds, exchanges, strict=True)
            )
            view, share = replace(newest, earlier=tuple(earlier)), len(places) / len(history)
            guesses.append(attack(view, *given, **reporting(attack, progress, share)))
            order += places
        return CutGuess.joined(guesses).take(torch.tensor(order).argsort())

    def _fitting(self, part: Part, guess: CutGuess) -> Bool[Tensor, " record"] | None:
        """Return which records' newest messages the guess replays up to rounding; note a doubt where they are few.

        None is returned where the attack compares no messages, or changes them first.
        """
        if guess.residual is None or not {"scale", "undo_mean"}.isdisjoint(part.options):
            return None
        gradient = self._newest_view().own_gradient
        # In twice the precision: squares of numbers that training should not have would overflow.
        size = rounding(gradient.double(), self._base.form)
        if self._base.form.format not in ("float16", "bfloat16"):
            size = size * (torch.finfo(gradient.dtype).eps / torch.finfo(torch.float64).eps)
        within = guess.residual.isfinite() & (guess.residual <= FAR * size)
        read = torch.isin(self.places, torch.tensor(sorted(self._used_messages)))
        share = float(within[read].double().mean())
        # Where the form of messages was not fitted, nothing else says how many have it.
        if (
            share < (_MOST if self._checked else _MOST_ALONE)
            and self._defense.bare
            and not self.limits
            and not self.doubts
        ):
            self.doubts.append(_misfit(part.title, int((~within[read]).sum()), int(read.sum()), self._base.client))
        return within & read

    def _outcome_of(self, guess: CutGuess) -> Outcome:
        """Return the figures of a guess on the records with a known truth; no figures without a truth."""
        true_cells = self.tables.true_cells(self.places)
        if true_cells is None:
            return Outcome([])
        positions, true = true_cells
        model, transcript = self._base, CutTranscript(self._newest_view(), true[:, :-1], true[:, -1])
        scored = columns_outcome(
            model.schema, model.private, self.tables.statistics, transcript, guess.take(positions), False
        )
        labels = LabelGuess(guess.labels[None], None if guess.label_chances is None else guess.label_chances[None])
        right, target = self.right_labels(self.places, labels), model.schema.target.name
        figures = [figure for figure in meaningful(scored.measured) if figure.column != target]
        return replace(scored, measured=[*figures, *right])

    def baselines(self) -> list[Part]:
        """Return the baselines that the transcript has the knowledge for."""
        learns = self.training.own_columns is not None and self.tables.public is not None
        return [
            *([Part(name=PRIOR)] if self.training.weights else []),
            Part(name="marginals"),
            *([Part(name="imputer")] if learns else []),
        ]

    def _newest_view(self) -> CutView:
        """Return the newest message of each record as one view; its model is that of any round."""
        newest = [(self._used_messages.get(place) or self.history[place])[-1] for place in self.places.tolist()]
        return self._view(0, None, newest, self.places.tolist())

    def returned(self) -> tuple[Tensor, ReturnedView]:
        """Return the gradients that came back of all records, with the server's own columns."""
        view = self._newest_view()
        columns = torch.zeros(1, view.records, 1)
        if self.training.own_columns is not None:
            model = self._base
            schema = model.schema.model_copy(update={"columns": tuple(model.schema.columns[i] for i in model.public)})
            columns = encoder_of(schema).encode(view.features[None])
        return self.places, ReturnedView(view.cut[None], view.own_gradient[None], columns.to(view.cut.dtype))

    def _messages_with_gradient(self) -> _History:
        """Return the messages that attacks use: those with a gradient, since others tell nothing.

        Messages of rounds whose client weights are not there are left out where a record has others.
        """
        rounds, numbers = self.training.rounds, [number for number, _ in self.training.weights]
        back = [torch.zeros(0) if messages.gradients is None else messages.gradients.any(dim=1) for messages in rounds]
        used = {
            place: [(k, row) for k, row in exchanges if bool(back[k][row])] for place, exchanges in self.history.items()
        }
        used = {place: exchanges for place, exchanges in used.items() if exchanges}
        if used and len(used) < len(self.history):
            self.notes.append(
                f"{len(self.history) - len(used):,} of {len(self.history):,} records have a gradient of zero in all of "
                "their messages: nothing came back of them to attack, so that their answers are those of the prior, "
                "and none is certified"
            )
        if not numbers:
            return used
        apart = [abs(messages.number - numbers[self._weights_of(messages.number)]) for messages in rounds]
        current = {place: [(k, row) for k, row in exchanges if not apart[k]] for place, exchanges in used.items()}
        if any(0 < len(current[place]) < len(exchanges) for place, exchanges in used.items()):
            self.notes.append("of records with messages of rounds whose client weights are there, others are left out")
        # Gradients as they are exclude the truth under weights that are off, one message more than another.
        others = slice(-1, None) if self._defense.bare else slice(None)
        used = {place: current[place] or exchanges[others] for place, exchanges in used.items()}
        most = max((apart[k] for exchanges in used.values() for k, _ in exchanges), default=0)
        if most > 0:
            self.notes.append(
                f"client weights are up to {how_many(most, 'round')} away from the messages that they are held "
                "against; write them before each round for exact answers"
            )
            if not self._defense.clips:
                self.further = [Part(name="posterior", options={"weights": "about"}, label="posterior_about")]
        return used

    def _in_few_groups(self, history: _History) -> _History:
        """Return the newest messages of each record, limited so that there are few groups with the same weights."""
        taken = most = max(len(exchanges) for exchanges in history.values())
        while taken > 1:
            groups = len(self._by_weights(_newest(history, taken)))
            if groups <= _FEW_GROUPS or len(history) >= _MANY_RECORDS * groups:
                break
            taken -= 1
        if taken < most:
            self.notes.append(
                f"the newest {taken} of up to {most} messages of each record are used together: the records of older "
                "ones were in too many combinations of rounds, each of which takes a search of its own"
            )
        return _newest(history, taken)

    def _by_round(self, history: _History) -> CutRounds:
        """Return the messages of a history by round, the newest first; records are numbered by their positions."""
        number = {place: k for k, place in enumerate(sorted(history))}
        by_round: dict[int, dict[int, tuple[int, int]]] = {}
        for place, exchanges in history.items():
            for k, row in exchanges:
                by_round.setdefault(k, {})[place] = (k, row)
        views, rows = [], []
        for k, exchange in sorted(by_round.items(), reverse=True):
            kind = self._kind(self.training.rounds[k])
            views.append(self._view(*kind, list(exchange.values()), list(exchange)))
            rows.append(torch.tensor([number[place] for place in exchange]))
        return CutRounds(tuple(views), tuple(rows))

    def _kind(self, messages: RoundMessages) -> _Kind:
        return self._weights_of(messages.number), messages.clip

    def _by_weights(self, history: _History) -> dict[tuple[_Kind, ...], list[int]]:
        """Return the records by the weights and bounds of their messages, the newest message first."""
        keyed: dict[tuple[_Kind, ...], list[int]] = {}
        kinds = [self._kind(messages) for messages in self.training.rounds]
        for place, exchanges in history.items():
            keyed.setdefault(tuple(kinds[k] for k, _ in reversed(exchanges)), []).append(place)
        return keyed

    def _weights_of(self, number: int) -> int:
        """Return the index of the newest weights before a round; of the oldest weights for earlier rounds."""
        return max(0, bisect_right([before for before, _ in self.training.weights], number) - 1)

    def _view(
        self, weights: int, clip: float | None, exchange: Sequence[tuple[int, int]], places: Sequence[int]
    ) -> CutView:
        gathered, model = self.training.gathered, self._base
        usual = median(self._factors.values()) if self._factors else self._usual
        return CutView(
            self._with_weights(weights),
            self.tables.own_cells(places),
            gathered("activations", exchange).to(model.dtype),
            gathered("gradients", exchange).to(model.dtype),
            gathered("behind", exchange) / torch.tensor([self._factors.get(k, usual) for k, _ in exchange]),
            clip,
            moments=self._moments(weights, exchange),
        )

    def _moments(self, weights: int, exchange: Sequence[tuple[int, int]]) -> Mapping[str, Moments] | None:
        """Return the moments of a whole round's batch, where weights before it and before the next one are there."""
        numbers = [number for number, _ in self.training.weights]
        rounds = {k for k, _ in exchange}
        if not normalising(self._base.client) or len(rounds) > 1 or weights + 1 >= len(numbers):
            return None
        messages = self.training.rounds[rounds.pop()]
        alone = messages.number == numbers[weights] == numbers[weights + 1] - 1
        if not alone or len(exchange) < len(messages.ids):
            return None
        before, after = (
            by_batch(copied(self._with_weights(w).client).train(), self._base.name) for w in (weights, weights + 1)
        )
        moved, were = running_statistics(after), running_statistics(before)
        if not keeps_statistics(before) or all(torch.equal(moved[name], were[name]) for name in were):
            return None
        return from_running(before, were, moved, 0)

    def _fit_messages(self, space: Space) -> None:
        """Fit the form of the messages where it is not declared, and say how far they have it."""
        declared = None if self.training.about.message is None else self.training.about.message.form
        if declared is not None:
            self._base, self._usual = replace(self._base, form=declared), float(declared.scale)
        current = {number for number, _ in self.training.weights}
        newest = _newest(self._used_messages, 1)
        newest = {
            p: exchanges for p, exchanges in newest.items() if self.training.rounds[exchanges[0][0]].number in current
        }
        if not self._defense.bare or not newest:
            return
        views, rounds = [], []
        for (kind,), places in self._by_weights(newest).items():
            exchange = [newest[place][0] for place in places]
            views.append(self._view(*kind, exchange, places))
            rounds.append(torch.tensor([k for k, _ in exchange]))
        fitted = fitted_messages(views, space, declared, rounds)
        form = fitted[0].form
        self._checked = not math.isnan(fitted[0].replayed)
        for messages, round_of in zip(fitted, rounds, strict=True):
            self._factors |= dict(zip(round_of.tolist(), messages.factors.tolist(), strict=True))
        self._base, self._models = replace(self._base, form=form), {}
        if form.estimated:
            self.notes.append(
                f"the form of the messages is not declared, and estimated from them: {form.describe()}; declare it "
                "(message in transcript.json) if it is known"
            )
        if form.estimated and form.scale_of == "record":
            self.doubts.append(_SCALED)
        elif fitted[0].replayed < RIGHT:
            self.doubts.append(_unexplained(fitted[0].replayed, declared is not None, self._base.client))

    def _with_weights(self, weights: int) -> SplitModel:
        if not self.training.weights:
            return self._base
        if weights not in self._models:
            model = self._base.copy()
            load_weights(model.client, self.training.weights[weights][1])
            self._models[weights] = model
        return self._models[weights]


def exposed(tables: TranscriptTables) -> TranscriptExposure:
    """Return a transcript as the server, or the hop, sees it."""
    training, network = tables.training, tables.spec.model
    if training.about.whole:
        return ActivationExposure(tables)
    return SplitTranscriptExposure(tables, split_model(training, network))


READER = transcript_reader(SplitTranscriptSpec, exposed)


def _prior() -> Attack:
    """Return what a server believes before it sees a message, as an attack."""
    return registry.attacks.of("split").create("posterior", observed=False)


def split_model(training: RecordedTraining, named: str | None) -> SplitModel:
    """Return the network of a transcript, or a named one, with the server's weights where the transcript holds them."""
    about, schema = training.about, training.schema
    name = named or about.model or "deepfm"
    head, private = about.head, about.private
    if named is None and is_own(name):
        raise BadInputError(
            f"the transcript is of the network {name!r}, whose code is not run for a transcript's sake; name it "
            "yourself with --model."
        )
    if is_own(name):
        model = own_split(find_own(name), schema, private, 0, head, about.options)
    elif name == "deepfm":
        try:
            model = deepfm(schema, private, 0, head=head, **about.options)  # pyright: ignore[reportArgumentType]
        except TypeError as error:
            raise BadInputError(f"options of the transcript's network do not fit deepfm ({error}).") from error
    else:
        raise unknown_name("network of split learning", name, ["deepfm", "file.py:factory"])
    server: nn.Module = UnknownPart("the weights of the server's part; put server.safetensors into the folder")
    if (training.folder / SERVER).is_file():
        load_weights(model.server, training.folder / SERVER)
        server = model.server
    model = replace(model, server=server)
    _check_fits(model, training.rounds[0])
    return model


def _cut_defense(defense: Mapping[str, Mapping[str, object]] | None) -> KnownCut:
    """Return the attacker's knowledge of a stated defense of split learning."""
    if not defense:
        return KnownCut()
    listed = [{"name": name, **options} for name, options in defense.items()]
    mechanism = defense_of(
        Part.model_validate(as_part(listed[0] if len(listed) == 1 else {"all": listed, "label": "stated"}))
    )
    return SplitLearning(flip=mechanism.flip, noise=mechanism.noise, returned=mechanism.returned).known()


def _check_fits(model: SplitModel, messages: RoundMessages) -> None:
    """Refuse a network that does not take the activations of a transcript."""
    cut = messages.activations[:2].to(model.dtype)
    cells = torch.zeros(len(cut), len(model.private), dtype=model.dtype)
    try:
        with torch.no_grad():
            outputs = model.client(cut, cells)
    except Exception as error:  # A user's module may raise anything.
        raise BadInputError(
            f"the client part of {model.name!r} does not take the transcript's activations of {cut.shape[1]} entries "
            f"({one_line(error)}); name the network that was trained, with its options."
        ) from error
    if tuple(outputs.shape) != (len(cut), model.outputs):
        raise BadInputError(
            f"the client part of {model.name!r} returns shape {tuple(outputs.shape)} for {len(cut)} records where "
            f"({len(cut)}, {model.outputs}) is needed; name the network that was trained, with its head."
        )


def _newest(history: _History, number: int) -> _History:
    """Return the newest messages of each record."""
    return {place: exchanges[-number:] for place, exchanges in history.items()}


def _misfit(attack: str, lacking: int, records: int, client: nn.Module) -> str:
    """Return a sentence saying that the messages of some records are not replayed, and possible causes."""
    whose = "any message" if lacking == records else f"the message of {lacking:,} of {records:,} records"
    layers = sorted({place.partition(" ")[0] for place in [*dropping(client), *normalising(client)]})
    if layers:
        cause = f", or {' and '.join(layers)} of the client part computed something else in training"
    else:
        cause = ", or parts of the network draw random numbers in training"
    return (
        f"No combination of private values that {attack} compared replays {whose} within rounding: the network, the "
        "client weights, the declared defense, the precision of the messages or the server's own columns do not fit "
        f"the transcript{cause}. What was read says nothing of what leaked."
    )


def _unexplained(replayed: float, declared: bool, client: nn.Module) -> str:
    """Return a sentence saying that messages are not of the form that is declared, or of any that was tried."""
    form = "the declared form" if declared else "any loss, weights of classes, smoothing, scale and number format tried"
    layers = sorted({place.partition(" ")[0] for place in [*dropping(client), *normalising(client)]})
    cause = (
        f"; {' and '.join(layers)} of the client part may have computed something else in training" if layers else ""
    )
    return (
        f"Under {form}, combinations of private values replay {100 * max(replayed, 0):.0f}% of the messages that were "
        f"looked at, beyond what chance does. The clients' loss, defense, weights or network, or the server's own "
        f"columns, differ from what is known{cause}. More may leak than was read."
    )


def _unread(guess: CutGuess, prior: CutGuess) -> CutGuess:
    """Return the prior's guess of records without a message, with the fields that the attack's guess has."""
    records, private = prior.cells.shape
    never = torch.zeros(records, dtype=torch.bool)
    nowhere = torch.full((records,), torch.nan, dtype=torch.float64)
    return replace(
        prior,
        residual=None if guess.residual is None else nowhere.to(guess.residual.dtype),
        runner_up=None if guess.runner_up is None else nowhere.to(guess.runner_up.dtype),
        ties=None if guess.ties is None else never.long(),
        likely=None if guess.likely is None else never,
        proof=None if guess.proof is None else guess.proof.take(torch.full((records,), -1)),
        mass=None if guess.mass is None else nowhere[:, None].repeat(1, private),
    )
