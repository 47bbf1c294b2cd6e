"""The rules of a world in which an API server is reflected: others write, answers come late, connections break.

Whose server that is, and how its news arrives, is the back end's: the subclass. After quiet the Store equals the server, always.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kompakt_client.store import ObjectChange, StoredObject

NAMES = st.sampled_from("abc")
ANSWERED = st.sampled_from(["at once", "at once", "late", "never"])
Seen = StoredObject[str]


@dataclass(frozen=True)
class Answer:
    """What a write was answered with: the object as it is then, or the uid of what is gone."""

    found: Seen | None = None
    raw: bytes = b""  # the object on the wire, where there is one
    gone: str = ""


class ReflectingMachine(RuleBasedStateMachine):
    """A server, and a store that reflects it."""

    # What a back end brings

    def start(self) -> None:
        """Begin to reflect an empty server."""
        raise NotImplementedError

    def written(self, name: str, readable: bool) -> Answer | None:
        """Create or modify an object. None: nobody knows whether it was done."""
        raise NotImplementedError

    def deleted(self, name: str) -> Answer | None:
        """Delete an object that is there. None: nobody knows whether it was done."""
        raise NotImplementedError

    def arrive(self, answer: Answer) -> None:
        """An answer reaches the store."""
        raise NotImplementedError

    def connections_break(self) -> None:
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        raise NotImplementedError

    def catch_up(self) -> None:
        """Until the watch has shown everything."""
        raise NotImplementedError

    def on_the_server(self) -> dict[str, Seen]:
        """The objects that can be read."""
        raise NotImplementedError

    def in_the_store(self) -> dict[str, Seen]:
        raise NotImplementedError

    # What happens. No precondition: which rules may follow must not hang on what a network did, or no seed repeats a run.

    @initialize()
    def begin(self) -> None:
        self.late: list[Answer] = []  # under way
        self.there: set[str] = set()  # names that may be on the server
        self.wrong: list[str] = []
        self.begin_anew()
        self.start()

    def begin_anew(self) -> None:
        self.heard: dict[str, Seen] = {}  # what the changes told of amount to
        self.dead: set[str] = set()  # uids that an answer has reported gone
        self.latest: dict[str, int] = {}  # the version of the last answer by name
        self.trusted = True  # nobody has restored anything

    @rule(name=NAMES, readable=st.sampled_from([True, True, False]), answered=ANSWERED)
    def somebody_writes(self, name: str, readable: bool, answered: str) -> None:
        self.there.add(name)
        self.is_answered(self.written(name, readable), answered)

    @rule(name=NAMES, answered=ANSWERED)
    def somebody_deletes(self, name: str, answered: str) -> None:
        if name not in self.there:
            return
        answer = self.deleted(name)
        if answer is not None:
            self.there.discard(name)
        self.is_answered(answer, answered)

    def is_answered(self, answer: Answer | None, when: str) -> None:
        if answer is not None and when == "late":
            self.late.append(answer)
        elif answer is not None and when == "at once":
            self.hears(answer)

    @rule(number=st.integers(0, 20))
    def an_answer_arrives(self, number: int) -> None:
        if self.late:
            self.hears(self.late.pop(number % len(self.late)))

    def hears(self, answer: Answer) -> None:
        self.arrive(answer)
        self.dead |= {answer.gone} - {""}
        if answer.found is not None:
            self.latest[answer.found.name] = max(answer.found.version, self.latest.get(answer.found.name, 0))

    @rule()
    def all_connections_break(self) -> None:
        self.connections_break()

    @rule(seconds=st.sampled_from([1.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.wait(seconds)

    @rule()
    def all_is_shown(self) -> None:
        self.catch_up()

    # What must hold

    @rule(answers_first=st.booleans())
    def all_is_quiet(self, answers_first: bool) -> None:
        """Nothing is under way any more, and every watch has shown what there is."""
        if answers_first:
            self.all_answers_arrive()
        self.catch_up()
        self.all_answers_arrive()
        self.catch_up()
        if self.trusted:
            assert self.in_the_store() == self.on_the_server(), "without any comparison"

    def all_answers_arrive(self) -> None:
        while self.late:
            self.an_answer_arrives(0)

    @invariant()
    def what_is_told_follows_from_what_was_heard(self) -> None:
        assert not getattr(self, "wrong", []), self.wrong

    def hear(self, changes: Sequence[ObjectChange[str]]) -> None:
        """What the store tells: it fits what it told before, nobody rises from the dead, nothing goes back behind an answer."""
        for change in changes:
            before, after = change.before, change.after
            name = (before or after).name  # type: ignore[union-attr]
            if before != self.heard.pop(name, None):
                self.wrong.append(f"{name} was never told to be {before}")
            if after is None:
                continue
            self.heard[name] = after
            if self.trusted and after.uid in self.dead:
                self.wrong.append(f"{after} rose from the dead")
            if self.trusted and after.version < self.latest.get(name, 0):
                self.wrong.append(f"{after} is older than the answer of version {self.latest[name]}")

    def teardown(self) -> None:
        if hasattr(self, "late"):
            self.all_is_quiet(answers_first=False)
            assert not self.wrong, self.wrong
