"""User code, named ``package.module:name`` or ``path/to/file.py:name``; consent to run it is checked before."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from seepage.errors import BadInputError, unknown_name

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
