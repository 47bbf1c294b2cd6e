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


def test_healthz_turns_with_the_threads(server):
    url, state = server
    assert urllib.request.urlopen(f"{url}/healthz").status == 200
    state["alive"] = False
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(f"{url}/healthz")
    assert answer.value.code == 503
    answer.value.close()


def test_metrics_are_in_prometheus_text_form(server):
    url, _ = server
    text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    assert text == "# HELP kompakt_y some gauge\n# TYPE kompakt_y gauge\nkompakt_y 0.5\n"


def test_readyz_says_what_is_waited_for_and_unknown_pages_what_there_is(server):
    url, state = server
    for page, code, words in (("readyz", 503, b"waits for its turn"), ("nothing", 404, b"/healthz, /readyz, /metrics")):
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(f"{url}/{page}")
        assert (answer.value.code, words in answer.value.read()) == (code, True)
        answer.value.close()
    state["waits_for"] = ""
    assert urllib.request.urlopen(f"{url}/readyz").status == 200


def test_a_thread_that_went_round_lately_is_alive():
    now = [0.0]
    beat = Heartbeat(lambda: now[0])
    now[0] = STALE_SECONDS - 1
    assert beat.alive
    now[0] = STALE_SECONDS + 1
    assert not beat.alive
    beat.beat()
    assert beat.alive
