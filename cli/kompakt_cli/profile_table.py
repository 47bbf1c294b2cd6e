"""A profile for people."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from kompakt_cli.output import columns
from kompakt_core.profile.document import MODES, Profile
from kompakt_core.profile.sensitivity import word_for
from kompakt_core.profile.stalls import Stall

NEEDED = {
    "interconnect": "processes that train together, on one device and on several",
    "network": "two machines: --nodes with --single FILE of one machine, or --job where two nodes have GPUs",
    "prep": "data that come through torch's DataLoader",
    "fetch": "--data FOLDER, and data that come through torch's DataLoader",
}


def render(profile: Profile, gpus: int) -> Iterator[RenderableType]:
    """Tables of runs and stalls, and what to write into a TrainingJob."""
    steps = f"{profile.steps} optimizer steps after {profile.warm_up} of warm-up"
    yield f"{steps}, {profile.devices} x {profile.kind} of {profile.machine}\n"
    yield _runs(profile)
    yield ""
    yield _stalls(profile)
    yield from _advice(profile, gpus)
    for note in profile.notes:
        yield f"note: {note}"


def _runs(profile: Profile) -> Table:
    heads = ("run", "devices", "data", "s/step", "quarters", "waiting for data")
    table = columns(*heads, right=["devices", "s/step", "waiting for data"])
    for mode in MODES:
        if mode in profile.runs:
            run = profile.runs[mode]
            spread = f"{min(run.parts):.4g}..{max(run.parts):.4g}" if run.parts else ""
            cells = (mode, _devices(profile, mode), _data(profile, mode), f"{run.step_seconds:.4g}", spread)
            table.add_row(*cells, f"{run.data_seconds:.4g}")
    return table


def _data(profile: Profile, mode: str) -> str:
    if mode == "warm":
        return "real, cached" if "cold" in profile.runs else "real"
    return "real, cold" if mode == "cold" else "from memory"


def _devices(profile: Profile, mode: str) -> str:
    return "1" if mode == "one" else str(profile.devices)


def _stalls(profile: Profile) -> Table:
    table = columns("stall", "s/step", "percent", "why", right=["s/step", "percent"])
    found = profile.stalls()
    for name, needed in NEEDED.items():
        stall: Stall | None = getattr(found, name)
        if stall is None:
            table.add_row(name, "-", "-", f"not measured: needs {needed}")
        else:
            table.add_row(name, f"{stall.seconds:.4g}", f"{stall.percent:.1f} %", f"of the step of run {stall.of}")
    return table


def _advice(profile: Profile, gpus: int) -> Iterator[str]:
    share = profile.communication(gpus) if gpus > 1 else None
    if share is None:
        return
    run: Any = profile.plain()
    yield (
        f"\n{run.gradient_bytes / 1e6:.4g} MB of gradients a step, on {gpus} GPUs in a rack: {share:.2g} s of communication "
        f"per second of computing\n"
        f"  communication: {{gradientBytes: {run.gradient_bytes}, bandwidthSensitivity: {word_for(share)}}}"
    )
