"""The settings that can be audited: a plug-in each. Nothing here imports PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from seepage.errors import BadInputError, unknown_name

if TYPE_CHECKING:
    from seepage.settings.setting import Audit, Given
    from seepage.settings.spec import Spec
    from seepage.settings.threat_model import Deployment
    from seepage.settings.units import Tables

    Prepare = Callable[[Any, Given, Tables], Audit]
    Deploy = Callable[[Any], Deployment]

_GROUP = "seepage.settings"


@dataclass(frozen=True)
class Setting:
    """One kind of collaborative learning.

    Attributes:
        spec_at: the spec class, or ``module:name`` of it.
        prepare_at: function from a spec, given objects and loaded tables to an audit, or ``module:name`` of it.
        deployment_at: function from a spec to what the deployment shows and grants the attacker, or ``module:name`` of
            it; None where the setting declares no threat model.
        command: name of its command; the setting's name if empty.
    """

    name: str
    summary: str
    spec_at: str | type[Spec]
    prepare_at: str | Prepare
    deployment_at: str | Deploy | None = None
    command: str = ""

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


def _resolved(at: object) -> object:
    if not isinstance(at, str):
        return at
    module, _, name = at.partition(":")
    return attrgetter(name)(import_module(module))


_SETTINGS: dict[str, Setting] = {}
_plugins_loaded = False


def add_setting(setting: Setting) -> None:
    """Register a setting under a name that is not taken."""
    if setting.name in _SETTINGS:
        raise BadInputError(f"setting {setting.name!r} is registered twice; choose another name.")
    _SETTINGS[setting.name] = setting


def settings() -> dict[str, Setting]:
    """Return all settings by name, those of other packages (entry points ``seepage.settings``) included."""
    global _plugins_loaded
    if not _plugins_loaded:
        _plugins_loaded = True
        for point in entry_points(group=_GROUP):
            # The module registers its setting when it is imported.
            point.load()
    return dict(_SETTINGS)


def setting(name: str) -> Setting:
    """Return the setting of a name; for an unknown one the message names the nearest."""
    plugins = settings()
    if name not in plugins:
        raise unknown_name("setting", name, plugins)
    return plugins[name]


def deployment_of(spec: Spec) -> Deployment:
    """Return the threat model of a spec; refuse one of a setting that declares none."""
    plugin = setting(spec.setting)
    if plugin.deployment is None:
        raise BadInputError(
            f"the setting {spec.setting!r} declares no threat model; give its plug-in a function from a spec to a "
            "Deployment, so that attacks can be held against it."
        )
    return plugin.deployment(spec)


# Summary of each setting, and the function of its module ``audit`` that prepares an audit.
_OURS = {
    "horizontal": (
        "horizontal learning: what the server reads of the records behind gradients and updates",
        "prepared_audit",
    ),
    "split": ("split learning: what the server reads of the client's columns and labels", "prepared"),
    "vertical": (
        "vertical learning: what the active party reads of a passive party's columns",
        "VerticalAudit.prepared",
    ),
    "pooled": (
        "pooled learning: what a joint model's answers tell of a sensitive column's distribution",
        "PooledAudit.prepared",
    ),
    "trees": (
        "federated trees: what histograms and tree files tell of the records that they were grown on",
        "prepared",
    ),
    "statistics": (
        "federated statistics: what sums of regressions, survival models and tables tell of records",
        "StatisticsAudit.prepared",
    ),
}
for _name, (_summary, _prepare) in _OURS.items():
    _spec, _audit = f"seepage.settings.{_name}.spec", f"seepage.settings.{_name}.audit"
    _places = f"{_spec}:{_name.capitalize()}Spec", f"{_audit}:{_prepare}", f"{_audit}:deployment"
    add_setting(Setting(_name, _summary, *_places, command="audit" if _name == "horizontal" else ""))
