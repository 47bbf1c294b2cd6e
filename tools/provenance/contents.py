"""What a release holds and what that asks for, as CycloneDX: packages with their files, the chart, images, packages of others."""

import email
import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tools.provenance.charts import metadata
from tools.provenance.images import the_image
from tools.provenance.layout import Json, OciLayout, Refused, reading
from tools.provenance.sums import hexadecimal

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LICENCE: Final = [{"license": {"id": "Apache-2.0"}}]


def bom(folder: Path, wheels: Sequence[Path], sources: Sequence[Path], chart: Path, images: Sequence[Path]) -> Json:
    """The list for a release's folder; no time is in it, so that the same files give the same list.

    What others made is there by name with the versions that are asked for (`kompakt:requires`): which version of a range is
    installed is decided where it is installed. Images list their own contents.
    """
    packages = {one["name"]: one for one in (_package(folder, wheel, sources) for wheel in wheels)}
    asked = {name: _required(wheel) for name, wheel in zip(packages, wheels, strict=True)}
    others = sorted({other for lines in asked.values() for other in lines} - packages.keys())
    told = metadata(chart)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("application", "kompakt", str(told["version"]), "pkg:generic/kompakt")},
        "components": [
            *packages.values(),
            _component("application", f"{told['name']}-chart", str(told["version"]), "pkg:helm/kompakt")
            | {"externalReferences": [_file(folder, chart)]},
            *map(_image, images),
            *(_other(name, [line for lines in asked.values() for line in lines.get(name, ())]) for name in others),
        ],
        "dependencies": [
            {
                "ref": packages[name]["bom-ref"],
                "dependsOn": [_ref(packages, other) for other in sorted(lines) if _always(lines[other])],
            }
            for name, lines in asked.items()
        ],
    }


def _component(kind: str, name: str, version: str, purl: str) -> Json:
    full = f"{purl}@{version}"
    return {"type": kind, "bom-ref": full, "name": name, "version": version, "purl": full, "licenses": _LICENCE}


def _package(folder: Path, wheel: Path, sources: Iterable[Path]) -> Json:
    said = _metadata(wheel)
    name, version = str(said["Name"]), str(said["Version"])
    stem = f"{name.replace('-', '_')}-{version}"
    files = [wheel, *(source for source in sources if source.name == f"{stem}.tar.gz")]
    listed = {"externalReferences": [_file(folder, file) for file in files]}
    return _component("library", name, version, f"pkg:pypi/{name}") | listed


def _file(folder: Path, path: Path) -> Json:
    hashes = [{"alg": "SHA-256", "content": hexadecimal(path)}]
    return {"type": "distribution", "url": str(path.relative_to(folder)), "hashes": hashes}


def _image(place: Path) -> Json:
    with reading(place.name):
        image = the_image(OciLayout(place))
        name, version, digest = place.name, image.facts().version, str(image.descriptor["digest"])
    purl = f"pkg:oci/{name}@{digest.replace(':', '%3A')}"
    return {"type": "container", "bom-ref": purl, "name": name, "version": version, "purl": purl, "licenses": _LICENCE}


def _other(name: str, lines: Sequence[str]) -> Json:
    purl = f"pkg:pypi/{name}"
    asked = [{"name": "kompakt:requires", "value": line} for line in sorted(set(lines))]
    scope = "required" if _always(lines) else "optional"
    return {"type": "library", "bom-ref": purl, "name": name, "purl": purl, "scope": scope, "properties": asked}


def _always(lines: Sequence[str]) -> bool:
    """Whether one of these lines asks without an extra."""
    return any("extra ==" not in line for line in lines)


def _ref(packages: dict[str, Json], name: str) -> str:
    return str(packages[name]["bom-ref"]) if name in packages else f"pkg:pypi/{name}"


def _required(wheel: Path) -> dict[str, list[str]]:
    """What a wheel asks for, by normalised name."""
    found: dict[str, list[str]] = {}
    for line in _metadata(wheel).get_all("Requires-Dist") or ():
        if match := _NAME.match(line):
            found.setdefault(re.sub(r"[-_.]+", "-", match[0]).lower(), []).append(line)
    return found


def _metadata(wheel: Path) -> "email.message.Message[str, str]":
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(archive.read(name))
    except (zipfile.BadZipFile, ValueError) as error:
        raise Refused(f"{wheel.name} is no wheel: {error}") from None
