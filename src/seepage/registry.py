"""Names of the parts an audit is made of, and how to make each from its name and arguments.

Every package registers its own parts in its ``__init__``; other distributions add theirs through
an entry point in the group ``seepage.<kind>s`` whose module registers on import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from seepage.errors import BadInputError, unknown_name

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def takes(made: Callable[..., Any], argument: str) -> bool:
    """Return whether a callable has such an argument, by name or because it takes any.

    Example:
        >>> takes(sorted, "reverse"), takes(sorted, "colour")
        (True, False)
    """
    parameters = inspect.signature(made).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered part: its name, what makes it and a line that says what it is."""

    name: str
    factory: Callable[..., T]
    summary: str


class Registry(Generic[T]):
    """A mapping from names to factories for one kind of part.

    Example:
        >>> shapes = Registry[int]("shape")
        >>> @shapes.register("square")
        ... def square(side: int = 1) -> int:
        ...     '''A square's area.'''
        ...     return side * side
        >>> shapes.create("square", side=3)
        9
        >>> shapes["square"].summary
        "A square's area."
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[T]] = {}
        self._plugins_loaded = False

    def register(self, name: str) -> Callable[[F], F]:
        """Register the decorated factory; the first line of its docstring is its summary."""

        def add(factory: F) -> F:
            if name in self._entries:
                raise BadInputError(f"{self.kind} {name!r} is registered twice; choose another name.")
            summary = (inspect.getdoc(factory) or "").split("\n", 1)[0]
            self._entries[name] = Entry(name, factory, summary)
            return factory

        return add

    def __getitem__(self, name: str) -> Entry[T]:
        self._load_plugins()
        if name not in self._entries:
            raise unknown_name(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._entries

    def names(self) -> list[str]:
        """Return the registered names in order of registration."""
        self._load_plugins()
        return list(self._entries)

    def entries(self) -> list[Entry[T]]:
        """Return the registered entries in order of registration."""
        self._load_plugins()
        return list(self._entries.values())

    def create(self, name: str, **arguments: Any) -> T:
        """Make the part ``name``.

        Raises:
            BadInputError: the name is unknown, an argument is not one its factory takes, or one that it
                needs is missing.
        """
        entry = self[name]
        accepted = inspect.signature(entry.factory).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        for argument in arguments:
            if argument not in accepted and not takes_any:
                raise unknown_name(f"argument of {self.kind} {name!r}:", argument, accepted)
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        missing = [a for a, p in accepted.items() if p.kind in named and p.default is p.empty and a not in arguments]
        if missing:
            raise BadInputError(f"{self.kind} {name!r} needs {' and '.join(missing)}, which has no default; give it.")
        return entry.factory(**arguments)

    def _load_plugins(self) -> None:
        if not self._plugins_loaded:
            self._plugins_loaded = True
            for point in entry_points(group=f"seepage.{self.kind}s"):
                point.load()


datasets: Registry[Any] = Registry("dataset")
models: Registry[Any] = Registry("model")
protocols: Registry[Any] = Registry("protocol")
defenses: Registry[Any] = Registry("defense")
attacks: Registry[Any] = Registry("attack")
baselines: Registry[Any] = Registry("baseline")
metrics: Registry[Any] = Registry("metric")
# Of split learning, whose views and guesses are others.
cut_attacks: Registry[Any] = Registry("cut_attack")
cut_baselines: Registry[Any] = Registry("cut_baseline")
split_defenses: Registry[Any] = Registry("split_defense")
# Of vertical learning.
feature_attacks: Registry[Any] = Registry("feature_attack")
feature_baselines: Registry[Any] = Registry("feature_baseline")
vertical_defenses: Registry[Any] = Registry("vertical_defense")
# Of pooled learning.
populations: Registry[Any] = Registry("population")
property_attacks: Registry[Any] = Registry("property_attack")
property_baselines: Registry[Any] = Registry("property_baseline")
pooled_defenses: Registry[Any] = Registry("pooled_defense")
