"""An attack on the captured updates of many clients and rounds, whose rounds are linked client by client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from seepage import registry
from seepage.attacking.controls import with_controls
from seepage.attacking.findings import AttackedFederation, ClientFinding, Outcome, UpdateFinding, counts_of
from seepage.attacking.linking import linked
from seepage.attacking.run import Attacked, several
from seepage.attacking.updates import Recovered, recover
from seepage.captures.captured import attacker_statistics, client_schema, load_capture, names_in, read_description
from seepage.captures.folder import CapturedFile, find_captures
from seepage.devices import find_device
from seepage.errors import BadInputError, CertifiedWrongError, check_count, one_line
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.models.states import as_state, is_sent
from seepage.models.weights import lacking
from seepage.protocols.recipe import DeclaredLoss
from seepage.run.runner import Listener
from seepage.settings.horizontal.read import FolderSpec, UpdatesSpec
from seepage.settings.setting import Progress
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table
from seepage.wire.horizontal import NOT_TRIED

# Number formats in which a client's gradient has roundings of every rank.
_COARSE = ("float16", "bfloat16", "mixed")
_OF_PATHS = set("/\\\0")

Keep = Callable[[str, Recovered], None]  # gets what was read of each update, by its name


@dataclass(frozen=True)
class FederationAttack:
    """An attack on all captured updates of a folder, by a spec whose fields describe themselves.

    Network, schema and public rows are objects in memory, in place of those that the spec names.

    The model of an update is ``model-ID.safetensors`` or ``model.safetensors`` beside it, else ``weights``. Where the
    update says which model was sent, another one is not used. An update that cannot be attacked, or whose attack fails
    with any error, is reported with the reason, and the others are attacked.

    How many records a client holds is granted by its own rows (``truth``) or by ``holds``; without either, every round
    may be of other records.
    """

    model: str | nn.Module | Model
    schema: Schema
    spec: UpdatesSpec
    reference: Table | None = None

    @classmethod
    def of(
        cls, model: str | nn.Module | Model, schema: Schema, reference: Table | None = None, **fields: object
    ) -> FederationAttack:
        """Return an attack by a network, a schema and public rows in memory, and the fields of ``FolderSpec``."""
        return cls(model, schema, FolderSpec.of(**fields), reference)

    def run(self, folder: Path, listener: Listener | None = None, keep: Keep | None = None) -> AttackedFederation:
        """Attack all updates and link the rounds of each client; ``keep`` gets what was read of each, by name."""
        files, part = find_captures(folder, self.spec.weights), self.spec.attack
        if self.spec.client_records is not None:
            check_count("holds", self.spec.client_records)
        # What is wrong for all updates is said once, before any is attacked.
        statistics, _ = attacker_statistics(self.schema, None, self._public(self.schema))
        make_model(self.model, self.schema, statistics, head=self.spec.head)
        registry.attacks.of("horizontal").create(part.name, **part.options)
        clients = list(dict.fromkeys(file.client for file in files))
        truths = self._truths(clients)
        for path in truths.values():
            self.spec.read_rows(path, self.schema)
        shown = Listener() if listener is None else listener
        shown.begin(float(len(files)), jobs=len(files))
        updates, together, recovered_updates = list[UpdateFinding](), list[ClientFinding](), list[Recovered]()
        scored = dict[str, Attacked]()
        for client in clients:
            of_client = [file for file in files if file.client == client]
            attacked = list[Recovered]()
            for file in of_client:
                shown.started(f"client {client}, round {'?' if file.round is None else file.round}")
                finding, recovered = self._attack_file(file, len(updates), truths.get(client), shown, keep)
                updates.append(finding)
                if recovered is None:
                    shown.failed(file.name, finding.why)
                else:
                    attacked.append(recovered)
                shown.ended()
            recovered_updates += attacked
            if whole := [recovered.attacked for recovered in attacked if recovered.is_scored]:
                scored[client] = whole[0]
            if len(of_client) > 1:
                try:
                    schema = attacked[0].schema if attacked else self.schema
                    rows = self.spec.read_rows(truths.get(client), schema)
                    holds, seed = self.spec.client_records, self.spec.seed
                    together.append(linked(client, attacked, part, holds, rows, seed))
                except CertifiedWrongError:
                    raise
                except Exception as error:
                    together.append(ClientFinding(client, why=f"not linked: {one_line(error)}", failed=True))
        audit = None
        if recovered_updates:
            lost = {place: update.why for place, update in enumerate(updates) if update.records is None}
            parts = {
                part.title: part for recovered in recovered_updates for part in recovered.attacked.audit.spec.defenses
            }
            changed = {"defenses": tuple(parts.values()), "gate": self.spec.gate}
            spec = recovered_updates[0].attacked.audit.spec.model_copy(update=changed)
            audit = several("captured updates", spec, [recovered.attacked for recovered in recovered_updates], lost)
            audit = with_controls(audit, scored, self.spec, shown.started)
        return AttackedFederation(tuple(updates), tuple(together), part.name, audit)

    def _attack_file(
        self, file: CapturedFile, unit: int, truth: Path | None, listener: Listener, keep: Keep | None
    ) -> tuple[UpdateFinding, Recovered | None]:
        """Attack one file; return its finding, and the attacked update or None where the attack failed."""
        done = 0.0

        def advance(share: float) -> None:
            nonlocal done
            done += share
            listener.advance(share)

        try:
            if file.why is not None:
                raise BadInputError(file.why)
            recovered = self.update(file.path, self._weights(file), truth, advance, alone=False, unit=unit)
        except CertifiedWrongError:
            raise
        # An odd update may break an attack in any way; the others are attacked all the same.
        except Exception as error:
            return _finding_on_failure(file, error), None
        finally:
            listener.advance(1.0 - done)
        try:
            if keep is not None:
                keep(file.name, recovered)
        except (BadInputError, OSError):
            # What cannot be written for one update cannot be for the others.
            raise
        except Exception as error:
            return _finding_on_failure(file, error), None
        records, cells, estimated = counts_of(recovered.guess, recovered.certainty)
        regime = "" if recovered.guess.regime is None else recovered.guess.regime[0]
        outcome: Outcome = "proved" if records else "estimated" if estimated else "nothing"
        why, doubt = regime.removeprefix(NOT_TRIED), _doubt_of_search(recovered)
        if outcome == "nothing" and regime.startswith(NOT_TRIED):
            outcome = "not tried"
        elif outcome == "nothing" and doubt is not None:
            outcome, why = "not tried", f"{why}: {doubt}"
        score, number = recovered.attacked.row(), recovered.number
        finding = UpdateFinding(file.name, file.client, file.round, number, outcome, why, records, cells, estimated)
        return replace(finding, score=score, notes=(*file.notes, *recovered.notes)), recovered

    def update(
        self,
        path: Path,
        weights: Path | None = None,
        truth: Path | None = None,
        progress: Progress | None = None,
        alone: bool = True,
        unit: int = 0,
    ) -> Recovered:
        """Attack one update with the weights of the model that was sent; those of its initialisation if None.

        Where it is not ``alone``, ``truth`` may be of other rows, which do not score it, and ``batch_size`` is of
        updates that do not say it. ``unit`` is its place among several, each of which has seeds of its own.
        """
        # Several attacks are refused before any file is read.
        part, about = self.spec.attack, read_description(path)
        schema, notes = client_schema(self.schema, about), list[str]()
        statistics, origin = attacker_statistics(schema, about, self._public(schema))
        head, seed, device = self.spec.head or about.head, self.spec.model_seed, find_device(self.spec.device)
        rows = self.spec.read_rows(truth, schema)
        options = {"seed": seed, "head": head, "dropout": self.spec.dropout, "device": device}
        model, _ = make_model(self.model, schema, statistics, weights=weights, partial=True, **options)
        unknown = () if weights is None else lacking(model.module, weights)
        loss = None if self.spec.loss is None else DeclaredLoss(**self.spec.loss.model_dump())
        if loss is not None:
            if about.loss not in (None, loss):
                raise BadInputError(
                    f"the update says that its loss is {about.loss.form.describe()}, the option --loss says "
                    f"{loss.form.describe()}; leave the option out."
                )
            model = replace(model, form=loss.form)
        capture = load_capture(path, model, schema, unknown)
        if loss is not None:
            capture = replace(capture, about=capture.about.model_copy(update={"loss": loss}))
        if weights is None:
            notes.append(f"weights: those of the model's initialisation with seed {seed}; give --weights if it moved")
        records = about.batch_size or self.spec.batch_size
        if not alone and rows is not None and len(rows) != records:
            of = "an unknown number of" if records is None else f"{records}"
            notes.append(f"not scored by itself: the client's own rows are {len(rows)}, the update is of {of} records")
            rows = None
        if self.spec.restore_labels:
            capture = replace(capture, about=capture.about.model_copy(update={"labels": None}))
        return recover(
            capture,
            schema,
            statistics,
            origin,
            part.name,
            batch_size=self.spec.batch_size if alone or about.batch_size is None else None,
            options=part.options,
            seed=self.spec.seed,
            truth=rows,
            progress=progress,
            allow_large=self.spec.allow_large,
            gate=self.spec.gate,
            notes=notes,
            unit=unit,
        )

    def _weights(self, file: CapturedFile) -> Path:
        """Return the file of the model that was sent when an update was made."""
        about = read_description(file.path)
        labels = dict.fromkeys((file.path.stem.removeprefix("client-"), file.client))
        # A client's name is never a path.
        names = [f"model-{label}" for label in labels if not set(label) & _OF_PATHS]
        places = [file.path.with_name(f"{name}.safetensors") for name in (*names, "model")]
        there = [path for path in (*places, *([self.spec.weights] if self.spec.weights else [])) if path.is_file()]
        if not there:
            raise BadInputError(
                "there is no model.safetensors beside the update; put the model there that the server sent, or name "
                "it with --weights."
            )
        if about.sent is None:
            return there[0]
        for path in there:
            if is_sent(as_state(path, f"the model {str(path)!r}"), about.sent, names_in(file.path)):
                return path
        raise BadInputError(
            f"{' and '.join(repr(path.name) for path in there)} is not the model that the server sent when the update "
            "was made (another digest); give that of its round."
        )

    def _public(self, schema: Schema) -> Table | None:
        """Return the public rows, those in memory before those of the spec."""
        return self.spec.read_rows(self.spec.data, schema) if self.reference is None else self.reference

    def _truths(self, clients: Sequence[str]) -> dict[str, Path]:
        """Return the files of the clients' own rows, by client, as far as they exist."""
        truth = self.spec.truth
        if truth is None:
            return {}
        if not truth.is_dir():
            if len(clients) > 1:
                raise BadInputError(
                    f"--truth {str(truth)!r} is one table, the updates are of {len(clients)} clients; give a "
                    "folder with ID.csv for each client whose rows are known, or the updates of one client."
                )
            return {clients[0]: truth}
        files = {}
        for client in clients:
            names = [] if set(client) & _OF_PATHS else [f"{client}.csv", f"client-{client}.csv"]
            there = [truth / name for name in names if (truth / name).is_file()]
            if there:
                files[client] = there[0]
        if not files:
            raise BadInputError(
                f"--truth {str(truth)!r} has no table of any client; name them ID.csv, such as {clients[0]}.csv."
            )
        return files


def _finding_on_failure(file: CapturedFile, error: Exception) -> UpdateFinding:
    """Return the finding on an update whose attack failed."""
    outcome: Outcome = "not tried" if isinstance(error, BadInputError) else "failed"
    why = one_line(error).rstrip(".")
    return UpdateFinding(file.name, file.client, file.round, None, outcome, why, notes=file.notes)


def _doubt_of_search(recovered: Recovered) -> str | None:
    """Return why an update without a proved cell may still leak; None where the search was complete."""
    guess, about = recovered.guess, recovered.capture.about
    [search] = guess.searches or [None]
    if search is None or about.defense is not None or about.sent_as != "full" or about.precision in _COARSE:
        return None
    return search.doubt(recovered.number, recovered.schema.width)
