"""What is audited: the rows of a client and the model that is trained on them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from seepage import datasets
from seepage.datasets import Dataset, own_table
from seepage.devices import find_device
from seepage.digests import Json
from seepage.errors import BadInputError, unknown_name
from seepage.models.copies import copied
from seepage.models.model import Model
from seepage.settings import networks
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.network import make_model
from seepage.settings.spec import Spec
from seepage.settings.training import Learnt, train
from seepage.sources import own_code
from seepage.tabular.encoder import Encoder
from seepage.tabular.infer import Inferred
from seepage.tabular.one_hot import groups_of_schema
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Discrete, Schema
from seepage.threads import threads

_PROBES = 8
# What of a spec says which rows there are.
_ROWS = (
    *("dataset", "dataset_options", "data_folder", "data", "schema_file", "target", "sensitive", "separator"),
    *("encoding", "policy"),
)


@dataclass(frozen=True)
class Subject:
    """A dataset and a model, on the device that computes.

    Attributes:
        dataset: its training rows are the client's.
        model: the global model of the round, of several attacked rounds the first.
        own: whether the rows are the user's own, so that nothing of them is stored and files are private.
        encoder: from rows to the model's inputs.
        model_source: digest of the source file that made the model; None where seepage or the caller did.
        inferred: inference of the schema with its decisions, where the schema was inferred.
        learnt: quality of the model, where it was trained before the attack.
        later: the models of further rounds in which the same victims are attacked.
        trained_from: all that determines what training made of the network, as JSON values; None where there was none.
    """

    dataset: Dataset
    model: Model
    own: bool
    encoder: Encoder
    model_source: str | None = None
    inferred: Inferred | None = None
    learnt: Learnt | None = None
    later: tuple[Model, ...] = ()
    trained_from: dict[str, Json] | None = None

    @cached_property
    def rows_digest(self) -> str:
        """A digest of the client's rows, the schema and the public statistics."""
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
        """A digest of the model, and of those of further rounds: all that determines what they compute.

        That is structure, head, source, parameters, buffers and what it makes of fixed rows. Two networks of the same
        layers and parameters may still compute different things.
        """
        digest = hashlib.sha256(f"{self.model.head} {self.model.module!r} {self.model_source}".encode())
        for model in (self.model, *self.later):
            held = *model.parameters.items(), *model.frozen.items(), *model.module.named_buffers()
            for name, tensor in (*held, *model.each.items()):
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
) -> Subject:
    """Load what a spec names.

    Args:
        spec: names dataset and model.
        dataset, model: taken instead of what the spec names, as the user's own. A module gets the
            head that the spec names, else its target's usual one.
        folder: where networks that were trained before are looked for, see ``keep_networks``.

    Raises:
        BadInputError: a name is unknown, a file cannot be used, the target is the same in all rows, or
            the model does not fit the table.
    """
    if dataset is not None and spec.dataset_options:
        raise BadInputError(
            f"dataset options ({', '.join(spec.dataset_options)}) steer the loader of a registered dataset, but the "
            "rows were passed; leave the options out, or name the dataset instead."
        )
    own = dataset is not None or spec.data is not None
    loaded, inferred = (dataset, None) if dataset is not None else load_rows(spec)
    return _subject(spec, loaded, inferred, spec.model if model is None else model, own, folder)


def load_rows(spec: Spec) -> tuple[Dataset, Inferred | None]:
    """Return the rows that a spec names, and how their schema came about where it was inferred.

    Raises:
        BadInputError: a name is unknown or a file cannot be used.
    """
    if spec.data is not None:
        return _own(spec)
    return datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options), None


