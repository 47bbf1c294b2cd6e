"""Statements on an image: what they say, how they hang on it, and that whatever does not match is told in a sentence."""

import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import oci
from tools.provenance.__main__ import main
from tools.provenance.clone import Clone
from tools.provenance.layout import OciLayout, Refused
from tools.provenance.verify import problems
from tools.provenance.write import Run, write

PROVENANCE, CONTENTS = "https://slsa.dev/provenance/v1", "https://cyclonedx.org/bom"
RUN = Run("https://example.com/builder", "git+https://example.com/kompakt", "run-7")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone whose working tree has another file by now than its only commit."""
    root = tmp_path_factory.mktemp("clone")
    (root / "requirements").mkdir(parents=True)
    for name in ("build", "sbom", "operator"):
        (root / f"requirements/{name}.txt").write_text(f"{name}==1\n")
    author = ("-c", "user.name=n", "-c", "user.email=n@example.com")
    for words in (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "--message", "one")):
        subprocess.run(["git", *words], cwd=root, check=True)
    (root / "requirements/operator.txt").write_text("operator==2\n")
    return Clone(root)


@pytest.fixture
def layout(tmp_path: Path, clone: Clone) -> OciLayout:
    """An image without statements."""
    oci.image(tmp_path / "layout", oci.labels(clone.head()))
    return OciLayout(tmp_path / "layout")


@pytest.fixture
def stated(layout: OciLayout, clone: Clone) -> OciLayout:
    """The same with both."""
    write(layout, clone, RUN)
    return layout


def content(layout: OciLayout, descriptor: dict[str, Any]) -> bytes:
    """A blob that is what its descriptor says."""
    found = (layout.folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert (hashlib.sha256(found).hexdigest(), len(found)) == (descriptor["digest"].removeprefix("sha256:"), descriptor["size"])
    return found


def listed(layout: OciLayout) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Descriptors and manifests of the index: the image first."""
    return [
        (one, json.loads(content(layout, one))) for one in json.loads((layout.folder / "index.json").read_text())["manifests"]
    ]


def statements(layout: OciLayout) -> dict[str, dict[str, Any]]:
    """By predicate type."""
    _, *referrers = listed(layout)
    return {
        one["annotations"]["in-toto.io/predicate-type"]: json.loads(content(layout, one["layers"][0])) for _, one in referrers
    }


def test_each_statement_is_about_the_image(stated: OciLayout) -> None:
    (image, _), *_ = listed(stated)
    found = statements(stated)
    assert set(found) == {PROVENANCE, CONTENTS}
    for kind, one in found.items():
        assert (one["_type"], one["predicateType"]) == ("https://in-toto.io/Statement/v1", kind)
        assert one["subject"] == [{"name": "kompakt-operator", "digest": {"sha256": image["digest"].removeprefix("sha256:")}}]


def test_provenance_names_parameters_and_all_that_went_in_as_it_was_in_the_commit(stated: OciLayout, clone: Clone) -> None:
    said, commit = statements(stated)[PROVENANCE]["predicate"], clone.head()
    definition = said["buildDefinition"]
    args = {"BASE_IMAGE": "example/base:1", "BASE_DIGEST": oci.BASE, "VERSION": "0.1.0", "REVISION": commit}
    assert definition["externalParameters"] == {"dockerfile": "Dockerfile", "target": "operator", "args": args}
    texts = {f"requirements/{name}.txt": f"{name}==1\n" for name in ("build", "sbom", "operator")}
    assert definition["resolvedDependencies"] == [
        {"name": "source", "uri": RUN.source, "digest": {"gitCommit": commit}},
        {"name": "example/base:1", "digest": {"sha256": "b" * 64}},
        *({"name": name, "digest": {"sha256": hashlib.sha256(text.encode()).hexdigest()}} for name, text in texts.items()),
    ]
    metadata = {"invocationId": "run-7", "finishedOn": "2026-01-02T03:04:05.000000006Z"}
    assert said["runDetails"] == {"builder": {"id": RUN.builder}, "metadata": metadata}


def test_contents_are_what_the_image_lists_itself(stated: OciLayout) -> None:
    assert statements(stated)[CONTENTS]["predicate"] == oci.BOM


