"""Names of nodes are read as any JSON reader reads them, however often they came before."""

import json
import random
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_extender.node_name_lists import NameReader

FLEET = [f"node-{number:04}" for number in range(NameReader.LEAST)]


def text(names: list[str]) -> bytes:
    return json.dumps(names).encode()


def learnt() -> NameReader:
    """A reader that was asked for the fleet often enough, in an order that changes from call to call."""
    reader, chance = NameReader(), random.Random(1)
    for _ in range(5):
        names = chance.sample(FLEET, len(FLEET))
        assert reader.decode(text(names)) == names
    return reader


def test_names_that_came_before_are_the_strings_that_the_caches_hold() -> None:
    names = learnt().decode(text(FLEET[::-1]))
    assert names == FLEET[::-1]
    assert all(name is sys.intern(name) for name in names)


def test_the_same_list_again_is_not_read_again() -> None:
    reader = learnt()
    assert reader.decode(text(FLEET)) is reader.decode(text(FLEET))


def test_new_names_are_read_and_in_time_learnt() -> None:
    reader = learnt()
    more = [*FLEET, "brand-new"]
    for _ in range(2 * NameReader.PATIENCE):
        assert reader.decode(text(more)) == more
        assert reader.decode(text(FLEET)) == FLEET
    assert reader.decode(text(more))[-1] is sys.intern("brand-new")


def test_names_of_nodes_long_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NameReader, "MOST", 2 * len(FLEET))
    reader = NameReader()
    for generation in range(20):
        names = [f"{name}-{generation}" for name in FLEET]
        assert reader.decode(text(names)) == names
        assert len(reader._seen) <= NameReader.MOST


@pytest.mark.parametrize("wrong", [b"", b"{}", b"3", b'["a", 3]', b'["a"', b"[null]", b'"node-0001"'])
def test_what_is_no_list_of_names_is_an_error_and_changes_nothing(wrong: bytes) -> None:
    reader = learnt()
    for _ in range(2):
        with pytest.raises(msgspec.DecodeError):
            reader.decode(wrong)
    assert reader.decode(text(FLEET)) == FLEET


_LEARNT = learnt()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(FLEET) | st.text(max_size=12).filter(lambda name: not any("\ud800" <= c <= "\udfff" for c in name)))
)
def test_a_reader_that_knows_names_reads_what_a_plain_one_reads(names: list[str]) -> None:
    assert _LEARNT.decode(text(names)) == names
