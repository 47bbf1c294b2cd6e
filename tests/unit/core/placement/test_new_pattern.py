"""A pattern that was added to the names alone fails loudly wherever a value or an order would be made up for it."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from kompakt_core.errors import Bug
from kompakt_core.patterns.names import NAMED, Measure, Pattern
from kompakt_core.patterns.orders import embedding_order
from kompakt_core.patterns.table import build, table_for
from kompakt_core.placement.grouped import group_facts
from kompakt_core.topology.machines import machine

NEW = cast(Pattern, "Hypercube")
EQUAL = np.full((4, 4), 7) - np.diag([7, 7, 7, 7])
CPX = machine("mi300x-8-cpx").shared


@pytest.mark.parametrize("pattern", [NEW, Pattern.CUSTOM])
@pytest.mark.parametrize(
    "asked",
    [
        lambda pattern: build(pattern, EQUAL),
        lambda pattern: embedding_order(pattern, EQUAL, Measure.BOTTLENECK, 7),
        lambda pattern: embedding_order(pattern, EQUAL[:2, :2], Measure.SUM, 7),
        lambda pattern: group_facts(CPX, pattern, False, Measure.BOTTLENECK),
    ],
)
def test_a_pattern_without_values_or_order_is_our_own_mistake(asked: Callable[[Pattern], Any], pattern: Pattern) -> None:
    with pytest.raises(Bug, match=r"pattern (Hypercube|Custom) has no .*CONTRIBUTING"):
        asked(pattern)


@pytest.mark.parametrize("pattern", sorted(NAMED))
def test_every_pattern_of_the_resource_has_values_and_an_order(pattern: Pattern) -> None:
    table = table_for(machine("dgx1-v100"), pattern)
    assert sorted(table.order(0b1011)) == [0, 1, 3]
    facts = group_facts(CPX, pattern, False, Measure.BOTTLENECK)
    assert facts is not None
    assert sorted(facts.order(0b1011)) == [0, 1, 3]
