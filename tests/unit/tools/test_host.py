"""What a host must have for real nodes: each missing thing is named in one sentence that says what would help."""

import os
import shutil
from collections import namedtuple

import pytest

from tools.kube import cgroups, host, image_store

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def good_host(monkeypatch, tmp_path):
    """A host on which everything is there, whatever this machine is."""
    for controller in cgroups.CONTROLLERS:
        (tmp_path / "cgroup" / controller).mkdir(parents=True)
        (tmp_path / "cgroup" / controller / "cgroup.procs").touch()
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path / "cgroup")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(host, "cache_root", lambda: tmp_path / "cache")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100e9, 0, 100e9))
    monkeypatch.setattr(image_store, "latest", lambda: None)
    monkeypatch.setattr(host, "missing_packages", list)


def test_a_good_host_has_no_obstacle(good_host):
    assert host.obstacle() is None


def test_without_root_it_says_so(good_host, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in host.obstacle()


def test_a_host_with_cgroup_v2_only_is_named(good_host, monkeypatch, tmp_path):
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    assert "cgroup v1" in host.obstacle()
    assert "unified_cgroup_hierarchy=0" in host.obstacle()


@pytest.mark.parametrize(
    ("filled", "free", "refused"), [(False, 34e9, True), (False, 36e9, False), (True, 7e9, False), (True, 5e9, True)]
)
def test_disk_is_asked_for_by_what_is_still_to_be_made(good_host, monkeypatch, tmp_path, filled, free, refused):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100e9, 0, free))
    monkeypatch.setattr(image_store, "latest", lambda: image_store.Stored(tmp_path, frozenset()) if filled else None)
    reason = host.obstacle()
    assert (reason is not None) == refused
    assert reason is None or f"{free / 1e9:.0f} GB free" in reason


def test_a_cache_that_a_node_would_cover_is_refused(good_host, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "_COVERED", (tmp_path,))
    assert "cover" in host.obstacle()


def test_missing_packages_without_apt_are_named(good_host, monkeypatch):
    monkeypatch.setattr(host, "missing_packages", lambda: ["buildah", "runc"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "buildah, runc" in host.obstacle()
