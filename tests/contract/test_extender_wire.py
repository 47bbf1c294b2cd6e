"""What a real kube-scheduler sends is read, and what we answer has the keys and types its Go structs want."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Reason, Rejection
from kompakt_extender import wire
from kompakt_extender.answers import Answers
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.rejections import FilterVerdict
from kompakt_extender.verbs import verbs_app

DATA = Path(__file__).parent / "data" / "extender"


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_recorded_arguments_are_read(verb: str) -> None:
    args = wire.decode_args((DATA / f"{verb}.json").read_bytes())
    assert args.pod.metadata.name == "e1"
    assert args.pod.metadata.uid == "bc0e6f85-585e-4f09-9aa3-b6798371e3d4"
    assert args.pod.spec.containers[0].resources is not None
    assert args.pod.spec.containers[0].resources.limits == {"kompakt.dev/gpu": "2"}
    assert args.names == ["fake-0000", "fake-0001", "fake-0002", "node-0"]


def test_recorded_binding_is_read() -> None:
    args = wire.decode_binding((DATA / "bind.json").read_bytes())
    assert (args.namespace, args.name, args.node) == ("default", "e1", "fake-0001")
    assert args.uid == "bc0e6f85-585e-4f09-9aa3-b6798371e3d4"


class FixedDecider:
    """filter and prioritize over an empty ledger: no node is known yet."""

    def __init__(self) -> None:
        self._answers = Answers(GpuLedger(), Jobs())

    async def filter(self, args: wire.ExtenderArgs) -> FilterVerdict:
        return self._answers.filter(args)

    def prioritize(self, args: wire.ExtenderArgs) -> bytes:
        return self._answers.prioritize(args)

    async def bind(self, args: wire.BindingArgs) -> Rejection:
        return Rejection(Reason.INVALID_REQUEST, detail=f"{args.node} is not known")


def post(verb: str, body: bytes) -> httpx.Response:
    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(verbs_app(FixedDecider(), ExtenderMetrics()))
        async with httpx.AsyncClient(transport=transport, base_url="http://extender") as client:
            return await client.post(f"/{verb}", content=body, headers={"Content-Type": "application/json"})

    return asyncio.run(call())


def test_recorded_bodies_are_answered_over_http_as_kube_scheduler_decodes_them() -> None:
    nodes = ["fake-0000", "fake-0001", "fake-0002", "node-0"]
    filtered = post("filter", (DATA / "filter.json").read_bytes())
    assert filtered.status_code == 200
    assert filtered.json()["NodeNames"] == []
    assert sorted(filtered.json()["FailedNodes"]) == nodes
    scored = post("prioritize", (DATA / "prioritize.json").read_bytes())
    assert scored.json() == []  # no node is worth more than 0
    assert post("bind", (DATA / "bind.json").read_bytes()).json() == {"Error": "fake-0001 is not known"}
    assert post("filter", b"{").status_code == 400


def test_answers_carry_the_go_names() -> None:
    result = wire.FilterResult(["a"], {"b": "full"}, {"c": "never"})
    assert json.loads(wire.encode(result)) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "full"},
        "FailedAndUnresolvableNodes": {"c": "never"},
        "Error": "",
    }
    assert json.loads(wire.encode(wire.BindingResult("no"))) == {"Error": "no"}


@pytest.mark.parametrize("form", ["names", "nodes"])
def test_both_forms_of_kube_scheduler_are_answered_in_kind(form: str) -> None:
    body = {verb: (DATA / "recorded" / f"{verb}-{form}.json").read_bytes() for verb in ("filter", "prioritize", "bind")}
    sent = json.loads(body["filter"])
    assert [key for key in ("Nodes", "NodeNames") if sent[key] is None] == ["Nodes" if form == "names" else "NodeNames"]
    filtered = post("filter", body["filter"])
    assert filtered.status_code == 200
    assert sorted(filtered.json()["FailedNodes"]) == ["sim-0", "sim-1"]
    assert (filtered.json()["NodeNames"], filtered.json().get("Nodes")) == (
        ([], None) if form == "names" else (None, {"items": []})
    )
    assert post("prioritize", body["prioritize"]).json() == []
    assert post("bind", body["bind"]).json()["Error"].endswith("is not known")


def test_a_null_in_place_of_any_field_of_a_recorded_pod_is_no_error() -> None:
    """Go writes null for what is empty; which fields that are changes from version to version."""

    def spoilt(at: Any) -> Iterator[None]:
        """Every optional field in turn is null, and as it was again afterwards."""
        for key in list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ():
            yield from spoilt(at[key])
            if isinstance(at, dict) and isinstance(at[key], (dict, list)):
                before, at[key] = at[key], None
                yield
                at[key] = before

    body = json.loads((DATA / "recorded" / "filter-names.json").read_bytes())
    count = 0
    for _ in spoilt(body["Pod"]["spec"]):
        wire.decode_args(json.dumps(body).encode())
        count += 1
    assert count > 10


def test_whole_nodes_are_answered_with_whole_nodes() -> None:
    """Without nodeCacheCapable kube-scheduler reads Nodes.items and nothing else."""
    nodes = [{"metadata": {"name": name, "labels": {"a": "b"}}, "status": {"capacity": {"cpu": "4"}}} for name in ("x", "y")]
    args = wire.decode_args(
        json.dumps({"Pod": {"metadata": {}, "spec": {}}, "Nodes": {"items": nodes}, "NodeNames": None}).encode()
    )
    assert args.names == ["x", "y"]
    answer = json.loads(wire.encode_filtered(args, wire.FilterResult(["y"], {"x": "full"})))
    assert answer == {
        "Nodes": {"items": [nodes[1]]},
        "NodeNames": None,
        "FailedNodes": {"x": "full"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_a_request_without_nodes_in_either_form_says_what_would_be_right() -> None:
    body = {"Pod": {"metadata": {}, "spec": {}}, "Nodes": None, "NodeNames": None}
    with pytest.raises(InvalidInput, match="NodeNames, or a NodeList in Nodes"):
        wire.decode_args(json.dumps(body).encode())


def test_an_empty_binding_field_is_named() -> None:
    body = {"PodName": "p", "PodNamespace": "", "PodUID": "u", "Node": "n"}
    with pytest.raises(InvalidInput, match="PodNamespace"):
        wire.decode_binding(json.dumps(body).encode())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Pod", "NodeNames", "PodName", "PodUID", "metadata", "spec", "containers", "labels"]) | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(_JSON)
def test_any_json_is_read_or_refused_with_a_sentence(value: object) -> None:
    body = msgspec.json.encode(value)
    for decode in (wire.decode_args, wire.decode_binding):
        with contextlib.suppress(InvalidInput):
            decode(body)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_sentence(body: bytes) -> None:
    for decode in (wire.decode_args, wire.decode_binding):
        with pytest.raises(InvalidInput):
            decode(body)
