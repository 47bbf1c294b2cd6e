"""What a host must have for real nodes: each missing thing is named in one sentence that says what would help."""

import os
import shutil
from collections import namedtuple
from pathlib import Path

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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ()),
        ({(os, "geteuid"): lambda: 1000}, ("root",)),
        ({(cgroups, "MOUNT"): Path("/nonexistent")}, ("cgroup v1", "unified_cgroup_hierarchy=0")),
        ({(host, "_COVERED"): (Path("/"),)}, ("cover",)),
        (
            {(host, "missing_packages"): lambda: ["buildah", "runc"], (shutil, "which"): lambda name: None},
            ("buildah, runc",),
        ),
    ],
    ids=["nothing", "we are not root", "cgroup v2 alone", "a node would cover the cache", "packages without apt"],
)
def test_what_is_missing_is_named(good_host, monkeypatch, changes, says):
    for (owner, name), value in changes.items():
        monkeypatch.setattr(owner, name, value)
    reason = host.obstacle()
    assert bool(reason) == bool(says)
    assert all(word in reason for word in says)


@pytest.mark.parametrize(
    ("filled", "free", "refused"), [(False, 34e9, True), (False, 36e9, False), (True, 7e9, False), (True, 5e9, True)]
)
def test_disk_is_asked_for_by_what_is_still_to_be_made(good_host, monkeypatch, tmp_path, filled, free, refused):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100e9, 0, free))
    monkeypatch.setattr(image_store, "latest", lambda: image_store.Stored(tmp_path, frozenset()) if filled else None)
    reason = host.obstacle()
    assert (reason is not None) == refused
    assert reason is None or f"{free / 1e9:.0f} GB free" in reason
