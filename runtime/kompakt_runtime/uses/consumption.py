"""One slot of one node that is reachable: what its backward function reads there, in this graph."""

from dataclasses import dataclass
from typing import Any, Final

from kompakt_runtime.compat.graph import argument
from kompakt_runtime.uses.parameters import parameter_behind, receivers
from kompakt_runtime.uses.reads import Read, Row

Node = Any
Tensor = Any

# In evaluation mode a batch norm only scales and shifts: its input is a factor of its weight's gradient and nothing else.
BATCH_NORMS: Final = frozenset(f"{name}BatchNormBackward0" for name in ("Native", "Cudnn", "Miopen"))
_SCALED: Final = Row(Read.PRODUCT, (1,), idle=Read.SHAPE)


@dataclass(frozen=True, eq=False)
class Consumption:
    """Which slot of which node holds a handle. To be read and dropped: kept anywhere that the handle leads to, the node, which
    holds the handle, would never be freed.

    read: None where the table has no row that holds, so `slot` stays as it is; parameter: whose gradient a linear operand is a
    factor of; gradients: as in the row; doubt: why the row is not believed.
    """

    handle: Any
    node: Node
    slot: str
    read: Read | None
    parameter: Tensor | None = None
    gradients: tuple[int, ...] = ()
    unverified: bool = False
    doubt: str = ""

    @property
    def place(self) -> str:
        """As counted: "MmBackward0.self", or the node alone."""
        return f"{self.node.name()}.{self.slot}" if self.slot else str(self.node.name())


def consumption(handle: Any, node: Node, slot: str, row: Row | None) -> Consumption:
    if row is None:
        return Consumption(handle, node, slot, None)
    row = _in_this_mode(node, slot, row)
    read, parameter = _read(node, row)
    return Consumption(handle, node, slot, read, parameter, row.gradients, row.unverified)


def _in_this_mode(node: Node, slot: str, row: Row) -> Row:
    scales = slot == "input" and node.name() in BATCH_NORMS and not argument(node, "training", True)
    return _SCALED if scales and not row.unverified else row


def _read(node: Node, row: Row) -> tuple[Read, Tensor | None]:
    """A product's operand is a linear one where its partner is a parameter: the error ends in that parameter's gradient."""
    if row.read is not Read.PRODUCT:
        return row.read, None
    partners = receivers(node, row.gradients)
    if not partners:
        return row.idle, None
    parameters = [parameter_behind(partner) for partner in partners]
    ends = all(parameter is not None for parameter in parameters)
    return (Read.LINEAR, parameters[0]) if ends else (Read.PRODUCT, None)
