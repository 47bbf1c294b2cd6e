"""The rule for a pair, told from both of its sides, as NVML tells it."""

import json
from collections import Counter
from importlib.resources import files

import pytest

from kompakt_core.topology import bandwidth
from kompakt_core.topology.graph import LinkKind
from kompakt_core.topology.sides import Path, Side, bus_id, link_of, nvlink_path, weaker
from tests.support.core.outcomes import refusal

SWITCH_MAP = json.loads((files("kompakt_core.topology") / "data" / "topo_matrices.json").read_text())["nvswitch_remote_links"]


def side(bus: str, switches: int = 0, clique: str = "", **gpus: int) -> Side:
    return Side(bus_id(bus), {bus_id(f"00:{slot[1:]}:00.0"): lanes for slot, lanes in gpus.items()}, switches, clique)


def test_lanes_straight_to_each_other_are_counted_on_both_sides() -> None:
    a, b = side("00:01:00.0", b2=2), side("00:02:00.0", b1=2)
    assert nvlink_path(a, b, reachable=False) == (Path(LinkKind.NVLINK, 2), False)
    assert nvlink_path(a, side("00:02:00.0", b1=1), reachable=True) == (Path(LinkKind.NVLINK, 1), True)
    assert nvlink_path(a, side("00:02:00.0"), reachable=True) == (None, True), "one side alone makes no link"


def test_switches_join_only_those_the_driver_lets_reach_each_other() -> None:
    a, b = side("00:01:00.0", 18), side("00:02:00.0", 17)
    assert nvlink_path(a, b, reachable=True) == (Path(LinkKind.NVSWITCH, 17), False)
    assert nvlink_path(a, b, reachable=False) == (None, False), "two partitions of one fabric"
    assert nvlink_path(side("00:01:00.0", 18, "u.1"), side("00:02:00.0", 18, "u.2"), reachable=True) == (None, False)
    assert nvlink_path(side("00:01:00.0", 18), side("00:02:00.0", 0), reachable=True) == (None, False)


def test_the_map_of_an_h100s_lanes_to_its_switches_makes_eighteen_lanes_through_switches() -> None:
    switches = Counter(SWITCH_MAP["links"].values())
    assert dict(switches) == SWITCH_MAP["per_switch"]
    ends = [bus_id(f"0000:{bus}:00.0") for bus in SWITCH_MAP["links"].values()]
    a = Side("0000:18:00.0", to_switches=len(ends))
    b = Side("0000:2a:00.0", to_switches=len(ends))
    assert not {a.bus_id, b.bus_id} & set(ends), "the far ends are switches, never GPUs"
    path, uneven = nvlink_path(a, b, reachable=True)
    assert (path, uneven) == (Path(LinkKind.NVSWITCH, 18), False)
    assert path is not None
    assert link_of(0, 1, path, 4).megabytes_per_second == 18 * 26_562


def test_the_weaker_of_two_words_counts() -> None:
    nv, pix, sys_ = Path(LinkKind.NVLINK, 2), Path(LinkKind.PIX), Path(LinkKind.SYS)
    assert weaker(nv, pix, 2) == (pix, True)
    assert weaker(sys_, pix, 2) == (sys_, True)
    assert weaker(nv, nv, 2) == (nv, False)
    pxb = Path(LinkKind.PXB)
    assert weaker(pix, pxb, 2) == weaker(pxb, pix, 2) == (pxb, True), "as fast, but through more switches"


@pytest.mark.parametrize(
    ("text", "right"), [("00000000:1A:00.0", "0000:1a:00.0"), ("0000:1a:00.0\0", "0000:1a:00.0"), ("1a:0.0", "0000:1a:00.0")]
)
def test_bus_ids_have_one_spelling(text: str, right: str) -> None:
    assert bus_id(text) == right


@pytest.mark.parametrize("text", ["", "GPU0", "0000:1a:00", "0000:1a:00.9", "x" * 100])
def test_other_words_are_no_bus_ids(text: str) -> None:
    assert "is no PCI bus id" in refusal(bus_id, text)


def test_bandwidths_come_from_the_tables() -> None:
    lanes = {1: 20_000, 2: 25_000, 3: 25_781, 4: 26_562, 5: 53_125, 6: 53_125}
    assert {generation: bandwidth.lane_of(generation) for generation in lanes} == lanes
    assert bandwidth.lane_of(3, "NVIDIA A40") == 12_000, "an unconfirmed figure gives way to NCCL's"
    assert bandwidth.lane_of(3, "NVIDIA A10") == 12_000
    assert bandwidth.lane_of(3, "NVIDIA A100-SXM4-40GB") == bandwidth.lane_of(3, "unheard of") == 25_781
    assert [bandwidth.of(kind, 0, 0) for kind in bandwidth.pcie()] == [12_000, 12_000, 10_000, 10_000, 6_000]
    for kind in (LinkKind.XGMI, LinkKind.C2C):
        assert "no published bandwidth" in refusal(bandwidth.of, kind, 1, 0)
    for generation in (0, -1, 100):
        assert "must be from 1 to 99" in refusal(bandwidth.lane_of, generation)


@pytest.mark.parametrize(
    ("model", "generation"),
    [("NVIDIA A100-SXM4-80GB", 3), ("Tesla V100-SXM2-16GB", 2), ("GB200", 5), ("Quadro RTX8000", 2), ("GeForce", 0), ("", 0)],
)
def test_a_models_name_tells_its_generation(model: str, generation: int) -> None:
    assert bandwidth.generation_of_model(model) == generation


def test_kinds_of_paths_rank_as_nccl_ranks_them() -> None:
    ranked = sorted(LinkKind, key=bandwidth.path_rank)
    assert [kind.value for kind in ranked[3:]] == ["C2C", "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert {kind.value for kind in ranked[:3]} == {"NVLink", "NVSwitch", "XGMI"}
