"""Commands whose options are the fields of a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seepage.cli.app import guide, option
from seepage.config.choices import shown
from seepage.config.tree import DocumentError, parse
from seepage.errors import BadInputError
from seepage.settings.option import RUNNING, SpecField, fields_of
from seepage.settings.part import read_part
from seepage.settings.spec import Spec
from seepage.sources import is_reference

if TYPE_CHECKING:
    from seepage.run.elsewhere import Machines


_TYPES: Mapping[str, type] = {"whole": int, "number": float, "path": Path, "switch": bool}


def fields_in_options(
    spec: type[Spec], names: Collection[str] | None = None, defaults: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options for fields of a spec in the place of a command's parameter ``given``.

    ``defaults`` says in words what the command takes where that is not the default of the field; see ``options_from``.
    """
    fields = [(spec, field) for name, field in fields_of(spec).items() if names is None or name in names]
    return options_from(fields, defaults)


def options_from(
    fields: Sequence[tuple[type[Spec], SpecField]], defaults: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options for fields, each of a spec, in the place of a command's ``given``.

    The command gets ``given`` as a mapping from fields to values, of those alone that were given.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def taking(**values: object) -> None:
            given: dict[str, object] = {}
            for _, field in fields:
                value = _take_value(field, values)
                if value is not None:
                    given[field.name] = value
            command(given=given, **values)

        taking.__name__, taking.__doc__, taking.__module__ = command.__name__, command.__doc__, command.__module__
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "given":
                for spec, field in fields:
                    parameters += _parameters(spec, field, defaults or {})
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        # The command line is made of these two.
        taking.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        taking.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return taking

    return decorate


def _parts(field: SpecField) -> list[SpecField]:
    """Return the fields that are options of their own: those of a nested model that have names, or the field itself."""
    inner = [inner_field for inner_field in field.fields.values() if inner_field.option.name is not None]
    return inner or [field]


def _parameters(spec: type[Spec], field: SpecField, defaults: Mapping[str, str]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            inner_field.key if inner_field.option.name is not None else inner_field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_annotation(inner_field), _option(spec, inner_field, defaults.get(inner_field.name))],
        )
        for inner_field in _parts(field)
    ]


def _repeats(field: SpecField) -> bool:
    # A name is swept over, as it is in documents.
    return field.kind in ("list", "mapping") or field.option.parts is not None


def _annotation(field: SpecField) -> object:
    if field.option.as_text:
        return str | None
    if field.several and field.item in (int, float):
        return list[field.item] | None
    if _repeats(field):
        return list[str] | None
    return _TYPES.get(field.kind, str) | None


def _option(spec: type[Spec], field: SpecField, default: str | None) -> object:
    flag = f"{field.flag}/--no-{field.flag[2:]}" if field.kind == "switch" else field.flag
    metavar = field.option.metavar or ("|".join(field.choices) if field.choices else None)
    return typer.Option(
        flag,
        help=guide(help_of(field, default)),
        rich_help_panel=field.option.panel,
        metavar="" if field.kind == "switch" else metavar,
        show_default=False,
        autocompletion=_completion(spec, field),
    )


def help_of(field: SpecField, default: str | None = None) -> str:
    """Return the help of a field: its description, whether it repeats, and its default (``default`` where given)."""
    once = any(getattr(limit, "max_length", None) == 1 for limit in field.info.metadata)
    repeats = " Repeatable." if _repeats(field) and not once else ""
    default = default_of(field) if default is None else default
    return f"{field.option.help}{repeats}{f' Default: {default}.' if default else ''}"


def default_of(field: SpecField) -> str:
    """Return the default of a field in words; empty where there is none to tell."""
    if field.option.default is not None:
        return field.option.default
    default = field.default if not field.info.is_required() else None
    if isinstance(default, tuple):
        return ", ".join(item.title if field.parts else shown(item) for item in default)
    if isinstance(default, bool):
        return "yes" if default else "no"
    if default is None or default == {}:
        return ""
    return "a comma" if default == "," else shown(default)


def _completion(spec: type[Spec], field: SpecField) -> Callable[[str], list[str]] | None:
    def complete(incomplete: str) -> list[str]:
        names = field.choices if field.choices else spec.registered(field).names()
        return [name for name in names if name.startswith(incomplete)]

    return complete if field.choices or field.option.parts is not None else None


