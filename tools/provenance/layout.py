"""An OCI image layout (image-spec 1.1), as a folder or an archive of buildah or skopeo: blobs by SHA-256, and index.json."""

import hashlib
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MEMBER: Final = re.compile(r"oci-layout|index\.json|manifest\.json|blobs/sha256/[0-9a-f]{64}")


MALFORMED: Final = (AttributeError, LookupError, TypeError)
"""What reading a document raises where a list stands for an object, or nothing does."""


class Refused(ValueError):
    """What was given is not what is asked for; the sentence says what is wrong with it."""


def malformed(error: Exception) -> str:
    """What one of MALFORMED says of a layout."""
    return f"a document in it is not built as it should be: {error}"


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Refuse what is malformed, and name what was read in every refusal."""
    try:
        yield
    except Refused as error:
        raise Refused(f"{name}: {error}") from None
    except MALFORMED as error:
        raise Refused(f"{name} is not built as it should be: {error}") from error


@dataclass(frozen=True, slots=True)
class OciLayout:
    """A layout's folder. What is read is checked by nobody but `fault`."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "OciLayout":
        """A new layout without anything in it but the mark that it is one."""
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
        return cls(folder)

    def index(self) -> Json:
        """index.json. Raises Refused where there is none."""
        return _parsed(self.folder / "index.json", "it is no OCI layout")

    def write_index(self, index: Mapping[str, Any]) -> None:
        (self.folder / "index.json").write_text(json.dumps(index, indent=2) + "\n")

    def path(self, digest: str) -> Path:
        """Where the blob lies. Raises Refused for a digest of another algorithm than SHA-256."""
        if not DIGEST.fullmatch(digest):
            raise Refused(f"{digest!r} is no digest by sha256")
        return self.folder / "blobs/sha256" / digest.removeprefix("sha256:")

    def document(self, descriptor: Mapping[str, Any]) -> Json:
        """A JSON blob. Raises Refused where it is missing or is none."""
        digest = str(descriptor.get("digest"))
        return _parsed(self.path(digest), f"blob {digest}")

    def add(self, content: bytes, media_type: str) -> Json:
        """Keep a blob; returns its descriptor."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.path(digest).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def fault(self, descriptor: Mapping[str, Any]) -> str | None:
        """In what a blob is not what its descriptor says; None where it is."""
        digest = str(descriptor.get("digest"))
        path = self.path(digest)
        if not path.is_file():
            return f"blob {digest} is missing"
        if (size := path.stat().st_size) != descriptor.get("size"):
            return f"blob {digest} has {size} bytes, and its descriptor says {descriptor.get('size')}"
        if (found := file_digest(path)) != digest:
            return f"blob {digest} has the digest {found}"
        return None


def encoded(document: Json) -> bytes:
    """A document as our blobs hold it: to be read by people too."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


@contextmanager
def opened(path: Path, *, to_write: bool) -> Iterator[OciLayout]:
    """The layout of a folder or an archive; an archive is unpacked beside itself and, if written to, packed anew at the end.

    Raises:
        Refused: it is neither.
    """
    if path.is_dir():
        yield OciLayout(path)
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as name:
        _unpack(path, folder := Path(name))
        yield OciLayout(folder)
        if to_write:
            _pack(folder, path)


def _unpack(archive: Path, folder: Path) -> None:
    """Only plain files under the names that a layout has: an archive of a stranger writes nowhere else."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isfile() and _MEMBER.fullmatch(member.name) else None
                if file is not None:
                    place = folder / member.name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with place.open("wb") as to:
                        shutil.copyfileobj(file, to)
    except (OSError, tarfile.TarError) as error:
        raise Refused(f"it is neither a folder nor an archive: {str(error).splitlines()[0]}") from None


def _pack(folder: Path, archive: Path) -> None:
    """A half written archive never gets the name."""
    part = archive.with_name(f".{archive.name}.part")
    with tarfile.open(part, "w") as tar:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            tar.add(file, str(file.relative_to(folder)))
    part.rename(archive)


def _parsed(path: Path, what: str) -> Json:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Refused(f"{what}: {path.name} is missing") from None
    except ValueError as error:
        raise Refused(f"{what}: {path.name} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(f"{what}: {path.name} is no JSON object")
    return found
