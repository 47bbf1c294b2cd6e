"""The answers to probes and to Prometheus."""

import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from kompakt_device_plugin.health import STALE_SECONDS, Heartbeat, serve


@pytest.fixture
def server():
    state: dict[str, Any] = {"alive": True, "waits_for": "its turn"}
    registry = CollectorRegistry()
    Gauge("kompakt_y", "some gauge", registry=registry).set(0.5)
    one = serve(0, lambda: state["alive"], lambda: state["waits_for"], registry)
    yield f"http://127.0.0.1:{one.server_port}", state
    one.shutdown()
    one.server_close()


def ask(url):
    """Status and text."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.parametrize(
    ("page", "changes", "status", "says"),
    [
        ("healthz", {}, 200, ""),
        ("healthz", {"alive": False}, 503, ""),
        ("readyz", {}, 503, "waits for its turn"),
        ("readyz", {"waits_for": ""}, 200, ""),
        ("nothing", {}, 404, "/healthz, /readyz, /metrics"),
        ("metrics", {}, 200, "# HELP kompakt_y some gauge\n# TYPE kompakt_y gauge\nkompakt_y 0.5\n"),
    ],
)
def test_what_is_answered(server, page, changes, status, says):
    url, state = server
    state.update(changes)
    found, text = ask(f"{url}/{page}")
    assert found == status
    assert text == says if page == "metrics" else says in text


def test_a_thread_that_went_round_lately_is_alive():
    now = [0.0]
    beat = Heartbeat(lambda: now[0])
    now[0] = STALE_SECONDS - 1
    assert beat.alive
    now[0] = STALE_SECONDS + 1
    assert not beat.alive
    beat.beat()
    assert beat.alive
