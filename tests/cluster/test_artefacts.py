"""A release is all that an install needs: from its folder alone into a registry, and from there with Helm and container runtimes.

The registry is a true one on loopback. The images are small ones written by hand; true ones: tests/node/test_artefacts.py.
"""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import released
from tests.support.cluster.own_cluster import own_cluster
from tests.support.registry import Registry, running
from tests.support.turns import in_turn
from tools import push
from tools.kube import simulated
from tools.kube.binaries import find
from tools.kube.command import output
from tools.kube.parts import NAMESPACE, RELEASE, STAND_INS
from tools.kube.ports import free_ports
from tools.provenance.layout import Refused
from tools.provenance.sums import SUMS, sums

pytestmark = in_turn(1)

NAMES = {"charts/kompakt", *(f"kompakt-{part}" for part in released.PARTS)}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released.made(tmp_path_factory.mktemp("artefacts") / "release")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("registry") / "run") as one:
        yield one


def target(registry: Registry, path: str = "") -> push.Target:
    return push.Target(registry.address + path, find("oras"), plain_http=True)


@pytest.fixture(scope="module")
def pushed(folder: Path, registry: Registry) -> dict[str, str]:
    """Digests by name, of all that was pushed."""
    references = push.push(folder, target(registry), lambda _: None)
    found = dict(one.removeprefix(f"{registry.address}/").split("@") for one in references)
    assert found.keys() == NAMES
    return found


