"""Random orders of everything that lists, watches and answers can bring: after quiet the Store equals the server, always."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from kompakt_client.errors import Unreachable, error_of
from kompakt_client.reflection import AskVersion, Effect, Leave, ListPage, Pause, Reflection, Step, Watch
from kompakt_client.store import ObjectChange, Store, StoredObject
from tests.support.client.reflecting import Answer, ReflectingMachine, Seen

ERRORS = st.sampled_from([0, 401, 403, 408, 410, 429, 500, 503, 504])
PAGE = 2


@dataclass
class History:
    """One etcd: objects by name, and every event with its version."""

    version: int = 10
    objects: dict[str, Seen] = field(default_factory=dict)
    events: list[tuple[str, Seen]] = field(default_factory=list)
    compacted: int = 0

    def write(self, name: str, uid: str, readable: bool) -> Seen:
        """Create it with that uid, or modify it."""
        self.version += 1
        before = self.objects.get(name)
        kind = "MODIFIED" if before else "ADDED"
        # Its view shows where it was written: two objects of one version in two histories differ.
        view = f"{uid}@{self.version}" if readable else None
        self.objects[name] = StoredObject("", name, before.uid if before else uid, self.version, view)
        self.events.append((kind, self.objects[name]))
        return self.objects[name]

    def delete(self, name: str) -> Seen:
        self.version += 1
        gone = self.objects.pop(name)
        self.events.append(("DELETED", StoredObject("", name, gone.uid, self.version)))
        return gone

    def after(self, version: int) -> list[tuple[str, Seen]]:
        return [event for event in self.events if event[1].version > version]


def error(code: int) -> Any:
    return error_of(code, b"{}") or Unreachable("the connection broke") if code else Unreachable("the connection broke")


class PlayedServer(ReflectingMachine):
    """The API server, the network and the clock are played; the Reflection is what is tested.

    Where etcd is never restored, the Store must equal the server without any comparison.
    """

    restores = False

    def start(self) -> None:
        self.server, self.backups = History(), [History()]
        self.now, self.uids = 0.0, 0

    def begin_anew(self) -> None:
        super().begin_anew()
        self.reflection: Reflection[str] = Reflection(Store({"letter": lambda view: view[:3]}), random=lambda: 0.5)
        self.pages: list[list[Seen]] = []
        self.stream: int | None = None  # the version up to which the open watch has shown everything
        self.shown: list[tuple[str, Seen]] = []
        self.effect: Effect | None = self.reflection.start()

    def written(self, name: str, readable: bool) -> Answer:
        self.uids += 1
        return Answer(self.server.write(name, f"u{self.uids}", readable))

    def deleted(self, name: str) -> Answer:
        return Answer(gone=self.server.delete(name).uid)

    def arrive(self, answer: Answer) -> None:
        store = self.reflection.store
        if answer.found is not None:
            self.tell(store.answered(answer.found), answer.found.version)
            assert store.owed is not None or answer.found.version <= store.reflected
            return None
        return self.tell(store.gone(answer.gone), math.inf)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def on_the_server(self) -> dict[str, Seen]:
        return {name: found for name, found in self.server.objects.items() if found.view is not None}

    def in_the_store(self) -> dict[str, Seen]:
        return {found.name: found for found in self.reflection.store}

    # What others do to the server

    @rule()
    def the_server_forgets_old_versions(self) -> None:
        self.server.compacted = self.server.version

    @precondition(lambda self: self.restores)
    @rule()
    def a_backup_is_made(self) -> None:
        self.backups.append(copy.deepcopy(self.server))

    @precondition(lambda self: self.restores)
    @rule(number=st.integers(0, 3))
    def a_backup_is_restored(self, number: int) -> None:
        self.server = copy.deepcopy(self.backups[-1 - number % len(self.backups)])
        self.there = set(self.server.objects)
        self.trusted = False
        self.connections_break()

    def connections_break(self) -> None:
        listing = isinstance(self.effect, ListPage) and self.pages
        if self.stream is not None or listing:
            self.fails(503)

    # What the Reflection hears

    @precondition(lambda self: isinstance(self.effect, ListPage) and not self.pages)
    @rule()
    def the_server_takes_a_list(self) -> None:
        """It shows one moment, however long its pages take to arrive."""
        objects = list(self.server.objects.values())
        self.pages = [objects[at : at + PAGE] for at in range(0, len(objects), PAGE)] or [[]]
        self.listed_version = self.server.version

    @precondition(lambda self: isinstance(self.effect, ListPage) and self.pages)
    @rule()
    def a_page_arrives(self) -> None:
        page = self.pages.pop(0)
        self.step(self.reflection.page(page, self.listed_version, "more" if self.pages else "", self.now), self.listed_version)

    @precondition(lambda self: isinstance(self.effect, Watch))
    @rule()
    def a_watch_opens(self) -> None:
        assert isinstance(self.effect, Watch)
        if self.effect.version < self.server.compacted:
            self.fails(410)
        else:
            self.stream, self.effect, self.shown = self.effect.version, None, []

    @precondition(lambda self: self.stream is not None)
    @rule()
    def an_event_arrives(self) -> None:
        assert self.stream is not None
        waiting = self.server.after(self.stream)
        if waiting:
            self.shows(*waiting[0])

    @precondition(lambda self: self.stream is not None)
    @rule()
    def a_bookmark_arrives(self) -> None:
        assert self.stream is not None
        waiting = self.server.after(self.stream)
        version = waiting[0][1].version - 1 if waiting else self.server.version
        self.shows("BOOKMARK", StoredObject("", "", "", version))

    @precondition(lambda self: self.stream is not None and self.shown)
    @rule(number=st.integers(0, 20))
    def an_event_is_repeated(self, number: int) -> None:
        self.shows(*self.shown[-1 - number % len(self.shown)])

    @precondition(lambda self: self.stream is not None)
    @rule()
    def a_watch_ends_in_order(self) -> None:
        due = self.now >= self.reflection._compare_at
        self.takes(self.reflection.ended(self.now, showed=bool(self.shown)))
        self.may_list(due)

    @rule(code=ERRORS)
    def something_fails(self, code: int) -> None:
        """A list, the opening of a watch, an ERROR line on it, or the connection."""
        if self.stream is not None or isinstance(self.effect, ListPage | Watch | AskVersion):
            self.fails(code)

    @precondition(lambda self: isinstance(self.effect, AskVersion))
    @rule()
    def the_server_tells_its_version(self) -> None:
        back, due = self.server.version < self.reflection.store.reflected, self.now >= self.reflection._compare_at
        assert not (back and self.trusted), "nobody restored anything"
        self.takes(self.reflection.asked(self.server.version, self.now))
        self.must_list() if back else self.may_list(due)

    @precondition(lambda self: isinstance(self.effect, Pause))
    @rule()
    def a_pause_ends(self) -> None:
        assert isinstance(self.effect, Pause)
        assert self.effect.seconds > 0
        self.now += self.effect.seconds
        self.takes(self.effect.then)

    @precondition(lambda self: isinstance(self.effect, Leave))
    @rule()
    def it_leaves(self) -> None:
        assert not self.trusted, "nobody restored anything"
        self.begin_anew()
        self.trusted = all(answer.found is None for answer in self.late)

    # What must hold

    @rule(answers_first=st.booleans())
    def all_is_quiet(self, answers_first: bool) -> None:
        """Then also after comparisons, and after leaving."""
        super().all_is_quiet(answers_first)
        if self.trusted:
            assert self.reflection.store.owed is None
        for _ in range(20):
            self.compare()
            if not isinstance(self.effect, Leave):
                break
            self.it_leaves()
            self.catch_up()
        assert self.in_the_store() == self.on_the_server()
        if not self.trusted:  # what was heard of a history that never happened counts no more
            self.trusted, self.dead, self.latest = True, set(), {}

    def compare(self) -> None:
        self.now += 10_000.0
        self.a_watch_ends_in_order()
        assert isinstance(self.effect, ListPage), "a comparison is due"
        self.catch_up(leaving=False)

    def catch_up(self, *, leaving: bool = True) -> None:
        for _ in range(200):
            if isinstance(self.effect, Leave):
                if not leaving:
                    return
                self.it_leaves()
            elif isinstance(self.effect, Pause):
                self.a_pause_ends()
            elif isinstance(self.effect, ListPage):
                self.a_page_arrives() if self.pages else self.the_server_takes_a_list()
            elif isinstance(self.effect, AskVersion):
                self.the_server_tells_its_version()
            elif isinstance(self.effect, Watch):
                self.a_watch_opens()
            elif self.stream is not None and self.server.after(self.stream):
                self.an_event_arrives()
            else:
                return
        raise AssertionError("it never comes to rest")

    @invariant()
    def listeners_know_what_the_store_knows(self) -> None:
        if hasattr(self, "reflection"):
            assert self.heard == self.in_the_store()

    @invariant()
    def only_what_the_watch_has_not_shown_is_owed(self) -> None:
        if hasattr(self, "reflection") and (owed := self.reflection.store.owed) is not None:
            assert self.reflection.store.reflected < owed.version <= self.reflection.store.newest

    @invariant()
    def indexes_find_what_is_there(self) -> None:
        if hasattr(self, "reflection"):
            for letter in {letter for found in self.heard.values() for letter in str(found.view)[:3]}:
                wanted = sorted(str(found.view) for found in self.heard.values() if letter in str(found.view)[:3])
                assert sorted(self.reflection.store.by("letter", letter)) == wanted
            assert not self.reflection.store.by("letter", "x")

    # How it is driven

    def shows(self, kind: str, found: Seen) -> None:
        assert self.stream is not None
        back = found.version < self.reflection.store.reflected
        self.shown.append((kind, found))
        self.stream = max(self.stream, found.version)
        self.step(self.reflection.event(kind, found, self.now), found.version)
        self.must_list() if back else self.may_list(False)

    def fails(self, code: int) -> None:
        watching, due = not isinstance(self.effect, ListPage), self.now + 60.0 >= self.reflection._compare_at
        self.step(self.reflection.failed(error(code), self.now), -1)
        if code == 410:
            self.must_list()
        elif watching:
            self.may_list(due)

    def may_list(self, allowed: bool) -> None:
        """410 Gone, the clock, and versions that go back are the only reasons for a list."""
        assert allowed or not isinstance(self.aim(), ListPage)

    def must_list(self) -> None:
        assert isinstance(self.aim(), ListPage)

    def aim(self) -> Effect | None:
        return self.effect.then if isinstance(self.effect, Pause) else self.effect

    def step(self, step: Step[str], as_of: float) -> None:
        self.tell(step.changes, as_of)
        if step.effect is not None:
            self.takes(step.effect)

    def takes(self, effect: Effect) -> None:
        self.effect, self.stream = effect, None
        if isinstance(effect, ListPage) and not effect.token:
            self.pages = []

    def tell(self, changes: Sequence[ObjectChange[str]], as_of: float) -> None:
        """What is told follows from what was heard as of that version: nothing newer is undone."""
        self.hear(changes)
        assert not self.trusted or all(change.before is None or change.before.version <= as_of for change in changes)


class RestoredServer(PlayedServer):
    """Now and then somebody restores etcd."""

    restores = True


def test_a_version_ahead_of_a_restored_server_is_listed_anew_and_other_troubles_are_not() -> None:
    reflection: Reflection[str] = Reflection(Store(), random=lambda: 0.5)
    reflection.start()
    reflection.page([], 50, "", 0.0)
    ahead = Unreachable("Timeout: Too large resource version: 50, current: 20", 504)
    assert reflection.failed(ahead, 1.0).effect == ListPage()
    reflection.page([], 60, "", 1.0)
    slow = reflection.failed(Unreachable("the server was too slow", 504), 2.0).effect
    assert isinstance(slow, Pause)
    assert slow.then == AskVersion()
    assert reflection.asked(60, 3.0) == Watch(60)


def test_a_server_that_comes_back_at_an_earlier_version_is_listed_anew_since_its_watch_would_show_nothing() -> None:
    reflection: Reflection[str] = Reflection(Store(), random=lambda: 0.5)
    reflection.start()
    reflection.page([], 50, "", 0.0)
    broken = reflection.failed(Unreachable("the connection broke"), 1.0).effect
    assert isinstance(broken, Pause)
    assert broken.then == AskVersion()
    behind = reflection.asked(20, 2.0)
    assert isinstance(behind, Pause)
    assert behind.then == ListPage()
    assert isinstance(reflection.page([], 20, "", 3.0).effect, Leave)


def test_a_list_that_expires_again_and_again_is_asked_for_after_growing_pauses() -> None:
    """Each begins at the first page: without a pause it would be a flood."""
    reflection: Reflection[str] = Reflection(Store(), random=lambda: 0.5)
    reflection.start()
    first, *later = (reflection.failed(error(410), float(number)).effect for number in range(4))
    assert first == ListPage()
    pauses = [one.seconds for one in later if isinstance(one, Pause) and one.then == ListPage()]
    assert len(pauses) == 3
    assert pauses == sorted(set(pauses))


def test_a_list_with_a_buried_object_takes_away_what_had_its_name_before() -> None:
    """The predecessor's end came in the same gap as the successor's life, and only the successor's end is heard."""
    store: Store[str] = Store()
    store.listed([StoredObject("", "c", "first", 5, "v")], 5, store.mark())
    mark = store.mark()
    store.gone("second")
    store.listed([StoredObject("", "c", "second", 8, "v")], 8, mark)
    store.watched(StoredObject("", "c", "second", 9), deleted=True)
    assert list(store) == []


def test_what_had_the_name_of_a_buried_object_before_does_not_come_back() -> None:
    """The successor came and went by answers alone; the watch is still behind both."""
    store: Store[str] = Store()
    store.answered(StoredObject("", "c", "second", 13, "v"))
    store.gone("second")
    assert store.watched(StoredObject("", "c", "first", 11, "v")) == []
    assert list(store) == []
    assert len(store.answered(StoredObject("", "c", "third", 15, "v"))) == 1


class TestReflecting(PlayedServer.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(max_examples=300, stateful_step_count=50, deadline=None)


class TestRestoring(RestoredServer.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
