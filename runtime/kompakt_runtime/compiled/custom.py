"""The partitioner as torch's compiler wants it. Loads its settings, which takes a second: imported when that is due."""

from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor.custom_graph_pass import CustomPartitionerFn

from kompakt_runtime.compiled.partitioner import divided, identity


class Partitioner(CustomPartitionerFn):  # type: ignore[misc]  # has no types in every torch
    """As usual, and then the operators are put in. `said` is told why a region is left as it is."""

    kompakt = True

    def __init__(self, minimum: int, lossy: bool, reads: bool, said: Callable[[str], None]) -> None:
        self._settings, self._said = (minimum, lossy, reads), said

    def __call__(self, gm: Any, joint_inputs: Sequence[object], **keywords: Any) -> tuple[Any, Any]:
        return divided(gm, joint_inputs, *self._settings, self._said, keywords)

    def uuid(self) -> Any:
        """Graphs in the compiler's cache are others where these sources or settings are."""
        return identity(*self._settings)

    def __reduce__(self) -> tuple[Any, ...]:
        """As part of the key of that cache, it is its identity and nothing else."""
        return str, (self.uuid(),)
