"""The answers to probes and to Prometheus."""

import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from kompakt_client.reviews import Reviews
from kompakt_device_plugin.health import STALE_SECONDS, Heartbeat, serve
from tests.support.client.reviewing import Reviewing


@contextmanager
def served(reviews=None):
    state: dict[str, Any] = {"alive": True, "waits_for": "its turn"}
    registry = CollectorRegistry()
    Gauge("kompakt_y", "some gauge", registry=registry).set(0.5)
    one = serve(0, lambda: state["alive"], lambda: state["waits_for"], registry, reviews)
    yield f"http://127.0.0.1:{one.server_port}", state
    one.shutdown()
    one.server_close()


@pytest.fixture
def server():
    with served() as found:
        yield found


def ask(url, headers=None):
    """Status and text."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {})) as answer:
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


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 401), ({"Kompakt-Token": "forged"}, 401), ({"Authorization": "Bearer token-of-admin"}, 200)]
)
def test_figures_are_for_who_may_read_them(headers, status):
    with served(Reviews(Reviewing())) as (url, _):
        found, text = ask(f"{url}/metrics", headers)
        assert found == status
        assert ("kompakt_y" in text) is (status == 200)
        assert ask(f"{url}/healthz")[0] == 200, "kubelet has no token"


def test_figures_are_nobodys_while_the_api_server_does_not_say():
    with served(Reviews(Reviewing(down=True))) as (url, _):
        assert ask(f"{url}/metrics", {"Kompakt-Token": "token-of-admin"})[0] == 503


def test_a_thread_that_went_round_lately_is_alive():
    now = [0.0]
    beat = Heartbeat(lambda: now[0])
    now[0] = STALE_SECONDS - 1
    assert beat.alive
    now[0] = STALE_SECONDS + 1
    assert not beat.alive
    beat.beat()
    assert beat.alive
