"""Registries of the parts of an audit: a module is imported when a part of it is first created.

The entry points ``seepage.built_in`` of this package name the modules that declare its parts, one line a part. Plug-ins
declare or register theirs through an entry point in the group ``seepage.<kind>s``.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, get_args, get_type_hints, runtime_checkable

from seepage.errors import BadInputError, unknown_name
from seepage.pace import Progress, scaled
from seepage.sources import import_part, is_reference

# Side information that attacks may need beyond their view.
Need = Literal[
    "auxiliary", "queries", "leaked", "weights", "bottom", "gradients", "crafted_network", "labels", "steering"
]

# Part of a message that a defense acts on, in words; two that act on the same are refused together.
ActsOn = str

# Group of the entry points that declare the parts of this package, by kind of part, and its settings.
_BUILT_IN = "seepage.built_in"


@dataclass(frozen=True)
class Traits:
    """What must be known of an attack or baseline before it runs; given where it is registered.

    Attributes:
        needs: side information without which it cannot be called.
        classes: whether it tells classes of the label apart, so that a number as target is refused.
        bare_labels: whether it reads labels where nothing protects them; the controls ask no others.
        averages: whether it averages over records alike, as the control of vertical learning needs.
        active: whether it changes the training that it reads, so that a recorded one cannot be attacked.
        shares: whether it estimates the share of a property, beside telling two shares apart.
        rounds: whether it weighs messages of records that were in different rounds, by its methods ``by_round`` and
            ``of_rounds``, and none without its option ``observed``.
        shadow: whether it trains a shadow of the target's bottom model, by its method ``fit_shadow``.
        exact: whether it solves for what it reads, in place of fitting guesses to the message.
        network: registered name of the network that it is made for.
        linear: function from the attack to the networks (``bottom``, ``top``) that must have no hidden layer.
        mark: difference from its publication, in words that stand in tables.
    """

    needs: tuple[Need, ...] = ()
    classes: bool = False
    bare_labels: bool = True
    averages: bool = False
    active: bool = False
    shares: bool = False
    rounds: bool = False
    shadow: bool = False
    exact: bool = False
    network: str | None = None
    linear: Callable[[Any], tuple[str, ...]] | None = None
    mark: str | None = None


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
F = TypeVar("F", bound=Callable[..., object])

# A full stop before a capital letter ends a sentence: that of "et al." does not.
_SOURCE = re.compile(r"\bSource: (.+?)\.(?=\s+[A-Z]|$)")


def takes(function: Callable[..., object], argument: str) -> bool:
    """Return whether a callable has an argument, by name or because it takes any."""
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def reporting(attack: Callable[..., object], progress: Progress | None, share: float = 1.0) -> dict[str, Any]:
    """Return the argument by which an attack reports a share of the work; none where it has no such argument."""
    report = scaled(progress, share)
    return {"progress": report} if report is not None and takes(attack, "progress") else {}


@runtime_checkable
class Attack(Protocol):
    """An attack or baseline, called with the view and the knowledge of its setting; its arguments are its attributes.

    Views, knowledge and guesses differ from setting to setting, so that each attack's own signature says their types.
    """

    def __call__(self, *inputs: object, **granted: object) -> Any:
        """Return a guess."""

    if TYPE_CHECKING:

        def __getattr__(self, argument: str, /) -> Any:
            """Return an argument that the attack was made with."""


def views_taken(attack: object) -> tuple[type, ...]:
    """Return the view types in an attack's annotation of ``view``; empty where it has none.

    ``attack`` is a function, a class, or an object of one, whose call is looked at.
    """
    if not inspect.isfunction(attack):
        attack = inspect.getattr_static(attack if isinstance(attack, type) else type(attack), "__call__", None)
    try:
        hints = get_type_hints(attack) if inspect.isfunction(attack) else {}
    except NameError:
        # Annotations of a user's class may name what only type checkers import.
        hints = {}
    return tuple(dict.fromkeys(_classes(hints.get("view"))))


def argument(attack: object, name: str, otherwise: object = None) -> Any:
    """Return an argument that an attack was made with, by the name of its option; ``otherwise`` where it has none."""
    return getattr(attack, name, otherwise)


class Entry(Generic[T_co]):
    """One registered part; a declared one has a module, and lists show it under its heading."""

    def __init__(
        self, kind: str, name: str, setting: str | None, module: str | None = None, heading: str | None = None
    ) -> None:
        self.kind, self.name, self.setting, self.module, self.heading = kind, name, setting, module, heading
        self._factory: Callable[..., T_co] | None = None
        self._traits = Traits()
        # Callable with the annotation of the view, where the factory has none.
        self._callable: object = None

    @property
    def loaded(self) -> bool:
        """Whether the part's module has been imported."""
        return self._factory is not None

    @property
    def factory(self) -> Callable[..., T_co]:
        """Callable that creates the part; its module is imported if need be."""
        if self._factory is None and self.module is not None:
            import_module(self.module)
        if self._factory is None:
            raise RuntimeError(f"{self.module} registers no {self.kind} {self.name!r}, although it is declared to.")
        return self._factory

    @property
    def traits(self) -> Traits:
        """What must be known of an attack or baseline before it runs."""
        # Importing the module sets them.
        assert self.factory is not None
        return self._traits

    @property
    def needs(self) -> tuple[Need, ...]:
        """Side information without which an attack or baseline cannot be called."""
        return self.traits.needs

    @property
    def sees(self) -> tuple[type, ...]:
        """View types that an attack or baseline takes, from the annotation of ``view``; empty where it has none."""
        factory_type: object = self.factory
        if inspect.isfunction(factory_type):
            factory_type = get_type_hints(factory_type).get("return")
        return views_taken(self._callable if inspect.isfunction(self._callable) else factory_type)

    @property
    def _docstring(self) -> str:
        """Docstring of the factory; a module that is not imported yet is only read."""
        if self._factory is None and self.module is not None:
            return _docstring_in_source(self.module, self.name, self.setting)
        return inspect.getdoc(self.factory) or ""

    @property
    def summary(self) -> str:
        """First line of the factory's docstring, without its marks of code."""
        return self._docstring.split("\n", 1)[0].replace("``", "")

    @property
    def source(self) -> str | None:
        """Publication of the part, from ``Source:`` in the factory's docstring; None without one."""
        match = _SOURCE.search(" ".join(self._docstring.split()))
        return None if match is None else match[1].replace("*", "").replace("``", "")


