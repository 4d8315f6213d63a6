"""The guard of a client's updates: exact attacks on each, within a time limit, and a policy."""

from __future__ import annotations

import copy
import json
import math
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from seepage import models
from seepage.attacks.horizontal.exact.chains import affine_layers
from seepage.attacks.horizontal.exact.record_count import count_records
from seepage.attacks.horizontal.exact.spans import ROUNDINGS
from seepage.attacks.horizontal.matching.reconstruct import as_gradient
from seepage.captures.captured import Capture, Description, attacker_statistics
from seepage.errors import BadInputError, positive
from seepage.files import PRIVATE
from seepage.guard.beside import counted_records
from seepage.guard.finding import Answer, Decision, GuardFinding, Proof
from seepage.guard.own_rows import Matches, OwnRows, Rows, compare_with_records, compare_with_span, divides_out
from seepage.guard.policy import GuardPolicy
from seepage.guard.received import signs_of_crafting
from seepage.learning import LocalTraining, gradient, local_update
from seepage.models.making import make_model
from seepage.models.model import Head, Model
from seepage.models.own import load_own
from seepage.models.states import State, as_state, changes, common_prefix, is_buffer, state_digest
from seepage.protocols.recipe import MOST_RECORDS, MessageRecipe
from seepage.registry import attacks
from seepage.sources import is_own
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.horizontal import (
    NOT_TRIED,
    ExactSearch,
    GradientView,
    Knowledge,
    KnownDefense,
    RecordsGuess,
    UpdateView,
    View,
)

# Multiplications in a second of one core, at the least: a search that would take longer than the limit is not begun.
_OPERATIONS = 3e9
# Roundings of a tensor's norm by which a replayed message may differ from the received one.
_SAME = 100.0
# Directions that a layer has to spare where a row in its span is a record.
_SPARE = 2
# Share of the declared noise that has to be in a message for it to count as there.
_NOISE_THERE = 0.5
# Share of a layer's change from which a unit has moved.
_STILL = 1e-9
# Share of the message that its rounding may be for a match to say anything.
_TELLING = 1e-2
_SILENT = "own rows say nothing: all rows lie in the span of the update, layers are too wide, or decoys too few"
_UNSEEN = "own rows were not compared: no changed layer takes the rows as they are, or has as many units as records"

Form = Literal["weights", "difference", "gradient"]


