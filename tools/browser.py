"""Chromium without a window, driven over two pipes: no driver program and no package of Python is needed.

    with Browser() as browser:
        browser.open("http://127.0.0.1:8902/docs")
        browser.until("document.querySelector('h2') !== null")

It speaks the DevTools protocol (chromedevtools.github.io/devtools-protocol) as JSON texts that end in a zero byte, on the
file descriptors 3 and 4 of `--remote-debugging-pipe`.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PACKAGE = "chromium"
DISK = 2 << 30  # bytes; 0.4 GB installed, and as much again while it is unpacked
SECONDS = 30.0
# No sandbox: it needs rights that root in a container does not have; only our own pages are opened.
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--window-size=1200,1000",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


class BrowserFailed(Exception):
    """The browser ended, answered an error, or a page did not become what was waited for."""


def find() -> str | None:
    """The browser's program; None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def obstacle() -> str | None:
    """Why no browser can run here, after trying to install one where we may; None where one can."""
    if find() is not None:
        return None
    wanted = f"there is no Chromium ({', '.join(PROGRAMS)})"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"{wanted}, and only root on Debian or Ubuntu can install it: apt-get install {PACKAGE}"
    if shutil.disk_usage("/usr").free < DISK:
        return f"{wanted}, and less than {DISK >> 30} GiB of disk are free to install it"
    return None if _install() and find() is not None else f"{wanted}, and apt-get could not install {PACKAGE}"


def _install() -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    commands = (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE])
    return all(subprocess.run(one, env=environment, capture_output=True, check=False).returncode == 0 for one in commands)


class Browser:
    """One browser with one page. `requested`: every address that the page asked for; `troubles`: what its scripts threw."""

    def __init__(self) -> None:
        program = find()
        if program is None:
            raise BrowserFailed("there is no Chromium on this machine")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, *_FLAGS, f"--user-data-dir={self._folder.name}"],
            pass_fds=(theirs_in, theirs_out),
            env={**os.environ, "HOME": self._folder.name},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number, self._session = b"", 0, ""
        self.requested: list[str] = []
        self.troubles: list[str] = []

    def __enter__(self) -> "Browser":
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def open(self, url: str) -> None:
        """Go to a page. Raises BrowserFailed where it cannot be loaded."""
        answer = self._call("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserFailed(f"{url}: {answer['errorText']}")

    def evaluate(self, script: str) -> Any:
        """What the script gives, as JSON; promises are waited for."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserFailed(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = SECONDS) -> Any:
        """The first true answer of the script. Raises BrowserFailed when the time is up."""
        end = time.monotonic() + seconds
        while not (found := self.evaluate(script)):
            if time.monotonic() > end:
                text = self.evaluate("document.body ? document.body.innerText : ''")
                raise BrowserFailed(
                    f"after {seconds} s still not: {script}; troubles {self.troubles}; the page says {text[:400]!r}"
                )
            time.sleep(0.05)
        return found

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG file."""
        answer = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            found = self._next(end)
            if found.get("id") == self._number:
                if "error" in found:
                    raise BrowserFailed(f"{method}: {found['error']['message']}")
                result: dict[str, Any] = found["result"]
                return result
            self._note(found)

    def _note(self, event: Mapping[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            self.requested.append(event["params"]["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.troubles.append(str(event["params"]["exceptionDetails"].get("text")))

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(end - time.monotonic(), 0))[0]:
                raise BrowserFailed(f"the browser does not answer within {SECONDS} s")
            part = os.read(self._in, 1 << 16)
            if not part:
                raise BrowserFailed(f"the browser ended with {self._process.poll()}")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found
