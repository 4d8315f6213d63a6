"""Rows of results for the task: its quality and privacy under each defense of an audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, cast

from seepage import protocols, registry
from seepage.assessment.empirical_epsilon import message_epsilon
from seepage.assessment.row import ResultRow
from seepage.assessment.utility import Recipe, TooFewRowsError, held_out, measure_utility, privacy_row, utility_row
from seepage.defenses import AnyDefense, RecordDefense
from seepage.defenses.accounting import Planned, Private, gaussian_epsilon
from seepage.devices import find_device, threads
from seepage.digests import Json, arguments_of, plain
from seepage.errors import BadInputError, NotFiniteError
from seepage.learning import LocalTraining
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.protocols.clients import Clients
from seepage.protocols.fedavg import FedAvg
from seepage.seeds import stream
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.horizontal.subject import Subject
from seepage.settings.part import Part, make_part, source_of
from seepage.settings.setting import Cache
from seepage.sources import own_code
from seepage.wire.horizontal import View

# Records beside a canary: few are enough.
_CANARY_BATCH = 8


def defense_of(part: Part) -> AnyDefense:
    """Return a defense ready to use; refuse one that transforms neither messages nor the gradients of records."""
    defense = make_part(registry.defenses.of("horizontal"), part)
    if not isinstance(defense, AnyDefense):
        raise BadInputError(
            f"a defense of horizontal learning is called with updates and seeds, or returns gradients of records, and "
            f"describes itself (see Defense and RecordDefense in seepage.defenses); got {part.title!r}."
        )
    return defense


def protocol_of(spec: HorizontalSpec, batch_size: int, defense: AnyDefense) -> Clients[View]:
    """Return the protocol of a spec at a batch size, under a defense."""
    options = {**spec.protocol_options, "replacement": spec.replacement}
    return protocols.create(spec.protocol, batch_size=batch_size, defense=defense, **options)


def planned_protocol(
    spec: HorizontalSpec, subject: Subject, batch_size: int, part: Part, recipe: Recipe | None = None
) -> Clients[View]:
    """Return the protocol of a spec under a defense, whose noise suits the training where an epsilon is given.

    The training is that which measures the task: ``recipe``, or the usual one if None.

    Raises:
        BadInputError: no noise that is tried guarantees the epsilon, or there are too few rows to train on.
    """
    defense = defense_of(part)
    protocol = protocol_of(spec, batch_size, defense)
    if not isinstance(defense, Planned):
        return protocol
    recipe, local = recipe or Recipe(), local_training(protocol)
    records = batch_size * _clients(subject, protocol, recipe)
    rows = len(held_out(subject.dataset, recipe, records, spec.seed)[0])
    steps, delta = recipe.steps(subject.model, rows, records, local), recipe.delta_of(rows)
    planned = defense.for_training(records / rows, steps, delta, 1 if local is None else local.epochs)
    return protocol_of(spec, batch_size, cast("AnyDefense", planned))


def local_training(protocol: Clients[View]) -> LocalTraining | None:
    """Return the local training of a protocol's clients; None where they send gradients."""
    return protocol.training if isinstance(protocol, FedAvg) else None


