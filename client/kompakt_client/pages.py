"""How many objects of a list to ask for at a time, so that a page is bounded by bytes: the API server counts objects alone."""

from typing import Final

PAGE_BYTES: Final = 16 << 20
FEWER: Final = 4  # times fewer after a page that was too long


class PageSize:
    """The next page's number of objects: a page of the same kind of objects would have half of the bytes that are taken.

    What is longer is not read to its end, and asked for again in smaller pieces; one object alone is read however long it is
    (etcd takes no more than 1.5 MiB unless told otherwise).
    """

    def __init__(self, objects: int, most_bytes: int = PAGE_BYTES) -> None:
        self._most, self._bytes = objects, most_bytes
        self.objects = objects

    @property
    def most_bytes(self) -> int | None:
        """So many bytes of an answer are read."""
        return self._bytes if self.objects > 1 else None

    def came(self, size: int) -> None:
        """A page of so many bytes was read."""
        fit = self.objects * (self._bytes // 2) // max(size, 1)
        self.objects = max(1, min(self._most, fit))

    def too_long(self) -> None:
        """It was not read to its end."""
        self.objects = max(1, self.objects // FEWER)
