"""`nvidia-smi topo -p2p`: who may read whose memory, and what is left of a link where nobody may."""

import re

import pytest

from kompakt_core.topology.access import parse_access, with_access
from kompakt_core.topology.describe import read_description, read_matrices
from kompakt_core.topology.graph import LinkKind, PeerAccess
from kompakt_core.topology.machines import MACHINES, machine
from tests.support.core.outcomes import refusal

P2P = (
    " \t\x1b[4mGPU0\tGPU1\tGPU2\t\x1b[0m\n"
    " GPU0\tX\tOK\tCNS\t\n"
    " GPU1\tOK\tX\tGNS\t\n"
    " GPU2\tTNS\tNS\tX\t\n"
    "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"
)
LINKS = "\tGPU0\tGPU1\tGPU2\tNUMA Affinity\nGPU0\tX\tNV12\tPIX\t0\nGPU1\tNV12\tX\tSYS\t0\nGPU2\tPIX\tSYS\tX\t1\n"


def test_every_word_is_read() -> None:
    ok = PeerAccess.OK
    rows = ((ok, ok, PeerAccess.CHIPSET), (ok, ok, PeerAccess.GPU), (PeerAccess.TOPOLOGY, PeerAccess.NOT_SUPPORTED, ok))
    assert parse_access(P2P) == rows
    words = parse_access("GPU0 GPU1\nGPU0 X DR\nGPU1 U X\n")
    assert (words[0][1], words[1][0]) == (PeerAccess.REGISTRY_KEY, PeerAccess.UNKNOWN)


@pytest.mark.parametrize(
    "order", [LINKS + "\n" + P2P, P2P + "\n" + LINKS, "$ nvidia-smi topo -m\n" + LINKS + "$ topo -p2p r\n" + P2P]
)
def test_both_matrices_in_one_text_make_one_graph(order: str) -> None:
    graph = read_description(order, "node")
    found = [(link.kind.value, link.peer_access.value) for link in graph.links]
    assert found == [("NVLink", "OK"), ("PHB", "CNS"), ("SYS", "GNS")], "no peer access: nothing better than PHB is left of PIX"
    assert graph.links[1].megabytes_per_second == 10_000


def test_nvlink_that_may_not_be_used_leaves_the_way_through_the_host() -> None:
    graph = read_matrices(LINKS)
    denied = with_access(graph, parse_access(P2P.replace("X\tOK\t", "X\tGNS\t")))
    assert (denied.link(0, 1).kind, denied.link(0, 1).lanes, denied.link(0, 1).generation) == (LinkKind.NODE, 0, 0)
    far = with_access(machine("a100-pcie-4-two-bridges-4-numa"), ((PeerAccess.NOT_SUPPORTED,) * 4,) * 4)
    assert {link.kind for link in far.links} == {LinkKind.SYS}


def test_an_unknown_status_takes_nothing_away() -> None:
    graph = machine("dgx1-v100")
    told = with_access(graph, ((PeerAccess.UNKNOWN,) * 8,) * 8)
    assert told.weights == graph.weights
    assert {link.peer_access for link in told.links} == {PeerAccess.UNKNOWN}


@pytest.mark.parametrize(("name", "kind", "access"), [("rtx5090-2", "PHB", "GNS"), ("rtx-2-ns", "NODE", "NS")])
def test_machines_of_the_data_say_that_their_peers_are_closed(name: str, kind: str, access: str) -> None:
    (link,) = machine(name).links
    assert (link.kind.value, link.peer_access.value, link.megabytes_per_second) == (kind, access, 10_000)
    assert access in MACHINES[name].note
    assert read_description(MACHINES[name].text, "n").links == (link,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "P2P matrix: no header line beginning with GPU0"),
        ("GPU0 GPU2\n", "P2P matrix, line 1, column 6: found GPU2 where GPU1 is due"),
        ("GPU0 GPU1\nGPU0 X OK\n", "P2P matrix, line 2, column 1: the header names 2 GPUs but only 1 rows follow"),
        ("GPU0 GPU1\nGPU0 X NV2\nGPU1 OK X\n", "line 2, column 8: found 'NV2' between GPU0 and GPU1; expected OK, CNS"),
        ("GPU0 GPU1\nGPU0 OK X\nGPU1 OK X\n", "line 2, column 6: found 'OK' between GPU0 and GPU0; expected X"),
        ("GPU0 GPU1\nGPU0 X\nGPU1 OK X\n", "line 2, column 6: the row of GPU0 ends here with 1 of 2 columns"),
        ("GPU0 GPU1\nGPU1 X OK\n", "line 2, column 1: found 'GPU1' where the row of GPU0 is due"),
    ],
)
def test_wrong_text_is_refused_with_its_place(text: str, sentence: str) -> None:
    assert sentence in refusal(parse_access, text)


def test_a_p2p_matrix_alone_or_of_another_size_is_refused() -> None:
    assert re.search(
        "line 1, column 1: a P2P matrix alone .* put the output of `nvidia-smi topo -m`", refusal(read_matrices, P2P)
    )
    two = "GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n\n"
    assert "P2P matrix: 3 GPUs, but the matrix of links has 2" in refusal(read_matrices, two + P2P)
