"""Attacks on a transcript of split or vertical training, without its raw data and without its parties."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import cast

import pandas as pd
import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Figures, measure_columns, measure_features
from seepage.assessment.columns import shown_figures
from seepage.assessment.labels import measure_labels
from seepage.attacks.split import Posterior
from seepage.attacks.split.exact import not_exact
from seepage.attacks.split.parts.space import Space
from seepage.attacks.vertical import inversion_in_words
from seepage.captures.transcripts import RecordedTraining, RoundMessages, read_cells
from seepage.digests import Json
from seepage.errors import BadInputError, one_line, unknown_name
from seepage.files import make_folder, write_whole
from seepage.models.deepfm import deepfm
from seepage.models.own import find_own, is_own
from seepage.models.own_parts import own_bottom, own_split
from seepage.models.split import SplitHead, SplitModel
from seepage.models.vertical import ActiveModel, Stack, encoder_of
from seepage.models.weights import load_weights
from seepage.needs import Need
from seepage.protocols.split import SplitLearning
from seepage.registry import Attack, Entry
from seepage.seeds import stream
from seepage.settings.part import Part, as_part, entry_of, make_part
from seepage.settings.split import PRIOR, defense_of
from seepage.tabular.assumed import uniform_statistics
from seepage.tabular.partition import Partition
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.labels import BatchView, LabelGuess, LabelKnowledge, LogitsView, ReturnedView
from seepage.wire.secret import CutTranscript, FeatureTranscript
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge, CutView, KnownCut
from seepage.wire.vertical import FeatureAuxiliary, FeatureGuess, FeatureKnowledge, FeatureView, Leaked

RESULTS, RECONSTRUCTION = "results.json", "reconstruction.csv"
# Groups of records with the same weights in all of their exchanges, and records in each, from which on all exchanges
# are used together: each group is attacked by itself.
_FEW_GROUPS, _MANY_RECORDS = 64, 16
# What has to be given for an attack that lacks it.
_LACKS: dict[Need, str] = {
    "auxiliary": "it needs public rows of the same kind; give --data TABLE",
    "leaked": "it needs records whose private cells the attacker knows; give --known TABLE",
    "labels": "it needs records whose label the attacker knows; give --known TABLE",
    "weights": "it needs the client's weights; put client-N.safetensors into the folder",
    "bottom": "it needs the passive party's bottom model; put client-N.safetensors into the folder",
    "queries": "it needs a live party that answers queries, which no transcript is",
    "gradients": "it needs gradients of the passive party's own parameters, which cross no wire",
    "steering": "it needs a training that it changes, which no transcript is",
}
_ACTIVE = "it is active: it needs a training that it changes, which no transcript is"
_NO_MEANING = frozenset(
    {"calibration", "coverage", "failed", "replayed", "proven", "ties", "certified_cells", "still_possible"}
)


@dataclass(frozen=True)
class TriedAttack:
    """What one attack read.

    Attributes:
        attack: label of the attack.
        sought: ``columns``, or ``label`` where labels alone are guessed.
        records: number of records that it guessed.
        seconds: time that it took.
        shown: shares of its answers that are proven, certified, tied or still possible, by metric and column.
        scores: figure of each metric and column beside the best baseline; None without the truth.
        answers: guessed cells of each record, with its id, for ``reconstruction.csv``.
    """

    attack: str
    sought: str
    records: int
    seconds: float
    shown: Figures
    scores: list[dict[str, Json]] | None
    answers: pd.DataFrame


@dataclass(frozen=True)
class TranscriptFindings:
    """What a transcript gives away.

    Attributes:
        setting: ``split`` or ``vertical``.
        records, rounds: number of records, and of rounds in which they were seen.
        private: names of the private columns.
        tried: attacks that ran.
        not_tried: reason, for each attack that could not be tried.
        knowledge: what attacks were granted or assumed.
        notes: what a reader should know of the transcript.
        scored: number of records with a known truth; None without.
        limits: sentence for each part of the network that no attack solves exactly.
    """

    setting: str
    records: int
    rounds: int
    private: tuple[str, ...]
    tried: tuple[TriedAttack, ...]
    not_tried: Mapping[str, str]
    knowledge: Mapping[str, Json]
    notes: tuple[str, ...]
    scored: int | None = None
    limits: tuple[str, ...] = ()

    def headline(self) -> list[str]:
        """Return what was found, and what could not be tried, as sentences."""
        said = [
            f"{self.records:,} records in {self.rounds:,} rounds of {self.setting} learning, private: "
            f"{', '.join(self.private)}. Attacks that ran: {', '.join(one.attack for one in self.tried) or 'none'}."
        ]
        best = max(self.tried, key=lambda one: one.shown.get(("certified_cells", None)) or 0.0, default=None)
        proven = None if best is None else best.shown.get(("certified_cells", None))
        if best is not None and proven:
            said.append(f"{best.attack} certifies {100 * proven:.1f}% of the private cells.")
        said += self.limits
        if self.not_tried:
            said.append(
                f"Not tried: {', '.join(self.not_tried)}. What was not tried is not known to be safe; reasons below."
            )
        return said

    def to_plain(self) -> dict[str, Json]:
        """Return all findings but the guessed cells as JSON values."""
        return {
            "setting": self.setting,
            "records": self.records,
            "rounds": self.rounds,
            "private": list(self.private),
            "headline": list(self.headline()),
            "knowledge": dict(self.knowledge),
            "notes": list(self.notes),
            "scored": self.scored,
            "attacks": [
                {
                    "attack": one.attack,
                    "sought": one.sought,
                    "records": one.records,
                    "seconds": one.seconds,
                    "shown": [
                        {"metric": metric, "column": column, "value": value}
                        for (metric, column), value in one.shown.items()
                    ],
                    "scores": cast("Json", one.scores),
                }
                for one in self.tried
            ],
            "not_tried": [{"attack": name, "reason": reason} for name, reason in self.not_tried.items()],
        }

    def write(self, folder: Path) -> None:
        """Write ``reconstruction.csv`` and ``results.json`` for their owner alone."""
        make_folder(folder, private=True)
        frames = [one.answers for one in self.tried]
        table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"attack": [], "id": []})
        write_whole(folder / RECONSTRUCTION, table.to_csv(index=False), private=True)
        # Last: where it is, the other is whole.
        text = json.dumps(self.to_plain(), indent=1, ensure_ascii=False)
        write_whole(folder / RESULTS, text + "\n", private=True)


@dataclass
class TranscriptAttack:
    """An attack on a transcript.

    Args:
        training: the transcript.
        model: name of the network, or ``path/to/file.py:factory`` of one of your own; that of the transcript if None.
        attacks: attacks by name, with options; all that the setting knows if empty.
        data: public rows of the same kind.
        known: table of records that the attacker knows, with ids and the label, all private columns, or both.
        truth: table of true private cells and labels, with ids.
        separator: separator of the cells of CSV files.
        seed: seed of the attacks.

    Raises:
        BadInputError: something does not fit the transcript.
    """

    training: RecordedTraining
    model: str | None = None
    attacks: Sequence[str] = ()
    data: Path | None = None
    known: Path | None = None
    truth: Path | None = None
    separator: str = ","
    seed: int = 0
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        training, schema = self.training, self.training.schema
        self.schema: Schema = schema
        self._public = None if self.data is None else Table.read(self.data, schema, self.separator)
        self.statistics = uniform_statistics(schema) if self._public is None else Statistics.of(self._public)
        self._ids = training.ids
        self._places = {one: place for place, one in enumerate(self._ids)}
        self._secret = [schema.columns[i] for i in training.private]
        self._truth = self._table(self.truth, "the truth", (*self._secret, schema.target))
        self._known_labels, self._leaked = self._what_is_known()
        named = [as_part(one) for one in self.attacks]
        parts = [Part.model_validate(one) for one in named]
        registered = registry.attacks.of(training.about.setting)
        for part in parts:
            if part.name not in registered:
                raise unknown_name("attack", part.name, registered.names())
        self._parts = parts or [Part(name=name) for name in registered.names()]
        self._model = self._split_model() if training.about.setting == "split" else None

    def run(self, progress: Callable[[str], None] | None = None) -> TranscriptFindings:
        """Return what the attacks read.

        Args:
            progress: called with the label of each attack before it begins.
        """
        training, setting = self.training, self.training.about.setting
        registered = registry.attacks.of(setting)
        runner: _SplitRun | _VerticalRun = _SplitRun(self) if setting == "split" else _VerticalRun(self)
        tried, reasons = [], {}
        for part in [*self._parts, *runner.further]:
            reason = self._lacks(entry_of(registered, part), runner)
            if reason is None:
                if progress is not None:
                    progress(part.called)
                try:
                    tried.append(runner.tried(part))
                    continue
                except BadInputError as error:
                    reason = str(error).rstrip(".")
                except Exception as error:  # An attack of another package may fail in any way.
                    reason = f"it failed with {one_line(error)}"
            reasons[part.called] = reason
        granted: dict[str, Json] = {
            "statistics": "marginals of the public rows" if self._public is not None else "assumed: all values likely",
            "auxiliary": 0 if self._public is None else len(self._public),
            "labels": 0 if self._known_labels is None else len(self._known_labels[0]),
            "leaked": 0 if self._leaked is None else len(self._leaked[0]),
            "weights": len(training.weights),
            "own columns": training.own is not None,
            "defense": {name: dict(options) for name, options in (training.about.defense or {}).items()},
        }
        return TranscriptFindings(
            setting,
            len(self._ids),
            len(training.rounds),
            training.about.private,
            tuple(tried),
            reasons,
            granted,
            tuple(dict.fromkeys([*self.notes, *runner.notes])),
            None if self._truth is None else len(self._truth[0]),
            tuple(runner.limits),
        )

    def _true_cells(self, places: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return which of some records have a known truth, by their position, and its cells; None where none has."""
        if self._truth is None:
            return None
        place_of = {place: k for k, place in enumerate(places.tolist())}
        there = [(place_of[p], k) for k, p in enumerate(self._truth[0].tolist()) if p in place_of]
        if not there:
            return None
        return torch.tensor([k for k, _ in there]), self._truth[1][[k for _, k in there]]

    def _lacks(self, entry: Entry[Attack], runner: _SplitRun | _VerticalRun) -> str | None:
        """Return why an attack cannot be tried; None where it can."""
        if getattr(entry.factory, "active", False):
            return _ACTIVE
        if entry.sees and not any(issubclass(shown, seen) for seen in entry.sees for shown in runner.reveals):
            return f"it takes {' or '.join(view.__name__ for view in entry.sees)}, which this transcript does not show"
        return next((_LACKS.get(need, f"it needs {need}") for need in entry.needs if need not in runner.grants), None)

    def _table(self, path: Path | None, what: str, columns: Sequence[Column]) -> tuple[Tensor, Tensor] | None:
        """Return positions of the transcript's records in a table, and their cells."""
        if path is None:
            return None
        rows, cells = read_cells(path, columns, self.training.about.id, what, self.separator)
        there = [(place, rows[one]) for one, place in self._places.items() if one in rows]
        if not there:
            raise BadInputError(
                f"{what}, {str(path)!r}, and the transcript have no record in common: ids there are such as "
                f"{next(iter(rows))!r}, in the transcript such as {self._ids[0]!r}."
            )
        places, at = map(list, zip(*there, strict=True))
        return torch.tensor(places), cells[at]

    def _what_is_known(self) -> tuple[tuple[Tensor, Tensor] | None, tuple[Tensor, Tensor] | None]:
        """Return known labels, and known private cells, each with the positions of their records."""
        if self.known is None:
            return None, None
        names = _names(self.known, self.separator)
        target, what = self.schema.target, "the known records"
        private = [column.name for column in self._secret]
        lacking = [name for name in private if name not in names]
        if target.name not in names and lacking:
            raise BadInputError(
                f"{what}, {str(self.known)!r}, have neither the label {target.name!r} nor all private columns (they "
                f"lack {', '.join(map(repr, lacking))}); give one of the two."
            )
        labels = None if target.name not in names else self._table(self.known, what, [target])
        leaked = None if lacking else self._table(self.known, what, self._secret)
        return None if labels is None else (labels[0], labels[1][:, 0]), leaked

    def _split_model(self) -> SplitModel:
        """Return the network, with weights that were drawn anew."""
        training = self.training
        about, schema = training.about, training.schema
        name = self.model or about.model or "deepfm"
        head, private = about.head, about.private
        if self.model is None and is_own(name):
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
        server: nn.Module = _UnknownPart("the weights of the server's part; put server.safetensors into the folder")
        if training.server is not None:
            load_weights(made.server, training.server)
            server = made.server
        made = replace(made, server=server)
        _check_fits(made, training.rounds[0])
        return made

    def answers(self, part: str, places: Tensor, columns: Mapping[str, Iterable[object]]) -> pd.DataFrame:
        """Return guessed cells of records as rows with the attack's label and the records' ids."""
        ids = [self._ids[place] for place in places.tolist()]
        return pd.DataFrame({"attack": part, "id": ids, **{name: list(values) for name, values in columns.items()}})

    def label_finding(
        self, part: Part, places: Tensor, view: ReturnedView, baselines: Figures, named: Mapping[tuple, str]
    ) -> TriedAttack:
        """Return what an attack on labels alone reads.

        Args:
            part: the attack.
            places: positions of the view's records.
            view: what came back of them.
            baselines: best figure of the baselines by metric and column.
            named: name of that baseline.
        """
        target = self.schema.target
        place_of = {place: k for k, place in enumerate(places.tolist())}
        at, labels = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
        if self._known_labels is not None:
            held = [(place_of[p], k) for k, p in enumerate(self._known_labels[0].tolist()) if p in place_of]
            at = torch.tensor([one for one, _ in held], dtype=torch.long)
            labels = self._known_labels[1][[k for _, k in held]]
        knowledge = LabelKnowledge(target, self.statistics.target, at[None], labels[None])
        attack = make_part(registry.attacks.of(self.training.about.setting), part)
        begun = time.perf_counter()
        guess: LabelGuess = attack(view, knowledge, [stream(self.seed, 0, "starts")])
        seconds = time.perf_counter() - begun
        scores = None
        if self._truth is not None:
            true = torch.full((1, view.records), torch.nan, dtype=torch.float64)
            there = [(place_of[p], k) for k, p in enumerate(self._truth[0].tolist()) if p in place_of]
            true[0, [k for k, _ in there]] = self._truth[1][[k for _, k in there], -1]
            counted = ~true.isnan()
            counted[0, at] = False
            if bool(counted.any()):
                found = measure_labels(target, true, guess, counted)
                figures: Figures = {(one.metric, one.column): float(one.values[0]) for one in found}
                scores = score_rows(figures, baselines, named)
        alone = Schema.model_construct(columns=(target,), target=target)
        said = frame_of(alone, guess.labels[0][:, None])[target.name]
        return TriedAttack(
            part.called,
            "label",
            view.records,
            seconds,
            {},
            scores,
            self.answers(part.called, places, {target.name: said}),
        )


