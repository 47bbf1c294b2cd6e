"""Chosen sets against random ones, and the free set that tells first-fit apart; brute force on known machines."""

from itertools import combinations

import pytest

from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.machines import machine
from tools.kube.comparison import compare
from tools.kube.scatter import telling_free_set

MACHINES = ("dgx1-v100", "a100-pcie-8-bridge-pairs")


@pytest.mark.parametrize("name", MACHINES)
def test_first_fit_is_worse_than_the_best_in_the_telling_set(name):
    graph = machine(name)
    free = telling_free_set(graph, 3, 2)
    table = table_for(graph, Pattern.RING)
    best = max(combinations(free, 2), key=lambda pair: table.value(sum(1 << gpu for gpu in pair)))
    place = compare("n", graph, best, free)
    assert place.chosen == place.best > place.first
    assert place.worst <= place.mean <= place.best <= place.ideal


def test_the_mean_is_over_all_free_sets_of_that_size():
    graph = machine("dgx1-v100")
    place = compare("n", graph, [0, 1], [0, 1, 2])
    values = [graph.link(a, b).megabytes_per_second for a, b in ((0, 1), (0, 2), (1, 2))]
    assert place.mean == sum(values) / 3
    assert place.first == place.chosen == values[0]
    assert place.worst == min(values)


def test_a_set_that_was_not_free_is_refused():
    with pytest.raises(ValueError, match="not among the free"):
        compare("n", machine("dgx1-v100"), [0, 7], [0, 1])
