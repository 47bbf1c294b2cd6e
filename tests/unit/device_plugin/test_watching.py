"""What reaches the callbacks when lists and watches break and go on."""

import json
import threading

from kompakt_client import reflector
from kompakt_client.requests import Answer
from kompakt_device_plugin.watching import Watching, read_slim_pod


def thing(name, version, **more):
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "managedFields": ["long"]}, **more}


def event(kind, name, version):
    return {"type": kind, "object": thing(name, version)}


GONE = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}


class Script:
    """An API server that answers by script: whole lists, and lines of watches, in turn. After the last one all stops."""

    def __init__(self, stop, answers):
        self._stop, self.answers = stop, list(answers)

    def exchange(self, request):
        version, *things = self.answers.pop(0)
        return Answer(200, json.dumps({"items": things, "metadata": {"resourceVersion": str(version)}}).encode())

    def watch(self, path, query, silence):
        return self

    def batches(self):
        if not self.answers:
            self._stop.set()
            return
        yield [json.dumps(line).encode() for line in self.answers.pop(0)]

    def stop(self):
        pass


def run(*answers, breaks=0):
    """What was told, each with the signs of life before it; so many events break the callback."""
    stop, seen, beats, broken = threading.Event(), [], [], [KeyError("a bug")] * breaks

    def told(kind, one):
        seen.append((kind, one["metadata"]["name"], len(beats)))
        if broken:
            raise broken.pop()

    def listed(things):
        seen.append(("list", "".join(one["metadata"]["name"] for one in things), len(beats)))

    watching = Watching(Script(stop, answers), "/x", listed, told, stop=stop)
    watching.beat.beat = lambda: beats.append(None)
    watching.run()
    assert stop.is_set()
    return seen


def test_the_first_list_comes_whole_and_what_follows_as_events():
    seen = run((5, thing("a", 3)), [event("MODIFIED", "a", 6), event("ADDED", "b", 7), event("DELETED", "a", 8)])
    assert [told[:2] for told in seen] == [("list", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


def test_what_a_later_list_lacks_comes_as_a_deletion():
    seen = run((5, thing("a", 3), thing("b", 4)), [GONE], (20, thing("b", 4), thing("c", 19)))
    assert [told[:2] for told in seen] == [("list", "ab"), ("DELETED", "a"), ("ADDED", "c")]


def test_an_error_that_nobody_expected_ends_no_watch_and_is_no_sign_of_life(caplog, monkeypatch):
    monkeypatch.setattr(reflector, "BROKEN_SECONDS", 0.0)
    seen = run((5, thing("a", 3)), [event("MODIFIED", "a", 6)], (7, thing("a", 6)), breaks=1)
    assert seen == [("list", "a", 0), ("MODIFIED", "a", 1), ("list", "a", 1)]
    assert caplog.text.count("watching /x broke") == 1


def test_a_restored_etcd_ends_the_process(caplog):
    assert run((50, thing("a", 3)), [GONE], (20, thing("a", 3)), [event("MODIFIED", "a", 21)]) == [("list", "a", 0)]
    assert "versions went back" in caplog.text


def test_of_a_pod_only_what_an_agent_reads_is_kept():
    container = {"name": "c", "image": "i", "env": ["long"], "resources": {"limits": {"kompakt.dev/gpu": "2"}}}
    pod = thing("a", 1, spec={"nodeName": "n", "containers": [container]}, status={"phase": "Running", "conditions": []})
    slim = read_slim_pod(json.dumps(pod).encode())
    assert slim["spec"] == {"nodeName": "n", "containers": [{"resources": container["resources"]}]}
    assert slim["status"] == {"phase": "Running"}
    assert "managedFields" not in slim["metadata"]
