"""The whole plugin: a kubelet with real sockets on one side, an API server of dictionaries on the other."""

import queue
import threading
from dataclasses import replace

from kompakt_device_plugin.api import TOPOLOGIES, pod_path
from kompakt_device_plugin.main import Plugin
from kompakt_device_plugin.source import Change, ChangeKind, Quiet, TextSource

NODE = "node-1"
TOPOLOGY = f"{TOPOLOGIES}/{NODE}"


class Running:
    """A plugin in a thread, and the kubelet that found it."""

    def __init__(self, api, kubelet, machines, client, until, source=None):
        self.api, self.kubelet, self.machines, self.client, self.until = api, kubelet, machines, client, until
        self.plugin = Plugin(api, NODE, source or TextSource(machines), kubelet.folder)
        self.thread = threading.Thread(target=self.plugin.run, daemon=True)  # a test that fails does not stop all of them

    def start(self):
        self.thread.start()
        return self

    def listened(self):
        """The first list of devices and a client, as kubelet has them after a registration."""
        self.until(lambda: self.kubelet.requests)
        call = self.client(self.kubelet.folder / "device-plugins" / self.kubelet.requests[-1].endpoint)
        return call, call.lists()

    def topology(self):
        return {"spec": {}, "status": {}, **self.api.objects.get(TOPOLOGY, {})}

    def held(self):
        return {entry["uuid"]: entry["pod"] for entry in self.topology()["status"].get("held", [])}

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


def bind(api, pod):
    api.put(pod_path("default", pod["metadata"]["name"]), pod)
