"""The command line: one command, one file.

A command's module registers it with ``app`` and is imported when the command is used, see ``seepage.cli.app``.
"""

from seepage.cli.app import app as app
from seepage.cli.app import main as main
from seepage.cli.app import program as program