class Registry(Generic[T_co]):
    """A mapping from names to factories for one kind of part.

    Parts of a kind may belong to settings; names are unique within each. Those of this package are declared where
    ``built_in``.

    Example:
        >>> shapes = Registry[int]("shape")
        >>> @shapes.register("square")
        ... def square(side: int = 1) -> int:
        ...     '''A square's area.'''
        ...     return side * side
        >>> shapes.create("square", side=3), shapes["square"].summary
        (9, "A square's area.")
    """

    def __init__(self, kind: str, built_in: bool = False) -> None:
        self.kind = kind
        self.setting: str | None = None
        self._root: Registry[T_co] = self
        self._entries: dict[tuple[str | None, str], Entry[T_co]] = {}
        self._declared = not built_in
        self._plugins_loaded = False

    def of(self, setting: str) -> Registry[T_co]:
        """Return the parts of one setting."""
        part = Registry[T_co](self.kind)
        part.setting, part._root, part._entries = setting, self._root, self._entries
        return part

    def joined(self, other: Registry[object]) -> Registry[object]:
        """Return the parts of two registries as one, of this one's kind."""
        both: Registry[object] = Registry(self.kind)
        both._plugins_loaded = True
        both._entries = {**self._with_plugins()._entries, **other._with_plugins()._entries}
        return both

    def declare(self, modules: Mapping[str, str], setting: str | None = None, heading: str | None = None) -> None:
        """Declare parts without importing them: the module that registers each, by the part's name.

        All are of one setting, that of ``of`` if None. Lists show them under a heading, such as the paper that they
        repeat.

        Raises:
            BadInputError: another part has one of the names.
        """
        setting = setting or self.setting
        # A plug-in may be loaded before the package's own parts are declared.
        self._declare()
        for name, module in modules.items():
            entry = self._entries.setdefault((setting, name), Entry(self.kind, name, setting, module, heading))
            if entry.module != module:
                raise self._twice(name)

    def register(
        self, name: str, setting: str | None = None, needs: tuple[Need, ...] = (), traits: Traits | None = None
    ) -> Callable[[F], F]:
        """Register the decorated factory under a name that is unique in its setting, that of ``of`` if None.

        The first line of its docstring is its summary, a sentence that begins with ``Source:`` says who published it.
        ``needs`` is side information without which an attack or baseline cannot be called; ``traits`` says more of it,
        and has ``needs`` of its own.

        Raises:
            BadInputError: another factory has that name.
        """
        setting = setting or self.setting

        def add(factory: F) -> F:
            entry = self._entries.get((setting, name))
            if entry is None or entry.module != factory.__module__:
                # A declaration has the name before it is imported, that of a plug-in too.
                self._with_plugins()
                entry = self._entries.get((setting, name))
            if entry is None:
                entry = self._entries[setting, name] = Entry(self.kind, name, setting)
            elif entry.loaded or entry.module != factory.__module__:
                raise self._twice(name)
            entry._traits = Traits(needs) if traits is None else traits
            entry._factory = factory  # pyright: ignore[reportAttributeAccessIssue]
            return factory

        return add

    def __getitem__(self, name: str) -> Entry[T_co]:
        if is_reference(name):
            return self._of_user(name)
        entries = self._named(name) or self._with_plugins()._named(name)
        if len(entries) == 1 or (entries and entries[0].module and len({entry.module for entry in entries}) == 1):
            # One part that several settings share.
            return entries[0]
        if not entries:
            raise self._unknown(name)
        settings = [str(entry.setting) for entry in entries]
        raise BadInputError(
            f"{self.kind} {name!r} exists in {len(settings)} settings ({', '.join(settings)}); say which, as in "
            f"{self.kind}s.of({settings[0]!r})."
        )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(
            is_reference(name) or self._named(name) or self._with_plugins()._named(name)
        )

    def entry_of(self, passed: object) -> Entry[T_co]:
        """Return the entry of an object's class, or one for the object where its class is not registered.

        The latter has the needs in its attribute ``needs``, or else those of a registered class that it extends.
        """
        bases = self._bases(type(passed))
        if bases and not any(map(self._holds, bases)):
            raise self._unknown(bases[0].name)
        if bases and bases[0].factory is type(passed):
            return bases[0]
        entry: Entry[T_co] = Entry(self.kind, name_of(passed), self.setting)
        entry._factory = type(passed)  # pyright: ignore[reportAttributeAccessIssue]
        entry._traits, entry._callable = _traits_of(passed, bases), passed
        return entry

    def _bases(self, factory: Callable[..., object]) -> list[Entry[T_co]]:
        """Return the entries of the registered classes that a class extends, itself first."""
        # For a part that several settings share, this setting's entry comes last.
        loaded_entries = sorted((entry for entry in self._entries.values() if entry.loaded), key=self._holds)
        loaded: dict[object, Entry[T_co]] = {entry.factory: entry for entry in loaded_entries}
        kinds = factory.__mro__ if isinstance(factory, type) else (factory,)
        return [loaded[kind] for kind in kinds if kind in loaded]

    def _of_user(self, reference: str) -> Entry[T_co]:
        """Return the entry of a class in a file or module of the user's own, whose code is run, with its own needs."""
        defined = import_part(reference, self.kind)
        if not callable(defined):
            raise BadInputError(
                f"{reference!r} is an object of type {type(defined).__name__}, no class; name the class of the "
                f"{self.kind}, and give its options beside it, as in '{reference}:{{option: 1}}'."
            )
        entry: Entry[T_co] = Entry(self.kind, reference, self.setting)
        entry._factory = defined  # pyright: ignore[reportAttributeAccessIssue]
        entry._traits = _traits_of(defined, self._bases(defined))
        return entry

    def names(self) -> list[str]:
        """Return the names in order of declaration; where there are settings, those of each after another."""
        return [entry.name for entry in self.entries()]

    def entries(self) -> list[Entry[T_co]]:
        """Return the entries in order of declaration; no part's module is imported."""
        return [entry for entry in self._with_plugins()._entries.values() if self._holds(entry)]

    def create(self, name: str, **arguments: object) -> T_co:
        """Make the part ``name``; arguments that its factory does not take, or lacks, are refused."""
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

    def _holds(self, entry: Entry[T_co]) -> bool:
        # Parts without a setting are part of each.
        return self.setting is None or entry.setting in (None, self.setting)

    def _named(self, name: str) -> list[Entry[T_co]]:
        self._declare()
        entries = [
            entry for (_, entry_name), entry in self._entries.items() if entry_name == name and self._holds(entry)
        ]
        # A setting's own part comes before one of the same name that belongs to every setting.
        of_setting = [entry for entry in entries if entry.setting is not None and entry.setting == self.setting]
        return of_setting or entries

    def _unknown(self, name: str) -> BadInputError:
        elsewhere = [entry.setting for (_, entry_name), entry in self._entries.items() if entry_name == name]
        if not elsewhere:
            return unknown_name(self.kind, name, self.names())
        return BadInputError(
            f"{self.kind} {name!r} is one of {' and '.join(map(str, elsewhere))} learning, not of {self.setting} "
            f"learning. Known there: {', '.join(sorted(self.names())) or 'none'}."
        )

    def _twice(self, name: str) -> BadInputError:
        return BadInputError(f"{self.kind} {name!r} is registered twice; choose another name.")

    def _declare(self) -> None:
        root = self._root
        if not root._declared:
            root._declared = True
            points = entry_points(group=_BUILT_IN)
            if not points:
                raise RuntimeError(
                    f"seepage has no entry points {_BUILT_IN!r}: it is not installed, or was by an earlier version; "
                    "install it again (make install)."
                )
            # Settings declare their own parts.
            for name in (f"{root.kind}s", "settings"):
                for point in points.select(name=name):
                    point.load()

    def _with_plugins(self) -> Registry[T_co]:
        self._declare()
        root = self._root
        if not root._plugins_loaded:
            root._plugins_loaded = True
            for point in entry_points(group=f"seepage.{self.kind}s"):
                point.load()
        return self


