"""The subject of an audit: the rows of a client and the model that is trained on them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seepage.datasets import Dataset
from seepage.devices import find_device, threads
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.models.copies import copied
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.seeds import stream
from seepage.settings.horizontal import networks
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.horizontal.training import Learnt, train
from seepage.settings.loss_form import form_of
from seepage.settings.units import Tables, rows_key
from seepage.sources import own_code
from seepage.tabular.encoder import Encoder
from seepage.tabular.infer import Inferred
from seepage.tabular.schema import Discrete
from seepage.text import how_many

_PROBES = 8


@dataclass(frozen=True)
class Subject:
    """A dataset, whose training rows are the client's, and a model, on the device that computes."""

    dataset: Dataset
    model: Model
    own: bool
    encoder: Encoder
    model_source: str | None = None  # digest of the file that made it; None where seepage or the caller did
    inferred: Inferred | None = None
    learnt: Learnt | None = None
    later: tuple[Model, ...] = ()
    trained_from: dict[str, Json] | None = None  # values that determine the trained network
    public: Tensor | None = None  # cells of rows that the attacker holds, shape (row, column)

    @cached_property
    def rows_digest(self) -> str:
        """Digest of the client's rows, the schema and the public statistics."""
        digest = hashlib.sha256(self.dataset.schema.to_yaml().encode())
        statistics = self.dataset.statistics
        tensors = [self.dataset.train.labels, statistics.mean, statistics.std]
        for marginal in (*statistics.marginals, statistics.target):
            tensors += [marginal.values, marginal.probabilities]
        columns = (self.dataset.train.column(i) for i in range(len(self.dataset.schema.columns)))
        # One column after the other: all cells at once would take eight bytes each.
        for tensor in itertools.chain(columns, tensors):
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    @cached_property
    def model_digest(self) -> str:
        """Digest of all that determines the outputs of the model, and of those of further rounds.

        Outputs on fixed rows are part of it: two networks of the same layers and parameters may compute different ones.
        """
        digest = hashlib.sha256(f"{self.model.head} {self.model.module!r} {self.model_source}".encode())
        if not self.model.form.plain:
            digest.update(repr(self.model.form.to_plain()).encode())
        for model in (self.model, *self.later):
            tensors = *model.parameters.items(), *model.frozen.items(), *model.module.named_buffers()
            for name, tensor in (*tensors, *model.each.items()):
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        outputs = self._outputs_on_fixed_rows()
        scale = outputs.abs().max()
        # Devices and numbers of threads differ in the last digits, which must not make another model of it.
        steps = torch.round(outputs / scale * 1e5).nan_to_num().long() if scale > 0 else outputs.nan_to_num().long()
        digest.update(f"{scale:.5e} {steps.tolist()}".encode())
        return digest.hexdigest()[:16]

    def _outputs_on_fixed_rows(self) -> Tensor:
        encoder = Encoder(self.dataset.schema, self.dataset.statistics)
        normal = torch.randn(_PROBES, encoder.width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        rows = encoder.project(normal)
        module = copied(self.model.module).cpu()
        try:
            with torch.no_grad():
                return copied(module).double()(rows)
        except Exception:  # A module of one's own may insist on its parameters' type, and say so in any way.
            with torch.no_grad():
                return module(rows.to(next(module.parameters()).dtype)).double()


def prepare(
    spec: HorizontalSpec,
    dataset: Dataset | None = None,
    model: Model | nn.Module | None = None,
    folder: Path | None = None,
    tables: Tables | None = None,
) -> Subject:
    """Load the dataset and the model of a spec; those that are given are taken instead, as the user's own.

    A module gets the head that the spec names, else its target's usual one. ``folder`` holds networks that were trained
    before, see ``keep_networks``.
    """
    if dataset is not None and spec.dataset_options:
        raise BadInputError(
            f"dataset options ({', '.join(spec.dataset_options)}) steer the loader of a registered dataset, but the "
            "rows were passed; leave the options out, or name the dataset instead."
        )
    is_own = dataset is not None or spec.data is not None
    inferred: Inferred | None = None
    if dataset is None:
        dataset, inferred = (tables or Tables()).rows(spec)
    dataset, public = _with_public_rows(dataset, spec)
    _check_target(dataset)
    network, seed = spec.model if model is None else model, spec.seed if spec.model_seed is None else spec.model_seed
    table, device = (dataset.schema, dataset.statistics), find_device(spec.device)
    form: dict[str, Any] = {"head": spec.head, "options": spec.model_options, "dropout": spec.dropout}
    placed, source = make_model(network, *table, seed=seed, weights=spec.weights, device=device, **form)
    if spec.loss is not None:
        placed = replace(placed, form=form_of(spec.loss, placed.head, dataset.schema.target.width))
    encoder = Encoder(*table, dtype=next(iter(placed.parameters.values())).dtype, device=device)
    untrained = Subject(dataset, placed, is_own, encoder, source, inferred, public=public)
    if spec.training is None:
        return untrained
    origin = {
        **{"code": own_code(), "rows": untrained.rows_digest, "model": untrained.model_digest},
        **{"training": spec.training.model_dump(), "seed": spec.seed, "threads": spec.threads, "device": device.type},
    }
    trained = None if folder is None else networks.find(networks.place_of(folder, origin), placed, spec.training)
    if trained is None:
        with threads(spec.threads):
            trained = train(placed, dataset, encoder, spec.training, spec.seed)
    [first, *later], learnt = trained
    return replace(untrained, model=first, learnt=learnt, later=tuple(later), trained_from=origin)


def keep_networks(folder: Path, audits: Sequence[tuple[HorizontalSpec, Subject]]) -> None:
    """Keep the networks that were trained for some audits in a run folder; of own tables only beside their records."""
    for spec, subject in audits:
        if subject.trained_from is not None and subject.learnt is not None and (spec.keep_records or not subject.own):
            place = networks.place_of(folder, subject.trained_from)
            networks.keep(place, [subject.model, *subject.later], subject.learnt, private=subject.own)


def subject_of(spec: HorizontalSpec, tables: Tables) -> Subject:
    """Return the subject of a spec; specs of the same rows and network share it."""
    seed = spec.seed if spec.model_seed is None else spec.model_seed
    network = (spec.model, spec.model_options, spec.weights, spec.head, seed, spec.dropout, spec.loss)
    key = repr((rows_key(spec), network, find_device(spec.device)))
    if spec.auxiliary:
        key += repr((spec.auxiliary, spec.seed))
    if spec.training is not None:
        key += repr((spec.training, spec.seed, spec.threads))
    if key not in tables.cache:
        tables.cache[key] = prepare(spec, folder=tables.folder, tables=tables)
    return tables.cache[key]


def _with_public_rows(dataset: Dataset, spec: HorizontalSpec) -> tuple[Dataset, Tensor | None]:
    """Return the dataset, and cells of as many held-out rows as the attacker is granted; None without any.

    A table without held-out rows holds out as many. The statistics stay those of all its rows.
    """
    if not spec.auxiliary:
        return dataset, None
    order = torch.Generator().manual_seed(stream(spec.seed, 0, "public rows") % 2**62)
    pool = dataset.train if dataset.test is None else dataset.test
    # A client needs at least some rows of its own.
    most = len(pool) if dataset.test is not None else len(pool) // 2
    if spec.auxiliary > most:
        kind = "held out" if dataset.test is not None else "that can be held out, half of all"
        raise BadInputError(
            f"the attacker is to hold {how_many(spec.auxiliary, 'public row')}, but {dataset.name!r} has {most:,} "
            f"{kind}; grant fewer (auxiliary)."
        )
    places = torch.randperm(len(pool), generator=order)
    public = pool.rows(places[: spec.auxiliary])
    if dataset.test is None:
        dataset = replace(dataset, train=pool.rows(places[spec.auxiliary :].sort().values), test=public)
    return dataset, public.cells


def _check_target(dataset: Dataset) -> None:
    target, labels = dataset.schema.target, dataset.train.labels
    if isinstance(target, Discrete) and target.width == 1:
        raise BadInputError(
            f"the target {target.name!r} has one category in its schema, so there is nothing to learn; "
            "list the others that rows may have, or choose another target."
        )
    if bool((labels == labels[0]).all()):
        raise BadInputError(
            f"the target {target.name!r} is the same in all {len(labels)} rows, so there is nothing to learn; choose "
            "another target or add rows where it differs."
        )
