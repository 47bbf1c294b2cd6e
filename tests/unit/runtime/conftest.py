"""Torch on one thread: the tests' tensors are small, and on a busy machine threads that wait for each other cost seconds."""

import contextlib

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
