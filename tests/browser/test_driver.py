"""The browser as these tests hold it: it stays on this machine, and what goes wrong on a page is told."""

import socket
from pathlib import Path

import pytest

from tools.browser import Browser, BrowserFailed


def test_no_host_is_reached_by_name(browser: Browser) -> None:
    """Not even this machine's own name leads anywhere, wherever the tests run."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BrowserFailed, match="ERR_NAME_NOT_RESOLVED"):
            browser.open(f"http://localhost:{port}/")


def test_what_scripts_throw_and_what_never_comes_are_told(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>a page</p><script>setTimeout(() => { throw new Error('broken') }, 1)</script>")
    browser.open(page.as_uri())
    assert browser.until("document.querySelector('p')?.innerText") == "a page"
    with pytest.raises(BrowserFailed, match=r"troubles \['broken'\]; the page says 'a page'"):
        browser.until("document.querySelector('h1')", seconds=0.5)
    with pytest.raises(BrowserFailed, match="not defined"):
        browser.evaluate("nothing.at.all")
    assert browser.requested == [page.as_uri()]
