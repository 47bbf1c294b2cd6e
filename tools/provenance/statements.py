"""What is stated of images and releases: statements of in-toto with SLSA provenance v1 and with CycloneDX. Values only."""

from collections.abc import Mapping
from typing import Final

from tools.provenance.images import PARTS, Facts
from tools.provenance.layout import Json

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PROVENANCE: Final = "https://slsa.dev/provenance/v1"
CONTENTS: Final = "https://cyclonedx.org/bom"
BUILD_TYPE: Final = "https://kompakt.dev/provenance/dockerfile/v1"
RELEASE_TYPE: Final = "https://kompakt.dev/provenance/release/v1"
"""What docs/provenance.md describes; names, not addresses."""
REQUIREMENTS: Final[dict[str, tuple[str, ...]]] = {
    part: tuple(f"requirements/{name}.txt" for name in ("build", "sbom", part) if name != "runtime") for part in PARTS
}
"""The files with hashes from which each target installs packages of others."""
TOOLS: Final = ("requirements/build.txt", "requirements/uv.txt", "tools/kube/go/helm/go.mod")
"""The files that pin what builds wheels and sources, and what packs the chart."""


def statement(subjects: Mapping[str, str], predicate_type: str, predicate: Json) -> Json:
    """A statement about things by name, of which these are the digests by SHA-256 (of an image: its manifest's)."""
    told = [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}} for name, digest in subjects.items()]
    return {"_type": STATEMENT, "subject": told, "predicateType": predicate_type, "predicate": predicate}


def provenance(definition: Json, builder: str, invocation: str | None, created: str | None = None) -> Json:
    """The predicate of SLSA provenance.

    Args:
        definition: what went in, of `build_definition` or `release_definition`.
        builder: a URI that names who builds, and thereby whom the reader trusts.
        invocation: what the builder calls this run.
        created: when, as far as what was made says it.
    """
    metadata = {"invocationId": invocation, "finishedOn": created}
    return {
        "buildDefinition": definition,
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {key: value for key, value in metadata.items() if value},
        },
    }


def build_definition(facts: Facts, requirements: Mapping[str, str], source: str | None) -> Json:
    """What went into an image: the build's parameters, and all that they stand for.

    Args:
        requirements: SHA-256 of each requirements file of the target, in hexadecimal.
        source: where the commit can be had (`git+https://...`).
    """
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
            _source(facts.revision, source),
            {"name": facts.base_name, "digest": {"sha256": facts.base_digest.removeprefix("sha256:")}},
            *_pinned(requirements),
        ],
    }


def release_definition(revision: str, requirements: Mapping[str, str], source: str | None) -> Json:
    """What went into wheels, sources and chart: a commit, and what pins the tools that build them."""
    return {
        "buildType": RELEASE_TYPE,
        "externalParameters": {"command": "make release"},
        "internalParameters": {},
        "resolvedDependencies": [_source(revision, source), *_pinned(requirements)],
    }


def _source(revision: str, source: str | None) -> Json:
    return {"name": "source", **({"uri": source} if source else {}), "digest": {"gitCommit": revision}}


def _pinned(files: Mapping[str, str]) -> list[Json]:
    return [{"name": path, "digest": {"sha256": found}} for path, found in files.items()]
