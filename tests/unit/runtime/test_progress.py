"""The progress file of a training script and the page of metrics, over a real socket."""

import json
import math
import os
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.config import ConfigError, RuntimeConfig
from kompakt_runtime.figures import export, metrics, progress
from kompakt_runtime.figures.counted import Figures


def said(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "progress.json"
    path.write_text(text)
    return progress.read(str(path))


def test_the_file_is_read_and_what_is_wrong_in_it_is_left_out(tmp_path: Path) -> None:
    whole = {"step": 120, "total": 1000, "loss": 0.53, "samplesPerSecond": 812.4}
    assert said(tmp_path, json.dumps(whole)) == whole
    assert said(tmp_path, '{"step": 1, "total": "many", "loss": true, "samplesPerSecond": -1, "epoch": 3}') == {"step": 1}
    assert math.isnan(said(tmp_path, '{"step": 1, "loss": NaN}')["loss"])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"step": 1.5}', '{"step": -1}', '{"loss": 1}', "[" * 5000, " " * 9000])
def test_a_file_without_a_step_says_nothing(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, text) == {}
    assert progress.read(str(tmp_path / "none")) == progress.read(None) == {}


@given(st.binary(max_size=200))
def test_no_file_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    progress.page(progress.read(str(path)), {}, [])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RuntimeConfig, str]]:
    port = free_port()
    config = RuntimeConfig(state_dir=str(tmp_path), progress_file=str(tmp_path / "progress.json"), metrics_port=port)
    server = metrics.serve(config)
    assert server is not None
    yield config, f"http://127.0.0.1:{port}/metrics"
    server.shutdown()
    server.server_close()


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def test_the_page_follows_the_file_and_the_figures(served: tuple[RuntimeConfig, str], tmp_path: Path) -> None:
    config, url = served
    assert page(url) == ""
    Path(config.progress_file).write_text('{"step": 7, "loss": Infinity}')
    figures = Figures(forwards=2, plain_bytes=100, saved_bytes=30, compressed=1, raw_bytes=Counter(Small=7))
    entry = SimpleNamespace(layer="a", held_bytes=40, nbytes=90, share=None)
    figures.holding.weigh(entry)
    export.write_report(str(tmp_path), config.attempt, export.report(figures))
    lines = [line for line in page(url).splitlines() if not line.startswith("#")]
    assert lines == [
        "kompakt_progress_step 7",
        "kompakt_progress_loss +Inf",
        "kompakt_activation_plain_bytes_total 100",
        "kompakt_activation_saved_bytes_total 30",
        "kompakt_activation_peak_bytes 40",
        "kompakt_activation_step_peak_bytes 40",
        "kompakt_activation_plain_peak_bytes 90",
        'kompakt_activation_raw_bytes_total{reason="Small"} 7',
    ]
    (summary,) = (line for line in page(url).splitlines() if line.startswith(export.PAGE_MARK))
    assert json.loads(summary.removeprefix(export.PAGE_MARK))["ratio"] == "3.33"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page(url.replace("metrics", "else"))


def test_where_the_port_is_taken_or_another_process_is_first_nothing_is_served(
    served: tuple[RuntimeConfig, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, _ = served
    assert metrics.serve(config) is None, "taken"
    assert metrics.serve(RuntimeConfig()) is None, "no port asked for"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert metrics.serve(RuntimeConfig(metrics_port=1)) is None


def test_a_forked_child_does_not_keep_the_port(tmp_path: Path) -> None:
    port = free_port()
    server = metrics.serve(RuntimeConfig(metrics_port=port))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # waits until the parent has ended its server
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    server.shutdown()
    server.server_close()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_a_port_that_is_none_is_refused() -> None:
    assert RuntimeConfig.from_env({"KOMPAKT_METRICS_PORT": "9402"}).metrics_port == 9402
    assert RuntimeConfig.from_env({"KOMPAKT_METRICS_PORT": "0"}).metrics_port is None
    with pytest.raises(ConfigError, match="KOMPAKT_METRICS_PORT is '70000'"):
        RuntimeConfig.from_env({"KOMPAKT_METRICS_PORT": "70000"})
