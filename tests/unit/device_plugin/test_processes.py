"""Pods that still have processes, and what that means for their GPUs."""

import os
from pathlib import Path

from kompakt_device_plugin.processes import alive, sees_others

UID = "0f1c1f5e-6a55-4d5c-9d0b-52b3d3f0a001"
OTHER = "0f1c1f5e-6a55-4d5c-9d0b-52b3d3f0a002"


def process(proc, pid, groups):
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(groups)


def test_a_pods_processes_are_known_by_their_cgroups_of_either_driver(tmp_path):
    process(tmp_path, 10, f"4:memory:/kubepods/burstable/pod{UID}/3f2a\n")
    process(tmp_path, 11, f"0::/../../kubepods-besteffort-pod{OTHER.replace('-', '_')}.slice/cri-containerd-77.scope\n")
    process(tmp_path, 12, "0::/system.slice/kubelet.service\n")
    (tmp_path / "13").mkdir()  # ended between the two looks
    (tmp_path / "self").mkdir()
    assert alive({UID, OTHER, "another"}, tmp_path) == {UID, OTHER}
    assert alive({"another"}, tmp_path) == set()
    assert alive({""}, tmp_path) == alive((), tmp_path) == set()


def test_it_reads_the_real_proc():
    assert Path(f"/proc/{os.getpid()}/cgroup").read_text(), "this process stands there"
    assert alive({UID}) == set()


def test_others_are_seen_where_the_first_process_is_not_ours(tmp_path):
    assert not sees_others(tmp_path)
    process(tmp_path, 1, "0::/\n")
    process(tmp_path, "self", "0::/\n")
    assert not sees_others(tmp_path)
    (tmp_path / "1" / "cgroup").write_text("0::/../../..\n")
    assert sees_others(tmp_path)
