"""
`allennlp` and `elmo` for scripts, without the seconds that the import of AllenNLP takes: each command runs in
a fork of a process that has imported AllenNLP, and nothing of this package.
"""

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Iterator

_CLIENT = f"""\
#!{sys.executable} -IS
import json, os, socket, sys

if sys.argv[1] == "serve":  # which signals end
    os.execv({str(Path(sys.executable).parent / "elmo")!r}, sys.argv)
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.join(os.path.dirname(sys.argv[0]), "socket"))
    socket.send_fds(server, [b" "], [0, 1, 2])
    server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(9) or 1))
"""


@contextmanager
def warm_programs() -> Iterator[Path]:
    """A folder with both programs, for `PATH`; they end with the context."""
    # Names of sockets must be short.
    folder = Path(tempfile.mkdtemp())
    for name in ("allennlp", "elmo"):
        (folder / name).write_text(_CLIENT)
        (folder / name).chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, __file__, str(folder / "socket")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # forks have no threads of a parent
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        yield folder
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


def _serve(path: str) -> None:
    import allennlp.commands  # noqa: F401 - for the forks

    sys.path[0] = os.path.dirname(path)  # where programs are, as in any other
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()  # what forks need not look at when they end
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        listening.settimeout(5)
        tests = os.getppid()
        print("ready", flush=True)
        while os.getppid() == tests:  # they may be killed
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                listening.close()
                return _run_command(connection)
            connection.close()


def _run_command(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile() as request:
        sys.argv, folder, environment = json.load(request)
    command = os.fork()
    if command != 0:
        status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        connection.sendall(str(status).encode())
        os._exit(0)
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    (program,) = entry_points(group="console_scripts", name=os.path.basename(sys.argv[0]))
    sys.exit(program.load()())


if __name__ == "__main__":
    _serve(sys.argv[1])
