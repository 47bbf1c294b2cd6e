"""What waiting is worth where offers come at random (Delay Scheduling, EuroSys 2010).

The formulas assume many short tasks and independent offers; gangs of GPUs have neither, which is why timers here are hours
where the paper's are seconds. They are kept for the arithmetic of a cluster of single-GPU tasks.
"""

import math

from kompakt_core.errors import InvalidInput


def chance_of_none(local: float, offers: int) -> float:
    """Chance that so many offers in a row hold no local slot, when each does with chance `local`."""
    if not 0 <= local <= 1 or offers < 0:
        raise InvalidInput(f"chance {local}, {offers} offers; expected a chance from 0 to 1 and a number from 0 up")
    return float((1 - local) ** offers)


def time_for(offers: float, task_s: float, slots: int) -> float:
    """Seconds in which so many offers come, when `slots` slots run tasks of `task_s` seconds on average."""
    if offers < 0 or task_s < 0 or slots < 1:
        raise InvalidInput(f"{offers} offers, tasks of {task_s} s, {slots} slots; expected numbers from 0 up, at least one slot")
    return offers * task_s / slots


def offers_for(locality: float, last_tasks: int, replicas: int, machines: int) -> float:
    """Offers to skip so that the last tasks of a job, whose data has so many replicas, reach this share of locality."""
    if not 0 <= locality < 1 or min(last_tasks, replicas, machines) < 1:
        raise InvalidInput(
            f"locality {locality}, {last_tasks} tasks, {replicas} replicas, {machines} machines; expected 0 <= locality < 1"
        )
    miss = (1 - locality) * last_tasks
    return -(machines / replicas) * math.log(miss / (1 + miss))