class _UnknownPart(nn.Module):
    """A part of the network that the transcript does not hold; attacks that need it cannot be tried.

    Args:
        what: words for the part, and what to do.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, cells: Tensor) -> Tensor:
        """Refuse to compute."""
        raise BadInputError(f"it needs {self.what}.")


@dataclass(frozen=True)
class _Group:
    """Records whose messages were all computed with the same weights."""

    places: Tensor
    view: CutView


# Place of the weights, and bound on norms, of an exchange.
_Kind = tuple[int, float | None]


class _SplitRun:
    """Attacks on a transcript of split learning."""

    reveals = (CutView, ReturnedView)

    def __init__(self, attack: TranscriptAttack) -> None:
        self.attack, self.notes = attack, []
        training = attack.training
        if any(one.gradient is None for one in training.rounds):
            kept = tuple(one for one in training.rounds if one.gradient is not None)
            if not kept:
                raise BadInputError(
                    "no round of the transcript holds gradients, which are what the server of split learning receives."
                )
            self.notes.append(f"{len(training.rounds) - len(kept)} rounds without gradients are left out")
            training = replace(training, rounds=kept)
        self.training = training
        assert attack._model is not None
        self._base = attack._model
        self._models: dict[int, SplitModel] = {}
        self.grants: set[Need] = {"weights"} if training.weights else set()
        if attack._public is not None:
            self.grants.add("auxiliary")
        if attack._known_labels is not None:
            self.grants.add("labels")
        self._known = _known_cut(training.about.defense)
        self.further: list[Part] = []
        space = Space.of(self._base, CutKnowledge(attack.schema, attack.statistics))
        self.limits = [*filter(None, [not_exact(self._base, space)])]
        self.groups = self._grouped()
        self.places = torch.cat([group.places for group in self.groups])
        self.figures, self.named = self._baselines()

    def tried(self, part: Part) -> TriedAttack:
        """Return what an attack reads."""
        entry = entry_of(registry.attacks.of("split"), part)
        if any(issubclass(view, ReturnedView) for view in entry.sees):
            return self.attack.label_finding(part, self.places, self._returned(), self.figures, self.named)
        made = make_part(registry.attacks.of("split"), part)
        begun = time.perf_counter()
        guess = self._guess(made, "auxiliary" in entry.needs)
        seconds = time.perf_counter() - begun
        model, attack = self._base, self.attack
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
            attack.answers(part.called, self.places, said),
        )

    def _guess(self, attack: Callable[..., CutGuess], auxiliary: bool) -> CutGuess:
        """Return the guess for the records of all groups, one group after the other."""
        rows = self.attack._public
        # Without its own columns the server cannot tell its records by them from the auxiliary rows.
        held = None if rows is None or not (auxiliary or self.training.own is not None) else rows
        knowledge = CutKnowledge(
            self.attack.schema,
            self.attack.statistics,
            self._known,
            None if held is None else Auxiliary(held.cells, held.labels),
        )
        seeds = [stream(self.attack.seed, 0, "starts")]
        return _joined([attack(group.view, knowledge, seeds) for group in self.groups])

    def _scored(self, guess: CutGuess) -> Figures | None:
        known = self.attack._true_cells(self.places)
        if known is None:
            return None
        at, held = known
        model, seen = self._base, CutTranscript(self.groups[0].view, held[:, :-1], held[:, -1])
        figures, _ = measure_columns(model.schema, model.private, seen, _chosen(guess, at))
        return {key: value for key, value in figures.items() if key[0] not in _NO_MEANING}

    def _baselines(self) -> tuple[Figures, dict[tuple, str]]:
        if self.attack._truth is None:
            return {}, {}
        parts = [
            *((Part(name=PRIOR), Posterior(observed=False)) for _ in [0] if self.training.weights),
            (Part(name="marginals"), registry.baselines.of("split").create("marginals")),
        ]
        if self.training.own is not None and self.attack._public is not None:
            options = {"on": "features"}
            made = registry.baselines.of("split").create("knn", **options)
            parts.append((Part(name="knn", options=options, label="knn_features"), made))
        return _best(
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
        history = _history(self.training.rounds, self.attack._places)
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
            if not self._known.clips and not self.attack.attacks:
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
            features = cells[[rows[self.attack._ids[place]] for place in places]]
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


class _VerticalRun:
    """Attacks on a transcript of vertical learning: the active party's on columns, the passive party's on labels."""

    def __init__(self, attack: TranscriptAttack) -> None:
        self.attack, self.notes = attack, []
        self.limits: list[str] = []
        training, schema = attack.training, attack.schema
        self.further: list[Part] = []
        self.partition = Partition(schema, (training.public, training.private))
        newest = _newest(training.rounds, attack._places)
        if any(len(seen) > 1 for seen in _history(training.rounds, attack._places).values()):
            self.notes.append("of each record the newest message is attacked")
        leaked = set() if attack._leaked is None else set(attack._leaked[0].tolist())
        self.places = torch.tensor([place for place in newest if place not in leaked])
        if not len(self.places):
            raise BadInputError("all records of the transcript are known, so that none is left to attack; know fewer.")
        back = [training.rounds[k].gradient is not None for k, _ in newest.values()]
        returned = LogitsView if not training.about.top else ReturnedView
        self.reveals = (FeatureView, *((returned,) if all(back) else ()))
        self._newest = newest
        own = training.own
        self.grants: set[Need] = set()
        if attack._leaked is not None:
            self.grants.add("leaked")
        if attack._known_labels is not None:
            self.grants.add("labels")
        if attack._public is not None and own is not None:
            self.grants.add("auxiliary")
        bottom = self._bottom()
        if bottom is not None:
            self.grants.add("bottom")
        target = schema.target
        head: SplitHead = "sigmoid" if isinstance(target, Discrete) and target.width == 2 else "softmax"
        unknown = _UnknownPart("the active party's top model, which a transcript of vertical learning does not hold")
        model = ActiveModel(self.partition, unknown, unknown, training.about.head or head)
        received = self._messages("activations", self.places).float()
        cells = self._own(self.places)
        labelled = own is not None and own[2]
        mine = cells[:, : len(training.public)]
        silent = received.new_zeros(len(received), 0)
        self.view = FeatureView(
            model,
            1,
            mine[None],
            (silent[None], received[None]),
            cells[None, :, -1] if labelled else None,
        )
        knowledge = FeatureKnowledge(
            self.partition.schemas[1], tuple(attack.statistics.marginals[i] for i in training.private), bottom=bottom
        )
        if attack._leaked is not None:
            places, true = attack._leaked
            theirs = self._own(places)[:, : len(training.public)]
            sent = self._messages("activations", places).float()
            knowledge = replace(knowledge, leaked=Leaked(true[None], sent[None], theirs[None]))
        if attack._public is not None and own is not None:
            rows = attack._public
            auxiliary = FeatureAuxiliary(
                rows.cells[None][..., list(training.private)],
                rows.cells[None][..., list(training.public)],
                rows.labels[None],
                (None, None),
            )
            knowledge = replace(knowledge, auxiliary=auxiliary)
        self.knowledge = knowledge
        self.figures, self.named = self._baselines()

    def tried(self, part: Part) -> TriedAttack:
        """Return what an attack reads."""
        registered = registry.attacks.of("vertical")
        entry = entry_of(registered, part)
        if any(issubclass(view, ReturnedView | BatchView) for view in entry.sees):
            every = torch.tensor(list(self._newest))
            return self.attack.label_finding(part, every, self._returned(every), self.figures, self.named)
        made = make_part(registered, part)
        begun = time.perf_counter()
        guess: FeatureGuess = made(self.view, self.knowledge.only(entry.needs), self._seeds)
        seconds = time.perf_counter() - begun
        if bool(guess.cells.isnan().any()):
            raise BadInputError("it failed: its numbers are not finite")
        frame = frame_of(self.partition.schemas[1], guess.cells[0])
        figures = self._scored(guess)
        return TriedAttack(
            part.called,
            "columns",
            len(self.places),
            seconds,
            {},
            None if figures is None else score_rows(figures, self.figures, self.named),
            self.attack.answers(part.called, self.places, {name: frame[name] for name in frame.columns}),
        )

    @property
    def _seeds(self) -> list[int]:
        return [stream(self.attack.seed, 0, "attack") % 2**62]

    def _bottom(self) -> nn.Module | None:
        """Return the passive party's bottom model, where the transcript has its weights and its network is named."""
        training, schema = self.attack.training, self.partition.schemas[1]
        if not training.weights:
            return None
        width, name = training.rounds[0].activations.shape[1], self.attack.model or training.about.model
        file = training.weights[-1][1]
        if self.attack.model is not None and is_own(self.attack.model):
            copies, answered = own_bottom(find_own(self.attack.model), schema, 1, width, [0])
            if answered != width:
                raise BadInputError(
                    f"the bottom model {self.attack.model!r} returns {answered} features where the transcript has "
                    f"{width}; name the network that was trained."
                )
            load_weights(copies.networks[0], file)
            bottom: nn.Module = copies
        elif name == "vertical_mlp":
            hidden = training.about.options.get("bottom", ())
            bottom = Stack((schema.width, *(hidden if isinstance(hidden, tuple) else ()), width), [0])
            load_weights(bottom, file)
        else:
            said = "is not named" if name is None else f"{name!r} is known by name alone"
            self.notes.append(
                f"weights of the passive party are there, but their network {said}; name it with --model "
                "FILE.py:FACTORY"
            )
            return None
        self.limits.append(inversion_in_words(bottom, schema))
        return bottom

    def _own(self, places: Tensor) -> Tensor:
        own = self.attack.training.own
        if own is None:
            return torch.zeros(len(places), len(self.attack.training.public), dtype=torch.float64)
        rows, cells, _ = own
        return cells[[rows[self.attack._ids[place]] for place in places.tolist()]]

    def _messages(self, name: str, places: Tensor) -> Tensor:
        rounds = self.attack.training.rounds
        return torch.stack([getattr(rounds[k], name)[row] for k, row in (self._newest[p] for p in places.tolist())])

    def _returned(self, places: Tensor) -> ReturnedView:
        sent, came = self._messages("activations", places), self._messages("gradient", places)
        own_gradient = came * self._messages("behind", places)[:, None].to(came)
        kind = ReturnedView if self.attack.training.about.top else LogitsView
        # The passive party's own columns are the secret of the other attack, and are in no transcript.
        return kind(sent[None], own_gradient[None], sent.new_zeros(1, len(sent), 1))

    def _scored(self, guess: FeatureGuess) -> Figures | None:
        known = self.attack._true_cells(self.places)
        if known is None:
            return None
        at, held = known
        view = FeatureView(self.view.model, 1, self.view.own[:, at], tuple(f[:, at] for f in self.view.features))
        seen = FeatureTranscript(view, held[None, :, :-1], held[None, :, -1])
        found = measure_features(self.partition.schemas[1], seen, FeatureGuess(guess.cells[:, at]))
        figures: Figures = {(one.metric, one.column): float(one.values[0]) for one in found}
        return {key: value for key, value in figures.items() if key[0] not in _NO_MEANING}

    def _baselines(self) -> tuple[Figures, dict[tuple, str]]:
        truth, target = self.attack._truth, self.attack.schema.target
        if truth is None:
            return {}, {}
        found: list[tuple[str, Figures]] = []
        for entry in registry.baselines.of("vertical").entries():
            if FeatureView not in entry.sees or any(need not in self.grants for need in entry.needs):
                continue
            guess = entry.factory()(self.view, self.knowledge.only(entry.needs), self._seeds)
            figures = self._scored(guess)
            if figures is not None:
                found.append((entry.name, figures))
        mode = self.attack.statistics.target.median
        share = (truth[1][:, -1] == mode).double().mean()
        found.append(("label_mode", {("accuracy", target.name): float(share)}))
        return _best(found)


