"""A Reflector that is stopped ends, wherever it is."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kompakt_client.objects import WatchedKind
from kompakt_client.reflector import Reflector
from kompakt_client.requests import Answer, ApiRequest
from kompakt_client.store import ObjectChange, StoredObject


class Silent:
    """A watch that shows nothing until it is stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def batches(self) -> Iterator[list[bytes]]:
        self._stopped.wait()
        return iter(())

    def stop(self) -> None:
        self._stopped.set()


class Nobody:
    """Who listens does not matter here."""

    def replace(self, objects: Iterable[StoredObject[str]]) -> None:
        pass

    def change(self, changes: Sequence[ObjectChange[str]]) -> None:
        pass


class SlowToOpen:
    """An API server whose watches take a while to open."""

    def __init__(self) -> None:
        self.asked, self.may_open = threading.Event(), threading.Event()

    def exchange(self, request: ApiRequest) -> Answer:
        return Answer(200, b'{"metadata": {"resourceVersion": "5"}, "items": []}')

    def watch(self, path: str, query: Any, silence: float) -> Silent:
        self.asked.set()
        self.may_open.wait()
        return Silent()


def test_one_that_is_stopped_while_its_watch_opens_does_not_wait_for_what_the_watch_shows() -> None:
    server = SlowToOpen()
    reflector = Reflector(server, WatchedKind("things", "/api/v1/things", lambda raw: ""), Nobody())
    thread = reflector.start()
    server.asked.wait()
    reflector.stop()
    server.may_open.set()
    thread.join(20)
    assert not thread.is_alive()
