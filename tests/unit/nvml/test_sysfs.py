"""NUMA nodes and network cards, as Linux lists them."""

import os

import pytest

from kompakt_core.topology.graph import LinkKind
from kompakt_device_plugin.nvml.sysfs import Sysfs

# Two sockets; below the first host bridge a switch with two ports and a second switch behind its third.
SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0"
DEVICES = {
    "0000:10:00.0": (f"{SWITCH}/0000:02:00.0/0000:10:00.0", 0),  # GPU
    "0000:11:00.0": (f"{SWITCH}/0000:02:01.0/0000:11:00.0", 0),  # card on the same switch
    "0000:12:00.0": (f"{SWITCH}/0000:02:02.0/0000:03:00.0/0000:04:00.0/0000:12:00.0", 0),  # card behind two switches
    "0000:13:00.0": (f"{SWITCH}/0000:02:03.0/0000:05:00.0/0000:13:00.0", 0),  # card behind one bridge more than the GPU
    "0000:20:00.0": ("pci0000:00/0000:00:02.0/0000:20:00.0", 0),  # card on another port of the host bridge
    "0000:41:00.0": ("pci0000:40/0000:40:01.0/0000:41:00.0", 0),  # card on another host bridge of the socket
    "0000:81:00.0": ("pci0000:80/0000:80:01.0/0000:81:00.0", 1),  # card of the other socket
}


@pytest.fixture
def sysfs(tmp_path):
    links = tmp_path / "bus/pci/devices"
    links.mkdir(parents=True)
    for bus_id, (path, node) in DEVICES.items():
        device = tmp_path / "devices" / path
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        (links / bus_id).symlink_to(os.path.relpath(device, links))
    for node in (0, 1):
        (tmp_path / f"devices/system/node/node{node}").mkdir(parents=True)
        (tmp_path / f"devices/system/node/node{node}/cpulist").write_text(f"{node * 8}-{node * 8 + 7}\n")
    return Sysfs(tmp_path)


def rdma(sysfs, name, bus_id, rate="400 Gb/sec (4X NDR)"):
    card = sysfs.root / "class/infiniband" / name
    (card / "ports/1").mkdir(parents=True)
    (card / "ports/1/rate").write_text(rate + "\n")
    (card / "device").symlink_to(sysfs.root / "devices" / DEVICES[bus_id][0])


def ethernet(sysfs, name, bus_id, speed):
    card = sysfs.root / "class/net" / name
    card.mkdir(parents=True)
    (card / "speed").write_text(f"{speed}\n")
    if bus_id:
        (card / "device").symlink_to(sysfs.root / "devices" / DEVICES[bus_id][0])


@pytest.mark.parametrize(
    ("card", "way"),
    [
        ("0000:11:00.0", LinkKind.PIX),
        ("0000:12:00.0", LinkKind.PXB),
        ("0000:13:00.0", LinkKind.PXB),
        ("0000:20:00.0", LinkKind.PHB),
        ("0000:41:00.0", LinkKind.NODE),
        ("0000:81:00.0", LinkKind.SYS),
    ],
)
def test_the_way_from_a_card_to_a_gpu_has_the_word_of_topo(sysfs, card, way):
    rdma(sysfs, "mlx5_0", card)
    (nic,) = sysfs.nics(["0000:10:00.0"])
    assert (nic.paths, nic.megabytes_per_second, nic.numa_node) == ((way,), 50000, DEVICES[card][1])


def test_cards_come_by_name_and_each_once(sysfs):
    rdma(sysfs, "mlx5_10", "0000:11:00.0")
    rdma(sysfs, "mlx5_2", "0000:12:00.0", "100 Gb/sec (2X HDR)")
    ethernet(sysfs, "ibp17s0", "0000:11:00.0", 400000)  # the same card, seen as a network interface
    ethernet(sysfs, "eth0", "0000:20:00.0", 25000)
    ethernet(sysfs, "eth1", "0000:41:00.0", -1)  # no cable
    ethernet(sysfs, "lo", None, 1000)
    assert [(nic.name, nic.megabytes_per_second) for nic in sysfs.nics(["0000:10:00.0"])] == [
        ("eth0", 3125),
        ("mlx5_2", 12500),
        ("mlx5_10", 50000),
    ]


def test_virtual_functions_are_no_cards(sysfs):
    rdma(sysfs, "mlx5_7", "0000:11:00.0")
    (sysfs.root / "devices" / DEVICES["0000:11:00.0"][0] / "physfn").symlink_to("..")
    assert sysfs.nics(["0000:10:00.0"]) == ()


def test_a_gpu_that_sysfs_does_not_know_is_far_from_every_card(sysfs):
    rdma(sysfs, "mlx5_0", "0000:11:00.0")
    assert sysfs.nics(["0000:77:00.0", ""])[0].paths == (LinkKind.SYS, LinkKind.SYS)


def test_numa_nodes_that_cannot_be_read_are_unknown(sysfs, tmp_path):
    assert sysfs.numa_node("0000:10:00.0") == 0
    assert sysfs.numa_node("0000:77:00.0") == -1
    (sysfs.root / "devices/system/node/node1/cpulist").write_text("\n")  # memory without cores
    assert sysfs.numa_node("0000:81:00.0") == -1
    (sysfs.root / "devices" / DEVICES["0000:10:00.0"][0] / "numa_node").write_text("-1\n")  # as in many virtual machines
    assert sysfs.numa_node("0000:10:00.0") == -1
    assert Sysfs(tmp_path / "absent").nics(["0000:10:00.0"]) == ()
