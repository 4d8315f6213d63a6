"""The settings that can be audited: a plug-in each. Nothing here imports PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar, cast

from seepage import registry
from seepage import settings as package
from seepage.errors import BadInputError, unknown_name
from seepage.registry import Registry

if TYPE_CHECKING:
    from seepage.settings.captured import Reader
    from seepage.settings.setting import Audit, Given
    from seepage.settings.spec import Spec
    from seepage.settings.threat_model import Deployment
    from seepage.settings.units import Tables

    Prepare = Callable[[Any, Given, Tables], Audit]
    Deploy = Callable[[Any], Deployment]

T = TypeVar("T")
_GROUP = "seepage.settings"


@dataclass(frozen=True)
class Setting:
    """One kind of collaborative learning, with all that a list of it elsewhere would have to name.

    Attributes:
        spec_at: the spec class, or ``module:name`` of it.
        prepare_at: function from a spec, given objects and loaded tables to an audit, or ``module:name`` of it.
        deployment_at: function from a spec to what the deployment shows and grants the attacker, or ``module:name`` of
            it; None where the setting declares no threat model.
        command: name of its command; the setting's name if empty.
        order: place in lists; settings of other packages stand after seepage's own.
        protocols, attacks, baselines, defenses: module of each part by its name, imported when the part is first made.
        views: what each view is, in words, by the name of its class.
        decide: defenses that the preset ``decide`` audits beside none, by protocol; under ``""`` those of any other.
        reader_at: ``module:name`` of what reads its captured messages for ``seepage attack``, a
            ``settings.captured.Reader``; None without any.
    """

    name: str
    summary: str
    spec_at: str | type[Spec]
    prepare_at: str | Prepare
    deployment_at: str | Deploy | None = None
    command: str = ""
    order: int = 100
    protocols: Mapping[str, str] = field(default_factory=dict)
    attacks: Mapping[str, str] = field(default_factory=dict)
    baselines: Mapping[str, str] = field(default_factory=dict)
    defenses: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    decide: Mapping[str, Sequence[object]] = field(default_factory=dict)
    reader_at: str | None = None

    @property
    def reader(self) -> Reader | None:
        """What reads its captured messages; None without any."""
        return None if self.reader_at is None else cast("Reader", _resolved(self.reader_at))

    @property
    def spec(self) -> type[Spec]:
        """Class of its specs."""
        return cast("type[Spec]", _resolved(self.spec_at))

    @property
    def prepare(self) -> Prepare:
        """Function from a spec, given objects and loaded tables to an audit."""
        return cast("Prepare", _resolved(self.prepare_at))

    @property
    def deployment(self) -> Deploy | None:
        """Function from a spec to its threat model."""
        return None if self.deployment_at is None else cast("Deploy", _resolved(self.deployment_at))

    def preset(self, name: str, given: Mapping[str, object]) -> dict[str, object]:
        """Return the fields of a ready document beside what is given.

        Raises:
            BadInputError: the setting has no preset of this name.
        """
        if name != "decide" or not self.decide:
            has = "it has the preset 'decide'" if self.decide else f"use 'seepage recommend --setting {self.name}'"
            raise BadInputError(
                f"the setting {self.name!r} has no preset {name!r}; {has}, or name defenses (defenses)."
            )
        # What is not understood yet, such as texts in place of numbers, says nothing of the protocol.
        spec = self.spec.attempt(given)
        if isinstance(spec, list):
            wrong = {problem.path[0] for problem in spec if problem.path}
            spec = self.spec.attempt({name: value for name, value in given.items() if name not in wrong})
        protocol = str(given.get("protocol", "") if isinstance(spec, list) else getattr(spec, "protocol", ""))
        return {"defenses": ["none", *self.decide.get(protocol, self.decide.get("", ()))]}


def _resolved(reference: object) -> object:
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return attrgetter(name)(import_module(module))


_SETTINGS: dict[str, Setting] = {}
_plugins_loaded = False


def add_setting(setting: Setting) -> None:
    """Register a setting and its parts under a name that is not taken."""
    if setting.name in _SETTINGS:
        raise BadInputError(f"setting {setting.name!r} is registered twice; choose another name.")
    _SETTINGS[setting.name] = setting
    registry.protocols.declare(setting.protocols, setting.name)
    registry.attacks.declare(setting.attacks, setting.name)
    registry.baselines.declare(setting.baselines, setting.name)
    registry.defenses.declare(setting.defenses, setting.name)


def settings() -> dict[str, Setting]:
    """Return all settings by name, those of other packages (entry points ``seepage.settings``) included."""
    global _plugins_loaded
    if not _plugins_loaded:
        _plugins_loaded = True
        for point in entry_points(group=_GROUP):
            # The module registers its setting when it is imported.
            point.load()
    return dict(sorted(_SETTINGS.items(), key=lambda pair: (pair[1].order, pair[0])))


def setting(name: str) -> Setting:
    """Return the setting of a name; for an unknown one the message names the nearest."""
    plugins = settings()
    if name not in plugins:
        raise unknown_name("setting", name, plugins)
    return plugins[name]


def settings_of(registered: Registry[T]) -> list[str]:
    """Return the settings that have parts of a kind: seepage's own first, then those that plug-ins add."""
    names = {entry.setting for entry in registered.entries() if entry.setting is not None}
    places = {name: i for i, name in enumerate(settings())}
    return sorted(names, key=lambda name: (places.get(name, len(places)), name))


def view_in_words(name: str) -> str:
    """Return what a view of this class's name is, in words.

    Example:
        >>> view_in_words("GradientView"), view_in_words("Letters")
        ('a gradient', 'Letters')
    """
    return next((plugin.views[name] for plugin in settings().values() if name in plugin.views), name)


def deployment_of(spec: Spec) -> Deployment:
    """Return the threat model of a spec; refuse one of a setting that declares none."""
    plugin = setting(spec.setting)
    if plugin.deployment is None:
        raise BadInputError(
            f"the setting {spec.setting!r} declares no threat model; give its plug-in a function from a spec to a "
            "Deployment, so that attacks can be held against it."
        )
    return plugin.deployment(spec)


# Each folder of this package is a setting, which registers itself.
for _module in iter_modules(package.__path__):
    if _module.ispkg:
        import_module(f"{package.__name__}.{_module.name}")