def score_rows(figures: Figures, baselines: Figures, named: Mapping[tuple, str]) -> list[dict[str, Json]]:
    """Return figures as rows of plain values, each beside the best baseline.

    Args:
        figures: figures by metric and column.
        baselines: best figure of the baselines by the same keys.
        named: name of that baseline.

    Example:
        >>> key = ("accuracy", None)
        >>> score_rows({key: 1.0}, {key: 0.75}, {key: "mode"})[0]["lift"]
        0.25
    """
    rows: list[dict[str, Json]] = []
    for key, value in figures.items():
        if value is None or value != value:
            continue
        best = baselines.get(key)
        rows.append(
            {
                "metric": key[0],
                "column": key[1],
                "value": value,
                "baseline": best,
                "baseline_name": named.get(key),
                "lift": None if best is None else value - best,
            }
        )
    return rows


def _best(found: Iterable[tuple[str, Figures]]) -> tuple[Figures, dict[tuple, str]]:
    best: Figures = {}
    named: dict[tuple, str] = {}
    for name, figures in found:
        for key, value in figures.items():
            before = best.get(key)
            if value is not None and value == value and (before is None or value > before):
                best[key], named[key] = value, name
    return best, named


def _names(path: Path, separator: str) -> tuple[str, ...]:
    return open_table(path, separator).names


def _history(rounds: Sequence[RoundMessages], places: Mapping[str, int]) -> dict[int, list[tuple[int, int]]]:
    """Return, for each record, the place of each round that it is in and its row there, the oldest first."""
    found: dict[int, list[tuple[int, int]]] = {}
    for k, messages in enumerate(rounds):
        for row, one in enumerate(messages.ids):
            found.setdefault(places[one], []).append((k, row))
    return found


def _newest(rounds: Sequence[RoundMessages], places: Mapping[str, int]) -> dict[int, tuple[int, int]]:
    return {place: seen[-1] for place, seen in sorted(_history(rounds, places).items())}


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
