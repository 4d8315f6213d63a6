"""Attacks every captured update of a run, as the server could, and says what each client and round gives away.

    python audit.py run/captured

Exit statuses: 0 nothing was proved, 1 records were proved, 2 there is nothing to attack.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flower_adult.task import DATA, Net

from seepage.attacking.federation import FederationAttack
from seepage.attacking.findings import AttackedFederation
from seepage.errors import BadInputError
from seepage.report.captured import read_document
from seepage.report.terminal import make_console, show


def main() -> int:
    """Attack the updates of the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Attack every captured update of a run.")
    parser.add_argument("captured", type=Path, help="folder of the captured updates")
    try:
        federation = audit(parser.parse_args().captured)
    except BadInputError as error:
        print(error, file=sys.stderr)
        return 2
    show(make_console(), read_document(federation.findings))
    return int(federation.counts["proved"] > 0)


def audit(folder: Path) -> AttackedFederation:
    """Return what the updates give away; what is not proved is not estimated."""
    return FederationAttack.of(Net(), DATA.schema, DATA.train, proofs_only=True).run(folder)


if __name__ == "__main__":
    sys.exit(main())