def _clients(subject: Subject, protocol: Clients[View], recipe: Recipe) -> int:
    """Return the number of clients in a step of the training."""
    # What is held out to test leaves fewer rows than a victim is drawn from.
    rows = int(len(subject.dataset.train) * (1 - recipe.test_share))
    return max(1, min(protocol.clients, rows // protocol.batch_size))


def task_rows(
    spec: HorizontalSpec,
    subject: Subject,
    cache: Cache,
    say: Callable[[str], None],
    recipe: Recipe | None = None,
    train: bool = True,
) -> list[ResultRow]:
    """Return a row of results for the task under each defense, at each batch size; under DP a second one with epsilon.

    Training takes seconds, so it is done only where a defense is swept or a recipe is given, and once for all
    attacks and audits that share table, model, batch size, defense and recipe; never if not ``train``.
    """
    if recipe is None and all(part.name == "none" for part in spec.defenses):
        return []
    taught = recipe or Recipe()
    settings = [(size, part) for size in spec.batch_sizes for part in spec.defenses]
    rows = [_row(spec, subject, size, part, cache, say, taught, train) for size, part in settings]
    trained = [row for row in rows if row is not None]
    further = [(task, privacy_row(task), canary_row(spec, subject, task, cache)) for task in trained]
    return [row for rows_of_task in further for row in rows_of_task if row is not None]


def canary_row(spec: HorizontalSpec, subject: Subject, task: ResultRow, cache: Cache) -> ResultRow | None:
    """Return the row with the empirical epsilon of one message under a defense; None where it guarantees nothing.

    ``low`` is the lower bound, measured on the defense's own code, and ``accounted`` in ``settings`` the closed form of
    the epsilon of one message, which it must not exceed.
    """
    privacy = task.settings["privacy"]
    part = next(part for part in spec.defenses if part.title == task.defense)
    if privacy is None or task.batch_size is None:
        return None
    defense = planned_protocol(spec, subject, task.batch_size, part).defense
    bound = None if defense is None else defense.describe().record_norm
    if bound is None or not isinstance(defense, RecordDefense):
        return None
    guarantee = defense.guarantee(1.0, 1, privacy["delta"]) if isinstance(defense, Private) else None
    if guarantee is None:
        return None
    origin = {
        "canaries": {"delta": privacy["delta"], "batch_size": task.batch_size},
        "code": own_code(),
        "defense": {"name": part.name, **arguments_of(defense)},
        "defense_source": source_of(registry.defenses.of("horizontal"), part),
        "seed": spec.seed,
    }

    def measure() -> dict[str, Json]:
        size = max(2, min(_CANARY_BATCH, task.batch_size or _CANARY_BATCH))
        # The accountant counts normal noise, and so does the closed form beside it.
        options = {"batch_size": size, "seed": spec.seed}
        return asdict(message_epsilon(defense.gradient, bound, privacy["delta"], **options, bound="gaussian"))

    epsilon = cache(origin, measure)
    if epsilon is None:
        return None
    none: dict[str, Any] = dict.fromkeys(
        ("std", "baseline", "baseline_name", "lift", "lift_low", "lift_high", "lift_std")
    )
    accounted = gaussian_epsilon(1 / guarantee.noise_multiplier, privacy["delta"])
    interval = {"mean": epsilon["epsilon"], "low": epsilon["low"], "high": epsilon["high"], "n": epsilon["canaries"]}
    settings = {**epsilon, "accounted": accounted}
    return replace(task, metric="empirical_epsilon", **interval, **none, status="ok", settings=settings)


def learnt_rows(spec: HorizontalSpec, subject: Subject) -> list[ResultRow]:
    """Return the row with the quality of the attacked network, where it was trained before; it has no interval."""
    learnt = subject.learnt
    if learnt is None:
        return []
    is_rate = learnt.metric == "model_accuracy"
    gained = (learnt.value - learnt.guess) * (1 if is_rate else -1)
    names = {"dataset": subject.dataset.name, "protocol": spec.protocol, "model": subject.model.name}
    figure: dict[str, Any] = {"attack": "none", "metric": learnt.metric, "mean": learnt.value, "n": 1, "kind": "about"}
    figure |= {"baseline": learnt.guess, "baseline_name": "majority_class" if is_rate else "mean", "lift": gained}
    settings = {**learnt.training.model_dump(), "records": learnt.records, "test_rows": learnt.test_rows}
    return [ResultRow(**names, **figure, variant=spec.variant, seed=spec.seed, settings=settings)]


def _row(
    spec: HorizontalSpec,
    subject: Subject,
    batch_size: int,
    part: Part,
    cache: Cache,
    say: Callable[[str], None],
    recipe: Recipe,
    missing: bool,
) -> ResultRow | None:
    protocol = planned_protocol(spec, subject, batch_size, part)
    defense, clients, local = protocol.defense, _clients(subject, protocol, recipe), local_training(protocol)
    shuffle = isinstance(protocol, FedAvg) and protocol.shuffle

    def fresh(replica: int) -> Model:
        seed = stream(spec.seed, replica, "initialisation")
        form = {"head": spec.head, "options": spec.model_options, "dropout": spec.dropout}
        table = (subject.dataset.schema, subject.dataset.statistics)
        network = make_model(spec.model, *table, seed=seed, device=find_device(spec.device), **form)[0]
        return replace(network, form=subject.model.form)

    def train() -> dict[str, Json]:
        say(f"training at batch size {batch_size}, {part.title}")
        with threads(spec.threads):
            network = (subject.dataset, subject.model, subject.encoder)
            training = (defense, recipe, spec.seed, fresh, local, shuffle, clients)
            utility = measure_utility(*network, batch_size, *training)
        names = {"dataset": subject.dataset.name, "protocol": spec.protocol, "model": subject.model.name}
        row = utility_row(utility, **names, batch_size=batch_size, defense=part.title, seed=spec.seed)
        return row.as_dict()

    origin = {
        "task": plain(recipe),
        "code": own_code(),
        "rows": subject.rows_digest,
        "model": subject.model_digest,
        "protocol": {"name": spec.protocol, "local": plain(local), "shuffle": shuffle, "clients": clients},
        "batch_size": batch_size,
        "defense": {"name": part.name, **arguments_of(defense)},
        "defense_source": source_of(registry.defenses.of("horizontal"), part),
        "seed": spec.seed,
        "threads": spec.threads,
    }
    # Another label for the same defense is no other training.
    try:
        row = cache(origin, train if missing else None)
    except (NotFiniteError, TooFewRowsError) as error:
        # Attacks on messages that are not finite fail alike, are recorded and stop no other. Where there are too few
        # rows to train on, the attacks are done and stay.
        say(f"no training at batch size {batch_size}, {part.title}: {error}")
        return None
    return None if row is None else replace(ResultRow.from_dict(row), defense=part.title, variant=spec.variant)
