"""What containers are given: order, CDI devices, device files."""

import pytest
import yaml

from kompakt_core.errors import InvalidInput
from kompakt_device_plugin.cdi import Cdi, CdiSpecifications, NodeCdi
from kompakt_device_plugin.handover import RealGpus, environment_only
from tests.support.device_plugin.specifications import spec

GPUS = ("GPU-c", "GPU-a")  # in the order of their pattern; by index it is the other way round
PLACE = {"GPU-a": 0, "GPU-b": 1, "GPU-c": 2}
MINOR = {"GPU-a": 6, "GPU-b": 8, "GPU-c": 7}  # the driver numbers files in another order than GPUs

ALL = ("0", "1", "GPU-a", "GPU-b", "GPU-c", "all")


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
    def make(choice=Cdi.NEVER, runtime="containerd://2.1.0"):
        cdi = NodeCdi(choice, CdiSpecifications([tmp_path / "cdi"]))
        return RealGpus(minor, PLACE.__getitem__, lambda: cdi(runtime), dev)(GPUS)

    return make


def test_cuda_numbers_gpus_in_the_order_of_their_pattern(answer):
    assert dict(answer().envs) == {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-a", "NVIDIA_VISIBLE_DEVICES": "GPU-c,GPU-a"}
    assert dict(environment_only(GPUS).envs) == dict(answer().envs)


def test_device_files_come_in_order_of_index_and_only_those_that_there_are(answer):
    files = [(one.host_path, one.container_path, one.permissions) for one in answer().devices]
    assert files == [(path, path, "rw") for path in ("/dev/nvidia6", "/dev/nvidia7", "/dev/nvidiactl", "/dev/nvidia-uvm")]


def test_a_gpu_whose_device_file_is_unknown_is_not_handed_over_without_it(answer, monkeypatch):
    monkeypatch.delitem(MINOR, "GPU-a")
    with pytest.raises(InvalidInput, match="nobody knows GPU-a"):
        answer()


@pytest.fixture
def specified(tmp_path):
    """Writes a specification that names these."""
    (tmp_path / "cdi").mkdir()

    def write(*names, file="nvidia.yaml"):
        (tmp_path / "cdi" / file).write_text(yaml.safe_dump(spec(*names)))

    return write


def test_cdi_devices_come_in_order_of_index_without_files_and_the_variable_says_nothing(answer, specified):
    specified(*ALL)
    found = answer(Cdi.AUTO)
    assert [one.name for one in found.cdi_devices] == ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-c"]
    assert dict(found.envs) == {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-a", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert not found.devices


@pytest.mark.parametrize("names", [(), ("GPU-a",), ("0", "1", "all")], ids=["nothing", "one of two", "no UUIDs"])
def test_a_gpu_that_no_specification_names_is_not_handed_over_by_files_instead(answer, specified, names):
    specified(*names)
    with pytest.raises(InvalidInput, match=r"no CDI specification of this node names .*GPU-c: write specifications by UUID"):
        answer(Cdi.AUTO)


@pytest.mark.parametrize(
    ("runtime", "words"), [("containerd://1.7.27", "'containerd://1.7.27' is not known"), ("", "not say yet")]
)
def test_under_a_runtime_that_is_not_known_to_take_cdi_nothing_is_handed_over_unless_told_so(answer, specified, runtime, words):
    specified(*ALL)
    with pytest.raises(InvalidInput, match=words):
        answer(Cdi.AUTO, runtime)
    assert len(answer(Cdi.ALWAYS, runtime).cdi_devices) == 2
    assert not answer(Cdi.NEVER, runtime).cdi_devices
