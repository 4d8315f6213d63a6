"""A user's own network, built by a factory named ``package.module:factory`` or ``path/to/file.py:factory``.

Nothing is unpickled: the factory is code on the user's machine; weights come from a safetensors file. Whether code may
run at all is decided before: what a document names needs consent, see ``seepage.config.document``.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from torch import nn

from seepage.errors import BadInputError, unknown_name
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.seeds import seeded
from seepage.sources import described, import_place, is_file, searched_first
from seepage.tabular.schema import Discrete, Schema

# Other names under which a factory may ask for these, where it has no default for them.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "inputs": (
        *("num_features", "n_features", "in_features", "input_dim", "input_size", "in_dim", "d_in", "num_inputs"),
        *("n_inputs", "in_channels"),
    ),
    "outputs": (
        *("num_classes", "n_classes", "out_features", "output_dim", "output_size", "out_dim", "d_out", "num_outputs"),
        *("n_outputs", "out_channels"),
    ),
    "cardinalities": ("cat_cardinalities", "category_sizes", "cat_dims", "num_categories"),
    "numbers": ("num_continuous", "n_continuous", "num_numerical", "n_numerical", "n_cont_features", "num_numbers"),
}
_FORM = "package.module:factory or path/to/file.py:factory"


@dataclass(frozen=True)
class LoadedNetwork:
    """Network or model that a factory returned, and the digest of the factory's source file, if any."""

    network: nn.Module | Model
    digest: str | None


def load_own(
    reference: str, schema: Schema, seed: int = 0, head: Head | None = None, options: Mapping[str, object] | None = None
) -> LoadedNetwork:
    """Build the network that ``reference`` names, a class or function that is defined there, not imported.

    It receives, by name, what it has a parameter for, in other usual names too, see ``SYNONYMS``; ``width``, that of
    rows, only where it has no default. A module is searched for in the current directory first, then on Python's path;
    a file's imports in its own folder.
    """
    head = head or usual_head(schema)
    offered: dict[str, object] = {
        "schema": schema,
        "inputs": schema.width,
        "width": schema.width,
        "outputs": output_width(schema, head),
        "cardinalities": [column.width for column in schema.columns if isinstance(column, Discrete)],
        "numbers": len(schema.continuous),
        "seed": seed,
        "head": head,
    }
    with _importing(reference, seed) as factory:
        network_factory = OwnFactory(reference, factory, source_digest(factory))
        network = network_factory(offered, seed, options)
    if isinstance(network, nn.Module | Model):
        return LoadedNetwork(network, network_factory.digest)
    raise BadInputError(
        f"the model factory {reference!r} returned an object of type {type(network).__name__} where an nn.Module is "
        "expected; return the network itself, untrained or trained."
    )


@dataclass(frozen=True)
class OwnFactory:
    """A user's factory, imported once, so that worker processes need not find its file again."""

    reference: str
    factory: Callable[..., object]
    digest: str | None

    def __call__(self, offered: Mapping[str, object], seed: int, options: Mapping[str, object] | None = None) -> object:
        """Return the factory's network, from the offered arguments that it has a parameter for."""
        arguments = _arguments(self.factory, self.reference, offered, dict(options or {}))
        try:
            return seeded(lambda: self.factory(**arguments), seed)
        except (Exception, SystemExit) as error:
            raise BadInputError(
                f"the model factory {self.reference!r} raised {described(error)}; it was called with "
                f"{', '.join(arguments) or 'nothing'}. Mend it so that it returns an nn.Module."
            ) from error


def find_own(reference: str) -> OwnFactory:
    """Return the factory that ``reference`` names, see ``load_own``."""
    with _importing(reference, 0) as factory:
        return OwnFactory(reference, factory, source_digest(factory))


def check_own(reference: str) -> None:
    """Check that ``reference`` names a factory, without calling it; its module is imported."""
    with _importing(reference, 0):
        pass


