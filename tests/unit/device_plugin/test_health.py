"""The answers to probes and to Prometheus."""

import urllib.error
import urllib.request

import pytest

from kompakt_device_plugin.health import STALE_SECONDS, Beat, exposition, serve


@pytest.fixture
def server():
    state = {"alive": True}
    one = serve(0, lambda: state["alive"], lambda: {"kompakt_x_total": 3, "kompakt_y": 0.5})
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
    assert text == exposition({"kompakt_x_total": 3, "kompakt_y": 0.5})
    assert text == "# TYPE kompakt_x_total counter\nkompakt_x_total 3\n# TYPE kompakt_y gauge\nkompakt_y 0.5\n"


def test_a_thread_that_went_round_lately_is_alive():
    now = [0.0]
    beat = Beat(lambda: now[0])
    now[0] = STALE_SECONDS - 1
    assert beat.alive
    now[0] = STALE_SECONDS + 1
    assert not beat.alive
    beat.beat()
    assert beat.alive
