"""Each check of packed bytes on its own: forged in one place, with a right checksum, they are refused for what is wrong there."""

import math
import struct
import zlib
from collections.abc import Callable

import pytest
import torch

from kompakt_runtime.codec import CorruptPacked, Packed, decode, encode
from tests.support.runtime.tensors import normal

ELEMENTS = 3000  # two tiles
VERSION, DTYPE, DIMENSIONS, MODE, BOUND, STORED, NONZERO, BLOCKS, WORDS, OUTLIERS, SHAPE = 4, 5, 6, 7, 8, 16, 24, 32, 40, 48, 56
STRIDES = SHAPE + 8
BITMAP = STRIDES + 8
TABLE = BITMAP + ELEMENTS // 8
WIDTHS = TABLE + 8  # behind the table's two tiles
OUTLIER_PLACES = -3 * 4 - 3 * 8  # from the end
Forge = Callable[[bytearray], bytearray]


def written(x: torch.Tensor) -> bytearray:
    """Packed, without its checksum."""
    return bytearray(encode(x, 0.1).to_bytes()[:-4])


def sample() -> bytearray:
    """With zeros and three outliers."""
    x = normal(ELEMENTS).relu()
    x[[10, 20, 2500]] = torch.inf
    return written(x)


def read(data: bytes) -> Packed:
    return Packed.from_bytes(bytes(data) + struct.pack("<I", zlib.crc32(data)))


def number(data: bytearray, place: int, kind: str = "<q") -> int:
    return struct.unpack_from(kind, data, place)[0]


def test_the_sample_can_be_read():
    packed = read(sample())
    assert (packed.outliers, decode(packed).shape, int(decode(packed).isinf().sum())) == (3, (ELEMENTS,), 3)


def put(place: int, *values: float, kind: str = "<q") -> Forge:
    """Overwrites values at a place; one before the end where it is negative."""

    def forge(data: bytearray) -> bytearray:
        struct.pack_into(kind, data, place % len(data), *values)
        return data

    return forge


def add(*changes: tuple[int, int], kind: str = "<q") -> Forge:
    def forge(data: bytearray) -> bytearray:
        for place, change in changes:
            struct.pack_into(kind, data, place, number(data, place, kind) + change)
        return data

    return forge


def fewer_words_than_none(data: bytearray) -> bytearray:
    """Their sum is right."""
    words = number(data, TABLE + 4, "<i") >> 12
    return add((TABLE, (words + 1) << 12), (TABLE + 4, -(words + 1) << 12), kind="<i")(data)


def outliers(*order: int) -> Forge:
    """Their places in another order."""

    def forge(data: bytearray) -> bytearray:
        places = struct.unpack_from("<3q", data, len(data) + OUTLIER_PLACES)
        return put(OUTLIER_PLACES, *(places[which] for which in order), kind="<3q")(data)

    return forge


def flip(place: int) -> Forge:
    def forge(data: bytearray) -> bytearray:
        data[place] ^= 1
        return data

    return forge


def too_wide(data: bytearray) -> bytearray:
    """A block 23 bits wide, and others narrower by as much in all."""
    missing, data[WIDTHS] = 23 - data[WIDTHS], 23
    for place in range(WIDTHS + 1, WIDTHS + 30):
        taken = min(missing, data[place])
        data[place] -= taken
        missing -= taken
    assert not missing
    return data