def _take_value(field: SpecField, values: dict[str, object]) -> object:
    """Remove the values of a field from the values of all options; None where the field was not given."""
    fields = _parts(field)
    if fields != [field]:
        nested = {inner_field.name: values.pop(inner_field.key) for inner_field in fields}
        return {name: value for name, value in nested.items() if value is not None and value != []} or None
    value = values.pop(field.key if field.option.name is not None else field.name)
    return None if value is None or value == [] else read_value(field, value)


def read_value(field: SpecField, value: Any) -> Any:
    """Return the value of an option from its text."""
    if field.kind == "mapping":
        return dict(_key_and_value(field, text) for text in value)
    if field.kind == "model":
        return _read_options(field, value)
    if field.option.parts is not None:
        return [_read_named_part(field, text) for text in value]
    if field.several and field.item is not None and field.item not in (int, float, str):
        return [[name.strip() for name in text.split(",")] for text in value]
    return value


def _read_named_part(field: SpecField, text: str) -> object:
    if field.option.own and ":{" not in text:
        return text
    try:
        part = read_part(text)
    except BadInputError as error:
        raise BadInputError(f"{field.flag}: {error}") from None
    options = part.get("options", {})
    if "+" in part["name"]:
        return {"all": [{"name": name, **options.get(name, {})} for name in part["name"].split("+")]}
    if ":" in part["name"] and not field.option.own and not all(map(_is_part_name, part["name"].split("+"))):
        raise BadInputError(
            f"{field.flag} takes a name, one of your own such as file.py:Class, or either with options such as "
            f"NAME:{{option: value}}, got {text!r}."
        )
    return {"name": part["name"], **options} if options else part["name"]


def _is_part_name(name: str) -> bool:
    """Return whether a name is that of a registered part, or of code of the user's own."""
    return ":" not in name or (is_reference(name) and "." in name)


def _key_and_value(field: SpecField, text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadInputError(f"{field.flag} takes {field.option.metavar or 'NAME=VALUE'}, got {text!r}.")
    return name, _value(value)


def _value(text: str) -> object:
    """Return the value of a text in YAML; a text that is no YAML is a string."""
    try:
        tree = parse(f"value: {text}", "").plain()
    except DocumentError:
        return text
    return tree["value"] if isinstance(tree, dict) and set(tree) == {"value"} else text


def _read_options(field: SpecField, text: str) -> dict[str, object]:
    options = _value(text)
    if not isinstance(options, dict) and field.option.whole is not None:
        return {field.option.whole: options}
    if not isinstance(options, dict):
        raise BadInputError(
            f"{field.flag} takes options such as {field.option.example or '{name: value}'}, got {text!r}."
        )
    return options


_FROM_DASK = "Default: Dask's configuration."
Cluster = Annotated[
    str | None,
    option(
        "Run the jobs on the Dask cluster of this scheduler, such as tls://HOST:8786. Needs the extra "
        "[bold]dask[/bold].",
        RUNNING,
        "ADDRESS",
    ),
]
ClusterCa = Annotated[
    Path | None, option(f"Certificate of the cluster's authority, PEM. {_FROM_DASK}", RUNNING, "FILE")
]
ClusterCert = Annotated[Path | None, option(f"Certificate of this side, PEM. {_FROM_DASK}", RUNNING, "FILE")]
ClusterKey = Annotated[Path | None, option(f"Private key of this side, PEM. {_FROM_DASK}", RUNNING, "FILE")]
InsecureCluster = Annotated[
    bool,
    option(
        "Take a cluster without encryption, on a loopback address of this machine alone.",
        RUNNING,
        "",
        "--insecure-cluster",
    ),
]


@dataclass(frozen=True)
class ClusterOptions:
    """Options that name a cluster; without an address, jobs run on this machine."""

    address: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def connect(self) -> AbstractContextManager[Machines | None]:
        """Return a context in which the cluster is connected; None in it where none is named."""
        if self.address is None:
            if self != ClusterOptions():
                raise BadInputError("options of a cluster were given without its address; give --cluster ADDRESS.")
            return nullcontext()
        dask = import_module("seepage.integrations.dask")
        return dask.cluster(self.address, ca=self.ca, cert=self.cert, key=self.key, insecure=self.insecure)


THIS_MACHINE = ClusterOptions()
