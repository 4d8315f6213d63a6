"""Split learning with a client that holds all columns: attacks of a server without columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from seepage import registry
from seepage.assessment import Measurement
from seepage.assessment.three_questions import Population, Questions
from seepage.attacks.vertical import inversion_in_words
from seepage.datasets import Dataset
from seepage.datasets.coins import with_coins
from seepage.datasets.dataset import some_rows, split
from seepage.defenses.feature_noise import FeatureNoise
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.models.own_parts import as_they_predict, own_whole
from seepage.models.split import outputs_of, usual_split_head
from seepage.protocols.whole_client import PARTS, TrainedWhole, WholeClientLearning, WholeClientModel
from seepage.seeds import stream
from seepage.settings.guessing import AttackedSecret, entry_in
from seepage.settings.labels import (
    attacked_labels,
    guesses_labels,
    mixed_up,
    refuse_class_attacks,
    task_figures,
    with_label_columns,
)
from seepage.settings.loss_form import form_of, loss_in_words
from seepage.settings.outcomes import FEATURE_SCALES, features_outcome
from seepage.settings.part import Part, entry_of, marks_of, mechanisms_of
from seepage.settings.setting import About, Configuration, Outcome, PlannedPart, Scale
from seepage.settings.split.base import AttackedTopology, TopologyAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.threat_model import Deployment, granted, mechanisms
from seepage.settings.units import facts_of, of_some_rows, planned, with_few_leaked
from seepage.sources import is_own
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table
from seepage.text import how_many
from seepage.wire.labels import LabelGuess, ReturnedView
from seepage.wire.secret import FeatureTranscript
from seepage.wire.topology import holds_second_cut
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, KnownFeatures, Leaked, SmashedView

_TRAINING = Part(name="training")
_WORDS = {
    "vanilla": "The client holds all columns and sends activations; the server has the labels and all further layers.",
    "u_shaped": "The client holds all columns, the labels and the last layer; the server has the layers between, and "
    "sees activations and, at the second cut, the gradients that come back.",
    "multi_hop": "The client holds all columns and sends activations to a hop, which computes some layers and sends on "
    "what comes out; the server has the labels and all further layers.",
}
_SEEN_AT = {
    "server": "It sees what the hop sends on, and not what the client sent.",
    "hop": "It sees activations and, of what it sends on, the gradients that come back.",
}
# Rows of a control, and columns of coins: enough to hold 264 records out of.
_CONTROL_ROWS = 1_200
# Attacks learn from an eighth of them. Coins are drawn for each row anew, so that rows of a small table may repeat.
_CONTROL_FEWEST = 320
_CONTROL_COINS = 4


class WholeClientAudit(TopologyAudit[FeatureNoise | None]):
    """An audit of split learning with a client that holds all columns; a unit is one training."""

    def _set_up(self, spec: SplitSpec, dataset: Dataset | None) -> None:
        super()._set_up(spec, dataset)
        data = self.data
        train, test = split(data.all, spec.test_share, 0)
        self.spec = spec = with_few_leaked(spec, spec.leaked, len(test))
        refuse_class_attacks("split", spec.attacks, data.schema.target)
        self.defenses = {part.title: mechanisms_of("split", part, FeatureNoise)[0] for part in spec.defenses}
        self.configurations = tuple(Configuration(label, spec.batch_size) for label in self.defenses)
        label = data.schema.target.name
        parts = with_label_columns(planned([_TRAINING], spec.baselines, spec.attacks), "split", label)
        guessed = any(part.column is not None for part in parts if part.kind == "attack")
        if guessed and "label_mode" not in {part.label for part in parts}:
            parts = (*parts, PlannedPart(Part(name="label_mode"), "baseline", label))
        self.parts = parts
        if spec.leaked >= len(test):
            raise BadInputError(
                f"{spec.leaked:,} records are to leak, but {len(test):,} are attacked, of which at least one must "
                "remain; let fewer leak."
            )
        self.about = self._about(guessed, len(train), len(test))

    def _about(self, guessed: bool, trained: int, held_out: int) -> About:
        spec, data, label = self.spec, self.data, self.data.schema.target.name
        model = self.network(0)
        attacker = f"The {spec.attacker if spec.topology == 'multi_hop' else 'server'}"
        ours = {"hidden": list(spec.hidden), "cut": spec.cut, "tower": list(spec.tower)}
        granted_layers = "client's first layers" + (" and those of the hop" if self.behind_hop else "")
        bottom = model.behind_hop if self.behind_hop else model.client
        assert spec.topology != "columns"
        return About(
            **facts_of(data),
            protocol=spec.topology,
            model=model.name,
            lead=f"What the {attacker.split()[1]} of split learning learns about the columns that clients keep.",
            limits=(
                inversion_in_words(bottom, data.schema, granted_layers),
                *of_some_rows(data, self.table),
                *(as_they_predict(model.parts(spec.topology)) if self.factory else ()),
            ),
            attacker=attacker,
            secret="all cells",
            message="the activations",
            control="Without a hidden layer and with as many activations as inputs, the activations hold the planted "
            "columns, so a working attack reads nearly all of them.",
            threat_model=(
                f"The attacker is {attacker.lower()}, honest but curious. {_view_in_words(spec)}",
                "It knows the schema and the marginals of all columns. Where an attack needs it, it is granted the "
                f"{granted_layers}, or {spec.leaked:,} records with what was sent for them.",
                f"Split learning on {data.name}, {trained:,} rows of the client, {held_out:,} held out: "
                f"{_layers(spec)}, "
                f"{spec.epochs} epochs of Adam at {spec.learning_rate:g}, batches of {spec.batch_size}"
                f"{loss_in_words(spec.loss)}.",
                f"Attacked are held-out records in {how_many(spec.repetitions, 'training')} with seeds of their own "
                f"from seed {spec.seed}; intervals are over trainings.",
            ),
            rounds=spec.exposures or 1,
            label=label if guessed else None,
            scales={"loss": Scale(None), "task_rmse": Scale(None), **FEATURE_SCALES},
            marks=marks_of("split", spec.attacks, spec.defenses),
            utility=("auc", "task_accuracy"),
            settings={"epochs": spec.epochs, **({} if is_own(spec.model) else ours)},
        )

    @property
    def behind_hop(self) -> bool:
        """Whether the attacker gets a hop's outputs, and not the client's activations."""
        return self.spec.topology == "multi_hop" and self.spec.attacker == "server"

    def network(self, seed: int) -> WholeClientModel:
        """Return the networks before they are trained."""
        spec, schema = self.spec, self.data.schema
        assert spec.topology != "columns"
        target = schema.target
        form = form_of(spec.loss, usual_split_head(target), target.width if isinstance(target, Discrete) else 1)
        if self.factory is None:
            hop = spec.hop if spec.topology == "multi_hop" else ()
            model = WholeClientModel.of(schema, seed, spec.hidden, spec.cut, spec.tower, spec.topology, hop)
            return replace(model, form=form)
        parts = PARTS[spec.topology]
        client, (middle, *rest) = own_whole(self.factory, schema, parts, outputs_of(schema.target), spec.cut, seed)
        return WholeClientModel(client, middle, rest[0] if rest else None, schema, spec.model, form)

    @staticmethod
    def deployed(spec: SplitSpec) -> Deployment:
        """Return the threat model of a party without columns."""
        grants = granted({"leaked": spec.leaked, "labels": spec.known_labels}, ("bottom",))
        reveals = (SmashedView, ReturnedView) if holds_second_cut(spec.topology, spec.attacker) else (SmashedView,)
        return Deployment("split", spec.topology, reveals, grants, None, mechanisms("split", spec.defenses))

    def attacked(self, defense: FeatureNoise | None, unit: int) -> AttackedWhole:
        """Return a training, with the attacker's view of the attacked records."""
        spec, data = self.spec, self.data
        # The split is the same under all defenses.
        train, test = split(data.all, spec.test_share, stream(spec.seed, unit, "split") % 2**32)
        learning = WholeClientLearning(spec.epochs, spec.batch_size, spec.learning_rate, defense)
        start = self.network(stream(spec.seed, unit, "initialisation") % 2**62)
        trained = learning.train(start, train, stream(spec.seed, unit, "training") % 2**62)
        blur = stream(spec.seed, unit, "defense") % 2**62
        observed = learning.observe(trained, test, blur, spec.exposures or 1, self.behind_hop)
        last = len(test) if spec.attacked_records is None else min(len(test), spec.leaked + spec.attacked_records)
        attacked = slice(spec.leaked, last)
        view = observed.of(attacked)
        if self.swapped:
            view = SmashedView(view.activations.roll(1, 1))
        first, nothing = slice(0, spec.leaked), torch.zeros(1, spec.leaked, 0, dtype=torch.float64)
        leaked = Leaked(test.cells[None, first], observed.received[:, first], nothing) if spec.leaked else None
        names = {} if defense is None else {"feature_noise": {"scale": defense.scale}}
        if self.behind_hop:
            bottom, blurred = trained.model.behind_hop, learning.noise_behind_hop(trained, blur)
        else:
            bottom, blurred = trained.model.client, 0.0 if defense is None else float(defense.scale)
        known = (data.schema, data.statistics.marginals, KnownFeatures(names, blurred))
        knowledge = FeatureKnowledge(*known, leaked=leaked, bottom=bottom)
        transcript = FeatureTranscript(view, test.cells[None, attacked], test.labels[None, attacked])
        population = Population.of(data.all, data.schema, data.statistics, spec.quasi_identifiers)
        questions = Questions(population, [stream(spec.seed, unit, "questions") % 2**62])
        return AttackedWhole(self, unit, learning, trained, transcript, test, knowledge, questions)

    @property
    def fewest(self) -> float:
        """Least number of rows of a rehearsal."""
        return 200 + 2 * self.spec.leaked / self.spec.test_share

    def rehearsed(self, share: float) -> Mapping[str, Json]:
        """Return fields of the spec for a rehearsal: as many records leak."""
        return {}

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        if part.kind != "attack":
            return {}
        needs = entry_of(registry.attacks.of("split"), part.part).needs
        layers = "the client's first layers" + (" and those of the hop" if self.behind_hop else "")
        amounts: dict[str, Json] = {"bottom": layers, "leaked": self.spec.leaked, "labels": self.spec.known_labels}
        return {"sees": _view_in_words(self.spec), **{need: amounts[need] for need in needs}}

    def planted(self, swapped: bool) -> WholeClientAudit | None:
        """Return a control: fair coins, all that the client holds, behind linear layers as wide as their inputs."""
        registered = registry.attacks.of("split")
        entries = [(part, entry_of(registered, part)) for part in self.spec.attacks]
        attacks = tuple(part for part, e in entries if not guesses_labels(e) or e.traits.bare_labels)
        if not attacks:
            return None
        sample = some_rows(self.data, _CONTROL_ROWS, self.spec.seed, _CONTROL_FEWEST)
        planted = with_coins(sample, _CONTROL_COINS, self.spec.seed)
        coin_schema = Schema(columns=planted.schema.columns[-_CONTROL_COINS:], target=planted.schema.target)
        data = replace(planted, train=Table(coin_schema, planted.train.frame))
        changed = {
            "model": "deepfm",
            # A coin is one-hot: two inputs. Behind a hop's ReLU half of the activations are gone.
            **{"hidden": (), "cut": (16 if self.behind_hop else 2) * _CONTROL_COINS, "hop": (16 * _CONTROL_COINS,)},
            **{"tower": (16,), "epochs": 2, "leaked": min(64, len(planted.all) // 8)},
            **{"test_share": 0.25, "attacked_records": 200, "exposures": None},
            "attacks": attacks,
            "baselines": (Part(name="constant"),),
        }
        return self.control_on(data, changed, swapped, "they read labels of some tables alone")


def _view_in_words(spec: SplitSpec) -> str:
    words = _WORDS[spec.topology]
    return f"{words} {_SEEN_AT[spec.attacker]}" if spec.topology == "multi_hop" else words


def _layers(spec: SplitSpec) -> str:
    if is_own(spec.model):
        return f"the network {spec.model}"
    hop = f"{spec.hop} at the hop, " if spec.topology == "multi_hop" else ""
    return f"layers {(*spec.hidden, spec.cut)} at the client, {hop}{spec.tower or 'one layer'} at the server"


@dataclass(frozen=True)
class AttackedWhole(AttackedTopology):
    """One training and the attacker's view of the attacked rows."""

    audit: WholeClientAudit
    unit: int
    learning: WholeClientLearning
    trained: TrainedWhole
    transcript: FeatureTranscript[SmashedView]
    test: Table
    knowledge: FeatureKnowledge
    questions: Questions

    def about(self, part: PlannedPart) -> Outcome:
        """Return the network's quality."""
        model = self.trained.model
        with torch.no_grad():
            outputs = model.outputs(self.learning.observe(self.trained, self.test, self.audit.spec.seed).received[0])
        loss = Measurement.of_unit("loss", None, self.trained.loss)
        return Outcome([loss, *task_figures(self.test.schema.target, outputs, self.test.labels)])

    def labels(self) -> AttackedSecret[LabelGuess]:
        """Return the labels of training as a secret, behind the gradients returned at the second cut."""
        view, spec, data = self.trained.returned, self.audit.spec, self.audit.data
        assert view is not None
        labels = self.trained.rows.labels[None]
        labelled = min(spec.known_labels, labels.shape[1] // 2)
        labelled_view = view.of(slice(0, labelled + self.transcript.view.records))
        labelled_view = mixed_up(labelled_view, labelled) if self.audit.swapped else labelled_view
        known = (labels[:, : labelled_view.records], labelled, [stream(spec.seed, self.unit, "starts")])
        return attacked_labels("split", labelled_view, data.schema.target, data.statistics.target, *known)

    def columns(self, part: PlannedPart) -> AttackedSecret[FeatureGuess]:
        """Return all columns of the attacked records as a secret."""
        view, granted = self.transcript.view, self.knowledge.only(entry_in("split", part).needs)
        seeds = [stream(self.audit.spec.seed, self.unit, "starts") % 2**62]

        def score(guess: FeatureGuess) -> Outcome:
            return features_outcome(self.knowledge, self.transcript, guess, self.audit.keeps_records, self.questions)

        shape = {"training": 1, "record": view.records, "column": len(granted.schema.columns)}
        return AttackedSecret("split", FeatureGuess, lambda: (view, granted), seeds, score, view.records, shape)
