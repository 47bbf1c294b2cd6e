"""Each check of packed bytes on its own: forged in one place, with a right checksum, they are refused for what is wrong there."""

import struct
import zlib

import pytest
import torch

from kompakt_runtime.codec import CorruptPacked, Packed, decode, encode

ELEMENTS = 3000  # two tiles
VERSION, DTYPE, DIMENSIONS, MODE, BOUND, STORED, NONZERO, BLOCKS, WORDS, OUTLIERS, SHAPE = 4, 5, 6, 7, 8, 16, 24, 32, 40, 48, 56
STRIDES = SHAPE + 8
BITMAP = STRIDES + 8
TABLE = BITMAP + ELEMENTS // 8


def sample(dtype: torch.dtype = torch.float32) -> bytearray:
    """Packed, with zeros and three outliers; without its checksum."""
    x = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(0)).relu()
    x[[10, 20, 2500]] = torch.inf
    packed = encode(x.to(dtype), 0.1)
    assert packed.outliers == 3
    return bytearray(packed.to_bytes()[:-4])


def read(data: bytes) -> Packed:
    return Packed.from_bytes(bytes(data) + struct.pack("<I", zlib.crc32(data)))


def number(data: bytearray, place: int, kind: str = "<q") -> int:
    return struct.unpack_from(kind, data, place)[0]


def plus(data: bytearray, place: int, change: int, kind: str = "<q") -> None:
    struct.pack_into(kind, data, place, number(data, place, kind) + change)


def test_the_sample_can_be_read():
    back = decode(read(sample()))
    assert back.shape == (ELEMENTS,)
    assert back.isinf().sum() == 3


@pytest.mark.parametrize("version", [0, 2, 4, 255])
def test_another_version_is_refused_by_its_number(version):
    data = sample()
    data[VERSION] = version
    with pytest.raises(CorruptPacked, match=f"version {version} of the format; this program reads version 3"):
        read(data)


@pytest.mark.parametrize(("place", "value"), [(DTYPE, 12), (DTYPE, 255), (DIMENSIONS, 65), (MODE, 3)])
def test_what_no_header_says_is_refused(place, value):
    data = sample()
    data[place] = value
    with pytest.raises(CorruptPacked, match="at least one is out of range"):
        read(data)


@pytest.mark.parametrize("bound", [0.0, -0.1, float("nan"), float("inf"), 5e-324])
def test_a_bound_that_none_can_be_packed_with_is_refused(bound):
    data = sample()
    struct.pack_into("<d", data, BOUND, bound)
    with pytest.raises(CorruptPacked, match="error bound"):
        read(data)


@pytest.mark.parametrize("dtype", range(4, 12))
def test_types_that_are_only_stored_as_they_are_cannot_be_packed(dtype):
    data = sample()
    data[DTYPE] = dtype
    with pytest.raises(CorruptPacked, match=r"header: mode 1, error bound 0\.1"):
        read(data)


def test_more_dimensions_than_the_data_can_hold_are_refused():
    data = sample()[:100]
    data[DIMENSIONS] = 64
    with pytest.raises(CorruptPacked, match="beyond the data"):
        read(data)


@pytest.mark.parametrize(
    ("place", "value"),
    [(SHAPE, -ELEMENTS), (SHAPE, ELEMENTS + 1), (STORED, ELEMENTS - 1), (STRIDES, -1), (STRIDES, 5), (STRIDES, 1 << 40)],
)
def test_a_shape_that_does_not_hold_the_elements_or_reaches_far_beyond_them_is_refused(place, value):
    data = sample()
    struct.pack_into("<q", data, place, value)
    with pytest.raises(CorruptPacked, match="do not hold"):
        read(data)


def test_a_shape_that_no_tensor_may_have_is_refused_though_it_takes_no_room():
    """Dimensions of stride 0 are stored once."""
    data = bytearray(encode(torch.zeros(1).expand(2, 2), 0.1).to_bytes()[:-4])
    assert (number(data, SHAPE), number(data, SHAPE + 16)) == (2, 0)
    assert decode(read(data)).shape == (2, 2)
    for size in (1 << 60, (1 << 63) - 1):
        struct.pack_into("<q", data, SHAPE, size)
        with pytest.raises(CorruptPacked, match="more bytes than any tensor may"):
            read(data)


def test_two_wrong_signs_do_not_make_a_right_shape():
    x = torch.randn(60, 50, generator=torch.Generator().manual_seed(0)).relu()
    data = bytearray(encode(x, 0.1).to_bytes()[:-4])
    struct.pack_into("<qq", data, SHAPE, -60, -50)
    with pytest.raises(CorruptPacked, match="do not hold"):
        read(data)