def helm(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([find("helm"), *words], capture_output=True, text=True, check=False)


def asked(registry: Registry, path: str) -> Any:
    request = urllib.request.Request(f"http://{registry.address}/v2/{path}", headers={"Accept": MANIFEST})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def test_the_registry_has_what_the_release_has_and_every_statement(
    folder: Path, registry: Registry, pushed: dict[str, str]
) -> None:
    for name, digest in pushed.items():
        listed = json.loads((folder / "oci" / name / "index.json").read_text())["manifests"]
        assert digest == listed[0]["digest"]
        manifest = asked(registry, f"{name}/manifests/0.1.0")
        assert manifest == asked(registry, f"{name}/manifests/{digest}")
        told = output([find("oras"), "discover", "--plain-http", "--format=json", f"{registry.address}/{name}@{digest}"])
        referrers = json.loads(told)["referrers"]
        kinds = {one["annotations"]["in-toto.io/predicate-type"] for one in referrers}
        assert kinds == {"https://slsa.dev/provenance/v1", "https://cyclonedx.org/bom"}
        assert {one["digest"] for one in referrers} == {one["digest"] for one in listed[1:]}


def test_pushing_again_changes_nothing_and_no_tag_is_moved(
    folder: Path, registry: Registry, pushed: dict[str, str], tmp_path: Path
) -> None:
    said: list[str] = []
    push.push(folder, target(registry), said.append)
    assert said == [], "all is there"
    other = released.changed(folder, tmp_path / "other")
    with pytest.raises(Refused, match=r"kompakt-runtime:0\.1\.0 is there already, and is sha256:"):
        push.push(other, target(registry), said.append)
    assert said == [], "and nothing else was pushed before that was seen"


def test_an_image_that_came_without_its_statements_gets_them(folder: Path, registry: Registry, tmp_path: Path) -> None:
    name, there, said = "kompakt-runtime", f"{registry.address}/bare/kompakt-runtime:0.1.0", list[str]()
    output([find("oras"), "cp", "--no-tty", "--from-oci-layout", "--to-plain-http", f"{folder}/oci/{name}:0.1.0", there])
    to = target(registry, "/bare")
    assert to.referrers(there) == set()
    push.push(folder, to, said.append)
    assert f"pushing {there}" in said
    assert len(to.referrers(there)) == 2


def test_helm_installs_the_chart_from_the_registry_with_its_images(
    folder: Path, registry: Registry, pushed: dict[str, str], tmp_path: Path
) -> None:
    chart = f"oci://{registry.address}/charts/kompakt"
    values = {**STAND_INS, "image.registry": registry.address, "image.tag": "0.1.0"}
    values |= {f"image.digests.{part}": pushed[f"kompakt-{part}"] for part in released.PARTS}
    with own_cluster(tmp_path / "cluster", simulated.machines(1)) as cluster:
        done = helm(
            "install", RELEASE, chart, "--version=0.1.0", "--plain-http", f"--kubeconfig={cluster.kubeconfig}",
            f"--namespace={NAMESPACE}", "--create-namespace", "--wait", "--timeout=60s",
            *(f"--set={name}={value}" for name, value in values.items()),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        pods = cluster.core.list_namespaced_pod(NAMESPACE).items
        images = {container.image for pod in pods for container in pod.spec.containers}
    ours = {f"{registry.address}/{name}@{digest}" for name, digest in pushed.items()}
    assert len(images & ours) == 3, "operator, extender and device plugin; the runtime's comes with jobs"


def test_helm_pulls_the_very_archive_and_refuses_a_changed_one(
    folder: Path, registry: Registry, pushed: dict[str, str], tmp_path: Path
) -> None:
    pull = ("pull", f"oci://{registry.address}/charts/kompakt", "--version=0.1.0", "--plain-http", "-d")
    done = helm(*pull, tmp_path)
    assert done.returncode == 0, done.stderr
    assert pushed["charts/kompakt"] in done.stdout + done.stderr
    (archive,) = folder.glob("*.tgz")
    assert (tmp_path / archive.name).read_bytes() == archive.read_bytes()
    assert "## Install" in helm("show", "readme", tmp_path / archive.name).stdout
    (layer,) = asked(registry, "charts/kompakt/manifests/0.1.0")["layers"]
    released.flip(blob := registry.blob(layer["digest"]))
    (tmp_path / "again").mkdir()
    done = helm(*pull, tmp_path / "again")
    released.flip(blob)
    assert done.returncode != 0
    assert "mismatch" in done.stderr or "verif" in done.stderr


@pytest.mark.parametrize("name", ["kompakt-0.1.0.tgz", "oci/kompakt-operator/index.json", "python"])
def test_a_changed_file_is_named_and_nothing_is_pushed(name: str, folder: Path, registry: Registry, tmp_path: Path) -> None:
    shutil.copytree(folder, copy := tmp_path / "copy")
    file = next((copy / name).glob("*.whl")) if (copy / name).is_dir() else copy / name
    released.flip(file)
    with pytest.raises(Refused, match=f"{file.relative_to(copy)} has the SHA-256"):
        push.push(copy, target(registry, "/changed"), pytest.fail)


def test_a_layer_that_is_not_what_its_digest_says_is_refused(folder: Path, registry: Registry, tmp_path: Path) -> None:
    """Also where the checksums were written anew."""
    shutil.copytree(folder, copy := tmp_path / "copy")
    place = copy / "oci/kompakt-runtime"
    manifest = json.loads((place / "index.json").read_text())["manifests"][0]["digest"]
    layer = json.loads((place / "blobs" / manifest.replace(":", "/")).read_text())["layers"][0]["digest"]
    released.flip(place / "blobs" / layer.replace(":", "/"))
    (copy / SUMS).write_text(sums(copy))
    with pytest.raises(Refused, match="cannot be pushed"):
        push.push(copy, target(registry, "/layer"), lambda _: None)


@pytest.mark.parametrize("case", ["no release", "no registry", "no name", "an address", "a login"])
def test_bad_input_ends_with_one_sentence(
    case: str, folder: Path, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    words, expected = {
        "no release": ([str(tmp_path), registry.address], "is no release: it has no SHA256SUMS"),
        "no registry": ([str(folder), nowhere, "--plain-http"], "connection refused"),
        "no name": ([str(folder), ""], "name the registry as host[:port][/path]"),
        "an address": ([str(folder), f"https://{registry.address}"], "name the registry as host[:port][/path]"),
        "a login": ([str(folder), f"somebody:secret@{registry.address}"], "name the registry as host[:port][/path]"),
    }[case]
    assert push.main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert "secret" not in line
