"""What in a release's folder does not match, as sentences: checksums, its statements, the chart's layout, images."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.provenance.attachments import FILES
from tools.provenance.clone import Clone
from tools.provenance.images import COMMIT, the_image
from tools.provenance.layout import Json, OciLayout, Refused, reading
from tools.provenance.releases import CHART, OCI, Release, pack_chart
from tools.provenance.statements import CONTENTS, PROVENANCE, TOOLS, release_definition, statement
from tools.provenance.sums import faults, hexadecimal, sums
from tools.provenance.verify import builder_problems, differences, problems, source_of


def release_problems(folder: Path, clone: Clone, builder: str | None = None) -> list[str]:
    """Empty where all matches. `builder` is who must have built it; signatures are not looked at."""
    try:
        # What is not even what the checksums say is not read any further.
        return faults(folder) or list(_mismatches(Release(folder), clone, builder))
    except Refused as error:
        return [str(error)]


def _mismatches(release: Release, clone: Clone, builder: str | None) -> Iterator[str]:
    said = {kind: _document(release.folder / name) for kind, name in FILES.items()}
    predicates = {kind: found.get("predicate") or {} for kind, found in said.items()}
    with reading(FILES[PROVENANCE]):
        commit, where = _origin(predicates[PROVENANCE])
        who = list(builder_problems(predicates[PROVENANCE], builder))
    definition = release_definition(commit, clone.digests(commit, TOOLS), where)
    right = {PROVENANCE: {**predicates[PROVENANCE], "buildDefinition": definition}, CONTENTS: release.contents()}
    for kind, name in FILES.items():
        yield from differences(said[kind], statement(release.subjects(), kind, right[kind]), name)
    yield from who
    yield from _of_chart(release, predicates)
    for path, digest in clone.digests(commit, release.pinned).items():
        if hexadecimal(release.folder / path) != digest:
            yield f"{path} is not what commit {commit} has there"
    for place in release.images():
        found = problems(OciLayout(place), clone, builder) or _of_another_release(place, commit)
        yield from (f"{place.name}: {problem}" for problem in found)


def _of_another_release(place: Path, commit: str) -> Iterator[str]:
    facts = the_image(OciLayout(place)).facts()
    if facts.name != place.name:
        yield f"the image's title is {facts.name}"
    if facts.revision != commit:
        yield f"it is of commit {facts.revision}, and the release of {commit}"


def _document(path: Path) -> Json:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Refused(f"{path.name} is missing") from None
    except ValueError as error:
        raise Refused(f"{path.name} is no JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("predicate"), dict):
        raise Refused(f"{path.name} is no statement: it has no predicate")
    return found


def _origin(made_from: Json) -> tuple[str, str | None]:
    """The commit, and where it can be had. What comes from a stranger is no word for git before it is known to be a hash."""
    source = source_of(made_from.get("buildDefinition") or {})
    commit = str((source.get("digest") or {}).get("gitCommit"))
    if not COMMIT.fullmatch(commit):
        raise Refused(f"it names the commit {commit!r}, which is no hash in full")
    return commit, source.get("uri")


def _of_chart(release: Release, predicates: Mapping[str, Json]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        pack_chart(release.chart, right := Path(folder, "chart"), predicates)
        if sums(right) != sums(release.folder / OCI / CHART):
            yield f"{OCI}/{CHART} is not what {release.chart.name} and the release's statements give"
