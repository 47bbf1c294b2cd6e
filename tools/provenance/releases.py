"""A release's folder: what lies where in it, and the statements about its wheels, sources and chart."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.provenance.attachments import FILES, attach
from tools.provenance.charts import chart_layout
from tools.provenance.clone import Clone
from tools.provenance.contents import bom
from tools.provenance.layout import Json, Refused, encoded, file_digest
from tools.provenance.statements import CONTENTS, PROVENANCE, TOOLS, provenance, release_definition, statement
from tools.provenance.write import Run

PYTHON: Final = "python"  # the folder of wheels and sources
REQUIREMENTS: Final = "requirements"  # the folder of what pins packages of others, with hashes, a file for each package of ours
OCI: Final = "oci"  # the folder of layouts; below it, a layout's path is the name that it gets in a registry
CHART: Final = "charts/kompakt"


@dataclass(frozen=True, slots=True)
class Release:
    """A release by its folder. What is read is checked by nobody but `verify_release`."""

    folder: Path

    @property
    def wheels(self) -> list[Path]:
        return sorted((self.folder / PYTHON).glob("*.whl"))

    @property
    def sources(self) -> list[Path]:
        return sorted((self.folder / PYTHON).glob("*.tar.gz"))

    @property
    def chart(self) -> Path:
        """The chart's archive. Raises Refused where there is not one."""
        found = sorted(self.folder.glob("*.tgz"))
        if len(found) != 1:
            raise Refused(f"{self.folder} holds {len(found)} archives of charts, and a release has one")
        return found[0]

    @property
    def pinned(self) -> list[str]:
        """The files that pin packages of others, by their paths in a release and in a commit."""
        return [str(path.relative_to(self.folder)) for path in sorted((self.folder / REQUIREMENTS).glob("*"))]

    def layouts(self) -> dict[str, Path]:
        """Every layout by the name that it gets in a registry."""
        above = self.folder / OCI
        return {str(path.parent.relative_to(above)): path.parent for path in sorted(above.rglob("index.json"))}

    def images(self) -> list[Path]:
        return [place for name, place in self.layouts().items() if name != CHART]

    def subjects(self) -> dict[str, str]:
        """Digests of what the folder's own statements are about: all that is installed without a registry."""
        files = [*self.wheels, *self.sources, self.chart]
        return {str(path.relative_to(self.folder)): file_digest(path) for path in files}

    def contents(self) -> Json:
        return bom(self.folder, self.wheels, self.sources, self.chart, self.images())


def state(release: Release, commit: str, clone: Clone, run: Run) -> None:
    """Write the statements, and the chart's layout with its own."""
    definition = release_definition(commit, clone.digests(commit, TOOLS), run.source)
    predicates = {PROVENANCE: provenance(definition, run.builder, run.invocation), CONTENTS: release.contents()}
    for kind, predicate in predicates.items():
        (release.folder / FILES[kind]).write_bytes(encoded(statement(release.subjects(), kind, predicate)))
    pack_chart(release.chart, release.folder / OCI / CHART, predicates)


def pack_chart(archive: Path, folder: Path, predicates: Mapping[str, Json]) -> None:
    """The chart's layout, with these statements attached: the same input gives the same files."""
    image = chart_layout(archive, folder)
    for kind, predicate in predicates.items():
        attach(image, statement({CHART: str(image.descriptor["digest"])}, kind, predicate))
