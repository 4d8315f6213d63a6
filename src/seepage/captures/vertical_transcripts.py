"""Attacks on a transcript of vertical training: a passive party's columns, and the label of the active party."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Figures, measure_features
from seepage.attacks.vertical import inversion_in_words
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
from seepage.captures.transcripts import RoundMessages
from seepage.errors import BadInputError
from seepage.models.own import find_own, is_own
from seepage.models.own_parts import own_bottom
from seepage.models.split import SplitHead
from seepage.models.vertical import ActiveModel, Stack
from seepage.models.weights import load_weights
from seepage.seeds import stream
from seepage.settings.part import Part, entry_of, make_part
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Discrete
from seepage.tabular.table import frame_of
from seepage.wire.labels import BatchView, LogitsView, ReturnedView
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureAuxiliary, FeatureGuess, FeatureKnowledge, FeatureView, Leaked


class VerticalRun(TranscriptRun):
    """Attacks on a transcript of vertical learning: the active party's on columns, the passive party's on labels.

    Args:
        tables: the transcript with the tables beside it.
        model: name of the passive party's network, or reference of one of the user's own; that of the transcript if
            None.

    Raises:
        BadInputError: nothing is left to attack, or the network does not fit.
    """

    setting = "vertical"

    def __init__(self, tables: TranscriptTables, model: str | None) -> None:
        super().__init__(tables)
        self._network = model
        training, schema = tables.training, tables.schema
        self.partition = Partition(schema, (training.public, training.private))
        newest = _newest(training.rounds, tables.places)
        if any(len(seen) > 1 for seen in history_of(training.rounds, tables.places).values()):
            self.notes.append("of each record the newest message is attacked")
        leaked = set() if tables.leaked is None else set(tables.leaked[0].tolist())
        self.places = torch.tensor([place for place in newest if place not in leaked])
        if not len(self.places):
            raise BadInputError("all records of the transcript are known, so that none is left to attack; know fewer.")
        back = [training.rounds[k].gradient is not None for k, _ in newest.values()]
        returned = LogitsView if not training.about.top else ReturnedView
        self.reveals = (FeatureView, *((returned,) if all(back) else ()))
        self._newest = newest
        own = training.own
        if tables.leaked is not None:
            self.grants.add("leaked")
        if tables.known_labels is not None:
            self.grants.add("labels")
        if tables.public is not None and own is not None:
            self.grants.add("auxiliary")
        bottom = self._bottom()
        if bottom is not None:
            self.grants.add("bottom")
        target = schema.target
        head: SplitHead = "sigmoid" if isinstance(target, Discrete) and target.width == 2 else "softmax"
        unknown = UnknownPart("the active party's top model, which a transcript of vertical learning does not hold")
        active = ActiveModel(self.partition, unknown, unknown, training.about.head or head)
        received = self._messages("activations", self.places).float()
        cells = self._own(self.places)
        labelled = own is not None and own[2]
        mine = cells[:, : len(training.public)]
        silent = received.new_zeros(len(received), 0)
        self.view = FeatureView(
            active,
            1,
            mine[None],
            (silent[None], received[None]),
            cells[None, :, -1] if labelled else None,
        )
        knowledge = FeatureKnowledge(
            self.partition.schemas[1], tuple(tables.statistics.marginals[i] for i in training.private), bottom=bottom
        )
        if tables.leaked is not None:
            places, true = tables.leaked
            theirs = self._own(places)[:, : len(training.public)]
            sent = self._messages("activations", places).float()
            knowledge = replace(knowledge, leaked=Leaked(true[None], sent[None], theirs[None]))
        if tables.public is not None and own is not None:
            rows = tables.public
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
            return self.tables.label_finding(part, every, self._returned(every), self.figures, self.named)
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
            self.tables.answers(part.called, self.places, {name: frame[name] for name in frame.columns}),
        )

    @property
    def _seeds(self) -> list[int]:
        return [stream(self.tables.seed, 0, "attack") % 2**62]

    def _bottom(self) -> nn.Module | None:
        """Return the passive party's bottom model, where the transcript has its weights and its network is named."""
        training, schema = self.tables.training, self.partition.schemas[1]
        if not training.weights:
            return None
        width, name = training.rounds[0].activations.shape[1], self._network or training.about.model
        file = training.weights[-1][1]
        if self._network is not None and is_own(self._network):
            copies, answered = own_bottom(find_own(self._network), schema, 1, width, [0])
            if answered != width:
                raise BadInputError(
                    f"the bottom model {self._network!r} returns {answered} features where the transcript has "
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
        own = self.tables.training.own
        if own is None:
            return torch.zeros(len(places), len(self.tables.training.public), dtype=torch.float64)
        rows, cells, _ = own
        return cells[[rows[self.tables.ids[place]] for place in places.tolist()]]

    def _messages(self, name: str, places: Tensor) -> Tensor:
        rounds = self.tables.training.rounds
        return torch.stack([getattr(rounds[k], name)[row] for k, row in (self._newest[p] for p in places.tolist())])

    def _returned(self, places: Tensor) -> ReturnedView:
        sent, came = self._messages("activations", places), self._messages("gradient", places)
        own_gradient = came * self._messages("behind", places)[:, None].to(came)
        kind = ReturnedView if self.tables.training.about.top else LogitsView
        # The passive party's own columns are the secret of the other attack, and are in no transcript.
        return kind(sent[None], own_gradient[None], sent.new_zeros(1, len(sent), 1))

    def _scored(self, guess: FeatureGuess) -> Figures | None:
        known = self.tables.true_cells(self.places)
        if known is None:
            return None
        at, held = known
        view = FeatureView(self.view.model, 1, self.view.own[:, at], tuple(f[:, at] for f in self.view.features))
        seen = FeatureTranscript(view, held[None, :, :-1], held[None, :, -1])
        found = measure_features(self.partition.schemas[1], seen, FeatureGuess(guess.cells[:, at]))
        figures: Figures = {(one.metric, one.column): float(one.values[0]) for one in found}
        return {key: value for key, value in figures.items() if key[0] not in NO_MEANING}

    def _baselines(self) -> tuple[Figures, dict[tuple, str]]:
        truth, target = self.tables.truth, self.tables.schema.target
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
        mode = self.tables.statistics.target.median
        share = (truth[1][:, -1] == mode).double().mean()
        found.append(("label_mode", {("accuracy", target.name): float(share)}))
        return best_figures(found)


def _newest(rounds: Sequence[RoundMessages], places: Mapping[str, int]) -> dict[int, tuple[int, int]]:
    return {place: seen[-1] for place, seen in sorted(history_of(rounds, places).items())}
