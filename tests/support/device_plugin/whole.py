"""The whole plugin: a kubelet with real sockets on one side, an API server of dictionaries on the other."""

import queue
import threading
from dataclasses import replace

from kompakt_core import contract
from kompakt_device_plugin.api import NODES, TOPOLOGIES, pod_path
from kompakt_device_plugin.cdi import Cdi, NodeCdi
from kompakt_device_plugin.isolation import NodeIsolation
from kompakt_device_plugin.main import Choices, Plugin
from kompakt_device_plugin.source import Change, ChangeKind, Quiet, TextSource
from tests.support.device_plugin.api import pod_object

NODE = "node-1"
TOPOLOGY = f"{TOPOLOGIES}/{NODE}"


class Running:
    """A plugin in a thread, and the kubelet that found it."""

    def __init__(self, api, kubelet, machines, client, until, source=None, cdi=None, isolation=None, **choices):
        self.api, self.kubelet, self.machines, self.client, self.until = api, kubelet, machines, client, until
        self.source = source or TextSource(machines)
        told = Choices(cdi=cdi or NodeCdi(Cdi.NEVER), isolation=isolation or NodeIsolation(), **choices)
        self.plugin = Plugin(api, NODE, self.source, kubelet.folder, told)
        self.thread = threading.Thread(target=self.plugin.run, daemon=True)  # a test that fails does not stop all of them

    def start(self):
        self.thread.start()
        return self

    def node(self, status=None, **labels):
        """The Node object, as somebody writes it."""
        meta = {"name": NODE, "uid": "n", "labels": {contract.LABEL_MACHINE: "big", **labels}}
        self.api.put(f"{NODES}/{NODE}", {"metadata": meta, "status": status or {}})

    def bind(self, name, gpus=(), size=0, *, listed=False, **more):
        """A bound pod, perhaps with GPUs written on it; `listed`: kubelet says that it has them."""
        pod = pod_object(name, size or len(gpus), tuple(gpus), **more)
        self.api.put(pod_path("default", name), pod)
        if listed:
            self.kubelet.held["default", name] = tuple(gpus)

    def written_on(self, name):
        return set(self.api.objects[pod_path("default", name)]["metadata"]["annotations"][contract.ANN_GPUS].split(","))

    def delete(self, name):
        """By force: kubelet may still list it, its processes may still run."""
        self.api.remove(pod_path("default", name))

    def rounds(self, count):
        """Lets the plugin go round so many times more."""
        asked = len(self.kubelet.asked)
        self.until(lambda: len(self.kubelet.asked) > asked + count)

    def listened(self):
        """The first list of devices and a client, as kubelet has them after a registration."""
        self.until(lambda: self.kubelet.requests)
        call = self.client(self.kubelet.folder / "device-plugins" / self.kubelet.requests[-1].endpoint)
        return call, call.lists()

    def topology(self):
        return {"spec": {}, "status": {}, **self.api.objects.get(TOPOLOGY, {})}

    def held(self, field="pod"):
        """Of each GPU who has it."""
        return {entry["uuid"]: entry.get(field) for entry in self.topology()["status"].get("held", [])}

    def conditions(self):
        return {one["type"]: one["status"] for one in self.topology()["status"].get("conditions", [])}

    def events(self):
        return self.api.made("create", "/events")

    def stop(self):
        self.plugin.stop.set()
        self.thread.join(5)
        assert not self.thread.is_alive()


class Ailing(Quiet):
    """A source whose GPUs turn unhealthy and well as the test says."""

    name, driver_version = "nvml", "615.71"

    def __init__(self, graph):
        super().__init__()
        self.graph, self.news = graph, queue.Queue()

    def read(self, node):
        return self.graph

    def change(self, gpu):
        self.graph = replace(self.graph, gpus=tuple(gpu if gpu.uuid == one.uuid else one for one in self.graph.gpus))
        self.news.put(Change(ChangeKind.XID if gpu.xid else ChangeKind.WELL, gpu.uuid, "something happened", gpu.xid))

    def wait(self, timeout):
        try:
            return tuple(filter(None, [self.news.get(timeout=timeout)]))
        except queue.Empty:
            return ()

    def close(self):
        self.news.put(None)


def describe(machines, text):
    """In one move, as kubelet changes a mounted ConfigMap."""
    (machines / "new").write_text(text)
    (machines / "new").rename(machines / "big")
