"""Dask: runs the jobs of audits, which hold true records, on an existing cluster over encrypted connections."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from seepage.errors import BadInputError
from seepage.packages import extra
from seepage.run.elsewhere import Machines, difference, forget, itself, versions

with extra("dask", "Dask", "dask", "distributed"):
    import dask.config
    from distributed import Client
    from distributed.security import Security

_CONNECT_SECONDS = 30
# How often the workers are counted and looked at.
_LOOK_SECONDS = 1.0


@contextlib.contextmanager
def cluster(
    address: str,
    *,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    insecure: bool = False,
) -> Iterator[Machines]:
    """Connect to a Dask cluster for a while.

    Args:
        address: address of the scheduler, such as ``tls://login:8786``.
        ca: path of the certificate authority's certificate; that of Dask's configuration if None.
        cert: path of this side's certificate; that of Dask's configuration if None.
        key: path of its private key; that of Dask's configuration if None.
        insecure: whether connections may be unencrypted, on a loopback address alone.

    Raises:
        BadInputError: the address would send records unencrypted, certificates are missing, or the cluster cannot be
            reached, has no worker, or has workers of another kind.

    Example:
        >>> with cluster("tcp://10.0.0.5:8786") as machines:
        ...     pass
        Traceback (most recent call last):
        ...
        seepage.errors.BadInputError: 'tcp://10.0.0.5:8786' is not encrypted, and jobs hold true records; ...
    """
    check_address(address, insecure)
    security = None if insecure else _security(ca, cert, key)
    # What is sent once, the audits, is large on purpose.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        client = _connect(address, security)
        try:
            workers = _Workers(client, address, insecure)
            try:
                client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            except TimeoutError as error:
                raise BadInputError(
                    f"the cluster at {address} has no worker after {_CONNECT_SECONDS} seconds; start one: dask worker "
                    "--nthreads 1."
                ) from error
            workers.count()
            versions_of = cast("dict[str, dict[str, str | None]]", client.run(versions))
            for worker, there in versions_of.items():
                if (differs := difference(versions(), there)) is not None:
                    raise BadInputError(f"the worker at {worker} {differs}")

            # Audits are a task, and no scattered data: where the worker that holds it dies, another makes it again.
            shared = partial(client.submit, itself, pure=False)
            yield Machines(client.get_executor(pure=False), workers.count, shared)
        finally:
            with contextlib.suppress(OSError, TimeoutError):
                client.run(forget, on_error="ignore")
            client.close()


def check_address(address: str, insecure: bool) -> None:
    """Refuse an address to which records would travel unencrypted."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise BadInputError(f"{address!r} is no address ({error}); give tls://HOST:PORT.") from error
    if insecure:
        if parts.scheme != "tcp" or not _is_loopback(parts.hostname):
            raise BadInputError(
                f"--insecure-cluster takes a loopback address such as tcp://127.0.0.1:8786, got {address!r}; elsewhere "
                "records travel encrypted: give tls://HOST:PORT without it."
            )
    elif parts.scheme != "tls":
        raise BadInputError(
            f"{address!r} is not encrypted, and jobs hold true records; give tls://HOST:PORT, or --insecure-cluster "
            "with a scheduler on this machine's loopback address."
        )


def _is_loopback(host: str | None) -> bool:
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        # A name may lead anywhere, but for this one.
        return host == "localhost"


def _security(ca: str | Path | None, cert: str | Path | None, key: str | Path | None) -> Security:
    # What is not given is read from Dask's configuration.
    given = {"tls_ca_file": ca, "tls_client_cert": cert, "tls_client_key": key}
    for path in given.values():
        if path is not None and not Path(path).is_file():
            raise BadInputError(f"no file {str(path)!r}; give the path of a PEM file of the cluster's certificates.")
    security = Security(
        require_encryption=True, **{name: str(path) for name, path in given.items() if path is not None}
    )
    if security.tls_ca_file is None or security.tls_client_cert is None:
        raise BadInputError(
            "a tls:// cluster needs certificates; give --cluster-ca, --cluster-cert and --cluster-key, or set "
            "distributed.comm.tls in Dask's configuration."
        )
    return security


def _connect(address: str, security: Security | None) -> Client:
    try:
        return Client(address, security=security, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise BadInputError(
            f"no scheduler can be reached at {address!r} ({problem}); see that it runs there, with certificates of the "
            "same authority."
        ) from error


class _Workers:
    """The workers of a cluster, looked at now and then since they come and go."""

    def __init__(self, client: Client, address: str, insecure: bool) -> None:
        self._client, self._address, self._insecure = client, address, insecure
        self._looked, self._count = -_LOOK_SECONDS, 0

    def count(self) -> int:
        """Return the number of workers; none may be reached unencrypted or run several jobs at once."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return self._count
        try:
            info = self._client.scheduler_info()
        except (OSError, TimeoutError) as error:
            raise BadInputError(
                f"the cluster at {self._address} is lost ({error}). What was measured is kept; run the same command "
                "again."
            ) from error
        workers = info["workers"]
        # A scheduler that listens on all addresses would let workers of other machines in.
        for address in (info["address"], *workers):
            check_address(address, self._insecure)
        for address, worker in workers.items():
            if worker["nthreads"] != 1:
                raise BadInputError(
                    f"the worker at {address} runs {worker['nthreads']} jobs at once, and memory and threads are "
                    "counted for one; start workers with --nthreads 1, as many as there are cores."
                )
        self._looked, self._count = time.monotonic(), len(workers)
        return self._count
