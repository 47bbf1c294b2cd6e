"""The demo's last screen: where the gang went, what it was worth, what compression kept, how long each step took."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from kompakt_cli.picture import draw
from kompakt_core.topology.graph import LinkGraph
from tools.kube.comparison import Comparison


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run of the example: its TrainingJob at the end, and the accuracy that its log states in percent."""

    job: dict[str, Any]
    accuracy: float

    @property
    def compression(self) -> dict[str, Any]:
        return dict(self.job["status"].get("compression", {}))


@dataclass(frozen=True, slots=True)
class MachinePicture:
    """A real node for the picture: which GPUs the job and others hold, by index."""

    node: str
    graph: LinkGraph
    held: dict[int, str]


def show(
    machines: Sequence[MachinePicture],
    places: Sequence[Comparison],
    compressed: DemoRun,
    plain: DemoRun,
    taken: Sequence[tuple[str, float]],
) -> None:
    """Print everything to the terminal."""
    console = Console(width=100 if not Console().is_terminal else None)
    for machine in machines:
        console.print(f"\n[bold]{machine.node}[/bold] while the job ran")
        console.print(draw(machine.graph, machine.held))
    for table in (places_table(places), runs_table(compressed, plain), times_table(taken)):
        console.print()
        console.print(table)


def places_table(places: Sequence[Comparison]) -> Table:
    """The chosen sets against all that were free."""
    table = Table(
        title="Bandwidth of the ring through each worker's GPUs, GB/s one way", title_justify="left", caption_justify="left"
    )
    for name in ("worker on", "GPUs", "chosen", "at random: mean", "worst", "first-fit", "best free", "ideal"):
        table.add_column(name, justify="left" if name in ("worker on", "GPUs") else "right")
    for place in places:
        numbers = (place.chosen, place.mean, place.worst, place.first, place.best, place.ideal)
        table.add_row(place.node, ",".join(map(str, place.gpus)), *(_gigabytes(number) for number in numbers))
    table.caption = (
        "At random: what the default scheduler and kubelet hand out, over all free sets of that size. Ideal: an empty node. "
        f"The gang's value is its weakest worker's: {_gigabytes(min(place.chosen for place in places))} GB/s."
    )
    return table


def runs_table(compressed: DemoRun, plain: DemoRun) -> Table:
    """Both runs of the example: kept activations and accuracy."""
    table = Table(
        title="The same training script, with and without compression of activations",
        title_justify="left",
        caption_justify="left",
    )
    for name in ("job", "phase", "activations kept", "ratio", "test accuracy"):
        table.add_column(name, justify="left" if name in ("job", "phase") else "right")
    for run in (plain, compressed):
        table.add_row(run.job["metadata"]["name"], run.job["status"]["phase"], *_kept(run), f"{run.accuracy:.2f} %")
    figures = compressed.compression
    table.caption = (
        f"Summed over {figures.get('ranks')} ranks and the compressed ones of {figures.get('steps')} steps, for which "
        f"plain autograd keeps {_megabytes(figures['plainBytes'])}. Denominator: {figures.get('denominator')}. "
        f"Gradient error allowed: {figures.get('target')} of what the optimizer steps by."
    )
    return table


def times_table(taken: Sequence[tuple[str, float]]) -> Table:
    table = Table(title="Seconds", title_justify="left", caption_justify="left")
    table.add_column("step")
    table.add_column("s", justify="right")
    for name, seconds in taken:
        table.add_row(name, f"{seconds:.1f}")
    table.add_section()
    table.add_row("all", f"{sum(seconds for _, seconds in taken):.1f}")
    return table


def _kept(run: DemoRun) -> tuple[str, str]:
    figures = run.compression
    if not figures.get("active"):
        return "as plain autograd", "1"
    return _megabytes(figures["savedBytes"]), f"{figures['ratio']}x"


def _gigabytes(megabytes: float) -> str:
    return f"{megabytes / 1000:.1f}"


def _megabytes(count: int) -> str:
    return f"{int(count) / 1e6:,.0f} MB"
