"""Pages in Chromium without a window. The DevTools protocol over two pipes controls it, without a driver or a port."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")

_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
    "--allow-file-access-from-files", "--remote-debugging-pipe",
)  # fmt: skip
_FIRST_FREE = 10  # first file descriptor for the pipes, above those that the browser expects
_RESPONSE_S = 120.0  # time limit of a response
_MEASURE = (Path(__file__).parent / "measure_page.js").read_text()


class BrowserError(Exception):
    """The browser refused a command, or did not respond."""


@contextmanager
def started_browser(folder: Path) -> Iterator["Browser"]:
    """Start a browser with an empty profile in `folder`, and end all of its processes at the end of the block."""
    assert BROWSER is not None
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, _FIRST_FREE) for pipe in (os.pipe(), os.pipe()) for end in pipe]
    read_by_browser, commands, responses, written_by_browser = ends
    # The protocol has fixed descriptors: 3 for commands, 4 for responses.
    script = f'exec "$0" "$@" 3</dev/fd/{read_by_browser} 4>/dev/fd/{written_by_browser}'
    process = subprocess.Popen(
        ["sh", "-c", script, BROWSER, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        pass_fds=(read_by_browser, written_by_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_by_browser)
    os.close(written_by_browser)
    try:
        yield Browser(commands, responses)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(commands)
        os.close(responses)


@dataclass
class Browser:
    """A running browser: the pipes for its commands and responses."""

    commands: int
    responses: int
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0
    _unread: bytes = b""

    def send(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Send a command, and return its result. Events before the result are kept in `events`."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        content = json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0"
        while content:
            content = content[os.write(self.commands, content) :]
        while (message := self._next(method)).get("id") != self._number:
            self.events.append(message)
        if "error" in message:
            raise BrowserError(f"{method}: {message['error']['message']}")
        return message["result"]

    def wait_for(self, method: str, session: str) -> None:
        """Wait for an event of a page."""
        while not any(event["method"] == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self._next(method))

    def _next(self, awaited: str) -> dict[str, Any]:
        end_s = time.monotonic() + _RESPONSE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self.responses], [], [], max(0.0, end_s - time.monotonic()))
            content = os.read(self.responses, 1 << 20) if ready else b""
            if not content:
                raise BrowserError(f"{awaited}: {'the browser ended' if ready else 'no response'}")
            self._unread += content
        message, _, self._unread = self._unread.partition(b"\0")
        content_of: dict[str, Any] = json.loads(message)
        return content_of

    @contextmanager
    def open(
        self, path: Path, width: int, height: int = 900, *, is_dark: bool = False, has_scripts: bool = True
    ) -> Iterator["BrowserPage"]:
        """Open a file in a window of this size."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = BrowserPage(self, session, path)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        page.send("Emulation.setScriptExecutionDisabled", value=not has_scripts)
        self.events.clear()  # those of the empty page
        page.send("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired", session)
        try:
            yield page
        finally:
            self.send("Target.closeTarget", targetId=target)
            self.events.clear()


@dataclass
class BrowserPage:
    """An open page."""

    browser: Browser
    session: str
    path: Path

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command to the page, and return its result."""
        return self.browser.send(method, self.session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, or of its promise. The policy of the page does not apply."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(str(result["exceptionDetails"].get("exception", {}).get("description")))
        return result["result"].get("value")

    @property
    def problems(self) -> list[str]:
        """The warnings and errors in the console."""
        texts = []
        for event in self.browser.events:
            content = event.get("params", {})
            if event["method"] == "Log.entryAdded" and content["entry"]["level"] in ("warning", "error"):
                texts.append(content["entry"]["text"])
            elif event["method"] == "Runtime.exceptionThrown":
                texts.append(content["exceptionDetails"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and content["type"] in ("warning", "error", "assert"):
                texts.append(str([value.get("value") for value in content["args"]]))
        return texts

    @property
    def requests(self) -> list[str]:
        """The addresses that the page requested, except its own file and data in the page."""
        sent = [event["params"] for event in self.browser.events if event["method"] == "Network.requestWillBeSent"]
        addresses = [request["request"]["url"] for request in sent]
        return [address for address in addresses if address != self.path.as_uri() and not address.startswith("data:")]

    def layout(self) -> dict[str, Any]:
        """Return the sizes, charts and faulty texts of the page, as documented in measure_page.js."""
        measured: dict[str, Any] = self.evaluate(_MEASURE)
        return measured

    def move_mouse(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window, in CSS pixels."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """Click on a place in the window, in CSS pixels."""
        self.move_mouse(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, target: Path, *, is_whole: bool = True) -> None:
        """Write the page, or the part in the window, as a PNG file."""
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=is_whole)
        target.write_bytes(base64.b64decode(picture["data"]))
