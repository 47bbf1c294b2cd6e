"""The documentation site, opened from a folder: it searches, and asks no other host for anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.browser import Browser
from tools.docs.repository import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "docs" not in os.environ.get("KOMPAKT_REQUIRE", "").split(","):
        pytest.importorskip("mkdocs", reason="mkdocs is not installed: `make sync-docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


def test_the_search_finds_a_page_without_a_server(site: Path, browser: Browser) -> None:
    browser.open((site / "index.html").as_uri())
    browser.evaluate("""() => {
        const field = document.querySelector('input[data-md-component=search-query]')
        field.focus()
        field.value = 'bandwidth-sensitive'
        field.dispatchEvent(new Event('keyup', {bubbles: true}))
    }""")
    found = browser.until("document.querySelector('.md-search-result__item a')?.href")
    assert found.startswith(site.as_uri())
    browser.open(found)
    assert "kompakt" in browser.evaluate("document.title")
    assert [url for url in browser.requested if not url.startswith(("file:", "data:", "blob:"))] == []
    assert browser.troubles == []