def _traits_of(part: object, bases: Sequence[Entry[Any]]) -> Traits:
    """Return the traits of a part that is not registered: those that it inherits, with the needs that it names."""
    inherited = bases[0].traits if bases else Traits()
    return replace(inherited, needs=tuple(getattr(part, "needs", inherited.needs)))


def is_factory(passed: object) -> bool:
    """Return whether an object is registered as a factory of parts."""
    return any(
        entry.loaded and entry.factory is passed for registered in _KINDS for entry in registered._entries.values()
    )


def name_of(passed: object) -> str:
    """Return the name of an object in results: that of its registration, else that of class or function."""
    for registry in _KINDS:
        for entry in registry._entries.values():
            if entry.loaded and entry.factory is type(passed):
                return entry.name
    return str(getattr(passed, "__name__", type(passed).__name__)).strip("<>")


def _classes(hint: object) -> Iterator[type]:
    """Yield the classes of an annotation: itself, the members of a union, the items of a sequence."""
    inner = get_args(hint)
    if inner:
        for part in inner:
            yield from _classes(part)
    elif isinstance(hint, type):
        yield hint


@cache
def source_of(module: str) -> ast.Module:
    """Return the syntax tree of a module that is not imported; its packages are."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def constant(node: ast.expr, values: Mapping[str, ast.expr]) -> object:
    """Return the value of a name or literal in a module that is not imported, None for other expressions."""
    while isinstance(node, ast.Name) and node.id in values:
        node = values[node.id]
    return node.value if isinstance(node, ast.Constant) else None


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the expressions of the names at the top of a module."""
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _docstring_in_source(module: str, name: str, setting: str | None) -> str:
    """Return the docstring of the object that a module registers under a name, from the module's source.

    Where several are registered under it, it is that of the setting.
    """
    tree = source_of(module)
    values = constants(tree)
    named = dict[object, str]()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and decorator.args and _label(decorator.args[0], values) == name:
                    of = constant(decorator.args[1], values) if len(decorator.args) > 1 else None
                    named[of] = ast.get_docstring(node) or ""
    return named.get(setting, next(iter(named.values()), ""))


def _label(node: ast.expr, values: Mapping[str, ast.expr]) -> object:
    """Return the name that a decorator registers: its argument, or the ``name`` of a card."""
    if isinstance(node, ast.Attribute):
        node = node.value
    card = values.get(node.id) if isinstance(node, ast.Name) else node
    if isinstance(card, ast.Call):
        return next((constant(k.value, values) for k in card.keywords if k.arg == "name"), None)
    return constant(node, values)


# Kinds other than attacks have their type in their own package, whose ``create`` returns it.
attacks: Registry[Attack] = Registry("attack", built_in=True)
baselines: Registry[Attack] = Registry("baseline", built_in=True)
defenses: Registry[object] = Registry("defense", built_in=True)
models: Registry[object] = Registry("model", built_in=True)
protocols: Registry[object] = Registry("protocol", built_in=True)
metrics: Registry[object] = Registry("metric", built_in=True)
datasets: Registry[object] = Registry("dataset", built_in=True)
populations: Registry[object] = Registry("population", built_in=True)
# Kinds whose parts a caller may pass as objects in place of names.
_KINDS: tuple[Registry[object], ...] = (attacks, baselines, defenses, metrics)
