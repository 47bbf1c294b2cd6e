"""Operations that make the nodes of the table on a CPU, in double precision."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from kompakt_runtime.uses.reads import Read

Tensor = Any


def x(*shape: int, grad: bool = True) -> Tensor:
    """Numbers that no threshold of these operations is near to."""
    draw = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_(grad)


def positive(*shape: int) -> Tensor:
    return (x(*shape, grad=False).abs() + 0.5).requires_grad_()


def inside(*shape: int) -> Tensor:
    """Between -0.9 and 0.9."""
    return (x(*shape, grad=False).tanh() * 0.9).requires_grad_()


def places(size: int, *shape: int) -> Tensor:
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(size))


def mask(*shape: int) -> Tensor:
    return x(*shape, grad=False) > 0


@dataclass(frozen=True)
class Operation:
    """make: computes a tensor; behind it is the node whose `slots` are looked at. sees: what is read on a CPU where that is less
    than the row says.
    """

    node: str
    slots: tuple[str, ...]
    make: Callable[[], Tensor]
    sees: frozenset[Read] = field(default=frozenset())

    @property
    def label(self) -> str:
        return self.node

    @property
    def lacks(self) -> str:
        """Why this torch cannot; "" if it can."""
        try:
            output = self.make()
        except (AttributeError, NotImplementedError) as problem:
            return f"{type(problem).__name__}: {problem}"
        return "" if node_of(output, self.node) is not None else f"made of other nodes: {output.grad_fn.name()}"

    def made(self) -> Tensor:
        return self.make()


def node_of(output: Tensor, name: str) -> Any:
    """The first node of that name behind a tensor; None if there is none."""
    waiting = [output.grad_fn]
    while waiting:
        node = waiting.pop(0)
        if node.name() == name:
            return node
        waiting += [behind for behind, _ in node.next_functions if behind is not None]
    return None


def of(node: str, slots: str, make: Callable[[], Tensor], *sees: Read) -> Operation:
    return Operation(node if "Backward" in node else f"{node}Backward0", tuple(slots.split()), make, frozenset(sees))


def attention() -> Tensor:
    return F.scaled_dot_product_attention(x(1, 2, 4, 8), x(1, 2, 5, 8), x(1, 2, 5, 8))


def classes() -> Tensor:
    return x(6, 5).log_softmax(-1)


PRODUCTS = (
    of("Mm", "self mat2", lambda: x(3, 4) @ x(4, 5)),
    of("Bmm", "self mat2", lambda: torch.bmm(x(2, 3, 4), x(2, 4, 5))),
    of("Mv", "self vec", lambda: torch.mv(x(3, 4), x(4))),
    of("Dot", "self tensor", lambda: torch.dot(x(4), x(4) * 2)),
    of("Addmm", "mat1 mat2", lambda: torch.addmm(x(5), x(3, 4), x(4, 5))),
    of("Addmv", "mat vec", lambda: torch.addmv(x(3), x(3, 4), x(4))),
    of("Addr", "vec1 vec2", lambda: torch.addr(x(3, 4), x(3), x(4))),
    of("Baddbmm", "batch1 batch2", lambda: torch.baddbmm(x(2, 3, 5), x(2, 3, 4), x(2, 4, 5))),
    of("Addbmm", "batch1 batch2", lambda: torch.addbmm(x(3, 5), x(2, 3, 4), x(2, 4, 5))),
    of("GroupedMm", "self mat2", lambda: grouped()),
    of("Convolution", "input weight", lambda: F.conv2d(x(2, 3, 8, 8), x(4, 3, 3, 3), x(4))),
    of("Mul", "self other", lambda: x(3, 4) * x(4)),
    of("Div", "self other", lambda: x(3, 4) / positive(3, 4)),
    of("Addcmul", "tensor1 tensor2", lambda: torch.addcmul(x(3), x(4, 3), x(4, 3) * 2)),
    of("Addcdiv", "tensor1 tensor2", lambda: torch.addcdiv(x(4, 3), x(4, 3), positive(4, 3))),
    of("LerpBackward1", "self end weight", lambda: torch.lerp(x(3, 4), x(3, 4) * 2, positive(3, 4))),
    of("PreluKernel", "self weight", lambda: F.prelu(x(3, 4), positive(4)), Read.PRODUCT),
    of("MseLoss", "self target", lambda: F.mse_loss(x(3, 4), positive(3, 4))),
    of("Var", "self", lambda: x(3, 4).var(0)),
    of("Std", "self", lambda: x(3, 4).std(0)),
    of("VarMean", "self", lambda: torch.var_mean(x(3, 4), 0)[0]),
    of("BinaryCrossEntropyWithLogits", "self", lambda: F.binary_cross_entropy_with_logits(x(3, 4), inside(3, 4))),
    of("SmoothL1Loss", "self target", lambda: F.smooth_l1_loss(x(3, 4), inside(3, 4)), Read.PRODUCT),
)


def grouped() -> Tensor:
    """Two groups of rows, the second of three; lengths in bytes must be multiples of 16."""
    rows, experts = x(8, 16).bfloat16(), x(2, 16, 8).bfloat16()
    return torch._grouped_mm(rows, experts, offs=torch.tensor([3, 8], dtype=torch.int32))


UNARY = {
    "Gelu": F.gelu, "Silu": F.silu, "Mish": F.mish, "Softplus": F.softplus, "Elu": F.elu, "Celu": lambda t: F.celu(t, 1.5),
    "Hardswish": F.hardswish, "Sin": torch.sin, "Cos": torch.cos, "Sinh": torch.sinh, "Cosh": torch.cosh, "Atan": torch.atan,
    "Erf": torch.erf, "Erfc": torch.erfc, "Pow": lambda t: t.pow(3),
}  # fmt: skip
OF_POSITIVE = {"Log": torch.log, "Log1P": torch.log1p, "Log2": torch.log2, "Log10": torch.log10}
RESULTS = {
    "Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Exp": torch.exp, "Exp2": torch.exp2, "Tan": torch.tan, "Sqrt": torch.sqrt,
    "Rsqrt": torch.rsqrt, "Reciprocal": torch.reciprocal,
}  # fmt: skip
# Where the derivative is linear in what was saved, or nearly everywhere: seen as products. An error still stays at its element.
STRAIGHT = frozenset({"Exp", "Exp2", "Expm1", "Hardswish"})


def unary(functions: dict[str, Any], slot: str, argument: Callable[..., Tensor]) -> tuple[Operation, ...]:
    def one(name: str, function: Any) -> Operation:
        less = (Read.PRODUCT,) if name in STRAIGHT else ()
        return of(name, slot, lambda: function(argument(6, 5)), *less)

    return tuple(one(name, function) for name, function in functions.items())


ELEMENTS = (
    *unary(UNARY, "self", x),
    *unary(OF_POSITIVE, "self", positive),
    *unary({"Asin": torch.asin, "Acos": torch.acos}, "self", inside),
    *unary(RESULTS | {"Expm1": torch.expm1}, "result", positive),
    of("EluBackward1", "result", lambda: F.elu(x(6, 5) * 1, inplace=True), Read.PRODUCT, Read.ELEMENT),
    of("CeluBackward1", "result", lambda: F.celu(x(6, 5) * 1, inplace=True), Read.PRODUCT, Read.ELEMENT),
    of("LogSigmoid", "self", lambda: F.logsigmoid(x(6, 5)), Read.SIGN),
    of("LogSigmoid", "buffer", lambda: F.logsigmoid(x(6, 5))),
    of("Relu", "result", lambda: F.relu(x(6, 5))),
    of("LeakyRelu", "self", lambda: F.leaky_relu(x(6, 5))),
    of("LeakyReluBackward1", "result", lambda: F.leaky_relu(x(6, 5) * 1, inplace=True)),
    of("Threshold", "self", lambda: F.threshold(x(6, 5), 0.3, 0.1)),
    of("ThresholdBackward1", "self", lambda: F.threshold(x(6, 5) * 1, 0.3, 0.1, inplace=True)),
    of("Hardtanh", "self", lambda: F.hardtanh(x(6, 5))),
    of("Hardsigmoid", "self", lambda: F.hardsigmoid(x(6, 5) * 3)),
    of("Hardshrink", "self", lambda: F.hardshrink(x(6, 5))),
    of("Softshrink", "self", lambda: F.softshrink(x(6, 5))),
    of("ClampBackward1", "self", lambda: x(6, 5).clamp(-0.5, 0.5)),
    of("ClampMin", "self", lambda: x(6, 5).clamp_min(-0.4)),
    of("ClampMax", "self", lambda: x(6, 5).clamp_max(0.4)),
    of("Abs", "self", lambda: x(6, 5).abs()),
)

JOINT = (
    of("NativeBatchNorm", "input weight", lambda: F.batch_norm(x(4, 3, 5), None, None, x(3), x(3), True)),
    of("NativeLayerNorm", "input weight", lambda: F.layer_norm(x(4, 6), (6,), x(6), x(6))),
    of("NativeGroupNorm", "input weight", lambda: F.group_norm(x(4, 6, 5), 2, x(6), x(6))),
    of("FusedRmsNorm", "input weight", lambda: torch._fused_rms_norm(x(4, 6), (6,), x(6), 1e-6)[0]),
    of("Softmax", "result", lambda: x(4, 6).softmax(-1)),
    of("SafeSoftmax", "result", lambda: torch._safe_softmax(x(4, 6), -1)),
    of("LogSoftmax", "result", classes),
    of("MaskedSoftmax", "result mask", lambda: torch._masked_softmax(x(4, 6), mask(4, 6), 1)),
    of("Logsumexp", "self", lambda: x(4, 6).logsumexp(-1)),
    of("Glu", "self", lambda: F.glu(x(4, 6))),
    of("ScaledDotProductFlashAttentionForCpu", "query key value output", attention),
)

PLACES = (
    of("Embedding", "indices", lambda: F.embedding(places(5, 7), x(5, 3))),
    of("NllLoss", "self target", lambda: F.nll_loss(classes(), places(5, 6))),
    of("NllLoss2D", "self target", lambda: F.nll_loss(x(2, 5, 3, 3).log_softmax(1), places(5, 2, 3, 3))),
    of("MaxPool2DWithIndices", "self result1", lambda: F.max_pool2d(x(2, 3, 8, 8), 2)),
    of("MaxPool3DWithIndices", "self result1", lambda: F.max_pool3d(x(2, 3, 4, 4, 4), 2)),
    of("AdaptiveMaxPool2D", "self result1", lambda: F.adaptive_max_pool2d(x(2, 3, 8, 8), 4)),
    of("AdaptiveMaxPool3D", "self result1", lambda: F.adaptive_max_pool3d(x(2, 3, 4, 4, 4), 2)),
    of("Index", "indices", lambda: x(6, 4)[places(4, 3), places(4, 3)]),
    of("IndexPut", "indices", lambda: x(6, 4).index_put((torch.tensor([0, 2, 4]), torch.tensor([1, 3, 0])), x(3))),
    of("IndexSelect", "index", lambda: x(6, 4).index_select(0, places(6, 3))),
    of("IndexAdd", "index source", lambda: x(6, 4).index_add(0, places(6, 3), x(3, 4))),
    of("Gather", "self index", lambda: x(6, 4).gather(1, places(4, 6, 2))),
    of("Scatter", "index", lambda: x(6, 4).scatter(0, torch.arange(8).view(2, 4) % 6, x(2, 4))),
    of("ScatterBackward1", "index", lambda: x(6, 4).scatter(0, places(6, 2, 4), 1.5)),
    of("ScatterAdd", "index", lambda: x(6, 4).scatter_add(0, places(6, 2, 4), x(2, 4))),
    of("Topk", "indices", lambda: x(6, 4).topk(2)[0]),
    of("Sort", "indices", lambda: torch.sort(x(6, 4))[0]),
    of("SortBackward1", "indices", lambda: torch.sort(x(6, 4), stable=True)[0]),
    of("Max", "indices", lambda: x(6, 4).max(0)[0]),
    of("Min", "indices", lambda: x(6, 4).min(0)[0]),
    of("Where", "condition", lambda: torch.where(mask(6, 4), x(6, 4), x(6, 4))),
    of("MaskedFill", "mask", lambda: x(6, 4).masked_fill(mask(6, 4), 0.5)),
    of("MaskedFillBackward1", "mask", lambda: x(6, 4).masked_fill(mask(6, 4), x(1).sum())),
    of("MaskedScatter", "mask", lambda: x(6, 4).masked_scatter(mask(6, 4), x(24))),
    of("MaskedSelect", "self mask", lambda: masked_half()),
    of("NativeDropout", "result1", lambda: torch.native_dropout(x(6, 4), 0.5, True)[0]),
    of("AvgPool2D", "self", lambda: F.avg_pool2d(x(2, 3, 8, 8), 2)),
    of("AvgPool3D", "self", lambda: F.avg_pool3d(x(2, 3, 4, 4, 4), 2)),
    of("AdaptiveAvgPool2D", "self", lambda: F.adaptive_avg_pool2d(x(2, 3, 8, 8), 2)),
    of("AdaptiveAvgPool3D", "self", lambda: F.adaptive_avg_pool3d(x(2, 3, 4, 4, 4), 2)),
    of("ReflectionPad1D", "self", lambda: F.pad(x(2, 3, 8), (1, 1), "reflect")),
    of("ReflectionPad2D", "self", lambda: F.pad(x(2, 3, 8, 8), (1, 1, 1, 1), "reflect")),
    of("ReflectionPad3D", "self", lambda: F.pad(x(2, 3, 4, 4, 4), (1,) * 6, "reflect")),
    of("ReplicationPad1D", "self", lambda: F.pad(x(2, 3, 8), (1, 1), "replicate")),
    of("ReplicationPad2D", "self", lambda: F.pad(x(2, 3, 8, 8), (1, 1, 1, 1), "replicate")),
    of("ReplicationPad3D", "self", lambda: F.pad(x(2, 3, 4, 4, 4), (1,) * 6, "replicate")),
)


def masked_half() -> Tensor:
    """As many chosen as not, so that the other mask chooses as many."""
    return x(6, 4).masked_select(torch.arange(24).view(6, 4) % 2 == 0)


OPERATIONS = PRODUCTS + ELEMENTS + JOINT + PLACES

EVALUATED = {"running_mean": torch.zeros(3, dtype=torch.float64), "running_var": torch.ones(3, dtype=torch.float64)}
FIXED = (
    (of("Convolution", "input", lambda: F.conv2d(x(2, 3, 8, 8), x(4, 3, 3, 3, grad=False))), "input", Read.SHAPE),
    (of("Convolution", "weight", lambda: F.conv2d(x(2, 3, 8, 8, grad=False), x(4, 3, 3, 3))), "weight", Read.SHAPE),
    (of("NativeBatchNorm", "input", lambda: F.batch_norm(x(4, 3, 5), **EVALUATED)), "input", Read.SHAPE),
    (of("NativeBatchNorm", "input", lambda: F.batch_norm(x(4, 3, 5), weight=x(3), **EVALUATED)), "input", Read.PRODUCT),
)
