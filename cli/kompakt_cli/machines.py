"""`kompakt machines`: the known machines."""

from rich.console import Console
from rich.table import Table

from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import MACHINES, machine


def machines() -> None:
    """List the known machines: names for `kompakt place`, `kompakt topology`, and text descriptions of nodes."""
    table = Table(box=None, pad_edge=False)
    table.add_column("MACHINE", no_wrap=True)
    table.add_column("GPUS", justify="right")
    table.add_column("KIND")
    table.add_column("LINKS (GB/s one way: pairs)")
    for name, known in sorted(MACHINES.items()):
        table.add_row(name, str(known.gpus), known.model or "-", _links(machine(name)))
    Console().print(table)


def _links(graph: LinkGraph) -> str:
    counts: dict[tuple[int, str], int] = {}
    for link in graph.links:
        key = (link.megabytes_per_second, link.kind.value)
        counts[key] = counts.get(key, 0) + 1
    return ", ".join(f"{kind} {speed / 1000:.0f}: {count}" for (speed, kind), count in sorted(counts.items(), reverse=True))