def test_statements_are_referrers_as_registries_know_them(stated: OciLayout) -> None:
    (image, _), *referrers = listed(stated)
    assert image["annotations"] == {"org.opencontainers.image.ref.name": "0.1.0"}, "the image keeps its tag"
    for descriptor, manifest in referrers:
        assert descriptor["artifactType"] == manifest["artifactType"] == "application/vnd.in-toto+json"
        assert descriptor["annotations"] == manifest["annotations"]
        assert manifest["subject"] == {key: image[key] for key in ("mediaType", "digest", "size")}
        assert manifest["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
        assert content(stated, manifest["config"]) == b"{}"
        assert manifest["layers"][0]["mediaType"] == "application/vnd.in-toto+json"


def test_stating_the_same_again_changes_nothing_and_stating_anew_replaces(stated: OciLayout, clone: Clone) -> None:
    before = (stated.folder / "index.json").read_text()
    write(stated, clone, RUN)
    assert (stated.folder / "index.json").read_text() == before
    write(stated, clone, Run("https://example.com/another"))
    assert len(listed(stated)) == 3
    assert statements(stated)[PROVENANCE]["predicate"]["runDetails"]["builder"]["id"] == "https://example.com/another"


def test_a_referrer_of_others_stays_and_is_not_looked_into(stated: OciLayout, clone: Clone) -> None:
    signature = {"schemaVersion": 2, "artifactType": "application/example", "subject": listed(stated)[0][0], "layers": []}
    config = {"config": oci.blob(stated.folder, b"{}", "config.v1+json")}
    index = json.loads((stated.folder / "index.json").read_text())
    index["manifests"].append(oci.blob(stated.folder, json.dumps(signature | config).encode(), "manifest.v1+json"))
    stated.write_index(index)
    write(stated, clone, RUN)
    assert len(listed(stated)) == 4
    assert problems(stated, clone) == []


def restated(layout: OciLayout, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a statement and whatever names it, so that all digests are right again."""
    index = json.loads((layout.folder / "index.json").read_text())
    for place, (descriptor, manifest) in enumerate(listed(layout)):
        if (manifest.get("annotations") or {}).get("in-toto.io/predicate-type") == kind:
            change(said := json.loads(content(layout, manifest["layers"][0])))
            manifest["layers"][0] |= digest_and_size(oci.blob(layout.folder, json.dumps(said).encode(), ""))
            new = oci.blob(layout.folder, json.dumps(manifest).encode(), "")
            index["manifests"][place] = descriptor | digest_and_size(new)
    layout.write_index(index)


def digest_and_size(descriptor: dict[str, Any]) -> dict[str, Any]:
    return {key: descriptor[key] for key in ("digest", "size")}


def forget_head(said: dict[str, Any]) -> None:
    said["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"] = "0" * 40


def other_requirements(said: dict[str, Any]) -> None:
    said["predicate"]["buildDefinition"]["resolvedDependencies"][4]["digest"]["sha256"] = "0" * 64


def other_base(said: dict[str, Any]) -> None:
    said["predicate"]["buildDefinition"]["externalParameters"]["args"]["BASE_DIGEST"] = "sha256:" + "0" * 64


def other_subject(said: dict[str, Any]) -> None:
    said["subject"][0]["digest"]["sha256"] = "0" * 64


def nobody(said: dict[str, Any]) -> None:
    del said["predicate"]["runDetails"]["builder"]


def fewer_dependencies(said: dict[str, Any]) -> None:
    said["predicate"]["buildDefinition"]["resolvedDependencies"].pop()


def fewer_components(said: dict[str, Any]) -> None:
    said["predicate"]["components"] = []


def test_what_matches_is_not_complained_about(stated: OciLayout, clone: Clone) -> None:
    assert problems(stated, clone) == problems(stated, clone, RUN.builder) == []


@pytest.mark.parametrize(
    ("kind", "change", "sentence"),
    [
        (
            PROVENANCE,
            forget_head,
            r"buildDefinition.resolvedDependencies\[0\].digest.gitCommit is '0+', and should be '[0-9a-f]{40}'",
        ),
        (PROVENANCE, other_requirements, r"buildDefinition.resolvedDependencies\[4\].digest.sha256 is '0+', and should be"),
        (
            PROVENANCE,
            other_base,
            r"buildDefinition.externalParameters.args.BASE_DIGEST is 'sha256:0+', and should be 'sha256:b+'",
        ),
        (PROVENANCE, fewer_dependencies, r"buildDefinition.resolvedDependencies is \[.*\], and should be \[.*operator.txt"),
        (PROVENANCE, nobody, "runDetails.builder.id is missing"),
        (PROVENANCE, other_subject, r"https://slsa.dev/provenance/v1.subject\[0\].digest.sha256 is '0+'"),
        (CONTENTS, other_subject, r"https://cyclonedx.org/bom.subject\[0\].digest.sha256 is '0+'"),
        (CONTENTS, fewer_components, "the predicate is not what the image lists in /opt/kompakt/sbom.cdx.json"),
    ],
)
def test_a_statement_that_says_something_else_is_told(stated: OciLayout, clone: Clone, kind, change, sentence) -> None:
    restated(stated, kind, change)
    (problem,) = problems(stated, clone)
    assert re.search(sentence, problem), problem


def test_a_statement_of_another_builder_than_the_one_who_is_trusted_is_told(stated: OciLayout, clone: Clone) -> None:
    (problem,) = problems(stated, clone, "https://example.com/another")
    assert problem == "runDetails.builder.id is 'https://example.com/builder', and should be 'https://example.com/another'"


def flipped(path: Path) -> None:
    before = path.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("manifest", [0, 1, 2])
@pytest.mark.parametrize("blob", ["manifest", "config", "layer"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [(flipped, "has the digest sha256:"), (shortened, "and its descriptor says"), (Path.unlink, "is missing")],
)
def test_every_blob_that_is_not_what_its_descriptor_says_is_named(
    stated: OciLayout, clone, manifest, blob, damage, words
) -> None:
    descriptor, found = listed(stated)[manifest]
    broken = {"manifest": descriptor, "config": found["config"], "layer": found["layers"][-1]}[blob]["digest"]
    damage(stated.folder / "blobs" / broken.replace(":", "/"))
    told = problems(stated, clone)
    assert told, "nothing was told"
    assert all(broken in one and words in one for one in told), told


def test_an_image_without_statements_is_told(layout: OciLayout, clone: Clone) -> None:
    found = problems(layout, clone)
    assert [one.partition(" are")[0] for one in found] == [f"0 statements of {PROVENANCE}", f"0 statements of {CONTENTS}"]


def test_statements_of_an_image_that_was_replaced_are_told(stated: OciLayout, clone: Clone) -> None:
    _, *referrers = [one for one, _ in listed(stated)]
    was = listed(stated)[0][0]["digest"]
    now = oci.image(stated.folder, oci.labels(clone.head(), version="0.2.0"))
    index = json.loads((stated.folder / "index.json").read_text())
    stated.write_index(index | {"manifests": index["manifests"] + referrers})
    assert f"manifest {referrers[0]['digest']} refers to {was}, and the image is {now}" in problems(stated, clone)


def test_a_clone_without_the_commit_cannot_confirm_provenance(stated: OciLayout, clone: Clone, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path / "empty"], check=True)
    (problem,) = problems(stated, Clone(tmp_path / "empty"))
    assert problem.startswith("git archive")
    assert "git fetch --unshallow" in problem


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"title": "another"}, "its title is 'another'"),
        ({"revision": "unknown"}, r"its revision is 'unknown'; build it with REVISION="),
        ({"base_digest": ""}, "its base is 'example/base:1' with the digest ''; build it with BASE_DIGEST="),
        ({"base_digest": "3.11-slim"}, "its base is 'example/base:1' with the digest '3.11-slim'"),
        ({"base_name": ""}, "its base is ''"),
    ],
)
def test_nothing_is_stated_of_an_image_that_does_not_say_from_what_it_was_built(
    tmp_path, clone: Clone, changed, sentence
) -> None:
    oci.image(tmp_path / "layout", oci.labels(clone.head(), **changed))
    with pytest.raises(Refused, match=sentence):
        write(OciLayout(tmp_path / "layout"), clone, RUN)
    assert len(listed(OciLayout(tmp_path / "layout"))) == 1


@pytest.mark.parametrize(
    ("above", "sentence"),
    [
        ({oci.FILE: b"{}"}, "is not CycloneDX"),
        ({oci.FILE: b"{"}, "is no JSON"),
        ({"opt/kompakt/.wh.sbom.cdx.json": b""}, "it has no /opt/kompakt/sbom.cdx.json"),
        ({"opt/kompakt/.wh..wh..opq": b""}, "it has no /opt/kompakt/sbom.cdx.json"),
        ({"opt/.wh.kompakt": b""}, "it has no /opt/kompakt/sbom.cdx.json"),
    ],
)
def test_the_last_layer_has_the_last_word_on_the_list_of_contents(tmp_path: Path, clone: Clone, above, sentence: str) -> None:
    oci.image(tmp_path / "layout", oci.labels(clone.head()), {oci.FILE: json.dumps(oci.BOM).encode()}, above)
    with pytest.raises(Refused, match=sentence):
        write(OciLayout(tmp_path / "layout"), clone, RUN)


def test_a_layout_with_two_images_or_an_index_of_images_is_refused(layout: OciLayout, clone: Clone) -> None:
    index = json.loads((layout.folder / "index.json").read_text())
    layout.write_index(index | {"manifests": index["manifests"] * 2})
    with pytest.raises(Refused, match="it holds 2 images"):
        write(layout, clone, RUN)
    inner = oci.blob(layout.folder, json.dumps(index).encode(), "index.v1+json")
    layout.write_index(index | {"manifests": [inner]})
    with pytest.raises(Refused, match="it holds an index of several images"):
        write(layout, clone, RUN)


@pytest.mark.parametrize("packed", [False, True])
def test_the_command_states_and_verifies_folders_and_archives(layout: OciLayout, clone: Clone, packed: bool, capsys) -> None:
    place = layout.folder
    if packed:
        place = layout.folder.with_suffix(".tar")
        oci.pack(layout.folder, place)
    its_clone = f"--clone={clone.root}"
    assert main([str(place), its_clone, "--builder", RUN.builder]) == 0
    assert main([str(place), its_clone, "--verify", "--builder", RUN.builder]) == 0
    assert "its statements match; nothing here is signed" in capsys.readouterr().out
    assert main([str(place), its_clone, "--verify", "--builder", "https://example.com/another"]) == 1
    assert f"{place}: runDetails.builder.id is" in capsys.readouterr().out
    assert sorted(path.name for path in place.parent.iterdir()) == sorted({"layout", place.name})


def test_a_builder_is_named_by_a_uri(layout: OciLayout, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(layout.folder), "--builder=somebody"]) == 1
    assert "the builder is 'somebody'; name it by a URI" in capsys.readouterr().out


def test_what_is_no_layout_is_told_so(tmp_path: Path, capsys) -> None:
    (tmp_path / "text").write_text("text")
    assert main([str(tmp_path / "text"), "--verify"]) == 1
    assert main([str(tmp_path), "--verify"]) == 1
    assert main([str(tmp_path / "none"), "--verify"]) == 1
    (text, folder, nothing) = capsys.readouterr().out.splitlines()
    assert "text: it is neither a folder nor an archive: " in text
    assert folder == f"{tmp_path}: it is no OCI layout: index.json is missing"
    assert "none: it is neither a folder nor an archive: " in nothing


@pytest.mark.parametrize("asked", ["--verify", f"--builder={RUN.builder}"])
def test_an_index_that_holds_no_descriptors_is_told_so(stated: OciLayout, clone: Clone, asked: str, capsys) -> None:
    stated.write_index({"manifests": ["image"]})
    assert main([str(stated.folder), f"--clone={clone.root}", asked]) == 1
    assert f"{stated.folder}: a document in it is not built as it should be" in capsys.readouterr().out


def test_an_archive_of_a_stranger_writes_nothing_beside_itself(layout: OciLayout, clone: Clone, tmp_path: Path) -> None:
    archive = tmp_path / "strange/layout.tar"
    archive.parent.mkdir()
    oci.pack(layout.folder, archive)
    with tarfile.open(archive, "a") as tar:
        tar.add(layout.folder / "index.json", "../escaped")
        (link := tarfile.TarInfo("blobs/sha256/" + "a" * 64)).type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)
    assert main([str(archive), f"--clone={clone.root}", "--builder", RUN.builder]) == 0
    assert not (tmp_path / "escaped").exists()
    assert [path.name for path in archive.parent.iterdir()] == ["layout.tar"]
    with tarfile.open(archive) as tar:
        assert all(member.isfile() for member in tar)
