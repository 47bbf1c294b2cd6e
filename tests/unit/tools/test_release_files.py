"""What `make release` makes is all that is needed: installed and rendered from its folder alone, and equal when made again."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support import oci, released
from tests.support.needs import from_index
from tools.kube.binaries import find
from tools.kube.command import CommandFailed, output
from tools.kube.programs import NoProgram
from tools.provenance.clone import Clone
from tools.provenance.layout import Refused
from tools.provenance.releases import PYTHON, REQUIREMENTS
from tools.provenance.sums import SUMS
from tools.release import NOTES, main, notes, release

UV = Path(sys.executable).parent / "uv"


def silent(_: str) -> None:
    pass


def test_checksums_name_every_file_and_a_changed_one_is_found(made: Path, tmp_path: Path) -> None:
    check = ["sh", "-c", f'cd "$0" && sha256sum --check --strict --quiet {SUMS}']
    named = {line.split("  ", 1)[1] for line in (made / SUMS).read_text().splitlines()}
    assert named == {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()} - {SUMS}
    output([*check, made])
    output(["cp", "-r", made, tmp_path / "changed"])
    (tmp_path / "changed" / NOTES).write_text("others")
    with pytest.raises(CommandFailed, match="FAILED"):
        output([*check, tmp_path / "changed"])


def test_the_same_commit_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    released.made(tmp_path / "again")
    assert (tmp_path / "again" / SUMS).read_text() == (made / SUMS).read_text()


def test_the_command_line_installs_from_the_folder_and_runs(made: Path, tmp_path: Path) -> None:
    """Packages of others by the hashes that the release brings, ours without an index."""
    python = tmp_path / "venv" / "bin" / "python"
    install = (UV, "pip", "install", "--quiet", f"--python={python}")
    output([UV, "venv", "--quiet", f"--python={sys.executable}", tmp_path / "venv"])
    from_index([*install, "--require-hashes", "-r", made / REQUIREMENTS / "cli.txt"])
    ours = (*install, "--no-index", "kompakt-cli")
    output(["cp", "-r", made / PYTHON, tmp_path / "less"])
    next((tmp_path / "less").glob("kompakt_sdk-*.whl")).unlink()
    next((tmp_path / "less").glob("kompakt_sdk-*.tar.gz")).unlink()
    with pytest.raises(CommandFailed, match="kompakt-sdk was not found"):
        output([*ours, f"--find-links={tmp_path / 'less'}"])
    output([*ours, f"--find-links={made / PYTHON}"])
    assert "dgx1-v100" in output([python.with_name("kompakt"), "machines"])
    lies = output([python, "-c", "import kompakt_core; print(kompakt_core.__file__)"])
    assert lies.startswith(str(tmp_path)), "not from this checkout"


def test_every_package_carries_its_licence_and_requires_ours_in_its_own_version(made: Path) -> None:
    wheels = sorted((made / PYTHON).glob("*.whl"))
    assert len(wheels) == len(list((made / PYTHON).glob("*.tar.gz"))) == 9
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            assert [name for name in archive.namelist() if name.endswith("licenses/LICENSE")], wheel
            (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
        version = wheel.name.split("-")[1]
        ours = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: kompakt-")]
        assert all(f"=={version}" in line for line in ours), wheel


def test_the_chart_renders_from_its_archive(made: Path) -> None:
    (chart,) = made.glob("kompakt-*.tgz")
    command = [find("helm"), "template", "kompakt", chart, "--set=image.registry=mirror.example"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "image: mirror.example/kompakt-operator:" in done.stdout.replace('"', "")
    assert "## Install" in output([find("helm"), "show", "readme", chart])
    kinds = {one["kind"] for one in yaml.safe_load_all(done.stdout) if one}
    assert kinds >= {"Deployment", "DaemonSet", "CustomResourceDefinition"}


def test_notes_are_the_last_section() -> None:
    text = "# Changelog\n\n## Unreleased\n\n- a\n\n## 0.1.0\n\n- b\n"
    assert notes(text, "abc") == "# Unreleased\n\nOf commit abc.\n\n- a\n"
    with pytest.raises(Refused, match="no section"):
        notes("# Changelog\n", "abc")


def test_a_folder_that_is_there_is_left_alone_and_a_build_that_fails_leaves_none(made: Path, tmp_path: Path) -> None:
    before = (made / SUMS).read_text()
    with pytest.raises(Refused, match="is there already"):
        release(made, silent)
    assert (made / SUMS).read_text() == before
    with pytest.raises(CommandFailed):
        release(tmp_path / "none", silent, helm=lambda: Path("/bin/false"))
    with pytest.raises(Refused, match="git rev-parse"):
        release(tmp_path / "none", silent, Clone(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_images_of_another_commit_than_the_rest_are_refused(tmp_path: Path) -> None:
    def of_another(folder: Path) -> None:
        oci.image(folder / "kompakt-operator", oci.labels("f" * 40))

    with pytest.raises(Refused, match=r"kompakt-operator was built from commit f{40}, and the rest of the release from"):
        release(tmp_path / "out", silent, images=of_another)
    assert list(tmp_path.iterdir()) == []


def test_where_helm_cannot_be_had_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(_: str) -> Path:
        raise NoProgram("helm can neither be downloaded nor built: no space left")

    monkeypatch.setattr("tools.release.find", none)
    assert main([f"--out={tmp_path / 'out'}"]) == 1
    assert capsys.readouterr().err == "helm can neither be downloaded nor built: no space left\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/out"])
def test_a_target_that_cannot_be_made_is_named(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main([f"--out={tmp_path / place}"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "file") in said
