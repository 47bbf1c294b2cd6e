"""The reader over this machine's true driver; the same checks as `make test-gpu`, which stores their report."""

import pytest

pynvml = pytest.importorskip("pynvml")


def test_the_reader_sees_what_nvidia_smi_sees_and_what_the_shim_repeats():
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"no NVIDIA driver answers: {error}")
    pynvml.nvmlShutdown()
    from tests.gpu.nvml_report import examine

    assert set(examine()["checks"].values()) == {"holds"}
