"""Chromium without a window, driven through the pipe of its debugging protocol; only the standard library is needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0


def executable() -> str | None:
    """Return the browser of this machine, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page; everything that the browser complains about is kept in ``complaints``.

    >>> with Page("report.html", width=390) as page:  # doctest: +SKIP
    ...     page.evaluate("document.title")
    """

    def __init__(self, path: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False):
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._numbers = itertools.count(1)
        self._waiting = b""
        self._folder = tempfile.TemporaryDirectory(prefix="report-")
        self._start()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        phone = width < 600
        screen = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self._call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=Path(path).resolve().as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def _start(self) -> None:
        browser = executable()
        assert browser is not None
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def place() -> None:  # the protocol is spoken on descriptors 3 and 4
            low, high = os.dup(to_browser), os.dup(from_browser)
            os.dup2(low, 3)
            os.dup2(high, 4)

        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
                   f"--user-data-dir={self._folder.name}", "about:blank")  # fmt: skip
        self._process = subprocess.Popen(
            [browser, *options], preexec_fn=place, close_fds=False,  # noqa: PLW1509 - nothing else runs here
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)

    _session: str | None = None

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            answer = self._receive(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self._note(answer)

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._waiting += data
        text, _, self._waiting = self._waiting.partition(b"\0")
        return dict(json.loads(text))

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description", details["text"])))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(one.get("value", one.get("description"))) for one in said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; a promise is waited for."""
        done = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"]["description"])
        return done["result"].get("value")

    def wait(self, expression: str, *, seconds: float = 30.0) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} did not come true; {self.complaints}")
            time.sleep(0.05)

    def key(self, key: str, *, text: str = "") -> None:
        """Press a key."""
        given = {"key": key, "text": text} if text else {"key": key}
        self._call("Input.dispatchKeyEvent", type="keyDown", **given)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self._call("Input.insertText", text=text)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Press, move, release or roll: mousePressed, mouseMoved, mouseReleased, mouseWheel."""
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path: Path | str, *, whole: bool = False) -> None:
        """Write what is to be seen, or the whole page, as PNG."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=whole, **(self._area() if whole else {}))
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def _area(self) -> dict[str, Any]:
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()
