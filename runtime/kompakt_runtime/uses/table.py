"""The table: which node reads what in which slot. What has no row stays as it is and is counted by node name.

Nodes and slots are the structs and members of torch/csrc/autograd/generated/Functions.h, whose names Python sees: member `self_`
of MmBackward0 is the attribute `_saved_self` of a node of that name.
"""

from typing import Final

from kompakt_runtime.uses import functions, norms, places, products
from kompakt_runtime.uses.reads import Row, Rows

_PARTS: Final = (
    products.MATRICES, products.CONVOLUTIONS, products.ELEMENTS, functions.SMOOTH, functions.COMPARING,
    norms.NORMS, norms.PROBABLE, norms.ATTENTION, norms.GPU, places.INDICES, places.MASKS, places.SIZES,
)  # fmt: skip
ROWS: Final[Rows] = {name: slots for part in _PARTS for name, slots in part.items()}


def rows_of(name: str) -> dict[str, Row]:
    """The slots of a node that the table knows; empty where it has no row."""
    return ROWS.get(name, {})
