"""The system's Chromium without a window, driven by Playwright; nothing is downloaded but the package from the index.

with Browser() as browser:
    browser.open("http://127.0.0.1:8902/docs")
    browser.until("document.querySelector('h2') !== null")
"""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools import debian
from tools.kube.command import CommandFailed, output

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PACKAGE = "chromium"
DISK = 2 << 30  # bytes; 0.4 GB installed, and as much again while it is unpacked
SECONDS = 30.0
_PAUSE_MS = 10
_LEAVING = ("context was destroyed", "navigation", "Cannot find context")  # a script was asked of a page that just goes
# No sandbox: it needs rights that root in a container does not have; only our own pages are opened.
_FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1")


class BrowserFailed(Exception):
    """The browser ended, answered an error, or a page did not become what was waited for."""


def find() -> str | None:
    """The browser's program; None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def obstacle() -> str | None:
    """Why no browser can run here, after trying to install what is missing where we may; None where one can."""
    return _without_program() or _without_package()


def _without_program() -> str | None:
    if find() is not None:
        return None
    wanted = f"there is no Chromium ({', '.join(PROGRAMS)})"
    if not debian.may_install():
        return f"{wanted}, and only root on Debian or Ubuntu can install it: apt-get install {PACKAGE}"
    if shutil.disk_usage("/usr").free < DISK:
        return f"{wanted}, and less than {DISK >> 30} GiB of disk are free to install it"
    try:
        debian.install([PACKAGE])
    except CommandFailed:
        return f"{wanted}, and apt-get could not install {PACKAGE}"
    return None if find() is not None else wanted


def _without_package() -> str | None:
    if find_spec("playwright") is not None:
        return None
    uv, pinned = Path(sys.executable).parent / "uv", ROOT / "requirements" / "browser.txt"
    try:
        output([uv, "pip", "install", "--quiet", f"--python={sys.executable}", "--require-hashes", "-r", pinned])
    except (CommandFailed, OSError) as error:
        return f"Playwright is missing and could not be installed: {error}"
    return None


class Browser:
    """One browser with one page. `requested`: every address that the page asked for; `troubles`: what its scripts threw."""

    def __init__(self) -> None:
        self.requested: list[str] = []
        self.troubles: list[str] = []
        self._opened = ExitStack()

    def __enter__(self) -> "Browser":
        from playwright.sync_api import sync_playwright

        program = find()
        if program is None:
            raise BrowserFailed("there is no Chromium on this machine")
        with ExitStack() as stack, _told():
            driver = stack.enter_context(sync_playwright())
            browser = stack.enter_context(driver.chromium.launch(executable_path=program, args=_FLAGS))
            self._page = browser.new_page(viewport={"width": 1200, "height": 1000})
            self._page.set_default_timeout(SECONDS * 1000)
            self._page.on("request", lambda request: self.requested.append(request.url))
            self._page.on("pageerror", lambda error: self.troubles.append(str(error)))
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.close()

    def open(self, url: str) -> None:
        """Go to a page. Raises BrowserFailed where it cannot be loaded."""
        with _told():
            self._page.goto(url)

    def evaluate(self, script: str) -> Any:
        """What the script gives, as JSON; promises are waited for. Raises BrowserFailed with what it threw."""
        with _told():
            return self._page.evaluate(script)

    def until(self, script: str, seconds: float = SECONDS) -> Any:
        """The first true answer of the script. Raises BrowserFailed when the time is up.

        Asked from here again and again: what waits inside the page evaluates texts, which a page may forbid its scripts.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if found := self.evaluate(script):
                    return found
            except BrowserFailed as error:
                if not any(words in str(error) for words in _LEAVING):
                    raise
            self._page.wait_for_timeout(_PAUSE_MS)
        text = self.evaluate("document.body ? document.body.innerText : ''")
        raise BrowserFailed(f"{script}: not within {seconds:g} s; troubles {self.troubles}; the page says {text[:400]!r}")

    def press(self, key: str) -> None:
        """A key goes down and up: Tab, Enter, Escape, a letter."""
        with _told():
            self._page.keyboard.press(key)

    def look(self, *, width: int = 1200, height: int = 1000, dark: bool = False) -> None:
        """From now on the window is so large, and the system's setting light or dark."""
        with _told():
            self._page.set_viewport_size({"width": width, "height": height})
            self._page.emulate_media(color_scheme="dark" if dark else "light")

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG file."""
        with _told():
            self._page.screenshot(path=path, full_page=True)


@contextmanager
def _told() -> Iterator[None]:
    """Playwright's errors as ours."""
    from playwright.sync_api import Error

    try:
        yield
    except Error as error:
        raise BrowserFailed(error.message) from error
