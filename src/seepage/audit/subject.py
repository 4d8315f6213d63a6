"""What is audited: the rows of a client and the model that is trained on them."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch

from seepage import datasets
from seepage.audit.parts import registry
from seepage.audit.spec import AuditSpec
from seepage.datasets import Dataset
from seepage.errors import BadInputError, unknown_name
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.infer import infer_schema
from seepage.tabular.schema import Schema


@dataclass(frozen=True)
class Subject:
    """A dataset and a model, on the device that computes.

    Attributes:
        dataset: its training rows are the client's.
        model: the global model of the round.
        own: whether the rows are the user's own, so that nothing of them is stored and files are private.
        encoder: from rows to the model's inputs.
    """

    dataset: Dataset
    model: Model
    own: bool
    encoder: Encoder

    @cached_property
    def rows_digest(self) -> str:
        """A digest of the client's rows, the schema and the public statistics."""
        digest = hashlib.sha256(self.dataset.schema.to_yaml().encode())
        statistics = self.dataset.statistics
        tensors = [self.dataset.train.cells, self.dataset.train.labels, statistics.mean, statistics.std]
        for marginal in (*statistics.marginals, statistics.target):
            tensors += [marginal.values, marginal.probabilities]
        for tensor in tensors:
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def model_digest(self) -> str:
        """A digest of the model's structure, head and parameters."""
        digest = hashlib.sha256(f"{self.model.head} {self.model.module!r}".encode())
        for name, parameter in self.model.parameters.items():
            digest.update(name.encode())
            digest.update(parameter.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def prepare(spec: AuditSpec, dataset: Dataset | None = None, model: Model | None = None) -> Subject:
    """Load what a spec names.

    Args:
        spec: names dataset and model.
        dataset, model: taken instead of what the spec names, as the user's own.

    Raises:
        BadInputError: a name is unknown, a file cannot be used, or the model does not fit the table.
    """
    own = dataset is not None or spec.data is not None
    if dataset is None:
        dataset = _own(spec) if spec.data is not None else datasets.load(spec.dataset, folder=spec.data_folder)
    if model is None:
        seed = spec.seed if spec.model_seed is None else spec.model_seed
        model = registry.models.create(spec.model, schema=dataset.schema, seed=seed, head=spec.head)
        assert isinstance(model, Model)
    model.check(dataset.schema)
    dtype = next(iter(model.parameters.values())).dtype
    if not dtype.is_floating_point or dtype.itemsize < torch.float32.itemsize:
        raise BadInputError(
            f"model {model.name!r} has {dtype} parameters; attacks need float32 or float64: convert it with .float()."
        )
    placed = Model(copy.deepcopy(model.module).to(spec.where), model.head, model.name)
    encoder = Encoder(dataset.schema, dataset.statistics, dtype=dtype, device=spec.where)
    return Subject(dataset, placed, own, encoder)


def _own(spec: AuditSpec) -> Dataset:
    assert spec.data is not None
    name = spec.data.name.split(".", 1)[0] or "own"
    if spec.schema_file is None:
        assert spec.target is not None
        schema = infer_schema(spec.data, spec.target, sensitive=spec.sensitive, drop=spec.drop)
    else:
        schema = Schema.load(spec.schema_file)
        if spec.target not in (None, schema.target.name):
            raise unknown_name(
                f"target of the schema {str(spec.schema_file)!r}:", str(spec.target), [schema.target.name]
            )
    # Every row may be in a client's batch; there is nothing to test on.
    return datasets.from_frame(spec.data, schema, test_share=0.0, name=name)
