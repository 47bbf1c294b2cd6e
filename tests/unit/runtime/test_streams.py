"""Streams and devices as a machine without a GPU can ask them; tests/gpu asks a real one."""

import pytest
import torch

from kompakt_runtime.compat import streams

GPU = torch.device("cuda", 1)


def test_a_processor_has_no_streams():
    assert streams.stream_on(torch.device("cpu")) is None
    with streams.launching_on(torch.device("cpu")):
        pass


def test_the_devices_own_stream_is_asked_for(monkeypatch):
    monkeypatch.setattr(streams, "_RAW", lambda index: 70 + index)
    assert streams.stream_on(GPU) == 71


@pytest.mark.parametrize(("current", "changed"), [(1, []), (0, [GPU])])
def test_the_current_device_is_changed_only_if_it_is_another(monkeypatch, current, changed):
    asked: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device", asked.append)
    streams.launching_on(GPU)
    assert asked == changed
