"""Rows of norms, softmax and fused attention. Statistics that they save beside are small and stay exact."""

from dataclasses import replace
from typing import Final

from kompakt_runtime.uses.reads import ELEMENT, INDEX, MASK, PROBABILITIES, Read, Row, Rows, exact, product

INPUT: Final = Row(Read.NORM, (0, 1))
_STATISTICS: Final = exact("result1", "result2", "running_mean", "running_var")
_BATCH: Final = {"input": INPUT, "weight": product(0), **_STATISTICS}

NORMS: Final[Rows] = {
    "NativeBatchNormBackward0": _BATCH,
    "NativeLayerNormBackward0": {"input": INPUT, "weight": product(0), **exact("bias", "result1", "result2")},
    "NativeGroupNormBackward0": {"input": INPUT, "weight": product(0), **exact("result1", "result2")},
    "FusedRmsNormBackward0": {"input": INPUT, "weight": product(0), **exact("result1")},
    "WeightNormInterfaceBackward0": exact("v", "g", "result1"),
}

PROBABLE: Final[Rows] = {
    "SoftmaxBackward0": {"result": PROBABILITIES},
    "SafeSoftmaxBackward0": {"result": PROBABILITIES},
    "LogSoftmaxBackward0": {"result": PROBABILITIES},
    "MaskedSoftmaxBackward0": {"result": PROBABILITIES, "mask": MASK},
    "LogsumexpBackward0": {"self": ELEMENT, **exact("result")},
    "GluBackward0": {"self": Row(Read.JOINT)},
}

# Probabilities are computed again from queries, keys and the saved sums of exponentials. Values and output enter linearly: the
# gradient of the scores is p * (grad @ v^T - rowsum(grad * output)).
_OPERANDS: Final = {
    "query": Row(Read.JOINT, (0, 1, 2)),
    "key": Row(Read.JOINT, (0, 1, 2)),
    "value": product(0, 1),
    "output": product(0, 1),
}
_SEEDS: Final = exact("philox_seed", "philox_offset")
_LENGTHS: Final = exact("cum_seq_q", "cum_seq_k")
_CUDNN: Final = {**_OPERANDS, **_SEEDS, **_LENGTHS, **exact("attn_bias", "logsumexp")}
_FLASH: Final = {**_OPERANDS, **_LENGTHS, **exact("rng_state", "unused"), **_SEEDS}  # the seeds before torch 2.7
_EFFICIENT: Final = {**_OPERANDS, **_SEEDS}

ATTENTION: Final[Rows] = {
    "ScaledDotProductFlashAttentionForCpuBackward0": {**_OPERANDS, **exact("logsumexp", "attn_mask")},
}


def _unverified(slots: dict[str, Row]) -> dict[str, Row]:
    return {slot: replace(row, unverified=True) for slot, row in slots.items()}


# Kernels that run on GPUs alone: what torch's derivatives.yaml hands to their backward functions, read as on CPUs until tried.
GPU: Final[Rows] = {
    "CudnnBatchNormBackward0": _unverified({**_BATCH, **exact("result3")}),
    "MiopenBatchNormBackward0": _unverified(_BATCH),
    "ScaledDotProductEfficientAttentionBackward0": _unverified({**_EFFICIENT, **exact("attn_bias", "log_sumexp")}),
    "ScaledDotProductFlashAttentionBackward0": _unverified({**_FLASH, **exact("logsumexp")}),
    "ScaledDotProductCudnnAttentionBackward0": _unverified(_CUDNN),
    "ScaledDotProductFusedAttentionOverrideableBackward0": _unverified(_CUDNN),
    "FlashAttentionBackward0": _unverified({**_FLASH, **exact("softmax_logsumexp")}),
    "EfficientAttentionBackward0": _unverified({**_EFFICIENT, **exact("bias", "cu_seqlens_q", "cu_seqlens_k", "logsumexp")}),
    "CudnnAttentionBackward0": _unverified(_CUDNN),
    "FusedDropoutBackward0": _unverified({"result1": INDEX}),
}
