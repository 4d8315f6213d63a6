"""Certificates of what an exact attack proved, as files that ``seepage.verify`` checks without this package."""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jaxtyping import Bool
from safetensors.torch import save
from torch import Tensor, nn

from seepage import verify
from seepage.attacks.horizontal.exact.chains import parts_of
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.models.model import Head
from seepage.models.wrapping import returns_chances
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import Certificate, RecordsGuess, UpdateView, View

# Settings of a local training that the verifier replays; others have to be left at their defaults.
_REPLAYED = ("epochs", "batch_size", "learning_rate")
_ACTIVATIONS = {nn.ReLU: "relu", nn.GELU: "gelu", nn.SiLU: "silu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}


@dataclass(frozen=True)
class WrittenCertificate:
    """The files of a certificate, and how much of what was proved it claims.

    Attributes:
        certificate: file that may travel; with the cells inside where they were to be opened.
        opened: file of cells and salts, which stays with the client; None where they are in the certificate.
        model: JSON file of the network, with its weights beside it.
        cells: number of cells that the certificate claims.
        proved: number of cells that the attack certified.
        records: number of records that the certificate covers.
        batch_size: smallest number of records with the same message.
    """

    certificate: Path
    opened: Path | None
    model: Path
    cells: int
    proved: int
    records: int
    batch_size: int

    @property
    def whole(self) -> bool:
        """Whether the records replay the whole message, so that the certificate can be verified."""
        return self.records == self.batch_size

    def __str__(self) -> str:
        """Return the certificate in a sentence."""
        text = f"{self.cells} cells of {self.records} of {self.batch_size} records are in the certificate"
        if self.cells < self.proved:
            text += f"; {self.proved - self.cells} more are proved by arguments that the verifier does not check"
        if not self.whole:
            text += "; the others are not read for certain, so that no replay can be checked and none is verified"
        return text


def certificate_files(path: str | Path) -> tuple[Path, Path, Path, Path]:
    """Return the files of a certificate: itself, opened cells, model and weights.

    Example:
        >>> [file.name for file in certificate_files("proof.json")]
        ['proof.json', 'proof.opened.json', 'proof.model.json', 'proof.model.safetensors']
    """
    path = Path(path)
    beside = [path.with_name(path.stem + end) for end in (".opened.json", ".model.json", ".model.safetensors")]
    return path, beside[0], beside[1], beside[2]


def check_new_certificate(path: str | Path) -> None:
    """Refuse a certificate's name where one of its files is there already.

    Raises:
        BadInputError: a file would be replaced.
    """
    there = [file for file in certificate_files(path) if file.exists()]
    if there:
        raise BadInputError(f"the file {str(there[0])!r} is there already; choose another name for the certificate.")


def write_certificate(
    path: str | Path,
    guess: RecordsGuess,
    view: View,
    schema: Schema,
    statistics: Statistics,
    *,
    victim: int = 0,
    opened: bool = False,
    factory: str | None = None,
) -> WrittenCertificate:
    """Write a certificate of what an attack proved, its opened cells, and the network for the verifier.

    Only those cells are claimed that the verifier itself accepts: it looks at the first layer alone, the attack also at
    deeper ones. Where not all records of the batch were read, the certificate says so, and cannot be verified.

    Args:
        path: file of the certificate, such as ``proof.json``; the others stand beside it, see ``certificate_files``.
        guess: guess of an exact attack, with its certificates.
        view: message that was attacked.
        schema: schema of the table, in the order of the client's encoder.
        statistics: statistics whose means and standard deviations rows are standardised with.
        victim: index of the victim.
        opened: whether cells and salts are written into the certificate itself.
        factory: ``path/to/file.py:factory`` of a network that is no list of layers; the factory takes no arguments.

    Raises:
        BadInputError: nothing was certified, or nothing that the verifier can check; the message or the network is none
            that it replays; a file exists already or cannot be written.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from seepage.attacks import create
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn3
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> from seepage.tabular.encoder import Encoder
        >>> from seepage.wire.horizontal import Knowledge
        >>> data = distinct(rows=40)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> view = FedSGD(4).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1]).view
        >>> guess = create("unmix")(view, Knowledge(data.schema, data.statistics, 4), [0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(write_certificate(f"{folder}/proof.json", guess, view, data.schema, data.statistics))
        24 cells of 4 of 4 records are in the certificate
    """
    check_new_certificate(path)
    stated = None if guess.certificates is None else guess.certificates[victim]
    if stated is None or guess.certified is None or guess.labels is None:
        raise BadInputError("the attack certified no cell, so that there is nothing to write a certificate of.")
    recipe = _recipe(view, stated)
    file, cells_file, model_file, weights_file = certificate_files(path)
    message = {name: part[victim].detach().cpu() for name, part in view.message.items()}
    _write_model(view, victim, model_file, weights_file, factory)
    try:
        network = verify.read_network(model_file, allow_code=factory is not None)
        encoder = _declared(schema, statistics)
        columns = verify.read_columns(encoder)
        read = _opened_records(schema, guess, victim)
        records, certified = _without_copies(read, guess.certified[victim], stated.batch_size // stated.multiple_of)
        left, claimed = float("inf"), certified
        if len(records) == stated.multiple_of:
            left, least = verify.prove(network, message, recipe, columns, records)
            claimed = certified & (least > verify.ROUNDINGS).to(certified)
        if not left <= verify.REPLAY:
            if bool(certified.any(1).all()):
                raise BadInputError(
                    f"the records leave {left:.3g} roundings of the message, above {verify.REPLAY:g}: the verifier "
                    "replays exact messages alone."
                )
            # Estimates explain nothing: only records with certified cells are opened.
            kept = certified.any(1)
            records = [one for one, keep in zip(records, kept.tolist(), strict=True) if keep]
            claimed = certified[kept]
        if not bool(claimed.any()):
            raise BadInputError(
                f"none of the {int(certified.sum())} certified cells is proved by the first layer alone, which is all "
                "that the verifier checks."
            )
        certificate, salts = _certificate(message, network, encoder, recipe, stated, records, claimed, schema)
        shown = {"format": verify.OPENED_FORMAT, "records": records, "salts": salts}
        if not opened:
            write_whole(cells_file, _text(shown), private=True)
        write_whole(file, _text({**certificate, "opened": shown} if opened else certificate), private=opened)
    except BaseException as error:
        for one in (cells_file, model_file, weights_file):
            one.unlink(missing_ok=True)
        if isinstance(error, BadInputError) or not isinstance(error, ValueError):
            raise
        raise BadInputError(f"the verifier cannot check this message: {error}.") from error
    return WrittenCertificate(
        certificate=file,
        opened=None if opened else cells_file,
        model=model_file,
        cells=int(claimed.sum()),
        proved=int(certified.sum()),
        records=len(records),
        batch_size=stated.multiple_of,
    )


def _recipe(view: View, stated: Certificate) -> dict[str, Any]:
    """Return how the message was made, as the verifier reads it.

    Raises:
        BadInputError: it does not replay such messages.
    """
    head: Head = view.model.head
    if stated.others_fixed:
        raise BadInputError("behind batch normalisation the proof is conditional on all other cells; none is written.")
    if view.model.frozen:
        raise BadInputError("parts of the network are frozen; the verifier replays networks that are trained whole.")
    if stated.precision != "float32":
        raise BadInputError(f"the message is in {stated.precision}; the verifier replays those in float32.")
    if not isinstance(view, UpdateView):
        if stated.unit != "roundings":
            raise BadInputError("the message holds noise; the verifier replays exact messages alone.")
        return {"head": head, "protocol": "fedsgd"}
    training = view.training
    usual = {f.name: f.default for f in fields(training) if f.default is not MISSING}
    changed = [name for name, value in asdict(training).items() if name in usual and value != usual[name]]
    if changed or view.clients > 1 or len(training.batches(stated.batch_size)) > 1:
        raise BadInputError(
            "the verifier replays updates of one client, by plain SGD steps over all its records; got "
            f"{view.clients} clients, local batches of {training.batch_size} and settings "
            f"{', '.join((*_REPLAYED, *changed))}."
        )
    settings = {"epochs": training.epochs, "learning_rate": float(training.learning_rate)}
    return {"head": head, "protocol": "fedavg", "training": settings}


def _write_model(view: View, victim: int, model_file: Path, weights_file: Path, factory: str | None) -> None:
    """Write the network as the verifier reads it: a list of layers or a factory, and weights."""
    here = view.model.parameters
    if not isinstance(view, UpdateView) and view.parameters is not None:
        here = {name: part[victim] for name, part in view.parameters.items()}
    form: dict[str, Any]
    if factory is None:
        form = {"layers": _layers(view.model.module)}
    else:
        place, _, name = factory.rpartition(":")
        form = {"factory": f"{os.path.relpath(place, model_file.parent)}:{name}"}
    write_whole(weights_file, save({name: part.detach().cpu().contiguous().clone() for name, part in here.items()}))
    write_whole(model_file, _text({**form, "weights": weights_file.name}))


def _layers(module: nn.Module) -> list[Any]:
    """Return the layers of a network, as the verifier reads them: up to the logits where it ends in a sigmoid.

    Raises:
        BadInputError: it is no list of affine layers and activations.
    """
    names = {id(part): name for name, part in module.named_modules()}
    flat = _flat(module)
    if returns_chances(module):
        if type(flat[-1]) is not nn.Sigmoid:
            raise BadInputError(
                "the network ends in a sigmoid that is no nn.Sigmoid at the end of an nn.Sequential, and the verifier "
                "takes logits; leave the sigmoid out, or give factory='path/to/file.py:factory', a function without "
                "arguments that returns the network without it, with which it is checked as code."
            )
        flat = flat[:-1]
    parts = flat if all(_layer(part, names) for part in flat) else parts_of(module) or []
    layers = [_layer(part, names) for part in parts]
    if not layers or None in layers:
        odd = [type(part).__name__ for part in flat if not _layer(part, names)]
        raise BadInputError(
            f"the network is no list of affine layers and activations (it has {', '.join(dict.fromkeys(odd))}); give "
            "factory='path/to/file.py:factory', a function without arguments, with which it is checked as code."
        )
    return layers


def _layer(part: nn.Module, names: dict[int, str]) -> object:
    if type(part) is nn.Linear and isinstance(part, nn.Linear):
        return {"linear": names[id(part)]}
    if isinstance(part, nn.LeakyReLU):
        return {"leaky_relu": part.negative_slope}
    if isinstance(part, nn.GELU) and part.approximate != "none":
        return None
    return _ACTIVATIONS.get(type(part))


def _flat(module: nn.Module) -> list[nn.Module]:
    return [leaf for part in module for leaf in _flat(part)] if type(module) is nn.Sequential else [module]


def _declared(schema: Schema, statistics: Statistics) -> list[dict[str, Any]]:
    """Return the encoder declaration: each column as it enters the network."""
    declared: list[dict[str, Any]] = []
    for column, block in zip(schema.columns, schema.blocks, strict=True):
        mean, scale = statistics.mean[block].tolist(), statistics.std[block].tolist()
        if isinstance(column, Discrete):
            one = {"kind": "one_hot", "name": column.name, "categories": list(column.categories)}
            declared.append({**one, "mean": mean, "scale": scale})
        else:
            one = {"kind": "number", "name": column.name, "mean": mean[0], "scale": scale[0]}
            declared.append({**one, "tolerance": column.tolerance, "integer": column.integer})
    return declared


def _opened_records(schema: Schema, guess: RecordsGuess, victim: int) -> list[dict[str, Any]]:
    assert guess.labels is not None
    coded = isinstance(schema.target, Discrete)
    return [
        {
            "cells": [
                column.categories[int(cell)]
                if isinstance(column, Discrete)
                else int(cell)
                if column.integer and cell == int(cell)
                else cell
                for column, cell in zip(schema.columns, cells, strict=True)
            ],
            "label": int(label) if coded else label,
        }
        for cells, label in zip(guess.cells[victim].tolist(), guess.labels[victim].tolist(), strict=True)
    ]


def _without_copies(
    records: list[dict[str, Any]], certified: Bool[Tensor, "record column"], times: int
) -> tuple[list[dict[str, Any]], Bool[Tensor, "some column"]]:
    """Return a part of a batch that is so many copies of it; the whole where it is not."""
    keys = [verify.digest_of(one) for one in records]
    counts, taken = Counter(keys), Counter[str]()
    if any(count % times for count in counts.values()):
        return records, certified
    kept = []
    for i, key in enumerate(keys):
        taken[key] += 1
        if taken[key] <= counts[key] // times:
            kept.append(i)
    return [records[i] for i in kept], certified[kept]


def _certificate(
    message: dict[str, Tensor],
    network: verify.CheckedNetwork,
    encoder: list[dict[str, Any]],
    recipe: dict[str, Any],
    stated: Certificate,
    records: list[dict[str, Any]],
    claimed: Bool[Tensor, "record column"],
    schema: Schema,
) -> tuple[dict[str, Any], list[str]]:
    """Return a certificate, and the salt of each of its commitments."""
    certificate: dict[str, Any] = {
        "format": verify.FORMAT,
        "update": verify.tensors_digest(message),
        "model": {"weights": verify.tensors_digest(network.parameters), "form": network.form},
        "encoder": encoder,
        "recipe": recipe,
        "conditions": {
            "batch_size": stated.batch_size,
            "multiple_of": stated.multiple_of,
            "records": len(records),
            "precision": stated.precision,
            "roundings": verify.ROUNDINGS,
        },
    }
    places = [(i, c) for i, c in claimed.nonzero().tolist()]
    salts = [secrets.token_hex(32) for _ in places]
    certificate["cells"] = [
        {
            "record": i,
            "column": schema.names[c],
            "commitment": verify.commitment(certificate, salt, i, schema.names[c], records[i]["cells"][c]),
        }
        for (i, c), salt in zip(places, salts, strict=True)
    ]
    return certificate, salts


def _text(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
