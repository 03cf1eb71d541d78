"""Notice what a call does besides its work: writes in other folders, programs that run, and network."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, Sequence

from attacks.trials import check

# Events of Python's audit hooks, which also see what C extensions do through Python.
_FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.kill"),
    *("os.putenv", "pty.spawn", "subprocess.Popen", "webbrowser.open"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname"),
    *("socket.sendto", "urllib.Request", "ftplib.connect", "smtplib.connect"),
}
# Their arguments begin with paths.
_CHANGES = {
    *("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Canary:
    """Only one in a process, as audit hooks remain until it ends."""

    def __init__(self) -> None:
        self._allowed: Sequence[str] = ()
        self._found: List[str] = []
        self._is_active = False
        sys.dont_write_bytecode = True
        sys.addaudithook(self._notice)

    @contextmanager
    def only_writes_in(self, *folders: Path) -> Iterator[None]:
        """Raise `BrokenPromise` at the end if something else was written, run or connected to."""
        self._allowed = [f"{folder.resolve()}/" for folder in folders]
        self._found, self._is_active = [], True
        try:
            yield
        finally:
            self._is_active = False
            check(f"no {'; '.join(self._found[:3])}", not self._found)

    def _notice(self, event: str, arguments: Any) -> None:
        if not self._is_active:
            return
        if event == "open":
            path, _, flags = arguments
            is_writing = isinstance(flags, int) and flags & _WRITING
            self._check_paths(event, [path] if is_writing else [])
        elif event in ("os.remove", "os.rmdir") and arguments[-1] != -1:
            pass  # in an open folder, whose path is not known
        elif event in _CHANGES:
            is_pair = event in ("os.rename", "os.link", "shutil.move")
            self._check_paths(event, arguments[: 2 if is_pair else 1])
        elif event in _FORBIDDEN:
            self._found.append(f"{event} {str(arguments)[:200]}")

    def _check_paths(self, event: str, paths: Sequence[Any]) -> None:
        for path in paths:
            if isinstance(path, int):  # of a file that is open
                continue
            place = os.path.abspath(os.fsdecode(path))
            is_allowed = f"{place}/".startswith(tuple(self._allowed)) or place == os.devnull
            is_there = event == "os.mkdir" and os.path.isdir(place)
            if not is_allowed and not is_there:
                self._found.append(f"{event} {place}")
