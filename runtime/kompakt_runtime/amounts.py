"""Amounts of memory as people write them: 20Gi, 512Mi, 16G or 80%. No torch here."""

import re
from dataclasses import dataclass
from typing import Final

# As Kubernetes writes quantities.
UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}  # fmt: skip
AMOUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)(%|[kMGT]|[KMGT]i)?", re.ASCII)
RIGHT: Final = "right is an amount such as 20Gi or 512Mi, or a share of the device's memory such as 80%"


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
        if found is None:
            raise ValueError(RIGHT)
        number, unit = float(found[1]), found[2] or ""
        share = unit == "%"
        if not number or (share and number > 100):
            raise ValueError(f"it must be above 0{' and at most 100%' if share else ''}; {RIGHT}")
        return Amount(text, number / 100 if share else number * UNITS[unit], share)

    def of_all(self, there: int) -> int:
        """In bytes, where the device has `there`."""
        return int(self.number * there) if self.share else int(self.number)
