"""
`elmo`, `allennlp` and `python` that start in a tenth of a second, for tests that start many programs.

A server has imported torch and AllenNLP, which takes seconds, but nothing of this package. The programs ask
it to fork, and hand their arguments, environment, working folder and open files to the new process.
"""

import gc
import json
import os
import runpy
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator

CLIENT = """#!{python} -SE
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = dict(path=__file__, program={program!r}, words=sys.argv[1:], folder=os.getcwd())
    request["variables"] = dict(os.environ)
    data = json.dumps(request).encode()
    socket.send_fds(server, [len(data).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(data)
    sys.exit(int(server.makefile().readline() or 1))
"""
PROGRAMS = ("elmo", "allennlp", "python")


@contextmanager
def warm_programs(folder: Path) -> Iterator[Path]:
    """Yield a folder of programs for `PATH`. The server and its programs end with the context."""
    address = str(folder / "socket")
    for program in PROGRAMS:
        path = folder / program
        path.write_text(CLIENT.format(python=sys.executable, address=address, program=program))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    # One thread: threads of the server would be missing in the forked processes.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "tests.warm_programs", address]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, start_new_session=True
    ) as server:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        try:
            yield folder
        finally:
            os.killpg(server.pid, signal.SIGKILL)


def serve(address: str) -> None:
    import allennlp.commands  # noqa: F401 - and with it torch, transformers, spaCy and others

    gc.freeze()  # else the first collection in each program would copy the memory of all objects
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for them
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork():
                connection.close()
                continue
            listening.close()
            answer(connection)


def answer(connection: socket.socket) -> None:
    """Run a program in a process of its own, wait for it, and write its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        request = json.loads(stream.read(int.from_bytes(size, "little")))
    child = os.fork()
    if not child:
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        run(request)
    threading.Thread(target=kill_with_client, args=(connection, child), daemon=True).start()
    _, status = os.waitpid(child, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status) % 256}\n".encode())
    os._exit(0)


def kill_with_client(connection: socket.socket, child: int) -> None:
    """Kill a process when its client ends first, as by a signal to the program that was started."""
    with suppress(OSError):
        if not connection.recv(1):
            os.kill(child, signal.SIGKILL)


def run(request: Dict[str, Any]) -> None:
    """Run a program in this process, and end it: Python writes errors, as at the end of any program."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    # Trainings end with their parent, which here is the server: it ends them if the client has ended.
    os.environ.pop("ELMO_STARTED_BY", None)
    # What it starts is warm too.
    sys.executable = str(Path(request["path"]).with_name("python"))
    sys.argv = [request["program"], *request["words"]]
    main_of(request["program"])
    sys.exit()


def main_of(program: str) -> None:
    if program == "elmo":
        from elmo_plugin.commands.main import main

        main()
    elif program == "allennlp":
        from allennlp.__main__ import run as main

        main()
    elif sys.argv[1] == "-m":
        sys.path.insert(0, "")
        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif sys.argv[1] in ("-", "-c"):
        sys.path.insert(0, "")
        text = sys.stdin.read() if sys.argv[1] == "-" else sys.argv[2]
        exec(compile(text, "<text>", "exec"), {"__name__": "__main__"})
    else:
        del sys.argv[0]
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