@contextmanager
def _importing(reference: str, seed: int) -> Iterator[Callable[..., object]]:
    """Import the object that ``reference`` names; in the block, imports are searched for in its folder."""
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute.strip() or not place.strip():
        raise BadInputError(f"a network of your own is named as {_FORM}, got {reference!r}.")
    if not is_file(place) and place.partition(".")[0] in sys.stdlib_module_names:
        raise BadInputError(
            f"the model {reference!r} names the module {place!r} of Python's standard library, which holds no network; "
            f"name one as {_FORM}."
        )
    folder = Path(place).parent.resolve() if is_file(place) else Path.cwd()
    with searched_first(folder):
        # A module may draw random numbers when it is imported.
        yield _factory(seeded(lambda: import_place(place, reference, "model"), seed), attribute, reference)


def source_digest(factory: Callable[..., object]) -> str | None:
    """Return a digest of the source file that defines ``factory``; None where there is none."""
    file = getattr(sys.modules.get(getattr(factory, "__module__", None) or ""), "__file__", None)
    if file is None or not Path(file).is_file():
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def _factory(module: ModuleType, attribute: str, reference: str) -> Callable[..., object]:
    member: object = module
    for part in attribute.split("."):
        if not hasattr(member, part):
            names = [name for name, value in vars(member).items() if callable(value) and not name.startswith("_")]
            raise unknown_name(f"factory in model {reference!r}:", part, names)
        member = getattr(member, part)
    if isinstance(member, nn.Module) or not callable(member):
        raise BadInputError(
            f"{attribute!r} in the model {reference!r} is an object of type {type(member).__name__}, not a factory; "
            "name a function or a class that makes the network when it is called, so that every audit starts from "
            "a fresh one."
        )
    if not isinstance(member, type) and not inspect.isfunction(member):
        raise BadInputError(
            f"{attribute!r} in the model {reference!r} is an object of type {type(member).__name__}; a factory is "
            "defined as a class or as a function. Write a function that calls it and returns the network."
        )
    if member.__module__ != module.__name__:
        raise BadInputError(
            f"{attribute!r} in the model {reference!r} is only imported there; name it where it is defined: "
            f"{member.__module__}:{member.__qualname__}."
        )
    kind = member if isinstance(member, type) else _returned(member)
    if kind is not None and not issubclass(kind, nn.Module | Model):
        what = "is a class" if isinstance(member, type) else "is a function that returns a class"
        raise BadInputError(
            f"{attribute!r} in the model {reference!r} {what} ({kind.__name__}) that is not derived from nn.Module; "
            "name one that makes a network."
        )
    return member


def _returned(function: Callable[..., object]) -> type | None:
    try:
        returned = get_type_hints(function).get("return")
    except Exception:  # What stands in an annotation is anybody's guess, and need not be there while the program runs.
        return None
    return returned if isinstance(returned, type) and returned is not object else None


def _arguments(
    factory: Callable[..., object], reference: str, offered: Mapping[str, object], options: Mapping[str, object]
) -> dict[str, object]:
    offered = dict(offered)
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:
        return dict(options)
    named = {n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "width" in parameters and parameters["width"].default is not inspect.Parameter.empty:
        # With a default it is the width of a layer.
        offered.pop("width", None)
    required = {name for name, p in parameters.items() if name in named and p.default is p.empty}
    for usual, others in SYNONYMS.items():
        if usual in offered:
            offered |= {name: offered[usual] for name in others if name in required}
    for option in options:
        if option not in named and not takes_any:
            raise unknown_name(f"option of model {reference!r}:", option, named)
    arguments = {name: value for name, value in {**offered, **options}.items() if name in named or name in options}
    missing = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in arguments
    ]
    if missing:
        raise BadInputError(
            f"the model factory {reference!r} needs {', '.join(map(repr, missing))}, which seepage does not pass: "
            f"it passes, by name, any of {', '.join(offered)}. Give the others defaults, or set them as model options."
        )
    return arguments
