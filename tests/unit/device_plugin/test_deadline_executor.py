"""Work beside a call: how long it is waited for, and what becomes of it then."""

import threading

import pytest

from kompakt_device_plugin.deadline_executor import CallDeadline, DeadlineExecutor


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


def test_what_came_of_it_is_there_once_it_ended():
    task = DeadlineExecutor("test").begin(lambda a, b: a + b, 2, 3)
    assert task.ended(60)
    assert task.result() == 5


def test_an_error_is_no_answer_and_is_logged(caplog):
    def broken():
        raise OSError("no such device")

    assert not DeadlineExecutor("test").begin(broken).ended(60)
    assert "no answer: no such device" in caplog.text


def test_what_nobody_waits_for_any_more_is_not_done(release, caplog):
    one, done = DeadlineExecutor("test", 1), []
    hanging = one.begin(release.wait)
    queued = one.begin(done.append, "for nobody")
    told = threading.Event()
    queued.then(told.set)
    assert not queued.ended(0.01)
    assert told.wait(60), "whoever waits for its end hears that it was given up"
    assert queued.done()
    release.set()
    assert hanging.ended(60)
    assert one.begin(done.append, "for somebody").ended(60)
    assert done == ["for somebody"]
    assert caplog.text.count("no answer in time") == 1


def test_what_hangs_leaves_a_thread_for_the_next_call_and_all_of_other_kinds(release):
    one, other = DeadlineExecutor("one"), DeadlineExecutor("other")
    one.begin(release.wait)
    assert one.begin(int).ended(60)
    one.begin(release.wait)
    assert other.begin(int).ended(60)


def test_patience_runs_out_and_is_never_negative():
    now = [100.0]
    patience = CallDeadline(0.5, lambda: now[0])
    now[0] += 0.25
    assert patience.left == 0.25
    now[0] += 1
    assert patience.left == 0.0
