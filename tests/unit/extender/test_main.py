"""The command line, and the connections that kube-scheduler keeps."""

import asyncio
import socket
from pathlib import Path

import httpx
import pytest
import uvloop

from kompakt_client.transport import connect
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_extender.command_line import parse
from kompakt_extender.explain.queries import Queries
from kompakt_extender.health import health_app
from kompakt_extender.main import KEEP_ALIVE_SECONDS, listen
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.verbs import Inactive
from tests.support.client.reviewing import Reviewing
from tests.support.extender.guard import guarded_by
from tests.support.extender.served import served


def test_defaults_are_those_of_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "gpu-jobs")
    settings = parse([])
    assert (settings.namespace, settings.identity) == ("gpu-jobs", socket.gethostname())
    assert (settings.verbs_port, settings.health_port) == (8901, 8902)
    assert (settings.rack_label, settings.block_label) == ("kompakt.dev/rack", "kompakt.dev/block")
    assert settings.devices is None


def test_whose_devices_pods_get_by_claims() -> None:
    settings = parse(["--device-class=gpus", "--dra-driver=gpu.example.com", "--device-key=id"])
    assert settings.devices == ClaimedDevices("gpus", "gpu.example.com", "id")


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--verbs-port", "x", "--verbs-port"),
        ("--verbs-port", "0", "--verbs-port"),
        ("--health-port", "70000", "--health-port"),
        ("--bogus", "1", "--bogus"),
        ("--consolidation", "dally", "no-wait"),
        ("--wait-seconds", "600,1800", "600,1800,3600"),
        ("--wait-seconds", "600,300,3600", "600,1800,3600"),
        ("--wait-seconds", "1,2,999999999", "600,1800,3600"),
        ("--level-factors", "rack=1", "machine=0.05"),
        ("--overtaken-at-most", "-1", "whole number"),
        ("--reserved-seconds", "0", "from 1 to"),
        ("--device-class", "gpu.nvidia.com", "--dra-driver belong together"),
        ("--dra-driver", "GPU", "such as gpu.nvidia.com"),
        ("--device-key", "gpu.nvidia.com/uuid", "without a domain"),
    ],
)
def test_a_wrong_flag_ends_with_what_would_be_right(flag: str, value: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([flag, value])
    assert says in capsys.readouterr().err


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(InvalidInput, match=str(taken.getsockname()[1])):
        listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize("content", [None, "", "not: [yaml", "apiVersion: v1\nkind: Config\n"])
def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput, match="kubeconfig"):
        connect(str(path))


def test_outside_a_cluster_without_a_kubeconfig_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidInput, match="not inside a cluster"):
        connect(None)


class Well:
    trouble = stuck = unfit = ""
    unconfirmed_binds = gated_pods = 0

    def queries(self) -> Queries:
        raise Inactive("nobody asks")

    def states(self) -> dict[NodeName, NodeState]:
        return {}


async def test_answers_are_sent_at_once_and_idle_connections_outlive_those_of_go() -> None:
    """Go's client closes idle connections after 90 s; with Nagle's algorithm each answer costs 40 ms."""
    assert KEEP_ALIVE_SECONDS > 90
    async with (
        served(health_app(Well(), ExtenderMetrics(), guarded_by(Reviewing()))) as (ours, port),
        httpx.AsyncClient() as client,
    ):
        assert (await client.get(f"http://127.0.0.1:{port}/healthz")).text == "ok"
        (connection,) = ours.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_an_answer_leaves_in_one_segment() -> None:
    """On uvloop, as main runs it: head and body are written apart, and uvloop sends together what one turn of the loop writes."""
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

    def ask(port: int) -> int:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            whole = 0
            for _ in range(20):
                connection.sendall(request)
                whole += connection.recv(65536).endswith(b"\r\n\r\nok")
            return whole

    async def story() -> None:
        async with served(health_app(Well(), ExtenderMetrics(), guarded_by(Reviewing()))) as (_, port):
            assert await asyncio.to_thread(ask, port) == 20

    uvloop.run(story())
