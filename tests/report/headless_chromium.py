"""
A headless Chromium, if there is one, to see pages as readers do: at a phone's width, in the dark, printed.

It is driven by its own protocol (DevTools) over a pair of pipes: commands and events are JSON, each ended by
a zero byte. The window of a headless Chromium is never narrower than 500 pixels, whatever --window-size says:
a phone's width takes the protocol.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional

_NAMES = (
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "google-chrome",
    "google-chrome-stable",
)
_TIMEOUT_SECONDS = 60  # from the start of the browser to its end
# Chromium reads commands from descriptor 3 and writes answers to 4.
_WITH_PIPES = 'exec "$@" 3<&"$COMMANDS" 4>&"$ANSWERS"'


def find_chromium() -> Optional[str]:
    """The program that the variable CHROMIUM names, or one of the usual names; `None` if there is none."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    return next(filter(None, map(shutil.which, _NAMES)), None)


class HeadlessChromium:
    """
    A browser with one tab, as a context manager.

    # Parameters

    program : `str`
        See `find_chromium`.

    # Attributes

    requests : `List[str]`
        The addresses of all that was asked for.
    """

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command_end, self._commands = os.pipe()
        self._answers, answer_end = os.pipe()
        self._process = subprocess.Popen(
            [
                *("bash", "-c", _WITH_PIPES, "bash", program),
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--remote-debugging-pipe", f"--user-data-dir={self._profile.name}"),
                *("--no-first-run", "--disable-background-networking", "--hide-scrollbars"),
            ],
            env={**os.environ, "COMMANDS": str(command_end), "ANSWERS": str(answer_end)},
            pass_fds=(command_end, answer_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_end)
        os.close(answer_end)
        self._watchdog = threading.Timer(_TIMEOUT_SECONDS, self._process.kill)
        self._watchdog.start()
        self._received = b""
        self._num_commands = 0
        self._session: Optional[str] = None
        self._events: List[str] = []
        self.requests: List[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> "HeadlessChromium":
        return self

    def __exit__(self, *exception: object) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._profile.cleanup()

    def show(self, page: Path, width: int, height: int = 800, scheme: str = "light") -> None:
        """
        Load a page, in a window of so many pixels, for a reader who prefers `light` or `dark`.
        """
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.prefer(scheme)
        self._events.clear()
        self._call("Page.navigate", url=page.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def prefer(self, scheme: str, media: str = "") -> None:
        """Change the scheme, or the media to `print`, of the page that is shown."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, or of its promise. The page's policy does not bind it."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def screenshot(self, whole_page: bool = False) -> bytes:
        """What is seen, or the page to its end, as PNG."""
        answer = self._call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole_page
        )
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self._call("Page.printToPDF")["data"])

    def _call(self, method: str, **parameters: Any) -> Dict[str, Any]:
        self._num_commands += 1
        message: Dict[str, Any] = {
            "id": self._num_commands,
            "method": method,
            "params": parameters,
        }
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> Dict[str, Any]:
        while b"\0" not in self._received:
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise RuntimeError("The browser ended, or did not answer in time.")
            self._received += part
        line, self._received = self._received.split(b"\0", 1)
        message: Dict[str, Any] = json.loads(line)
        if "method" in message:
            self._events.append(message["method"])
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message
