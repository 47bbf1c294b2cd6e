"""Classes of service."""

import pytest

from kompakt_core.delay.order import service_class
from kompakt_core.errors import InvalidInput


@pytest.mark.parametrize(("gpu_hours", "expected"), [(0, 0), (14.9, 0), (15, 1), (254.9, 1), (255, 2), (4095, 3)])
def test_classes_grow_sixteenfold(gpu_hours: float, expected: int) -> None:
    assert service_class(gpu_hours) == expected


def test_negative_service_is_refused() -> None:
    with pytest.raises(InvalidInput, match="expected a number from 0 up"):
        service_class(-1)
