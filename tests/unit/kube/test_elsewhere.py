"""KOMPAKT_CLUSTER: which cluster is meant, what is missing for it, and what docker and kind would be told."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kompakt_core.contract import LABEL_MACHINE
from tools.kube import elsewhere
from tools.kube.elsewhere import KIND_BASE
from tools.kube.host import CannotRun
from tools.kube.images import PACKAGES, ROOT
from tools.kube.stack import MACHINES

DIGEST = "sha256:" + "d" * 64


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No word of the caller's environment counts; PATH is an empty folder."""
    for name in ("KOMPAKT_CLUSTER", "KOMPAKT_IMAGES", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def recorder(folder: Path, name: str, more: str = "") -> None:
    """A program that writes its words to the file `told`."""
    program(folder, name, f'echo "{name} $*" >> {folder}/told\n{more}')


def test_unset_means_here_and_other_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert elsewhere.chosen() == ""
    monkeypatch.setenv("KOMPAKT_CLUSTER", "minikube")
    with pytest.raises(CannotRun, match="right would be kind or kubeconfig"):
        elsewhere.chosen()


def test_what_is_missing_for_kind_is_named(monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    monkeypatch.setenv("KOMPAKT_CLUSTER", "kind")
    assert "not on PATH: docker, kind" in str(elsewhere.obstacle())
    program(clean, "docker", "echo cannot connect to the daemon >&2; exit 1")
    assert "not on PATH: kind." in str(elsewhere.obstacle())
    program(clean, "kind", "exit 0")
    assert "docker does not answer" in str(elsewhere.obstacle())
    assert "cannot connect to the daemon" in str(elsewhere.obstacle())
    program(clean, "docker", "exit 0")
    assert elsewhere.obstacle() is None


def test_without_a_kubeconfig_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KOMPAKT_CLUSTER", "kubeconfig")
    assert f"there is no file {tmp_path}/.kube/config" in str(elsewhere.obstacle())


def a_cluster(monkeypatch: pytest.MonkeyPatch, folder: Path, machines: dict[str, str]) -> None:
    """A kubeconfig, and a kubectl that answers nodes playing these machines."""
    items = [{"metadata": {"name": name, "labels": {LABEL_MACHINE: machine}}} for name, machine in machines.items()]
    (folder / "nodes.json").write_text(json.dumps({"items": items}))
    (folder / "config").touch()
    program(folder, "kubectl", f"printf '%s' \"$(<{folder}/nodes.json)\"")  # PATH is empty: no cat
    monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
    monkeypatch.setattr(elsewhere.binaries, "find", lambda name: folder / name)  # type: ignore[attr-defined]


def test_nodes_are_found_by_the_machine_that_they_play(monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    a_cluster(monkeypatch, clean, {"b": MACHINES[1], "a": MACHINES[0], "c": "hgx-h100-8"})
    assert elsewhere.reached().machines == ("a", "b")


def test_a_machine_that_no_node_plays_is_named_with_the_command_that_helps(monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    a_cluster(monkeypatch, clean, {"a": MACHINES[0]})
    with pytest.raises(CannotRun, match=f"kubectl label node NODE {LABEL_MACHINE}={MACHINES[1]}"):
        elsewhere.reached()


@pytest.mark.parametrize("other", [{}, {"pause": "mirror/pause:3", "kube-scheduler": "mirror/ks:1"}])
def test_images_have_the_names_of_readme_unless_a_file_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: dict[str, str]
) -> None:
    if other:
        (tmp_path / "images.json").write_text(json.dumps(other))
        monkeypatch.setenv("KOMPAKT_IMAGES", str(tmp_path / "images.json"))
    assert elsewhere.image_names() == elsewhere.NAMES | other


@pytest.mark.parametrize("text", [None, "", "[]", '{"other": "x"}', '{"pause": 1}'])
def test_another_file_of_images_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None) -> None:
    monkeypatch.setenv("KOMPAKT_IMAGES", str(tmp_path / "images.json"))
    if text is not None:
        (tmp_path / "images.json").write_text(text)
    with pytest.raises(CannotRun, match="KOMPAKT_IMAGES="):
        elsewhere.image_names()


@pytest.fixture
def kind_cluster(monkeypatch: pytest.MonkeyPatch, clean: Path) -> Callable[[str], list[str]]:
    """What docker and kind are told where kind has a cluster of that name."""

    def make(there: str) -> list[str]:
        a_cluster(monkeypatch, clean, dict(zip(("w1", "w2"), MACHINES, strict=True)))
        recorder(clean, "docker", f"""if [ "$1 $2" = "image inspect" ]; then echo '["python@{DIGEST}"]'; fi""")
        recorder(clean, "kind", f'if [ "$1 $2" = "get clusters" ]; then echo {there}; fi')
        assert elsewhere.kind_cluster("mine", print).machines == ("w1", "w2")
        return (clean / "told").read_text().splitlines()

    return make


def test_kind_gets_every_image_under_the_name_that_the_chart_uses(kind_cluster: Callable[[str], list[str]]) -> None:
    words = kind_cluster("other")
    stages = set(re.findall(r"^FROM .* AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.M))
    built = dict(re.findall(r"docker build --target (\S+) --tag (\S+) ", "\n".join(words)))
    assert set(built) == set(PACKAGES) <= stages
    version = yaml.safe_load((ROOT / "charts/kompakt/Chart.yaml").read_text())["appVersion"]
    assert built == {part: f"localhost/kompakt-{part}:{version}" for part in PACKAGES}, "as install.helm_install names them"
    (load,) = [line for line in words if line.startswith("kind load")]
    assert {*built.values(), "localhost/kompakt-digits:1"} <= set(load.split())
    assert words.index(load) > next(i for i, line in enumerate(words) if line.startswith("kind create cluster --name mine"))


def test_kinds_images_have_the_base_that_docker_pulled(kind_cluster: Callable[[str], list[str]]) -> None:
    words = kind_cluster("other")
    builds = [place for place, line in enumerate(words) if line.startswith("docker build --target")]
    assert all(f"--build-arg BASE_IMAGE={KIND_BASE} --build-arg BASE_DIGEST={DIGEST} " in words[place] for place in builds)
    assert words.index(f"docker pull --quiet {KIND_BASE}") < min(builds)


def test_a_kind_cluster_that_is_there_is_used_again(kind_cluster: Callable[[str], list[str]]) -> None:
    assert not any(line.startswith("kind create") for line in kind_cluster("mine"))


def test_kinds_nodes_play_the_machines() -> None:
    nodes = yaml.safe_load((ROOT / "kind/cluster.yaml").read_text())["nodes"]
    assert [node["labels"][LABEL_MACHINE] for node in nodes if node["role"] == "worker"] == list(MACHINES)
