"""Rows of nodes that read where something lay, or nothing but how large it was."""

from typing import Final

from kompakt_runtime.uses.reads import INDEX, MASK, SHAPE, Read, Row, Rows, exact

_LOSS: Final = {"self": SHAPE, "target": INDEX, **exact("weight", "total_weight")}
_POOL: Final = {"self": SHAPE, "result1": INDEX}

INDICES: Final[Rows] = {
    "EmbeddingBackward0": {"indices": INDEX},
    "NllLossBackward0": _LOSS,
    "NllLoss2DBackward0": _LOSS,
    "MaxPool2DWithIndicesBackward0": _POOL,
    "MaxPool3DWithIndicesBackward0": _POOL,
    "AdaptiveMaxPool2DBackward0": _POOL,
    "AdaptiveMaxPool3DBackward0": _POOL,
    # A boolean index is saved as places.
    "IndexBackward0": {"indices": INDEX},
    "IndexPutBackward0": {"indices": Row(Read.INDEX, (0, 1))},
    "IndexSelectBackward0": {"index": INDEX},
    "IndexAddBackward0": {"index": Row(Read.INDEX, (1,)), "source": SHAPE},
    "GatherBackward0": {"self": SHAPE, "index": INDEX},
    "ScatterBackward0": {"index": Row(Read.INDEX, (0, 1))},
    "ScatterBackward1": {"index": INDEX},
    "ScatterAddBackward0": {"index": Row(Read.INDEX, (1,))},
    "TopkBackward0": {"indices": INDEX},
    "SortBackward0": {"indices": INDEX},
    "SortBackward1": {"indices": INDEX},
    "MaxBackward0": {"indices": INDEX},
    "MinBackward0": {"indices": INDEX},
}

MASKS: Final[Rows] = {
    "WhereBackward0": {"condition": Row(Read.MASK, (0, 1))},
    "MaskedFillBackward0": {"mask": MASK},
    "MaskedFillBackward1": {"mask": Row(Read.MASK, (0, 1))},
    "MaskedScatterBackward0": {"mask": Row(Read.MASK, (0, 1))},
    "MaskedSelectBackward0": {"self": SHAPE, "mask": MASK},
    "NativeDropoutBackward0": {"result1": MASK},
}

SIZES: Final[Rows] = {
    f"{name}Backward0": {"self": SHAPE}
    for name in (
        "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D",
        "ReflectionPad1D", "ReflectionPad2D", "ReflectionPad3D", "ReplicationPad1D", "ReplicationPad2D", "ReplicationPad3D",
    )
}  # fmt: skip

# Nodes that save no tensor (sums, means, views, concatenation, upsampling) need no row.
