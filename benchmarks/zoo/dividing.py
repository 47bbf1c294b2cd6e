"""How long it takes to divide a compiled training step into its two graphs; `python -m benchmarks.zoo.dividing`.

A Llama of transformers with random weights, whole in one graph, by number of blocks. Printed are the nodes of both graphs, the
processor seconds that the compiler's own division takes, those of what the runtime does with its result, and their ratio. Code is
not generated, which takes longer than both.
"""

import argparse
import platform
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.zoo.models import decoder

HEADER = "| blocks | nodes forward | backward | values packed | compiler's own division, s | ours after it, s | ratio |"


def divided(gm: Any, inputs: Sequence[object], **keywords: Any) -> tuple[Any, Any]:
    """As the runtime's partitioner; prints a row."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    from kompakt_runtime.compiled.rewriting import rewrite
    from kompakt_runtime.config import DEFAULT_MIN_TENSOR_BYTES

    begin = time.process_time()
    forward, backward = min_cut_rematerialization_partition(gm, inputs, **keywords)
    between = time.process_time()
    sizes = [len(graph.graph.nodes) for graph in (forward, backward)]
    static = frozenset(keywords["static_lifetime_input_indices"] or ())
    packed = rewrite(forward, backward, keywords["num_fwd_outputs"], DEFAULT_MIN_TENSOR_BYTES, lossy=True, static=static)
    theirs, ours = between - begin, time.process_time() - between
    print(f" {sizes[0]} | {sizes[1]} | {packed} | {theirs:.2f} | {ours:.2f} | {ours / theirs:.2f} |", flush=True)
    return forward, backward


def row(blocks: int) -> None:
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor import lowering  # noqa: F401  # the next asks that it be loaded
    from torch._inductor.decomposition import select_decomp_table

    torch._dynamo.reset()
    model = decoder("Llama", num_hidden_layers=blocks)
    backend = aot_autograd(fw_compiler=as_it_is, bw_compiler=as_it_is, partition_fn=divided, decompositions=select_decomp_table())
    print(f"| {blocks} |", end="")
    model.loss(torch.compile(model.build(), backend=backend), model.batch(0))


def as_it_is(gm: Any, _: object) -> Any:
    from torch._functorch.aot_autograd import make_boxed_func

    return make_boxed_func(gm.forward)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 8, 16, 32])
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, one thread, torch {torch.__version__}\n")
    print(HEADER, "|" + "---:|" * 7, sep="\n", flush=True)
    for blocks in given.blocks:
        row(blocks)


if __name__ == "__main__":
    main()
