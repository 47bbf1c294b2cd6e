"""Module calls in progress, and what was saved in each that is settled only when it ends."""

from dataclasses import dataclass, field
from typing import Any

from kompakt_runtime.ledger import Handle
from kompakt_runtime.offload import Item
from kompakt_runtime.sites import Site

Tensor = Any


@dataclass(eq=False)
class Call:
    """One module call in progress. `site` only for trainable linear layers, `input` for frozen ones too; `mode` as asked for
    this module.

    enters: our hooks were entered with it; refuses: they must not be, here or in any module below; suspended: they are
    left while it runs. state: of the user's random numbers before a dropout that may be replayed. last: what was saved before,
    if it may be the input of a pooling operation; pools: such pairs. since: autograd's number when the call began; values: what
    was saved in it exactly and may be the input of a nonlinear operation; leaving: what may go to host memory after it.
    """

    module: Any
    mode: Any
    name: str = ""
    site: Site | None = None
    input: Tensor = None
    enters: bool = False
    refuses: bool = False
    suspended: bool = False
    state: Tensor = None
    last: "Saved | None" = None
    since: int = 0
    values: list[Handle] = field(default_factory=list)
    pools: "list[tuple[Saved, Handle]]" = field(default_factory=list)
    leaving: list[Item] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Saved:
    """`made`: sequence number of the operation that made the tensor; those that save it are younger."""

    handle: Handle
    made: int
