"""What goes to host memory: nobody waits, and no more memory is taken than there is; played again in another way."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_runtime.offload.plan import AHEAD, LAST, LEAVING, SHARE, HostLink, StorageTiming, plan

FAST = HostLink(out=1e12, back=1e12, budget=1 << 60, least=0)


def step(sizes: list[int], forward: float, backward: float, start: float = 0.0, number: int = 1) -> list[StorageTiming]:
    """A forward pass whose layers take `forward` seconds each, read in reverse."""
    turn = start + forward * len(sizes)
    rows = enumerate(sizes)
    return [StorageTiming((number, i), size, size, start + forward * i, turn + backward * (len(sizes) - i)) for i, size in rows]


@st.composite
def steps(draw) -> list[StorageTiming]:
    """One or two passes one after another, or the second inside the first one's backward pass."""
    sizes = st.lists(st.integers(1, 10**6), min_size=1, max_size=12)
    seconds = st.floats(1e-4, 1e-1)
    first = step(draw(sizes), draw(seconds), draw(seconds), number=1)
    end = max(row.opened for row in first)
    begin = draw(st.sampled_from([end * 1.01, (first[-1].opened + end) / 2]))
    second = step(draw(sizes), draw(seconds) / 100, draw(seconds), start=begin, number=2) if draw(st.booleans()) else []
    changes = st.sampled_from([{}, {}, {}, {}, {"held": True}, {"movable": False}, {"opened": None}])
    return [replace(row, **draw(changes)) for row in [*first, *second]]


def waits(rows: list[StorageTiming], chosen: set, link: HostLink) -> tuple[float, int]:
    """Seconds for which the device would wait or a copy out runs on into a backward pass, and the most host memory."""
    events = sorted(
        [(row.ready, 0, row) for row in rows] + [(row.opened, 1, row) for row in rows if row.opened is not None],
        key=lambda event: event[:2],
    )
    free, lost, host, most = 0.0, 0.0, 0, 0
    stack, coming, outs = [], {}, []
    for time, kind, row in events:
        if kind == 0 and row.place in chosen:
            free = max(free, time) + row.nbytes / (link.out * SHARE)
            outs.append(free)
            stack.append(row)
            host += row.nbytes
            most = max(most, host)
            if len(outs) > LEAVING:
                lost += max(0.0, outs[-1 - LEAVING] - time)
        if kind == 1:
            lost += sum(max(0.0, end - time) for end in outs)
            outs = []
            if row.place in chosen:
                lost += max(0.0, coming.pop(row.place, float("inf")) - time)
                host -= row.nbytes
            while stack and len(coming) < AHEAD:
                back = stack.pop()
                free = max(free, time) + back.nbytes / (link.back * SHARE)
                coming[back.place] = free
    return lost, most


@settings(max_examples=150, deadline=None)
@given(steps(), st.floats(1e4, 1e12), st.floats(1e4, 1e12), st.integers(0, 10**7), st.integers(1, 10**5))
def test_nobody_waits_and_host_memory_suffices(rows, out, back, budget, least):
    link = HostLink(out, back, budget, least)
    found = plan(rows, link)
    lost, most = waits(rows, set(found.chosen), link)
    assert lost == 0
    assert most <= budget
    by_place = {row.place: row for row in rows}
    for place, storage in found.chosen.items():
        row = by_place[place]
        assert storage == row.storage
        assert row.nbytes >= least
        assert (row.movable, row.held, row.opened is None) == (True, False, False)
    assert found.chosen.keys() | found.reasons.keys() == by_place.keys()
    assert not found.chosen.keys() & found.reasons.keys()


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_with_a_fast_link_all_go_but_the_last(sizes):
    found = plan(step(sizes, 0.01, 0.01), FAST)
    assert set(found.chosen) == {(1, i) for i in range(len(sizes) - LAST)}


def test_with_two_passes_the_last_of_each_stay():
    first = step([1000] * 6, 0.01, 0.01)
    second = step([1000] * 5, 0.01, 0.01, start=1, number=2)
    assert set(plan([*first, *second], FAST).chosen) == {(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2)}


HALF = 1000 / 0.02 / SHARE  # bytes of a layer take two layers' time, of what the link is trusted with


@pytest.mark.parametrize(
    ("link", "backward", "least"), [({"out": HALF}, 0.03, 9), ({"back": HALF}, 0.01, 7)], ids=["out", "back"]
)
def test_a_link_half_as_fast_as_layers_are_takes_every_other_one(link, backward, least):
    found = plan(step([1000] * 20, 0.01, backward), replace(FAST, **link))
    assert least <= len(found.chosen) <= 10
    assert "NotHidden" in found.reasons.values()


def test_reasons():
    changes = ({"held": True}, {"movable": False}, {"nbytes": 10}, {}, {}, {})
    rows = [replace(row, **change) for row, change in zip(step([1000] * 6, 0.01, 0.01), changes, strict=True)]
    found = plan(rows, replace(FAST, budget=999, least=100))
    assert list(found.reasons.values()).count("NotHidden") == LAST
    assert [found.reasons[1, i] for i in range(4)] == ["HeldElsewhere", "Small", "Small", "HostMemory"]
    assert not found.chosen


@pytest.mark.parametrize("rows", [[], step([1000], 0.01, 0.01)])
def test_of_next_to_nothing_nothing_goes(rows):
    assert not plan(rows, FAST).chosen
