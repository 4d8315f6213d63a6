"""The command line: one command, one file, imported when it is used, see ``seepage.cli.app``."""

from seepage.cli.app import app as app
from seepage.cli.app import main as main
from seepage.cli.app import program as program
