"""Pooled learning: a party reads the distribution of a sensitive column in another's rows from the joint model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save

from seepage.assessment import rows_worth
from seepage.attacks.pooled.parts.shadows import halved
from seepage.datasets import Dataset
from seepage.datasets.coins import SIDES, with_coins
from seepage.datasets.dataset import some_rows
from seepage.digests import Json, digest_of, plain
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.protocols.pooled import PooledLearning
from seepage.settings.lever import Lever
from seepage.settings.part import NONE, Part
from seepage.settings.pooled.data import PooledData, pooled_data
from seepage.settings.pooled.parts import PooledDefense, defense_of, estimates_shares, views_of
from seepage.settings.pooled.seed import SHUFFLED, AttackSeed, attack_seed, others_of, sets_of
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.setting import About, Configuration, Exposure, PlannedPart, Scale, Trials
from seepage.settings.spec import Spec
from seepage.settings.threat_model import Deployment, granted, mechanisms, refuse_inapplicable
from seepage.settings.units import UnitsAudit, UnitsExposure, planned, rehearsed_exposure, with_fields
from seepage.tabular.schema import Discrete
from seepage.text import how_many
from seepage.wire.pooled import GradientsView, ModelView, PooledKnowledge, UpdatedView

# Greatest number of parties of a pool.
_MOST_PARTIES = 10
_TRAINING = Part(name="training")
# Shares that are no rates of leakage.
_NO_LEAK = ("local_accuracy", "overlap", "duplicates", "coverage", "width")
# Folder of a run with the drawn rows.
DRAWN = "drawn_rows"
# Enough to tell shares that are far apart, few enough to train on in seconds.
_CONTROL_ROWS = 7_200
_CONTROL_ROWS_OF_A_PARTY = 150
_LEAST_ROWS_OF_A_PARTY = 40
# Sizes that are fitted to the rows where they are not given, and the least number of rows to train on.
_SIZES = ("rows", "auxiliary", "queries")
_LEAST_ROWS = 10
# A party's rows shrink to this share until they fit, and once more by the second, so that parties differ in their rows.
_SMALLER = 0.85
_APART = 0.7


class PooledAudit(UnitsAudit[PooledSpec, PooledDefense]):
    """An audit of pooled learning; a unit is an attack seed, with all target models in it."""

    setting = "pooled"
    # Files are identified by the rows that were read from them.
    ignored = frozenset({*Spec.model_fields, "repetitions", "text_column", "nodes", "edges", "node_column"}) - {
        *("dataset_options", "sensitive", "seed", "threads")
    }

    def _set_up(self, spec: PooledSpec, dataset: Dataset | None) -> None:
        self.defenses = {part.title: defense_of(part) for part in spec.defenses}
        source = pooled_data(spec, dataset)
        self.spec = spec = _fitted(spec, source)
        self.source = source = replace(source, spec=spec)
        self.dataset, self.rows = source.table, source.identity
        refuse_inapplicable(spec.attacks, deployment(spec))
        _check(spec, source, self.defenses)
        update = spec.protocol == "update"
        shuffled = [] if update else [Part(name=SHUFFLED)]
        self.parts = planned([_TRAINING, *shuffled], spec.baselines, spec.attacks)
        self.configurations = tuple(Configuration(label, spec.batch_size) for label in self.defenses)
        mechanisms = {part.title: [m for m in part.mechanisms if m.name != NONE] for part in spec.defenses}
        self._defense_options = {label: {m.name: plain(m.options) for m in used} for label, used in mechanisms.items()}
        self._forecast: dict[bool, float | None] = {}
        self.about = self._about()

    def _about(self) -> About:
        spec, source = self.spec, self.source
        named = f"the share of {source.value!r} in {source.sensitive!r} is asked for; --value names another one"
        return About(
            dataset=source.name,
            protocol=spec.protocol,
            model=str(source.learner(PooledDefense()).describe()["model"]),
            lead="What the answers of a jointly trained model give away of how a sensitive column is distributed in "
            "another party's data.",
            attacker="A party",
            sender="Another party",
            secret="shares of a sensitive column",
            message="the joint model",
            trials=Trials(_tells(spec, source), spec.targets),
            control="The target follows the planted column, so answers differ with its share and a working attack "
            "distinguishes nearly all shares.",
            threat_model=_threat_model(spec, source),
            notes=(*source.notes, *([named] if spec.value is None and source.value is not None else [])),
            rows=source.count,
            target=source.target,
            columns=spec.scored_columns,
            sensitive=(source.sensitive,),
            scales={
                **dict.fromkeys(("loss", "epsilon"), Scale(None)),
                **dict.fromkeys(_NO_LEAK, Scale(None, 0.0, 1.0)),
                "rows_worth": Scale(True),
                "share_error": Scale(False, 0.0, 1.0),
            },
            # Computed from all attack seeds together: a mean over seeds differs, and a seed with perfect answers has no
            # value.
            derived=_derived(spec),
            of_nothing=(SHUFFLED,),
            utility=("task_accuracy",),
            settings={"hidden": list(spec.hidden), "epochs": spec.epochs, "shares": list(spec.shares)},
        )

    @property
    def origin(self) -> Mapping[str, Json]:
        """Digests of the rows that distinguish them from others."""
        source = self.source
        rows = {"name": source.name, "rows": source.count, "notes": list(source.notes)}
        return {"dataset": {**rows, "digest": digest_of({"rows": source.identity})}}

    def expose(self, configuration: Configuration, units: range) -> UnitsExposure:
        """Return attack seeds of a configuration; models are trained by the first part that needs them."""
        return UnitsExposure(self.about, [self._seed(configuration, unit) for unit in units])

    def _seed(self, configuration: Configuration, unit: int) -> AttackSeed:
        seed = attack_seed(self.spec, self.source, self.defenses[configuration.defense], unit)
        return seed.swapped() if self.swapped else seed

    def forecast(self, configuration: Configuration) -> float | None:
        """Return the seconds of an attack seed with all its parts; training with DP-SGD has a forecast of its own."""
        private = self.defenses[configuration.defense].training is not None
        if private not in self._forecast:
            self._forecast[private] = self._rehearsed(configuration)
        return self._forecast[private]

    def _rehearsed(self, configuration: Configuration) -> float | None:
        spec = self.spec
        worlds = 4 if spec.protocol == "update" else len(spec.shares)
        # Attacks with intervals take 20 shadow models at least, in pairs from two halves.
        least = 5 * math.lcm(4, len(spec.shares)) if estimates_shares(spec) else 2 * len(spec.shares)
        if 4 * worlds > spec.targets or 2 * least > spec.shadows:
            return None

        def expose(size: int) -> Exposure:
            small = with_fields(spec, {"targets": size * worlds, "shadows": size * least})
            return UnitsExposure(self.about, [attack_seed(small, self.source, self.defenses[configuration.defense], 0)])

        return rehearsed_exposure(expose, self.parts, (spec.targets + spec.shadows) / (worlds + least))

    def granted(self, configuration: Configuration, part: PlannedPart) -> Mapping[str, Json]:
        """Return the side information of an attacker, for results."""
        if part.kind != "attack":
            return {}
        spec = self.spec
        auxiliary = spec.auxiliary if spec.auxiliary_from == "rows" else f"made up from {spec.auxiliary_from}"
        sees = views_of(part.part)
        if GradientsView in sees:
            gradients = {"sees": "the victim's gradients in federated training", "queries": 0}
            return {**gradients, "auxiliary": auxiliary, "own rows": spec.rows, "training": "known"}
        models = ModelView in sees
        limit = self.defenses[configuration.defense].queries
        return {
            "sees": "the joint models" if models else "answers to its queries",
            "queries": 0 if models else spec.queries if limit is None else min(limit, spec.queries),
            "auxiliary": auxiliary,
            "own rows": 0 if spec.protocol == "single_party" else spec.rows,
            "training": "known",
            "defense": self._defense_options[configuration.defense],
        }

    def levers(self) -> tuple[Lever, ...]:
        """Return coarser answers, fewer of them, differentially private training and more parties."""
        spec = self.spec
        # An update, and rows of groups, have two parties.
        pools = spec.protocol != "update" and spec.group is None and spec.parties < _MOST_PARTIES
        return (
            Lever("rounded_answers", 4, 1, True, strengths=(("digits",),)),
            Lever("label_only", 1, 1),
            *([Lever("query_limit", spec.queries, 1, True, strengths=(("queries",),))] if spec.queries > 1 else []),
            Lever("dp_training", 0.01, 100.0, options={"clip": 1.0}, strengths=(("noise_multiplier",),)),
            *([Lever("parties", spec.parties, _MOST_PARTIES, True, spec_field="parties")] if pools else []),
        )

    @property
    def too_small_for_control(self) -> bool:
        """Whether the table has too few rows for the control; for texts and graphs there is none."""
        return self.dataset is not None and self._control_rows(self.dataset) < _LEAST_ROWS_OF_A_PARTY

    def _control_rows(self, dataset: Dataset) -> int:
        """Return the number of rows of a party of the control."""
        # A victim of an update draws twice, and an attack may halve the auxiliary rows: nine tenths of one kind each.
        most = _CONTROL_ROWS_OF_A_PARTY * (2 if self.spec.protocol == "update" else 1)
        return min(most, min(len(dataset.all), _CONTROL_ROWS) // 16)

    def planted(self, swapped: bool) -> PooledAudit | None:
        """Return a control: the share of heads in a column of coins, which labels follow; None for too few rows."""
        spec = self.spec
        if self.dataset is None or self.too_small_for_control:
            return None
        update = spec.protocol == "update"
        planted = with_coins(some_rows(self.dataset, _CONTROL_ROWS, spec.seed), 1, spec.seed, strength=0.9)
        rows = self._control_rows(self.dataset)
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
        }
        return self.control_on(planted, changed, swapped)

    def save(self, folder: Path) -> None:
        """Keep the rows that victims and further parties of each target model draw, where records are to be kept.

        There is one file for an attack seed: the pool (``inputs`` as models take them, ``labels``, ``carries``: whether
        a row has the attribute) and ``drawn``, positions in it (target, part, row).
        """
        if not self.spec.keep_records:
            return
        for configuration in self.configurations:
            # Rows are drawn alike under all defenses that train on the same columns.
            for seed in [self._seed(configuration, unit) for unit in range(self.units)]:
                tensors = {name: tensor.contiguous() for name, tensor in seed.drawn().items()}
                place = folder / DRAWN / f"{configuration.defense}-{seed.unit}.safetensors"
                write_whole(place, save(tensors), self.own)


def _fitted(spec: PooledSpec, source: PooledData) -> PooledSpec:
    """Return a spec whose numbers of rows fit the table: the usual ones, or smaller in the same proportions."""
    left = [name for name in _SIZES if name not in spec.model_fields_set]
    usual = {name: getattr(spec, name) for name in left}
    rows = source.rows(defense_of(spec.defenses[0]))

    def smaller(share: float) -> PooledSpec:
        sizes = {name: max(_LEAST_ROWS, int(share * size)) for name, size in usual.items()}
        if "queries" in sizes and not spec.apart:
            sizes["queries"] = min(sizes["queries"], sizes.get("auxiliary", spec.auxiliary))
        return with_fields(spec, sizes)

    share, refused = 1.0, None
    while share * max(usual.values(), default=0) >= _LEAST_ROWS:
        try:
            _check_rows(smaller(share), source)
        except BadInputError as error:
            refused = refused or error
            # No smaller numbers were left to choose.
            if not left:
                raise
            share *= _SMALLER
            continue
        return spec if refused is None else smaller(share * _APART)
    if not left:
        _check_rows(spec, source)
        return spec
    carrying = int(rows.carries.sum())
    raise BadInputError(
        f"{carrying:,} of {len(rows):,} rows of {source.name!r} carry the attribute of {source.sensitive!r} and "
        f"{len(rows) - carrying:,} do not, which is too few for parties of {_LEAST_ROWS} rows each; choose a column or "
        "value that more rows carry, or more rows."
    ) from refused


def _check(spec: PooledSpec, source: PooledData, defenses: dict[str, PooledDefense]) -> None:
    """Refuse, before training, settings that would fail after it."""
    if spec.shadows % 4 and estimates_shares(spec):
        raise BadInputError(
            f"attacks that estimate a share train shadow models in pairs from two halves of the auxiliary rows; got "
            f"{spec.shadows}, give a multiple of 4."
        )
    defended = any(part.name != NONE for part in spec.defenses)
    if spec.parties > 2 or defended:
        for part in spec.attacks:
            if GradientsView in views_of(part):
                raise BadInputError(
                    f"the attack {part.title} is on another's gradients in federated training of two parties, which "
                    "defenses of a joint model do not reach; leave out further parties and defenses, or the attack."
                )
    for defense in defenses.values():
        if defense.queries is not None and spec.auxiliary_from != "rows":
            raise BadInputError(
                "auxiliary rows that are made up take many queries, so that a limit of queries is not audited with "
                "them; leave it out, or grant real rows (auxiliary_from: rows)."
            )
        if defense.queries is not None and any(UpdatedView in views_of(part) for part in spec.attacks):
            raise BadInputError("a limit of queries is not audited for updates; leave it out.")


def _check_rows(spec: PooledSpec, source: PooledData) -> None:
    """Refuse, as bad input, more rows than there are."""
    sets = sets_of(spec, source.rows(defense_of(spec.defenses[0])), 0)
    # Parts of one model are drawn without replacement; what is needed most decides.
    shares = [*spec.shares, *(PooledKnowledge.within if estimates_shares(spec) else ())]
    wanted = torch.tensor([[share, *others_of(spec)] for share in shares], dtype=torch.float64)
    if spec.protocol == "update":
        wanted = torch.tensor([[a, b] for a in spec.new_shares for b in spec.new_shares], dtype=torch.float64)
    needs = [(sets.held, "victims' rows"), (sets.auxiliary, "auxiliary rows")]
    if estimates_shares(spec):
        halves = halved(sets.auxiliary, torch.Generator().manual_seed(0))
        needs[1:] = [(sets.auxiliary.rows(half), "each half of the auxiliary rows") for half in halves]
    for rows, who in needs:
        try:
            rows.drawn(wanted, spec.rows, torch.Generator().manual_seed(0))
        except BadInputError as error:
            raise BadInputError(f"{who} of {source.name!r}: {error}") from error


def _tells(spec: PooledSpec, source: PooledData) -> str:
    """Return what a right answer of the attacker means, as a verb phrase."""
    update = spec.protocol == "update"
    *others, last = (f"{share:.0%}" for share in (spec.new_shares if update else spec.shares))
    return f"tells whether {', '.join(others)} or {last} of the {'new ' if update else ''}rows {_carry(source)}"


def _carry(source: PooledData) -> str:
    """Return what rows with the sensitive attribute have, as a verb phrase."""
    name, value = source.sensitive, source.value
    schema = None if source.table is None else source.table.schema
    if schema is not None and name in schema.names and not isinstance(schema.column(name), Discrete):
        return f"lie above {'the median of' if value is None else f'{value:g} in'} {name!r}"
    return f"carry {name!r}" if value is None else f"have {value!r} in {name!r}"


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
    auxiliary = {
        "rows": f"{spec.auxiliary:,} auxiliary rows of the same kind with the attribute known",
        "marginals": "the marginals of all columns, of which it makes up rows that a joint model labels",
        "answers": "the marginals of all columns, of which it makes up rows that a joint model is sure of",
    }[spec.auxiliary_from]
    return (
        f"The attacker is {role}. It sees the joint model's answers to {spec.queries:,} queries; attacks called "
        "white_box and deep_sets see the model itself.",
        f"It is granted the training recipe and {auxiliary}, and knows the defense.",
        f"The secret is the share of {source.sensitive!r} in the {spec.rows:,} rows of another party{further}: one of "
        f"{', '.join(f'{share:.0%}' for share in spec.shares)}.",
        f"Pooled learning on {source.name}, {source.extent}: the computation is ideal and gives away nothing but the "
        f"model's answers. Models are {kind} and {trained}; {recipe['epochs']} epochs of Adam at "
        f"{recipe['learning_rate']:g}, {'whole batches' if size is None else f'batches of {size}'}.",
        f"In each of {how_many(spec.repetitions, 'attack seed')} from seed {spec.seed}, {spec.targets} joint models "
        f"are attacked with {spec.shadows} shadow models; intervals are over attack seeds.",
        f"{SHUFFLED!r} is the attack with shadow models whose shares are shuffled; anything but the baseline is a "
        "fault.",
    )


def deployment(spec: PooledSpec) -> Deployment:
    """Return the threat model of a spec: views and side information of a party."""
    updated = spec.protocol == "update"
    reveals = PooledLearning.reveals_updates if updated else PooledLearning.reveals
    if spec.protocol == "single_party":
        # Whoever puts no rows into the pool takes no part in training.
        reveals = tuple(view for view in reveals if view is not GradientsView)
    grants = granted({"auxiliary": spec.auxiliary, "queries": spec.queries})
    return Deployment("pooled", spec.protocol, reveals, grants, None, mechanisms("pooled", spec.defenses))
