"""Amounts of memory as people write them: 20Gi, 512Mi, 16G or 80%. No torch here."""

import re
from dataclasses import dataclass
from typing import Final

# As Kubernetes writes quantities.
UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}  # fmt: skip
AMOUNT: Final = re.compile(
    r"(?P<whole>[0-9]{1,15})|(?P<number>[0-9]{1,15}(?:\.[0-9]{1,3})?)(?P<unit>[kMGT]|[KMGT]i)"
    r"|(?P<share>100(?:\.0{1,3})?|[0-9]{1,2}(?:\.[0-9]{1,3})?)%",
    re.ASCII,
)
RIGHT: Final = "right is an amount above 0 such as 20Gi or 512Mi, or a share of the device's memory such as 80%, at most 100%"


@dataclass(frozen=True)
class Amount:
    """Bytes, or a share of whatever there is. text: as it was written."""

    text: str
    number: float
    share: bool

    @staticmethod
    def of(text: str) -> "Amount":
        """Raises ValueError that says what would be right."""
        found = AMOUNT.fullmatch(text)
        share = found is not None and found["share"] is not None
        number = 0.0 if found is None else float(found["share"] or found["number"] or found["whole"])
        if found is None or not number:
            raise ValueError(RIGHT)
        return Amount(text, number / 100 if share else number * UNITS[found["unit"] or ""], share)

    def of_all(self, there: int) -> int:
        """In bytes, where the device has `there`."""
        return max(1, int(self.number * there) if self.share else int(self.number))
