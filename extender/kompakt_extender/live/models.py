"""What the live page is told, beside the explain API's own answers. Bandwidths are one direction, in MB/s (10^6 bytes)."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from kompakt_extender.explain.models import BestLeft, Model, Why

# In hexadecimal: a number of more than 53 bits is another one in JavaScript.
GpuBits = Annotated[str, Field(description="bit i stands for GPU i, such as 0xf0", pattern="^0x[0-9a-f]+$")]


class LiveHolder(Model):
    """A pod with GPUs of a node; without names where its namespace is not the reader's to see."""

    namespace: str
    name: str
    uid: str
    how: str = Field(description="Bound, Planned (by the planner), Binding (no outcome yet), or Reported (by the device plugin)")
    mask: GpuBits
    gang: str = Field(default="", description="its TrainingJob or gang, by key; empty for a plain pod")


class LiveNode(Model):
    """A node: its GPUs and links by the number of their machine, who holds what, and what is left."""

    name: str
    machine: int = Field(description="which of `machines`; -1 where the node has reported no link graph")
    free_mask: GpuBits
    unhealthy_mask: GpuBits
    usable: bool
    why_not: list[Why]
    best_left: list[BestLeft]
    holders: list[LiveHolder]
    rack: str
    block: str


class LiveMachine(Model):
    """A link graph, told once for all nodes that have it; each link is [a, b, kind, lanes, MB/s]."""

    gpus: int
    links: Sequence[tuple[int, int, str, int, int]]


class LiveGang(Model):
    """A TrainingJob or a gang of others that is not over; `waits`: it wants places and has none."""

    key: str
    kind: str
    namespace: str
    name: str
    waits: bool
    state: str = Field(description="as the explain API calls it")
    reason: str = Field(description="the planner's word for why; empty where there is none")
    message: str = Field(description="the same as a sentence")
    since: str = Field(description="when the gang was first complete, RFC 3339; empty before")
    waits_for: str = Field(description="the level that it waits for though it could be placed; else empty")
    until: str = Field(description="when it stops waiting for that level, or its reservation ends; empty: by no clock")
    attempt: int
    workers: int
    bound: int
    gpus: int = Field(description="of all workers")
    pattern: str
    level: str = Field(description="how far it is spread; empty while it waits")
    value: int
    ideal: int
    overtaken: int
    nodes: Sequence[str] = Field(description="where it is, at most 64")


class LiveCounts(Model):
    """GPUs of all nodes, and gangs of all namespaces."""

    nodes: int
    gpus: int
    free: int
    held: int
    unhealthy: int
    waiting: int
    running: int


class LiveSample(LiveCounts):
    """The counts at one moment, in seconds since 1970."""

    at: int


class LiveOverview(Model):
    """The whole cluster at one moment: the first event of a stream, `all`, and the answer of `overview`.

    A `change` event has the same fields with what is new, and `goneNodes` and `goneGangs` by name and key.
    """

    at: str
    counts: LiveCounts
    machines: dict[int, LiveMachine]
    nodes: list[LiveNode]
    gangs: list[LiveGang]
    history: list[LiveSample]
    gone_nodes: list[str] = Field(default=[])
    gone_gangs: list[str] = Field(default=[])
    more_gangs: int = Field(default=0, description="gangs with places that are left out; those that wait are all there")
