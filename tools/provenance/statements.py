"""What is stated of an image: in-toto Statement v1, with SLSA provenance v1 and with CycloneDX as predicates. Values only."""

from collections.abc import Mapping
from typing import Final

from tools.provenance.images import PARTS, Facts
from tools.provenance.layout import Json

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PROVENANCE: Final = "https://slsa.dev/provenance/v1"
CONTENTS: Final = "https://cyclonedx.org/bom"
BUILD_TYPE: Final = "https://kompakt.dev/provenance/dockerfile/v1"
"""What docs/provenance.md describes; a name, not an address."""
REQUIREMENTS: Final[dict[str, tuple[str, ...]]] = {
    part: tuple(f"requirements/{name}.txt" for name in ("build", "sbom", part) if name != "runtime") for part in PARTS
}
"""The files with hashes from which each target installs packages of others."""


def statement(facts: Facts, digest: str, predicate_type: str, predicate: Json) -> Json:
    """A statement about the image whose manifest has that digest (`sha256:...`)."""
    subject = {"name": facts.name, "digest": {"sha256": digest.removeprefix("sha256:")}}
    return {"_type": STATEMENT, "subject": [subject], "predicateType": predicate_type, "predicate": predicate}


def provenance(facts: Facts, requirements: Mapping[str, str], builder: str, source: str | None, invocation: str | None) -> Json:
    """The predicate of SLSA provenance.

    Args:
        requirements: SHA-256 of each requirements file of the target, in hexadecimal.
        builder: a URI that names who builds, and thereby whom the reader trusts.
        source: where the commit can be had (`git+https://...`).
        invocation: what the builder calls this run.
    """
    metadata = {"invocationId": invocation, "finishedOn": facts.created}
    return {
        "buildDefinition": build_definition(facts, requirements, source),
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {key: value for key, value in metadata.items() if value},
        },
    }


def build_definition(facts: Facts, requirements: Mapping[str, str], source: str | None) -> Json:
    """What went in: the build's parameters, and all that they stand for."""
    args = {
        "BASE_IMAGE": facts.base_name,
        "BASE_DIGEST": facts.base_digest,
        "VERSION": facts.version,
        "REVISION": facts.revision,
    }
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {"dockerfile": "Dockerfile", "target": facts.target, "args": args},
        "internalParameters": {},
        "resolvedDependencies": [
            {"name": "source", **({"uri": source} if source else {}), "digest": {"gitCommit": facts.revision}},
            {"name": facts.base_name, "digest": {"sha256": facts.base_digest.removeprefix("sha256:")}},
            *({"name": path, "digest": {"sha256": found}} for path, found in requirements.items()),
        ],
    }
