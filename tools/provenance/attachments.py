"""Statements as referrers of an image (image-spec 1.1): one manifest each, whose subject is the image, listed in the index."""

from dataclasses import dataclass
from typing import Final

from tools.provenance.images import Image, subject_of
from tools.provenance.layout import MANIFEST, Json, OciLayout, encoded
from tools.provenance.statements import CONTENTS, PROVENANCE

IN_TOTO: Final = "application/vnd.in-toto+json"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
PREDICATE_TYPE: Final = "in-toto.io/predicate-type"
_TITLE: Final = "org.opencontainers.image.title"
# Under these names tools such as oras write them into a folder.
FILES: Final = {PROVENANCE: "provenance.intoto.json", CONTENTS: "sbom.intoto.json"}


@dataclass(frozen=True, slots=True)
class Attachment:
    """A manifest that has a subject, and its descriptor in the index."""

    descriptor: Json
    manifest: Json

    @property
    def subject(self) -> str:
        """The digest of what it refers to."""
        return str((self.manifest.get("subject") or {}).get("digest"))

    @property
    def predicate_type(self) -> str:
        return str((self.manifest.get("annotations") or {}).get(PREDICATE_TYPE))

    @property
    def is_statement(self) -> bool:
        return self.manifest.get("artifactType") == IN_TOTO


def attachments(layout: OciLayout) -> list[Attachment]:
    """All that refers to something. Raises Refused where a manifest cannot be read."""
    every = [Attachment(one, layout.document(one)) for one in layout.index().get("manifests", [])]
    return [one for one in every if "subject" in one.manifest]


def attach(image: Image, statement: Json) -> Json:
    """Add a statement to an image, in place of one of the same type; returns the descriptor of its manifest."""
    layout, kind = image.layout, statement["predicateType"]
    content = layout.add(encoded(statement), IN_TOTO)
    content["annotations"] = {PREDICATE_TYPE: kind, _TITLE: FILES[kind]}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": IN_TOTO,
        "config": layout.add(b"{}", EMPTY),
        "layers": [content],
        "subject": subject_of(image),
        "annotations": {PREDICATE_TYPE: kind},
    }
    # Type and annotations stand in the index too, as a registry lists them when it is asked for referrers.
    descriptor = layout.add(encoded(manifest), MANIFEST) | {"artifactType": IN_TOTO, "annotations": {PREDICATE_TYPE: kind}}
    _list(image, kind, descriptor)
    return descriptor


def _list(image: Image, kind: str, descriptor: Json) -> None:
    index, digest = image.layout.index(), image.descriptor["digest"]
    outdated = [
        one.descriptor
        for one in attachments(image.layout)
        if one.is_statement and (one.subject, one.predicate_type) == (digest, kind)
    ]
    index["manifests"] = [*(one for one in index["manifests"] if one not in outdated), descriptor]
    image.layout.write_index(index)
