"""``seepage audit``, ``split``, ``vertical`` and ``pooled``: one command for each setting, made from its spec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperOption

from seepage.cli.app import Forwarded, app, guide, load, option
from seepage.cli.options import (
    Cluster,
    ClusterCa,
    ClusterCert,
    ClusterKey,
    ClusterOptions,
    InsecureCluster,
    fields_in_options,
)
from seepage.config.document import HORIZONTAL, SETTING, presets, read_preset, read_text_document, setting_of
from seepage.config.tree import DocumentError, read_text
from seepage.config.wording import as_key, as_option
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.settings.catalogue import Setting, settings
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.option import ATTACK, OUTPUT, RUNNING, fields_of
from seepage.tabular.policy import SUFFIXES

_DOCUMENTS = (".yaml", ".yml")

Document = Annotated[
    Path | None,
    typer.Argument(
        help="Audit document in YAML; [bold]seepage spec new[/bold] drafts one. Options take precedence over it.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    option(
        "Run folder. One that holds the same audit is continued: what was measured is kept and shown. Default: a "
        "new one in runs/.",
        OUTPUT,
        "FOLDER",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=ATTACK,
        help="A ready document: which networks, batch sizes, attacks and defenses are run. Settings other than "
        "horizontal learning have [bold]decide[/bold], their usual defenses beside none. "
        + " ".join(f"[bold]{name}[/bold]: {what}" for name, what in presets().items())
        + " Default: decide; default where an attack, a defense, a protocol or a gate is given.",
        autocompletion=lambda incomplete: [name for name in presets() if name.startswith(incomplete)],
    ),
]
AllowCode = Annotated[
    bool,
    option(
        "Let the document name code that is run, such as file.py:factory as its model. Read it first.",
        RUNNING,
        "",
        "--allow-code",
    ),
]
AsJson = Annotated[bool, option("Print the results as JSON instead of tables.", OUTPUT, "", "--json")]
Verbose = Annotated[bool, option("Print all tables and checks.", OUTPUT, "", "--verbose")]
Quiet = Annotated[bool, option("Print neither progress nor tables.", OUTPUT, "", "--quiet")]
Junit = Annotated[
    Path | None,
    option(
        "File for the gate's answer as JUnit XML, with its figures and the checks as tests; needs --fail-above.",
        OUTPUT,
        "FILE",
        "--junit",
    ),
]
Sarif = Annotated[
    Path | None,
    option(
        "File for the gate's answer and the findings of checks as SARIF 2.1.0; needs --fail-above.",
        OUTPUT,
        "FILE",
        "--sarif",
    ),
]

# Fields that a first audit is steered by; the help shows others where all are asked for.
_FIRST = (
    *("data", "target", "sensitive", "missing", "dataset", "model", "private_columns", "batch_sizes", "attacks"),
    *("defenses", "victims", "repetitions", "trainings", "seed", "workers", "time_budget", "fail_above"),
    *("keep_records", "out", "quiet", "verbose", "document", "help_all", "help"),
)


class _SettingCommand(TyperCommand):
    """A command whose help shows the options of a first audit, and with ``--help-all`` all of them."""

    all_options = False

    def parse_args(self, ctx, args):
        """Read the arguments; those that ask for all options ask for the help."""
        self.all_options = "--help-all" in args
        return super().parse_args(ctx, ["--help"] if self.all_options else args)

    def format_help(self, ctx, formatter) -> None:
        """Write the help."""
        first = [
            plugin.spec.first for plugin in settings().values() if ctx.info_name == (plugin.command or plugin.name)
        ]
        shown = {*_FIRST, *(name for names in first for name in names)}
        further = [] if self.all_options else [p for p in self.get_params(ctx) if p.name not in shown]
        before = [(parameter, parameter.hidden) for parameter in further if isinstance(parameter, TyperOption)]
        for parameter, _ in before:
            parameter.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for parameter, was in before:
                parameter.hidden = was


HelpAll = Annotated[bool, typer.Option("--help-all", metavar="", help="Show all options.")]


class _OfAnySetting(Forwarded, _SettingCommand):
    """A command that runs a document of another setting as that setting's command does, with its options."""

    def other(self, arguments: list[str]) -> TyperCommand | None:
        """Return the command of the document's setting."""
        setting = setting_in(arguments)
        return None if setting == HORIZONTAL else load(find_setting(setting).command or setting)


