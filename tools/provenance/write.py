"""Both statements, made for one image of a layout and attached to it."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from tools.provenance.attachments import attach
from tools.provenance.clone import Clone
from tools.provenance.images import the_image
from tools.provenance.layout import Json, OciLayout, Refused
from tools.provenance.statements import CONTENTS, PROVENANCE, REQUIREMENTS, build_definition, provenance, statement


@dataclass(frozen=True, slots=True)
class Run:
    """What no image says of itself: who built it (a URI), where its commit can be had, what the builder calls the run."""

    builder: str
    source: str | None = None
    invocation: str | None = None

    def __post_init__(self) -> None:
        if not urlsplit(self.builder).scheme:
            raise Refused(f"the builder is {self.builder!r}; name it by a URI")


def write(layout: OciLayout, clone: Clone, run: Run) -> list[Json]:
    """Attach provenance and contents to the layout's image; the descriptors of what was added.

    Raises:
        Refused: the layout holds no single image of ours, or one that does not say from what it was built, or the clone
            lacks its commit.
    """
    image = the_image(layout)
    facts, digest = image.facts(), image.descriptor["digest"]
    requirements = clone.digests(facts.revision, REQUIREMENTS[facts.target])
    made_from = provenance(build_definition(facts, requirements, run.source), run.builder, run.invocation, facts.created)
    predicates = {PROVENANCE: made_from, CONTENTS: image.sbom()}
    return [attach(image, statement({facts.name: digest}, kind, predicate)) for kind, predicate in predicates.items()]
