"""What the simulator of Dally's authors gives, and under which of its rules ours is compared with it.

Source: aakash-sharma/cluster-sim at 4cd660e, run by us with its double allocation of running jobs mended and its network model
replaced by the table below; 4 racks of 4 machines of 8 GPUs, lease 3600 s, history 48. A row of Gandiva is one run, since that
scheduler shuffles without a seed; the other rows repeat exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

# Seconds of communication per second of computing inside a rack; a machine has .05 of it, the whole cluster 4 X.
RATIOS: Final = MappingProxyType(
    {"VGG": 0.6, "AlexNet": 0.5, "BERT": 0.3, "MobileNetV3": 0.15, "ResNet50": 0.08, "ResNet18": 0.06}
)


@dataclass(frozen=True, slots=True)
class AuthorsFigure:
    """Average completion time and communication per job in seconds, at X = 1 and X = 8. `timers`: Dally's, None = tuned."""

    label: str
    policy: str
    timers: tuple[float, float] | None
    jct_s: tuple[int, int]
    comm_s: tuple[int, int]


_NEVER = 1e5, 1e5  # leases: what was given to a scheduler that has no word for never
FIGURES: Final[Mapping[int, tuple[AuthorsFigure, ...]]] = MappingProxyType(  # by the number of jobs in the trace
    {
        411: (
            AuthorsFigure("dally, tuned", "dally", None, (24010, 23939), (445, 596)),
            AuthorsFigure("dally 12,24", "dally", (12, 24), (23914, 25094), (433, 602)),
            AuthorsFigure("dally, never relaxes", "dally", _NEVER, (24312, 25384), (429, 567)),
            AuthorsFigure("dally 0,0", "dally", (0, 0), (22886, 50544), (929, 5408)),
            AuthorsFigure("tiresias", "tiresias", None, (22885, 28600), (511, 1632)),
            AuthorsFigure("gandiva", "gandiva", None, (105477, 480134), (2015, 14659)),
        ),
    }
)
# Which rules that simulator goes by, where they differ from ours (docs/simulator.md). `restart=0` is the option --restart-s.
_COMMON = "restart=0", "ends=charged", "leases=lost", "chunks=whole"
THEIR_RULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "dally": (*_COMMON, "parts=half"),
        "tiresias": (*_COMMON, "las-offers=event", "queues=one", "skew=models"),
        "gandiva": ("restart=0",),  # its own leases, moves and chance
    }
)
