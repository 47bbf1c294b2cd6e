"""GPUs under the name that an administrator chose: what the extender reads, and what it lets pass by."""

import json

import pytest

from kompakt_client.connections import plain
from kompakt_client.transport import ApiClient
from kompakt_core import contract as c
from kompakt_core.errors import InvalidInput
from kompakt_extender.command_line import parse
from kompakt_extender.explain import what_if
from kompakt_extender.explain.models import WhatIf
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.project import expected_view, read_node, read_pod
from kompakt_extender.unreadable_pods import read_pod_or_holding
from tests.support.extender.made_objects import node, pod

THEIRS = "nvidia.com/gpu"
BOTH = pytest.mark.parametrize(("resource", "gpus"), [(c.RESOURCE, 0), (THEIRS, 4)])


def asking():
    """A pod that asks by NVIDIA's name."""
    return json.loads(json.dumps(pod("a", 4)).replace(c.RESOURCE, THEIRS))


@BOTH
def test_pods_and_nodes_are_read_by_that_name(resource, gpus):
    raw = json.dumps(asking()).encode()
    machine = json.loads(json.dumps(node("n")).replace(c.RESOURCE, THEIRS))
    assert read_pod(raw, resource).gpus == gpus
    assert read_pod_or_holding(raw, resource).gpus == gpus
    assert bool(read_node(json.dumps(machine).encode(), resource).gpus) == bool(gpus)
    assert expected_view(raw, "uid", "ns", resource).gpus == gpus


@BOTH
def test_a_bound_pod_that_cannot_be_read_holds_gpus_of_that_name(resource, gpus):
    spoilt = asking()
    spoilt["spec"] |= {"nodeName": "n", "priority": "high"}
    assert read_pod_or_holding(json.dumps(spoilt).encode(), resource).gpus == bool(gpus)


def test_what_if_takes_manifests_that_ask_by_that_name():
    body = WhatIf(pod=asking())
    assert what_if.read(body, THEIRS)[0].gpus == 4
    with pytest.raises(InvalidInput, match=c.RESOURCE):
        what_if.read(body)


async def test_a_session_reads_all_by_the_name_that_the_command_line_gives():
    settings = parse([f"--resource={THEIRS}"])
    session = LeaderSession(ApiClient(plain("http://localhost")), ExtenderMetrics(), lambda: True, {}, resource=settings.resource)
    readers = {watcher.name: watcher for watcher in session._watchers}
    assert readers["pods"]._resource.project(json.dumps(asking()).encode()).gpus == 4
    assert session.binder._resource == session.answers._resource == session.queries._resource == THEIRS
    with pytest.raises(SystemExit):
        parse(["--resource=amd.com/gpu"])
