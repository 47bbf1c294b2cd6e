"""What packing costs a training step on a GPU, in time and memory; `python -m benchmarks.gpu_steps`.

The same steps are trained plainly and packed, one after the other, from the same weights. The first steps, in which bounds are
found, are told on their own: the very first compiles the kernels unless Triton's cache has them. Each step ends when the device
has done it.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from kompakt_runtime.config import ACTIVATION_GRADIENTS, RuntimeConfig
from kompakt_runtime.session import Session

WARM_UP = 12


@dataclass(frozen=True)
class Case:
    """`model` is made after the random state is set; `batch`: its input; `loss`: of the model on it."""

    model: Callable[[], Any]
    batch: Callable[[], Any]
    loss: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Steps:
    """Seconds of each step, the most bytes that were allocated and reserved, how much smaller what was kept is, and what passed
    through.

    first: seconds of the first steps; tried: rows of the table of uses that this machine was asked about, with its answer.
    """

    seconds: list[float]
    peak: int
    reserved: int
    ratio: float
    raw: dict[str, int]
    first: list[float]
    tried: list[str]


def squares(model: Any, x: Any) -> Any:
    return model(x).float().square().mean()


def gpt(width: int, blocks: int, sequences: int, tokens: int, device: Any, dtype: Any) -> Case:
    """Blocks of attention and a GELU, norms before them, without dropout."""

    def model() -> Any:
        heads = max(1, width // 128)
        make = nn.TransformerEncoderLayer
        layers = [make(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(blocks)]
        return nn.Sequential(*layers).to(device=device, dtype=dtype)

    return Case(model, lambda: torch.randn(sequences, tokens, width, device=device, dtype=dtype), squares)


def llama(width: int, blocks: int, sequences: int, tokens: int, device: Any) -> Case:
    """Of transformers, random weights in float32, under autocast with bfloat16."""

    def model() -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found, unused-ignore]

        heads = max(2, width // 128)
        config = LlamaConfig(
            vocab_size=32000, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=blocks,
            num_attention_heads=heads, num_key_value_heads=heads // 2, max_position_embeddings=tokens, use_cache=False,
        )  # fmt: skip
        return LlamaForCausalLM(config).to(device)

    def loss(model: Any, ids: Any) -> Any:
        with torch.autocast(device.type, torch.bfloat16):
            return model(input_ids=ids, labels=ids).loss

    return Case(model, lambda: torch.randint(0, 32000, (sequences, tokens), device=device), loss)


def resnet50(images: int, device: Any) -> Case:
    """timm's, channels last, bfloat16."""

    def model() -> Any:
        import timm  # type: ignore[import-not-found, unused-ignore]

        return timm.create_model("resnet50").to(device=device, dtype=torch.bfloat16, memory_format=torch.channels_last)

    def batch() -> Any:
        x = torch.randn(images, 3, 224, 224, device=device, dtype=torch.bfloat16)
        return x.to(memory_format=torch.channels_last)

    return Case(model, batch, squares)


def trained(case: Case, config: RuntimeConfig | None, steps: int, device: Any, compiled: bool = False) -> Steps:
    """The last `steps`, after WARM_UP more. compiled: by torch.compile, each time anew."""
    torch.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model, x = case.model(), case.batch()
    if compiled:
        torch._dynamo.reset()
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    session = Session(config) if config is not None else None
    if session is not None:
        session.start()
    try:
        first = [timed(lambda: step(case, model, x, optimizer), device) for _ in range(WARM_UP)]
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = [timed(lambda: step(case, model, x, optimizer), device) for _ in range(steps)]
    finally:
        if session is not None:
            session.stop()
    cuda = device.type == "cuda"
    peak, reserved = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if cuda else (0, 0)
    figures = session.figures if session is not None else None
    if figures is None:
        return Steps(seconds, peak, reserved, 1.0, {}, first, [])
    tried = [f"{one.place} {one.doubt or 'holds'}" for one in figures.tried]
    ratio = figures.plain_bytes / max(figures.saved_bytes, 1)
    return Steps(seconds, peak, reserved, ratio, dict(figures.raw), first, tried)


def step(case: Case, model: Any, x: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    case.loss(model, x).backward()
    optimizer.step()


def timed(action: Callable[[], Any], device: Any) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def row(name: str, plain: Steps, packed: Steps) -> str:
    before, after = (statistics.median(steps.seconds) for steps in (plain, packed))
    return (
        f"{name}: {before * 1e3:.1f} -> {after * 1e3:.1f} ms a step ({after / before - 1:+.1%}), "
        f"peak {plain.peak / 1e9:.2f} -> {packed.peak / 1e9:.2f} GB, "
        f"reserved {plain.reserved / 1e9:.2f} -> {packed.reserved / 1e9:.2f} GB, saved bytes {packed.ratio:.2f} times smaller; "
        f"passed through: {packed.raw}\n"
        f"  first steps, in plain ones: {', '.join(f'{seconds / before:.1f}' for seconds in packed.first)}; "
        f"rows tried: {', '.join(packed.tried) or 'none'}"
    )


CASES: Final[dict[str, tuple[str, Callable[[Any], Case]]]] = {
    "gpt": ("GPT, 4096 wide, 4 blocks, 8 x 2048 tokens, bfloat16", lambda device: gpt(4096, 4, 8, 2048, device, torch.bfloat16)),
    "resnet50": ("ResNet-50, 256 images, bfloat16", lambda device: resnet50(256, device)),
    "llama": ("Llama, 2048 wide, 12 blocks, 8 x 2048 tokens, autocast bfloat16", lambda device: llama(2048, 12, 8, 2048, device)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cases", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--compiled", action="store_true", help="by torch.compile, with compression and without")
    parser.add_argument("--gradients", choices=ACTIVATION_GRADIENTS, nargs="+", default=list(ACTIVATION_GRADIENTS))
    arguments = parser.parse_args()
    device = torch.device("cuda", 0)
    how = ", compiled" if arguments.compiled else ""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}{how}; median of {arguments.steps} steps")
    for name in arguments.cases:
        words, case = CASES[name]
        plain = trained(case(device), None, arguments.steps, device, arguments.compiled)
        for gradients in arguments.gradients:
            config = RuntimeConfig("ErrorBounded", activation_gradients=gradients)
            packed = trained(case(device), config, arguments.steps, device, arguments.compiled)
            print(row(f"{words}, activation gradients {gradients}", plain, packed), flush=True)


if __name__ == "__main__":
    main()
