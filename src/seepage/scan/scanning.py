"""Which projects a folder holds."""

from __future__ import annotations

from pathlib import Path

from seepage.errors import BadInputError
from seepage.scan.flower import scan_flower
from seepage.scan.names import Sources
from seepage.scan.nvflare import CLIENT, FORMS, SERVER, scan_nvflare
from seepage.scan.nvflare_source import scan_nvflare_source
from seepage.scan.project import ScannedProject, bytes_of, files_below, mapping, root_of, settings_or_note
from seepage.scan.vantage6 import STORE, decorated_functions, node_files, scan_vantage6
from seepage.text import clean


class NothingUnderstoodError(BadInputError):
    """A folder in which no project is known."""


def scan(folder: Path) -> list[ScannedProject]:
    """Return the projects of Flower, NVFlare and vantage6 in a folder, and what they say of their messages.

    Settings and source are read. Nothing is run or imported.

    Raises:
        BadInputError: the folder or a settings file cannot be read, or there is no project of these in it.
        NothingUnderstoodError: no project is known in the folder.
    """
    if not folder.is_dir():
        raise BadInputError(f"the folder of a project is expected, got {clean(folder, 200)!r}; give a folder.")
    files = files_below(folder)
    projects = []
    for path in files:
        if path.name == "pyproject.toml":
            unread: list[str] = []
            settings = settings_or_note(path, path.parent, unread)
            if unread:
                name = clean(path.parent.name)
                projects.append(
                    ScannedProject("Unknown project", name, path.parent, (), (), tuple(unread), known=False)
                )
            if "flwr" in mapping(settings.get("tool")):
                projects.append(scan_flower(path.parent, settings, _inside(files, path.parent)))
    jobs = {_job_of(path, folder) for path in files if path.stem in (CLIENT, SERVER) and path.suffix in FORMS}
    projects += [scan_nvflare(job, _inside(files, job)) for job in sorted(jobs)]
    flower = [project.folder for project in projects if project.framework == "Flower app"]
    programs = [p for p in files if p.suffix == ".py" and not any(p.is_relative_to(of) for of in flower)]
    projects += scan_nvflare_source(folder, programs)
    algorithms = sorted({path.parent for path in files if path.name == STORE})
    stores = set(algorithms)
    older: set[Path] = set()
    for program in programs:
        content = _source_of(program)
        if b"flwr" in content:
            older.add(root_of(program, folder))
        if b"vantage6" in content and not any(program.is_relative_to(of) for of in stores):
            algorithms.append(root_of(program, folder))
    for root in sorted(older):
        of_root = [path for path in programs if path.is_relative_to(root) and root_of(path, folder) == root]
        if (project := scan_flower(root, {}, of_root)).known:
            projects.append(project)
    for root in sorted(set(algorithms)):
        inside = _inside(files, root)
        if root in stores or any(decorated_functions(Sources(root, inside))):
            projects.append(scan_vantage6(root, inside))
        else:
            algorithms = [of for of in algorithms if of != root]
    if nodes := [path for path in node_files(files) if not any(path.is_relative_to(of) for of in algorithms)]:
        projects.append(scan_vantage6(folder, nodes))
    if not projects:
        notebooks = sum(path.suffix == ".ipynb" for path in files)
        raise NothingUnderstoodError(
            f"{clean(folder, 200)!r} holds no project that is known here. Looked for: a pyproject.toml with "
            "[tool.flwr], or Python with a ClientApp, a start of clients or a strategy of flwr (Flower); a "
            f"{CLIENT} of JSON, HOCON or YAML, or Python that makes a Recipe or FedJob of nvflare (NVFlare); an "
            f"{STORE}, functions with vantage6's decorators, or a node configuration (vantage6)."
            + (f" Notebooks are not read: {notebooks}." if notebooks else "")
        )
    return projects


def _source_of(path: Path) -> bytes:
    try:
        return bytes_of(path)
    except BadInputError:
        # Larger than source is; whoever reads it says so.
        return b""


def _inside(files: list[Path], folder: Path) -> list[Path]:
    return [path for path in files if path.is_relative_to(folder)]


def _job_of(path: Path, folder: Path) -> Path:
    """Return the folder of a job: the nearest one above a configuration that has a ``meta`` file, or the given one."""
    for above in path.parents:
        if any((above / f"meta{form}").is_file() for form in FORMS):
            return above
        if above == folder:
            break
    return folder
