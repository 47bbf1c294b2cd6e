"""`make test-gpu`, from the first question to the stored report, on machines that the shim stands for.

`nvidia-smi` is a script that prints what it would print there; a second shim repeats what the first one was asked.
"""

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pynvml
import pytest

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.machines import known_machine
from tests.gpu import nvml_report
from tests.gpu.nvml_report import examine, store
from tests.support.nvml_shim.described import Described
from tests.support.nvml_shim.machine import MACHINES, describe
from tests.support.nvml_shim.shim import OPTIONS, SOURCE, header_folder

ROOT = Path(__file__).parents[3]
GPUS, QUIET = "the GPUs are those of nvidia-smi", "nothing happens to idle GPUs within a second"
LINKS, AGAIN = "the links are those of nvidia-smi topo -m", "the shim's answers make the same graph"


def printed(described, name, size):
    """What `topo -m` prints of the first GPUs of a machine; the real one underlines its header."""
    rows = [line.split("\t") for line in known_machine(name).text.partition("\n\n")[0].splitlines()]
    if size < known_machine(name).gpus:
        rows = [row[: size + 1] for row in rows[: size + 1]]
    head, *rows = rows
    return "\n".join(["\t\x1b[4m" + "\t".join(head[1:]) + "\x1b[0m", *("\t".join(row) for row in rows)]) + "\n\nLegend:\n"


