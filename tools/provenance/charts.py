"""A Helm chart's archive as an OCI artefact, in a layout as Helm pushes it: its Chart.yaml as configuration, one layer."""

import re
import tarfile
from pathlib import Path
from typing import Any, Final

import yaml

from tools.provenance.images import Image, the_image
from tools.provenance.layout import MANIFEST, Json, OciLayout, Refused, encoded

CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
CONTENT: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
TAG: Final = "org.opencontainers.image.ref.name"


def metadata(archive: Path) -> dict[str, Any]:
    """The chart's Chart.yaml. Raises Refused where the archive holds none that names the chart and its version."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if re.fullmatch(r"[^/]+/Chart\.yaml", member.name) and (file := tar.extractfile(member)) is not None:
                    found = dict(yaml.safe_load(file.read()))
                    if missing := {"name", "version"} - found.keys():
                        raise Refused(f"its Chart.yaml has no {' and no '.join(sorted(missing))}")
                    return found
    except (OSError, EOFError, tarfile.TarError, yaml.YAMLError, TypeError, ValueError) as error:
        raise Refused(f"{archive.name} cannot be read: {str(error).splitlines()[0]}") from None
    raise Refused(f"{archive.name} is no chart: it has no Chart.yaml")


def chart_layout(archive: Path, folder: Path) -> Image:
    """Write the layout, tagged with the chart's version. No time is in it: the same archive gives the same digest."""
    chart, layout = metadata(archive), OciLayout.made(folder)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.add(encoded(chart), CONFIG),
        "layers": [layout.add(archive.read_bytes(), CONTENT)],
        "annotations": _annotations(chart),
    }
    # Helm looks for a version's plus sign as an underscore: tags have none.
    tag = str(chart["version"]).replace("+", "_")
    layout.write_index({"schemaVersion": 2, "manifests": [layout.add(encoded(manifest), MANIFEST) | {"annotations": {TAG: tag}}]})
    return the_image(layout)


def _annotations(chart: Json) -> dict[str, str]:
    names = {"title": "name", "version": "version", "description": "description"}
    return {f"org.opencontainers.image.{key}": str(chart[name]) for key, name in names.items() if name in chart}
