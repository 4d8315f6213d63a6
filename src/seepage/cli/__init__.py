"""The command line: one command, one file."""

# Each registers its command on import; the order is that of --help.
from seepage.cli import audit as audit  # isort: skip
from seepage.cli import correlate as correlate  # isort: skip
from seepage.cli import spec as spec  # isort: skip
from seepage.cli import schema as schema  # isort: skip
from seepage.cli import capture as capture  # isort: skip
from seepage.cli import attack as attack  # isort: skip
from seepage.cli import lists as lists  # isort: skip
from seepage.cli import compare as compare  # isort: skip
from seepage.cli import reproduce as reproduce  # isort: skip
from seepage.cli.app import app as app
from seepage.cli.app import main as main
