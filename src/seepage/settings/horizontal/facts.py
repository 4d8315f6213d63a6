"""Sentences on the threat model of an audit of horizontal learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seepage.models.wrapping import returns_chances
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.horizontal.subject import Subject
from seepage.settings.horizontal.training import Learnt
from seepage.tabular.encoder import Encoder
from seepage.tabular.rank import batch_rank, rank_ceiling
from seepage.text import as_sentence, clean, how_many, listed, percent

# Ranks within these bounds take a second; beyond them they are left out.
_WIDEST_RANKED = 500
_LARGEST_RANKED = 1024
_RANKED_BATCHES = 30
# Layers that a sentence names.
_PLACES = 2
_LABELS = {
    "true": "the true labels, in no particular order",
    "ordered": "the true labels in the order in which the client goes through its records, so who is in which batch",
    "restored": "no labels: it restores them from what it sees",
}


def threat_model(
    spec: HorizontalSpec,
    subject: Subject,
    granted: Mapping[str, Mapping[str, object]],
    together: Sequence[int],
    batches: Mapping[int, int | None],
) -> tuple[str, ...]:
    """Return the threat model and the set-up, a sentence each, from an attacker's knowledge by the defense's label.

    Args:
        together: numbers of records that messages are about.
        batches: number of disjoint batches by their number of records; None where victims are independent.
    """
    first = next(iter(granted.values()), None)
    sees = "what clients send" if first is None else clean(first["sees"], 300)
    crafted = subject.model.crafted
    kind = f"an active, malicious server that {crafted}; it" if crafted else "an honest-but-curious server that"
    facts = [f"the attacker is {kind} sees {sees}, and the model"]
    if first is not None:
        named = {name: first[name] for name in first if name not in ("sees", "labels", "batch_size", "defense")}
        knows = ", ".join(f"{clean(name, 40).replace('_', ' ')} ({clean(named[name], 80)})" for name in named)
        facts.append(f"it is granted: {knows}, batch size; {_LABELS[str(first['labels'])]}")
        known = [knowledge.get("defense", "none") for label, knowledge in granted.items() if label != "none"]
        if defenses := [words for words in map(_described, known) if words != "none"]:
            facts.append(f"it knows how updates were defended: {clean(', '.join(defenses), 400)}")
    if subject.learnt is not None:
        facts.append(_of_training(subject.learnt))
    if returns_chances(subject.model.module):
        facts.append(
            "the network returns chances, as of a sigmoid: clients train it as with nn.BCELoss, attacks take its logits"
        )
    if places := subject.model.switched_off:
        facts.append(
            f"clients train without dropout, by choice (dropout: off): the network drops values ({_listing(places)}); "
            "for clients that do, figures are others"
        )
    if drops := subject.model.drops:
        rates = sorted({place.rate for place in drops.places})
        facts.append(
            f"clients drop values in training ({', '.join(f'{rate:g}' for rate in rates)}) by masks that they draw "
            "anew in each step and send to nobody; attacks have to find them, or to do without"
        )
    if frozen := subject.model.frozen:
        sizes = [sum(part.numel() for part in parts.values()) for parts in (frozen, subject.model.parameters)]
        facts.append(
            f"{sizes[0]:,} of {sum(sizes):,} parameters are frozen ({_listing(list(frozen))}): no message holds "
            "anything of them"
        )
    if spec.profile != "default":
        facts.append(f"attacks as in the official implementations (profile {spec.profile}), not the strongest known")
    facts += _rank(spec, subject, together)
    dataset = subject.dataset
    of = "batch" if spec.attacked_rounds == 1 else f"client with its records in {spec.attacked_rounds} rounds"
    drawn = "with replacement" if spec.replacement else "without replacement"
    facts += [
        f"protocol {clean(spec.protocol)}, model {clean(subject.model.name)}, {dataset.extent}, "
        f"{len(dataset.schema.columns)} columns, target {clean(dataset.schema.target.name)}",
        f"one victim is one {of}, drawn at random from the client's rows {drawn}; "
        f"{how_many(spec.victims, 'victim')} asked for in each configuration, seed {spec.seed}",
        *_disjoint(batches),
        "baselines hold the same knowledge as the attacker and never see the gradient",
    ]
    return tuple(map(as_sentence, facts))


def _disjoint(batches: Mapping[int, int | None]) -> list[str]:
    """Return that batches of a small table share no row, as a sentence; none where victims are independent."""
    known = {records: number for records, number in batches.items() if number is not None}
    if not known:
        return []
    split = listed([f"{number} batches of {how_many(records, 'record')}" for records, number in known.items()])
    return [f"no row is in two batches: the table is split into {split}, and intervals are over all of these"]


def _rank(spec: HorizontalSpec, subject: Subject, together: Sequence[int]) -> list[str]:
    """Return how many records linear algebra can separate in what is sent of layers that take whole rows."""
    dataset = subject.dataset
    encoder, cells = Encoder(dataset.schema, dataset.statistics), dataset.train.cells.cpu()
    # What is sent of a layer that takes whole rows: a gradient of so many rows has no higher rank.
    matrices = [
        part for part in subject.model.parameters.values() if part.dim() == 2 and part.shape[1] == encoder.width
    ]
    if encoder.width > _WIDEST_RANKED or not matrices:
        return []
    units = max(len(part) for part in matrices)
    drawn = (spec.seed, _RANKED_BATCHES, spec.replacement)
    sizes = [size for size in together if size <= _LARGEST_RANKED]
    ranks = {size: min(units, batch_rank(encoder, cells, size, *drawn)) for size in sizes}
    parts = [f"all {size}" if ranks[size] >= size else f"on average {ranks[size]:.3g} of {size}" for size in sizes]
    ceiling = min(units, rank_ceiling(encoder, cells))
    most = f"at most {how_many(ceiling, 'record')}"
    which = f"{listed(parts)} records of a batch" if parts else most
    beyond = f" ({most} of any)" if parts and max(sizes) < ceiling else ""
    return [f"from the first layer alone, {which} can be separated{beyond}"]


def _of_training(learnt: Learnt) -> str:
    """Return how the network was trained before the attack, and its quality."""
    done, rows = learnt.training, f"{learnt.test_rows:,} rows held out"
    if learnt.metric == "model_accuracy":
        does = f"predicts {percent(learnt.value)} of {rows} (guessing {percent(learnt.guess)})"
    else:
        does = f"errs by {learnt.value:.4g} (RMSE) on {rows} (guessing {learnt.guess:.4g})"
    attacked = f"; it is attacked in {done.attacked_rounds:,} rounds from there on, the last time when it"
    return (
        f"the network was trained before, in {how_many(done.rounds, 'round')} of {done.clients:,} clients with "
        f"{learnt.records:,} records each at a learning rate of {done.learning_rate:g}"
        f"{attacked if done.attacked_rounds > 1 else ', and'} {does}"
    )


def _listing(places: Sequence[str]) -> str:
    more = [f"{len(places) - _PLACES} more"] if len(places) > _PLACES else []
    return listed([clean(place, 80) for place in places[:_PLACES]] + more)


def _described(what: object) -> str:
    if not isinstance(what, Mapping):
        return str(what)
    name, arguments = what.get("name", "defense"), ", ".join(f"{key}={what[key]}" for key in what if key != "name")
    return f"{name}({arguments})" if arguments else str(name)
