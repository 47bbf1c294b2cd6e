"""From the TrainingJob object to its frozen values. Every error names the field's path and says what would be right."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from kompakt_core import contract
from kompakt_core.ids import JobUid
from kompakt_core.job import model
from kompakt_core.job.rules import JOB_NAME_RULE
from kompakt_core.profile import document
from kompakt_core.schema.meta import Declared, about
from kompakt_core.schema.reader import read


class JobMetadata(Declared, frozen=True):
    """What is read of a TrainingJob's metadata. `JOB_NAME_RULE` stands at the whole object in the schema."""

    name: Annotated[str, about("Name of the job.", rules=(JOB_NAME_RULE,))]
    namespace: str = "default"
    uid: str = ""
    generation: Annotated[int, about("Counts changes of the spec.", low=0)] = 0
    annotations: dict[str, str] = msgspec.field(default_factory=dict)

    OPEN: ClassVar[bool] = True


class WholeJob(Declared, frozen=True, kw_only=True):
    """The whole object, without what the operator itself wrote."""

    metadata: JobMetadata
    spec: model.TrainingJobSpec

    OPEN: ClassVar[bool] = True


def parse_job(obj: Mapping[str, Any]) -> model.TrainingJob:
    """A whole TrainingJob object with metadata.

    Raises InvalidInput that names the field for anything the resource's schema would refuse and for every field
    that this version does not honour.
    """
    whole = read(WholeJob, obj, "")
    meta, spec = whole.metadata, whole.spec
    return model.TrainingJob(
        name=meta.name,
        namespace=meta.namespace,
        uid=JobUid(meta.uid),
        generation=meta.generation,
        profile=_profile(meta.annotations),
        **{**msgspec.structs.asdict(spec), "compression": _implied(spec.compression)},
    )


def _implied(found: model.ActivationCompression) -> model.ActivationCompression:
    """A raised batch that trains plainly runs out of memory."""
    if found.batch_size is not model.BatchSize.RAISE:
        return found
    return msgspec.structs.replace(found, failure_policy=model.FailurePolicy.FAIL)


def _profile(annotations: Mapping[str, str]) -> document.Profile | None:
    text = annotations.get(contract.ANN_PROFILE)
    return document.read(text, f"annotation {contract.ANN_PROFILE}") if text else None
