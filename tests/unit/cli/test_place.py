"""`kompakt place` for programs: keys, exit codes, options."""

import json
import os
import threading
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from kompakt_cli import main
from kompakt_core.errors import InvalidInput
from kompakt_core.topology.machines import MACHINES

ROOT = Path(__file__).resolve().parents[3]
KEYS = ["gpus", "order", "value", "ideal", "preserved", "policy", "rejection", "measure", "bound"]


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main.application(), ["place", *words], input=stdin)


def placed(*words: str) -> dict[str, object]:
    result = run("-o", "json", *words)
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)
    assert list(found) == KEYS
    return found


def test_the_document_names_set_order_value_ideal_and_what_stays_behind() -> None:
    found = placed("--machine", "a100-pcie-8-bridge-pairs", "--free", "0,2,3,5", "--gpus", "2")
    assert found == {
        "gpus": [0, 2],
        "order": [0, 2],
        "value": 309_372,
        "ideal": 309_372,
        "preserved": 0,
        "policy": "Preserve",
        "rejection": None,
        "measure": "Bottleneck",
        "bound": None,
    }


def test_yaml_says_the_same_as_json() -> None:
    words = ("--machine", "dgx1-v100", "--gpus", "3", "--policy", "best")
    assert yaml.safe_load(run("-o", "yaml", *words).output) == placed(*words)


@pytest.mark.parametrize(
    ("words", "reason", "message"),
    [
        (
            ("--machine", "dgx1-v100", "--gpus", "2", "--free", "3"),
            "NotEnoughFreeGPUs",
            "2 GPUs asked for, 1 free; ask for fewer GPUs",
        ),
        (
            ("--machine", "dgx1-v100", "--gpus", "9"),
            "MachineTooSmall",
            "9 GPUs asked for, but this machine has 8 in all; ask for fewer GPUs, or choose a larger machine",
        ),
        (("--machine", "dgx1-v100", "--gpus", "9", "--policy", "mapa2021"), "MachineTooSmall", "has 8 in all"),
        (("--machine", "l40s-4", "--gpus", "2", "--require-link", "nvlink"), "RequiredLinkMissing", "over NVLink alone"),
        (("--machine", "rtx8000-4", "--gpus", "2", "--same-numa-node"), "SameNUMANodeMissing", "share a known NUMA node"),
        (("--machine", "dgx1-v100", "--gpus", "2", "--edges", "0-1,1-2"), "TooFewGPUsForEdges", "name rank 2 but the pod has 2"),
        (("--machine", "mi300x-8-cpx", "--gpus", "2", "--edges", "0-1"), "TooManyGPUs", "custom edges are matched on at most 16"),
        (("--machine", "dgx2-16xv100", "--gpus", "2", "--policy", "mapa2021"), "TooManyGPUs", "MAPA's rules score every order"),
        (
            ("--machine", "dgx1-v100", "--gpus", "2", "--free", "0,7", "--policy", "mapa2021"),
            "BlockedByMAPA",
            "below taking none",
        ),
        (
            ("--machine", "h800-8-shared", "--gpus", "3", "--require-link", "nvlink"),
            "NoFreePartition",
            "no partition of 3 GPUs is free",
        ),
    ],
)
def test_a_rejection_is_data_a_sentence_and_exit_code_three(words: tuple[str, ...], reason: str, message: str) -> None:
    result = run(*words, "-o", "json")
    found = json.loads(result.output)
    assert (result.exit_code, found["rejection"]["reason"], found["gpus"], found["value"]) == (3, reason, [], 0)
    assert message in found["rejection"]["message"]
    shown = run(*words)
    assert shown.exit_code == 3
    assert message in shown.stderr


def test_own_edges_are_laid_over_the_fastest_links() -> None:
    found = placed("--machine", "a100-pcie-8-bridge-pairs", "--gpus", "3", "--edges", "0-1:9,1-2")
    assert found["order"] in ([0, 2, 1], [2, 0, 1], [0, 2, 3])
    assert found["value"] == 6_000


def test_sums_are_what_mapa_counts() -> None:
    words = ("--machine", "a100-pcie-8-bridge-pairs", "--gpus", "4")
    assert (placed(*words)["value"], placed(*words, "--measure", "sum")["value"]) == (6_000, 630_744)


