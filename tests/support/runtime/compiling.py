"""torch.compile with our way to divide graphs and no code generator behind it: operators run one by one, which takes no time."""

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from kompakt_runtime.compiled import partitioner


def dividing(
    said: Callable[[str], None] = lambda _: None,
    minimum: int = 0,
    lossy: bool = True,
    reads: bool = True,
    decomposed: bool = False,
) -> Callable[..., Any]:
    """A backend. said, lossy, reads: as of partitioner.install; decomposed: with what inductor makes operators of, as norms."""

    def divided(gm: Any, joint_inputs: Any, **keywords: Any) -> Any:
        keywords["static_lifetime_input_indices"] = keywords.get("static_lifetime_input_indices")
        return partitioner.divided(gm, joint_inputs, minimum, lossy, reads, said, keywords)

    def one_by_one(gm: Any, _: Any) -> Any:
        def run(inputs: list[Any]) -> Any:
            return torch.fx.Interpreter(gm).boxed_run(inputs)

        run._boxed_call = True  # type: ignore[attr-defined]  # so that what was read is freed while it runs
        return run

    parts = decompositions() if decomposed else None
    return aot_autograd(fw_compiler=one_by_one, bw_compiler=one_by_one, partition_fn=divided, decompositions=parts)


def decompositions() -> Any:
    from torch._inductor import decomposition, lowering  # not before: it takes seconds

    assert lowering  # which the first asks, and does not load
    return decomposition.select_decomp_table()


def sound(reason: str) -> None:
    """No graph is one that could not be rewritten."""
    assert not reason.startswith("RewriteFailed"), reason


def compiled(model: torch.nn.Module, decomposed: bool = False, **options: Any) -> Any:
    """The model, by that backend. options: of torch.compile."""
    return torch.compile(model, backend=dividing(said=sound, decomposed=decomposed), **options)
