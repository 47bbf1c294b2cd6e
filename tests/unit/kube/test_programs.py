"""Where programs come from: versions, the search order, the build."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.kube import binaries, golang
from tools.kube.programs import ENV_KUBERNETES, PROGRAMS, NoProgram, parse_version, pinned_version, supported


def program(folder: Path, name: str, says: str) -> Path:
    """A stand-in that tells a version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No programs anywhere: neither folder nor cache nor PATH."""
    (tmp_path / "path").mkdir()
    for name, folder in (("XDG_CACHE_HOME", "cache"), ("PATH", "path")):
        monkeypatch.setenv(name, f"{tmp_path / folder}:/bin:/usr/bin" if name == "PATH" else str(tmp_path / folder))
    monkeypatch.delenv(binaries.ENV_FOLDER, raising=False)
    monkeypatch.delenv(ENV_KUBERNETES, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Kubernetes v1.37.1", (1, 37, 1)),
        ("etcd Version: 3.7.3\nGit SHA: abc", (3, 7, 3)),
        ("v4.3.1+gdeadbee", (4, 3, 1)),
        ("CoreDNS-1.15.0", (1, 15, 0)),
        ("no version", None),
        ("v4.3", (4, 3, 0)),
        ("12", None),
    ],
)
def test_versions_are_read_from_what_programs_print(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


@given(st.text())
def test_any_text_is_a_version_or_none(text: str) -> None:
    version = parse_version(text)
    assert version is None or len(version) == 3


def test_every_program_is_pinned() -> None:
    for entry in PROGRAMS.values():
        assert parse_version(pinned_version(entry.module)) is not None
    assert supported(parse_version(pinned_version("kubernetes")) or (0, 0, 0))


@pytest.mark.parametrize("minor", [35, 36, 37])
def test_every_supported_version_of_kubernetes_is_pinned(minor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    helm = golang.folder("helm")
    monkeypatch.setenv(ENV_KUBERNETES, f"1.{minor}")
    version = parse_version(pinned_version("kubernetes"))
    assert version is not None
    assert version[:2] == (1, minor)
    assert pinned_version("kubernetes") in golang.folder("kubernetes").name
    assert f"gitVersion={pinned_version('kubernetes')}" in golang.linker_flags("kubernetes")
    assert golang.folder("helm") == helm, "nothing else is built anew"


@pytest.mark.parametrize("text", ["1.34", "1.38", "1.36.3", "36", "v1.36", "../helm", "\N{ARABIC-INDIC DIGIT ONE}.36"])
def test_another_version_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_KUBERNETES, text)
    with pytest.raises(NoProgram, match=r"give one of 1\.35, 1\.36, 1\.37"):
        binaries.present(PROGRAMS["kubectl"])


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ({"path": "v1.37.0"}, "path"),
        ({"path": "v1.37.0", "cache": "v1.37.1"}, "cache"),
        ({"cache": "v1.37.1", "mine": "Client Version: v1.35.4"}, "mine"),
        ({"path": "v1.36.2"}, None),
    ],
    ids=["on PATH", "in the cache before PATH", "in the named folder first", "nowhere, where PATH has another minor version"],
)
def test_kubectl_is_found(empty: Path, monkeypatch: pytest.MonkeyPatch, places: dict[str, str], found: str | None) -> None:
    folders = {"path": empty / "path", "cache": golang.folder("kubernetes"), "mine": empty / "mine"}
    made = {place: program(folders[place], "kubectl", says) for place, says in places.items()}
    if "mine" in places:
        monkeypatch.setenv(binaries.ENV_FOLDER, str(folders["mine"]))
    assert binaries.present(PROGRAMS["kubectl"]) == (made[found] if found else None)


@pytest.mark.parametrize(
    ("version", "wanted", "says"),
    [
        ("v1.34.9", "kubectl", r"Kubernetes 1\.34\.9; kompakt supports 1\.35 to 1\.37"),
        ("v1.37.1", "kubelet", "kubelet"),
    ],
    ids=["an unsupported version", "a part of Kubernetes without another"],
)
def test_a_named_folder_is_refused_that_holds(
    empty: Path, monkeypatch: pytest.MonkeyPatch, version: str, wanted: str, says: str
) -> None:
    program(empty / "mine", "kubectl", version)
    monkeypatch.setenv(binaries.ENV_FOLDER, str(empty / "mine"))
    with pytest.raises(NoProgram, match=says):
        binaries.present(PROGRAMS[wanted])
    assert binaries.present(PROGRAMS["kwok"]) is None, "others it may lack"


def test_a_broken_build_leaves_nothing_and_shows_the_compilers_words(empty: Path) -> None:
    go = empty / "path" / "go"
    go.write_text(
        '#!/bin/sh\n[ "$1" = version ] && echo go version go1.26.8 linux/amd64 && exit\necho "no space left" >&2; exit 1\n'
    )
    go.chmod(0o755)
    with pytest.raises(golang.BuildFailed, match="no space left"):
        golang.build(PROGRAMS["kwok"], lambda text: None)
    assert list(golang.folder("kwok").iterdir()) == []


def test_an_old_go_is_not_used(empty: Path) -> None:
    assert golang.go_version(program(empty / "path", "go", "go version go1.25.3 linux/amd64")) < golang.NEEDED_GO


def test_the_cache_folder_changes_with_the_flags(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = golang.folder("kwok")
    monkeypatch.setattr(golang, "linker_flags", lambda module: "-s")
    assert golang.folder("kwok") != before
