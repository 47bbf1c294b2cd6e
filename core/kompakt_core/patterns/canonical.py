"""One numbering for all numberings of a machine, so that they share tables.

Colour refinement, then one GPU after another of the first undecided cell is told apart, and the numbering with the
smallest matrix wins (as McKay's nauty does, Congressus Numerantium 30, 1981, without its pruning by automorphisms). GPUs
with the same links to all others are tried once. After NODES tries the smallest so far is taken: any numbering gives
right tables, one that is not the smallest is only not shared.
"""

from typing import Final

from kompakt_core.patterns.sets import Matrix

NODES: Final = 120

Rows = tuple[tuple[int, ...], ...]


def canonical_order(weights: Matrix) -> tuple[int, ...]:
    """The GPUs in their new order: position 0 goes to the first of them."""
    walk = _Walk(tuple(tuple(row) for row in weights.tolist()))
    walk.go([0] * len(weights))
    return walk.order


class _Walk:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.nodes = 0
        self.order: tuple[int, ...] = tuple(range(len(rows)))
        self.smallest: Rows | None = None

    def go(self, colours: list[int]) -> None:
        """Look at all numberings that keep these colours apart, until NODES."""
        self.nodes += 1
        colours = self._refined(colours)
        cell = self._undecided(colours)
        if not cell:
            self._compare(sorted(range(len(colours)), key=colours.__getitem__))
            return
        tried: list[int] = []
        for gpu in cell:
            if any(self._twins(gpu, other) for other in tried) or (self.nodes >= NODES and self.smallest is not None):
                continue
            tried.append(gpu)
            self.go([2 * colour + (colour == colours[gpu] and other != gpu) for other, colour in enumerate(colours)])

    def _refined(self, colours: list[int]) -> list[int]:
        """Colours told apart by the links to each colour, until nothing changes; numbered in an order of their own."""
        count = -1
        while count < len(set(colours)):
            count = len(set(colours))
            signs = [(colours[a], self._seen(a, colours)) for a in range(len(colours))]
            ranked = sorted(map(repr, signs))
            number = {sign: ranked.index(sign) for sign in set(ranked)}
            colours = [number[repr(sign)] for sign in signs]
        return colours

    def _seen(self, gpu: int, colours: list[int]) -> list[tuple[int, int]]:
        return sorted((colours[other], speed) for other, speed in enumerate(self.rows[gpu]) if other != gpu)

    @staticmethod
    def _undecided(colours: list[int]) -> list[int]:
        shared = sorted(colour for colour in set(colours) if colours.count(colour) > 1)
        return [gpu for gpu, colour in enumerate(colours) if shared and colour == shared[0]]

    def _twins(self, a: int, b: int) -> bool:
        return all(self.rows[a][c] == self.rows[b][c] for c in range(len(self.rows)) if c not in (a, b))

    def _compare(self, order: list[int]) -> None:
        form = tuple(tuple(self.rows[a][b] for b in order) for a in order)
        if self.smallest is None or form < self.smallest:
            self.smallest, self.order = form, tuple(order)
