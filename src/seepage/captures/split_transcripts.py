"""Attacks on a transcript of split training: private columns and labels from the gradients that come back."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import cast

import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Figures, measure_columns
from seepage.assessment.columns import shown_figures
from seepage.attacks.split import Posterior
from seepage.attacks.split.exact import not_exact
from seepage.attacks.split.parts.space import Space
from seepage.captures.transcript_runs import (
    NO_MEANING,
    TranscriptRun,
    TranscriptTables,
    TriedAttack,
    UnknownPart,
    best_figures,
    history_of,
    score_rows,
)
from seepage.captures.transcripts import RecordedTraining, RoundMessages
from seepage.errors import BadInputError, one_line, unknown_name
from seepage.models.deepfm import deepfm
from seepage.models.own import find_own, is_own
from seepage.models.own_parts import own_split
from seepage.models.split import SplitModel
from seepage.models.vertical import encoder_of
from seepage.models.weights import load_weights
from seepage.protocols.split import SplitLearning
from seepage.seeds import stream
from seepage.settings.part import Part, as_part, entry_of, make_part
from seepage.settings.split import PRIOR, defense_of
from seepage.tabular.schema import Schema
from seepage.tabular.table import frame_of
from seepage.wire.labels import ReturnedView
from seepage.wire.secret import CutTranscript
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge, CutView, KnownCut

# Groups of records with the same weights in all of their exchanges, and records in each, from which on all exchanges
# are used together: each group is attacked by itself.
_FEW_GROUPS, _MANY_RECORDS = 64, 16


@dataclass(frozen=True)
class _Group:
    """Records whose messages were all computed with the same weights."""

    places: Tensor
    view: CutView


# Place of the weights, and bound on norms, of an exchange.
_Kind = tuple[int, float | None]


class SplitRun(TranscriptRun):
    """Attacks on a transcript of split learning in which the server holds columns of its own.

    Args:
        tables: the transcript with the tables beside it.
        model: the network, see ``split_model``.

    Raises:
        BadInputError: no gradient came back in any round.
    """

    setting = "split"

    def __init__(self, tables: TranscriptTables, model: SplitModel) -> None:
        super().__init__(tables)
        self.reveals = (CutView, ReturnedView)
        training = tables.training
        if any(one.gradient is None for one in training.rounds):
            kept = tuple(one for one in training.rounds if one.gradient is not None)
            if not kept:
                raise BadInputError(
                    "no round of the transcript holds gradients, which are what the server of split learning receives."
                )
            self.notes.append(f"{len(training.rounds) - len(kept)} rounds without gradients are left out")
            training = replace(training, rounds=kept)
        self.training = training
        self._base = model
        self._models: dict[int, SplitModel] = {}
        if training.weights:
            self.grants.add("weights")
        if tables.public is not None:
            self.grants.add("auxiliary")
        if tables.known_labels is not None:
            self.grants.add("labels")
        self._known = _known_cut(training.about.defense)
        space = Space.of(self._base, CutKnowledge(tables.schema, tables.statistics))
        self.limits = [*filter(None, [not_exact(self._base, space)])]
        self.groups = self._grouped()
        self.places = torch.cat([group.places for group in self.groups])
        self.figures, self.named = self._baselines()

    def tried(self, part: Part) -> TriedAttack:
        """Return what an attack reads."""
        entry = entry_of(registry.attacks.of("split"), part)
        if any(issubclass(view, ReturnedView) for view in entry.sees):
            return self.tables.label_finding(part, self.places, self._returned(), self.figures, self.named)
        made = make_part(registry.attacks.of("split"), part)
        begun = time.perf_counter()
        guess = self._guess(made, "auxiliary" in entry.needs)
        seconds = time.perf_counter() - begun
        model = self._base
        columns = [model.schema.columns[i] for i in model.private]
        alone = Schema.model_construct(columns=(*columns, model.schema.target), target=model.schema.target)
        frame = frame_of(alone, torch.cat([guess.cells, guess.labels[:, None].to(guess.cells)], dim=1))
        said: dict[str, Iterable[object]] = {name: frame[name] for name in frame.columns}
        if guess.certified is not None:
            held = zip(columns, guess.certified.unbind(1), strict=True)
            said |= {f"{column.name} certified": cells.tolist() for column, cells in held}
        figures = self._scored(guess)
        return TriedAttack(
            part.called,
            "columns",
            len(self.places),
            seconds,
            shown_figures(model.schema, model.private, guess),
            None if figures is None else score_rows(figures, self.figures, self.named),
            self.tables.answers(part.called, self.places, said),
        )

    def _guess(self, attack: Callable[..., CutGuess], auxiliary: bool) -> CutGuess:
        """Return the guess for the records of all groups, one group after the other."""
        rows = self.tables.public
        # Without its own columns the server cannot tell its records by them from the auxiliary rows.
        held = None if rows is None or not (auxiliary or self.training.own is not None) else rows
        knowledge = CutKnowledge(
            self.tables.schema,
            self.tables.statistics,
            self._known,
            None if held is None else Auxiliary(held.cells, held.labels),
        )
        seeds = [stream(self.tables.seed, 0, "starts")]
        return _joined([attack(group.view, knowledge, seeds) for group in self.groups])

    def _scored(self, guess: CutGuess) -> Figures | None:
        known = self.tables.true_cells(self.places)
        if known is None:
            return None
        at, held = known
        model, seen = self._base, CutTranscript(self.groups[0].view, held[:, :-1], held[:, -1])
        figures, _ = measure_columns(model.schema, model.private, seen, _chosen(guess, at))
        return {key: value for key, value in figures.items() if key[0] not in NO_MEANING}

    def _baselines(self) -> tuple[Figures, dict[tuple, str]]:
        if self.tables.truth is None:
            return {}, {}
        parts = [
            *((Part(name=PRIOR), Posterior(observed=False)) for _ in [0] if self.training.weights),
            (Part(name="marginals"), registry.baselines.of("split").create("marginals")),
        ]
        if self.training.own is not None and self.tables.public is not None:
            options = {"on": "features"}
            made = registry.baselines.of("split").create("knn", **options)
            parts.append((Part(name="knn", options=options, label="knn_features"), made))
        return best_figures(
            (part.called, figures)
            for part, one in parts
            if (figures := self._tried_baseline(cast("Callable[..., CutGuess]", one))) is not None
        )

    def _tried_baseline(self, baseline: Callable[..., CutGuess]) -> Figures | None:
        try:
            return self._scored(self._guess(baseline, False))
        except BadInputError:
            # A space too large to go through has no prior, and few public rows no neighbours.
            return None

    def _returned(self) -> ReturnedView:
        views = [group.view for group in self.groups]
        cut, came = (torch.cat(one) for one in zip(*((v.cut, v.own_gradient) for v in views), strict=True))
        own = torch.zeros(1, len(cut), 1)
        if self.training.own is not None:
            model = self._base
            schema = model.schema.model_copy(update={"columns": tuple(model.schema.columns[i] for i in model.public)})
            own = encoder_of(schema).encode(torch.cat([view.features for view in views])[None])
        return ReturnedView(cut[None], came[None], own.to(cut.dtype))

    def _grouped(self) -> list[_Group]:
        """Return the records by the weights of all their exchanges, or of the newest where these are too many."""
        history = history_of(self.training.rounds, self.tables.places)
        keyed = self._keyed(history)
        if len(keyed) > _FEW_GROUPS and len(history) < _MANY_RECORDS * len(keyed):
            self.notes.append(
                "only the newest message of each record is used: client weights are those of too many rounds to take "
                "several messages together"
            )
            history = {place: seen[-1:] for place, seen in history.items()}
            keyed = self._keyed(history)
        numbers = [number for number, _ in self.training.weights]
        apart = [abs(one.number - numbers[self._weights_of(one.number)]) for one in self.training.rounds if numbers]
        if max(apart, default=0) > 0:
            self.notes.append(
                f"client weights are up to {max(apart):,} round(s) away from the messages that they are held against; "
                "write them before each round for exact answers"
            )
            if not self._known.clips:
                self.further = [Part(name="posterior", options={"weights": "about"}, label="posterior_about")]
        groups = []
        for kinds, places in keyed.items():
            exchanges = zip(*(reversed(history[place]) for place in places), strict=True)
            views = [self._view(*kind, each, places) for kind, each in zip(kinds, exchanges, strict=True)]
            groups.append(_Group(torch.tensor(places), replace(views[0], earlier=tuple(views[1:]))))
        return groups

    def _keyed(self, history: Mapping[int, Sequence[tuple[int, int]]]) -> dict[tuple[_Kind, ...], list[int]]:
        """Return records by the weights and bounds of their exchanges, the newest first."""
        rounds, keyed = self.training.rounds, {}
        kinds = [(self._weights_of(one.number), one.clip) for one in rounds]
        for place, seen in history.items():
            keyed.setdefault(tuple(kinds[k] for k, _ in reversed(seen)), []).append(place)
        return keyed

    def _weights_of(self, number: int) -> int:
        """Return the place of the newest weights before a round, or of the oldest where there are none before."""
        return max(0, bisect_right([one for one, _ in self.training.weights], number) - 1)

    def _view(
        self, weights: int, clip: float | None, exchange: Sequence[tuple[int, int]], places: Sequence[int]
    ) -> CutView:
        rounds, model = self.training.rounds, self._base

        def gathered(name: str) -> Tensor:
            return torch.stack([getattr(rounds[k], name)[row] for k, row in exchange])

        features = torch.zeros(len(places), len(model.public), dtype=torch.float64)
        if self.training.own is not None:
            rows, cells, _ = self.training.own
            features = cells[[rows[self.tables.ids[place]] for place in places]]
        return CutView(
            self._with_weights(weights),
            features,
            gathered("activations").to(model.dtype),
            gathered("gradient").to(model.dtype),
            gathered("behind"),
            clip,
        )

    def _with_weights(self, weights: int) -> SplitModel:
        if not self.training.weights:
            return self._base
        if weights not in self._models:
            model = self._base.copy()
            load_weights(model.client, self.training.weights[weights][1])
            self._models[weights] = model
        return self._models[weights]


def split_model(training: RecordedTraining, named: str | None) -> SplitModel:
    """Return the network of a transcript, with the server's weights as far as they are known and others drawn anew.

    Args:
        training: the transcript.
        named: name of the network, or reference of one of the user's own; that of the transcript if None.

    Raises:
        BadInputError: there is no such network, or it does not fit the transcript.
    """
    about, schema = training.about, training.schema
    name = named or about.model or "deepfm"
    head, private = about.head, about.private
    if named is None and is_own(name):
        raise BadInputError(
            f"the transcript is of the network {name!r}, whose code is not run for a transcript's sake; name it "
            "yourself with --model."
        )
    if is_own(name):
        made = own_split(find_own(name), schema, private, 0, head, about.options)
    elif name == "deepfm":
        try:
            made = deepfm(schema, private, 0, head=head, **about.options)  # pyright: ignore[reportArgumentType]
        except TypeError as error:
            raise BadInputError(f"options of the transcript's network do not fit deepfm ({error}).") from error
    else:
        raise unknown_name("network of split learning", name, ["deepfm", "file.py:factory"])
    server: nn.Module = UnknownPart("the weights of the server's part; put server.safetensors into the folder")
    if training.server is not None:
        load_weights(made.server, training.server)
        server = made.server
    made = replace(made, server=server)
    _check_fits(made, training.rounds[0])
    return made


def _known_cut(defense: Mapping[str, Mapping[str, object]] | None) -> KnownCut:
    """Return what an attacker knows of a stated defense of split learning."""
    if not defense:
        return KnownCut()
    listed = [{"name": name, **options} for name, options in defense.items()]
    made = defense_of(
        Part.model_validate(as_part(listed[0] if len(listed) == 1 else {"all": listed, "label": "stated"}))
    )
    return SplitLearning(flip=made.flip, noise=made.noise).known()


def _check_fits(model: SplitModel, messages: RoundMessages) -> None:
    """Refuse a network that does not take the activations of a transcript.

    Raises:
        BadInputError: it does not.
    """
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


def _joined(guesses: Sequence[CutGuess]) -> CutGuess:
    """Return the guesses of several groups as one."""
    if len(guesses) == 1:
        return guesses[0]
    joined = {}
    for one in fields(CutGuess):
        values = [getattr(guess, one.name) for guess in guesses]
        if any(value is None for value in values):
            joined[one.name] = None
        elif isinstance(values[0], tuple):
            joined[one.name] = tuple(torch.cat(parts) for parts in zip(*values, strict=True))
        else:
            joined[one.name] = torch.cat(values)
    return CutGuess(**joined)


def _chosen(guess: CutGuess, at: Tensor) -> CutGuess:
    """Return the guess for some of the records."""
    chosen = {}
    for one in fields(CutGuess):
        value = getattr(guess, one.name)
        if isinstance(value, tuple):
            value = tuple(part[at] for part in value)
        chosen[one.name] = value if value is None or isinstance(value, tuple) else value[at]
    return CutGuess(**chosen)
