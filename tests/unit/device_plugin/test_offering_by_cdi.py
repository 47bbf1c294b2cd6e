"""What the whole plugin offers to kubelet where containers get their GPUs by CDI."""

import json

import grpc
import pytest

from kompakt_device_plugin.cdi import Cdi, CdiSpecifications, NodeCdi
from tests.support.device_plugin.specifications import spec
from tests.support.device_plugin.whole import Ailing

RUNTIME = {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.1"}}


@pytest.fixture
def specified(plugin_with, dgx1, tmp_path):
    """A plugin over real GPUs, whose node has specifications for those that the test names."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    one = plugin_with(Ailing(dgx1), NodeCdi(Cdi.AUTO, CdiSpecifications([folder])))
    one.node(RUNTIME)

    def write(*gpus):
        (folder / "new").write_text(json.dumps(spec(*gpus)))
        (folder / "new").rename(folder / "nvidia.json")
        one.node(RUNTIME, change=str(len(gpus)))

    one.specify = write
    return one


def told(one):
    return [(body["reason"], body["involvedObject"]["kind"]) for body in one.events()]


def test_a_gpu_without_a_specification_is_offered_once_it_has_one(specified, gpus, until):
    specified.specify(*gpus[:7])
    call, lists = specified.start().listened()
    assert lists.get(timeout=60) == [(uuid, "Healthy") for uuid in gpus[:7]] + [(gpus[7], "Unhealthy")]
    until(lambda: specified.conditions()["Degraded"] == "True")
    until(lambda: told(specified) == [("CDISpecMissing", "Node")])
    with pytest.raises(grpc.RpcError, match=f"no CDI specification of this node names {gpus[7]}"):
        call.allocate(gpus[7:])
    specified.specify(*gpus)
    assert lists.get(timeout=60) == [(uuid, "Healthy") for uuid in gpus]
    given = call.handed_over(gpus[7:])
    assert [one.name for one in given.cdi_devices] == [f"nvidia.com/gpu={gpus[7]}"]
    assert given.envs["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_node_without_specifications_offers_nothing_until_it_has_some(specified, gpus, until):
    specified.start()
    until(lambda: specified.conditions().get("Ready") == "False")
    until(lambda: told(specified) == [("CDISpecMissing", "Node")])
    assert specified.plugin.devices.offered.graph is None
    specified.specify(*gpus)
    assert len(specified.listened()[1].get(timeout=60)) == 8
    until(lambda: specified.conditions()["Ready"] == "True")
