"""Trains PyTorch's own transformer encoder to guess the next byte of the Python standard library's source.

An ordinary training script: nothing in it knows of kompakt.
"""

import os
import time
from pathlib import Path

import torch
from torch import nn

WIDTH, HEADS, BLOCKS, LENGTH, BATCH, STEPS = 128, 4, 4, 64, 16, 30


class NextByte(nn.Module):
    """Bytes in, (batch, length, 256) out: what may come next."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, BLOCKS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, 256)
        self.register_buffer("ahead", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        inside = self.bytes(text) + self.places.weight
        return self.out(self.blocks(inside, mask=self.ahead, is_causal=True))


def source() -> torch.Tensor:
    """The text of all modules beside `os`."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()


def main() -> None:
    torch.manual_seed(0)
    data, model = source(), NextByte().to("cuda" if torch.cuda.is_available() else "cpu")
    place = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began, losses = time.monotonic(), []
    for _ in range(STEPS):
        at = torch.randint(len(data) - LENGTH - 1, (BATCH,))
        text = torch.stack([data[start : start + LENGTH + 1] for start in at.tolist()]).to(place)
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = sum(losses[-10:]) / len(losses[-10:])
    print(f"{STEPS} steps in {time.monotonic() - began:.1f} s on {place.type}; loss {losses[0]:.3f} -> {last:.3f}")


if __name__ == "__main__":
    main()