@pytest.mark.parametrize("place", [NONZERO, BLOCKS, WORDS, OUTLIERS])
def test_counts_that_no_tensor_of_this_size_has_are_refused(place):
    data = sample()
    struct.pack_into("<q", data, place, 23 * ELEMENTS + 1)
    with pytest.raises(CorruptPacked, match=r"header: Sizes.* for 3000 elements"):
        read(data)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_byte_more_or_less_than_the_sections_need_is_refused(change):
    data = sample()
    data = data[:change] if change < 0 else data + b"\0"
    with pytest.raises(CorruptPacked, match=f"the sections need {len(sample()) - BITMAP} bytes"):
        read(data)


@pytest.mark.parametrize("changes", [((BLOCKS, 4), (WORDS, 2)), ((BLOCKS, 12),), ((WORDS, 3),)])
def test_sections_are_told_apart_by_counts_that_the_table_must_confirm(changes):
    """An outlier less, of twelve bytes, for blocks of one byte and words of four: the length is right all the same."""
    data = sample()
    for place, change in ((OUTLIERS, -1), *changes):
        plus(data, place, change)
    with pytest.raises(CorruptPacked, match="table of tiles does not agree"):
        read(data)


@pytest.mark.parametrize("change", [1, 1 << 12, 1 << 23, -(1 << 31)], ids=["elements", "words", "beyond", "sign"])
def test_a_table_that_does_not_add_up_is_refused(change):
    data = sample()
    plus(data, TABLE, change, "<i")
    with pytest.raises(CorruptPacked, match="table of tiles does not agree"):
        read(data)


def test_a_tile_of_fewer_words_than_none_is_refused_though_their_sum_is_right():
    data = sample()
    words = number(data, TABLE + 4, "<i") >> 12
    plus(data, TABLE, (words + 1) << 12, "<i")
    plus(data, TABLE + 4, -(words + 1) << 12, "<i")
    with pytest.raises(CorruptPacked, match="table of tiles does not agree"):
        read(data)


@pytest.mark.parametrize("first", [-1, 10**9])
def test_outliers_outside_of_the_slots_are_refused(first):
    data = sample()
    place = len(data) - 3 * 4 - (3 * 8 if first < 0 else 8)
    struct.pack_into("<q", data, place, first)
    with pytest.raises(CorruptPacked, match="outliers' places do not ascend, or leave the slots"):
        read(data)


@pytest.mark.parametrize("turned", [True, False])
def test_outliers_that_do_not_ascend_are_refused(turned):
    data = sample()
    place = len(data) - 3 * 4 - 3 * 8
    places = struct.unpack_from("<3q", data, place)
    struct.pack_into("<3q", data, place, places[0], *((places[2], places[1]) if turned else (places[1], places[1])))
    with pytest.raises(CorruptPacked, match="outliers' places do not ascend, or leave the slots"):
        read(data)


def test_a_bit_of_the_bitmap_that_no_element_has_is_refused():
    x = torch.randn(ELEMENTS - 3, generator=torch.Generator().manual_seed(0)).relu()
    data = bytearray(encode(x, 0.1).to_bytes()[:-4])
    data[TABLE - 1] |= 0x80
    with pytest.raises(CorruptPacked, match="tiles 0 to 1: bitmap, counts and widths do not agree"):
        read(data)


def test_a_bitmap_of_other_counts_and_widths_of_other_words_are_refused():
    for place in (BITMAP, TABLE + 8):  # the first block's width lies behind the table's two tiles
        data = sample()
        data[place] ^= 1
        with pytest.raises(CorruptPacked, match="tiles 0 to 1: bitmap, counts and widths do not agree"):
            read(data)


def test_widths_beyond_the_widest_are_refused_though_their_sum_is_right():
    """A block 23 bits wide, and others narrower by as much in all."""
    data = sample()
    heads = TABLE + 8
    missing = 23 - data[heads]
    data[heads] = 23
    for place in range(heads + 1, heads + 30):
        taken = min(missing, data[place])
        data[place] -= taken
        missing -= taken
    assert not missing
    with pytest.raises(CorruptPacked, match="tiles 0 to 1: bitmap, counts and widths do not agree"):
        read(data)


def test_a_tensor_stored_as_it_is_has_no_bound_and_no_counts():
    data = bytearray(encode(torch.arange(10), 1.0).to_bytes()[:-4])
    read(data)
    for place in (BOUND, NONZERO, BLOCKS, WORDS, OUTLIERS):
        forged = bytearray(data)
        forged[place] = 1
        with pytest.raises(CorruptPacked, match="header: mode 0"):
            read(forged)
    data[MODE] = 1
    with pytest.raises(CorruptPacked, match="header: mode 1"):
        read(data)
