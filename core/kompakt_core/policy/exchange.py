"""Whether it shortens the waits of all together to stop jobs for another, where it is known what each still needs.

The exchange argument behind shortest remaining time first (L. Schrage, Oper. Res. 16, 1968), for gangs: if the gang goes first,
each victim ends later by the gang's rest and by what stopping costs it; if the victims go on, the gang ends later by the time
until the last of them has ended. That stands for how long the gang would wait: it is how long if only these could make room.
What frees many GPUs by stopping many jobs must save more than what stops one. No victim may be shorter than the gang: it would
stop the gang in turn. In the cluster nothing of this is used; the simulator's `kompakt` goes by it.
"""

from collections.abc import Sequence

from kompakt_core.errors import InvalidInput


def stopping_pays(gang_s: float, victims_s: Sequence[float], cost_s: float) -> bool:
    """Whether a gang that needs `gang_s` more goes before running jobs that need `victims_s` more, together where it would sit.

    Seconds of running with communication, as at the best level; `cost_s`: of stopping and starting again, for each victim.
    Raises InvalidInput where there is no victim, or a number is below 0.
    """
    if not victims_s or min(gang_s, cost_s, *victims_s) < 0:
        raise InvalidInput(f"{gang_s}, {list(victims_s)[:8]}, {cost_s} s; expected at least one victim, and numbers from 0 up")
    return len(victims_s) * (gang_s + cost_s) <= max(victims_s) and gang_s <= min(victims_s) + cost_s
