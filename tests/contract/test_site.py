"""The site as `make site` builds it: without warnings, whole, and with nothing that a browser would load from another host."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tools.docs.repository import ROOT
from tools.docs.site import site_pages

SECONDS = 240  # five seconds of computing; a busy machine takes longer
ADDRESS = re.compile(r"(?:https?:)?//", re.IGNORECASE)
LINKS = {"a"}  # a reader may go where a text points
LOADING = {"src", "href", "srcset", "data", "poster", "action"}


class Loaded(HTMLParser):
    """Every address that a page's marks name, but ordinary links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in LOADING and tag not in LINKS]


def loaded(text: str) -> list[str]:
    """What a page's marks load from other hosts."""
    parser = Loaded()
    parser.feed(text)
    return [address for address in parser.found if ADDRESS.match(address)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "docs" not in os.environ.get("KOMPAKT_REQUIRE", "").split(","):
        pytest.importorskip("mkdocs", reason="mkdocs is not installed: `make sync-docs`")
    folder = tmp_path_factory.mktemp("site")
    # Every name of another host leads nowhere: what a build would fetch fails it.
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def html(path: str) -> str:
    return re.sub(r"(README)?\.md$", lambda end: "index.html" if end[1] else ".html", path)


def test_every_page_of_the_checkout_is_in_the_site(site: Path) -> None:
    assert [page for page in site_pages(ROOT) if not (site / html(page)).is_file()] == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    assert {page.name: found for page in pages if (found := loaded(page.read_text()))} == {}
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)|@import[^;]*", styles) == []


def test_a_page_that_would_load_something_is_noticed() -> None:
    assert loaded('<a href="https://a.example"><img src="b.svg"><script src="//c.example/x.js">') == ["//c.example/x.js"]


def test_every_relative_link_leads_to_a_file_of_the_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="?([^" >#]+)', page.read_text()):
            if page.name != "404.html" and not ADDRESS.match(target) and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page.relative_to(site)} links to {target}"


def test_the_search_index_knows_the_headings(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    assert index.startswith("var __index = ")
    assert '"docs/placement.html#gangs"' in index
