"""Policies, placements and traces of other packages, by entry point, beside those that come with the simulator.

    [project.entry-points."kompakt.policies"]      a SchedulingPolicy
    [project.entry-points."kompakt.placements"]    a function of (cluster, number of GPUs), see placements
    [project.entry-points."kompakt.traces"]        a function without arguments that returns a Trace

The name of an entry point is the name on the command line. Whatever cannot be used is left out, with the reason: one broken
package does not take the others away.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import LinkGraph
from kompakt_simulator.jobs import Trace
from kompakt_simulator.placements import Placement, placements_on
from kompakt_simulator.policies import POLICIES, SchedulingPolicy
from kompakt_simulator.traces.reading import BUILT_IN, load_trace

POLICY_GROUP: Final = "kompakt.policies"
PLACEMENT_GROUP: Final = "kompakt.placements"
TRACE_GROUP: Final = "kompakt.traces"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Installed(Generic[_T]):
    """What can be chosen, by name; `left_out` says in sentences what else is installed and why it cannot be."""

    rows: Mapping[str, _T]
    left_out: tuple[str, ...] = field(default=())


def installed_policies() -> Installed[SchedulingPolicy]:
    """The simulator's policies, then those of other packages, named after their entry points."""
    found = _with(POLICY_GROUP, POLICIES, lambda loaded: isinstance(loaded, SchedulingPolicy), "a SchedulingPolicy")
    return Installed({name: replace(policy, name=name) for name, policy in found.rows.items()}, found.left_out)


def installed_placements(graph: LinkGraph | None) -> Installed[Placement]:
    """The placements that machines with this link graph allow (None: those that need none), then those of other packages."""
    reserved = ("planned",)  # with a link graph only, but never somebody else's
    return _with(PLACEMENT_GROUP, placements_on(graph), callable, "a function of (cluster, number of GPUs)", reserved)


def installed_traces() -> Installed[Callable[[], Trace]]:
    """The traces of other packages. Those that come with the simulator are read by traces.reading."""
    return _with(TRACE_GROUP, {}, callable, "a function without arguments that returns a Trace", tuple(BUILT_IN))


def trace_named(name: str, format_name: str | None, installed: Mapping[str, Callable[[], Trace]]) -> Trace:
    """The trace of another package by name, else as load_trace. Raises InvalidInput for jobs that no trace can have."""
    if name.lower() not in installed:
        return load_trace(name, format_name, installed)
    trace = installed[name.lower()]()
    jobs = trace.jobs if isinstance(trace, Trace) else ()
    numbers = {job.number for job in jobs}
    if not jobs or len(numbers) < len(jobs) or any(min(job.gpus, job.duration, job.submit + 1) < 1 for job in jobs):
        wanted = "a Trace of jobs with distinct numbers, from 1 GPU and 1 ms up, submitted from 0 on"
        raise InvalidInput(f"trace {name}: got {trace!r:.80}; expected {wanted}")
    return trace


def _with(
    group: str, own: Mapping[str, _T], fits: Callable[[Any], bool], wanted: str, reserved: tuple[str, ...] = ()
) -> Installed[_T]:
    rows, left_out = dict(own), list[str]()
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        name = entry.name.lower()
        if name in rows or name in reserved:
            left_out.append(_because(entry, "the name is taken; expected another name"))
            continue
        try:
            loaded = entry.load()
        except Exception as error:  # it runs the other package's module, which may fail in any way
            left_out.append(_because(entry, f"{type(error).__name__}: {error}"))
            continue
        if fits(loaded):
            rows[name] = loaded
        else:
            left_out.append(_because(entry, f"it is {loaded!r:.80}; expected {wanted}"))
    return Installed(rows, tuple(left_out))


def _because(entry: EntryPoint, reason: str) -> str:
    package = f" of {entry.dist.name} {entry.dist.version}" if entry.dist else ""
    return f"{entry.group} {entry.name} = {entry.value}{package}: {reason}"
