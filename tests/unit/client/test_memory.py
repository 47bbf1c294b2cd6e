"""What start-up leaves behind."""

import gc

from kompakt_client.memory import trim


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
