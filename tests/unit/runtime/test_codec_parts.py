"""A tensor is packed in parts, so that any number of elements needs little memory; the parts do not show in the bytes."""

import dataclasses

import pytest
import torch

from kompakt_runtime import codec
from kompakt_runtime.codec import Packed, decode, encode, pieces, select, tiles
from kompakt_runtime.codec.grid import make_grid

ELEMENTS = 20_001


@pytest.fixture
def parts_of(monkeypatch):
    """Sets how many elements are packed at once."""

    def parts_of(elements: int) -> None:
        works = dataclasses.replace(select.plain(), at_once=lambda _: elements)
        monkeypatch.setattr(codec, "encoder", lambda *_: works)

    return parts_of


def sample(dtype: torch.dtype) -> torch.Tensor:
    """Zeros in some parts only, outliers in several."""
    x = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(0))
    x[5000:9000].relu_()
    x[[3, 5000, 12_288, 20_000]] = torch.inf
    return x.to(dtype)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_any_number_of_parts_gives_the_same_bytes_and_the_same_tensor(parts_of, dtype, seed):
    x = sample(dtype)
    wanted = encode(x, 0.05, seed=seed)
    assert (len(wanted.parts), wanted.outliers) == (1, 4)
    for size, count in ((tiles.TILE, 10), (4 * tiles.TILE, 3)):
        parts_of(size)
        packed = encode(x, 0.05, seed=seed)
        assert (len(packed.parts), packed.outliers) == (count, 4)
        assert packed.to_bytes() == wanted.to_bytes()
        assert torch.equal(decode(packed), decode(wanted))
        assert torch.equal(decode(Packed.from_bytes(packed.to_bytes())), decode(wanted))


def test_pieces_come_with_the_place_of_their_first_element(parts_of):
    parts_of(4 * tiles.TILE)
    packed = encode(sample(torch.float32), 0.05)
    found = list(pieces(packed))
    assert [place for place, _ in found] == [0, 4 * tiles.TILE, 8 * tiles.TILE]
    assert torch.equal(torch.cat([piece for _, piece in found]), decode(packed))


@pytest.mark.parametrize("first", [(1 << 31) - 1000, (1 << 32) - 1000, (1 << 40) + 7])
def test_a_part_far_behind_in_its_tensor_draws_by_its_elements_own_numbers(first):
    """Nobody here has memory for 2^31 elements; a part of such a tensor is told only where it begins."""
    grid, seed = make_grid(torch.float32, 0.0625, True), 9
    up = 0.33  # of the way from one multiple of the step to the next
    for zeros in (False, True):
        x = torch.full((4096,), (5 + up) * grid.step)
        x[:: 3 if zeros else 5000] = 0
        part = tiles.encode_part(x, grid, seed, first)
        back = torch.empty_like(x)
        tiles.decode_part(part, grid, back)
        draws = [codec.grid.draw(seed, torch.tensor([first + place])).item() for place in range(4096)]
        wanted = [5 + (draw < up * (1 << 24)) for draw in draws]
        assert [round(value / grid.step) for value, given in zip(back.tolist(), x.tolist(), strict=True) if given] == [
            value for value, given in zip(wanted, x.tolist(), strict=True) if given
        ]


def test_places_of_outliers_are_numbers_of_64_bits_also_behind_many_parts():
    packed = encode(sample(torch.float32), 0.05)
    part = packed.parts[0]
    assert part.places.dtype == torch.int64
    behind = dataclasses.replace(part, heads=part.heads[:0], sizes=dataclasses.replace(part.sizes, blocks=1 << 27, outliers=0))
    last = dataclasses.replace(packed, parts=(behind, part))._sections()[-3]
    assert torch.equal(last, part.places + (1 << 32))
