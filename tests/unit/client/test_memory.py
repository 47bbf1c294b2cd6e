"""What start-up leaves behind."""

import gc

from kompakt_client.memory import collect_seldom, trim


class Knot:
    """Refers to itself: only a collection finds out that nobody else does."""

    def __init__(self, ended):
        self.self, self.ended = self, ended

    def __del__(self):
        self.ended.append(True)


def test_later_collections_pass_over_what_start_up_made_and_tidying_up_once_more_does_not():
    ended = []
    try:
        Knot(ended)
        trim()
        assert ended == [True]
        known = gc.get_freeze_count()
        assert known > 10_000
        knot = Knot(ended)
        trim()
        del knot
        gc.collect()
        assert ended == [True], "it is passed over"
        trim()
        assert ended == [True, True]
    finally:
        gc.unfreeze()


def test_the_collector_of_cycles_looks_at_all_objects_seldom():
    looks: list[int] = []
    before = gc.get_threshold()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looks.append(1)

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(1_000_000)]
        usual = len(looks)
        collect_seldom()
        gc.collect()  # what was counted before belongs to no million
        before_that = len(looks)
        kept += [[number] for number in range(1_000_000)]
        assert (usual > 0, len(looks)) == (True, before_that)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
