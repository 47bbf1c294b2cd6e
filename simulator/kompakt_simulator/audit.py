"""What must hold of a finished run, checked from its record alone: by other code than that which made it."""

from kompakt_simulator.simulation import Outcome


def violations_of(outcome: Outcome) -> list[str]:
    """Broken rules in words: a GPU held twice, a gang that held a part, a job that ran before its submission or too short."""
    return [*_held_twice(outcome), *_parts(outcome), *_wrong_times(outcome)]


def _held_twice(outcome: Outcome) -> list[str]:
    # At one moment ends come before beginnings. A stretch without length holds nothing.
    moments = [(each.end, 0, each.gpus, each.number) for each in outcome.stretches if each.end > each.start]
    moments += [(each.start, 1, each.gpus, each.number) for each in outcome.stretches if each.end > each.start]
    held, found = 0, []
    for at, begins, gpus, number in sorted(moments):
        if begins and held & gpus:
            found.append(f"at {at} ms job {number} got GPUs that another held")
        held = held | gpus if begins else held & ~gpus
    return found


def _parts(outcome: Outcome) -> list[str]:
    wanted = {done.job.number: done.job.gpus for done in outcome.finished}
    wrong = [each for each in outcome.stretches if each.gpus.bit_count() != wanted.get(each.number)]
    return [f"at {each.start} ms job {each.number} held {each.gpus.bit_count()} GPUs" for each in wrong]


def _wrong_times(outcome: Outcome) -> list[str]:
    held: dict[int, int] = {}
    first: dict[int, int] = {}
    for each in outcome.stretches:
        held[each.number] = held.get(each.number, 0) + each.end - each.start
        first[each.number] = min(first.get(each.number, each.start), each.start)
    found = []
    for done in outcome.finished:
        number = done.job.number
        if first.get(number, -1) < done.job.submit:
            found.append(f"job {number} ran before its submission")
        if held.get(number, 0) < done.job.duration:
            found.append(f"job {number} ended after {held.get(number, 0)} ms of its {done.job.duration}")
    if len({done.job.number for done in outcome.finished}) != len(outcome.finished):
        found.append("a job ended twice")
    return found
