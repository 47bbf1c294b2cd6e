"""A small transformer whose weights FSDP2 shards over all processes learns Python's own source code byte by byte (torchrun)."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

LENGTH, BATCH, STEPS = 128, 8, 30


class Predictor(nn.Module):
    """The next byte, from those before it."""

    def __init__(self, width: int = 128, blocks: int = 2) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(LENGTH, width)
        options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 4 * width, **options) for _ in range(blocks))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        later = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        x = self.bytes(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x, src_mask=later, is_causal=True)
        return self.head(x)


def main() -> None:
    gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpus else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    torch.manual_seed(0)
    model = Predictor().to(device)
    for part in (*model.blocks, model):
        fully_shard(part)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    source = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("[a-c]*.py")))
    text = torch.frombuffer(bytearray(source), dtype=torch.uint8).to(device)
    torch.manual_seed(dist.get_rank())  # each process draws batches of its own
    for step in range(1, STEPS + 1):
        batch = torch.stack([text[i : i + LENGTH + 1] for i in torch.randint(len(text) - LENGTH, (BATCH,))]).long()
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(shown := loss.detach() / dist.get_world_size())
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}  loss {shown.item():.4f}", flush=True)
    dist.destroy_process_group()
    time.sleep(1)  # a Gloo thread, alive in caches of FSDP2, must not release a tensor as Python ends: pytorch/pytorch#190489


if __name__ == "__main__":
    main()
