"""Source code: user code by its name, and digests of the code that determines figures."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from seepage.digests import Json, attributes_of, digest_of, plain
from seepage.errors import BadInputError, unknown_name
from seepage.packages import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

_FORM = re.compile(r"(?P<place>.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


def is_reference(name: str) -> bool:
    """Return whether a name is that of user code."""
    return _FORM.fullmatch(name) is not None


def short_name(name: str) -> str:
    """Return the name of a part in results: for user code the name in its file."""
    match = _FORM.fullmatch(name)
    return name if match is None else match["name"]


def import_part(reference: str, kind: str) -> object:
    """Return the object of a reference.

    A module is searched for in the current directory first, then on Python's path; a file's imports are searched for
    in its own folder.
    """
    match = _FORM.fullmatch(reference)
    if match is None:
        raise BadInputError(f"a {kind} of your own is named path/to/file.py:Class, got {reference!r}.")
    folder = Path(match["place"]).parent.resolve() if is_file(match["place"]) else Path.cwd()
    with searched_first(folder):
        module = import_place(match["place"], reference, kind)
    if not hasattr(module, match["name"]):
        classes = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise unknown_name(f"class in {kind} {reference!r}:", match["name"], classes)
    return getattr(module, match["name"])


def is_file(place: str) -> bool:
    """Return whether a place is named as a file."""
    return place.endswith(".py")


# Modules from a user's folder: no other process could import them by name.
_LOADED: dict[str, ModuleType] = {}


def loaded_files() -> list[ModuleType]:
    """Return the modules that were loaded from files and folders of the user."""
    return [module for name, module in _LOADED.items() if sys.modules.get(name) is module]


@contextmanager
def searched_first(folder: Path) -> Iterator[None]:
    """Search for imports in a folder first, for a while."""
    # Only while importing: a file of the user's must not shadow a library that seepage imports later.
    entry = str(folder)
    before = set(sys.modules)
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and folder in Path(file).resolve().parents and "site-packages" not in file:
                _LOADED[name] = sys.modules[name]
        if entry in sys.path:
            sys.path.remove(entry)


def import_place(place: str, reference: str, kind: str) -> ModuleType:
    """Return the module of a dotted name or a file."""
    try:
        if not is_file(place):
            return importlib.import_module(place)
        path = Path(place).resolve()
        if not path.is_file():
            raise BadInputError(
                f"the {kind} {reference!r} names the file {place!r}, which does not exist; give the path from the "
                "current directory."
            )
        name = f"_seepage_own_{path.stem}_{hashlib.sha256(path.read_bytes() + str(path).encode()).hexdigest()[:12]}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
    except BadInputError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise BadInputError(
                f"the {kind} {reference!r} names the module {place!r}, but there is no module {error.name!r}, neither "
                "in the current directory nor installed; check its spelling, start seepage where it lies, or give "
                "path/to/file.py:factory."
            ) from error
        raise _broken(reference, place, error, kind) from error
    except (Exception, SystemExit) as error:
        raise _broken(reference, place, error, kind) from error


def _broken(reference: str, place: str, error: BaseException, kind: str) -> BadInputError:
    return BadInputError(
        f"the module {place!r} of the {kind} {reference!r} cannot be imported: it raised {described(error)}. Mend it, "
        "or install what it needs."
    )


def described(error: BaseException) -> str:
    """Return type and message of an error, and the line of the user's code that raised it, on one line."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 400 else text[:399] + "…"
    place = ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    # The text of a syntax error names the line already.
    named = isinstance(error, SyntaxError) and error.filename
    if not named and frames and Path(__file__).parent not in Path(frames[-1].filename).parents:
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return f"{type(error).__name__}{': ' + text if text else ''}{place}"


_PACKAGE = Path(__file__).parent
# Reports and the command line change no figure.
_DETERMINING = (
    *("tabular", "models", "shadow", "datasets", "wire", "protocols", "defenses", "attacks", "baselines"),
    *("assessment", "settings", "papers", "learning.py", "seeds.py"),
)


@cache
def own_code() -> dict[str, str]:
    """Return a digest of the source files that determine figures, and PyTorch's version.

    Victims measured by other code are measured again: a version number does not change with every correction, but
    figures may.
    """
    digest = hashlib.sha256()
    for name in _DETERMINING:
        place = _PACKAGE / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(_PACKAGE).as_posix().encode())
            digest.update(file.read_bytes())
    return {"digest": digest.hexdigest()[:16], "torch": torch.__version__}


def foreign_code(factory: Callable[..., object]) -> str | None:
    """Return a digest of the source file of a part that another package adds, None for seepage's own."""
    file = getattr(sys.modules.get(getattr(factory, "__module__", "")), "__file__", None)
    if file is None or not Path(file).is_file() or _PACKAGE in Path(file).parents:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


class NoDigestError(Exception):
    """An object whose computation has no digest; ``what`` is the reason, as the end of a sentence."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def fingerprint(passed: object) -> str:
    """Return a digest of all that a caller's object computes with: source files of its classes, and its values."""
    return digest_of({"object": _values(passed, ())})


def _values(value: object, inside: tuple[int, ...]) -> Json:
    if id(value) in inside:
        raise NoDigestError(f"{type(value).__name__} holds itself")
    inside = (*inside, id(value))
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value.hex() if isinstance(value, bytes) else value
    if isinstance(value, Mapping):
        return [[_values(key, inside), _values(item, inside)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_values(item, inside) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_values(item, inside) for item in value), key=repr)
    if isinstance(value, type):
        return _source(value)
    if isinstance(value, functools.partial):
        return ["partial", *(_values(item, inside) for item in (value.func, value.args, value.keywords))]
    if inspect.ismethod(value):
        return [value.__name__, _values(value.__self__, inside)]
    if inspect.isbuiltin(value):
        return f"{value.__module__}.{value.__qualname__}"
    if inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        # Functions of one file differ by their code, whatever they are called.
        contents = [_code(value.__code__), cells, value.__defaults__, value.__kwdefaults__]
        return [_source(value), *(_values(item, inside) for item in contents)]
    if isinstance(value, torch.dtype | torch.device | Path):
        return str(value)
    if isinstance(value, torch.Tensor):
        return plain(value.detach().cpu())
    if type(value).__module__.partition(".")[0] == "numpy":
        return plain(value)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    # Attributes outside of slots follow, without what was computed from others.
    slots = [name for name in slots if name != "__dict__"]
    if not hasattr(value, "__dict__") and not slots:
        raise NoDigestError(f"{type(value).__name__} has no values that could be compared")
    attributes = {**{name: getattr(value, name) for name in slots}, **attributes_of(value)}
    kinds = [_source(kind) for kind in type(value).__mro__ if kind.__module__ != "builtins"]
    return [*kinds, {name: _values(item, inside) for name, item in sorted(attributes.items())}]


def _code(code: CodeType) -> list[object]:
    constants = [_code(constant) if isinstance(constant, CodeType) else constant for constant in code.co_consts]
    return [code.co_code, list(code.co_names), constants]


def _source(defined: type | Callable[..., object]) -> Json:
    """Return name and file of a class or function; its file is read again at each call, as it may have changed."""
    name = f"{defined.__module__}.{defined.__qualname__}"
    file = getattr(sys.modules.get(defined.__module__), "__file__", None)
    if file is None or not Path(file).is_file():
        raise NoDigestError(f"{defined.__qualname__} is defined in no file")
    return [name, hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]]


def is_own(name: str) -> bool:
    """Return whether a model's name is that of a user's own factory."""
    return ":" in name
