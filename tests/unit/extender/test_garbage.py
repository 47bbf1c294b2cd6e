"""Whatever is posted is answered with a sentence and counted; nothing that is posted ends the process."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_extender import verbs
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod, worker
from tests.support.extender.scheduler import Replica, Scheduler, scheduling
from tests.support.extender.served import served
from tests.support.extender.world import World

SENSITIVE = {c.ANN_PATTERN: "Ring", c.ANN_SENSITIVITY: "High"}
RECORDED = Path(__file__).parents[2] / "contract" / "data" / "extender"
BINDING = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n0"}


def errors(scheduler: Scheduler, verb: str) -> float:
    found = scheduler.metrics.registry.get_sample_value("kompakt_extender_verb_errors_total", {"verb": verb})
    return 0.0 if found is None else found


@pytest.mark.parametrize(
    ("method", "path", "status", "verb"),
    [
        ("POST", "/preempt", 404, "unknown"),
        ("POST", "/", 404, "unknown"),
        ("POST", "/filter/../../etc", 404, "unknown"),
        ("GET", "/filter", 405, "filter"),
        ("PUT", "/bind", 405, "bind"),
    ],
)
async def test_an_unknown_verb_is_answered_with_the_known_ones_and_counted(
    method: str, path: str, status: int, verb: str, scheduler: Scheduler
) -> None:
    answer = await scheduler.request(method, path)
    assert answer.status_code == status
    assert "POST /filter, /prioritize or /bind" in answer.json()["Error"]
    assert errors(scheduler, verb) == 1


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"Pod": 3}', b'{"PodName": []}'])
async def test_what_is_no_argument_is_a_400_with_a_sentence_and_counted(verb: str, body: bytes, scheduler: Scheduler) -> None:
    answer = await scheduler.post(verb, body)
    assert answer.status_code == 400
    assert "not a valid Extender" in answer.json()["Error"]
    assert errors(scheduler, verb) == 1


@pytest.mark.parametrize("announced", [True, False])
async def test_a_huge_body_is_refused_before_it_is_read_to_its_end(
    announced: bool, monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler
) -> None:
    monkeypatch.setattr(verbs, "MAX_BODY_BYTES", 1 << 20)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 16
            yield b" " * (1 << 16)

    headers = {"Content-Length": str(1 << 40)} if announced else {}
    answer = await scheduler.request("POST", "/filter", content=endless(), headers=headers)
    assert answer.status_code == 413
    assert "longer than 1 MiB" in answer.json()["Error"]
    assert errors(scheduler, "filter") == 1
    assert sent <= (2 << 20)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PodName", "../../nodes/n0"),
        ("PodNamespace", "a/b"),
        ("PodUID", "u?x=1"),
        ("Node", "N0"),
        ("PodName", "a\nb"),
        ("Node", ""),
    ],
)
async def test_a_binding_whose_names_are_none_writes_nothing(key: str, value: str, scheduler: Scheduler) -> None:
    scheduler.leader.world.add_pod(pod("p", 1))
    answer = await scheduler.post("bind", BINDING | {key: value})
    assert (answer.status_code, key in answer.json()["Error"]) == (400, True)
    assert scheduler.leader.world.sent == []


async def test_an_error_of_ours_is_a_500_and_counted_and_the_next_call_is_served(
    monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler
) -> None:
    scheduler.leader.world.add_pod(pod("p", 1))
    with monkeypatch.context() as broken:
        broken.setattr(Replica, "filter", lambda self, args: 1 / 0)
        answer = await scheduler.post("filter", scheduler.args("p"))
    assert (answer.status_code, "its log" in answer.json()["Error"]) == (500, True)
    assert errors(scheduler, "filter") == 1
    assert (await scheduler.filter("p", "n0"))["NodeNames"] == ["n0"]


async def test_noise_on_the_port_is_answered_and_the_next_caller_served(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader(World())
    async with served(verbs.verbs_app(Replica(leader), leader.metrics)) as (_, port):
        for noise in (b"\x16\x03\x01\x02\x00", b"NONSENSE\r\n\r\n", b"POST /filter HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(noise)
            writer.write_eof()
            said = await reader.read()
            assert said == b"" or said.startswith(b"HTTP/1.1 4"), said
            writer.close()
        async with httpx.AsyncClient() as client:
            content = (RECORDED / "filter.json").read_bytes()
            assert (await client.post(f"http://127.0.0.1:{port}/filter", content=content)).status_code == 200


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_PATHS = [
    ("Pod",),
    ("NodeNames",),
    ("Pod", "metadata"),
    ("Pod", "metadata", "annotations"),
    ("Pod", "metadata", "labels"),
    ("Pod", "metadata", "ownerReferences"),
    ("Pod", "metadata", "annotations", c.ANN_PATTERN),
    ("Pod", "metadata", "annotations", c.ANN_MIN_VALUE),
    ("Pod", "spec", "containers"),
    ("Pod", "spec", "affinity"),
    ("Pod", "spec", "containers", 0, "resources", "requests", c.RESOURCE),
    ("Pod", "spec", "containers", 0, "resources", "requests", "cpu"),
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(_PATHS), _VALUES, st.booleans())
async def test_any_spoilt_argument_is_answered_with_a_verdict_or_a_400(
    path: tuple[str | int, ...], value: Any, planned: bool
) -> None:
    scheduler = scheduling()
    made = pod("p", 2, annotations=SENSITIVE)
    if planned:
        made["metadata"] |= {part: worker("j", 0)["metadata"][part] for part in ("labels", "ownerReferences")}
        made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: "GPU-n0-0,GPU-n0-1"}
    scheduler.leader.world.add_pod(made)
    body = scheduler.args("p")
    at: Any = body
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    for verb in ("filter", "prioritize"):
        answer = await scheduler.post(verb, body)
        assert answer.status_code in (200, 400)
        assert answer.status_code == 200 or answer.json()["Error"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["filter", "prioritize", "bind"]), st.data())
async def test_a_recorded_body_with_bytes_changed_is_answered_with_a_verdict_or_a_400(verb: str, data: st.DataObject) -> None:
    body = bytearray(json.dumps(json.loads((RECORDED / f"{verb}.json").read_bytes())).encode())
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), min_size=1, max_size=4)):
        body[at] = byte
    scheduler = scheduling()
    answer = await scheduler.post(verb, bytes(body))
    assert answer.status_code in (200, 400)
    answer.json()
