"""Options of commands that can run their jobs on a cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seepage.cli.app import option
from seepage.errors import BadInputError
from seepage.settings.option import RUNNING

if TYPE_CHECKING:
    from seepage.run.elsewhere import Machines

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