def first_gpus(name, size):
    """A container that sees only some GPUs of a machine."""
    whole = describe(name)
    few = {key: link for key, link in whole.links.items() if key[0] < size}
    fabrics = {i: fabric for i, fabric in whole.fabrics.items() if i < size}
    pairs = {pair: whole.pairs[pair] for pair in combinations(range(size), 2)}
    return Described(whole.driver, whole.gpus[:size], few, pairs, fabrics)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(nvml_report, "IDLE_SECONDS", 0.01)


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts an nvidia-smi first on the PATH."""

    def put(table, matrix):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "table").write_text(table)
        (folder / "matrix").write_text(matrix)
        script = folder / "nvidia-smi"
        script.write_text(
            f'#!/bin/sh\ncase "$1" in topo) cat {folder}/matrix;; --query-gpu=*) cat {folder}/table;; *) exit 2;; esac\n'
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return put


@pytest.fixture
def on(shim, smi):
    """Stands on the first GPUs of a machine, perhaps changed; answers the report. nvidia-smi may tell of another machine."""

    def examined(name, size=None, change=lambda described: None, *, shown="", table=lambda text: text):
        size = size or len(describe(name).gpus)
        described = first_gpus(name, size)
        smi(table(table_of(described)), printed(described, shown or name, size))
        change(described)
        shim.describe(described)
        return examine(shim.path)

    return examined


def table_of(described):
    rows = [(gpu["uuid"], gpu["bus"], gpu["name"], str((gpu["memory"] >> 20) - 300)) for gpu in described.gpus]
    return "".join(", ".join(row) + "\n" for row in rows)


@pytest.mark.parametrize("name", MACHINES)
def test_on_a_machine_that_is_as_it_should_be_every_check_holds(on, name):
    assert on(name)["checks"] == dict.fromkeys((GPUS, QUIET, LINKS, AGAIN), "holds")


@pytest.mark.parametrize(
    ("name", "size"), [("hgx-h100-8", 1), ("hgx-h100-8", 2), ("dgx-a100-8", 2), ("dgx2-16xv100", 3), ("h800-8", 2)]
)
def test_in_a_container_that_sees_few_gpus_behind_switches_too(on, name, size):
    """Two GPUs with NV18 between them may be joined straight or by a switch: `topo -m` does not tell, the driver does."""
    report = on(name, size)
    linked = size > 1  # one GPU has no links to compare
    assert all(link["kind"] == "NVSwitch" for link in report["graph"]["links"])
    assert bool(report["graph"]["links"]) == linked
    assert report["checks"] == dict.fromkeys((GPUS, QUIET, *[LINKS] * linked, AGAIN), "holds")


def test_an_error_about_one_question_of_a_pair_is_repeated_for_that_one_alone(on):
    """Nobody knows what every driver answers to capabilities that this GPU lacks."""

    def change(described):
        described.pairs[0, 1]["p2p"] = f"0,0,0,-{pynvml.NVML_ERROR_NOT_SUPPORTED},-{pynvml.NVML_ERROR_INVALID_ARGUMENT}"
        described.pairs[0, 2]["level"] = -pynvml.NVML_ERROR_NOT_SUPPORTED

    report = on("dgx-a100-8", None, change)
    assert report["checks"][AGAIN] == "holds"
    assert "p2p=0,0,0,-3,-2\n" in report["recording"]
    assert {link["peerAccess"] for link in report["graph"]["links"]} == {"OK"}


def test_what_nvidia_smi_says_otherwise_is_named(on):
    checks = on("dgx1-v100", shown="dgx1-p100", table=lambda text: text.replace("V100", "P100"))["checks"]
    assert "Tesla P100-SXM2-16GB" in checks[GPUS]
    assert "'NV2'" in checks[LINKS]
    assert "NV1" in checks[LINKS]
    assert checks[AGAIN] == "holds"


def test_what_happens_meanwhile_is_named(on, shim, monkeypatch):
    monkeypatch.setattr(nvml_report, "recording", lambda: shim.event(1, pynvml.nvmlEventTypeXidCriticalError, 79) or "")
    assert "reported XID 79" in on("l40s-4")["checks"][QUIET]


def test_memory_that_nvidia_smi_does_not_tell_is_none(on):
    untold = ("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
    report = on(
        "gb200-tray-4",
        change=lambda described: described.fail(*untold),
        table=lambda text: "".join(f"{line.rpartition(', ')[0]}, [N/A]\n" for line in text.splitlines()),
    )
    assert set(report["checks"].values()) == {"holds"}


def test_without_nvidia_smi_or_a_compiler_the_rest_is_found_and_stored(shim, monkeypatch, tmp_path):
    shim.describe(describe("hgx-h100-8"))
    monkeypatch.setenv("PATH", str(tmp_path))
    report = examine(shim.path)
    assert "cannot be checked: [Errno 2]" in report["checks"][GPUS]
    assert "nvidia-smi" in report["checks"][GPUS]
    assert "gcc" in report["checks"][AGAIN]
    stored = json.loads(store(report, tmp_path / "out").read_text())
    assert (tmp_path / "out/nvml-8xH100-80GB-HBM3.json").exists()
    assert len(stored["graph"]["links"]) == 28
    assert stored["recording"].startswith("driver 550.90.07\n")


def test_a_gpu_that_does_not_answer_leaves_the_other_checks_their_say(on, capsys):
    report = on("dgx-a100-8", None, lambda described: described.lose(3))
    assert report["checks"][AGAIN] == "the driver's answers could not be recorded"
    assert report["checks"][LINKS].startswith("[")  # nothing is known of its links
    assert "GPU is lost" in capsys.readouterr().err


def test_without_a_driver_there_is_nothing_to_examine(tmp_path):
    with pytest.raises(InvalidInput, match="cannot load NVML"):
        examine(tmp_path / "libnvidia-ml.so.1")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wrong", [False, True])
def test_the_command_stores_its_report_and_tells_by_its_code_whether_all_holds(shim, smi, tmp_path, wrong):
    described = describe("l40s-4")
    smi(table_of(described), printed(described, "rtx8000-4" if wrong else "l40s-4", 4))
    (tmp_path / "machine").write_text(described.text())
    command = [sys.executable, "-m", "tests.gpu.nvml_report", str(tmp_path / "out"), "--library", str(shim.path)]
    environment = {**os.environ, "KOMPAKT_NVML_MACHINE": str(tmp_path / "machine")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    (stored,) = (tmp_path / "out").glob("*.json")
    assert (stored.name, done.returncode) == ("nvml-4xL40S.json", int(wrong)), done.stderr
    assert f"{AGAIN}: holds" in done.stdout
    assert ("a check does not hold" in done.stderr) == wrong


def test_the_shim_compiles_without_a_warning(shim, tmp_path):
    command = ["gcc", *OPTIONS, "-Werror", f"-I{header_folder()}", "-c", str(SOURCE), "-o", str(tmp_path / "shim.o")]
    assert subprocess.run(command, check=False).returncode == 0
