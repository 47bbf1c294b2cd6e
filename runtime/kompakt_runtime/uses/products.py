"""Rows of nodes that multiply: matrices, convolutions, elements.

A factor is saved for the gradient of its partner, so each slot names the number of the partner's gradient. The formulas are
those of tools/autograd/derivatives.yaml, which torch's wheel carries as torchgen/packaged/autograd/derivatives.yaml.
"""

from typing import Final

from kompakt_runtime.uses.reads import Read, Row, Rows, exact, product

MATRICES: Final[Rows] = {
    "MmBackward0": {"self": product(1), "mat2": product(0)},
    "BmmBackward0": {"self": product(1), "mat2": product(0)},
    "MvBackward0": {"self": product(1), "vec": product(0)},
    "DotBackward0": {"self": product(1), "tensor": product(0)},
    "AddmmBackward0": {"mat1": product(2), "mat2": product(1)},
    "AddmvBackward0": {"mat": product(2), "vec": product(1)},
    "AddrBackward0": {"vec1": product(2), "vec2": product(1)},
    "BaddbmmBackward0": {"batch1": product(2), "batch2": product(1)},
    "AddbmmBackward0": {"batch1": product(2), "batch2": product(1)},
    # Rows of both operands belong to groups; where a group ends is read from `offs`.
    "GroupedMmBackward0": {"self": product(1), "mat2": product(0), **exact("offs")},
}

# These save both factors whatever is trained: of the input of a frozen convolution nothing but the shape is read.
_BOTH: Final = {"input": product(1, idle=Read.SHAPE), "weight": product(0, idle=Read.SHAPE)}
CONVOLUTIONS: Final[Rows] = {
    "ConvolutionBackward0": _BOTH,
    # Where F.linear is one operation: not on CPUs and NVIDIA GPUs, there it is addmm or mm.
    "LinearBackward0": {
        "input": Row(Read.PRODUCT, (1,), unverified=True),
        "weight": Row(Read.PRODUCT, (0,), unverified=True),
    },
}

ELEMENTS: Final[Rows] = {
    "MulBackward0": {"self": product(1), "other": product(0)},
    "DivBackward0": {"self": product(1), "other": Row(Read.ELEMENT, (0, 1))},
    "AddcmulBackward0": {"tensor1": product(2), "tensor2": product(1)},
    "AddcdivBackward0": {"tensor1": product(2), "tensor2": Row(Read.ELEMENT, (1, 2))},
    "LerpBackward1": {"self": product(2), "end": product(2), "weight": product(0, 1)},
    "PreluKernelBackward0": {"self": Row(Read.JOINT, (0, 1)), "weight": product(0)},
    # Linear in what they read, though no product: twice the difference, the difference to the mean.
    "MseLossBackward0": {"self": product(0, 1), "target": product(0, 1)},
    "VarBackward0": {"self": product(0)},
    "StdBackward0": {"self": product(0), **exact("result")},
    "VarMeanBackward0": {"self": product(0)},
    "BinaryCrossEntropyWithLogitsBackward0": {"self": Row(Read.ELEMENT, (0, 1)), **exact("target", "weight", "pos_weight")},
    "SmoothL1LossBackward0": {"self": Row(Read.ELEMENT, (0, 1)), "target": Row(Read.ELEMENT, (0, 1))},
}
