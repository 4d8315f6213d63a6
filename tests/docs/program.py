"""``seepage`` for the blocks of documents: each command is forked off a process that has imported PyTorch already.

Importing PyTorch, pandas and SciPy takes longer than most of these commands compute. The program as it is installed is
tested elsewhere (``tests/test_install.py``, ``tests/cli/test_start.py``). Here, too, ``seepage.cli.main`` runs in a
process of its own, with the block's arguments, folder, variables, input and output.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

# Packages of others that most commands import. Those of seepage are imported by each command as it needs them.
IMPORTED = (
    *("torch", "torch._dynamo", "torch.fx.experimental.proxy_tensor", "pandas", "scipy.optimize", "scipy.stats"),
    *("jinja2", "loky", "pydantic", "rich", "typer"),
)
# Runs in a moment: it imports nothing but sockets.
CLIENT = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    told = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(connection, [len(told).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(told)
    status = connection.recv(1)
sys.exit(status[0] if status else "the command was killed")
"""


@cache
def folder_of_program() -> Path:
    """Return a folder that holds the program; the process that it is forked off ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="seepage-program-"))
    address = folder / "socket"
    program = folder / "seepage"
    program.write_text(CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
    program.chmod(0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen()
    server = subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno())],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        pass_fds=[listener.fileno()],
        # It ends when this process does, however that ends.
        stdin=subprocess.PIPE,
    )
    listener.close()

    def end() -> None:
        server.kill()
        server.wait()
        for path in (program, address):
            path.unlink()
        folder.rmdir()

    atexit.register(end)
    return folder


def serve(listener: socket.socket) -> None:
    """Fork a process for each command until the one that started this has ended."""
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [], 10.0)
        # So that commands that have ended do not stay as zombies.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if sys.stdin in readable:
            return
        if listener not in readable:
            continue
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        status = carried_out(connection)
        connection.sendall(bytes([status]))
        os._exit(status)


def carried_out(connection: socket.socket) -> int:
    """Return the exit status of one command, which a connection tells."""
    length, streams, _, _ = socket.recv_fds(connection, 8, 3)
    told = b""
    while len(told) < int.from_bytes(length, "big"):
        told += connection.recv(1 << 16)
    sys.argv, folder, variables = json.loads(told)
    # Nothing was read from or written to these yet.
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    status: object = 0
    try:
        import_module("seepage.cli").main()
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    # Of a pipe that nobody reads.
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return 0 if status is None else status if isinstance(status, int) else 1


if __name__ == "__main__":
    # As for an installed program: nothing of the folder of this file is found.
    sys.path[0] = ""
    for name in IMPORTED:
        import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
