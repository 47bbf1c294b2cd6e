"""What in a layout does not match, a sentence each: blobs and descriptors, statements and image, provenance and commit."""

from collections.abc import Iterator
from typing import Any

from tools.provenance.attachments import IN_TOTO, PREDICATE_TYPE, Attachment, attachments
from tools.provenance.clone import Clone
from tools.provenance.images import SBOM, Image, the_image
from tools.provenance.layout import MALFORMED, Json, OciLayout, Refused, malformed
from tools.provenance.statements import CONTENTS, PROVENANCE, REQUIREMENTS, STATEMENT, build_definition


def problems(layout: OciLayout, clone: Clone, builder: str | None = None) -> list[str]:
    """Empty where all matches. `builder` is who must have built it; signatures are not looked at."""
    try:
        # What is not even the bytes that its digest says is not read any further.
        return list(_faults(layout)) or list(_mismatches(layout, clone, builder))
    except Refused as error:
        return [str(error)]
    except MALFORMED as error:
        return [malformed(error)]


def _faults(layout: OciLayout) -> Iterator[str]:
    """Every blob that index.json leads to, against its descriptor."""
    for descriptor in layout.index().get("manifests", []):
        if fault := layout.fault(descriptor):
            yield fault
            continue
        manifest = layout.document(descriptor)
        for part in (manifest.get("config", {}), *manifest.get("layers", [])):
            if fault := layout.fault(part):
                yield f"{fault} (of manifest {descriptor['digest']})"


def _mismatches(layout: OciLayout, clone: Clone, builder: str | None) -> Iterator[str]:
    image = the_image(layout)
    digest = image.descriptor["digest"]
    statements = [one for one in attachments(layout) if one.is_statement]
    for one in statements:
        if one.subject != digest:
            yield f"manifest {one.descriptor['digest']} refers to {one.subject}, and the image is {digest}"
    for kind in (PROVENANCE, CONTENTS):
        found = [one for one in statements if one.predicate_type == kind and one.subject == digest]
        if len(found) != 1:
            yield f"{len(found)} statements of {kind} are attached to {digest}; one should be"
        for one in found:
            yield from _of_statement(image, one, clone, builder)


def _of_statement(image: Image, attachment: Attachment, clone: Clone, builder: str | None) -> Iterator[str]:
    kind, layers = attachment.predicate_type, attachment.manifest["layers"]
    if (
        len(layers) != 1
        or layers[0].get("mediaType") != IN_TOTO
        or (layers[0].get("annotations") or {}).get(PREDICATE_TYPE) != kind
    ):
        yield f"the manifest for {kind} has not one layer of that type"
        return
    said = image.layout.document(layers[0])
    head = {"_type": said.get("_type"), "predicateType": said.get("predicateType"), "subject": said.get("subject")}
    subject = [{"name": image.facts().name, "digest": {"sha256": image.descriptor["digest"].removeprefix("sha256:")}}]
    yield from differences(head, {"_type": STATEMENT, "predicateType": kind, "subject": subject}, kind)
    predicate = said.get("predicate") or {}
    if kind == CONTENTS:
        if predicate != image.sbom():
            yield f"{kind}: the predicate is not what the image lists in /{SBOM}"
    else:
        yield from _of_provenance(image, predicate, clone, builder)


def _of_provenance(image: Image, predicate: Json, clone: Clone, builder: str | None) -> Iterator[str]:
    facts, said = image.facts(), predicate.get("buildDefinition") or {}
    requirements = clone.digests(facts.revision, REQUIREMENTS[facts.target])
    yield from differences(said, build_definition(facts, requirements, source_of(said).get("uri")), "buildDefinition")
    yield from builder_problems(predicate, builder)


def source_of(definition: Json) -> Json:
    """What a build definition names as its source; empty where it names none."""
    return next((dict(one) for one in definition.get("resolvedDependencies", []) if one.get("name") == "source"), {})


def builder_problems(predicate: Json, builder: str | None) -> Iterator[str]:
    """Whether provenance names who built, and the right one where one is expected."""
    who = ((predicate.get("runDetails") or {}).get("builder") or {}).get("id")
    if not who:
        yield "runDetails.builder.id is missing"
    elif builder is not None and who != builder:
        yield f"runDetails.builder.id is {who!r}, and should be {builder!r}"


def differences(said: Any, right: Any, where: str) -> Iterator[str]:
    """A sentence for each place where two documents differ, at their leaves."""
    if isinstance(said, dict) and isinstance(right, dict):
        for key in sorted({*said, *right}):
            yield from differences(said.get(key), right.get(key), f"{where}.{key}")
    elif isinstance(said, list) and isinstance(right, list) and len(said) == len(right):
        for number, (one, other) in enumerate(zip(said, right, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif said != right:
        yield f"{where} is {said!r}, and should be {right!r}"
