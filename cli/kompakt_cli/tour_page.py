"""The page of `kompakt tour`: one file without scripts, with nothing to fetch."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1080px;padding:0 1em}"
    "pre{overflow-x:auto;padding:.8em;border:1px solid #8886;border-radius:4px;font-size:13px;line-height:1.25}"
    "figure{margin:1em 0}svg{max-width:100%;height:auto;background:#fff}iframe{width:100%;height:70em;border:1px solid #8886;"
    "background:#fff}code{font-size:13px}"
)


@dataclass(frozen=True, slots=True)
class StepShown:
    """A step of the tour with what it printed. `picture`: SVG of our own making."""

    title: str
    command: Sequence[str]
    printed: str
    says: str
    go_on: str
    picture: str = ""
    failed: bool = False


def page(steps: Sequence[StepShown], folder: Path) -> str:
    """The whole page; the page of the simulator, if it wrote one into the folder, stands in it as it is."""
    inside = "".join(_section(number, step) for number, step in enumerate(steps, 1))
    simulated = folder / "simulation.html"
    if simulated.is_file():
        shown = html.escape(simulated.read_text(), quote=True)
        inside += f'<h2>The five policies in pictures</h2><iframe title="Simulation" srcdoc="{shown}"></iframe>'
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>kompakt tour</title><style>{_STYLE}</style></head><body><h1>What kompakt does</h1>{inside}</body></html>\n"
    )


def _section(number: int, step: StepShown) -> str:
    figure = f"<figure>{step.picture}</figure>" if step.picture.startswith("<svg") else ""
    return (
        f"<h2>{number}. {html.escape(step.title)}</h2>{figure}<pre>{html.escape(step.printed)}</pre>"
        f"<p>{html.escape(step.says)}</p><p>Go on: <code>{html.escape(step.go_on)}</code></p>"
    )
