"""To which TrainingJob an object belongs: what is written is read, and anything else is nobody's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner

OWNER = JobOwner("ml", "j", "u")
WRITTEN = job_owner.encode(OWNER)
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}
NAMES = st.text(min_size=1, max_size=5)


def labelled(*owners: dict[str, Any], uid: str = "u") -> dict[str, Any]:
    return {"namespace": "ml", "labels": {contract.LABEL_JOB_UID: uid}, "ownerReferences": list(owners)}


@given(st.builds(JobOwner, NAMES, NAMES, NAMES))
def test_what_is_written_is_read(owner: JobOwner) -> None:
    labels = {contract.LABEL_JOB_UID: owner.uid}
    assert (
        job_owner.readable({"namespace": owner.namespace, "labels": labels, "ownerReferences": [job_owner.encode(owner)]})
        == owner
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": None, "ownerReferences": None},
        labelled(),
        {**labelled(WRITTEN), "labels": {}},
        labelled(WRITTEN, uid="another"),
        labelled({**WRITTEN, "uid": "another"}),
        labelled({**WRITTEN, "controller": False}),
        labelled({**WRITTEN, "controller": "true"}),
        labelled({key: value for key, value in WRITTEN.items() if key != "controller"}),
        labelled({**WRITTEN, "kind": "Job"}),
        labelled({**WRITTEN, "apiVersion": "batch/v1"}),
        labelled({**WRITTEN, "apiVersion": "kompakt.dev.example/v1"}),
        labelled({**OTHER, "controller": True}, {**WRITTEN, "controller": False}),
    ],
)
def test_anything_else_is_nobodys(metadata: dict[str, Any]) -> None:
    assert job_owner.readable(metadata) is None


@pytest.mark.parametrize("owners", [[WRITTEN], [OTHER, WRITTEN], [{**WRITTEN, "apiVersion": "kompakt.dev/v1"}]])
def test_the_controller_counts_wherever_it_stands_and_in_each_version(owners: list[dict[str, Any]]) -> None:
    assert job_owner.readable(labelled(*owners)) == OWNER
