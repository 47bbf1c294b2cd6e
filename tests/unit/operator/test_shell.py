"""The parts of the shell that decide something: work queue, flags, Events, health."""

import asyncio
import selectors
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_operator.config import read_config
from kompakt_operator.events import transitions
from kompakt_operator.health import STUCK_SECONDS, OperatorHealth
from kompakt_operator.workqueue import LONGEST_DELAY, Key, WorkQueue

KEY: Key = ("ml", "j")


class JumpingSelector(selectors.DefaultSelector):
    """Where a loop would wait for its next timer, its clock jumps there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout:
            self.now += timeout
        return found


@pytest.fixture
def clock() -> JumpingSelector:
    return JumpingSelector()


@pytest.fixture
def anyio_backend(clock: JumpingSelector) -> tuple[str, dict[str, Any]]:
    """Coroutines of this file run in virtual time."""

    def loop() -> asyncio.AbstractEventLoop:
        made = asyncio.SelectorEventLoop(clock)
        made.time = lambda: clock.now  # type: ignore[method-assign]
        return made

    return "asyncio", {"loop_factory": loop}


@pytest.fixture
async def queue() -> WorkQueue:
    return WorkQueue()


async def test_a_key_stands_in_line_once_and_is_reconciled_again_when_it_changed_meanwhile(queue: WorkQueue) -> None:
    queue.add(KEY)
    queue.add(KEY)
    lengths = [len(queue)]
    await queue.take()
    queue.add(KEY)  # while it is being reconciled
    lengths.append(len(queue))
    queue.done(KEY)
    assert [*lengths, len(queue)] == [1, 0, 1]


async def test_a_key_that_rests_afterwards_is_reconciled_once_for_all_that_happened_meanwhile(
    queue: WorkQueue, clock: JumpingSelector
) -> None:
    queue.add(KEY)
    await queue.take()
    queue.done(KEY, 0.25)
    for _ in range(3):
        queue.add(KEY)
    resting = len(queue)
    await queue.take()
    woken = clock.now
    queue.done(KEY)
    assert (resting, woken, len(queue)) == (0, pytest.approx(0.25), 0)


async def test_failures_wait_longer_each_time_and_success_starts_anew(queue: WorkQueue) -> None:
    delays = [queue.retry(KEY) for _ in range(12)]
    queue.forget(KEY)
    delays = [*delays, queue.retry(KEY)]
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert (delays[11], delays[12]) == (LONGEST_DELAY, 0.5)


async def test_a_held_key_waits_whatever_happens(queue: WorkQueue, clock: JumpingSelector) -> None:
    queue.hold(KEY)
    queue.add(KEY)
    before = len(queue)
    await queue.take()
    assert (before, clock.now) == (0, pytest.approx(0.5))


async def test_the_earlier_of_two_moments_counts(queue: WorkQueue, clock: JumpingSelector) -> None:
    queue.add_after(KEY, 600)
    queue.add_after(KEY, 5)
    queue.add_after(KEY, 60)
    await queue.take()
    assert clock.now == pytest.approx(5)


def test_flags_win_over_the_environment() -> None:
    given_ = {"KOMPAKT_OPERATOR_RUNTIME_IMAGE": "env", "KOMPAKT_OPERATOR_HEALTH_PORT": "81", "KUBECONFIG": "/dev/null"}
    config = read_config(["--runtime-image", "flag", "--identity", "me", "--runtime-pull-secrets", "a,b.c"], given_)
    assert config.runtime_pull_secrets == ("a", "b.c")
    assert (config.runtime_image, config.health_port, config.identity, config.kubeconfig) == ("flag", 81, "me", "/dev/null")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--runtime-image: needed"),
        (["--runtime-image=i"], "--kubeconfig: needed outside a cluster"),
        (["--runtime-image=i", "--kubeconfig=/no/such/file"], "--kubeconfig: cannot read '/no/such/file'"),
        (["--runtime-image=i", "--namespace=Not_A_Name"], "--namespace: 'Not_A_Name' is no namespace's name"),
        (["--runtime-image=i", "--runtime-pull-secrets=a,B"], "--runtime-pull-secrets: 'B' is no Secret's name"),
        (["--runtime-image=i", "--keep-nodes=maybe"], "--keep-nodes: true or false; got 'maybe'"),
        (["--runtime-image=i", "--claims-scheduler=A b"], "--claims-scheduler: 'A b' is no scheduler's name"),
        (["--runtime-image=i", "--kueue=yes"], "--kueue: true or false; got 'yes'"),
        (["--runtime-image=i", "--plain-metrics=1"], "--plain-metrics: true or false; got '1'"),
        (
            ["--runtime-image=i", "--resource=amd.com/gpu"],
            "--resource: one of kompakt.dev/gpu, nvidia.com/gpu; got 'amd.com/gpu'",
        ),
        (["--runtime-image=i", "--planner-patience=1h"], "--planner-patience: whole seconds up to 3600"),
        (["--runtime-image=i", "--watch-patience=9"], "--watch-patience: whole seconds from 10 to 3600; got '9'"),
        (["--runtime-image=i", "--watch-patience=soon"], "--watch-patience: whole seconds from 10 to 3600; got 'soon'"),
        (["--runtime-image=i", "--log-level=loud"], "--log-level: one of DEBUG"),
        (["--runtime-image=i", "--health-port=99999"], "--health-port: a port from 1 to 65535"),
    ],
)
def test_a_bad_flag_is_named(flags: list[str], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_config(flags, {})
    assert words in str(caught.value)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["LOG_LEVEL", "NAMESPACE", "LEASE_NAMESPACE", "HEALTH_PORT", "KUBECONFIG"]), st.text()))
def test_any_environment_is_read_or_refused(environment: dict[str, str]) -> None:
    try:
        config = read_config(["--runtime-image=i"], {f"KOMPAKT_OPERATOR_{name}": text for name, text in environment.items()})
    except InvalidInput:
        return
    assert 0 <= config.health_port <= 65535


def test_events_tell_turns_not_states() -> None:
    failed = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m", "lastTransitionTime": "t"}]
    before = {"status": {"attempt": 1, "phase": "Running"}}
    after = {"status": {"attempt": 1, "phase": "Failed", "conditions": failed}}
    assert list(transitions(before, after)) == [("Warning", "BackoffLimitExceeded", "m")]
    assert list(transitions(after, after)) == []


def test_a_reconciliation_that_takes_too_long_is_told() -> None:
    pulse = OperatorHealth(active=True, under_way={0: 100.0})
    assert not pulse.stuck(100.0 + STUCK_SECONDS)
    assert pulse.stuck(101.0 + STUCK_SECONDS)


def test_reconciliations_are_counted_by_outcome_and_by_how_long_they_took() -> None:
    pulse = OperatorHealth()
    for seconds in (0.004, 0.3, 30.0):
        pulse.reconciled("done", seconds)
    text = pulse.text()
    assert 'kompakt_operator_reconciles_total{outcome="done"} 3' in text
    counts = {
        bound: f'reconcile_seconds_bucket{{le="{bound}"}} {count}\n' in text
        for bound, count in [("0.005", 1), ("0.5", 2), ("+Inf", 3)]
    }
    assert all(counts.values()), text
    assert "reconcile_seconds_sum 30.304000\n" in text
