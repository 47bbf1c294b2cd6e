"""Who holds what on a simulated node."""

import pytest

from tests.support.device_plugin.pods import ALL, GRAPH, node_pod
from tools.kube.simnodes import hand_out

A, PLAIN, BIG = node_pod("a", ALL[:4]), node_pod("plain", size=4), node_pod("big", size=5)


def held(**gpus):
    return {f"uid-{name}": frozenset(some) for name, some in gpus.items()}


@pytest.mark.parametrize(
    ("pods", "before", "after", "refused"),
    [
        pytest.param([A], {}, held(a=ALL[:4]), [], id="what is written on it"),
        pytest.param([PLAIN, A], {}, held(a=ALL[:4], plain=ALL[4:]), [], id="what is left, where nothing is written"),
        pytest.param([A, BIG], held(a=ALL[:4]), held(a=ALL[:4]), [BIG], id="nothing where it does not fit"),
        pytest.param([node_pod("a", ALL[:4], finished=True)], held(a=ALL[:4], b=ALL[4:]), {}, [], id="nothing once it is over"),
    ],
)
def test_a_pod_holds(pods, before, after, refused):
    assert hand_out(pods, before, GRAPH) == (after, refused)
    assert hand_out(pods, after, GRAPH) == (after, refused), "a second time changes nothing"


def test_a_pod_whose_gpus_are_held_gets_others():
    taken, _ = hand_out([A, node_pod("b", ALL[:4])], held(a=ALL[:4]), GRAPH)
    assert taken == held(a=ALL[:4], b=ALL[4:])
