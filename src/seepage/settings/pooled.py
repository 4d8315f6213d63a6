"""Pooled learning: a party reads the distribution of a sensitive column in another's rows from the joint model."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast, get_args

import torch
from jaxtyping import Float, Int
from safetensors.torch import save
from torch import Tensor

from seepage import datasets, registry
from seepage.assessment import Figures, rows_worth
from seepage.attacks.pooled import (
    Meta,
    binary_shadows,
    spread_shadows,
    train_shadows,
)
from seepage.attacks.pooled.parts.shadows import Shadows, SpreadShadows, halved
from seepage.attacks.pooled.parts.synthesis import synthesised
from seepage.datasets import Dataset
from seepage.datasets.coins import SIDES, some_rows, with_coins
from seepage.datasets.marked import SYNTHETIC, marked, with_synthetic
from seepage.datasets.population import Nodes, Texts
from seepage.defenses.accounting import gaussian_guarantee
from seepage.defenses.answers import CoarseAnswers
from seepage.defenses.joint_training import DpTraining, QueryLimit, WithoutColumns
from seepage.digests import Json, digest_of, plain
from seepage.errors import BadInputError, Remedy, unknown_name
from seepage.files import write_whole
from seepage.protocols.pooled import PooledLearning, Sets, alternating, federated, parted
from seepage.registry import takes
from seepage.seeds import stream
from seepage.settings.lever import Lever
from seepage.settings.part import NONE, Part, check_kinds, combine, entry_of, make_part, of_kind
from seepage.settings.pooled_spec import PooledSpec, pair
from seepage.settings.returned import check_guess
from seepage.settings.setting import About, Configuration, Exposure, PlannedPart, Scale
from seepage.settings.spec import Spec
from seepage.settings.threat_model import Deployment, granted, mechanisms, refuse_inapplicable
from seepage.settings.units import (
    UnitFigures,
    UnitsAudit,
    UnitsExposure,
    attacks_and_baselines,
    control_fields,
    extrapolated,
    planned,
    rehearse,
    rows_identity,
    with_fields,
)
from seepage.shadow.graph import Convolutional
from seepage.shadow.learner import Learner
from seepage.shadow.pooling import MarkedRows
from seepage.shadow.recurrent import Recurrent
from seepage.shadow.stacked import Dense
from seepage.tabular.schema import Category, Discrete
from seepage.wire.pooled import GradientsView, ModelView, PooledKnowledge, PropertyGuess, UpdatedView
from seepage.wire.secret import PooledTranscript

# What figures are means of, by metric and column.
Each = dict[tuple[str, str | None], list[float]]

DELTA = 1e-5
# What the attack gets out of shuffled shadow models: no more than the baseline, or the audit is at fault.
SHUFFLED = "shuffled"
_SHUFFLES = 5
# Models that are trained without other parties' rows.
_LOCAL = 20
# Parties that a pool has at most.
_MOST_PARTIES = 10
_TRAINING = Part(name="training")
# Folder of a run that the drawn rows are kept in.
DRAWN = "drawn_rows"


@dataclass(frozen=True)
class PooledDefense:
    """What parties that pool their rows do, ready to use.

    Attributes:
        without: names of columns that models are not trained on.
        answers: what is done to answers.
        queries: number of queries that are answered; None for any.
        training: differentially private training.
    """

    without: tuple[str, ...] = ()
    answers: CoarseAnswers | None = None
    queries: int | None = None
    training: DpTraining | None = None


def defense_of(part: Part) -> PooledDefense:
    """Return a defense ready to use."""
    combined = combine(registry.defenses.of("pooled"), part)
    check_kinds(part, combined, (WithoutColumns, *get_args(CoarseAnswers), QueryLimit, DpTraining))
    without, limit = of_kind(combined, WithoutColumns), of_kind(combined, QueryLimit)
    return PooledDefense(
        () if without is None else tuple(without.columns),
        next((mechanism for mechanism in combined if isinstance(mechanism, CoarseAnswers)), None),
        None if limit is None else limit.queries,
        of_kind(combined, DpTraining),
    )


class PooledAudit(UnitsAudit[PooledSpec, PooledDefense]):
    """An audit of pooled learning; a unit is an attack seed, with all target models in it.

    Args:
        spec: what to do.
        dataset: rows of the caller; those that the spec names if None.
        own: whether the rows are the user's own.
        swapped: whether each target comes with the answers of another one, so that they carry nothing of its share: the
            negative control.

    Raises:
        BadInputError: a setting cannot be used with these rows, or the device is not the CPU.
    """

    setting = "pooled"
    ignored = frozenset({*Spec.model_fields, "repetitions"}) - {"dataset_options", "sensitive", "seed", "threads"}

    def __init__(
        self, spec: PooledSpec, dataset: Dataset | None = None, own: bool = False, swapped: bool = False
    ) -> None:
        super().__init__(spec, dataset, own, swapped)
        self.defenses = {part.called: defense_of(part) for part in spec.defenses}
        is_table = dataset is not None or spec.dataset not in registry.populations.names()
        self.source = source = _of_table(spec, dataset) if is_table else _of_population(spec)
        self.dataset, self.rows = source.table, source.identity
        refuse_inapplicable(spec.attacks, deployment(spec))
        _check(spec, source, self.defenses)
        update = spec.protocol == "update"
        shuffled = [] if update else [Part(name=SHUFFLED)]
        self.parts = planned([_TRAINING, *shuffled], spec.baselines, spec.attacks)
        self.configurations = tuple(Configuration(label, spec.batch_size) for label in self.defenses)
        self._known = {
            part.called: {
                mechanism.name: plain(mechanism.options) for mechanism in part.mechanisms if mechanism.name != "none"
            }
            for part in spec.defenses
        }
        self._forecast: dict[bool, float | None] = {}
        self.about = About(
            dataset=source.name,
            protocol=spec.protocol,
            model=str(source.learner(PooledDefense()).describe()["model"]),
            lead="What the answers of a jointly trained model give away of how a sensitive column is distributed in "
            "another party's data.",
            attacker="A party",
            secret="shares of a sensitive column",
            message="the joint model",
            control="The target follows the planted column, so answers differ with its share and a working attack "
            "distinguishes nearly all shares.",
            threat_model=_threat_model(spec, source),
            notes=source.notes,
            rows=source.count,
            target=source.target,
            columns=spec.scored_columns,
            sensitive=(source.sensitive,),
            scales={
                "loss": Scale(None),
                "epsilon": Scale(None),
                "local_accuracy": Scale(None, 0.0, 1.0),
                "overlap": Scale(None, 0.0, 1.0),
                "duplicates": Scale(None, 0.0, 1.0),
                "rows_worth": Scale(True),
                "share_error": Scale(False, 0.0, 1.0),
                "coverage": Scale(None, 0.0, 1.0),
                "width": Scale(None, 0.0, 1.0),
            },
            # Of all attack seeds together: no mean over seeds is that number, and a seed that is read whole has none.
            derived=_derived(spec),
            of_nothing=(SHUFFLED,),
            utility=("task_accuracy",),
            settings={"hidden": list(spec.hidden), "epochs": spec.epochs, "shares": list(spec.shares)},
        )

    @property
    def origin(self) -> Mapping[str, Json]:
        """What tells these rows from others."""
        source = self.source
        rows = {"name": source.name, "rows": source.count, "notes": list(source.notes)}
        return {"dataset": {**rows, "digest": digest_of({"rows": source.identity})}}

    def expose(self, configuration: Configuration, units: range) -> UnitsExposure:
        """Return who holds what in some attack seeds; models are trained by the first part that needs them."""
        return UnitsExposure(self.about, [self._seed(configuration, unit) for unit in units])

    def _seed(self, configuration: Configuration, unit: int) -> AttackSeed:
        return _seed(self.spec, self.source, self.defenses[configuration.defense], unit, self.swapped)

    def forecast(self, configuration: Configuration) -> float | None:
        """Return the seconds of an attack seed with all its parts, from two rehearsals with few models.

        A rehearsal trains and attacks a small share of the target models with the same share of the shadow models;
        seconds grow with their number. Training with DP-SGD has a forecast of its own, all other defenses share one.
        Its error is that of extrapolating a line.
        """
        private = self.defenses[configuration.defense].training is not None
        if private not in self._forecast:
            self._forecast[private] = self._rehearsed(configuration)
        return self._forecast[private]

    def _rehearsed(self, configuration: Configuration) -> float | None:
        spec = self.spec
        worlds = 4 if spec.protocol == "update" else len(spec.shares)
        # Attacks with intervals take 20 shadow models at least, in pairs from two halves.
        with_intervals = _estimates_shares(spec)
        least = 5 * math.lcm(4, len(spec.shares)) if with_intervals else 2 * len(spec.shares)
        if 4 * worlds > spec.targets or 2 * least > spec.shadows:
            return None

        def expose(size: int) -> Exposure:
            changed = {"targets": size * worlds, "shadows": size * least}
            small = with_fields(spec, changed)
            return UnitsExposure(self.about, [_seed(small, self.source, self.defenses[configuration.defense], 0)])

        rehearsals = rehearse(expose, self.parts)
        if rehearsals is None:
            return None
        single, double = (rehearsal.exposure + rehearsal.parts for rehearsal in rehearsals)
        times = (spec.targets + spec.shadows) / (worlds + least)
        return extrapolated(single, double, times)

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return what an attacker is granted, for results."""
        if part.kind != "attack":
            return {}
        spec = self.spec
        auxiliary = spec.auxiliary if spec.auxiliary_from == "rows" else f"made up from {spec.auxiliary_from}"
        sees = _views(part.part) if part.kind == "attack" else ()
        if GradientsView in sees:
            return {
                "sees": "the victim's gradients in federated training",
                "queries": 0,
                "auxiliary": auxiliary,
                "own rows": spec.rows,
                "training": "known",
            }
        models = ModelView in sees
        limit = self.defenses[configuration.defense].queries
        return {
            "sees": "the joint models" if models else "answers to its queries",
            "queries": 0 if models else spec.queries if limit is None else min(limit, spec.queries),
            "auxiliary": auxiliary,
            "own rows": 0 if spec.protocol == "single_party" else spec.rows,
            "training": "known",
            "defense": self._known[configuration.defense],
        }

    def levers(self) -> tuple[Lever, ...]:
        """Return coarser answers, fewer of them, differentially private training and more parties."""
        spec = self.spec
        # An update, and rows of groups, have two parties.
        pools = spec.protocol != "update" and spec.group is None and spec.parties < _MOST_PARTIES
        return (
            Lever("rounded_answers", 4, 1, True, mechanism="rounded_answers", strengths=(("digits",),)),
            Lever("label_only", 1, 1, mechanism="label_only"),
            *(
                [Lever("query_limit", spec.queries, 1, True, mechanism="query_limit", strengths=(("queries",),))]
                if spec.queries > 1
                else []
            ),
            Lever(
                "dp_training",
                0.01,
                100.0,
                mechanism="dp_training",
                options={"clip": 1.0},
                strengths=(("noise_multiplier",),),
            ),
            *([Lever("parties", spec.parties, _MOST_PARTIES, True, spec_field="parties")] if pools else []),
        )

    def planted(self, swapped: bool) -> PooledAudit | None:
        """Return a control: a planted column that the target follows, without a defense.

        The same table and attacks, but the secret is the share of heads in a column of coins, and the labels follow it;
        shares are far apart and models plain logistic regressions. None where rows are no table, in which no column can
        be planted, or too few. In the negative control each target comes with another target's answers.
        """
        spec = self.spec
        if self.dataset is None:
            return None
        update = spec.protocol == "update"
        planted = with_coins(some_rows(self.dataset, _CONTROL_ROWS, spec.seed), 1, spec.seed, strength=0.9)
        # A victim of an update draws twice, and an attack may halve the auxiliary rows: nine tenths of one kind each.
        rows = min(_CONTROL_ROWS_OF_A_PARTY * (2 if update else 1), len(planted.all) // 16)
        if rows < _LEAST_ROWS_OF_A_PARTY:
            return None
        inputs = () if spec.group is None else tuple(name for name in planted.schema.names if name != spec.group)
        changed = {
            "sensitive": (planted.schema.names[-1],),
            "value": SIDES[1],
            # Coins fall anew for each row, whatever group it is of.
            **{"group": None, "inputs": inputs},
            **{"keep": True, "synthetic": None, "hidden": (), "epochs": 10, "batch_size": 64},
            **{"learning_rate": 0.03, "weight_decay": 1e-4, "rows": rows, "parties": 2},
            **{"auxiliary": len(planted.all) // 2, "auxiliary_share": 0.5, "auxiliary_from": "rows", "apart": False},
            **{"own_share": 0.5, "queries": 100, "shadows": 40, "targets": 20},
            "shares": (0.05, 0.1, 0.5, 0.9, 0.95) if update else (0.2, 0.8),
            **control_fields(swapped),
        }
        control = PooledAudit(with_fields(spec, changed), planted, self.own, swapped)
        control.parts = attacks_and_baselines(control.parts)
        return control

    def save(self, folder: Path) -> None:
        """Keep the rows that victims and further parties of each target model draw, where records are to be kept.

        One file an attack seed: the pool that is drawn from (``inputs`` as models take them, ``labels``, ``carries``:
        whether a row carries the attribute) and ``drawn``, positions in it (target, part, row).

        Raises:
            BadInputError: a file cannot be written.
        """
        if not self.spec.keep_records:
            return
        for configuration in self.configurations:
            # Rows are drawn alike under all defenses that train on the same columns.
            for seed in [self._seed(configuration, unit) for unit in range(self.units)]:
                kept = {name: tensor.contiguous() for name, tensor in seed.drawn().items()}
                place = folder / DRAWN / f"{configuration.defense}-{seed.unit}.safetensors"
                write_whole(place, save(kept), self.own)


# Enough to tell shares that are far apart, few enough to train on in seconds.
_CONTROL_ROWS = 7_200
_CONTROL_ROWS_OF_A_PARTY = 150
_LEAST_ROWS_OF_A_PARTY = 40


def _value(spec: PooledSpec, data: Dataset, sensitive: str) -> Category | None:
    """Return the value whose share is asked for: what a text stands for in the sensitive column."""
    if not isinstance(spec.value, str) or isinstance(data.schema.column(sensitive), Discrete):
        return spec.value
    try:
        return float(spec.value)
    except ValueError:
        raise BadInputError(
            Remedy("value"),
            f" of the column of numbers {sensitive!r} is a number, above which the attribute is carried; got "
            f"{spec.value!r}.",
        ) from None


def _rows(spec: PooledSpec, data: Dataset, sensitive: str, defense: PooledDefense) -> MarkedRows:
    names = data.schema.names
    grouping = () if spec.group is None else (spec.group,)
    for name in (*spec.inputs, *defense.without, *grouping):
        if name not in names:
            raise unknown_name("column", name, names)
    left_out = {name for name in names if spec.inputs and name not in (*spec.inputs, sensitive)}
    left_out |= {*defense.without, *grouping}
    value = 5 if spec.synthetic is not None else _value(spec, data, sensitive)
    keep = spec.keep and sensitive not in left_out
    rows = marked(data, sensitive, value, keep, sorted(left_out - {sensitive}))
    return rows if spec.group is None else replace(rows, groups=_groups(data, spec.group))


def _groups(data: Dataset, name: str) -> Int[Tensor, " row"]:
    """Return the number of each row's group."""
    position = data.schema.names.index(name)
    column, cells = data.schema.columns[position], data.all.column(position)
    if isinstance(column, Discrete) and column.other is not None:
        together = int((cells == column.categories.index(column.other)).sum())
        raise BadInputError(
            f"rare values of the column {name!r} were taken together, {together} rows in all, so that it does not say "
            "which rows belong together; write its values as numbers, or keep more values (",
            Remedy("most_categories"),
            ").",
        )
    return cells.unique(return_inverse=True)[1]


@dataclass(frozen=True)
class PooledData:
    """Rows of any kind, and how models are trained on them.

    Attributes:
        spec: what to do.
        name, notes, extent, count, target: description of the rows, for results and the report.
        sensitive: name of the attribute.
        identity: what tells these rows from others.
        by_columns: rows as models take them, by the columns that a defense leaves out.
        classes: number of classes.
        table: the rows as a table; None where they are none.
        of_population: training on what is no table; None for tables.
    """

    spec: PooledSpec
    name: str
    notes: tuple[str, ...]
    extent: str
    count: int
    target: str
    sensitive: str
    identity: list[Json]
    by_columns: Mapping[tuple[str, ...], MarkedRows]
    classes: int
    table: Dataset | None = None
    of_population: Learner | None = None

    def rows(self, defense: PooledDefense) -> MarkedRows:
        """Return the rows as models take them under a defense."""
        return self.by_columns[defense.without]

    def learner(self, defense: PooledDefense) -> Learner:
        """Return how models are trained under a defense."""
        if self.of_population is not None:
            return self.of_population
        spec, private = self.spec, defense.training
        clip, noise = (None, 0.0) if private is None else (float(private.clip), float(private.noise_multiplier))
        rates = spec.learning_rate, spec.weight_decay, clip, noise
        return Dense(self.classes, spec.hidden, spec.epochs, spec.batch_size, *rates)


def _of_table(spec: PooledSpec, dataset: Dataset | None) -> PooledData:
    data = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
    if spec.synthetic is not None:
        synthetic = spec.synthetic
        data = with_synthetic(data, synthetic.columns, synthetic.target, synthetic.strength, spec.seed)
    sensitive = SYNTHETIC if spec.synthetic is not None else spec.secret
    # Rows are the same under all defenses that train on the same columns.
    by_columns = {defense.without: _rows(spec, data, sensitive, defense) for defense in map(defense_of, spec.defenses)}
    target = data.schema.target
    # Rows were refused otherwise.
    assert isinstance(target, Discrete)

    return PooledData(
        spec,
        data.name,
        data.notes,
        data.extent,
        len(data.all),
        target.name,
        sensitive,
        rows_identity(data),
        by_columns,
        target.width,
        data,
    )


def _of_population(spec: PooledSpec) -> PooledData:
    """Return texts or nodes of a graph; what the spec does not say of training is as their recipes have it."""
    named = registry.populations[spec.dataset]
    folder = {"folder": spec.data_folder} if "folder" in inspect.signature(named.factory).parameters else {}
    data = cast("Texts | Nodes", registry.populations.create(spec.dataset, **folder, **spec.dataset_options))
    for defense in map(defense_of, spec.defenses):
        of_tables = (defense.without, defense.training, spec.inputs, spec.synthetic, spec.group)
        if any(said not in ((), None) for said in of_tables):
            raise BadInputError(
                f"{data.name} is no table: columns to train on (inputs, without), groups, a synthetic column and "
                "DP-SGD are for tables; leave them out."
            )
    for part in spec.attacks:
        if GradientsView in _views(part):
            raise BadInputError(
                f"{part.name} reads gradients of networks on tables, and {data.name} is none; leave it out."
            )
    if spec.auxiliary_from != "rows":
        raise BadInputError(f"{data.name} is no table, of which alone rows are made up; leave out auxiliary_from.")
    said = {
        name: getattr(spec, name)
        for name in ("epochs", "batch_size", "learning_rate", "weight_decay")
        if name in spec.model_fields_set
    }
    classes = len(data.classes)
    learner: Learner
    if isinstance(data, Texts):
        if len(spec.hidden) not in (0, 2):
            raise BadInputError(f"networks on texts have two widths (recurrent, dense), got hidden={spec.hidden!r}.")
        said |= dict(zip(("units", "dense"), spec.hidden, strict=False))
        identity = [len(data), plain(data.words), plain(data.labels), plain(data.vectors)]
        learner = Recurrent(classes, data.vectors, **said)
    else:
        if len(spec.hidden) > 1 or said.pop("batch_size", None) is not None:
            raise BadInputError(
                "networks on graphs have one hidden layer and train on whole batches (batch_size: null)."
            )
        said |= dict(zip(("hidden",), spec.hidden, strict=False))
        graph = data.seen(spec.secret, spec.keep)
        identity = [len(data), plain(data.labels), plain(torch.from_numpy(graph.features.indices)), graph.edges.nnz]
        learner = Convolutional(classes, graph, **said)
    rows = data.marked(spec.secret)
    return PooledData(
        spec,
        data.name,
        data.notes,
        f"{len(data):,} {'texts' if isinstance(data, Texts) else 'nodes'}",
        len(data),
        data.target,
        spec.secret,
        [*identity, plain(rows.carries.long())],
        {(): rows},
        classes,
        of_population=learner,
    )


def _check(spec: PooledSpec, source: PooledData, defenses: dict[str, PooledDefense]) -> None:
    """Refuse, before anything is trained, what would fail after it."""
    if spec.shadows % 4 and _estimates_shares(spec):
        raise BadInputError(
            f"attacks that estimate a share train shadow models in pairs from two halves of the auxiliary rows; got "
            f"{spec.shadows}, give a multiple of 4."
        )
    defended = any(part.name != NONE for part in spec.defenses)
    if spec.parties > 2 or defended:
        for part in spec.attacks:
            if GradientsView in _views(part):
                raise BadInputError(
                    f"the attack {part.called} is on another's gradients in federated training of two parties, which "
                    "defenses of a joint model do not reach; leave out further parties and defenses, or the attack."
                )
    sets = _sets(spec, source.rows(defense_of(spec.defenses[0])), 0)
    # Parts of one model are drawn without replacement; what is needed most decides.
    wanted = torch.tensor([[share, *_others(spec)] for share in _all_shares(spec)], dtype=torch.float64)
    if spec.protocol == "update":
        wanted = torch.tensor([[a, b] for a in spec.new_shares for b in spec.new_shares], dtype=torch.float64)
    known = [(sets.held, "victims' rows"), (sets.auxiliary, "auxiliary rows")]
    if _estimates_shares(spec):
        halves = halved(sets.auxiliary, torch.Generator().manual_seed(0))
        known[1:] = [(sets.auxiliary.rows(half), "each half of the auxiliary rows") for half in halves]
    for held, who in known:
        try:
            held.drawn(wanted, spec.rows, torch.Generator().manual_seed(0))
        except BadInputError as error:
            raise BadInputError(f"{who} of {source.name!r}: {error}") from error
    for defense in defenses.values():
        if defense.queries is not None and spec.auxiliary_from != "rows":
            raise BadInputError(
                "auxiliary rows that are made up take many queries, so that a limit of queries is not audited with "
                "them; leave it out, or grant real rows (auxiliary_from: rows)."
            )
        if defense.queries is not None and any(UpdatedView in _views(part) for part in spec.attacks):
            raise BadInputError("a limit of queries is not audited for updates; leave it out.")


def _all_shares(spec: PooledSpec) -> list[float]:
    return [*spec.shares, *(PooledKnowledge.within if _estimates_shares(spec) else ())]


def _views(part: Part) -> tuple[type, ...]:
    """Return the view types that an attack takes."""
    return entry_of(registry.attacks.of("pooled"), part).sees


def _estimates_shares(spec: PooledSpec) -> bool:
    """Return whether an attack estimates a share, from shadow models over a range of shares."""
    entries = [entry_of(registry.attacks.of("pooled"), part) for part in spec.attacks]
    return any(getattr(entry.factory, "estimates", False) for entry in entries)


def _others(spec: PooledSpec) -> tuple[float, ...]:
    return (0.5,) * (spec.parties - 2)


def _sets(spec: PooledSpec, rows: MarkedRows, unit: int) -> Sets:
    return parted(
        rows,
        spec.auxiliary,
        spec.rows,
        spec.queries,
        stream(spec.seed, unit, "sets"),
        spec.auxiliary_share,
        spec.own_share,
        spec.apart,
    )


@dataclass(frozen=True)
class AttackSeed:
    """One attack seed: who holds what, the joint models, and what the attacker knows.

    Attributes:
        spec, unit, defense, learning: what is done.
        sets: who holds which rows.
        known: what the attacker knows.
        swapped: whether each target comes with another one's answers.
    """

    spec: PooledSpec
    unit: int
    defense: PooledDefense
    learning: PooledLearning
    sets: Sets
    known: PooledKnowledge
    swapped: bool = False

    def measure(self, part: PlannedPart) -> UnitFigures:
        """Return what a part gets."""
        name = part.part.name
        if name == "training" and part.kind == "about":
            return self._training()
        if part.kind == "baseline":
            guess = make_part(registry.baselines.of("pooled"), part.part)(self.spec.targets, self.known)
            # Right as often as the baseline holds the truth for likely; of new rows, one of two shares is.
            update = self.spec.protocol == "update"
            metrics = [("accuracy", name) for name in (None, *self.spec.scored_columns)]
            chance = 0.5 if update else float(guess.chances[0].max())
            figures: Figures = dict.fromkeys(metrics, chance)
            if guess.share is not None and _estimates_shares(self.spec):
                figures |= self._of_estimates(guess)[0]
            return UnitFigures(figures)
        if name == SHUFFLED and part.kind == "about":
            return self._shuffled()
        sees = _views(part.part)
        if UpdatedView in sees:
            return self._update(part)
        if GradientsView in sees:
            return self._gradients(part)
        begun = time.perf_counter()
        attack = make_part(registry.attacks.of("pooled"), part.part)
        estimates = getattr(attack, "estimates", False)
        seed = stream(self.spec.seed, self.unit, "attack") % 2**31
        view = self._seen.models if ModelView in sees else self._seen.answers.again()
        if estimates or takes(attack, "shadows"):
            guess = attack(view, self.known, self._spread if estimates else self._shadows, seed)
        else:
            guess = attack(view, self.known, seed)
        seconds = time.perf_counter() - begun
        figures, each = self._figures(check_guess(part.part, guess, PropertyGuess))
        if estimates:
            estimated, each_estimated = self._estimates(attack, seed)
            figures, each = figures | estimated, each | each_estimated
        return UnitFigures(figures, seconds / self.spec.targets, each=each)

    def _shuffled(self) -> UnitFigures:
        """Return what the attack gets out of shuffled shadow models, several times over."""
        attack = Meta(shuffled=True)
        rights = []
        for again in range(_SHUFFLES):
            seed = stream(self.spec.seed, self.unit, f"{SHUFFLED} {again}") % 2**31
            rights.append(self._right(attack(self._seen.answers.again(), self.known, self._shadows, seed)))
        right = torch.stack(rights).mean(0)
        return UnitFigures({("accuracy", None): float(right.mean())}, each={("accuracy", None): right.tolist()})

    @cached_property
    def _own(self) -> MarkedRows | None:
        return None if self.spec.protocol == "single_party" else self.sets.own

    @cached_property
    def _trained(self) -> Tensor:
        """The shares that targets are trained with."""
        return alternating(self.spec.shares, self.spec.targets)

    @cached_property
    def _truth(self) -> Tensor:
        """The shares that the attacker's choices are held against."""
        return self._trained[self._order]

    @cached_property
    def _order(self) -> Tensor:
        """Places of the targets that answers are taken for: their own, unless they are swapped."""
        places = torch.arange(self.spec.targets)
        if not self.swapped:
            return places
        # Shares alternate. Here one share stands for as many targets in a row as there are shares, so that choices
        # which are right of the answers' own targets are right as often as the baseline.
        worlds = 4 if self.spec.protocol == "update" else len(self.spec.shares)
        return places // worlds % worlds

    @cached_property
    def _seen(self) -> PooledTranscript:
        return self.learning.train(self.sets.held, self._own, self._trained, self._seed("targets"))

    def drawn(self) -> dict[str, Tensor]:
        """Return the pool that victims draw from, and the positions of each target's rows in it."""
        shares, held = self._trained[:, None], self.sets.held
        if self.spec.protocol == "update":
            shares = self._pairs
        chosen = self.learning.drawn(held, shares, self._seed("targets"))
        return {"inputs": held.inputs, "labels": held.labels, "carries": held.carries, "drawn": chosen}

    @cached_property
    def _shadows(self) -> Shadows:
        return binary_shadows(self.known, self.spec.shadows, self._seed("shadows"))

    @cached_property
    def _spread(self) -> SpreadShadows:
        return spread_shadows(self.known, self.spec.shadows, self._seed("spread"))

    def _seed(self, purpose: str) -> int:
        return stream(self.spec.seed, self.unit, purpose) % 2**62

    def _training(self) -> UnitFigures:
        """Return how well joint models do, on rows that none was trained on, beside those of the victim's alone."""
        tested = self.sets.auxiliary
        queries, labels = tested.inputs, tested.labels

        def accuracy(seen: PooledTranscript) -> float:
            hits = [
                (seen.models.models.of(slice(k, k + 1)).answers(queries)[0].argmax(1) == labels).double().mean()
                for k in range(min(_LOCAL, seen.models.targets))
            ]
            return float(torch.stack(hits).mean())

        if self.spec.protocol == "update":
            pairs, _ = self._updates
            return UnitFigures({("task_accuracy", None): _accuracy(pairs.after.ask(queries), labels), **self._shared()})
        truth = alternating(self.spec.shares, len(self.spec.shares) * max(1, _LOCAL // len(self.spec.shares)))
        local = replace(self.learning, others=()).train(self.sets.held, None, truth, self._seed("local"))
        figures: Figures = {("task_accuracy", None): accuracy(self._seen), ("local_accuracy", None): accuracy(local)}
        figures |= self._shared()
        private = self.defense.training
        if private is not None:
            count = self.spec.rows * (self.spec.parties if self._own is not None else 1)
            size = min(self.spec.batch_size or count, count)
            steps = self.spec.epochs * -(-count // size)
            utility = (
                gaussian_guarantee(float(private.noise_multiplier), size / count, steps, DELTA)
                if private.noise_multiplier
                else None
            )
            figures["epsilon", None] = None if utility is None else utility.epsilon
        return UnitFigures(figures)

    def _shared(self) -> Figures:
        """Return which share of victims' rows other victims drew too, and which the attacker holds as well.

        ``overlap`` is the mean over pairs of joint models with the same share, of the share where it is largest.
        ``duplicates`` are rows that equal one of the attacker's in all that models take, label and attribute.
        """
        shares = self._pairs if self.spec.protocol == "update" else self._trained[:, None]
        held = self.sets.held
        # Further parties' rows come after the victim's.
        drawn = self.drawn()["drawn"][:, : shares.shape[1]].flatten(1)
        holds = torch.zeros(len(drawn), len(held)).scatter_(1, drawn, 1.0)
        common = holds @ holds.T / drawn.shape[1]
        worlds = [common[here][:, here] for share in shares.unique(dim=0) if (here := (shares == share).all(1)).any()]
        among = [
            float((world.sum() - world.trace()) / (len(world) * (len(world) - 1))) for world in worlds if len(world) > 1
        ]
        own = self.known.auxiliary if self._own is None else self.known.auxiliary.followed_by(self._own)
        theirs, mine = _contents(held), set(_contents(own))
        known = torch.tensor([row in mine for row in theirs], dtype=torch.float64)
        return {("overlap", None): max(among, default=None), ("duplicates", None): float(known[drawn].mean())}

    def _right(self, guess: PropertyGuess) -> Float[Tensor, " target"]:
        shares = torch.tensor(self.known.shares, dtype=torch.float64)
        return (shares[guess.chosen] == self._truth).double()

    def _figures(self, guess: PropertyGuess) -> tuple[Figures, Each]:
        right = self._right(guess)
        if len(self.known.shares) == 2:
            return _meant({None: right})
        by_share = {f"{share:.0%}": right[self._truth == share] for share in self.known.shares}
        return _meant({None: right, **by_share})

    def _estimates(self, attack: registry.Attack, seed: int) -> tuple[Figures, Each]:
        """Return how good shares and intervals are that an attack estimates, over shares on the whole range."""
        seen = self.learning.train(self.sets.held, self._own, self._spread_truth, self._seed("range"))
        return self._of_estimates(attack(seen.answers, self.known, self._spread, seed))

    @property
    def _spread_truth(self) -> Tensor:
        """The shares of targets that estimates are held against."""
        return torch.linspace(*self.known.within, self.spec.targets, dtype=torch.float64)

    def _of_estimates(self, guess: PropertyGuess) -> tuple[Figures, Each]:
        truth = self._spread_truth
        assert guess.share is not None
        assert guess.low is not None
        assert guess.high is not None
        # Shares are whole rows.
        slack = 0.5 / self.spec.rows
        inside = (guess.low - slack <= truth) & (truth <= guess.high + slack)
        each = {
            "share_error": (guess.share - truth).abs(),
            "coverage": inside.double(),
            "width": guess.high - guess.low,
        }
        return (
            {(metric, None): float(values.mean()) for metric, values in each.items()},
            {(metric, None): values.tolist() for metric, values in each.items()},
        )

    def _gradients(self, part: PlannedPart) -> UnitFigures:
        """Return what gradients of federated training give away instead of the joint model."""
        attack = make_part(registry.attacks.of("pooled"), part.part)
        learner = self.learning.learner
        # Refused otherwise before anything ran.
        assert isinstance(learner, Dense)
        begun = time.perf_counter()
        held, own, truth, rows = self.sets.held, self.sets.own, self._trained, self.spec.rows
        seen = federated(learner, held, own, truth, rows, attack.rounds, attack.rate, self._seed("federated"))
        guess = attack(seen, self.known, self._seed("attack") % 2**31)
        seconds = time.perf_counter() - begun
        figures, each = self._figures(guess)
        return UnitFigures(figures, seconds / self.spec.targets, each=each)

    @cached_property
    def _updates(self) -> Any:
        return self.learning.update(self.sets.held, self._own, self._pairs, self._seed("targets"))

    @property
    def _pairs(self) -> Tensor:
        """Shares of each victim's first and new rows."""
        ends = self.spec.new_shares
        pairs = torch.tensor([[a, b] for a in ends for b in ends], dtype=torch.float64)
        return pairs.repeat(self.spec.targets // 4, 1)

    def _update(self, part: PlannedPart) -> UnitFigures:
        spec = self.spec
        attack = make_part(registry.attacks.of("pooled"), part.part)
        begun = time.perf_counter()
        view, shares = self._updates
        shares = shares[self._order]
        view = replace(view, before=view.before.again(), after=view.after.again())
        low, high = spec.new_shares
        if not getattr(attack, "paired", False):
            before = binary_shadows(self.known, spec.shadows, self._seed("before"))
            after = binary_shadows(replace(self.known, rows=2 * spec.rows), spec.shadows, self._seed("after"))
            guess = attack(view, self.known, before, after, self._seed("attack") % 2**31)
        else:
            two = replace(self.known, shares=(low, high))
            pairs = torch.tensor([[a, b] for a in (low, high) for b in (low, high)], dtype=torch.float64)
            lines = pairs.repeat(-(-spec.shadows // 4), 1)
            before = train_shadows(two, lines[:, :1], self._seed("before"))
            after = train_shadows(two, lines, self._seed("after"))
            guess = attack(view, two, before, after, self._seed("attack") % 2**31)
        seconds = time.perf_counter() - begun
        right = ((guess.chosen == 1) == (shares[:, 1] == high)).double()
        by_pair = {
            pair(a, b): right[(shares[:, 0] == a) & (shares[:, 1] == b)] for a in (low, high) for b in (low, high)
        }
        figures, each = _meant({None: right, **by_pair})
        return UnitFigures(figures, seconds / spec.targets, each=each)


def _meant(right: dict[str | None, Tensor]) -> tuple[Figures, Each]:
    """Return accuracies, and what each is the mean of."""
    accuracies: Figures = {("accuracy", column): float(values.mean()) for column, values in right.items()}
    return accuracies, {("accuracy", column): values.tolist() for column, values in right.items()}


def _contents(rows: MarkedRows) -> list[bytes]:
    """Return what each row holds, the same for equal rows."""
    # A zero more turns -0.0 into 0.0.
    held = torch.cat([rows.inputs.flatten(1).double(), rows.labels[:, None], rows.carries[:, None]], dim=1) + 0.0
    return [row.tobytes() for row in held.numpy()]


def _accuracy(answers: Tensor, labels: Tensor) -> float:
    return float((answers.argmax(2) == labels).double().mean())


def _seed(spec: PooledSpec, source: PooledData, defense: PooledDefense, unit: int, swapped: bool = False) -> AttackSeed:
    learner = source.learner(defense)
    sets = _sets(spec, source.rows(defense), unit)
    learning = PooledLearning(learner, spec.rows, _others(spec), defense.answers, defense.queries)
    asked = spec.queries if defense.queries is None else min(spec.queries, defense.queries)
    own = None if spec.protocol == "single_party" else sets.own
    auxiliary, queries = sets.auxiliary, sets.queries
    if spec.auxiliary_from != "rows":
        even = torch.full((1,), 0.5, dtype=torch.float64)
        answers = learning.train(sets.held, own, even, stream(spec.seed, unit, "asked") % 2**62).answers
        auxiliary = synthesised(spec.auxiliary_from, answers, auxiliary, stream(spec.seed, unit, "made") % 2**62)
        queries = auxiliary.rows(torch.arange(spec.queries))
    known = PooledKnowledge(
        learner,
        auxiliary,
        queries.inputs[:asked],
        own,
        spec.rows,
        spec.shares,
        _others(spec),
        defense.answers,
    )
    return AttackSeed(spec, unit, defense, learning, sets, known, swapped)


def _derived(spec: PooledSpec) -> dict[str, Callable[[float], float | None]]:
    if len(spec.shares) != 2:
        return {}
    first, second = spec.shares
    return {"rows_worth": partial(rows_worth, first=first, second=second)}


def _threat_model(spec: PooledSpec, source: PooledData) -> tuple[str, ...]:
    recipe = source.learner(PooledDefense()).describe()
    role = {
        "multi_party": f"a party, which put {spec.rows:,} rows of its own into the pool ({spec.own_share:.0%} of them "
        "with the attribute)",
        "single_party": "a client of the model, which put no rows into it",
        "update": f"a party with {spec.rows:,} rows of its own, which sees the model before and after new rows came in",
    }[spec.protocol]
    further = f", and {spec.parties - 2} further parties with as many rows, half of them with it" * (spec.parties > 2)
    shown = spec.keep and recipe["model"] != "lstm"
    trained = "are trained on the column, too" if shown else "are not trained on the column"
    kind = {
        "lr": "logistic regressions",
        "mlp": f"networks with hidden layers {spec.hidden}",
        "lstm": "recurrent networks that read texts in both directions",
        "gcn": "graph convolutional networks on what edges there are between the nodes trained on",
    }[str(recipe["model"])]
    size = recipe.get("batch_size")
    held = {
        "rows": f"{spec.auxiliary:,} auxiliary rows of the same kind with the attribute known",
        "marginals": "the marginals of all columns, of which it makes up rows that a joint model labels",
        "answers": "the marginals of all columns, of which it makes up rows that a joint model is sure of",
    }[spec.auxiliary_from]
    return (
        f"The attacker is {role}. It sees the joint model's answers to {spec.queries:,} queries; attacks called "
        "white_box and deep_sets see the model itself.",
        f"It is granted the training recipe and {held}, and knows the defense.",
        f"The secret is the share of {source.sensitive!r} in the {spec.rows:,} rows of another party{further}: one of "
        f"{', '.join(f'{share:.0%}' for share in spec.shares)}.",
        f"Pooled learning on {source.name}, {source.extent}: the computation is ideal and gives away nothing but the "
        f"model's answers. Models are {kind} and {trained}; {recipe['epochs']} epochs of Adam at "
        f"{recipe['learning_rate']:g}, {'whole batches' if size is None else f'batches of {size}'}.",
        f"In each of {spec.repetitions} attack seed(s) from seed {spec.seed}, {spec.targets} joint models are attacked "
        f"with {spec.shadows} shadow models; intervals are Student's t over attack seeds.",
        f"{SHUFFLED!r} is the attack with shadow models whose shares are shuffled; anything but the baseline is a "
        "fault.",
    )


def deployment(spec: PooledSpec) -> Deployment:
    """Return what a deployment of pooled learning shows and grants a party."""
    updated = spec.protocol == "update"
    reveals = PooledLearning.reveals_updates if updated else PooledLearning.reveals
    if spec.protocol == "single_party":
        # Whoever puts no rows into the pool takes no part in training.
        reveals = tuple(view for view in reveals if view is not GradientsView)
    known = granted({"auxiliary": spec.auxiliary, "queries": spec.queries})
    return Deployment("pooled", spec.protocol, reveals, known, None, mechanisms("pooled", spec.defenses))
