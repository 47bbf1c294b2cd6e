"""The command line: what is wrong is refused with a sentence."""

import signal
import subprocess
import sys

import pytest

from kompakt_device_plugin.main import main, options_of


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--node-name=n", "--own-gpus=gpu-0"], "is no UUID of a GPU"),
        (["--node-name=n", "--own-gpus=GPU-1,MIG-2"], "hands out whole GPUs only"),
        ([], "the node has no name"),
        (["--node-name=n", "--health-port=70000"], "is no port"),
        (["--node-name=n", "--kubelet-dir=/nonexistent"], "must name kubelet's folder"),
        (["--node-name=n", "--source=magic"], "invalid choice"),
    ],
)
def test_a_wrong_command_line_is_refused_with_a_sentence(arguments, says, kubelet_dir, capsys, monkeypatch):
    monkeypatch.delenv("NODE_NAME", raising=False)
    (kubelet_dir / "device-plugins").mkdir()
    with pytest.raises(SystemExit) as ended:
        options_of([f"--kubelet-dir={kubelet_dir}", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "{"])
def test_without_a_usable_kubeconfig_the_process_ends_with_a_sentence(kubelet, tmp_path, monkeypatch, content):
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr("sys.argv", f"x --node-name=n --kubelet-dir={kubelet.folder} --kubeconfig={file}".split())
    with pytest.raises(SystemExit, match=f"cannot reach the API server.*--kubeconfig {file}"):
        main()


def test_the_drivers_constants_are_loaded_only_where_there_is_a_driver():
    """They would take megabytes of the process's memory."""
    code = "import sys, kompakt_device_plugin.main; print('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# A process whose driver hangs in every way: a call of kubelet's, the wait for news, and letting go of it.
HANGING = """
import sys, threading
from kompakt_client.errors import Unreachable
from kompakt_device_plugin import main as module
from kompakt_device_plugin.deadline_executor import DeadlineExecutor
from kompakt_device_plugin.source import Quiet

class Hanging(Quiet):
    name = "nvml"

    def wait(self, timeout):
        DeadlineExecutor("driver").begin(threading.Event().wait)
        print("listens", flush=True)
        threading.Event().wait()

    def close(self):
        threading.Event().wait()

class NoApi:
    def exchange(self, request):
        raise Unreachable("refused")

module.connect = lambda *arguments: NoApi()
module.open_source = lambda *arguments, **more: Hanging()
module.main()
"""


def test_a_process_whose_driver_hangs_ends_when_it_is_told_to(kubelet):
    command = [sys.executable, "-c", HANGING, "--node-name=n", "--health-port=0", f"--kubelet-dir={kubelet.folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "listens\n"
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "the driver hangs and is left as it is" in said


@pytest.mark.parametrize(("allocation", "folder"), [("device-plugin", "device-plugins"), ("report", "pod-resources")])
def test_of_kubelets_folder_that_part_has_to_be_there_that_is_needed(allocation, folder, tmp_path, capsys):
    told = ["--node-name=n", f"--kubelet-dir={tmp_path}", f"--allocation={allocation}"]
    with pytest.raises(SystemExit):
        options_of(told)
    assert f"{tmp_path / folder} is no folder" in capsys.readouterr().err
    (tmp_path / folder).mkdir()
    assert options_of(told).allocation == allocation