RANGE, SHAPES, TILES = "at least one is out of range", "do not hold", "table of tiles does not agree"
PLACES = "outliers' places do not ascend, or leave the slots"
WITHIN = "tiles 0 to 1: bitmap, counts and widths do not agree"
LENGTH = f"the sections need {len(sample()) - BITMAP} bytes"
# An outlier less, of twelve bytes, for blocks of one byte and words of four: the length is right all the same.
ELSEWHERE = [((BLOCKS, 4), (WORDS, 2)), ((BLOCKS, 12),), ((WORDS, 3),)]
FORGED: list[tuple[str, Forge, str]] = [
    *(
        (f"version {n}", put(VERSION, n, kind="B"), f"version {n} of the format; this program reads version 3")
        for n in (0, 2, 4, 255)
    ),
    ("type 12", put(DTYPE, 12, kind="B"), RANGE),
    ("type 255", put(DTYPE, 255, kind="B"), RANGE),
    ("65 dimensions", put(DIMENSIONS, 65, kind="B"), RANGE),
    ("mode 3", put(MODE, 3, kind="B"), RANGE),
    *((f"bound {bound}", put(BOUND, bound, kind="<d"), "error bound") for bound in (0.0, -0.1, math.nan, math.inf, 5e-324)),
    *((f"type {n} is never packed", put(DTYPE, n, kind="B"), r"header: mode 1, error bound 0\.1") for n in range(4, 12)),
    ("more dimensions than data", lambda data: put(DIMENSIONS, 64, kind="B")(data[:100]), "beyond the data"),
    *((f"shape {n}", put(SHAPE, n), SHAPES) for n in (-ELEMENTS, ELEMENTS + 1)),
    ("an element less is stored", put(STORED, ELEMENTS - 1), SHAPES),
    *((f"stride {n}", put(STRIDES, n), SHAPES) for n in (-1, 5, 1 << 40)),
    *(
        (f"{name} of no such tensor", put(place, 23 * ELEMENTS + 1), r"header: Sizes.* for 3000 elements")
        for name, place in (("nonzero", NONZERO), ("blocks", BLOCKS), ("words", WORDS), ("outliers", OUTLIERS))
    ),
    ("a byte less", lambda data: data[:-1], LENGTH),
    ("a byte more", lambda data: data + b"\0", LENGTH),
    *((f"sections told apart by other counts {at}", add((OUTLIERS, -1), *at), TILES) for at in ELSEWHERE),
    *(
        (f"the table has other {name}", add((TABLE, change), kind="<i"), TILES)
        for name, change in (("elements", 1), ("words", 1 << 12), ("sums", 1 << 23), ("signs", -(1 << 31)))
    ),
    ("a tile of fewer words than none", fewer_words_than_none, TILES),
    ("an outlier before the slots", put(OUTLIER_PLACES, -1), PLACES),
    ("an outlier behind the slots", put(OUTLIER_PLACES + 16, 10**9), PLACES),
    ("outliers that descend", outliers(0, 2, 1), PLACES),
    ("an outlier twice", outliers(0, 1, 1), PLACES),
    ("a bitmap of other counts", flip(BITMAP), WITHIN),
    ("a width of other words", flip(WIDTHS), WITHIN),
    ("a width beyond the widest", too_wide, WITHIN),
]


@pytest.mark.parametrize(("forge", "wrong"), [pytest.param(*row, id=name) for name, *row in FORGED])
def test_one_forged_place_is_refused_for_what_is_wrong_there(forge: Forge, wrong: str) -> None:
    with pytest.raises(CorruptPacked, match=wrong):
        read(forge(sample()))


def test_a_shape_that_no_tensor_may_have_is_refused_though_it_takes_no_room():
    """Dimensions of stride 0 are stored once."""
    data = written(torch.zeros(1).expand(2, 2))
    assert (number(data, SHAPE), number(data, SHAPE + 16)) == (2, 0)
    assert decode(read(data)).shape == (2, 2)
    for size in (1 << 60, (1 << 63) - 1):
        struct.pack_into("<q", data, SHAPE, size)
        with pytest.raises(CorruptPacked, match="more bytes than any tensor may"):
            read(data)


def test_two_wrong_signs_do_not_make_a_right_shape():
    with pytest.raises(CorruptPacked, match="do not hold"):
        read(put(SHAPE, -60, -50, kind="<qq")(written(normal(60, 50).relu())))


def test_a_bit_of_the_bitmap_that_no_element_has_is_refused():
    data = written(normal(ELEMENTS - 3).relu())
    data[TABLE - 1] |= 0x80
    with pytest.raises(CorruptPacked, match="tiles 0 to 1: bitmap, counts and widths do not agree"):
        read(data)


def test_a_tensor_stored_as_it_is_has_no_bound_and_no_counts():
    read(written(torch.arange(10)))
    for place, mode in ((BOUND, 0), (NONZERO, 0), (BLOCKS, 0), (WORDS, 0), (OUTLIERS, 0), (MODE, 1)):
        with pytest.raises(CorruptPacked, match=f"header: mode {mode}"):
            read(put(place, 1, kind="B")(written(torch.arange(10))))
