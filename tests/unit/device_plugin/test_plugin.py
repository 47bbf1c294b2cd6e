"""The whole plugin: how it begins, waits and takes over."""

import pytest

from kompakt_client.errors import error_of
from kompakt_core.patterns import table
from kompakt_core.placement import choose
from kompakt_device_plugin import agent, health
from kompakt_device_plugin import main as main_module
from kompakt_device_plugin.api import PODS, SLICES
from kompakt_device_plugin.health import Heartbeat
from kompakt_device_plugin.journal import Journal, JournalEntry
from tests.support.device_plugin.whole import TOPOLOGY, Ailing


def test_topology_and_answers_stand_before_kubelet_hears_of_the_devices(running, gpus, until):
    stood = []
    for known in (table._table, choose._decide):
        known.cache_clear()

    class Seen(list):
        def append(self, request):
            stood.append((TOPOLOGY in running.api.objects, table._table.cache_info().misses))
            super().append(request)

    running.kubelet.requests = Seen()
    call, lists = running.start().listened()
    assert lists.get(timeout=60) == [(uuid, "Healthy") for uuid in gpus]
    ((written, built),) = stood
    assert written
    assert built > 0
    running.bind("a", size=3, pattern="Ring")
    until(running.plugin.pods.all)
    assert len(call.prefer(gpus, 3)) == 3
    assert table._table.cache_info().misses == built


def test_kubelet_hears_of_nothing_while_the_topology_cannot_be_written(running, until):
    running.api.fail = lambda verb, path: error_of(500, b"{}") if verb == "apply" else None
    running.start()
    until(lambda: running.api.made("apply", TOPOLOGY))
    assert running.plugin.devices.offered.version == 0
    running.api.fail = lambda verb, path: None
    running.node(a="change")
    assert len(running.listened()[1].get(timeout=60)) == 8


def test_an_api_server_without_resource_slices_has_none(running):
    running.api.fail = lambda verb, path: error_of(404, b"{}") if path == SLICES else None
    assert len(running.start().listened()[1].get(timeout=60)) == 8


def test_a_second_process_waits_un_ready_and_takes_over(plugin_with, kubelet, until):
    first = plugin_with().start()
    first.listened()
    until(lambda: first.plugin.waits_for() == "")
    second = plugin_with().start()
    until(lambda: second.plugin.alive())
    assert second.plugin.waits_for() == "another process that serves this node"
    assert len(kubelet.requests) == 1
    first.plugin.stop.set()
    until(lambda: second.plugin.waits_for() == "")
    until(lambda: len(kubelet.requests) == 2)


def test_a_folder_that_cannot_be_written_to_is_said_and_waited_for(running, until, caplog):
    folder = running.kubelet.folder / "device-plugins" / "kompakt"
    folder.touch()
    running.start()
    until(lambda: running.plugin.waits_for().startswith("the lock of this node: "))
    until(lambda: "cannot take the lock of this node, is kubelet's folder mounted writable?" in caplog.text)
    folder.unlink()
    until(lambda: running.plugin.waits_for() == "")


def test_what_was_handed_over_before_a_crash_is_held_until_kubelet_says_who_has_it(running, gpus, until):
    """The plugin died after Allocate of a set that stood on no pod, and kubelet starts anew: it lists no pods yet."""
    plugins = running.kubelet.folder / "device-plugins"
    (plugins / "kompakt").mkdir(exist_ok=True)
    Journal(plugins).begin(JournalEntry(gpus[3:5]))
    running.bind("a", gpus[:2])
    running.start().listened()
    until(lambda: running.held() == {gpus[3]: "", gpus[4]: ""})
    running.kubelet.held["default", "a"] = gpus[3:5]
    running.bind("a", gpus[:2], phase="Running")  # an event, so that the next round comes at once
    until(lambda: running.held() == {gpus[3]: "a", gpus[4]: "a"}, 5)

    def left():
        journal = Journal(plugins)
        journal.load()
        return journal.entries

    until(lambda: left() == ())


def test_without_the_api_server_the_process_is_alive_and_offers_nothing(running, until):
    running.api.fail = lambda verb, path: ConnectionRefusedError("no API server")
    running.start()
    until(lambda: ("list", PODS) in [(verb, path) for verb, path, _ in running.api.calls])
    assert running.plugin.alive()
    assert running.kubelet.requests == []


class Breaking(Ailing):
    """A source with a bug: one of its functions raises what nobody expects, until it is mended."""

    def __init__(self, graph, function):
        super().__init__(graph)
        self.broken, self.calls = function, []

    def read(self, node):
        return self._break("read") or super().read(node)

    def wait(self, timeout):
        return self._break("wait") or super().wait(timeout)

    def _break(self, function):
        self.calls.append(function)
        if function == self.broken:
            raise ZeroDivisionError("a bug")


@pytest.mark.parametrize(("function", "its_beat"), [("read", 1), ("wait", 2)])
def test_a_thread_that_breaks_is_noticed_and_goes_on_when_it_can(plugin_with, until, dgx1, monkeypatch, function, its_beat):
    ahead = [0.0]
    monkeypatch.setattr(health, "Heartbeat", lambda clock: Heartbeat(lambda: clock() + ahead[0]))
    monkeypatch.setattr(agent, "PERIOD", 0.02)
    monkeypatch.setattr(main_module, "SOURCE_PAUSE", 0.02)
    source = Breaking(dgx1, function)
    one = plugin_with(source).start()
    until(lambda: source.calls.count(function) > 3)
    ahead[0] = health.STALE_SECONDS + 1
    source.news.put(None)  # a wait that has gone well so far ends
    tries = source.calls.count(function)
    until(lambda: source.calls.count(function) > tries + 3)
    until(lambda: all(beat.alive for beat in one.plugin._beats if beat is not one.plugin._beats[its_beat]))
    assert not one.plugin.alive(), "only the one that breaks gives no sign"
    source.broken = ""
    source.change(dgx1.gpus[3])
    until(one.plugin.alive)
    assert len(one.listened()[1].get(timeout=60)) == 8


def test_a_watch_that_hangs_is_noticed(running, until):
    running.start()
    until(running.plugin.alive)
    until(lambda: running.plugin.agent._watches)
    running.plugin.agent._watches[2].beat = Heartbeat(lambda: 0.0, stale=0.0)
    assert not running.plugin.alive()
