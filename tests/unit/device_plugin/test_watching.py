"""Lists and watches that break and go on."""

import threading

import pytest

from kompakt_device_plugin import watching as module
from kompakt_device_plugin.api import ApiException, Listing
from kompakt_device_plugin.watching import Watching


class Script:
    """An API server that answers by script: lists and watches in turn."""

    def __init__(self, stop, *answers):
        self.stop, self.answers, self.watched = stop, list(answers), []

    def list(self, path, query, **rest):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Listing([], answer)

    def watch(self, path, version, query):
        self.watched.append(version)
        if not self.answers:
            self.stop.set()
            return
        yield from self.answers.pop(0)


def event(version, kind="MODIFIED", **obj):
    return {"type": kind, "object": {"metadata": {"resourceVersion": version}, **obj}}


def run(*answers):
    stop = threading.Event()
    script, seen = Script(stop, *answers), []
    watching = Watching(script, "/x", lambda items: seen.append("list"), lambda kind, obj: seen.append(kind), stop=stop)
    watching._pause = 0
    watching.run()
    return script, seen


def test_an_error_that_nobody_expected_ends_no_watch_and_is_no_sign_of_life(caplog, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0)
    seen, beats, broken = [], [], ["list", "MODIFIED"]

    def take(what):
        seen.append((what, len(beats)))
        if broken and broken[0] == what:
            broken.pop(0)
            raise KeyError("a bug")

    stop = threading.Event()
    script = Script(stop, "5", "7", [event("8")], "9")
    watching = Watching(script, "/x", lambda items: take("list"), lambda kind, obj: take(kind), stop=stop)
    watching._pause = 0
    watching.beat.beat = lambda: beats.append(None)
    watching.run()
    assert seen == [("list", 0), ("list", 0), ("MODIFIED", 2), ("list", 2)]
    assert caplog.text.count("watching /x broke") == 2


def test_a_stream_that_ends_is_taken_up_where_it_was():
    script, seen = run("5", [event("6"), event("9", "BOOKMARK")], [event("12", "DELETED")])
    assert script.watched == ["5", "9", "12"]
    assert seen == ["list", "MODIFIED", "DELETED"]


def test_a_version_that_is_gone_leads_to_a_new_list():
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    script, seen = run("5", [gone], "20")
    assert script.watched == ["5", "20"]
    assert seen == ["list", "list"]


@pytest.mark.parametrize("error", [ApiException(status=500), ConnectionRefusedError(), TimeoutError()])
def test_an_api_server_that_is_away_is_asked_again(error):
    script, seen = run(error, "7")
    assert seen == ["list"]
    assert script.watched == ["7"]
