"""A small OCI layout with one image as our Dockerfile labels it, written by hand: no code of tools/provenance."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

BOM = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": "kopf", "version": "1.0"}]}
BASE = "sha256:" + "b" * 64
FILE = "opt/kompakt/sbom.cdx.json"


def blob(folder: Path, content: bytes, kind: str) -> dict:
    """Keep it under its digest; returns the descriptor."""
    name = hashlib.sha256(content).hexdigest()
    (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (folder / "blobs/sha256" / name).write_bytes(content)
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{name}", "size": len(content)}


def layer(folder: Path, files: Mapping[str, bytes]) -> dict:
    with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w") as tar:
        for name, content in files.items():
            (member := tarfile.TarInfo(name)).size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return blob(folder, gzip.compress(packed.getvalue(), mtime=0), "layer.v1.tar+gzip")


def labels(commit: str, **changed: str) -> dict[str, str]:
    """`changed` by the last word of their names: base.name as base_name."""
    said = {
        "title": "kompakt-operator",
        "version": "0.1.0",
        "revision": commit,
        "base.name": "example/base:1",
        "base.digest": BASE,
    }
    said |= {name.replace("_", "."): value for name, value in changed.items()}
    return {f"org.opencontainers.image.{name}": value for name, value in said.items()}


def image(folder: Path, its_labels: Mapping[str, str], *layers: Mapping[str, bytes]) -> str:
    """A layout with that image; returns the digest of its manifest."""
    stack = [layer(folder, files) for files in layers or ({"etc/os": b"a"}, {f"./{FILE}": json.dumps(BOM).encode()})]
    said = {"created": "2026-01-02T03:04:05.000000006Z", "config": {"Labels": dict(its_labels)}}
    config = blob(folder, json.dumps(said).encode(), "config.v1+json")
    manifest = json.dumps({"schemaVersion": 2, "config": config, "layers": stack}).encode()
    listed = blob(folder, manifest, "manifest.v1+json") | {"annotations": {"org.opencontainers.image.ref.name": "0.1.0"}}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [listed]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return listed["digest"]


def pack(folder: Path, archive: Path) -> None:
    """As buildah packs an oci-archive."""
    with tarfile.open(archive, "w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
