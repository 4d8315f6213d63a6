"""A guard described in a file, for sites that configure and do not program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from seepage.captures.captured import described
from seepage.errors import BadInputError
from seepage.files import load_yaml, read_text
from seepage.guard.policy import Action, GuardPolicy, Mode
from seepage.guard.update_guard import UpdateGuard
from seepage.models.model import Head
from seepage.protocols.recipe import MessageRecipe
from seepage.sources import is_own
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table


class GuardSettings(BaseModel):
    """The keys of a guard file; paths are taken from the file's own folder.

    Attributes:
        model: registered name, ``package.module:factory`` or ``path/to/file.py:factory``.
        schema_file: YAML schema of the client's table; the key is ``schema``.
        reference: table of public rows of the same kind.
        rows: table of the client's own rows, which it trains on.
        encoder: JSON declaration of the client's encoder.
        policy, mode, clip_norm, noise_multiplier, delta, share, metrics: what to do with updates, see ``GuardPolicy``.
        log: file to which a line is added a round. The other keys are arguments of ``UpdateGuard``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: str
    schema_file: Annotated[Path, Field(alias="schema")]
    recipe: MessageRecipe
    reference: Path | None = None
    rows: Path | None = None
    encoder: Path | None = None
    policy: Action = "block"
    mode: Mode = "advise"
    clip_norm: float | None = None
    noise_multiplier: float | None = None
    delta: float = 1e-5
    share: float = 0.05
    metrics: tuple[str, ...] = ()
    head: Head | None = None
    seconds: float = 20.0
    log: Path | None = None
    keep_records: bool = False
    certificates: Path | None = None


def load(path: str | Path, *, allow_code: bool = False) -> UpdateGuard:
    """Return the guard that a YAML file describes, see ``GuardSettings`` for its keys.

    ``allow_code`` says whether code that the file names, a network of the user's own, may run.

    Raises:
        BadInputError: the file cannot be read, has unknown keys or values that cannot be used, or names code that is
            not allowed.

    Example:
        >>> import tempfile
        >>> from seepage.datasets.planted import distinct
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "schema.yaml").write_text(distinct(rows=8).schema.to_yaml())
        ...     _ = Path(folder, "guard.yaml").write_text(
        ...         "{model: nn3, schema: schema.yaml, recipe: {batch_size: 8}, policy: block, mode: strict}"
        ...     )
        ...     load(Path(folder, "guard.yaml")).policy.action
        'block'
    """
    path = Path(path)
    what = f"the guard file {str(path)!r}"
    try:
        values = load_yaml(read_text(path, what), what)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{what} cannot be read ({error}); give the path of a YAML file.") from error
    if not isinstance(values, dict):
        raise BadInputError(f"{what} holds {type(values).__name__} where keys with values are expected.")
    settings = described(GuardSettings, values, what)
    if is_own(settings.model) and not allow_code:
        raise BadInputError(
            f"{what} names code of your own, {settings.model!r}, which runs when the guard is made; allow it with "
            "allow_code=True where you trust the file."
        )
    folder = path.resolve().parent
    schema = Schema.load(folder / settings.schema_file)
    policy = GuardPolicy(
        settings.policy,
        settings.mode,
        settings.clip_norm,
        settings.noise_multiplier,
        settings.delta,
        settings.share,
        settings.metrics,
    )
    place, _, factory = settings.model.rpartition(":")
    return UpdateGuard(
        f"{folder / place}:{factory}" if place.endswith(".py") else settings.model,
        schema,
        settings.recipe,
        reference=None if settings.reference is None else Table.read(folder / settings.reference, schema),
        rows=None if settings.rows is None else Table.read(folder / settings.rows, schema),
        encoder=None if settings.encoder is None else ClientEncoder.load(folder / settings.encoder),
        policy=policy,
        log=None if settings.log is None else folder / settings.log,
        certificates=None if settings.certificates is None else folder / settings.certificates,
        head=settings.head,
        seconds=settings.seconds,
        keep_records=settings.keep_records,
    )
