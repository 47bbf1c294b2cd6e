"""Our images as a node holds them and as they are published: size over their base, labels, contents, statements."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.node.publishing import Published
from tests.support.node.world import World
from tools.kube.base_image import base_image
from tools.kube.buildah import Builder
from tools.kube.cache import copy_files, locked
from tools.kube.images import base_args, our_recipes
from tools.kube.stack import Images
from tools.provenance.clone import Clone
from tools.provenance.layout import DIGEST, OciLayout
from tools.provenance.verify import problems

MOST_BYTES = 120e6  # over the base, unpacked
TITLE = "org.opencontainers.image.title"
REVISION = "org.opencontainers.image.revision"
BASE = "org.opencontainers.image.base"
PARTS = ("operator", "extender", "device-plugin", "runtime")


def documents(root: Path) -> dict[str, Any]:
    """Every small JSON blob of a containerd root by its digest: manifests and configurations."""
    found = {}
    for path in (root / "io.containerd.content.v1.content/blobs/sha256").iterdir():
        if path.stat().st_size < 1 << 20 and path.read_bytes()[:1] == b"{":
            found[f"sha256:{path.name}"] = json.loads(path.read_text())
    return found


def manifest_and_labels(images: Images, part: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Of the one image of that title: a filled root holds the images of one state of the sources; older ones name theirs."""
    blobs = documents(images.root)
    found = []
    for manifest in blobs.values():
        config = blobs.get(manifest.get("config", {}).get("digest", "")) if "layers" in manifest else None
        labels = ((config or {}).get("config") or {}).get("Labels") or {}
        if (labels.get(TITLE), labels.get(REVISION)) == (f"kompakt-{part}", "unknown"):
            found.append((manifest, labels))
    (only,) = found
    return only


@pytest.mark.parametrize("part", PARTS)
def test_an_image_is_small_over_its_base_and_says_what_it_is(images: Images, part: str) -> None:
    manifest, labels = manifest_and_labels(images, part)
    base, *own = [layer["size"] for layer in manifest["layers"]]
    print(f"kompakt-{part}: {sum(own) / 1e6:.1f} MB over a base of {base / 1e6:.0f} MB")
    assert sum(own) < MOST_BYTES
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.description"]
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert labels[REVISION]
    assert labels[f"{BASE}.name"] == base_image()
    assert DIGEST.fullmatch(labels[f"{BASE}.digest"])


def test_a_build_of_another_revision_says_so_although_nothing_else_changed(images: Images, tmp_path: Path) -> None:
    """Each step but what names the revision comes from the store; so did the label, once."""
    recipe = next(one for one in our_recipes() if one.target == "runtime")
    builder, image, found = Builder(tmp_path / "build.log"), "localhost/revision-test:1", []
    copy_files(recipe.files, recipe.above, tmp_path / "context")
    with locked("images"):  # another build would drop layers that this one counts on
        base = base_args(builder)
        for revision in ("first", "second"):
            args = {**base, "REVISION": revision}
            builder.build(tmp_path / "context", image, target=recipe.target, args=args)
            found.append(builder.labels(image)[REVISION])
        builder.forget(image)
    assert found == ["first", "second"]


def test_an_image_is_published_with_statements_that_match_it_and_the_commit(published: Published, tmp_path: Path) -> None:
    """Of HEAD, whatever lies in the working tree."""
    clone, base, commit = Clone(), published.base, published.commit
    place = Path(shutil.copytree(published.place, tmp_path / "kompakt-runtime"))
    assert problems(OciLayout(place), clone) == []
    image, *referrers = json.loads((place / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(place, image["digest"]))
    labels = json.loads(blob(place, manifest["config"]["digest"]))["config"]["Labels"]
    named = {key: labels[f"{BASE}.{key}"] for key in ("name", "digest")}
    assert named == {key: manifest["annotations"][f"{BASE}.{key}"] for key in named} == {"name": base.name, "digest": base.digest}
    assert labels[REVISION] == commit
    statements = [json.loads(blob(place, json.loads(blob(place, one["digest"]))["layers"][0]["digest"])) for one in referrers]
    assert [one["predicateType"] for one in statements] == ["https://slsa.dev/provenance/v1", "https://cyclonedx.org/bom"]
    assert {one["subject"][0]["digest"]["sha256"] for one in statements} == {image["digest"].removeprefix("sha256:")}
    assert {"kompakt-runtime"} == {component["name"] for component in statements[1]["predicate"]["components"]}
    largest = max((place / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    largest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (problem,) = problems(OciLayout(place), clone)
    assert f"blob sha256:{largest.name} has the digest" in problem


def blob(layout: Path, digest: str) -> bytes:
    """A blob of a layout that has that digest."""
    content = (layout / "blobs" / digest.replace(":", "/")).read_bytes()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def test_an_image_lists_what_is_installed_in_it(kompakt: World) -> None:
    def run(*command: str) -> str:
        return str(kompakt.kubectl("exec", "-n", "kompakt-system", "deploy/kompakt-operator", "--", *command))

    listed = json.loads(run("cat", "/opt/kompakt/sbom.cdx.json"))
    assert listed["bomFormat"] == "CycloneDX"
    components = {component["name"].lower(): component["version"] for component in listed["components"]}
    names = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    assert components == json.loads(run("/opt/kompakt/bin/python", "-I", "-c", names))
    assert {"kopf", "aiohttp", "kompakt-core", "kompakt-operator"} <= components.keys()
