"""Rows of nodes that apply a function to each element: activations, powers, and those that only compare."""

from typing import Final

from kompakt_runtime.uses.reads import ELEMENT, RANGE, SIGN, Rows

# By what they save: the input, or the result where the derivative is shorter in it.
_OF_THE_INPUT: Final = (
    "Gelu", "Silu", "Mish", "Softplus", "Elu", "Celu", "Hardswish",
    "Log", "Log1P", "Log2", "Log10", "Sin", "Cos", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Erf", "Erfc", "Pow",
)  # fmt: skip
_OF_THE_RESULT: Final = ("Sigmoid", "Tanh", "Exp", "Exp2", "Expm1", "Sqrt", "Rsqrt", "Reciprocal", "Tan")

SMOOTH: Final[Rows] = {
    **{f"{name}Backward0": {"self": ELEMENT} for name in _OF_THE_INPUT},
    **{f"{name}Backward0": {"result": ELEMENT} for name in _OF_THE_RESULT},
    # In place there is no input left to save.
    "EluBackward1": {"result": ELEMENT},
    "CeluBackward1": {"result": ELEMENT},
    # On CPUs `buffer` is exp(-|input|), and of the input only the sign is read; elsewhere it is the other way round.
    "LogSigmoidBackward0": {"self": ELEMENT, "buffer": ELEMENT},
}

COMPARING: Final[Rows] = {
    "ReluBackward0": {"result": SIGN},
    "LeakyReluBackward0": {"self": SIGN},
    "LeakyReluBackward1": {"result": SIGN},
    "ThresholdBackward0": {"self": RANGE},
    "ThresholdBackward1": {"self": RANGE},
    "HardtanhBackward0": {"self": RANGE},
    "HardsigmoidBackward0": {"self": RANGE},
    "HardshrinkBackward0": {"self": RANGE},
    "SoftshrinkBackward0": {"self": RANGE},
    "ClampBackward1": {"self": RANGE},
    "ClampMinBackward0": {"self": RANGE},
    "ClampMaxBackward0": {"self": RANGE},
    # Three ranges: below, at and above zero.
    "AbsBackward0": {"self": RANGE},
}
