"""The Dockerfile against what it packs: a base by digest, one label set per image, the chart's version, a list of contents."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.provenance.statements import REQUIREMENTS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
STAGES = {re.split(r"\s+AS\s+", stage.splitlines()[0])[1]: stage for stage in re.split(r"^FROM ", TEXT, flags=re.M)[1:]}
PARTS = ("operator", "extender", "device-plugin", "runtime")


def test_images_carry_the_charts_version() -> None:
    chart = yaml.safe_load((ROOT / "charts/kompakt/Chart.yaml").read_text())
    assert re.search(r"^ARG VERSION=(.*)$", TEXT, re.M)[1] == chart["appVersion"]


@pytest.mark.parametrize("part", PARTS)
def test_each_image_says_what_it_is_and_lists_what_is_in_it(part: str) -> None:
    last, build = STAGES[part], STAGES[f"{part}-build"]
    assert f'org.opencontainers.image.title="kompakt-{part}"' in last
    assert {f"ARG {name}" for name in re.findall(r"\$\{(\w+)\}", last)} <= set(last.splitlines()), (
        "without them labels would be empty"
    )
    for label, value in (("base.name", "BASE_IMAGE"), ("base.digest", "BASE_DIGEST"), ("revision", "REVISION")):
        assert f'org.opencontainers.image.{label}="${{{value}}}"' in last
    assert "-o /opt/kompakt/sbom.cdx.json" in build
    assert f"COPY --from={part}-build /opt/kompakt /opt/kompakt" in last
    assert "sbom" not in last, "the tool that lists stays behind"


def test_the_only_base_is_named_by_its_digest_which_has_no_default() -> None:
    parents = {name: stage.split()[0] for name, stage in STAGES.items()}
    assert parents.pop("base") == "${BASE_IMAGE}@${BASE_DIGEST}"
    assert set(parents.values()) == {"base"}
    assert re.findall(r"^ARG BASE_DIGEST.*$", TEXT[: TEXT.index("FROM ")], re.M) == ["ARG BASE_DIGEST"]


def stages_of(target: str) -> set[str]:
    """A stage, and all from which it takes files."""
    return {target}.union(*(stages_of(name) for name in re.findall(r"--from=(\S+)", STAGES[target])))


@pytest.mark.parametrize("part", PARTS)
def test_provenance_names_every_requirements_file_that_a_target_installs_from(part: str) -> None:
    copied = {path for name in stages_of(part) for path in re.findall(r"^COPY (requirements/\S+)", STAGES[name], re.M)}
    assert copied == set(REQUIREMENTS[part])


@pytest.mark.parametrize("part", [part for part in PARTS if part != "device-plugin"])
def test_an_image_names_a_user_that_is_not_root(part: str) -> None:
    assert "USER 65532:65532" in STAGES[part].splitlines()


def packages_of_ours(part: str) -> set[str]:
    """What a part's package depends on that no index has."""
    dependencies = tomllib.loads((ROOT / part / "pyproject.toml").read_text())["project"].get("dependencies", ())
    return {re.split(r"[\[=<>~ ]", name)[0] for name in dependencies if name.startswith("kompakt-")}


@pytest.mark.parametrize("part", PARTS)
def test_an_image_carries_every_package_of_ours_that_its_part_needs(part: str) -> None:
    needed = packages_of_ours(part) | {f"kompakt-{part}"}
    installed = re.findall(r"--find-links /wheels (.*)$", STAGES[f"{part}-build"], re.M)
    assert needed <= set(" ".join(installed).split())


def test_the_command_that_readme_installs_with_names_every_package_that_no_index_has() -> None:
    (line,) = re.findall(r"^    pip install (\./.*?)(?: +#.*)?$", (ROOT / "README.md").read_text(), re.M)
    parts = [word.removeprefix("./") for word in line.split()]
    needed = set().union(*(packages_of_ours(part) for part in parts))
    assert needed <= {f"kompakt-{part}" for part in parts}
