"""What containers are given: order, CDI devices, device files."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_device_plugin.handover import CDI_KIND, Cdi, RealGpus, cdi_devices, environment_only, takes_cdi

GPUS = ("GPU-c", "GPU-a")  # in the order of their pattern; by index it is the other way round
PLACE = {"GPU-a": 0, "GPU-b": 1, "GPU-c": 2}
MINOR = {"GPU-a": 6, "GPU-b": 8, "GPU-c": 7}  # the driver numbers files in another order than GPUs

ALL = ("0", "1", "GPU-a", "GPU-b", "GPU-c", "all")


def spec(*names, kind=CDI_KIND):
    return {"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": name, "containerEdits": {}} for name in names]}


@pytest.fixture
def dev(tmp_path):
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia6", "nvidia7", "nvidia8", "nvidiactl", "nvidia-uvm"):
        (folder / name).touch()
    return folder


def minor(gpu):
    if gpu not in MINOR:
        raise InvalidInput(f"nobody knows {gpu}")
    return MINOR[gpu]


@pytest.fixture
def answer(tmp_path, dev):
    def make(runtime="containerd://2.1.0", cdi=Cdi.AUTO):
        return RealGpus(minor, PLACE.__getitem__, lambda: runtime, cdi, [tmp_path / "cdi"], dev)(GPUS)

    return make


def test_cuda_numbers_gpus_in_the_order_of_their_pattern(answer):
    assert dict(answer().envs) == {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-a", "NVIDIA_VISIBLE_DEVICES": "GPU-c,GPU-a"}
    assert dict(environment_only(GPUS).envs) == dict(answer().envs)


def test_without_cdi_device_files_come_in_order_of_index_and_only_those_that_there_are(answer):
    files = [(one.host_path, one.container_path, one.permissions) for one in answer().devices]
    assert files == [(path, path, "rw") for path in ("/dev/nvidia6", "/dev/nvidia7", "/dev/nvidiactl", "/dev/nvidia-uvm")]


def test_a_gpu_whose_device_file_is_unknown_is_not_handed_over_without_it(answer, monkeypatch):
    monkeypatch.delitem(MINOR, "GPU-a")
    with pytest.raises(InvalidInput, match="nobody knows GPU-a"):
        answer()


@pytest.mark.parametrize(
    ("specified", "runtime", "cdi", "used"),
    [
        (ALL, "containerd://2.1.0", Cdi.AUTO, True),
        (ALL, "containerd://1.7.27", Cdi.AUTO, False),
        (ALL, "containerd://1.7.27", Cdi.ALWAYS, True),
        (ALL, "containerd://2.1.0", Cdi.NEVER, False),
        (ALL, "", Cdi.AUTO, False),
        (("GPU-a",), "containerd://2.1.0", Cdi.AUTO, False),
    ],
    ids=["which can", "which cannot", "as told", "unless told not to", "not known yet", "one GPU is not specified"],
)
def test_cdi_devices_come_instead_of_files_by_the_runtime(answer, tmp_path, specified, runtime, cdi, used):
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "nvidia.yaml").write_text(yaml.safe_dump(spec(*specified)))
    found = answer(runtime, cdi)
    assert [one.name for one in found.cdi_devices] == ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-c"] * used
    assert len(found.devices) == (0 if used else 4)


@pytest.mark.parametrize(
    ("runtime", "takes"),
    [
        ("containerd://2.0.0", True),
        ("containerd://v2.1.4-k3s1", True),
        ("containerd://1.6.20~ds1", False),
        ("cri-o://1.37.0", True),
        ("cri-o://1.22.5", False),
        ("docker://27.0.1", False),
        ("containerd://two", False),
    ],
)
def test_which_runtimes_take_cdi_devices(runtime, takes):
    assert takes_cdi(runtime) is takes


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b"devices: {a: b}", b"a: &a [*a]", b"kind: nvidia.com/gpu\ndevices: [3, {name: 4}]"]
)
def test_broken_specifications_are_passed_over(tmp_path, content):
    (tmp_path / "a.yaml").write_bytes(content)
    (tmp_path / "b.json").write_bytes(content)
    (tmp_path / "c.json").write_text(json.dumps(spec("GPU-b")))
    (tmp_path / "d.json").write_text(json.dumps(spec("GPU-x", kind="amd.com/gpu")))
    (tmp_path / "e.txt").write_text("nothing")
    (tmp_path / "f.yaml").mkdir()
    assert cdi_devices([tmp_path, tmp_path / "nowhere"]) == {"GPU-b": "nvidia.com/gpu=GPU-b"}


@given(st.text(max_size=40))
def test_any_word_for_a_runtime_is_judged(runtime):
    assert takes_cdi(runtime) in (True, False)