def setting_in(arguments: list[str]) -> str:
    """Return the setting of the first document of another setting among some arguments; horizontal without one."""
    for argument in arguments:
        if argument.endswith(_DOCUMENTS) and Path(argument).is_file():
            try:
                setting = setting_of(read_text(argument), argument)
            except DocumentError:
                # A schema is YAML, too.
                continue
            if setting != HORIZONTAL:
                return setting
    return HORIZONTAL


def add(audited: Setting) -> None:
    """Add the command of a setting."""
    spec, setting = audited.spec, audited.name

    def command(
        document: Document = None,
        *,
        given: dict[str, Json],
        preset: Preset = None,
        out: Out = None,
        allow_code: AllowCode = False,
        cluster: Cluster = None,
        cluster_ca: ClusterCa = None,
        cluster_cert: ClusterCert = None,
        cluster_key: ClusterKey = None,
        insecure_cluster: InsecureCluster = False,
        as_json: AsJson = False,
        quiet: Quiet = False,
        verbose: Verbose = False,
        junit: Junit = None,
        sarif: Sarif = None,
        help_all: HelpAll = False,
    ) -> None:
        text, name = _document(setting, document, preset, given)
        folder = Path() if document is None else document.parent
        specs = read_text_document(text, name, folder, given, allow_code=allow_code)
        # Only what can be run is worth the time that the runner takes to load.
        running = import_module("seepage.cli.running")
        machines = ClusterOptions(cluster, cluster_ca, cluster_cert, cluster_key, insecure_cluster)
        documented = document is not None or (preset is not None and setting == HORIZONTAL)
        running.run(
            specs,
            out,
            # What is wrong with a table is worded as it was named.
            as_option if document is None or "data" in given else as_key,
            as_json=as_json,
            quiet=quiet,
            verbose=verbose,
            document_text=None if document is None else text,
            cluster=machines,
            # Parts that nobody asked for must not stop an audit that they do not fit; a document asks for its own.
            given=None if documented else [name for name, value in given.items() if value is not None],
            answers=running.Answers(junit, sarif, document),
        )

    # What is searched for has a command of its own.
    names = [name for name in fields_of(spec) if name != "recommend"]
    setting_command = fields_in_options(spec, names, _DECIDED if setting == HORIZONTAL else None)(command)
    setting_command.__doc__ = guide(spec.guide)
    app.command(audited.command or setting, cls=_OfAnySetting if setting == HORIZONTAL else _SettingCommand)(
        setting_command
    )


# What the preset ``decide`` says, where that is not the default of the spec.
_DECIDED = {
    "defenses": "none, dp_sgd at epsilon 8, 3 and 1, aggregation; none beside --attack, --protocol or a gate",
    "batch_sizes": "8 with the default defenses, else 8, 32",
}
# What says itself what is audited, so that nothing is audited beside it.
_TELLING = ("attacks", "defenses", "protocol", "gate")


def _document(setting: str, document: Path | None, preset: str | None, given: Mapping[str, object]) -> tuple[str, str]:
    """Return text and name of the document with which an audit starts."""
    if document is not None and preset is not None:
        raise BadInputError(f"either a document or a preset: give {str(document)!r} or --preset {preset}, not both.")
    if document is not None and document.name.lower().endswith(SUFFIXES):
        raise BadInputError(
            f"{str(document)!r} is a table and no audit document; give it with --data {document} --target COLUMN."
        )
    if document is None:
        if setting == HORIZONTAL:
            usual = "default" if any(given.get(name) is not None for name in _TELLING) else "decide"
            return read_preset(preset or usual), f"preset {preset or usual}"
        fields = {} if preset is None else find_setting(setting).preset(preset, given)
        # JSON is YAML.
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in {SETTING: setting, **fields}.items()), ""
    text = read_text(document)
    documented = setting_of(text, str(document))
    if documented != setting:
        raise BadInputError(
            f"{str(document)!r} is about {documented} learning, not {setting} learning; run it with 'seepage audit'."
        )
    return text, str(document)
