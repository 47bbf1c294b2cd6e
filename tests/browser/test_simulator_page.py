"""The page that `kompakt simulate -o html` writes, as a browser draws it."""

import subprocess
import sys
from pathlib import Path

from tools.browser import Browser

BOXES = "[...document.querySelectorAll({})].map(e => {{const b = e.getBoundingClientRect(); return [b.top, b.bottom, b.width]}})"


def test_the_page_draws_every_picture_and_names_curves_above_them(browser: Browser, tmp_path: Path) -> None:
    command = [Path(sys.executable).parent / "kompakt", "simulate", "--policy", "fifo,dally,kompakt", "-o", "html"]
    page = tmp_path / "page.html"
    page.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    browser.open(page.as_uri())
    browser.until("document.querySelectorAll('svg').length == 5")
    browser.screenshot(tmp_path / "page.png")
    assert browser.evaluate("document.querySelectorAll('tr').length") == 4
    pictures, legends = (browser.evaluate(BOXES.format(repr(what))) for what in ("svg", ".legend"))
    assert all(bottom - top > 100 and width > 800 for top, bottom, width in pictures)
    assert all(bottom <= top for (_, bottom, _), (top, _, _) in zip(legends, pictures, strict=False))
    curves = browser.evaluate("[...document.querySelectorAll('polyline')].map(e => e.getBBox().width)")
    assert len(curves) == 6
    assert min(curves) > 100, "each policy has its curve in both pictures"
    names = browser.evaluate("[...document.querySelectorAll('.legend span')].map(e => e.textContent.slice(2))")
    assert names == ["fifo", "dally", "kompakt"] * 2
