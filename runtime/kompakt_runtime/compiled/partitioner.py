"""The function that torch's compiler asks to divide a training step into a forward and a backward graph."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

MEMORY_BUDGET: Final = "CompiledMemoryBudget"  # the user set torch._functorch.config.activation_memory_budget
OWN_PARTITIONER: Final = "CompiledOwnPartitioner"  # the user set torch._inductor.config.custom_partitioner_fn
CUDA_GRAPHS: Final = "CompiledCudaGraphs"  # mode="reduce-overhead": what is packed has another size and place each step
OLD_TORCH: Final = "CompiledOldTorch"  # it asks nobody how to divide


def install(minimum: int, lossy: bool, reads: bool, said: Callable[[str], None]) -> str:
    """From now on what is compiled packs; or why that cannot be. lossy: not masks alone; said: is told why a region stays as it
    is. Who asked last is served.

    Loads the compiler's settings: to be called by who is about to compile.
    """
    from torch._inductor import config  # not before: it takes a second

    mine: Any = getattr(config, "custom_partitioner_fn", OLD_TORCH)
    if mine == OLD_TORCH:
        return OLD_TORCH
    if mine is not None and not getattr(mine, "kompakt", False):
        return OWN_PARTITIONER
    if mine is None or mine.uuid() != identity(minimum, lossy, reads):
        from kompakt_runtime.compiled.custom import Partitioner

        config.custom_partitioner_fn = Partitioner(minimum, lossy, reads, said)
    return ""


def loaded() -> Any:
    """The compiler's settings; None before anybody loaded them."""
    return sys.modules.get("torch._inductor.config")


def remove() -> None:
    """What is compiled from now on packs nothing."""
    config = loaded()
    if config is not None and getattr(getattr(config, "custom_partitioner_fn", None), "kompakt", False):
        config.custom_partitioner_fn = None


@cache
def identity(minimum: int, lossy: bool, reads: bool) -> str:
    """Of these sources and settings."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources) + f"{minimum} {lossy} {reads}".encode()).hexdigest()


def divided(
    gm: Any,
    joint_inputs: Sequence[object],
    minimum: int,
    lossy: bool,
    reads: bool,
    said: Callable[[str], None],
    keywords: dict[str, Any],
) -> tuple[Any, Any]:
    """The two graphs; as the compiler alone divides them where anything is in the way."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    if why_not := obstacle():
        said(why_not)
        return min_cut_rematerialization_partition(gm, joint_inputs, **keywords)  # type: ignore[no-any-return]
    given = keywords.get("static_lifetime_input_indices")
    static = frozenset(given) if lossy and reads and given is not None else None
    forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **keywords)
    failed: dict[str, None] = {}
    for known in dict.fromkeys((static, None)):
        why_not = _rewritten(forward, backward, keywords["num_fwd_outputs"], minimum, lossy, known)
        if not why_not:
            break
        failed[why_not] = None
    for why_not in failed:
        said(why_not)
    return forward, backward


def _rewritten(forward: Any, backward: Any, results: int, minimum: int, lossy: bool, static: frozenset[int] | None) -> str:
    """As rewriting.rewrite; why not, where that fails: a graph of a kind that nobody thought of must compile as without us."""
    from kompakt_runtime.compiled.rewriting import rewrite

    try:
        rewrite(forward, backward, results, minimum, lossy, static)
    except Exception as error:
        return f"RewriteFailed{type(error).__name__}"
    return ""


def obstacle() -> str:
    """Why this region must be divided as the compiler alone does it; empty where nothing is in the way."""
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    if functorch.activation_memory_budget < 1:
        return MEMORY_BUDGET
    return CUDA_GRAPHS if inductor.triton.cudagraphs else ""
