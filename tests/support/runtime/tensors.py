"""Types of numbers that the codec packs, and their bits."""

import torch

torch.set_num_threads(1)
SHORT = [torch.float16, torch.bfloat16]
DTYPES = [torch.float64, torch.float32, *SHORT]
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """The bit patterns, which tell NaN from NaN and 0.0 from -0.0."""
    return x.contiguous().view(BITS[x.element_size()])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(bits_of(a), bits_of(b))


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers of the standard normal distribution; the same for a seed, whatever the type."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