def test_gpus_are_included_and_excluded() -> None:
    words = ("--machine", "dgx1-v100", "--gpus", "2")
    assert 6 in placed(*words, "--include", "6")["gpus"]  # type: ignore[operator]
    assert placed(*words, "--include", "6", "--exclude", "4,5,7")["gpus"] == [2, 6]


def test_a_matrix_file_is_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "matrix"
    path.write_text(MACHINES["dgx1-v100"].text)
    assert placed("--matrix", str(path), "--gpus", "2", "--free", "0,1,4,5")["gpus"] == [0, 4]


def test_the_picture_as_svg_shows_the_set() -> None:
    out = run("--machine", "dgx1-v100", "--gpus", "2", "-o", "svg").output
    assert out.startswith("<svg")
    assert "chosen" in out


def test_pods_of_a_partitioned_fabric_get_a_partition_by_module_id() -> None:
    found = placed("--machine", "h800-8-shared", "--gpus", "4")
    from kompakt_core.topology.machines import machine

    modules = {machine("h800-8-shared").gpus[i].module_id for i in found["gpus"]}  # type: ignore[attr-defined]
    assert modules in ({1, 2, 3, 4}, {5, 6, 7, 8})
    assert found["value"] == 212_496
    alone = placed("--machine", "h800-8-shared", "--gpus", "3")
    assert alone["value"] == 6_000, "no partition of three: NVLink does not join them"


def sentence(*words: str, stdin: str | bytes = "") -> str:
    result = CliRunner().invoke(main.application(), ["place", "--gpus", "2", *words], input=stdin)
    assert isinstance(result.exception, InvalidInput), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    "words",
    [
        ["--pattern", "clique"],
        ["--pattern", "none"],
        ["--edges", "0-1"],
        ["--include", "3"],
        ["--require-link", "nvlink"],
        ["--same-numa-node"],
    ],
)
def test_what_mapas_rules_would_pass_over_is_refused(words: list[str]) -> None:
    said = sentence("--machine", "dgx1-v100", "--policy", "mapa2021", *words)
    assert said.startswith("--policy mapa2021 knows the pattern Ring only")
    assert placed("--machine", "dgx1-v100", "--gpus", "2", "--policy", "mapa2021", "--exclude", "0")["gpus"] == [1, 2]


def test_a_pipe_is_a_file_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=[MACHINES["dgx1-v100"].text])
    writer.start()
    assert placed("--matrix", str(pipe), "--gpus", "2", "--free", "0,1,4,5")["gpus"] == [0, 4]
    writer.join()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"GPU0\xff")
    (tmp_path / "long").write_text("#" * (1 << 21))
    assert (
        sentence("--matrix", str(tmp_path / "none.txt"))
        == f"{tmp_path}/none.txt: there is no such file, and unknown machine name"
    )
    assert sentence("--matrix", "box.yaml") == "box.yaml: there is no such file, and unknown machine name"
    assert sentence("--matrix", str(tmp_path)) == f"{tmp_path}: cannot be read (Is a directory)"
    assert sentence("--matrix", str(tmp_path / "bytes")).startswith(f"{tmp_path}/bytes: cannot be read as text ('utf-8' codec")
    assert sentence("--matrix", str(tmp_path / "long")).startswith(f"{tmp_path}/long: more than 1048576 bytes")
    assert sentence("--matrix", "-", stdin=b"GPU0\xff").startswith("standard input: cannot be read as text")
    assert sentence("--machine", "x" * 300).startswith("unknown machine 'xxx")


def test_the_pictures_before_and_after_are_what_is_drawn() -> None:
    machine = "a100-pcie-8-bridge-pairs"
    before = CliRunner().invoke(main.application(), ["topology", machine, "--held", "4-7", "-o", "svg"]).output
    after = run("--machine", machine, "--free", "0-3", "--gpus", "2", "--pattern", "ring", "-o", "svg").output
    for name, drawing in (("before", before), ("after", after)):
        assert (ROOT / f"docs/pictures/placement-{name}.svg").read_text() == drawing
