"""Chromium without a window, driven through its own pipe: no driver, no port, no network.

Protocol: https://chromedevtools.github.io/devtools-protocol/ (messages end with a NUL byte;
``--remote-debugging-pipe`` reads them from file 3 and writes them to file 4).
"""

import base64
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import time
import zlib
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# It is the page that is looked at, not the services that a desktop's browser talks to.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0  # seconds that anything may take: the machine may be busy


class Browser:
    """A browser with one page. A context manager: its end ends all of its processes.

    Attributes:
        complaints: What the page logged as errors or warnings, its policy's refusals included.
    """

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        self.complaints: list[str] = []
        hears, self._to = os.pipe()
        self._from, says = os.pipe()
        command = f'exec "$0" "$@" 3<&{hears} 4>&{says}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(hears, says), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )  # fmt: skip
        os.close(hears)
        os.close(says)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        try:
            target = self._ask("Target.createTarget", url="about:blank")["targetId"]
            attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self._ask(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def show(self, url: str, *, size: tuple[int, int] = (1280, 900), dark: bool = False) -> None:
        """Go to a page, in a window of a size, in one of both colour schemes."""
        width, height = size
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        failed = self._ask("Page.navigate", url=url).get("errorText")
        assert not failed, failed

    def value(self, expression: str) -> Any:
        """Return what an expression is in the page; a promise's result where it is one."""
        found = self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true in the page, and return it."""
        end = time.monotonic() + PATIENCE
        while not (found := self.value(expression)):
            assert time.monotonic() < end, f"not in {PATIENCE} s: {expression}"
            time.sleep(0.02)
        return found

    def press(self, key: str, text: str = "") -> None:
        """Press a key, as a person would."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        if key == "Enter":
            text = "\r"
        down: dict[str, Any] = {"type": "keyDown", "key": key, **more}
        self._ask("Input.dispatchKeyEvent", **(down | ({"text": text} if text else {})))
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def write(self, text: str) -> None:
        """Write a text into what has the focus."""
        self._ask("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on what a selector finds first, where it is on the page."""
        place = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return {x: r.x + Math.min(r.width, 40) / 2, y: r.y + r.height / 2}; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def picture(self) -> bytes:
        """Return the window as a PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """Return the page as a PDF."""
        return base64.b64decode(self._ask("Page.printToPDF", printBackground=True)["data"])

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self._note(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE)
            assert ready, f"Chromium has said nothing for {PATIENCE} s"
            part = os.read(self._from, 1 << 20)
            assert part, "Chromium has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    def _note(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        if event.get("method") == "Log.entryAdded" and found["entry"]["level"] != "info":
            self.complaints.append(found["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(found["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(found["args"]))


def colours(png: bytes) -> dict[bytes, int]:
    """Return how many pixels of a picture have which colour."""
    place, width, height, packed = 8, 0, 0, b""
    step = 3
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, content = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", content)
            assert (depth, interlaced) == (8, 0)
            step = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += content
        place += length + 12
    lines = zlib.decompress(packed)
    above = bytes(width * step)
    found: dict[bytes, int] = {}
    for y in range(height):
        begin = y * (width * step + 1)
        above = _line(lines[begin], lines[begin + 1 : begin + 1 + width * step], above, step)
        for x in range(0, len(above), step):
            pixel = above[x : x + 3]
            found[pixel] = found.get(pixel, 0) + 1
    return found


def _line(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    """Undo a line's filter. Spec: https://www.w3.org/TR/png-3/#9Filters"""
    made = bytearray(line)
    for x in range(len(made)):
        left = made[x - step] if x >= step else 0
        up, corner = above[x], above[x - step] if x >= step else 0
        if kind == 1:
            made[x] = (made[x] + left) & 255
        elif kind == 2:
            made[x] = (made[x] + up) & 255
        elif kind == 3:
            made[x] = (made[x] + (left + up) // 2) & 255
        elif kind == 4:
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda v: abs(guess - v))
            made[x] = (made[x] + nearest) & 255
    return bytes(made)
