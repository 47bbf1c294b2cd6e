"""Training steps with and without packing, on a network so small that a CPU does for the GPU."""

import torch

from benchmarks import gpu_steps
from kompakt_runtime.config import RuntimeConfig

CPU = torch.device("cpu")


def test_plain_and_packed_steps_are_timed_and_told():
    case = gpu_steps.gpt(64, 1, 2, 16, CPU, torch.float32)
    plain = gpu_steps.trained(case, None, 2, CPU)
    packed = gpu_steps.trained(case, RuntimeConfig("ErrorBounded", min_tensor_bytes=0), 3, CPU)
    assert (len(plain.seconds), len(packed.seconds)) == (2, 3)
    assert plain.ratio == 1
    assert packed.ratio > 1.2
    said = gpu_steps.row("tiny", plain, packed)
    assert "ms a step" in said
    assert f"{packed.ratio:.2f} times smaller" in said