class UpdateGuard:
    """Checks each update of a client before it is sent, and applies a policy to it.

    Call it with the model as received and the update. It runs the exact attack on the very message that would be sent,
    with the knowledge that a server has. With the client's own rows it also counts those that lie in what the update
    spans, and those among the records that the attack read, beside decoys: other rows of the same kind.

    Args:
        model: network that the server trains: a module, a registered name or ``path/to/file.py:factory``. Its weights
            come with each call.
        recipe: recipe of the client's updates. A number of records that it leaves open is counted or given with the
            call.
        reference: public rows of the same kind: what the server knows of the columns, and what rows are standardised
            with where no encoder is given.
        rows: client's own rows that updates are of, a table or rows as the network takes them; those of a call if None.
            They stay in the guard.
        decoys: rows of the same kind that the client does not train on, in the form of ``rows``, such as its test rows;
            the reference if None.
        encoder: client's own encoder; seepage's, standardised by ``reference``, if None.
        head: reading of the network's outputs; the target's usual one if None.
        seconds: time limit of one check. No round of a search begins after it, and none that would take longer.
        log: file to which one line of JSON is added a round; none if None.
        keep_records: whether findings hold what was read, as ``Proof.write`` needs it. Logs never do.
        certificates: folder to which a certificate of each proved update is written, with cells and salts in a file
            beside it, for their owner alone; none if None.
        seed: seed of the search; the same seed finds the same where the time was enough.

    Raises:
        BadInputError: an argument cannot be used.
    """

    def __init__(
        self,
        model: str | nn.Module | Model,
        schema: Schema,
        recipe: MessageRecipe,
        *,
        reference: Table | None = None,
        rows: Rows | None = None,
        decoys: Rows | None = None,
        encoder: ClientEncoder | None = None,
        policy: GuardPolicy | None = None,
        head: Head | None = None,
        seconds: float | int = 20.0,
        log: str | Path | None = None,
        keep_records: bool = False,
        certificates: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        self.seconds = positive("seconds", seconds)
        self.schema = schema if encoder is None else encoder.arranged(schema)
        if reference is not None and self.schema != schema:
            reference = Table(self.schema, reference.frame)
        self.statistics, origin = attacker_statistics(self.schema, Description(encoder=encoder), reference)
        self.encoder = Encoder(self.schema, self.statistics, dtype=torch.float64)
        self.recipe, self.policy, self.seed = recipe, policy or GuardPolicy(), seed
        self.head: Head | None = head
        self.keep_records = keep_records
        self._log = None if log is None else Path(log)
        self._certificates = None if certificates is None else Path(certificates)
        self._declared = encoder
        self._rows, self._decoys = rows, reference if decoys is None else decoys
        self._network = _network(model, self.schema, head, seed)
        self._assumed: tuple[str, ...] = ()
        if encoder is None and reference is None:
            self._assumed += (
                "rows are standardised by the schema's bounds, since neither encoder nor rows were given",
            )
        elif origin != "reference rows":
            self._assumed += ("columns are distributed as the encoder's means or the schema's bounds suggest",)
        self._rounds = _logged_rounds(self._log) if self.policy.noise_multiplier is not None else 0

    def __call__(
        self,
        sent: State,
        update: State,
        *,
        form: Form | None = None,
        records: int | None = None,
        rows: Rows | None = None,
        round: int | None = None,
        noise_seed: int | None = None,
    ) -> Answer:
        """Check one update, apply the policy, and write a line to the log.

        Args:
            form: what the update is: ``weights`` after training, their ``difference`` to those before, or a
                ``gradient``. ``gradient`` with recipes of fedsgd and ``weights`` with those of fedavg if None.
            records: number of records behind the update, where the recipe does not say it.
            rows: client's own rows of this round, or more of them; those of the guard if None.
            noise_seed: seed of the policy's noise, for tests; drawn from the operating system if None.

        Raises:
            BadInputError: a state cannot be read, or is of another network.
        """
        begin = time.monotonic()
        expected = "gradient" if self.recipe.training is None else "weights"
        form = form or expected
        if (form == "gradient") != (expected == "gradient"):
            raise BadInputError(
                f"the recipe is of protocol {self.recipe.protocol} and the update is {form}; a gradient belongs to "
                "fedsgd, weights and differences to fedavg."
            )
        module = self._network.module if isinstance(self._network, Model) else self._network
        before = as_state(sent, "the model as sent", module.state_dict())
        given = as_state(update, "the update", before)
        change, running = _message(before, given, form)
        seed = secrets.randbits(62) if noise_seed is None else noise_seed
        changed = self.policy.apply(change, seed)
        known = self._own_rows(rows)
        finding = self._check(before, change, changed, running, records, known, _narrower(before, given), form, begin)
        # A round that is blocked counts too: that it is blocked says something.
        self._rounds += 1
        finding = self._certified(replace(finding, guarantee=self.policy.guarantee(self._rounds)), round)
        self._write(finding, round)
        if not finding.sent:
            return Answer(finding, None)
        message = given
        if self.policy.changes:
            # Noise covers parameters; running statistics would be sent as they are.
            message = _changed(before, given, changed, form, hold_running=self.policy.noise_multiplier is not None)
        prefix = common_prefix(update) if isinstance(update, Mapping) else ""
        return Answer(finding, {prefix + name: tensor for name, tensor in message.items()})

    def _check(
        self,
        before: dict[str, Tensor],
        change: dict[str, Tensor],
        changed: dict[str, Tensor],
        running: dict[str, Tensor],
        records: int | None,
        known: OwnRows | None,
        narrow: str | None,
        form: Form,
        begin: float,
    ) -> GuardFinding:
        """Return what the attack finds in ``changed``, which is what the server would get."""
        warnings: tuple[str, ...] = ()
        assumed = list(self._assumed)
        decision: Decision = "not tried"
        guess: RecordsGuess | None = None
        view: View | None = None
        model: Model | None = None
        count = self._record_count(records)
        try:
            model = self._received(before, change)
            warnings = signs_of_crafting(model, self._client(model), self.statistics, self.seed)
            view = self.recipe.view(model, _in_order(model, changed))
            if count is None and known is not None:
                count = len(known.rows)
                assumed.append(f"{count} records, as many as own rows were given")
            elif count is None:
                count = self._counted(view)
                assumed.append(f"{count} records, counted in the update")
            knowledge = self._knowledge(model, change, running, count)
            if narrow is not None and form == "weights":
                raise BadInputError(
                    f"the weights are rounded to {narrow}, so that nothing replays their change exactly"
                )
            if narrow in ("float16", "bfloat16"):
                view = replace(view, precision=narrow)
            left = self.seconds - (time.monotonic() - begin)
            if left <= 0:
                raise BadInputError(f"the {self.seconds:g} seconds were over before the search began")
            decision, why, guess = self._attack(view, knowledge, left)
        except BadInputError as error:
            why = str(error).rstrip(".")
        except Exception as error:  # whatever ends a check, the client goes on and nothing passes
            decision, why = "not tried", _ended(error)
        if count == 1 and model is not None and decision in ("pass", "not tried"):
            decision, why, guess = self._divided(model, changed, decision, why, guess)
        matches: tuple[Matches | None, Matches | None] = (None, None)
        if known is not None and model is not None and decision not in ("proved", "matched whole"):
            # Noise holds running statistics back.
            statistics = {} if self.policy.noise_multiplier is not None else running
            count_known = count or len(known.rows)
            try:
                decision, why, matches = self._compared(
                    model, changed, statistics, guess, known, count_known, decision, why
                )
            except Exception as error:
                # What the attack found stays; without the rows nothing passes.
                decision = "not tried" if decision == "pass" else decision
                why = f"own rows were not compared: {_ended(error)}; {why}"
        certified = torch.zeros(1, 1, dtype=torch.bool)
        if guess is not None and guess.certified is not None:
            certified = guess.certified[0]
        update, received = state_digest(changed), state_digest(before)
        leaks = decision not in ("pass", "not tried")
        proof = None
        if guess is not None and view is not None and leaks and decision != "in the span":
            proof = Proof(guess, view, self.recipe, self.schema, self.statistics, update, received)
        doubtful = self.policy.mode == "strict" and (decision == "not tried" or bool(warnings))
        return GuardFinding(
            decision=decision,
            why=why,
            records=count,
            proved_records=int(certified.any(1).sum()),
            whole_records=int(certified.all(1).sum()),
            proved_cells=int(certified.sum()),
            cells=0 if count is None else count * len(self.schema.columns),
            seconds=time.monotonic() - begin,
            update=update,
            model=received,
            assumed=tuple(assumed),
            warnings=warnings,
            rows_read=matches[0],
            rows_in_span=matches[1],
            sent=not (doubtful or (leaks and self.policy.action == "block")),
            proof=proof,
        )

    def _own_rows(self, rows: Rows | None) -> OwnRows | None:
        rows = self._rows if rows is None else rows
        if rows is None:
            return None
        if self._decoys is None:
            raise BadInputError(
                "the client's own rows are compared with decoys, and there are none; give the guard a reference table, "
                "or decoys such as the client's test rows."
            )
        return OwnRows.of(rows, self._decoys, self.encoder, self.schema, self.seed)

    def _compared(
        self,
        model: Model,
        changed: Mapping[str, Tensor],
        running: Mapping[str, Tensor],
        guess: RecordsGuess | None,
        known: OwnRows,
        records: int,
        decision: Decision,
        why: str,
    ) -> tuple[Decision, str, tuple[Matches | None, Matches | None]]:
        """Return decision, reason and counts, once the client's rows were compared with what the update gives away."""
        read = None
        if guess is not None:
            read = compare_with_records(self.encoder.encode(guess.cells[0].cpu()), known)
            why = f"{read} are among the records that the attack returned; {why}"
        span = compare_with_span(model, changed, known, records, self.seconds * _OPERATIONS, running)
        in_span = span.matches
        silent = _SILENT if span.looked else _UNSEEN
        why = f"{silent if in_span is None else f'{in_span} lie in the span of the update, or along it'}; {why}"
        if read is not None and read.significant:
            decision = "read"
        elif in_span is not None and in_span.significant and in_span.share(records) > self.policy.share:
            decision = "in the span"
        elif span.contradicted:
            why = f"the rows are not those of the update, or are encoded in another way; {why}"
            # Rows never relax what stands without them.
            decision = "not tried" if decision == "pass" else decision
        elif not span.looked and decision == "pass":
            decision = "not tried"
        # Rows that do not lie in the span alone are no pass: the attack has to have been tried, too.
        return decision, why, (read, in_span)

    def _certified(self, finding: GuardFinding, round: int | None) -> GuardFinding:
        """Return the finding with its certificate, and without records unless records are kept."""
        proof, logged = finding.proof, finding if self.keep_records else replace(finding, proof=None)
        if proof is None or self._certificates is None or finding.decision != "proved":
            return logged
        name = f"{'update' if round is None else f'round-{round:04d}'}-{proof.update[:16]}.json"
        try:
            return replace(logged, certificate=proof.write(self._certificates / name))
        except Exception as error:
            # What is proved stays proved, and what happens with the update is for the policy to say.
            return replace(logged, notes=(f"no certificate was written: {_ended(error)}",))

    def _knowledge(
        self, model: Model, change: Mapping[str, Tensor], running: Mapping[str, Tensor], count: int
    ) -> Knowledge:
        """Return what the server knows besides the message."""
        if count > MOST_RECORDS:
            raise BadInputError(f"{count:,} records are more than the {MOST_RECORDS:,} that a message may be of")
        if count % self.recipe.clients:
            raise BadInputError(f"{count} records are not shared evenly by {self.recipe.clients} clients")
        if self.recipe.precision in ("float16", "bfloat16", "mixed"):
            raise BadInputError(f"the client computed in {self.recipe.precision}, which no replay follows")
        defense = self.policy.known(self.recipe.known(count), change)
        about = Description(**{**dict(self.recipe), "batch_size": count})
        # Noise holds running statistics back.
        noised = self.policy.noise_multiplier is not None
        moments = None if noised else Capture(self.recipe.view(model, {}), about, (), dict(running)).batch_statistics
        return Knowledge(self.schema, self.statistics, count, defense=defense, batch_statistics=moments)

    def _attack(self, view: View, knowledge: Knowledge, seconds: float) -> tuple[Decision, str, RecordsGuess]:
        """Run the attack; return decision, reason and guess.

        A defense that is declared may not be there, or hardly. So the message is attacked as one without, too.
        """
        if knowledge.defense.name == "none":
            return self._attacked(view, knowledge, seconds, defended=False)
        first = self._attacked(view, replace(knowledge, defense=KnownDefense()), seconds / 2, defended=False)
        if first[0] not in ("pass", "not tried"):
            return first[0], f"as if there were no {knowledge.defense.name}: {first[1]}", first[2]
        return self._attacked(view, knowledge, seconds / 2, defended=True)

    def _attacked(
        self, view: View, knowledge: Knowledge, seconds: float, *, defended: bool
    ) -> tuple[Decision, str, RecordsGuess]:
        registered = attacks.of("horizontal")
        # Proofs need no estimates: what the search leaves over gets a single step.
        limits = {"seconds": seconds, "operations": seconds * _OPERATIONS, "restarts": 1, "iterations": 1}
        noisy = defended or view.precision != "full"
        inexact = None if noisy else self._inexact(view, knowledge, limits)
        if inexact is not None:
            return "read", f"{', '.join(inexact.regime or ())}; the gradient is not exact", inexact
        guess = registered.create("unmix", **limits)(view, knowledge, [self.seed])
        assert guess.regime is not None
        [regime] = guess.regime
        if guess.certified is not None and bool(guess.certified.any()):
            return "proved", regime, guess
        tried, why = "not tried" if regime.startswith(NOT_TRIED) else "pass", regime.removeprefix(NOT_TRIED)
        [search] = guess.searches or [None]
        if not noisy:
            client = self._client(view.model)
            for other in (guess, self._alone(view, knowledge)):
                for labelled in _labelled(other, self.schema):
                    if _matches(view, client, labelled):
                        return "matched whole", "records that no proof covers give the very message", labelled
        if search is None:
            return tried, why, guess
        units = next(iter(view.message.values())).shape[1]
        doubt = search.doubt(knowledge.batch_size, self.schema.width, units)
        if search.read and self._tells_apart(view, search, knowledge.batch_size, noisy=noisy):
            return "read", f"{why}: {doubt}", guess
        if search.read:
            why = f"rows in the span of the update may be mixtures of records, as of {max(search.ranks)} directions"
            return "not tried", f"{why}: {doubt}", guess
        if doubt is not None and not noisy:
            # Such a layer spans the rows, however encoded. With no more units than records noise has the same rank.
            spans = search.spans_rows(knowledge.batch_size, self.schema.width) and knowledge.batch_size < units
            return "in the span" if spans else "not tried", f"{why}: {doubt}", guess
        # Noise of the policy is there for certain; a declared one is looked for.
        there = self.policy.noise_multiplier is not None or (defended and self._holds_noise(view, knowledge))
        if not any(search.ranks) and not there:
            return "not tried", f"{why}: no layer's change says anything, or stands out of declared noise", guess
        return tried, why, guess

    def _tells_apart(self, view: View, search: ExactSearch, records: int, *, noisy: bool) -> bool:
        """Return whether records that a search read are records, and not mixtures of them.

        Records without an error, and a number that is declared too high, leave fewer directions than records. A row in
        the span of the layer that takes the rows is one of them where the layer has directions to spare. Above noise a
        sum over many records has few directions, too: so most of these have to be of records that were read.
        """
        if search.read >= records or max(search.ranks, default=math.inf) >= records:
            # Noise has every rank; what was read in it is read all the same.
            return True
        spare = self._directions(view) - search.ranks[0] >= _SPARE
        return spare and (not noisy or 2 * search.read > search.ranks[0])

    def _holds_noise(self, view: View, knowledge: Knowledge) -> bool:
        """Return whether the layer that takes the rows has noise of about the declared size.

        Records leave as many directions as there are; what lies outside of them is noise alone.
        """
        read, facts = as_gradient(view, knowledge)
        records, width = knowledge.batch_size, self.schema.width
        for part in read.gradient.values():
            layer = part[0].double()
            if layer.dim() == 2 and width in layer.shape and min(layer.shape) > records:
                beyond = torch.linalg.svdvals(layer)[records:].square().sum()
                entries = (layer.shape[0] - records) * (layer.shape[1] - records)
                return bool((beyond / entries).sqrt() >= _NOISE_THERE * facts.defense.noise > 0)
        return False

    def _directions(self, view: View) -> int:
        """Return how many directions the change of the layer that takes the rows could have, of any records."""
        width = self.schema.width
        layers = {name: part[0] for name, part in view.message.items() if part.dim() == 3 and width in part.shape[1:]}
        if not layers:
            return 0
        name, layer = next(iter(layers.items()))
        layer = (layer if layer.shape[1] == width else layer.T).double()
        moved = int((layer.norm(dim=1) > _STILL * layer.norm()).sum())
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.rand(32 * width, len(self.schema.columns), generator=generator, dtype=torch.float64)
        rows = self.encoder.encode(self.statistics.rows(drawn))[:, layer.any(0)]
        if f"{name.removesuffix('weight')}bias" in view.message:
            rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        return min(moved, int(torch.linalg.matrix_rank(rows)))

    def _divided(
        self, model: Model, changed: Mapping[str, Tensor], decision: Decision, why: str, guess: RecordsGuess | None
    ) -> tuple[Decision, str, RecordsGuess | None]:
        """Return decision, reason and guess, once it was looked at whether a single record is a quotient of changes."""
        try:
            uniform = torch.full((1, len(self.schema.columns)), 0.5, dtype=torch.float64)
            noisy = self.recipe.defense is not None or self.policy.noise_multiplier is not None
            layer = divides_out(model, changed, self.encoder.encode(self.statistics.rows(uniform)), several=noisy)
        except Exception as error:
            # As in other checks.
            return "not tried", f"{_ended(error)}; {why}", guess
        if layer is None:
            return decision, why, guess
        read = f"the record is the change of layer {layer!r} over that of its bias, whatever the factor"
        return "read", f"{read}; {why}", None

    def _inexact(self, view: View, knowledge: Knowledge, limits: Mapping[str, float]) -> RecordsGuess | None:
        """Return what a search that bears errors reads of a gradient of a higher rank than its records leave.

        So are gradients computed from weights, or without their smaller entries, of which the recipe says nothing.
        """
        if not isinstance(view, GradientView) or affine_layers(view.model.module) is None:
            return None
        first = next(iter(view.message.values()))[0].double()
        values = torch.linalg.svdvals(first)
        precision = torch.finfo(next(iter(view.message.values())).dtype).eps
        if int((values > ROUNDINGS * precision * values[0]).sum()) <= knowledge.batch_size:
            return None
        step = LocalTraining(epochs=1, batch_size=knowledge.batch_size, learning_rate=1.0)
        update = UpdateView(view.model, view.message, step, self.recipe.clients, view.precision)
        guess = attacks.of("horizontal").create("unmix", **limits)(update, knowledge, [self.seed])
        return guess if guess.searches and guess.searches[0].read else None

    def _alone(self, view: View, knowledge: Knowledge) -> RecordsGuess | None:
        """Return the record of a message of one, in closed form for most networks; None where it does not apply."""
        if knowledge.batch_size > 1:
            return None
        try:
            return attacks.of("horizontal").create("single_activation")(view, knowledge, [self.seed])
        except BadInputError:
            return None

    def _received(self, state: Mapping[str, Tensor], change: Mapping[str, Tensor]) -> Model:
        """Return the model as the server sent it; what changed was trained, also where the guard's copy is frozen."""
        network = copy.deepcopy(self._network)
        module = network.module if isinstance(network, Model) else network
        try:
            module.load_state_dict(dict(state), strict=True)
        except RuntimeError as error:
            raise BadInputError(
                f"the received model is not the network that the guard was given ({' '.join(str(error).split())[:300]})"
            ) from error
        for name, parameter in module.named_parameters():
            if name in change and bool(change[name].any()):
                parameter.requires_grad_()
        model, _ = make_model(network, self.schema, self.statistics, head=self.head)
        if self._declared is not None:
            self._declared.check_inputs(model.module, model.name)
        return model

    def _client(self, model: Model) -> Encoder:
        """Return the client's encoder in the model's precision."""
        return Encoder(self.schema, self.statistics, dtype=next(iter(model.parameters.values())).dtype)

    def _record_count(self, records: int | None) -> int | None:
        if records is not None:
            records = counted_records(records, "records", trained=True)
        stated = self.recipe.batch_size
        if None not in (records, stated) and records != stated:
            raise BadInputError(f"the recipe says {stated} records, the update is of {records}; leave one of them out.")
        return records if stated is None else stated

    def _counted(self, view: View) -> int:
        count = None
        if isinstance(view, GradientView):
            count = count_records(view, self.schema, self.statistics, seed=self.seed)
        if count is None:
            raise BadInputError(
                "the number of records is not known and cannot be counted in the update; say it in the recipe or with "
                "the update"
            )
        return count

    def _write(self, finding: GuardFinding, round: int | None) -> None:
        if self._log is None:
            return
        line = json.dumps(finding.log(round=round, policy=self.policy.action, mode=self.policy.mode)) + "\n"
        try:
            descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise BadInputError(f"the guard's log {str(self._log)!r} cannot be written ({error}).") from error


def _ended(error: Exception) -> str:
    """Return how a check ended, by the type alone: the text of an exception may hold cells."""
    if isinstance(error, BadInputError):
        return str(error).rstrip(".")
    return f"the check ended in {type(error).__name__}, which it does not expect"


def _network(model: str | nn.Module | Model, schema: Schema, head: Head | None, seed: int) -> nn.Module | Model:
    if not isinstance(model, str):
        return model
    if is_own(model):
        return load_own(model, schema, seed, head).network
    network = models.create(model, schema=schema, seed=seed, head=head)
    assert isinstance(network, Model)
    return network


def _message(
    before: Mapping[str, Tensor], given: Mapping[str, Tensor], form: Form
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return parameters before less parameters after (or the gradient), and running statistics after."""
    foreign = [name for name in given if name not in before]
    if foreign:
        raise BadInputError(f"the update holds {foreign[0]!r}, which the model as sent has not.")
    broken = [name for name, tensor in given.items() if not bool(tensor.isfinite().all())]
    if broken:
        raise BadInputError(f"{broken[0]!r} of the update holds numbers that are not finite; training has diverged.")
    if form == "gradient":
        return {name: tensor for name, tensor in given.items() if not is_buffer(name, tensor)}, {}
    after = given
    if form == "difference":
        after = {name: before[name] + tensor for name, tensor in given.items()}
    difference = changes({name: tensor for name, tensor in before.items() if name in after}, after)
    moved = {name: tensor for name, tensor in difference.items() if not is_buffer(name, before[name])}
    if form == "difference":
        # As it is sent, not by way of the rounded sum.
        moved = {name: -given[name] for name in moved}
    return moved, {name: tensor for name, tensor in difference.items() if name not in moved}


def _changed(
    before: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    changed: Mapping[str, Tensor],
    form: Form,
    hold_running: bool,
) -> dict[str, Tensor]:
    """Return the update with changed parameters, in its form."""
    message = {}
    for name, tensor in given.items():
        if name not in changed:
            base = torch.zeros_like(tensor) if form == "difference" else before[name]
            message[name] = base if hold_running else tensor
        elif form == "gradient":
            message[name] = changed[name].to(tensor.dtype)
        else:
            moved = -changed[name] if form == "difference" else before[name] - changed[name]
            message[name] = moved.to(tensor.dtype)
    return message


def _in_order(model: Model, message: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the message in the order and the type of the model's parameters."""
    wanted = model.parameters
    missing = [name for name in wanted if name not in message]
    if missing:
        raise BadInputError(
            f"the update lacks {', '.join(map(repr, missing[:3]))}{' and more' if len(missing) > 3 else ''} of "
            f"{len(wanted)} parameters, so that it cannot be replayed"
        )
    return {name: message[name].to(parameter.dtype) for name, parameter in wanted.items()}


def _narrower(before: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str | None:
    """Return the type to which an update was rounded; None where it has that of the model."""
    for name, kind in ((name, tensor.dtype) for name, tensor in given.items() if name in before):
        if kind.is_floating_point and kind.itemsize < before[name].dtype.itemsize:
            return str(kind).removeprefix("torch.")
    return None


def _labelled(guess: RecordsGuess | None, schema: Schema) -> list[RecordsGuess]:
    """Return a guess with its labels; one of a single record without any with each class in turn."""
    if guess is None or guess.labels is not None:
        return [] if guess is None else [guess]
    if not isinstance(schema.target, Discrete):
        return []
    ones = torch.ones(guess.cells.shape[:2], dtype=torch.float64)
    return [replace(guess, labels=code * ones) for code in range(schema.target.width)]


def _matches(view: View, client: Encoder, guess: RecordsGuess) -> bool:
    """Return whether guessed records replay the whole message to rounding."""
    if guess.labels is None:
        return False
    rows, labels = client.encode(guess.cells), guess.labels
    placed = view.model.parameters
    rounding = torch.finfo(client.mean.dtype).eps
    if isinstance(view, GradientView):
        replayed, moved = gradient(view.model, rows, labels), {}
    elif isinstance(view, UpdateView) and view.clients == 1 and len(view.training.batches(labels.shape[1])) == 1:
        epochs = view.training.epochs
        replayed = local_update(
            view.model, rows[:, None].expand(-1, epochs, -1, -1), labels[:, None].expand(-1, epochs, -1), view.training
        )
        moved = {name: epochs * rounding * float(p.norm()) for name, p in placed.items()}
    else:
        return False
    for name, received in view.message.items():
        size = float(received.norm())
        allowed = _SAME * rounding * size + moved.get(name, 0.0)
        off = float((replayed[name].to(received) - received).norm())
        if off > allowed or moved.get(name, 0.0) > _TELLING * max(size, rounding):
            return False
    return True


def _logged_rounds(log: Path | None) -> int:
    """Return the number of rounds with noise that a log holds, which one epsilon covers together."""
    if log is None or not log.is_file():
        return 0
    try:
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"the guard's log {str(log)!r} cannot be read ({error}), so that the rounds before are not known; move it "
            "away to begin a new federation."
        ) from error
    return sum(isinstance(line, dict) and line.get("policy") == "noise" for line in lines)