def _subject(
    spec: HorizontalSpec,
    dataset: Dataset,
    inferred: Inferred | None,
    model: str | Model | nn.Module,
    own: bool,
    folder: Path | None,
) -> Subject:
    _check_target(dataset)
    placed, source = make_model(
        model,
        dataset.schema,
        dataset.statistics,
        seed=spec.seed if spec.model_seed is None else spec.model_seed,
        head=spec.head,
        options=spec.model_options,
        weights=spec.weights,
        dropout=spec.dropout,
        device=find_device(spec.device),
    )
    dtype = next(iter(placed.parameters.values())).dtype
    encoder = Encoder(dataset.schema, dataset.statistics, dtype=dtype, device=find_device(spec.device))
    untrained = Subject(dataset, placed, own, encoder, source, inferred)
    if spec.training is None:
        return untrained
    made_from = {
        "code": own_code(),
        "rows": untrained.rows_digest,
        "model": untrained.model_digest,
        "training": spec.training.model_dump(),
        "seed": spec.seed,
        "threads": spec.threads,
        "device": find_device(spec.device).type,
    }
    trained = None if folder is None else networks.find(networks.place_of(folder, made_from), placed, spec.training)
    if trained is None:
        with threads(spec.threads):
            trained = train(placed, dataset, encoder, spec.training, spec.seed)
    [first, *later], learnt = trained
    return replace(untrained, model=first, learnt=learnt, later=tuple(later), trained_from=made_from)


def keep_networks(folder: Path, audits: Sequence[tuple[HorizontalSpec, Subject]]) -> None:
    """Keep the networks that were trained for some audits in a run folder.

    A network that was trained on a table of one's own is kept only where its records are.

    Raises:
        BadInputError: a file cannot be written.
    """
    for spec, subject in audits:
        if subject.trained_from is not None and subject.learnt is not None and (spec.keep_records or not subject.own):
            place = networks.place_of(folder, subject.trained_from)
            networks.keep(place, [subject.model, *subject.later], subject.learnt, private=subject.own)


class Subjects:
    """What specs are prepared to: those of the same rows share them, and those of the same model too.

    Args:
        folder: where networks that were trained before are looked for; nowhere if None.

    Example:
        >>> from seepage.settings.horizontal_spec import make_spec
        >>> subjects = Subjects()
        >>> one, other = (subjects.of(make_spec(dataset="german", model=name)) for name in ("nn1", "nn2"))
        >>> one.dataset is other.dataset
        True
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._loaded: dict[str, tuple[Dataset, Inferred | None]] = {}
        self._made: dict[str, Subject] = {}

    def of(self, spec: HorizontalSpec) -> Subject:
        """Return what ``prepare`` returns.

        Raises:
            BadInputError: as there.
        """
        rows = _key(spec)
        seed = spec.seed if spec.model_seed is None else spec.model_seed
        network = (spec.model, spec.model_options, spec.weights, spec.head, seed, spec.dropout)
        key = repr((rows, network, find_device(spec.device)))
        if spec.training is not None:
            key += repr((spec.training, spec.seed, spec.threads))
        if key not in self._made:
            self._made[key] = _subject(spec, *self.rows(spec), spec.model, spec.data is not None, self._folder)
        return self._made[key]

    def rows(self, spec: Spec) -> tuple[Dataset, Inferred | None]:
        """Return the rows that a spec names, see ``load_rows``."""
        key = _key(spec)
        if key not in self._loaded:
            self._loaded[key] = load_rows(spec)
        return self._loaded[key]


def _key(spec: Spec) -> str:
    return repr([getattr(spec, name) for name in _ROWS])


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


def _own(spec: Spec) -> tuple[Dataset, Inferred | None]:
    assert spec.data is not None
    separator, encoding = spec.separator, spec.encoding
    if spec.schema_file is None:
        assert spec.target is not None
        return own_table(spec.data, target=spec.target, policy=spec.policy, separator=separator, encoding=encoding)
    schema = Schema.load(spec.schema_file)
    learnt = schema.target.name
    if spec.target not in (None, learnt):
        groups = groups_of_schema(open_table(spec.data, separator=separator, encoding=encoding), schema)
        # The target may be named by any of the one-hot columns that it is made of.
        learnt = next(
            (spec.target for group in groups if group.name == learnt and spec.target in group.members), learnt
        )
    if spec.target not in (None, learnt):
        raise unknown_name(f"target of the schema {str(spec.schema_file)!r}:", str(spec.target), [schema.target.name])
    return own_table(spec.data, schema, policy=spec.policy, separator=separator, encoding=encoding)
